/*
 * What the daemon tells people: one human sentence an event, with structured fields beside it. To
 * the journal where stderr is the journal, else readable text on stderr. Never keys, page contents
 * or tokens. What peers can cause is told once per rule: a peer must not fill the log. Loop thread
 * only.
 */
#ifndef KVL_SERVER_LOG_H
#define KVL_SERVER_LOG_H

#include <stdbool.h>
#include <stddef.h>

#include "base/macros.h"

/* In the order of their names in the configuration. */
enum log_level { LEVEL_ERROR, LEVEL_WARNING, LEVEL_NOTICE, LEVEL_INFO, LEVEL_DEBUG };
enum log_target { TARGET_AUTO, TARGET_JOURNAL, TARGET_TEXT };

/* Until it is called: notices and worse, target chosen automatically. */
void log_init(enum log_level level, enum log_target target);

struct log_field {
        const char *name; /* [A-Z_]+; goes to the journal as KVLEASE_NAME */
        const char *text; /* borrowed */
};

/* `fields` ends with a NULL name; NULL: none. */
KVL_PRINTF(3, 4)
void log_event(enum log_level level, const struct log_field *fields, const char *format, ...);

#define log_error(...)   log_event(LEVEL_ERROR, NULL, __VA_ARGS__)
#define log_warning(...) log_event(LEVEL_WARNING, NULL, __VA_ARGS__)
#define log_notice(...)  log_event(LEVEL_NOTICE, NULL, __VA_ARGS__)
#define log_info(...)    log_event(LEVEL_INFO, NULL, __VA_ARGS__)

/* Fields of log_event() in place: log_event(LEVEL_INFO, LOG_FIELDS({"TENANT", name}), "..."). */
#define LOG_FIELDS(...) ((const struct log_field[]){__VA_ARGS__, {NULL, NULL}})

/*
 * True the first time it is asked for this rule (static text). At most LOG_RULES_MAX rules are told
 * apart, later ones are never new.
 */
#define LOG_RULES_MAX 64
bool log_first_of(const char *rule);

/* Whether stderr is connected to the journal ($JOURNAL_STREAM names its device and inode). */
bool log_stderr_is_journal(void);

/*
 * Writes the readable form of one line, newline included: control characters become '?'. Returns
 * its length, at most size - 1. For log_event() and its test.
 */
size_t log_format_line(char *buf, size_t size, enum log_level level, const struct log_field *fields,
        const char *sentence);

#endif
