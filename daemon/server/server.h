/*
 * The daemon as an object: the loop, the state (daemon/core), tenants and their sockets, peers.
 *
 *   server_init()  -> state and tenants, no socket yet: what the fuzzer drives
 *   server_start() -> runtime directory, lock, sockets, signals; then uv_run() by server_run()
 *   server_stop()  (services/stop.h) -> clients are told, output is flushed, the loop ends
 *   server_deinit()
 *
 * One thread (and those of libuv's pool for files: disk.h). Nothing here wakes up by itself but the
 * watchdog, where systemd asks for it, the sizer where a tenant has one (sizing-timer.h), what is
 * waited for (upkeep-timer.h), and once more after work (quiet_expect()).
 */
#ifndef KVL_SERVER_SERVER_H
#define KVL_SERVER_SERVER_H

#include <stdint.h>

#include "daemon/server/objects/server.h"
#include "daemon/server/system/exit-code.h"

struct device;

/*
 * Takes the configuration and the tenants of the database; opens devices, makes tenants. EXIT_OK,
 * else the error has been logged and nothing is left.
 */
enum exit_code server_init(
        struct server *s, struct config *config, const struct config_source *source);

/*
 * The same with a device of the caller's (taken) and a database that can't be written: what
 * administrators change fails and is rolled back. For the fuzzer. 0 or -errno, nothing left.
 */
int server_init_for_test(struct server *s, struct config *config, struct device *device,
        uint64_t budget_bytes, uint64_t extent_bytes);

enum exit_code server_start(struct server *s);

/* Until a signal or server_stop(): EXIT_OK; or server_restart(): EXIT_RESTART. */
enum exit_code server_run(struct server *s);

/* Peers, sockets and state go; memory that clients still map stays theirs. `left_behind` tells how
 * the process is to end. */
void server_deinit(struct server *s);

#endif
