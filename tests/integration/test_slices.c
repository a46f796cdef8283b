/* Long requests are done in slices: other tenants are served meanwhile. The client gets its answer
 * when all is done. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "tests/integration/harness.h"

#define N_PAGES 131072

static const struct private_tenant two_tenants[] = {{"a", "limit = 1GiB\n"}, {"b", NULL}, {0}};
static const struct private_options many_pages = {
        .device_lines = "memory = 1152MiB\n", .tenants = two_tenants};
static const struct private_options kept_pages = {
        .device_lines = "memory = 1152MiB\n", .tenants = two_tenants, .is_kept = true};

/* How many of a few sample keys of a text of N_PAGES are found, each by its key alone. */
static unsigned count_found(struct worker *w)
{
        static const unsigned sample[] = {0, 1, 77, 1023, 40000, 99999, N_PAGES - 1};
        unsigned n = 0;

        for (size_t i = 0; i < ARRAY_SIZE(sample); i++) {
                worker_tell(w, "hits 1 1:%u", sample[i]);
                n += (unsigned)atoi(w->rest);
        }
        return n;
}

/* How often `other` is answered until `w` is. */
static unsigned serve_others(struct worker *w, struct worker *other)
{
        unsigned n = 0;

        while (!worker_answers(w, 0)) {
                worker_tell(other, "invalidate 5:5"); /* which the daemon alone can do */
                n++;
        }
        return n;
}

/* Another tenant is served while this one's `words` are done. The number that is answered. */
static unsigned run_beside(struct harness *h, struct worker *w, const char *words)
{
        struct worker *other = worker_start(h, "b", "ns", 1);
        unsigned n;

        worker_say(w, "%s", words);
        n = serve_others(w, other);
        assert_int_equal(w->code, 0);
        print_message("%s: others were answered %u times\n", words, n);
        harness_assert_prompt(h);
        n = (unsigned)atoi(w->rest);
        worker_stop(other);
        return n;
}

HARNESS_TEST(test_key, &many_pages)
{
        struct worker *w = worker_start(h, "a", "ns", 1), *reader = worker_start(h, "a", "ns", 1);

        worker_tell(w, "fill-chain 1 %u 0", N_PAGES);
        worker_tell(w, "fill-chain 2 10 0");
        assert_int_equal(count_found(reader), 7);
        assert_int_equal(run_beside(h, w, "invalidate 1:0"), N_PAGES);
        assert_int_equal(count_found(reader), 0);
        worker_tell(reader, "hits 1 2:0-9");
        assert_int_equal(atoi(reader->rest), 1);
}

/* Truncated pages are out of the session when it is answered, and are freed soon. */
HARNESS_TEST(test_session, &many_pages)
{
        struct worker *w = worker_start(h, "a", "ns", 1);

        worker_tell(w, "session-open chat");
        worker_tell(w, "fill-chain 1 %u 0", N_PAGES);
        assert_int_equal(run_beside(h, w, "session-truncate 64 0"), N_PAGES - 4);
        ctl_wait_status(h, "pages_sealed", 4);
        worker_tell(w, "fill-chain 2 %u 0", N_PAGES);
        worker_tell(w, "session-close drop");
        ctl_wait_status(h, "pages_sealed", 4);
        harness_assert_prompt(h);
}

#define N_WINDOW (N_PAGES - 8)

static void expect_window(struct worker *w, unsigned number)
{
        unsigned is_new, n_pages;

        worker_tell(w, "session-close");
        worker_tell(w, "session-open chat%u must", number);
        assert_int_equal(sscanf(w->rest, "%u %u", &is_new, &n_pages), 2);
        assert_int_equal(n_pages, 4 + N_WINDOW);
}

static void begin_long_text(struct worker *w)
{
        worker_tell(w, "session-open anchor");
        worker_tell(w, "fill-chain 1 %u 0", N_PAGES);
        worker_tell(w, "session-close");
}

/* The daemon dies in the middle: the next one has the session as it was, and does it when it is
 * asked again; or as it was to be. */
HARNESS_TEST(test_daemon_dies_truncating, &kept_pages)
{
        pid_t daemon = (pid_t)ctl_status(h, "pid");
        struct worker *w, *other;

        harness_needs_kept_memory();
        w = worker_start(h, "a", "ns", 1);
        other = worker_start(h, "a", "ns", 1);
        begin_long_text(w);
        worker_tell(w, "session-open chat0");
        assert_int_equal(
                worker_ask(w, "session-talk 1 %u %u", N_PAGES - 1, N_PAGES - 1), KVL_DUPLICATE);
        worker_tell(other, "session-open chat0 must");
        worker_say(w, "session-truncate 64 %u", N_WINDOW * 16);
        (void)worker_ask(other, "session-hint 1 0"); /* it has reached the daemon, most likely */
        kill(daemon, SIGKILL);
        assert_true(worker_answers(w, 60000));
        assert_int_equal(w->code, 0);
        print_message("the second daemon took %s from the session", w->rest);
        worker_tell(other, "session-close");
        expect_window(w, 0);
}

