#include "policy/sim/sim.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/macros.h"
#include "policy/recompute.h"
#include "policy/sim/policies.h"
#include "policy/sim/sim-impl.h"
#include "policy/tier.h"

/* The inverse of sim_mix(). */
static uint64_t unmix(uint64_t x)
{
        x = (x ^ x >> 31 ^ x >> 62) * UINT64_C(0x319642b2d24d8ec3);
        x = (x ^ x >> 27 ^ x >> 54) * UINT64_C(0x96de1b173f119089);
        return x ^ x >> 30 ^ x >> 60;
}

/* Id of a block: random like a hash of a key, and different for each seed. */
static uint64_t id_of(const struct sim *s, uint32_t block)
{
        return sim_mix(sim_mix(s->options.seed) + block + 1);
}

static uint32_t block_with(const struct sim *s, uint64_t id)
{
        return (uint32_t)(unmix(id) - sim_mix(s->options.seed) - 1);
}

static uint64_t next_use(void *data, uint64_t id)
{
        const struct sim *s = data;
        uint32_t request = s->next_use[block_with(s, id)];

        return request == UINT32_MAX ? UINT64_MAX : request;
}

/* Fills next_same[] from the end of the trace back, with next_use[] as workspace. next_use[] then
 * has the first use of each block. */
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

                for (uint64_t at = r->first; sim_is_ours(s, r) && at < r->first + r->n_blocks;
                        at++) {
                        s->next_same[at] = s->next_use[s->trace.blocks[at]];
                        s->next_use[s->trace.blocks[at]] = i;
                }
        }
        return 0;
}

/* Makes the slots of a tier: `capacity`, and `spare` ones that are used for a moment only. */
static int fill_tier(struct slots *t, uint32_t capacity, uint32_t spare, uint32_t first)
{
        t->capacity = capacity;
        t->free = calloc((size_t)capacity + spare + 1, sizeof(*t->free));
        if (!t->free)
                return -ENOMEM;
        while (t->n_free < capacity + spare) {
                t->free[t->n_free] = first + capacity + spare - 1 - t->n_free;
                t->n_free++;
        }
        return 0;
}

/* At most all blocks of the trace are in use. A page that comes up changes places with a demoted
 * one, which takes a spare slot below. */
static int make_slots(struct sim *s)
{
        uint32_t n_device = MIN(s->options.capacity_pages, sim_n_pages(s));
        uint32_t n_below = MIN(s->options.below_pages, s->trace.n_unique);
        uint32_t first_below = n_device + s->options.may_bypass;
        int r;

        s->n_slots = first_below + n_below + (n_below > 0);
        s->slot_1 = calloc((size_t)sim_n_pages(s) + 1, sizeof(*s->slot_1));
        s->block_of = calloc((size_t)s->n_slots + 1, sizeof(*s->block_of));
        if (!s->slot_1 || !s->block_of)
                return -ENOMEM;
        if (n_below > 0 && first_below > 0)
                tree_set_tiers(&s->tree, (uint32_t[]){0, first_below}, SIM_TIERS);
        r = fill_tier(&s->tiers[0], n_device, s->options.may_bypass, 0);
        /* Running requests also lease pages without content, so the trace's blocks are no bound. */
        if (sim_takes_time(&s->options.engine))
                s->tiers[0].capacity = s->options.capacity_pages;
        if (r == 0)
                r = fill_tier(&s->tiers[1], n_below, n_below > 0, first_below);
        return r == 0 ? tree_reserve(&s->tree, s->n_slots) : r;
}

