/* Reservations: kept, refused, raised over what others have, lent. */
#include "daemon/core/clients/attach.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/reclaim/take-back.h"
#include "daemon/core/requests/refill.h"
#include "daemon/core/reclaim/recall-work.h"
#include "tests/unit/region-fixture.h"

/* ---- reservations --------------------------------------------------------------------------- */

RECALL_SCENE(test_reservation_is_kept, 8)
{
        struct member *ma;
        struct attach *a, *b;
        uint32_t pages[4 * SET_PAGES];
        enum lease_reason reason;

        ma = join(w->f.a);
        a = open_ns(ma, "x");
        b = enter(w->f.b, "x");
        assert_int_equal(set_reserve(w, w->f.a, 3 * SET_BYTES), 0);
        assert_int_equal(region_dynamic_bytes(pool_of(w)), 5 * SET_BYTES);
        assert_int_equal(grab_all(w, b), 5);
        assert_int_equal(ask(w, b, 1, pages, &reason), KVL_STATUS_FULL);
        assert_int_equal(reason, LEASE_REASON_POOL_FULL);
        assert_non_null(strstr(w->f.d.text, "other tenants hold 0 B and have another 3 KiB "
                                            "reserved"));
        assert_null(strstr(w->f.d.text, "tenant a"));
        assert_int_equal(ask(w, a, 3 * SET_PAGES, pages, NULL), 0);
        assert_int_equal(pool_of(w)->idle_reserve_bytes, 0);
        assert_int_equal(stake_excess(stake_of(w, w->f.b)), 5 * SET_BYTES);
        assert_int_equal(ask(w, a, 1, pages, &reason), KVL_STATUS_FULL);
        assert_int_equal(reason, LEASE_REASON_POOL_FULL);
        member_free(ma);
        assert_int_equal(pool_of(w)->idle_reserve_bytes, 3 * SET_BYTES);
        assert_int_equal(ask(w, b, 1, pages, NULL), KVL_STATUS_FULL);
}

/* Nothing that others cache or wait for is asked where it is within the reservation. */
RECALL_SCENE(test_within_the_reservation_others_lose_nothing, 4)
{
        struct attach *a = enter(w->f.a, "x");
        struct attach *b = enter(w->f.b, "x");
        uint32_t page;

        assert_int_equal(set_reserve(w, w->f.a, 2 * SET_BYTES), 0);
        cache_sets(b, 0, 2);
        for (unsigned i = 0; i < 2 * SET_PAGES; i++)
                assert_int_equal(ask(w, a, 1, &page, NULL), 0);
        assert_int_equal(
                count_hits(b, 0, SET_PAGES) + count_hits(b, 100, SET_PAGES), 2 * SET_PAGES);
        /* A set more is by fair share: b has its two of two. */
        assert_int_equal(ask(w, a, 1, &page, NULL), 0);
        assert_int_equal(stake_of(w, w->f.b)->charged_bytes, SET_BYTES);
}

RECALL_SCENE(test_burst_queue, 8)
{
        struct tenant_attrs attrs;
        struct attach *a = enter(w->f.a, "x");
        struct attach *other;
        uint32_t pages[2 * SET_PAGES];
        enum lease_reason reason;

        other = open_ns(a->member, "y");
        assert_int_equal(set_reserve(w, w->f.a, 2 * SET_BYTES), 0);
        attrs = w->f.a->attrs;
        attrs.burst = BURST_NONE;
        assert_int_equal(tenant_set_attrs(w->f.a, &attrs, &w->f.d), 0);
        cache_sets(other, 0, 1);
        assert_int_equal(ask(w, a, 2 * SET_PAGES + 1, pages, &reason), KVL_STATUS_RESERVATION);
        assert_int_equal(reason, LEASE_REASON_RESERVATION_FULL);
        assert_non_null(strstr(
                w->f.d.text, "the reservation of 2 KiB of tenant a on device fake, which may"));
        assert_non_null(strstr(w->f.d.text, "burst=pool"));
        assert_int_equal(count_hits(other, 0, SET_PAGES), SET_PAGES);
        /* Its own cache gives way, here and in another namespace. */
        assert_int_equal(ask(w, a, 2 * SET_PAGES, pages, NULL), 0);
        assert_int_equal(count_hits(other, 0, SET_PAGES), 0);
        assert_int_equal(w->f.a->account.charged_bytes, 2 * SET_BYTES);
        assert_int_equal(ask(w, a, 1, pages, &reason), KVL_STATUS_RESERVATION);
        assert_int_equal(reason, LEASE_REASON_RESERVATION_FULL);
        attrs.burst = BURST_POOL;
        assert_int_equal(tenant_set_attrs(w->f.a, &attrs, &w->f.d), 0);
        assert_int_equal(ask(w, a, 1, pages, NULL), 0);
}

