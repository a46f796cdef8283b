/*
 * What is done now and then, by one timer of the loop: a second after something was executed, and
 * then when one of its calls wants to be called again, at most once a second. Where nothing is
 * waited for no timer runs. Loop thread only.
 */
#ifndef KVL_SERVER_UPKEEP_TIMER_H
#define KVL_SERVER_UPKEEP_TIMER_H

struct server;

/* Needs the loop. */
void upkeep_timer_init(struct server *s);

/* Something was executed, or configured: there may be something to wait for. Cheap to repeat. */
void upkeep_timer_expect(struct server *s);

#endif
