/*
 * INI reader. `[section]` or `[section name]`, `key = value`, comments from '#' or ';' at the start
 * of a line. Values are the trimmed text from the first '=' to the end of the line. Lines have at
 * most INI_LINE_MAX bytes, no continuation and no NUL bytes. A byte order mark at the start is
 * skipped. The reader knows no options: it calls the caller back, which may refuse an entry with a
 * message.
 */
#ifndef KVL_BASE_INI_H
#define KVL_BASE_INI_H

#include <stddef.h>

#define INI_LINE_MAX 4096

struct ini_entry {
        const char *section; /* "daemon", "tenant", ... never NULL, "" before the first header */
        const char *name;    /* "a" of [tenant a]; "" if absent */
        const char *key;     /* NULL for the section header itself */
        const char *value;
        unsigned line; /* from 1 */
};

/* Returns 0, or a negative errno, which stops the reading and is returned by ini_parse(). Then
 * `err` (size err_len) has one line with the error, without file and line. */
typedef int (*ini_fn)(const struct ini_entry *e, void *data, char *err, size_t err_len);

/* Parses `text` (`len` bytes). Returns 0, -EINVAL on a syntax error, else the callback's result. On
 * failure `err` has "FILE:LINE: what is wrong", with file_name for FILE. */
int ini_parse(const char *file_name, const char *text, size_t len, ini_fn fn, void *data, char *err,
        size_t err_len);

#endif
