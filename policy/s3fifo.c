/*
 * S3-FIFO (Yang, Zhang, Qiu, Yue, Rashmi: FIFO queues are all you need for cache eviction, SOSP
 * 2023), leaf-first: what is new waits in a small queue, a tenth of what is cached; what was used
 * twice there goes on to the main one, what wasn't is evicted. The main queue gives who was used
 * another round for each use, at most three. Whoever comes back soon after it was evicted from the
 * small queue goes to the main one at once: that is what ghosts are remembered for.
 *
 * A node enters its queue when its publisher lets go of it: deepest first, like a recency order. A
 * node that the evictor meets at a queue's end and can't evict, as it is held or has children, is
 * *passed*: out of the queue, and back at its old end when it is let go of or its last child
 * leaves. So nothing is looked at twice for one event, and an eviction is O(1), amortised over
 * insert, touch (of each node it walks), idle and remove. The alternative, a descendant leaf in
 * place of the node that was met, has no such bound where clients hold leaves alone; it evicts what
 * is young for its parent's age.
 *
 * 24 bytes a node, and 16 for ghosts.
 */
#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "policy/array.h"
#include "policy/evict.h"
#include "policy/queue.h"

/* The paper's: a tenth; two bits of uses. Twice: its threshold for objects that may be cached long
 * (its "freq > 1"). */
#define SMALL_SHARE 10
#define MAX_USES    3
#define ENOUGH_USES 2

enum { SMALL, MAIN, N_QUEUES };

struct node {
        uint64_t id;
        uint8_t queue; /* that it belongs to, in it or not */
        uint8_t uses;  /* since it was inserted or promoted, less those spent */
        bool is_cached, is_held, is_queued, is_passed;
};

/*
 * Ghosts, in sets of eight: a set loses its oldest where it is full. Twice as many ways as ghosts,
 * so that this is rare; bounded by its size whatever ids there are. They are forgotten by age: the
 * stamp counts ghosts. All zero: empty, as stamps begin with 1. A stamp that is 2^32 ghosts old is
 * taken for a recent one; the price is a node in the wrong queue.
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
        uint32_t stamp;          /* of the latest ghost */
        uint32_t n_of[N_QUEUES]; /* nodes that belong there */
        struct queue queues[N_QUEUES];
};

static struct node *node_of(const struct s3fifo *s, uint32_t node)
{
        assert(node < s->n_nodes);
        return &s->nodes[node];
}

/* The main queue's share: the paper remembers as many ghosts as that has. */
static uint32_t ghost_limit(const struct s3fifo *s)
{
        uint32_t n = s->n_of[SMALL] + s->n_of[MAIN];

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

/* True where there was one; it is gone then. */
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

/* Those there are are forgotten where more fit from now on: that is when the cache grows, and
 * evicts nothing. */
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
        free(s->nodes);
        free(s->links);
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
        memset(s->queues, 0, sizeof(s->queues));
        memset(s->n_of, 0, sizeof(s->n_of));
        return 0;
}

static void enter(struct s3fifo *s, uint32_t node, bool oldest)
{
        struct node *n = node_of(s, node);
        struct queue *q = &s->queues[n->queue];

        (oldest ? queue_add_oldest : queue_add_newest)(q, s->links, node);
        n->is_queued = true;
        n->is_passed = false;
}

static void leave(struct s3fifo *s, uint32_t node)
{
        struct node *n = node_of(s, node);

        queue_unlink(&s->queues[n->queue], s->links, node);
        n->is_queued = false;
}

static void s3fifo_insert(
        void *policy, uint32_t node, const struct evict_insert *what, uint64_t now_nsec)
{
        struct s3fifo *s = policy;
        struct node *n = node_of(s, node);

        assert(tree_has(s->tree, node) && !n->is_cached);

        *n = (struct node){.id = what->id, .is_cached = true, .is_held = true};
        n->queue = ghost_take(s, what->id) ? MAIN : SMALL;
        s->n_of[n->queue]++;
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
        if (!n->is_queued)
                enter(s, node, n->is_passed);
}

