/* Pages that are filled where they lie (daemon/core/moves/fill.h), on real memory: where that is,
 * and what happens to the page meanwhile. */
#include "daemon/core/clients/grants.h"
#include "daemon/core/moves/fill.h"
#include "daemon/core/requests/invalidate.h"
#include "tests/unit/tier-fixture.h"

#define N_PLANES 3
#define KEY      7

/* A thread that fills a page. */
struct filler {
        struct fill *fill;
        struct iovec planes[N_PLANES];
        unsigned n_stopped;
};

/* Writes the planes with the bytes of tier_fill(). */
static void write_planes(const struct filler *f)
{
        for (uint32_t plane = 0; plane < N_PLANES; plane++)
                for (uint64_t i = 0; i < f->planes[plane].iov_len; i += 8) {
                        uint64_t word = (KEY * UINT64_C(0x9e3779b97f4a7c15)) ^ (i << 8 | plane);

                        memcpy((uint8_t *)f->planes[plane].iov_base + i, &word, 8);
                }
}

/* The last write goes to memory that still exists. */
static void on_stop(void *data)
{
        struct filler *f = data;

        write_planes(f);
        f->fill = NULL;
        f->n_stopped++;
}

static void start(struct tiers *w)
{
        tiers_start(w, &evict_lru, 2, 0, N_PLANES, CODEC_NONE);
}

#define SCENE(fn, ...) TEST_ON(fn, struct tiers, w, start, tiers_end, ##__VA_ARGS__)

/* A page of the client's, that is being filled. */
static uint32_t begin(struct tiers *w, struct filler *f)
{
        const struct fill_writer writer = {on_stop, f};
        uint32_t page;

        *f = (struct filler){.n_stopped = 0};
        assert_int_equal(lease_pages(w->attach, 1, w->now_nsec, &page, NULL), 0);
        assert_int_equal(fill_begin(w->ns, page, &writer, f->planes, &f->fill), 0);
        tiers_check(w);
        return page;
}

static int end(struct tiers *w, struct filler *f)
{
        int r = fill_end(f->fill);

        settle_all(&w->store);
        return r;
}

TEST_BARE(test_filled_where_it_lies)
{
        struct filler f;
        struct tiers w;
        uint32_t page;

        start(&w);
        assert_true(fill_is_possible(w.ns));
        page = begin(&w, &f);
        write_planes(&f);
        assert_int_equal(end(&w, &f), 0);
        assert_int_equal(ns_page(w.ns, page)->state, PAGE_GRANTED);
        assert_true(tier_is_filled(&w, page, KEY));
        assert_int_equal(f.n_stopped, 0);
        tiers_end(&w);
}

/* A page that is given back isn't free, nor its set unbound, before all writes to it have ended. */
TEST_BARE(test_given_back_meanwhile)
{
        uint32_t page, n_free;
        struct filler f;
        struct tiers w;

        start(&w);
        page = begin(&w, &f);
        n_free = (uint32_t)ns_n_room(w.ns);
        assert_int_equal(free_pages(w.attach, &page, 1, NULL), 0);
        assert_int_equal(ns_page(w.ns, page)->state, PAGE_MOVING);
        assert_int_equal(ns_n_room(w.ns), n_free);
        assert_int_equal(fill_count_moving(w.ns), 1);
        tiers_check(&w);
        write_planes(&f);
        assert_int_equal(end(&w, &f), -ECANCELED);
        assert_true(!ns_page(w.ns, page) || ns_page(w.ns, page)->state == PAGE_FREE);
        assert_int_equal(fill_count_moving(w.ns), 0);
        tiers_end(&w);
}

/* Two at once: each page is its own fill's. */
TEST_BARE(test_two)
{
        struct filler first, second;
        struct tiers w;
        uint32_t page, other;

        start(&w);
        page = begin(&w, &first);
        other = begin(&w, &second);
        assert_int_equal(free_pages(w.attach, &page, 1, NULL), 0);
        assert_true(fill_has_moving(w.ns, page));
        assert_false(fill_has_moving(w.ns, other));
        write_planes(&second);
        assert_int_equal(end(&w, &second), 0);
        assert_true(tier_is_filled(&w, other, KEY));
        assert_int_equal(ns_page(w.ns, page)->state, PAGE_MOVING);
        assert_int_equal(end(&w, &first), -ECANCELED);
        tiers_end(&w);
}

/* A client that publishes a page during its fill spoils only its own page. If that is dropped, it
 * isn't free before the fill ends. */
