/*
 * Whether a device still has what the daemon before this one left there. A GPU can lose what its
 * memory held while the descriptors of it stay good: it is reset, or loses power while the machine
 * sleeps. So the first extent of a GPU that is kept is its *canary* (gpu/queue.h), with a value
 * that the root of the state knows. It is made with the first extent that is kept and not before: a
 * GPU that nobody uses has neither memory nor context of the daemon.
 *
 *   none left         nothing of the device can have been recorded; one is made when it is needed
 *   left, holds       the device's extents are taken over
 *   left, otherwise   (or it can't be read) the device is *doubted*: namespaces with memory there
 *                     are gone; another one is made when it is needed
 *
 * Memory of the host needs none: it is there as long as its descriptors are. A canary is charged
 * to nobody and is no part of the device's budget. It stays until a daemon that comes later has no
 * use for it.
 */
#ifndef KVL_CORE_CANARY_H
#define KVL_CORE_CANARY_H

#include <stdint.h>

#include "daemon/core/recovery/recover.h"
#include "gpu/device.h"

struct keep;

/* What one takes of such a device; 0: it has none. */
uint64_t canary_bytes(const struct keep *k, const struct device_props *props);

/*
 * Looks at what was left, which waits for each driver, at most its deadline; and has the queues
 * make what is missing. After state_open(), with all pools there and nothing on their queues, and
 * before store_recover(). `say` (may be NULL) is told of devices that are doubted. Nothing where
 * nothing is kept. 0; -ENOSPC (more than STATE_CANARIES devices), -ENOMEM, with the sentence.
 */
int canaries_open(struct store *s, recover_say say, void *data, struct detail *d);

#endif
