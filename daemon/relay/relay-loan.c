/* Operations that kvlease-exchange has. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/relay/relay-impl.h"

/* Copies the keys: they are the caller's again after the submission. Returns 0 or -ENOMEM. */
static int copy_keys(struct relay_loan *n)
{
        const struct remote_io *io = &n->task->io;
        size_t bytes = 0;

        for (uint32_t i = 0; i < io->n; i++)
                for (unsigned k = 0; k < io->ops[i].n_keys; k++)
                        bytes += sizeof(uint16_t) + io->ops[i].keys[k].iov_len;
        if (bytes > RELAY_MESSAGE_MAX)
                return -ENOMEM;
        n->keys = malloc(bytes);
        if (!n->keys)
                return -ENOMEM;
        bytes = 0;
        for (uint32_t i = 0; i < io->n; i++) {
                n->rows[i].keys_at = (uint32_t)bytes;
                for (unsigned k = 0; k < io->ops[i].n_keys; k++) {
                        const uint16_t len = (uint16_t)io->ops[i].keys[k].iov_len;

                        memcpy(n->keys + bytes, &len, sizeof(len));
                        memcpy(n->keys + bytes + sizeof(len), io->ops[i].keys[k].iov_base, len);
                        bytes += sizeof(len) + len;
                }
                n->rows[i].keys_bytes = (uint32_t)bytes - n->rows[i].keys_at;
        }
        return 0;
}

struct relay_loan *relay_loan_new(struct remote_task *t, uint64_t id)
{
        struct relay_loan *n = calloc(1, sizeof(*n) + t->io.n * sizeof(n->rows[0]));

        if (!n)
                return NULL;
        list_init(&n->link);
        n->task = t;
        n->id = id;
        n->n = t->io.n;
        n->deadline_nsec = t->io.deadline_nsec;
        for (uint32_t i = 0; i < n->n && remote_kind_has_value(t->io.kind); i++) {
                n->rows[i].bytes = remote_value_bytes(&t->io.ops[i]);
                n->value_bytes += n->rows[i].bytes;
        }
        if (copy_keys(n) == 0)
                return n;
        free(n);
        return NULL;
}

/* ---- values ---------------------------------------------------------------------------------- */

static void copy_to_arena(const struct remote_op *op, uint8_t *to)
{
        for (unsigned i = 0; i < op->n_iov; i++) {
                memcpy(to, op->iov[i].iov_base, op->iov[i].iov_len);
                to += op->iov[i].iov_len;
        }
}

/* Copies `bytes` bytes, at most those of the buffers. */
static void copy_from_arena(const struct remote_op *op, const uint8_t *from, uint64_t bytes)
{
        for (unsigned i = 0; i < op->n_iov && bytes > 0; i++) {
                uint64_t n = MIN(bytes, (uint64_t)op->iov[i].iov_len);

                memcpy(op->iov[i].iov_base, from, n);
                from += n;
                bytes -= n;
        }
}

/* ---- the message ----------------------------------------------------------------------------- */

static uint32_t flags_of(const struct remote_op *op)
{
        return (op->asks_first ? RELAY_ASKS_FIRST : 0) | (op->only_new ? RELAY_ONLY_NEW : 0) |
               (op->only_once ? RELAY_ONLY_ONCE : 0);
}

/* Bytes of what follows the struct relay_begin. */
static size_t tail_bytes(const struct relay_loan *n)
{
        size_t bytes = n->n_sent * sizeof(struct relay_op);

        for (uint32_t i = 0; i < n->n; i++)
                bytes += n->rows[i].is_sent ? n->rows[i].keys_bytes : 0;
        return bytes;
}

static void write_tail(const struct relay_loan *n, uint8_t *at)
{
        for (uint32_t i = 0; i < n->n; i++) {
                const struct remote_op *op = &n->task->io.ops[i];
                const struct relay_op row = {.n_keys = op->n_keys,
                        .flags = flags_of(op),
                        .expiry_msec = op->expiry_msec,
                        .value_at = n->rows[i].at,
                        .value_bytes = n->rows[i].bytes};

                if (!n->rows[i].is_sent)
                        continue;
                memcpy(at, &row, sizeof(row));
                at += sizeof(row);
        }
        for (uint32_t i = 0; i < n->n; i++) {
                if (!n->rows[i].is_sent)
                        continue;
                memcpy(at, n->keys + n->rows[i].keys_at, n->rows[i].keys_bytes);
                at += n->rows[i].keys_bytes;
        }
}

/* Returns 0 or -errno. */
static int put_begin(struct relay_lane *l, const struct relay_loan *n, uint64_t now_nsec)
{
        const struct remote_io *io = &n->task->io;
        const struct relay_begin begin = {.kind = io->kind,
                .of_class = io->of_class,
                .n = n->n_sent,
                .left_nsec = n->deadline_nsec - now_nsec};
        const size_t bytes = tail_bytes(n);
        uint8_t *tail = malloc(bytes);
        int r;

        if (!tail)
                return -ENOMEM;
        write_tail(n, tail);
        r = relay_channel_put(&l->channel, RELAY_BEGIN, n->id,
                (const struct iovec[]){{(void *)&begin, sizeof(begin)}, {tail, bytes}}, 2);
        free(tail);
        return r;
}