static int make_policy(struct sim *s)
{
        const struct evict_ops *ops = s->options.policy;
        struct evict_params params = {
                .tree = &s->tree,
                .page_tokens = s->trace.block_tokens,
                .max_ghosts = s->options.max_ghosts,
                .crossover_tokens = s->options.goes_by_cost ? s->options.crossover : 0,
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

static int make_queue(struct sim *s)
{
        s->expect = expect_new(
                s->options.policy, s->policy, &s->tree, NULL, s->n_slots, &s->result.expected);
        s->last_request = calloc((size_t)s->trace.n_unique + 1, sizeof(*s->last_request));
        if (!s->expect || !s->last_request)
                return -ENOMEM;
        for (uint32_t i = 0; i < s->trace.n_requests; i++) {
                const struct sim_request *r = &s->trace.requests[i];

                for (uint64_t at = r->first; sim_is_ours(s, r) && at < r->first + r->n_blocks; at++)
                        s->last_request[s->trace.blocks[at]] = i;
        }
        return 0;
}

int sim_new(const struct sim_trace *trace, const struct sim_options *options, struct sim **ret_sim)
{
        bool looks_ahead = options->policy == &evict_optimum;
        struct sim *s;
        int r;

        if (options->capacity_pages == 0 || (looks_ahead && !options->may_bypass))
                return -EINVAL;
        if ((options->below_pages > 0 || options->expect > 0) &&
                (options->may_bypass || !options->policy->lock))
                return -EINVAL;
        if (sim_takes_time(&options->engine) &&
                (options->may_bypass || options->below_pages > 0 || options->expect > 0))
                return -EINVAL;
        if (options->windows.groups > 0 &&
                (options->windows.tokens == 0 || options->may_bypass || options->below_pages > 0 ||
                        options->expect > 0 || sim_takes_time(&options->engine) ||
                        (uint64_t)trace->n_unique * (1 + options->windows.groups) >= NODE_NONE))
                return -EINVAL;
        s = calloc(1, sizeof(*s));
        if (!s)
                return -ENOMEM;
        s->trace = *trace;
        s->options = *options;
        tree_init(&s->tree);
        r = make_slots(s);
        if (r == 0 && sim_takes_time(&options->engine))
                r = flight_init(s);
        if (r == 0 && looks_ahead)
                r = look_ahead(s);
        if (r == 0 && options->hints.drawn)
                r = sim_hints_init(s);
        if (r == 0)
                r = make_policy(s);
        if (r == 0 && options->expect > 0)
                r = make_queue(s);
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
        for (unsigned t = 0; t < SIM_TIERS; t++)
                free(s->tiers[t].free);
        free(s->next_same);
        free(s->next_use);
        free(s->continued_by);
        flight_deinit(&s->flight);
        free(s->last_request);
        expect_free(s->expect);
        free(s);
}

uint32_t sim_longest_hit(const struct sim *s, const uint32_t *path, uint32_t n)
{
        uint32_t i = 0;

        while (i < n && sim_slot(s, path[i]) != NODE_NONE)
                i++;
        return i;
}

static struct slots *tier_of(struct sim *s, uint32_t slot)
{
        return &s->tiers[tree_tier(&s->tree, slot)];
}

static uint32_t take_slot(struct slots *t)
{
        t->n_used++;
        return t->free[--t->n_free];
}

static void give_slot(struct sim *s, uint32_t slot)
{
        struct slots *t = tier_of(s, slot);

        t->free[t->n_free++] = slot;
        t->n_used--;
}

static bool is_full(const struct slots *t)
{
        return t->n_used >= t->capacity;
}

static void tell_of_leaving(const struct sim *s, uint32_t slot)
{
        if (s->options.leaves && tree_tier(&s->tree, slot) == 0)
                s->options.leaves(s->options.leaves_data, s->block_of[slot]);
}

static void drop_block(struct sim *s, uint32_t slot)
{
        tell_of_leaving(s, slot);
        expect_leaves(s->expect, slot);
        s->options.policy->remove(s->policy, slot, EVICT_PRESSURE);
        tree_remove(&s->tree, slot);
        s->slot_1[s->block_of[slot]] = 0;
        give_slot(s, slot);
        s->result.evictions++;
}

static void move(struct sim *s, uint32_t slot, uint32_t tier)
{
        uint32_t to = take_slot(&s->tiers[tier]), block = s->block_of[slot];

        tell_of_leaving(s, slot);
        tree_move(&s->tree, slot, to);
        s->options.policy->move(s->policy, slot, to);
        expect_moved(s->expect, slot, to);
        s->slot_1[block] = to + 1;
        s->block_of[to] = block;
        give_slot(s, slot);
        if (tier == 0)
                s->result.promotions++;
        else
                s->result.demotions++;
}

static uint32_t victim(const struct sim *s, uint32_t tier, enum evict_how how, uint64_t now)
{
        expect_prune(s->expect, now);
        return s->options.policy->victim(s->policy, tier, how, now);
}

/* Chooses for a full device and a full lower tier. Returns the device leaf to drop if it is worth
 * less than `below`, the lower tier's next victim, or if that is NODE_NONE. NODE_NONE: demote. */
static uint32_t goes_at_once(const struct sim *s, uint32_t below, uint64_t now)
{
        const struct evict_ops *ops = s->options.policy;
        uint32_t here;

        if (below != NODE_NONE && !ops->value)
                return NODE_NONE;
        here = victim(s, 0, EVICT_DROP, now);
        if (here == NODE_NONE || below == NODE_NONE)
                return here;
        return tier_takes(ops->value(s->policy, here, now), 1, ops->value(s->policy, below, now), 1)
                       ? NODE_NONE
                       : here;
}

static bool evict_unexpected(struct sim *s, uint64_t now)
{
        bool is_below_full = is_full(&s->tiers[1]);
        uint32_t below = NODE_NONE, here;

        if (is_below_full && s->tiers[1].capacity > 0)
                below = victim(s, 1, EVICT_DROP, now);
        here = is_below_full ? goes_at_once(s, below, now) : NODE_NONE;
        if (here != NODE_NONE) {
                drop_block(s, here);
                return true;
        }
        if (is_below_full && below == NODE_NONE)
                return false;
        if (below != NODE_NONE)
                drop_block(s, below);
        here = victim(s, 0, EVICT_DEMOTE, now);
        if (here != NODE_NONE)
                move(s, here, 1);
        return here != NODE_NONE;
}

bool sim_evict_one(struct sim *s, uint64_t now)
{
        enum evict_how how = s->tiers[1].capacity > 0 ? EVICT_DEMOTE : EVICT_DROP;

        while (!evict_unexpected(s, now))
                if (!expect_yield(s->expect, 0, how) && !expect_yield(s->expect, 1, EVICT_DROP))
                        return false;
        return true;
}

bool sim_make_room(struct sim *s, uint64_t now)
{
        return !is_full(&s->tiers[0]) || sim_evict_one(s, now);
}

/* Moves the held path's blocks up to the device, while blocks can be demoted for them. */
static void bring_up(struct sim *s, const uint32_t *path, uint32_t n, uint64_t now)
{
        for (uint32_t i = 0; i < n; i++) {
                uint32_t slot = s->slot_1[path[i]] - 1, down;

                if (tree_tier(&s->tree, slot) == 0)
                        continue;
                if (is_full(&s->tiers[0])) {
                        down = victim(s, 0, EVICT_DEMOTE, now);
                        if (down == NODE_NONE)
                                return;
                        move(s, down, 1);
                }
                move(s, slot, 0);
        }
}

/* Tokens of block i. A trace's figures needn't agree, so the result is cut to 1..block_tokens. */
static uint32_t tokens_of(const struct sim *s, const struct sim_request *r, uint32_t i)
{
        uint64_t before = (uint64_t)i * s->trace.block_tokens;
        uint64_t left = r->input_tokens > before ? r->input_tokens - before : 1;

        return (uint32_t)MIN(left, s->trace.block_tokens);
}

static void insert_page(struct sim *s, uint32_t page, uint32_t parent_slot,
        struct evict_insert what, uint64_t now_nsec)
{
        uint32_t slot = take_slot(&s->tiers[0]);

        what.id = id_of(s, page);
        s->slot_1[page] = slot + 1;
        s->block_of[slot] = page;
        tree_insert(&s->tree, slot, parent_slot);
        s->options.policy->insert(s->policy, slot, &what, now_nsec);
        s->result.inserts++;
}

void sim_insert(struct sim *s, uint32_t request, uint32_t i, uint64_t now_nsec)
{
        const struct sim_request *r = &s->trace.requests[request];
        const uint32_t *path = s->trace.blocks + r->first;

        insert_page(s, path[i], i > 0 ? sim_slot(s, path[i - 1]) : NODE_NONE,
                (struct evict_insert){.tokens = tokens_of(s, r, i),
                        .depth = i + 1,
                        .request = (uint64_t)request + 1},
                now_nsec);
}

void sim_insert_window(
        struct sim *s, uint32_t request, uint32_t i, uint32_t group, bool passed, uint64_t now_nsec)
{
        const struct sim_request *r = &s->trace.requests[request];

        insert_page(s, sim_window_page(s, s->trace.blocks[r->first + i], group), NODE_NONE,
                (struct evict_insert){.tokens = tokens_of(s, r, i),
                        .depth = 1,
                        .request = (uint64_t)request + 1,
                        .window_passed = passed},
                now_nsec);
}

/* Inserts the rest of the path. Returns the number of cached blocks. */
static uint32_t insert_rest(struct sim *s, const struct sim_request *r, uint32_t n_hit)
{
        uint32_t i = n_hit;

        for (; i < r->n_blocks; i++) {
                if (!sim_make_room(s, r->time_nsec))
                        break;
                sim_insert(s, s->next, i, r->time_nsec);
        }
        return i;
}

/* Like insert_rest(), but holds nothing: the block just inserted may be evicted at once. */
static uint32_t insert_or_bypass(struct sim *s, const struct sim_request *r, uint32_t n_hit)
{
        const uint32_t *path = s->trace.blocks + r->first;
        uint32_t i = n_hit;

        for (; i < r->n_blocks; i++) {
                sim_insert(s, s->next, i, r->time_nsec);
                s->options.policy->idle(s->policy, sim_slot(s, path[i]), r->time_nsec);
                if (s->tiers[0].n_free == 0)
                        sim_evict_one(s, r->time_nsec);
                if (sim_slot(s, path[i]) == NODE_NONE)
                        break;
        }
        return i;
}

static void touch(struct sim *s, uint32_t slot, uint32_t depth, uint64_t request, uint64_t now)
{
        s->options.policy->touch(s->policy, slot, request, now);
        (void)expect_touched(s->expect, slot, depth);
}

static void hold_path(struct sim *s, const uint32_t *path, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++)
                s->options.policy->hold(s->policy, sim_slot(s, path[i]));
}

static void let_go_of_path(struct sim *s, const uint32_t *path, uint32_t n, uint64_t now)
{
        while (n-- > 0)
                s->options.policy->idle(s->policy, sim_slot(s, path[n]), now);
}

void sim_count_request(struct sim *s, const struct sim_request *r, uint32_t n_hit)
{
        const uint32_t *path = s->trace.blocks + r->first;
        uint64_t hit_tokens = MIN((uint64_t)n_hit * s->trace.block_tokens, r->input_tokens);

        for (uint32_t i = 0; i < n_hit; i++)
                if (tree_tier(&s->tree, sim_slot(s, path[i])) > 0)
                        s->result.below_tokens += tokens_of(s, r, i);
        s->result.requests++;
        s->result.input_tokens += r->input_tokens;
        s->result.hit_tokens += hit_tokens;
        s->result.input_cost += recompute_prefix(r->input_tokens, s->options.crossover);
        s->result.hit_cost += recompute_prefix(hit_tokens, s->options.crossover);
        s->result.blocks += r->n_blocks;
        s->result.hit_blocks += n_hit;
}

void sim_work(struct sim *s, uint64_t now_nsec)
{
        const struct evict_ops *ops = s->options.policy;

        while (ops->work && ops->work(s->policy, now_nsec))
                ;
}

void sim_end_request(struct sim *s, const struct sim_request *r, uint32_t n_cached)
{
        sim_tell_end(s, s->next, n_cached, r->time_nsec);
}

static void run_request(struct sim *s, const struct sim_request *r)
{
        const uint32_t *path = s->trace.blocks + r->first;
        uint32_t n_hit = sim_longest_hit(s, path, r->n_blocks), n_cached;
        uint64_t id = (uint64_t)s->next + 1;
        bool holds = !s->options.may_bypass;

        sim_count_request(s, r, n_hit);
        for (uint32_t i = 0; s->next_use && i < r->n_blocks; i++)
                s->next_use[path[i]] = s->next_same[r->first + i];
        if (holds)
                hold_path(s, path, n_hit);
        if (n_hit > 0)
                touch(s, sim_slot(s, path[n_hit - 1]), n_hit, id, r->time_nsec);
        bring_up(s, path, n_hit, r->time_nsec);
        n_cached = holds ? insert_rest(s, r, n_hit) : insert_or_bypass(s, r, n_hit);
        sim_end_request(s, r, n_cached);
        if (holds)
                let_go_of_path(s, path, n_cached, r->time_nsec);
        sim_work(s, r->time_nsec);
}

/* ---- the queue that is known ------------------------------------------------------------------
 */

/* Tries to find a text that isn't requested again. */
#define WRONG_TRIES 16

/* Such a text comes from the last requests, whose blocks are mostly cached. */
#define WRONG_REQUESTS 1024

static uint32_t random_below(struct sim *s, uint32_t n)
{
        return (uint32_t)(sim_mix(sim_mix(s->options.seed + 1) + ++s->draws) % n);
}

/* Expects the cached part of the request's text until the request runs. */
static void expect_text(struct sim *s, const struct sim_request *r, uint64_t now)
{
        const uint32_t *path = s->trace.blocks + r->first;
        uint32_t n_hit = sim_longest_hit(s, path, r->n_blocks);
        uint64_t n_pages[TREE_TIERS] = {0};

        for (unsigned t = 0; t < SIM_TIERS; t++)
                n_pages[t] = s->tiers[t].n_used;
        if (n_hit > 0)
                expect_add(s->expect, sim_slot(s, path[n_hit - 1]), n_hit,
                        now + EXPECT_TTL_MSEC * UINT64_C(1000000), n_pages, now);
}

/* Expects a text of the last requests that isn't requested again. */
static void expect_wrongly(struct sim *s, uint64_t now)
{
        uint32_t n = MIN(s->next, (uint32_t)WRONG_REQUESTS);

        for (unsigned i = 0; i < WRONG_TRIES && n > 0; i++) {
                uint32_t request = s->next - 1 - random_below(s, n);
                const struct sim_request *r = &s->trace.requests[request];

                if (!sim_is_ours(s, r) || r->n_blocks == 0 ||
                        s->last_request[s->trace.blocks[r->first + r->n_blocks - 1]] != request)
                        continue;
                expect_text(s, r, now);
                return;
        }
}

/* Fills the queue up with the requests that come next. */
static void fill_queue(struct sim *s)
{
        uint64_t now = s->trace.requests[s->next].time_nsec;
        uint32_t end =
                (uint32_t)MIN((uint64_t)s->next + s->options.expect, (uint64_t)s->trace.n_requests);

        for (; s->n_queued < end; s->n_queued++) {
                if (!sim_is_ours(s, &s->trace.requests[s->n_queued]))
                        continue;
                if (random_below(s, 100) < s->options.wrong_percent)
                        expect_wrongly(s, now);
                else
                        expect_text(s, &s->trace.requests[s->n_queued], now);
        }
}

uint32_t sim_run(struct sim *s, uint32_t n)
{
        for (; n > 0 && s->next < s->trace.n_requests; n--, s->next++) {
                const struct sim_request *r = &s->trace.requests[s->next];

                if (s->next == s->options.count_from)
                        s->result = (struct sim_result){0};
                if (s->expect)
                        fill_queue(s);
                if (!sim_is_ours(s, r))
                        continue;
                if (s->flight.running)
                        flight_run(s, r);
                else if (s->options.windows.groups > 0)
                        windows_run(s, r);
                else
                        run_request(s, r);
        }
        if (s->flight.running && s->next == s->trace.n_requests)
                flight_finish(s);
        return s->trace.n_requests - s->next;
}

void sim_run_one(struct sim *s, uint32_t request)
{
        assert(!s->expect && !s->flight.running && !s->options.may_bypass);
        assert(s->options.windows.groups == 0);
        assert(request >= s->next && request < s->trace.n_requests);
        s->next = request;
        run_request(s, &s->trace.requests[request]);
        s->next++;
}

uint32_t sim_would_hit(const struct sim *s, uint32_t request)
{
        const struct sim_request *r = &s->trace.requests[request];

        return sim_longest_hit(s, s->trace.blocks + r->first, r->n_blocks);
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
        bool is_window;

        if (!tree_has(&s->tree, slot))
                return NULL;
        block = s->block_of[slot];
        is_window = block >= s->trace.n_unique;
        if (sim_slot(s, block) != slot)
                return "a slot in use is not where its block is";
        parent = is_window ? NODE_NONE : s->trace.parents[block];
        if (parent != NODE_NONE && sim_slot(s, parent) == NODE_NONE)
                return "a block is cached and its parent is not";
        if (tree_parent(&s->tree, slot) != (parent == NODE_NONE ? NODE_NONE : sim_slot(s, parent)))
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
        for (uint32_t b = 0; b < sim_n_pages(s); b++)
                n_cached += s->slot_1[b] != 0;
        if (n_used != n_cached)
                return "slots and cached blocks are not as many";
        for (unsigned t = 0; t < SIM_TIERS; t++) {
                n_used -= s->tiers[t].n_used;
                if (s->tiers[t].n_used > s->tiers[t].capacity)
                        return "more is cached than fits";
        }
        if (n_used != 0)
                return "slots in use are not as many as are counted";
        wrong = tree_check(&s->tree);
        if (!wrong && s->flight.running)
                wrong = flight_check(s);
        if (!wrong && s->expect)
                wrong = expect_verify(s->expect);
        return wrong ? wrong : s->options.policy->check(s->policy);
}
