/*
 * Wiring of the server's modules. Each uses only those below it, and calls those above through
 * tables of functions, filled in here, where the order is visible.
 */
#ifndef KVL_SERVER_WIRING_H
#define KVL_SERVER_WIRING_H

struct loop;
struct server;

/* Gives each module its table. */
void wiring_init(struct server *s);

/* Does the work of a turn of the loop, in order. */
void wiring_turn(struct loop *l);

#endif
