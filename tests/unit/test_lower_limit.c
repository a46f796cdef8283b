/* A tenant's limit that is lowered under what it has cached: how much goes at once, what goes when,
 * and what others see meanwhile. */
#include "daemon/core/cache/drop.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/reclaim/recall-work.h"
#include "tests/unit/recall-fixture.h"

#define BUDGET 8 /* page records a turn */

static void lower(struct world *w, unsigned n)
{
        struct tenant_attrs attrs = w->f.a->attrs;

        attrs.limit_bytes = n * SET_BYTES;
        assert_int_equal(tenant_set_attrs(w->f.a, &attrs, &w->f.d), 0);
        fixture_check(&w->f);
}

/* n sets of texts of one page each, which have nothing to do with each other. */
static void fill_sets(struct attach *a, unsigned first, unsigned n)
{
        for (unsigned i = 0; i < n * SET_PAGES; i++)
                cache_chain(a, first + i, 1);
}

static uint64_t charged(const struct world *w)
{
        return w->f.a->account.charged_bytes;
}

/* One turn: no more goes than its budget, and a page. */
static enum recall_next turn(struct world *w, struct attach *a)
{
        uint64_t before = ns_count_findable(a->ns);
        enum recall_next next = recall_work(&w->f.store, w->now_nsec, TIMEOUT, BUDGET);

        assert_true(before - ns_count_findable(a->ns) <= BUDGET + 1);
        fixture_check(&w->f);
        return next;
}

/* The first slice goes at once, the rest in turns; all of it without a word to clients, none of
 * whom has any of it. */
RECALL_SCENE(test_slices, 16)
{
        struct attach *a;
        unsigned n_turns = 1;

        w->f.store.drop_slice_pages = 2 * (SET_PAGES + 1);
        a = enter(w->f.a, "n");
        fill_sets(a, 0, 16);
        lower(w, 3);
        assert_int_equal(charged(w), 14 * SET_BYTES);
        assert_int_equal(ns_count_findable(a->ns), 14 * SET_PAGES);
        assert_int_equal(w->f.a->n_recalled, 11);
        assert_true(w->n_work > 0);
        while (turn(w, a) == RECALL_MORE)
                n_turns++;
        assert_true(n_turns >= 11 * SET_PAGES / (BUDGET + 1));
        assert_int_equal(charged(w), 3 * SET_BYTES);
        assert_int_equal(ns_count_findable(a->ns), 3 * SET_PAGES);
        assert_int_equal(w->f.a->n_recalled, 0);
        assert_int_equal(w->n_told, 0);
}

/* Nothing more is leased from the first moment, and no lease has to do the rest of it. */
RECALL_SCENE(test_lease_meanwhile, 16)
{
        struct attach *a, *other;
        uint32_t page;
        uint64_t before;

        w->f.store.drop_slice_pages = SET_PAGES + 1;
        a = enter(w->f.a, "n");
        fill_sets(a, 0, 12);
        lower(w, 4);
        before = ns_count_findable(a->ns);
        assert_int_equal(before, 11 * SET_PAGES);
        other = open_ns(a->member, "other");
        assert_int_equal(lease_pages(other, 1, 1, &page, NULL), KVL_STATUS_QUOTA);
        assert_int_equal(ns_count_findable(a->ns), before);
        fixture_check(&w->f);
        assert_int_equal(work_in_steps(w, BUDGET), RECALL_NOTHING);
        assert_int_equal(charged(w), 4 * SET_BYTES);
        /* Within its limit it gives way to itself again. */
        assert_int_equal(lease_pages(other, 1, 1, &page, NULL), 0);
        assert_int_equal(charged(w), 4 * SET_BYTES);
        assert_int_equal(ns_count_findable(a->ns), 3 * SET_PAGES);
}

/* Sets with few dependent pages are evicted before those with many, also in later turns. */
TEST_BARE(test_cheapest_first)
{
        struct attach *a, *held;
        uint32_t page;
        struct member *m;
        struct world w;

        start(&w, 8);
        w.f.store.drop_slice_pages = 1;
        m = join(w.f.a);
        held = open_ns(m, "held");
        publish_chain(held, 900, 1, &page);
        a = open_ns(m, "n");
        cache_chain(a, 0, 4 * SET_PAGES); /* over sets 0 to 3 */
        fill_sets(a, 500, 3);
        lower(&w, 5);
        assert_int_equal(charged(&w), 8 * SET_BYTES);
        assert_int_equal(work_in_steps(&w, BUDGET), RECALL_NOTHING);
        assert_int_equal(charged(&w), 5 * SET_BYTES);
        assert_int_equal(count_hits(a, 0, 4 * SET_PAGES), 4 * SET_PAGES);
        assert_int_equal(ns_page(held->ns, page)->state, PAGE_SEALED);
        assert_int_equal(w.n_told, 0);
        member_free(m);
        recall_end(&w);
}

/* More pages than are looked at in one turn: none is, nothing goes at once, and what was bound last
 * goes first. */
TEST_BARE(test_many_pages)
{
        struct attach *a;
        struct member *m;
        struct world w;

        start(&w, 20);
        w.f.store.drop_slice_pages = 1;
        m = join(w.f.a);
        a = open_ns(m, "n");
        for (unsigned i = 0; i < 20; i++)
                cache_chain(a, i * SET_PAGES, SET_PAGES);
        for (unsigned i = 0; i < 20; i++)
                a->ns->sets.at[i]->cost_bytes = i; /* of some earlier look, and wrong by now */
        lower(&w, 14);
        assert_int_equal(charged(&w), 20 * SET_BYTES);
        assert_int_equal(w.f.a->n_recalled, 6);
        for (unsigned i = 0; i < 20; i++) {
                assert_int_equal(a->ns->sets.at[i]->recall.state != RECALL_NONE, i >= 14);
                assert_int_equal(a->ns->sets.at[i]->cost_bytes, 0); /* not weighed yet */
        }
        assert_int_equal(work_in_steps(&w, BUDGET), RECALL_NOTHING);
        assert_int_equal(charged(&w), 14 * SET_BYTES);
        assert_int_equal(count_hits(a, 0, SET_PAGES), SET_PAGES);
        member_free(m);
        recall_end(&w);
}

/* Raised again in the middle: what is going goes, no more. Lowered again: as much more. */
RECALL_SCENE(test_again_meanwhile, 16)
{
        struct attach *a;

        w->f.store.drop_slice_pages = 1;
        a = enter(w->f.a, "n");
        fill_sets(a, 0, 12);
        lower(w, 8);
        assert_int_equal(w->f.a->n_recalled, 4);
        (void)turn(w, a);
        lower(w, 6);
        assert_int_equal(w->f.a->n_recalled + (12 * SET_BYTES - charged(w)) / SET_BYTES, 6);
        (void)turn(w, a);
        lower(w, 16);
        assert_int_equal(work_in_steps(w, BUDGET), RECALL_NOTHING);
        assert_int_equal(charged(w), 6 * SET_BYTES);
        fill_sets(a, 500, 10);
        assert_int_equal(charged(w), 16 * SET_BYTES);
}
