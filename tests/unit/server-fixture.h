/*
 * The server in process, on a fake device, and clients that are connections held by the test: the
 * loop turns when the test says so. Everything fails the test where it fails.
 */
#ifndef KVL_TESTS_SERVER_FIXTURE_H
#define KVL_TESTS_SERVER_FIXTURE_H

#include <sys/types.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/core/state/group.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/server.h"
#include "proto/arena.h"
#include "proto/frame.h"
#include "proto/figures.h"
#include "proto/msg.h"
#include "tests/unit/fake-device.h"
#include "tests/unit/test-support.h"

#define KIB         UINT64_C(1024)
#define SET_BYTES   (64 * KIB)
#define SET_PAGES   16
#define NS_ID       1 /* of the namespace that connect_client() opens */
#define CLIENTS_MAX 24
#define PATIENCE    (30 * NSEC_PER_SEC) /* for what AWAIT() waits for; not tuned */

struct client {
        uint64_t peer_id;
        pid_t pid; /* the test's; 0 here */
        int fd;    /* owned; -1: hung up */
        struct frame_parser parser;
        uint64_t seq;

        /* Replies of the server. */
        uint32_t status;   /* of the last reply; UINT32_MAX: none since say() */
        char replies[128]; /* "LEASE:0 ", one behind the other, since expect() or ask() */
        char detail[512];  /* of the last reply */
        uint64_t count;    /* of the last CountReply */
        const ProtobufCMessage *reply; /* the last one; the world's, until the next frame comes */
        uint64_t waiting;              /* members_waiting_exit of the last ADMIN_STATUS */
        char state[16];                /* of the first device of the last ADMIN_DEVICES */
        uint32_t n_preparing;
        unsigned n_left; /* NOTICE events of the kind MEMBER_LEFT */
        unsigned n_recalls;
        uint32_t recall_set, recall_msec; /* of the last RECALL event */
        bool recall_idle;
};

struct world {
        struct fake_device device;
        struct server server;
        struct arena arena;
        struct client clients[CLIENTS_MAX];
        unsigned n_clients;
};

/* For cmocka_run_group_tests(): what libuv opens once and keeps is open before the first test. */
int world_warm_up(void **state);

/* An empty world, with a device of this name that the test may change before it is served. */
void world_init(struct world *w, const char *device);

/* Parses a configuration that has a [tenant a]. */
void world_parse(const char *text, struct config *ret_config);

/* Starts the server on the device, with a budget of so many sets. */
void world_serve(struct world *w, const char *text, unsigned n_sets);

/* One turn of the loop, without waiting; then all clients read what has come. */
void world_turn(struct world *w);

/* The store agrees with itself. */
void world_check(struct world *w);

/* Ends peers and server; clients and device stay. */
void world_stop(struct world *w);

/* Frees the rest after world_stop(), except the device's lock. */
void world_free(struct world *w);

/* All of that, with the store checked on the way; the device is closed and has no extent left, and
 * no thread is left behind. */
void world_end(struct world *w);

/* Turns until the condition holds; fails after PATIENCE. */
#define AWAIT(w, condition)                                           \
        do {                                                          \
                uint64_t patience_ends = clock_now_nsec() + PATIENCE; \
                                                                      \
                for (world_turn(w); !(condition); world_turn(w)) {    \
                        if (clock_now_nsec() > patience_ends)         \
                                fail_msg("never: %s", #condition);    \
                        usleep(200);                                  \
                }                                                     \
        } while (0)

/* Sends a request. */
void say(struct client *c, uint16_t type, const ProtobufCMessage *m);

/* Until it has got these replies, in this order, and no other. */
void expect(struct world *w, struct client *c, const char *replies);

/* Sends a request and takes its reply's status. */
uint32_t ask(struct world *w, struct client *c, uint16_t type, const ProtobufCMessage *m);

/* Reads the last reply as one of this list: a row for each of *ret_n, one behind the other,
 * borrowed until the next frame comes. */
const void *rows_of(
        struct world *w, const struct client *c, const struct figure_table *t, size_t *ret_n);

/* A process that does nothing until it is killed, which the end of this one does, too. */
pid_t start_process(void);
void kill_process(pid_t pid);

/* All clients are borrowed from the world. A connection of a process that has said nothing yet: */
struct client *connect_process(struct world *w, const char *tenant, pid_t pid);

/* An administrator: */
struct client *connect_admin(struct world *w);

/*
 * A client of tenant a, in the group of `mate` (NULL: of its own), with the namespace "n" open. Its
 * process is `pid`.
 */
struct client *connect_client(struct world *w, pid_t pid, const struct client *mate);

/* Like connect_client(), for another tenant. */
struct client *connect_client_of(
        struct world *w, const char *tenant, pid_t pid, const struct client *mate);

/* NULL: it is gone. */
struct peer *peer_of(struct world *w, const struct client *c);

void hang_up(struct client *c);

/* Sends a lease of n pages; no reply is taken. */
void say_lease(struct client *c, uint32_t n);

void map_set(struct world *w, struct client *c, uint32_t set);

#define SERVER_SCENE(fn, ...) TEST_ON(fn, struct world, w, world_init, world_end, ##__VA_ARGS__)

#endif
