/* Reservations: kept, refused, raised over what others have, lent. */
#include "daemon/core/clients/attach.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/requests/refill.h"
#include "daemon/core/reclaim/recall.h"
#include "tests/unit/region-fixture.h"
#include "daemon/core/core.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/reclaim/room.h"
#include "daemon/core/state/shared.h"
#include "daemon/core/reclaim/leasable.h"

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
        assert_non_null(
                strstr(w->f.d.text, "other tenants hold 0 B and have another 3 KiB reserved"));
        assert_null(strstr(w->f.d.text, "tenant a"));
        assert_int_equal(ask(w, a, 3 * SET_PAGES, pages, NULL), 0);
        assert_int_equal(pool_of(w)->idle_reserve_bytes, 0);
        assert_int_equal(pool_share_borrowed(share_of(w, w->f.b)), 5 * SET_BYTES);
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
        assert_int_equal(share_of(w, w->f.b)->charged_bytes, SET_BYTES);
}

RECALL_SCENE(test_reservation_that_does_not_fit, 8)
{
        struct tenant_attrs attrs = {
                .limit_bytes = 8 * SET_BYTES, .weight = 1, .max_clients = 8, .reserve_bytes = 1};
        uint64_t missing;
        struct tenant *c;

        assert_int_equal(set_reserve(w, w->f.a, 4 * SET_BYTES + 1), 0);
        assert_int_equal(share_of(w, w->f.a)->reserve_bytes, 5 * SET_BYTES); /* whole extents */
        assert_int_equal(set_reserve(w, w->f.b, 2 * SET_BYTES), 0);
        assert_int_equal(set_reserve(w, w->f.b, 4 * SET_BYTES), -ENOSPC);
        assert_non_null(strstr(w->f.d.text, "4 KiB can't be reserved for tenant b: 3 KiB is left"));
        assert_non_null(strstr(w->f.d.text, "for others is reserved: a (5 KiB)"));
        assert_int_equal(share_of(w, w->f.b)->reserve_bytes, 2 * SET_BYTES);
        assert_int_equal(w->f.b->attrs.reserve_bytes, 2 * SET_BYTES);
        assert_int_equal(tenant_reserve(w->f.b, 5 * SET_BYTES, &missing, NULL), -ENOSPC);
        assert_int_equal(missing, 2 * SET_BYTES);
        assert_int_equal(region_reserve(share_of(w, w->f.b), 3 * SET_BYTES + 1, &w->f.d), -ENOSPC);
        assert_non_null(strstr(w->f.d.text, "of its budget of 8 KiB 3 KiB is left"));
        assert_non_null(strstr(w->f.d.text, "a (5 KiB)"));
        assert_int_equal(region_reserve(share_of(w, w->f.b), 3 * SET_BYTES, NULL), 0);
        /* The sizer's value stays until another one is configured. */
        set_limit(w, w->f.b, 7);
        assert_int_equal(share_of(w, w->f.b)->reserve_bytes, 3 * SET_BYTES);
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

        assert_string_equal(region_holders(w->f.b, NULL, text, sizeof(text)), "no tenant");
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
        struct pool_share *here, *there;
        struct world w;

        start(&w, 4);
        fake_device_init(&device, "other", 256);
        assert_int_equal(
                store_add_pool(&w.f.store, &device.device, 4 * SET_BYTES, SET_BYTES, NULL), 0);
        here = share_of(&w, w.f.a);
        there = pool_share_find(w.f.a, store_find_pool(&w.f.store, "other"));
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
        assert_int_equal(share_of(&w, w.f.b)->reserve_bytes, 4 * SET_BYTES);
        assert_int_equal(tenant_reserve(w.f.b, 5 * SET_BYTES, NULL, &w.f.d), -ENOSPC);
        fixture_end(&w.f);
        assert_int_equal(device.n_extents, 0);
}

