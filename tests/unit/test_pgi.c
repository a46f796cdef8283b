/* PGI's rules, by small texts. That it keeps every policy's promises: test_evict.c. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "policy/evict.h"
#include "policy/pgi-class.h"
#include "policy/pgi-table.h"
#include "policy/pgi.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/fresh-tree.h"
#include "tests/unit/pgi-fixture.h"
#include "tests/unit/test-support.h"

PGI_SCENE(test_class_of_a_page, 0)
{
        ask(c, IDS(1, 2, 3, 4, 5, 6), 100);
        assert_int_equal(look(c, 6).class, PGI_PARTIAL);
        /* 3072 tokens in all, 2660 of them new */
        assert_int_equal(look(c, 5).class, pgi_body_class(PGI_HINT_NONE, 1, 1, 1));
        assert_int_equal(look(c, 1).class, look(c, 5).class);
        ask(c, IDS(1, 2, 3, 7, 8), PAGE_TOKENS);
        assert_int_equal(look(c, 3).kids, 2);
        assert_int_equal(look(c, 3).class, pgi_shared_class(2));
        assert_int_equal(look(c, 2).class, pgi_body_class(PGI_HINT_NONE, 1, 1, 0));
        assert_int_equal(look(c, 8).class, look(c, 2).class); /* full: no partial tail */
        assert_int_equal(look(c, 5).class, pgi_body_class(PGI_HINT_NONE, 1, 1, 1));
        ask(c, IDS(1, 2, 3), PAGE_TOKENS);
        ask(c, IDS(1, 2, 3), PAGE_TOKENS);
        assert_int_equal(look(c, 3).class, pgi_shared_class(4));
        ask(c, IDS(1, 2, 3, 4, 5, 6), 100);
        assert_int_equal(look(c, 6).class, PGI_PARTIAL);
}

/* The text of an earlier request, but for its partial tail, is a known prefix. */
PGI_SCENE(test_continuations, 0)
{
        ask(c, IDS(1, 2, 3), 100);
        assert_int_equal(look(c, 2).turn, 1);
        assert_int_equal(look(c, 1).turn, 0);
        ask(c, IDS(1, 4, 5), 100); /* begins alike, continues nothing */
        assert_int_equal(look(c, 4).turn, 1);
        ask(c, IDS(1, 2, 6, 7, 8), 100);
        assert_int_equal(look(c, 7).turn, 2);
        assert_int_equal(look(c, 6).class, pgi_body_class(PGI_HINT_NONE, 2, 1, 0));
        /* All of it evicted: known just as well. Cached or not, the oldest turn that counts is the
         * deepest. */
        evict_all(c);
        assert_int_equal(ask(c, IDS(1, 2, 6, 7, 9), PAGE_TOKENS), 0);
        assert_int_equal(look(c, 9).turn, 3);
        assert_int_equal(look(c, 9).class, pgi_body_class(PGI_HINT_NONE, 3, 1, 0));
        ask(c, IDS(1, 2, 10), PAGE_TOKENS); /* another answer to the first turn */
        assert_int_equal(look(c, 10).turn, 2);
        for (uint32_t i = 0; i < 9; i++) /* the same text, again and again */
                ask(c, IDS(1, 2, 10), PAGE_TOKENS);
        assert_int_equal(look(c, 10).turn, PGI_TURNS);
        assert_int_equal(look(c, 1).kids, 2);
        assert_int_equal(look(c, 6).kids, 1);
        evict_all(c); /* what comes again is no other continuation, and no fewer */
        ask(c, IDS(1, 2, 6, 7, 9), PAGE_TOKENS);
        assert_int_equal(look(c, 1).kids, 2);
        assert_int_equal(look(c, 6).kids, 1);
        ask(c, IDS(11), 100); /* nothing but a partial tail */
        assert_int_equal(look(c, 11).turn, 1);
}

static void hint(struct cache *c, uint32_t id, enum evict_hint h, uint64_t after)
{
        ops->hint(c->pgi, node_of(c, id), h, after, c->now);
        assert_null(ops->check(c->pgi));
}

