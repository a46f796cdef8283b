/*
 * Imports: pages of the exchange (exchange.h) that continue a text found here by a lookup. Loop
 * thread only.
 *
 *   import:  probing -> loading -> over (reported once)
 *                 \-> over: no page is there, or loading isn't worth it
 *
 * *Probing*: reads the namespace's epoch, and sends one EXISTS for each key to find how many pages
 * are there without a gap. For a namespace of a set (cache/nsset.h) it also asks for pages that
 * the others lack, if they are open on this host: a page that stays incomplete is of no use, and
 * isn't loaded. *Loading*: FREE pages are granted to the client's group, announced under the
 * client's name, filled, checked and published in the order of the text. Other clients that want
 * one of the keys wait for it as for a computed one. So the store is asked once by this host.
 * If the client leaves, its pages and announcements end as usual. At first only available pages are
 * granted; others follow as memory is made for them.
 *
 * A value is received where its page lies, and is checked there, if that is memory of this process
 * and pages travel plain (moves/fill.h). Else it is received and checked in a buffer, and copied to
 * its page (moves/transfer.h). A page that is taken back meanwhile stays unused until its writers
 * have stopped, and pages behind it aren't imported.
 *
 * At the deadline the pages that have arrived in order are published, and the rest is given back. A
 * client that only asks how much is there has an import that ends after probing.
 */
#ifndef KVL_EXCHANGE_IMPORT_H
#define KVL_EXCHANGE_IMPORT_H

#include <stdbool.h>
#include <stdint.h>

struct attach;
struct detail;
struct import;

/* Keys of one request. Not tuned. */
#define IMPORT_KEYS_MAX 256

struct import_request {
        const uint8_t *parent_key; /* of the page before the first; NULL: it begins a text */
        const uint8_t *keys;       /* n_keys * KEY_BYTES, copied */
        uint32_t n_keys;           /* 1 .. IMPORT_KEYS_MAX */
        uint64_t deadline_nsec;    /* CLOCK_MONOTONIC */
        bool only_probes;          /* any keys; parent_key is NULL */
};

struct import_outcome {
        /* Imported pages, from the first key on: cached, and not pinned. A probe: pages there. */
        uint32_t n_pages;
        /* 0 if n_pages > 0; else the first key's state as for import_begin(): another client of
         * this host may have been first. KVL_STATUS_MISS: no page came. */
        int code;
        bool would_load; /* probe only: an import would load them now */
};

/* Reports the end of an import, which is freed. Called from exchange_work(), exchange_close() and
 * attach_close(), never from import_begin(); may call import_begin(), and import_cancel() for
 * others. */
typedef void (*import_fn)(const struct import_outcome *outcome, void *data);

/*
 * Begins an import. Returns 0: *ret_import is under way, and ends at its deadline at the latest.
 * KVL_STATUS_DUPLICATE: the first key is cached; KVL_STATUS_PENDING: it is being computed or
 * imported; KVL_STATUS_MISS with the sentence: no page will be imported; KVL_STATUS_NO_PARENT: the
 * page before isn't cached; KVL_STATUS_STALE; -EACCES: the client may only read; -EINVAL; -ENOMEM.
 */
int import_begin(struct attach *a, const struct import_request *rq, uint64_t now_nsec,
        import_fn done, void *data, struct import **ret_import, struct detail *d);

/* Stops reporting; published pages stay. */
void import_cancel(struct import *i);

#endif
