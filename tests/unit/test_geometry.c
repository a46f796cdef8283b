#include "tests/unit/core-fixture.h"
#include "tests/unit/test-random.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * 1024)
#define GIB (MIB * 1024)

static struct ns_layout with_planes(uint64_t plane_page_bytes, uint32_t n_planes)
{
        struct ns_layout l = test_layout();

        l.plane_page_bytes = plane_page_bytes;
        l.n_planes = n_planes;
        return l;
}

static struct set_source on_gpu(uint64_t budget_bytes)
{
        return (struct set_source){.wanted_bytes = 64 * MIB,
                .granularity_bytes = 2 * MIB,
                .unit_bytes = 2 * MIB,
                .budget_bytes = budget_bytes};
}

static struct set_source on_host(uint64_t budget_bytes)
{
        struct set_source s = on_gpu(budget_bytes);

        s.unit_bytes = 4 * KIB;
        return s;
}

static void check_sizes(const struct ns_geometry *g, const struct ns_layout *l, uint64_t stride)
{
        assert_int_equal(geometry_stride(g), stride);
        assert_int_equal(g->extent_bytes, g->set_pages * stride);
        assert_int_equal(g->set_bytes, g->extent_bytes * l->n_planes);
        assert_int_equal(g->capacity_pages, g->set_pages * g->n_set_slots);
        assert_true(ns_geometry_holds(g, l));
}

/* A stride that an engine asks for is used, or refused with the obstacle. */
TEST(test_stride_asked_for)
{
        struct ns_layout l = with_planes(1576960, 1), deepseek = with_planes(61 * 18 * KIB, 1);
        struct set_source gpu = on_gpu(4 * GIB);
        struct ns_geometry g = {.set_pages = 77};
        struct detail d = {0};

        assert_int_equal(ns_geometry_of(&deepseek, &gpu, 61 * 18 * KIB, &g, &d), -EINVAL);
        assert_non_null(strstr(d.text, "stride_bytes 1124352 in 1 planes needs extent sets of"));
        assert_non_null(strstr(d.text, "1.07 GiB, more than the largest set there is, 1 GiB"));
        assert_non_null(strstr(d.text, "stride_bytes 0, or fewer planes"));
        assert_int_equal(ns_geometry_of(&l, &gpu, 1576960 - 64, &g, &d), -EINVAL);
        assert_non_null(strstr(d.text, "plane_page_bytes (1576960) and up to 4 %"));
        assert_int_equal(ns_geometry_of(&l, &gpu, 1576960 + 1, &g, &d), -EINVAL);
        assert_int_equal(ns_geometry_of(&l, &gpu, 1642688, &g, &d), -EINVAL); /* 4.002 % */
        assert_int_equal(ns_geometry_of(&l, &gpu, UINT64_MAX - 63, &g, &d), -EINVAL);
        assert_int_equal(g.set_pages, 77);
        assert_int_equal(ns_geometry_of(&l, &gpu, 1576960, &g, &d), 0);
        check_sizes(&g, &l, 1576960);
        assert_int_equal(g.set_bytes, 770 * MIB);
        assert_int_equal(ns_geometry_of(&l, &gpu, 1638400, &g, &d), 0);
        check_sizes(&g, &l, 1638400);
        assert_int_equal(g.set_bytes, 50 * MIB);
        gpu.budget_bytes = 512 * MIB;
        assert_int_equal(ns_geometry_of(&l, &gpu, 1576960, &g, &d), -EINVAL);
        assert_non_null(strstr(d.text, "770 MiB, more than the device's budget of 512 MiB"));
}

/* No set is larger than it must be, and little is lost. */
TEST(test_random_layouts)
{
        unsigned n_ok = 0;

        for (int i = 0; i < 20000; i++) {
                uint64_t page = 64 * (1 + random_u64() % (UINT64_C(1) << random_below(24)));
                struct ns_layout l = with_planes(page, 1 + random_below(NS_MAX_PLANES));
                uint64_t budget = MIB << random_below(20), stride;
                struct set_source source = i % 2 ? on_host(budget) : on_gpu(budget);
                struct ns_geometry g, dense;
                int r = ns_geometry_of(&l, &source, 0, &g, NULL);
                int r_dense = ns_geometry_of(&l, &source, page, &dense, NULL);

                if (r < 0) {
                        assert_int_equal(r_dense, r);
                        continue;
                }
                n_ok++;
                stride = geometry_stride(&g);
                check_sizes(&g, &l, stride);
                assert_int_equal(g.extent_bytes % source.unit_bytes, 0);
                assert_true(stride >= page && (stride - page) * 25 <= stride);
                assert_true(g.set_bytes <= NS_MAX_SET_BYTES && g.set_bytes <= budget);
                assert_true(g.n_set_slots > 0 && g.n_set_slots * g.set_bytes <= budget);
                assert_true(g.capacity_pages <= SHARED_MAX_PAGES);
                if (stride == page)
                        continue;
                assert_int_equal(stride % 256, 0);
                assert_true(r_dense < 0 || dense.set_bytes > MIN(64 * MIB, budget));
                assert_true(r_dense < 0 || g.set_bytes < dense.set_bytes);
        }
        assert_true(n_ok > 2000);
}

