/* Pages are changed while they move between the device and host memory
 * (daemon/core/moves/transfer.h), on real memory: leased, pinned, compacted, invalidated, held by
 * windows, and at random. */
#include <poll.h>

#include "daemon/core/cache/pages.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/core.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/memory/settle.h"
#include "daemon/core/reclaim/compact.h"
#include "daemon/core/reclaim/recall.h"
#include "daemon/core/reclaim/sweep.h"
#include "daemon/core/requests/invalidate.h"
#include "daemon/core/reclaim/recall-work.h"
#include "tests/unit/test-random.h"
#include "tests/unit/transfer-fixture.h"

#define N_PLANES 16 /* a page of so many isn't copied in one visit of compaction */

/* A page that is on its way up, and then: */
static uint32_t begin_up(struct tiers *w, unsigned *ret_key, struct told *told)
{
        uint32_t page;

        tiers_start(w, &evict_lru, 2, 4, 1, CODEC_NONE);
        fill_device(w);
        *ret_key = any_below(w);
        page = tier_find(w, *ret_key);
        assert_int_equal(tier_fetch(w, page, PAGE_NONE, told), 0);
        assert_int_equal(w->store.moving.n_transfers, 1);
        return page;
}

/* A lease that lacks pages doesn't wait for what goes down: that goes for it. */
TIER_SCENE(test_leased_meanwhile, &evict_lru, 2, 4, 1, CODEC_NONE)
{
        uint32_t held[N_DEVICE];

        for (unsigned i = 0; i < N_DEVICE / 16; i++)
                assert_true(tier_cache(w, 16 * i, 16));
        (void)demote_turn(&w->store, w->now_nsec);
        assert_int_equal(
                w->store.moving.n_transfers, N_DEVICE / 2); /* texts, whole, from the end on */
        for (unsigned key = 0; key < N_DEVICE; key++)
                assert_true(!transfer_find(w->ns, tier_find(w, key)) || key % 16 == 15 ||
                            transfer_find(w->ns, tier_find(w, key + 1)));
        assert_int_equal(lease_pages(w->attach, N_DEVICE, 1, held, NULL), 0);
        tiers_check(w);
        tiers_settle(w);
        assert_int_equal(ns_n_pages(w->ns, PAGE_SEALED), 0);
}

/* A page that is pinned during its demotion stays where it is. */
TEST_BARE(test_pinned_meanwhile)
{
        uint32_t page = PAGE_NONE;
        struct tiers w;
        unsigned key;

        tiers_start(&w, &evict_lru, 2, 4, 1, CODEC_NONE);
        for (key = 0; key < N_DEVICE; key++)
                assert_true(tier_cache(&w, key, 1));
        (void)demote_turn(&w.store, w.now_nsec);
        for (key = 0; page == PAGE_NONE; key++)
                if (transfer_find(w.ns, tier_find(&w, key)))
                        page = tier_pin(&w, key);
        tiers_settle(&w);
        assert_int_equal(tier_find(&w, key - 1), page);
        assert_int_equal(ns_page(w.ns, page)->state, PAGE_SEALED);
        tier_unpin(&w, page);
        tiers_settle(&w);
        tiers_end(&w);
}

/* A set is emptied where one of its pages is on its way down, before its copy within the tier
 * begins or after: it goes down. */
static void compacted_meanwhile(bool is_copied_first)
{
        uint32_t page = 0;
        struct tiers w;
        unsigned key = 0;

        tiers_start(&w, &evict_pgi, 3, 4, N_PLANES, CODEC_NONE);
        while (page < TIER_SET_PAGES) { /* until there is one in the second set */
                assert_true(tier_cache(&w, ++key, 1));
                page = tier_find(&w, key);
        }
        (void)ns_drop_subtree(w.ns, tier_find(&w, 1),
                (struct drop_reason){.why = EVICT_PRESSURE}); /* room in the first one */
        settle_all(&w.store);
        recall_set(ns_set_of(w.ns, page), RECALL_COMPACT);
        if (is_copied_first)
                (void)compact_visit(ns_set_of(w.ns, page), w.now_nsec, TIER_SET_PAGES);
        assert_int_equal(compact_count_moves(w.ns), is_copied_first);
        assert_int_equal(demote_page(w.ns, page), 0);
        do
                recall_poll(&w.store);
        while (recall_work(&w.store, w.now_nsec, UINT64_MAX, 1000) == RECALL_MORE);
        assert_int_equal(tier_find(&w, key), page);
        tiers_settle(&w);
        assert_int_equal(tier_of(&w, key), TIER_HOST);
        assert_true(tier_is_filled(&w, tier_find(&w, key), key));
        tiers_end(&w);
}

