/* Compaction of extent sets (daemon/core/reclaim/compact.h): what is cached is found elsewhere,
 * byte for byte, and the set goes back. */
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/magazine.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/reclaim/take-back.h"
#include "daemon/core/requests/refill.h"
#include "daemon/core/reclaim/recall-work.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/compact-fixture.h"
#include "tests/unit/test-random.h"

static struct attach *begin(struct world *w)
{
        struct attach *a = enter(w->f.a, "n");

        scatter(a);
        w->now_nsec = LATER; /* no lease for a long time */
        return a;
}

RECALL_SCENE(test_empties_a_set, 4)
{
        struct attach *a;

        a = begin(w);
        assert_int_equal(compact_figure(&w->f.store), 250); /* half of two sets, of four */
        assert_true(turn(w));
        assert_int_equal(a->ns->device.n_withheld, 6);
        assert_int_equal(work(w), RECALL_NOTHING);
        assert_int_equal(a->ns->device.n_sets, 1);
        assert_int_equal(w->f.a->account.charged_bytes, SET_BYTES);
        assert_int_equal(w->f.device.n_extents, 1);
        for (unsigned key = 2; key < 10; key++)
                assert_cached(a, key);
        assert_int_equal(w->f.store.counters.compacted_pages, 2);
        assert_int_equal(w->f.store.counters.compacted_sets, 1);
        assert_int_equal(w->f.store.counters.evictions, 0);
        assert_int_equal(compact_figure(&w->f.store), 0);
        assert_false(turn(w));
        assert_int_equal(w->n_told, 0);
        assert_int_equal(count_hits(a, 8, 1), 1); /* as if nothing had been */
}

RECALL_SCENE(test_all_planes, 8)
{
        struct member *m;
        struct attach *a;

        m = join(w->f.a);
        a = open_planes(m, 2);
        assert_int_equal(a->ns->geometry.set_pages, 4);
        cache_pages(a, 0, 8);
        drop(a, 0, 1);
        drop(a, 5, 3);
        w->now_nsec = LATER;
        assert_true(turn(w));
        assert_int_equal(work(w), RECALL_NOTHING);
        assert_int_equal(a->ns->device.n_sets, 1);
        for (unsigned key = 1; key < 5; key++)
                assert_cached(a, key);
}

/* By strides, as many bytes as a page has. */
TEST(test_apart)
{
        for (unsigned n_planes = 1; n_planes <= 2; n_planes++) {
                struct world w;
                struct member *m;
                struct attach *a;

                start(&w, n_planes * APART_SETS(4));
                m = join(w.f.a);
                a = open_apart(&w, m, n_planes);
                scatter(a);
                w.now_nsec = LATER;
                assert_true(turn(&w));
                assert_int_equal(work(&w), RECALL_NOTHING);
                assert_int_equal(a->ns->device.n_sets, 1);
                for (unsigned key = 2; key < 10; key++)
                        assert_cached(a, key);
                assert_nothing_between(a->ns);
                recall_end(&w);
        }
}

/* Parents and children of what was moved, and its place in the order of eviction. */
RECALL_SCENE(test_tree_and_order, 4)
{
        struct attach *a = enter(w->f.a, "n");
        uint32_t parent, child, more;

        cache_pages(a, 0, 8);
        cache_pages(a, 8, 1); /* in set 1 */
        drop(a, 0, 2);
        child = cache_below(a, 8, 20); /* in set 0 */
        assert_int_equal(child / SET_PAGES, 0);
        more = cache_below(a, 2, 21);
        assert_int_equal(more / SET_PAGES, 0);
        drop(a, 3, 2);
        parent = find(a, 8);
        assert_int_equal(parent / SET_PAGES, 1);
        w->now_nsec = LATER;
        assert_true(turn(w));
        assert_int_equal(work(w), RECALL_NOTHING);
        assert_int_equal(a->ns->device.n_sets, 1);
        parent = find(a, 8);
        assert_int_equal(parent / SET_PAGES, 0);
        assert_int_equal(find(a, 20), child);
        assert_int_equal(tree_parent(&a->ns->tree, child), parent);
        assert_cached(a, 8);
        assert_cached(a, 20);
        /* 8 was before 20 and 21 when they were published, but is above 20. */
        assert_int_equal(a->ns->evict->victim(a->ns->policy, 0, EVICT_DROP, 9), find(a, 5));
        drop(a, 8, 1);
        assert_int_equal(find(a, 20), PAGE_NONE);
        assert_int_equal(find(a, 21), more);
}

