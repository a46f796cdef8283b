#include "policy/worth.h"

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

struct worth_ratio worth_bandwidth(uint64_t bytes_per_sec)
{
        return (struct worth_ratio){
                .amount =
                        bytes_per_sec > 0 ? (double)bytes_per_sec : (double)WORTH_BANDWIDTH_DEFAULT,
                .nsec = (double)NSEC_PER_SEC,
        };
}

struct worth_ratio worth_token_time(uint64_t token_nsec)
{
        return (struct worth_ratio){
                .amount = 1,
                .nsec = token_nsec > 0 ? (double)token_nsec : (double)WORTH_TOKEN_NSEC_DEFAULT,
        };
}

static double expected_nsec(const struct worth_ratio *seen, struct worth_ratio start, double amount)
{
        const struct worth_ratio *r = seen->amount > 0 ? seen : &start;

        return amount * r->nsec / r->amount;
}

uint64_t worth_nsec(const struct worth_ratio *seen, struct worth_ratio start, uint64_t amount)
{
        return to_u64(expected_nsec(seen, start, (double)amount));
}

uint64_t worth_per_sec(const struct worth_ratio *seen, struct worth_ratio start)
{
        const struct worth_ratio *r = seen->amount > 0 ? seen : &start;

        return to_u64(r->amount * (double)NSEC_PER_SEC / r->nsec);
}

/* Adds a sample; `kept` is the weight of the former ones. */
static void note(struct worth_ratio *seen, double amount, double took, double kept)
{
        seen->amount = seen->amount * kept + amount;
        seen->nsec = seen->nsec * kept + took;
}

/* Limits the time of a sample to within WORTH_SAMPLE_SPREAD of the known value. */
static double limit_took(const struct worth_ratio *seen, uint64_t amount, uint64_t nsec)
{
        double expected = expected_nsec(seen, *seen, (double)amount);

        if (seen->amount == 0)
                return (double)nsec;
        return MAX(
                MIN((double)nsec, expected * WORTH_SAMPLE_SPREAD), expected / WORTH_SAMPLE_SPREAD);
}

void worth_note(struct worth_ratio *seen, uint64_t amount, uint64_t nsec)
{
        if (amount > 0 && nsec > 0)
                note(seen, (double)amount, limit_took(seen, amount, nsec), KEPT);
}

void worth_note_load(struct worth_ratio *seen, uint64_t bytes, uint64_t nsec)
{
        double took, before = MAX(seen->nsec, WORTH_LOADS_NSEC);

        if (bytes < WORTH_SAMPLE_BYTES || nsec == 0)
                return;
        took = limit_took(seen, bytes, nsec);
        note(seen, (double)bytes, took, WORTH_LOADS_NSEC / (before + took));
}

void worth_note_value(struct worth_ratio *seen, struct worth_stream *s, uint64_t bytes,
        bool next_is_there, uint64_t now_nsec)
{
        s->bytes += bytes;
        if (next_is_there)
                return;
        worth_note_load(seen, s->bytes, now_nsec - s->since_nsec);
        *s = (struct worth_stream){.since_nsec = now_nsec};
}

void worth_note_took(struct worth_error *error, uint64_t expected_nsec, uint64_t took_nsec)
{
        double expected = (double)expected_nsec, off = (double)took_nsec - expected;

        if (expected_nsec == 0)
                return;
        off = MIN(MAX(off, -off) / expected, 1);
        error->mean = error->mean * KEPT + off * (1 - KEPT);
}

static double transfer_nsec(const struct worth_part *p)
{
        double bytes = (double)p->queued_bytes + (double)p->bytes;

        return expected_nsec(p->seen, p->start, bytes);
}

struct worth_answer worth_loading(const struct worth_part *parts, unsigned n, uint64_t tokens,
        const struct worth_ratio *seen, struct worth_ratio start)
{
        struct worth_answer a = {.compute_nsec = worth_nsec(seen, start, tokens)};
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
        if (tokens < WORTH_TOKENS_MIN)
                a.verdict = WORTH_TOO_SHORT;
        else
                a.verdict = a.load_nsec < a.compute_nsec ? WORTH_LOADED : WORTH_TOO_SLOW;
        return a;
}

bool worth_lost(uint64_t took_nsec, uint64_t tokens, const struct worth_ratio *seen,
        struct worth_ratio start)
{
        return worth_nsec(seen, start, tokens) < took_nsec;
}
