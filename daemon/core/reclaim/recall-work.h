/*
 * Continues recalls, some work at a time: empties sets, notifies clients, checks deadlines.
 * reclaim/recall.h describes recalls and begins them. Loop thread only.
 */
#ifndef KVL_CORE_RECALL_WORK_H
#define KVL_CORE_RECALL_WORK_H

#include "daemon/core/reclaim/recall.h"

/* Cached pages of a recalled set are demoted for this time, then dropped. It is long compared to
 * copying a set of 64 MiB, some 20 ms, and short compared to recalls' deadlines. Not tuned. */
#define RECALL_DEMOTE_NSEC (500 * NSEC_PER_MSEC)

/* When to call recall_work() next. */
enum recall_next {
        RECALL_NOTHING, /* no set is recalled */
        RECALL_WAITS,   /* all are quarantined and idle: they wait for clients */
        RECALL_LATER,   /* all are quarantined: no hurry to look again */
        RECALL_SOON,    /* recall_poll() soon: no event reports pins in segments */
        RECALL_MORE,    /* in the next iteration of the event loop */
};

/* Continues the round: empties sets, notifies clients, checks deadlines. `budget`: page records to
 * look at; notifying a client costs RECALL_TELL_COST. One set may exceed it, by its pages for each
 * client that doesn't map it. timeout_nsec: for recalls without their own. */
#define RECALL_TELL_COST 16 /* a write to a socket in page records; not tuned */

enum recall_next recall_work(
        struct store *s, uint64_t now_nsec, uint64_t timeout_nsec, uint32_t budget);

#endif
