/*
 * S3-FIFO, leaf-first (Yang, Zhang, Qiu, Yue, Rashmi: FIFO queues are all you need for cache
 * eviction, SOSP 2023). New nodes wait in a small queue, a tenth of the cache. Nodes used twice
 * there move on to the main queue, others are evicted. The main queue gives a used node another
 * round for each use, at most three. A node that returns soon after it was evicted from the small
 * queue goes to the main one at once: that is the purpose of ghosts.
 *
 * A node enters its queue when its publisher releases it: deepest first, like a recency order. If
 * eviction meets a node at a queue's end that is held or has children, it is *passed*: removed from
 * the queue, and put back at its old end when it is released or its last child leaves. A tip that
 * is no leaf, when a leaf is asked for, is set *aside*: in a queue of its own, older than all of
 * the queue it came from. So no node is looked at twice for one event. An eviction is O(1),
 * amortised over insert, touch (of each node it walks), idle and remove. The alternative is to
 * evict a descendant leaf of the met node. It has no such bound if clients hold only leaves, and
 * evicts young nodes for their parent's age.
 *
 * Each tier has its two queues. A page that changes its tier is the newest of the same queue there,
 * with its remaining uses.
 *
 * 24 bytes a node, and 16 for ghosts.
 */
#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/macros.h"
#include "policy/queue.h"
#include "policy/sim/policies.h"

/* The paper's: a tenth; two bits of uses. Twice: its threshold for objects that may be cached long
 * (its "freq > 1"). */
#define SMALL_SHARE 10
#define MAX_USES    3
#define ENOUGH_USES 2

enum { SMALL, MAIN, N_QUEUES };

enum place { NOWHERE, QUEUED, ASIDE, PASSED };

struct node {
        uint64_t id;
        uint8_t queue; /* that it belongs to, in it or not */
        uint8_t uses;  /* since it was inserted or promoted, less those spent */
        uint8_t place; /* enum place */
        uint8_t n_locks;
        bool is_cached, is_held;
};

/*
 * Ghosts, in sets of eight: a full set loses its oldest. Twice as many ways as ghosts make that
 * rare, and the size is bounded for any ids. They expire by age: the stamp counts ghosts. All zero:
 * empty, as stamps begin with 1. A stamp that is 2^32 ghosts old is mistaken for a recent one; the
 * cost is a node in the wrong queue.
 */
#define WAYS         8
#define WAYS_A_GHOST 2

struct ghost_set {
        uint32_t tags[WAYS]; /* the id's upper half; the lower one chooses the set */
        uint32_t stamps[WAYS];
};

struct s3fifo {
        const struct tree *tree;  /* borrowed */
        struct node *nodes;       /* owned, n_nodes */
        struct queue_link *links; /* owned, n_links */
        struct ghost_set *ghosts; /* owned, n_sets: a power of two, or 0 */
        uint32_t n_nodes, n_links, n_sets, max_ghosts;
        uint32_t stamp; /* of the latest ghost */
        struct tier {
                uint32_t n_of[N_QUEUES]; /* nodes that belong there */
                struct queue queues[N_QUEUES], aside[N_QUEUES];
        } tiers[TREE_TIERS];
};

static struct node *node_of(const struct s3fifo *s, uint32_t node)
{
        assert(node < s->n_nodes);
        return &s->nodes[node];
}

static struct tier *tier_of(struct s3fifo *s, uint32_t node)
{
        return &s->tiers[tree_tier(s->tree, node)];
}

static uint32_t n_cached(const struct tier *t)
{
        return t->n_of[SMALL] + t->n_of[MAIN];
}

/* The main queues' share: the paper remembers as many ghosts as that has. */
static uint32_t ghost_limit(const struct s3fifo *s)
{
        uint32_t n = 0;

        for (uint32_t t = 0; t < s->tree->n_tiers; t++)
                n += n_cached(&s->tiers[t]);
        return MIN(n - n / SMALL_SHARE, s->max_ghosts);
}

static struct ghost_set *ghost_set_of(const struct s3fifo *s, uint64_t id)
{
        return &s->ghosts[(uint32_t)id & (s->n_sets - 1)];
}

/* The way that has the id; if none, the one to be overwritten: empty, or the oldest. */
static unsigned ghost_way(const struct s3fifo *s, const struct ghost_set *set, uint64_t id)
{
        unsigned oldest = 0;

        for (unsigned i = 0; i < WAYS; i++) {
                if (set->stamps[i] != 0 && set->tags[i] == id >> 32)
                        return i;
                if (set->stamps[oldest] != 0 &&
                        (set->stamps[i] == 0 ||
                                s->stamp - set->stamps[i] > s->stamp - set->stamps[oldest]))
                        oldest = i;
        }
        return oldest;
}

