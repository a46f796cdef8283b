/*
 * Servers that a test starts itself: redis-server processes on 127.0.0.1, or elsewhere
 * (redis_cluster.places), in a directory of their own, without persistence; alone, or as a cluster.
 * They end with the test. Nothing here asserts; functions return 0 or -errno.
 */
#ifndef KVL_TEST_REDIS_CLUSTER_H
#define KVL_TEST_REDIS_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define REDIS_MAX 8

/* An address, in the network of a process (host-net.h). */
struct redis_place {
        const char *host;
        pid_t net_pid;
};

struct redis_server {
        pid_t pid;                       /* 0: none */
        const struct redis_place *place; /* borrowed; NULL: here, on 127.0.0.1 */
        uint16_t port;
        char address[32];
};

struct redis_cluster {
        char dir[64]; /* "": none */
        char program[128];
        unsigned n;
        struct redis_server servers[REDIS_MAX];
        const struct redis_place *places; /* borrowed, REDIS_MAX of them, one for each server by
                                             number; NULL: all are here */
        const char *const *cli_words;     /* more of redis-cli: "--tls"...; NULL: none */
};

/*
 * Makes the directory and finds the program: $KVL_REDIS (valkey-server), else redis-server. Else
 * the target of that name's link in Debian's redis-tools, which starts no service. Returns 0;
 * -ENOENT: there is none.
 */
int redis_cluster_init(struct redis_cluster *c);
void redis_cluster_deinit(struct redis_cluster *c);

/* Starts one more server, with these words behind its configuration's (ends with NULL), and waits
 * until it answers. With `is_tls` its port is for TLS only. */
int redis_cluster_add(struct redis_cluster *c, const char *const *words, bool is_tls);

/* Starts number i again, on its port, with the same words. */
int redis_cluster_restart(
        struct redis_cluster *c, unsigned i, const char *const *words, bool is_tls);

/* Starts n_masters masters with one replica each, as many as REDIS_MAX has room for, and waits
 * until they agree. */
int redis_cluster_create(struct redis_cluster *c, unsigned n_masters, bool has_replicas);

/* Waits until this replica has executed every command that its master has executed so far. 0 or
 * -ETIMEDOUT. */
int redis_cluster_await_copied(struct redis_cluster *c, unsigned master, unsigned replica);

/* Sends a command to server i by redis-cli; `format` is split at spaces. Returns its output, owned,
 * or NULL. */
char *redis_cluster_call(struct redis_cluster *c, unsigned i, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

/* Does server i run as a master? */
bool redis_cluster_is_master(struct redis_cluster *c, unsigned i);

/* Owners of all slots, as server i reports them; -1: none of ours. */
#define REDIS_SLOTS 16384
int redis_cluster_owners(struct redis_cluster *c, unsigned i, int ret_owners[REDIS_SLOTS]);

/* Moves the slot from its owner `from` to `to`, key by key. Both masters are in this cluster. */
void redis_cluster_move_slot(struct redis_cluster *c, unsigned slot, unsigned from, unsigned to);

#endif
