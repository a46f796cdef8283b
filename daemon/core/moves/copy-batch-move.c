/*
 * The mover's part of a copy batch: moves pages' bytes between mapped memory and their stored form,
 * part by part.
 */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "daemon/core/memory/sets.h"
#include "daemon/core/moves/copy-batch-impl.h"
#include "daemon/core/moves/part-sums.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/tier/mover.h"

bool batch_goes_as_it_is(const struct copy_batch *c)
{
        return c->way.from != TIER_DEVICE && c->way.to != TIER_DEVICE &&
               codec_layers_equal(&c->ns->codecs.of_pages.tiers[c->way.from],
                       &c->ns->codecs.of_pages.tiers[c->way.to]);
}

uint32_t batch_count_sent(const struct copy_batch *c)
{
        uint32_t n = 0;

        for (uint32_t i = 0; i < c->n; i++)
                n += batch_was_sent(&c->pages[i]);
        return n;
}

/* ---- addresses ------------------------------------------------------------------------------- */

/* Returns an address in the caller's buffer, which has one page. */
static uint8_t *buffer_at(const struct copy_batch *c, uint64_t offset)
{
        return c->buffer + c->buffer_begin + offset;
}

/* Does the mover copy a page of a device into a buffer? The buffer then has the stored form. */
static bool packs_into_buffer(const struct copy_batch *c)
{
        return c->way.buffer == BATCH_TO_BUFFER && c->steps[c->at] == STEP_PACK;
}

uint8_t *batch_plain_at(const struct copy_batch *c, uint32_t i, uint32_t plane)
{
        unsigned end = c->way.from == TIER_DEVICE ? 0 : 1;
        const struct batch_page *p = &c->pages[i];
        uint64_t offset = (plane - c->way.planes.first) * c->ns->layout.plane_page_bytes;

        if (batch_has_plain_buffer(c) && !packs_into_buffer(c))
                return buffer_at(c, offset);
        if (c->plain)
                return c->plain + i * batch_plain_bytes(c) + offset;
        return set_address(p->sets[end], end == 0 ? p->from : p->to, plane);
}

/* Returns where a part of page i is stored; for a zeroed part, where the stored page begins. */
static uint8_t *stored_at(
        const struct copy_batch *c, uint32_t i, unsigned end, const struct page_part *part)
{
        enum tier_kind kind = end == 0 ? c->way.from : c->way.to;
        const struct batch_page *p = &c->pages[i];
        uint32_t page = end == 0 ? p->from : p->to;
        uint8_t *at;

        if (c->way.buffer == (end == 0 ? BATCH_FROM_BUFFER : BATCH_TO_BUFFER))
                return buffer_at(c, part->stored_at);
        if (kind == TIER_DEVICE) /* only for a copy */
                return set_address(p->sets[end], page, part->plane);
        at = kind == TIER_DISK ? c->stored + i * c->slot_bytes : set_address(p->sets[end], page, 0);
        return at ? at + part->stored_at : NULL;
}

/* ---- moves ----------------------------------------------------------------------------------- */

/* Counts the errors of the sampled page after it was encoded. Sums that aren't finite are left out:
 * a client broke the rules and wrote to the page meanwhile. */
static void count_errors(struct copy_batch *c)
{
        struct ns_coding *coding = &c->ns->codecs.done[c->way.to];

        coding->n_sampled++;
        for (unsigned i = 0; i < CODEC_RANGES_MAX; i++) {
                const struct codec_error *e = &c->errors[i];

                if (!isfinite(e->errors) || !isfinite(e->squares))
                        continue;
                coding->errors[i].n += e->n;
                coding->errors[i].errors += e->errors;
                coding->errors[i].squares += e->squares;
        }
}

/* Does the page still have the generation that was read? */
static bool is_still(const struct copy_batch *c, const struct batch_page *p)
{
        return c->ns && set_page(p->sets[0], p->from)->generation == p->generation;
}

static void on_moved(struct move *move, int result, void *data)
{
        struct copy_batch *c = data;
        size_t k = 0;

        c->move = NULL;
        for (uint32_t i = 0; i < c->n; i++) {
                struct batch_page *p = &c->pages[i];

                if (!batch_was_sent(p))
                        continue;
                p->result = move->pages[k].result;
                if (p->result == 0 && move->direction == MOVE_DOWN) {
                        p->content = p->disk.sum = move->pages[k].sum;
                        if (i == c->sampled && c->ns)
                                count_errors(c);
                }
                if (p->result == 0 && move->sums == MOVE_SUM_BOTH && is_still(c, p))
                        part_sums_note(p->sets[0], p->from, &move->planes[k * move->n_planes]);
                k++;
        }
        assert(k == move->n_pages);
        (void)result;
        batch_end_step(c);
}

