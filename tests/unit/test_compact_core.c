/* Compaction of extent sets (daemon/core/reclaim/compact.h): what is cached is found elsewhere,
 * byte for byte, and the set goes back. */
#include <poll.h>
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/reclaim/room.h"
#include "daemon/core/requests/refill.h"
#include "daemon/core/reclaim/recall.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/compact-fixture.h"
#include "tests/unit/test-random.h"
#include "base/clock.h"
#include "base/fd.h"
#include "daemon/core/core.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/memory/sets.h"
#include "gpu/queue.h"

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
        assert_int_equal(region_reserve(a->ns->device.share, 3 * SET_BYTES, NULL), 0);
        assert_false(turn(w));
        w->f.a->attrs.lend_idle_reserve = true;
        assert_true(turn(w));
        compact_call_off(a->ns);
        w->now_nsec += 2 * SECOND;
        w->f.a->attrs.lend_idle_reserve = false;
        assert_int_equal(region_reserve(a->ns->device.share, 2 * SET_BYTES, NULL), 0);
        assert_true(turn(w)); /* its other namespaces can have it */
        assert_int_equal(work(w), RECALL_NOTHING);
        assert_int_equal(region_reserve(a->ns->device.share, 0, NULL), 0);
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
                        assert_int_equal(lookup_pages(a, &(struct lookup_request){key, 1, 2}, &page,
                                                 &n, &tokens, NULL),
                                0);
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
                        lookup_pages(r->a, &(struct lookup_request){bytes, 1, r->w.now_nsec}, &page,
                                &n, &tokens, NULL),
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

/* Compaction on a device behind a queue: what happens to a page while it is copied. */

#define PATIENT_MSEC  60000 /* a deadline of the driver that no test reaches */
#define HASTY_MSEC    1000  /* one that nothing but a blocked call reaches */
#define PATIENCE_MSEC 10000

static void start_slow(struct world *w, unsigned deadline_msec, unsigned n_sets)
{
        struct tenant_attrs attrs = {
                .limit_bytes = n_sets * SET_BYTES, .weight = 1, .priority = 50, .max_clients = 8};
        struct queue *queue;

        *w = (struct world){.now_nsec = LATER};
        fake_device_init(&w->f.device, "slow", 256);
        fake_device_make_slow(&w->f.device, true);
        store_init(&w->f.store, &evict_lru);
        w->f.store.min_page_bytes = PAGE_BYTES;
        assert_int_equal(queue_open_device(&w->f.device.device, deadline_msec, &queue), 0);
        assert_int_equal(
                store_add_queue(&w->f.store, queue, n_sets * SET_BYTES, SET_BYTES, &w->f.d), 0);
        assert_int_equal(tenant_new(&w->f.store, "a", &attrs, &w->f.a, &w->f.d), 0);
        w->f.store.owner.on_recall = note_told;
        w->f.store.owner.on_recall_work = note_work;
        w->f.store.owner.data = w;
}

static struct pool *pool_of(struct world *w)
{
        return store_find_pool(&w->f.store, "");
}

/* Waits until jobs with a waiting request end. */
static void reap(struct world *w)
{
        uint64_t end_nsec = clock_now_nsec() + PATIENCE_MSEC * NSEC_PER_MSEC;
        struct queue *q = pool_of(w)->queue;

        while (clock_now_nsec() < end_nsec) {
                uint64_t until = queue_deadline_nsec(q), now = clock_now_nsec();
                struct pollfd p = {.fd = queue_fd(q), .events = POLLIN};

                until = MIN(until, end_nsec);
                poll(&p, 1, until > now ? (int)((until - now) / NSEC_PER_MSEC) + 1 : 0);
                if (pool_reap(pool_of(w)) > 0) {
                        fixture_check(&w->f);
                        return;
                }
        }
        fail_msg("no job ended");
}

/* `apart`: pages of open_apart(). */
static struct attach *begin_slow(
        struct world *w, unsigned deadline_msec, bool apart, struct member **ret_member)
{
        uint32_t pages[16];
        struct attach *a;

        start_slow(w, deadline_msec, apart ? APART_SETS(4) : 4);
        *ret_member = join(w->f.a);
        a = apart ? open_apart(w, *ret_member, 1) : open_ns(*ret_member, "n");
        assert_int_equal(lease_pages(a, 16, 1, pages, NULL), -EINPROGRESS);
        while (a->ns->device.n_preparing > 0)
                reap(w);
        assert_int_equal(lease_pages(a, 16, 1, pages, NULL), 0);
        for (unsigned i = 0; i < 16; i++) {
                uint8_t key[KEY_BYTES];
                struct publish p = {
                        .pages = &pages[i], .keys = key, .n = 1, .last_tokens = PAGE_TOKENS};
                uint32_t sealed, n;

                make_keys(key, pages[i], 1);
                fill(a->ns, pages[i], pages[i]);
                assert_int_equal(publish_pages(a, &p, 1, &sealed, &n, NULL), 0);
                assert_int_equal(release_pages(a, &sealed, 1, 1, NULL), 0);
        }
        store_top_up(&w->f.store, pool_of(w), 2);
        drop(a, 0, 2);
        drop(a, 10, 6);
        assert_int_equal(a->ns->device.n_sets, 2);
        fake_device_take_log(&w->f.device, (char[FAKE_LOG_BYTES]){0});
        return a;
}

