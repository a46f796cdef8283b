/*
 * The server's part of compaction (daemon/core/reclaim/compact.h) and of pages kept ready
 * (stock.h): a tenth of a second after something was done it is looked whether there is work, and
 * again while there is. Where nothing happens no timer runs. Loop thread only.
 */
#ifndef KVL_SERVER_COMPACT_TIMER_H
#define KVL_SERVER_COMPACT_TIMER_H

#include <stdbool.h>

struct server;

/* Needs the loop. */
void compact_timer_init(struct server *s);

/* Something was executed. Cheap to repeat. */
void compact_timer_expect(struct server *s);

/* Called in each turn of the loop: looks at what is kept ready where leases outran it. */
void compact_timer_turn(struct server *s);

#endif
