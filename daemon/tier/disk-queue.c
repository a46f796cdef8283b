/* Operations on their way to the engine and back, and handling of a failing disk. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault-point.h"
#include "daemon/tier/disk-impl.h"

void disk_wake(struct disk_file *d)
{
        disk_ring(d->event_fd);
}

int disk_fd(const struct disk_file *d)
{
        return d->event_fd;
}

int disk_may_take(const struct disk_file *d)
{
        if (d->is_off)
                return -ENODEV;
        return d->n_late_now > 0 ? DISK_BUSY : 0;
}

bool disk_takes(const struct disk_file *d)
{
        return disk_may_take(d) == 0;
}

/* ---- towards the engine ---------------------------------------------------------------------- */

static void start_op(struct disk_file *d, struct disk_op *op)
{
        list_remove(&op->link);
        list_append(&d->flight, &op->flight);
        op->since_nsec = clock_now_nsec();
        d->n_flight++;
        d->counts.n_operations++;
        d->engine->ops->submit(d->engine, op);
}

static void start_some(struct disk_file *d)
{
        struct disk_op *op;

        while (d->n_flight < d->n_given_max &&
                ((op = list_first(&d->urgent, struct disk_op, link)) ||
                        (op = list_first(&d->queue, struct disk_op, link))))
                start_op(d, op);
}

void disk_op_end(struct disk_file *d, struct disk_op *op, int result)
{
        op->result = result;
        list_append(&d->over, &op->link);
        disk_wake(d);
}

static void submit_to(struct disk_file *d, struct list_link *list, struct disk_op *op)
{
        list_init(&op->link);
        list_init(&op->flight);
        if (d->is_off) {
                disk_op_end(d, op, -ENODEV);
                return;
        }
        list_append(list, &op->link);
        start_some(d);
}

void disk_submit(struct disk_file *d, struct disk_op *op)
{
        submit_to(d, &d->queue, op);
}

