/*
 * Requests of clients, one handler for each row of the message table (proto/msg.h), and
 * ADMIN_EXPLAIN, the administrator's EXPLAIN. Loop thread only.
 */
#ifndef KVL_SERVER_CLIENT_HANDLERS_H
#define KVL_SERVER_CLIENT_HANDLERS_H

#include <stdint.h>

#include "daemon/server/peers/answer.h"

struct attach;
struct ns;
struct tenant;

int handle_HELLO(struct request *rq);
int handle_AUTH(struct request *rq);
int handle_BYE(struct request *rq);
int handle_SHM_OPEN(struct request *rq);
int handle_DOORBELL(struct request *rq);
int handle_RESUME_NS(struct request *rq);
int handle_RESUMED(struct request *rq);
int handle_NS_OPEN(struct request *rq);
int handle_NS_CLOSE(struct request *rq);
int handle_MAP(struct request *rq);
int handle_NS_SHARE(struct request *rq);
int handle_UNMAPPED(struct request *rq);
int handle_LEASE(struct request *rq);
int handle_PUBLISH(struct request *rq);
int handle_LOOKUP(struct request *rq);
int handle_RELEASE(struct request *rq);
int handle_FREE(struct request *rq);
int handle_INVALIDATE(struct request *rq);
int handle_REQUEST_END(struct request *rq);
int handle_REPORT(struct request *rq);
int handle_ANNOUNCE(struct request *rq);
int handle_WAIT(struct request *rq);
int handle_SESSION_LOAD(struct request *rq);
int handle_SESSION_OPEN(struct request *rq);
int handle_SESSION_PAGES(struct request *rq);
int handle_SESSION_TRUNCATE(struct request *rq);
int handle_SESSION_KEEP(struct request *rq);
int handle_SESSION_HINT(struct request *rq);
int handle_SESSION_CLOSE(struct request *rq);
int handle_EXPLAIN(struct request *rq);
int handle_FETCH(struct request *rq);
int handle_PIN(struct request *rq);
int handle_HELD(struct request *rq);
int handle_LEASABLE(struct request *rq);
int handle_EXPECT(struct request *rq);
int handle_IMPORT(struct request *rq);
int handle_PROBE_HOSTS(struct request *rq);
int handle_FEED(struct request *rq);
int handle_NOTE_PREFILL(struct request *rq);
int handle_ADMIN_EXPLAIN(struct request *rq);

/* The attachment `ns_id` of the peer's member; NULL with the sentence. Returns borrowed. */
struct attach *request_attach(struct request *rq, uint32_t ns_id);

/* The tenant of that name; NULL with the sentence. Returns borrowed. */
struct tenant *request_tenant(struct request *rq, const char *name);

/* The namespace `ns` of the tenant; NULL with the sentence. Returns borrowed. */
struct ns *request_ns(struct request *rq, const char *tenant, const char *ns);

/* Finds the tenant, and its namespace `ns` (NULL for "": all of them). Returns 0, or -ENOENT with
 * the sentence. Both borrowed. */
int request_tenant_ns(struct request *rq, const char *tenant, const char *ns,
        struct tenant **ret_tenant, struct ns **ret_ns);

#endif
