/*
 * What a worker does with pages: lease, publish, look up, release, free, invalidate. Every function
 * checks what it is given (page indices and keys come from peers). Requests are all or nothing
 * where not said otherwise. now_nsec: CLOCK_MONOTONIC. Loop thread only.
 *
 * Common returns: -EINVAL a page index that isn't this caller's to use this way (the sentence names
 * it); KVL_STATUS_STALE the namespace changed its version after this attachment was opened.
 */
#ifndef KVL_CORE_LEASE_H
#define KVL_CORE_LEASE_H

#include <stdint.h>

#include "daemon/core/group.h"

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
 * indices in ret_pages (room for rq->n). KVL_STATUS_QUOTA, KVL_STATUS_FULL, KVL_STATUS_DRAINING,
 * KVL_STATUS_TIMEOUT: the sentence says limit, usage, who holds it and the remedy; -EBUSY: it would
 * wait, and rq->holds_some (not counted as refused); -ENOMEM, -EIO. Nothing is granted unless 0
 * (cached pages may have been evicted). *ret is set in any case. -EINPROGRESS: it waits (wait.h):
 * extent sets are being made for it, or it waits for room. The same call is made again when
 * something has changed, or its deadline has passed; lease_call_off() ends it, too.
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

/* The same for n pages, all or nothing, as long as the tenant lets them wait, and for its own
 * reservation as long as it takes. */
int lease_pages(
        struct attach *a, uint32_t n, uint64_t now_nsec, uint32_t *ret_pages, struct detail *d);

/* Its lease that waits, if any, is given up. Safe to repeat. */
void lease_call_off(struct attach *a);

struct publish {
        const uint32_t *pages; /* n, granted to the group */
        const uint8_t *keys;   /* n * KEY_BYTES */
        uint32_t n;
        const uint8_t *parent_key; /* NULL: the first page is a root */
        uint32_t last_tokens;      /* 1..page_tokens */
        uint64_t request;
        uint32_t session; /* handle of the attachment; 0: none */
        uint64_t tag;     /* 0: none */
};

/*
 * Seals pages in order. For each handled page ret_pages[i] is the page that carries the key now,
 * pinned for this member: itself, or the existing one where somebody was first (then the caller's
 * page stays GRANTED until freed). What is published to a truncated session has no key to be found
 * by, and no duplicates. *ret_n: pages handled. 0; KVL_STATUS_DUPLICATE: all handled, at
 * least one was a duplicate; KVL_STATUS_NO_PARENT, KVL_STATUS_STALE (granted before an
 * invalidation), KVL_STATUS_QUOTA (pins: attach_check_pins() before the first page, and its kind of
 * the page that has the key), -EINVAL, -ENOENT (the session is gone), -ENOMEM: stopped at page
 * *ret_n, which stays GRANTED.
 */
int publish_pages(struct attach *a, const struct publish *p, uint64_t now_nsec, uint32_t *ret_pages,
        uint32_t *ret_n, struct detail *d);

/*
 * The longest run of cached pages for keys[0..n-1], each pinned once. 0 with *ret_n > 0 pages and
 * *ret_tokens tokens in them; KVL_STATUS_MISS with *ret_n = 0; KVL_STATUS_QUOTA (more pins than a
 * client may have), -ENOMEM, -EMFILE: nothing pinned.
 */
int lookup_pages(struct attach *a, const uint8_t *keys, uint32_t n, uint64_t request,
        uint64_t now_nsec, uint32_t *ret_pages, uint32_t *ret_n, uint64_t *ret_tokens,
        struct detail *d);

/* Drops one pin each, deepest (last) first. -EINVAL where one isn't pinned by this member: none
 * dropped. */
int release_pages(
        struct attach *a, const uint32_t *pages, uint32_t n, uint64_t now_nsec, struct detail *d);

