/*
 * Checks whether a device still has the previous daemon's data. A GPU can lose the contents of its
 * memory while descriptors stay valid: it is reset, or loses power while the machine sleeps. So the
 * first stored extent of a GPU is its *canary* (gpu/queue.h), with a value that the root of the
 * state knows. It is made with the first stored extent and not before: on an unused GPU the daemon
 * has neither memory nor context.
 *
 *   none left         no extent of the device can have been recorded; one is made when needed
 *   left, holds       the device's extents are recovered
 *   left, otherwise   (or it can't be read) the device is *doubted*: namespaces with memory there
 *                     are lost; another one is made when needed
 *
 * Memory of the host needs none: it exists as long as its descriptors do. A canary is charged to no
 * account and is no part of the device's budget. It stays until a later daemon doesn't need it.
 */
#ifndef KVL_CORE_CANARY_H
#define KVL_CORE_CANARY_H

#include <stdint.h>

#include "daemon/core/life/recover.h"
#include "gpu/device.h"

struct keep;

/* Returns the bytes of the device's canary; 0: it has none. */
uint64_t canary_bytes(const struct keep *k, const struct device_props *props);

/*
 * Checks the stored canaries, which waits for each driver, at most its deadline. Makes the queues
 * create missing ones. Call it after state_open(), with all pools made and their queues empty, and
 * before store_recover(). `say` (may be NULL) gets doubted devices. Does nothing without a
 * descriptor store. Returns 0; -ENOSPC (more than STATE_CANARIES devices), -ENOMEM, with the
 * sentence.
 */
int canaries_open(struct store *s, recover_say say, void *data, struct detail *d);

#endif