TEST_BARE(test_compacted_meanwhile)
{
        compacted_meanwhile(false);
        compacted_meanwhile(true);
}

TEST_BARE(test_invalidated_meanwhile)
{
        uint8_t bytes[KEY_BYTES];
        struct told told;
        struct tiers w;
        unsigned key;
        uint64_t n;

        (void)begin_up(&w, &key, &told);
        make_keys(bytes, key, 1);
        assert_int_equal(invalidate_key(w.attach, bytes, &n, NULL), 0);
        tiers_check(&w);
        tiers_settle(&w);
        assert_int_equal(told.status, -ENOENT);
        assert_int_equal(tier_find(&w, key), PAGE_NONE);
        tiers_end(&w);
        (void)begin_up(&w, &key, &told);
        assert_int_equal(ns_invalidate(w.ns, CAUSE_NAMESPACE, &n), 0);
        tiers_settle(&w);
        assert_int_equal(told.status, -ENOENT);
        while (ns_sweep(w.ns, 100))
                ;
        settle_all(&w.store);
        assert_int_equal(ns_n_pages(w.ns, PAGE_SEALED), 0);
        tiers_end(&w);
}

TEST_BARE(test_client_goes_meanwhile)
{
        struct told told;
        struct tiers w;
        unsigned key;

        (void)begin_up(&w, &key, &told);
        member_free(w.m);
        assert_int_equal(told.n, 1);
        assert_int_equal(told.status, -ECANCELED);
        tiers_settle(&w); /* the move goes on, as a caller waits for it */
        assert_int_equal(tier_of(&w, key), TIER_DEVICE);
        store_deinit(&w.store);
}

TEST_BARE(test_ns_goes_meanwhile)
{
        struct told told;
        struct tiers w;
        uint64_t pages, kept;
        unsigned key;

        (void)begin_up(&w, &key, &told);
        member_free(w.m);
        assert_int_equal(store_purge(&w.store, w.a, NULL, true, &pages, &kept), 0);
        assert_int_equal(kept, 0);
        assert_int_equal(w.store.moving.n_transfers, 0);
        store_deinit(&w.store);
}

/* A page is published while it is copied into, and dropped before the copy has ended. It isn't free
 * until then, and clients don't see it. */
TEST_BARE(test_published_while_copied)
{
        uint8_t key[KEY_BYTES];
        uint32_t page, to, n;
        struct publish p = {.pages = &to, .keys = key, .n = 1};
        struct told told;
        struct tiers w;
        uint64_t n_gone;

        tiers_start(&w, &evict_lru, 2, 4, 2, CODEC_NONE);
        fill_device(&w);
        page = tier_pin(&w, any_below(&w));
        p.last_tokens = w.ns->layout.page_tokens;
        make_keys(key, 100000, 1);
        assert_int_equal(lease_pages(w.attach, 1, 1, &to, NULL), 0);
        assert_int_equal(tier_fetch(&w, page, to, &told), 0);
        assert_int_equal(publish_pages(w.attach, &p, 1, &to, &n, NULL), 0);
        assert_int_equal(release_pages(w.attach, &to, 1, 1, NULL), 0);
        assert_int_equal(invalidate_key(w.attach, key, &n_gone, NULL), 0);
        assert_int_equal(n_gone, 1);
        assert_int_equal(ns_page(w.ns, to)->state, PAGE_MOVING);
        assert_int_equal(w.ns->shared.lines[to].state & 0xff, PAGE_FREE);
        tiers_check(&w);
        tiers_settle(&w);
        assert_int_equal(told.status, -ECANCELED);
        assert_int_equal(ns_page(w.ns, to)->state, PAGE_FREE);
        tiers_check(&w);
        tier_unpin(&w, page);
        tiers_end(&w);
}

/* ---- windows of sessions ------------------------------------------------------------------- */

/* Pages in a session's window stay where they are. They leave the tree instead of being demoted,
 * and no publish takes their place. */