RECALL_SCENE(test_fullest_is_filled, 4)
{
        struct attach *a = enter(w->f.a, "n");

        cache_pages(a, 0, 3 * SET_PAGES);
        drop(a, 0, 4);
        drop(a, 8, 2);
        drop(a, 17, 7);
        w->now_nsec = LATER;
        assert_true(turn(w));
        assert_int_equal(work(w), RECALL_NOTHING);
        assert_int_equal(a->ns->device.n_sets, 2);
        assert_int_equal(find(a, 16) / SET_PAGES, 1);
        assert_cached(a, 16);
}

/* A lease that waits for room in the namespace needs the withheld pages. */
RECALL_SCENE(test_called_off_for_who_waits, 4)
{
        struct attach *a;

        a = begin(w);
        assert_true(turn(w));
        a->ns->waits.n_queued++; /* as a lease does that waits */
        (void)recall_work(&w->f.store, w->now_nsec, TIMEOUT, PLENTY);
        a->ns->waits.n_queued--;
        assert_int_equal(w->f.store.recalls.n, 0);
        assert_int_equal(w->f.store.counters.compacted_pages, 0);
        assert_int_equal(a->ns->device.n_withheld, 0);
}

/* Pages that are leased all the time will need the room. */
RECALL_SCENE(test_not_while_it_is_leased, 4)
{
        struct attach *a = enter(w->f.a, "n");

        scatter(a);
        assert_true(turn(w)); /* to be looked at again */
        assert_int_equal(w->f.store.recalls.n, 0);
        w->now_nsec = LATER;
        assert_true(turn(w));
        assert_int_equal(w->f.store.recalls.n, 1);
}

/* Reserved memory isn't available to other tenants, unless it is lent. */
RECALL_SCENE(test_reserved, 4)
{
        struct attach *a;

        a = begin(w);
        assert_int_equal(region_reserve(a->ns->device.stake, 3 * SET_BYTES, NULL), 0);
        assert_false(turn(w));
        w->f.a->attrs.lend_idle_reserve = true;
        assert_true(turn(w));
        compact_call_off(a->ns);
        w->now_nsec += 2 * SECOND;
        w->f.a->attrs.lend_idle_reserve = false;
        assert_int_equal(region_reserve(a->ns->device.stake, 2 * SET_BYTES, NULL), 0);
        assert_true(turn(w)); /* its other namespaces can have it */
        assert_int_equal(work(w), RECALL_NOTHING);
        assert_int_equal(region_reserve(a->ns->device.stake, 0, NULL), 0);
}

/* Sets with pages that are pinned (in either way) or granted, and sets that are too full, stay. */
RECALL_SCENE(test_held_sets_stay, 4)
{
        uint8_t key[KEY_BYTES];
        struct attach *a;
        uint32_t page, n;
        uint64_t tokens;

        a = begin(w);
        make_keys(key, 8, 1);
        assert_int_equal(lookup_pages(a, key, 1, 0, 2, &page, &n, &tokens, NULL), 0);
        assert_false(turn(w));
        assert_int_equal(w->f.store.recalls.n, 0);
        assert_int_equal(attach_share(a, NULL), 0);
        a->share.counters[page]++;
        assert_int_equal(release_pages(a, &page, 1, 2, NULL), 0);
        assert_false(turn(w));
        a->share.counters[page]--;
        assert_int_equal(lease_pages(a, 4, 1, (uint32_t[4]){0}, NULL), 0); /* two of set 1 */
        assert_false(turn(w));
        assert_int_equal(w->f.store.recalls.n, 0);
        assert_int_equal(a->ns->device.n_sets, 2);
}

RECALL_SCENE(test_goes_on_when_let_go, 4)
{
        uint8_t key[KEY_BYTES];
        struct attach *a;
        uint32_t page, n;
        uint64_t tokens;

        a = begin(w);
        make_keys(key, 8, 1);
        assert_true(turn(w));
        /* A reader comes between the choice and the work, and stays. */
        assert_int_equal(lookup_pages(a, key, 1, 0, 2, &page, &n, &tokens, NULL), 0);
        assert_int_equal(work(w), RECALL_SOON);
        assert_int_equal(find(a, 8), page);
        assert_int_equal(find(a, 9) / SET_PAGES, 0);
        assert_int_equal(work_later(w, SECOND / 2), RECALL_SOON);
        assert_int_equal(release_pages(a, &page, 1, 2, NULL), 0);
        assert_int_equal(work(w), RECALL_NOTHING);
        assert_int_equal(a->ns->device.n_sets, 1);
        assert_cached(a, 8);
}