/* Magazines take a part of what the tenant may have, not of the device. */
RECALL_SCENE(test_magazine_within_the_reservation, 64)
{
        struct tenant_attrs attrs;
        struct attach *a = enter(w->f.a, "x");

        assert_int_equal(attach_share(a, NULL), 0);
        attrs = w->f.a->attrs;
        attrs.class = TENANT_PINNED;
        attrs.reserve_bytes = 4 * SET_BYTES;
        attrs.burst = BURST_NONE;
        assert_int_equal(tenant_set_attrs(w->f.a, &attrs, &w->f.d), 0);
        for (unsigned i = 0; i < 10; i++) {
                w->now_nsec += MSEC;
                assert_true(magazine_refill(a, 20, w->now_nsec));
        }
        assert_int_equal(a->ns->clients.n_ready, 4 * SET_PAGES / 8);
}

RECALL_SCENE(test_reservation_that_does_not_fit, 8)
{
        struct tenant_attrs attrs = {
                .limit_bytes = 8 * SET_BYTES, .weight = 1, .max_clients = 8, .reserve_bytes = 1};
        uint64_t missing;
        struct tenant *c;

        assert_int_equal(set_reserve(w, w->f.a, 4 * SET_BYTES + 1), 0);
        assert_int_equal(stake_of(w, w->f.a)->reserve_bytes, 5 * SET_BYTES); /* whole extents */
        assert_int_equal(set_reserve(w, w->f.b, 2 * SET_BYTES), 0);
        assert_int_equal(set_reserve(w, w->f.b, 4 * SET_BYTES), -ENOSPC);
        assert_non_null(strstr(w->f.d.text, "4 KiB can't be reserved for tenant b: 3 KiB is left"));
        assert_non_null(strstr(w->f.d.text, "for others is reserved: a (5 KiB)"));
        assert_int_equal(stake_of(w, w->f.b)->reserve_bytes, 2 * SET_BYTES);
        assert_int_equal(w->f.b->attrs.reserve_bytes, 2 * SET_BYTES);
        assert_int_equal(tenant_reserve(w->f.b, 5 * SET_BYTES, &missing, NULL), -ENOSPC);
        assert_int_equal(missing, 2 * SET_BYTES);
        assert_int_equal(region_reserve(stake_of(w, w->f.b), 3 * SET_BYTES + 1, &w->f.d), -ENOSPC);
        assert_non_null(strstr(w->f.d.text, "of its budget of 8 KiB 3 KiB is left"));
        assert_non_null(strstr(w->f.d.text, "a (5 KiB)"));
        assert_int_equal(region_reserve(stake_of(w, w->f.b), 3 * SET_BYTES, NULL), 0);
        /* The sizer's value stays until another one is configured. */
        set_limit(w, w->f.b, 7);
        assert_int_equal(stake_of(w, w->f.b)->reserve_bytes, 3 * SET_BYTES);
        assert_int_equal(tenant_new(&w->f.store, "c", &attrs, &c, &w->f.d), -EINVAL);
        assert_non_null(strstr(w->f.d.text, "class=pinned"));
        attrs.class = TENANT_PINNED;
        assert_int_equal(tenant_new(&w->f.store, "c", &attrs, &c, &w->f.d), -ENOSPC);
        assert_null(tenant_find(&w->f.store, "c"));
        attrs.reserve_bytes = 2;
        attrs.limit_bytes = 1;
        assert_int_equal(tenant_new(&w->f.store, "c", &attrs, &c, &w->f.d), -EINVAL);
        assert_non_null(strstr(w->f.d.text, "limit"));
}

