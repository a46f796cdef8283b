#include "policy/sim/sim.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/macros.h"
#include "policy/sim/policies.h"

/* Odd, 2^64 divided by the golden ratio, and what undoes multiplying by it. */
#define ID_FACTOR  UINT64_C(0x9e3779b97f4a7c15)
#define ID_INVERSE UINT64_C(0xf1de83e19937733d)

struct sim {
        struct sim_trace trace; /* borrowed arrays */
        struct sim_options options;
        struct tree tree;
        void *policy;
        uint32_t *slot_1;    /* of a block, plus one; 0: not cached */
        uint32_t *block_of;  /* of a slot in use */
        uint32_t *free;      /* a stack of slots */
        uint32_t *next_same; /* optimum: of each trace.blocks[i], the request that has it next */
        uint32_t *next_use;  /* optimum: of each block, the same as of the running request */
        uint32_t n_slots, n_free;
        uint32_t next; /* request */
        struct sim_result result;
};

/* As bits of a key's hash: spread over all 64, so that a policy may take any of them. */
static uint64_t id_of(uint32_t block)
{
        return __builtin_bswap64(((uint64_t)block + 1) * ID_FACTOR);
}

static uint32_t block_with(uint64_t id)
{
        return (uint32_t)(__builtin_bswap64(id) * ID_INVERSE - 1);
}

static bool is_ours(const struct sim *s, const struct sim_request *r)
{
        return s->options.tenant == SIM_ALL_TENANTS || s->options.tenant == r->tenant;
}

static uint64_t next_use(void *data, uint64_t id)
{
        const struct sim *s = data;
        uint32_t request = s->next_use[block_with(id)];

        return request == UINT32_MAX ? UINT64_MAX : request;
}

/* From the end of the trace back. next_use[] is the workspace, and then of no request yet. */
static int look_ahead(struct sim *s)
{
        s->next_same = calloc((size_t)s->trace.n_blocks + 1, sizeof(*s->next_same));
        s->next_use = calloc((size_t)s->trace.n_unique + 1, sizeof(*s->next_use));
        if (!s->next_same || !s->next_use)
                return -ENOMEM;
        for (uint32_t b = 0; b < s->trace.n_unique; b++)
                s->next_use[b] = UINT32_MAX;
        for (uint32_t i = s->trace.n_requests; i-- > 0;) {
                const struct sim_request *r = &s->trace.requests[i];

                for (uint64_t at = r->first; is_ours(s, r) && at < r->first + r->n_blocks; at++) {
                        s->next_same[at] = s->next_use[s->trace.blocks[at]];
                        s->next_use[s->trace.blocks[at]] = i;
                }
        }
        return 0;
}

static int make_slots(struct sim *s)
{
        s->n_slots = MIN(s->options.capacity_pages, s->trace.n_unique) + s->options.may_bypass;
        s->slot_1 = calloc((size_t)s->trace.n_unique + 1, sizeof(*s->slot_1));
        s->block_of = calloc((size_t)s->n_slots + 1, sizeof(*s->block_of));
        s->free = calloc((size_t)s->n_slots + 1, sizeof(*s->free));
        if (!s->slot_1 || !s->block_of || !s->free)
                return -ENOMEM;
        while (s->n_free < s->n_slots) {
                s->free[s->n_free] = s->n_slots - 1 - s->n_free;
                s->n_free++;
        }
        return tree_reserve(&s->tree, s->n_slots);
}

static int make_policy(struct sim *s)
{
        const struct evict_ops *ops = s->options.policy;
        struct evict_params params = {
                .tree = &s->tree,
                .page_tokens = s->trace.block_tokens,
                .max_ghosts = s->options.max_ghosts,
                .next_use = s->next_use ? next_use : NULL,
                .next_use_data = s,
        };
        int r;

        r = ops->new (&params, &s->policy);
        if (r == 0)
                r = ops->reserve(s->policy, s->n_slots);
        if (r < 0 || !s->options.learnt)
                return r;
        return ops->load ? ops->load(s->policy, s->options.learnt, s->options.learnt_bytes)
                         : -EINVAL;
}

