/*
 * INI reader. `[section]` or `[section name]`, `key = value`, comments from '#' or ';' at the
 * start of a line, values taken as they are between the first '=' and the end of the line, trimmed.
 * Lines of at most INI_LINE_MAX bytes, no continuation, no NUL bytes; a byte order mark at the
 * start is left out. It knows no options: it calls back with what it reads, and the caller answers
 * with a message where it doesn't like it.
 */
#ifndef KVL_BASE_INI_H
#define KVL_BASE_INI_H

#include <stddef.h>

#define INI_LINE_MAX 4096

struct ini_entry {
        const char *section; /* "daemon", "tenant", ... never NULL, "" before the first header */
        const char *name;    /* "a" of [tenant a]; "" where absent */
        const char *key;     /* NULL for the section header itself */
        const char *value;
        unsigned line; /* from 1 */
};

/*
 * 0, or a negative errno, which stops the reading and is returned by ini_parse(); then `err`
 * (size err_len) holds one line saying what is wrong, without file and line.
 */
typedef int (*ini_fn)(const struct ini_entry *e, void *data, char *err, size_t err_len);

/*
 * Parses `text` (`len` bytes). On failure `err` holds "FILE:LINE: what is wrong" where file_name is
 * what to print for FILE. 0, -EINVAL on a syntax error, else what the callback returned.
 */
int ini_parse(const char *file_name, const char *text, size_t len, ini_fn fn, void *data, char *err,
        size_t err_len);

#endif
