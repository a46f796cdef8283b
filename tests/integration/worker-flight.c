/* Workers that compute a text once between them. They wait for pages that are cached or being
 * computed, announce the rest and compute it. Commands, and a job of its own. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/macros.h"
#include "tests/integration/pattern.h"
#include "tests/integration/worker.h"

#define MAX_PAGES     1024 /* of a text */
#define PATIENCE_MSEC 60000

struct flight {
        struct kvl_ns *ns; /* borrowed */
        const char *tenant;
        unsigned n_planes, usec; /* it takes to compute a page */
        uint64_t chain;
        uint32_t n_pages; /* of the text, wanted */
        uint8_t keys[MAX_PAGES * KVL_KEY_BYTES];
        uint32_t pages[MAX_PAGES], n_held; /* got, pinned */
        int has_waited_in_vain;
        uint64_t n_computed, n_found, n_duplicates, n_given_up, n_bad;
};

static uint8_t *key_of(struct flight *f, uint32_t i)
{
        return f->keys + (size_t)i * KVL_KEY_BYTES;
}

static void begin(struct flight *f, uint64_t chain, uint32_t n_pages)
{
        f->chain = chain;
        f->n_pages = n_pages;
        f->n_held = 0;
        for (uint32_t i = 0; i < n_pages; ++i)
                pattern_key(chain, i, key_of(f, i));
}

static void verify(struct flight *f, uint32_t first, uint32_t end)
{
        for (uint32_t i = first; i < end; ++i)
                for (unsigned p = 0; p < f->n_planes; ++p) {
                        if (worker_page_copy_matches(
                                    f->ns, f->pages[i], p, pattern_seed(f->tenant, f->chain, i)))
                                continue;
                        fprintf(stderr, "page %u plane %u of %s isn't %llu:%u\n", f->pages[i], p,
                                f->tenant, (unsigned long long)f->chain, i);
                        f->n_bad++;
                }
}

static int let_go(struct flight *f)
{
        uint32_t n = f->n_held;

        f->n_held = 0;
        return n ? kvl_release(f->ns, f->pages, n) : 0;
}

/* ---- a text --------------------------------------------------------------------------------- */

/* Takes pages that other clients have, or are computing. Returns 0 or -errno. */
static int take_from_others(struct flight *f)
{
        uint32_t n = 0;
        uint64_t n_tokens;
        int r = kvl_lookup_wait(f->ns, 0, key_of(f, f->n_held), f->n_pages - f->n_held,
                PATIENCE_MSEC, f->pages + f->n_held, &n, &n_tokens, &f->has_waited_in_vain);

        if (r < 0 || r == KVL_STALE)
                return r;
        verify(f, f->n_held, f->n_held + n);
        f->n_held += n;
        f->n_found += n;
        return 0;
}

static int fill(struct flight *f, uint32_t page, uint32_t index)
{
        int r = 0;

        if (f->usec > 0)
                usleep(f->usec);
        for (unsigned p = 0; p < f->n_planes && r == 0; ++p)
                r = worker_page_fill(f->ns, page, p, pattern_seed(f->tenant, f->chain, index));
        return r;
}

/* The text's next page. 0 or why not. */
static int publish(struct flight *f, uint32_t page)
{
        uint32_t i = f->n_held;
        const struct kvl_publish p = {
                .size = sizeof(p),
                .pages = &page,
                .keys = key_of(f, i),
                .n_pages = 1,
                .parent_key = i > 0 ? key_of(f, i - 1) : NULL,
                .last_tokens = 16,
        };
        int r = kvl_publish(f->ns, &p, &f->pages[i], NULL);

        if (r != 0 && r != KVL_DUPLICATE)
                return r;
        f->n_held++;
        if (r == 0) {
                f->n_computed++;
                return 0;
        }
        f->n_duplicates++;
        verify(f, i, i + 1);
        return kvl_free(f->ns, &page, 1);
}

static int compute(struct flight *f, uint32_t *pages, uint32_t n)
{
        int r = 0;

        for (uint32_t i = 0; i < n && r == 0; ++i) {
                r = fill(f, pages[i], f->n_held);
                if (r == 0)
                        r = publish(f, pages[i]);
        }
        return r;
}

/* Announces the rest and computes at most `most` of its pages, those that no other client computes.
 * Returns 0; KVL_QUOTA, KVL_FULL: no room; KVL_NO_PARENT: its pages were invalidated; -errno. */
static int take_off(struct flight *f, uint32_t most)
{
        uint32_t pages[MAX_PAGES], first = f->n_held, n = f->n_pages - first, n_mine;
        int r = kvl_lease(f->ns, 0, n, pages), freed;

        if (r != 0)
                return r;
        r = kvl_announce(f->ns, pages, key_of(f, first), n, &n_mine);
        if (r < 0 && r != -ENOSPC)
                return r;
        /* The announcement failed, or another client takes too long: compute it all the same. */
        if (n_mine == 0 && (r == -ENOSPC || f->has_waited_in_vain))
                n_mine = 1;
        r = compute(f, pages, MIN(n_mine, most));
        if (r < 0 || f->n_held == f->n_pages)
                return r;
        freed = kvl_free(f->ns, pages + (f->n_held - first), f->n_pages - f->n_held);
        return freed < 0 ? freed : r;
}

/* Pins all of the text. Returns 0, or take_off()'s codes. */
static int get(struct flight *f)
{
        int r = 0;

        while (r == 0 && f->n_held < f->n_pages) {
                r = take_from_others(f);
                if (r == 0 && f->n_held < f->n_pages)
                        r = take_off(f, MAX_PAGES);
        }
        return r;
}

