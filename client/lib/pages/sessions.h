/* Sessions, for higher layers: struct kvl_session is in objects/session.h. */
#ifndef KVL_LIB_SESSIONS_H
#define KVL_LIB_SESSIONS_H

#include <stddef.h>
#include <stdint.h>

struct kvl_ns;
struct kvl_session;

/* Does kvl_session_pages() for at most 1024 of the session's pages from index `from` on: finds and
 * pins them. Leaves each in its tier. */
int session_find_pages(struct kvl_session *session, uint32_t from, uint32_t max,
        uint32_t *ret_pages, uint32_t *ret_n_pages);

/* Imports the session with this id from another host, for at most timeout_msec. Only if
 * ns->imports. Returns 0: all that could be had is here, which may be nothing; KVL_STALE; -errno:
 * as kvl_session_open(). */
int session_load(struct kvl_ns *ns, const void *id, size_t id_bytes, uint32_t timeout_msec);

/* [L] Frees the open sessions: the namespace is being freed, which ends the handles. */
void sessions_free(struct kvl_ns *ns);

#endif
