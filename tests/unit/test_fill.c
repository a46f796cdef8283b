/* Pages that are filled where they lie (daemon/core/moves/fill.h), on real memory: where that is,
 * and what happens to the page meanwhile. */
#include "daemon/core/clients/grants.h"
#include "daemon/core/moves/fill.h"
#include "tests/unit/tier-fixture.h"
#include "tests/unit/test-random.h"

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

        idle_sets_drain(&w->store);
        return r;
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

/* Pages that are demoted because their readers ask for it, in any order, and copies of pages that
 * stay (daemon/core/reclaim/fetch.h, transfer.h), on real memory. */

#define N_DEVICE 64 /* pages of two sets */
#define N_BELOW  128

/* A text of `n` pages from key 0 on, all of it pinned. */
static void pin_text(struct tiers *w, unsigned n, uint32_t *ret_pages)
{
        uint8_t keys[16 * KEY_BYTES];
        uint64_t tokens;
        uint32_t n_found;

        assert_true(tier_cache(w, 0, n));
        make_keys(keys, 0, n);
        assert_int_equal(lookup_pages(w->attach, &(struct lookup_request){keys, n, w->now_nsec},
                                 ret_pages, &n_found, &tokens, NULL),
                0);
        assert_int_equal(n_found, n);
}

/* Like a client that learns its page's new place: pins that, and releases the old page. */
static void exchange(struct tiers *w, unsigned key, uint32_t *page)
{
        uint32_t old = *page;

        *page = tier_pin(w, key);
        tier_unpin(w, old);
}

/* The page with this key is below, with its bytes, and `old` still has them. */
static void assert_is_put(struct tiers *w, unsigned key, uint32_t old, const struct told *told)
{
        assert_int_equal(told->n, 1);
        assert_int_equal(told->status, 0);
        assert_int_equal(told->page, tier_find(w, key));
        assert_int_equal(tier_of(w, key), TIER_HOST);
        assert_true(tier_is_filled(w, told->page, key));
        assert_int_equal(ns_page(w->ns, old)->state, PAGE_DETACHED);
        assert_true(tier_is_filled(w, old, key));
}

/* The middle of a text, whose beginning and end stay. */
static void puts_middle(const struct evict_ops *evict)
{
        uint32_t pages[8], to, old;
        struct told told[8];
        struct tiers w;

        tiers_start(&w, evict, 2, 4, 2, CODEC_NONE);
        pin_text(&w, 8, pages);
        for (unsigned i = 2; i < 6; i++)
                assert_int_equal(tier_put(&w, pages[i], &told[i]), 0);
        tiers_settle(&w);
        for (unsigned i = 2; i < 6; i++) {
                assert_is_put(&w, i, pages[i], &told[i]);
                old = pages[i];
                exchange(&w, i, &pages[i]);
                assert_int_equal(ns_page(w.ns, old)->state, PAGE_FREE);
        }
        assert_int_equal(w.store.counters.demoted_pages, 4);
        assert_int_equal(w.ns->tiers[TIER_HOST].n_arrived, 4);
        assert_int_equal(count_hits(w.attach, 0, 8), 8);
        for (unsigned i = 0; i < 8; i++)
                assert_int_equal(tier_of(&w, i), i >= 2 && i < 6 ? TIER_HOST : TIER_DEVICE);
        /* And a copy of one, which stays where it is. */
        assert_int_equal(lease_pages(w.attach, 1, 1, &to, NULL), 0);
        assert_int_equal(tier_fetch(&w, pages[3], to, &told[0]), 0);
        tiers_settle(&w);
        assert_int_equal(told[0].status, 0);
        assert_true(tier_is_filled(&w, to, 3));
        assert_int_equal(tier_find(&w, 3), pages[3]);
        assert_int_equal(free_pages(w.attach, &to, 1, NULL), 0);
        for (unsigned i = 0; i < 8; i++)
                tier_unpin(&w, pages[i]);
        tiers_end(&w);
}

