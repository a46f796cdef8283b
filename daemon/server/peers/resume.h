/*
 * Clients that resume: with the next daemon after the one they had, or with the same one on another
 * connection.
 *
 * At start, every recorded client (daemon/core/clients/client-record.h) becomes a peer that is
 * WAITING: it has no connection, and keeps its pages until its process exits. A HELLO with its id
 * and token, from its process, gives it the new connection:
 *
 *   resume_ask()   HELLO: checks, changes nothing
 *   resume_take()  the process has proven itself (at once, or by AUTH): checks again, undoes
 *                  requests that were never answered, frees the peer that waited
 *   RESUME_NS, SESSION_OPEN, RESUMED: the client says what it has; then its ring is executed
 *
 * A client that forges any of that learns nothing and changes nothing.
 */
#ifndef KVL_SERVER_RESUME_H
#define KVL_SERVER_RESUME_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/state/detail.h"
#include "proto/kvlease.pb-c.h"

struct member;
struct peer;
struct request;
struct server;

/* Bound of request numbers without a reply; not tuned. */
#define RESUME_MAX_PENDING 4096

/*
 * Opens the tables of clients, and makes members and peers for the previous daemon's clients.
 * Called between store_recover() and store_recover_end(), with the tenants made. Nothing without a
 * descriptor store. Returns 0; -ENOMEM, -EMFILE, -errno of the loop with the sentence: the daemon
 * can't continue.
 */
int resume_adopt(struct server *s, struct detail *d);

/* Called after store_recover_end(): ends clients whose process has exited meanwhile. */
void resume_end_exited(struct server *s);

/* Checks a HELLO that resumes. Returns 0: p->resumption.resume is set; -ESTALE: no such client, or
 * not its token; -EACCES: not its process, or muted, or it has another connection; -EMSGSIZE,
 * -EINVAL; -ENOMEM. */
int resume_ask(struct request *rq, const Kvlease__V1__HelloRequest *m);

/* Takes the client over. Returns 0: the member is p's, p->resumption.resume is NULL; else as
 * resume_ask(). */
int resume_take(struct peer *p, struct detail *d);

/* The client that the peer resumes; NULL if that has ended meanwhile. Borrowed. */
struct member *resume_member(const struct peer *p);

/* The token for its next resumption. Borrowed. */
const uint8_t *resume_token(const struct peer *p);

/* The peer gives up resuming its former client. Idempotent. */
void resume_drop(struct peer *p);

/* May a request of this type come before RESUMED? */
bool resume_allows(uint16_t type);

#endif
