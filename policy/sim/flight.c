#include "policy/sim/flight.h"

#include <errno.h>
#include <stdlib.h>

#include "base/macros.h"
#include "policy/sim/sim-impl.h"

#define NSEC_A_SEC UINT64_C(1000000000)

int flight_init(struct sim *s)
{
        uint32_t limit = s->options.engine.max_running, n = s->trace.n_requests;

        if (limit > 0)
                n = MIN(n, limit);
        s->flight.running = calloc((size_t)n + 1, sizeof(*s->flight.running));
        s->flight.holds = calloc((size_t)s->n_slots + 1, sizeof(*s->flight.holds));
        return s->flight.running && s->flight.holds ? 0 : -ENOMEM;
}

void flight_deinit(struct flight *f)
{
        free(f->running);
        free(f->holds);
        *f = (struct flight){0};
}

/* ---- the heap -------------------------------------------------------------------------------- */

static bool comes_before(const struct running *a, const struct running *b)
{
        return a->at_nsec != b->at_nsec ? a->at_nsec < b->at_nsec : a->order < b->order;
}

/* Puts it where place i is free and all below i come after it. */
static void heap_rise(struct flight *f, uint32_t i, struct running run)
{
        for (; i > 0 && comes_before(&run, &f->running[(i - 1) / 2]); i = (i - 1) / 2)
                f->running[i] = f->running[(i - 1) / 2];
        f->running[i] = run;
}

static void heap_push(struct flight *f, const struct running *run)
{
        heap_rise(f, f->n_running++, *run);
}

static struct running heap_pop(struct flight *f)
{
        struct running first = f->running[0], last = f->running[--f->n_running];
        uint32_t i = 0, child;

        while ((child = 2 * i + 1) < f->n_running) {
                if (child + 1 < f->n_running &&
                        comes_before(&f->running[child + 1], &f->running[child]))
                        child++;
                f->running[i] = f->running[child];
                i = child;
        }
        heap_rise(f, i, last);
        return first;
}

/* ---- time ------------------------------------------------------------------------------------ */

static uint64_t after(uint64_t now_nsec, uint64_t n, uint64_t nsec_each)
{
        uint64_t nsec;

        if (__builtin_mul_overflow(n, nsec_each, &nsec) || nsec > SIM_TIME_MAX_NSEC - now_nsec)
                return SIM_TIME_MAX_NSEC;
        return now_nsec + nsec;
}

static uint64_t prefilled_at(const struct sim *s, uint64_t n_tokens)
{
        uint64_t a_second = s->options.engine.prefill_tokens_per_sec;

        /* Fewer than 2^32 tokens: no overflow. */
        return a_second > 0 ? after(s->flight.now_nsec, 1, n_tokens * NSEC_A_SEC / a_second)
                            : s->flight.now_nsec;
}

/* Advances the time, with the held pages. */
static void go_on_to(struct sim *s, uint64_t nsec)
{
        struct flight *f = &s->flight;
        double seconds;

        if (f->n_begun == 0 || nsec <= f->now_nsec) {
                f->now_nsec = MAX(f->now_nsec, nsec);
                return;
        }
        seconds = (double)(nsec - f->now_nsec) / (double)NSEC_A_SEC;
        s->result.flight.held_page_seconds += seconds * (f->n_held + f->n_leased);
        s->result.flight.cached_page_seconds += seconds * s->tiers[0].capacity;
        f->now_nsec = nsec;
}

/* ---- held pages ------------------------------------------------------------------------------ */

static void hold_block(struct sim *s, uint32_t block)
{
        uint32_t slot = sim_slot(s, block);

        if (s->flight.holds[slot]++ > 0)
                return;
        s->flight.n_held++;
        s->options.policy->hold(s->policy, slot);
}

static void let_go_of_block(struct sim *s, uint32_t block)
{
        uint32_t slot = sim_slot(s, block);

        if (--s->flight.holds[slot] > 0)
                return;
        s->flight.n_held--;
        s->options.policy->idle(s->policy, slot, s->flight.now_nsec);
}

/* Pages that a request could have which holds so many of these blocks as well. */
static uint32_t room_beside(const struct sim *s, const uint32_t *path, uint32_t n)
{
        const struct flight *f = &s->flight;
        uint32_t room = s->tiers[0].capacity - f->n_held - f->n_leased;

        for (uint32_t i = 0; i < n; i++)
                room -= f->holds[sim_slot(s, path[i])] == 0;
        return room;
}

/* Evicts pages that aren't held, until the leases have their room. */
static void make_room(struct sim *s)
{
        struct slots *device = &s->tiers[0];

        while (device->n_used + s->flight.n_leased > device->capacity)
                if (!sim_evict_one(s, s->flight.now_nsec))
                        return;
}

/* ---- a request's life ------------------------------------------------------------------------ */

/* Pages for the output, as far as the last block of the path has no room for it. */
static uint64_t output_pages(const struct sim *s, const struct sim_request *r)
{
        uint64_t tokens = (uint64_t)r->input_tokens + r->output_tokens;
        uint64_t in_path = (uint64_t)r->n_blocks * s->trace.block_tokens;

        if (s->options.engine.output_token_nsec == 0 || tokens <= in_path)
                return 0;
        return (tokens - in_path + s->trace.block_tokens - 1) / s->trace.block_tokens;
}