TEST_BARE(test_middle)
{
        puts_middle(&evict_lru);
        puts_middle(&evict_pgi);
}

/* In the lower tier unread pages are evicted; pages with readers aren't. */
TIER_SCENE(test_full_below, &evict_lru, 2, 4, 1, CODEC_NONE)
{
        uint32_t below[N_BELOW], page;
        struct told told;

        for (unsigned key = 0; key < N_BELOW; key++) {
                assert_true(tier_cache(w, key, 1));
                page = tier_pin(w, key);
                assert_int_equal(tier_put(w, page, &told), 0);
                tiers_settle(w);
                assert_int_equal(told.status, 0);
                exchange(w, key, &page);
                below[key] = page;
        }
        assert_true(tier_cache(w, 1000, 1));
        page = tier_pin(w, 1000);
        assert_int_equal(tier_put(w, page, &told), KVL_STATUS_FULL);
        assert_int_equal(tier_of(w, 1000), TIER_DEVICE);
        tier_unpin(w, below[7]);
        assert_int_equal(tier_put(w, page, &told), 0);
        tiers_settle(w);
        assert_is_put(w, 1000, page, &told);
        assert_int_equal(tier_find(w, 7), PAGE_NONE);
        exchange(w, 1000, &page);
        tier_unpin(w, page);
        for (unsigned key = 0; key < N_BELOW; key++)
                if (key != 7)
                        tier_unpin(w, below[key]);
}

/* A demotion under way is given up, as the page is read. Then the page is demoted as requested. */
TIER_SCENE(test_demoting, &evict_lru, 2, 4, 1, CODEC_NONE)
{
        struct told told;
        uint32_t page;
        unsigned key = 0;

        for (unsigned i = 0; i < N_DEVICE; i++)
                assert_true(tier_cache(w, i, 1));
        (void)demote_turn(&w->store, w->now_nsec);
        while (!transfer_find(w->ns, tier_find(w, key)))
                key++;
        page = tier_pin(w, key);
        assert_int_equal(tier_put(w, page, &told), 0);
        assert_int_equal(transfer_count(w->ns, TRANSFER_PUT), 0);
        tiers_settle(w);
        while (told.n == 0)
                tiers_settle(w);
        assert_is_put(w, key, page, &told);
        tier_unpin(w, page);
}

/* A page that the codec can't encode stays where it is, as it is read. */
TIER_SCENE(test_not_finite, &evict_lru, 2, 4, 1, CODEC_INT8)
{
        const uint16_t nan = 0x7e00;
        struct told told;
        uint32_t page;

        pin_text(w, 1, &page);
        memcpy(set_address(ns_set_of(w->ns, page), page, 0), &nan, sizeof(nan));
        assert_int_equal(tier_put(w, page, &told), 0);
        tiers_settle(w);
        assert_int_equal(told.status, -EIO);
        assert_int_equal(tier_find(w, 0), page);
        tier_unpin(w, page);
}

/* ---- at random ------------------------------------------------------------------------------- */

#define N_TEXTS    16
#define TEXT_PAGES 8
#define N_HELD     24

/* Pages that a client reads, wherever they lie by now, and a copy that is under way. */
struct readers {
        struct tiers w;
        struct {
                uint32_t page; /* PAGE_NONE: none */
                unsigned key;
        } held[N_HELD];
        uint32_t to;     /* PAGE_NONE: no copy is */
        unsigned source; /* held as long as it is copied */
        struct told copied, told;
        unsigned n_copied;
};

static void check_held(struct readers *r, unsigned i)
{
        if (r->held[i].page != PAGE_NONE)
                assert_true(tier_is_filled(&r->w, r->held[i].page, r->held[i].key));
}

static void hold_or_let_go(struct readers *r, unsigned i)
{
        unsigned key = random_below(N_TEXTS * TEXT_PAGES);

        if (r->to != PAGE_NONE && i == r->source)
                return;
        if (r->held[i].page != PAGE_NONE) {
                tier_unpin(&r->w, r->held[i].page);
                r->held[i].page = PAGE_NONE;
        } else if (tier_find(&r->w, key) != PAGE_NONE) {
                r->held[i].page = tier_pin(&r->w, key);
                r->held[i].key = key;
        }
}

