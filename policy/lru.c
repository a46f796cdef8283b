/*
 * Least recently used, leaf-first. Each tier has a queue of its idle nodes in the order in which
 * they became idle. 9 bytes a node, no allocation in an event.
 *
 *   nowhere  held: inserted, or hold() since the last idle(). Or idle and locked, and victim() met
 *            it as the oldest: unlock() puts it back, as old as any in the list
 *   listed   idle, in its tier's queue, the most recently idle as the newest. Nodes whose window
 *            has passed (evict_insert) are in a second queue, which is evicted first
 *   aside    idle, but victim() met it as the oldest while it had children below, and was asked for
 *            a leaf: in a queue of its own, as old as any in the list
 *   parked   idle, but victim() met it as the oldest while it was no tip: in no queue until the
 *            last child in the way leaves, whose place it then takes
 *
 * Callers drop the deepest page of a chain first, which puts ancestors after descendants. So the
 * oldest is normally a leaf, and nothing is parked. Exception: a client releases an ancestor before
 * a descendant.
 *
 * An ancestor is worth at least as much as its descendants, so a parked node comes back no older
 * than its last child. Moving it in front of its oldest child at once would be equivalent. But a
 * chain released from the top down would then cost a quadratic number of moves, and clients choose
 * that order.
 */
#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "policy/evict.h"
#include "policy/queue.h"

enum place { NOWHERE, LISTED, ASIDE, PARKED };

/* All zero: held, or not cached. */
struct state {
        uint8_t place : 2;
        uint8_t is_idle : 1;
        uint8_t n_locks : 2;
        uint8_t window_passed : 1;
};

struct lru {
        const struct tree *tree;  /* borrowed */
        struct queue_link *links; /* owned, n_links */
        struct state *states;     /* owned, n_states */
        uint32_t n_links, n_states;
        struct queue list[TREE_TIERS], passed[TREE_TIERS], aside[TREE_TIERS];
};

static struct state *state_of(const struct lru *lru, uint32_t node)
{
        assert(node < lru->n_states);
        return &lru->states[node];
}

static struct queue *queue_of(struct lru *lru, uint32_t node, enum place place)
{
        uint32_t tier = tree_tier(lru->tree, node);

        if (place == ASIDE)
                return &lru->aside[tier];
        return state_of(lru, node)->window_passed ? &lru->passed[tier] : &lru->list[tier];
}

/* Adds an idle node at one end of a queue. */
static void enter_queue(struct lru *lru, uint32_t node, enum place place, bool oldest)
{
        (oldest ? queue_add_oldest : queue_add_newest)(
                queue_of(lru, node, place), lru->links, node);
        state_of(lru, node)->place = place;
}

static void leave_queue(struct lru *lru, uint32_t node)
{
        struct state *s = state_of(lru, node);

        if (s->place == LISTED || s->place == ASIDE)
                queue_unlink(queue_of(lru, node, s->place), lru->links, node);
        s->place = NOWHERE;
}

static int lru_reserve(void *policy, uint32_t n)
{
        struct lru *lru = policy;
        void *links = lru->links, *states = lru->states;
        int r;

        assert(n < NODE_NONE);

        r = array_reserve(&links, &lru->n_links, n, NODE_NONE - 1, sizeof(*lru->links));
        lru->links = links;
        if (r < 0)
                return r;
        r = array_reserve(&states, &lru->n_states, n, NODE_NONE - 1, sizeof(*lru->states));
        lru->states = states;
        return r;
}

static void lru_free(void *policy)
{
        struct lru *lru = policy;

        if (!lru)
                return;
        array_free(lru->links, lru->n_links, sizeof(*lru->links));
        array_free(lru->states, lru->n_states, sizeof(*lru->states));
        free(lru);
}

static int lru_new(const struct evict_params *params, void **ret_policy)
{
        struct lru *lru = calloc(1, sizeof(*lru));

        if (!lru)
                return -ENOMEM;
        lru->tree = params->tree;
        *ret_policy = lru;
        return 0;
}

static int lru_reset(void *policy)
{
        struct lru *lru = policy;
        void *states = lru->states;
        int r;

        r = array_reset(&states, lru->n_states, sizeof(*lru->states));
        if (r < 0)
                return r;
        lru->states = states;
        memset(lru->list, 0, sizeof(lru->list));
        memset(lru->passed, 0, sizeof(lru->passed));
        memset(lru->aside, 0, sizeof(lru->aside));
        return 0;
}

static void lru_insert(
        void *policy, uint32_t node, const struct evict_insert *what, uint64_t now_nsec)
{
        struct lru *lru = policy;

        assert(tree_has(lru->tree, node));
        assert(state_of(lru, node)->place == NOWHERE && !state_of(lru, node)->is_idle);

        lru->states[node].window_passed = what->window_passed;
}