/* ---- a reservation is raised over what others have ------------------------------------------- */

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
        assert_int_equal(share_of(&s->w, s->w.f.b)->recalled_bytes, 2 * SET_BYTES);
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
        struct pool_share *of_a;

        of_a = share_of(w, w->f.a);
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
        struct pool_share *of_a;
        struct attach *a = enter(w->f.a, "x");
        struct pool *pool;
        uint32_t page;

        assert_int_equal(set_reserve(w, w->f.a, 2 * SET_BYTES), 0);
        assert_int_equal(lease_pages(a, 1, 1, &page, NULL), 0);
        of_a = share_of(w, w->f.a);
        pool = pool_of(w);
        const struct {
                uint64_t *value;
                const char *text;
        } sums[] = {
                {&of_a->charged_bytes, "a share's charge isn't the sum"},
                {&of_a->recalled_bytes, "a share's recalled bytes"},
                {&of_a->reserve_bytes, "isn't a multiple of the extent size"},
                {&pool->reserved_bytes, "the shares' reservations"},
                {&pool->idle_reserve_bytes, "the shares' idle reserves"},
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
        a->ns->device.share = share_of(w, w->f.b);
        expect_broken(w, "has the share of another tenant");
        a->ns->device.share = of_a;
}

/* The dynamic pool, shared by weight, and counts of evictions by tenant. */

/* Both as fast as they can, for so many steps. Returns the sets that were recalled. */
static unsigned run(struct world *w, struct attach *a, struct attach *b, unsigned n, unsigned *key)
{
        unsigned n_recalled = 0;

        for (unsigned i = 0; i < n; i++) {
                uint32_t before = w->f.store.recalls.n;

                w->now_nsec += MSEC;
                (void)use_one(w, a, (*key)++);
                (void)use_one(w, b, (*key)++);
                n_recalled += w->f.store.recalls.n - MIN(before, w->f.store.recalls.n);
                work(w);
                keep_safe_point(w);
        }
        return n_recalled;
}

static void set_weight(struct world *w, struct tenant *t, unsigned weight)
{
        struct tenant_attrs attrs = t->attrs;

        attrs.weight = weight;
        assert_int_equal(tenant_set_attrs(t, &attrs, &w->f.d), 0);
}

/* One of both has it all; then the other one comes. */
static void converge(bool a_first)
{
        struct member *ma, *mb;
        struct attach *a, *b;
        unsigned key = 0;
        struct world w;

        start(&w, 12);
        set_weight(&w, w.f.b, 3);
        ma = join(w.f.a);
        mb = join(w.f.b);
        ma->safepoints = mb->safepoints = true;
        a = open_ns(ma, "x");
        b = open_ns(mb, "x");
        for (unsigned i = 0; i < 12 * SET_PAGES; i++)
                assert_int_equal(use_one(&w, a_first ? a : b, key++), 0);
        assert_int_equal((a_first ? w.f.a : w.f.b)->account.charged_bytes, 12 * SET_BYTES);
        assert_true(run(&w, a, b, 400, &key) > 0);
        assert_int_equal(w.f.a->account.charged_bytes, 3 * SET_BYTES);
        assert_int_equal(w.f.b->account.charged_bytes, 9 * SET_BYTES);
        /* And there it stays. */
        assert_int_equal(run(&w, a, b, 400, &key), 0);
        assert_int_equal(w.f.a->account.charged_bytes, 3 * SET_BYTES);
        /* A tenant that stops leaves the rest to the other. */
        assert_int_equal(region_fair(share_of(&w, w.f.b)), 9 * SET_BYTES);
        w.now_nsec += 2 * SEC;
        store_set_now(&w.f.store, w.now_nsec);
        assert_int_equal(region_fair(share_of(&w, w.f.a)), 3 * SET_BYTES);
        attach_close(a);
        store_purge(&w.f.store, w.f.a, NULL, true, &(uint64_t){0}, &(uint64_t){0});
        for (unsigned i = 0; i < 3 * SET_PAGES; i++)
                assert_int_equal(use_one(&w, b, key++), 0);
        assert_int_equal(w.f.b->account.charged_bytes, 12 * SET_BYTES);
        member_free(ma);
        member_free(mb);
        recall_end(&w);
}

TEST(test_shares_converge)
{
        converge(true);
        converge(false);
}

