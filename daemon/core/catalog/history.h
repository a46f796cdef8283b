/*
 * Why a key hits or misses: what became of keys that were cached once, for people who ask
 * (`kvleasectl explain`, kvl_explain()). Of each namespace the last that went, about HISTORY_KEYS
 * of them, by 64 bits of their hash: old ones are overwritten. Nothing is decided by it. Loop
 * thread only.
 */
#ifndef KVL_CORE_HISTORY_H
#define KVL_CORE_HISTORY_H

#include <stdint.h>

#include "daemon/core/objects/drop-reason.h"
#include "daemon/core/objects/ns.h"

#define HISTORY_KEYS 65536 /* of a namespace: 2 MiB, touched as they come. Not tuned */

/* As enum kvl_explain_state of <kvlease.h>. */
enum history_state {
        HISTORY_NEVER_SEEN = 0,
        HISTORY_CACHED = 1,
        HISTORY_PENDING = 2,
        HISTORY_EVICTED = 3,
        HISTORY_INVALIDATED = 4,
        HISTORY_OTHER_VERSION = 5, /* it went when the namespace changed its version */
        HISTORY_EXPIRED = 6,
};

struct explanation {
        enum history_state state;
        uint32_t page;
        uint64_t age_sec, unused_sec;
        uint64_t client_id;      /* that published it, or is about to; 0: unknown */
        const struct tenant *by; /* EVICTED: whose lease it gave way to; NULL: nobody's, or of a
                                    tenant that is gone */
        const char *what;        /* INVALIDATED: by what; EVICTED by nobody's lease: why. Static */
};

/* The page, findable until now, goes. Without memory it isn't noted. */
void history_note_drop(struct ns *ns, uint32_t page, struct drop_reason reason);

/* A key with this hash (store_hash_key()) goes soon: its memory may be fetched. */
void history_prefetch(const struct ns *ns, uint64_t hash);

/* Everything in the namespace has become unfindable, for this cause. */
void history_note_all(struct ns *ns, enum history_state state, enum drop_cause cause);

/* The sweep has come to a page that went by that. Until then its key counts as never seen. */
void history_note_stale(struct ns *ns, uint32_t page);

void history_explain(
        struct ns *ns, const uint8_t key[KEY_BYTES], uint64_t now_nsec, struct explanation *ret);

void history_free(struct ns *ns);

#endif
