/* Bytes of pages that go to buffers, and come from them (daemon/core/moves/transfer.h), on real
 * memory: from all tiers, and what happens to the page meanwhile. */
#include "daemon/core/clients/grants.h"
#include "tests/unit/space-fixture.h"
#include "tests/unit/transfer-fixture.h"
#include "tests/unit/page-numbers.h"

#define HEADER 100 /* in front of the bytes; of no alignment */

static uint64_t buffer_bytes(const struct tiers *w)
{
        return HEADER + w->n_planes * w->ns->layout.plane_page_bytes;
}

static struct transfer_buffer make_buffer(const struct tiers *w, struct buffer_end *e)
{
        uint8_t *bytes = malloc(buffer_bytes(w));

        assert_non_null(bytes);
        memset(bytes, 0xee, buffer_bytes(w));
        *e = (struct buffer_end){NULL};
        return (struct transfer_buffer){
                .bytes = bytes, .at = HEADER, .done = on_buffer_end, .data = e};
}

/* Fills a buffer with the bytes of tier_fill(). */
static void fill_buffer(const struct tiers *w, uint8_t *bytes, unsigned key)
{
        uint64_t n = w->ns->layout.plane_page_bytes;

        for (uint32_t plane = 0; plane < w->n_planes; plane++)
                for (uint64_t i = 0; i < n; i += 8) {
                        uint64_t word = (key * UINT64_C(0x9e3779b97f4a7c15)) ^ (i << 8 | plane);

                        memcpy(bytes + HEADER + plane * n + i, &word, 8);
                }
}

static bool buffer_is_filled(const struct tiers *w, const uint8_t *bytes, unsigned key)
{
        uint8_t *wanted = malloc(buffer_bytes(w));
        bool is_same;

        assert_non_null(wanted);
        memset(wanted, 0xee, HEADER);
        fill_buffer(w, wanted, key);
        is_same = memcmp(bytes, wanted, buffer_bytes(w)) == 0;
        free(wanted);
        return is_same;
}

static struct transfer *begin_out(struct tiers *w, uint32_t page, struct buffer_end *e)
{
        const struct transfer_buffer b = make_buffer(w, e);
        struct transfer *t;

        assert_int_equal(transfer_begin_out(w->ns, page, &b, false, &t), 0);
        return t;
}

static struct transfer *begin_in(struct tiers *w, uint32_t page, unsigned key, struct buffer_end *e)
{
        const struct transfer_buffer b = make_buffer(w, e);
        struct transfer *t;

        fill_buffer(w, b.bytes, key);
        assert_int_equal(transfer_begin_in(w->ns, page, &b, true, &t), 0);
        return t;
}

/* The text of this key is in the tier, and its bytes come from there. */
static void assert_out(struct tiers *w, unsigned key, enum tier_kind tier)
{
        uint32_t page = tier_find(w, key);
        struct buffer_end e;

        assert_int_equal(tier_of(w, key), tier);
        (void)begin_out(w, page, &e);
        assert_null(transfer_find(w->ns, page)); /* it may go elsewhere meanwhile */
        tiers_settle(w);
        assert_int_equal(e.n, 1);
        assert_int_equal(e.result, 0);
        assert_true(buffer_is_filled(w, e.bytes, key));
        assert_int_equal(tier_find(w, key), page);
        free(e.bytes);
}

TIER_SCENE(test_out, &evict_lru, 2, 4, 3, CODEC_NONE)
{
        unsigned key = 0;

        fill_device(w);
        while (tier_of(w, key) != TIER_DEVICE)
                key++;
        assert_out(w, key, TIER_DEVICE);
        assert_out(w, any_below(w), TIER_HOST);
}

/* A page that is given back isn't anybody's before nothing writes to it any more. */
TEST_BARE(test_given_back_meanwhile)
{
        struct buffer_end e;
        struct tiers w;
        uint32_t page, n_free;

        tiers_start(&w, &evict_lru, 2, 0, 1, CODEC_NONE);
        assert_int_equal(lease_pages(w.attach, 1, w.now_nsec, &page, NULL), 0);
        n_free = (uint32_t)ns_n_room(w.ns);
        (void)begin_in(&w, page, 7, &e);
        (void)transfer_start(&w.store);
        assert_int_equal(free_pages(w.attach, &page, 1, NULL), 0);
        assert_int_equal(ns_page(w.ns, page)->state, PAGE_MOVING);
        assert_int_equal(ns_n_room(w.ns), n_free);
        assert_int_equal(e.n, 0);
        tiers_check(&w);
        tiers_settle(&w);
        assert_int_equal(e.n, 1);
        assert_int_equal(e.result, -ECANCELED);
        assert_non_null(e.bytes);
        assert_true(!ns_page(w.ns, page) || ns_page(w.ns, page)->state == PAGE_FREE);
        free(e.bytes);
        tiers_end(&w);
}

