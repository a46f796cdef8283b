/*
 * The daemon as an object: the loop, the state (daemon/core), tenants and their sockets, peers.
 *
 *   server_init()  -> state and tenants, no socket yet (the fuzzer drives this state);
 *   server_start() -> runtime directory, lock, sockets, signals; then server_run() runs the loop;
 *   server_stop()  (services/stop.h) -> clients are told, output is flushed, the loop ends;
 *   server_deinit().
 *
 * One thread, besides those of libuv's pool for files (disk.h). An idle daemon wakes up only for:
 * systemd's watchdog, a tenant's sizer, waiting work (timers.h), and once more after work
 * (idle_interval_expect()).
 */
#ifndef KVL_SERVER_SERVER_H
#define KVL_SERVER_SERVER_H

#include <stdint.h>

#include "daemon/server/peers/server.h"

struct device;

/*
 * Takes the configuration and the tenants of the database; opens devices, makes tenants. Returns
 * EXIT_OK; else the error was logged and nothing is left.
 */
enum exit_code server_init(
        struct server *s, struct config *config, const struct config_source *source);

/*
 * server_init() for the fuzzer, with the caller's device (taken) and a read-only database:
 * administrators' changes fail and are rolled back. Returns 0, or -errno (nothing is left).
 */
int server_init_for_test(struct server *s, struct config *config, struct device *device,
        uint64_t budget_bytes, uint64_t extent_bytes);

enum exit_code server_start(struct server *s);

/* Runs until a signal or server_stop(): EXIT_OK; or server_restart(): EXIT_RESTART. */
enum exit_code server_run(struct server *s);

/* Frees peers, sockets and state; memory that clients still map stays theirs. life.left_behind: the
 * process must end with _exit(). */
void server_deinit(struct server *s);

/* Exit codes, documented in --help. */
enum exit_code {
        EXIT_OK = 0,
        EXIT_OTHER = 1,
        EXIT_CONFIG = 2,
        EXIT_SOCKET = 3,
        EXIT_DEVICE = 4,
        EXIT_STATE = 5,
        EXIT_RESTART = 75, /* the daemon asks to be started again; EX_TEMPFAIL of sysexits.h */
};

#endif
