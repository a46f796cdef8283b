/* Bytes of pages that go to buffers, and come from them (daemon/core/moves/transfer.h), on real
 * memory: from all tiers, and what happens to the page meanwhile. */
#include "daemon/core/clients/grants.h"
#include "daemon/core/requests/invalidate.h"
#include "tests/unit/space-fixture.h"
#include "tests/unit/transfer-fixture.h"

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

DISK_TEST(test_out_of_a_disk)
{
        struct tiers_want o = want(0);
        unsigned key = 0;
        struct tiers w;

        tiers_open(&w, &o);
        for (unsigned i = 0; i < N_DEVICE; i++)
                cache(&w, i, 1);
        while (key < N_DEVICE && tier_of(&w, key) != TIER_DISK)
                key++;
        assert_out(&w, key, TIER_DISK);
        tiers_end(&w);
}

TEST_BARE(test_in)
{
        struct buffer_end e;
        struct tiers w;
        uint32_t page;

        tiers_start(&w, &evict_lru, 2, 0, 3, CODEC_NONE);
        assert_int_equal(lease_pages(w.attach, 1, w.now_nsec, &page, NULL), 0);
        (void)begin_in(&w, page, 7, &e);
        tiers_settle(&w);
        assert_int_equal(e.n, 1);
        assert_int_equal(e.result, 0);
        assert_true(buffer_is_filled(&w, e.bytes, 7));
        assert_true(tier_is_filled(&w, page, 7));
        assert_int_equal(ns_page(w.ns, page)->state, PAGE_GRANTED);
        free(e.bytes);
        tiers_end(&w);
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

/* If the page was reused by then, the bytes may be another page's. */
TIER_SCENE(test_gone_meanwhile, &evict_lru, 2, 0, 2, CODEC_NONE)
{
        uint32_t from, page = PAGE_NONE;
        uint8_t key[KEY_BYTES];
        struct buffer_end e;
        uint64_t n;

        assert_true(tier_cache(w, 7, 1));
        from = tier_find(w, 7);
        (void)begin_out(w, from, &e);
        make_keys(key, 7, 1);
        assert_int_equal(invalidate_key(w->attach, key, &n, NULL), 0);
        while (page != from)
                assert_int_equal(lease_pages(w->attach, 1, w->now_nsec, &page, NULL), 0);
        tiers_settle(w);
        assert_int_equal(e.n, 1);
        assert_int_equal(e.result, -ENOENT);
        free(e.bytes);
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

/* Without threads that copy the buffer stays the caller's. */
TIER_SCENE(test_no_mover, &evict_lru, 2, 0, 2, CODEC_NONE)
{
        struct transfer *t = NULL;
        struct buffer_end e;
        struct mover *mover;
        struct transfer_buffer b;

        assert_true(tier_cache(w, 7, 1));
        b = make_buffer(w, &e);
        mover = w->store.moving.mover;
        w->store.moving.mover = NULL;
        assert_int_equal(transfer_begin_out(w->ns, tier_find(w, 7), &b, false, &t), -EBUSY);
        w->store.moving.mover = mover;
        assert_null(t);
        free(b.bytes);
}
