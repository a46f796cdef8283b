/*
 * Explains why a key hits or misses: the fate of keys that were cached before, for `kvleasectl
 * explain` and kvl_explain(). Each namespace has about HISTORY_KEYS of its last dropped keys, by 64
 * bits of their hash; old ones are overwritten. It decides nothing. Loop thread only.
 */
#ifndef KVL_CORE_HISTORY_H
#define KVL_CORE_HISTORY_H

#include <stdint.h>

#include "daemon/core/state/drop-reason.h"
#include "daemon/core/state/ns.h"

#define HISTORY_KEYS 65536 /* of a namespace: 2 MiB, touched on use. Not tuned */

/* The values of enum kvl_explain_state of <kvlease.h>. */
enum history_state {
        HISTORY_NEVER_SEEN = 0,
        HISTORY_CACHED = 1,
        HISTORY_PENDING = 2,
        HISTORY_EVICTED = 3,
        HISTORY_INVALIDATED = 4,
        HISTORY_OTHER_VERSION = 5, /* dropped when the namespace's version changed */
        HISTORY_EXPIRED = 6,
};

struct explanation {
        enum history_state state;
        uint32_t page;
        uint64_t age_sec, unused_sec;
        uint64_t client_id; /* publisher, or announcer; 0: unknown */
        const struct tenant
                *by;      /* EVICTED: the tenant whose lease caused it; NULL: none, or freed */
        const char *what; /* reason of INVALIDATED, or of EVICTED without lease. Static */
};

/* Notes that a page, findable until now, is dropped. Does nothing without memory. */
void history_note_drop(struct ns *ns, uint32_t page, struct drop_reason reason);

/* Prefetches the entry of a key with this hash (store_hash_key()) that is dropped soon. */
void history_prefetch(const struct ns *ns, uint64_t hash);

/* Notes that all pages of the namespace became unfindable, for this cause. */
void history_note_all(struct ns *ns, enum history_state state, enum drop_cause cause);

/* Notes that the sweep has reached a page of history_note_all(). Until then its key counts as never
 * seen. */
void history_note_stale(struct ns *ns, uint32_t page);

void history_explain(
        struct ns *ns, const uint8_t key[KEY_BYTES], uint64_t now_nsec, struct explanation *ret);

void history_free(struct ns *ns);

#endif
