/*
 * Pages below the device that are brought up before somebody asks for them (policy/prefetch.h):
 *
 *   stream  a client reads a text piece by piece, each lookup going on where the one before it
 *           ended, and has asked for pages of it that lay below: the next ones of that text
 *   turn    a session whose next turn is likely soon: its pages
 *   expect  a text that a client said a request will continue soon (requests/expected.h)
 *   warm    what an administrator named (warm.h)
 *
 * Nobody waits for any of it: a page comes up only into a FREE one that the next leases leave over,
 * into a set that is bound while others can be, or for a page that is worth less, which goes down
 * for it. Copies of what somebody waits for go before it (daemon/tier/mover.h).
 *
 *   at stake:  coming (below, its transfer is under way) -> there (on the device)
 *                 \-> useful: found, or asked for by FETCH, also while it was coming
 *                 \-> wasted: it left the device unused, or was there for PREFETCH_STAKE_SEC
 *                 \-> given up: its transfer failed, or it was invalidated
 *
 * What is at stake isn't known any more after a restart. A policy without move() and lock() gets
 * nothing. Loop thread only.
 */
#ifndef KVL_CORE_PREFETCH_H
#define KVL_CORE_PREFETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/map.h"
#include "daemon/core/objects/drop-reason.h"
#include "daemon/core/ground/page.h"
#include "policy/evict.h"
#include "policy/prefetch.h"

struct attach;
struct ns;
struct store;
struct warm;

/* On their way up at a time, of all namespaces; one has half of them at most. What somebody waits
 * for is behind no more than these. Not tuned. */
#define PREFETCHES_MAX 16

/* A guess that wasn't used for so long was wrong, wherever its page is. Not tuned. */
#define PREFETCH_STAKE_SEC 60

/* A text is being streamed while lookups follow each other within that. Not tuned. */
#define PREFETCH_STREAM_NSEC UINT64_C(2000000000)
#define PREFETCH_POLL_NSEC   UINT64_C(200000000)

/* Pages between two lookups of a stream at most, and texts that one client streams at a time. Not
 * tuned. */
#define PREFETCH_STRIDE  256
#define PREFETCH_READERS 8

/* How far ahead the next turn of a session is looked for. Not tuned. */
#define PREFETCH_TURN_NSEC UINT64_C(10000000000)

/* Sessions whose pages come up at a time, of a namespace; looked at in a round. Not tuned. */
#define PREFETCH_TURNS  32
#define PREFETCH_LOOKED 1024

/* Expected texts whose pages come up at a time, of a namespace; of more the pages stay where they
 * are. Not tuned. */
#define PREFETCH_EXPECTED 64

/* Where a client is in a text. */
struct reader {
        uint8_t key[KEY_BYTES]; /* of the deepest page that it looked up */
        uint64_t seen_nsec;     /* 0: none */
        uint32_t n_asked;       /* depth down to which pages were brought up for it */
        bool is_streaming;      /* another lookup has gone on there */
        bool is_due;            /* its next pages are to come up */
};

/* The texts that an attachment streams. */
struct readers {
        struct reader all[PREFETCH_READERS];
};

/* What is at stake in a namespace. */
struct prefetching {
        struct prefetch kinds[PREFETCH_KINDS];
        struct map pages; /* at stake: page -> of prefetch.c */
        uint32_t n_coming[PREFETCH_KINDS];
        uint32_t n_due;                           /* readers */
        uint8_t turns[PREFETCH_TURNS][KEY_BYTES]; /* where sessions end that are expected */
        uint32_t n_turns;
        uint8_t expected[PREFETCH_EXPECTED][KEY_BYTES]; /* the deepest cached page of each text */
        uint32_t n_expected;
        uint64_t session;  /* number of the one that was looked at last */
        struct warm *warm; /* owned; NULL: nothing was named */
};

/* ---- what happens ---------------------------------------------------------------------------- */

/* A lookup has found it as its deepest page. */
void prefetch_note_found(struct attach *a, uint32_t page);

/* FETCH of a page, wherever it lies; `copies`: into a page of the client's, which is no streaming.
 * Before it is counted among those under way. */
void prefetch_note_fetch(struct attach *a, uint32_t page, bool copies);

/* Somebody waits for the page's transfer, or found it there. */
void prefetch_note_used(struct ns *ns, uint32_t page);

/* A client will ask for the text that ends at this page, which is cached. */
void prefetch_note_expected(struct ns *ns, uint32_t page);

/* The page has another number, `to`, of whatever tier. */
void prefetch_note_moved(struct ns *ns, uint32_t page, uint32_t to);

/* The page leaves the cache. */
void prefetch_note_gone(struct ns *ns, uint32_t page, struct drop_reason reason);

/* The page's transfer up failed. */
void prefetch_note_failed(struct ns *ns, uint32_t page);

/* Everything in the namespace is unfindable: nothing of it is at stake. */
void prefetch_reset(struct ns *ns);

/* The namespace goes, with what is known of it here. */
void prefetch_free(struct ns *ns);

/* The attachment goes, with the texts that it streams. */
void prefetch_forget(struct attach *a);

/* ---- what is done ---------------------------------------------------------------------------- */

/* Begins what is due, after transfer_work() and sink_turn(). True: there is more, to be tried when
 * store.owner.on_transfer_work says so, and in a while. */
bool prefetch_work(struct store *s, uint64_t now_nsec);

/* Has anybody streamed in the last PREFETCH_POLL_NSEC? Touches of shared memory don't wake the
 * daemon: rings are to be looked at every few ms then. */
bool prefetch_is_streaming(const struct store *s, uint64_t now_nsec);

/* Looks for sessions that are expected, and for guesses that were wrong. When to be called again,
 * where nothing happens before; UINT64_MAX: not at all. */
uint64_t prefetch_look(struct store *s, uint64_t now_nsec);

/* ---- figures --------------------------------------------------------------------------------- */

/* NULL: nothing was brought up there. */
const struct prefetch *prefetch_of(const struct ns *ns, enum prefetch_kind kind);

/* For the checker: what is wrong with what is at stake, a static sentence, or NULL. */
const char *prefetch_check(const struct ns *ns);

#endif
