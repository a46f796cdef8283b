#include "daemon/remote/io/remote-io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "daemon/remote/io/remote-store.h"
#include "daemon/remote/protocol/slots.h"

#define EXPIRY_MAX_MSEC (UINT64_C(365) * 24 * 3600 * 1000)

/* ---- checks ---------------------------------------------------------------------------------- */

uint64_t remote_value_bytes(const struct remote_op *op)
{
        uint64_t sum = 0;

        if (!op->iov || op->n_iov == 0 || op->n_iov > REMOTE_IOV_MAX)
                return 0;
        for (unsigned i = 0; i < op->n_iov; i++) {
                if (op->iov[i].iov_len > REMOTE_VALUE_MAX - sum)
                        return 0;
                sum += op->iov[i].iov_len;
        }
        return sum;
}

static int check_keys(const struct remote_op *op, unsigned n_max, uint16_t *ret_slot)
{
        unsigned slot = 0;

        if (!op->keys || op->n_keys == 0 || op->n_keys > n_max)
                return -EINVAL;
        for (unsigned i = 0; i < op->n_keys; i++) {
                const struct iovec *key = &op->keys[i];
                unsigned of_key;

                if (key->iov_len == 0 || key->iov_len > REMOTE_KEY_MAX)
                        return -EINVAL;
                of_key = slot_of_key(key->iov_base, key->iov_len);
                if (i > 0 && of_key != slot)
                        return -EXDEV;
                slot = of_key;
        }
        *ret_slot = (uint16_t)slot;
        return 0;
}

static int check_op(const struct remote_io *io, const struct remote_op *op, uint16_t *ret_slot)
{
        const bool has_value = remote_kind_has_value(io->kind);

        if (has_value && remote_value_bytes(op) == 0)
                return -EINVAL;
        if (io->kind == REMOTE_WRITE && (op->expiry_msec == 0 || op->expiry_msec > EXPIRY_MAX_MSEC))
                return -EINVAL;
        return check_keys(op, has_value ? 1 : REMOTE_KEYS_MAX, ret_slot);
}

/* ---- batches --------------------------------------------------------------------------------- */

struct remote_io *remote_io_new(uint32_t n)
{
        struct remote_task *t;

        if (n == 0 || n > REMOTE_OPS_MAX)
                return NULL;
        t = calloc(1, sizeof(*t) + n * sizeof(struct remote_op));
        if (!t)
                return NULL;
        list_init(&t->link);
        t->io.n = n;
        return &t->io;
}

void remote_io_free(struct remote_io *io)
{
        if (io)
                free(remote_task_of(io));
}

int remote_submit(struct remote_store *s, struct remote_io *io)
{
        struct remote_task *t = remote_task_of(io);
        uint64_t latest = clock_now_nsec() + REMOTE_DEADLINE_MAX_NSEC;
        uint16_t slots[REMOTE_OPS_MAX];
        int r = 0;

        if (s->is_closing)
                return -ESHUTDOWN;
        if (!io->done || (unsigned)io->kind > REMOTE_TOUCH ||
                (unsigned)io->of_class > REMOTE_LARGE || io->deadline_nsec == 0)
                return -EINVAL;
        if (io->n > s->max_ops - s->n_waiting)
                return REMOTE_BUSY;
        for (uint32_t i = 0; i < io->n && r == 0; i++)
                r = check_op(io, &io->ops[i], &slots[i]);
        if (r < 0)
                return r;
        io->deadline_nsec = MIN(io->deadline_nsec, latest);
        atomic_store(&t->n_left, io->n);
        r = s->ops->begin(s, t, slots);
        if (r == 0)
                s->n_waiting += io->n;
        return r;
}

unsigned remote_room(const struct remote_store *s)
{
        return s->max_ops - s->n_waiting;
}

void remote_cancel(struct remote_store *s, struct remote_io *io)
{
        struct remote_task *t = remote_task_of(io);

        if (s->is_closing) /* the threads have ended: its result is there */
                return;
        atomic_store(&t->is_canceled, true);
        s->ops->cancel(s, t);
}

void remote_take_back(struct remote_store *s, struct remote_io *io)
{
        const struct remote_task *t = remote_task_of(io);

        remote_cancel(s, io);
        if (s->is_closing)
                return;
        pthread_mutex_lock(&s->lock);
        while (atomic_load(&t->n_left) > 0)
                pthread_cond_wait(&s->is_done, &s->lock);
        pthread_mutex_unlock(&s->lock);
}

