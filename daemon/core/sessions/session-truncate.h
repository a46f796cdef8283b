/*
 * Truncation of sessions: ranges of a text stay, and the pages between them leave the session. Loop
 * thread only.
 *
 * A range consists of positions in the text, in tokens. A page stays as a whole, at its position,
 * if a range has one of its tokens. A range may include lost tokens, without effect, but not tokens
 * that an earlier truncation gave up. Pages kept by a first range that begins at token 0 are the
 * head from then on, and stay in the tree. Pages kept by the other ranges are the window. If the
 * last range ends before the text does, the text ends with the last page that stays. If no page
 * behind a gap stays then, the session isn't a truncated one. Pages that leave and aren't used
 * otherwise are freed.
 *
 * A text may have very many pages, so they are walked in slices:
 *
 *   window, from its first page on -> tree, from the session's end on (both: holds the pages of the
 *   next window) -> writing the log (sessions/session-log.h) -> done -> releasing the old window.
 *
 * Until it is done the session is unchanged, for clients and for a daemon that recovers it; then it
 * is truncated at once. Pages that leave the tree meanwhile still belong to the text: the
 * truncation has a current page, and is notified when that page is dropped or moved. Two events
 * meanwhile end the truncation: a publish to the session, because the text changes, and the loss of
 * a window that wasn't walked to the end. If no other memory is left, or if the set of one of its
 * pages is recalled, the truncation loses its pages; the session has no window in the end then.
 */
#ifndef KVL_CORE_SESSION_TRUNCATE_H
#define KVL_CORE_SESSION_TRUNCATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/core/state/task.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/sessions/session.h"

/* The most truncations under way in one namespace: each page that is dropped or moved is compared
 * with all. Not tuned. */
#define TRUNCATIONS_MAX 64

/* The most ranges of one truncation. They come in one message, in which this many take 20 KiB. Not
 * tuned. */
#define TRUNCATION_RANGES_MAX 1024

/* The end of a range that extends to the end of the text. */
#define TOKEN_RANGE_END UINT64_MAX

/* Positions in a text, in tokens. */
struct token_range {
        uint64_t first, end; /* `end` is the first one beyond the range */
};

struct session_truncation {
        struct list_link link;      /* sessions.truncations; empty: it is over */
        struct task task;           /* while it is queued */
        struct ns *ns;              /* borrowed */
        struct session *session;    /* borrowed; NULL: it is done, or has ended */
        struct token_range *ranges; /* owned; disjoint ranges that stay */
        uint32_t n_ranges;
        bool builds; /* pages that stay behind the head become a new window; else the present window
                        loses its first pages */
        bool keeps_end;            /* the end of the text doesn't change */
        bool has_head;             /* `at` is the last page before the gap */
        bool has_shorter_head;     /* the head is shorter than before */
        bool is_lost;              /* there will be no window; held pages are released */
        uint64_t end;              /* end of the session's present pages, in tokens */
        uint64_t text_end;         /* end of its text if that stays; in tokens */
        uint32_t n_window, n_seen; /* pages of the window to walk, and walked */
        uint64_t seen_end;         /* where the last of these ends, in tokens */
        uint32_t at;               /* the next page of the tree; PAGE_NONE: none */
        uint32_t *pages; /* owned; those in [first, past) are held. Pages of the tree are added in
                            front, pages of the window at the end */
        uint32_t first, past, room;
        uint64_t head_tokens;            /* where the head will end */
        uint64_t window_token, kept_end; /* where the window will begin, and where its last page
                                            ends; 0: no window */
        uint64_t n_left;                 /* how many pages leave the session */
        int result;                      /* at the end: 0, -EINVAL, -ENOENT, -EAGAIN, -ENOMEM */
        struct detail why;               /* the sentence, if the result isn't 0 */
        /* The queued truncation is over and in no list: its owner may free it. */
        void (*done)(struct session_truncation *t);
};

/*
 * Begins a truncation (*t may be uninitialized) and does its first slice. The ranges ascend and are
 * disjoint; they are copied. Returns 0: it is over, or must be queued (truncation_is_over()); its
 * result may still be -EINVAL because a range has tokens that were given up. With the sentence:
 * -EINVAL: no ranges, too many, a wrong order, tokens that were given up or that the text doesn't
 * have yet; -EAGAIN: the session is being truncated already, or TRUNCATIONS_MAX are; -ENOMEM.
 */
int truncation_begin(struct session_truncation *t, struct session *s,
        const struct token_range *ranges, uint32_t n, struct detail *d);

/* Begins a truncation that keeps the first and the last tokens that the session has. Tokens given
 * up between the last ones don't matter. With last_tokens 0 the session ends after the first ones.
 * Returns as truncation_begin(); -EINVAL: both are 0, or first_tokens goes beyond the session's
 * first gap. */
int truncation_begin_ends(struct session_truncation *t, struct session *s, uint64_t first_tokens,
        uint64_t last_tokens, struct detail *d);

static inline bool truncation_is_over(const struct session_truncation *t)
{
        return list_is_empty(&t->link);
}

/* Moves a truncation that isn't over to `to`, which has its turns in tasks_work()
 * (memory/tasks.h). done() is called at its end. */
void truncation_queue(struct session_truncation *t, struct session_truncation *to,
        void (*done)(struct session_truncation *t));

/* Ends a truncation that isn't over and wasn't queued, without changing the session. */
void truncation_cancel(struct session_truncation *t);

#endif
