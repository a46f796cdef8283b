/* Single flight: several workers need a text at once. One of them computes it page by page. The
 * others get each page as soon as it is published, or continue where it ends. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/macros.h"
#include "tests/integration/harness.h"
#include "tests/integration/pattern.h"

#define MSEC UINT64_C(1000000)

#define DOCUMENT_PAGES 625    /* 10,000 tokens in pages of 16 */
#define PATIENCE       120000 /* milliseconds; not tuned */
#define LATE_OK_NSEC   (10000 * MSEC)

static const struct private_tenant one[] = {{"a", "limit = 64MiB\n"}, {NULL, NULL}};
static const struct private_options roomy = {.tenants = one};
static const struct private_tenant small[] = {{"a", "limit = 2MiB\n"}, {NULL, NULL}};
static const struct private_options small_cache = {.tenants = small};

struct outcome {
        unsigned n_computed, n_found, n_duplicates, n_bad;
};

/* Reads the answer to a "flight" command. */
static struct outcome read_outcome(struct worker *w)
{
        struct outcome o;

        assert_true(worker_answers(w, PATIENCE));
        if (w->code != 0 || sscanf(w->rest, "%u %u %u %u", &o.n_computed, &o.n_found,
                                    &o.n_duplicates, &o.n_bad) != 4)
                fail_msg("'%s' is no flight's answer", w->line);
        assert_int_equal(o.n_bad, 0);
        return o;
}

static void stop_all(struct worker **workers, unsigned n)
{
        for (unsigned i = 0; i < n; ++i) {
                worker_tell(workers[i], "flight-drop");
                worker_stop(workers[i]);
        }
}

/* ---- one document --------------------------------------------------------------------------- */

static void assert_computed_once(
        struct harness *h, struct worker **workers, unsigned n, unsigned n_pages)
{
        unsigned n_computed = 0;

        for (unsigned i = 0; i < n; ++i) {
                struct outcome o = read_outcome(workers[i]);

                assert_int_equal(o.n_computed + o.n_found, n_pages);
                assert_int_equal(o.n_duplicates, 0);
                n_computed += o.n_computed;
        }
        assert_int_equal(n_computed, n_pages);
        assert_int_equal(ctl_status(h, "publishes"), n_pages);
        assert_int_equal(ctl_status(h, "duplicates"), 0);
        assert_int_equal(ctl_status(h, "pages_sealed"), n_pages);
}

/* Both get their answer at once. */
HARNESS_TEST(test_at_once, &roomy)
{
        struct worker *workers[2];

        for (unsigned i = 0; i < 2; ++i)
                workers[i] = worker_start(h, "a", "ns", 2);
        for (unsigned i = 0; i < 2; ++i)
                worker_say(workers[i], "flight 1 %u 300", DOCUMENT_PAGES);
        assert_computed_once(h, workers, 2, DOCUMENT_PAGES);
        stop_all(workers, 2);
}

/* ---- an announcer's end --------------------------------------------------------------------- */

#define N_WAITERS 3
#define TEXT      20 /* pages, of which half are published */

struct waited {
        uint64_t end_nsec, took_nsec;
};

static struct waited read_wait(struct worker *w, int code)
{
        unsigned long long end, took;

        assert_true(worker_answers(w, PATIENCE));
        assert_int_equal(w->code, code);
        assert_int_equal(sscanf(w->rest, "%llu %llu", &end, &took), 2);
        return (struct waited){end, took};
}

static int compare(const void *a, const void *b)
{
        uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

        return x < y ? -1 : x > y;
}

/* Starts a worker that has announced a text and published its first half. */
static struct worker *start_announcer(struct harness *h, unsigned chain)
{
        struct worker *w = worker_start(h, "a", "ns", 2);
        char line[512], tail[256];
        uint32_t pages[TEXT];
        int at = 0;

        worker_tell(w, "lease %d", TEXT);
        assert_int_equal(worker_numbers(w, pages, TEXT), TEXT);
        for (unsigned i = 0; i < TEXT; ++i) {
                worker_tell(w, "fill %u %llu", pages[i],
                        (unsigned long long)pattern_seed("a", chain, i));
                at += snprintf(tail + at, sizeof(tail) - (size_t)at, " %u", pages[i]);
                if (i + 1 == TEXT / 2)
                        snprintf(line, sizeof(line), "publish %u:0-%d -%s", chain, TEXT / 2 - 1,
                                tail);
        }
        worker_tell(w, "announce %u:0-%d%s", chain, TEXT - 1, tail);
        worker_tell(w, "%s", line);
        return w;
}

/* One waiting worker takes over, and the others get its pages. */
static void take_over(struct worker **waiters, unsigned chain)
{
        unsigned n_computed = 0;

        for (unsigned i = 0; i < N_WAITERS; ++i)
                worker_say(waiters[i], "flight %u %d 500", chain, TEXT);
        for (unsigned i = 0; i < N_WAITERS; ++i) {
                struct outcome o = read_outcome(waiters[i]);

                assert_int_equal(o.n_computed + o.n_found, TEXT);
                assert_int_equal(o.n_duplicates, 0);
                n_computed += o.n_computed;
        }
        assert_int_equal(n_computed, TEXT - TEXT / 2);
        for (unsigned i = 0; i < N_WAITERS; ++i)
                worker_tell(waiters[i], "flight-drop");
}

