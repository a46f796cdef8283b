/*
 * The inference requests that clients name in their calls. Policies learn what a request does and
 * when it ends, so that they know which pages are used together. Loop thread only.
 */
#ifndef KVL_CORE_REQUEST_H
#define KVL_CORE_REQUEST_H

#include <stdint.h>

#include "daemon/core/state/group.h"
#include "daemon/core/state/store.h"

/* Returns the number by which policies know a request. Clients number their requests themselves,
 * each from 1. 0 (no request) stays 0. */
uint64_t request_id(const struct attach *a, uint64_t request);

/* Calls store.owner.on_request with the event of a request, by request_id(). */
void request_tell(struct ns *ns, uint64_t request, enum request_event what, uint32_t page);

/* Ends the client's request; 0: does nothing. */
void request_end(struct attach *a, uint64_t request, uint64_t now_nsec);

#endif
