/*
 * Requests that remove more than a slice: INVALIDATE by key or tag (daemon/core/cache/drop.h).
 * The request is answered when all of it is removed, durably on disks (durable.h). Until then later
 * requests of its peer wait: requests of a connection take effect in order. Waiting leases are
 * answered meanwhile, as these come in any order.
 *
 * The same holds for an NS_CLOSE of an attachment that held much, and for a SESSION_TRUNCATE or
 * SESSION_KEEP of a long text. It also holds for an ADMIN_SESSION_PURGE of many sessions.
 *
 * A peer that hangs up isn't answered; the removal is finished all the same, and the peer's earlier
 * input is handled at once. A daemon that is killed has not answered: the client asks the next one
 * again.
 */
#ifndef KVL_SERVER_DROPS_H
#define KVL_SERVER_DROPS_H

struct drop;
struct request;
struct session_purge;
struct session_truncation;

/* Answers a request whose drop was begun; *d is copied if it isn't finished. Returns the handler's
 * result: 0, with the request deferred if the drop isn't finished or a disk has to be written
 * first; else as durable_answer(). -ENOMEM with the sentence: only a part was removed. */
int drops_answer(struct request *rq, struct drop *d);

/* Closes rq->attach for an NS_CLOSE. It is answered when all that the attachment held is
 * released (daemon/core/life/leave.h). Returns 0, with the request deferred if that takes more
 * than a slice. */
int drops_close(struct request *rq);

/* Carries out the purge of session_purge_init() for an ADMIN_SESSION_PURGE. Returns 0, with the
 * request deferred if it takes more than a slice; -ENOMEM: only a part was removed. */
int drops_purge(struct request *rq, struct session_purge *purge);

/* Continues a truncation of truncation_begin() for a SESSION_KEEP, or of truncation_begin_ends()
 * for a SESSION_TRUNCATE. Returns the handler's result: session_truncation.result with the
 * sentence, or 0 with the request deferred if it isn't finished; -ENOMEM with the sentence: the
 * session is unchanged. */
int drops_truncate(struct request *rq, struct session_truncation *t);

#endif