PGI_SCENE(test_hints, 0)
{
        start(c, IDS(1, 2, 3), 100); /* before the end */
        hint(c, 3, EVICT_HINT_CONTINUES, 0);
        end(c);
        assert_int_equal(look(c, 2).class, pgi_body_class(PGI_HINT_CONTINUES, 1, 0, 0));
        assert_int_equal(look(c, 3).class, PGI_PARTIAL);
        c->now += 20 * SECOND;
        ask(c, IDS(1, 2, 4, 5, 6), 100); /* what was said has happened */
        assert_int_equal(look(c, 4).class, pgi_body_class(PGI_HINT_NONE, 2, 1, 0));
        assert_int_equal(look(c, 1).class, look(c, 4).class);
        hint(c, 6, EVICT_HINT_DONE, 0); /* after the end, and changed */
        assert_int_equal(look(c, 4).class, pgi_body_class(PGI_HINT_DONE, 2, 1, 0));
        assert_int_equal(look(c, 2).class, pgi_shared_class(2));
        hint(c, 6, EVICT_HINT_RETURNS, 10 * SECOND);
        assert_int_equal(look(c, 4).class, PGI_RETURNS + 1);
        hint(c, 6, EVICT_HINT_UNKNOWN, 0);
        assert_int_equal(look(c, 4).class, pgi_body_class(PGI_HINT_NONE, 2, 1, 0));
        /* A hint says nothing of pages that a later request has used. */
        c->now += 20 * SECOND;
        ask(c, IDS(1, 2, 4, 7), PAGE_TOKENS);
        hint(c, 6, EVICT_HINT_DONE, 0);
        assert_int_equal(look(c, 5).class, pgi_body_class(PGI_HINT_DONE, 2, 1, 0));
        assert_int_equal(look(c, 1).class, pgi_body_class(PGI_HINT_NONE, 2, 0, 0));
}

PGI_SCENE(test_a_request_uses_a_page_once, 0)
{
        uint64_t before;

        ask(c, IDS(1, 2, 3, 4), PAGE_TOKENS);
        c->now += 20 * SECOND;
        start(c, IDS(1, 2), PAGE_TOKENS);
        before = look(c, 1).n_events;
        c->now += 20 * SECOND;
        for (int i = 0; i < 5; i++)
                ops->touch(c->pgi, node_of(c, 2), c->request, c->now);
        assert_int_equal(look(c, 1).n_events, before);
        ops->touch(c->pgi, node_of(c, 3), c->request, c->now); /* and what it finds further on */
        assert_int_equal(look(c, 1).n_events, before + 2);     /* 3, and 1, which was left */
        end(c);
        assert_int_equal(look(c, 1).n_events, before + 2);
        ops->touch(c->pgi, node_of(c, 2), 0, c->now); /* of no request: each is one */
        ops->touch(c->pgi, node_of(c, 2), 0, c->now);
        assert_int_equal(look(c, 1).n_events, before + 6);
}

/* The page has moved meanwhile, and belongs to another text than the published one. */
PGI_SCENE(test_what_is_above_is_found_again, 0)
{
        uint64_t before;

        ask(c, IDS(1, 2, 3), PAGE_TOKENS);
        c->now += 20 * SECOND;
        before = look(c, 1).n_events;
        c->request++;
        ops->touch(c->pgi, node_of(c, 3), c->request, c->now);
        tree_move(&c->tree, node_of(c, 3), N_NODES - 1);
        ops->move(c->pgi, node_of(c, 3), N_NODES - 1);
        c->node_1[3] = N_NODES;
        publish(c, 9, NODE_NONE, PAGE_TOKENS);
        end(c);
        assert_int_equal(look(c, 1).n_events, before + 3);
        assert_int_equal(look(c, 9).class, pgi_body_class(PGI_HINT_NONE, 2, 0, 0));
}

static void make_room(struct cache *c, uint32_t n)
{
        while (c->n_free < n)
                evict(c, ops->victim(c->pgi, 0, EVICT_DROP, c->now));
}

