#include "client/exporter/history.h"

#include <string.h>

/* Returns sample `i` of the ring, the oldest first. */
static const struct history_sample *sample_at(const struct history *h, size_t i)
{
        return &h->samples[(h->first + i) % HISTORY_SAMPLES];
}

bool history_is_due(const struct history *h, uint64_t now_nsec)
{
        return h->n == 0 || now_nsec - sample_at(h, h->n - 1)->time_nsec >= HISTORY_STEP_NSEC;
}

/* Administrators' requests don't count: most are the exporter's own. */
static void count_calls(
        struct history_sample *sample, const Kvlease__V1__AdminCountersReply *counters)
{
        for (size_t i = 0; i < counters->n_calls; i++) {
                const Kvlease__V1__AdminCall *call = counters->calls[i];

                if (strncmp(call->name, "ADMIN_", strlen("ADMIN_")) == 0)
                        continue;
                for (size_t k = 0; k < call->n_counts; k++)
                        sample->counts[k] += call->counts[k];
        }
}

static void fill_sample(struct history_sample *sample, uint64_t now_nsec,
        const struct figures_status *status, const Kvlease__V1__AdminCountersReply *counters)
{
        *sample = (struct history_sample){.time_nsec = now_nsec,
                .boot_epoch = status->boot_epoch,
                .keys = status->lookup_keys,
                .hits = status->lookup_hits};
        if (counters)
                count_calls(sample, counters);
}

void history_add(struct history *h, uint64_t now_nsec, const struct figures_status *status,
        const Kvlease__V1__AdminCountersReply *counters)
{
        struct history_sample *sample = &h->samples[(h->first + h->n) % HISTORY_SAMPLES];

        if (h->n == HISTORY_SAMPLES)
                h->first = (h->first + 1) % HISTORY_SAMPLES;
        else
                h->n++;
        fill_sample(sample, now_nsec, status, counters);
        if (!counters)
                return;
        h->n_bounds = counters->n_bounds_nsec;
        if (h->n_bounds > 0)
                memcpy(h->bounds_nsec, counters->bounds_nsec,
                        h->n_bounds * sizeof(h->bounds_nsec[0]));
}

/* Returns the upper bound of the bucket with the value that `part` of 1000 don't exceed; beyond all
 * bounds, the last one. */
static uint64_t quantile_usec(const struct history *h, const struct history_sample *from,
        const struct history_sample *to, uint64_t part)
{
        uint64_t all = 0, upto = 0;
        size_t i = 0;

        for (size_t k = 0; k < HISTORY_BUCKETS; k++)
                all += to->counts[k] - from->counts[k];
        if (all == 0 || h->n_bounds == 0)
                return 0;
        for (;; i++) {
                upto += to->counts[i] - from->counts[i];
                if (i + 1 >= h->n_bounds || upto * 1000 >= all * part)
                        return h->bounds_nsec[i] / NSEC_PER_USEC;
        }
}

size_t history_points(const struct history *h)
{
        return h->n > 0 ? h->n - 1 : 0;
}

/* Whether `to` continues `from`: the same daemon, without a gap. A counter that fell means another
 * daemon, even with the same start time. */
static bool goes_on(const struct history_sample *from, const struct history_sample *to)
{
        for (size_t i = 0; i < HISTORY_BUCKETS; i++)
                if (to->counts[i] < from->counts[i])
                        return false;
        return to->boot_epoch == from->boot_epoch && to->keys >= from->keys &&
               to->hits >= from->hits && to->hits - from->hits <= to->keys - from->keys &&
               to->time_nsec - from->time_nsec <= 3 * HISTORY_STEP_NSEC;
}

static bool make_point(const struct history *h, const struct history_sample *from,
        const struct history_sample *to, uint64_t now_nsec, struct history_point *ret)
{
        if (!goes_on(from, to))
                return false;
        *ret = (struct history_point){.age_sec = (now_nsec - to->time_nsec) / NSEC_PER_SEC,
                .keys = to->keys - from->keys,
                .hits = to->hits - from->hits,
                .median_usec = quantile_usec(h, from, to, 500),
                .p99_usec = quantile_usec(h, from, to, 990)};
        return true;
}

bool history_point(const struct history *h, size_t i, uint64_t now_nsec, struct history_point *ret)
{
        return make_point(h, sample_at(h, i), sample_at(h, i + 1), now_nsec, ret);
}

bool history_now(const struct history *h, uint64_t now_nsec, const struct figures_status *status,
        const Kvlease__V1__AdminCountersReply *counters, struct history_point *ret)
{
        struct history_sample now;

        fill_sample(&now, now_nsec, status, counters);
        return h->n > 0 && sample_at(h, h->n - 1)->time_nsec < now_nsec &&
               make_point(h, sample_at(h, h->n - 1), &now, now_nsec, ret);
}
