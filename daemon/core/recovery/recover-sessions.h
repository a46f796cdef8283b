/*
 * The sessions of a namespace, made again from the log that the daemon before this one left
 * (journal/session-log.h). Loop thread only.
 */
#ifndef KVL_CORE_RECOVER_SESSIONS_H
#define KVL_CORE_RECOVER_SESSIONS_H

#include <stdbool.h>
#include <stdint.h>

struct ns;

struct sessions_recovered {
        bool has_log;        /* there was a log of this namespace's; false: there are no sessions */
        bool is_damaged;     /* the log ended too early */
        uint32_t n_sessions; /* that there are again */
};

/*
 * Makes the sessions that the log has, with those of their pages that there are. The namespace's
 * pages have been recovered; it has no sessions, and no page knows of one. What can't be used is
 * dropped: the whole log where it isn't this namespace's, or where there is no memory to read it;
 * what comes after the first damaged record.
 */
struct sessions_recovered sessions_recover(struct ns *ns);

#endif
