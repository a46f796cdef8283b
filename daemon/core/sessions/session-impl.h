/*
 * Internals that this module's files share. session.c has the table of sessions, their ends in the
 * prefix tree, idle times and handles. session-window.c has windows of truncated sessions,
 * publishing and the check. Loop thread only.
 */
#ifndef KVL_CORE_SESSION_IMPL_H
#define KVL_CORE_SESSION_IMPL_H

#include "daemon/core/sessions/session-log.h"
#include "daemon/core/sessions/session.h"
#include "daemon/core/sessions/session-purge.h"
#include "daemon/core/sessions/session-truncate.h"

/* Return where in its text a page ends and begins, in tokens. */
static inline uint64_t page_end_token(const struct ns *ns, uint32_t page)
{
        return ns_page(ns, page)->end_token;
}

static inline uint64_t page_first_token(const struct ns *ns, uint32_t page)
{
        return ns_page(ns, page)->end_token - (uint64_t)ns_page(ns, page)->tokens;
}

/* ---- session.c ------------------------------------------------------------------------------- */

/* Makes a session with a new id, within the limits of their number. Returns 0 with *ret_s
 * (borrowed); with the sentence: -EMFILE, -ENOMEM, or as session_log_open(). */
int session_new(struct ns *ns, const uint8_t *id, uint32_t id_len, struct session **ret_s,
        struct detail *d);

/* Ends the session, and frees its pages that aren't used otherwise. Returns the work done, in pages
 * looked at. */
uint64_t session_drop(struct session *s);

/* Notifies listeners that the session with this id rests, or was dropped. */
void session_tell(struct ns *ns, const uint8_t *id, uint32_t id_len);

/* Notes a use of the session: it was opened, closed, published to, or asked for its pages. */
void session_use(struct session *s, uint64_t now_nsec);

/* ---- session-window.c ------------------------------------------------------------------------ */

/* May windows hold this page? Not if its set is being taken back: a page that windows hold can't be
 * moved, which would make a compaction fail after it has moved pages. */
bool sessions_may_hold(const struct ns *ns, uint32_t page);

/* Makes space for n more pages in windows of the namespace, if necessary by abandoning windows of
 * sessions that no client has open. Returns 0; -ENOMEM with the sentence. */
int sessions_make_room(struct ns *ns, uint64_t n, struct detail *d);

/* Takes the first n pages out of the window. A slice of them is released now, the others by
 * sessions_sweep(). */
void session_leave_front(struct session *s, uint32_t n);

/* Takes all pages out of the window, and its space. They are released as by session_leave_front().
 */
void session_abandon_window(struct session *s);

/* Releases all pages of the window and before it now, and frees its memory. Doesn't write the log.
 */
void session_drop_window(struct session *s);

/* Releases at most `most` pages that have left the window. Returns how many. */
uint32_t session_shed(struct session *s, uint32_t most);

/* Takes at most `most` pages out of the window of a session that isn't live, the last ones first,
 * and releases them. Returns how many. */
uint32_t session_shed_window(struct session *s, uint32_t most);

/* Releases the pages of the set among n held pages, and makes them PAGE_NONE. The set stays bound
 * until the idle list is drained (memory/idle-sets.h). */
void session_pages_leave_set(uint32_t *pages, uint32_t n, struct extent_set *set);

/* The log may have more of a window than it still has: the first n pages left the window, or all
 * but the first n did. */
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

/* Ends the session's truncation, if one is under way, without changing the session. `why`: it was
 * published to (-EAGAIN), or has ended (-ENOENT). */
void truncation_call_off(struct session *s, int why);

/* The session loses its window. Ends a truncation that hasn't looked at all of the window, without
 * changing the session. */
void truncation_window_goes(struct session *s);

/* The page is about to leave the tree, or has moved to `to`, which has its place in the tree. */
void truncations_page_goes(struct ns *ns, uint32_t page);
void truncations_page_moved(struct ns *ns, uint32_t page, uint32_t to);

/* All sessions have ended: ends truncations. */
void truncations_reset(struct sessions *all);

/* The namespace is being freed: ends truncations and calls `done` for each. */
void truncations_end(struct ns *ns);

/* Does for pages of truncations what sessions_give_way() does for windows. */
bool truncations_give_way(struct ns *ns, bool open);

/* Does for pages of truncations what sessions_leave_set() does for windows. Returns how many pages
 * of the set truncations held; adds the number of all pages that they held to *n_seen. */
uint64_t truncations_leave_set(struct extent_set *set, uint64_t *n_seen);

/* Part of sessions_check(): adds the pages that truncations hold, and their space. Returns NULL, or
 * a static sentence about an error. */
const char *truncations_check(const struct ns *ns, uint64_t *n_held, uint64_t *n_room);

#endif
