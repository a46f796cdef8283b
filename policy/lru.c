/*
 * Least recently used, leaf-first: a list of the idle nodes in the order in which they became idle,
 * 8 bytes a node, no allocation per event.
 *
 *   held    in no list: inserted, or hold() since the last idle()
 *   idle    in the list, the most recently idle at the front
 *   parked  idle, but victim() met it at the tail while it had children: off the list until the
 *           last child leaves, whose place it then takes
 *
 * Callers drop the deepest page of a chain first, which puts ancestors in front of descendants: the
 * tail is normally a leaf and nothing is parked. It is not where a client lets go of an ancestor
 * early, while a descendant is held or before it drops that one.
 *
 * An ancestor is worth at least as much as what continues it, so a parked node comes back no older
 * than its last child. Moving it in front of some child at once would say the same, but a chain let
 * go from the top down would then cost a quadratic number of moves, and clients choose that order.
 */
#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "policy/array.h"
#include "policy/evict.h"

/*
 * Slot 0 is the list's head, node n has slot n + 1. All zero is an empty list and held nodes, so
 * that calloc makes and forgets everything. The only slot in the list has zero links too: the head
 * tells.
 */
#define HEAD   0
#define PARKED UINT32_MAX /* in both links; no slot has this number */

struct link {
        uint32_t prev, next; /* slots; prev is on the fresher side */
};

struct lru {
        const struct tree *tree; /* borrowed */
        struct link *links;      /* owned */
        uint32_t n_links;
        uint32_t n_idle; /* in the list */
};

static uint32_t slot_of(const struct lru *lru, uint32_t node)
{
        assert(node < NODE_NONE && node + 1 < lru->n_links);
        return node + 1;
}

static bool is_parked(const struct lru *lru, uint32_t slot)
{
        return lru->links[slot].prev == PARKED;
}

static bool is_listed(const struct lru *lru, uint32_t slot)
{
        const struct link *l = &lru->links[slot];

        return !is_parked(lru, slot) &&
               (l->prev != HEAD || l->next != HEAD || lru->links[HEAD].next == slot);
}

static void list_insert_after(struct lru *lru, uint32_t at, uint32_t slot)
{
        uint32_t next = lru->links[at].next;

        lru->links[slot] = (struct link){.prev = at, .next = next};
        lru->links[at].next = slot;
        lru->links[next].prev = slot;
        lru->n_idle++;
}

static void list_unlink(struct lru *lru, uint32_t slot)
{
        struct link l = lru->links[slot];

        lru->links[l.prev].next = l.next;
        lru->links[l.next].prev = l.prev;
        lru->links[slot] = (struct link){0};
        lru->n_idle--;
}

static int lru_reserve(void *policy, uint32_t n)
{
        struct lru *lru = policy;
        void *links = lru->links;
        int r;

        assert(n < NODE_NONE);

        r = array_reserve(&links, &lru->n_links, n + 1, NODE_NONE, sizeof(*lru->links));
        lru->links = links;
        return r;
}

static void lru_free(void *policy)
{
        struct lru *lru = policy;

        if (!lru)
                return;
        free(lru->links);
        free(lru);
}

static int lru_new(const struct evict_params *params, void **ret_policy)
{
        struct lru *lru = calloc(1, sizeof(*lru));

        if (!lru)
                return -ENOMEM;
        lru->tree = params->tree;
        if (lru_reserve(lru, 0) < 0) {
                lru_free(lru);
                return -ENOMEM;
        }
        *ret_policy = lru;
        return 0;
}

static int lru_reset(void *policy)
{
        struct lru *lru = policy;
        void *links = lru->links;
        int r;

        r = array_reset(&links, lru->n_links, sizeof(*lru->links));
        if (r < 0)
                return r;
        lru->links = links;
        lru->n_idle = 0;
        return 0;
}

static void lru_insert(
        void *policy, uint32_t node, const struct evict_insert *what, uint64_t now_nsec)
{
        const struct lru *lru = policy;
        uint32_t slot = slot_of(lru, node);

        assert(tree_has(lru->tree, node));
        assert(!is_listed(lru, slot) && !is_parked(lru, slot));
}

/* What is held comes to the front when it becomes idle; what is idle does now. */
static void lru_touch(void *policy, uint32_t node, uint64_t request, uint64_t now_nsec)
{
        struct lru *lru = policy;
        uint32_t slot = slot_of(lru, node);

        if (is_listed(lru, slot))
                list_unlink(lru, slot);
        else if (!is_parked(lru, slot))
                return;
        list_insert_after(lru, HEAD, slot);
}

