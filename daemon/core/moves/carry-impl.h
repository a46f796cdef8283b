/* Internals of carry.h, shared by its two files. */
#ifndef KVL_CORE_CARRY_IMPL_H
#define KVL_CORE_CARRY_IMPL_H

#include "daemon/core/moves/carry.h"
#include "daemon/core/state/ns.h"

enum step { STEP_OUT, STEP_READ, STEP_OPEN, STEP_PACK, STEP_WRITE, STEP_IN };

/* Results of a step: it is under way; it can't begin yet. */
#define UNDER_WAY 1
#define NOT_YET   2

/* Do both lower tiers store pages alike, so that they are copied as stored? */
bool carry_goes_as_it_is(const struct carry *c);

/* Returns the plain bytes of a page in the planes that are moved. */
static inline uint64_t carry_plain_bytes(const struct carry *c)
{
        return c->way.planes.n * c->ns->layout.plane_page_bytes;
}

/* Is one end a buffer of the caller's with plain bytes? */
static inline bool carry_has_plain_buffer(const struct carry *c)
{
        return (c->way.buffer == CARRY_TO_BUFFER && c->way.to == TIER_DEVICE) ||
               (c->way.buffer == CARRY_FROM_BUFFER && c->way.from == TIER_DEVICE);
}

/* Is the page part of the present step? A step has the pages without a result, in order; a page
 * that became unwanted since has none yet. */
static inline bool carry_was_sent(const struct carry_page *p)
{
        return p->result == 0;
}

uint32_t carry_count_sent(const struct carry *c);

/* Returns the address of page i's plain bytes of a plane; NULL: none. */
uint8_t *carry_plain_at(const struct carry *c, uint32_t i, uint32_t plane);

/* Makes the mover do OPEN or PACK. Returns UNDER_WAY, NOT_YET or -errno. */
int carry_move_bytes(struct carry *c);

/* The step under way has ended. */
void carry_end_step(struct carry *c);

#endif
