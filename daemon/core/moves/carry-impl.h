/* Inside of carry.h: what its two files share. */
#ifndef KVL_CORE_CARRY_IMPL_H
#define KVL_CORE_CARRY_IMPL_H

#include "daemon/core/moves/carry.h"
#include "daemon/core/objects/ns.h"

enum step { STEP_OUT, STEP_READ, STEP_OPEN, STEP_PACK, STEP_WRITE, STEP_IN };

/* Of what a step answers: it is under way; it can't begin yet. */
#define UNDER_WAY 1
#define NOT_YET   2

/* From below to further below as they are stored, where both store them alike. */
bool carry_goes_as_it_is(const struct carry *c);

/* Of a page, plain, in the planes that are moved. */
static inline uint64_t carry_plain_bytes(const struct carry *c)
{
        return c->way.planes.n * c->ns->layout.plane_page_bytes;
}

/* One end is a buffer of the caller's with plain bytes. */
static inline bool carry_has_plain_buffer(const struct carry *c)
{
        return (c->way.buffer == CARRY_TO_BUFFER && c->way.to == TIER_DEVICE) ||
               (c->way.buffer == CARRY_FROM_BUFFER && c->way.from == TIER_DEVICE);
}

/* Those that a step was begun with, in their order: who isn't wanted since has no result yet. */
static inline bool carry_was_sent(const struct carry_page *p)
{
        return p->result == 0;
}

uint32_t carry_count_sent(const struct carry *c);

/* Where page i's plain bytes of a plane are, now. NULL: nowhere. */
uint8_t *carry_plain_at(const struct carry *c, uint32_t i, uint32_t plane);

/* OPEN or PACK, by the mover: UNDER_WAY, NOT_YET or -errno. */
int carry_move_bytes(struct carry *c);

/* The step that was under way is over. */
void carry_end_step(struct carry *c);

#endif
