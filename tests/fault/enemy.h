/*
 * A client that means harm, in a process of its own, by chance: everything that a client may send,
 * with numbers of its own, of others and of nobody; and what it mustn't. Nothing in here asserts:
 * what becomes of it is the daemon's business.
 */
#ifndef KVL_TEST_ENEMY_H
#define KVL_TEST_ENEMY_H

#include "tests/integration/harness.h"

#define ENEMY_UID 41002 /* and the next; of nobody else */

/* What the tenants "a" and "mob" let in, beside root. */
#define ENEMY_UIDS "uids = 0, 41002, 41003\n"

/* Attacks until it is killed, or has nothing left to try: the process ends then. Never returns.
 * `seed` decides everything; stays with the parent's death. */
_Noreturn void enemy_run(struct harness *h, uint64_t seed);

/* Lets the enemies' users reach the sockets: after each start. */
void enemy_open_paths(struct harness *h);

#endif
