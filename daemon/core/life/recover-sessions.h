/*
 * Restores the sessions of a namespace from the previous daemon's log (sessions/session-log.h).
 * Loop thread only.
 */
#ifndef KVL_CORE_RECOVER_SESSIONS_H
#define KVL_CORE_RECOVER_SESSIONS_H

#include <stdbool.h>
#include <stdint.h>

struct ns;

struct sessions_recovered {
        bool has_log;        /* the log is of this namespace; false: no sessions */
        bool is_damaged;     /* the log ended too early */
        uint32_t n_sessions; /* sessions restored */
};

/* Restores the log's sessions, with those of their pages that exist. The namespace's pages are
 * recovered; it has no sessions, and no page refers to one. Drops unusable parts: the whole log if
 * it is another namespace's, or without memory to read it; the log from the first damaged record
 * on. */
struct sessions_recovered sessions_recover(struct ns *ns);

#endif
