/*
 * Makes hints for a trace that has none (struct sim_hints). A hint says whether a later request of
 * the trace uses the text again. A request has the same hint with each policy and capacity.
 */
#include <errno.h>
#include <stdlib.h>

#include "policy/sim/sim-impl.h"

/* Wrong times: 1 s to 9 min, each octave as often. */
#define WRONG_TIMES      10
#define WRONG_FIRST_NSEC UINT64_C(1000000000)

/* The last block of the text that a longer text can have, too. */
static uint32_t last_whole_block(const struct sim_trace *t, const struct sim_request *r)
{
        bool is_partial = r->input_tokens < (uint64_t)r->n_blocks * t->block_tokens;

        return t->blocks[r->first + r->n_blocks - 1 - (is_partial && r->n_blocks > 1)];
}

int sim_hints_init(struct sim *s)
{
        uint32_t *next = malloc(((size_t)s->trace.n_unique + 1) * sizeof(*next));

        s->continued_by = malloc(((size_t)s->trace.n_requests + 1) * sizeof(*s->continued_by));
        if (!next || !s->continued_by) {
                free(next);
                return -ENOMEM;
        }
        for (uint32_t b = 0; b < s->trace.n_unique; b++)
                next[b] = UINT32_MAX;
        for (uint32_t i = s->trace.n_requests; i-- > 0;) {
                const struct sim_request *r = &s->trace.requests[i];

                s->continued_by[i] =
                        r->n_blocks > 0 ? next[last_whole_block(&s->trace, r)] : UINT32_MAX;
                for (uint64_t at = r->first; sim_is_ours(s, r) && at < r->first + r->n_blocks; at++)
                        next[s->trace.blocks[at]] = i;
        }
        free(next);
        return 0;
}

static enum evict_hint draw_hint(const struct sim *s, uint32_t request, uint64_t *ret_after)
{
        const struct sim_hints *h = &s->options.hints;
        uint64_t random = sim_mix(sim_mix(s->options.seed + 2) + request);
        uint32_t next = s->continued_by[request];
        bool is_right = random % 100 < h->right_percent;

        if ((next != UINT32_MAX) != is_right)
                return EVICT_HINT_DONE;
        if (!h->timed)
                return EVICT_HINT_CONTINUES;
        *ret_after =
                is_right ? s->trace.requests[next].time_nsec - s->trace.requests[request].time_nsec
                         : WRONG_FIRST_NSEC << (random / 100 % WRONG_TIMES);
        return EVICT_HINT_RETURNS;
}

static void give_hint(struct sim *s, uint32_t request, uint32_t n_cached, uint64_t now_nsec)
{
        const struct evict_ops *ops = s->options.policy;
        const struct sim_request *r = &s->trace.requests[request];
        enum evict_hint hint = (enum evict_hint)r->hint;
        uint64_t after = 0;

        if (!ops->hint || n_cached < r->n_blocks || n_cached == 0)
                return;
        if (s->options.hints.drawn)
                hint = draw_hint(s, request, &after);
        if (hint != EVICT_HINT_UNKNOWN)
                ops->hint(s->policy, sim_slot(s, s->trace.blocks[r->first + n_cached - 1]), hint,
                        after, now_nsec);
}

void sim_tell_end(struct sim *s, uint32_t request, uint32_t n_cached, uint64_t now_nsec)
{
        const struct evict_ops *ops = s->options.policy;
        uint32_t ending = s->trace.requests[request].ending;

        give_hint(s, request, n_cached, now_nsec);
        if (ops->ending)
                ops->ending(s->policy, (uint64_t)request + 1, ending);
        ops->request_end(s->policy, (uint64_t)request + 1, now_nsec);
}
