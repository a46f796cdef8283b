/*
 * One timer of the loop for occasional work. It fires a second after something was executed, and
 * then when one of its calls asks to be called again, at most once a second. No timer runs if
 * nothing waits. Loop thread only.
 */
#ifndef KVL_SERVER_PERIODIC_TIMER_H
#define KVL_SERVER_PERIODIC_TIMER_H

struct server;

/* Needs the loop. */
void periodic_timer_init(struct server *s);

/* Something was executed or configured: work may wait. Idempotent and cheap. */
void periodic_timer_expect(struct server *s);

#endif