static void s3fifo_remove(void *policy, uint32_t node, enum evict_reason why)
{
        struct s3fifo *s = policy;
        struct node *n = node_of(s, node);
        uint32_t parent = tree_parent(s->tree, node);

        assert(n->is_cached && tree_is_leaf(s->tree, node));

        if (n->is_queued)
                leave(s, node);
        s->n_of[n->queue]--;
        if (why == EVICT_PRESSURE && n->queue == SMALL)
                ghost_add(s, n->id);
        *n = (struct node){0};
        if (tree_is_only_child(s->tree, node) && s->nodes[parent].is_passed)
                enter(s, parent, true);
}

static void s3fifo_move(void *policy, uint32_t node, uint32_t to)
{
        struct s3fifo *s = policy;
        struct node *n = node_of(s, node);

        assert(tree_has(s->tree, to) && !tree_has(s->tree, node));
        assert(n->is_cached && !node_of(s, to)->is_cached);

        if (n->is_queued)
                queue_move(&s->queues[n->queue], s->links, node, to);
        s->nodes[to] = *n;
        *n = (struct node){0};
}

static void s3fifo_request_end(void *policy, uint64_t request, uint64_t now_nsec)
{
}

/* The queue that has to give one, NULL where none can. */
static struct queue *due(struct s3fifo *s)
{
        struct queue *first = &s->queues[SMALL], *second = &s->queues[MAIN];
        uint64_t n_cached = (uint64_t)s->n_of[SMALL] + s->n_of[MAIN];

        if ((uint64_t)s->n_of[SMALL] * SMALL_SHARE < n_cached) {
                first = &s->queues[MAIN];
                second = &s->queues[SMALL];
        }
        if (first->n > 0)
                return first;
        return second->n > 0 ? second : NULL;
}

/* Whether the oldest of its queue has another round by its uses; it has begun then. */
static bool goes_on(struct s3fifo *s, uint32_t node)
{
        struct node *n = &s->nodes[node];

        if (n->uses < (n->queue == SMALL ? ENOUGH_USES : 1))
                return false;
        leave(s, node);
        s->n_of[n->queue]--;
        n->uses = n->queue == SMALL ? 0 : n->uses - 1;
        n->queue = MAIN;
        s->n_of[MAIN]++;
        enter(s, node, false);
        return true;
}

static uint32_t s3fifo_victim(void *policy, uint32_t tier, enum evict_how how, uint64_t now_nsec)
{
        struct s3fifo *s = policy;
        struct queue *q;

        while ((q = due(s))) {
                uint32_t node = queue_oldest(q);

                if (goes_on(s, node))
                        continue;
                if (!s->nodes[node].is_held && tree_is_leaf(s->tree, node))
                        return node;
                leave(s, node);
                s->nodes[node].is_passed = true;
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
                return n->is_queued || n->is_passed ? "a node outside the tree has a place" : NULL;
        if (n->is_queued && n->is_passed)
                return "a passed node is in a queue";
        if (!n->is_held && !n->is_queued && !n->is_passed)
                return "an idle node is in no queue and was not passed";
        if (n->is_passed && !n->is_held && tree_is_leaf(s->tree, node))
                return "an idle leaf is passed";
        if (n->uses > MAX_USES)
                return "a node has more uses than are counted";
        return NULL;
}

static const char *s3fifo_check(const void *policy)
{
        const struct s3fifo *s = policy;
        uint32_t n_of[N_QUEUES] = {0}, n_queued[N_QUEUES] = {0};

        for (uint32_t i = 0; i < s->n_nodes; i++) {
                const char *wrong = check_node(s, i);

                if (wrong)
                        return wrong;
                n_of[s->nodes[i].queue] += s->nodes[i].is_cached;
                n_queued[s->nodes[i].queue] += s->nodes[i].is_queued;
        }
        for (unsigned i = 0; i < N_QUEUES; i++) {
                if (n_of[i] != s->n_of[i])
                        return "a queue counts other nodes than belong to it";
                if (n_queued[i] != s->queues[i].n ||
                        !queue_is_sound(&s->queues[i], s->links, s->n_links))
                        return "a queue has not the nodes that say so";
        }
        return NULL;
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
        .remove = s3fifo_remove,
        .move = s3fifo_move,
        .request_end = s3fifo_request_end,
        .victim = s3fifo_victim,
        .memory_bytes = s3fifo_memory_bytes,
        .check = s3fifo_check,
};