void remote_op_done(struct remote_store *s, struct remote_task *t)
{
        const uint64_t once = 1;
        bool rings;

        if (atomic_fetch_sub(&t->n_left, 1) > 1)
                return;
        pthread_mutex_lock(&s->lock);
        list_append(&s->done, &t->link);
        pthread_cond_signal(&s->is_done);
        rings = !s->is_rung;
        s->is_rung = true;
        pthread_mutex_unlock(&s->lock);
        if (rings)
                (void)!write(s->event_fd, &once, sizeof(once));
}

int remote_fd(const struct remote_store *s)
{
        return s->event_fd;
}

unsigned remote_reap(struct remote_store *s)
{
        struct list_link done;
        struct remote_task *t;
        unsigned n = 0;
        uint64_t times;

        /* Before the list is taken: later completions ring again. */
        (void)!read(s->event_fd, &times, sizeof(times));
        pthread_mutex_lock(&s->lock);
        s->is_rung = false;
        list_take_all(&s->done, &done);
        pthread_mutex_unlock(&s->lock);
        while ((t = list_first(&done, struct remote_task, link))) {
                list_remove(&t->link);
                s->n_waiting -= t->io.n;
                t->io.done(&t->io, t->io.data);
                if (s->ops->free_work)
                        s->ops->free_work(t);
                free(t);
                n++;
        }
        return n;
}

/* ---- the store ------------------------------------------------------------------------------- */

int remote_store_init(struct remote_store *s, const struct remote_ops *ops, unsigned max_ops)
{
        s->ops = ops;
        s->max_ops = max_ops;
        pthread_mutex_init(&s->lock, NULL);
        pthread_cond_init(&s->is_done, NULL);
        list_init(&s->done);
        s->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        return s->event_fd < 0 ? -errno : 0;
}

void remote_store_deinit(struct remote_store *s)
{
        fd_close(s->event_fd);
        pthread_cond_destroy(&s->is_done);
        pthread_mutex_destroy(&s->lock);
}

void remote_close(struct remote_store *s)
{
        if (!s)
                return;
        s->is_closing = true;
        s->ops->stop(s);
        if (s->event_fd >= 0)
                (void)remote_reap(s);
        remote_store_deinit(s);
        s->ops->free(s);
}

/* ---- figures --------------------------------------------------------------------------------- */

void remote_stats(struct remote_store *s, struct remote_stats *ret_stats)
{
        s->ops->stats(s, ret_stats);
        ret_stats->n_waiting = s->n_waiting;
}

unsigned remote_descriptors(struct remote_store *s)
{
        return 1 + s->ops->descriptors(s);
}

bool remote_node_next(struct remote_store *s, unsigned *iter, struct remote_node_stats *ret_stats)
{
        return s->ops->node_next(s, iter, ret_stats);
}

const char *remote_state_name(enum remote_state state)
{
        static const char *const names[] = {
                [REMOTE_UNKNOWN] = "unknown",
                [REMOTE_REACHED] = "reached",
                [REMOTE_UNREACHED] = "unreached",
        };

        return names[state];
}

const char *remote_error_text(int error)
{
        switch (error) {
        case -EACCES:
                return "kvleased isn't let in (user, secret_file)";
        case -EKEYREJECTED:
                return "the certificate isn't believed (tls_ca, tls_host)";
        default:
                return strerror(-error);
        }
}

const char *remote_summary_why(const struct remote_summary *summary)
{
        if (summary->fault[0])
                return summary->fault;
        return summary->last_error < 0 ? remote_error_text(summary->last_error) : "";
}

void remote_summary(struct remote_store *s, struct remote_summary *ret_summary)
{
        struct remote_summary *sum = ret_summary;
        struct remote_node_stats node;
        struct remote_stats stats;
        unsigned iter = 0;

        *sum = (struct remote_summary){.state = REMOTE_UNKNOWN};
        remote_stats(s, &stats);
        memcpy(sum->fault, stats.fault, sizeof(stats.fault));
        while (remote_node_next(s, &iter, &node)) {
                sum->n_nodes++;
                sum->rtt_nsec = MAX(sum->rtt_nsec, node.rtt_nsec);
                if (node.breaker == BREAKER_CLOSED)
                        continue;
                sum->n_left_alone++;
                sum->last_error = node.last_error;
                memcpy(sum->left_alone, node.name, sizeof(node.name));
        }
        if (sum->n_left_alone == sum->n_nodes)
                sum->state = REMOTE_UNREACHED;
        else if (stats.is_known)
                sum->state = REMOTE_REACHED;
}
