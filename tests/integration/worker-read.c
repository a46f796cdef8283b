/*
 * The worker that reads under eviction: it holds the last few prefixes it found, so that a page
 * that is reused under its pin shows.
 */
#include <stdio.h>

#include "base/macros.h"
#include "tests/integration/pattern.h"
#include "tests/integration/worker.h"

#define N_HELD 8 /* prefixes; not tuned */

struct prefix {
        uint64_t chain;
        uint32_t pages[WORKER_TEXT_PAGES], n_pages;
};

struct reader {
        struct kvl_ns *ns; /* borrowed */
        const char *tenant;
        unsigned n_planes;
        struct prefix held[N_HELD]; /* ring */
        uint64_t n_lookups, n_pins, n_bad;
};

static void compare(struct reader *r, const struct prefix *p, const char *when)
{
        for (uint32_t i = 0; i < p->n_pages; ++i)
                for (unsigned plane = 0; plane < r->n_planes; ++plane) {
                        if (worker_page_matches(r->ns, p->pages[i], plane,
                                    pattern_seed(r->tenant, p->chain, i)))
                                continue;
                        fprintf(stderr, "%s: page %u plane %u of %s isn't %llu:%u\n", when,
                                p->pages[i], plane, r->tenant, (unsigned long long)p->chain, i);
                        r->n_bad++;
                }
}

static int let_go(struct reader *r, struct prefix *p)
{
        int code;

        if (!p->n_pages)
                return 0;
        compare(r, p, "before release");
        code = kvl_release(r->ns, p->pages, p->n_pages);
        p->n_pages = 0;
        return code;
}

/* Looks one text up, and holds the pages found in place of the oldest. */
static int step(struct reader *r, uint64_t chain)
{
        uint8_t keys[WORKER_TEXT_PAGES * KVL_KEY_BYTES];
        struct prefix found = {.chain = chain}, *place = &r->held[r->n_lookups % N_HELD];
        uint64_t n_tokens;
        int code;

        for (uint32_t i = 0; i < WORKER_TEXT_PAGES; ++i)
                pattern_key(chain, i, keys + i * KVL_KEY_BYTES);
        code = kvl_lookup(
                r->ns, 0, keys, WORKER_TEXT_PAGES, found.pages, &found.n_pages, &n_tokens);
        if (code == KVL_MISS)
                return 0;
        if (code)
                return code;
        compare(r, &found, "found");
        r->n_lookups++;
        r->n_pins += found.n_pages;
        code = let_go(r, place);
        *place = found;
        return code;
}

static int read_all(struct reader *r, const struct worker_job *job)
{
        uint64_t random = job->seed;
        int code = 0;

        while (code == 0 && r->n_bad == 0 && (!job->count || r->n_pins < job->count))
                code = step(r, pattern_next(&random) % job->n_chains);
        for (unsigned i = 0; code == 0 && i < N_HELD; ++i)
                code = let_go(r, &r->held[i]);
        if (code)
                fprintf(stderr, "read (seed %llu): %d: %s\n", (unsigned long long)job->seed, code,
                        kvl_last_error());
        return code;
}

int worker_read(const struct worker_job *job)
{
        struct reader r = {.n_planes = job->n_planes};
        struct kvl_conn *conn = NULL;
        int code = worker_open_job(job, &conn, &r.ns);

        if (code == 0) {
                r.tenant = kvl_tenant(conn);
                code = read_all(&r, job);
                printf("lookups %llu pins %llu bad %llu\n", (unsigned long long)r.n_lookups,
                        (unsigned long long)r.n_pins, (unsigned long long)r.n_bad);
        }
        kvl_disconnect(conn);
        return code || r.n_bad;
}
