#include "daemon/core/moves/copy-batch.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault-point.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/moves/part-sums.h"
#include "daemon/core/moves/space.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/tier/mover.h"
#include "gpu/queue.h"

enum step { STEP_OUT, STEP_READ, STEP_OPEN, STEP_PACK, STEP_WRITE, STEP_IN };

/* Results of a step: it is under way; it can't begin yet. */
#define UNDER_WAY 1
#define NOT_YET   2

static bool is_behind_queue(const struct ns *ns, enum tier_kind kind)
{
        return ns->tiers[kind].pool->queue;
}

static bool reads_queue(const struct copy_batch *c)
{
        return c->way.buffer != BATCH_FROM_BUFFER && is_behind_queue(c->ns, c->way.from);
}

static bool writes_queue(const struct copy_batch *c)
{
        return c->way.buffer != BATCH_TO_BUFFER && is_behind_queue(c->ns, c->way.to);
}

/* Returns the plain bytes of a page in the planes that are moved. */
static uint64_t batch_plain_bytes(const struct copy_batch *c)
{
        return c->way.planes.n * c->ns->layout.plane_page_bytes;
}

/* Is one end a buffer of the caller's with plain bytes? */
static bool batch_has_plain_buffer(const struct copy_batch *c)
{
        return (c->way.buffer == BATCH_TO_BUFFER && c->way.to == TIER_DEVICE) ||
               (c->way.buffer == BATCH_FROM_BUFFER && c->way.from == TIER_DEVICE);
}

/* Is the page part of the present step? A step has the pages without a result, in order; a page
 * that became unwanted since has none yet. */
static bool batch_was_sent(const struct batch_page *p)
{
        return p->result == 0;
}

/* ---- moving bytes between mapped memory and their stored form, part by part ------------------ */

static void batch_end_step(struct copy_batch *c);

/* Do both lower tiers store pages alike, so that they are copied as stored? */
static bool batch_goes_as_it_is(const struct copy_batch *c)
{
        return c->way.from != TIER_DEVICE && c->way.to != TIER_DEVICE &&
               codec_layers_equal(&c->ns->codecs.of_pages.tiers[c->way.from],
                       &c->ns->codecs.of_pages.tiers[c->way.to]);
}

static uint32_t batch_count_sent(const struct copy_batch *c)
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

/* Returns the address of page i's plain bytes of a plane; NULL: none. */
static uint8_t *batch_plain_at(const struct copy_batch *c, uint32_t i, uint32_t plane)
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

/* Makes the mover do OPEN or PACK. Returns UNDER_WAY, NOT_YET or -errno. */
static int batch_move_bytes(struct copy_batch *c)
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

/* ---- planning -------------------------------------------------------------------------------- */

static void plan_steps(struct copy_batch *c)
{
        bool out = reads_queue(c), in = writes_queue(c);
        unsigned n = 0;

        if (out)
                c->steps[n++] = STEP_OUT;
        if (c->way.from == TIER_DISK)
                c->steps[n++] = STEP_READ;
        if (c->way.from != TIER_DEVICE)
                c->steps[n++] = STEP_OPEN;
        if (c->way.to != TIER_DEVICE && !batch_goes_as_it_is(c))
                c->steps[n++] = STEP_PACK;
        if (c->way.from == TIER_DEVICE && c->way.to == TIER_DEVICE && !out && !in)
                c->steps[n++] = STEP_PACK; /* a copy */
        if (c->way.to == TIER_DISK)
                c->steps[n++] = STEP_WRITE;
        if (in)
                c->steps[n++] = STEP_IN;
        c->n_steps = n;
}

/* Makes buffers for the largest number of pages. Returns 0 or -ENOMEM. */
static int make_buffers(struct copy_batch *c)
{
        const struct ns *ns = c->ns;
        bool crosses_queue = reads_queue(c) || writes_queue(c);
        bool changes_codec =
                c->way.from != TIER_DEVICE && c->way.to != TIER_DEVICE && !batch_goes_as_it_is(c);
        enum tier_kind disk = c->way.from == TIER_DISK ? c->way.from : c->way.to;

        if ((crosses_queue && !batch_has_plain_buffer(c)) || changes_codec) {
                c->plain = malloc(c->n_max * batch_plain_bytes(c));
                if (!c->plain)
                        return -ENOMEM;
        }
        if (disk == TIER_DISK) {
                c->slot_bytes = ns->geometry.tiers[disk].stored_bytes;
                c->stored = disk_buffer_new(c->n_max * c->slot_bytes);
                if (!c->stored)
                        return -ENOMEM;
        }
        return 0;
}

