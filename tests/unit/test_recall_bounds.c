/* Recalls: deadlines, which sets and how many, and how much is done at a time. */
#include "daemon/core/life/leave.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/reclaim/room.h"
#include "daemon/core/reclaim/recall-work.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/recall-fixture.h"

static void set_limit(struct world *w, unsigned sets)
{
        struct tenant_attrs attrs = w->f.a->attrs;

        attrs.limit_bytes = sets * SET_BYTES;
        assert_int_equal(tenant_set_attrs(w->f.a, &attrs, NULL), 0);
        fixture_check(&w->f);
}

/* ---- deadlines ------------------------------------------------------------------------------ */

RECALL_SCENE(test_quarantine, 1)
{
        struct attach *a = enter(w->f.a, "n");
        uint32_t page, more;

        assert_int_equal(lease_pages(a, 1, 1, &page, NULL), 0);
        assert_int_equal(map_set(a, 0), 1);
        assert_int_equal(recall_sets(w->f.a, NULL, UINT64_MAX, 40 * MSEC), 1);
        assert_int_equal(work(w), RECALL_SOON);
        assert_told(w, 0, a, 0, false, 40 * MSEC);
        assert_int_equal(work_later(w, 40 * MSEC - 1), RECALL_SOON);
        assert_int_equal(w->n_late, 0);
        assert_int_equal(work_later(w, 1), RECALL_LATER);
        assert_int_equal(w->n_late, 1);
        assert_ptr_equal(w->late[0], a);
        assert_int_equal(a->member->n_quarantined_sets, 1);
        assert_int_equal(w->f.store.recalls.n_quarantined, 1);
        /* The set is bound and charged, and its pages can't be leased. */
        assert_int_equal(w->f.a->account.charged_bytes, SET_BYTES);
        assert_int_equal(lease_pages(a, 1, 1, &more, NULL), KVL_STATUS_FULL);
        assert_int_equal(work_later(w, 10 * TIMEOUT), RECALL_LATER);
        assert_int_equal(w->n_late, 1); /* told once */
        /* Idle at last: time to unmap it, and late again after that. */
        give_back(w, a, &page, 1);
        assert_int_equal(work(w), RECALL_LATER);
        assert_told(w, 1, a, 0, true, 40 * MSEC);
        assert_int_equal(work_later(w, 40 * MSEC - 1), RECALL_LATER);
        assert_int_equal(w->n_late, 1);
        assert_int_equal(work_later(w, 1), RECALL_WAITS);
        assert_int_equal(w->n_late, 2);
        assert_int_equal(a->member->n_quarantined_sets, 1);
        unmap_set(w, a, 0);
        assert_int_equal(a->member->n_quarantined_sets, 0);
        assert_int_equal(n_sets(w), 0);
        assert_int_equal(w->f.store.recalls.n_quarantined, 0);
        assert_int_equal(work(w), RECALL_NOTHING);
        assert_int_equal(lease_pages(a, 1, 1, &page, NULL), 0);
}

/* A limit that was lowered and raised again: what wasn't given back isn't to be had, and no lease
 * waits for it. */
RECALL_SCENE(test_quarantine_is_no_room, 4)
{
        uint32_t pages[2 * SET_PAGES];
        struct attach *a;

        set_limit(w, 2);
        a = enter(w->f.a, "n");
        assert_int_equal(lease_pages(a, 2 * SET_PAGES, 1, pages, NULL), 0);
        assert_int_equal(map_set(a, 0), 1);
        assert_int_equal(map_set(a, 1), 1);
        set_limit(w, 1);
        (void)work(w);
        set_limit(w, 2);
        assert_int_equal(room_check(a->ns, 2 * SET_PAGES, &w->f.d), 0);
        (void)work_later(w, TIMEOUT);
        assert_int_equal(a->member->n_quarantined_sets, 1);
        assert_int_equal(room_check(a->ns, SET_PAGES, &w->f.d), 0);
        assert_int_equal(room_check(a->ns, SET_PAGES + 1, &w->f.d), KVL_STATUS_QUOTA);
        assert_non_null(strstr(w->f.d.text, "while processes keep 1 KiB that they were told"));
        assert_non_null(strstr(w->f.d.text, "tenants set a limit=3KiB"));
        /* Below what is kept the other set is there all the same. */
        set_limit(w, 1);
        assert_int_equal(room_check(a->ns, SET_PAGES, &w->f.d), 0);
        set_limit(w, 3);
        assert_int_equal(room_check(a->ns, 2 * SET_PAGES, &w->f.d), 0);
}