/* Free memory is left for tenants that want it and are below their share. */
RECALL_SCENE(test_free_memory_is_for_who_deserves_it, 5)
{
        uint32_t pages[4 * SET_PAGES];
        struct attach *a = enter(w->f.a, "x");
        struct attach *b = enter(w->f.b, "x");

        assert_int_equal(ask(w, b, 2 * SET_PAGES, pages, NULL), 0);
        assert_int_equal(region_fair(share_of(w, w->f.b)), 2 * SET_BYTES);
        assert_int_equal(ask(w, a, 4 * SET_PAGES, pages, NULL), KVL_STATUS_FULL);
        assert_int_equal(ask(w, b, 1, pages, NULL), KVL_STATUS_FULL);
        assert_int_equal(ask(w, a, 2 * SET_PAGES, pages, NULL), 0);
        assert_int_equal(ask(w, b, 1, pages, NULL), 0); /* no tenant lacks a whole set any more */
}

/* A client that takes all its pages from its magazine comes to its share, too. */
RECALL_SCENE(test_magazines_grow_to_the_share, 64)
{
        struct attach *a = enter(w->f.a, "x");
        struct attach *b = enter(w->f.b, "x");

        assert_int_equal(attach_share(b, NULL), 0);
        cache_sets(a, 0, 64);
        for (unsigned i = 0; i < 200; i++) {
                for (unsigned slot = 0; slot < SHM_MAGAZINE_SLOTS; slot++)
                        atomic_store(&b->share.magazine[slot], 0);
                w->now_nsec += MSEC;
                assert_true(magazine_refill(b, 1, w->now_nsec));
                fixture_check(&w->f);
        }
        assert_in_range(w->f.b->account.charged_bytes, 31 * SET_BYTES, 32 * SET_BYTES);
        assert_in_range(w->f.a->account.charged_bytes, 32 * SET_BYTES, 33 * SET_BYTES);
}

/* A held set that isn't given up costs no tenant its share: another set is recalled. */
RECALL_SCENE(test_soft_recall_that_takes_long, 4)
{
        struct member *ma;
        struct attach *a, *b;
        uint32_t page;

        ma = join(w->f.a);
        ma->safepoints = true;
        a = open_ns(ma, "x");
        b = enter(w->f.b, "x");
        assert_int_equal(grab_all(w, a), 4);
        map_all(a);
        w->now_nsec += 2 * SEC;
        for (unsigned i = 0; i < 3; i++) {
                assert_int_equal(ask(w, b, 1, &page, NULL), KVL_STATUS_FULL);
                assert_int_equal(w->f.store.recalls.n, 1);
                work_later(w, 300 * MSEC);
        }
        w->now_nsec += 100 * MSEC;
        assert_int_equal(ask(w, b, 1, &page, NULL), KVL_STATUS_FULL);
        assert_int_equal(w->f.store.recalls.n, 2);
        /* Never more than it is over by. */
        w->now_nsec += 2 * SEC;
        assert_int_equal(ask(w, b, 1, &page, NULL), KVL_STATUS_FULL);
        assert_int_equal(w->f.store.recalls.n, 2);
        work(w);
        assert_int_equal(w->n_told, 0);
}

/* A client without safe points could unmap at unknown times: its sets stay. */
RECALL_SCENE(test_without_safe_points, 4)
{
        struct member *ma, *mb, *unsafe;
        struct attach *a, *b;
        unsigned key = 0;

        ma = join(w->f.a);
        mb = join(w->f.b);
        ma->safepoints = mb->safepoints = true;
        unsafe = join(w->f.a);
        a = open_ns(ma, "x");
        b = open_ns(mb, "x");
        (void)open_ns(unsafe, "x");
        for (unsigned i = 0; i < 4 * SET_PAGES; i++)
                assert_int_equal(use_one(w, a, key++), 0);
        assert_int_equal(use_one(w, b, key++), KVL_STATUS_FULL);
        assert_int_equal(w->f.store.recalls.n, 0);
        member_free(unsafe);
        assert_int_equal(use_one(w, b, key++), KVL_STATUS_FULL);
        assert_int_equal(w->f.store.recalls.n, 1); /* as many as are missing */
        assert_int_equal(use_one(w, b, key++), KVL_STATUS_FULL);
        assert_int_equal(w->f.store.recalls.n, 1);
        work(w);
        keep_safe_point(w);
        assert_int_equal(use_one(w, b, key++), 0);
}

