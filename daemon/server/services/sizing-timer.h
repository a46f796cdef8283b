/*
 * Timer of core/sizing.h: samples demand every sizer_interval while any tenant has a sizer or a
 * schedule. Otherwise nothing wakes up. Loop thread only.
 */
#ifndef KVL_SERVER_SIZING_TIMER_H
#define KVL_SERVER_SIZING_TIMER_H

struct server;

/* Needs the loop. */
void sizing_timer_init(struct server *s);

/* Called when tenants or the configuration changed: starts the timer if it is needed. Idempotent
 * and cheap; the timer stops by itself. */
void sizing_timer_update(struct server *s);

#endif