/* Returns the pages of a batch, by the bytes that are read of each. */
static uint32_t unit_pages(const struct ns *ns, const struct batch_way *way)
{
        enum tier_kind lower = way->from > way->to ? way->from : way->to;
        uint32_t n_planes = way->has_part_sums ? way->planes.n : ns->layout.n_planes;

        return lower == TIER_DEVICE
                       ? 1
                       : tier_unit_pages(lower, n_planes * ns->layout.plane_page_bytes);
}

static struct copy_batch *batch_new(struct ns *ns, const struct batch_way *way)
{
        uint32_t n_max = unit_pages(ns, way);
        struct copy_batch *c = calloc(1, sizeof(*c) + n_max * sizeof(c->pages[0]));

        if (!c)
                return NULL;
        *c = (struct copy_batch){.store = ns->store,
                .ns = ns,
                .way = *way,
                .is_open = true,
                .sampled = BATCH_NONE_SAMPLED,
                .n_max = n_max};
        list_init(&c->link);
        list_append(&c->store->moving.batches, &c->link);
        return c;
}

struct copy_batch *batch_new_with_buffer(
        struct ns *ns, const struct batch_way *way, uint8_t *bytes, size_t begin)
{
        struct copy_batch *c = batch_new(ns, way);

        if (!c)
                return NULL;
        c->n_max = 1;
        c->buffer = bytes;
        c->buffer_begin = begin;
        return c;
}

static bool is_same_way(const struct batch_way *a, const struct batch_way *b)
{
        return a->from == b->from && a->to == b->to && a->buffer == b->buffer &&
               a->planes.first == b->planes.first && a->planes.n == b->planes.n &&
               a->is_copy == b->is_copy && a->is_urgent == b->is_urgent &&
               a->has_part_sums == b->has_part_sums;
}

struct copy_batch *batch_find(struct ns *ns, const struct batch_way *way)
{
        list_for_each (c, &ns->store->moving.batches, struct copy_batch, link)
                if (c->is_open && c->ns == ns && is_same_way(&c->way, way) && c->n < c->n_max)
                        return c;
        return batch_new(ns, way);
}

/* Describes a page for the disk. */
static struct disk_page describe_page(const struct ns *ns, uint32_t page)
{
        const struct page *p = ns_page(ns, page);
        const struct page_note *note = ns_note(ns, page);
        const struct page *parent =
                note->place.parent == PAGE_NONE ? NULL : ns_page(ns, note->place.parent);
        struct disk_page d = {.tag = ns_extra(ns, page)->tag,
                .end_token = p->end_token,
                .tokens = p->tokens,
                .depth = note->depth,
                .length = (uint32_t)ns->codecs.of_pages.stored_bytes[TIER_DISK],
                .codec = (uint16_t)ns->geometry.tiers[TIER_DISK].codec};

        memcpy(d.key, p->key, KEY_BYTES);
        if (parent)
                memcpy(d.parent, parent->key, KEY_BYTES);
        return d;
}

