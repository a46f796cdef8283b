/*
 * What the status page shows of the last hour: how many of the pages looked up were found, and how
 * long requests took. Samples of kvleased's counters, a quarter of a minute apart, in a ring in
 * memory; nothing is kept on a disk.
 *
 * A point is what happened between two samples. There is none across a restart of kvleased, whose
 * counters begin anew, nor across a time in which it was away. Callers lock.
 */
#ifndef KVL_EXPORTER_HISTORY_H
#define KVL_EXPORTER_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "client/exporter/text.h"
#include "proto/kvlease.pb-c.h"

#define HISTORY_STEP_NSEC (15 * NSEC_PER_SEC)
#define HISTORY_SAMPLES   241 /* an hour of points */
#define HISTORY_BUCKETS   65  /* as many as calls_make_sense() lets pass */

struct history_sample {
        uint64_t time_nsec;
        uint64_t boot_epoch;              /* of the daemon */
        uint64_t keys, hits;              /* pages looked up and found since its start */
        uint64_t counts[HISTORY_BUCKETS]; /* requests of clients by how long they took, likewise */
};

struct history {
        struct history_sample samples[HISTORY_SAMPLES]; /* a ring */
        size_t first, n;
        uint64_t
                bounds_nsec[HISTORY_BUCKETS]; /* upper ones of the buckets, as in the last sample */
        size_t n_bounds;
};

/* Whether a sample is due. */
bool history_is_due(const struct history *h, uint64_t now_nsec);

/* Adds a sample. `counters` NULL: the daemon doesn't know it. It makes sense (calls.h). */
void history_add(struct history *h, uint64_t now_nsec, const Kvlease__V1__AdminStatusReply *status,
        const Kvlease__V1__AdminCountersReply *counters);

struct history_point {
        uint64_t age_sec; /* of its end */
        uint64_t keys, hits;
        uint64_t median_usec, p99_usec; /* upper bounds; 0: there were no requests */
};

/* Point `i` of up to history_points(), the oldest first. False: there is none at this place. */
size_t history_points(const struct history *h);
bool history_point(const struct history *h, size_t i, uint64_t now_nsec, struct history_point *ret);

/* What happened since the last sample, by these counters of now. False: there is no sample before.
 */
bool history_now(const struct history *h, uint64_t now_nsec,
        const Kvlease__V1__AdminStatusReply *status,
        const Kvlease__V1__AdminCountersReply *counters, struct history_point *ret);

#endif
