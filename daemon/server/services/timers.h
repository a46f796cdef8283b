/* The loop's timers for the core's work. None of them runs while nothing is executed. Loop thread
 * only. */
#ifndef KVL_SERVER_TIMERS_H
#define KVL_SERVER_TIMERS_H

struct server;

/* ---- occasional work ------------------------------------------------------------------------- */

/* Something was executed or configured: work may wait. A timer fires a second later, and then when
 * one of its calls asks to be called again, at most once a second. Idempotent and cheap. */
void periodic_timer_expect(struct server *s);

/* ---- compaction ------------------------------------------------------------------------------ */

/*
 * Timer of compaction (daemon/core/reclaim/compact.h) and of ready pages (prealloc.h). A tenth of a
 * second after something was executed it looks for work, and again while there is some.
 */

/* Needs the loop. */
void compact_timer_init(struct server *s);

/* Something was executed. Idempotent and cheap. */
void compact_timer_expect(struct server *s);

/* Called in each turn of the loop: refills ready pages if leases use them up faster than the timer
 * does. */
void compact_timer_turn(struct server *s);

/* ---- leasable pages -------------------------------------------------------------------------- */

/*
 * Counts how many pages leases would get (daemon/core/reclaim/leasable.h): 10 ms after something
 * was executed, and then each 10 ms until every namespace was counted.
 */

/* Something was, or may have been, executed. Idempotent and cheap. */
void leasables_expect(struct server *s);

/* ---- sizing ---------------------------------------------------------------------------------- */

/*
 * Timer of core/sizing.h: samples demand every sizer_interval while any tenant has a sizer or a
 * schedule.
 */

/* Called when tenants or the configuration changed: starts the timer if it is needed. Idempotent
 * and cheap; the timer stops by itself. */
void sizing_timer_update(struct server *s);

#endif