RECALL_SCENE(test_quarantine_ends_with_its_client, 1)
{
        struct member *m;
        struct attach *a;

        m = join(w->f.a);
        a = open_ns(m, "n");
        cache_chain(a, 0, 1);
        assert_int_equal(map_set(a, 0), 1);
        assert_int_equal(recall_all(w), 1);
        assert_int_equal(work(w), RECALL_SOON);
        assert_int_equal(work_later(w, TIMEOUT), RECALL_WAITS);
        assert_int_equal(w->n_late, 1);
        assert_int_equal(m->n_quarantined_sets, 1);
        member_free(m);
        fixture_check(&w->f);
        assert_int_equal(n_sets(w), 0);
        assert_int_equal(work(w), RECALL_NOTHING);
}

/* ---- which, and how many -------------------------------------------------------------------- */

/* Four sets: 0 mapped and full, 1 mapped with one page in use, 2 unmapped and held, 3 mapped with
 * two. */
TEST(test_order)
{
        struct world w;
        struct member *m;
        struct attach *a;
        uint32_t pages[4 * SET_PAGES];
        struct extent_set **sets;

        start(&w, 4);
        m = join(w.f.a);
        a = open_ns(m, "n");
        assert_int_equal(lease_pages(a, 4 * SET_PAGES, 1, pages, NULL), 0);
        assert_int_equal(map_set(a, 0), 1);
        assert_int_equal(map_set(a, 1), 1);
        assert_int_equal(map_set(a, 3), 1);
        for (unsigned i = 0; i < ARRAY_SIZE(pages); i++)
                if ((pages[i] / SET_PAGES == 1 && pages[i] % SET_PAGES > 0) ||
                        (pages[i] / SET_PAGES == 3 && pages[i] % SET_PAGES > 1))
                        give_back(&w, a, &pages[i], 1);
        sets = a->ns->sets.at;
        assert_int_equal(recall_sets(w.f.a, NULL, 1, 0), 1);
        assert_int_equal(sets[2]->recall.state, RECALL_ASKED);
        assert_int_equal(recall_sets(w.f.a, NULL, SET_BYTES, 0), 1);
        assert_int_equal(sets[1]->recall.state, RECALL_ASKED);
        assert_int_equal(sets[3]->recall.state, RECALL_NONE);
        assert_int_equal(recall_sets(w.f.a, NULL, SET_BYTES + 1, 0), 2);
        assert_int_equal(sets[3]->recall.state, RECALL_ASKED);
        assert_int_equal(sets[0]->recall.state, RECALL_ASKED);
        assert_int_equal(work(&w), RECALL_SOON);
        assert_int_equal(w.n_told, 4);
        member_free(m);
        recall_end(&w);
}

TEST(test_without_memory_to_sort)
{
        struct world w;
        struct member *m;
        struct attach *a;

        start(&w, 4);
        m = join(w.f.a);
        a = open_ns(m, "n");
        cache_chain(a, 0, 3 * SET_PAGES);
        assert_int_equal(map_set(a, 0), 1);
        alloc_fail_at(1);
        assert_int_equal(recall_sets(w.f.a, NULL, SET_BYTES + 1, 0), 2);
        assert_true(alloc_fail_end());
        assert_int_equal(a->ns->sets.at[0]->recall.state, RECALL_ASKED);
        assert_int_equal(a->ns->sets.at[1]->recall.state, RECALL_ASKED);
        assert_int_equal(a->ns->sets.at[2]->recall.state, RECALL_NONE);
        fixture_check(&w.f);
        assert_int_equal(work(&w), RECALL_SOON);
        member_free(m);
        recall_end(&w);
}

RECALL_SCENE(test_limit_lowered, 6)
{
        struct attach *a = enter(w->f.a, "n");

        cache_chain(a, 0, 5 * SET_PAGES);
        for (uint32_t i = 0; i < 4; i++)
                assert_int_equal(map_set(a, i), 1);
        set_limit(w, 5);
        assert_int_equal(w->f.a->n_recalled, 0);
        /* The unmapped one goes at once; of the four one is too many. */
        set_limit(w, 3);
        assert_int_equal(n_sets(w), 4);
        assert_int_equal(w->f.a->n_recalled, 1);
        set_limit(w, 3);
        assert_int_equal(w->f.a->n_recalled, 1); /* it is on its way */
        set_limit(w, 2);
        assert_int_equal(w->f.a->n_recalled, 2);
        /* No way back. */
        set_limit(w, 6);
        assert_int_equal(w->f.a->n_recalled, 2);
        assert_int_equal(work(w), RECALL_SOON);
        assert_int_equal(w->n_told, 2);
        for (unsigned i = 0; i < 2; i++)
                unmap_set(w, a, w->told[i].set);
        assert_int_equal(n_sets(w), 2);
}

