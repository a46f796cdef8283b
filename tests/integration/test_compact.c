/* Compaction empties extent sets that hold few pages and frees them, through the safe points of
 * clients that have them mapped. Cached pages are found as before, byte for byte. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "tests/integration/harness.h"
#include "tests/integration/pattern.h"

#define PLANES     2
#define PAGE_BYTES 65536
#define SET_PAGES  32 /* in 2 MiB a plane */
#define SET_BYTES  (UINT64_C(4) << 20)
#define CHAIN      8 /* pages */
#define N_CHAINS   32
/* 16 pages remain: all sets but one are then at most a quarter full. */
#define KEPT(chain) ((chain) % 16 == 0)
#define WAIT_MSEC   60000

static const struct private_tenant tenants[] = {{"a", "limit = 128MiB\n"}, {NULL, NULL}};
static const struct private_options plain = {
        .tenants = tenants, .daemon_lines = "revoke_timeout = 60s\n"};

static struct worker *start_worker(struct harness *h, bool has_safepoints)
{
        struct worker *w = worker_spawn(h);
        char socket[PRIVATE_PATH_MAX];

        private_daemon_socket(&h->daemon, "a", socket);
        if (has_safepoints)
                worker_tell(w, "connect %s - safepoints", socket);
        else
                worker_tell(w, "connect %s", socket);
        worker_tell(w, "open ns %u - %u", PLANES, PAGE_BYTES);
        return w;
}

static void release(struct worker *w, const uint32_t *pages)
{
        char line[512];
        int at = snprintf(line, sizeof(line), "release");

        for (unsigned i = 0; i < CHAIN; ++i)
                at += snprintf(line + at, sizeof(line) - (size_t)at, " %u", pages[i]);
        worker_tell(w, "%s", line);
}

static void publish_all(struct worker *w)
{
        uint32_t pages[CHAIN];

        for (unsigned chain = 0; chain < N_CHAINS; ++chain) {
                worker_publish_chain(w, chain, CHAIN, pages);
                release(w, pages);
        }
}

/* Checks every byte of every page of a chain. */
static void verify_chain(struct worker *w, unsigned chain)
{
        uint32_t pages[CHAIN];

        worker_tell(w, "lookup %u:0-%u", chain, CHAIN - 1);
        assert_int_equal(worker_numbers(w, pages, CHAIN), CHAIN);
        for (unsigned i = 0; i < CHAIN; ++i)
                worker_tell(w, "verify %u %u", pages[i], 1000 * chain + i);
        release(w, pages);
}

static void verify(struct worker *w, bool all)
{
        for (unsigned chain = 0; chain < N_CHAINS; ++chain)
                if (all || KEPT(chain))
                        verify_chain(w, chain);
}

static void drop_most(struct worker *w)
{
        for (unsigned chain = 0; chain < N_CHAINS; ++chain)
                if (!KEPT(chain))
                        worker_tell(w, "invalidate %u:0", chain);
}

static double fragmentation(struct harness *h)
{
        json_t *reply = ctl_json(h, "status");
        double ratio = json_number_value(json_object_get(reply, "fragmentation_ratio"));

        json_decref(reply);
        return ratio;
}

/* FREE pages of sets in use. */
static double scattered(struct harness *h)
{
        return fragmentation(h) * (double)ctl_status(h, "budget_bytes") / SET_BYTES * SET_PAGES;
}

/* Steps of the engines until a set was freed, and (with `all`) one set holds all kept pages. */
static void step_until(struct harness *h, struct worker *const *workers, unsigned n, bool all)
{
        uint64_t end = now_nsec() + WAIT_MSEC * UINT64_C(1000000);

        while (ctl_status(h, "compacted_sets") == 0 || (all && scattered(h) > SET_PAGES)) {
                if (now_nsec() > end)
                        fail_msg("%.0f pages are scattered, %llu sets went back", scattered(h),
                                (unsigned long long)ctl_status(h, "compacted_sets"));
                for (unsigned i = 0; i < n; ++i) {
                        worker_tell(workers[i], "events");
                        worker_tell(workers[i], "safepoint");
                }
                sleep_msec(5);
        }
}

HARNESS_TEST(test_sets_go_back, &plain)
{
        struct worker *w[] = {start_worker(h, true), start_worker(h, true)};
        uint64_t held;

        publish_all(w[0]);
        verify(w[1], true);
        held = ctl_status(h, "charged_bytes");
        drop_most(w[0]);
        step_until(h, w, 2, true);
        for (unsigned i = 0; i < 2; ++i)
                verify(w[i], false);
        assert_true(ctl_status(h, "compacted_pages") > 0);
        assert_int_equal(ctl_status(h, "evictions"), 0);
        assert_true(ctl_status(h, "charged_bytes") <=
                    held - ctl_status(h, "compacted_sets") * SET_BYTES);
        /* Both go on. */
        worker_tell(w[0], "invalidate all");
        publish_all(w[0]);
        verify(w[1], true);
        worker_stop(w[0]);
        worker_stop(w[1]);
}

/* Pages are hit all the time while they move. Every lookup finds a whole chain, or the part before
 * a page that is being moved, maybe the first. Found pages are right. */
HARNESS_TEST(test_hits_meanwhile, &plain)
{
        struct worker *w = start_worker(h, true), *reader = start_worker(h, true);

        publish_all(w);
        verify(reader, true);
        for (unsigned chain = 0; chain < N_CHAINS; ++chain) {
                uint32_t pages[CHAIN];
                unsigned n;

                if (!KEPT(chain))
                        worker_tell(w, "invalidate %u:0", chain);
                for (unsigned kept = 0; kept < N_CHAINS; kept += 16) {
                        char line[512];
                        int at, found;

                        found = worker_ask(reader, "lookup %u:0-%u", kept, CHAIN - 1);
                        assert_true(found == 0 || found == KVL_MISS);
                        n = found == 0 ? worker_numbers(reader, pages, CHAIN) : 0;
                        at = snprintf(line, sizeof(line), "release");
                        for (unsigned i = 0; i < n; ++i) {
                                worker_tell(reader, "verify %u %u", pages[i], 1000 * kept + i);
                                at += snprintf(
                                        line + at, sizeof(line) - (size_t)at, " %u", pages[i]);
                        }
                        if (n > 0)
                                worker_tell(reader, "%s", line);
                        worker_tell(reader, "events");
                        worker_tell(reader, "safepoint");
                }
                worker_tell(w, "events");
                worker_tell(w, "safepoint");
        }
        step_until(h, (struct worker *[]){w, reader}, 2, true);
        verify(reader, false);
        ctl(h, "check");
}