/*
 * Each second a text of two full pages and a partial one begins. A third of those since evict_all()
 * is continued after 30 s; a client says which. right: what it says is true; otherwise the
 * opposite.
 */
static void run_sessions(struct cache *c, uint32_t seconds, bool hints, bool right)
{
        for (; seconds > 0; seconds--) {
                uint32_t n = c->n_sessions++, id = 8 + n % (N_IDS / 8 - 2) * 8, old = id - 30 * 8;

                c->last_id = id;
                make_room(c, 8);
                start(c, (const uint32_t[]){id, id + 1, id + 2}, 3, 100);
                if (hints)
                        hint(c, id + 2,
                                (n % 3 == 0) == right ? EVICT_HINT_CONTINUES : EVICT_HINT_DONE, 0);
                end(c);
                make_room(c, 8);
                if (n >= c->first_session + 30 && n % 3 == 0)
                        ask(c, (const uint32_t[]){old, old + 1, old + 3, old + 4}, 4, 100);
                c->now += SECOND;
        }
}

/* Partial tails, which are never requested again, are evicted before older pages that may be. */
PGI_SCENE(test_learns_what_is_worth_least, 0)
{
        uint32_t node;

        run_sessions(c, 1000, false, false);
        evict_all(c);
        run_sessions(c, 20, false, false);
        for (uint32_t i = 0; i < 20; i++) {
                struct pgi_view view;

                node = ops->victim(c->pgi, 0, EVICT_DROP, c->now);
                pgi_look(c->pgi, node, &view);
                assert_true(view.ready && !view.behind);
                assert_int_equal(view.class, PGI_PARTIAL);
                evict(c, node);
        }
        /* Then the youngest: the others are nearer to when they may be used. */
        node = ops->victim(c->pgi, 0, EVICT_DROP, c->now);
        assert_in_range(c->id_of[node], c->last_id - 2 * 8, c->last_id + 1);
}

/* Hints count by what came of those before, not by what they say: all wrong is as good as right. */
static void expect_hints_learnt(bool right)
{
        struct cache c;
        uint32_t n_first = 0, first = right ? PGI_DONE : PGI_CONTINUES, node;

        cache_init(&c, 0);
        run_sessions(&c, 2000, true, right);
        evict_all(&c);
        run_sessions(&c, 30, true, right);
        for (uint32_t i = 0; i < 30 + 2 * 20; i++) { /* the tails, and what isn't continued */
                struct pgi_view view;

                node = ops->victim(c.pgi, 0, EVICT_DROP, c.now);
                pgi_look(c.pgi, node, &view);
                n_first += view.class >= first &&
                           view.class < first + PGI_TURNS_HINTED * PGI_LENGTHS * PGI_FRESHES;
                evict(&c, node);
        }
        assert_true(n_first >= 38);
        cache_deinit(&c);
}

TEST(test_hints_are_learnt)
{
        expect_hints_learnt(true);
        expect_hints_learnt(false);
}

/* Intervals of age are a tenth wide, or a second. */
static void expect_about_the_oldest(const struct cache *c, uint32_t victim)
{
        uint64_t oldest = c->now;

        for (uint32_t i = 0; i < N_NODES; i++)
                if (tree_has(&c->tree, i) && tree_is_leaf(&c->tree, i) && c->used_at[i] < oldest)
                        oldest = c->used_at[i];
        assert_true(c->used_at[victim] - oldest <= 2 * SECOND + (c->now - oldest) / 8);
}

/* Each second a text; of each other one a client says that it continues, of the rest that they are
 * done. One of the two kinds comes again after `delay` seconds, the other never. */
static void run_texts(struct cache *c, uint32_t seconds, bool done_come_again, uint32_t delay)
{
        for (; seconds > 0; seconds--) {
                uint32_t n = c->n_sessions++, id = 8 + n % (N_IDS / 8 - 2) * 8;
                uint32_t old = id - delay * 8;

                make_room(c, 3);
                start(c, (const uint32_t[]){id, id + 1, id + 2}, 3, PAGE_TOKENS);
                hint(c, id + 2, n % 2 ? EVICT_HINT_DONE : EVICT_HINT_CONTINUES, 0);
                end(c);
                make_room(c, 3);
                if (n >= c->first_session + delay && (n - delay) % 2 == done_come_again)
                        ask(c, (const uint32_t[]){old, old + 1, old + 2}, 3, PAGE_TOKENS);
                c->now += SECOND;
        }
}

