/*
 * Registers host memory below a GPU with that GPU. Copies between the two then run at the link's
 * full speed and don't block in the driver (gpu/device.h). Only the daemon registers it, a set at a
 * time, when it first maps the set. The backend cuts a range into pieces that the driver accepts,
 * and copies piecewise (0.1 s for each GB; 64 GiB in one call at most: docs/measure/GPU.md).
 *
 *   set:  mapped -> asked -> registered -> the set is freed: unregister -> unmapped, given back
 *                        \-> refused: the set works, and copies are slower (pool.why,
 *                            pool.n_unregistered)
 *
 * Memory that is or may be registered stays mapped after its set was freed, until the driver has
 * unregistered it. It isn't charged to any account then. A driver that hangs keeps it for as long.
 *
 * Loop thread only.
 */
#ifndef KVL_CORE_DMA_H
#define KVL_CORE_DMA_H

#include <stdbool.h>

struct discard;
struct extent_set;
struct pool;
struct tenant;

/* Registers a set that is mapped here. Does nothing if no GPU is above it. */
void dma_begin(struct extent_set *set);

/* The set is freed and isn't copied any more. Returns true if it took `what`, the memory of the
 * set, and frees it once the driver has answered. False: the memory isn't registered, and the
 * caller keeps it. */
bool dma_takes(struct extent_set *set, struct discard *what);

/* Makes the remaining memory of a tenant that is being freed ownerless. */
void dma_leave_tenant(struct pool *pool, const struct tenant *t);

/* Frees the remaining memory after the end of the queue above `pool`. is_over: the driver has
 * unregistered all of it; otherwise it stays until the process ends. */
void dma_end(struct pool *pool, bool is_over);

#endif
