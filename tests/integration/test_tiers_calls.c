/* Pages in a lower tier: sessions whose pages are there, and probes, which leave them there. */
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
