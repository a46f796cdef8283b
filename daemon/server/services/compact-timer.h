/*
 * Timer of compaction (daemon/core/reclaim/compact.h) and of ready pages (prealloc.h). A tenth of a
 * second after something was executed it looks for work, and again while there is some. No timer
 * runs if nothing happens. Loop thread only.
 */
#ifndef KVL_SERVER_COMPACT_TIMER_H
#define KVL_SERVER_COMPACT_TIMER_H

#include <stdbool.h>

struct server;

/* Needs the loop. */
void compact_timer_init(struct server *s);

/* Something was executed. Idempotent and cheap. */
void compact_timer_expect(struct server *s);

/* Called in each turn of the loop: refills ready pages if leases use them up faster than the timer
 * does. */
void compact_timer_turn(struct server *s);

#endif