uint32_t batch_add(struct copy_batch *c, uint32_t from, uint32_t to)
{
        struct batch_page *p = &c->pages[c->n];

        assert(c->is_open && c->n < c->n_max);

        *p = (struct batch_page){.from = from, .to = to};
        if (to != PAGE_NONE)
                p->sets[1] = ns_set_of(c->ns, to);
        if (from != PAGE_NONE) {
                p->sets[0] = ns_set_of(c->ns, from);
                p->generation = ns_page(c->ns, from)->generation;
                p->content = ns_extra(c->ns, from)->content;
        }
        if (c->way.from == TIER_DISK || c->way.to == TIER_DISK)
                p->disk = describe_page(c->ns, from);
        return c->n++;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static bool is_wanted(const struct batch_page *p)
{
        return p->result == 0 && !p->is_unwanted;
}

static uint32_t count_wanted(const struct copy_batch *c)
{
        uint32_t n = 0;

        for (uint32_t i = 0; i < c->n; i++)
                n += is_wanted(&c->pages[i]);
        return n;
}

static void fail_rest(struct copy_batch *c, int result)
{
        for (uint32_t i = 0; i < c->n; i++)
                if (c->pages[i].result == 0)
                        c->pages[i].result = result;
}

static void go_on(struct copy_batch *c);

/* The step under way has ended. */
static void batch_end_step(struct copy_batch *c)
{
        c->at++;
        go_on(c);
}

static void on_job(struct job *job, int result, void *data)
{
        struct copy_batch *c = data;

        if (result == -ETIMEDOUT) {
                c->is_late = true;
                return;
        }
        c->queue = NULL;
        if (result < 0)
                fail_rest(c, result);
        batch_end_step(c);
}

static int run_job(struct copy_batch *c, unsigned end)
{
        const struct ns *ns = c->ns;
        uint64_t bytes = ns->layout.plane_page_bytes;
        struct queue *queue = ns->tiers[end == 0 ? c->way.from : c->way.to].pool->queue;
        struct job *job = job_new(
                end == 0 ? JOB_COPY_OUT : JOB_COPY_IN, batch_count_sent(c) * c->way.planes.n);
        size_t k = 0;

        if (!job)
                return -ENOMEM;
        for (uint32_t i = 0; i < c->n; i++) {
                const struct batch_page *p = &c->pages[i];
                uint32_t page = end == 0 ? p->from : p->to;

                if (!batch_was_sent(p))
                        continue;
                for (uint32_t n = 0; n < c->way.planes.n; n++) {
                        uint32_t plane = c->way.planes.first + n;

                        job->copies[k++] =
                                (struct device_copy){.extent = p->sets[end]->extents[plane],
                                        .offset = ns_offset(ns, page),
                                        .host = batch_plain_at(c, i, plane),
                                        .len = bytes};
                }
        }
        job->done = on_job;
        job->data = c;
        c->queue = queue;
        queue_submit(queue, job);
        return UNDER_WAY;
}

/* Was the page dropped, or invalidated, meanwhile? An invalidated page mustn't become durable. */
static bool is_gone(const struct copy_batch *c, const struct batch_page *p)
{
        const struct page *page = c->ns ? ns_page(c->ns, p->from) : NULL;

        return !page || page->state != PAGE_SEALED || ns_page_is_stale(c->ns, page) ||
               memcmp(page->key, p->disk.key, KEY_BYTES) != 0;
}

static void note_written(const struct copy_batch *c, struct batch_page *p, uint64_t at)
{
        if (c->ns && is_gone(c, p)) {
                space_discard(c->ns, at, p->disk.key);
                p->result = -ENOENT;
                return;
        }
        p->content = at;
        p->is_written = true;
}

/* The step's pages have their results. A page that was read must have the form that it was written
 * in. */
static void on_io(struct disk_io *io, void *data)
{
        struct copy_batch *c = data;
        uint32_t k = 0;

        c->io = NULL;
        for (uint32_t i = 0; i < c->n; i++) {
                struct batch_page *p = &c->pages[i];
                const struct disk_io_page *is;

                if (!batch_was_sent(p))
                        continue;
                is = &io->pages[k++];
                p->result = is->result;
                if (p->result != 0)
                        continue;
                if (c->way.to == TIER_DISK) {
                        note_written(c, p, is->at);
                } else if (is->page.length != p->disk.length || is->page.codec != p->disk.codec) {
                        p->result = -EBADMSG;
                } else {
                        p->content = is->page.sum;
                }
        }
        assert(k == io->n);
        batch_end_step(c);
}

static int use_disk(struct copy_batch *c)
{
        bool writes = c->way.to == TIER_DISK;
        struct disk_space *space = c->ns->space.disk;
        struct disk_io *io;
        uint32_t k = 0;
        int r;

        if (!space)
                return -ENODEV;
        for (uint32_t i = 0; writes && i < c->n; i++)
                if (batch_was_sent(&c->pages[i]) && is_gone(c, &c->pages[i]))
                        c->pages[i].result = -ENOENT;
        if (batch_count_sent(c) == 0)
                return -ENOENT;
        io = disk_io_new(batch_count_sent(c));
        if (!io)
                return -ENOMEM;
        for (uint32_t i = 0; i < c->n; i++) {
                struct batch_page *p = &c->pages[i];

                if (!batch_was_sent(p))
                        continue;
                p->iov = (struct iovec){c->stored + i * c->slot_bytes, c->slot_bytes};
                if (writes && batch_goes_as_it_is(c))
                        p->disk.sum = p->content;
                io->pages[k++] = (struct disk_io_page){
                        .page = p->disk, .at = p->content, .iov = &p->iov, .n_iov = 1};
        }
        io->done = on_io;
        io->data = c;
        r = writes ? disk_write(space, io) : disk_read(space, io);
        if (r == 0) {
                c->io = io;
                c->disk = c->ns->tiers[TIER_DISK].pool->disk;
                return UNDER_WAY;
        }
        disk_io_free(io);
        if (r == DISK_FULL)
                return space_make_room(c->ns, batch_count_sent(c)) ? NOT_YET : -ENOSPC;
        return r == DISK_BUSY || r == -EAGAIN ? NOT_YET : r;
}

static int begin_step(struct copy_batch *c)
{
        FAULT_POINT("transfer-before-step");
        switch ((enum step)c->steps[c->at]) {
        case STEP_OUT:
                return run_job(c, 0);
        case STEP_IN:
                return run_job(c, 1);
        case STEP_READ:
        case STEP_WRITE:
                return use_disk(c);
        case STEP_OPEN:
        case STEP_PACK:
                return batch_move_bytes(c);
        }
        return -EINVAL;
}

static void over(struct copy_batch *c)
{
        c->is_over = true;
        store_wake_transfers(c->store);
}

/* Callbacks advance from step to step; a step that can't begin waits for batch_start(). */
static void go_on(struct copy_batch *c)
{
        while (c->ns && c->at < c->n_steps && count_wanted(c) > 0) {
                int r = begin_step(c);

                if (r > 0)
                        return;
                fail_rest(c, r);
        }
        over(c);
}

static bool is_busy(const struct copy_batch *c)
{
        return c->move || c->io || c->queue;
}

/* Samples at most one page of a batch. */
static void choose_sample(struct copy_batch *c)
{
        struct ns_coding *coding = &c->ns->codecs.done[c->way.to];

        if (c->way.to == TIER_DEVICE || c->way.buffer != BATCH_NO_BUFFER ||
                batch_goes_as_it_is(c) || c->ns->codecs.of_pages.tiers[c->way.to].n == 0)
                return;
        for (uint32_t i = 0; i < c->n; i++)
                if (coding->n_pages++ % BATCH_SAMPLES_ONE_IN == 0)
                        c->sampled = i;
}

static void start_batch(struct copy_batch *c)
{
        if (c->is_open) {
                c->is_open = false;
                plan_steps(c);
                choose_sample(c);
                if (make_buffers(c) < 0)
                        fail_rest(c, -ENOMEM);
        }
        go_on(c);
}

bool batch_start(struct store *s)
{
        bool more = false;

        list_for_each_safe (c, &s->moving.batches, struct copy_batch, link) {
                if (c->is_over || is_busy(c))
                        continue;
                start_batch(c);
                more |= !c->is_over && !is_busy(c);
        }
        return more;
}

void batch_hurry(struct copy_batch *c)
{
        c->way.is_urgent = true;
        if (c->move)
                mover_hurry(c->store->moving.mover, c->move);
}

void batch_leave(struct copy_batch *c, uint32_t i)
{
        c->pages[i].is_unwanted = true;
        if (count_wanted(c) > 0)
                return;
        if (c->move)
                mover_cancel(c->store->moving.mover, c->move);
        if (c->io)
                disk_cancel(c->disk, c->io);
}

/* Discards a page that was written before the transfer has its result. */
static void discard_written(struct copy_batch *c, struct batch_page *p)
{
        space_discard(c->ns, p->content, p->disk.key);
        p->is_written = false;
        p->result = -ENOENT;
}

static void unwrite_gone(struct copy_batch *c)
{
        uint32_t k = 0;

        for (uint32_t i = 0; i < c->n; i++) {
                struct batch_page *p = &c->pages[i];
                bool goes = is_gone(c, p);

                if (goes && p->is_written)
                        discard_written(c, p);
                else if (goes && c->io && batch_was_sent(p))
                        disk_unwrite(c->disk, c->io, k);
                k += batch_was_sent(p);
        }
}

void batch_unwrite_gone(struct store *s)
{
        list_for_each (c, &s->moving.batches, struct copy_batch, link)
                if (c->ns && c->way.to == TIER_DISK && !c->is_open)
                        unwrite_gone(c);
}

/* ---- end ------------------------------------------------------------------------------------- */

/* The queue has answered late, or never will: it doesn't write to the buffer any more. */
static bool is_over(struct copy_batch *c)
{
        if (c->is_late && !queue_is_stuck(c->queue)) {
                c->is_late = false;
                c->queue = NULL;
                fail_rest(c, -ETIMEDOUT);
                c->is_over = true;
        }
        return c->is_over;
}

struct copy_batch *batch_next_over(struct store *s)
{
        list_for_each (c, &s->moving.batches, struct copy_batch, link)
                if (is_over(c))
                        return c;
        return NULL;
}

void batch_free(struct copy_batch *c)
{
        list_remove(&c->link);
        free(c->plain);
        free(c->stored);
        free(c->buffer);
        free(c);
}

/* Callbacks of other moves run meanwhile; they only note results. */
static void stop_move(struct copy_batch *c)
{
        struct mover *m = c->store->moving.mover;
        struct pollfd fd = {.fd = mover_fd(m), .events = POLLIN};

        if (c->move)
                mover_cancel(m, c->move);
        while (c->move) {
                (void)poll(&fd, 1, 1);
                (void)mover_reap(m);
        }
}

void batch_forget_ns(struct ns *ns)
{
        list_for_each_safe (c, &ns->store->moving.batches, struct copy_batch, link) {
                if (c->ns != ns)
                        continue;
                c->ns = NULL;
                stop_move(c);
                if (c->io)
                        disk_cancel(c->disk, c->io);
                if (!is_busy(c))
                        batch_free(c);
        }
}

void batch_deinit(struct store *s)
{
        list_for_each_safe (c, &s->moving.batches, struct copy_batch, link)
                if (!c->io) /* else the disk hangs, and still uses its buffers */
                        batch_free(c);
}
