/*
 * The server's use of the descriptor store (keeper.h): whether there is one, what the previous
 * process left in it, and the hold on output.
 *
 * While a descriptor that the loop added isn't stored yet, later output to tenants' peers is held.
 * So no client learns of a change that a kill could still undo. Output carries the *ticket* of the
 * last addition, and is sent when that is *passed*. Administrators are answered at once.
 *
 * Loop thread only, except keeping_park().
 */
#ifndef KVL_SERVER_KEEPING_H
#define KVL_SERVER_KEEPING_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/server/objects/keeping.h"

struct server;
struct queue_park;
struct detail;

/*
 * Decides by the configuration and by what the service manager says; takes what the process before
 * this one left out of server.activation, and sets store.keep. Where nothing is kept, what was left
 * is released. 0 or -errno, logged.
 */
int keeping_open(struct server *s);

/* Says in the log why nothing is kept, where something could be. */
void keeping_say(const struct server *s);

/* Keeps up to `max` descriptors from now on, of which none are left by a process before this one:
 * the second half of keeping_open(), and for tests. 0 or -errno. */
int keeping_start(struct server *s, uint32_t max);

/* The functions by which the queue of a device parks its extents here. */
struct queue_park keeping_park(struct server *s);

/* Everything was taken that is of use: the rest is dropped. */
void keeping_release_rest(struct server *s);

/* Blocks until all that was added is kept, at most 10 s: after that it is said in the log that the
 * service manager is late, and clients are served all the same. */
void keeping_settle(struct server *s);

/* May `n` more extents be made? 0, or -EMFILE with the sentence. */
int keeping_admit(const struct server *s, uint32_t n, struct detail *d);

/* The ticket of what is said now; 0: it can go out. */
uint64_t keeping_ticket(const struct server *s);

/* The highest ticket whose output may be sent. */
uint64_t keeping_passed(const struct server *s);

/* How many descriptors are kept now. */
uint32_t keeping_count(const struct server *s);

/* The end: sends what is left to be sent, and closes what the loop holds for it. Nothing is kept,
 * nor dropped, from here on. */
void keeping_stop(struct server *s);

/* After the last thread of a device. */
void keeping_free(struct server *s);

#endif
