/*
 * Sessions of a tenant that go because an administrator says so, as in session_close() with `drop`:
 * those that have been idle for idle_nsec at now_nsec. A tenant may have very many, so they go in
 * slices. Loop thread only.
 */
#ifndef KVL_CORE_SESSION_PURGE_H
#define KVL_CORE_SESSION_PURGE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/ground/chore.h"

struct ns;
struct tenant;

struct session_purge {
        struct chore chore;    /* once it is queued */
        struct tenant *tenant; /* borrowed */
        uint64_t only_ns_id;   /* the id of the only namespace; 0: all of the tenant's */
        uint64_t idle_nsec, now_nsec;
        uint64_t n_sessions; /* that went until now */
        uint64_t ns_id;      /* the namespace and the slot where it goes on */
        uint32_t slot;
        bool is_over;
        void (*done)(struct session_purge *p);
};

/* Says which sessions are to go. None does yet. */
void session_purge_init(
        struct session_purge *p, struct tenant *t, uint64_t idle_nsec, uint64_t now_nsec);

/* The session with this id goes, where there is one that the purge is for. */
void session_purge_id(struct session_purge *p, struct ns *ns, const uint8_t *id, uint32_t id_len);

/* Does a slice of it. True: there is more to do. */
bool session_purge_begin(struct session_purge *p);

/* What is left of a purge that was begun is done in chores_work() (quota/chores.h). done() is
 * called when it is over, or the tenant goes: it is in no list then, and its owner may free it. */
void session_purge_queue(struct session_purge *p, void (*done)(struct session_purge *p));

/* The tenant goes: purges of its sessions that are queued are over. */
void session_purges_end(struct tenant *t);

#endif
