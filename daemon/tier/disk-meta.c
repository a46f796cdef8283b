/*
 * Blocks of tables and indexes are written in rounds: all changed blocks are written, each once;
 * then, if a caller waits, the file is flushed. Blocks that change meanwhile are for the next
 * round. So no block is written twice at once, and a waiter needs at most two rounds.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault-point.h"
#include "daemon/tier/disk-impl.h"

static void write_blocks(struct disk_file *d);

void disk_touch(struct disk_file *d, struct disk_block *b)
{
        if (list_is_empty(&b->link))
                list_append(&d->dirty, &b->link);
}

/* ---- waiters --------------------------------------------------------------------------------- */

static void call_waiter(struct disk_file *d, struct disk_waiter *w, int result)
{
        w->done(result, w->data);
        free(w);
}

struct disk_waiter *disk_waiter_new(disk_fn done, void *data)
{
        struct disk_waiter *w = calloc(1, sizeof(*w));

        if (!w)
                return NULL;
        *w = (struct disk_waiter){.run = call_waiter, .done = done, .data = data};
        list_init(&w->link);
        return w;
}

void disk_waiter_end(struct disk_file *d, struct disk_waiter *w, int result)
{
        w->result = result;
        list_remove(&w->link);
        list_append(&d->ready, &w->link);
        disk_wake(d);
}

static int off_result(const struct disk_file *d, const struct disk_waiter *w)
{
        if (w->wants_data)
                return -ENODEV;
        return d->discard_result < 0 ? -EIO : 0;
}

void disk_wait(struct disk_file *d, struct disk_waiter *w)
{
        if (d->discard == DISCARD_DONE)
                disk_waiter_end(d, w, off_result(d, w));
        else
                list_append(&d->next, &w->link);
}

void disk_meta_off(struct disk_file *d)
{
        struct list_link *const lists[] = {&d->round_waits, &d->next};

        for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
                list_for_each_safe (w, lists[i], struct disk_waiter, link)
                        disk_waiter_end(d, w, off_result(d, w));
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static void end_round(struct disk_file *d)
{
        list_for_each_safe (w, &d->round_waits, struct disk_waiter, link)
                disk_waiter_end(d, w, 0);
        d->in_round = ROUND_NONE;
}

static void flush_done(struct disk_file *d, struct disk_op *op)
{
        if (op->result < 0) {
                disk_go_off(d, "what was written couldn't be made durable", op->result);
                return;
        }
        FAULT_POINT("disk-after-flush");
        d->counts.n_flushes++;
        end_round(d);
}

static void all_written(struct disk_file *d)
{
        if (list_is_empty(&d->round_waits)) {
                end_round(d);
                return;
        }
        d->in_round = ROUND_FLUSHING;
        d->flush = (struct disk_op){
                .kind = DISK_OP_FLUSH, .bytes = d->super.bytes, .done = flush_done};
        FAULT_POINT("disk-before-flush");
        disk_submit_urgent(d, &d->flush);
}

static void block_done(struct disk_file *d, struct disk_op *op)
{
        struct disk_block_op *b = container_of(op, struct disk_block_op, op);

        list_append(&d->idle_blocks, &b->idle);
        d->n_writing--;
        if (op->result < 0) {
                disk_go_off(d, "its index couldn't be written", op->result);
                return;
        }
        FAULT_POINT("disk-after-block");
        d->counts.n_index_blocks++;
        if (!d->is_off)
                write_blocks(d);
}

static void write_block(struct disk_file *d, struct disk_block_op *to, struct disk_block *b)
{
        memcpy(to->buffer, b->memory, DISK_ALIGN);
        to->iov = (struct iovec){to->buffer, DISK_ALIGN};
        to->op = (struct disk_op){
                .kind = DISK_OP_WRITE,
                .offset = b->offset,
                .bytes = DISK_ALIGN,
                .iov = &to->iov,
                .n_iov = 1,
                .done = block_done,
        };
        d->n_writing++;
        FAULT_POINT("disk-before-block");
        disk_submit_urgent(d, &to->op);
}

static void write_blocks(struct disk_file *d)
{
        struct disk_block_op *to;
        struct disk_block *b;

        while ((b = list_first(&d->round, struct disk_block, link)) &&
                (to = list_first(&d->idle_blocks, struct disk_block_op, idle))) {
                list_remove(&b->link);
                list_remove(&to->idle);
                write_block(d, to, b);
        }
        if (d->n_writing == 0)
                all_written(d);
}

/* Begin a round if a caller waits; else when a block's worth of entries changed, or the disk is
 * idle. */
static bool is_time(const struct disk_file *d)
{
        if (!list_is_empty(&d->next))
                return true;
        return !list_is_empty(&d->dirty) &&
               (d->n_lazy >= DISK_LAZY_ENTRIES || (d->n_flight == 0 && list_is_empty(&d->queue)));
}

void disk_meta_go(struct disk_file *d)
{
        if (d->is_off || d->in_round != ROUND_NONE || !is_time(d))
                return;
        d->in_round = ROUND_WRITING;
        d->n_lazy = 0;
        list_take_all(&d->dirty, &d->round);
        list_take_all(&d->next, &d->round_waits);
        write_blocks(d);
}

void disk_meta_init(struct disk_file *d)
{
        struct list_link *const lists[] = {
                &d->dirty, &d->round, &d->next, &d->round_waits, &d->ready, &d->idle_blocks};

        for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
                list_init(lists[i]);
        for (size_t i = 0; i < DISK_BLOCK_OPS; i++)
                list_append(&d->idle_blocks, &d->block_ops[i].idle);
}
