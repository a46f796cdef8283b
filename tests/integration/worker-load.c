/* The worker's random load: each page found must have its key's bytes, of its tenant. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "tests/integration/pattern.h"
#include "tests/integration/worker.h"

struct load {
        struct kvl_ns *ns; /* borrowed */
        const char *tenant;
        uint64_t random;
        unsigned n_planes, n_chains;
        uint64_t n_found, n_published, n_duplicates, n_refused, n_bad;
};

static uint64_t draw(struct load *l, uint64_t below)
{
        return pattern_next(&l->random) % below;
}

static int fill(struct load *l, uint32_t page, uint64_t chain, uint32_t index)
{
        int r = 0;

        for (unsigned p = 0; p < l->n_planes && r == 0; ++p)
                r = worker_page_fill(l->ns, page, p, pattern_seed(l->tenant, chain, index));
        return r;
}

static void verify(struct load *l, uint32_t page, uint64_t chain, uint32_t index)
{
        for (unsigned p = 0; p < l->n_planes; ++p) {
                if (worker_page_copy_matches(l->ns, page, p, pattern_seed(l->tenant, chain, index)))
                        continue;
                fprintf(stderr, "page %u (tier %d) plane %u of %s isn't %llu:%u\n", page,
                        kvl_page_tier(l->ns, page), p, l->tenant, (unsigned long long)chain, index);
                l->n_bad++;
        }
}

/* Publishes pages[0..n-1] as chain:first...; on return all of them are released or freed. */
static int publish(struct load *l, uint64_t chain, uint32_t first, uint32_t *pages, uint32_t n)
{
        uint8_t keys[WORKER_TEXT_PAGES * KVL_KEY_BYTES], parent[KVL_KEY_BYTES];
        struct kvl_publish p = {
                .size = sizeof(p), .pages = pages, .keys = keys, .n_pages = n, .last_tokens = 16};
        uint32_t found[WORKER_TEXT_PAGES], n_done = 0;
        int r, code;

        for (uint32_t i = 0; i < n; ++i)
                pattern_key(chain, first + i, keys + i * KVL_KEY_BYTES);
        if (first) {
                pattern_key(chain, first - 1, parent);
                p.parent_key = parent;
        }
        code = kvl_publish(l->ns, &p, found, &n_done);
        if (code < 0)
                return code;
        /* Another client's page may be on disk, where it can't be read directly. */
        r = code == KVL_DUPLICATE ? kvl_fetch(l->ns, found, n_done, found) : 0;
        if (r < 0)
                return r;
        for (uint32_t i = 0; i < n_done; ++i) {
                if (kvl_page_tier(l->ns, found[i]) == KVL_TIER_DEVICE)
                        verify(l, found[i], chain, first + i);
                l->n_published++;
                if (found[i] == pages[i])
                        continue;
                l->n_duplicates++;
                r = kvl_free(l->ns, &pages[i], 1);
                if (r < 0)
                        return r;
        }
        r = n_done ? kvl_release(l->ns, found, n_done) : 0;
        return r < 0 || n_done == n ? r : kvl_free(l->ns, pages + n_done, n - n_done);
}

/* Computes the uncached pages of a text. */
static int extend(struct load *l, uint64_t chain, uint32_t first, uint32_t length)
{
        uint32_t pages[WORKER_TEXT_PAGES], n = length - first;
        int r = kvl_lease(l->ns, 0, n, pages);

        if (r != 0) {
                l->n_refused += r > 0;
                return r < 0 ? r : 0;
        }
        for (uint32_t i = 0; i < n && r == 0; ++i)
                r = fill(l, pages[i], chain, first + i);
        if (r)
                return r;
        if (draw(l, 8) == 0)
                return kvl_free(l->ns, pages, n);
        return publish(l, chain, first, pages, n);
}