int sim_new(const struct sim_trace *trace, const struct sim_options *options, struct sim **ret_sim)
{
        bool looks_ahead = options->policy == &evict_optimum;
        struct sim *s;
        int r;

        if (options->capacity_pages == 0 || (looks_ahead && !options->may_bypass))
                return -EINVAL;
        s = calloc(1, sizeof(*s));
        if (!s)
                return -ENOMEM;
        s->trace = *trace;
        s->options = *options;
        tree_init(&s->tree);
        r = make_slots(s);
        if (r == 0 && looks_ahead)
                r = look_ahead(s);
        if (r == 0)
                r = make_policy(s);
        if (r < 0) {
                sim_free(s);
                return r;
        }
        *ret_sim = s;
        return 0;
}

void sim_free(struct sim *s)
{
        if (!s)
                return;
        if (s->policy)
                s->options.policy->free(s->policy);
        tree_deinit(&s->tree);
        free(s->slot_1);
        free(s->block_of);
        free(s->free);
        free(s->next_same);
        free(s->next_use);
        free(s);
}

static uint32_t slot_of(const struct sim *s, uint32_t block)
{
        return s->slot_1[block] - 1;
}

static uint32_t longest_hit(const struct sim *s, const uint32_t *path, uint32_t n)
{
        uint32_t i = 0;

        while (i < n && slot_of(s, path[i]) != NODE_NONE)
                i++;
        return i;
}

/* False where there is no victim. */
static bool evict_one(struct sim *s, uint64_t now)
{
        const struct evict_ops *ops = s->options.policy;
        uint32_t victim = ops->victim(s->policy, 0, EVICT_DROP, now);

        if (victim == NODE_NONE)
                return false;
        ops->remove(s->policy, victim, EVICT_PRESSURE);
        tree_remove(&s->tree, victim);
        s->slot_1[s->block_of[victim]] = 0;
        s->free[s->n_free++] = victim;
        s->result.evictions++;
        return true;
}

/* Tokens of block i. A trace's figures needn't agree: at least one, at most a block's. */
static uint32_t tokens_of(const struct sim *s, const struct sim_request *r, uint32_t i)
{
        uint64_t before = (uint64_t)i * s->trace.block_tokens;
        uint64_t left = r->input_tokens > before ? r->input_tokens - before : 1;

        return (uint32_t)MIN(left, s->trace.block_tokens);
}

static void insert(struct sim *s, const struct sim_request *r, uint32_t i)
{
        const uint32_t *path = s->trace.blocks + r->first;
        uint32_t slot = s->free[--s->n_free];
        struct evict_insert what = {
                .id = id_of(path[i]),
                .tokens = tokens_of(s, r, i),
                .request = (uint64_t)s->next + 1,
        };

        s->slot_1[path[i]] = slot + 1;
        s->block_of[slot] = path[i];
        tree_insert(&s->tree, slot, i > 0 ? slot_of(s, path[i - 1]) : NODE_NONE);
        s->options.policy->insert(s->policy, slot, &what, r->time_nsec);
        s->result.inserts++;
}

/* Blocks of the path that are cached then. */
static uint32_t insert_rest(struct sim *s, const struct sim_request *r, uint32_t n_hit)
{
        uint32_t i = n_hit;

        for (; i < r->n_blocks; i++) {
                if (s->n_free == 0 && !evict_one(s, r->time_nsec))
                        break;
                insert(s, r, i);
        }
        return i;
}

/* The same where nothing is held: one slot is spare, and what is in it may go at once. */
static uint32_t insert_or_bypass(struct sim *s, const struct sim_request *r, uint32_t n_hit)
{
        const uint32_t *path = s->trace.blocks + r->first;
        uint32_t i = n_hit;

        for (; i < r->n_blocks; i++) {
                insert(s, r, i);
                s->options.policy->idle(s->policy, slot_of(s, path[i]), r->time_nsec);
                if (s->n_free == 0)
                        evict_one(s, r->time_nsec);
                if (slot_of(s, path[i]) == NODE_NONE)
                        break;
        }
        return i;
}

