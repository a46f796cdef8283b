/*
 * The insides of sessions, shared by session.c (which there are, and who has them open),
 * session-pages.c (where one ends, its pages), session-truncate.c and session-check.c. Loop thread
 * only.
 */
#ifndef KVL_CORE_SESSION_IMPL_H
#define KVL_CORE_SESSION_IMPL_H

#include "daemon/core/objects/session.h"
#include "daemon/core/journal/session-log.h"
#include "daemon/core/sessions/session-restore.h"
#include "daemon/core/sessions/session.h"

/* It is used: opened, closed, published to, or asked for its pages. */
void session_use(struct session *s, uint64_t now_nsec);

/* ---- session-pages.c ------------------------------------------------------------------------- */

/* Its window is lost; the log doesn't know yet. */
void session_drop_window(struct session *s);

/* At most so many of the pages that aren't in its window any more are let go of; returns how many.
 */
uint32_t session_shed(struct session *s, uint32_t most);

/* Those of the n pages that are in the set are held by them no more, and PAGE_NONE. The set may be
 * gone then. */
void session_pages_leave_set(uint32_t *pages, uint32_t n, struct extent_set *set);

/* At most so many pages leave it, the last ones; returns how many. Of a session that isn't live. */
uint32_t session_shed_window(struct session *s, uint32_t most);

/* The first n pages of its window aren't in it from now on. A slice of them is let go of now, the
 * rest by sessions_sweep(). */
void session_leave_front(struct session *s, uint32_t n);

/* It has no window, and no room for one; what was in it is left to sessions_sweep(). It may be gone
 * itself. */
void session_abandon_window(struct session *s);

/* May windows hold this page? What compacts is called off by what can't be moved. */
bool sessions_may_hold(const struct ns *ns, uint32_t page);

/* They may have it for n more; windows of sessions that nobody has open may go for it. 0; -ENOMEM
 * with the sentence. */
int sessions_make_room(struct ns *ns, uint64_t n, struct detail *d);

/* Where in its text a page ends and begins: tokens. */
static inline uint64_t page_end_token(const struct ns *ns, uint32_t page)
{
        return ns_page(ns, page)->end_token;
}

static inline uint64_t page_first_token(const struct ns *ns, uint32_t page)
{
        return ns_page(ns, page)->end_token - (uint64_t)ns_page(ns, page)->tokens;
}

/* The first n pages left its window; those beyond the first n did. */
static inline void session_unlog_first(struct session *s, uint32_t n)
{
        s->logged.n_pages[0] -= MIN(n, s->logged.n_pages[0]);
        s->logged.n_pages[1] -= MIN(n, s->logged.n_pages[1]);
}

static inline void session_unlog_beyond(struct session *s, uint32_t n)
{
        s->logged.n_pages[0] = MIN(n, s->logged.n_pages[0]);
        s->logged.n_pages[1] = MIN(n, s->logged.n_pages[1]);
}

/* ---- session-truncate.c ---------------------------------------------------------------------- */

/* The session is as it was, and won't be truncated, if it was to be: it was published to (-EAGAIN),
 * or is gone (-ENOENT). */
void truncation_call_off(struct session *s, int why);

/* The page leaves the tree; moves to `to`, which has its place there. Before, and after that. */
void truncations_page_goes(struct ns *ns, uint32_t page);
void truncations_page_moved(struct ns *ns, uint32_t page, uint32_t to);

/* All sessions are gone. */
void truncations_reset(struct sessions *all);

/* The namespace goes: they are over, and their owners hear of it. */
void truncations_end(struct ns *ns);

/* As sessions_give_way(), of what would have been a window. */
bool truncations_give_way(struct ns *ns, bool open);

/* As sessions_leave_set(); returns how many pages of the set they held, *n_seen more by those that
 * were looked at. */
uint64_t truncations_leave_set(struct extent_set *set, uint64_t *n_seen);

/* Of the checker: what they hold, and have room for, is added. NULL, or a static sentence. */
const char *truncations_check(const struct ns *ns, uint64_t *n_held, uint64_t *n_room);

#endif
