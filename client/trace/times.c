/* Checks whether the times of a trace can have the given unit. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/macros.h"
#include "client/trace/analysis.h"

/* Seconds since 1970, from 2001 to 2096: read as milliseconds they are days after the start. */
#define EPOCH_SEC_MIN UINT64_C(1000000000)
#define EPOCH_SEC_MAX UINT64_C(4000000000)

/* No engine decodes a token of one request faster. */
#define TOKEN_NSEC_MIN (NSEC_PER_MSEC / 2)

/* Fewest requests that continue others, and fewest output tokens: below that they prove nothing.
 * And too fast requests count from one in FAST_PART on: fewer may be others that share a sequence.
 * Not tuned. */
#define CONTINUED_MIN 5
#define OUTPUT_MIN    16
#define FAST_PART     10

/* Tokens a second of a trace's answers: more than any host. */
#define HOST_RATE_MAX 30000

/* ---- what speaks against them ---------------------------------------------------------------- */

static bool is_epoch_of_seconds(const struct sim_trace *t)
{
        uint64_t first_msec = t->requests[0].time_nsec / NSEC_PER_MSEC;

        return first_msec >= EPOCH_SEC_MIN && first_msec <= EPOCH_SEC_MAX;
}

/* Counts requests that continue one with a long answer, and those of them that came before that
 * answer could be there. Returns 0 or -ENOMEM. */
static int count_fast(const struct sim_trace *t, uint64_t *ret_n, uint64_t *ret_fast)
{
        _cleanup_free_ uint32_t *continued = find_sessions(t);

        *ret_n = *ret_fast = 0;
        if (!continued)
                return -ENOMEM;
        for (uint32_t i = 0; i < t->n_requests; i++) {
                const struct sim_request *before;

                if (continued[i] == UINT32_MAX)
                        continue;
                before = &t->requests[continued[i]];
                if (before->output_tokens < OUTPUT_MIN)
                        continue;
                ++*ret_n;
                *ret_fast += t->requests[i].time_nsec - before->time_nsec <
                             before->output_tokens * TOKEN_NSEC_MIN;
        }
        return 0;
}

/* Returns 0 if there is no time between the first and the last. */
static double output_rate(const struct sim_trace *t)
{
        uint64_t nsec = t->requests[t->n_requests - 1].time_nsec - t->requests[0].time_nsec;
        double tokens = 0;

        for (uint32_t i = 0; i < t->n_requests; i++)
                tokens += t->requests[i].output_tokens;
        return nsec > 0 && t->n_requests > 1 ? tokens * NSEC_PER_SEC / (double)nsec : 0;
}

/* ---- both ------------------------------------------------------------------------------------ */

int trace_doubt_times(const struct trace *trace, bool is_of_one_host, enum trace_doubt *ret,
        char *why, size_t size)
{
        const struct sim_trace *t = &trace->sim;
        uint64_t n, n_fast;
        int r;

        *ret = TRACE_DOUBT_NONE;
        why[0] = '\0';
        if (!trace->has_times)
                return 0;
        r = count_fast(t, &n, &n_fast);
        if (r < 0)
                return r;
        if (is_epoch_of_seconds(t)) {
                *ret = TRACE_DOUBT_SURE;
                snprintf(why, size, "the first, %" PRIu64 ", is one of seconds since 1970",
                        t->requests[0].time_nsec / NSEC_PER_MSEC);
        } else if (n_fast >= CONTINUED_MIN && n_fast * FAST_PART >= n) {
                *ret = TRACE_DOUBT_SURE;
                snprintf(why, size,
                        "%" PRIu64 " of %" PRIu64
                        " requests would continue others before their answers could be there",
                        n_fast, n);
        } else if (trace->n_fractions > t->n_requests / 2) {
                *ret = TRACE_DOUBT_MAYBE;
                snprintf(why, size, "%" PRIu64 " of %" PRIu32 " have fractions, as seconds do",
                        trace->n_fractions, t->n_requests);
        } else if (is_of_one_host && output_rate(t) > HOST_RATE_MAX) {
                *ret = TRACE_DOUBT_MAYBE;
                snprintf(why, size,
                        "requests would be answered with %.0f tokens a second, more than one host makes",
                        output_rate(t));
        }
        return 0;
}
