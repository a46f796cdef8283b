#include "policy/worth.h"

#include "base/clock.h"
#include "base/macros.h"

/* A sample takes an eighth off those before it. */
#define KEPT (7.0 / 8)

#define MARGIN (5.0 / 4)

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

void worth_note(struct worth_ratio *seen, uint64_t amount, uint64_t nsec)
{
        double took = (double)nsec, expected;

        if (amount == 0 || nsec == 0)
                return;
        if (seen->amount > 0) {
                expected = expected_nsec(seen, *seen, (double)amount);
                took = MAX(
                        MIN(took, expected * WORTH_SAMPLE_SPREAD), expected / WORTH_SAMPLE_SPREAD);
        }
        seen->amount = seen->amount * KEPT + (double)amount;
        seen->nsec = seen->nsec * KEPT + took;
}

void worth_note_load(struct worth_ratio *seen, uint64_t bytes, uint64_t nsec)
{
        if (bytes >= WORTH_SAMPLE_BYTES)
                worth_note(seen, bytes, nsec);
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

static double part_nsec(const struct worth_part *p)
{
        double bytes = (double)p->queued_bytes + (double)p->bytes;

        return (double)p->rtt_nsec + expected_nsec(p->seen, p->start, bytes) * MARGIN;
}

struct worth_answer worth_loading(const struct worth_part *parts, unsigned n, uint64_t tokens,
        const struct worth_ratio *seen, struct worth_ratio start)
{
        struct worth_answer a = {.compute_nsec = worth_nsec(seen, start, tokens)};
        double load = 0;

        for (unsigned i = 0; i < n; i++)
                load = MAX(load, part_nsec(&parts[i]));
        a.load_nsec = to_u64(load);
        if (tokens < WORTH_TOKENS_MIN)
                a.verdict = WORTH_TOO_SHORT;
        else
                a.verdict = a.load_nsec < a.compute_nsec ? WORTH_LOADED : WORTH_TOO_SLOW;
        return a;
}