/* An idle node becomes the newest at once, a held one when it becomes idle. */
static void lru_touch(void *policy, uint32_t node, uint64_t request, uint64_t now_nsec)
{
        struct lru *lru = policy;
        struct state *s = state_of(lru, node);

        if (s->is_idle)
                leave_queue(lru, node);
        s->window_passed = 0;
        if (s->is_idle)
                enter_queue(lru, node, LISTED, false);
}

static void lru_hold(void *policy, uint32_t node)
{
        struct lru *lru = policy;
        struct state *s = state_of(lru, node);

        assert(s->is_idle);

        leave_queue(lru, node);
        s->is_idle = 0;
}

static void lru_idle(void *policy, uint32_t node, uint64_t now_nsec)
{
        struct lru *lru = policy;
        struct state *s = state_of(lru, node);

        assert(tree_has(lru->tree, node) && !s->is_idle);

        s->is_idle = 1;
        enter_queue(lru, node, LISTED, false);
}

static void lru_lock(void *policy, uint32_t node)
{
        struct lru *lru = policy;
        struct state *s = state_of(lru, node);

        assert(tree_has(lru->tree, node) && s->n_locks < EVICT_MAX_LOCKS);

        s->n_locks++;
}

static void lru_unlock(void *policy, uint32_t node)
{
        struct lru *lru = policy;
        struct state *s = state_of(lru, node);

        assert(s->n_locks > 0);

        if (--s->n_locks == 0 && s->is_idle && s->place == NOWHERE)
                enter_queue(lru, node, LISTED, true);
}

/*
 * Lists a parked parent whose child leaves child_tier. A child in the list of the same tier gives
 * its place to the parent. Else the parent becomes the oldest if the child was locked, set aside or
 * had its window passed. Otherwise it becomes the newest.
 */
static void come_back(struct lru *lru, uint32_t parent, uint32_t child, uint32_t child_tier)
{
        struct state *s = state_of(lru, child);

        if (s->place != LISTED || s->window_passed || tree_tier(lru->tree, parent) != child_tier) {
                enter_queue(lru, parent, LISTED,
                        s->n_locks > 0 || s->place == ASIDE || s->window_passed);
                return;
        }
        state_of(lru, parent)->window_passed = 0;
        queue_move(&lru->list[child_tier], lru->links, child, parent);
        state_of(lru, parent)->place = LISTED;
        s->place = NOWHERE;
}

static void lru_remove(void *policy, uint32_t node, enum evict_reason why)
{
        struct lru *lru = policy;
        uint32_t parent = tree_parent(lru->tree, node);

        assert(tree_has(lru->tree, node) && tree_is_leaf(lru->tree, node));

        if (tree_hides_tip(lru->tree, node) && state_of(lru, parent)->place == PARKED)
                come_back(lru, parent, node, tree_tier(lru->tree, node));
        if (tree_is_only_child(lru->tree, node) && state_of(lru, parent)->place == ASIDE) {
                leave_queue(lru, parent);
                enter_queue(lru, parent, LISTED, true);
        }
        leave_queue(lru, node);
        *state_of(lru, node) = (struct state){0};
}

/* Moves a node to another tier as the newest. Its parent may become a tip. */
static void change_tier(struct lru *lru, uint32_t node, uint32_t to)
{
        struct state *s = state_of(lru, node);
        uint32_t parent = tree_parent(lru->tree, to);

        if (parent != NODE_NONE && state_of(lru, parent)->place == PARKED &&
                tree_is_tip(lru->tree, parent))
                come_back(lru, parent, node, tree_tier(lru->tree, node));
        leave_queue(lru, node);
        state_of(lru, to)->is_idle = s->is_idle;
        state_of(lru, to)->window_passed = s->window_passed;
        if (s->is_idle)
                enter_queue(lru, to, LISTED, false);
}

static void lru_move(void *policy, uint32_t node, uint32_t to)
{
        struct lru *lru = policy;
        struct state *s = state_of(lru, node);

        assert(tree_has(lru->tree, to) && !tree_has(lru->tree, node));
        assert(state_of(lru, to)->place == NOWHERE && !state_of(lru, to)->is_idle);

        if (tree_tier(lru->tree, node) != tree_tier(lru->tree, to)) {
                change_tier(lru, node, to);
        } else {
                if (s->place == LISTED || s->place == ASIDE)
                        queue_move(queue_of(lru, node, s->place), lru->links, node, to);
                lru->states[to] = *s;
        }
        *s = (struct state){0};
}

static void lru_request_end(void *policy, uint64_t request, uint64_t now_nsec)
{
}

