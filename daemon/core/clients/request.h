/*
 * The inference requests that clients name in their calls. Policies are told what a request does,
 * and when it ends, so that they know which pages are used together. Loop thread only.
 */
#ifndef KVL_CORE_REQUEST_H
#define KVL_CORE_REQUEST_H

#include <stdint.h>

#include "daemon/core/objects/group.h"
#include "daemon/core/objects/store.h"

/* The number by which policies know a request: clients count their requests themselves, each
 * from 1. 0, which is no request, stays 0. */
uint64_t request_id(const struct attach *a, uint64_t request);

/* Tells who listens (store.owner.on_request) what the request, by request_id(), did with the page.
 */
void request_tell(struct ns *ns, uint64_t request, enum request_event what, uint32_t page);

/* The client's request is over. 0 is no request. */
void request_end(struct attach *a, uint64_t request, uint64_t now_nsec);

#endif