/* The youngest page, whose window has passed. */
static void expect_passed_first(struct cache *c)
{
        uint32_t node = c->free[c->n_free - 1];

        tree_insert(&c->tree, node, NODE_NONE);
        ops->insert(c->pgi, node,
                &(struct evict_insert){
                        .id = N_IDS, .tokens = PAGE_TOKENS, .depth = 1, .window_passed = true},
                c->now);
        ops->idle(c->pgi, node, c->now);
        assert_int_equal(ops->victim(c->pgi, 0, EVICT_DROP, c->now), node);
        ops->remove(c->pgi, node, EVICT_INVALIDATE);
        tree_remove(&c->tree, node);
}

/* A text of three pages of its own, whose request ends so. Returns its first id. */
static uint32_t text_ending(struct cache *c, uint32_t ending)
{
        uint32_t first = c->last_id + 1;

        c->last_id += 3;
        make_room(c, 8);
        start(c, IDS(first, first + 1, first + 2), PAGE_TOKENS);
        ops->ending(c->pgi, c->request, ending);
        end(c);
        return first;
}

/* Texts with the ending 7 are used again after 5 s, those with 8 never. Of other endings
 * nothing is known. */
PGI_SCENE(test_endings_make_hints, 0)
{
        uint32_t soon = 0, late, unknown;

        for (uint32_t s = 0; s < 600; s++) {
                soon = text_ending(c, 7);
                (void)text_ending(c, 8);
                c->now += 5 * SECOND;
                ask(c, IDS(soon, soon + 1, soon + 2), PAGE_TOKENS);
        }
        soon = text_ending(c, 7);
        late = text_ending(c, 8);
        unknown = text_ending(c, 0);
        assert_in_range(look(c, soon).class, PGI_CONTINUES, PGI_DONE - 1);
        assert_in_range(look(c, late + 2).class, PGI_DONE, PGI_RETURNS - 1);
        assert_in_range(look(c, unknown).class, PGI_BODY, PGI_CONTINUES - 1);
        assert_in_range(look(c, text_ending(c, 9)).class, PGI_BODY, PGI_CONTINUES - 1);

        /* A client's hint counts, unless it only says that the text continues. */
        start(c, IDS(N_IDS - 3, N_IDS - 2), PAGE_TOKENS);
        ops->ending(c->pgi, c->request, 8);
        ops->hint(c->pgi, node_of(c, N_IDS - 2), EVICT_HINT_RETURNS, SECOND, c->now);
        end(c);
        assert_int_equal(look(c, N_IDS - 3).class, PGI_RETURNS);
        start(c, IDS(N_IDS - 5, N_IDS - 4), PAGE_TOKENS);
        ops->ending(c->pgi, c->request, 8);
        ops->hint(c->pgi, node_of(c, N_IDS - 4), EVICT_HINT_CONTINUES, 0, c->now);
        end(c);
        assert_in_range(look(c, N_IDS - 5).class, PGI_BODY, PGI_CONTINUES - 1);

        /* The policy remembers endings longer than pages. */
        evict_all(c);
        assert_int_equal(ops->reset(c->pgi), 0);
        assert_in_range(look(c, text_ending(c, 7)).class, PGI_CONTINUES, PGI_DONE - 1);
}

/*
 * Pages that PGI learnt to keep for minutes don't come again, and fill the cache. Pages that it
 * learnt to drop come again in seconds. LRU hits all of these, so PGI evicts like LRU until its
 * tables know better.
 */
