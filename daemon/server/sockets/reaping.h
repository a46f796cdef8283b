/*
 * The server's reaper (daemon/reap/reaper.h): where memory that clients had goes back to the
 * system. Who holds that up is charged for it (daemon/core/memory/discard.h), and named in the log
 * after a second. Loop thread only.
 */
#ifndef KVL_SERVER_REAPING_H
#define KVL_SERVER_REAPING_H

#include <stdint.h>

#include "daemon/reap/reaper.h"

struct server;

/* What nobody holds up takes milliseconds. Not tuned. */
#define REAPING_SAY_NSEC UINT64_C(1000000000)

/* Needs the loop. Opens the timer alone, which closes with the server's other handles. */
void reaping_init(struct server *s);

/* Once devices are open. Nothing in a program that can't be a reaper (reaper_is_possible()). 0 or
 * -errno. Ends with the store's discards (discards_stop()). */
int reaping_start(struct server *s);

/* The loop ends: what comes now is done by discards_stop(). */
void reaping_leave_loop(struct server *s);

/* Closes the descriptor of somebody else's that `owner` (reaper.h) may hold up; here, where there
 * is no reaper. `done` as of reaper_submit(). */
void reaping_close(struct server *s, uint64_t owner, int fd, reap_done_fn done, void *data);

#endif