static int step(struct load *l)
{
        uint64_t chain = draw(l, l->n_chains), n_tokens;
        uint32_t length = 1 + (uint32_t)draw(l, WORKER_TEXT_PAGES), n = 0, pages[WORKER_TEXT_PAGES];
        uint8_t keys[WORKER_TEXT_PAGES * KVL_KEY_BYTES];
        int r;

        for (uint32_t i = 0; i < length; ++i)
                pattern_key(chain, i, keys + i * KVL_KEY_BYTES);
        if (draw(l, 64) == 0) {
                r = kvl_invalidate(l->ns, keys, NULL);
                return r < 0 ? r : 0;
        }
        r = kvl_lookup(l->ns, 0, keys, length, pages, &n, &n_tokens);
        if (r < 0)
                return r;
        if (r > 0)
                n = 0;
        for (uint32_t i = 0; i < n; ++i)
                verify(l, pages[i], chain, i);
        l->n_found += n;
        r = n < length ? extend(l, chain, n, length) : 0;
        if (r < 0 || !n)
                return r;
        for (uint32_t i = 0; i < n; ++i)
                verify(l, pages[i], chain, i);
        return kvl_release(l->ns, pages, n);
}

struct kvl_layout worker_layout(unsigned n_planes)
{
        return (struct kvl_layout){
                .size = sizeof(struct kvl_layout),
                .model = "test-model",
                .version = "1",
                .dtype = KVL_DTYPE_F32,
                .n_layers = 2,
                .n_kv_heads = 2,
                .head_size = 16,
                .page_tokens = 16,
                .n_planes = n_planes,
                .plane_page_bytes = 4096,
                .tp_size = 1,
        };
}

/* Between two operations nothing is held. Sets given back, or -errno. */
static int safepoint(struct kvl_conn *conn)
{
        int r = kvl_dispatch(conn);

        return r < 0 ? r : kvl_safepoint(conn, NULL);
}

int worker_load_on(struct kvl_conn *conn, struct kvl_ns *ns, const struct worker_job *job)
{
        struct load l = {.ns = ns,
                .tenant = kvl_tenant(conn),
                .random = job->seed,
                .n_chains = job->n_chains};
        struct kvl_ns_info info = {.size = sizeof(info)};
        unsigned n_given_back = 0;
        int r = 0;

        kvl_ns_info(ns, &info);
        l.n_planes = info.n_planes;
        for (uint64_t i = 0; r >= 0 && l.n_bad == 0 && (!job->count || i < job->count); ++i) {
                r = step(&l);
                if (r >= 0 && job->has_safepoints)
                        r = safepoint(conn);
                n_given_back += r > 0 ? (unsigned)r : 0;
        }
        if (r < 0)
                fprintf(stderr, "load (seed %llu): %d: %s\n", (unsigned long long)job->seed, r,
                        kvl_last_error());
        printf("found %llu published %llu duplicates %llu refused %llu given-back %u bad %llu\n",
                (unsigned long long)l.n_found, (unsigned long long)l.n_published,
                (unsigned long long)l.n_duplicates, (unsigned long long)l.n_refused, n_given_back,
                (unsigned long long)l.n_bad);
        return r < 0 || l.n_bad;
}

int worker_open_job(
        const struct worker_job *job, struct kvl_conn **ret_conn, struct kvl_ns **ret_ns)
{
        /* In a crowd that shares two cores an answer may take longer than the default. */
        struct kvl_connect_options o = {.size = sizeof(o),
                .socket_path = job->socket,
                .client_name = "load",
                .timeout_msec = 5 * 60 * 1000};
        struct kvl_layout layout = worker_layout(job->n_planes);
        int r;

        if (job->has_safepoints)
                o.flags |= KVL_CONNECT_SAFEPOINTS;
        r = kvl_connect(&o, ret_conn);
        if (r == 0)
                r = kvl_ns_open(*ret_conn, "load", &layout, NULL, 0, ret_ns);
        if (r)
                fprintf(stderr, "load: %d: %s\n", r, kvl_last_error());
        return r;
}

int worker_load(const struct worker_job *job)
{
        struct kvl_conn *conn = NULL;
        struct kvl_ns *ns;
        int r = worker_open_job(job, &conn, &ns);

        if (r == 0)
                r = worker_load_on(conn, ns, job);
        kvl_disconnect(conn);
        return r != 0;
}