/* A reader in shared memory beside it: its hits of the text get shorter, never longer. There are
 * none once the other client has its answer. */
HARNESS_TEST(test_reader, &many_pages)
{
        struct worker *w = worker_start(h, "a", "ns", 1), *reader = worker_start(h, "a", "ns", 1);
        unsigned last = 1;

        worker_tell(w, "fill-chain 1 %u 0", N_PAGES);
        worker_say(w, "invalidate 1:0");
        while (!worker_answers(w, 0)) {
                unsigned now;

                worker_tell(reader, "hits 1 1:0-2047");
                now = (unsigned)atoi(reader->rest);
                assert_true(now <= last);
                last = now;
        }
        assert_int_equal(w->code, 0);
        worker_tell(reader, "hits 1 1:0");
        assert_int_equal(atoi(reader->rest), 0);
        assert_int_equal(count_found(reader), 0);
}

/* The asker dies, others of its tenant leave: it is done all the same. */
HARNESS_TEST(test_asker_dies, &many_pages)
{
        struct worker *w = worker_start(h, "a", "ns", 1), *reader = worker_start(h, "a", "ns", 1);

        worker_tell(w, "fill-chain 1 %u 0", N_PAGES);
        worker_say(w, "invalidate 1:0");
        do /* it has reached the daemon */
                worker_tell(reader, "hits 1 1:%u", N_PAGES - 1);
        while (atoi(reader->rest) == 1);
        worker_kill(w);
        ctl_wait_status(h, "pages_sealed", 0);
        harness_assert_prompt(h);
}

/* The daemon dies in the middle: the client asks the next one again, and that does the rest. */
HARNESS_TEST(test_daemon_dies, &kept_pages)
{
        pid_t daemon = (pid_t)ctl_status(h, "pid");
        struct worker *w, *reader;

        harness_needs_kept_memory();
        w = worker_start(h, "a", "ns", 1);
        reader = worker_start(h, "a", "ns", 1);
        worker_tell(w, "fill-chain 1 %u 0", N_PAGES);
        worker_say(w, "invalidate 1:0");
        do
                worker_tell(reader, "hits 1 1:%u", N_PAGES - 1);
        while (atoi(reader->rest) == 1);
        kill(daemon, SIGKILL);
        assert_true(worker_answers(w, 60000));
        assert_int_equal(w->code, 0);
        print_message("the second daemon dropped %s", w->rest);
        assert_int_equal(count_found(reader), 0);
}

#define N_HELD 65536 /* pages, pinned and leased */

static void hold_many(struct worker *w)
{
        worker_tell(w, "hold 1 %u %u", N_HELD, N_HELD / 2);
}

/* A client with very many pins and leases is killed: all are freed soon. Its successor needn't wait
 * for that. */
HARNESS_TEST(test_client_dies, &many_pages)
{
        struct worker *w = worker_start(h, "a", "ns", 1), *other = worker_start(h, "b", "ns", 1);

        hold_many(w);
        assert_true(ctl_status(h, "pages_granted") >= N_HELD / 2);
        worker_kill(w);
        w = worker_start(h, "a", "ns", 1);
        for (unsigned i = 0; i < 20; i++)
                worker_tell(other, "invalidate 5:5");
        worker_tell(w, "hits 1 1:%u", N_HELD - 1);
        assert_int_equal(atoi(w->rest), 1);
        ctl_wait_status(h, "pages_pinned", 0);
        ctl_wait_status(h, "pages_detached", 0);
        harness_assert_prompt(h);
}

/* A client closes the namespace. It holds no page of it once it is answered, and others are served
 * until then. */
HARNESS_TEST(test_close, &many_pages)
{
        struct worker *w = worker_start(h, "a", "ns", 1);

        hold_many(w);
        (void)run_beside(h, w, "close");
        assert_int_equal(ctl_status(h, "pages_pinned"), 0);
        assert_int_equal(ctl_status(h, "pages_detached"), 0);
        assert_int_equal(ctl_status(h, "pages_granted"), 0);
        assert_int_equal(ctl_status(h, "pages_sealed"), N_HELD);
        worker_kill(w);
}