static void hold_path(struct sim *s, const uint32_t *path, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++)
                s->options.policy->hold(s->policy, slot_of(s, path[i]));
}

static void let_go_of_path(struct sim *s, const uint32_t *path, uint32_t n, uint64_t now)
{
        while (n-- > 0)
                s->options.policy->idle(s->policy, slot_of(s, path[n]), now);
}

static void count(struct sim *s, const struct sim_request *r, uint32_t n_hit)
{
        s->result.requests++;
        s->result.input_tokens += r->input_tokens;
        s->result.hit_tokens += MIN((uint64_t)n_hit * s->trace.block_tokens, r->input_tokens);
        s->result.blocks += r->n_blocks;
        s->result.hit_blocks += n_hit;
}

static void run_request(struct sim *s, const struct sim_request *r)
{
        const struct evict_ops *ops = s->options.policy;
        const uint32_t *path = s->trace.blocks + r->first;
        uint32_t n_hit = longest_hit(s, path, r->n_blocks), n_cached;
        uint64_t id = (uint64_t)s->next + 1;
        bool holds = !s->options.may_bypass;

        count(s, r, n_hit);
        for (uint32_t i = 0; s->next_use && i < r->n_blocks; i++)
                s->next_use[path[i]] = s->next_same[r->first + i];
        if (holds)
                hold_path(s, path, n_hit);
        if (n_hit > 0)
                ops->touch(s->policy, slot_of(s, path[n_hit - 1]), id, r->time_nsec);
        n_cached = holds ? insert_rest(s, r, n_hit) : insert_or_bypass(s, r, n_hit);
        if (ops->hint && r->hint != EVICT_HINT_UNKNOWN && n_cached == r->n_blocks && n_cached > 0)
                ops->hint(s->policy, slot_of(s, path[n_cached - 1]), r->hint, 0, r->time_nsec);
        ops->request_end(s->policy, id, r->time_nsec);
        if (holds)
                let_go_of_path(s, path, n_cached, r->time_nsec);
        if (ops->work)
                ops->work(s->policy, r->time_nsec);
}

uint32_t sim_run(struct sim *s, uint32_t n)
{
        for (; n > 0 && s->next < s->trace.n_requests; n--, s->next++)
                if (is_ours(s, &s->trace.requests[s->next]))
                        run_request(s, &s->trace.requests[s->next]);
        return s->trace.n_requests - s->next;
}

void sim_result(const struct sim *s, struct sim_result *ret)
{
        *ret = s->result;
        ret->policy_bytes = s->options.policy->memory_bytes(s->policy);
}

const void *sim_policy(const struct sim *s)
{
        return s->policy;
}

static const char *check_slot(const struct sim *s, uint32_t slot)
{
        uint32_t block, parent;

        if (!tree_has(&s->tree, slot))
                return NULL;
        block = s->block_of[slot];
        if (slot_of(s, block) != slot)
                return "a slot in use is not where its block is";
        parent = s->trace.parents[block];
        if (parent != NODE_NONE && slot_of(s, parent) == NODE_NONE)
                return "a block is cached and its parent is not";
        if (tree_parent(&s->tree, slot) != (parent == NODE_NONE ? NODE_NONE : slot_of(s, parent)))
                return "the tree of slots is not that of the blocks";
        return NULL;
}

const char *sim_check(const struct sim *s)
{
        uint32_t n_used = 0, n_cached = 0;
        const char *wrong;

        for (uint32_t slot = 0; slot < s->n_slots; slot++) {
                wrong = check_slot(s, slot);
                if (wrong)
                        return wrong;
                n_used += tree_has(&s->tree, slot);
        }
        for (uint32_t b = 0; b < s->trace.n_unique; b++)
                n_cached += s->slot_1[b] != 0;
        if (n_used != n_cached || n_used + s->n_free != s->n_slots)
                return "slots and cached blocks are not as many";
        if (n_cached > s->options.capacity_pages)
                return "more is cached than fits";
        wrong = tree_check(&s->tree);
        return wrong ? wrong : s->options.policy->check(s->policy);
}
