/* Lengths, repeats, sessions and ages of reuse. */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/macros.h"
#include "client/trace/analysis.h"

uint32_t known_blocks(const struct sim_trace *t, const struct sim_request *r, const bool *seen)
{
        uint32_t n = 0;

        while (n < r->n_blocks && seen[t->blocks[r->first + n]])
                n++;
        return n;
}

/* ---- sessions -------------------------------------------------------------------------------- */

struct finder {
        const struct sim_trace *trace;
        /* 1 + the request that ended at a block, or one block below it, and wasn't continued; 0:
         * none. Owned, as the rest. */
        uint32_t *at, *above;
        bool *seen;
        uint32_t *continued; /* the result */
};

static const uint32_t *path_of(const struct finder *f, uint32_t request)
{
        return f->trace->blocks + f->trace->requests[request].first;
}

/* Returns the request that `request` continues: the shorter one that ended deepest on its path. */
static uint32_t find_end(const struct finder *f, uint32_t request)
{
        const struct sim_request *requests = f->trace->requests;
        const uint32_t *path = path_of(f, request);

        for (uint32_t i = requests[request].n_blocks; i-- > 0;) {
                uint32_t found = f->at[path[i]] > 0 ? f->at[path[i]] : f->above[path[i]];

                if (found > 0 && requests[found - 1].input_tokens < requests[request].input_tokens)
                        return found - 1;
        }
        return UINT32_MAX;
}

/* Notes the end of a request: its last block, and the one before if that is a sequence of its own.
 * It is if this request, or its session, began it. Otherwise each request with the same system
 * prompt would continue this one. */
static void note_end(struct finder *f, uint32_t request, uint32_t n_fresh)
{
        uint32_t n = f->trace->requests[request].n_blocks;
        const uint32_t *path = path_of(f, request);
        bool is_continued = f->continued[request] != UINT32_MAX;

        if (n > 0 && (is_continued || n_fresh > 0))
                f->at[path[n - 1]] = request + 1;
        if (n > 1 && (is_continued || n_fresh > 1))
                f->above[path[n - 2]] = request + 1;
}

/* The request was continued: no other request continues it. */
static void drop_end(struct finder *f, uint32_t request)
{
        uint32_t n = f->trace->requests[request].n_blocks;
        const uint32_t *path = path_of(f, request);

        if (f->at[path[n - 1]] == request + 1)
                f->at[path[n - 1]] = 0;
        if (n > 1 && f->above[path[n - 2]] == request + 1)
                f->above[path[n - 2]] = 0;
}

static void link_sessions(struct finder *f)
{
        const struct sim_trace *t = f->trace;

        for (uint32_t i = 0; i < t->n_requests; i++) {
                const struct sim_request *r = &t->requests[i];
                uint32_t known = known_blocks(t, r, f->seen);

                f->continued[i] = find_end(f, i);
                if (f->continued[i] != UINT32_MAX)
                        drop_end(f, f->continued[i]);
                note_end(f, i, r->n_blocks - known);
                for (uint32_t j = known; j < r->n_blocks; j++)
                        f->seen[t->blocks[r->first + j]] = true;
        }
}

uint32_t *find_sessions(const struct sim_trace *t)
{
        uint32_t *continued = malloc(MAX(t->n_requests, 1u) * sizeof(*continued));
        _cleanup_free_ uint32_t *at = calloc(MAX(t->n_unique, 1u), sizeof(*at));
        _cleanup_free_ uint32_t *above = calloc(MAX(t->n_unique, 1u), sizeof(*above));
        _cleanup_free_ bool *seen = calloc(MAX(t->n_unique, 1u), sizeof(*seen));
        struct finder f = {t, at, above, seen, continued};

        if (!continued || !at || !above || !seen) {
                free(continued);
                return NULL;
        }
        link_sessions(&f);
        return continued;
}

/* ---- distributions --------------------------------------------------------------------------- */

static uint64_t msec_between(const struct sim_request *from, const struct sim_request *to)
{
        return (to->time_nsec - from->time_nsec) / NSEC_PER_MSEC;
}

static void measure_lengths(const struct sim_trace *t, uint64_t *values, struct analysis *ret)
{
        for (uint32_t i = 0; i < t->n_requests; i++)
                values[i] = t->requests[i].input_tokens;
        dist_of(values, t->n_requests, &ret->input_tokens);
        for (uint32_t i = 0; i < t->n_requests; i++)
                values[i] = t->requests[i].output_tokens;
        dist_of(values, t->n_requests, &ret->output_tokens);
}

