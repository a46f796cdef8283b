/*
 * An engine can work in every geometry that kvleased accepts. The models of docs/reference/PAGES.md
 * and random ones are opened as each adapter opens them. Pages are leased, mapped, written,
 * published and read. Impossible geometries are refused when the namespace is opened. This process
 * is the clients.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "client/lib/kvlease.h"
#include "tests/integration/harness.h"
#include "tests/integration/pattern.h"
#include "tests/unit/page-models.h"

#define RANDOM_COUNT 40 /* geometries in each of the pools: 200 */
#define N_PAGES      4
#define END_BYTES    64u /* of a page, at either end, that are written and read */

/* Leases wait, as memory of the daemon before may not be free yet. */
static const struct private_tenant tenants[] = {
        {"a", "when_full = queue\nmax_wait = 60s\n"}, {NULL, NULL}};
#define POOL(size, extent)                                                                     \
        {                                                                                      \
                .tenants = tenants, .device_lines = "memory = " size "\nextent = " extent "\n" \
        }
#define N_POOLS 5
static const struct private_options host_pools[N_POOLS] = {POOL("2MiB", "2MiB"),
        POOL("3MiB", "2MiB"), POOL("4MiB", "4MiB"), POOL("30MiB", "16MiB"),
        POOL("200MiB", "64MiB")};
/* An extent of each plane is at least 2 MiB. */
static const struct private_options gpu_pools[N_POOLS] = {POOL("2MiB", "2MiB"),
        POOL("5MiB", "2MiB"), POOL("64MiB", "32MiB"), POOL("300MiB", "64MiB"),
        POOL("1GiB", "64MiB")};
static const struct private_options large = POOL("1GiB", "64MiB");

/* Ways to open a namespace. */
static const struct way {
        const char *name;
        unsigned flags;
        bool is_dense;      /* pages one right behind the other */
        bool has_scheduler; /* a process without memory leases, publishes and looks up */
} ways[] = {
        {"vLLM, in place", KVL_NS_KEEP_PAGE_ZERO, true, true},
        {"transformers", 0, true, false},
        {"vLLM, offloading", 0, false, false},
        {"holes", KVL_NS_KEEP_PAGE_ZERO | KVL_NS_BACK_HOLES, false, false},
        {"same address", KVL_NS_KEEP_PAGE_ZERO | KVL_NS_SAME_ADDRESS, true, false},
};

/* An engine in one namespace. */
struct engine {
        struct kvl_conn *worker_conn, *scheduler_conn;
        struct kvl_ns *worker, *scheduler; /* the same where there is none of its own */
        struct kvl_ns_info info;
        bool has_null_page;
};

struct counts {
        unsigned n_opened, n_refused;
};

static struct kvl_conn *connect_as(struct harness *h, unsigned flags)
{
        char socket[PRIVATE_PATH_MAX];
        const struct kvl_connect_options o = {.size = sizeof(o),
                .socket_path = private_daemon_socket(&h->daemon, "a", socket),
                .flags = flags,
                .group_secret = "test_geometries.c",
                .group_secret_bytes = 17};
        struct kvl_conn *conn;

        assert_int_equal(kvl_connect(&o, &conn), 0);
        return conn;
}

static struct kvl_layout layout_of(uint64_t plane_page_bytes, uint32_t n_planes)
{
        return (struct kvl_layout){.size = sizeof(struct kvl_layout),
                .model = "geometry",
                .dtype = KVL_DTYPE_BF16,
                .n_layers = n_planes,
                .n_kv_heads = 1,
                .head_size = 64,
                .page_tokens = 16,
                .n_planes = n_planes,
                .plane_page_bytes = plane_page_bytes};
}

/* ---- bytes ---------------------------------------------------------------------------------- */

/* Contents of a plane. On a GPU all planes of a page 0 that isn't granted are the same memory. */
static void make_end(
        uint32_t page, uint32_t plane, uint64_t seed, uint64_t ret_words[END_BYTES / 8])
{
        pattern_fill_from(ret_words, END_BYTES, seed, page > 0 ? plane : 0, 0);
}

static void write_page(struct engine *e, uint32_t page, uint64_t seed)
{
        uint64_t last = e->info.plane_page_bytes - END_BYTES, words[END_BYTES / 8];

        for (uint32_t plane = 0; plane < e->info.n_planes; ++plane) {
                make_end(page, plane, seed, words);
                assert_int_equal(kvl_page_write(e->worker, page, plane, last, words, END_BYTES), 0);
                assert_int_equal(kvl_page_write(e->worker, page, plane, 0, words, END_BYTES), 0);
        }
}

static void assert_page_has(struct engine *e, uint32_t page, uint64_t seed)
{
        uint64_t last = e->info.plane_page_bytes - END_BYTES;
        uint64_t words[END_BYTES / 8], wanted[END_BYTES / 8];

        for (uint32_t plane = 0; plane < e->info.n_planes; ++plane) {
                make_end(page, plane, seed, wanted);
                assert_int_equal(kvl_page_read(e->worker, page, plane, 0, words, END_BYTES), 0);
                assert_memory_equal(words, wanted, END_BYTES);
                assert_int_equal(kvl_page_read(e->worker, page, plane, last, words, END_BYTES), 0);
                if (last >= END_BYTES)
                        assert_memory_equal(words, wanted, END_BYTES);
        }
}