/* Chosen, and its copies are under way in the driver. */
static struct attach *begin_copies_of(
        struct world *w, unsigned deadline_msec, bool apart, struct member **ret_member)
{
        struct attach *a = begin_slow(w, deadline_msec, apart, ret_member);

        fake_device_block(&w->f.device, "copy");
        assert_true(turn(w));
        assert_int_equal(work(w), RECALL_SOON);
        fake_device_wait_inside(&w->f.device);
        assert_int_equal(a->ns->device.n_pages[PAGE_MOVING], 2);
        return a;
}

static struct attach *begin_copies(
        struct world *w, unsigned deadline_msec, struct member **ret_member)
{
        return begin_copies_of(w, deadline_msec, false, ret_member);
}

static void end_slow(struct world *w, struct member *m)
{
        member_free(m);
        fixture_end(&w->f);
        assert_false(w->f.device.wrong_caller);
        fake_device_deinit(&w->f.device);
}

/* Until nothing is MOVING. */
static void finish_copies(struct world *w, const struct attach *a)
{
        fake_device_unblock(&w->f.device);
        while (a->ns->device.n_pages[PAGE_MOVING] > 0)
                reap(w);
}

TEST(test_slow_device)
{
        struct world w;
        struct member *m;
        struct attach *a = begin_copies(&w, PATIENT_MSEC, &m);
        unsigned n_work = w.n_work;

        assert_cached(a, 8); /* where it was, meanwhile */
        assert_int_equal(find(a, 8) / SET_PAGES, 1);
        assert_int_equal(count_hits(a, 8, 1), 1);
        finish_copies(&w, a);
        assert_true(w.n_work > n_work);
        assert_int_equal(a->ns->device.n_sets, 1);
        assert_int_equal(w.f.store.counters.compacted_sets, 1);
        for (unsigned key = 2; key < 10; key++)
                assert_cached(a, key);
        end_slow(&w, m);
}

/* Another text is published in its place. */
TEST(test_reused_during_the_copy)
{
        struct world w;
        struct member *m;
        struct attach *a = begin_copies(&w, PATIENT_MSEC, &m);
        struct publish p = {.n = 1, .last_tokens = PAGE_TOKENS};
        uint32_t page = find(a, 8), pages[7], sealed, n, at = 0;
        uint8_t key[KEY_BYTES];

        drop(a, 8, 1);
        /* Calls it off: all that is FREE. */
        assert_int_equal(lease_pages(a, 7, 1, pages, NULL), 0);
        while (pages[at] != page)
                at++;
        fill(a->ns, page, 40);
        make_keys(key, 40, 1);
        p.keys = key;
        p.pages = &page;
        assert_int_equal(publish_pages(a, &p, 1, &sealed, &n, NULL), 0);
        assert_int_equal(release_pages(a, &page, 1, 1, NULL), 0);
        finish_copies(&w, a);
        assert_int_equal(find(a, 8), PAGE_NONE);
        assert_int_equal(find(a, 40), page);
        assert_cached(a, 40);
        assert_cached(a, 9);
        assert_int_equal(w.f.store.counters.compacted_pages, 1);
        end_slow(&w, m);
}

/* Memory that the driver may still write to isn't used until it answers. */
TEST(test_late_copy)
{
        struct world w;
        struct member *m;
        struct attach *a = begin_copies(&w, HASTY_MSEC, &m);
        uint32_t pages[8];

        while (!queue_is_stuck(pool_of(&w)->queue))
                reap(&w);
        assert_int_equal(a->ns->device.n_pages[PAGE_MOVING], 2);
        assert_int_equal(work_later(&w, MSEC), RECALL_SOON);
        assert_int_equal(a->ns->device.n_pages[PAGE_MOVING], 2);
        assert_true(turn(&w));
        assert_int_equal(find(a, 8) / SET_PAGES, 1);
        /* All there is: the two that the driver has aren't. */
        assert_int_equal(lease_pages(a, 6, 1, pages, NULL), 0);
        assert_int_equal(ns_n_room(a->ns), 0);
        assert_int_equal(free_pages(a, pages, 6, NULL), 0);
        fake_device_unblock(&w.f.device);
        while (queue_is_stuck(pool_of(&w)->queue))
                poll(&(struct pollfd){.fd = queue_fd(pool_of(&w)->queue), .events = POLLIN}, 1, 10);
        (void)turn(&w);
        assert_int_equal(a->ns->device.n_pages[PAGE_MOVING], 0);
        assert_int_equal(find(a, 8) / SET_PAGES, 1);
        assert_cached(a, 8);
        end_slow(&w, m);
}

/* The namespace goes, and the daemon, while copies are under way. */
TEST(test_end_during_the_copy)
{
        for (unsigned how = 0; how < 2; how++) {
                struct world w;
                struct member *m;
                struct attach *a = begin_copies(&w, PATIENT_MSEC, &m);
                uint64_t n, kept;

                (void)a;
                member_free(m);
                if (how == 0) {
                        assert_int_equal(store_purge(&w.f.store, w.f.a, NULL, true, &n, &kept), 0);
                        fixture_check(&w.f);
                        fake_device_unblock(&w.f.device);
                        while (!list_is_empty(&w.f.store.moves))
                                reap(&w);
                } else {
                        fake_device_unblock(&w.f.device);
                }
                fixture_end(&w.f);
                fake_device_deinit(&w.f.device);
        }
}
