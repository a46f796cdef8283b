/*
 * A listening socket: one for each tenant, one default, one for administration, one for monitoring.
 * The socket determines the tenant; rules narrow access (access.h). Accepted peers can't send
 * descriptors, or these are found (inbound.h). A listener owns its file and the tenant's directory,
 * unless systemd made the socket. It never looks at peers' data.
 */
#ifndef KVL_SERVER_LISTENER_H
#define KVL_SERVER_LISTENER_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "daemon/core/state/detail.h"
#include "daemon/server/config/config.h"

struct server;
struct tenancy;

enum listener_kind {
        LISTEN_TENANT,
        LISTEN_DEFAULT,
        LISTEN_ADMIN,
        LISTEN_MONITOR, /* monitors, which may only read */
};

#define LISTENER_PATH_MAX (CONFIG_PATH_MAX + TENANT_NAME_MAX + 16)

struct listener {
        uv_poll_t poll; /* holds the object until its close callback */
        uint64_t id;    /* > 0, never reused while the daemon runs */
        struct server *server;
        enum listener_kind kind;
        struct tenancy *tenancy; /* borrowed; LISTEN_TENANT */
        int fd;
        bool inherited; /* systemd's: the file stays */
        bool made_dir;
        bool paused;        /* accepts no connection until endings are done */
        uint32_t kept;      /* its number as KEEP_LISTENER; 0: it ends with the process */
        uint32_t n_endings; /* of its connections, with the reaper (endings.h) */
        char dir[LISTENER_PATH_MAX];
        char path[LISTENER_PATH_MAX];
};

/* Starts accepting. Returns 0 with an owned listener; -errno with the sentence, nothing left
 * behind. */
int listener_open(struct server *s, enum listener_kind kind, struct tenancy *t,
        struct listener **ret_listener, struct detail *d);

/* Removes the socket's files: no client can connect any more. Refuses waiting connections, and
 * frees itself, in later turns. Nothing for NULL. */
void listener_close(struct listener *l);

/* Closes the socket at the end of the process. If it is stored for the next one, it stays as it is,
 * and connecting clients wait. Nothing for NULL. */
void listener_leave(struct listener *l);

/* Counts one more (or fewer) connection of this socket with the reaper. Nothing for id 0, or for a
 * socket that was closed. */
void listener_note_ending(struct server *s, uint64_t id, bool begins);

/* Gives the tenant's directory to its configured group, or warns. */
void listener_update_group(struct listener *l);

/* Writes the path of a tenant's socket. Returns buf. */
char *listener_tenant_path(const struct server *s, const char *tenant, char buf[LISTENER_PATH_MAX]);

/* ---- descriptors reserved for administrators ------------------------------------------------- */

/* Reserves SOCKETS_ADMIN_FDS descriptors: at the start, before a client connects, and after an
 * administrator has left. Returns false if there are too few. */
bool admin_fds_hold(struct server *s);

/* Frees them for an administrator's connection or request, until admin_fds_hold(). */
void admin_fds_open(struct server *s);

#endif
