#include "client/exporter/calls.h"

#define BOUNDS_MAX 64  /* a daemon has 15 */
#define KINDS_MAX  256 /* types or rules; a daemon has some 60 types and 24 rules */

bool calls_make_sense(const Kvlease__V1__AdminCountersReply *m)
{
        if (m->n_bounds_nsec > BOUNDS_MAX || m->n_calls > KINDS_MAX || m->n_violations > KINDS_MAX)
                return false;
        for (size_t i = 1; i < m->n_bounds_nsec; i++)
                if (m->bounds_nsec[i] <= m->bounds_nsec[i - 1])
                        return false;
        for (size_t i = 0; i < m->n_calls; i++)
                if (m->calls[i]->n_counts != m->n_bounds_nsec + 1)
                        return false;
        return !m->turns || m->turns->n_counts == m->n_bounds_nsec + 1;
}

/* All histograms have the same bounds. */
static void tell_histogram(struct text *t, const struct text_labels *labels,
        const Kvlease__V1__AdminCountersReply *m, const Kvlease__V1__AdminCall *call)
{
        double bounds[BOUNDS_MAX];

        for (size_t i = 0; i < m->n_bounds_nsec; i++)
                bounds[i] = (double)m->bounds_nsec[i] / 1e9;
        text_histogram(
                t, labels, bounds, call->counts, m->n_bounds_nsec, (double)call->sum_nsec / 1e9);
}

static void tell_calls(struct text *t, const Kvlease__V1__AdminCountersReply *m)
{
        text_family(t, "request_duration_seconds", TEXT_HISTOGRAM,
                "Seconds from a request on a socket of kvleased to the answer, by type of request, without waits for memory or keys.");
        for (size_t i = 0; i < m->n_calls; i++) {
                struct text_labels labels = {{{"type", m->calls[i]->name}}, 1};

                tell_histogram(t, &labels, m, m->calls[i]);
        }
}

/* Older daemons don't report it. */
static void tell_turns(struct text *t, const Kvlease__V1__AdminCountersReply *m)
{
        if (!m->turns)
                return;
        text_family(t, "loop_turn_seconds", TEXT_HISTOGRAM,
                "Seconds of an iteration of kvleased's event loop, which serves all tenants, without waits for a processor.");
        tell_histogram(t, &(struct text_labels){0}, m, m->turns);
}

void calls_tell(struct text *t, const Kvlease__V1__AdminCountersReply *m)
{
        tell_calls(t, m);
        tell_turns(t, m);
        text_family(t, "violations", TEXT_COUNTER,
                "Violations of the protocol by clients, by the rule that was broken.");
        for (size_t i = 0; i < m->n_violations; i++) {
                struct text_labels labels = {{{"rule", m->violations[i]->rule}}, 1};

                text_sample(t, &labels, (double)m->violations[i]->n);
        }
}
