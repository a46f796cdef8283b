/* How many pages leases would get: daemon/core/reclaim/leasable.h. */
#include "daemon/core/cache/pages.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/reclaim/room.h"
#include "daemon/core/state/shared.h"
#include "daemon/core/reclaim/leasable.h"
#include "tests/unit/region-fixture.h"

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

RECALL_SCENE(test_limit, 8)
{
        uint32_t pages[4 * SET_PAGES], page;
        enum lease_reason reason;
        struct attach *a;

        set_limit(w, w->f.a, 4);
        a = enter(w->f.a, "x");
        assert_int_equal(atomic_load(&a->ns->shared.header->leasable), 0); /* not computed yet */
        assert_int_equal(count(a), 4 * SET_PAGES);
        assert_true_to_word(w, a);
        assert_int_equal(ask(w, a, 3, pages, NULL), 0);
        assert_int_equal(count(a), 4 * SET_PAGES - 3);
        assert_int_equal(ask(w, a, 4 * SET_PAGES - 3, pages + 3, NULL), 0);
        assert_int_equal(count(a), 0);
        assert_int_equal(ask(w, a, 1, &page, &reason), KVL_STATUS_QUOTA);
        w->f.store.draining = true;
        assert_int_equal(free_pages(a, pages, 4 * SET_PAGES, NULL), 0);
        assert_int_equal(count(a), 0);
        w->f.store.draining = false;
        assert_int_equal(count(a), 4 * SET_PAGES);
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
                region_admits(stake_of(w, w->f.a), 8 * SET_BYTES, NULL), LEASE_REASON_NONE);
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

/* Memory that another tenant holds isn't among it, though some would be given by fair share. */
RECALL_SCENE(test_others_hold_it, 8)
{
        struct attach *a = enter(w->f.a, "x");
        struct attach *b = enter(w->f.b, "x");

        cache_sets(a, 0, 7);
        assert_int_equal(count(b), SET_PAGES);
        assert_int_equal(count(a), 8 * SET_PAGES);
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
