/*
 * The handler of each request of the message table (proto/msg.h), as handle_LEASE(). Those of
 * administrators and monitors are named ADMIN_. Loop thread only.
 */
#ifndef KVL_SERVER_HANDLERS_H
#define KVL_SERVER_HANDLERS_H

#include "daemon/server/peers/answer.h"

struct ns;
struct tenant;

#define X(name, ...) int handle_##name(struct request *rq);
MSG_TABLE(X)
#undef X

/* Finds rq->attach if the message begins with an ns_id. Returns 0, or -ENOENT with the sentence. */
int request_find_attach(struct request *rq);

/* The tenant of that name; NULL with the sentence. Returns borrowed. */
struct tenant *request_tenant(struct request *rq, const char *name);

/* The namespace `ns` of the tenant; NULL with the sentence. Returns borrowed. */
struct ns *request_ns(struct request *rq, const char *tenant, const char *ns);

/* Finds the tenant, and its namespace `ns` (NULL for "": all of them). Returns 0, or -ENOENT with
 * the sentence. Both borrowed. */
int request_tenant_ns(struct request *rq, const char *tenant, const char *ns,
        struct tenant **ret_tenant, struct ns **ret_ns);

#endif
