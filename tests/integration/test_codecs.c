/*
 * Layers with codecs of their own in the lower tiers. Each layer takes the bytes of its codec
 * there. It comes back as exact as the codec allows, and the same after the daemon was killed. This
 * process is the client.
 */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "client/lib/kvlease.h"
#include "tests/integration/harness.h"
#include "tests/integration/pattern.h"

#define N_LAYERS      4
#define PAGE_TOKENS   64
#define CHANNELS      128 /* 2 heads of 64 */
#define PLANE_NUMBERS (2 * PAGE_TOKENS * CHANNELS)
#define PLANE_BYTES   (2 * PLANE_NUMBERS)
#define N_PAGES       48 /* 6 MiB: the device has 8 MiB, in sets of 8 */
#define CODECS        "0:none,1-2:int8,3:int4"

/* Numbers are between -1 and 1: half a step of a codec, and the error of halves. */
static const double most_off[N_LAYERS] = {0, 0.5 / 127 + 0.001, 0.5 / 127 + 0.001, 0.5 / 7 + 0.001};

static const struct private_tenant tenants[] = {{"a", NULL}, {NULL, NULL}};
static const struct private_options kept = {.tenants = tenants,
        .device_lines = "memory = 8MiB\nextent = 2MiB\nhost_memory = 32MiB\n",
        .is_kept = true};

struct client {
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        struct kvl_window *window;
};

static double number_of(uint16_t bits)
{
        _Float16 half;

        memcpy(&half, &bits, sizeof(half));
        return (double)half;
}

/* Contents to publish: steps of 2^-9, which halves represent exactly. */
static void make_plane(uint32_t page, uint32_t layer, uint16_t *ret)
{
        uint64_t seed = 1000 * page + layer;

        for (unsigned i = 0; i < PLANE_NUMBERS; ++i) {
                _Float16 half = (_Float16)(((double)(pattern_next(&seed) % 1025) - 512) / 512);

                memcpy(&ret[i], &half, sizeof(half));
        }
}

static void publish(struct client *c, uint32_t index)
{
        uint8_t keys[2][KVL_KEY_BYTES];
        struct kvl_publish p = {.size = sizeof(p),
                .keys = keys[1],
                .parent_key = index > 0 ? keys[0] : NULL,
                .n_pages = 1,
                .last_tokens = PAGE_TOKENS};
        uint32_t page;

        pattern_key(1, index - 1, keys[0]);
        pattern_key(1, index, keys[1]);
        assert_int_equal(kvl_lease(c->ns, 0, 1, &page), 0);
        for (uint32_t layer = 0; layer < N_LAYERS; ++layer)
                make_plane(index, layer, kvl_page_ptr(c->ns, page, layer));
        p.pages = &page;
        assert_int_equal(kvl_publish(c->ns, &p, NULL, NULL), 0);
        assert_int_equal(kvl_window_append(c->window, &page, 1, NULL), 0);
}

static void open_client(struct harness *h, struct client *c)
{
        char socket[PRIVATE_PATH_MAX];
        const struct kvl_connect_options o = {
                .size = sizeof(o), .socket_path = private_daemon_socket(&h->daemon, "a", socket)};
        const struct kvl_layout layout = {.size = sizeof(layout),
                .model = "codecs",
                .dtype = KVL_DTYPE_F16,
                .n_layers = N_LAYERS,
                .n_kv_heads = 2,
                .head_size = CHANNELS / 2,
                .page_tokens = PAGE_TOKENS,
                .n_planes = N_LAYERS,
                .plane_page_bytes = PLANE_BYTES};
        const struct kvl_ns_options options = {
                .size = sizeof(options), .host_layer_codecs = CODECS};
        const struct kvl_window_options window = {.size = sizeof(window), .chunk_pages = 4};

        assert_int_equal(kvl_connect(&o, &c->conn), 0);
        assert_int_equal(kvl_ns_open_with(c->conn, "ns", &layout, &options, &c->ns), 0);
        assert_int_equal(kvl_window_open(c->ns, &window, &c->window), 0);
}

