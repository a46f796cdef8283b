/* Log lines: one line for any text, the level filter, and messages once per rule. */
#include "tests/unit/test-support.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/server/base/log.h"

static void test_a_line(void **state)
{
        char line[256];
        size_t len = log_format_line(line, sizeof(line), LEVEL_WARNING,
                LOG_FIELDS({"TENANT", "a"}, {"PID", "7"}), "it broke");

        assert_int_equal(len, strlen(line));
        assert_non_null(strstr(line, "] warning: it broke TENANT=a PID=7\n"));
        assert_int_equal(line[10], 'T');
}

static void test_a_line_stays_one(void **state)
{
        char line[256];
        size_t len = log_format_line(line, sizeof(line), LEVEL_ERROR,
                LOG_FIELDS({"NAME", "x\ny\x1b[1m"}), "first\nsecond\r");

        assert_ptr_equal(strchr(line, '\n'), line + len - 1);
        assert_null(strchr(line, '\x1b'));
        assert_non_null(strstr(line, "first?second? NAME=x?y?[1m"));
}

static void test_a_long_line_is_cut(void **state)
{
        char line[128], text[1000];
        size_t len;

        memset(text, 'x', sizeof(text));
        text[sizeof(text) - 1] = '\0';
        len = log_format_line(line, sizeof(line), LEVEL_ERROR, LOG_FIELDS({"A", text}), text);
        assert_int_equal(len, sizeof(line) - 1);
        assert_int_equal(line[len - 1], '\n');
        assert_int_equal(line[len], '\0');
}

static void test_once_per_rule(void **state)
{
        static char rules[LOG_RULES_MAX + 1][16]; /* log.c keeps the pointers */

        assert_true(log_first_of("rule-a"));
        assert_false(log_first_of("rule-a"));
        assert_true(log_first_of("rule-b"));
        assert_false(log_first_of("rule-b"));
        for (unsigned i = 0; i < LOG_RULES_MAX + 1; i++) {
                snprintf(rules[i], sizeof(rules[i]), "rule-%u", i);
                assert_int_equal(log_first_of(rules[i]), i < LOG_RULES_MAX - 2);
        }
}

/* Returns the output of a function on stderr; owned. */
static char *capture(void (*fn)(void))
{
        int pipe_fds[2], saved = dup(STDERR_FILENO);
        char *text = calloc(1, 4096);

        assert_non_null(text);
        assert_int_equal(pipe(pipe_fds), 0);
        dup2(pipe_fds[1], STDERR_FILENO);
        close(pipe_fds[1]);
        fn();
        dup2(saved, STDERR_FILENO);
        close(saved);
        assert_true(read(pipe_fds[0], text, 4095) >= 0);
        close(pipe_fds[0]);
        return text;
}

static void say_all(void)
{
        log_error("an error %d", 1);
        log_warning("a warning");
        log_notice("a notice");
        log_info("an info");
}

static void test_levels(void **state)
{
        char *text;

        log_init(LEVEL_WARNING, TARGET_TEXT);
        text = capture(say_all);
        assert_non_null(strstr(text, "error: an error 1\n"));
        assert_non_null(strstr(text, "warning: a warning\n"));
        assert_null(strstr(text, "notice"));
        assert_null(strstr(text, "info"));
        free(text);
        log_init(LEVEL_INFO, TARGET_TEXT);
        text = capture(say_all);
        assert_non_null(strstr(text, "info: an info\n"));
        free(text);
}

/* More lines are logged than the queue holds while the reader sleeps; then it reads. */
static void test_reader_stalls(void **state)
{
        const unsigned n = LOG_QUEUE_MAX + 200;
        _cleanup_free_ char *text = calloc(1, 1 << 20);
        int pipe_fds[2], saved = dup(STDERR_FILENO);
        unsigned n_dropped = 0, n_read = 0;
        char *missing = NULL;
        size_t len = 0;

        assert_non_null(text);
        assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
        assert_true(fcntl(pipe_fds[0], F_SETPIPE_SZ, 4096) > 0);
        dup2(pipe_fds[1], STDERR_FILENO);
        close(pipe_fds[1]);
        log_init(LEVEL_NOTICE, TARGET_TEXT);
        assert_int_equal(log_start(), 0);
        for (unsigned i = 0; i < n; i++)
                log_notice("line %u", i);
        while (!missing) {
                ssize_t got = read(pipe_fds[0], text + len, (1 << 20) - len - 1);

                assert_true(got > 0);
                len += (size_t)got;
                missing =
                        strstr(text, " messages are missing here: the log was not read meanwhile");
        }
        log_notice("back");
        log_stop();
        dup2(saved, STDERR_FILENO);
        close(saved);
        assert_true(read(pipe_fds[0], text + len, (1 << 20) - len - 1) > 0);
        close(pipe_fds[0]);
        assert_non_null(strstr(missing, "notice: back\n"));
        assert_null(strstr(strchr(missing, '\n'), "are missing"));
        while (missing[-1] != ' ')
                missing--;
        assert_int_equal(sscanf(missing, "%u", &n_dropped), 1);
        *missing = '\0';
        for (const char *at = text; (at = strstr(at, ": line ")); at++, n_read++)
                assert_int_equal(strtoul(at + strlen(": line "), NULL, 10), n_read);
        assert_in_range(n_dropped, 1, n - LOG_QUEUE_MAX);
        assert_int_equal(n_read + n_dropped, n);
}

/* The end of the daemon waits a moment, not for a reader. */
static void test_end_unread(void **state)
{
        int pipe_fds[2], saved = dup(STDERR_FILENO);

        assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
        dup2(pipe_fds[1], STDERR_FILENO);
        close(pipe_fds[1]);
        assert_int_equal(log_start(), 0);
        for (unsigned i = 0; i < 2000; i++)
                log_notice("a line that fills a pipe sooner or later, as there are many of them");
        log_stop();
        log_notice("lost");
        dup2(saved, STDERR_FILENO);
        close(saved);
        close(pipe_fds[0]); /* which ends the thread */
}

static void test_is_journal(void **state)
{
        char value[64];
        struct stat st;

        assert_int_equal(fstat(STDERR_FILENO, &st), 0);
        snprintf(value, sizeof(value), "%llu:%llu", (unsigned long long)st.st_dev,
                (unsigned long long)st.st_ino);
        setenv("JOURNAL_STREAM", value, 1);
        assert_true(log_stderr_is_journal());
        setenv("JOURNAL_STREAM", "1:1", 1);
        assert_false(log_stderr_is_journal());
        setenv("JOURNAL_STREAM", "nonsense", 1);
        assert_false(log_stderr_is_journal());
        unsetenv("JOURNAL_STREAM");
        assert_false(log_stderr_is_journal());
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST_ROW(test_a_line), TEST_ROW(test_a_line_stays_one),
                TEST_ROW(test_a_long_line_is_cut), TEST_ROW(test_once_per_rule),
                TEST_ROW(test_levels), TEST_ROW(test_reader_stalls), TEST_ROW(test_is_journal),
                TEST_ROW(test_end_unread), /* the last one: it leaves the thread behind */
        };

        signal(SIGPIPE, SIG_IGN);
        return RUN_TESTS(tests);
}