/* Begins the request, with this room; `n_hit` blocks are found. */
static void begin(struct sim *s, const struct sim_request *r, uint32_t n_hit, uint32_t room)
{
        struct flight *f = &s->flight;
        const uint32_t *path = s->trace.blocks + r->first;
        uint64_t hit_tokens = MIN((uint64_t)n_hit * s->trace.block_tokens, r->input_tokens);
        uint32_t n_new = MIN(r->n_blocks - n_hit, room);
        struct running run = {
                .at_nsec = prefilled_at(s, r->input_tokens - hit_tokens),
                .order = f->n_begun++,
                .request = s->next,
                .n_held = n_hit,
                .n_path = n_hit + n_new,
                .n_output = (uint32_t)MIN(output_pages(s, r), (uint64_t)(room - n_new)),
        };

        sim_count_request(s, r, n_hit);
        for (uint32_t i = 0; i < n_hit; i++)
                hold_block(s, path[i]);
        if (n_hit > 0)
                s->options.policy->touch(s->policy, sim_slot(s, path[n_hit - 1]),
                        (uint64_t)s->next + 1, f->now_nsec);
        f->n_leased += n_new + run.n_output;
        make_room(s);
        s->result.flight.uncached_blocks += r->n_blocks - run.n_path;
        heap_push(f, &run);
        s->result.flight.max_running = MAX(s->result.flight.max_running, (uint64_t)f->n_running);
}

static bool begin_if_possible(struct sim *s, const struct sim_request *r)
{
        struct flight *f = &s->flight;
        const uint32_t *path = s->trace.blocks + r->first;
        uint32_t limit = s->options.engine.max_running, n_hit, room;

        if (limit > 0 && f->n_running == limit)
                return false;
        n_hit = sim_longest_hit(s, path, r->n_blocks);
        room = room_beside(s, path, n_hit);
        if (f->n_running > 0 && r->n_blocks - n_hit + output_pages(s, r) > room)
                return false;
        begin(s, r, n_hit, room);
        return true;
}

/* The blocks that it computed can be found from now on. */
static void publish_path(struct sim *s, struct running *run)
{
        const uint32_t *path = s->trace.blocks + s->trace.requests[run->request].first;
        struct flight *f = &s->flight;

        for (; run->n_held < run->n_path; run->n_held++) {
                uint32_t block = path[run->n_held];

                f->n_leased--;
                if (sim_slot(s, block) != NODE_NONE) {
                        s->result.flight.duplicate_blocks++;
                        hold_block(s, block);
                        continue;
                }
                sim_insert(s, run->request, run->n_held, f->now_nsec);
                f->holds[sim_slot(s, block)] = 1;
                f->n_held++;
        }
        run->is_prefilled = true;
        run->at_nsec = after(f->now_nsec, s->trace.requests[run->request].output_tokens,
                s->options.engine.output_token_nsec);
}

static void end(struct sim *s, const struct running *run)
{
        const uint32_t *path = s->trace.blocks + s->trace.requests[run->request].first;
        uint64_t now = s->flight.now_nsec;

        sim_tell_end(s, run->request, run->n_held, now);
        for (uint32_t i = run->n_held; i-- > 0;)
                let_go_of_block(s, path[i]);
        s->flight.n_leased -= run->n_output;
        sim_work(s, now);
}

/* Runs the next event of running requests. */
static void run_event(struct sim *s)
{
        struct running run = heap_pop(&s->flight);

        go_on_to(s, run.at_nsec);
        if (run.is_prefilled) {
                end(s, &run);
                return;
        }
        publish_path(s, &run);
        heap_push(&s->flight, &run);
}

void flight_run(struct sim *s, const struct sim_request *r)
{
        struct flight *f = &s->flight;
        uint64_t came = MIN(r->time_nsec, SIM_TIME_MAX_NSEC);

        while (f->n_running > 0 && f->running[0].at_nsec <= came)
                run_event(s);
        go_on_to(s, came);
        while (!begin_if_possible(s, r))
                run_event(s);
        if (f->now_nsec > came) {
                s->result.flight.waited_requests++;
                s->result.flight.wait_nsec += f->now_nsec - came;
        }
}

void flight_finish(struct sim *s)
{
        while (s->flight.n_running > 0)
                run_event(s);
}

const char *flight_check(const struct sim *s)
{
        uint32_t n_held = 0;

        for (uint32_t slot = 0; slot < s->n_slots; slot++) {
                n_held += s->flight.holds[slot] > 0;
                if (s->flight.holds[slot] > 0 && !tree_has(&s->tree, slot))
                        return "a slot is held and not in use";
        }
        if (n_held != s->flight.n_held)
                return "slots that are held are not as many as are counted";
        if (s->tiers[0].n_used + s->flight.n_leased > s->tiers[0].capacity)
                return "more is cached and leased than fits";
        return NULL;
}
