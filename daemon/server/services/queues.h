/*
 * The loop's end of the devices' queues (gpu/queue.h): hears when jobs are done or late, has the
 * core take over what was made, and runs requests again that waited for it. Where nothing is
 * submitted nothing runs here.
 */
#ifndef KVL_SERVER_QUEUES_H
#define KVL_SERVER_QUEUES_H

#include <stdbool.h>

struct server;
struct pool;

/* Listens to a pool's queue from now on. 0; -ENOMEM, -errno of the loop. */
int queues_watch(struct server *s, struct pool *pool);

/* Goes on with requests that wait for devices, as far as one loop turn goes. True while there is
 * more. */
bool queues_work(struct server *s);

/* Stops listening, and closes what the loop holds for it. */
void queues_stop(struct server *s);

/* "ok", "stuck", "broken": for people. Static. */
const char *queues_state(const struct pool *pool);

#endif