/* True if the oldest node of the queue is a victim for `how`. Else the node leaves the queue. */
static bool take_oldest(struct lru *lru, const struct queue *q, enum evict_how how)
{
        uint32_t node = queue_oldest(q);
        bool is_tip = tree_is_tip(lru->tree, node), is_locked = state_of(lru, node)->n_locks > 0;

        if (is_tip && !is_locked && (how == EVICT_DEMOTE || tree_is_leaf(lru->tree, node)))
                return true;
        leave_queue(lru, node);
        if (is_locked)
                return false;
        if (is_tip)
                enter_queue(lru, node, ASIDE, false);
        else
                state_of(lru, node)->place = PARKED;
        return false;
}

/*
 * Amortised O(1): every round but the last takes a node out of its queue. Only idle(), touch(),
 * unlock(), move() and remove() put nodes back, one or two each.
 */
static uint32_t lru_victim(void *policy, uint32_t tier, enum evict_how how, uint64_t now_nsec)
{
        struct lru *lru = policy;
        struct queue *aside = &lru->aside[tier], *list = &lru->list[tier];
        struct queue *passed = &lru->passed[tier];

        while (passed->n > 0)
                if (take_oldest(lru, passed, how))
                        return queue_oldest(passed);
        while (how == EVICT_DEMOTE && aside->n > 0)
                if (take_oldest(lru, aside, how))
                        return queue_oldest(aside);
        while (list->n > 0)
                if (take_oldest(lru, list, how))
                        return queue_oldest(list);
        return NODE_NONE;
}

static uint64_t lru_memory_bytes(const void *policy)
{
        const struct lru *lru = policy;

        return sizeof(*lru) + (uint64_t)lru->n_links * sizeof(*lru->links) +
               (uint64_t)lru->n_states * sizeof(*lru->states);
}

static const char *check_node(const struct lru *lru, uint32_t node)
{
        const struct state *s = &lru->states[node];

        if (!tree_has(lru->tree, node))
                return s->place != NOWHERE || s->is_idle || s->n_locks > 0 || s->window_passed
                               ? "a node outside the tree has a place"
                               : NULL;
        if (s->place != NOWHERE ? !s->is_idle : s->is_idle && s->n_locks == 0)
                return "those that have a place aren't the idle nodes";
        if (s->place == ASIDE && tree_is_leaf(lru->tree, node))
                return "a leaf is set aside";
        if (s->place == PARKED && tree_is_tip(lru->tree, node))
                return "a tip is parked";
        return NULL;
}

static const char *lru_check_node(const void *policy, uint32_t node)
{
        const struct lru *lru = policy;
        const char *wrong = node < lru->n_states ? check_node(lru, node) : NULL;
        enum place place = node < lru->n_states ? lru->states[node].place : NOWHERE;

        if (wrong || (place != LISTED && place != ASIDE))
                return wrong;
        return queue_refers_to(
                       queue_of((struct lru *)lru, node, place), lru->links, lru->n_links, node)
                       ? NULL
                       : "a node isn't in the queue that it says";
}

static const char *lru_check(const void *policy)
{
        const struct lru *lru = policy;
        uint32_t n_listed[TREE_TIERS] = {0}, n_aside[TREE_TIERS] = {0}, tier;
        const char *wrong;

        for (uint32_t node = 0; node < lru->n_states; node++) {
                wrong = check_node(lru, node);
                if (wrong)
                        return wrong;
                tier = tree_tier(lru->tree, node);
                n_listed[tier] += lru->states[node].place == LISTED;
                n_aside[tier] += lru->states[node].place == ASIDE;
        }
        for (uint32_t t = 0; t < TREE_TIERS; t++)
                if (lru->list[t].n + lru->passed[t].n != n_listed[t] ||
                        lru->aside[t].n != n_aside[t] ||
                        !queue_is_sound(&lru->list[t], lru->links, lru->n_links) ||
                        !queue_is_sound(&lru->passed[t], lru->links, lru->n_links) ||
                        !queue_is_sound(&lru->aside[t], lru->links, lru->n_links))
                        return "a queue has not the nodes that say so";
        return NULL;
}

const struct evict_ops evict_lru = {
        .name = "lru",
        .new = lru_new,
        .free = lru_free,
        .reserve = lru_reserve,
        .reset = lru_reset,
        .insert = lru_insert,
        .touch = lru_touch,
        .hold = lru_hold,
        .idle = lru_idle,
        .lock = lru_lock,
        .unlock = lru_unlock,
        .remove = lru_remove,
        .move = lru_move,
        .request_end = lru_request_end,
        .victim = lru_victim,
        .memory_bytes = lru_memory_bytes,
        .check = lru_check,
        .check_node = lru_check_node,
};
