/*
 * Prefetch from lower tiers: the pages to bring up before a client asks for them, and their number.
 * PURE: time is a parameter; plain memory. One struct prefetch for each namespace and each kind of
 * guess, so that a bad kind stops no other.
 *
 * A prefetched page is *at stake* until it is used on the device (useful) or leaves it unused
 * (wasted). A window bounds the pages at stake, and the pages begun in a second. It grows by one
 * for each useful page and shrinks by one for each wasted one. So it grows while more than half of
 * the pages are used, which is where guesses pay. A useful page saves a wait for one move, a wasted
 * one costs two moves and the place of another page. Pages that an administrator named are no
 * guess: they are counted in the same way, and not bounded here.
 *
 * - On: window > 0.
 * - Off: the window reached 0, after at most as many wasted pages as it was wide. After a pause it
 *   is on again with a window of PREFETCH_PROBE. Each pause is twice the last, up to
 *   PREFETCH_PAUSE_MOST_NSEC, until the window has reached PREFETCH_START again.
 */
#ifndef KVL_POLICY_PREFETCH_H
#define KVL_POLICY_PREFETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/bucket.h"

/* Kinds of guesses. */
enum prefetch_kind {
        PREFETCH_STREAM, /* the next pages of a lookup that is being streamed: prefetch_steps() */
        PREFETCH_TURN,   /* the next turn of a session: prefetch_expects() */
        PREFETCH_EXPECT, /* texts that a client expects: policy/expect.h */
        PREFETCH_WARM,   /* pages that an administrator named */
        PREFETCH_KINDS
};

/* Pages. A new one starts with START. Not tuned. */
#define PREFETCH_PROBE 8
#define PREFETCH_START 32
#define PREFETCH_MOST  256

/* Pages begun in a second, for each page of the window. 256 pages of 1 MiB are then 2 GiB/s, which
 * leaves most of a PCIe link to waiting clients. Not tuned. */
#define PREFETCH_RATE 8

#define PREFETCH_PAUSE_NSEC      UINT64_C(10000000000)  /* 10 s. Not tuned */
#define PREFETCH_PAUSE_MOST_NSEC UINT64_C(640000000000) /* 640 s. Not tuned */

struct prefetch {
        bool is_guess;    /* otherwise without window, pause and rate */
        uint32_t window;  /* pages; 0: off */
        uint32_t n_stake; /* at stake; may exceed a window that has shrunk */
        uint64_t pause_nsec, on_again_nsec;
        struct bucket rate;
        /* Counts since the beginning. begun = useful + wasted + given up + at stake. */
        uint64_t n_begun, n_useful, n_wasted, n_given_up;
};

void prefetch_init(struct prefetch *p, enum prefetch_kind kind);

/* Number of `n` pages that may be begun now; all for PREFETCH_WARM. */
uint32_t prefetch_may(struct prefetch *p, uint32_t n, uint64_t now_nsec);

/* Begins n pages, at most prefetch_may(). */
void prefetch_begin(struct prefetch *p, uint32_t n, uint64_t now_nsec);

/* The fate of a page at stake: used on the device; left it unused; or ended without a verdict (its
 * copy failed, it was invalidated, or a client fetched it). */
void prefetch_useful(struct prefetch *p);
void prefetch_wasted(struct prefetch *p, uint64_t now_nsec);
void prefetch_give_up(struct prefetch *p);

/*
 * Number of further pages to prefetch in a streamed text of n_pages, so that `steps` pages after
 * the reader's page `at` are on their way. The first `n_asked` are brought up or asked for. The
 * result counts from n_asked on (or from `at` + 1, if that is further).
 */
uint32_t prefetch_steps(uint32_t at, uint32_t n_asked, uint32_t n_pages, uint32_t steps);

/* True if a session's next turn is likely enough to prefetch its pages: the window would grow.
 * chance: evict_ops.chance() of its last page, within the time that a page may be at stake. */
bool prefetch_expects(double chance);

#endif