/* ---- evictions by tenant --------------------------------------------------------------------- */

static const struct blame *blame_by(const struct tenant *victim, const char *by)
{
        list_for_each (b, &victim->blames, struct blame, link)
                if (strcmp(b->by, by) == 0)
                        return b;
        return NULL;
}

RECALL_SCENE(test_many_blames, 1)
{
        struct tenant by = {0};
        unsigned n = 0;

        for (unsigned i = 0; i < 2 * BLAME_MAX; i++) {
                snprintf(by.name, sizeof(by.name), "t%u", i);
                blame_note(w->f.a, &by, 1, 0);
        }
        list_for_each (b, &w->f.a->blames, struct blame, link)
                n++;
        assert_int_equal(n, BLAME_MAX + 1);
        assert_int_equal(blame_by(w->f.a, BLAME_OTHERS)->pages, BLAME_MAX);
}

/* How many pages leases would get: daemon/core/reclaim/leasable.h. */

/* After a whole round. What is shown is that. */
static uint32_t count(struct attach *a)
{
        uint32_t budget = UINT32_MAX, n;

        while (!leasable_look(a->ns, &budget, false))
                ;
        n = leasable_pages(a->ns);
        assert_int_equal(atomic_load(&a->ns->shared.header->leasable), n + 1);
        return n;
}

/* So many are granted, and none more at once. */
static void assert_true_to_word(struct world *w, struct attach *a)
{
        uint32_t pages[64 * SET_PAGES], n = count(a);

        if (n > 0)
                assert_int_equal(ask(w, a, n, pages, NULL), 0);
        assert_int_equal(count(a), 0);
        if (n > 0)
                assert_int_equal(free_pages(a, pages, n, NULL), 0);
        assert_int_equal(count(a), n);
}

/* Cached pages without pins are evicted; pinned ones aren't, whichever way they are pinned. */
RECALL_SCENE(test_cached, 2)
{
        uint32_t pages[SET_PAGES];
        struct attach *a = enter(w->f.a, "x");
        struct attach *b = enter(w->f.a, "x");

        publish_chain(a, 0, SET_PAGES, pages);
        assert_int_equal(count(a), SET_PAGES);
        assert_int_equal(release_pages(a, pages, SET_PAGES, 1, NULL), 0);
        assert_int_equal(count(a), 2 * SET_PAGES);
        assert_true_to_word(w, a);
        publish_chain(a, 0, SET_PAGES, pages);
        assert_int_equal(attach_share(b, NULL), 0);
        for (unsigned i = 0; i < SET_PAGES; i++) {
                pins_add(&b->share, pages[i]);
                pins_add(&b->share, pages[i]);
        }
        assert_int_equal(release_pages(a, pages, SET_PAGES, 1, NULL), 0);
        assert_int_equal(count(a), SET_PAGES);
        for (unsigned i = 2; i < SET_PAGES; i++)
                atomic_store(&b->share.counters[pages[i]], 0);
        assert_int_equal(count(a), 2 * SET_PAGES - 2);
        assert_true_to_word(w, a);
}

/* Reservations of other tenants don't count, lent or not; one's own does. */
RECALL_SCENE(test_reservations, 8)
{
        struct member *ma;
        struct attach *a, *b;

        ma = join(w->f.a);
        a = open_ns(ma, "x");
        b = enter(w->f.b, "x");
        assert_int_equal(set_reserve(w, w->f.b, 3 * SET_BYTES), 0);
        assert_int_equal(count(a), 5 * SET_PAGES);
        assert_int_equal(count(b), 8 * SET_PAGES);
        w->f.b->attrs.lend_idle_reserve = ma->safepoints = true;
        region_changed(pool_of(w));
        assert_int_equal(
                region_admits(share_of(w, w->f.a), 8 * SET_BYTES, NULL), LEASE_REASON_NONE);
        assert_int_equal(count(a), 5 * SET_PAGES);
        w->f.b->attrs.lend_idle_reserve = ma->safepoints = false;
        region_changed(pool_of(w));
        assert_int_equal(grab_all(w, a), 5);
        assert_int_equal(count(a), 0);
        assert_int_equal(count(b), 3 * SET_PAGES);
        assert_true_to_word(w, b);
        w->f.b->attrs.burst = BURST_NONE;
        member_free(ma);
        assert_int_equal(count(b), 3 * SET_PAGES);
}