RECALL_SCENE(test_called_off_after_a_while, 4)
{
        uint8_t key[KEY_BYTES];
        struct attach *a;
        uint32_t page, n, pages[6];
        uint64_t tokens;

        a = begin(w);
        make_keys(key, 8, 1);
        assert_true(turn(w));
        assert_int_equal(lookup_pages(a, key, 1, 0, 2, &page, &n, &tokens, NULL), 0);
        assert_int_equal(work(w), RECALL_SOON);
        assert_int_equal(work_later(w, 2 * SECOND), RECALL_NOTHING); /* nothing moved meanwhile */
        assert_int_equal(a->ns->device.n_sets, 2);
        assert_int_equal(a->ns->device.n_withheld, 0);
        assert_int_equal(find(a, 8), page);
        assert_int_equal(lease_pages(a, 6, 1, pages, NULL), 0);
        assert_int_equal(a->ns->device.n_sets, 2);
        assert_int_equal(free_pages(a, pages, 6, NULL), 0);
        assert_int_equal(release_pages(a, &page, 1, 2, NULL), 0);
        assert_false(turn(w)); /* not at once again */
        w->now_nsec += 2 * SECOND;
        assert_true(turn(w));
        assert_int_equal(work(w), RECALL_NOTHING);
        assert_int_equal(a->ns->device.n_sets, 1);
}

/* A lease that lacks pages has those that are withheld; nothing else is bound or evicted. */
RECALL_SCENE(test_lease_calls_it_off, 4)
{
        struct attach *a;
        uint32_t pages[8];

        a = begin(w);
        assert_true(turn(w));
        assert_int_equal(ns_n_room(a->ns), 2);
        assert_int_equal(lease_pages(a, 8, 1, pages, NULL), 0);
        fixture_check(&w->f);
        assert_int_equal(a->ns->device.n_sets, 2);
        assert_int_equal(w->f.store.recalls.n, 0);
        assert_int_equal(w->f.store.counters.evictions, 0);
        for (unsigned key = 2; key < 10; key++)
                assert_cached(a, key);
}

/* Its room is leased by others before it is used: called off, and nothing is dropped. */
RECALL_SCENE(test_room_goes_away, 4)
{
        struct attach *a;
        uint32_t pages[2];

        a = begin(w);
        assert_true(turn(w));
        assert_int_equal(lease_pages(a, 2, 1, pages, NULL), 0);
        assert_int_equal(work(w), RECALL_NOTHING);
        assert_int_equal(a->ns->device.n_sets, 2);
        assert_int_equal(a->ns->device.n_withheld, 0);
        for (unsigned key = 2; key < 10; key++)
                assert_cached(a, key);
}

RECALL_SCENE(test_mapped, 4)
{
        struct attach *a;

        a = begin(w);
        assert_int_equal(map_set(a, 1), 1);
        assert_false(turn(w)); /* it can't be asked to unmap it */
        a->member->safepoints = true;
        assert_true(turn(w));
        assert_int_equal(work(w), RECALL_SOON);
        assert_int_equal(w->n_told, 1);
        assert_told(w, 0, a, 1, true, TIMEOUT);
        assert_int_equal(find(a, 8) / SET_PAGES, 0);
        assert_int_equal(a->ns->device.n_sets, 2);
        unmap_set(w, a, 1);
        assert_int_equal(a->ns->device.n_sets, 1);
        assert_int_equal(w->f.store.counters.compacted_sets, 1);
        assert_cached(a, 8);
}

/* A client that can't be recalled maps the set while it is being emptied. */
RECALL_SCENE(test_mapped_meanwhile, 4)
{
        struct attach *a;

        a = begin(w);
        assert_true(turn(w));
        assert_int_equal(map_set(a, 1), 1);
        assert_int_equal(work(w), RECALL_NOTHING);
        assert_int_equal(w->n_told, 0);
        assert_int_equal(a->ns->device.n_sets, 2);
}