static void ghost_add(struct s3fifo *s, uint64_t id)
{
        struct ghost_set *set = ghost_set_of(s, id);
        unsigned way = ghost_way(s, set, id);

        if (++s->stamp == 0)
                s->stamp = 1;
        set->tags[way] = (uint32_t)(id >> 32);
        set->stamps[way] = s->stamp;
}

/* Forgets a ghost. Returns true if there was one. */
static bool ghost_take(struct s3fifo *s, uint64_t id)
{
        struct ghost_set *set = ghost_set_of(s, id);
        unsigned way = ghost_way(s, set, id);
        uint32_t stamp = set->stamps[way];

        if (stamp == 0 || set->tags[way] != id >> 32)
                return false;
        set->stamps[way] = 0;
        return s->stamp - stamp < ghost_limit(s);
}

/* Grows the table and forgets all ghosts: the cache grows then, and evicts nothing. */
static int reserve_ghosts(struct s3fifo *s)
{
        uint64_t ways = (uint64_t)MIN(s->n_nodes, s->max_ghosts) * WAYS_A_GHOST;
        uint32_t n_sets = 1;
        struct ghost_set *sets;

        while ((uint64_t)n_sets * WAYS < ways)
                n_sets *= 2;
        if (n_sets <= s->n_sets)
                return 0;
        sets = calloc(n_sets, sizeof(*sets));
        if (!sets)
                return -ENOMEM;
        free(s->ghosts);
        s->ghosts = sets;
        s->n_sets = n_sets;
        return 0;
}

static int s3fifo_reserve(void *policy, uint32_t n)
{
        struct s3fifo *s = policy;
        void *nodes = s->nodes, *links = s->links;
        int r;

        assert(n < NODE_NONE);

        r = array_reserve(&nodes, &s->n_nodes, n, NODE_NONE - 1, sizeof(*s->nodes));
        s->nodes = nodes;
        if (r < 0)
                return r;
        r = array_reserve(&links, &s->n_links, n, NODE_NONE - 1, sizeof(*s->links));
        s->links = links;
        return r < 0 ? r : reserve_ghosts(s);
}

static void s3fifo_free(void *policy)
{
        struct s3fifo *s = policy;

        if (!s)
                return;
        array_free(s->nodes, s->n_nodes, sizeof(*s->nodes));
        array_free(s->links, s->n_links, sizeof(*s->links));
        free(s->ghosts);
        free(s);
}

static int s3fifo_new(const struct evict_params *params, void **ret_policy)
{
        struct s3fifo *s = calloc(1, sizeof(*s));

        if (!s)
                return -ENOMEM;
        s->tree = params->tree;
        s->max_ghosts = params->max_ghosts ? params->max_ghosts : EVICT_MAX_GHOSTS;
        *ret_policy = s;
        return 0;
}

/* Ghosts stay: they name texts, and nothing finds one that isn't asked for. */
static int s3fifo_reset(void *policy)
{
        struct s3fifo *s = policy;
        void *nodes = s->nodes;
        int r;

        r = array_reset(&nodes, s->n_nodes, sizeof(*s->nodes));
        if (r < 0)
                return r;
        s->nodes = nodes;
        memset(s->tiers, 0, sizeof(s->tiers));
        return 0;
}

static struct queue *queue_of(struct s3fifo *s, uint32_t node, enum place place)
{
        struct tier *t = tier_of(s, node);
        unsigned queue = node_of(s, node)->queue;

        return place == ASIDE ? &t->aside[queue] : &t->queues[queue];
}

static void enter_queue(struct s3fifo *s, uint32_t node, enum place place, bool oldest)
{
        (oldest ? queue_add_oldest : queue_add_newest)(queue_of(s, node, place), s->links, node);
        node_of(s, node)->place = place;
}

static void leave_queue(struct s3fifo *s, uint32_t node)
{
        struct node *n = node_of(s, node);

        if (n->place == QUEUED || n->place == ASIDE)
                queue_unlink(queue_of(s, node, n->place), s->links, node);
        n->place = NOWHERE;
}

static void s3fifo_insert(
        void *policy, uint32_t node, const struct evict_insert *what, uint64_t now_nsec)
{
        struct s3fifo *s = policy;
        struct node *n = node_of(s, node);

        assert(tree_has(s->tree, node) && !n->is_cached);

        *n = (struct node){.id = what->id, .is_cached = true, .is_held = true};
        n->queue = ghost_take(s, what->id) ? MAIN : SMALL;
        tier_of(s, node)->n_of[n->queue]++;
}

