/*
 * Recovers the previous daemon's memory: restores namespaces, extent sets and pages, and rebuilds
 * all data derived from them (tree, policy, tags, namespace sets, index segment, counts).
 * Everything is checked; parts that aren't consistent are dropped cleanly. Loop thread only, before
 * the loop runs; its own threads read pages meanwhile.
 *
 *   state_open(), client_records_open() -> pools and tenants as configured -> store_recover() ->
 *   clients, attachments, magazines, pins (clients_recover()) -> store_recover_end() -> READY
 *
 * Between the two calls a page is FREE, or as it was:
 *
 *   SEALED     in index, tree, policy (idle); of an older epoch: stale, for the sweep
 *   DETACHED   also a page that can't stay SEALED, even if it is read: in no list
 *   GRANTED    page.owner is a group's id, page_note.client and .seq say to whom and by which LEASE
 *              (page.h); in no list of grants. Not announced any more
 *
 * The recovery of clients makes groups with their old ids and attachments (which make the grants),
 * calls ns_pin_page() for pins taken over the socket, adopts pin segments, and sets page.ready with
 * the magazine's counts. It doesn't change lists of grants: store_recover_end() adds every GRANTED
 * page whose owner is a group with grants in the namespace, and frees the others. It also frees
 * DETACHED pages without pins and windows; those pinned in segments are watched.
 */
#ifndef KVL_CORE_RECOVER_H
#define KVL_CORE_RECOVER_H

#include <stdint.h>

#include "daemon/core/state/detail.h"
#include "daemon/core/state/page.h"

struct detail;
struct ns;
struct recovery;
struct store;
struct tenant;

/* Why published pages are lost although their namespace was recovered. */
enum recover_drop {
        DROP_CHECKSUM,  /* the record is damaged */
        DROP_PARENT,    /* the page before it is lost */
        DROP_DUPLICATE, /* another page has the key: a kill interrupted a move (compact.h), too */
        DROP_INDEX,     /* all slots for the key are used */
        DROP_REASONS,
};

struct recovery {
        uint32_t n_namespaces;  /* namespaces recovered */
        uint32_t n_lost;        /* namespaces lost */
        uint32_t n_sessions;    /* sessions restored */
        uint32_t n_logs_lost;   /* namespaces that lost sessions, all or those after a damage */
        uint32_t n_clients;     /* clients recovered, dead or alive */
        uint32_t n_suspects;    /* of n_clients, lost by suspect.h */
        uint32_t n_pins_lost;   /* attachments whose pins are unknown */
        uint64_t n_bytes;       /* bytes of extent sets bound again */
        uint64_t n_pages;       /* SEALED pages that can be found */
        uint64_t n_granted;     /* pages found GRANTED */
        uint64_t n_unclaimed;   /* of n_granted: freed, without an owner (store_recover_end()) */
        uint64_t n_slots_fixed; /* corrected slots and lines of index segments */
        uint64_t n_dropped[DROP_REASONS]; /* pages dropped, by enum recover_drop */
        uint64_t nsec;                    /* time that both calls took */
};

/* Returns "parent", for example, for messages; static. */
const char *recover_drop_name(enum recover_drop r);

/* Gets one sentence for each namespace that lost its pages or its sessions. */
typedef void (*recover_say)(const struct detail *d, void *data);

/* Takes all stored records, namespace by namespace: drops unusable ones, and reports them to `say`
 * (may be NULL). Call it after state_open() returned 1; store.now_nsec is set. Does nothing without
 * a descriptor store. *r is always set. */
void store_recover(struct store *s, struct recovery *r, recover_say say, void *data);

/* Frees pages without an owner, then idle sets, and begins interrupted recalls again. Adds to *r.
 * Returns 0; -ENOMEM: it is incomplete, and the process must end; stored descriptors stay for
 * another try. */
int store_recover_end(struct store *s, struct recovery *r);

/* Returns the namespace whose records have this number (struct ns.records.number); NULL: it is
 * lost. */
struct ns *store_find_records(struct store *s, uint32_t number);

/*
 * Makes the members, attachments, pins and magazines that the tables of clients/client-record.h
 * name. Call it between the two calls above. Skips members whose tenant is gone, and attachments
 * whose namespace is. Each member counts as having mapped all bound sets of its namespaces, unless
 * it is metadata-only. Clients that may know of lost objects are lost, and counted in
 * r->n_pins_lost. The watcher of KEEP_PROCESS finds out whether a process lives. Returns 0;
 * -ENOMEM: some of them are made, and stored descriptors stay for another try.
 */
int clients_recover(struct store *s, struct recovery *r, struct detail *d);

#endif
