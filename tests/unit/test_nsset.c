/* Namespace sets in the daemon's state: what is evicted, dropped or incomplete goes in all of them.
 */
#include "base/clock.h"
#include "daemon/core/cache/expire.h"
#include "daemon/core/cache/history.h"
#include "daemon/core/cache/nsset.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/clients/announce.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/core.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/life/open.h"
#include "daemon/core/memory/tasks.h"
#include "daemon/core/reclaim/reclaim.h"
#include "daemon/core/requests/invalidate.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/core-fixture.h"

#define RANKS 3

struct world {
        struct fixture f;
        struct member *m;
        struct attach *ranks[RANKS];
        struct nsset *set;
        unsigned n_work;
};

static void note_work(void *data)
{
        container_of((struct fixture *)data, struct world, f)->n_work++;
}

static int open_rank(struct member *m, const char *name, const char *set, uint32_t size,
        struct attach **ret, struct detail *d)
{
        struct attach_options o = {.set = set, .set_size = size};
        struct ns_layout l = test_layout();

        return attach_open_with(m, name, &l, &o, ret, d);
}

static struct attach *open_in_set(struct member *m, const char *name)
{
        struct attach *a = NULL;

        assert_int_equal(open_rank(m, name, "model", RANKS, &a, NULL), 0);
        return a;
}

static void start_sized(struct world *w, unsigned sets)
{
        static const char *const names[RANKS] = {"rank0", "rank1", "rank2"};

        *w = (struct world){0};
        fixture_start(&w->f, sets, sets, sets);
        w->f.store.owner.on_work = note_work;
        w->m = join(w->f.a);
        for (int i = 0; i < RANKS; i++)
                w->ranks[i] = open_in_set(w->m, names[i]);
        w->set = w->ranks[0]->ns->catalog.set;
        assert_non_null(w->set);
}

static void start(struct world *w)
{
        start_sized(w, 16);
}

static void work(struct world *w)
{
        while (store_work(&w->f.store, 64))
                fixture_check(&w->f);
        fixture_check(&w->f);
}

static void end(struct world *w)
{
        member_free(w->m);
        work(w);
        fixture_end(&w->f);
}

#define SCENE_SIZED(fn, ...) TEST_ON(fn, struct world, w, start_sized, end, ##__VA_ARGS__)

#define SCENE(fn, ...) TEST_ON(fn, struct world, w, start, end, ##__VA_ARGS__)

/* In all ranks but those from `n_ranks` on. */
static void cache_in(struct world *w, unsigned n_ranks, unsigned first, unsigned n)
{
        for (unsigned i = 0; i < n_ranks; i++)
                cache_chain(w->ranks[i], first, n);
        fixture_check(&w->f);
}

/* 12 places: keys found in each rank, as digits. */
static void expect_hits(struct world *w, unsigned first, unsigned n, const char *digits)
{
        char found[RANKS + 1] = "";

        for (int i = 0; i < RANKS; i++)
                found[i] = (char)('0' + count_hits(w->ranks[i], first, n));
        assert_string_equal(found, digits);
}

static uint32_t page_of(const struct attach *a, unsigned number)
{
        uint8_t key[KEY_BYTES];

        make_keys(key, number, 1);
        return ns_find_page(a->ns, key);
}

/* ---- members --------------------------------------------------------------------------------- */

/* The first attachment sets the options. */
SCENE(test_opened_again)
{
        struct member *other;
        struct attach *a;

        other = join(w->f.a);
        assert_int_equal(open_rank(other, "rank0", NULL, 0, &a, &w->f.d), 0);
        assert_ptr_equal(a->ns->catalog.set, w->set);
        attach_close(a);
        assert_int_equal(open_rank(other, "rank0", "model", RANKS, &a, &w->f.d), 0);
        attach_close(a);
        assert_int_equal(open_rank(other, "rank0", "model", 2, &a, &w->f.d), -EINVAL);
        assert_int_equal(open_rank(other, "rank0", "other", RANKS, &a, &w->f.d), -EINVAL);
        assert_non_null(strstr(w->f.d.text, "in set model"));
        (void)open_ns(other, "alone");
        assert_int_equal(open_rank(w->m, "alone", "model", RANKS, &a, &w->f.d), -EINVAL);
        assert_non_null(strstr(w->f.d.text, "without a set"));
}

