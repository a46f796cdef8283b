/*
 * WAITs: requests for keys that another client announced (daemon/core/clients/announce.h). Each is
 * answered when the announcement has ended, at its deadline, or when its namespace is closed. Other
 * requests of the peer are handled meanwhile, further WAITs included.
 *
 * WAITs for one key are a group, which a map finds by a hash whose seed no client can read
 * (store_hash_key()). So the end of an announcement costs the same for any number of waits for
 * other keys. Loop thread only.
 */
#ifndef KVL_SERVER_KEY_WAITS_H
#define KVL_SERVER_KEY_WAITS_H

#include <stdbool.h>
#include <stdint.h>

struct server;
struct request;

/* Bound of unanswered WAITs of one peer: some 100 KiB. Not tuned. */
#define KEY_WAITS_MAX 256

/* Answered in one loop turn: each is a frame. Not tuned. */
#define KEY_WAITS_PER_TURN 64

void key_waits_init(struct server *s);

/* Frees the groups after all waits have ended. */
void key_waits_deinit(struct server *s);

/* Lets a WAIT wait for a key that is announced in rq->attach. Returns 0, with the request deferred;
 * -EBUSY, -ENOMEM with the sentence. */
int key_waits_ask(struct request *rq, const uint8_t *key, uint64_t timeout_msec);

/* A turn of the loop: answers WAITs whose announcement has ended. Returns true if there are
 * more. */
bool key_waits_work(struct server *s);

#endif