TEST_BARE(test_windows_hold)
{
        uint8_t keys[KEY_BYTES];
        uint32_t old, page, sealed, n;
        struct publish p = {.pages = &page, .keys = keys, .n = 1};
        struct tiers w;

        tiers_start(&w, &evict_lru, 2, 4, 1, CODEC_NONE);
        for (unsigned key = 0; key < N_DEVICE; key++)
                assert_true(tier_cache(&w, key, 1));
        page = tier_find(&w, 0);
        ns_keep_page(w.ns, page);
        (void)demote_turn(&w.store, w.now_nsec);
        assert_int_equal(ns_page(w.ns, page)->state, PAGE_DETACHED);
        assert_null(transfer_find(w.ns, page));
        ns_unkeep_page(w.ns, page);
        tiers_settle(&w);
        old = tier_find(&w, 1);
        assert_int_equal(tier_of(&w, 1), TIER_HOST);
        ns_keep_page(w.ns, old);
        p.last_tokens = w.ns->layout.page_tokens;
        make_keys(keys, 1, 1);
        assert_int_equal(lease_pages(w.attach, 1, 1, &page, NULL), 0);
        assert_int_equal(publish_pages(w.attach, &p, 1, &sealed, &n, NULL), KVL_STATUS_DUPLICATE);
        assert_int_equal(sealed, old);
        ns_unkeep_page(w.ns, old);
        tier_unpin(&w, old);
        assert_int_equal(free_pages(w.attach, &page, 1, NULL), 0);
        tiers_end(&w);
}

/* A window that takes hold of a page while it is copied ends the copy, and nothing else: once the
 * window has let go the page moves as any other. */
static void windows_hold_meanwhile(const struct evict_ops *evict)
{
        struct told told;
        struct tiers w;
        unsigned key;
        uint32_t old;

        tiers_start(&w, evict, 2, 4, 1, CODEC_NONE);
        fill_device(&w);
        key = any_below(&w);
        old = tier_pin(&w, key);
        assert_int_equal(tier_fetch(&w, old, PAGE_NONE, &told), 0);
        ns_keep_page(w.ns, old); /* the checker misses the session of this */
        for (unsigned i = 0; told.n == 0 && i < 10000; i++) {
                (void)transfer_work(&w.store);
                (void)mover_reap(w.store.moving.mover);
                poll(NULL, 0, 1);
        }
        assert_int_equal(told.n, 1);
        assert_int_not_equal(told.status, 0);
        assert_int_equal(tier_find(&w, key), old);
        ns_unkeep_page(w.ns, old);
        assert_int_equal(tier_fetch(&w, old, PAGE_NONE, &told), 0);
        tiers_settle(&w);
        assert_int_equal(told.status, 0);
        assert_int_equal(tier_of(&w, key), TIER_DEVICE);
        tier_unpin(&w, old);
        tiers_end(&w);
}

TEST_BARE(test_windows_hold_meanwhile)
{
        windows_hold_meanwhile(&evict_pgi);
        windows_hold_meanwhile(&evict_lru);
}

/* ---- at random ------------------------------------------------------------------------------- */

#define N_KEYS 120

/* A page that is found has its bytes, in any tier and during any move. */
static void step(struct tiers *w)
{
        unsigned key = random_below(N_KEYS);
        uint32_t page = tier_find(w, key);
        static struct told told;

        w->now_nsec += 1000;
        switch (random_below(8)) {
        case 0:
        case 1:
        case 2:
                if (page == PAGE_NONE)
                        (void)tier_cache(w, key, 1);
                break;
        case 3:
        case 4:
                if (page != PAGE_NONE && tier_of(w, key) != TIER_DEVICE)
                        (void)tier_fetch(w, page, PAGE_NONE, &told);
                break;
        case 5:
                (void)demote_turn(&w->store, w->now_nsec);
                break;
        case 6:
                (void)mover_reap(w->store.moving.mover);
                (void)transfer_work(&w->store);
                break;
        default:
                if (random_below(16) == 0)
                        tiers_settle(w);
                else if (page != PAGE_NONE)
                        tier_unpin(w, tier_pin(w, key));
        }
        page = tier_find(w, key);
        if (page != PAGE_NONE)
                assert_true(tier_is_filled(w, page, key));
}

static void at_random(const struct evict_ops *evict)
{
        struct tiers w;

        random_start("test_transfer_meanwhile");
        tiers_start(&w, evict, 2, 3, 1, CODEC_NONE);
        for (unsigned i = 0; i < 6000; i++) {
                step(&w);
                if (i % 16 == 0)
                        tiers_check(&w);
        }
        tiers_settle(&w);
        assert_true(w.store.counters.demoted_pages > 50);
        assert_true(w.store.counters.promoted_pages > 50);
        assert_int_equal(w.store.counters.pages_damaged, 0);
        tiers_end(&w);
}

TEST_BARE(test_random_lru)
{
        at_random(&evict_lru);
}

TEST_BARE(test_random_pgi)
{
        at_random(&evict_pgi);
}
