/*
 * What the files of this room tell each other. session.c has which sessions there are,
 * session-handles.c who has one open, session-expire.c when one goes by itself, session-end.c where
 * one ends in the prefix tree, session-window.c the windows of truncated ones, session-publish.c
 * what becomes of what is published, session-pages.c what is shown of one. Loop thread only.
 */
#ifndef KVL_CORE_SESSION_IMPL_H
#define KVL_CORE_SESSION_IMPL_H

#include "daemon/core/journal/session-log.h"
#include "daemon/core/objects/session.h"
#include "daemon/core/sessions/session-purge.h"
#include "daemon/core/sessions/session-restore.h"
#include "daemon/core/sessions/session-truncate.h"
#include "daemon/core/sessions/session.h"

/* Where in its text a page ends and begins, in tokens. */
static inline uint64_t page_end_token(const struct ns *ns, uint32_t page)
{
        return ns_page(ns, page)->end_token;
}

static inline uint64_t page_first_token(const struct ns *ns, uint32_t page)
{
        return ns_page(ns, page)->end_token - (uint64_t)ns_page(ns, page)->tokens;
}

/* ---- session.c ------------------------------------------------------------------------------- */

/* Makes a session with an id that there is none of, within the limits of how many there may be. 0
 * with *ret_s (borrowed); with the sentence: -EMFILE, or what session_log_open() says; -ENOMEM. */
int session_new(struct ns *ns, const uint8_t *id, uint32_t id_len, struct session **ret_s,
        struct detail *d);

/* The live session is gone: handles find nothing. Its pages in the tree stay cached; where its
 * window is a long one, that is left to the sweep. */
void session_end(struct session *s);

/* Ends the session, and frees those of its pages that nobody else has use for. Returns what took as
 * long as looking at so many pages. */
uint64_t session_drop(struct session *s);

/* Tells those who listen that the session with this id rests, or was dropped. */
void session_tell(struct ns *ns, const uint8_t *id, uint32_t id_len);

/* ---- session-expire.c ------------------------------------------------------------------------ */

/* The session is used: it was opened, closed, published to, or asked for its pages. */
void session_use(struct session *s, uint64_t now_nsec);

/* How long the session may be idle; 0: for ever. */
uint64_t session_expire_time(const struct session *s);

/* ---- session-pages.c ------------------------------------------------------------------------- */

/* The client uses the page where the session ends in the tree, if it does. */
void session_touch_tail(struct attach *a, const struct session *s, uint64_t now_nsec);

/* ---- session-window.c ------------------------------------------------------------------------ */

/* May windows hold this page? Not where its set is being taken back: what windows hold can't be
 * moved, and so calls a compaction off that has moved pages already. */
bool sessions_may_hold(const struct ns *ns, uint32_t page);

/* Windows of the namespace may have room for n more pages. Windows of sessions that nobody has open
 * may be lost for that. 0; -ENOMEM with the sentence. */
int sessions_make_room(struct ns *ns, uint64_t n, struct detail *d);

/* The window of the session, which somebody has open, has room for n more pages. Other windows may
 * be lost for that. 0; -ENOMEM with the sentence. */
int session_reserve_window(struct session *s, uint64_t n, struct detail *d);

/* Only the first n pages stay in the window. The others are let go of, and the log isn't told. */
void session_cut_window(struct session *s, uint32_t n);

/* The first n pages leave the window. A slice of them is let go of now, the others by
 * sessions_sweep(). */
void session_leave_front(struct session *s, uint32_t n);

/* All pages leave the window, and it has no room for others; they are let go of as by
 * session_leave_front(). */
void session_abandon_window(struct session *s);

/* All that the window holds, and what has left it, is let go of now, and its memory freed. The log
 * isn't told. */
void session_drop_window(struct session *s);

/* At most so many pages that have left the window are let go of. Returns how many. */
uint32_t session_shed(struct session *s, uint32_t most);

/* At most so many pages leave the window of a session that isn't live, the last ones first, and are
 * let go of. Returns how many. */
uint32_t session_shed_window(struct session *s, uint32_t most);

/* Of n pages that are held, those in the set are let go of, and are PAGE_NONE from then on. The set
 * stays bound until the call that is under way settles (memory/settle.h). */
void session_pages_leave_set(uint32_t *pages, uint32_t n, struct extent_set *set);

/* The log may have more of a window than there is of it now: the first n pages left the window, or
 * all but the first n did. */
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

/* The session's truncation, if there is one under way, ends, and leaves the session as it was.
 * `why`: it was published to (-EAGAIN), or is gone (-ENOENT). */
void truncation_call_off(struct session *s, int why);

/* The session loses its window. A truncation that hasn't looked at all of that ends, and leaves the
 * session as it was. */
void truncation_window_goes(struct session *s);

/* The page leaves the tree (called before it does), or has moved to `to`, which is in its place in
 * the tree now. */
void truncations_page_goes(struct ns *ns, uint32_t page);
void truncations_page_moved(struct ns *ns, uint32_t page, uint32_t to);

/* All sessions are gone: truncations are called off. */
void truncations_reset(struct sessions *all);

/* The namespace goes: truncations are over, and their owners are told. */
void truncations_end(struct ns *ns);

/* What sessions_give_way() is for windows, this is for pages that are to be one. */
bool truncations_give_way(struct ns *ns, bool open);

/* What sessions_leave_set() is for windows, this is for pages that are to be one. Returns how many
 * pages of the set truncations held; how many they held at all is added to *n_seen. */
uint64_t truncations_leave_set(struct extent_set *set, uint64_t *n_seen);

/* A part of sessions_check(): adds how many pages truncations hold, and how many they have room
 * for. NULL: all is as it must be; else a static sentence. */
const char *truncations_check(const struct ns *ns, uint64_t *n_held, uint64_t *n_room);

#endif
