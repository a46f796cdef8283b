/*
 * Leases: pages are granted to a group, the lease is refused with a reason, degraded to fewer
 * pages, or waits for room. now_nsec: CLOCK_MONOTONIC. Loop thread only.
 *
 * Every function checks what it is given, as it comes from peers.
 */
#ifndef KVL_CORE_LEASE_H
#define KVL_CORE_LEASE_H

#include <stdint.h>

#include "daemon/core/objects/group.h"

/* Which pages: on the wire as LeaseRequest.contiguous. */
enum lease_how {
        LEASE_ANY = 0,
        LEASE_RUN = 1,  /* with consecutive numbers, or none */
        LEASE_RUNS = 2, /* in as long runs of these as there are (run.h) */
};

struct lease_request {
        uint32_t n;             /* pages wanted, > 0 */
        uint32_t min;           /* fewest that are of use: fewer than n only where the tenant is
                                   degraded when it is full; 1..n */
        uint64_t max_wait_nsec; /* for room, at most the tenant's; UINT64_MAX: the tenant's; 0: not
                                   at all. For a device, too, but where it is 0 */
        /* Longest wait for the tenant's own reservation while it is taken back from others,
         * whatever its when_full says. */
        uint64_t take_back_nsec;
        bool holds_some; /* who asks holds other pages meanwhile: it must not wait for room */
        uint32_t seq;    /* page_note.seq of what is granted */
        enum lease_how how;
};

struct lease_result {
        uint32_t n;               /* pages granted; 0 unless the call returned 0 */
        uint64_t waited_nsec;     /* from the first call for it to this one */
        enum lease_reason reason; /* why it was refused, waited or got fewer; NONE: none of that */
};

/*
 * Grants pages to the group, evicting idle cached pages if need be: rq->n of them, or at least
 * rq->min by policy (when_full = degrade), never some now and some later. 0 with ret->n page
 * indices in ret_pages (room for rq->n). KVL_STATUS_QUOTA, KVL_STATUS_RESERVATION, KVL_STATUS_FULL,
 * KVL_STATUS_DRAINING, KVL_STATUS_TIMEOUT: the sentence says limit, usage, who holds it and the
 * remedy; -EBUSY: it would wait, and rq->holds_some (not counted as refused); -ENOMEM, -EIO.
 * Nothing is granted unless 0 (cached pages may have been evicted). *ret is set in any case.
 * -EINPROGRESS: it waits (wait.h): extent sets are being made for it, or it waits for room. The
 * same call is made again when something has changed, or its deadline has passed; lease_call_off()
 * ends it, too.
 *
 * LEASE_RUN: where so many are FREE, but no run of them, sets are bound for one that may be without
 * anybody giving way, and magazines of the namespace emptied; else KVL_STATUS_FULL, NO_RUN. Nothing
 * is evicted for a run, and nothing waited for but a device: what comes free needn't be a run.
 *
 * It waits for room where the tenant queues, or where what it lacks is its own by reservation; not
 * for what can't come: more than limit, budget and others' reservations leave. FREE pages go to who
 * comes first of those that wait for room in the namespace.
 */
int lease_ask(struct attach *a, const struct lease_request *rq, uint64_t now_nsec,
        uint32_t *ret_pages, struct lease_result *ret, struct detail *d);

/* The attachment's lease that waits, if any, is given up. Safe to repeat. */
void lease_call_off(struct attach *a);

/*
 * FREE pages for a magazine: `n` of them as far as limit and budget go, and idle pages of this
 * namespace evicted until there are `n_dear` of these (<= n). Returns how many there are, at most
 * n; sets for the others may be under way, but what leases wait for is left to them.
 */
uint32_t lease_make_ready(struct attach *a, uint32_t n, uint32_t n_dear, uint64_t now_nsec);

/* page_note.seq of what the LEASE with this number is granted. */
static inline uint32_t lease_seq(uint64_t frame)
{
        uint32_t seq = (uint32_t)frame;

        return seq == 0 || seq >= PAGE_SEQ_IMPORT ? 1 : seq;
}

#endif