RECALL_SCENE(test_holders, 9)
{
        struct tenant_attrs attrs = {.limit_bytes = SET_BYTES,
                .weight = 1,
                .max_clients = 8,
                .class = TENANT_PINNED,
                .reserve_bytes = SET_BYTES};
        char text[REGION_HOLDERS_MAX];
        struct tenant *t;

        assert_string_equal(region_holders(w->f.b, NULL, text, sizeof(text)), "nobody");
        assert_int_equal(tenant_new(&w->f.store, "c", &attrs, &t, NULL), 0);
        assert_int_equal(tenant_new(&w->f.store, "d", &attrs, &t, NULL), 0);
        assert_int_equal(set_reserve(w, w->f.a, 2 * SET_BYTES), 0);
        assert_int_equal(set_reserve(w, w->f.b, 3 * SET_BYTES), 0);
        assert_string_equal(region_holders(w->f.b, pool_of(w), text, sizeof(text)),
                "a (2 KiB), c (1 KiB), d (1 KiB)");
        assert_int_equal(tenant_new(&w->f.store, "e", &attrs, &t, NULL), 0);
        assert_string_equal(region_holders(t, NULL, text, sizeof(text)),
                "b (3 KiB), a (2 KiB), c (1 KiB) and 1 more");
}

/* Over two devices: all of it or nothing. */
TEST(test_two_devices)
{
        struct fake_device device;
        struct tenant_attrs attrs;
        struct stake *here, *there;
        struct world w;

        start(&w, 4);
        fake_device_init(&device, "other", 256);
        assert_int_equal(
                store_add_pool(&w.f.store, &device.device, 4 * SET_BYTES, SET_BYTES, NULL), 0);
        here = stake_of(&w, w.f.a);
        there = stake_find(w.f.a, store_find_pool(&w.f.store, "other"));
        assert_non_null(there);
        attrs = w.f.a->attrs;
        attrs.limit_bytes = 8 * SET_BYTES;
        attrs.class = TENANT_PINNED;
        attrs.reserve_bytes = 6 * SET_BYTES;
        attrs.placement = PLACE_SPREAD;
        assert_int_equal(tenant_set_attrs(w.f.a, &attrs, &w.f.d), 0);
        assert_int_equal(here->reserve_bytes, 3 * SET_BYTES);
        assert_int_equal(there->reserve_bytes, 3 * SET_BYTES);
        attrs.placement = PLACE_DEVICE;
        strcpy(attrs.device, "other");
        assert_int_equal(tenant_set_attrs(w.f.a, &attrs, &w.f.d), -ENOSPC);
        assert_int_equal(w.f.a->attrs.placement, PLACE_SPREAD);
        assert_int_equal(here->reserve_bytes, 3 * SET_BYTES);
        attrs.reserve_bytes = 4 * SET_BYTES;
        assert_int_equal(tenant_set_attrs(w.f.a, &attrs, &w.f.d), 0);
        assert_int_equal(here->reserve_bytes, 0);
        assert_int_equal(there->reserve_bytes, 4 * SET_BYTES);
        strcpy(attrs.device, "none");
        assert_int_equal(tenant_set_attrs(w.f.a, &attrs, &w.f.d), -ENOENT);
        /* No other tenant can use an exclusive device. */
        strcpy(attrs.device, "other");
        attrs.exclusive = true;
        attrs.reserve_bytes = SET_BYTES;
        assert_int_equal(tenant_set_attrs(w.f.a, &attrs, &w.f.d), 0);
        fixture_check(&w.f);
        assert_int_equal(set_reserve(&w, w.f.b, 4 * SET_BYTES), 0);
        assert_int_equal(stake_of(&w, w.f.b)->reserve_bytes, 4 * SET_BYTES);
        assert_int_equal(tenant_reserve(w.f.b, 5 * SET_BYTES, NULL, &w.f.d), -ENOSPC);
        fixture_end(&w.f);
        assert_int_equal(device.n_extents, 0);
}

/* ---- a reservation is raised over what others have ------------------------------------------- */