/* On the host page 0 takes a page of a set; on a GPU it is in a set beyond the budget. */
TEST(test_page_zero)
{
        struct ns_layout l = test_layout();
        uint32_t pages[2 * SET_PAGES];
        struct attach *a;
        struct member *m;
        struct world w;

        for (unsigned on_gpu = 0; on_gpu < 2; on_gpu++) {
                start(&w, 2);
                w.f.device.device.props.is_cpu_memory = !on_gpu;
                m = join(w.f.a);
                assert_int_equal(attach_open(m, "x", &l, "", true, &a, NULL), 0);
                assert_int_equal(count(a), 2 * SET_PAGES - !on_gpu);
                /* All pinned, in the last set as well. */
                publish_chain(a, 0, 2 * SET_PAGES - !on_gpu, pages);
                assert_int_equal(count(a), 0);
                assert_int_equal(release_pages(a, pages, 2 * SET_PAGES - !on_gpu, 1, NULL), 0);
                assert_int_equal(count(a), 2 * SET_PAGES - !on_gpu);
                assert_true_to_word(&w, a);
                member_free(m);
                fixture_end(&w.f);
        }
}

/* room_check() refuses leases that can never be served, not those that others' pages block now. */
RECALL_SCENE(test_never, 8)
{
        struct ns_layout l = test_layout();
        uint32_t pages[3 * SET_PAGES], all_pages[9 * SET_PAGES];
        struct member *ma;
        struct attach *a, *b, *larger;

        w->f.device.device.props.is_cpu_memory = true;
        set_limit(w, w->f.a, 3);
        ma = join(w->f.a);
        assert_int_equal(attach_open(ma, "x", &l, "", true, &a, NULL), 0);
        b = enter(w->f.b, "x");
        assert_int_equal(grab_all(w, b), 8);
        assert_int_equal(room_check(a->ns, 3 * SET_PAGES - 1, &w->f.d), 0);
        assert_int_equal(room_check(a->ns, 3 * SET_PAGES, &w->f.d), KVL_STATUS_QUOTA);
        assert_non_null(
                strstr(w->f.d.text, "24 pages of namespace x take 4 KiB (4 extent sets of"));
        assert_non_null(strstr(w->f.d.text, "the limit of 3 KiB of tenant a"));
        assert_non_null(strstr(w->f.d.text, "tenants set a limit=4KiB"));
        assert_null(strstr(w->f.d.text, "extent ="));
        /* A lease of as many is refused with the same sentence. */
        w->f.d.text[0] = 0;
        assert_int_equal(lease_pages(a, 3 * SET_PAGES, 1, pages, &w->f.d), KVL_STATUS_QUOTA);
        assert_non_null(strstr(w->f.d.text, "limit=4KiB"));
        pool_of(w)->extent_bytes = 2 * SET_BYTES;
        assert_int_equal(attach_open(ma, "y", &l, "", false, &larger, NULL), 0);
        set_limit(w, w->f.a, 1);
        assert_int_equal(room_check(larger->ns, 1, &w->f.d), KVL_STATUS_QUOTA);
        assert_non_null(strstr(w->f.d.text, "1 page of namespace y takes 2 KiB (1 extent set of"));
        assert_non_null(strstr(w->f.d.text, "or set extent = 1KiB or less in [device "));
        pool_of(w)->extent_bytes = SET_BYTES;
        /* By the device, and by what others have reserved of it. */
        set_limit(w, w->f.a, 100);
        assert_int_equal(room_check(a->ns, 8 * SET_PAGES - 1, &w->f.d), 0);
        assert_int_equal(room_check(a->ns, 8 * SET_PAGES, &w->f.d), KVL_STATUS_FULL);
        assert_non_null(strstr(w->f.d.text, "more than the 8 KiB that tenant a can have"));
        assert_int_equal(set_reserve(w, w->f.b, 3 * SET_BYTES), 0);
        assert_int_equal(room_check(a->ns, 5 * SET_PAGES - 1, &w->f.d), 0);
        assert_int_equal(room_check(a->ns, 5 * SET_PAGES, &w->f.d), KVL_STATUS_FULL);
        w->f.b->attrs.burst = BURST_NONE;
        assert_int_equal(room_check(b->ns, 3 * SET_PAGES, &w->f.d), 0);
        assert_int_equal(room_check(b->ns, 3 * SET_PAGES + 1, &w->f.d), KVL_STATUS_RESERVATION);
        assert_non_null(strstr(w->f.d.text, "the reservation of 3 KiB of tenant b"));
        assert_non_null(strstr(w->f.d.text, "reserve=4KiB"));
        assert_int_equal(room_check(b->ns, UINT32_MAX, &w->f.d), KVL_STATUS_QUOTA);
        assert_non_null(
                strstr(w->f.d.text, "lease fewer pages, or give the device a larger budget"));
        /* A lease beyond the device's budget ends with that text, for any obstacle. */
        w->f.d.text[0] = 0;
        assert_int_equal(lease_pages(a, 8 * SET_PAGES, 1, all_pages, &w->f.d), KVL_STATUS_FULL);
        assert_non_null(strstr(w->f.d.text, "more than the 5 KiB that tenant a can have"));
        set_limit(w, w->f.a, 8);
        w->f.d.text[0] = 0;
        assert_true(lease_pages(a, 9 * SET_PAGES, 1, all_pages, &w->f.d) > 0);
        assert_non_null(strstr(w->f.d.text, "and than the budget of 8 KiB of device"));
}

