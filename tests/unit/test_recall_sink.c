/* A set that is recalled is emptied downwards where there is a tier below
 * (daemon/core/reclaim/recall.h), on real memory. */
#include <unistd.h>

#include "daemon/core/clients/attach.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/memory/wait.h"
#include "daemon/core/reclaim/recall.h"
#include "daemon/core/reclaim/recall-work.h"
#include "tests/unit/tier-fixture.h"

#define N_KEYS  64 /* texts of one page: two sets */
#define TIMEOUT NSEC_PER_SEC

/* Two sets of the device, full of unread pages, and n_host sets below. */
static void start(struct tiers *w, unsigned n_host)
{
        tiers_start(w, &evict_pgi, 2, n_host, 1, CODEC_NONE);
        for (unsigned key = 0; key < N_KEYS; key++)
                assert_true(tier_cache(w, key, 1));
        assert_int_equal(w->store.moving.n_transfers, 0);
}

#define SCENE(fn, ...) TEST_ON(fn, struct tiers, w, start, tiers_end, ##__VA_ARGS__)

static void recall(struct tiers *w, enum recall_kind kind, uint64_t bytes)
{
        const struct recall_request rq = {.tenant = w->a, .bytes = bytes, .kind = kind};

        assert_true(recall_ask(&rq) > 0);
        tiers_check(w);
}

/* One round of recalls, and what is under way then. */
static void turn(struct tiers *w)
{
        struct pollfd fd = {.fd = mover_fd(w->store.moving.mover), .events = POLLIN};

        recall_poll(&w->store);
        while (recall_work(&w->store, w->now_nsec, TIMEOUT, 100) == RECALL_MORE)
                ;
        tiers_check(w);
        (void)transfer_start(&w->store);
        if (w->store.moving.n_transfers > 0)
                (void)poll(&fd, 1, 100);
        (void)mover_reap(w->store.moving.mover);
        (void)transfer_work(&w->store);
        tiers_check(w);
}

/* Until all that can move has. */
static void go_on(struct tiers *w)
{
        for (unsigned i = 0; i < 2 * N_KEYS / 32 + 2; i++)
                turn(w);
}

/* Checks the bytes of cached pages, their number, and how many of them are in the lower tier. */
static void expect(struct tiers *w, unsigned n_cached, unsigned n_below)
{
        unsigned cached = 0, below = 0;

        for (unsigned key = 0; key < N_KEYS; key++) {
                uint32_t page = tier_find(w, key);

                if (page == PAGE_NONE)
                        continue;
                cached++;
                below += tier_of(w, key) == TIER_HOST;
                assert_true(tier_is_filled(w, page, key));
        }
        assert_int_equal(cached, n_cached);
        assert_int_equal(below, n_below);
        assert_int_equal(w->store.counters.evictions, N_KEYS - n_cached);
}

/* More than may be on their way at a time, and what continues what is left in another set. */
TIER_SCENE(test_all_of_it, &evict_pgi, 2, 4, 1, CODEC_NONE)
{
        for (unsigned i = 0; i < N_KEYS; i += 16)
                assert_true(tier_cache(w, i, 16));
        recall(w, RECALL_SOFT, UINT64_MAX);
        go_on(w);
        assert_int_equal(w->ns->device.n_sets, 0);
        expect(w, N_KEYS, N_KEYS);
        for (unsigned i = 0; i < N_KEYS; i += 16)
                assert_int_equal(count_hits(w->attach, i, 16), 16);
}

/* A page that is worth no more than those in the lower tier is dropped. */
SCENE(test_no_room, 1)
{
        struct tenant_attrs attrs;

        recall(w, RECALL_SOFT, UINT64_MAX);
        go_on(w);
        assert_int_equal(w->ns->device.n_sets, 0);
        expect(w, N_KEYS / 2, N_KEYS / 2);
        tiers_end(w);

        start(w, 4);
        attrs = w->a->attrs;
        attrs.host_limit_bytes = 0;
        assert_int_equal(tenant_set_attrs(w->a, &attrs, &w->d), 0);
        recall(w, RECALL_SOFT, 1);
        go_on(w);
        assert_int_equal(w->ns->device.n_sets, 1);
        expect(w, N_KEYS / 2, 0);
}

/* A lease that waits for memory doesn't wait for copies: the rest is dropped at once. */
SCENE(test_lease_waits, 4)
{
        struct member *other;
        struct attach *b;
        struct ns_layout l;

        l = w->ns->layout;
        other = join(w->a);
        assert_int_equal(attach_open(other, "b", &l, "", false, &b, &w->d), 0);
        recall(w, RECALL_SOFT, UINT64_MAX);
        recall_poll(&w->store);
        while (recall_work(&w->store, w->now_nsec, TIMEOUT, 100) == RECALL_MORE)
                ;
        assert_true(w->store.moving.n_transfers > 0);
        wait_arrive(b, 1, UINT64_MAX);
        wait_begin(b, 1, LEASE_REASON_POOL_FULL);
        recall_poll(&w->store);
        while (recall_work(&w->store, w->now_nsec, TIMEOUT, 100) == RECALL_MORE)
                ;
        tiers_check(w);
        expect(w, 0, 0);
        assert_true(wait_end(b));
        go_on(w);
        assert_int_equal(w->ns->device.n_sets, 0);
        expect(w, 0, 0);
        member_free(other);
}

SCENE(test_late, 4)
{
        recall(w, RECALL_SOFT, UINT64_MAX);
        w->now_nsec += RECALL_DEMOTE_NSEC;
        go_on(w);
        assert_int_equal(w->ns->device.n_sets, 0);
        expect(w, 0, 0);
}

static unsigned n_told;

static bool note_recall(struct attach *a, const struct extent_set *set, bool idle,
        uint64_t timeout_nsec, void *data)
{
        n_told += idle;
        return true;
}

/* A client that maps the set is asked to unmap it once all of it is in the lower tier. */
SCENE(test_mapped, 4)
{
        struct extent_handle handle = {.fd = -1};

        w->store.owner.on_recall = note_recall;
        assert_int_equal(attach_map_set(w->attach, 0, 0, 1, &handle, &w->d), 1);
        assert_true(handle.fd >= 0);
        close(handle.fd);
        n_told = 0;
        recall(w, RECALL_SOFT, UINT64_MAX);
        turn(w);
        assert_int_equal(n_told, 0);
        go_on(w);
        assert_int_equal(n_told, 1);
        assert_int_equal(w->ns->device.n_sets, 1);
        expect(w, N_KEYS, N_KEYS);
        assert_int_equal(attach_unmapped(w->attach, 0, &w->d), 0);
        idle_sets_drain(&w->store);
        assert_int_equal(w->ns->device.n_sets, 0);
}
