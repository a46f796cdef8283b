#include "daemon/core/moves/carry.h"

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
#include "daemon/core/objects/ns.h"
#include "daemon/core/objects/store.h"
#include "daemon/tier/mover.h"
#include "gpu/queue.h"

enum step { STEP_OUT, STEP_READ, STEP_OPEN, STEP_PACK, STEP_WRITE, STEP_IN };

/* Of what a step answers: it is under way; it can't begin yet. */
#define UNDER_WAY 1
#define NOT_YET   2

static bool is_behind_queue(const struct ns *ns, enum tier_kind kind)
{
        return ns->tiers[kind].pool->queue;
}

/* ---- which ----------------------------------------------------------------------------------- */

/* From below to further below as they are stored, where both store them alike. */
static bool goes_as_it_is(const struct carry *c)
{
        return c->way.from != TIER_DEVICE && c->way.to != TIER_DEVICE &&
               codec_layers_equal(&c->ns->codecs.of_pages.tiers[c->way.from],
                       &c->ns->codecs.of_pages.tiers[c->way.to]);
}

static void plan_steps(struct carry *c)
{
        bool out = is_behind_queue(c->ns, c->way.from) && c->way.buffer != CARRY_FROM_BUFFER;
        bool in = is_behind_queue(c->ns, c->way.to) && c->way.buffer != CARRY_TO_BUFFER;
        unsigned n = 0;

        if (out)
                c->steps[n++] = STEP_OUT;
        if (c->way.from == TIER_DISK)
                c->steps[n++] = STEP_READ;
        if (c->way.from != TIER_DEVICE)
                c->steps[n++] = STEP_OPEN;
        if (c->way.to != TIER_DEVICE && !goes_as_it_is(c))
                c->steps[n++] = STEP_PACK;
        if (c->way.from == TIER_DEVICE && c->way.to == TIER_DEVICE && !out && !in)
                c->steps[n++] = STEP_PACK; /* a copy */
        if (c->way.to == TIER_DISK)
                c->steps[n++] = STEP_WRITE;
        if (in)
                c->steps[n++] = STEP_IN;
        c->n_steps = n;
}

/* Plain, in the planes that are moved. */
static uint64_t plain_bytes(const struct carry *c)
{
        return c->way.planes.n * c->ns->layout.plane_page_bytes;
}

static bool is_partial(const struct carry *c)
{
        return c->way.planes.n < c->ns->layout.n_planes;
}

