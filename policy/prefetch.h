/*
 * What is brought up from lower tiers before somebody asks for it, and how much. PURE: time is a
 * parameter; plain memory. One struct prefetch for each namespace and each kind of guess, so that a
 * kind that guesses badly stops no other.
 *
 * A page that was brought up is *at stake* until it is used on the device (useful) or leaves it
 * unused (wasted). Pages at stake are bounded by a window, and so are those begun in a second. The
 * window walks: one up for each useful page, one down for each wasted. So it grows while more than
 * half of the pages are used, which is where a guess pays: a useful page spares a wait for one
 * move, a wasted one costs two moves and the place of another page. What an administrator named is
 * no guess: it is counted in the same way, and bounded by nothing here.
 *
 *   on    window > 0
 *   off   the window came down to 0, after at most as many wasted pages as it was wide. After a
 *         pause it is on again with a window of PREFETCH_PROBE. Each pause is twice as long as the
 *         last, to PREFETCH_PAUSE_MOST_NSEC, until the window has reached PREFETCH_START again
 */
#ifndef KVL_POLICY_PREFETCH_H
#define KVL_POLICY_PREFETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/bucket.h"

/* What is guessed. */
enum prefetch_kind {
        PREFETCH_STREAM, /* the next pages of a lookup that is being streamed: prefetch_steps() */
        PREFETCH_TURN,   /* the next turn of a session: prefetch_expects() */
        PREFETCH_EXPECT, /* what a client said it will ask for: policy/expect.h */
        PREFETCH_WARM,   /* what an administrator named */
        PREFETCH_KINDS
};

/* Pages. A new one starts with START. Not tuned. */
#define PREFETCH_PROBE 8
#define PREFETCH_START 32
#define PREFETCH_MOST  256

/* Begun in a second, for each page of the window: 256 pages of 1 MiB are 2 GiB/s then, which leaves
 * most of a PCIe link to who waits. Not tuned. */
#define PREFETCH_RATE 8

#define PREFETCH_PAUSE_NSEC      UINT64_C(10000000000)  /* 10 s. Not tuned */
#define PREFETCH_PAUSE_MOST_NSEC UINT64_C(640000000000) /* 640 s. Not tuned */

struct prefetch {
        bool is_guess;    /* else there is no window, no pause and no rate */
        uint32_t window;  /* pages; 0: off */
        uint32_t n_stake; /* at stake; can be more than the window, where that has shrunk */
        uint64_t pause_nsec, on_again_nsec;
        struct bucket rate;
        /* Since it began, for reports. begun = useful + wasted + given up + at stake. */
        uint64_t n_begun, n_useful, n_wasted, n_given_up;
};

void prefetch_init(struct prefetch *p, enum prefetch_kind kind);

/* How many of `n` pages may be begun now: all of them of PREFETCH_WARM. */
uint32_t prefetch_may(struct prefetch *p, uint32_t n, uint64_t now_nsec);

/* n pages are brought up, at most as many as may be. */
void prefetch_begin(struct prefetch *p, uint32_t n, uint64_t now_nsec);

/* One of these was used on the device; left it unused; or never came or went for another reason
 * (its copy failed, it was invalidated, somebody brought it up for himself), which says nothing. */
void prefetch_useful(struct prefetch *p);
void prefetch_wasted(struct prefetch *p, uint64_t now_nsec);
void prefetch_give_up(struct prefetch *p);

/*
 * Of a text of n_pages that is being streamed, of which the reader has come to page `at` and of
 * which the first `n_asked` were brought up or asked for: how many more to ask for, from n_asked
 * on (or from `at` + 1, where that is further), so that `steps` pages after `at` are on their way.
 */
uint32_t prefetch_steps(uint32_t at, uint32_t n_asked, uint32_t n_pages, uint32_t steps);

/* Whether a session's next turn is likely enough (evict_ops.chance() of its last page, within the
 * time that a page may be at stake) for its pages to be brought up: where the window would grow. */
bool prefetch_expects(double chance);

#endif
