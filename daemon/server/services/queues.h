/*
 * The loop's end of the devices' queues (gpu/queue.h): it is notified of jobs that are done or
 * late, lets the core take over what they made, and runs waiting requests again. Idle if no job is
 * submitted.
 */
#ifndef KVL_SERVER_QUEUES_H
#define KVL_SERVER_QUEUES_H

#include <stdbool.h>

struct server;
struct pool;

/* Listens to a pool's queue from now on. Returns 0, -ENOMEM, or -errno of the loop. */
int queues_watch(struct server *s, struct pool *pool);

/* Continues requests that wait for devices, within the bounds of a turn. Returns true if more are
 * left. */
bool queues_work(struct server *s);

/* Stops listening, and closes the loop's handles. */
void queues_stop(struct server *s);

/* "ok", "stuck", "broken": for people. Static. */
const char *queues_state(const struct pool *pool);

#endif
