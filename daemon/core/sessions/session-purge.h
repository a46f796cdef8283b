/*
 * Drops sessions of a tenant for an administrator, as session_close() with `drop` does: those that
 * were idle for idle_nsec at now_nsec. A tenant may have very many, so it works in slices. Loop
 * thread only.
 */
#ifndef KVL_CORE_SESSION_PURGE_H
#define KVL_CORE_SESSION_PURGE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/state/task.h"

struct ns;
struct tenant;

struct session_purge {
        struct task task;      /* while it is queued */
        struct tenant *tenant; /* borrowed */
        uint64_t only_ns_id;   /* the id of the only namespace; 0: all of the tenant's */
        uint64_t idle_nsec, now_nsec;
        uint64_t n_sessions; /* dropped so far */
        uint64_t ns_id;      /* the next namespace and slot */
        uint32_t slot;
        bool is_over;
        void (*done)(struct session_purge *p);
};

/* Says which sessions to drop. Drops none yet. */
void session_purge_init(
        struct session_purge *p, struct tenant *t, uint64_t idle_nsec, uint64_t now_nsec);

/* Drops the session with this id, if the purge covers it. */
void session_purge_id(struct session_purge *p, struct ns *ns, const uint8_t *id, uint32_t id_len);

/* Does a slice. Returns true if there is more. */
bool session_purge_begin(struct session_purge *p);

/* Does the rest of a purge in tasks_work() (memory/tasks.h). done() is called at its end, or when
 * the tenant is freed: the purge is in no list then, and its owner may free it. */
void session_purge_queue(struct session_purge *p, void (*done)(struct session_purge *p));

/* The tenant is being freed: ends queued purges of its sessions. */
void session_purges_end(struct tenant *t);

#endif