RECALL_SCENE(test_raised_over_a_cache, 4)
{
        struct attach *a = enter(w->f.a, "x");
        struct attach *b = enter(w->f.b, "x");
        uint32_t pages[2 * SET_PAGES];
        struct blame *blame;

        cache_sets(b, 0, 4);
        assert_int_equal(set_reserve(w, w->f.a, 2 * SET_BYTES), 0);
        assert_int_equal(region_missing(pool_of(w)), 0);
        assert_int_equal(w->f.b->account.charged_bytes, 2 * SET_BYTES);
        blame = list_first(&w->f.b->blames, struct blame, link);
        assert_string_equal(blame->by, "");
        assert_int_equal(blame->pages, 2 * SET_PAGES);
        assert_int_equal(blame->sets, 2);
        assert_int_equal(ask(w, a, 2 * SET_PAGES, pages, NULL), 0);
        assert_int_equal(tenant_reserve(w->f.a, 3 * SET_BYTES, NULL, NULL), 0);
        assert_int_equal(w->f.b->account.charged_bytes, SET_BYTES);
}

/* Four sets of b, mapped, one page of each granted; a wants two of them reserved. */
struct raised {
        struct world w;
        struct member *ma, *mb;
        struct attach *a, *b;
        uint32_t pages[4];
};

static void raise_over_mapped(struct raised *s, bool is_safe)
{
        start(&s->w, 4);
        s->ma = join(s->w.f.a);
        s->mb = join(s->w.f.b);
        s->mb->safepoints = is_safe;
        s->a = open_ns(s->ma, "x");
        s->b = open_ns(s->mb, "x");
        for (unsigned i = 0; i < 4; i++) {
                assert_int_equal(ask(&s->w, s->b, 1, &s->pages[i], NULL), 0);
                cache_chain(s->b, i * 100, SET_PAGES - 1);
        }
        map_all(s->b);
        assert_int_equal(set_reserve(&s->w, s->w.f.a, 2 * SET_BYTES), 0);
        assert_int_equal(region_missing(pool_of(&s->w)), 2 * SET_BYTES);
}

static void end_raised(struct raised *s)
{
        member_free(s->ma);
        member_free(s->mb);
        fixture_end(&s->w.f);
}

#define SCENE(fn, ...) TEST_ON(fn, struct raised, s, raise_over_mapped, end_raised, ##__VA_ARGS__)

SCENE(test_raised_over_safe_clients, true)
{
        uint32_t pages[SET_PAGES];
        enum lease_reason reason;

        assert_int_equal(stake_of(&s->w, s->w.f.b)->recalled_bytes, 2 * SET_BYTES);
        assert_int_equal(work(&s->w), RECALL_SOON);
        assert_int_equal(s->w.n_told, 0); /* softly: something is held */
        assert_int_equal(ask(&s->w, s->a, 1, pages, &reason), KVL_STATUS_FULL);
        assert_int_equal(reason, LEASE_REASON_POOL_FULL);
        assert_non_null(strstr(s->w.f.d.text, "others still have the rest"));
        assert_int_equal(stake_of(&s->w, s->w.f.b)->recalled_bytes, 2 * SET_BYTES); /* no more */
        /* Neither granted to b nor found. */
        assert_int_equal(count_hits(s->b, 300, SET_PAGES - 1), 0);
        for (unsigned i = 0; i < 4; i++)
                give_back(&s->w, s->b, &s->pages[i], 1);
        work(&s->w);
        assert_int_equal(s->w.n_told, 2);
        assert_true(s->w.told[0].idle && s->w.told[1].idle);
        assert_int_equal(s->w.told[0].timeout_nsec, TIMEOUT);
        keep_safe_point(&s->w);
        assert_int_equal(region_missing(pool_of(&s->w)), 0);
        assert_int_equal(stake_of(&s->w, s->w.f.b)->recalled_bytes, 0);
        assert_int_equal(ask(&s->w, s->a, SET_PAGES, pages, NULL), 0);
        assert_int_equal(ask(&s->w, s->a, SET_PAGES, pages, NULL), 0);
        assert_int_equal(s->w.f.b->account.charged_bytes, 2 * SET_BYTES);
}

/* Softly for a second, then with a deadline, then it is quarantined and another one is asked for.
 */
SCENE(test_soft_recalls_are_pressed, true)
{
        work(&s->w);
        assert_int_equal(work_later(&s->w, SEC - 2000), RECALL_SOON);
        assert_int_equal(s->w.n_told, 0);
        work_later(&s->w, 2000);
        work(&s->w);
        assert_int_equal(s->w.n_told, 2);
        assert_false(s->w.told[0].idle);
        assert_int_equal(s->w.told[0].timeout_nsec, TIMEOUT);
        work_later(&s->w, TIMEOUT);
        assert_int_equal(s->w.n_late, 2);
        assert_int_equal(s->w.f.b->n_recalled, 4);
        assert_int_equal(stake_of(&s->w, s->w.f.b)->recalled_bytes, 2 * SET_BYTES);
}

