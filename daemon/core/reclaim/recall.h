/*
 * Recall: whole extent sets are taken back from clients that live and have them mapped.
 *
 *   NONE -> ASKED   none of its FREE pages is granted, what lies unclaimed in magazines and what is
 *                   cached goes; pinned pages become DETACHED. Who has it mapped, or holds pages of
 *                   it, is told to let go
 *        -> IDLE    no page of it is granted or pinned by anybody, and none ever will be. Who has
 *                   it mapped is told to unmap it
 *        -> unbound as soon as nobody has it mapped
 *
 * A set that nobody maps goes as soon as it is idle; one of which nothing is held starts as IDLE.
 * Each of the two states has a deadline, the recall's timeout from when clients are told. Past it
 * the set is *quarantined*: it stays bound and charged to its tenant, nobody gets its pages, who is
 * late is named (store.owner.on_late), and it goes as ever once the last one lets go. A recall is
 * never called off, but for compaction (compact.h).
 *
 * A *soft* recall (enum recall_kind) tells nobody and has no deadline while ASKED: what is held is
 * waited for. From IDLE on it is like any other.
 *
 * Where the namespace has a tier below its device, what is cached and that nobody reads goes down
 * (sink.h) rather than away, for RECALL_SINK_NSEC at most. A lease that waits for memory, or a
 * reservation that lacks some, ends that: then what is left goes at once.
 *
 * A page that is GRANTED when its set is recalled can still be published: it is DETACHED from the
 * start ("unindexed"), as are pages published below it, and ends with its pins.
 *
 * Marking sets costs little; all else is recall_work()'s, in bounded steps. Loop thread only.
 */
#ifndef KVL_CORE_RECALL_H
#define KVL_CORE_RECALL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "daemon/core/objects/pool.h"

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
        bool by_cost;      /* extent_set.cost_bytes is of now, and goes before pages in use */
        struct tenant *by; /* whose lease it is for; NULL: nobody's */
};

/*
 * Recalls sets of the tenant until they make up `bytes`, those first that nobody maps and those
 * with the fewest pages in use; of soft recalls among the first few the one with the fewest granted
 * and pinned pages. Sets that are recalled already don't count, but a forced recall takes over soft
 * ones (recall_press()). Returns their number; without memory to sort them they go in order of
 * binding. Sets of which nothing but pages in magazines was in use, and that nobody maps, are
 * gone when the list is drained (memory/settle.h).
 */
uint32_t recall_ask(const struct recall_request *rq);

/* A soft recall of something that is held becomes a forced one, with the default timeout. */
void recall_press(struct extent_set *set);

/* The tenant is about to be freed: recalls for its leases are nobody's. */
void recall_forget_tenant(struct store *s, const struct tenant *t);

/* recall_ask() for an administrator: forced, on devices. */
uint32_t recall_sets(
        struct tenant *t, const struct ns *only, uint64_t bytes, uint64_t timeout_nsec);

/* Recalls as many bound sets of each tier as the tenant is over its limit there, less what goes
 * already, softly recalled sets of which something is held left out. What is being made over it is
 * dropped when it is made (pool_reap()). */
uint32_t recall_excess(struct tenant *t);

/* Is a set of the tenant in that tier being taken back that isn't late? Not one that goes only when
 * somebody likes. */
bool recall_is_under_way(const struct tenant *t, enum tier_kind tier);

/* The daemon before this one had recalled it by force, with that timeout: it is asked anew, and the
 * time begins anew. It stays bound until recall_work(). */
void recall_again(struct extent_set *set, uint64_t timeout_nsec);

/* Recalls this one, which isn't recalled. */
void recall_set(struct extent_set *set, enum recall_kind kind);

/* A recall of kind RECALL_COMPACT is called off, in state RECALL_ASKED, with something of the set
 * still held: FREE pages of the set can be granted again. */
void recall_call_off(struct extent_set *set);

/* For the checker: what is wrong with a set's recall, or NULL. */
const char *recall_check(const struct extent_set *set);

#endif
