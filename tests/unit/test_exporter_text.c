/* The text that Prometheus reads: names, escapes, numbers, both formats; and which one is asked
 * for. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/exporter/accept.h"
#include "client/exporter/host.h"
#include "client/exporter/text.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/test-support.h"

#define SCENE(fn, ...) TEST_ON(fn, struct text, t, text_init, text_deinit, ##__VA_ARGS__)

#define HEAD "# HELP kvlease_thing A thing.\n# TYPE kvlease_thing gauge\n"

#define UNKNOWN "\xef\xbf\xbd"

static void assert_number(double value, const char *expected)
{
        struct text_labels none = {.n = 0};
        struct text t;
        const char *at;

        text_init(&t, TEXT_PROMETHEUS);
        text_family(&t, "thing", TEXT_GAUGE, "A thing.");
        text_sample(&t, &none, value);
        at = t.data + strlen(HEAD "kvlease_thing ");
        assert_int_equal(strlen(at), strlen(expected) + 1);
        assert_memory_equal(at, expected, strlen(expected));
        text_deinit(&t);
}

TEST(test_numbers)
{
        assert_number(0, "0");
        assert_number(0.001, "0.001");
        assert_number(1.0 / 3, "0.33333333333333331");
        assert_number(9007199254740991.0, "9007199254740991");
        assert_number(123456789012345.0, "123456789012345");
        assert_number((double)INFINITY, "+Inf");
        assert_number(-(double)INFINITY, "-Inf");
        assert_number((double)NAN, "NaN");
}

static void write_all(struct text *t)
{
        static const double bounds[] = {0.1, 1};
        static const uint64_t counts[] = {2, 0, 3};
        struct text_labels a = {{{"kind", "a"}}, 1}, none = {.n = 0};

        text_family(t, "build", TEXT_INFO, "Who.");
        text_sample(t, &a, 1);
        text_family(t, "sent_bytes", TEXT_COUNTER, "How much.");
        text_sample(t, &none, 7);
        text_family(t, "call_seconds", TEXT_HISTOGRAM, "How long.");
        text_histogram(t, &a, bounds, counts, 2, 4.5);
        text_end(t);
}

#define HISTOGRAM                                                 \
        "kvlease_call_seconds_bucket{kind=\"a\",le=\"0.1\"} 2\n"  \
        "kvlease_call_seconds_bucket{kind=\"a\",le=\"1\"} 2\n"    \
        "kvlease_call_seconds_bucket{kind=\"a\",le=\"+Inf\"} 5\n" \
        "kvlease_call_seconds_sum{kind=\"a\"} 4.5\n"              \
        "kvlease_call_seconds_count{kind=\"a\"} 5\n"

SCENE(test_prometheus, TEXT_PROMETHEUS)
{
        write_all(t);
        assert_string_equal(t->data, "# HELP kvlease_build_info Who.\n"
                                     "# TYPE kvlease_build_info gauge\n"
                                     "kvlease_build_info{kind=\"a\"} 1\n"
                                     "# HELP kvlease_sent_bytes_total How much.\n"
                                     "# TYPE kvlease_sent_bytes_total counter\n"
                                     "kvlease_sent_bytes_total 7\n"
                                     "# HELP kvlease_call_seconds How long.\n"
                                     "# TYPE kvlease_call_seconds histogram\n" HISTOGRAM);
}

SCENE(test_openmetrics, TEXT_OPENMETRICS)
{
        write_all(t);
        assert_string_equal(t->data, "# HELP kvlease_build Who.\n"
                                     "# TYPE kvlease_build info\n"
                                     "kvlease_build_info{kind=\"a\"} 1\n"
                                     "# HELP kvlease_sent_bytes How much.\n"
                                     "# TYPE kvlease_sent_bytes counter\n"
                                     "# UNIT kvlease_sent_bytes bytes\n"
                                     "kvlease_sent_bytes_total 7\n"
                                     "# HELP kvlease_call_seconds How long.\n"
                                     "# TYPE kvlease_call_seconds histogram\n"
                                     "# UNIT kvlease_call_seconds seconds\n" HISTOGRAM "# EOF\n");
}

SCENE(test_html, TEXT_PROMETHEUS)
{
        text_html(t, "<b a='1' c=\"2\">&\xff\n");
        assert_string_equal(
                t->data, "&lt;b a=&#39;1&#39; c=&quot;2&quot;&gt;&amp;" UNKNOWN UNKNOWN);
}

static void assert_choice(const char *header, enum text_format format)
{
        if (accept_choose(header) != format)
                fail_msg("%s", header ? header : "no header");
}

TEST(test_accept)
{
        assert_choice(NULL, TEXT_PROMETHEUS);
        assert_choice("", TEXT_PROMETHEUS);
        assert_choice("*/*", TEXT_PROMETHEUS);
        assert_choice("text/html, */*;q=0.1", TEXT_PROMETHEUS);
        assert_choice("application/openmetrics-text", TEXT_OPENMETRICS);
        assert_choice("text/plain, application/openmetrics-text", TEXT_OPENMETRICS);
        assert_choice("application/openmetrics-text;q=0", TEXT_PROMETHEUS);
        assert_choice("application/openmetrics-text; version=2.0.0", TEXT_PROMETHEUS);
        assert_choice("text/plain;q=0.9, application/openmetrics-text;q=0.1", TEXT_PROMETHEUS);
        assert_choice("text/plain;q=0.1, application/openmetrics-text;q=0.9", TEXT_OPENMETRICS);
        assert_choice("TEXT/PLAIN;Q=0.1,\tApplication/OpenMetrics-Text;q=0.9", TEXT_OPENMETRICS);
        assert_choice(
                "text/*;q=0.9, application/openmetrics-text;q=0.5, */*;q=0.1", TEXT_PROMETHEUS);
        /* Headers of Prometheus 2.42, and of a later one. */
        assert_choice("application/openmetrics-text;version=1.0.0,application/openmetrics-text;"
                      "version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                TEXT_OPENMETRICS);
        assert_choice("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", TEXT_PROMETHEUS);
}

