/*
 * Requests for pages of other hosts. IMPORT and SESSION_LOAD are answered when the exchange has
 * loaded the pages that it could (daemon/exchange/import.h, session-load.h), at their deadline at
 * the latest. PROBE_HOSTS is answered when the exchange knows which pages other hosts have. Other
 * requests of the peer are handled meanwhile. These requests end with the attachment, the
 * connection, or when the peer is muted. Loop thread only.
 */
#ifndef KVL_SERVER_IMPORTS_H
#define KVL_SERVER_IMPORTS_H

#include <stdint.h>

struct import_request;
struct request;

/* Bound of unanswered requests of one peer, of all kinds together. Not tuned. */
#define IMPORTS_PER_PEER_MAX 16

/* Takes a valid IMPORT or PROBE_HOSTS of rq->attach, for timeout_msec from now on. Returns 0, with
 * the request deferred; else as import_begin(), or -EBUSY, with the sentence. */
int imports_ask(struct request *rq, const struct import_request *want, uint32_t timeout_msec);

/* imports_ask() for a SESSION_LOAD; errors of session_load_begin(), or -EBUSY. */
int imports_ask_session(struct request *rq);

#endif