/* The caller gets no result, and the buffer is freed. */
TEST_BARE(test_let_go)
{
        struct buffer_end e, other;
        struct tiers w;
        uint32_t page;

        tiers_start(&w, &evict_lru, 2, 0, 2, CODEC_NONE);
        assert_true(tier_cache(&w, 7, 1));
        assert_int_equal(lease_pages(w.attach, 1, w.now_nsec, &page, NULL), 0);
        transfer_let_go(begin_out(&w, tier_find(&w, 7), &e));
        transfer_let_go(begin_in(&w, page, 8, &other));
        tiers_settle(&w);
        assert_int_equal(e.n + other.n, 0);
        assert_int_equal(w.store.moving.n_transfers, 0);
        assert_int_equal(ns_page(w.ns, page)->state, PAGE_GRANTED);
        tiers_end(&w);
}

/* Bytes of pages that leave the host in the form in which its memory stores them, and come from
 * there: encoded (daemon/core/moves/transfer.h). What is plain is in test_transfer_buffer.c. */

#define TRAILER 64 /* behind them */
#define FILLER  0xee

static uint64_t travel_bytes(const struct tiers *w)
{
        return page_travel_bytes(&w->ns->codecs.of_pages);
}

static uint8_t *make_buffer_coded(const struct tiers *w)
{
        uint64_t n = HEADER + travel_bytes(w) + TRAILER;
        uint8_t *bytes = malloc(n);

        assert_non_null(bytes);
        memset(bytes, FILLER, n);
        return bytes;
}

