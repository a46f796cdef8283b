/* State of accepting clients and of ending their connections. */
#ifndef KVL_SERVER_SOCKETS_H
#define KVL_SERVER_SOCKETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <uv.h>

struct kept_socket;
struct listener;
struct reaper;

/* Descriptors reserved for administrators: for four of them, and files that they write. Not
 * tuned. */
#define SOCKETS_ADMIN_FDS 12

/* Callbacks of sockets, filled in by daemon/server/wiring.c. */
struct sockets_wiring {
        /* A connection was accepted; takes fd. */
        void (*on_connection)(struct listener *l, int fd);
};

struct sockets {
        const struct sockets_wiring *wiring;
        struct listener *default_listener, *admin_listener,
                *monitor_listener; /* owned; NULL before start. Tenants have theirs */
        uint64_t last_listener_id;
        bool old_sockets; /* INBOUND_TEST_VARIABLE is set */
        int spare_fd;     /* closed to accept and refuse a connection if no other is free */
        int admin_fds[SOCKETS_ADMIN_FDS]; /* of admin-fds.c; -1 */
};

/* Listening sockets of the previous process (kept-sockets.h). */
struct kept_sockets {
        struct kept_socket *sockets; /* owned; those that no listener has taken yet */
        size_t n;
};

/* How memory and connections are returned to the system (reaping.h). */
struct reaping {
        struct reaper *reaper; /* owned; NULL: there is none */
        uv_poll_t poll;
        uv_timer_t timer; /* runs while anything is being closed */
};

#endif