/* Buffers for as many pages as it may have. 0 or -ENOMEM. */
static int make_buffers(struct carry *c)
{
        const struct ns *ns = c->ns;
        bool has_plain =
                is_behind_queue(ns, c->way.from) || is_behind_queue(ns, c->way.to) ||
                (c->way.from != TIER_DEVICE && c->way.to != TIER_DEVICE && !goes_as_it_is(c));
        enum tier_kind disk = c->way.from == TIER_DISK ? c->way.from : c->way.to;

        if (has_plain && !c->plain) {
                c->plain = malloc(c->n_max * plain_bytes(c));
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

/* As many as are worth a step, by what of each is read. */
static uint32_t unit_pages(const struct ns *ns, const struct carry_way *way)
{
        enum tier_kind lower = way->from > way->to ? way->from : way->to;
        uint32_t n_planes = way->has_part_sums ? way->planes.n : ns->layout.n_planes;

        return lower == TIER_DEVICE
                       ? 1
                       : tier_unit_pages(lower, n_planes * ns->layout.plane_page_bytes);
}

static struct carry *carry_new(struct ns *ns, const struct carry_way *way)
{
        uint32_t n_max = unit_pages(ns, way);
        struct carry *c = calloc(1, sizeof(*c) + n_max * sizeof(c->pages[0]));

        if (!c)
                return NULL;
        *c = (struct carry){.store = ns_store(ns),
                .ns = ns,
                .way = *way,
                .is_open = true,
                .sampled = CARRY_NONE_SAMPLED,
                .n_max = n_max};
        list_init(&c->link);
        list_append(&c->store->moving.carries, &c->link);
        return c;
}

struct carry *carry_new_with_buffer(
        struct ns *ns, const struct carry_way *way, uint8_t *bytes, size_t begin)
{
        struct carry *c = carry_new(ns, way);

        if (!c)
                return NULL;
        c->n_max = 1;
        c->plain = bytes;
        c->plain_begin = begin;
        return c;
}

static bool is_same_way(const struct carry_way *a, const struct carry_way *b)
{
        return a->from == b->from && a->to == b->to && a->buffer == b->buffer &&
               a->planes.first == b->planes.first && a->planes.n == b->planes.n &&
               a->is_copy == b->is_copy && a->is_urgent == b->is_urgent &&
               a->has_part_sums == b->has_part_sums;
}

struct carry *carry_find(struct ns *ns, const struct carry_way *way)
{
        list_for_each (c, &ns_store(ns)->moving.carries, struct carry, link)
                if (c->is_open && c->ns == ns && is_same_way(&c->way, way) && c->n < c->n_max)
                        return c;
        return carry_new(ns, way);
}

/* What a disk is told of a page. */
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

uint32_t carry_add(struct carry *c, uint32_t from, uint32_t to)
{
        struct carry_page *p = &c->pages[c->n];

        assert(c->is_open && c->n < c->n_max);

        *p = (struct carry_page){.from = from, .to = to};
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

/* ---- addresses ------------------------------------------------------------------------------- */

static uint8_t *buffer_at(const struct carry *c, uint32_t i, uint32_t plane)
{
        return c->plain + c->plain_begin + i * plain_bytes(c) +
               (plane - c->way.planes.first) * c->ns->layout.plane_page_bytes;
}

/* A page of a device is copied into a buffer by the mover: the buffer is where it is stored. */
static bool packs_into_buffer(const struct carry *c)
{
        return c->way.buffer == CARRY_TO_BUFFER && c->steps[c->at] == STEP_PACK;
}

static uint8_t *plain_at(const struct carry *c, uint32_t i, uint32_t plane)
{
        unsigned end = c->way.from == TIER_DEVICE ? 0 : 1;
        const struct carry_page *p = &c->pages[i];

        if (c->plain && !packs_into_buffer(c))
                return buffer_at(c, i, plane);
        return set_address(p->sets[end], end == 0 ? p->from : p->to, plane);
}

/* Of a part of a page: of one of zeros, where all that is stored of the page begins. */
static uint8_t *stored_at(
        const struct carry *c, uint32_t i, unsigned end, const struct page_part *part)
{
        enum tier_kind kind = end == 0 ? c->way.from : c->way.to;
        const struct carry_page *p = &c->pages[i];
        uint32_t page = end == 0 ? p->from : p->to;
        uint8_t *at;

        if (end == 1 && packs_into_buffer(c))
                return buffer_at(c, i, part->plane);
        if (kind == TIER_DEVICE) /* of a copy */
                return set_address(p->sets[end], page, part->plane);
        at = kind == TIER_DISK ? c->stored + i * c->slot_bytes : set_address(p->sets[end], page, 0);
        return at ? at + part->stored_at : NULL;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static bool is_wanted(const struct carry_page *p)
{
        return p->result == 0 && !p->is_unwanted;
}

static uint32_t count_wanted(const struct carry *c)
{
        uint32_t n = 0;

        for (uint32_t i = 0; i < c->n; i++)
                n += is_wanted(&c->pages[i]);
        return n;
}

/* Those that a step was begun with, in their order: who isn't wanted since has no result yet. */
static bool was_sent(const struct carry_page *p)
{
        return p->result == 0;
}

static void fail_rest(struct carry *c, int result)
{
        for (uint32_t i = 0; i < c->n; i++)
                if (c->pages[i].result == 0)
                        c->pages[i].result = result;
}

static void go_on(struct carry *c);

static void end_step(struct carry *c)
{
        c->at++;
        go_on(c);
}

/* The sampled page was encoded. Sums that aren't finite are left out: somebody wrote to the page
 * meanwhile, which nobody may. */
static void count_errors(struct carry *c)
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

/* The page that was read is the one that it is. */
static bool is_still(const struct carry *c, const struct carry_page *p)
{
        return c->ns && set_page(p->sets[0], p->from)->generation == p->generation;
}

static void on_moved(struct move *move, int result, void *data)
{
        struct carry *c = data;
        size_t k = 0;

        c->move = NULL;
        for (uint32_t i = 0; i < c->n; i++) {
                struct carry_page *p = &c->pages[i];

                if (!was_sent(p))
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
        end_step(c);
}

/* What a part of page i is for the mover: of a plane that isn't moved nothing but its sum. */
static struct move_plane plane_of(const struct carry *c, uint32_t i, const struct page_part *part)
{
        bool opens = c->steps[c->at] == STEP_OPEN;
        bool is_moved = plane_range_has(c->way.planes, part->plane);
        uint8_t *plain = is_moved ? plain_at(c, i, part->plane) : NULL;
        uint8_t *stored = stored_at(c, i, opens ? 0 : 1, part);

        if (plain)
                plain += part->plain_at;
        return (struct move_plane){.from = opens ? stored : plain,
                .to = opens ? plain : stored,
                .plain_bytes = part->plain_bytes,
                .codec = part->codec,
                .shape = &c->ns->codecs.of_pages.shape};
}

/* All of page i, as it is stored. */
static struct move_plane plane_as_it_is(const struct carry *c, uint32_t i)
{
        static const struct page_part all;

        return (struct move_plane){.from = stored_at(c, i, 0, &all),
                .to = stored_at(c, i, 1, &all),
                .plain_bytes = c->ns->codecs.of_pages.stored_bytes[c->way.from]};
}

/* The tier whose parts the step's moves consist of. */
static enum tier_kind coded_tier(const struct carry *c)
{
        return c->steps[c->at] == STEP_OPEN ? c->way.from : c->way.to;
}

/* Does the step's move have this part? Of planes that aren't moved where the page's sum is
 * compared. */
static bool has_part(const struct carry *c, const struct page_part *part)
{
        bool reads_all = c->steps[c->at] == STEP_OPEN && !c->way.has_part_sums;

        return reads_all || plane_range_has(c->way.planes, part->plane);
}

/* How many the step's move has of each page. */
static uint32_t count_parts(const struct carry *c)
{
        struct page_part part = {0};
        uint32_t n = 0;

        while (page_part_next(&c->ns->codecs.of_pages, &c->ns->layout, coded_tier(c), &part))
                n += has_part(c, &part);
        return n;
}

/* The parts of page i; false: there is no memory at one of its ends. */
static bool fill_parts(struct carry *c, uint32_t i, struct move_plane *planes)
{
        const struct carry_page *p = &c->pages[i];
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

static bool fill_planes(struct carry *c, uint32_t i, struct move_plane *planes)
{
        if (c->steps[c->at] != STEP_OPEN || !goes_as_it_is(c))
                return fill_parts(c, i, planes);
        *planes = plane_as_it_is(c, i);
        return planes->from && planes->to;
}

/* False: there is no memory at one of its ends. */
static bool fill_move(struct carry *c, struct move *m)
{
        size_t k = 0;

        for (uint32_t i = 0; i < c->n; i++) {
                if (!was_sent(&c->pages[i]))
                        continue;
                if (!fill_planes(c, i, &m->planes[k * m->n_planes]))
                        return false;
                m->pages[k++].sum = c->pages[i].content;
        }
        return true;
}

static uint32_t count_sent(const struct carry *c)
{
        uint32_t n = 0;

        for (uint32_t i = 0; i < c->n; i++)
                n += was_sent(&c->pages[i]);
        return n;
}

static enum move_sums which_sums(const struct carry *c)
{
        if (c->way.has_part_sums)
                return MOVE_SUM_PLANES;
        return c->way.from == TIER_HOST && is_partial(c) ? MOVE_SUM_BOTH : MOVE_SUM_PAGE;
}

static int move_bytes(struct carry *c)
{
        bool opens = c->steps[c->at] == STEP_OPEN;
        size_t n_planes = opens && goes_as_it_is(c) ? 1 : count_parts(c);
        struct move *m = move_new(opens ? MOVE_UP : MOVE_DOWN, count_sent(c), n_planes);
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

static void on_job(struct job *job, int result, void *data)
{
        struct carry *c = data;

        if (result == -ETIMEDOUT) {
                c->is_late = true;
                return;
        }
        c->queue = NULL;
        if (result < 0)
                fail_rest(c, result);
        end_step(c);
}

static int run_job(struct carry *c, unsigned end)
{
        const struct ns *ns = c->ns;
        uint64_t bytes = ns->layout.plane_page_bytes;
        struct queue *queue = ns->tiers[end == 0 ? c->way.from : c->way.to].pool->queue;
        struct job *job =
                job_new(end == 0 ? JOB_COPY_OUT : JOB_COPY_IN, count_sent(c) * c->way.planes.n);
        size_t k = 0;

        if (!job)
                return -ENOMEM;
        for (uint32_t i = 0; i < c->n; i++) {
                const struct carry_page *p = &c->pages[i];
                uint32_t page = end == 0 ? p->from : p->to;

                if (!was_sent(p))
                        continue;
                for (uint32_t n = 0; n < c->way.planes.n; n++) {
                        uint32_t plane = c->way.planes.first + n;

                        job->copies[k++] =
                                (struct device_copy){.extent = p->sets[end]->extents[plane],
                                        .offset = ns_offset(ns, page),
                                        .host = plain_at(c, i, plane),
                                        .len = bytes};
                }
        }
        job->done = on_job;
        job->data = c;
        c->queue = queue;
        queue_submit(queue, job);
        return UNDER_WAY;
}

/* Nobody asks for it any more: what was invalidated meanwhile mustn't be durable. */
static bool is_gone(const struct carry *c, const struct carry_page *p)
{
        const struct page *page = c->ns ? ns_page(c->ns, p->from) : NULL;

        return !page || page->state != PAGE_SEALED || ns_page_is_stale(c->ns, page) ||
               memcmp(page->key, p->disk.key, KEY_BYTES) != 0;
}

static void note_written(const struct carry *c, struct carry_page *p, uint64_t at)
{
        if (c->ns && is_gone(c, p)) {
                space_discard(c->ns, at, p->disk.key);
                p->result = -ENOENT;
                return;
        }
        p->content = at;
        p->is_written = true;
}

/* Its ends are those of the step's pages; a page that was read is what it was written as. */
static void on_io(struct disk_io *io, void *data)
{
        struct carry *c = data;
        uint32_t k = 0;

        c->io = NULL;
        for (uint32_t i = 0; i < c->n; i++) {
                struct carry_page *p = &c->pages[i];
                const struct disk_io_page *is;

                if (!was_sent(p))
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
        end_step(c);
}

static int use_disk(struct carry *c)
{
        bool writes = c->way.to == TIER_DISK;
        struct disk_space *space = c->ns->space.disk;
        struct disk_io *io;
        uint32_t k = 0;
        int r;

        if (!space)
                return -ENODEV;
        for (uint32_t i = 0; writes && i < c->n; i++)
                if (was_sent(&c->pages[i]) && is_gone(c, &c->pages[i]))
                        c->pages[i].result = -ENOENT;
        if (count_sent(c) == 0)
                return -ENOENT;
        io = disk_io_new(count_sent(c));
        if (!io)
                return -ENOMEM;
        for (uint32_t i = 0; i < c->n; i++) {
                struct carry_page *p = &c->pages[i];

                if (!was_sent(p))
                        continue;
                p->iov = (struct iovec){c->stored + i * c->slot_bytes, c->slot_bytes};
                if (writes && goes_as_it_is(c))
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
                return space_make_room(c->ns, count_sent(c)) ? NOT_YET : -ENOSPC;
        return r == DISK_BUSY || r == -EAGAIN ? NOT_YET : r;
}

static int begin_step(struct carry *c)
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
                return move_bytes(c);
        }
        return -EINVAL;
}

static void over(struct carry *c)
{
        struct store *s = c->store;

        c->is_over = true;
        if (s->owner.on_transfer_work)
                s->owner.on_transfer_work(s->owner.data);
}

/* Callbacks go on from step to step by themselves; what can't begin yet waits for carry_start(). */
static void go_on(struct carry *c)
{
        while (c->ns && c->at < c->n_steps && count_wanted(c) > 0) {
                int r = begin_step(c);

                if (r > 0)
                        return;
                fail_rest(c, r);
        }
        over(c);
}

static bool is_busy(const struct carry *c)
{
        return c->move || c->io || c->queue;
}

/* Of a batch one page at most. */
static void choose_sample(struct carry *c)
{
        struct ns_coding *coding = &c->ns->codecs.done[c->way.to];

        if (c->way.to == TIER_DEVICE || goes_as_it_is(c) ||
                c->ns->codecs.of_pages.tiers[c->way.to].n == 0)
                return;
        for (uint32_t i = 0; i < c->n; i++)
                if (coding->n_pages++ % CARRY_SAMPLES_ONE_IN == 0)
                        c->sampled = i;
}

static void start_batch(struct carry *c)
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

bool carry_start(struct store *s)
{
        bool more = false;

        list_for_each_safe (c, &s->moving.carries, struct carry, link) {
                if (c->is_over || is_busy(c))
                        continue;
                start_batch(c);
                more |= !c->is_over && !is_busy(c);
        }
        return more;
}

void carry_hurry(struct carry *c)
{
        c->way.is_urgent = true;
        if (c->move)
                mover_hurry(c->store->moving.mover, c->move);
}

void carry_leave(struct carry *c, uint32_t i)
{
        c->pages[i].is_unwanted = true;
        if (count_wanted(c) > 0)
                return;
        if (c->move)
                mover_cancel(c->store->moving.mover, c->move);
        if (c->io)
                disk_cancel(c->disk, c->io);
}

/* It was written, and the transfer hasn't heard of it yet. */
static void discard_written(struct carry *c, struct carry_page *p)
{
        space_discard(c->ns, p->content, p->disk.key);
        p->is_written = false;
        p->result = -ENOENT;
}

static void unwrite_gone(struct carry *c)
{
        uint32_t k = 0;

        for (uint32_t i = 0; i < c->n; i++) {
                struct carry_page *p = &c->pages[i];
                bool goes = is_gone(c, p);

                if (goes && p->is_written)
                        discard_written(c, p);
                else if (goes && c->io && was_sent(p))
                        disk_unwrite(c->disk, c->io, k);
                k += was_sent(p);
        }
}

void carry_unwrite_gone(struct store *s)
{
        list_for_each (c, &s->moving.carries, struct carry, link)
                if (c->ns && c->way.to == TIER_DISK && !c->is_open)
                        unwrite_gone(c);
}

/* ---- its end --------------------------------------------------------------------------------- */

/* The queue has answered after all, or never will: nobody writes to the buffer any more. */
static bool is_over(struct carry *c)
{
        if (c->is_late && !queue_is_stuck(c->queue)) {
                c->is_late = false;
                c->queue = NULL;
                fail_rest(c, -ETIMEDOUT);
                c->is_over = true;
        }
        return c->is_over;
}

struct carry *carry_next_over(struct store *s)
{
        list_for_each (c, &s->moving.carries, struct carry, link)
                if (is_over(c))
                        return c;
        return NULL;
}

void carry_free(struct carry *c)
{
        list_remove(&c->link);
        free(c->plain);
        free(c->stored);
        free(c);
}

/* Callbacks of others run meanwhile: they note what is over, no more. */
static void stop_move(struct carry *c)
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

void carry_forget_ns(struct ns *ns)
{
        list_for_each_safe (c, &ns_store(ns)->moving.carries, struct carry, link) {
                if (c->ns != ns)
                        continue;
                c->ns = NULL;
                stop_move(c);
                if (c->io)
                        disk_cancel(c->disk, c->io);
                if (!is_busy(c))
                        carry_free(c);
        }
}

void carry_deinit(struct store *s)
{
        list_for_each_safe (c, &s->moving.carries, struct carry, link)
                if (!c->io) /* else the disk hangs, and has its buffers */
                        carry_free(c);
}