TEST_BARE(test_published_meanwhile)
{
        uint8_t key[KEY_BYTES];
        struct filler f;
        struct tiers w;
        struct publish p = {.keys = key, .n = 1};
        uint32_t page, sealed, n_sealed;
        uint64_t n;

        start(&w);
        make_keys(key, KEY, 1);
        page = begin(&w, &f);
        p.pages = &page;
        p.last_tokens = w.ns->layout.page_tokens;
        assert_int_equal(publish_pages(w.attach, &p, w.now_nsec, &sealed, &n_sealed, NULL), 0);
        tier_unpin(&w, sealed);
        assert_int_equal(end(&w, &f), -ECANCELED);
        assert_int_equal(ns_page(w.ns, page)->state, PAGE_SEALED);
        assert_int_equal(invalidate_key(w.attach, key, &n, NULL), 0);

        page = begin(&w, &f);
        assert_int_equal(publish_pages(w.attach, &p, w.now_nsec, &sealed, &n_sealed, NULL), 0);
        tier_unpin(&w, sealed);
        assert_int_equal(invalidate_key(w.attach, key, &n, NULL), 0);
        assert_int_equal(ns_page(w.ns, page)->state, PAGE_MOVING);
        assert_int_equal(end(&w, &f), -ECANCELED);
        tiers_end(&w);
}

/* All pages of a set at once, given back from the last one on, and ended from the first: each is
 * its own fill's. */
SCENE(test_many)
{
        static struct filler fillers[TIER_SET_PAGES];
        uint32_t pages[TIER_SET_PAGES];

        for (unsigned i = 0; i < ARRAY_SIZE(pages); i++)
                pages[i] = begin(w, &fillers[i]);
        for (unsigned i = ARRAY_SIZE(pages); i-- > 0;) {
                assert_int_equal(free_pages(w->attach, &pages[i], 1, NULL), 0);
                assert_true(fill_has_moving(w->ns, pages[i]));
                assert_int_equal(fill_count_moving(w->ns), ARRAY_SIZE(pages) - i);
                tiers_check(w);
        }
        for (unsigned i = 0; i < ARRAY_SIZE(pages); i++) {
                assert_int_equal(end(w, &fillers[i]), -ECANCELED);
                assert_int_equal(fill_count_moving(w->ns), ARRAY_SIZE(pages) - i - 1);
                tiers_check(w);
        }
        assert_int_equal(w->ns->device.n_sets, 0);
}

/* A page has one fill at a time. */
SCENE(test_twice)
{
        struct filler f, other;
        struct fill_writer writer = {on_stop, &other};
        uint32_t page;

        page = begin(w, &f);
        assert_int_equal(fill_begin(w->ns, page, &writer, other.planes, &other.fill), -EBUSY);
        tiers_check(w);
        assert_int_equal(end(w, &f), 0);
        assert_int_equal(fill_begin(w->ns, page, &writer, other.planes, &other.fill), 0);
        assert_int_equal(end(w, &other), 0);
}

/* A page that is being filled may also be the target of a copy. If it is given back, it is free
 * only after both have ended, in either order. */
TEST_BARE(test_copied_to_meanwhile)
{
        for (bool fill_is_first = false;; fill_is_first = true) {
                struct fill_writer writer;
                uint32_t from, page;
                struct filler f = {.n_stopped = 0};
                struct tiers w;

                tiers_start(&w, &evict_lru, 2, 2, N_PLANES, CODEC_NONE);
                assert_true(tier_cache(&w, KEY, 1));
                from = tier_find(&w, KEY);
                assert_int_equal(lease_pages(w.attach, 1, w.now_nsec, &page, NULL), 0);
                writer = (struct fill_writer){on_stop, &f};
                assert_int_equal(fill_begin(w.ns, page, &writer, f.planes, &f.fill), 0);
                assert_int_equal(
                        transfer_begin_copy(w.ns, from, page, layout_all_planes(&w.ns->layout)), 0);
                assert_int_equal(free_pages(w.attach, &page, 1, NULL), 0);
                assert_int_equal(ns_page(w.ns, page)->state, PAGE_MOVING);
                tiers_check(&w);
                if (fill_is_first) {
                        assert_int_equal(end(&w, &f), -ECANCELED);
                        assert_int_equal(ns_page(w.ns, page)->state, PAGE_MOVING);
                        tiers_check(&w);
                }
                tiers_settle(&w);
                tiers_check(&w);
                if (!fill_is_first) {
                        assert_int_equal(ns_page(w.ns, page)->state, PAGE_MOVING);
                        assert_int_equal(end(&w, &f), -ECANCELED);
                }
                assert_int_equal(w.store.moving.n_transfers, 0);
                assert_int_equal(ns_page(w.ns, page)->state, PAGE_FREE);
                assert_int_equal(ns_set_of(w.ns, page)->moving.n_copies, 0);
                tiers_end(&w);
                if (fill_is_first)
                        break;
        }
}

/* The memory stays until the writer has stopped. */
TEST_BARE(test_namespace_goes)
{
        struct filler f;
        struct tiers w;

        start(&w);
        (void)begin(&w, &f);
        member_free(w.m);
        tiers_check(&w);
        assert_int_equal(f.n_stopped, 0);
        assert_int_equal(fill_count_moving(w.ns), 1);
        store_deinit(&w.store);
        assert_int_equal(f.n_stopped, 1);
}

/* A page that travels in another codec than its own can't be filled in place. */
TIER_SCENE(test_travels_in_a_codec, &evict_lru, 2, 2, 1, CODEC_INT8)
{
        assert_false(fill_is_possible(w->ns));
}
