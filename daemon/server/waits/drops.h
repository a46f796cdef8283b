/*
 * Requests that remove more than a slice: INVALIDATE by key or tag (daemon/core/catalog/drop.h).
 * The request is answered when all of it is removed, durably on disks (durable.h). Until then later
 * requests of its peer wait: requests of a connection take effect in order. Waiting leases are
 * answered meanwhile, as these come in any order.
 *
 * The same holds for an NS_CLOSE of an attachment that held much, a SESSION_TRUNCATE or
 * SESSION_KEEP of a long text, and an ADMIN_SESSION_PURGE of many sessions.
 *
 * A peer that hangs up isn't answered; the removal is finished all the same, and the peer's earlier
 * input is handled at once. A daemon that is killed has not answered: the client asks the next one
 * again.
 */
#ifndef KVL_SERVER_DROPS_H
#define KVL_SERVER_DROPS_H

struct attach;
struct drop;
struct request;
struct session_purge;
struct session_truncation;

/* The drop was begun for the request; *d is copied where it isn't over. Returns what the handler
 * returns: 0, with the request deferred where it isn't over or a disk has to be written first; as
 * durable_answer(). -ENOMEM with the sentence: not all of it is gone. */
int drops_answer(struct request *rq, struct drop *d);

/* Closes the attachment for an NS_CLOSE, which is answered when nothing that it held is held any
 * more (daemon/core/lifetimes/leave.h). Returns 0, with the request deferred until then where that
 * takes more than a slice. */
int drops_close(struct request *rq, struct attach *a);

/* Carries out what session_purge_init() has begun for an ADMIN_SESSION_PURGE. Returns 0, with the
 * request deferred until all of them are gone where that takes more than a slice; -ENOMEM: not all
 * of them are gone. */
int drops_purge(struct request *rq, struct session_purge *purge);

/* Goes on with what truncation_begin() has begun for a SESSION_KEEP, or truncation_begin_ends() for
 * a SESSION_TRUNCATE. Returns what the handler returns: session_truncation.result with the
 * sentence, or 0 with the request deferred where it isn't over; -ENOMEM with the sentence: the
 * session is as it was. */
int drops_truncate(struct request *rq, struct session_truncation *t);

#endif
