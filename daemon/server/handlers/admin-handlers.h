/*
 * Requests of administrators and monitors, one handler for each row of the message table
 * (proto/msg.h). Loop thread only.
 */
#ifndef KVL_SERVER_ADMIN_HANDLERS_H
#define KVL_SERVER_ADMIN_HANDLERS_H

#include "daemon/server/peers/answer.h"

int handle_ADMIN_PROCESS(struct request *rq);
int handle_ADMIN_STATUS(struct request *rq);
int handle_ADMIN_DEVICES(struct request *rq);
int handle_ADMIN_TENANTS(struct request *rq);
int handle_ADMIN_TENANT_SET(struct request *rq);
int handle_ADMIN_TENANT_REMOVE(struct request *rq);
int handle_ADMIN_NAMESPACES(struct request *rq);
int handle_ADMIN_CLIENTS(struct request *rq);
int handle_ADMIN_PURGE(struct request *rq);
int handle_ADMIN_DRAIN(struct request *rq);
int handle_ADMIN_CHECK(struct request *rq);
int handle_ADMIN_RECALL(struct request *rq);
int handle_ADMIN_REGIONS(struct request *rq);
int handle_ADMIN_EVICTIONS(struct request *rq);
int handle_ADMIN_SESSIONS(struct request *rq);
int handle_ADMIN_CODECS(struct request *rq);
int handle_ADMIN_EXCHANGES(struct request *rq);
int handle_ADMIN_REMOTES(struct request *rq);
int handle_ADMIN_SETS(struct request *rq);
int handle_ADMIN_SESSION_PURGE(struct request *rq);
int handle_ADMIN_RECORD(struct request *rq);
int handle_ADMIN_RESTART(struct request *rq);
int handle_ADMIN_WARM(struct request *rq);
int handle_ADMIN_EVENTS(struct request *rq);
int handle_ADMIN_RELOAD(struct request *rq);
int handle_ADMIN_CONFIG(struct request *rq);
int handle_ADMIN_COUNTERS(struct request *rq);

#endif
