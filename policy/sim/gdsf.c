/*
 * Greedy dual, size and frequency, for blocks of one size. Source: Cherkasova: Improving WWW
 * proxies performance with greedy-dual-size-frequency caching policy, HP Laboratories 1998. The
 * leaf with the lowest
 *
 *   age of the cache at its last use + uses * cost
 *
 * is evicted. Its value becomes the cache's age. The cost is that of computing the block again, in
 * units of a text's first block. It has a part that is the same for every token, and attention,
 * which grows with the position.
 */
#include <errno.h>
#include <string.h>

#include "base/macros.h"
#include "policy/sim/policies.h"
#include "policy/sim/ranked.h"

/*
 * Attention costs as much as all the rest at this position. The rest takes 2 flop a parameter,
 * attention 4 for each layer, element of the hidden state and earlier token. The model has 8.03e9
 * parameters and 32 layers of 4,096 (Llama 3 8B). Other models have 20,000 to 60,000 tokens.
 */
#define EVEN_TOKENS (2 * 8.03e9 / (4.0 * 32 * 4096))

struct gdsf {
        struct ranked ranked; /* major: the value's bits, which sort like the value */
        double age;
        uint32_t page_tokens;
};

static int gdsf_new(const struct evict_params *params, void **ret_policy)
{
        struct gdsf *g = ranked_new(params, sizeof(*g));

        if (!g)
                return -ENOMEM;
        g->page_tokens = params->page_tokens;
        *ret_policy = g;
        return 0;
}

/* Bits of a double that isn't negative. */
static uint64_t bits_of(double value)
{
        uint64_t bits;

        memcpy(&bits, &value, sizeof(bits));
        return bits;
}

static double value_of(uint64_t bits)
{
        double value;

        memcpy(&value, &bits, sizeof(value));
        return value;
}

static void set_value(struct gdsf *g, uint32_t node)
{
        const struct ranked_node *n = &g->ranked.nodes[node];
        double cost = 1 + (double)n->depth * g->page_tokens / EVEN_TOKENS;

        ranked_set(g, node, bits_of(g->age + n->uses * cost));
}

static void gdsf_insert(
        void *policy, uint32_t node, const struct evict_insert *what, uint64_t now_nsec)
{
        struct gdsf *g = policy;

        ranked_insert(g, node, what->id, 0);
        set_value(g, node);
}

static void gdsf_touch(void *policy, uint32_t node, uint64_t request, uint64_t now_nsec)
{
        struct gdsf *g = policy;

        for (; node != NODE_NONE; node = tree_parent(g->ranked.tree, node)) {
                g->ranked.nodes[node].uses++;
                set_value(g, node);
        }
}

static void gdsf_remove(void *policy, uint32_t node, enum evict_reason why)
{
        struct gdsf *g = policy;

        if (why == EVICT_PRESSURE)
                g->age = MAX(g->age, value_of(g->ranked.nodes[node].major));
        ranked_remove(g, node, why);
}

static uint64_t gdsf_memory_bytes(const void *policy)
{
        return sizeof(struct gdsf) + ranked_memory_bytes(policy);
}

const struct evict_ops evict_gdsf = {
        .name = "gdsf",
        .new = gdsf_new,
        .free = ranked_free,
        .reserve = ranked_reserve,
        .reset = ranked_reset,
        .insert = gdsf_insert,
        .touch = gdsf_touch,
        .hold = ranked_hold,
        .idle = ranked_idle,
        .remove = gdsf_remove,
        .move = ranked_move,
        .request_end = ranked_request_end,
        .victim = ranked_victim,
        .memory_bytes = gdsf_memory_bytes,
        .check = ranked_check,
};