struct publish_one {
        uint32_t page; /* granted to the group, pinned in the client's segment */
        const uint8_t *key;
        uint32_t parent; /* page, or PAGE_NONE: it begins a text */
        uint32_t tokens; /* 1..page_tokens */
        uint64_t request;
        uint32_t session; /* handle of the attachment; 0: none */
        uint64_t tag;     /* 0: none */
};

/*
 * Seals one page of an attachment with a pin segment: the pins are counted there. 0 with *ret_page
 * the page itself; KVL_STATUS_DUPLICATE with the one that has the key already, which is pinned once
 * more for this client first (its own stays GRANTED); KVL_STATUS_NO_PARENT, KVL_STATUS_STALE,
 * -EINVAL, -ENOENT (the session is gone), -ENOMEM: nothing changed.
 */
int publish_shared(struct attach *a, const struct publish_one *p, uint64_t now_nsec,
        uint32_t *ret_page, struct detail *d);

/* Can pages continue this one: is it findable, or was it published without a slot in the index? */
bool page_may_be_parent(const struct ns *ns, uint32_t page);

/* A lookup in shared memory found `page`, told afterwards. Ignored where that is no page, or has
 * another generation (low 32 bits) by now. Returns how many pages that took to go through. */
uint32_t touch_page(
        struct attach *a, uint32_t page, uint32_t generation, uint64_t request, uint64_t now_nsec);

/* Figures for people: requests, keys asked for, pages found. */
void count_lookups(struct ns *ns, uint64_t n_lookups, uint64_t n_keys, uint64_t n_hits);

/*
 * The client still holds `pages` of its grants and no others: frees the group's others in the
 * namespace, but for those in magazines. `continues`: it goes on with the report that is under way;
 * else that one is forgotten. `more`: another call of the same report follows, nothing is freed
 * yet. 0 with the count; -ESTALE: none is under way that could go on, it must be begun anew (a
 * report doesn't outlive the daemon); -EBUSY: other members of the group, also such that linger,
 * have the namespace open; -EINVAL: one isn't granted to the group, the report is forgotten.
 */
int report_pages(struct attach *a, const uint32_t *pages, uint32_t n, bool continues, bool more,
        uint64_t *ret_freed, struct detail *d);

/*
 * FREE pages for a magazine: `n` of them as far as limit and budget go, and idle pages of this
 * namespace evicted until there are `n_dear` of these (<= n). Returns how many there are, at most
 * n; sets for the others may be under way, but what leases wait for is left to them. Where it had
 * to make room, ns.keep_idle_sets is set: ns_trim() once they are taken.
 */
uint32_t lease_make_ready(struct attach *a, uint32_t n, uint32_t n_dear, uint64_t now_nsec);

/* 0; KVL_STATUS_STALE with the sentence: the namespace changed its version after this attachment
 * was opened. */
int lease_check_version(const struct attach *a, struct detail *d);

/* 0: the page is granted to this attachment's group, and to nobody's magazine; -EINVAL with what
 * else it is. */
int lease_check_granted(const struct attach *a, uint32_t page, struct detail *d);

/* The namespace has a FREE page: it is the group's. seq: page_note.seq. lease_take(): this one. */
uint32_t lease_take_page(struct attach *a, uint32_t seq);
void lease_take(struct attach *a, uint32_t page, uint32_t seq);

/* page_note.seq of what the LEASE with this number is granted. */
static inline uint32_t lease_seq(uint64_t frame)
{
        uint32_t seq = (uint32_t)frame;

        return seq == 0 || seq == PAGE_SEQ_NONE ? 1 : seq;
}

/*
 * free_pages() once more, maybe: those are given back that this member leased itself, whatever the
 * others are. A page that was given back then isn't granted to it again, as it could ask for
 * nothing since.
 */
void free_pages_again(struct attach *a, const uint32_t *pages, uint32_t n);

/* Gives granted pages back (grants_give_back()): they are no more the group's. -EINVAL where one
 * isn't granted to the group: none given back. */
int free_pages(struct attach *a, const uint32_t *pages, uint32_t n, struct detail *d);

void request_end(struct attach *a, uint64_t request, uint64_t now_nsec);

#endif
