/* Operations: checks, messages, ends. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/remote/store/remote-impl.h"

/* Cost of a small message, or of the answer to it, in a window. Not tuned. */
#define SMALL_COST 256

/* ---- how they are written down --------------------------------------------------------------- */

static void put_keys(struct resp_writer *w, const char *name, const struct remote_op *op)
{
        resp_put_array(w, 1 + op->n_keys);
        resp_put_word(w, name);
        for (unsigned i = 0; i < op->n_keys; i++)
                resp_put_bulk(w, op->keys[i].iov_base, op->keys[i].iov_len);
}

/* Writes the part before the value, or all of the request. */
static void put_head(struct resp_writer *w, const struct remote_io *io, const struct remote_op *op)
{
        static const char *const names[] = {[REMOTE_PROBE] = "EXISTS",
                [REMOTE_READ] = "GET",
                [REMOTE_REMOVE] = "UNLINK",
                [REMOTE_TOUCH] = "TOUCH"};

        if (io->kind != REMOTE_WRITE) {
                put_keys(w, names[io->kind], op);
                return;
        }
        resp_put_array(w, op->only_new ? 6 : 5);
        resp_put_word(w, "SET");
        resp_put_bulk(w, op->keys[0].iov_base, op->keys[0].iov_len);
        resp_put_bulk_begin(w, remote_value_bytes(op));
}

static void put_tail(struct resp_writer *w, const struct remote_io *io, const struct remote_op *op)
{
        if (io->kind != REMOTE_WRITE)
                return;
        resp_put_bulk_end(w);
        resp_put_word(w, "PX");
        resp_put_number(w, op->expiry_msec);
        if (op->only_new)
                resp_put_word(w, "NX");
}

static void put_all(struct remote_request *q, struct resp_writer *w)
{
        const struct remote_io *io = &q->task->io;

        if (q->step == STEP_ASK)
                put_keys(w, "EXISTS", q->op);
        q->ask_len = (uint32_t)w->len;
        put_head(w, io, q->op);
        q->head_len = (uint32_t)w->len - q->ask_len;
        put_tail(w, io, q->op);
        q->tail_len = (uint32_t)w->len - q->ask_len - q->head_len;
}

int remote_request_init(struct remote_request *q, struct remote_task *t, uint32_t i, unsigned slot)
{
        struct remote_op *op = &t->io.ops[i];
        struct resp_writer w = {0};

        *q = (struct remote_request){.task = t,
                .op = op,
                .slot = (uint16_t)slot,
                .node = REMOTE_NO_NODE,
                .deadline_nsec = t->io.deadline_nsec,
                .step = t->io.kind == REMOTE_WRITE && op->asks_first ? STEP_ASK : STEP_ONLY,
                .value_bytes = remote_kind_has_value(t->io.kind) ? remote_value_bytes(op) : 0};
        list_init(&q->live);
        list_init(&q->link);
        put_all(q, &w);
        q->text = malloc(w.len);
        if (!q->text)
                return -ENOMEM;
        w = (struct resp_writer){.data = q->text, .size = w.len};
        put_all(q, &w);
        return 0;
}

static bool sends_value(const struct remote_request *q)
{
        return q->task && q->task->io.kind == REMOTE_WRITE && q->step == STEP_ONLY;
}

uint64_t remote_request_length(const struct remote_request *q)
{
        if (q->step == STEP_ASK)
                return q->ask_len;
        return q->head_len + q->tail_len + (sends_value(q) ? q->value_bytes : 0);
}

uint64_t remote_request_cost(const struct remote_request *q)
{
        return SMALL_COST + (q->step == STEP_ASK ? q->ask_len : q->head_len + q->value_bytes);
}

int remote_request_prepare(struct remote_request *q)
{
        if (!sends_value(q) || q->is_prepared || !q->op->on_value)
                return 0;
        q->is_prepared = true;
        return q->op->on_value(q->op, q->op->value_data);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

unsigned remote_iov_gather(const struct iovec *from, unsigned n_from, uint64_t at, uint64_t bytes,
        struct iovec *iov, unsigned max)
{
        unsigned n = 0;

        for (unsigned i = 0; i < n_from && bytes > 0 && n < max; i++) {
                uint64_t len = from[i].iov_len;

                if (at >= len) {
                        at -= len;
                        continue;
                }
                iov[n].iov_base = (char *)from[i].iov_base + at;
                iov[n].iov_len = MIN(len - at, bytes);
                bytes -= iov[n++].iov_len;
                at = 0;
        }
        return n;
}

unsigned remote_request_gather(
        const struct remote_request *q, uint64_t at, struct iovec *iov, unsigned max)
{
        char *head = q->text + (q->step == STEP_ASK ? 0 : q->ask_len);
        uint64_t head_len = q->step == STEP_ASK ? q->ask_len : q->head_len;
        uint64_t value_len = sends_value(q) ? q->value_bytes : 0, tail_at;
        unsigned n = 0;

        if (at < head_len && n < max)
                iov[n++] = (struct iovec){head + at, head_len - at};
        at = minus_u64(at, head_len);
        if (at < value_len)
                n += remote_iov_gather(
                        q->op->iov, q->op->n_iov, at, value_len - at, iov + n, max - n);
        tail_at = minus_u64(at, value_len);
        if (q->step == STEP_ONLY && tail_at < q->tail_len && n < max)
                iov[n++] = (struct iovec){head + head_len + tail_at, q->tail_len - tail_at};
        return n;
}

/* ---- the end --------------------------------------------------------------------------------- */

void remote_request_end(struct remote_request *q, int result)
{
        struct remote_client *s = q->worker->store;
        struct remote_task *t = q->task;

        list_remove(&q->live);
        list_remove(&q->link);
        if (q->is_trial && q->conn)
                remote_node_give_back(s, q->conn->node);
        q->conn = NULL;
        if (!t) {
                remote_refresh_end(s, q, result);
                return;
        }
        q->op->result = result;
        pthread_mutex_lock(&s->of.lock);
        q->worker->n_outstanding--;
        q->worker->bytes -= q->value_bytes;
        if (t->io.kind == REMOTE_READ)
                *(result == 0 ? &s->stats.n_hits : &s->stats.n_misses) += 1;
        if (t->io.kind == REMOTE_WRITE && result == 0)
                s->stats.n_written++;
        if (t->io.kind == REMOTE_WRITE && (result == -ENOSPC || result == -EACCES))
                s->stats.n_refused++;
        pthread_mutex_unlock(&s->of.lock);
        remote_op_done(&s->of, t);
}