static void s3fifo_touch(void *policy, uint32_t node, uint64_t request, uint64_t now_nsec)
{
        struct s3fifo *s = policy;

        for (uint32_t n = 0; node != NODE_NONE && n < EVICT_WALK_PAGES;
                n++, node = tree_parent(s->tree, node))
                if (node_of(s, node)->uses < MAX_USES)
                        s->nodes[node].uses++;
}

static void s3fifo_hold(void *policy, uint32_t node)
{
        struct s3fifo *s = policy;
        struct node *n = node_of(s, node);

        assert(n->is_cached && !n->is_held);
        n->is_held = true;
}

static void s3fifo_idle(void *policy, uint32_t node, uint64_t now_nsec)
{
        struct s3fifo *s = policy;
        struct node *n = node_of(s, node);

        assert(n->is_cached && n->is_held);

        n->is_held = false;
        if (n->place == NOWHERE || (n->place == PASSED && n->n_locks == 0))
                enter_queue(s, node, QUEUED, n->place == PASSED);
}

/* Eviction skips a locked node. */
static void s3fifo_lock(void *policy, uint32_t node)
{
        struct s3fifo *s = policy;
        struct node *n = node_of(s, node);

        assert(n->is_cached && n->n_locks < EVICT_MAX_LOCKS);
        n->n_locks++;
}

static void s3fifo_unlock(void *policy, uint32_t node)
{
        struct s3fifo *s = policy;
        struct node *n = node_of(s, node);

        assert(n->is_cached && n->n_locks > 0);

        n->n_locks--;
        if (n->place == PASSED && !n->is_held && n->n_locks == 0)
                enter_queue(s, node, QUEUED, true);
}

static void s3fifo_remove(void *policy, uint32_t node, enum evict_reason why)
{
        struct s3fifo *s = policy;
        struct node *n = node_of(s, node);
        uint32_t parent = tree_parent(s->tree, node);

        assert(n->is_cached && tree_is_leaf(s->tree, node));

        leave_queue(s, node);
        tier_of(s, node)->n_of[n->queue]--;
        if (why == EVICT_PRESSURE && n->queue == SMALL)
                ghost_add(s, n->id);
        *n = (struct node){0};
        if (tree_hides_tip(s->tree, node) && s->nodes[parent].place == PASSED)
                enter_queue(s, parent, QUEUED, true);
        if (tree_is_only_child(s->tree, node) && s->nodes[parent].place == ASIDE) {
                leave_queue(s, parent);
                enter_queue(s, parent, QUEUED, true);
        }
}

static void change_tier(struct s3fifo *s, uint32_t node, uint32_t to)
{
        struct node *n = node_of(s, node);
        uint32_t parent = tree_parent(s->tree, to);

        leave_queue(s, node);
        tier_of(s, node)->n_of[n->queue]--;
        s->nodes[to] = *n;
        s->nodes[to].n_locks = 0;
        tier_of(s, to)->n_of[n->queue]++;
        if (!n->is_held)
                enter_queue(s, to, QUEUED, false);
        if (parent != NODE_NONE && s->nodes[parent].place == PASSED && tree_is_tip(s->tree, parent))
                enter_queue(s, parent, QUEUED, true);
}

static void s3fifo_move(void *policy, uint32_t node, uint32_t to)
{
        struct s3fifo *s = policy;
        struct node *n = node_of(s, node);

        assert(tree_has(s->tree, to) && !tree_has(s->tree, node));
        assert(n->is_cached && !node_of(s, to)->is_cached);

        if (tree_tier(s->tree, node) != tree_tier(s->tree, to)) {
                change_tier(s, node, to);
        } else {
                if (n->place == QUEUED || n->place == ASIDE)
                        queue_move(queue_of(s, node, n->place), s->links, node, to);
                s->nodes[to] = *n;
        }
        *n = (struct node){0};
}

static void s3fifo_request_end(void *policy, uint64_t request, uint64_t now_nsec)
{
}

/* The queue of a kind to evict from, set-aside nodes first; NULL: both are empty. */
static struct queue *of_kind(struct tier *t, unsigned queue, enum evict_how how)
{
        if (how == EVICT_DEMOTE && t->aside[queue].n > 0)
                return &t->aside[queue];
        return t->queues[queue].n > 0 ? &t->queues[queue] : NULL;
}

/* The queue that has to give one, NULL where none can. */
static struct queue *due(struct tier *t, enum evict_how how)
{
        bool main_first = (uint64_t)t->n_of[SMALL] * SMALL_SHARE < n_cached(t);
        struct queue *first = of_kind(t, main_first ? MAIN : SMALL, how);

        return first ? first : of_kind(t, main_first ? SMALL : MAIN, how);
}

