/* Pages in a lower tier, in calls that concern more than single pages: sessions, tags, namespace
 * sets, lookups that wait. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "tests/integration/harness.h"

#define N_TEXT      32 /* pages of the text that a test is about; 4 KiB */
#define COLD_PAGES  64
#define COLD_CHAINS 64 /* texts that make it cold: fewer pages than the lower tier has room for */
#define PAGE_TOKENS 16

static const struct private_tenant one[] = {{"a", NULL}, {NULL, NULL}};
#define DEVICE_BYTES (UINT64_C(4) << 20)
#define DEVICE_LINES "memory = 4MiB\nextent = 2MiB\nhost_memory = 32MiB\n"
static const struct private_options tiers = {.tenants = one, .device_lines = DEVICE_LINES};
static const struct private_options kept = {
        .tenants = one, .device_lines = DEVICE_LINES, .is_kept = true};

static void release(struct worker *w, const uint32_t *pages, unsigned n)
{
        for (unsigned i = 0; i < n; ++i)
                worker_tell(w, "release %u", pages[i]);
}

struct where {
        unsigned n_found, n_below;
};

/* Tiers of the chain's first N_TEXT pages. */
static struct where find(struct worker *w, unsigned chain)
{
        struct where at;

        worker_tell(w, "tiers %u:0-%u", chain, N_TEXT - 1);
        assert_int_equal(sscanf(w->rest, "%u %u", &at.n_found, &at.n_below), 2);
        return at;
}

static json_int_t namespace_figure(struct harness *h, const char *name, const char *figure)
{
        json_t *reply = ctl_json(h, "namespaces"), *ns;
        json_int_t value = -1;
        size_t i;

        json_array_foreach(ctl_list(reply, "namespaces"), i, ns)
        {
                if (strcmp(json_string_value(json_object_get(ns, "name")), name) == 0)
                        value = json_integer_value(json_object_get(ns, figure));
        }
        json_decref(reply);
        assert_true(value >= 0);
        return value;
}

/* A lease evicts for missing memory, rather than wait for copies. Waits until free memory is enough
 * for the next, or no page is demoted any more. */
static void await_room(struct harness *h, const char *name)
{
        json_int_t n_free = 0, arrived = 0, before = -1;
        unsigned n_still = 0;

        for (unsigned n = 0; n < 1000 && n_still < 100; ++n) {
                n_free = namespace_figure(h, name, "pages_free");
                arrived = namespace_figure(h, name, "host_arrived");
                if (n_free >= COLD_PAGES || ctl_status(h, "charged_bytes") < DEVICE_BYTES)
                        return;
                n_still = arrived == before ? n_still + 1 : 0;
                before = arrived;
                sleep_msec(10);
        }
}

/*
 * Other texts fill the device until the text's last n pages are in the lower tier: all of it stays.
 */
static void make_cold(struct worker *w, const char *ns, unsigned chain, unsigned n)
{
        static unsigned next_chain = 1000;
        struct where at = find(w, chain);

        for (unsigned i = 0; i < COLD_CHAINS && at.n_below < n; ++i) {
                await_room(w->harness, ns);
                worker_tell(w, "cache %u %u", next_chain++, COLD_PAGES);
                at = find(w, chain);
        }
        print_message("chain %u: %u pages, %u below\n", chain, at.n_found, at.n_below);
        if (at.n_below < n) {
                worker_tell(w, "explain %u:0-%u", chain, N_TEXT - 1);
                print_message("%s\n", w->rest);
        }
        assert_true(at.n_below >= n);
}

/* All are on the device, with their bytes. */
static void assert_up(struct worker *w, unsigned chain, unsigned n)
{
        uint32_t pages[N_TEXT];
        struct where at;

        worker_tell(w, "lookup %u:0-%u", chain, n - 1);
        assert_int_equal(worker_numbers(w, pages, N_TEXT), n);
        for (unsigned i = 0; i < n; ++i)
                worker_tell(w, "verify %u %u", pages[i], 1000 * chain + i);
        at = find(w, chain);
        assert_int_equal(at.n_below, 0);
        release(w, pages, n);
}

/* ---- sessions ------------------------------------------------------------------------------- */

static void assert_session(struct worker *w, unsigned n_pages)
{
        unsigned is_new, n, n_tokens, n_lost;

        worker_tell(w, "session-open chat must");
        assert_int_equal(sscanf(w->rest, "%u %u %u %u", &is_new, &n, &n_tokens, &n_lost), 4);
        assert_int_equal(is_new, 0);
        assert_int_equal(n, n_pages);
        assert_int_equal(n_tokens, n_pages * PAGE_TOKENS);
        assert_int_equal(n_lost, 0);
}