/* ---- out ------------------------------------------------------------------------------------- */

/* Gives each operation its place. A value that can't be sealed isn't sent. */
static void prepare(struct relay_lane *l, struct relay_loan *n)
{
        uint64_t at = n->place.at;

        for (uint32_t i = 0; i < n->n; i++) {
                struct remote_op *op = &n->task->io.ops[i];
                struct relay_row *row = &n->rows[i];

                row->at = at;
                at += row->bytes;
                if (n->task->io.kind == REMOTE_WRITE)
                        op->result = op->on_value ? op->on_value(op, op->value_data) : 0;
                row->is_sent = op->result == 0;
                n->n_sent += row->is_sent;
                if (row->is_sent && n->task->io.kind == REMOTE_WRITE)
                        copy_to_arena(op, l->arena.at + row->at);
        }
}

static void free_loan(struct relay_lane *l, struct relay_loan *n)
{
        relay_arena_give_back(&l->arena, &n->place, clock_now_nsec());
        (void)map_remove(&l->by_id, n->id);
        list_remove(&n->link);
        atomic_fetch_sub(&l->bytes, n->value_bytes);
        free(n->keys);
        free(n);
}

/* So many operations of the batch have their result now. It may be gone with the last one. */
static void end_ops(struct relay_lane *l, struct remote_task *t, uint32_t n_ops)
{
        for (uint32_t i = 0; i < n_ops; i++)
                remote_op_done(&l->relay->of, t);
}

/* Ends the operations that were sent, or all if none was. */
static void end_batch(struct relay_lane *l, struct relay_loan *n, int result)
{
        const uint32_t n_ops = n->n_sent > 0 ? n->n_sent : n->n;
        struct remote_task *t = TAKE(n->task);

        for (uint32_t i = 0; i < n->n; i++)
                if (n->n_sent == 0 || n->rows[i].is_sent)
                        t->io.ops[i].result = result;
        end_ops(l, t, n_ops);
}

int relay_loan_send(struct relay_lane *l, struct relay_loan *n)
{
        const uint64_t now_nsec = clock_now_nsec();
        struct remote_task *t = n->task;
        uint32_t n_failed;
        int r = 0;

        if (n->deadline_nsec <= now_nsec) {
                relay_loan_end(l, n, -ETIMEDOUT);
                return 0;
        }
        if (n->value_bytes > 0 && relay_arena_take(&l->arena, n->value_bytes, &n->place) < 0)
                return -EAGAIN;
        prepare(l, n);
        n_failed = n->n - n->n_sent;
        if (n->n_sent > 0) {
                r = map_put(&l->by_id, n->id, (uintptr_t)n);
                if (r == 0)
                        r = put_begin(l, n, now_nsec);
                list_remove(&n->link);
                list_append(&l->live, &n->link);
                free(TAKE(n->keys)); /* the message has them; it may be given up for a minute */
                if (r < 0)
                        relay_loan_end(l, n, r);
        } else {
                free_loan(l, n);
        }
        end_ops(l, t, n_failed);
        return 0;
}

/* ---- ends ------------------------------------------------------------------------------------ */

void relay_loan_end(struct relay_lane *l, struct relay_loan *n, int result)
{
        if (n->task)
                end_batch(l, n, result);
        free_loan(l, n);
}

void relay_loan_give_up(struct relay_lane *l, struct relay_loan *n, int result)
{
        end_batch(l, n, result);
        /* kvlease-exchange has to return it from now on. */
        n->deadline_nsec = MIN(n->deadline_nsec, clock_now_nsec());
        list_remove(&n->link);
        list_append(&l->given_up, &n->link);
}

/* Takes over what kvlease-exchange said of an operation, which may be anything. */
static int take_result(struct relay_lane *l, struct remote_op *op, const struct relay_row *row,
        bool is_read, const struct relay_result *found)
{
        op->n_found = MIN(found->n_found, op->n_keys);
        op->n_bytes = found->n_bytes;
        if (found->result > 0 || found->result < -4095)
                return -EREMOTEIO;
        if (!is_read || found->result < 0)
                return found->result;
        if (found->n_bytes > row->bytes)
                return -EREMOTEIO;
        copy_from_arena(op, l->arena.at + row->at, found->n_bytes);
        return op->on_value ? op->on_value(op, op->value_data) : 0;
}

int relay_loan_take_done(struct relay_lane *l, const struct relay_message *m)
{
        const uint64_t *found = map_find(&l->by_id, m->head.id);
        struct relay_loan *n = found ? (struct relay_loan *)(uintptr_t)*found : NULL;
        const uint8_t *at = m->bytes;
        struct remote_task *t;
        uint32_t n_sent;

        if (!n || m->head.bytes != n->n_sent * sizeof(struct relay_result))
                return -EPROTO;
        t = n->task;
        n_sent = n->n_sent;
        for (uint32_t i = 0; t && i < n->n; i++) {
                struct remote_op *op = &t->io.ops[i];
                struct relay_result row;

                if (!n->rows[i].is_sent)
                        continue;
                memcpy(&row, at, sizeof(row));
                at += sizeof(row);
                op->result = take_result(l, op, &n->rows[i], t->io.kind == REMOTE_READ, &row);
        }
        free_loan(l, n);
        if (t)
                end_ops(l, t, n_sent);
        return 0;
}
