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

SCENE(test_free_lists)
{
        struct extent_set *set;

        set = list_first(&s->ns->device.sets_room, struct extent_set, room_link);
        assert_true(set->n_free > 1);
        BREAK(s, set->n_free, set->n_free - 1, "n_free");
        BREAK(s, set->free_head, PAGE_NONE, "n_free");
        BREAK(s, set->free_head, s->granted[0], "in a free list but not free");
        BREAK(s, set->free_head, 100000, "free list of another set");
        /* A cycle. */
        BREAK(s, page(s, set->free_head)->next, set->free_head, "that knows it not");
        BREAK(s, page(s, set->free_head)->prev, set->free_head, "that knows it not");
        BREAK(s, set->free_bits[0], 0, "that knows it not");
        BREAK(s, set->free_bits[0], UINT64_MAX, "pages are marked as free of");
        BREAK_STATE(s, set->free_head, PAGE_GRANTED, "in a free list but not free");
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

TEST(test_index)
{
        _Atomic uint64_t *slot = NULL;
        struct shm_line *line;
        struct state s;

        build(&s);
        BREAK(&s, page(&s, s.cached[1])->key[5], 1, "sealed but not in the index");
        BREAK(&s, s.ns->shared.n_indexed, 1, "slots used in the index of x");
        for (uint32_t i = 0; i < s.ns->shared.n_buckets; i++)
                for (unsigned n = 0; n < SHM_BUCKET_SLOTS; n++)
                        if (s.ns->shared.buckets[i].slots[n] == 0)
                                slot = &s.ns->shared.buckets[i].slots[n];
        BREAK(&s, *slot, shm_slot(0, s.granted[0]), "in the index but not sealed");
        BREAK(&s, *slot, UINT64_MAX, "in the index but not sealed");
        BREAK(&s, *slot, shm_slot(0, s.cached[0]), "slots used in the index of x");
        line = &s.ns->shared.lines[s.cached[0]];
        BREAK(&s, line->state, line->state + 256, "another state or generation");
        BREAK(&s, line->key[0], 77, "another key, epoch or number of tokens");
        BREAK(&s, line->epoch, 77, "another key, epoch or number of tokens");
        BREAK(&s, s.ns->shared.lines[s.granted[0]].state, PAGE_SEALED, "a state it isn't in");
        end(&s);
}

SCENE(test_watched_and_ready)
{
        uint32_t slot;

        assert_int_equal(attach_share(s->a, NULL), 0);
        assert_true(magazine_refill(s->a, 2, 1));
        assert_true(s->ns->clients.n_ready > 0);
        for (slot = 0; s->a->magazine->pages[slot] == 0; slot++)
                ;
        BREAK(s, s->ns->catalog.watched.n, 5, "count of watched pages");
        BREAK(s, s->ns->clients.n_ready, 5, "count of ready pages");
        BREAK(s, s->ns->catalog.watched.first, s->granted[0], "among the watched pages");
        BREAK(s, s->a->magazine->n_pages, 5, "not 5");
        BREAK(s, s->a->magazine->pages[slot], s->granted[0] + 1, "isn't ready");
        BREAK(s, page(s, s->cached[0])->reported, 1, "reported but not granted");
        BREAK(s, page(s, s->cached[0])->watched, 1, "watched");
        BREAK(s, page(s, s->cached[0])->unindexed, 1, "no slot");
}

static const char *blind_check(const void *policy)
{
        return "blind";
}

static const char *blind_check_node(const void *policy, uint32_t node)
{
        return node == 2 ? "blind" : NULL;
}

static const struct evict_ops blind = {.check = blind_check};
static const struct evict_ops blind_to_node = {.check_node = blind_check_node};

TEST(test_tree_and_policy)
{
        struct page_note *note;
        struct state s;
        uint32_t depth;

        build(&s);
        BREAK(&s, s.ns->tree.nodes[s.cached[1]].parent_1, s.granted[0] + 1, "parent isn't cached");
        BREAK(&s, s.ns->tree.nodes[s.cached[0]].first_child_1, 0, "among its parent's");
        BREAK(&s, s.ns->tree.nodes[s.cached[2]].prev_1, 0, "not in the tree");
        BREAK(&s, s.ns->tree.nodes[s.cached[2]].next_1, 1, "neighbouring siblings");
        note = ns_note(s.ns, s.cached[2]);
        depth = note->depth;
        note->depth = depth + 1;
        broken(&s, "one page deeper than its parent");
        note->depth = depth & 0x3fffffff;
        /* A finding of the policy's own check is passed on. */
        BREAK(&s, s.ns->evict, &blind, "eviction policy of namespace a/x: blind");
        BREAK(&s, s.ns->evict, &blind_to_node, "page 2 of namespace a/x: blind");
        end(&s);
}

SCENE(test_pins)
{
        uint32_t *count;

        BREAK(s, page(s, s->pinned[0])->n_pins, 2, "sum of its clients' pins");
        BREAK(s, page(s, s->cached[0])->n_pins, 1, "sum of its clients' pins");
        count = &s->a->pins.counts[s->pinned[1]];
        BREAK(s, *count, 2, "sum of its clients' pins");
        BREAK(s, *count, 0, "client 1 counts 5 pinned pages of namespace x, has 4");
        BREAK(s, s->m->n_pins, 1, "client 1 counts 1 pins");
        BREAK(s, s->a->pins.counts[60], 1, "client 1 pins page 60");
}

TEST(test_grants)
{
        struct grants *g;
        struct state s;

        build(&s);
        g = s.a->grants;
        BREAK(&s, g->head, s.cached[0], "among a group's grants but not granted");
        BREAK(&s, g->n_pages, 1, "n_pages (1) grants");
        BREAK(&s, g->head, PAGE_NONE, "n_pages (2) grants");
        BREAK(&s, page(&s, s.granted[0])->owner, 9, "group that isn't its owner");
        BREAK(&s, page(&s, g->head)->prev, 1, "neighbours among the grants");
        BREAK(&s, g->n_attach, 2, "attachments that share grants");
        end(&s);
}

SCENE(test_members)
{
        BREAK(s, s->f.a->n_members, 2, "number of clients of a");
        BREAK(s, s->f.store.n_members, 2, "number of clients of the daemon");
}

SCENE(test_sound_state)
{
        uint64_t n_pages, n_sets;

        assert_int_equal(store_check(&s->f.store, &n_pages, &n_sets, NULL), 0);
        assert_int_equal(n_sets, s->ns->device.n_sets);
        assert_int_equal(n_pages, n_sets * SET_PAGES);
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
