#include "daemon/server/base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#define SD_JOURNAL_SUPPRESS_LOCATION
#include <systemd/sd-journal.h>

#include "base/list.h"
#include "base/thread.h"

#define SENTENCE_MAX  1024 /* a detail of 512 bytes and the text around it; not tuned */
#define TEXT_LINE_MAX 2048
#define FIELDS_MAX    8
#define FIELD_MAX     256
#define END_SEC       1 /* to write waiting messages at the end; not tuned */

#define JOURNAL_SOCKET "/run/systemd/journal/socket" /* systemd */

static const struct {
        enum log_level level;
        const char *id;
} messages[] = {
#define X(name, its_level, id) [LOG_##name] = {its_level, id},
        LOG_MESSAGE_TABLE(X)
#undef X
};

/* Changed only by the loop's thread, under the queue's lock. */
static enum log_level max_level = LEVEL_NOTICE;
static enum log_target log_target = TARGET_AUTO;
static bool is_to_file; /* text goes to a regular file, which needs no reader */

static const struct {
        const char *name;
        int priority;
} levels[] = {
        [LEVEL_ERROR] = {"error", LOG_ERR},
        [LEVEL_WARNING] = {"warning", LOG_WARNING},
        [LEVEL_NOTICE] = {"notice", LOG_NOTICE},
        [LEVEL_INFO] = {"info", LOG_INFO},
        [LEVEL_DEBUG] = {"debug", LOG_DEBUG},
};

