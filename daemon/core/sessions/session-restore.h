/*
 * What recovery makes the sessions with that the daemon before this one left
 * (recovery/recover-sessions.h). The functions fill in parts of a session; recovery writes the
 * other fields itself. Loop thread only.
 */
#ifndef KVL_CORE_SESSION_RESTORE_H
#define KVL_CORE_SESSION_RESTORE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/objects/session.h"

/* The namespace's sessions. They are made where there are none yet, empty and without a log. NULL:
 * no memory. Borrowed. */
struct sessions *sessions_get(struct ns *ns);

/* Frees all sessions of the namespace, whatever state their pages are in. Pages are told nothing.
 */
void sessions_free(struct ns *ns);

/* A session with this id, of which there is none yet. sessions_get() was called before, and limits
 * are for the caller to check. NULL: no memory. Borrowed. */
struct session *session_make(struct ns *ns, const uint8_t *id, uint32_t id_len);

/* From now on the session ends at this page of the prefix tree, or nowhere (PAGE_NONE). */
void session_end_at(struct session *s, uint32_t page);

/* Where in the text the session's window ends, in tokens: where it begins, if it is empty. */
uint64_t session_window_end(const struct session *s);

/* May the windows of all sessions of the namespace have room for n pages in sum? */
bool sessions_may_have_room(const struct ns *ns, uint64_t n);

/* Tells the eviction policy what the session's hint says of the page where it ends now. */
void session_pass_hint(struct session *s, uint64_t now_nsec);

#endif