/* An engine expects planes at equal distances, and pages in them, too. It reads and writes a page
 * freely on the CPU, if the device is. */
static void assert_lies_right(struct engine *e, uint32_t page)
{
        uint8_t *first = kvl_plane_base(e->worker, 0), *second = kvl_plane_base(e->worker, 1);

        for (uint32_t plane = 0; plane < e->info.n_planes; ++plane) {
                uint8_t *at = kvl_page_ptr(e->worker, page, plane);

                assert_non_null(at);
                if (!e->info.is_contiguous)
                        continue;
                assert_ptr_equal(at,
                        first + (e->info.n_planes > 1 ? plane * (uint64_t)(second - first) : 0) +
                                page * e->info.stride_bytes);
                if (e->info.is_cpu_memory)
                        *(volatile uint8_t *)at = *at;
        }
}

static void use_null_page(struct engine *e)
{
        if (!e->has_null_page)
                return;
        assert_lies_right(e, 0);
        write_page(e, 0, 7);
        assert_page_has(e, 0, 7);
}

/* ---- a life --------------------------------------------------------------------------------- */

static uint32_t lease(struct engine *e, uint32_t *ret_pages)
{
        const struct kvl_lease_options options = {.size = sizeof(options), .min_pages = 1};
        struct kvl_lease_result result = {.size = sizeof(result)};
        /* On a GPU the whole set of page 0 is never bound. */
        uint32_t kept = e->has_null_page ? (private_on_gpu() ? e->info.set_pages : 1) : 0;
        uint32_t n = MIN(e->info.tiers[0].n_pages - kept, (uint32_t)N_PAGES);
        int r = kvl_lease_with(e->scheduler, 0, n, &options, ret_pages, &result);

        if (r != 0)
                fail_msg("%u pages aren't leased: %d, %s", n, r, kvl_last_error());
        return result.n_pages;
}

static void map(struct engine *e, const uint32_t *pages, uint32_t n)
{
        if (e->scheduler != e->worker)
                assert_int_equal(kvl_map_pages(e->worker, pages, n), 0);
}

static void live(struct engine *e, uint64_t seed)
{
        uint32_t pages[N_PAGES], found[N_PAGES], n, n_found = 0;
        uint8_t keys[N_PAGES * KVL_KEY_BYTES];
        struct kvl_publish p = {.size = sizeof(p),
                .pages = pages,
                .keys = keys,
                .last_tokens = e->info.page_tokens};
        uint64_t n_tokens;

        use_null_page(e);
        n = p.n_pages = lease(e, pages);
        map(e, pages, n);
        for (uint32_t i = 0; i < n; ++i) {
                assert_true(pages[i] > 0 || !e->has_null_page);
                assert_lies_right(e, pages[i]);
                write_page(e, pages[i], seed + i);
                pattern_key(seed, i, keys + i * KVL_KEY_BYTES);
        }
        use_null_page(e);
        assert_int_equal(kvl_publish(e->scheduler, &p, NULL, NULL), 0);
        assert_int_equal(kvl_release(e->scheduler, pages, n), 0);
        assert_int_equal(kvl_lookup(e->scheduler, 0, keys, n, found, &n_found, &n_tokens), 0);
        assert_int_equal(n_found, n);
        map(e, found, n);
        for (uint32_t i = 0; i < n; ++i)
                assert_page_has(e, found[i], seed + i);
        use_null_page(e);
        assert_int_equal(kvl_release(e->scheduler, found, n), 0);
        assert_int_equal(kvl_invalidate(e->scheduler, NULL, NULL), 0);
}

/* ---- geometries ----------------------------------------------------------------------------- */

/* Refusals are right only for an impossible geometry, or a flag that the device doesn't support. */
static void assert_refused_well(const struct way *way, int code)
{
        bool can_back = !private_on_gpu() || !(way->flags & KVL_NS_BACK_HOLES);
        bool can_place = private_is_contiguous() || !(way->flags & KVL_NS_SAME_ADDRESS);

        assert_true(strlen(kvl_last_error()) > 40);
        if (code == -EOPNOTSUPP && !(can_back && can_place))
                return;
        if (code != -EINVAL)
                fail_msg("%s: %d, %s", way->name, code, kvl_last_error());
        assert_true(strstr(kvl_last_error(), "plane_page_bytes") ||
                    strstr(kvl_last_error(), "page 0 is kept back"));
}