/* Reads a layer of all pages; `numbers` has room for it. */
static void read_layer(struct client *c, uint32_t layer, uint16_t *numbers)
{
        uint32_t n;

        for (uint32_t i = 0; i < N_PAGES; i += n) {
                const uint32_t *pages;

                assert_int_equal(kvl_window_take_planes(
                                         c->window, i, N_PAGES - i, layer, 1, NULL, &pages, &n),
                        0);
                for (uint32_t k = 0; k < n; ++k)
                        memcpy(numbers + (i + k) * (size_t)PLANE_NUMBERS,
                                kvl_page_ptr(c->ns, pages[k], layer), PLANE_BYTES);
        }
}

/* The greatest error of the layer's numbers. */
static double layer_error(const uint16_t *numbers, uint32_t layer)
{
        static uint16_t was[PLANE_NUMBERS];
        double worst = 0;

        for (uint32_t page = 0; page < N_PAGES; ++page) {
                make_plane(page, layer, was);
                for (unsigned i = 0; i < PLANE_NUMBERS; ++i)
                        worst = fmax(
                                worst, fabs(number_of(numbers[page * (size_t)PLANE_NUMBERS + i]) -
                                               number_of(was[i])));
        }
        return worst;
}

/* Checks kvleasectl's rows of codecs, range by range. */
static void check_ranges(struct harness *h)
{
        static const struct {
                const char *codec;
                double least, most; /* of a page's bytes, stored */
        } expected[] = {{"none", 1, 1}, {"int8", 0.5, 0.53}, {"int4", 0.25, 0.33}};
        json_t *reply = ctl_json(h, "codecs"), *rows = ctl_list(reply, "codecs");

        assert_int_equal(json_array_size(rows), ARRAY_SIZE(expected));
        for (unsigned i = 0; i < ARRAY_SIZE(expected); ++i) {
                const json_t *row = json_array_get(rows, i);
                double bytes = json_number_value(json_object_get(row, "page_bytes"));
                double part = json_number_value(json_object_get(row, "stored_bytes")) / bytes;

                assert_string_equal(
                        json_string_value(json_object_get(row, "codec")), expected[i].codec);
                assert_true(part >= expected[i].least && part <= expected[i].most);
        }
        json_decref(reply);
}

HARNESS_TEST(test_layers, &kept)
{
        size_t bytes = (size_t)N_PAGES * PLANE_BYTES;
        uint16_t *before = malloc(N_LAYERS * bytes), *after = malloc(bytes);
        struct client c;
        const uint32_t *pages;
        uint32_t n, n_below = 0;

        assert_non_null(before);
        assert_non_null(after);
        open_client(h, &c);
        for (uint32_t i = 0; i < N_PAGES; ++i)
                publish(&c, i);
        pages = kvl_window_pages(c.window, &n);
        for (uint32_t i = 0; i < n; ++i)
                n_below += kvl_page_tier(c.ns, pages[i]) == KVL_TIER_HOST;
        assert_true(n_below >= N_PAGES - 1); /* the last one may be on its way */
        check_ranges(h);
        for (uint32_t layer = 0; layer < N_LAYERS; ++layer) {
                uint16_t *numbers = before + layer * (size_t)N_PAGES * PLANE_NUMBERS;
                double off;

                read_layer(&c, layer, numbers);
                off = layer_error(numbers, layer);
                assert_true(off <= most_off[layer]);
                assert_true(most_off[layer] == 0 || off > most_off[layer] / 2);
        }
        /* The next daemon reads the stored values. */
        assert_int_equal(kill((pid_t)ctl_status(h, "pid"), SIGKILL), 0);
        assert_int_equal(private_daemon_await(&h->daemon), 0);
        check_ranges(h);
        for (uint32_t layer = 0; layer < N_LAYERS; ++layer) {
                read_layer(&c, layer, after);
                assert_memory_equal(after, before + layer * (size_t)N_PAGES * PLANE_NUMBERS,
                        bytes - PLANE_BYTES);
        }
        assert_int_equal(ctl_status(h, "host_damaged"), 0);
        assert_int_equal(ctl_status(h, "evictions"), 0);
        assert_int_equal(kvl_window_close(c.window, NULL), 0);
        kvl_disconnect(c.conn);
        free(before);
        free(after);
        ctl(h, "purge a --remove");
}