static void copy(struct readers *r, unsigned i)
{
        if (r->to != PAGE_NONE || lease_pages(r->w.attach, 1, r->w.now_nsec, &r->to, NULL) != 0)
                return;
        r->source = i;
        if (tier_fetch(&r->w, r->held[i].page, r->to, &r->copied) == 0)
                return;
        assert_int_equal(free_pages(r->w.attach, &r->to, 1, NULL), 0);
        r->to = PAGE_NONE;
}

static void end_copy(struct readers *r)
{
        if (r->to == PAGE_NONE || r->copied.n == 0)
                return;
        assert_int_equal(r->copied.status, 0);
        assert_true(tier_is_filled(&r->w, r->to, r->held[r->source].key));
        assert_int_equal(free_pages(r->w.attach, &r->to, 1, NULL), 0);
        r->to = PAGE_NONE;
        r->n_copied++;
}

static void step(struct readers *r)
{
        unsigned text = random_below(N_TEXTS) * TEXT_PAGES, i = random_below(N_HELD), n_hits;
        struct tiers *w = &r->w;
        struct pollfd moved = {.fd = mover_fd(w->store.moving.mover), .events = POLLIN};
        uint32_t page = r->held[i].page;

        w->now_nsec += 1000;
        switch (random_below(12)) {
        case 0:
        case 1:
                n_hits = count_hits(w->attach, text, TEXT_PAGES);
                if (n_hits == 0)
                        (void)tier_cache(w, text, TEXT_PAGES);
                break;
        case 2:
        case 3:
        case 4:
                hold_or_let_go(r, i);
                break;
        case 5:
        case 6:
                if (page != PAGE_NONE)
                        (void)tier_put(w, page, &r->told);
                break;
        case 7:
                if (page != PAGE_NONE)
                        (void)tier_fetch(w, page, PAGE_NONE, &r->told);
                break;
        case 8:
                if (page != PAGE_NONE)
                        copy(r, i);
                break;
        case 9:
                (void)demote_turn(&w->store, w->now_nsec);
                break;
        case 10:
                page = tier_find(w, text + random_below(TEXT_PAGES));
                if (page != PAGE_NONE && random_below(8) == 0)
                        (void)tier_drop(w, page);
                break;
        default:
                if (w->store.moving.n_transfers > 0) /* else the mover may never have its turn */
                        (void)poll(&moved, 1, 1);
                (void)mover_reap(w->store.moving.mover);
                (void)transfer_work(&w->store);
        }
        end_copy(r);
        check_held(r, random_below(N_HELD));
}

static void at_random(const struct evict_ops *evict)
{
        static struct readers r;

        random_start("test_put");
        r = (struct readers){.to = PAGE_NONE};
        for (unsigned i = 0; i < N_HELD; i++)
                r.held[i].page = PAGE_NONE;
        tiers_start(&r.w, evict, 2, 3, 1, CODEC_NONE);
        for (unsigned i = 0; i < 6000; i++) {
                step(&r);
                if (i % 16 == 0)
                        tiers_check(&r.w);
        }
        tiers_settle(&r.w);
        end_copy(&r);
        assert_int_equal(r.to, PAGE_NONE);
        for (unsigned i = 0; i < N_HELD; i++) {
                check_held(&r, i);
                if (r.held[i].page != PAGE_NONE)
                        hold_or_let_go(&r, i);
        }
        assert_true(r.n_copied > 20);
        assert_true(r.w.store.counters.demoted_pages > 50);
        assert_true(r.w.store.counters.promoted_pages > 20);
        assert_int_equal(r.w.store.counters.pages_damaged, 0);
        tiers_end(&r.w);
}

TEST_BARE(test_random)
{
        at_random(&evict_lru);
        at_random(&evict_pgi);
}