/* Tenants can be dropped with what is recalled of them. */
RECALL_SCENE(test_namespace_goes, 4)
{
        struct member *m;
        struct attach *a;

        m = join(w->f.a);
        a = open_ns(m, "n");
        cache_chain(a, 0, 2 * SET_PAGES);
        member_free(m);
        assert_int_equal(recall_all(w), 2);
        assert_int_equal(tenant_remove(w->f.a, true, NULL), 0);
        assert_int_equal(work(w), RECALL_NOTHING);
}

/* No step does more than its budget, however much there is; all is done in the end. */
TEST(test_bounded_steps)
{
        enum { N = 32, BUDGET = 40 };
        struct world w;
        struct member *m;
        struct attach *a;
        enum recall_next next;
        unsigned n_steps = 0;

        start(&w, N);
        m = join(w.f.a);
        a = open_ns(m, "n");
        for (unsigned i = 0; i < N * SET_PAGES / 64; i++)
                cache_chain(a, i * 64, 64);
        assert_int_equal(n_sets(&w), N);
        for (uint32_t i = 0; i < N; i += 2)
                assert_int_equal(map_set(a, i), 1);
        assert_int_equal(recall_all(&w), N);
        do {
                uint64_t evictions = w.f.store.counters.evictions;
                unsigned n_told = w.n_told;

                next = recall_work(&w.f.store, w.now_nsec, TIMEOUT, BUDGET);
                fixture_check(&w.f);
                assert_true(w.f.store.counters.evictions - evictions <= BUDGET);
                assert_true(w.n_told - n_told <= BUDGET / RECALL_TELL_COST + 1);
                n_steps++;
        } while (next == RECALL_MORE);
        assert_int_equal(next, RECALL_SOON);
        assert_true(n_steps >= N * SET_PAGES / BUDGET);
        assert_int_equal(w.f.store.counters.evictions, N * SET_PAGES);
        assert_int_equal(n_sets(&w), N / 2);
        assert_int_equal(w.n_told, N / 2);
        /* A round has an end where there is nothing to do. */
        recall_poll(&w.f.store);
        for (n_steps = 0; recall_work(&w.f.store, w.now_nsec, TIMEOUT, BUDGET) == RECALL_MORE;)
                assert_true(n_steps++ < N);
        member_free(m);
        recall_end(&w);
}

/* Records are looked at and there is nothing to drop. */
TEST(test_bounded_steps_held)
{
        enum { N = 16, BUDGET = 1 + SET_PAGES / 2 };
        uint32_t pages[N * SET_PAGES];
        struct world w;
        struct member *m;
        struct attach *a;
        unsigned n_steps = 1;

        start(&w, N);
        m = join(w.f.a);
        a = open_ns(m, "n");
        assert_int_equal(lease_pages(a, N * SET_PAGES, 1, pages, NULL), 0);
        assert_int_equal(recall_all(&w), N);
        while (recall_work(&w.f.store, w.now_nsec, TIMEOUT, BUDGET) == RECALL_MORE)
                n_steps++;
        /* A visit and half of the records, twice a set. */
        assert_int_equal(n_steps, 2 * N);
        assert_int_equal(w.n_told, N);
        member_free(m);
        recall_end(&w);
}

/* One set with a long chain below it, in sets that stay. */
TEST(test_bounded_steps_below)
{
        enum { N = 8, BUDGET = 10 };
        struct world w;
        struct member *m;
        struct attach *a;
        unsigned n_steps = 0;

        start(&w, N);
        m = join(w.f.a);
        a = open_ns(m, "n");
        cache_chain(a, 0, N * SET_PAGES);
        for (uint32_t i = 1; i < N; i++)
                assert_int_equal(map_set(a, i), 1);
        assert_int_equal(recall_sets(w.f.a, NULL, 1, 0), 1);
        for (enum recall_next next = RECALL_MORE; next == RECALL_MORE; n_steps++) {
                uint64_t evictions = w.f.store.counters.evictions;

                next = recall_work(&w.f.store, w.now_nsec, TIMEOUT, BUDGET);
                fixture_check(&w.f);
                assert_true(w.f.store.counters.evictions - evictions <= BUDGET);
        }
        assert_int_equal(w.f.store.counters.evictions, N * SET_PAGES);
        assert_true(n_steps >= N * SET_PAGES / BUDGET);
        assert_int_equal(n_sets(&w), N - 1);
        member_free(m);
        recall_end(&w);
}