HARNESS_TEST(test_killed_announcer, &roomy)
{
        unsigned n_rounds = private_full() ? 50 : private_short() ? 5 : 15, n = 0;
        uint64_t latencies[50 * N_WAITERS];
        struct worker *waiters[N_WAITERS];

        for (unsigned i = 0; i < N_WAITERS; ++i)
                waiters[i] = worker_start(h, "a", "ns", 2);
        for (unsigned round = 0; round < n_rounds; ++round) {
                struct worker *announcer = start_announcer(h, round);
                uint64_t killed;

                for (unsigned i = 0; i < N_WAITERS; ++i)
                        worker_say(waiters[i], "wait %u:%u 60000", round, TEXT / 2 + i);
                sleep_msec(20);
                killed = now_nsec();
                worker_kill(announcer);
                for (unsigned i = 0; i < N_WAITERS; ++i)
                        latencies[n++] = read_wait(waiters[i], KVL_MISS).end_nsec - killed;
                take_over(waiters, round);
        }
        qsort(latencies, n, sizeof(*latencies), compare);
        print_message("an announcer's death is known after %llu us (median of %u; %llu at most)\n",
                (unsigned long long)latencies[n / 2] / 1000, n,
                (unsigned long long)latencies[n - 1] / 1000);
        assert_true(latencies[n / 2] < 200 * MSEC);
        for (unsigned i = 0; i < N_WAITERS; ++i)
                worker_stop(waiters[i]);
}

/* ---- waits that no publish ends ------------------------------------------------------------- */

HARNESS_TEST(test_stopped_daemon, &roomy)
{
        static const char *const env[] = {"KVL_WORKER_TIMEOUT_MSEC=2000", NULL};
        struct worker *waiter = worker_spawn_with(h, program_worker(), env);
        bool shares = harness_shares();
        struct waited waited;

        start_announcer(h, 1);
        worker_attach(waiter, "a", "ns", 2);
        assert_int_equal(worker_ask(waiter, "wait 1:0 300"), 0);
        assert_int_equal(kill(h->daemon.pid, SIGSTOP), 0);
        worker_say(waiter, "wait 1:%d 300", TEXT / 2);
        waited = read_wait(waiter, shares ? KVL_TIMEOUT : -ETIMEDOUT);
        assert_in_range(waited.took_nsec, 300 * MSEC, 2300 * MSEC + LATE_OK_NSEC);
        /* A cached page is still found. */
        if (shares)
                assert_int_equal(worker_ask(waiter, "wait 1:0 300"), 0);
        assert_int_equal(kill(h->daemon.pid, SIGCONT), 0);
}

/* ---- a crowd -------------------------------------------------------------------------------- */

#define N_CROWD 8

struct crowd {
        struct harness *h;
        uint64_t random;
        unsigned n_texts;
        struct worker *workers[N_CROWD];
};

static struct worker *start_flight(struct crowd *c)
{
        return worker_start_job(c->h, "flight", "a",
                (struct worker_job){
                        .seed = pattern_next(&c->random), .n_planes = 1, .n_chains = c->n_texts});
}

/* Kills one worker and starts another in its place. A worker that saw a wrong byte or an error has
 * exited before. */
static void replace(struct crowd *c, unsigned victim)
{
        assert_true(worker_is_running(c->workers[victim]));
        worker_kill(c->workers[victim]);
        c->workers[victim] = start_flight(c);
}

/* Kills workers at random moments, for that long, and until `figure` is counted. */
static void churn(struct harness *h, unsigned n_texts, unsigned msec, const char *figure)
{
        /* Workers need time to begin before they are killed: 0.4 s on a GPU. */
        unsigned kill_msec = private_on_real_gpu() ? 400 : 80;
        struct crowd c = {.h = h, .random = harness_seed(), .n_texts = n_texts};
        uint64_t end = now_nsec() + msec * MSEC;
        unsigned n_kills = 0;

        for (unsigned i = 0; i < N_CROWD; ++i)
                c.workers[i] = start_flight(&c);
        while (now_nsec() < end || ctl_status(h, figure) == 0) {
                assert_true(now_nsec() < end + 60000 * MSEC);
                sleep_msec((unsigned)(pattern_next(&c.random) % kill_msec));
                replace(&c, (unsigned)(pattern_next(&c.random) % N_CROWD));
                if (n_kills++ % 8 == 0)
                        ctl(h, "check");
        }
        for (unsigned i = 0; i < N_CROWD; ++i) {
                assert_true(worker_is_running(c.workers[i]));
                worker_kill(c.workers[i]);
        }
        print_message(
                "%u kills, %llu keys announced, %llu that others were computing, %llu evictions\n",
                n_kills, (unsigned long long)ctl_status(h, "announced"),
                (unsigned long long)ctl_status(h, "announces_pending"),
                (unsigned long long)ctl_status(h, "evictions"));
        harness_assert_settled(h);
}

/* Few texts, so that workers meet and wait for each other. */
HARNESS_TEST(test_churn, &small_cache)
{
        churn(h, 6, private_full() ? 60000 : private_short() ? 1000 : 3000, "announces_pending");
}

/* More texts than there is room for. */
HARNESS_TEST(test_churn_under_eviction, &small_cache)
{
        churn(h, 120, private_full() ? 60000 : private_short() ? 1000 : 2000, "evictions");
}