/* Nothing was written before and behind the page. */
static void assert_bounds(const struct tiers *w, const uint8_t *bytes)
{
        for (unsigned i = 0; i < HEADER; i++)
                assert_int_equal(bytes[i], FILLER);
        for (unsigned i = 0; i < TRAILER; i++)
                assert_int_equal(bytes[HEADER + travel_bytes(w) + i], FILLER);
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* Caches one page with finite numbers, of which the first is this one instead (0: isn't). */
static void cache_numbers(struct tiers *w, unsigned key, uint16_t first)
{
        uint8_t keys[KEY_BYTES];
        uint32_t page, sealed, n;
        struct publish p = {
                .pages = &page, .keys = keys, .n = 1, .last_tokens = w->ns->layout.page_tokens};

        make_keys(keys, key, 1);
        assert_int_equal(lease_pages(w->attach, 1, w->now_nsec, &page, NULL), 0);
        numbers_fill(w, page, key);
        if (first)
                *numbers_at(w, page, 0) = first;
        assert_int_equal(publish_pages(w->attach, &p, w->now_nsec, &sealed, &n, NULL), 0);
        assert_int_equal(release_pages(w->attach, &sealed, 1, w->now_nsec, NULL), 0);
}

static int page_out(struct tiers *w, unsigned key, uint8_t **ret_bytes)
{
        struct buffer_end e = {.n = 0};
        const struct transfer_buffer b = {
                .bytes = make_buffer_coded(w), .at = HEADER, .done = on_buffer_end, .data = &e};
        struct transfer *t;

        assert_int_equal(transfer_begin_out(w->ns, tier_find(w, key), &b, false, &t), 0);
        tiers_settle(w);
        assert_int_equal(e.n, 1);
        assert_bounds(w, e.bytes);
        *ret_bytes = e.bytes;
        return e.result;
}

/* Takes `bytes`. Returns how it ended, and the page. */
static int page_in(struct tiers *w, uint8_t *bytes, uint32_t *ret_page)
{
        struct buffer_end e = {.n = 0};
        const struct transfer_buffer b = {
                .bytes = bytes, .at = HEADER, .done = on_buffer_end, .data = &e};
        struct transfer *t;

        assert_int_equal(lease_pages(w->attach, 1, w->now_nsec, ret_page, NULL), 0);
        assert_int_equal(transfer_begin_in(w->ns, *ret_page, &b, true, &t), 0);
        tiers_settle(w);
        assert_int_equal(e.n, 1);
        assert_bounds(w, e.bytes);
        free(e.bytes);
        assert_int_equal(ns_page(w->ns, *ret_page)->state, PAGE_GRANTED);
        return e.result;
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Codecs of a page in its tiers. */
static const struct form {
        enum codec host, disk;
        const char *host_layers; /* in place of `host`, of two layers with a plane each; NULL */
        double off[2];           /* of each plane: how far its numbers are off at most */
} forms[] = {
        {CODEC_INT8, CODEC_INT8, NULL, {NUMBERS_INT8_OFF, NUMBERS_INT8_OFF}},
        {CODEC_INT8, CODEC_INT4, NULL, {NUMBERS_INT8_OFF, NUMBERS_INT8_OFF}},
        {CODEC_INT4, CODEC_NONE, NULL, {NUMBERS_INT4_OFF, NUMBERS_INT4_OFF}},
        {CODEC_NONE, CODEC_INT8, "0:none,1:int8", {0, NUMBERS_INT8_OFF}},
        {CODEC_NONE, CODEC_INT8, "0:int4,1:int8", {NUMBERS_INT4_OFF, NUMBERS_INT8_OFF}},
};

static void open_form(struct tiers *w, const struct form *f, unsigned n_host)
{
        struct tiers_want o = want(n_host);

        o.n_planes = 2;
        o.n_layers = 2;
        o.host_codec = f->host;
        o.host_layers = f->host_layers;
        o.disk_codec = f->disk;
        tiers_open(w, &o);
}

/* Exports the page of this key from this tier. Imports the bytes to a page, which must be as near
 * to it as the codec allows. below: the error that its plane has already, in its tier. */
static void go_and_come(
        struct tiers *w, const struct form *f, unsigned key, enum tier_kind tier, double below)
{
        uint8_t *bytes;
        uint32_t page;

        assert_int_equal(tier_of(w, key), tier);
        assert_int_equal(page_out(w, key, &bytes), 0);
        assert_int_equal(page_in(w, bytes, &page), 0);
        for (uint32_t plane = 0; plane < w->n_planes; plane++) {
                double error = numbers_error(w, page, plane, key);

                assert_true(error <= f->off[plane] + below);
                assert_int_equal(error > 0, f->off[plane] + below > 0);
        }
        assert_int_equal(free_pages(w->attach, &page, 1, NULL), 0);
}

/* A disk may store them in another form. */
DISK_TEST(test_from_a_disk)
{
        for (unsigned i = 0; i < ARRAY_SIZE(forms); i++) {
                struct tiers w;
                unsigned key = 0;

                open_form(&w, &forms[i], 0);
                for (unsigned k = 0; k < N_DEVICE; k++) {
                        cache_numbers(&w, k, 0);
                        assert_int_equal(use(&w, k, 1), 1); /* a disk takes nothing else */
                        tiers_settle(&w);
                }
                while (key < N_DEVICE && tier_of(&w, key) != TIER_DISK)
                        key++;
                go_and_come(&w, &forms[i], key, TIER_DISK,
                        forms[i].disk == CODEC_INT4   ? NUMBERS_INT4_OFF
                        : forms[i].disk == CODEC_INT8 ? NUMBERS_INT8_OFF
                                                      : 0);
                tiers_end(&w);
        }
}

/* A host with the secret may send any bytes: bytes that no encoder makes become no page. */
DISK_TEST(test_never_encoded)
{
        struct tiers w;
        uint8_t *bytes;
        uint32_t page;

        open_form(&w, &forms[0], 0);
        bytes = make_buffer_coded(&w);
        memset(bytes + HEADER, 0xff, travel_bytes(&w));
        assert_int_equal(page_in(&w, bytes, &page), -EBADMSG);
        for (uint32_t plane = 0; plane < w.n_planes; plane++)
                for (unsigned i = 0; i < TIER_PAGE_BYTES / 2; i++)
                        assert_int_equal(numbers_at(&w, page, plane)[i], 0);
        assert_int_equal(w.store.counters.pages_damaged, 0); /* none that was cached */
        tiers_end(&w);
}
