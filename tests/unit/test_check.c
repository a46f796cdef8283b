/* Breaks a state on purpose, one thing at a time: the checker must see it and name the object. */
#include <sys/stat.h>

#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/requests/invalidate.h"
#include "daemon/core/requests/refill.h"
#include "tests/unit/core-fixture.h"

/* A page in every state: chain 0..3 pinned, 10..12 cached, one detached, two granted, one stale. */
struct state {
        struct fixture f;
        struct member *m;
        struct attach *a;
        struct ns *ns;
        uint32_t pinned[4], granted[2], detached, cached[3];
};

static void build(struct state *s)
{
        struct extent_handle handle;
        uint32_t room[2 * SET_PAGES];
        uint8_t key[KEY_BYTES];
        uint64_t n;

        fixture_start(&s->f, 8, 4, 4);
        s->m = join(s->f.a);
        s->a = open_ns(s->m, "x");
        s->ns = s->a->ns;
        /* Two mapped sets with room for all, so that no lease needs what is stale. */
        assert_int_equal(lease_pages(s->a, 2 * SET_PAGES, 1, room, NULL), 0);
        for (uint32_t i = 0; i < 2; i++)
                assert_int_equal(attach_map_set(s->a, i, 0, 1, &handle, NULL), 1);
        assert_int_equal(free_pages(s->a, room, 2 * SET_PAGES, NULL), 0);
        cache_chain(s->a, 50, 1);
        assert_int_equal(ns_invalidate(s->ns, CAUSE_NAMESPACE, &n), 0); /* one stale page */
        publish_chain(s->a, 0, 4, s->pinned);
        publish_chain(s->a, 10, 3, s->cached);
        assert_int_equal(release_pages(s->a, s->cached, 3, 1, NULL), 0);
        publish_chain(s->a, 20, 1, &s->detached);
        make_keys(key, 20, 1);
        assert_int_equal(invalidate_key(s->a, key, &n, NULL), 0);
        assert_int_equal(lease_pages(s->a, 2, 1, s->granted, NULL), 0);
        fixture_check(&s->f);
}

static struct page *page(struct state *s, uint32_t index)
{
        return ns_page(s->ns, index);
}

/* Slices of one look and of a few, in turn: so many of them at most. Returns how many. */
static unsigned go_on(struct checker *c, unsigned n_slices, int *ret_result)
{
        struct detail d = {""};
        unsigned n = 0;

        do
                *ret_result = checker_go_on(c, 1 + n % 4, &d);
        while (++n < n_slices && *ret_result == 1);
        return n;
}

static void broken_in_slices(struct state *s)
{
        struct checker *c = checker_new(&s->f.store);
        int r;

        assert_non_null(c);
        (void)go_on(c, UINT32_MAX, &r);
        assert_int_equal(r, -EUCLEAN);
        checker_free(c);
}

/* The checker's sentence contains `text`, and a check in slices finds the error, too. */
static void broken(struct state *s, const char *text)
{
        uint64_t n_pages = 77, n_sets = 77;
        struct detail d = {0};

        assert_int_equal(store_check(&s->f.store, &n_pages, &n_sets, &d), -EUCLEAN);
        assert_int_equal(n_pages, 77);
        if (!strstr(d.text, text))
                fail_msg("'%s' does not say '%s'", d.text, text);
        if (s->ns->evict->check_node)
                broken_in_slices(s);
}

static void end(struct state *s)
{
        fixture_check(&s->f); /* what was broken is mended */
        member_free(s->m);
        fixture_end(&s->f);
}

#define SCENE(fn, ...) TEST_ON(fn, struct state, s, build, end, ##__VA_ARGS__)

/* Sets a field to a wrong value, expects the sentence, puts the field back. */
#define BREAK(s, lvalue, wrong, text)                          \
        do {                                                   \
                __typeof__((lvalue) + 0) break_was = (lvalue); \
                (lvalue) = (wrong);                            \
                broken(s, text);                               \
                (lvalue) = break_was;                          \
        } while (0)

#define BREAK_STATE(s, index, wrong, text)                                      \
        do {                                                                    \
                struct page *break_page = page(s, index);                       \
                enum page_state break_was = (enum page_state)break_page->state; \
                page_turn(break_page, break_page->generation, (wrong));         \
                broken(s, text);                                                \
                page_turn(break_page, break_page->generation, break_was);       \
        } while (0)

SCENE(test_accounts)
{
        struct pool *pool;

        pool = s->ns->device.pool;
        BREAK(s, s->f.a->account.charged_bytes, 5, "tenant a: what is charged to an account");
        BREAK(s, pool->account.charged_bytes, 5, "charge of device of fake");
        BREAK(s, pool->n_sets, 9, "number of sets on device");
        BREAK(s, s->f.a->account.limit_bytes, 1, "tenant a: the limit of an account");
        BREAK(s, s->f.a->accounts[TIER_HOST].charged_bytes, 1, "tenant a: what is charged");
        BREAK(s, s->f.a->accounts[TIER_HOST].limit_bytes, 1, "tenant a: the limit");
        BREAK(s, s->f.a->accounts[TIER_DISK].limit_bytes, 1, "tenant a: the limit");
        BREAK(s, s->f.a->attrs.host_limit_bytes, 1, "tenant a: the limit");
        BREAK(s, s->ns->sets.at[0]->charge.bytes, 1, "set 0 of namespace a/x is charged");
        BREAK(s, s->ns->sets.at[0]->charge.tenant, &s->f.b->account, "isn't charged to its tenant");
        BREAK(s, pool->account.limit_bytes, 1, "over its budget");
}