/*
 * The session has the text's pages, without `gap` after the first `n_head`, with all their bytes.
 */
static void read_session(struct worker *w, unsigned n, unsigned n_head, unsigned gap)
{
        uint32_t numbers[3 * 2 * N_TEXT];

        worker_tell(w, "session-pages 0 4000");
        assert_int_equal(worker_numbers(w, numbers, ARRAY_SIZE(numbers)), 3 * n);
        for (unsigned i = 0; i < n; ++i) {
                unsigned index = i < n_head ? i : i + gap;

                worker_tell(w, "verify %u %u", numbers[3 * i], 1000 + index);
                assert_int_equal(numbers[3 * i + 2], index * PAGE_TOKENS);
        }
        worker_tell(w, "session-release");
}

/* A cold conversation outlives its worker, is read, continued, truncated and read again. */
static void talk(struct harness *h, bool daemon_dies)
{
        struct worker *w = worker_start(h, "a", "ns", 1);

        worker_tell(w, "session-open chat");
        worker_tell(w, "session-talk 1 0 %u", N_TEXT - 1);
        worker_tell(w, "session-close");
        make_cold(w, "ns", 1, N_TEXT);
        worker_kill(w);
        if (daemon_dies) {
                assert_int_equal(kill((pid_t)ctl_status(h, "pid"), SIGKILL), 0);
                assert_int_equal(private_daemon_await(&h->daemon), 0);
        }

        w = worker_start(h, "a", "ns", 1);
        assert_session(w, N_TEXT);
        assert_int_equal(find(w, 1).n_below, N_TEXT);
        /* The session continues in the lower tier; its pages are moved up when they are read. */
        worker_tell(w, "session-talk 1 %u %u", N_TEXT, N_TEXT + 3);
        read_session(w, N_TEXT + 4, N_TEXT + 4, 0);
        assert_up(w, 1, N_TEXT);

        worker_tell(w, "session-truncate %u %u", 8 * PAGE_TOKENS, 4 * PAGE_TOKENS);
        assert_int_equal(strtoul(w->rest, NULL, 10), N_TEXT - 8);
        make_cold(w, "ns", 1, 8);
        read_session(w, 12, 8, N_TEXT - 8);
        worker_tell(w, "session-close drop");
        assert_int_equal(worker_ask(w, "session-open chat must"), -ENOENT);
        worker_stop(w);
}

HARNESS_TEST(test_session, &tiers)
{
        talk(h, false);
}

HARNESS_TEST(test_session_survives, &kept)
{
        if (!private_is_contiguous()) {
                print_message("skipped: this memory doesn't outlive the daemon\n");
                skip();
        }
        talk(h, true);
}

/* ---- namespace sets ------------------------------------------------------------------------- */

#define RANKS 2

/* One rank's text is cold, the other's isn't: it is found in both, and is on the device then. */
HARNESS_TEST(test_set, &tiers)
{
        struct worker *ranks[RANKS], *scheduler = worker_spawn(h);
        char socket[PRIVATE_PATH_MAX];
        uint32_t pages[N_TEXT];
        unsigned n_found, n_tokens;

        private_daemon_socket(&h->daemon, "a", socket);
        worker_tell(scheduler, "connect %s - metadata", socket);
        for (unsigned i = 0; i < RANKS; ++i) {
                ranks[i] = worker_spawn(h);
                worker_tell(ranks[i], "connect %s", socket);
                worker_tell(ranks[i], "set-open rank-%u 1 model %u %u", i, RANKS, i);
                worker_tell(scheduler, "set-open rank-%u 1 model %u %u", i, RANKS, i);
        }
        for (unsigned i = 0; i < RANKS; ++i)
                worker_tell(ranks[i], "cache 1 %u", N_TEXT);
        /* Its other texts are in one rank alone, for less time than the set waits for the other.
         * The other's text is held, as a page evicted there is dropped here, too. */
        worker_tell(ranks[1], "lookup 1:0-%u", N_TEXT - 1);
        assert_int_equal(worker_numbers(ranks[1], pages, N_TEXT), N_TEXT);
        make_cold(ranks[0], "rank-0", 1, N_TEXT);
        release(ranks[1], pages, N_TEXT);
        worker_tell(scheduler, "set-lookup 1:0-%u", N_TEXT);
        assert_int_equal(sscanf(scheduler->rest, "%u %u", &n_found, &n_tokens), 2);
        assert_int_equal(n_found, N_TEXT);
        assert_int_equal(n_tokens, N_TEXT * PAGE_TOKENS);
        for (unsigned i = 0; i < RANKS; ++i)
                assert_up(ranks[i], 1, N_TEXT);
        worker_tell(scheduler, "set-release");
        /* A page invalidated in one rank is dropped in the other, in any tier. */
        worker_tell(ranks[1], "invalidate 1:%u", N_TEXT / 2);
        worker_tell(scheduler, "set-lookup 1:0-%u", N_TEXT);
        assert_int_equal(sscanf(scheduler->rest, "%u %u", &n_found, &n_tokens), 2);
        assert_int_equal(n_found, N_TEXT / 2);
        worker_tell(scheduler, "set-release");
        for (unsigned n = 1000; find(ranks[0], 1).n_found > N_TEXT / 2 && n > 0; --n)
                sleep_msec(10);
        assert_int_equal(find(ranks[0], 1).n_found, N_TEXT / 2);
        for (unsigned i = 0; i < RANKS; ++i)
                worker_stop(ranks[i]);
}