/* Pages in magazines are taken back; a claimed page keeps the set. */
RECALL_SCENE(test_magazines, 4)
{
        struct attach *a = enter(w->f.a, "n");
        uint32_t n_ready, slot = 0, page;

        assert_int_equal(attach_share(a, NULL), 0);
        cache_pages(a, 0, 8);
        cache_pages(a, 8, 2);
        assert_true(magazine_refill(a, 2, 3)); /* of set 1 */
        n_ready = a->magazine->n_pages;
        assert_int_equal(n_ready, 4);
        drop(a, 0, 4);
        while (a->magazine->pages[slot] == 0)
                slot++;
        page = a->magazine->pages[slot] - 1;
        assert_int_equal(page / SET_PAGES, 1);
        /* Claimed, and the daemon hasn't seen it. */
        atomic_store(&a->share.magazine[slot], 0);
        w->now_nsec = LATER;
        assert_false(turn(w));
        assert_int_equal(a->ns->device.n_sets, 2);
        assert_int_equal(a->ns->device.n_withheld, 0);
        assert_int_equal(a->magazine->n_pages, 0);
        assert_int_equal(free_pages(a, &page, 1, NULL), 0);
        cache_pages(a, 0, 4); /* set 0 is full again: the magazine is filled from set 1 */
        assert_true(magazine_refill(a, 2, LATER + 5 * SECOND));
        assert_int_equal(ns_set_of(a->ns, find(a, 8))->n_ready, 4);
        drop(a, 0, 2);
        w->now_nsec = LATER + 15 * SECOND;
        assert_true(turn(w));
        assert_int_equal(a->magazine->n_pages, 0);
        assert_int_equal(work(w), RECALL_NOTHING);
        assert_int_equal(a->ns->device.n_sets, 1);
        assert_cached(a, 9);
}

/* An administrator takes what is being emptied. */
RECALL_SCENE(test_forced_meanwhile, 4)
{
        struct attach *a;

        a = begin(w);
        assert_true(turn(w));
        assert_int_equal(recall_all(w), 2);
        assert_int_equal(work(w), RECALL_NOTHING);
        assert_int_equal(a->ns->device.n_sets, 0);
}

TEST(test_without_memory)
{
        bool failed = true;

        for (unsigned n = 1; failed; n++) {
                struct world w;
                struct attach *a;

                start(&w, 4);
                a = begin(&w);
                alloc_fail_at(n);
                (void)compact_turn(&w.f.store, w.now_nsec);
                recall_poll(&w.f.store);
                (void)recall_work(&w.f.store, w.now_nsec, TIMEOUT, PLENTY);
                failed = alloc_fail_end();
                fixture_check(&w.f);
                assert_true(a->ns->device.n_withheld == 0 || failed);
                for (unsigned key = 2; key < 10; key++)
                        assert_cached(a, key);
                assert_true(a->ns->device.n_sets == 1 || failed);
                recall_end(&w);
        }
}

/* ---- pages that take several visits to copy ---- */

#define LARGE_PAGE (UINT64_C(1) << 20)

static struct attach *open_large(struct member *m)
{
        struct ns_layout l = test_layout();
        struct attach *a = NULL;

        l.plane_page_bytes = LARGE_PAGE;
        assert_int_equal(attach_open(m, "n", &l, "", false, &a, NULL), 0);
        assert_int_equal(a->ns->geometry.set_pages, SET_PAGES);
        return a;
}

/* A world and an attachment like begin()'s, with the second set half copied. */
static struct attach *begin_large(struct world *w)
{
        struct tenant_attrs attrs = {.limit_bytes = 4 * SET_PAGES * LARGE_PAGE,
                .weight = 1,
                .priority = 50,
                .max_clients = 8};
        struct attach *a;

        *w = (struct world){.now_nsec = LATER};
        fake_device_init(&w->f.device, "large", 4096);
        store_init(&w->f.store, &evict_lru);
        assert_int_equal(store_add_pool(&w->f.store, &w->f.device.device, attrs.limit_bytes,
                                 SET_PAGES * LARGE_PAGE, &w->f.d),
                0);
        assert_int_equal(tenant_new(&w->f.store, "a", &attrs, &w->f.a, &w->f.d), 0);
        a = open_large(join(w->f.a));
        for (unsigned key = 0; key < 16; key++)
                cache_chain(a, key, 1);
        drop(a, 0, 2);
        drop(a, 10, 6);
        assert_int_equal(a->ns->device.n_sets, 2);
        assert_true(turn(w));
        assert_int_equal(work(w), RECALL_SOON);
        assert_int_equal(a->ns->device.n_pages[PAGE_MOVING], 2);
        return a;
}

