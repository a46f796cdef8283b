/*
 * The server's reaper (daemon/reap/reaper.h) returns clients' memory to the system. A client that
 * delays that is charged for it (daemon/core/memory/discard.h), and named in the log after a
 * second. Loop thread only.
 */
#ifndef KVL_SERVER_REAPING_H
#define KVL_SERVER_REAPING_H

#include <stdint.h>

#include "daemon/reap/reaper.h"

struct server;

/* Delay after which a tenant is named; undelayed work takes milliseconds. Not tuned. */
#define REAPING_SAY_NSEC UINT64_C(1000000000)

/* Starts the reaper, once devices are open. Does nothing in a program that can't be a reaper
 * (reaper_is_possible()). Returns 0 or -errno. It ends with the store's discards
 * (discards_stop()). */
int reaping_start(struct server *s);

/* Called when the loop ends: discards_stop() does the rest. */
void reaping_leave_loop(struct server *s);

/* Closes a foreign descriptor that `owner` (reaper.h) may delay; in this thread if there is no
 * reaper. For `done`, see reaper_submit(). */
void reaping_close(struct server *s, uint64_t owner, int fd, reap_done_fn done, void *data);

#endif
