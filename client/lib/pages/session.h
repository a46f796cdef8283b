/* Sessions, for the rooms above: struct kvl_session is in objects/session.h. */
#ifndef KVL_LIB_SESSIONS_H
#define KVL_LIB_SESSIONS_H

#include <stddef.h>
#include <stdint.h>

struct kvl_ns;
struct kvl_session;

/* Finds and pins at most 1024 of the session's pages from index `from` on, as kvl_session_pages()
 * does, but leaves each in the tier where it lies. */
int session_find_pages(struct kvl_session *session, uint32_t from, uint32_t max,
        uint32_t *ret_pages, uint32_t *ret_n_pages);

/* What another host has of the session with this id is brought here, for so long at most. 0: what
 * could be had is here, or there is nothing to be had; KVL_STALE; -errno: as kvl_session_open().
 * Only where ns->imports. */
int session_load(struct kvl_ns *ns, const void *id, size_t id_bytes, uint32_t timeout_msec);

/* [L] Frees the open sessions: the namespace goes away, and the handles with it. */
void sessions_free(struct kvl_ns *ns);

#endif
