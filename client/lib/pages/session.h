/* Sessions, for the rooms above: struct kvl_session is in objects/session.h. */
#ifndef KVL_LIB_SESSIONS_H
#define KVL_LIB_SESSIONS_H

#include <stdint.h>

struct kvl_ns;
struct kvl_session;

/* Finds and pins at most 1024 of the session's pages from index `from` on, as kvl_session_pages()
 * does, but leaves each in the tier where it lies. */
int session_find_pages(struct kvl_session *session, uint32_t from, uint32_t max,
        uint32_t *ret_pages, uint32_t *ret_n_pages);

/* [L] Frees the open sessions: the namespace goes away, and the handles with it. */
void sessions_free(struct kvl_ns *ns);

#endif