/* Describes a part of page i for the mover. A plane that isn't moved has only its sum checked. */
static struct move_plane plane_of(
        const struct copy_batch *c, uint32_t i, const struct page_part *part)
{
        bool opens = c->steps[c->at] == STEP_OPEN;
        bool is_moved = plane_range_has(c->way.planes, part->plane);
        uint8_t *plain = is_moved ? batch_plain_at(c, i, part->plane) : NULL;
        uint8_t *stored = stored_at(c, i, opens ? 0 : 1, part);

        if (plain)
                plain += part->plain_at;
        return (struct move_plane){.from = opens ? stored : plain,
                .to = opens ? plain : stored,
                .plain_bytes = part->plain_bytes,
                .codec = part->codec,
                .shape = &c->ns->codecs.of_pages.shape};
}

/* Describes all of page i in its stored form. */
static struct move_plane plane_as_it_is(const struct copy_batch *c, uint32_t i)
{
        static const struct page_part all;

        return (struct move_plane){.from = stored_at(c, i, 0, &all),
                .to = stored_at(c, i, 1, &all),
                .plain_bytes = c->ns->codecs.of_pages.stored_bytes[c->way.from]};
}

/* Returns the tier whose parts the step's moves use. */
static enum tier_kind coded_tier(const struct copy_batch *c)
{
        return c->steps[c->at] == STEP_OPEN ? c->way.from : c->way.to;
}

/* Does the step's move have this part? Parts of other planes are included if the page's sum is
 * checked. */
static bool has_part(const struct copy_batch *c, const struct page_part *part)
{
        bool reads_all = c->steps[c->at] == STEP_OPEN && !c->way.has_part_sums;

        return reads_all || plane_range_has(c->way.planes, part->plane);
}

/* Returns the parts of each page in the step's move. */
static uint32_t count_parts(const struct copy_batch *c)
{
        struct page_part part = {0};
        uint32_t n = 0;

        while (page_part_next(&c->ns->codecs.of_pages, &c->ns->layout, coded_tier(c), &part))
                n += has_part(c, &part);
        return n;
}

/* Describes the parts of page i. Returns false if one end has no memory. */
static bool fill_parts(struct copy_batch *c, uint32_t i, struct move_plane *planes)
{
        const struct batch_page *p = &c->pages[i];
        const uint64_t *sums = c->way.has_part_sums ? part_sums_of(p->sets[0], p->from) : NULL;
        struct page_part part = {0};
        bool is_there = true;

        for (uint32_t at = 0;
                page_part_next(&c->ns->codecs.of_pages, &c->ns->layout, coded_tier(c), &part);
                at++) {
                if (!has_part(c, &part))
                        continue;
                *planes = plane_of(c, i, &part);
                if (i == c->sampled && c->steps[c->at] == STEP_PACK && part.codec != CODEC_NONE)
                        planes->error = &c->errors[part.range];
                if (sums)
                        planes->sum = sums[at];
                is_there &=
                        planes->from && (planes->to || !plane_range_has(c->way.planes, part.plane));
                planes++;
        }
        return is_there;
}

static bool fill_planes(struct copy_batch *c, uint32_t i, struct move_plane *planes)
{
        if (c->steps[c->at] != STEP_OPEN || !batch_goes_as_it_is(c))
                return fill_parts(c, i, planes);
        *planes = plane_as_it_is(c, i);
        return planes->from && planes->to;
}

/* Returns false if one end has no memory. */
static bool fill_move(struct copy_batch *c, struct move *m)
{
        size_t k = 0;

        for (uint32_t i = 0; i < c->n; i++) {
                if (!batch_was_sent(&c->pages[i]))
                        continue;
                if (!fill_planes(c, i, &m->planes[k * m->n_planes]))
                        return false;
                m->pages[k++].sum = c->pages[i].content;
        }
        return true;
}

static enum move_sums which_sums(const struct copy_batch *c)
{
        if (c->way.buffer == BATCH_FROM_BUFFER && !batch_has_plain_buffer(c))
                return MOVE_SUM_NONE;
        if (c->way.has_part_sums)
                return MOVE_SUM_PLANES;
        return c->way.from == TIER_HOST && c->way.planes.n < c->ns->layout.n_planes ? MOVE_SUM_BOTH
                                                                                    : MOVE_SUM_PAGE;
}

int batch_move_bytes(struct copy_batch *c)
{
        bool opens = c->steps[c->at] == STEP_OPEN;
        size_t n_planes = opens && batch_goes_as_it_is(c) ? 1 : count_parts(c);
        struct move *m = move_new(opens ? MOVE_UP : MOVE_DOWN, batch_count_sent(c), n_planes);
        int r;

        if (!m)
                return -ENOMEM;
        if (!fill_move(c, m)) {
                move_free(m);
                return -EIO;
        }
        m->sums = which_sums(c);
        m->is_urgent = c->way.is_urgent;
        m->done = on_moved;
        m->data = c;
        r = mover_submit(c->store->moving.mover, m);
        if (r != 0) {
                move_free(m);
                return r > 0 ? NOT_YET : r;
        }
        c->move = m;
        return UNDER_WAY;
}
