#include "lab/bench/long-text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "tests/bench/bench.h"
#include "tests/integration/pattern.h"

#define FIRST_TOKENS 128 /* that stay on the device */
#define LAST_TOKENS  512
#define CHUNK_PAGES  4
#define NUMBER_BYTES 2

uint64_t long_plane_bytes(const struct long_shape *shape)
{
        return 2ull * LONG_PAGE_TOKENS * shape->n_kv_heads * LONG_HEAD_SIZE * NUMBER_BYTES;
}

uint64_t long_page_bytes(const struct long_shape *shape)
{
        return shape->n_layers * long_plane_bytes(shape);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static uint16_t half_of(float x)
{
        _Float16 half = (_Float16)x;
        uint16_t bits;

        memcpy(&bits, &half, sizeof(bits));
        return bits;
}

static float float_of(uint16_t bits)
{
        _Float16 half;

        memcpy(&half, &bits, sizeof(half));
        return (float)half;
}

/* The sum of twelve uniform numbers less 6: nearly normal, of variance 1. */
static float normal(uint64_t *seed)
{
        float sum = -6;

        for (unsigned i = 0; i < 12; i++)
                sum += (float)(pattern_next(seed) >> 40) / (float)(1 << 24);
        return sum;
}

int long_numbers_make(struct long_numbers *n, uint32_t n_kv_heads)
{
        uint32_t channels = n_kv_heads * LONG_HEAD_SIZE;
        uint64_t seed = 26;

        *n = (struct long_numbers){.n_channels = channels};
        n->plane = malloc(2ull * LONG_PAGE_TOKENS * channels * NUMBER_BYTES);
        n->most = calloc(2ull * channels, sizeof(*n->most));
        if (!n->plane || !n->most) {
                long_numbers_free(n);
                return bench_fail("numbers", -ENOMEM);
        }
        for (uint32_t kv = 0; kv < 2; kv++)
                for (uint32_t c = 0; c < channels; c++) {
                        /* A few channels of keys are far wider than the others. */
                        float width = (kv == 0 && c % 61 == 7 ? 8.0f : 1.0f) *
                                      (0.5f + (float)(c % 17) / 16);
                        float *most = &n->most[kv * channels + c];

                        for (uint32_t t = 0; t < LONG_PAGE_TOKENS; t++) {
                                uint16_t half = half_of(width * normal(&seed));

                                n->plane[(kv * LONG_PAGE_TOKENS + t) * (size_t)channels + c] = half;
                                *most = fmaxf(*most, fabsf(float_of(half)));
                        }
                }
        return 0;
}

void long_numbers_free(struct long_numbers *n)
{
        free(n->plane);
        free(n->most);
        *n = (struct long_numbers){0};
}

/* At which token of the numbers a page begins in a plane. */
static uint32_t first_row(uint32_t page, uint32_t layer)
{
        return (page * 7 + layer * 13) % LONG_PAGE_TOKENS;
}

static size_t row_bytes(const struct long_text *t)
{
        return (size_t)t->numbers->n_channels * NUMBER_BYTES;
}

/* Fills K or V: the numbers from the row on, then those before it. */
static void fill_plane(const struct long_text *t, uint8_t *at, uint32_t page, uint32_t layer)
{
        size_t matrix = LONG_PAGE_TOKENS * row_bytes(t);
        size_t first = first_row(page, layer) * row_bytes(t);

        for (unsigned kv = 0; kv < 2; kv++) {
                const uint8_t *from = (const uint8_t *)t->numbers->plane + kv * matrix;

                memcpy(at + kv * matrix, from + first, matrix - first);
                memcpy(at + kv * matrix + matrix - first, from, first);
        }
}

static bool plane_is_right(
        const struct long_text *t, const uint8_t *at, uint32_t page, uint32_t layer)
{
        size_t matrix = LONG_PAGE_TOKENS * row_bytes(t);
        size_t first = first_row(page, layer) * row_bytes(t);
        bool right = true;

        for (unsigned kv = 0; kv < 2; kv++) {
                const uint8_t *from = (const uint8_t *)t->numbers->plane + kv * matrix;

                right &= memcmp(at + kv * matrix, from + first, matrix - first) == 0 &&
                         memcmp(at + kv * matrix + matrix - first, from, first) == 0;
        }
        return right;
}

/* The greatest error of the plane's numbers, relative to the channel's greatest number. */
static double plane_error(
        const struct long_text *t, const uint8_t *at, uint32_t page, uint32_t layer)
{
        const uint16_t *numbers = (const uint16_t *)(const void *)at;
        uint32_t channels = t->numbers->n_channels, first = first_row(page, layer);
        double worst = 0;

        for (uint32_t kv = 0; kv < 2; kv++)
                for (uint32_t row = 0; row < LONG_PAGE_TOKENS; row++) {
                        size_t is = (kv * LONG_PAGE_TOKENS + row) * (size_t)channels;
                        size_t was = (kv * LONG_PAGE_TOKENS + (row + first) % LONG_PAGE_TOKENS) *
                                     (size_t)channels;

                        for (uint32_t c = 0; c < channels; c++) {
                                float off = float_of(numbers[is + c]) -
                                            float_of(t->numbers->plane[was + c]);

                                worst = fmax(
                                        worst, fabsf(off) / t->numbers->most[kv * channels + c]);
                        }
                }
        return worst;
}

/* ---- the text -------------------------------------------------------------------------------- */

static int fail(int r)
{
        return bench_fail(kvl_last_error(), r);
}

static int open_window(struct long_text *t)
{
        const struct kvl_window_options o = {.size = sizeof(o),
                .first_tokens = FIRST_TOKENS,
                .last_tokens = LAST_TOKENS,
                .chunk_pages = CHUNK_PAGES,
                .session = t->session};
        int r = kvl_window_open(t->ns, &o, &t->window);

        return r ? fail(r) : 0;
}

int long_open(struct long_text *t, const char *socket, const char *name, const char *set,
        const struct long_shape *shape, const struct long_numbers *numbers, uint32_t max_pages)
{
        const struct kvl_connect_options o = {
                .size = sizeof(o), .socket_path = socket, .client_name = "kvlease-bench"};
        const struct kvl_layout layout = {.size = sizeof(layout),
                .model = "bench-7b",
                .version = "1",
                .dtype = KVL_DTYPE_F16,
                .n_layers = shape->n_layers,
                .n_kv_heads = shape->n_kv_heads,
                .head_size = LONG_HEAD_SIZE,
                .page_tokens = LONG_PAGE_TOKENS,
                .n_planes = shape->n_layers,
                .plane_page_bytes = long_plane_bytes(shape),
                .tp_size = 1,
                .layer_group = shape->first_layer > 0};
        const struct kvl_ns_options options = {.size = sizeof(options),
                .host_layer_codecs = shape->codecs,
                .set = set,
                .set_size = set ? 2 : 0};
        struct kvl_session_info info = {.size = sizeof(info)};
        int r;

        *t = (struct long_text){.shape = *shape, .numbers = numbers, .room_pages = max_pages};
        t->indexes = calloc(max_pages, sizeof(*t->indexes));
        if (!t->indexes)
                return bench_fail("text", -ENOMEM);
        r = kvl_connect(&o, &t->conn);
        if (r == 0)
                r = kvl_ns_open_with(t->conn, name, &layout, &options, &t->ns);
        if (r == 0)
                r = kvl_session_open(t->ns, name, strlen(name), NULL, &info, &t->session);
        return r ? fail(r) : open_window(t);
}

void long_close(struct long_text *t)
{
        kvl_disconnect(t->conn);
        free(t->indexes);
        *t = (struct long_text){0};
}

int long_append(struct long_text *t)
{
        uint8_t keys[2][KVL_KEY_BYTES];
        struct kvl_publish p = {.size = sizeof(p),
                .keys = keys[1],
                .n_pages = 1,
                .last_tokens = LONG_PAGE_TOKENS,
                .session = t->session};
        uint32_t page, index = t->n_pages;
        int r = kvl_lease(t->ns, 0, 1, &page);

        if (r)
                return fail(r);
        for (uint32_t i = 0; i < t->shape.n_layers; i++)
                fill_plane(t, kvl_page_ptr(t->ns, page, i), index, t->shape.first_layer + i);
        pattern_key(26, index, keys[1]);
        if (index > 0) {
                pattern_key(26, index - 1, keys[0]);
                p.parent_key = keys[0];
        }
        p.pages = &page;
        r = kvl_publish(t->ns, &p, NULL, NULL);
        if (r == 0)
                r = kvl_window_append(t->window, &page, 1, NULL);
        if (r)
                return fail(r);
        t->indexes[t->n_pages++] = index;
        return 0;
}

int long_keep(struct long_text *t, uint64_t first_tokens, uint64_t last_tokens)
{
        uint64_t end = (uint64_t)t->n_pages * LONG_PAGE_TOKENS;
        uint64_t last = last_tokens < end ? end - last_tokens : 0;
        const struct kvl_token_range ranges[] = {{0, first_tokens}, {last, KVL_TEXT_END}};
        uint32_t n = 0;
        int r = last > first_tokens ? kvl_session_keep(t->session, ranges, 2, NULL) : -EINVAL;

        if (r == 0)
                r = kvl_window_close(t->window, NULL);
        t->window = NULL;
        if (r)
                return fail(r);
        for (uint32_t i = 0; i < t->n_pages; i++)
                if (t->indexes[i] * (uint64_t)LONG_PAGE_TOKENS < first_tokens ||
                        (t->indexes[i] + 1) * (uint64_t)LONG_PAGE_TOKENS > last)
                        t->indexes[n++] = t->indexes[i];
        r = open_window(t);
        if (r < 0)
                return r;
        (void)kvl_window_pages(t->window, &t->n_pages);
        return t->n_pages == n ? 0 : bench_fail("another number of pages was kept", -EIO);
}

/* ---- reading --------------------------------------------------------------------------------- */

static double sec_since(uint64_t start_nsec)
{
        return (double)(clock_now_nsec() - start_nsec) / 1e9;
}

/* Reads at the speed of memory: eight sums side by side. */
static uint64_t read_plane(const uint8_t *at, size_t n)
{
        const uint64_t *words = (const uint64_t *)(const void *)at;
        uint64_t sums[8] = {0}, sum = 0;

        for (size_t i = 0; i < n / 8; i += 8)
                for (unsigned k = 0; k < 8; k++)
                        sums[k] += words[i + k];
        for (unsigned k = 0; k < 8; k++)
                sum ^= sums[k];
        return sum;
}

/* 0: none, 1: int8, 2: int4; as the shape's text has it for the layer. */
static unsigned codec_of(const struct long_text *t, uint32_t layer)
{
        const char *at = t->shape.codecs;
        unsigned codec = 0;

        while (at && *at && strtoul(at, NULL, 10) <= layer) {
                const char *name = strchr(at, ':') + 1;

                codec = strncmp(name, "none", 4) == 0 ? 0 : strncmp(name, "int8", 4) == 0 ? 1 : 2;
                at = strchr(name, ',');
                at = at ? at + 1 : NULL;
        }
        return codec;
}

/* Codecs change only demoted planes; others are unchanged. */
static void compare_plane(const struct long_text *t, const uint8_t *at, uint32_t page,
        uint32_t plane, bool is_copy, struct long_pass *pass)
{
        uint32_t layer = t->shape.first_layer + plane;
        unsigned codec = is_copy ? codec_of(t, plane) : 0;

        if (codec == 0)
                pass->n_wrong += !plane_is_right(t, at, page, layer);
        else
                pass->worst[codec] = fmax(pass->worst[codec], plane_error(t, at, page, layer));
}

static volatile uint64_t sink; /* keeps the compiler from removing reads */

static void use_page(struct long_text *t, uint32_t page, uint32_t at, uint32_t plane,
        enum long_reading reading, struct long_pass *pass)
{
        const uint8_t *bytes = kvl_page_ptr(t->ns, page, plane);
        uint32_t n;
        bool is_copy = kvl_window_pages(t->window, &n)[at] != page;

        if (reading == LONG_READS)
                sink += read_plane(bytes, long_plane_bytes(&t->shape));
        else if (reading == LONG_COMPARES)
                compare_plane(t, bytes, t->indexes[at], plane, is_copy, pass);
        pass->read_bytes += long_plane_bytes(&t->shape);
}

static int layer_pass(struct long_text *t, uint32_t plane, bool whole, enum long_reading reading,
        struct long_pass *pass)
{
        uint32_t first = whole ? 0 : plane, n_planes = whole ? t->shape.n_layers : 1, n;

        for (uint32_t i = 0; i < t->n_pages; i += n) {
                uint64_t start = clock_now_nsec();
                const uint32_t *pages, *own;
                uint32_t n_text;
                int r = kvl_window_take_planes(
                        t->window, i, t->n_pages - i, first, n_planes, NULL, &pages, &n);

                pass->wait_sec += sec_since(start);
                if (r)
                        return fail(r);
                own = kvl_window_pages(t->window, &n_text);
                for (uint32_t k = 0; k < n; k++) {
                        if (pages[k] != own[i + k])
                                pass->moved_bytes += n_planes * long_plane_bytes(&t->shape);
                        use_page(t, pages[k], i + k, plane, reading, pass);
                }
        }
        return 0;
}

int long_step(struct long_text *t, bool whole, enum long_reading reading, struct long_pass *pass)
{
        uint64_t start = clock_now_nsec();
        int r = 0;

        for (uint32_t plane = 0; plane < (whole ? 1 : t->shape.n_layers) && r == 0; plane++)
                r = layer_pass(t, plane, whole, reading, pass);
        pass->all_sec += sec_since(start);
        return r;
}