/* The sentence names the field and what to do. */
TEST(test_refusals)
{
        struct ns_layout odd = with_planes(18 * KIB, 61), big = with_planes(64 * MIB, 8);
        struct set_source large = on_gpu(100 * GIB), small = on_gpu(256 * MIB), huge = on_gpu(GIB);
        struct ns_geometry g = {.set_pages = 77};
        struct detail d = {0};

        assert_int_equal(ns_geometry_of(&odd, &large, 0, &g, &d), -EINVAL);
        assert_non_null(strstr(d.text, "plane_page_bytes 18432"));
        assert_non_null(strstr(d.text, "more factors of two, or fewer planes"));
        assert_int_equal(ns_geometry_of(&big, &small, 0, &g, &d), -EINVAL);
        assert_non_null(strstr(d.text, "budget of 256 MiB"));
        odd = with_planes(64, 1024);
        assert_int_equal(ns_geometry_of(&odd, &large, 0, &g, &d), -EINVAL);
        assert_non_null(strstr(d.text, "extent sets of 2 GiB"));
        assert_int_equal(g.set_pages, 77);

        odd = with_planes(NS_MAX_SET_BYTES - 64, 1024);
        huge.granularity_bytes = huge.unit_bytes = (1ULL << 62) + 1;
        assert_int_equal(ns_geometry_of(&odd, &huge, 0, &g, &d), -EINVAL);
}

#define DIFFERS(field, value)                                              \
        do {                                                               \
                struct ns_layout x = test_layout(), y = test_layout();     \
                y.field = value;                                           \
                assert_string_equal(ns_layout_difference(&x, &y), #field); \
        } while (0)

TEST(test_layout_difference)
{
        struct ns_layout a = test_layout(), b = test_layout();
        char text[NS_LAYOUT_TEXT_MAX];

        strcpy(b.version, "v2");
        assert_null(ns_layout_difference(&a, &b));
        strcpy(b.model, "other");
        assert_string_equal(ns_layout_difference(&a, &b), "model");
        DIFFERS(dtype, 1);
        DIFFERS(n_layers, 9);
        DIFFERS(n_kv_heads, 9);
        DIFFERS(head_size, 9);
        DIFFERS(page_tokens, 9);
        DIFFERS(n_planes, 9);
        DIFFERS(plane_page_bytes, 64);
        DIFFERS(tp_rank, 9);
        DIFFERS(tp_size, 9);
        DIFFERS(layer_group, 9);
        b = test_layout();
        b.salt[b.salt_len++] = 1;
        assert_string_equal(ns_layout_difference(&a, &b), "salt");
        b = test_layout();
        b.format[b.format_len++] = 'x';
        assert_string_equal(ns_layout_difference(&a, &b), "format");
        a.format[a.format_len++] = 'y';
        assert_string_equal(ns_layout_difference(&a, &b), "format");
        a.format[0] = 'x';
        assert_null(ns_layout_difference(&a, &b));
        ns_layout_format(&a, text, sizeof(text));
        assert_non_null(strstr(text, ", format x"));
        a = test_layout();
        ns_layout_format(&a, text, sizeof(text));
        assert_non_null(strstr(text, "model toy version v1 dtype bf16 2 layers"));
        assert_non_null(strstr(text, ", format (none)"));
        /* The longest there is fits. */
        memset(&a, 0xff, sizeof(a));
        memset(a.model, 'm', NS_TEXT_MAX);
        memset(a.version, 'v', NS_TEXT_MAX);
        a.model[NS_TEXT_MAX] = a.version[NS_TEXT_MAX] = '\0';
        a.format_len = NS_FORMAT_MAX;
        ns_layout_format(&a, text, sizeof(text));
        assert_true(strlen(text) < sizeof(text) - 1);
        assert_string_equal(text + strlen(text) - 4, "ffff");
}

/* By the page over all planes; a tenant could otherwise spend the daemon's memory, not its own. */
TEST(test_least_page)
{
        struct ns_layout small = with_planes(64, 63), least = with_planes(64, 64);
        struct tenant_attrs attrs = {
                .limit_bytes = GIB, .weight = 1, .priority = 50, .max_clients = 8};
        struct fake_device device;
        struct detail d = {0};
        struct store store;
        struct tenant *t;
        struct attach *a;
        struct member *m;

        fake_device_init(&device, "fake", 4096);
        store_init(&store, &evict_lru);
        assert_int_equal(store.min_page_bytes, 4096);
        assert_int_equal(store_add_pool(&store, &device.device, GIB, MIB, NULL), 0);
        assert_int_equal(tenant_new(&store, "a", &attrs, &t, NULL), 0);
        m = join(t);
        assert_int_equal(attach_open(m, "x", &small, "", false, &a, &d), -EINVAL);
        assert_non_null(strstr(d.text, "plane_page_bytes 64 in 63 planes"));
        assert_non_null(strstr(d.text, "4096 is the minimum"));
        assert_non_null(strstr(d.text, "larger page_tokens"));
        assert_null(ns_find(t, "x"));
        assert_int_equal(attach_open(m, "x", &least, "", false, &a, NULL), 0);
        member_free(m);
        store_deinit(&store);
}

int main(void)
{
        random_start("test_geometry");
        return test_run_all(NULL, NULL);
}