SCENE(test_expire_time_is_said)
{
        struct attach_options o = {.expire_nsec = 5 * NSEC_PER_SEC};
        struct ns_layout l = test_layout();
        struct member *other;
        struct attach *a;

        other = join(w->f.a);
        assert_int_equal(attach_open_with(other, "rank0", &l, &o, &a, NULL), 0);
        assert_int_equal(expire_nsec(a->ns), 5 * NSEC_PER_SEC);
        attach_close(a);
        assert_int_equal(open_rank(other, "rank0", NULL, 0, &a, NULL), 0);
        assert_int_equal(expire_nsec(a->ns), 5 * NSEC_PER_SEC);
        attach_close(a);
        member_set_read_only(other, true);
        o.expire_nsec = 1;
        assert_int_equal(attach_open_with(other, "rank0", &l, &o, &a, NULL), 0);
        assert_int_equal(expire_nsec(a->ns), 5 * NSEC_PER_SEC);
}

/* ---- drops ----------------------------------------------------------------------------------- */

/* A client that makes each rank another chain of the same keys: one drop goes through all of them,
 * and each round of work does no more than it may. */
SCENE(test_work_is_bounded)
{
        unsigned n_rounds = 0;

        for (unsigned i = 0; i < RANKS; i++)
                for (unsigned k = 0; k < 20; k++) {
                        uint8_t key[KEY_BYTES], parent[KEY_BYTES];
                        uint32_t page, got, n;
                        struct publish p = {
                                .pages = &page, .n = 1, .keys = key, .last_tokens = PAGE_TOKENS};

                        /* Chains that run in opposite directions. */
                        make_keys(key, i % 2 ? 19 - k : k, 1);
                        make_keys(parent, i % 2 ? 20 - k : k - 1, 1);
                        p.parent_key = k > 0 ? parent : NULL;
                        assert_int_equal(lease_pages(w->ranks[i], 1, 1, &page, NULL), 0);
                        assert_int_equal(publish_pages(w->ranks[i], &p, 1, &got, &n, NULL), 0);
                        assert_int_equal(release_pages(w->ranks[i], &got, 1, 1, NULL), 0);
                }
        assert_int_equal(w->set->n_complete, 20);
        assert_true(ns_evict_leaf(w->ranks[0]->ns, page_of(w->ranks[0], 19), NULL));
        w->f.store.drop_slice_pages = 4;
        while (nssets_work(&w->f.store, 4)) {
                (void)tasks_work(&w->f.store);
                fixture_check(&w->f);
                n_rounds++;
        }
        fixture_check(&w->f);
        /* 19 is the root of rank 1's chain: all of that goes, so do all of the others. */
        assert_int_equal(w->set->n_complete + w->set->n_incomplete, 0);
        assert_true(n_rounds >= (3 * 20 - 1) / 4 - 1);
}

static void pass_time(struct world *w, uint64_t nsec)
{
        store_set_now(&w->f.store, w->f.store.now_nsec + nsec);
}

SCENE(test_session_leaves_others_theirs)
{
        cache_in(w, RANKS, 0, 2);
        (void)ns_drop_subtree(w->ranks[0]->ns, page_of(w->ranks[0], 1),
                (struct drop_reason){.why = EVICT_INVALIDATE, .cause = CAUSE_SESSION});
        work(w);
        expect_hits(w, 0, 2, "122");
        assert_int_equal(w->set->n_incomplete, 1);
        /* However long, as their sessions may keep it, and until it is complete again. */
        assert_int_equal(nssets_deadline(&w->f.store), UINT64_MAX);
        pass_time(w, 2 * NSSET_GRACE_NSEC);
        work(w);
        expect_hits(w, 0, 2, "122");
        fixture_check(&w->f);
        (void)ns_drop_subtree(w->ranks[0]->ns, page_of(w->ranks[0], 0),
                (struct drop_reason){.why = EVICT_INVALIDATE, .cause = CAUSE_SESSION});
        cache_chain(w->ranks[0], 0, 2);
        expect_hits(w, 0, 2, "222");
        assert_int_equal(w->set->n_incomplete, 0);
        fixture_check(&w->f);
        /* Keys that are incomplete for another reason are dropped. */
        cache_in(w, RANKS - 1, 10, 1);
        pass_time(w, NSSET_GRACE_NSEC);
        work(w);
        expect_hits(w, 10, 1, "000");
}

/* ---- eviction -------------------------------------------------------------------------------- */