static void lru_hold(void *policy, uint32_t node)
{
        struct lru *lru = policy;
        uint32_t slot = slot_of(lru, node);

        if (is_parked(lru, slot)) {
                lru->links[slot] = (struct link){0};
                return;
        }
        assert(is_listed(lru, slot));
        list_unlink(lru, slot);
}

static void lru_idle(void *policy, uint32_t node, uint64_t now_nsec)
{
        struct lru *lru = policy;
        uint32_t slot = slot_of(lru, node);

        assert(tree_has(lru->tree, node));
        assert(!is_listed(lru, slot) && !is_parked(lru, slot));

        list_insert_after(lru, HEAD, slot);
}

static void lru_remove(void *policy, uint32_t node, enum evict_reason why)
{
        struct lru *lru = policy;
        uint32_t slot = slot_of(lru, node), place = HEAD, parent;

        assert(tree_has(lru->tree, node) && tree_is_leaf(lru->tree, node));
        assert(!is_parked(lru, slot));

        /* A held node has no place: it was in use until now, so its parent goes to the front. */
        if (is_listed(lru, slot)) {
                place = lru->links[slot].prev;
                list_unlink(lru, slot);
        }
        if (!tree_is_only_child(lru->tree, node))
                return;
        parent = slot_of(lru, tree_parent(lru->tree, node));
        if (is_parked(lru, parent))
                list_insert_after(lru, place, parent);
}

static void lru_move(void *policy, uint32_t node, uint32_t to)
{
        struct lru *lru = policy;
        uint32_t slot = slot_of(lru, node), to_slot = slot_of(lru, to);

        assert(tree_has(lru->tree, to) && !tree_has(lru->tree, node));
        assert(!is_listed(lru, to_slot) && !is_parked(lru, to_slot));

        if (is_listed(lru, slot)) {
                lru->links[lru->links[slot].prev].next = to_slot;
                lru->links[lru->links[slot].next].prev = to_slot;
        }
        lru->links[to_slot] = lru->links[slot];
        lru->links[slot] = (struct link){0};
}

static void lru_request_end(void *policy, uint64_t request, uint64_t now_nsec)
{
}

/*
 * Amortised O(1): every round but the last takes a node out of the list, and only idle(), touch()
 * and remove() put one in, one each.
 */
static uint32_t lru_victim(void *policy, uint32_t tier, enum evict_how how, uint64_t now_nsec)
{
        struct lru *lru = policy;
        uint32_t slot;

        while ((slot = lru->links[HEAD].prev) != HEAD) {
                if (tree_is_leaf(lru->tree, slot - 1))
                        return slot - 1;
                list_unlink(lru, slot);
                lru->links[slot] = (struct link){.prev = PARKED, .next = PARKED};
        }
        return NODE_NONE;
}

static uint64_t lru_memory_bytes(const void *policy)
{
        const struct lru *lru = policy;

        return sizeof(*lru) + (uint64_t)lru->n_links * sizeof(*lru->links);
}

static const char *check_list(const struct lru *lru)
{
        uint32_t n = 0, slot = HEAD, next;

        do {
                next = lru->links[slot].next;
                if (next >= lru->n_links || lru->links[next].prev != slot)
                        return "neighbours in the list disagree";
                if (next != HEAD && !tree_has(lru->tree, next - 1))
                        return "an idle node is not in the tree";
                slot = next;
                n++;
        } while (slot != HEAD && n <= lru->n_idle);
        return n == lru->n_idle + 1 && slot == HEAD ? NULL : "the list has not n_idle nodes";
}

static const char *lru_check(const void *policy)
{
        const struct lru *lru = policy;
        uint32_t n_listed = 0;
        const char *wrong = check_list(lru);

        if (wrong)
                return wrong;
        for (uint32_t slot = 1; slot < lru->n_links; slot++) {
                n_listed += is_listed(lru, slot);
                if (!is_parked(lru, slot))
                        continue;
                if (lru->links[slot].next != PARKED)
                        return "a parked node is linked";
                if (!tree_has(lru->tree, slot - 1))
                        return "a parked node is not in the tree";
                if (tree_is_leaf(lru->tree, slot - 1))
                        return "a parked node has no children";
        }
        return n_listed == lru->n_idle ? NULL : "a node outside the list has links";
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
        .remove = lru_remove,
        .move = lru_move,
        .request_end = lru_request_end,
        .victim = lru_victim,
        .memory_bytes = lru_memory_bytes,
        .check = lru_check,
};
