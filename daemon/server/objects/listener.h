/* A listening socket (functions: daemon/server/sockets/listener.h). */
#ifndef KVL_SERVER_OBJECTS_LISTENER_H
#define KVL_SERVER_OBJECTS_LISTENER_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "daemon/server/settings/config.h"

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

#endif
