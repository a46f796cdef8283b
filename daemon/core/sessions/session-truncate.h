/*
 * Truncation of sessions: the first and the last tokens of a text stay, and what lies between them
 * leaves the session. Loop thread only.
 *
 * A truncation keeps the pages that have one of the first or of the last tokens of what the session
 * has when the truncation begins, each as a whole. With last_tokens 0 the session ends after the
 * first ones, and isn't a truncated one. Pages that leave, and that nobody else has use for, are
 * freed.
 *
 * A text may have very many pages, so they are gone through in slices, from the end of the text on:
 *
 *   walking (holds what will be the window) -> writing that down (journal/session-log.h) -> done
 *
 * Until the end the session is as before, for everybody, and for a daemon that comes after this
 * one; then it is truncated at once. Pages that leave the tree meanwhile, for whatever reason, are
 * the text's all the same: the truncation names the page where it goes on, and is told when that
 * page goes or moves. What is published to the session meanwhile calls the truncation off, because
 * it is no beginning or end of the text that was to be kept. The memory that a truncation holds is
 * taken where nothing else is left, or when the set of one of its pages is recalled; the session
 * ends up without a window then.
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

struct session_truncation {
        struct list_link link;   /* sessions.truncations, while it isn't over */
        struct chore chore;      /* once it is queued */
        struct ns *ns;           /* borrowed */
        struct session *session; /* borrowed; NULL: it is done, or called off */
        uint64_t first_tokens;
        uint64_t end, gap_end; /* where the text ends, and what leaves it; in tokens */
        bool fills;            /* the session had no window: what is beyond gap_end will be it */
        bool has_end;          /* the session is to have a window */
        bool has_head;         /* `at` is the last page of what is left before the gap */
        bool is_lost;          /* there will be no window; what is held is let go of */
        uint32_t at;           /* the page of the tree that is looked at next; PAGE_NONE: none */
        uint32_t *pages;       /* owned; those from `first` on are held */
        uint32_t first, room;
        uint64_t window_token, head_tokens; /* where the window begins, and the head ends */
        uint64_t n_left;                    /* pages that leave the session */
        int result;                         /* once it is over: 0, -ENOENT, -EAGAIN, -ENOMEM */
        struct detail why;                  /* the sentence, where the result isn't 0 */
        /* It was queued, and is over: it is in no list, and its owner may free it. */
        void (*done)(struct session_truncation *t);
};

/*
 * Begins a truncation, which needs no initialization, and does the first slice of it. 0: it is
 * over, or has to be queued (truncation_is_over()). With the sentence: -EINVAL: the range is none;
 * -EAGAIN: the session is being truncated already, or TRUNCATIONS_MAX are; -ENOMEM.
 */
int truncation_begin(struct session_truncation *t, struct session *s, uint64_t first_tokens,
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
