/*
 * What a daemon does with the memory that the one before it left: namespaces, extent sets and pages
 * become what they were, and everything that is derived from them (tree, policy, tags, namespace
 * sets, index segment, counts) is made again. Nothing there is believed: what doesn't fit is gone,
 * cleanly. Loop thread only, before the loop runs.
 *
 *   state_open(), client_records_open() -> pools and tenants as configured -> store_recover() ->
 *   clients, attachments, magazines, pins (whoever recovers those) -> store_recover_end() -> READY
 *
 * Between the two calls a page is FREE, or as it was:
 *
 *   SEALED     in index, tree, policy (idle); of an older epoch: stale, for the sweep
 *   DETACHED   also what can't be kept as SEALED, whoever reads it: in no list
 *   GRANTED    page.owner is a group's id, page_note.client and .seq say to whom and by which LEASE
 *              (page.h); in no list of grants. Announced by nobody any more
 *
 * Whoever recovers clients makes groups with their old ids and attachments (which make the grants),
 * calls ns_pin_page() for pins taken over the socket, adopts pin segments,
 * and sets page.ready with the magazine's counts. It doesn't touch lists of grants:
 * store_recover_end() enters every GRANTED page whose owner is the id of a group with grants in the
 * namespace, and frees the others. Pages DETACHED that nobody pins and no window holds are freed
 * there, too; those pinned in segments are watched.
 */
#ifndef KVL_CORE_RECOVER_H
#define KVL_CORE_RECOVER_H

#include <stdint.h>

#include "daemon/core/ground/detail.h"
#include "daemon/core/ground/page.h"

struct store;
struct ns;
struct tenant;

/* Why pages that were published aren't there any more, though their namespace is. */
enum recover_drop {
        DROP_CHECKSUM,  /* the record isn't what was written */
        DROP_PARENT,    /* the page before it isn't there */
        DROP_DUPLICATE, /* another page has the key: a move (compact.h) was cut off, too */
        DROP_INDEX,     /* no slot is left where the key could be */
        DROP_REASONS,
};

struct recovery {
        uint32_t n_namespaces;  /* there again */
        uint32_t n_lost;        /* namespaces that are gone */
        uint32_t n_sessions;    /* there again */
        uint32_t n_logs_lost;   /* namespaces whose sessions are gone, or those after a damage */
        uint32_t n_clients;     /* there again, dead or alive */
        uint32_t n_culprits;    /* of n_clients, lost by culprit.h */
        uint32_t n_pins_lost;   /* pins of a client in a namespace that aren't known */
        uint32_t n_sets;        /* bound again */
        uint64_t n_bytes;       /* of these */
        uint64_t n_pages;       /* SEALED, findable */
        uint64_t n_stale;       /* SEALED, invalidated before: for the sweep */
        uint64_t n_granted;     /* found GRANTED */
        uint64_t n_detached;    /* found DETACHED */
        uint64_t n_unfinished;  /* copies under way (MOVING): FREE */
        uint64_t n_unclaimed;   /* of n_granted: freed, nobody holds them (store_recover_end()) */
        uint64_t n_slots_fixed; /* of index segments, and lines */
        uint64_t n_dropped[DROP_REASONS]; /* pages */
        uint64_t nsec;                    /* both calls together */
};

/* "parent", for messages. Static. */
const char *recover_drop_name(enum recover_drop r);

/* For each namespace that is gone, or whose sessions are: one sentence. */
typedef void (*recover_say)(const struct detail *d, void *data);

/*
 * Takes all kept records: what can't be used goes, namespace by namespace, and is told to `say`
 * (may be NULL). After state_open(), which returned 1; store.now_nsec is set. Nothing where nothing
 * is kept. *r is set in any case.
 */
void store_recover(struct store *s, struct recovery *r, recover_say say, void *data);

/* What nobody claimed is freed, sets that are idle then are given back, recalls that were under way
 * are asked anew. Adds to *r. 0; -ENOMEM: not all of that is done, and the process has to end: what
 * is kept stays for another try. */
int store_recover_end(struct store *s, struct recovery *r);

/* Of the namespace whose records have this number (struct ns.records.number); NULL: it is gone. */
struct ns *store_find_records(struct store *s, uint32_t number);

#endif