/* ---- the job -------------------------------------------------------------------------------- */

/* The beginning of a text; now and then it is given up in the middle, which is announced, or
 * dropped for all. */
static int step(struct flight *f, uint64_t *random, unsigned n_chains)
{
        uint64_t what = pattern_next(random) % 8;
        int r;

        begin(f, pattern_next(random) % n_chains, 1 + (uint32_t)(pattern_next(random) % 24));
        if (what == 0) {
                r = kvl_invalidate(
                        f->ns, key_of(f, (uint32_t)(pattern_next(random) % f->n_pages)), NULL);
        } else if (what == 1) {
                r = take_from_others(f);
                if (r == 0 && f->n_held < f->n_pages)
                        r = take_off(f, (f->n_pages - f->n_held) / 2);
                f->n_given_up += r == 0 && f->n_held < f->n_pages;
        } else {
                r = get(f);
        }
        verify(f, 0, f->n_held);
        return r < 0 ? r : let_go(f);
}

int worker_flight(const struct worker_job *job)
{
        static struct flight f;
        struct kvl_conn *conn = NULL;
        uint64_t random = job->seed;
        int r = worker_open_job(job, &conn, &f.ns);

        f.n_planes = job->n_planes;
        f.usec = 200; /* so that others come while it computes */
        if (r == 0)
                f.tenant = kvl_tenant(conn);
        for (uint64_t i = 0; r == 0 && f.n_bad == 0 && (!job->count || i < job->count); ++i)
                r = step(&f, &random, job->n_chains);
        if (r)
                fprintf(stderr, "flight (seed %llu): %d: %s\n", (unsigned long long)job->seed, r,
                        kvl_last_error());
        printf("computed %" PRIu64 " found %" PRIu64 " duplicates %" PRIu64 " given-up %" PRIu64
               " bad %" PRIu64 "\n",
                f.n_computed, f.n_found, f.n_duplicates, f.n_given_up, f.n_bad);
        kvl_disconnect(conn);
        return r || f.n_bad;
}

/* ---- commands ------------------------------------------------------------------------------- */

static struct flight flight; /* of the commands */

static void begin_command(struct worker_state *w, const char *chain, const char *n_pages)
{
        flight.ns = w->ns;
        flight.tenant = w->tenant;
        flight.n_planes = w->info.n_planes;
        flight.usec = 0;
        flight.n_computed = flight.n_found = flight.n_duplicates = flight.n_bad = 0;
        begin(&flight, strtoull(chain, NULL, 10), (uint32_t)strtoul(n_pages, NULL, 10));
}

/* announce KEYS PAGE...: pages announced, with any code */
static void do_announce(struct worker_state *w, char **args, unsigned n_args)
{
        static uint8_t keys[MAX_PAGES * KVL_KEY_BYTES];
        uint32_t pages[MAX_PAGES], n, n_announced = 0;
        int r;

        n = worker_parse_pages(args + 1, MIN(n_args - 1, (unsigned)MAX_PAGES), pages);
        if (worker_parse_keys(args, 1, keys, MAX_PAGES) != n) {
                printf("%d as many keys as pages, please\n", -EINVAL);
                return;
        }
        r = kvl_announce(w->ns, pages, keys, n, &n_announced);
        printf("%d %u\n", r, n_announced);
}

/* wait KEY MSEC: monotonic nanoseconds when it ended, how many it took */
static void do_wait(struct worker_state *w, char **args, unsigned n_args)
{
        uint8_t key[KVL_KEY_BYTES];
        uint64_t start = clock_now_nsec(), end;
        int r;

        worker_parse_keys(args, 1, key, 1);
        r = kvl_wait(w->ns, key, (int)strtol(args[1], NULL, 10));
        end = clock_now_nsec();
        printf("%d %" PRIu64 " %" PRIu64 "\n", r, end, end - start);
}

/* lookup-wait MSEC KEYS...: 1 where the next key is being computed; the pages, pinned */
static void do_lookup_wait(struct worker_state *w, char **args, unsigned n_args)
{
        static uint8_t keys[MAX_PAGES * KVL_KEY_BYTES];
        uint32_t pages[MAX_PAGES], n = 0;
        uint32_t n_keys = worker_parse_keys(args + 1, n_args - 1, keys, MAX_PAGES);
        uint64_t n_tokens;
        int is_pending = 0;
        int r = kvl_lookup_wait(w->ns, 0, keys, n_keys, (int)strtol(args[0], NULL, 10), pages, &n,
                &n_tokens, &is_pending);

        if (r != 0) {
                worker_answer(r);
                return;
        }
        printf("0 %d", is_pending);
        for (uint32_t i = 0; i < n; ++i)
                printf(" %u", pages[i]);
        printf("\n");
}

/* flight CHAIN N USEC: computed, found, duplicates, and pages that held the wrong thing; the text
 * stays pinned */
static void do_flight(struct worker_state *w, char **args, unsigned n_args)
{
        int r;

        begin_command(w, args[0], args[1]);
        flight.usec = (unsigned)strtoul(args[2], NULL, 10);
        r = get(&flight);
        if (r)
                worker_answer(r);
        else
                printf("0 %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", flight.n_computed,
                        flight.n_found, flight.n_duplicates, flight.n_bad);
}

/* flight-drop: releases the pages of flight */
static void do_flight_drop(struct worker_state *w, char **args, unsigned n_args)
{
        worker_answer(let_go(&flight));
}

const struct worker_command worker_flight_commands[] = {
        {"announce", do_announce},
        {"wait", do_wait},
        {"lookup-wait", do_lookup_wait},
        {"flight", do_flight},
        {"flight-drop", do_flight_drop},
        {NULL, NULL},
};
