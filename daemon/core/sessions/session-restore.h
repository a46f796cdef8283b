/*
 * Functions with which recovery restores the previous daemon's sessions
 * (life/recover-sessions.h). They fill in parts of a session; recovery sets the other fields
 * itself. Loop thread only.
 */
#ifndef KVL_CORE_SESSION_RESTORE_H
#define KVL_CORE_SESSION_RESTORE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/sessions/session.h"

/* Returns the namespace's sessions, borrowed. Makes them if there are none yet, empty and without a
 * log. NULL: no memory. */
struct sessions *sessions_get(struct ns *ns);

/* Frees all sessions of the namespace without looking at their pages, whose state may be anything.
 */
void sessions_free(struct ns *ns);

/* Makes a session with a new id, borrowed. Requires sessions_get(); the caller checks limits. NULL:
 * no memory. */
struct session *session_make(struct ns *ns, const uint8_t *id, uint32_t id_len);

/* Makes the session end at this page of the prefix tree, or nowhere (PAGE_NONE). */
void session_end_at(struct session *s, uint32_t page);

/* Returns where the session's window ends in the text, in tokens; where it begins, if it is empty.
 */
uint64_t session_window_end(const struct session *s);

/* May the windows of all sessions of the namespace have space for n pages in sum? */
bool sessions_may_have_room(const struct ns *ns, uint64_t n);

/* Applies the session's hint to the page where it ends now, in the eviction policy. */
void session_pass_hint(struct session *s, uint64_t now_nsec);

#endif
