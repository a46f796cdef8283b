/* Internals of copy-batch.h, shared by its two files. */
#ifndef KVL_CORE_COPY_BATCH_IMPL_H
#define KVL_CORE_COPY_BATCH_IMPL_H

#include "daemon/core/moves/copy-batch.h"
#include "daemon/core/state/ns.h"

enum step { STEP_OUT, STEP_READ, STEP_OPEN, STEP_PACK, STEP_WRITE, STEP_IN };

/* Results of a step: it is under way; it can't begin yet. */
#define UNDER_WAY 1
#define NOT_YET   2

/* Do both lower tiers store pages alike, so that they are copied as stored? */
bool batch_goes_as_it_is(const struct copy_batch *c);

/* Returns the plain bytes of a page in the planes that are moved. */
static inline uint64_t batch_plain_bytes(const struct copy_batch *c)
{
        return c->way.planes.n * c->ns->layout.plane_page_bytes;
}

/* Is one end a buffer of the caller's with plain bytes? */
static inline bool batch_has_plain_buffer(const struct copy_batch *c)
{
        return (c->way.buffer == BATCH_TO_BUFFER && c->way.to == TIER_DEVICE) ||
               (c->way.buffer == BATCH_FROM_BUFFER && c->way.from == TIER_DEVICE);
}

/* Is the page part of the present step? A step has the pages without a result, in order; a page
 * that became unwanted since has none yet. */
static inline bool batch_was_sent(const struct batch_page *p)
{
        return p->result == 0;
}

uint32_t batch_count_sent(const struct copy_batch *c);

/* Returns the address of page i's plain bytes of a plane; NULL: none. */
uint8_t *batch_plain_at(const struct copy_batch *c, uint32_t i, uint32_t plane);

/* Makes the mover do OPEN or PACK. Returns UNDER_WAY, NOT_YET or -errno. */
int batch_move_bytes(struct copy_batch *c);

/* The step under way has ended. */
void batch_end_step(struct copy_batch *c);

#endif
