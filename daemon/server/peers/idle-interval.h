/*
 * Submissions without a doorbell (touches in shared memory). The daemon finds them by looking at
 * all rings: once after an interval in which something was executed, and before the first request
 * after a idle interval. Eviction policies do their housekeeping in idle intervals, a bounded
 * part in each. No timer runs if nothing happens and nothing is to be done. Loop thread only.
 */
#ifndef KVL_SERVER_IDLE_INTERVAL_H
#define KVL_SERVER_IDLE_INTERVAL_H

struct server;

/*
 * Something was executed, so clients may touch more pages without a doorbell: rings are looked at
 * once more after an interval. Idempotent and cheap.
 */
void idle_interval_expect(struct server *s);

/*
 * Called before a request is handled. If rings weren't looked at for an interval, they are looked
 * at first, so that eviction for the request counts all hits until now.
 */
void idle_interval_end(struct server *s);

/* Takes submissions without a doorbell, and looks again later if there were any. */
void peers_look_at_rings(struct server *s);

#endif