/* ---- lookups whose end stays below ---------------------------------------------------------- */

/* The whole device is leased, so a page that can't be moved up ends the run, of lookups and of a
 * session. The worker checks how many tokens that is. */
HARNESS_TEST(test_cut, &tiers)
{
        struct worker *w = worker_start(h, "a", "ns", 1), *hog = worker_start(h, "a", "ns", 1);
        uint32_t head[N_TEXT / 4], found[N_TEXT];
        unsigned n_leased = 0;

        worker_tell(w, "session-open chat");
        worker_tell(w, "session-talk 1 0 %u", N_TEXT - 1);
        make_cold(w, "ns", 1, N_TEXT);
        worker_tell(w, "lookup 1:0-%zu", ARRAY_SIZE(head) - 1);
        assert_int_equal(worker_numbers(w, head, ARRAY_SIZE(head)), ARRAY_SIZE(head));
        while (worker_ask(hog, "lease 16") == 0)
                n_leased += 16;
        while (worker_ask(hog, "lease 1") == 0)
                n_leased++;
        print_message("%u pages leased\n", n_leased);
        worker_tell(w, "lookup 1:0-%u", N_TEXT - 1);
        assert_int_equal(worker_numbers(w, found, N_TEXT), ARRAY_SIZE(head));
        release(w, found, ARRAY_SIZE(head));
        /* A lookup that waits, too: the page behind the run is cached, so it isn't pending. */
        worker_tell(w, "lookup-wait 20 1:0-%u", N_TEXT - 1);
        assert_int_equal(worker_numbers(w, found, N_TEXT), 1 + ARRAY_SIZE(head));
        assert_int_equal(found[0], 0);
        release(w, found + 1, ARRAY_SIZE(head));
        read_session(w, ARRAY_SIZE(head), ARRAY_SIZE(head), 0);
        worker_tell(w, "session-close drop");
        release(w, head, ARRAY_SIZE(head));
}

/* ---- what is only looked at ----------------------------------------------------------------- */

static struct where probe(struct worker *w, const char *keys)
{
        struct where at;

        worker_tell(w, "probe %s", keys);
        assert_int_equal(sscanf(w->rest, "%u %u", &at.n_found, &at.n_below), 2);
        return at;
}

/* A probe finds cached pages from the first key on, in any tier, and leaves them there. */
HARNESS_TEST(test_probe, &tiers)
{
        struct worker *w = worker_start(h, "a", "ns", 1);
        uint32_t pages[N_TEXT / 4];
        uint64_t n_lookups;
        pid_t daemon = (pid_t)ctl_status(h, "pid");

        assert_int_equal(worker_ask(w, "probe 1:0"), KVL_MISS);
        worker_tell(w, "cache 1 %u", N_TEXT);
        make_cold(w, "ns", 1, N_TEXT);
        worker_tell(w, "lookup 1:0-%zu", ARRAY_SIZE(pages) - 1);
        assert_int_equal(worker_numbers(w, pages, ARRAY_SIZE(pages)), ARRAY_SIZE(pages));
        release(w, pages, ARRAY_SIZE(pages));
        n_lookups = ctl_status(h, "lookups");
        if (harness_shares())
                kill(daemon, SIGSTOP); /* the daemon isn't asked */
        /* Pages that aren't cached follow. */
        for (unsigned i = 0; i < 3; ++i) {
                struct where at = probe(w, "1:0-40");

                assert_int_equal(at.n_found, N_TEXT);
                assert_int_equal(at.n_below, N_TEXT - ARRAY_SIZE(pages));
        }
        assert_int_equal(probe(w, "1:30-31 2:0 1:0").n_found, 2);
        assert_int_equal(worker_ask(w, "probe 2:0 1:0"), KVL_MISS);
        kill(daemon, SIGCONT);
        assert_int_equal(ctl_status(h, "pages_pinned"), 0);
        assert_int_equal(ctl_status(h, "lookups"), n_lookups);
        worker_tell(w, "invalidate all");
        assert_int_equal(worker_ask(w, "probe 1:0"), KVL_MISS);
}

