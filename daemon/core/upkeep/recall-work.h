/*
 * Recalls go on, some work at a time: sets are emptied, clients are told, deadlines are watched.
 * What a recall is, and how one begins: reclaim/recall.h. Loop thread only.
 */
#ifndef KVL_CORE_RECALL_WORK_H
#define KVL_CORE_RECALL_WORK_H

#include "daemon/core/reclaim/recall.h"

/* So long what is cached in a recalled set goes down a tier rather than away: long against the
 * copies of a set of 64 MiB, some 20 ms, and short against the deadlines of recalls. Not tuned. */
#define RECALL_SINK_NSEC (500 * NSEC_PER_MSEC)

/* When recall_work() is to be called next. */
enum recall_next {
        RECALL_NOTHING, /* no set is recalled */
        RECALL_WAITS,   /* all are quarantined and idle: what happens next is a client's to say */
        RECALL_LATER,   /* all are quarantined: there is no hurry to look again */
        RECALL_SOON,    /* recall_poll() again soon: pins in segments go without a word */
        RECALL_MORE,    /* recall_work() in the next turn */
};

/*
 * Goes on with the round: empties sets, tells clients, watches deadlines. `budget`: page records
 * looked at, a client told counts as RECALL_TELL_COST; one set may go over it, by the pages of it
 * for each client that doesn't map it. timeout_nsec: of recalls that have none of their own.
 */
#define RECALL_TELL_COST 16 /* a write to a socket, against a page record; not tuned */

enum recall_next recall_work(
        struct store *s, uint64_t now_nsec, uint64_t timeout_nsec, uint32_t budget);

#endif
