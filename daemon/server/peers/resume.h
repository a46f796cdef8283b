/*
 * Clients that go on: with the daemon that comes after the one they had, or with the same one on
 * another connection.
 *
 * At start, every client that was recorded (daemon/core/clients/client-record.h) is a peer that is
 * WAITING: without a connection, keeping what it has until its process exits. A HELLO that names
 * it, with its token, from its process, makes the new connection its own:
 *
 *   resume_ask()   HELLO: checks, changes nothing
 *   resume_take()  the process has proven itself (at once, or by AUTH): checks once more; what the
 *                  client never got an answer for is undone; the peer that waited is gone
 *   RESUME_NS, SESSION_OPEN, RESUMED: the client says what it has; then its ring is executed
 *
 * Who forges any of that learns nothing and changes nothing.
 */
#ifndef KVL_SERVER_RESUME_H
#define KVL_SERVER_RESUME_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/ground/detail.h"
#include "proto/kvlease.pb-c.h"

struct member;
struct peer;
struct request;
struct server;

/* Numbers of requests without a reply; not tuned. */
#define RESUME_MAX_PENDING 4096

/*
 * Between store_recover() and store_recover_end(), with the tenants made: opens the tables of
 * clients, makes members of those that the daemon before this one had, and peers of them. Nothing
 * where nothing is kept. 0; -ENOMEM, -EMFILE, -errno of the loop with the sentence: the daemon
 * can't go on.
 */
int resume_adopt(struct server *s, struct detail *d);

/* After store_recover_end(): clients whose process has exited meanwhile, and can't be watched for
 * that, end. */
void resume_end_exited(struct server *s);

/* 0: p->comeback.resume is set; -ESTALE: no such client, or not its token; -EACCES: not its
 * process, or ignored, or it has another connection; -EMSGSIZE, -EINVAL; -ENOMEM. */
int resume_ask(struct request *rq, const Kvlease__V1__HelloRequest *m);

/* 0: the member is p's, p->comeback.resume is NULL; as resume_ask(). */
int resume_take(struct peer *p, struct detail *d);

/* The client that it wants to be; NULL where that has gone meanwhile. Borrowed. */
struct member *resume_member(const struct peer *p);

/* What it can resume with next. Borrowed. */
const uint8_t *resume_token(const struct peer *p);

/* It doesn't want to any more. Safe to repeat. */
void resume_drop(struct peer *p);

/* May a request of this type come before RESUMED? */
bool resume_allows(uint16_t type);

#endif