/* `first`, `turns`: workspace, an entry for each request. */
static void measure_sessions(const struct sim_trace *t, const uint32_t *continued, uint64_t *values,
        uint32_t *first, uint32_t *turns, struct analysis *ret)
{
        struct sessions *s = &ret->sessions;
        size_t n = 0;

        for (uint32_t i = 0; i < t->n_requests; i++) {
                first[i] = continued[i] == UINT32_MAX ? i : first[continued[i]];
                turns[i] = 0;
                turns[first[i]]++;
                if (continued[i] != UINT32_MAX)
                        values[n++] = msec_between(&t->requests[continued[i]], &t->requests[i]);
        }
        ret->repeats.continued = n;
        dist_of(values, n, &s->gap_msec);
        n = 0;
        for (uint32_t i = 0; i < t->n_requests; i++)
                if (turns[i] > 0)
                        values[n++] = turns[i];
        s->n = n;
        dist_of(values, n, &s->turns);
        /* The last request of a session overwrites those before it. */
        for (uint32_t i = 0; i < t->n_requests; i++)
                values[first[i]] = msec_between(&t->requests[first[i]], &t->requests[i]);
        n = 0;
        for (uint32_t i = 0; i < t->n_requests; i++)
                if (turns[i] > 1)
                        values[n++] = values[i];
        dist_of(values, n, &s->duration_msec);
}

/* Returns the hit tokens of n known blocks: a request's last block may be partial. */
static uint64_t tokens_of_blocks(const struct sim_trace *t, const struct sim_request *r, uint32_t n)
{
        return MIN((uint64_t)n * t->block_tokens, (uint64_t)r->input_tokens);
}

static void measure_repeats(const struct sim_trace *t, bool *seen, struct repeats *ret)
{
        for (uint32_t i = 0; i < t->n_requests; i++) {
                const struct sim_request *r = &t->requests[i];
                uint32_t known = known_blocks(t, r, seen);

                ret->input_tokens += r->input_tokens;
                ret->output_tokens += r->output_tokens;
                ret->repeated_tokens += tokens_of_blocks(t, r, known);
                ret->repeated_requests += known > 0;
                ret->blocks += r->n_blocks;
                ret->repeated_blocks += known;
                for (uint32_t j = known; j < r->n_blocks; j++)
                        seen[t->blocks[r->first + j]] = true;
        }
}

/* `last`: 1 + the last request that used a block, `reused`: of each block; zeroed workspace.
 * `values`: n_blocks entries. */
static void measure_reuse(const struct sim_trace *t, uint32_t *last, bool *reused, bool first_only,
        uint64_t *values, struct dist *ret)
{
        size_t n = 0;

        for (uint32_t i = 0; i < t->n_requests; i++) {
                const struct sim_request *r = &t->requests[i];

                for (uint32_t j = 0; j < r->n_blocks; j++) {
                        uint32_t block = t->blocks[r->first + j];

                        if (last[block] > 0 && !(first_only && reused[block]))
                                values[n++] = msec_between(&t->requests[last[block] - 1], r);
                        reused[block] = last[block] > 0;
                        last[block] = i + 1;
                }
        }
        dist_of(values, n, ret);
}

static int analyze_blocks(const struct sim_trace *t, struct analysis *ret)
{
        _cleanup_free_ uint64_t *values = malloc(MAX(t->n_blocks, UINT64_C(1)) * sizeof(*values));

        for (unsigned first_only = 0; first_only < 2; first_only++) {
                _cleanup_free_ uint32_t *last = calloc(MAX(t->n_unique, 1u), sizeof(*last));
                _cleanup_free_ bool *flags = calloc(MAX(t->n_unique, 1u), sizeof(*flags));

                if (!values || !last || !flags)
                        return -ENOMEM;
                if (first_only)
                        measure_repeats(t, flags, &ret->repeats);
                for (uint32_t i = 0; i < t->n_unique; i++)
                        flags[i] = false;
                measure_reuse(t, last, flags, first_only, values,
                        first_only ? &ret->first_reuse_msec : &ret->reuse_msec);
        }
        return 0;
}

int analyze_requests(const struct sim_trace *t, struct analysis *ret)
{
        size_t n = MAX(t->n_requests, 1u);
        _cleanup_free_ uint64_t *values = malloc(n * sizeof(*values));
        _cleanup_free_ uint32_t *first = malloc(n * sizeof(*first));
        _cleanup_free_ uint32_t *turns = malloc(n * sizeof(*turns));
        _cleanup_free_ uint32_t *continued = find_sessions(t);

        if (!values || !first || !turns || !continued)
                return -ENOMEM;
        ret->duration_msec = msec_between(&t->requests[0], &t->requests[t->n_requests - 1]);
        measure_lengths(t, values, ret);
        measure_sessions(t, continued, values, first, turns, ret);
        return analyze_blocks(t, ret);
}
