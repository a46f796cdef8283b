/* The exporter's metrics of its own process. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "client/exporter/process.h"
#include "tests/unit/test-support.h"

#define NUMBERS " 1 1 1 0 -1 4194560 100 0 0 0 250 150 0 0 20 0 3 0 12345 8192000 321"

TEST(test_parse)
{
        static const char *const names[] = {"kvlease-exporte", "a b", ") S 1 (", ""};
        double ticks = (double)sysconf(_SC_CLK_TCK);

        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
                char line[256];
                struct process_stat s;

                snprintf(line, sizeof(line), "42 (%s) S" NUMBERS " 18446744073709551615 1\n",
                        names[i]);
                assert_int_equal(process_parse(line, &s), 0);
                assert_true(s.cpu_seconds == 400 / ticks);
                assert_true(s.started_after_boot_sec == 12345 / ticks);
                assert_int_equal(s.virtual_bytes, 8192000);
                assert_int_equal(s.resident_bytes, 321 * sysconf(_SC_PAGESIZE));
        }
}

TEST(test_nonsense)
{
        static const char *const lines[] = {"", "42", "42 (x", "42 (x)", "42 (x) S",
                "42 (x) S 1 2 3", "42 (x) S 1 1 1 0 -1 4194560 100 0 0 0 x", "()"};
        struct process_stat s;

        for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
                assert_int_equal(process_parse(lines[i], &s), -EINVAL);
}

/* The value of a sample that stands alone on its line. */
static double value_of(const struct text *t, const char *name)
{
        char line[64];
        const char *at;

        snprintf(line, sizeof(line), "\n%s ", name);
        at = strstr(t->data, line);
        if (!at)
                fail_msg("no %s in %s", name, t->data);
        return strtod(at + strlen(line), NULL);
}

static double value_now(const char *name)
{
        struct text t;
        double value;

        text_init(&t, TEXT_PROMETHEUS);
        process_tell(&t);
        value = value_of(&t, name);
        text_deinit(&t);
        return value;
}

TEST(test_figures)
{
        double files = value_now("process_open_fds"), cpu = value_now("process_cpu_seconds_total");
        double now = (double)time(NULL), started = value_now("process_start_time_seconds");
        struct rlimit limit;
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

        assert_true(fd >= 0);
        assert_true(value_now("process_open_fds") == files + 1);
        close(fd);
        assert_true(value_now("process_open_fds") == files);
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
        assert_true(value_now("process_max_fds") == (double)limit.rlim_cur);
        assert_true(value_now("process_resident_memory_bytes") >= 4096);
        assert_true(value_now("process_virtual_memory_bytes") >
                    value_now("process_resident_memory_bytes"));
        assert_true(cpu >= 0 && cpu < 3600);
        assert_true(started <= now + 1 && started > now - 3600);
        assert_true(value_now("process_start_time_seconds") == started);
        while (value_now("process_cpu_seconds_total") < cpu + 0.02)
                ; /* it grows by what this takes */
}

TEST(test_open_metrics)
{
        struct text t;

        text_init(&t, TEXT_OPENMETRICS);
        process_tell(&t);
        assert_non_null(strstr(t.data, "# TYPE process_cpu_seconds counter\n"));
        assert_non_null(strstr(t.data, "# UNIT process_cpu_seconds seconds\n"));
        assert_non_null(strstr(t.data, "\nprocess_cpu_seconds_total "));
        assert_null(strstr(t.data, "kvlease_process"));
        /* Later families have the prefix again. */
        text_family(&t, "up", TEXT_GAUGE, "1 where kvleased answered.");
        text_sample(&t, &(struct text_labels){0}, 1);
        assert_non_null(strstr(t.data, "\nkvlease_up 1\n"));
        text_deinit(&t);
}