bool log_stderr_is_journal(void)
{
        const char *stream = getenv("JOURNAL_STREAM");
        unsigned long long device, inode;
        struct stat st;

        if (!stream || sscanf(stream, "%llu:%llu", &device, &inode) != 2)
                return false;
        return fstat(STDERR_FILENO, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

/* Appends to buf as far as it fits, returns the new length. */
KVL_PRINTF(4, 5)
static size_t append_text(char *buf, size_t size, size_t len, const char *format, ...)
{
        va_list args;
        int n;

        va_start(args, format);
        n = vsnprintf(buf + len, size - len, format, args);
        va_end(args);
        return n < 0 ? len : MIN(len + (size_t)n, size - 1);
}

size_t log_format_line(char *buf, size_t size, enum log_level level, const struct log_field *fields,
        const char *sentence)
{
        struct timespec now;
        struct tm tm;
        size_t len;

        clock_gettime(CLOCK_REALTIME, &now);
        gmtime_r(&now.tv_sec, &tm);
        len = strftime(buf, size, "%Y-%m-%dT%H:%M:%S", &tm);
        len = append_text(buf, size, len, ".%03ldZ kvleased[%d] %s: %s", now.tv_nsec / 1000000,
                (int)getpid(), levels[level].name, sentence);
        for (size_t i = 0; fields && fields[i].name; i++)
                len = append_text(buf, size, len, " %s=%s", fields[i].name, fields[i].text);
        for (size_t i = 0; i < len; i++)
                if ((unsigned char)buf[i] < ' ' || buf[i] == 0x7f)
                        buf[i] = '?';
        len = MIN(len, size - 2);
        buf[len++] = '\n';
        buf[len] = '\0';
        return len;
}

/* ---- messages on their way ------------------------------------------------------------------- */

/* A message: n_fields fields for the journal, each ending in NUL, then the line for text. */
struct message {
        struct list_link link;
        unsigned n_fields;
        size_t len;
        char data[];
};

#define MESSAGE_MAX (SENTENCE_MAX + (FIELDS_MAX + 3) * FIELD_MAX + TEXT_LINE_MAX)

/* Fails only for want of memory. Returns owned. */
static struct message *new_message(
        enum log_level level, const char *id, const struct log_field *fields, const char *sentence)
{
        char data[MESSAGE_MAX];
        struct message *m;
        unsigned n = 0;
        size_t len = 0;

        if (log_target == TARGET_JOURNAL) {
                len = append_text(data, sizeof(data), len, "MESSAGE=%s", sentence) + 1;
                len = append_text(data, sizeof(data), len, "PRIORITY=%d", levels[level].priority) +
                      1;
                len = append_text(data, sizeof(data), len, "SYSLOG_IDENTIFIER=kvleased") + 1;
                n = 3;
                if (id) {
                        len = append_text(data, sizeof(data), len, "MESSAGE_ID=%s", id) + 1;
                        n++;
                }
                for (size_t i = 0; fields && fields[i].name && i < FIELDS_MAX; i++, n++)
                        len = append_text(data, MIN(sizeof(data), len + (size_t)FIELD_MAX), len,
                                      "KVLEASE_%s=%s", fields[i].name, fields[i].text) +
                              1;
        }
        len += log_format_line(data + len, MIN(sizeof(data) - len, (size_t)TEXT_LINE_MAX), level,
                fields, sentence);
        m = malloc(sizeof(*m) + len + 1);
        if (!m)
                return NULL;
        *m = (struct message){.n_fields = n, .len = len};
        list_init(&m->link);
        memcpy(m->data, data, len + 1);
        return m;
}

static void write_line(const char *line, bool may_wait)
{
        struct pollfd stderr_fd = {STDERR_FILENO, POLLOUT, 0};
        size_t left = strlen(line);

        /* If stderr is closed, the line is lost. */
        while (left > 0) {
                ssize_t n = write(STDERR_FILENO, line, left);

                if (n < 0 && (errno != EAGAIN || !may_wait || poll(&stderr_fd, 1, -1) < 0))
                        return;
                line += n > 0 ? n : 0;
                left -= n > 0 ? (size_t)n : 0;
        }
}

/* Takes the message. */
static void write_message(struct message *m, bool may_wait)
{
        struct iovec iov[FIELDS_MAX + 4];
        char *at = m->data;

        for (unsigned i = 0; i < m->n_fields; i++) {
                iov[i] = (struct iovec){at, strlen(at)};
                at += strlen(at) + 1;
        }
        if (m->n_fields == 0 || sd_journal_sendv(iov, (int)m->n_fields) != 0)
                write_line(at, may_wait);
        free(m);
}

static struct {
        pthread_mutex_t lock; /* of all below */
        pthread_cond_t news;  /* a message, the end, or all is written */
        pthread_t thread;
        enum { NO_THREAD, RUNS, ENDS, LEFT_BEHIND } state;
        struct list_link waiting; /* messages */
        unsigned n_waiting;
        uint64_t n_dropped; /* since the last report of drops */
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .news = PTHREAD_COND_INITIALIZER};

/* NULL: no memory; the next message may have some. */
static struct message *new_note_of_dropped(uint64_t n)
{
        char sentence[SENTENCE_MAX];

        snprintf(sentence, sizeof(sentence),
                "%" PRIu64 " messages are missing here: the log was not read meanwhile", n);
        return new_message(LEVEL_WARNING, NULL, NULL, sentence);
}

/* [lock, released meanwhile] */
static void write_next(void)
{
        struct message *m = list_first(&queue.waiting, struct message, link), *note = NULL;

        list_remove(&m->link);
        queue.n_waiting--;
        if (queue.n_waiting == 0 && queue.n_dropped > 0) {
                note = new_note_of_dropped(queue.n_dropped);
                if (note)
                        queue.n_dropped = 0;
        }
        pthread_mutex_unlock(&queue.lock);
        write_message(m, true);
        if (note)
                write_message(note, true);
        pthread_mutex_lock(&queue.lock);
}

static void *run_log(void *data)
{
        pthread_mutex_lock(&queue.lock);
        for (;;) {
                if (!list_is_empty(&queue.waiting))
                        write_next();
                else if (queue.state == RUNS)
                        pthread_cond_wait(&queue.news, &queue.lock);
                else
                        break;
        }
        queue.state = NO_THREAD;
        pthread_cond_broadcast(&queue.news);
        pthread_mutex_unlock(&queue.lock);
        return data;
}

/* After a dropped message all later ones are dropped, until those before it are written. Otherwise
 * the report of drops would stand in the wrong place. */
static void put(struct message *m)
{
        bool is_mine;

        pthread_mutex_lock(&queue.lock);
        is_mine = queue.state == NO_THREAD || is_to_file;
        if (!is_mine && (!m || queue.n_dropped > 0 || queue.n_waiting >= LOG_QUEUE_MAX ||
                                queue.state == LEFT_BEHIND)) {
                queue.n_dropped++;
                free(m);
        } else if (!is_mine) {
                list_append(&queue.waiting, &m->link);
                queue.n_waiting++;
                pthread_cond_broadcast(&queue.news);
        }
        pthread_mutex_unlock(&queue.lock);
        if (is_mine && m)
                write_message(m, false);
}

void log_init(enum log_level level, enum log_target target)
{
        struct stat st;

        if (target == TARGET_AUTO)
                target = log_stderr_is_journal() ? TARGET_JOURNAL : TARGET_TEXT;
        /* Without a socket sd_journal_sendv() drops the message and reports success. */
        if (target == TARGET_JOURNAL && access(JOURNAL_SOCKET, F_OK) < 0)
                target = TARGET_TEXT;
        pthread_mutex_lock(&queue.lock);
        max_level = level;
        log_target = target;
        is_to_file = target == TARGET_TEXT && fstat(STDERR_FILENO, &st) == 0 && S_ISREG(st.st_mode);
        pthread_mutex_unlock(&queue.lock);
}

int log_start(void)
{
        int r;

        list_init(&queue.waiting);
        queue.state = RUNS;
        r = thread_start(&queue.thread, NULL, run_log, NULL);
        if (r < 0)
                queue.state = NO_THREAD;
        return r;
}

void log_stop(void)
{
        struct timespec until;
        bool is_over;

        pthread_mutex_lock(&queue.lock);
        if (queue.state != RUNS) {
                pthread_mutex_unlock(&queue.lock);
                return;
        }
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += END_SEC;
        queue.state = ENDS;
        pthread_cond_broadcast(&queue.news);
        while (queue.state == ENDS)
                if (pthread_cond_timedwait(&queue.news, &queue.lock, &until) == ETIMEDOUT)
                        break;
        is_over = queue.state == NO_THREAD;
        if (!is_over)
                queue.state = LEFT_BEHIND;
        pthread_mutex_unlock(&queue.lock);
        if (is_over)
                pthread_join(queue.thread, NULL);
        else
                pthread_detach(queue.thread);
}

KVL_PRINTF(4, 0)
static void emit(enum log_level level, const char *id, const struct log_field *fields,
        const char *format, va_list args)
{
        char sentence[SENTENCE_MAX];

        if (level > max_level)
                return;
        vsnprintf(sentence, sizeof(sentence), format, args);
        if (log_target == TARGET_AUTO)
                log_init(max_level, TARGET_AUTO);
        put(new_message(level, id, fields, sentence));
}

void log_event(enum log_level level, const struct log_field *fields, const char *format, ...)
{
        va_list args;

        va_start(args, format);
        emit(level, NULL, fields, format, args);
        va_end(args);
}

void log_report(void *data, bool is_error, const char *sentence)
{
        log_event(is_error ? LEVEL_ERROR : LEVEL_NOTICE, NULL, "%s", sentence);
}

void log_message(
        enum log_message_name name, const struct log_field *fields, const char *format, ...)
{
        va_list args;

        va_start(args, format);
        emit(messages[name].level, messages[name].id, fields, format, args);
        va_end(args);
}

bool log_first_of(const char *rule)
{
        static const char *seen[LOG_RULES_MAX];
        static size_t n_seen;

        for (size_t i = 0; i < n_seen; i++)
                if (strcmp(seen[i], rule) == 0)
                        return false;
        if (n_seen == LOG_RULES_MAX)
                return false;
        seen[n_seen++] = rule;
        return true;
}