SCENE_SIZED(test_held_elsewhere, RANKS)
{
        uint32_t pages[SET_PAGES], held[4], n;
        uint8_t keys[4 * KEY_BYTES];
        uint64_t tokens;

        cache_in(w, RANKS, 0, 4);
        cache_in(w, RANKS, 10, 4);
        make_keys(keys, 0, 4);
        assert_int_equal(lookup_pages(w->ranks[1], &(struct lookup_request){keys, 4, 2}, held, &n,
                                 &tokens, NULL),
                0);
        /* The oldest in rank 0, but rank 1 reads them. */
        assert_int_equal(lease_pages(w->ranks[0], 2, 5, pages, &w->f.d), 0);
        work(w);
        expect_hits(w, 0, 4, "444");
        expect_hits(w, 10, 4, "222");
        assert_int_equal(lease_pages(w->ranks[0], 3, 5, pages + 2, &w->f.d), KVL_STATUS_FULL);
        assert_int_equal(release_pages(w->ranks[1], held, 4, 6, NULL), 0);
        assert_int_equal(lease_pages(w->ranks[0], 3, 7, pages + 2, &w->f.d), 0);
        work(w);
        assert_int_equal(free_pages(w->ranks[0], pages, 5, NULL), 0);
}

/* A set is taken as a whole only where nothing of it is held in another namespace. */
SCENE_SIZED(test_held_elsewhere_keeps_a_set, 16)
{
        uint32_t held[4], n;
        uint8_t keys[4 * KEY_BYTES];
        uint64_t tokens;

        cache_in(w, RANKS, 0, 4);
        make_keys(keys, 0, 4);
        assert_int_equal(lookup_pages(w->ranks[1], &(struct lookup_request){keys, 1, 2}, held, &n,
                                 &tokens, NULL),
                0);
        assert_false(reclaim_sets_of_tenant(w->f.a, TIER_DEVICE, NULL, 16 * SET_BYTES));
        work(w);
        assert_int_equal(count_hits(w->ranks[0], 0, 1), 1);
        assert_int_equal(release_pages(w->ranks[1], held, 1, 3, NULL), 0);
        assert_true(reclaim_sets_of_tenant(w->f.a, TIER_DEVICE, NULL, 16 * SET_BYTES));
        work(w);
        assert_int_equal(w->set->n_complete + w->set->n_incomplete, 0);
}

/* ---- incomplete keys ------------------------------------------------------------------------- */

SCENE(test_incomplete_and_held)
{
        uint32_t pages[2];

        publish_chain(w->ranks[0], 0, 2, pages);
        pass_time(w, NSSET_GRACE_NSEC);
        work(w);
        assert_int_equal(w->set->n_incomplete, 2);
        assert_int_equal(w->set->n_dropped, 0);
        assert_int_equal(release_pages(w->ranks[0], pages, 2, w->f.store.now_nsec, NULL), 0);
        work(w);
        expect_hits(w, 0, 2, "200");
        pass_time(w, NSSET_GRACE_NSEC);
        work(w);
        expect_hits(w, 0, 2, "000");
        assert_int_equal(w->set->n_dropped, 2);
}

/* ---- the checker ---------------------------------------------------------------------------- */

static void expect_broken(struct world *w, const char *why)
{
        uint64_t n_pages, n_sets;

        assert_int_equal(store_check(&w->f.store, &n_pages, &n_sets, &w->f.d), -EUCLEAN);
        if (!strstr(w->f.d.text, why))
                fail_msg("%s, not %s", w->f.d.text, why);
}

SCENE(test_checker)
{
        struct ns *ns;
        uint32_t page;

        cache_in(w, RANKS, 0, 2);
        cache_in(w, 1, 5, 1);
        ns = w->ranks[0]->ns;
        page = page_of(w->ranks[0], 0);
        w->set->n_complete++;
        expect_broken(w, "counts complete");
        w->set->n_complete--;
        w->set->n_members--;
        expect_broken(w, "counts its namespaces");
        w->set->n_members++;
        ns->catalog.set_place = 7;
        expect_broken(w, "in another place");
        ns->catalog.set_place = 0;
        nsset_gone(ns, page, (struct drop_reason){.why = EVICT_INVALIDATE}); /* which it isn't */
        expect_broken(w, "doesn't know a key");
        nsset_sealed(ns, page);
        nsset_sealed(w->ranks[1]->ns, page_of(w->ranks[1], 0));
        nsset_sealed(w->ranks[2]->ns, page_of(w->ranks[2], 0));
        fixture_check(&w->f);
        {
                uint8_t was = ns_page(ns, page_of(w->ranks[0], 5))->key[9];
                uint32_t at = page_of(w->ranks[0], 5);

                ns_page(ns, at)->key[9] = 99;
                nsset_sealed(ns, at); /* a key that no page has */
                ns_page(ns, at)->key[9] = was;
                expect_broken(w, "has keys that aren't cached");
                ns_page(ns, at)->key[9] = 99;
                nsset_gone(ns, at, (struct drop_reason){.why = EVICT_INVALIDATE});
                ns_page(ns, at)->key[9] = was;
        }
}
