/*
 * Truncation of sessions: ranges of a text stay, and what lies between them leaves the session.
 * Loop thread only.
 *
 * A range is one of positions in the text, in tokens. A page stays as a whole, at its position,
 * where a range has one of its tokens. A range may name what was lost, of which nothing stays, but
 * not what an earlier truncation gave up. What the first range keeps, if it begins at token 0, is
 * the head from then on, and stays in the tree; what the other ranges keep is the window. Where the
 * last range ends before the text does, the text ends with the last page that stays; where no page
 * behind a gap stays then, the session isn't a truncated one. Pages that leave, and that nobody
 * else has use for, are freed.
 *
 * A text may have very many pages, so they are gone through in slices:
 *
 *   window, from its first page on -> tree, from the session's end on (both: holds what will be the
 *   window) -> writing that down (journal/session-log.h) -> done -> letting go of the old window
 *
 * Until it is done the session is as before, for everybody, and for a daemon that comes after this
 * one; then it is truncated at once. Pages that leave the tree meanwhile, for whatever reason, are
 * the text's all the same: the truncation names the page where it goes on, and is told when that
 * page goes or moves. What is published to the session meanwhile calls the truncation off, because
 * the text is another one then; and so does the loss of a window of which not all was seen. The
 * memory that a truncation holds is taken where nothing else is left, or when the set of one of its
 * pages is recalled; the session ends up without a window then.
 */
#ifndef KVL_CORE_SESSION_TRUNCATE_H
#define KVL_CORE_SESSION_TRUNCATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/core/ground/chore.h"
#include "daemon/core/ground/detail.h"
#include "daemon/core/objects/session.h"

/* The most truncations under way in one namespace: each page that goes or moves is compared with
 * them all. Not tuned. */
#define TRUNCATIONS_MAX 64

/* The most ranges of one truncation. They come in one message, of which this many take 20 KiB. Not
 * tuned. */
#define TRUNCATION_RANGES_MAX 1024

/* The end of a range that goes on to where the text ends. */
#define TOKEN_RANGE_END UINT64_MAX

/* Positions in a text, in tokens. */
struct token_range {
        uint64_t first, end; /* `end` is the first one beyond the range */
};

struct session_truncation {
        struct list_link link;      /* sessions.truncations, while it isn't over */
        struct chore chore;         /* once it is queued */
        struct ns *ns;              /* borrowed */
        struct session *session;    /* borrowed; NULL: it is done, or called off */
        struct token_range *ranges; /* owned; what stays. No range has a token of another one */
        uint32_t n_ranges;
        bool builds;    /* all that stays behind the head will be a new window; else the window
                           that there is loses its first pages */
        bool keeps_end; /* the text ends where it ended */
        bool has_head;  /* `at` is the last page of what is left before the gap */
        bool has_shorter_head; /* the head was longer than that */
        bool is_lost;          /* there will be no window; what is held is let go of */
        uint64_t end;          /* where that ends which the session has, in tokens */
        uint64_t text_end;     /* where its text ends, if that stays; in tokens */
        uint32_t n_window,
                n_seen;    /* pages of the window that it is to look at, and has looked at */
        uint64_t seen_end; /* where the last of these ends, in tokens */
        uint32_t at;       /* the page of the tree that is looked at next; PAGE_NONE: none */
        uint32_t *pages; /* owned; those from `first` on, before `past`, are held. What stays of the
                            tree is added before them, what stays of the window behind them */
        uint32_t first, past, room;
        uint64_t head_tokens;            /* where the head will end */
        uint64_t window_token, kept_end; /* where the window will begin, and where its last page
                                            ends; 0: it will have none */
        uint64_t n_left;                 /* pages that leave the session */
        int result;        /* once it is over: 0, -EINVAL, -ENOENT, -EAGAIN, -ENOMEM */
        struct detail why; /* the sentence, where the result isn't 0 */
        /* It was queued, and is over: it is in no list, and its owner may free it. */
        void (*done)(struct session_truncation *t);
};

/*
 * Begins a truncation, which needs no initialization, and does the first slice of it. The ranges
 * ascend, and none has a token of another one; they are copied. 0: it is over, or has to be queued
 * (truncation_is_over()); that a range has tokens which were given up may be its result (-EINVAL).
 * With the sentence: -EINVAL: the ranges are none, too many, in another order, or of tokens that
 * were given up or that the text doesn't have yet; -EAGAIN: the session is being truncated already,
 * or TRUNCATIONS_MAX are; -ENOMEM.
 */
int truncation_begin(struct session_truncation *t, struct session *s,
        const struct token_range *ranges, uint32_t n, struct detail *d);

/*
 * The same of the first and the last so many tokens of what the session has, whatever was given up
 * between the last ones. With last_tokens 0 the session ends after the first ones. -EINVAL: both
 * are 0, or first_tokens goes beyond the session's first gap.
 */
int truncation_begin_ends(struct session_truncation *t, struct session *s, uint64_t first_tokens,
        uint64_t last_tokens, struct detail *d);

static inline bool truncation_is_over(const struct session_truncation *t)
{
        return list_is_empty(&t->link);
}

/* A truncation that isn't over becomes `to`, which has its turns in chores_work()
 * (quota/chores.h) from now on. done() is called when it is over. */
void truncation_queue(struct session_truncation *t, struct session_truncation *to,
        void (*done)(struct session_truncation *t));

/* Ends a truncation that isn't over and wasn't queued. The session is as it was. */
void truncation_cancel(struct session_truncation *t);

#endif
