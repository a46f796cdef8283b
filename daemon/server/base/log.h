/*
 * The daemon's log: one sentence for people per event, with structured fields. It goes to the
 * journal if stderr is the journal, else as readable text to stderr. It never contains keys, page
 * contents or tokens. Events that peers can cause are logged once per rule, so that no peer can
 * fill the log.
 *
 * The log's reader may stop reading, and a write then blocks. So a thread writes between
 * log_start() and log_stop(), except to a regular file. Up to LOG_QUEUE_MAX messages wait for it;
 * further ones are dropped and counted, and the log reports their number once it continues. Loop
 * thread only.
 */
#ifndef KVL_SERVER_LOG_H
#define KVL_SERVER_LOG_H

#include <stdbool.h>
#include <stddef.h>

#include "base/macros.h"

/* In the order of their names in the configuration. */
enum log_level { LEVEL_ERROR, LEVEL_WARNING, LEVEL_NOTICE, LEVEL_INFO, LEVEL_DEBUG };
enum log_target { TARGET_AUTO, TARGET_JOURNAL, TARGET_TEXT };

/* Sets level and target. Before that: notices and worse, target chosen automatically. */
void log_init(enum log_level level, enum log_target target);

#define LOG_QUEUE_MAX 512 /* some 1 MiB at most; not tuned */

/* Starts the thread. Returns 0; -errno: there is no thread, and all messages are written in
 * place. */
int log_start(void);

/* Writes waiting messages, for at most a second. Later messages are written in place; if the thread
 * still waits for a reader, they are lost. */
void log_stop(void);

struct log_field {
        const char *name; /* [A-Z_]+; goes to the journal as KVLEASE_NAME */
        const char *text; /* borrowed */
};

/* `fields` ends with a NULL name; NULL: none. */
KVL_PRINTF(3, 4)
void log_event(enum log_level level, const struct log_field *fields, const char *format, ...);

/* A sentence without newline, as an error or a notice: a callback of parts that report. */
void log_report(void *unused, bool is_error, const char *sentence);

/*
 * Events for monitoring: each has its level and a MESSAGE_ID in the journal (`journalctl
 * MESSAGE_ID=...`), random once and never changed. X(name, level, id)
 */
/* clang-format off */
#define LOG_MESSAGE_TABLE(X) \
        X(READY, LEVEL_NOTICE, "d9fdbcab4e0609327e8f55346c890993") \
        X(STOPPING, LEVEL_NOTICE, "8310832dde0bc8fac4eb0700983e20b2") \
        X(RELOADED, LEVEL_NOTICE, "cceda92ef71945bc515fcffecf99136b") \
        X(RELOAD_FAILED, LEVEL_ERROR, "cb210253e2f688c653899fb850682a34") \
        X(TENANT_MADE, LEVEL_NOTICE, "0fd8571bcc9aade5a1f55043feedc24f") \
        X(TENANT_CHANGED, LEVEL_NOTICE, "da5bc9f230fe07d108590a145a7f46a3") \
        X(TENANT_REMOVED, LEVEL_NOTICE, "5863960f2bed3bfd0d00b2db39725916") \
        X(DRAIN, LEVEL_NOTICE, "5fa25aaa72c3189b126e7a466ef73a8c") \
        X(DRAIN_END, LEVEL_NOTICE, "4837c1e82d5944aa90cf00fa804dfb2b") \
        X(VIOLATION, LEVEL_WARNING, "4e8c6f9c0b8476dbfccab07774c9cd07") \
        X(CHECK_FAILED, LEVEL_ERROR, "31b822af79f56f61705855a42d28b8bf") \
        X(NO_DESCRIPTORS, LEVEL_ERROR, "4209157d07ea02410e029526c09f596e") \
        X(QUARANTINED, LEVEL_WARNING, "2275c730919440519bf7adf85d2eeeca")
/* clang-format on */

enum log_message_name {
#define X(name, ...) LOG_##name,
        LOG_MESSAGE_TABLE(X)
#undef X
};

/* One of them; otherwise as log_event(). */
KVL_PRINTF(3, 4)
void log_message(
        enum log_message_name name, const struct log_field *fields, const char *format, ...);

#define log_error(...)   log_event(LEVEL_ERROR, NULL, __VA_ARGS__)
#define log_warning(...) log_event(LEVEL_WARNING, NULL, __VA_ARGS__)
#define log_notice(...)  log_event(LEVEL_NOTICE, NULL, __VA_ARGS__)
#define log_info(...)    log_event(LEVEL_INFO, NULL, __VA_ARGS__)

/* Fields for log_event(): log_event(LEVEL_INFO, LOG_FIELDS({"TENANT", name}), "..."). */
#define LOG_FIELDS(...) ((const struct log_field[]){__VA_ARGS__, {NULL, NULL}})

/*
 * Returns true on the first call for this rule (static text). At most LOG_RULES_MAX rules are
 * distinguished; later ones are never new.
 */
#define LOG_RULES_MAX 64
bool log_first_of(const char *rule);

/* True if stderr is connected to the journal ($JOURNAL_STREAM names its device and inode). */
bool log_stderr_is_journal(void);

/*
 * Writes the readable form of one line, newline included: control characters become '?'. Returns
 * its length, at most size - 1. For log_event() and its test.
 */
size_t log_format_line(char *buf, size_t size, enum log_level level, const struct log_field *fields,
        const char *sentence);

#endif
