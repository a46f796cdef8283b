/* The dynamic pool, shared by weight, and counts of evictions by tenant. */
#include "daemon/core/clients/attach.h"
#include "daemon/core/core.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/requests/refill.h"
#include "tests/unit/region-fixture.h"

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
        assert_int_equal(region_fair(stake_of(&w, w.f.b)), 9 * SET_BYTES);
        w.now_nsec += 2 * SEC;
        store_set_now(&w.f.store, w.now_nsec);
        assert_int_equal(region_fair(stake_of(&w, w.f.a)), 3 * SET_BYTES);
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
        assert_int_equal(region_fair(stake_of(w, w->f.b)), 2 * SET_BYTES);
        assert_int_equal(ask(w, a, 4 * SET_PAGES, pages, NULL), KVL_STATUS_FULL);
        assert_int_equal(ask(w, b, 1, pages, NULL), KVL_STATUS_FULL);
        assert_int_equal(ask(w, a, 2 * SET_PAGES, pages, NULL), 0);
        assert_int_equal(ask(w, b, 1, pages, NULL), 0); /* no tenant lacks a whole set any more */
}

/* A want counts at once, and for a second. */
RECALL_SCENE(test_wants_change_shares, 4)
{
        struct member *ma;
        struct attach *b;
        struct stake *of_a, *of_b;

        ma = join(w->f.a);
        (void)open_ns(ma, "x");
        b = enter(w->f.b, "x");
        of_a = stake_of(w, w->f.a);
        of_b = stake_of(w, w->f.b);
        assert_int_equal(grab_all(w, b), 4);
        w->now_nsec += 2 * SEC;
        store_set_now(&w->f.store, w->now_nsec);
        assert_int_equal(region_fair(of_b), 4 * SET_BYTES);
        assert_int_equal(region_fair(of_a), 0);
        region_note_want(of_a, SET_BYTES, SET_BYTES, w->now_nsec);
        assert_int_equal(region_fair(of_b), 2 * SET_BYTES);
        assert_int_equal(region_fair(of_a), 2 * SET_BYTES);
        store_set_now(&w->f.store, w->now_nsec + SEC - 1);
        assert_int_equal(region_fair(of_a), 2 * SET_BYTES);
        store_set_now(&w->f.store, w->now_nsec + SEC);
        assert_int_equal(region_fair(of_a), 0);
        assert_int_equal(region_fair(of_b), 4 * SET_BYTES);
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

/* Sets are only recalled as far as free memory isn't enough. */
RECALL_SCENE(test_recalls_what_is_missing, 8)
{
        uint32_t pages[2 * SET_PAGES];
        struct member *ma;
        struct attach *a, *b;

        ma = join(w->f.a);
        ma->safepoints = true;
        a = open_ns(ma, "x");
        b = enter(w->f.b, "x");
        cache_sets(a, 0, 7);
        map_all(a);
        assert_int_equal(ask(w, b, 2 * SET_PAGES, pages, NULL), KVL_STATUS_FULL);
        assert_int_equal(w->f.store.recalls.n, 1);
        work(w);
        keep_safe_point(w);
        assert_int_equal(ask(w, b, 2 * SET_PAGES, pages, NULL), 0);
        assert_int_equal(w->f.a->account.charged_bytes, 6 * SET_BYTES);
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

/* The mapped set without held pages is recalled. */
TEST(test_soft_recall_prefers_what_is_not_held)
{
        uint32_t pages[3], page;
        struct member *ma, *mb;
        struct attach *a, *b;
        unsigned key = 0;
        struct world w;

        start(&w, 3);
        ma = join(w.f.a);
        mb = join(w.f.b);
        ma->safepoints = true;
        a = open_ns(ma, "x");
        b = open_ns(mb, "x");
        for (unsigned i = 0; i < 3; i++) {
                assert_int_equal(ask(&w, a, 1, &pages[i], NULL), 0);
                for (unsigned k = 1; k < SET_PAGES; k++)
                        assert_int_equal(use_one(&w, a, key++), 0);
        }
        map_all(a);
        give_back(&w, a, &pages[0], 1);
        assert_int_equal(use_one(&w, a, key++), 0); /* as much in use as the others */
        assert_int_equal(ask(&w, b, 1, &page, NULL), KVL_STATUS_FULL);
        assert_int_equal(w.f.store.recalls.n, 1);
        assert_int_not_equal(a->ns->sets.at[pages[0] / SET_PAGES]->recall.state, RECALL_NONE);
        work(&w);
        assert_int_equal(w.n_told, 1);
        keep_safe_point(&w);
        assert_int_equal(ask(&w, b, 1, &page, NULL), 0);
        member_free(ma);
        member_free(mb);
        recall_end(&w);
}

/* ---- evictions by tenant --------------------------------------------------------------------- */

static const struct blame *blame_by(const struct tenant *victim, const char *by)
{
        list_for_each (b, &victim->blames, struct blame, link)
                if (strcmp(b->by, by) == 0)
                        return b;
        return NULL;
}

RECALL_SCENE(test_blame, 4)
{
        struct member *mb;
        struct attach *a, *b;
        unsigned key = 1000;
        uint32_t page;

        mb = join(w->f.b);
        a = enter(w->f.a, "x");
        b = open_ns(mb, "x");
        cache_sets(a, 0, 4);
        assert_int_equal(use_one(w, a, key++), 0);
        assert_int_equal(blame_by(w->f.a, "a")->pages, 1);
        assert_int_equal(ask(w, b, 1, &page, NULL), 0);
        assert_int_equal(blame_by(w->f.a, "b")->sets, 1);
        assert_in_range(blame_by(w->f.a, "b")->pages, SET_PAGES - 1, SET_PAGES);
        assert_int_equal(blame_by(w->f.a, "a")->pages, 1);
        assert_int_equal(w->f.a->counters.evictions, 1 + blame_by(w->f.a, "b")->pages);
        /* By a recall: when it is purged. */
        a->member->safepoints = true;
        map_all(a);
        for (unsigned i = 1; i < SET_PAGES; i++)
                assert_int_equal(ask(w, b, 1, &page, NULL), 0);
        assert_int_equal(ask(w, b, 1, &page, NULL), KVL_STATUS_FULL);
        assert_int_equal(blame_by(w->f.a, "b")->sets, 2);
        work(w);
        assert_in_range(blame_by(w->f.a, "b")->pages, 2 * SET_PAGES - 2, 2 * SET_PAGES);
        /* The tenant of the lease was removed by then, so no tenant is named. */
        member_free(mb);
        assert_int_equal(tenant_remove(w->f.b, true, NULL), 0);
        work(w);
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