void disk_submit_urgent(struct disk_file *d, struct disk_op *op)
{
        submit_to(d, &d->urgent, op);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static const char *name_op(const struct disk_op *op)
{
        switch (op->kind) {
        case DISK_OP_READ:
                return "a read failed";
        case DISK_OP_WRITE:
                return "a write failed";
        case DISK_OP_FLUSH:
                return "a flush failed";
        case DISK_OP_ZERO:
                return "zeroing failed";
        case DISK_OP_DISCARD:
                break;
        }
        return "truncating failed";
}

static const char *name_error(int r)
{
        if (r == -ENOENT)
                return "the file was deleted";
        return r == -ENODATA ? "the file was shortened" : strerror(-r);
}

static void set_why(struct disk_file *d, const char *what, int r)
{
        int n = snprintf(d->why, sizeof(d->why), "%s: %s: %s", d->path, what, name_error(r));

        if (n >= (int)sizeof(d->why)) /* cut a long path: its end matters */
                snprintf(d->why, sizeof(d->why), "the disk's file: %s: %s", what, name_error(r));
}

void disk_go_off(struct disk_file *d, const char *what, int r)
{
        if (d->is_off)
                return;
        d->is_off = true;
        set_why(d, what, r);
        disk_wake(d);
}

/* True for errors after which the disk won't recover. */
static bool is_final(int r)
{
        return r == -ENOENT || r == -ENODATA || r == -ENODEV || r == -ENXIO;
}

static void note_result(struct disk_file *d, const struct disk_op *op)
{
        if (op->result == 0) {
                d->n_row = 0;
                return;
        }
        d->counts.n_errors++;
        d->n_row++;
        if (d->is_off)
                return;
        set_why(d, name_op(op), op->result);
        if (d->n_row >= DISK_ERRORS_MAX || is_final(op->result))
                disk_go_off(d, name_op(op), op->result);
}

static void note_late(struct disk_file *d)
{
        uint64_t now = clock_now_nsec(), deadline = d->deadline_msec * NSEC_PER_MSEC;

        list_for_each (op, &d->flight, struct disk_op, flight) {
                if (now - op->since_nsec < deadline)
                        return;
                if (op->is_late)
                        continue;
                op->is_late = true;
                d->n_late_now++;
                d->counts.n_late++;
        }
}

uint64_t disk_deadline_nsec(const struct disk_file *d)
{
        list_for_each (op, &d->flight, struct disk_op, flight)
                if (!op->is_late)
                        return op->since_nsec + d->deadline_msec * NSEC_PER_MSEC;
        return UINT64_MAX;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void discard_done(struct disk_file *d, struct disk_op *op)
{
        d->discard = DISCARD_DONE;
        d->discard_result = op->result;
        FAULT_POINT("disk-after-discard");
        disk_meta_off(d);
}

/* Discards the file, once no operation can write to it any more. */
static void discard_file(struct disk_file *d)
{
        if (d->discard != DISCARD_NONE || d->n_flight > 0)
                return;
        d->discard = DISCARD_UNDER_WAY;
        d->discard_op = (struct disk_op){.kind = DISK_OP_DISCARD, .done = discard_done};
        list_init(&d->discard_op.link);
        list_init(&d->discard_op.flight);
        FAULT_POINT("disk-before-discard");
        start_op(d, &d->discard_op);
}

static void end_waiting(struct disk_file *d, struct list_link *list, int result)
{
        list_for_each_safe (op, list, struct disk_op, link) {
                list_remove(&op->link);
                disk_op_end(d, op, result);
        }
}

void disk_cancel_waiting(struct disk_file *d, int result)
{
        end_waiting(d, &d->queue, result);
}

static void batch_out_end(struct disk_file *d)
{
        end_waiting(d, &d->urgent, -ENODEV);
        end_waiting(d, &d->queue, -ENODEV);
        discard_file(d);
}

/* ---- latency --------------------------------------------------------------------------------- */

/* The three bits below the first one say which eighth of the octave. */
static unsigned bucket_of(uint64_t nsec)
{
        unsigned octave = nsec < 8 ? 3 : 63 - (unsigned)__builtin_clzll(nsec);

        return octave * 8 + (unsigned)(nsec >> (octave - 3) & 7);
}

static uint64_t bucket_end(unsigned bucket)
{
        return ((uint64_t)(8 + bucket % 8) + 1) << (bucket / 8 - 3);
}

/* The value below which `part` of the samples lie; 0: no samples. */
static uint64_t latency_quantile(const uint64_t histogram[DISK_HISTOGRAM], double part)
{
        uint64_t all = 0, seen = 0;

        for (unsigned i = 0; i < DISK_HISTOGRAM; i++)
                all += histogram[i];
        for (unsigned i = 0; i < DISK_HISTOGRAM && all > 0; i++) {
                seen += histogram[i];
                if ((double)seen >= part * (double)all)
                        return bucket_end(i);
        }
        return 0;
}

/* Counts the duration of an ended operation. */
static void note_latency(struct disk_file *d, const struct disk_op *op)
{
        if (op->result == 0 && op->io)
                d->histograms[op->kind == DISK_OP_WRITE]
                             [bucket_of(clock_now_nsec() - op->since_nsec)]++;
}

/* ---- back ------------------------------------------------------------------------------------ */

static void finish_op(struct disk_file *d, struct disk_op *op)
{
        list_remove(&op->link);
        if (op->since_nsec > 0) {
                list_remove(&op->flight);
                d->n_flight--;
                d->n_late_now -= op->is_late;
                note_latency(d, op);
                note_result(d, op);
        }
        op->done(d, op);
}

static unsigned run_tasks(struct disk_file *d)
{
        struct list_link finished;
        unsigned n = 0;

        list_take_all(&d->finished, &finished);
        list_for_each_safe (t, &finished, struct disk_task, link) {
                list_remove(&t->link);
                d->n_waiting -= t->io.n;
                disk_task_recheck(d, t);
                if (t->io.done)
                        t->io.done(&t->io, t->io.data);
                disk_io_free(&t->io);
                n++;
        }
        return n;
}

static unsigned run_waiters(struct disk_file *d)
{
        struct list_link ready;
        unsigned n = 0;

        list_take_all(&d->ready, &ready);
        for (struct disk_waiter *w; (w = list_first(&ready, struct disk_waiter, link)); n++) {
                list_remove(&w->link);
                w->run(d, w, w->result);
        }
        return n;
}

unsigned disk_reap(struct disk_file *d)
{
        struct list_link done, over;
        uint64_t rung;
        unsigned n;

        if (read(d->event_fd, &rung, sizeof(rung)) < 0)
                assert(errno == EAGAIN);
        d->engine->ops->reap(d->engine, &done);
        list_take_all(&d->over, &over);
        list_for_each_safe (op, &done, struct disk_op, link)
                finish_op(d, op);
        list_for_each_safe (op, &over, struct disk_op, link)
                finish_op(d, op);
        note_late(d);
        n = run_tasks(d) + run_waiters(d);
        if (d->is_off)
                batch_out_end(d);
        else
                start_some(d);
        disk_meta_go(d);
        return n;
}

/* ---- figures --------------------------------------------------------------------------------- */

enum disk_state disk_state(const struct disk_file *d)
{
        if (d->is_off)
                return DISK_OFF;
        return d->n_row > 0 || d->n_late_now > 0 ? DISK_FAILING : DISK_OK;
}

static void set_state(const struct disk_file *d, struct disk_stats *s)
{
        s->state = disk_state(d);
        if (s->state == DISK_OK)
                return;
        if (d->is_off || d->n_late_now == 0)
                (void)snprintf(s->why, sizeof(s->why), "%s", d->why);
        else
                (void)snprintf(s->why, sizeof(s->why),
                        "the disk hasn't answered for %u ms (%u operations): %.150s",
                        d->deadline_msec, d->n_late_now, d->path);
}

void disk_stats(const struct disk_file *d, struct disk_stats *ret_stats)
{
        struct disk_stats *s = ret_stats;

        *s = d->counts;
        set_state(d, s);
        memcpy(s->note, d->note, sizeof(s->note));
        s->engine = d->engine->ops->name;
        s->is_direct = d->is_direct;
        s->bytes = d->super.bytes;
        s->chunk_bytes = d->super.chunk_bytes;
        s->n_chunks = d->layout.n_chunks;
        s->n_free = d->n_free;
        s->n_freeing = d->n_freeing;
        s->n_spaces = d->n_spaces;
        s->index_bytes = d->index_bytes;
        list_for_each (space, &d->spaces, struct disk_space, link)
                s->n_pages += space->n_pages;
        s->read_p50_nsec = latency_quantile(d->histograms[0], 0.5);
        s->read_p99_nsec = latency_quantile(d->histograms[0], 0.99);
        s->write_p50_nsec = latency_quantile(d->histograms[1], 0.5);
        s->write_p99_nsec = latency_quantile(d->histograms[1], 0.99);
}
