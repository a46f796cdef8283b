#include "daemon/server/system/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#define SD_JOURNAL_SUPPRESS_LOCATION
#include <systemd/sd-journal.h>

#define SENTENCE_MAX  1024 /* a detail of 512 bytes and what is said around it; not tuned */
#define TEXT_LINE_MAX 2048
#define FIELDS_MAX    8
#define FIELD_MAX     256

#define JOURNAL_SOCKET "/run/systemd/journal/socket" /* systemd */

static const struct {
        enum log_level level;
        const char *id;
} messages[] = {
#define X(name, its_level, id) [LOG_##name] = {its_level, id},
        LOG_MESSAGE_TABLE(X)
#undef X
};

static enum log_level max_level = LEVEL_NOTICE;
static enum log_target log_target = TARGET_AUTO;

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

void log_init(enum log_level level, enum log_target target)
{
        max_level = level;
        log_target = target;
        if (target == TARGET_AUTO)
                log_target = log_stderr_is_journal() ? TARGET_JOURNAL : TARGET_TEXT;
        /* Without one sd_journal_sendv() throws the message away and says that all is well. */
        if (log_target == TARGET_JOURNAL && access(JOURNAL_SOCKET, F_OK) < 0)
                log_target = TARGET_TEXT;
}

/* `id` may be NULL. */
static bool to_journal(
        enum log_level level, const char *id, const struct log_field *fields, const char *sentence)
{
        char texts[FIELDS_MAX][FIELD_MAX], message[SENTENCE_MAX + 16], priority[16], id_text[64];
        struct iovec iov[FIELDS_MAX + 4];
        int n = 0;

        snprintf(message, sizeof(message), "MESSAGE=%s", sentence);
        snprintf(priority, sizeof(priority), "PRIORITY=%d", levels[level].priority);
        iov[n++] = (struct iovec){message, strlen(message)};
        iov[n++] = (struct iovec){priority, strlen(priority)};
        iov[n++] = (struct iovec){(char *)"SYSLOG_IDENTIFIER=kvleased", 26};
        if (id) {
                snprintf(id_text, sizeof(id_text), "MESSAGE_ID=%s", id);
                iov[n++] = (struct iovec){id_text, strlen(id_text)};
        }
        for (size_t i = 0; fields && fields[i].name && i < FIELDS_MAX; i++) {
                snprintf(texts[i], FIELD_MAX, "KVLEASE_%s=%s", fields[i].name, fields[i].text);
                iov[n++] = (struct iovec){texts[i], strlen(texts[i])};
        }
        return sd_journal_sendv(iov, n) == 0;
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

KVL_PRINTF(4, 0)
static void emit(enum log_level level, const char *id, const struct log_field *fields,
        const char *format, va_list args)
{
        char sentence[SENTENCE_MAX], line[TEXT_LINE_MAX];
        size_t len;

        if (level > max_level)
                return;
        vsnprintf(sentence, sizeof(sentence), format, args);
        if (log_target == TARGET_AUTO)
                log_init(max_level, TARGET_AUTO);
        if (log_target == TARGET_JOURNAL && to_journal(level, id, fields, sentence))
                return;
        len = log_format_line(line, sizeof(line), level, fields, sentence);
        /* Where stderr is gone there is nobody left to tell. */
        if (write(STDERR_FILENO, line, len) < 0)
                return;
}

void log_event(enum log_level level, const struct log_field *fields, const char *format, ...)
{
        va_list args;

        va_start(args, format);
        emit(level, NULL, fields, format, args);
        va_end(args);
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