static bool open_engine(struct engine *e, const struct way *way, const struct kvl_layout *layout)
{
        const struct kvl_ns_options options = {.size = sizeof(options),
                .device = private_device(),
                .flags = way->flags,
                .stride_bytes = way->is_dense ? layout->plane_page_bytes : 0};
        int r = kvl_ns_open_with(e->worker_conn, NULL, layout, &options, &e->worker);

        if (r != 0) {
                assert_refused_well(way, r);
                return false;
        }
        e->info.size = sizeof(e->info);
        kvl_ns_info(e->worker, &e->info);
        e->has_null_page = way->flags & KVL_NS_KEEP_PAGE_ZERO;
        e->scheduler = e->worker;
        if (way->has_scheduler)
                assert_int_equal(kvl_ns_open_with(e->scheduler_conn, kvl_ns_name(e->worker), layout,
                                         &options, &e->scheduler),
                        0);
        return true;
}

/* Each way has a namespace of its own, since a stride and a kept page can't change. */
static void try_geometry(struct engine *e, uint64_t plane_page_bytes, uint32_t n_planes,
        uint64_t seed, struct counts *counts)
{
        struct kvl_layout layout = layout_of(plane_page_bytes, n_planes);

        for (size_t i = 0; i < ARRAY_SIZE(ways); ++i) {
#if defined(__SANITIZE_THREAD__)
                if (ways[i].flags & KVL_NS_SAME_ADDRESS)
                        continue; /* a client can't choose addresses there */
#endif
                layout.layer_group = (uint32_t)i;
                if (!open_engine(e, &ways[i], &layout)) {
                        counts->n_refused++;
                        continue;
                }
                counts->n_opened++;
                live(e, seed + 100 * i);
                if (e->scheduler != e->worker)
                        kvl_ns_close(e->scheduler);
                kvl_ns_close(e->worker);
        }
}

static struct engine start_engine(struct harness *h)
{
        return (struct engine){.worker_conn = connect_as(h, 0),
                .scheduler_conn = connect_as(h, KVL_CONNECT_METADATA_ONLY)};
}

static void end_engine(struct engine *e, const struct counts *counts)
{
        kvl_disconnect(e->scheduler_conn);
        kvl_disconnect(e->worker_conn);
        print_message("opened %u, refused %u\n", counts->n_opened, counts->n_refused);
}

/* All layers in one plane, or each in its own. Most fit the device's gibibyte. */
static void test_models(void **state)
{
        struct engine e = start_engine(*state);
        struct counts counts = {0};

        for (size_t i = 0; i < ARRAY_SIZE(page_models); ++i) {
                const struct page_model *m = &page_models[i];
                uint64_t bytes = page_model_bytes(m);

                try_geometry(&e, bytes, 1, 1000 * i, &counts);
                try_geometry(&e, bytes / m->n_layers, m->n_layers, 1000 * i, &counts);
        }
        end_engine(&e, &counts);
        assert_true(counts.n_opened > counts.n_refused);
}

static uint64_t pick(uint64_t *state, const unsigned *choice, size_t n)
{
        return choice[pattern_next(state) % n];
}

/*
 * Geometries of models: layers of several KV heads in one plane, or in one plane each; or any size.
 */
static void try_random(struct engine *e, uint64_t seed, struct counts *counts)
{
        static const unsigned tokens[] = {8, 16, 32, 64, 128},
                              sizes[] = {64, 80, 96, 112, 128, 192, 256, 576};
        uint64_t state = seed;
        uint64_t layer = 2 * pick(&state, tokens, ARRAY_SIZE(tokens)) *
                         pick(&state, sizes, ARRAY_SIZE(sizes)) * (1 + pattern_next(&state) % 16);
        uint32_t n_layers = 1 + (uint32_t)(pattern_next(&state) % 40);

        switch (pattern_next(&state) % 4) {
        case 0:
                try_geometry(e, layer * n_layers, 1, seed, counts);
                break;
        case 1:
                try_geometry(e, layer, n_layers, seed, counts);
                break;
        case 2:
                try_geometry(e, layer, 1 + n_layers % 4, seed, counts);
                break;
        default:
                try_geometry(e, 64 * (64 + pattern_next(&state) % 10000), 1 + n_layers % 8, seed,
                        counts);
        }
}

static void test_random(void **state)
{
        struct engine e = start_engine(*state);
        uint64_t seed = harness_seed();
        struct counts counts = {0};

        for (unsigned i = 0; i < RANDOM_COUNT; ++i)
                try_random(&e, pattern_mix(seed + i), &counts);
        end_engine(&e, &counts);
        /* About half of the host's smallest pools are opened. */
        assert_true(private_on_gpu() || 10 * counts.n_opened > counts.n_refused);
}

int main(void)
{
        const struct private_options *pools = private_on_gpu() ? gpu_pools : host_pools;
        const struct CMUnitTest tests[] = {
                harness_test(test_models, (void *)&large),
                harness_test(test_random, (void *)&pools[0]),
                harness_test(test_random, (void *)&pools[1]),
                harness_test(test_random, (void *)&pools[2]),
                harness_test(test_random, (void *)&pools[3]),
                harness_test(test_random, (void *)&pools[4]),
        };
        _Static_assert(ARRAY_SIZE(tests) == 1 + N_POOLS, "one for each pool");

        return cmocka_run_group_tests(tests, NULL, NULL);
}