PGI_SCENE(test_falls_back, 0)
{
        const uint32_t room = 80;
        struct pgi_view view;
        uint32_t n_behind = 0, victim;

        run_texts(c, 4000, false, 300);
        evict_all(c);
        c->n_free = room;
        for (uint32_t s = 0; s < 2000; s++) {
                run_texts(c, 1, true, 10);
                victim = ops->victim(c->pgi, 0, EVICT_DROP, c->now);
                pgi_look(c->pgi, victim, &view);
                n_behind += view.behind;
                if (view.behind) {
                        expect_about_the_oldest(c, victim);
                        expect_passed_first(c);
                }
        }
        assert_true(n_behind > 1000);
}

TEST(test_saved_and_loaded)
{
        struct cache c, d;
        size_t size;
        uint8_t *buf;

        cache_init(&c, 0);
        cache_init(&d, 0);
        run_sessions(&c, 300, false, false);
        ask(&c, IDS(1), PAGE_TOKENS);
        ask(&d, IDS(1), PAGE_TOKENS);
        size = ops->save(c.pgi, NULL, 0);
        buf = malloc(size);
        assert_non_null(buf);
        assert_int_equal(ops->save(c.pgi, buf, size), size);
        buf[20] ^= 1;
        assert_int_equal(ops->load(d.pgi, buf, size), -EINVAL);
        assert_false(look(&d, 1).ready);
        buf[20] ^= 1;
        assert_int_equal(ops->load(d.pgi, buf, size), 0);
        assert_true(look(&d, 1).ready);
        assert_int_equal(look(&d, 1).n_events, look(&c, 1).n_events);
        assert_null(ops->check(d.pgi));
        free(buf);
        cache_deinit(&c);
        cache_deinit(&d);
}

TEST(test_ghosts_and_memory_are_bounded)
{
        const uint32_t max_ghosts = 1000;
        struct evict_usage usage;
        struct cache c;

        cache_init(&c, max_ghosts);
        run_sessions(&c, 5000, false, false); /* 17,000 pages; requests that end, and that don't */
        for (uint32_t i = 0; i < 3000; i++) {
                make_room(&c, 2);
                start(&c, (const uint32_t[]){100000 + i}, 1, PAGE_TOKENS);
        }
        assert_in_range(look(&c, 100000 + 2999).n_ghosts, max_ghosts * 3 / 4, max_ghosts);
        assert_in_range(ops->memory_bytes(c.pgi), 1, N_NODES * 32 + max_ghosts * 16 + 500000);
        evict_usage(ops, c.pgi, &usage);
        assert_int_equal(usage.ghosts, look(&c, 100000 + 2999).n_ghosts);
        /* 125 sets of 8, after 64 of them; both while they grow. */
        assert_int_equal(usage.ghost_bytes, max_ghosts * 16);
        assert_int_equal(usage.ghost_limit_bytes, (125 + 64) * 8 * 16);
        assert_int_equal(
                usage.page_bytes + usage.ghost_bytes + usage.table_bytes, ops->memory_bytes(c.pgi));
        cache_deinit(&c);
}

/* In its class and place; the request that runs with it ends with it. */
PGI_SCENE(test_moved, 0)
{
        for (uint32_t i = 0; i < 3; i++) {
                start(c, (const uint32_t[]){10 * i}, 1, PAGE_TOKENS);
                c->now += 20 * SECOND;
        }
        tree_move(&c->tree, node_of(c, 0), N_NODES - 1);
        ops->move(c->pgi, node_of(c, 0), N_NODES - 1);
        assert_null(ops->check(c->pgi));
        for (uint64_t request = 1; request <= 3; request++)
                ops->request_end(c->pgi, request, c->now);
        assert_null(ops->check(c->pgi));
        assert_int_equal(ops->victim(c->pgi, 0, EVICT_DROP, c->now), N_NODES - 1);
        c->node_1[0] = N_NODES;
        assert_int_equal(look(c, 0).turn, 1); /* that its end says */
}

static void move_text(struct cache *c, uint32_t id, uint32_t to)
{
        uint32_t node = node_of(c, id);
        double worth = ops->value(c->pgi, node, c->now);

        tree_move(&c->tree, node, to);
        ops->move(c->pgi, node, to);
        assert_null(ops->check(c->pgi));
        c->node_1[id] = to + 1;
        assert_true(ops->value(c->pgi, to, c->now) == worth);
}

