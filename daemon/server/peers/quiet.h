/*
 * What clients do in shared memory without ringing (a touch): it is seen by looking at all rings,
 * once more after a while in which something was executed, and before what comes after a quiet
 * while. The eviction policies do their housekeeping in such a quiet while, a little in each until
 * it is done. Where nothing happens and nothing is to be done, no timer runs. Loop thread only.
 */
#ifndef KVL_SERVER_QUIET_H
#define KVL_SERVER_QUIET_H

struct server;

/* Needs the loop. */
void quiet_init(struct server *s);

/*
 * Something was executed, so more may follow, by clients that don't ring for a touch: rings are
 * looked at once more after a while. Cheap to repeat.
 */
void quiet_expect(struct server *s);

/*
 * A request is about to be handled. After a while in which nobody looked, the rings come first:
 * what is evicted for the request is chosen by hits until then.
 */
void quiet_end(struct server *s);

/* Takes what clients submitted without ringing. While there is any it is looked for again. */
void peers_look_at_rings(struct server *s);

#endif