TEST(test_large_pages)
{
        struct world w;
        struct attach *a = begin_large(&w);

        for (int i = 0; i < 3; i++)
                assert_int_equal(work(&w), i < 2 ? RECALL_SOON : RECALL_NOTHING);
        assert_int_equal(a->ns->device.n_sets, 1);
        assert_int_equal(w.f.store.counters.compacted_pages, 2);
        recall_end(&w);
}

/* A lease has what was taken for copies, too. */
TEST(test_lease_ends_half_copies)
{
        struct world w;
        struct attach *a = begin_large(&w);
        uint32_t pages[8];

        assert_int_equal(lease_pages(a, 8, LATER, pages, NULL), 0);
        fixture_check(&w.f);
        assert_int_equal(a->ns->device.n_sets, 2);
        assert_int_equal(a->ns->device.n_pages[PAGE_MOVING], 0);
        assert_int_equal(w.f.store.counters.evictions, 0);
        recall_end(&w);
}

/* However it ends, no page stays MOVING, and the daemon can sleep. */
TEST(test_half_copies_end)
{
        for (unsigned how = 0; how < 4; how++) {
                struct world w;
                struct attach *a = begin_large(&w);
                uint8_t key[KEY_BYTES];
                uint32_t page, n;
                uint64_t tokens;

                make_keys(key, 8, 1);
                if (how == 0) {
                        recall_press(ns_set_of(a->ns, find(a, 8)));
                } else if (how == 1) {
                        drop(a, 8, 2);
                } else if (how == 2) {
                        assert_int_equal(map_set(a, 1), 1); /* it keeps no safe points */
                } else {
                        assert_int_equal(
                                lookup_pages(a, key, 1, 0, 2, &page, &n, &tokens, NULL), 0);
                        drop(a, 9, 1);
                        (void)work_later(&w, 2 * SECOND);
                }
                (void)work(&w);
                assert_int_equal(w.f.store.recalls.n, 0);
                assert_true(compact_tidy(&w.f.store) == false);
                fixture_check(&w.f);
                assert_int_equal(a->ns->device.n_pages[PAGE_MOVING], 0);
                recall_end(&w);
        }
}

/* ---- anything in any order ---- */

#define N_KEYS 48

struct random_world {
        struct world w;
        struct attach *a;
        uint32_t pinned[N_KEYS]; /* page + 1 */
};

static void random_step(struct random_world *r)
{
        unsigned key = random_below(N_KEYS), what = random_below(10);
        uint32_t page = find(r->a, key), n;
        uint8_t bytes[KEY_BYTES];
        uint64_t tokens;

        make_keys(bytes, key, 1);
        if (what < 3 && page == PAGE_NONE && r->pinned[key] == 0) {
                unsigned parent = random_below(N_KEYS);

                if (find(r->a, parent) != PAGE_NONE && random_below(2) == 0)
                        (void)cache_below(r->a, parent, key);
                else
                        cache_pages(r->a, key, 1);
        } else if (what < 5 && page != PAGE_NONE && r->pinned[key] == 0) {
                assert_int_equal(
                        lookup_pages(r->a, bytes, 1, 0, r->w.now_nsec, &page, &n, &tokens, NULL),
                        0);
                r->pinned[key] = page + 1;
        } else if (what < 7 && r->pinned[key] != 0) {
                page = r->pinned[key] - 1;
                assert_filled(r->a->ns, page, key); /* however long it was held */
                assert_int_equal(release_pages(r->a, &page, 1, r->w.now_nsec, NULL), 0);
                r->pinned[key] = 0;
        } else if (what < 8) {
                drop(r->a, key, page == PAGE_NONE ? 0 : 1);
        } else {
                (void)compact_turn(&r->w.f.store, r->w.now_nsec);
                recall_poll(&r->w.f.store);
                (void)recall_work(&r->w.f.store, r->w.now_nsec, TIMEOUT, 1 + random_below(20));
        }
        r->w.now_nsec += random_below(200) * MSEC;
}

TEST(test_random)
{
        struct random_world r = {0};

        random_start(__func__);
        start(&r.w, 8);
        r.a = enter(r.w.f.a, "n");
        for (int i = 0; i < 20000; i++) {
                random_step(&r);
                fixture_check(&r.w.f);
                for (unsigned key = 0; key < N_KEYS; key++)
                        if (find(r.a, key) != PAGE_NONE)
                                assert_cached(r.a, key);
        }
        assert_true(r.w.f.store.counters.compacted_sets > 10);
        recall_end(&r.w);
}
