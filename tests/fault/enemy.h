/*
 * A hostile client in a process of its own, at random. It sends everything that a client may send,
 * with numbers of its own, of other clients and of no client, and illegal bytes. Nothing in here
 * asserts: the daemon's state is what counts.
 */
#ifndef KVL_TEST_ENEMY_H
#define KVL_TEST_ENEMY_H

#include "tests/integration/harness.h"

#define ENEMY_UID 41002 /* and the next; not used by other accounts */

/* Users that the tenants "a" and "mob" admit, beside root. */
#define ENEMY_UIDS "uids = 0, 41002, 41003\n"

/* Attacks until it is killed, or has nothing left to try, and exits then. Never returns. `seed`
 * decides everything. Ends with the parent. */
_Noreturn void enemy_run(struct harness *h, uint64_t seed);

/* Lets the enemies' users reach the sockets; call it after each start. */
void enemy_open_paths(struct harness *h);

#endif
