/*
 * Recall: takes whole extent sets back from living clients that have them mapped.
 *
 *   NONE -> ASKED   its FREE pages aren't granted; unclaimed pages in magazines and cached ones
 *                   are freed; pinned pages become DETACHED. Clients that map it or hold pages of
 *                   it are told to release them
 *        -> IDLE    no page of it is granted or pinned, and none will be. Clients that map it are
 *                   told to unmap it
 *        -> unbound as soon as no client maps it
 *
 * A set that isn't mapped is freed as soon as it is idle; a set without held pages starts as IDLE.
 * Each of the two states has a deadline: the recall's timeout, from the time when clients are told.
 * After it the set is *quarantined*: it stays bound and charged to its tenant, its pages aren't
 * granted, and late clients are reported (store.owner.on_late). It is freed once the last client
 * releases it. A recall is never called off, except for compaction (compact.h).
 *
 * A *soft* recall (enum recall_kind) tells no client and has no deadline while ASKED: it waits
 * until held pages are released. From IDLE on it is like any other.
 *
 * If the namespace has a lower tier, cached pages that aren't read are demoted (demote.h) instead
 * of dropped, for RECALL_DEMOTE_NSEC at most. A lease that waits for memory, or a reservation that
 * lacks memory, ends that: the rest is dropped at once.
 *
 * A page that is GRANTED when its set is recalled can still be published: it is DETACHED from the
 * start ("unindexed"), as are pages published below it, and is freed after its last pin.
 *
 * Marking sets costs little; recall_work() does the rest in bounded steps. Loop thread only.
 */
#ifndef KVL_CORE_RECALL_H
#define KVL_CORE_RECALL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "daemon/core/state/pool.h"

struct extent_set;
struct ns;
struct store;
struct tenant;

struct recall_request {
        struct tenant *tenant;
        const struct ns *only;   /* of the tenant; NULL: any */
        const struct pool *pool; /* NULL: any of `tier` */
        enum tier_kind tier;
        uint64_t bytes;        /* UINT64_MAX: all */
        uint64_t timeout_nsec; /* 0: recall_work()'s */
        enum recall_kind kind;
        bool by_cost;      /* extent_set.cost_bytes is fresh, and sorts before pages in use */
        struct tenant *by; /* the tenant whose lease caused it; NULL: none */
};

/*
 * Recalls sets of the tenant until they make up `bytes`: unmapped sets first, then those with the
 * fewest pages in use. A soft recall takes the set with the fewest granted and pinned pages among
 * the first few. Recalled sets don't count, but a forced recall takes over soft ones
 * (recall_press()). Without memory for sorting, sets are taken in the order of binding. Unmapped
 * sets that only magazines used are freed when the idle list is drained (memory/idle-sets.h).
 * Returns the number of sets.
 */
uint32_t recall_ask(const struct recall_request *rq);

/* Makes a soft recall of a set with held pages a forced one, with the default timeout. */
void recall_press(struct extent_set *set);

/* The tenant is about to be freed: recalls for its leases have no beneficiary from now on. */
void recall_forget_tenant(struct store *s, const struct tenant *t);

/* Does recall_ask() for an administrator: forced, on devices. */
uint32_t recall_sets(
        struct tenant *t, const struct ns *only, uint64_t bytes, uint64_t timeout_nsec);

/* Recalls bound sets of each tier until the tenant is within its limit there. Sets being taken back
 * count as freed, except soft recalls with held pages. Sets that are being made beyond the limit
 * are dropped when they are made (pool_reap()). */
uint32_t recall_over_limit(struct tenant *t);

/* Is a set of the tenant in that tier being taken back, and not late? Soft recalls with held pages
 * don't count: they have no deadline. */
bool recall_is_under_way(const struct tenant *t, enum tier_kind tier);

/* The previous daemon had recalled the set by force, with this timeout: recalls it again, with the
 * whole timeout. It stays bound until recall_work(). */
void recall_again(struct extent_set *set, uint64_t timeout_nsec);

/* Recalls this set, which isn't recalled. */
void recall_set(struct extent_set *set, enum recall_kind kind);

/* Calls off a recall of kind RECALL_COMPACT in state RECALL_ASKED, of a set with held pages: its
 * FREE pages can be granted again. */
void recall_call_off(struct extent_set *set);

/* For the checker: returns a description of an error in the set's recall, or NULL. */
const char *recall_check(const struct extent_set *set);

/* ---- work ------------------------------------------------------------------------------------ */

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

#define RECALL_TELL_COST 16 /* a write to a socket in page records; not tuned */

/* Continues the round: empties sets, notifies clients, checks deadlines. `budget`: page records to
 * look at; notifying a client costs RECALL_TELL_COST. One set may exceed it, by its pages for each
 * client that doesn't map it. timeout_nsec: for recalls without their own. */
enum recall_next recall_work(
        struct store *s, uint64_t now_nsec, uint64_t timeout_nsec, uint32_t budget);

#endif