/* A conversation of two turns, and an older question: what is known goes with the page. */
PGI_SCENE(test_other_tiers, 0)
{
        struct evict_params params = {.page_tokens = PAGE_TOKENS};
        const uint32_t below = N_NODES - 100;

        ops->free(c->pgi);
        tree_deinit(&c->tree);
        tree_set_tiers(&c->tree, (uint32_t[]){0, below}, 2);
        assert_int_equal(tree_reserve(&c->tree, N_NODES), 0);
        params.tree = &c->tree;
        assert_int_equal(ops->new (&params, &c->pgi), 0);
        assert_int_equal(ops->reserve(c->pgi, N_NODES), 0);
        ask(c, IDS(1), PAGE_TOKENS);
        c->now += 20 * SECOND;
        ask(c, IDS(2, 3), PAGE_TOKENS);
        c->now += 20 * SECOND;
        ask(c, IDS(2, 3, 4), PAGE_TOKENS);
        assert_int_equal(look(c, 4).turn, 2);
        assert_int_equal(ops->victim(c->pgi, 0, EVICT_DEMOTE, c->now), node_of(c, 1));
        move_text(c, 4, below + 4);
        move_text(c, 3, below + 3);
        move_text(c, 1, below + 1);
        assert_int_equal(look(c, 4).turn, 2);
        assert_int_equal(ops->victim(c->pgi, 0, EVICT_DEMOTE, c->now), node_of(c, 2));
        assert_int_equal(ops->victim(c->pgi, 0, EVICT_DROP, c->now), NODE_NONE);
        assert_int_equal(ops->victim(c->pgi, 1, EVICT_DROP, c->now), node_of(c, 1)); /* older */
        ops->lock(c->pgi, node_of(c, 1));
        assert_int_equal(ops->victim(c->pgi, 1, EVICT_DROP, c->now), node_of(c, 4));
        c->now += 20 * SECOND;
        ask(c, IDS(2, 3, 4, 5), PAGE_TOKENS); /* in place */
        assert_int_equal(look(c, 5).turn, 3);
        assert_null(ops->check(c->pgi));
        ops->unlock(c->pgi, node_of(c, 1));
        assert_int_equal(ops->victim(c->pgi, 1, EVICT_DROP, c->now), node_of(c, 1));
        assert_int_equal(ops->victim(c->pgi, 0, EVICT_DROP, c->now), node_of(c, 5));
}

/* LRU is asked for what it had when a request began, before what the request publishes moves its
 * line: all of the first text, though there is room for five pages once the first is published. */
PGI_SCENE(test_lru_is_judged_by_what_it_had, 0)
{
        const uint32_t text[] = {1, 2, 3, 4};

        ask(c, text, ARRAY_SIZE(text), PAGE_TOKENS);
        ask(c, (const uint32_t[]){11, 12, 13, 14}, 4, PAGE_TOKENS);
        for (unsigned i = ARRAY_SIZE(text); i-- > 0;)
                evict(c, node_of(c, text[i]));
        assert_int_equal(look(c, 11).lru_hits, 0);
        ask(c, text, ARRAY_SIZE(text), PAGE_TOKENS);
        assert_int_equal(look(c, 11).lru_hits, ARRAY_SIZE(text));
}

/* A pass over more pages and ghosts than one turn counts goes on until it says that it is done. */
PGI_SCENE(test_work_says_when_it_is_done, 0)
{
        unsigned n_turns = 1;

        for (uint32_t i = 0; i < 10000; i++) {
                if (c->n_free == 0)
                        evict(c, ops->victim(c->pgi, 0, EVICT_DROP, c->now));
                start(c, (const uint32_t[]){1 + i}, 1, PAGE_TOKENS);
                ops->request_end(c->pgi, c->request, c->now);
        }
        while (ops->work(c->pgi, c->now))
                n_turns++;
        assert_in_range(n_turns, 2, 100);
        assert_true(look(c, 10000).ready);
        assert_false(ops->work(c->pgi, c->now));
}
