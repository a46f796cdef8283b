/*
 * The status page's last hour: the share of looked up pages that were found, and the time of
 * requests. Samples of kvleased's counters, a quarter of a minute apart, in a ring in memory; none
 * is stored on disk.
 *
 * A point is the difference of two samples. There is none across a restart of kvleased, whose
 * counters begin anew, nor across an absence. Callers lock.
 */
#ifndef KVL_EXPORTER_HISTORY_H
#define KVL_EXPORTER_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "client/exporter/text.h"
#include "proto/figures.h"

#define HISTORY_STEP_NSEC (15 * NSEC_PER_SEC)
#define HISTORY_SAMPLES   241 /* an hour of points */
#define HISTORY_BUCKETS   65  /* the limit of calls_make_sense() */

struct history_sample {
        uint64_t time_nsec;
        uint64_t boot_epoch;              /* of the daemon */
        uint64_t keys, hits;              /* pages looked up and found since its start */
        uint64_t counts[HISTORY_BUCKETS]; /* requests of clients since its start, by duration */
};

struct history {
        struct history_sample samples[HISTORY_SAMPLES]; /* a ring */
        size_t first, n;
        uint64_t bounds_nsec[HISTORY_BUCKETS]; /* upper bounds of buckets, as in the last sample */
        size_t n_bounds;
};

/* Whether a sample is due. */
bool history_is_due(const struct history *h, uint64_t now_nsec);

/* Adds a sample. `counters` must make sense (calls.h); NULL: the daemon doesn't know them. */
void history_add(struct history *h, uint64_t now_nsec, const struct figures_status *status,
        const Kvlease__V1__AdminCountersReply *counters);

struct history_point {
        uint64_t age_sec; /* of its end */
        uint64_t keys, hits;
        uint64_t median_usec, p99_usec; /* upper bounds; 0: no requests */
};

/* Point `i` of up to history_points(), the oldest first. Returns false if there is none at this
 * place. */
size_t history_points(const struct history *h);
bool history_point(const struct history *h, size_t i, uint64_t now_nsec, struct history_point *ret);

/* The point from the last sample to these current counters. Returns false without a sample. */
bool history_now(const struct history *h, uint64_t now_nsec, const struct figures_status *status,
        const Kvlease__V1__AdminCountersReply *counters, struct history_point *ret);

#endif