/* No weight at all: as if it were not wanted. */
TEST(test_accept_nonsense)
{
        assert_choice("application/openmetrics-text;q=2", TEXT_PROMETHEUS);
        assert_choice("application/openmetrics-text;q=1.001", TEXT_PROMETHEUS);
        assert_choice("application/openmetrics-text;q=-1", TEXT_PROMETHEUS);
        assert_choice("application/openmetrics-text;q=0.0001", TEXT_PROMETHEUS);
        assert_choice("application/openmetrics-text;q=", TEXT_PROMETHEUS);
        assert_choice("application/openmetrics-text;q", TEXT_PROMETHEUS);
        assert_choice(",;,;=;q=1,,", TEXT_PROMETHEUS);
        assert_choice("application/openmetrics-text-2", TEXT_PROMETHEUS);
}

TEST(test_hosts)
{
        static const struct host_names names = {{"gpu7.example.net", "metrics"}, 2},
                                       any = {{"*"}, 1};
        static const char *const fine[] = {"127.0.0.1", "127.0.0.1:9758", "10.1.2.3:80",
                "[::1]:9758", "[fe80::1]", "localhost", "LocalHost:9758", "localhost.",
                "gpu7.example.net:9758", "METRICS"};
        static const char *const wrong[] = {"", ":", "evil.example", "evil.example:9758",
                "gpu7.example.net.evil.example", "127.0.0.1.evil.example", "localhost.evil.example",
                "metrics@evil.example", "evil.example:127.0.0.1", "1.2.3", "..", "[]"};
        char own[256] = "", with_domain[512];

        for (size_t i = 0; i < ARRAY_SIZE(fine); i++)
                if (!host_is_allowed(&names, fine[i]))
                        fail_msg("%s is refused", fine[i]);
        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
                if (host_is_allowed(&names, wrong[i]))
                        fail_msg("%s", wrong[i]);
                assert_true(host_is_allowed(&any, wrong[i]));
        }
        assert_int_equal(gethostname(own, sizeof(own) - 1), 0);
        assert_true(host_is_allowed(&names, own));
        snprintf(with_domain, sizeof(with_domain), "%s.evil.example", own);
        assert_false(host_is_allowed(&names, with_domain));
}
