/*
 * Memory of the host that lies below a GPU, registered with it: copies between the two run at the
 * link's full speed then, and without a stop in the driver (gpu/device.h). It is the daemon alone
 * that registers it, a set at a time, when the set is first mapped here; the backend cuts a range
 * into pieces that the driver takes, and copies where a piece ends (0.1 s for each GB; 64 GiB in
 * one call at most: docs/GPU.md).
 *
 *   set:  mapped -> asked -> registered -> the set goes: asked back -> unmapped, given back
 *                       \-> refused: the set is as good, and copies are slower (pool.why,
 *                           pool.n_unregistered)
 *
 * What is registered, or may be, stays mapped after its set until the driver has let go of it: no
 * longer charged to anybody, but memory all the same. A driver that hangs keeps it for as long.
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

/* The set is mapped here. Nothing where no GPU lies above it. */
void dma_begin(struct extent_set *set);

/*
 * The set goes, and nothing copies from or to it any more. True: `what`, all that it leaves, was
 * taken, and is given back when the driver has answered. False: it is the caller's, registered
 * nowhere.
 */
bool dma_takes(struct extent_set *set, struct discard *what);

/* The tenant goes; what is still there is nobody's. */
void dma_leave_tenant(struct pool *pool, const struct tenant *t);

/* After the end of the queue above `pool`: gives back what is still there. is_over: the driver has
 * let go of all of it; otherwise it stays as it is, for the process' end. */
void dma_end(struct pool *pool, bool is_over);

#endif