SCENE(test_sets)
{
        struct extent_set *set;

        set = s->ns->sets.at[0];
        BREAK(s, s->ns->device.n_sets, 1, "number of bound sets of x");
        BREAK(s, set->n_mapped, 2, "mapped by 1 clients");
        BREAK(s, set->index, 1, "isn't in the slot");
        BREAK(s, set->n_usable, 3, "counts its pages wrong");
        list_append(&s->f.store.memory.idle_sets, &set->idle_link);
        broken(s, "weren't drained");
        list_remove(&set->idle_link);
        BREAK(s, set->extents[0]->bytes, 1, "lacks an extent");
        BREAK(s, s->m->n_mapped_sets, 3, "mapped sets");
}

TEST(test_page_states)
{
        struct state s;
        uint32_t free = 0;

        build(&s);
        while (ns_page(s.ns, free)->state != PAGE_FREE)
                free++;
        (void)ns_make_extra(s.ns, free);
        broken(&s, "is free, and more is known of it");
        ns_note(s.ns, free)->has_extra = 0;
        BREAK_STATE(&s, s.cached[2], PAGE_FREE, "tree but not cached");
        BREAK_STATE(&s, s.cached[2], PAGE_MOVING, "moving, but nothing is moved to it");
        BREAK_STATE(&s, s.cached[2], PAGE_RETIRING, "a state that doesn't exist");
        BREAK_STATE(&s, s.cached[2], PAGE_NULL, "only page 0");
        BREAK_STATE(&s, s.cached[2], PAGE_DETACHED, "detached and has no pin");
        BREAK_STATE(&s, s.detached, PAGE_GRANTED, "no pins");
        BREAK(&s, page(&s, s.cached[0])->mark, 1, "mark");
        BREAK(&s, page(&s, s.cached[0])->tokens, 0, "token count");
        BREAK(&s, s.ns->device.n_pages[PAGE_SEALED], 3, "counts 3 sealed pages, there are 8");
        BREAK(&s, s.ns->device.n_pinned, 1, "count of pinned pages");
        BREAK(&s, s.ns->catalog.n_stale, 0, "count of stale pages");
        end(&s);
}

/* All that a whole check finds is found, and things may change meanwhile. */
SCENE(test_slices)
{
        uint64_t n_pages, n_sets, whole_pages, whole_sets;
        struct attach *other, *late;
        uint32_t leased;
        struct checker *c;
        unsigned n;
        int r;

        other = open_ns(s->m, "y");
        assert_int_equal(store_check(&s->f.store, &whole_pages, &whole_sets, NULL), 0);
        c = checker_new(&s->f.store);
        assert_non_null(c);
        n = go_on(c, UINT32_MAX, &r);
        assert_int_equal(r, 0);
        assert_true(n > 2 * ARRAY_SIZE(s->pinned));
        checker_counts(c, &n_pages, &n_sets);
        assert_int_equal(n_pages, whole_pages);
        assert_int_equal(n_sets, whole_sets);
        checker_free(c);

        /* At each of them something may change, in what was looked at and what wasn't. */
        for (unsigned i = 0; i < n; i++) {
                c = checker_new(&s->f.store);
                assert_non_null(c);
                (void)go_on(c, i, &r);
                assert_int_equal(lease_pages(s->a, 1, 1, &leased, NULL), 0);
                cache_chain(s->a, 100 + i, 1);
                (void)go_on(c, 1, &r);
                assert_int_equal(free_pages(s->a, &leased, 1, NULL), 0);
                idle_sets_drain(&s->f.store);
                (void)go_on(c, UINT32_MAX, &r);
                assert_int_equal(r, 0);
                checker_free(c);
        }

        /* A defect is found even if it appears after the first slice. */
        c = checker_new(&s->f.store);
        (void)go_on(c, 1, &r);
        page(s, s->granted[1])->mark = 1;
        (void)go_on(c, UINT32_MAX, &r);
        assert_int_equal(r, -EUCLEAN);
        page(s, s->granted[1])->mark = 0;
        checker_free(c);

        /* A namespace goes while it is looked at, and one comes. */
        for (unsigned i = 0; i < n; i++) {
                c = checker_new(&s->f.store);
                (void)go_on(c, i, &r);
                other = other ? (attach_close(other), ns_free(ns_find(s->f.a, "y")), NULL) : NULL;
                late = open_ns(s->m, "z");
                (void)go_on(c, UINT32_MAX, &r);
                assert_int_equal(r, 0);
                checker_free(c);
                attach_close(late);
                ns_free(ns_find(s->f.a, "z"));
                other = open_ns(s->m, "y");
        }
}

/* The check doesn't touch untouched parts of an index: there may be many empty ones. */
CORE_SCENE(test_takes_no_memory, 256, 256, 0)
{
        struct stat before, after;
        struct attach *a = enter(f->a, "x");

        cache_chain(a, 0, 1);
        assert_int_equal(fstat(a->ns->shared.segment.fd, &before), 0);
        fixture_check(f);
        assert_int_equal(fstat(a->ns->shared.segment.fd, &after), 0);
        assert_true(before.st_blocks * 512 < before.st_size); /* else it shows nothing */
        assert_int_equal(after.st_blocks, before.st_blocks);
}