SCENE(test_raised_over_others, false)
{
        work(&s->w);
        assert_int_equal(s->w.n_told, 2);
        assert_false(s->w.told[0].idle);
        assert_int_equal(s->w.f.b->n_recalled, 2);
}

/* A lowered limit doesn't wait for what is recalled softly. */
SCENE(test_limit_presses, true)
{
        work(&s->w);
        set_limit(&s->w, s->w.f.b, 3);
        assert_int_equal(s->w.f.b->n_recalled, 2);
        work(&s->w);
        assert_int_equal(s->w.n_told, 1);
        assert_false(s->w.told[0].idle);
        set_limit(&s->w, s->w.f.b, 1);
        assert_int_equal(s->w.f.b->n_recalled, 3);
}

/* ---- lending -------------------------------------------------------------------------------- */

static void lend(struct world *w, bool on)
{
        struct tenant_attrs attrs = w->f.a->attrs;

        attrs.lend_idle_reserve = on;
        assert_int_equal(tenant_set_attrs(w->f.a, &attrs, &w->f.d), 0);
        fixture_check(&w->f);
}

static unsigned fill_mapped(struct world *w, struct attach *a, unsigned *key)
{
        uint64_t before = a->ns->tenant->account.charged_bytes;

        for (unsigned i = 0; i < 9 * SET_PAGES; i++)
                (void)use_one(w, a, (*key)++);
        return (unsigned)((a->ns->tenant->account.charged_bytes - before) / SET_BYTES);
}

RECALL_SCENE(test_lending, 8)
{
        struct attach *a = enter(w->f.a, "x");
        struct attach *b = enter(w->f.b, "x");
        uint32_t pages[2 * SET_PAGES];
        enum lease_reason reason;
        unsigned key = 0;
        struct stake *of_a;

        of_a = stake_of(w, w->f.a);
        assert_int_equal(set_reserve(w, w->f.a, 4 * SET_BYTES), 0);
        b->member->safepoints = true;
        assert_int_equal(fill_mapped(w, b, &key), 4); /* off by default */
        w->now_nsec += 2 * SEC;
        lend(w, true);
        b->member->safepoints = false;
        assert_int_equal(fill_mapped(w, b, &key), 0); /* not to whom it can't be had back from */
        b->member->safepoints = true;
        assert_int_equal(fill_mapped(w, b, &key), 4);
        assert_int_equal(region_missing(of_a->pool), 4 * SET_BYTES);
        assert_int_equal(w->f.store.recalls.n, 0);
        w->now_nsec += 2 * SEC;
        assert_int_equal(work(w), RECALL_NOTHING);
        /* Two of them are wanted. */
        assert_int_equal(ask(w, a, 2 * SET_PAGES, pages, &reason), KVL_STATUS_FULL);
        assert_int_equal(reason, LEASE_REASON_POOL_FULL);
        assert_int_equal(w->f.store.recalls.n, 2);
        work_later(w, 30 * MSEC);
        assert_int_equal(w->n_told, 2);
        assert_true(w->told[0].idle && w->told[1].idle);
        keep_safe_point(w);
        assert_int_equal(ask(w, a, 2 * SET_PAGES, pages, NULL), 0);
        assert_int_equal(of_a->taken_back_nsec, 30 * MSEC);
        assert_int_equal(w->f.b->account.charged_bytes, 6 * SET_BYTES);
        assert_int_equal(list_first(&w->f.b->blames, struct blame, link)->sets, 0);
        /* No more of it: what is lent comes back by itself. */
        w->now_nsec += 2 * SEC;
        lend(w, false);
        assert_int_equal(w->f.store.recalls.n, 2);
        work(w);
        keep_safe_point(w);
        assert_int_equal(region_missing(pool_of(w)), 0);
}

/* ---- check ----------------------------------------------------------------------------------- */

static void expect_broken(struct world *w, const char *text)
{
        uint64_t n_pages, n_sets;

        assert_int_equal(store_check(&w->f.store, &n_pages, &n_sets, &w->f.d), -EUCLEAN);
        if (!strstr(w->f.d.text, text))
                fail_msg("%s", w->f.d.text);
}

