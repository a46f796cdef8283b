/*
 * Imports: pages that continue what a lookup has found here, and that the exchange has
 * (exchange.h). Loop thread only.
 *
 *   import:  probing -> loading -> over (told once)
 *                 \-> over: nothing is there, or it isn't worth it
 *
 * *Probing*: the namespace's epoch is read, and one EXISTS for each key says how far what is there
 * goes on without a gap. Of a namespace of a set (catalog/nsset.h) it asks for what the others
 * lack, too, as far as they are open on this host: a page that stays incomplete is of no use, and
 * isn't loaded. *Loading*: FREE pages are granted to the client's group, announced under the
 * client's name, filled, checked and published in the order of the text. So who else wants one of
 * the keys meanwhile waits for it as for any that is computed, and nobody on this host asks for it
 * again; where the client goes, its pages and announcements go as they always do. What is granted
 * at first are the pages that there is room for; others follow as memory comes that is being made
 * for them.
 *
 * A value is received where its page lies, and is checked there, if that is memory of this process
 * and pages travel plain (moves/fill.h). Else it is received into a buffer, is checked there, and
 * is copied into its page (moves/transfer.h). A page that is taken back meanwhile is nobody's until
 * nothing writes to it any more, and what comes behind it isn't imported.
 *
 * At the deadline what has arrived in order is published, and the rest is given back. Who
 * only wants to know how much is there has an import that ends after probing.
 */
#ifndef KVL_CORE_IMPORT_H
#define KVL_CORE_IMPORT_H

#include <stdbool.h>
#include <stdint.h>

struct attach;
struct detail;
struct import;

/* Of one request. Not tuned. */
#define IMPORT_KEYS_MAX 256

struct import_request {
        const uint8_t *parent_key; /* of what comes before the first; NULL: it begins a text */
        const uint8_t *keys;       /* n_keys * KEY_BYTES, copied */
        uint32_t n_keys;           /* 1 .. IMPORT_KEYS_MAX */
        uint64_t deadline_nsec;    /* CLOCK_MONOTONIC */
        bool only_probes;          /* of any keys; parent_key is NULL */
};

struct import_outcome {
        /* Imported, from the first key on: cached, and pinned by nobody. A probe: there. */
        uint32_t n_pages;
        /* 0, where n_pages > 0; else what the first key is by now, as import_begin() says it:
         * somebody on this host may have been first with it. KVL_STATUS_MISS: nothing came. */
        int code;
        bool would_load; /* where it only probes: another one would load them now */
};

/* The import is gone. Called from exchange_work(), exchange_close() and attach_close(), never from
 * within import_begin(); may call that, and import_cancel() of others. */
typedef void (*import_fn)(const struct import_outcome *outcome, void *data);

/*
 * 0: *ret_import is under way, and ends at its deadline at the latest. KVL_STATUS_DUPLICATE: the
 * first key is cached; KVL_STATUS_PENDING: somebody computes or imports it; KVL_STATUS_MISS with
 * the sentence: nothing will be imported; KVL_STATUS_NO_PARENT: what comes before isn't cached;
 * KVL_STATUS_STALE; -EACCES: the client may only read; -EINVAL; -ENOMEM.
 */
int import_begin(struct attach *a, const struct import_request *rq, uint64_t now_nsec,
        import_fn done, void *data, struct import **ret_import, struct detail *d);

/* Nothing is told any more; what is published stays. */
void import_cancel(struct import *i);

/* The attachment closes: each of its imports is told to be over. */
void import_end_all(struct attach *a);

#endif
