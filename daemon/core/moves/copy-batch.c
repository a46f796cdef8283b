#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault-point.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/moves/copy-batch-impl.h"
#include "daemon/core/moves/space.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/tier/mover.h"
#include "gpu/queue.h"

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

void batch_end_step(struct copy_batch *c)
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
        struct store *s = c->store;

        c->is_over = true;
        if (s->owner.on_transfer_work)
                s->owner.on_transfer_work(s->owner.data);
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