/* Whether the oldest of its queue has another round by its uses; it has begun then. */
static bool goes_on(struct s3fifo *s, uint32_t node)
{
        struct tier *t = tier_of(s, node);
        struct node *n = &s->nodes[node];

        if (n->uses < (n->queue == SMALL ? ENOUGH_USES : 1))
                return false;
        leave_queue(s, node);
        t->n_of[n->queue]--;
        n->uses = n->queue == SMALL ? 0 : n->uses - 1;
        n->queue = MAIN;
        t->n_of[MAIN]++;
        enter_queue(s, node, QUEUED, false);
        return true;
}

/* True if the oldest node of its queue may be evicted (or demoted); else it gets another place. */
static bool may_go(struct s3fifo *s, uint32_t node, enum evict_how how)
{
        struct node *n = &s->nodes[node];
        bool may_go_down = !n->is_held && n->n_locks == 0 && tree_is_tip(s->tree, node);

        if (may_go_down && (how == EVICT_DEMOTE || tree_is_leaf(s->tree, node)))
                return true;
        leave_queue(s, node);
        if (may_go_down)
                enter_queue(s, node, ASIDE, false);
        else
                n->place = PASSED;
        return false;
}

static uint32_t s3fifo_victim(void *policy, uint32_t tier, enum evict_how how, uint64_t now_nsec)
{
        struct s3fifo *s = policy;
        struct queue *q;

        while ((q = due(&s->tiers[tier], how))) {
                uint32_t node = queue_oldest(q);

                if (!goes_on(s, node) && may_go(s, node, how))
                        return node;
        }
        return NODE_NONE;
}

static uint64_t s3fifo_memory_bytes(const void *policy)
{
        const struct s3fifo *s = policy;

        return sizeof(*s) + (uint64_t)s->n_nodes * sizeof(*s->nodes) +
               (uint64_t)s->n_links * sizeof(*s->links) + (uint64_t)s->n_sets * sizeof(*s->ghosts);
}

static const char *check_node(const struct s3fifo *s, uint32_t node)
{
        const struct node *n = &s->nodes[node];

        if (n->is_cached != tree_has(s->tree, node))
                return "what is cached is not what is in the tree";
        if (!n->is_cached)
                return n->place != NOWHERE ? "a node outside the tree has a place" : NULL;
        if (!n->is_held && n->place == NOWHERE)
                return "an idle node is in no queue and was not passed";
        if (n->place == PASSED && !n->is_held && n->n_locks == 0 && tree_is_tip(s->tree, node))
                return "an idle tip is passed";
        if (n->place == ASIDE && tree_is_leaf(s->tree, node))
                return "a leaf is set aside";
        if (n->uses > MAX_USES)
                return "a node has more uses than are counted";
        return NULL;
}

static const char *check_tier(const struct s3fifo *s, uint32_t tier)
{
        const struct tier *t = &s->tiers[tier];
        uint32_t n_of[N_QUEUES] = {0}, n_queued[N_QUEUES] = {0}, n_aside[N_QUEUES] = {0};

        for (uint32_t i = 0; i < s->n_nodes; i++) {
                const struct node *n = &s->nodes[i];

                if (tree_tier(s->tree, i) != tier)
                        continue;
                n_of[n->queue] += n->is_cached;
                n_queued[n->queue] += n->place == QUEUED;
                n_aside[n->queue] += n->place == ASIDE;
        }
        for (unsigned i = 0; i < N_QUEUES; i++) {
                if (n_of[i] != t->n_of[i])
                        return "a queue counts other nodes than belong to it";
                if (n_queued[i] != t->queues[i].n || n_aside[i] != t->aside[i].n ||
                        !queue_is_sound(&t->queues[i], s->links, s->n_links) ||
                        !queue_is_sound(&t->aside[i], s->links, s->n_links))
                        return "a queue has not the nodes that say so";
        }
        return NULL;
}

static const char *s3fifo_check(const void *policy)
{
        const struct s3fifo *s = policy;
        const char *wrong = NULL;

        for (uint32_t i = 0; i < s->n_nodes && !wrong; i++)
                wrong = check_node(s, i);
        for (uint32_t t = 0; t < s->tree->n_tiers && !wrong; t++)
                wrong = check_tier(s, t);
        return wrong;
}

const struct evict_ops evict_s3fifo = {
        .name = "s3fifo",
        .new = s3fifo_new,
        .free = s3fifo_free,
        .reserve = s3fifo_reserve,
        .reset = s3fifo_reset,
        .insert = s3fifo_insert,
        .touch = s3fifo_touch,
        .hold = s3fifo_hold,
        .idle = s3fifo_idle,
        .lock = s3fifo_lock,
        .unlock = s3fifo_unlock,
        .remove = s3fifo_remove,
        .move = s3fifo_move,
        .request_end = s3fifo_request_end,
        .victim = s3fifo_victim,
        .memory_bytes = s3fifo_memory_bytes,
        .check = s3fifo_check,
};