/* A round in small steps, of one namespace after the other; sets come and go meanwhile. */
RECALL_SCENE(test_rounds, 16)
{
        struct attach *a, *b;
        uint32_t pages[4 * SET_PAGES], budget, n_rounds = 0, n_steps = 0;
        struct member *m;

        m = join(w->f.a);
        a = open_ns(m, "x");
        b = open_ns(m, "y");
        for (unsigned i = 0; i < 4; i++)
                publish_chain(a, i * 100, SET_PAGES, pages + i * SET_PAGES);
        budget = 4 * SET_PAGES + 1;
        assert_int_equal(ns_count_pinned(a->ns, &budget), 4 * SET_PAGES);
        assert_int_equal(budget, 1);
        assert_int_equal(leasable_pages(a->ns), 16 * SET_PAGES); /* not looked at yet */
        while (n_rounds < 2) {
                budget = 3;
                n_rounds += leasables_look(&w->f.store, 1, &budget, false);
                assert_true(budget <= 3);
                n_steps++;
        }
        /* 4 sets of 8 pages in steps of 3, 12 unbound ones; 16 unbound ones. */
        assert_in_range(n_steps, 16, 32);
        assert_int_equal(atomic_load(&a->ns->shared.header->leasable), 12 * SET_PAGES + 1);
        assert_int_equal(atomic_load(&b->ns->shared.header->leasable), 12 * SET_PAGES + 1);
        budget = 20;
        assert_false(leasable_look(a->ns, &budget, false));
        assert_int_equal(budget, 0);
        assert_int_equal(release_pages(a, pages, 4 * SET_PAGES, 1, NULL), 0);
        budget = UINT32_MAX;
        assert_true(leasable_look(a->ns, &budget, false));
        assert_int_equal(count(a), 16 * SET_PAGES);
        budget = UINT32_MAX;
        assert_int_equal(leasables_look(&w->f.store, 2, &budget, false), 2);
        budget = 24; /* on an idle host a run of a free set counts as a page */
        assert_true(leasable_look(a->ns, &budget, true));
        attach_close(b);
}
