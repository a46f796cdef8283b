/* An open session (<kvlease.h>): a chain of pages that the daemon keeps by name. */
#ifndef KVL_LIB_SESSION_H
#define KVL_LIB_SESSION_H

#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "client/lib/kvlease.h"

/* Constant while it is open. */
struct kvl_session {
        struct list_link link; /* ns.sessions */
        struct kvl_ns *ns;
        uint32_t handle; /* the daemon's, of this connection, > 0 */
        uint32_t expire_sec;
        uint8_t id[KVL_SESSION_ID_MAX];
        size_t id_bytes;
};

/* The daemon's handle of the session; 0: none. */
static inline uint32_t session_handle(const struct kvl_session *session)
{
        return session ? session->handle : 0;
}

#endif
