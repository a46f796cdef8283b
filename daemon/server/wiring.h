/*
 * Who is told of what: the rooms of the server use only those below them, and tell those above by
 * tables of functions, which are filled in here, where the order is visible.
 */
#ifndef KVL_SERVER_WIRING_H
#define KVL_SERVER_WIRING_H

struct loop;
struct server;

/* Gives each room its table. */
void wiring_init(struct server *s);

/* The work of a turn of the loop, in its order. */
void wiring_turn(struct loop *l);

#endif
