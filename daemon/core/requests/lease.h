/*
 * Leases: grants pages to a group, refuses with a reason, degrades to fewer pages, or waits for
 * memory. now_nsec: CLOCK_MONOTONIC. Loop thread only.
 *
 * Every function checks its arguments, because they come from peers.
 */
#ifndef KVL_CORE_LEASE_H
#define KVL_CORE_LEASE_H

#include <stdint.h>

#include "daemon/core/state/group.h"

/* Which pages: the values of LeaseRequest.contiguous. */
enum lease_how {
        LEASE_ANY = 0,
        LEASE_RUN = 1,  /* pages with consecutive numbers, or none */
        LEASE_RUNS = 2, /* pages in the longest runs there are (run.h) */
};

struct lease_request {
        uint32_t n;   /* pages wanted, > 0 */
        uint32_t min; /* fewest useful pages, 1..n: fewer than n only if the tenant is degraded when
                         it is full */
        uint64_t max_wait_nsec; /* for memory, at most the tenant's; UINT64_MAX: the tenant's; 0: no
                                   wait, except for a device */
        /* Longest wait for the tenant's own reservation while it is taken back from others, for any
         * when_full. */
        uint64_t take_back_nsec;
        bool holds_some; /* the caller holds other pages meanwhile: it must not wait */
        uint32_t seq;    /* page_note.seq of granted pages */
        enum lease_how how;
};

struct lease_result {
        uint32_t n;               /* pages granted; 0 unless the call returned 0 */
        uint64_t waited_nsec;     /* from the first call for it to this one */
        enum lease_reason reason; /* why it was refused, waited or got fewer; else NONE */
};

/*
 * Grants pages to the group, evicting idle cached pages if necessary: rq->n of them, or at least
 * rq->min by policy (when_full = degrade), all at once.
 *
 * Returns 0 with ret->n page indices in ret_pages (space for rq->n). KVL_STATUS_QUOTA,
 * KVL_STATUS_RESERVATION, KVL_STATUS_FULL, KVL_STATUS_DRAINING, KVL_STATUS_TIMEOUT: the sentence
 * gives limit, usage, holder and remedy. -EBUSY: it would wait, and rq->holds_some (not counted as
 * refused). -ENOMEM, -EIO. Unless it returns 0, no page is granted; cached pages may have been
 * evicted. *ret is always set. -EINPROGRESS: it waits for memory, or extent sets are being made for
 * it (wait.h). Repeat the call when something has changed, or its deadline has passed;
 * lease_call_off() ends it, too.
 *
 * LEASE_RUN: if enough pages are FREE without a run, it binds sets for one and empties magazines of
 * the namespace, without taking memory of others. If that doesn't help: KVL_STATUS_FULL, NO_RUN. It
 * evicts no page for a run and waits only for a device: freed pages needn't be a run.
 *
 * It waits for memory if the tenant queues, or if it lacks memory of its own reservation. It
 * doesn't wait for more than limit, budget and others' reservations allow. FREE pages go to the
 * first of the leases that wait in the namespace.
 */
int lease_ask(struct attach *a, const struct lease_request *rq, uint64_t now_nsec,
        uint32_t *ret_pages, struct lease_result *ret, struct detail *d);

/* Ends the attachment's waiting lease, if any. Idempotent. */
void lease_call_off(struct attach *a);

/* Makes FREE pages for a magazine: `n` of them as far as limit and budget allow; evicts idle pages
 * of this namespace until there are `n_dear` (<= n). Returns how many there are, at most n; sets
 * for the others may be under way. Leaves pages that leases wait for. */
uint32_t lease_make_ready(struct attach *a, uint32_t n, uint32_t n_dear, uint64_t now_nsec);

/* Returns page_note.seq for pages granted to the LEASE with this number. */
static inline uint32_t lease_seq(uint64_t frame)
{
        uint32_t seq = (uint32_t)frame;

        return seq == 0 || seq >= PAGE_SEQ_IMPORT ? 1 : seq;
}

#endif
