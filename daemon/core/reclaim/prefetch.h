/*
 * Promotes pages of lower tiers before a client asks for them (policy/prefetch.h):
 *
 *   stream  a client reads a text piece by piece, each lookup continuing the one before, and has
 *           fetched pages of it from lower tiers: the next pages of that text
 *   turn    a session whose next turn is likely soon: its pages
 *   expect  a text that a client said a request will continue soon (requests/expected.h)
 *   warm    pages that an administrator named (warm.h).
 *
 * No client waits for these. A page is promoted only into a FREE page that the next leases won't
 * need. Another set may be bound for it, if others can be, too. It may also replace a page of less
 * value, which is demoted. Copies that clients wait for come first (daemon/tier/mover.h).
 *
 *   at stake:  coming (its transfer is under way) -> there (on the device)
 *                 \-> useful: found, or asked for by FETCH, also while it was coming
 *                 \-> wasted: it left the device unused, or was there for PREFETCH_STAKE_SEC
 *                 \-> given up: its transfer failed, or it was invalidated
 *
 * Stakes don't survive a restart. A policy without move() and lock() gets no prefetch. Loop thread
 * only.
 */
#ifndef KVL_CORE_PREFETCH_H
#define KVL_CORE_PREFETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/map.h"
#include "daemon/core/state/drop-reason.h"
#include "daemon/core/state/page.h"
#include "policy/evict.h"
#include "policy/prefetch.h"

struct attach;
struct ns;
struct store;
struct warm;

/* Promotions under way at a time, of all namespaces; one namespace has half of them at most. Copies
 * that clients wait for are behind no more than these. Not tuned. */
#define PREFETCHES_MAX 16

/* A guess that wasn't used for so long was wrong, on the device or not. Not tuned. */
#define PREFETCH_STAKE_SEC 60

/* A text is being streamed while lookups follow each other within this time. Not tuned. */
#define PREFETCH_STREAM_NSEC UINT64_C(2000000000)
#define PREFETCH_POLL_NSEC   UINT64_C(200000000)

/* The most pages between two lookups of a stream; the most texts that a client streams at a time.
 * Not tuned. */
#define PREFETCH_STRIDE  256
#define PREFETCH_READERS 8

/* How far ahead the next turn of a session is looked for. Not tuned. */
#define PREFETCH_TURN_NSEC UINT64_C(10000000000)

/* Sessions of a namespace whose pages are promoted at a time; sessions looked at in a round. Not
 * tuned. */
#define PREFETCH_TURNS  32
#define PREFETCH_LOOKED 1024

/* Expected texts of a namespace whose pages are promoted at a time; pages of further ones stay. Not
 * tuned. */
#define PREFETCH_EXPECTED 64

/* A client's position in a text. */
struct reader {
        uint8_t key[KEY_BYTES]; /* the deepest page that it looked up */
        uint64_t seen_nsec;     /* 0: none */
        uint32_t n_asked;       /* pages were promoted for it down to this depth */
        bool is_streaming;      /* another lookup continued there */
        bool is_due;            /* its next pages are to be promoted */
};

/* The texts that an attachment streams. */
struct readers {
        struct reader all[PREFETCH_READERS];
};

/* A namespace's pages at stake. */
struct prefetching {
        struct prefetch kinds[PREFETCH_KINDS];
        struct map pages; /* at stake: page -> value of prefetch.c */
        uint32_t n_coming[PREFETCH_KINDS];
        uint32_t n_due;                           /* readers */
        uint8_t turns[PREFETCH_TURNS][KEY_BYTES]; /* ends of sessions that are expected */
        uint32_t n_turns;
        uint8_t expected[PREFETCH_EXPECTED][KEY_BYTES]; /* the deepest cached page of each text */
        uint32_t n_expected;
        uint64_t session;  /* number of the session looked at last */
        struct warm *warm; /* owned; NULL: no pages were named */
};

/* ---- events ---------------------------------------------------------------------------------- */

/* A lookup found the page as its deepest. */
void prefetch_note_found(struct attach *a, uint32_t page);

/* A client fetches the page, in any tier; `copies`: into a page of its own, which isn't streaming.
 * Call it before the fetch is counted. */
void prefetch_note_fetch(struct attach *a, uint32_t page, bool copies);

/* A client waits for the page's transfer, or found the page on the device. */
void prefetch_note_used(struct ns *ns, uint32_t page);

/* A client will ask for the text that ends at this cached page. */
void prefetch_note_expected(struct ns *ns, uint32_t page);

/* The page has another number, `to`, in any tier. */
void prefetch_note_moved(struct ns *ns, uint32_t page, uint32_t to);

/* The page leaves the cache. */
void prefetch_note_gone(struct ns *ns, uint32_t page, struct drop_reason reason);

/* The page's promotion failed. */
void prefetch_note_failed(struct ns *ns, uint32_t page);

/* All pages of the namespace became unfindable: ends its stakes. */
void prefetch_reset(struct ns *ns);

/* The namespace is being freed: frees its stakes. */
void prefetch_free(struct ns *ns);

/* The attachment is being freed: frees its streams. */
void prefetch_forget(struct attach *a);

/* ---- work ------------------------------------------------------------------------------------ */

/* Begins what is due, after transfer_work() and demote_turn(). Returns true if there is more: call
 * it again after store.owner.on_transfer_work, and in a while. */
bool prefetch_work(struct store *s, uint64_t now_nsec);

/* Has a client streamed in the last PREFETCH_POLL_NSEC? Then the daemon must look at rings every
 * few ms. Touches in shared memory don't wake it. */
bool prefetch_is_streaming(const struct store *s, uint64_t now_nsec);

/* Looks for sessions that are expected, and for wrong guesses. Returns when to call it again if
 * nothing happens before; UINT64_MAX: not at all. */
uint64_t prefetch_look(struct store *s, uint64_t now_nsec);

/* ---- statistics ------------------------------------------------------------------------------ */

/* Returns NULL if no page was promoted there. */
const struct prefetch *prefetch_of(const struct ns *ns, enum prefetch_kind kind);

/* For the checker: returns a static sentence about an error in the stakes, or NULL. */
const char *prefetch_check(const struct ns *ns);

/* ---- for warm.c ------------------------------------------------------------------------------ */

/* Does the namespace have a lower tier, and a policy that knows tiers? */
bool prefetch_is_possible(const struct ns *ns);

/* Returns NULL without memory. */
struct prefetching *prefetch_get(struct ns *ns);

enum bring {
        BRING_DONE,  /* all pages are begun */
        BRING_MORE,  /* call again when a transfer has ended */
        BRING_LATER, /* no more of this kind for now (prefetch_may()) */
        BRING_FULL,  /* no space, and no page of less value to demote */
        BRING_STUCK, /* a page of it can't be promoted */
};

/* Begins to promote pages of the text that ends at `page`, which is cached: those in lower tiers
 * behind `after` (PAGE_NONE: all), from the beginning on. May bind sets and demote pages of the
 * device; drops no page from the device that can be found. */
enum bring prefetch_bring(struct ns *ns, enum prefetch_kind kind, uint32_t page, uint32_t after);

#endif