RECALL_SCENE(test_check, 8)
{
        uint64_t *const none = NULL;
        struct stake *of_a;
        struct attach *a = enter(w->f.a, "x");
        struct pool *pool;
        uint32_t page;

        assert_int_equal(set_reserve(w, w->f.a, 2 * SET_BYTES), 0);
        assert_int_equal(lease_pages(a, 1, 1, &page, NULL), 0);
        of_a = stake_of(w, w->f.a);
        pool = pool_of(w);
        const struct {
                uint64_t *value;
                const char *text;
        } sums[] = {
                {&of_a->charged_bytes, "a stake's charge isn't the sum"},
                {&of_a->recalled_bytes, "a stake's recalled bytes"},
                {&of_a->reserve_bytes, "isn't a multiple of the extent size"},
                {&pool->reserved_bytes, "the stakes' reservations"},
                {&pool->idle_reserve_bytes, "the stakes' idle reserves"},
                {none, NULL},
        };

        for (unsigned i = 0; sums[i].value; i++) {
                (*sums[i].value)++;
                expect_broken(w, sums[i].text);
                (*sums[i].value)--;
                fixture_check(&w->f);
        }
        pool->account.limit_bytes = SET_BYTES;
        expect_broken(w, "more is reserved than its budget");
        pool->account.limit_bytes = 8 * SET_BYTES;
        a->ns->device.stake = stake_of(w, w->f.b);
        expect_broken(w, "has the stake of another tenant");
        a->ns->device.stake = of_a;
}

/* A tenant has an account, with a limit, in every tier. */
RECALL_SCENE(test_limits_of_tiers, 8)
{
        struct tenant_attrs attrs;

        attrs = w->f.a->attrs;
        attrs.limit_bytes = 3;
        attrs.host_limit_bytes = 5;
        attrs.disk_limit_bytes = UINT64_MAX;
        assert_int_equal(tenant_set_attrs(w->f.a, &attrs, &w->f.d), 0);
        assert_int_equal(w->f.a->account.limit_bytes, 3);
        assert_ptr_equal(&w->f.a->account, &w->f.a->accounts[TIER_DEVICE]);
        assert_ptr_equal(stake_of(w, w->f.a)->account, &w->f.a->account);
        assert_int_equal(w->f.a->accounts[TIER_HOST].limit_bytes, 5);
        assert_true(w->f.a->accounts[TIER_DISK].limit_bytes == UINT64_MAX);
}

static void expect_reason(struct world *w, struct attach *a, enum lease_reason expected)
{
        uint32_t pages[7 * SET_PAGES];
        enum lease_reason reason;

        assert_int_equal(region_admits(a->ns->device.stake, 7 * SET_BYTES, NULL), expected);
        (void)ask(w, a, 7 * SET_PAGES, pages, &reason);
        assert_int_equal(reason, expected);
}

/* A refusal names the limit that comes first, however it is found. */
RECALL_SCENE(test_nearest_limit, 8)
{
        struct tenant_attrs attrs;
        struct member *other;
        struct attach *a = enter(w->f.a, "x");

        set_limit(w, w->f.a, 6);
        expect_reason(w, a, LEASE_REASON_QUOTA);
        assert_int_equal(set_reserve(w, w->f.b, 4 * SET_BYTES), 0);
        expect_reason(w, a, LEASE_REASON_POOL_FULL);
        assert_int_equal(set_reserve(w, w->f.b, 0), 0);
        assert_int_equal(set_reserve(w, w->f.a, 2 * SET_BYTES), 0);
        attrs = w->f.a->attrs;
        attrs.burst = BURST_NONE;
        assert_int_equal(tenant_set_attrs(w->f.a, &attrs, &w->f.d), 0);
        expect_reason(w, a, LEASE_REASON_RESERVATION_FULL);
        attrs.burst = BURST_POOL;
        attrs.limit_bytes = 8 * SET_BYTES;
        assert_int_equal(tenant_set_attrs(w->f.a, &attrs, &w->f.d), 0);
        other = join(w->f.b);
        assert_int_equal(
                ask(w, open_ns(other, "x"), 2 * SET_PAGES, (uint32_t[2 * SET_PAGES]){0}, NULL), 0);
        expect_reason(w, a, LEASE_REASON_POOL_FULL);
}
