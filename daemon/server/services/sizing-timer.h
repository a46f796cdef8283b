/*
 * The clock of core/sizing.h: demand is sampled every sizer_interval while any tenant has a sizer
 * or a schedule. Without one nothing wakes up. Loop thread only.
 */
#ifndef KVL_SERVER_SIZING_TIMER_H
#define KVL_SERVER_SIZING_TIMER_H

struct server;

/* Needs the loop. */
void sizing_timer_init(struct server *s);

/* Tenants came or were changed, or the configuration was: starts what is needed now. Cheap to
 * repeat; it stops by itself. */
void sizing_timer_update(struct server *s);

#endif
