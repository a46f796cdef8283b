#include "policy/load-cost.h"

#include "base/clock.h"
#include "base/macros.h"

/* A sample takes an eighth off those before it. */
#define KEPT (7.0 / 8)

/* Bounds of the margin of transfers, and its factor of their error. */
#define MARGIN_MIN    0.25
#define MARGIN_MAX    1.0
#define MARGIN_ERRORS 3

static uint64_t to_u64(double nsec)
{
        return nsec < (double)UINT64_MAX ? (uint64_t)nsec : UINT64_MAX;
}

struct load_cost_ratio load_cost_bandwidth(uint64_t bytes_per_sec)
{
        return (struct load_cost_ratio){
                .amount = bytes_per_sec > 0 ? (double)bytes_per_sec
                                            : (double)LOAD_COST_BANDWIDTH_DEFAULT,
                .nsec = (double)NSEC_PER_SEC,
        };
}

struct load_cost_ratio load_cost_token_time(uint64_t token_nsec)
{
        return (struct load_cost_ratio){
                .amount = 1,
                .nsec = token_nsec > 0 ? (double)token_nsec : (double)LOAD_COST_TOKEN_NSEC_DEFAULT,
        };
}

static double expected_nsec(
        const struct load_cost_ratio *seen, struct load_cost_ratio start, double amount)
{
        const struct load_cost_ratio *r = seen->amount > 0 ? seen : &start;

        return amount * r->nsec / r->amount;
}

uint64_t load_cost_nsec(
        const struct load_cost_ratio *seen, struct load_cost_ratio start, uint64_t amount)
{
        return to_u64(expected_nsec(seen, start, (double)amount));
}

uint64_t load_cost_per_sec(const struct load_cost_ratio *seen, struct load_cost_ratio start)
{
        const struct load_cost_ratio *r = seen->amount > 0 ? seen : &start;

        return to_u64(r->amount * (double)NSEC_PER_SEC / r->nsec);
}

/* Adds a sample; `kept` is the weight of the former ones. */
static void note(struct load_cost_ratio *seen, double amount, double took, double kept)
{
        seen->amount = seen->amount * kept + amount;
        seen->nsec = seen->nsec * kept + took;
}

/* Limits the time of a sample to within LOAD_COST_SAMPLE_SPREAD of the known value. */
static double limit_took(const struct load_cost_ratio *seen, uint64_t amount, uint64_t nsec)
{
        double expected = expected_nsec(seen, *seen, (double)amount);

        if (seen->amount == 0)
                return (double)nsec;
        return MAX(MIN((double)nsec, expected * LOAD_COST_SAMPLE_SPREAD),
                expected / LOAD_COST_SAMPLE_SPREAD);
}

void load_cost_note(struct load_cost_ratio *seen, uint64_t amount, uint64_t nsec)
{
        if (amount > 0 && nsec > 0)
                note(seen, (double)amount, limit_took(seen, amount, nsec), KEPT);
}

void load_cost_note_load(struct load_cost_ratio *seen, uint64_t bytes, uint64_t nsec)
{
        double took, before = MAX(seen->nsec, LOAD_COST_LOADS_NSEC);

        if (bytes < LOAD_COST_SAMPLE_BYTES || nsec == 0)
                return;
        took = limit_took(seen, bytes, nsec);
        note(seen, (double)bytes, took, LOAD_COST_LOADS_NSEC / (before + took));
}

void load_cost_note_value(struct load_cost_ratio *seen, struct load_cost_stream *s, uint64_t bytes,
        bool next_is_there, uint64_t now_nsec)
{
        s->bytes += bytes;
        if (next_is_there)
                return;
        load_cost_note_load(seen, s->bytes, now_nsec - s->since_nsec);
        *s = (struct load_cost_stream){.since_nsec = now_nsec};
}

void load_cost_note_took(struct load_cost_error *error, uint64_t expected_nsec, uint64_t took_nsec)
{
        double expected = (double)expected_nsec, off = (double)took_nsec - expected;

        if (expected_nsec == 0)
                return;
        off = MIN(MAX(off, -off) / expected, 1);
        error->mean = error->mean * KEPT + off * (1 - KEPT);
}

static double transfer_nsec(const struct load_cost_part *p)
{
        double bytes = (double)p->queued_bytes + (double)p->bytes;

        return expected_nsec(p->seen, p->start, bytes);
}

struct load_cost_answer load_cost_loading(const struct load_cost_part *parts, unsigned n,
        uint64_t tokens, const struct load_cost_ratio *seen, struct load_cost_ratio start)
{
        struct load_cost_answer a = {.compute_nsec = load_cost_nsec(seen, start, tokens)};
        double load = 0, expected = 0;

        for (unsigned i = 0; i < n; i++) {
                double rtt = (double)parts[i].rtt_nsec, transfer = transfer_nsec(&parts[i]);
                double margin =
                        MIN(MAX(parts[i].error.mean * MARGIN_ERRORS, MARGIN_MIN), MARGIN_MAX);

                load = MAX(load, rtt + transfer * (1 + margin));
                expected = MAX(expected, rtt + transfer);
        }
        a.load_nsec = to_u64(load);
        a.expected_nsec = to_u64(expected);
        if (tokens < LOAD_COST_TOKENS_MIN)
                a.verdict = LOAD_COST_TOO_SHORT;
        else
                a.verdict = a.load_nsec < a.compute_nsec ? LOAD_COST_LOADED : LOAD_COST_TOO_SLOW;
        return a;
}

bool load_cost_lost(uint64_t took_nsec, uint64_t tokens, const struct load_cost_ratio *seen,
        struct load_cost_ratio start)
{
        return load_cost_nsec(seen, start, tokens) < took_nsec;
}