/* ---- lookups that wait ---------------------------------------------------------------------- */

#define N_MORE 4

/* The beginning is in the lower tier, the rest is being computed. */
HARNESS_TEST(test_lookup_wait, &tiers)
{
        struct worker *reader = worker_start(h, "a", "ns", 1);
        struct worker *writer = worker_start(h, "a", "ns", 1);
        uint32_t pages[N_MORE], found[1 + N_TEXT + N_MORE];

        worker_tell(writer, "cache 1 %u", N_TEXT);
        make_cold(writer, "ns", 1, N_TEXT);
        worker_tell(writer, "lease %u", N_MORE);
        assert_int_equal(worker_numbers(writer, pages, N_MORE), N_MORE);
        worker_tell(writer, "announce 1:%u-%u %u %u %u %u", N_TEXT, N_TEXT + N_MORE - 1, pages[0],
                pages[1], pages[2], pages[3]);
        worker_tell(reader, "lookup-wait 50 1:0-%u", N_TEXT + N_MORE - 1);
        assert_int_equal(worker_numbers(reader, found, ARRAY_SIZE(found)), 1 + N_TEXT);
        assert_int_equal(found[0], 1);
        release(reader, found + 1, N_TEXT);

        worker_say(reader, "lookup-wait 60000 1:0-%u", N_TEXT + N_MORE - 1);
        for (unsigned i = 0; i < N_MORE; ++i) {
                worker_tell(writer, "fill %u %u", pages[i], 1000 + N_TEXT + i);
                worker_tell(writer, "publish 1:%u 1:%u %u", N_TEXT + i, N_TEXT + i - 1, pages[i]);
        }
        assert_true(worker_answers(reader, 60000));
        assert_int_equal(reader->code, 0);
        assert_int_equal(worker_numbers(reader, found, ARRAY_SIZE(found)), ARRAY_SIZE(found));
        assert_int_equal(found[0], 0);
        for (unsigned i = 0; i < N_TEXT + N_MORE; ++i)
                worker_tell(reader, "verify %u %u", found[1 + i], 1000 + i);
        release(reader, found + 1, N_TEXT + N_MORE);
        release(writer, pages, N_MORE);
}

/* ---- another tenant's share ----------------------------------------------------------------- */

static const struct private_tenant both[] = {{"a", NULL}, {"b", NULL}, {NULL, NULL}};
static const struct private_options shared = {.tenants = both, .device_lines = DEVICE_LINES};

static struct worker *start_safe(struct harness *h, const char *tenant)
{
        struct worker *w = worker_spawn(h);
        char socket[PRIVATE_PATH_MAX];

        worker_tell(
                w, "connect %s - safepoints", private_daemon_socket(&h->daemon, tenant, socket));
        worker_tell(w, "open ns 1");
        return w;
}

#define SET_PAGES 512
#define N_TEXTS   24 /* of N_TEXT pages: more than a set of the two */

/* A tenant that gives a set to another one finds its pages in the lower tier. Beside a GPU small
 * pages may take longer than they are given; only demoted ones are found. */
HARNESS_TEST(test_share, &shared)
{
        struct worker *a = start_safe(h, "a"), *b = start_safe(h, "b");
        unsigned n_below = 0;

        for (unsigned i = 0; i < N_TEXTS; ++i)
                worker_tell(a, "cache %u %u", i, N_TEXT);
        /* b gets its share at one of a's safe points. */
        for (unsigned n = 1000; worker_ask(b, "cache 500 %u", N_TEXT) != 0 && n > 0; --n) {
                assert_int_equal(b->code, KVL_FULL);
                worker_tell(a, "events"); /* reads its events */
                assert_true(worker_ask(a, "safepoint") >= 0);
                sleep_msec(10);
        }
        assert_int_equal(find(b, 500).n_found, N_TEXT);
        for (unsigned i = 0; i < N_TEXTS; ++i) {
                struct where at = find(a, i);

                if (!private_on_gpu())
                        assert_int_equal(at.n_found, N_TEXT);
                n_below += at.n_below;
        }
        print_message("%u pages of a below\n", n_below);
        assert_true(n_below >= (private_on_gpu() ? 1 : N_TEXTS * N_TEXT - SET_PAGES));
        for (unsigned i = 0; i < N_TEXTS / 2; ++i) {
                unsigned n = find(a, i).n_found;

                if (n > 0)
                        assert_up(a, i, n);
        }
        worker_stop(a);
        worker_stop(b);
        ctl(h, "purge a --remove");
        ctl(h, "purge b --remove");
}
