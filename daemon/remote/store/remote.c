#include "daemon/remote/store/remote.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/macros.h"
#include "daemon/remote/endpoint/remote-resolve.h"
#include "daemon/remote/store/remote-impl.h"

#define DEFAULT_LARGE_THREADS 2
#define DEFAULT_MAX_OPS       8192
#define DEFAULT_SILENCE_MSEC  500

/* ---- batches ----------------------------------------------------------------------------------
 */

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

static void requests_free(struct remote_task *t)
{
        for (uint32_t i = 0; t->requests && i < t->io.n; i++)
                free(t->requests[i].text);
        free(t->requests);
        t->requests = NULL;
}

void remote_io_free(struct remote_io *io)
{
        if (!io)
                return;
        requests_free(remote_task_of(io));
        free(remote_task_of(io));
}

/* 0 or -errno, with nothing done. */
static int task_prepare(struct remote_task *t)
{
        int r = 0;

        t->requests = calloc(t->io.n, sizeof(*t->requests));
        if (!t->requests)
                return -ENOMEM;
        for (uint32_t i = 0; i < t->io.n && r == 0; i++) {
                unsigned slot = 0;

                r = remote_op_check(&t->io, &t->io.ops[i], &slot);
                if (r == 0)
                        r = remote_request_init(&t->requests[i], t, i, slot);
        }
        if (r < 0)
                requests_free(t);
        return r;
}

/* Chooses the worker: for large operations, the one with the fewest bytes. With the lock held. */
static struct remote_worker *worker_choose(struct remote_store *s, enum remote_class of_class)
{
        struct remote_worker *best = s->workers[1];

        if (of_class == REMOTE_SMALL)
                return s->workers[0];
        for (unsigned i = 2; i < s->n_workers; i++) {
                struct remote_worker *w = s->workers[i];

                if (w->bytes < best->bytes ||
                        (w->bytes == best->bytes && w->n_outstanding < best->n_outstanding))
                        best = w;
        }
        return best;
}

static void task_hand_out(struct remote_store *s, struct remote_task *t)
{
        bool wakes[REMOTE_WORKERS_MAX] = {0};

        /* Callbacks of others can't run meanwhile, but results can come. */
        pthread_mutex_lock(&s->lock);
        for (uint32_t i = 0; i < t->io.n; i++) {
                struct remote_request *q = &t->requests[i];
                struct remote_worker *w = worker_choose(s, t->io.of_class);

                q->worker = w;
                w->n_outstanding++;
                w->bytes += q->value_bytes;
                for (unsigned k = 0; k < s->n_workers; k++)
                        wakes[k] |= s->workers[k] == w && list_is_empty(&w->inbox);
                list_append(&w->inbox, &q->link);
        }
        pthread_mutex_unlock(&s->lock);
        for (unsigned k = 0; k < s->n_workers; k++)
                if (wakes[k])
                        remote_worker_wake(s->workers[k]);
}

int remote_submit(struct remote_store *s, struct remote_io *io)
{
        struct remote_task *t = remote_task_of(io);
        uint64_t latest = clock_now_nsec() + REMOTE_DEADLINE_MAX_NSEC;
        int r;

        if (s->is_closing)
                return -ESHUTDOWN;
        if (!io->done || (unsigned)io->kind > REMOTE_TOUCH ||
                (unsigned)io->of_class > REMOTE_LARGE || io->deadline_nsec == 0)
                return -EINVAL;
        if (io->n > s->max_ops - s->n_waiting)
                return REMOTE_BUSY;
        r = task_prepare(t);
        if (r < 0)
                return r;
        for (uint32_t i = 0; i < io->n; i++)
                t->requests[i].deadline_nsec = MIN(io->deadline_nsec, latest);
        atomic_store(&t->n_left, io->n);
        s->n_waiting += io->n;
        task_hand_out(s, t);
        return 0;
}

unsigned remote_room(const struct remote_store *s)
{
        return s->max_ops - s->n_waiting;
}

void remote_cancel(struct remote_store *s, struct remote_io *io)
{
        struct remote_task *t = remote_task_of(io);

        /* Its result is there, or will be; whom to wake isn't. */
        if (s->is_closing)
                return;
        atomic_store(&t->is_canceled, true);
        if (io->of_class == REMOTE_SMALL)
                remote_worker_wake(s->workers[0]);
        for (unsigned i = 1; io->of_class == REMOTE_LARGE && i < s->n_workers; i++)
                remote_worker_wake(s->workers[i]);
}

void remote_take_back(struct remote_store *s, struct remote_io *io)
{
        const struct remote_task *t = remote_task_of(io);

        remote_cancel(s, io);
        if (s->is_closing) /* the threads have ended */
                return;
        pthread_mutex_lock(&s->lock);
        while (atomic_load(&t->n_left) > 0)
                pthread_cond_wait(&s->is_done, &s->lock);
        pthread_mutex_unlock(&s->lock);
}

void remote_task_done(struct remote_store *s, struct remote_task *t)
{
        const uint64_t once = 1;
        bool rings;

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
                remote_io_free(&t->io);
                n++;
        }
        return n;
}

/* ---- the store --------------------------------------------------------------------------------
 */

static int commands_init(struct remote_store *s, const struct remote_options *o)
{
        const char *const slots[] = {"CLUSTER", "SLOTS", NULL};
        const char *const named[] = {"AUTH", o->user, o->secret, NULL};
        const char *const unnamed[] = {"AUTH", o->secret, NULL};

        s->slots_text = resp_command_new(slots, &s->slots_len);
        if (s->slots_text && o->secret)
                s->auth = resp_command_new(o->user ? named : unnamed, &s->auth_len);
        return s->slots_text && (s->auth || !o->secret) ? 0 : -ENOMEM;
}

static void seeds_add(struct remote_store *s, const struct remote_options *o)
{
        for (unsigned i = 0; i < o->n_addresses; i++) {
                struct sockaddr_storage address;
                socklen_t len;
                char host[256];
                uint16_t port;

                if (remote_address_split(o->addresses[i], host, &port) &&
                        remote_address_parse(host, port, &address, &len))
                        remote_node_add_seed(s, (const struct sockaddr *)&address, true);
        }
}

/* In the resolver's thread. */
static void add_resolved(const struct sockaddr *address, void *data)
{
        remote_node_add_seed(data, address, false);
}

static int workers_start(struct remote_store *s)
{
        int r = 0;

        for (unsigned i = 0; i < s->n_workers && r == 0; i++)
                r = remote_worker_new(s, &s->workers[i]);
        for (unsigned i = 0; i < s->n_workers && r == 0; i++)
                r = remote_worker_start(s->workers[i]);
        return r;
}

static int store_init(
        struct remote_store *s, const struct remote_options *o, char why[REMOTE_WHY_BYTES])
{
        unsigned n_large = o->large_threads ? o->large_threads : DEFAULT_LARGE_THREADS;
        int r;

        pthread_mutex_init(&s->lock, NULL);
        pthread_cond_init(&s->is_done, NULL);
        list_init(&s->done);
        for (unsigned slot = 0; slot < N_SLOTS; slot++)
                s->node_of[slot] = REMOTE_NO_NODE;
        s->n_workers = 1 + n_large;
        s->max_ops = o->max_ops ? o->max_ops : DEFAULT_MAX_OPS;
        s->connect_msec = o->connect_msec ? o->connect_msec : REMOTE_CONNECT_MSEC;
        s->silence_msec = o->silence_msec ? o->silence_msec : DEFAULT_SILENCE_MSEC;
        s->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (s->event_fd < 0)
                return -errno;
        r = commands_init(s, o);
        if (r == 0)
                r = remote_refresh_new(&s->refresh);
        if (r == 0 && o->is_tls)
                r = remote_tls_new(o, &s->tls, why);
        if (r == 0)
                seeds_add(s, o);
        if (r == 0)
                r = workers_start(s);
        if (r == 0)
                r = remote_resolver_start(o, add_resolved, s, &s->resolver);
        return r;
}

/* Wipes and frees the secret. */
static void auth_free(struct remote_store *s)
{
        if (s->auth)
                explicit_bzero(s->auth, s->auth_len);
        free(s->auth);
}

void remote_close(struct remote_store *s)
{
        if (!s)
                return;
        s->is_closing = true;
        remote_resolver_stop(s->resolver);
        /* The first one last: the others wake it. */
        for (unsigned i = s->n_workers; i-- > 0;)
                remote_worker_stop(s->workers[i]);
        if (s->event_fd >= 0)
                (void)remote_reap(s);
        fd_close(s->event_fd);
        remote_tls_free(s->tls);
        auth_free(s);
        free(s->slots_text);
        free(s->refresh);
        pthread_cond_destroy(&s->is_done);
        pthread_mutex_destroy(&s->lock);
        free(s);
}

int remote_open(const struct remote_options *options, struct remote_store **ret_store,
        char why[REMOTE_WHY_BYTES])
{
        struct remote_store *s;
        int r;

        why[0] = '\0';
        r = remote_options_check(options, why);
        if (r < 0)
                return r;
        s = calloc(1, sizeof(*s));
        if (!s) {
                snprintf(why, REMOTE_WHY_BYTES,
                        "no memory for the client of a Redis or Valkey cluster");
                return -ENOMEM;
        }
        s->event_fd = -1;
        r = store_init(s, options, why);
        if (r < 0) {
                remote_close(s);
                if (!why[0])
                        snprintf(why, REMOTE_WHY_BYTES,
                                "the client of a Redis or Valkey cluster can't start: %s",
                                strerror(-r));
                return r;
        }
        *ret_store = s;
        return 0;
}

/* ---- figures ----------------------------------------------------------------------------------
 */

void remote_stats(struct remote_store *s, struct remote_stats *ret_stats)
{
        pthread_mutex_lock(&s->lock);
        *ret_stats = s->stats;
        ret_stats->n_nodes = 0;
        for (unsigned i = 0; i < s->n_nodes; i++)
                ret_stats->n_nodes += s->nodes[i].is_used && s->nodes[i].is_listed;
        pthread_mutex_unlock(&s->lock);
        ret_stats->n_waiting = s->n_waiting;
}

#define PER_WORKER 2 /* its epoll and its event descriptor */

unsigned remote_descriptors(struct remote_store *s)
{
        unsigned n = 1 + PER_WORKER * s->n_workers;

        pthread_mutex_lock(&s->lock);
        for (unsigned i = 0; i < s->n_nodes; i++) {
                const struct remote_node *node = &s->nodes[i];

                if (node->is_used)
                        n += node->is_listed || node->is_seed ? s->n_workers : node->n_conns;
        }
        pthread_mutex_unlock(&s->lock);
        return n;
}

bool remote_node_next(struct remote_store *s, unsigned *iter, struct remote_node_stats *ret_stats)
{
        bool is_found = false;

        pthread_mutex_lock(&s->lock);
        while (!is_found && *iter < s->n_nodes) {
                const struct remote_node *n = &s->nodes[(*iter)++];

                if (!n->is_used || !(n->is_listed || n->is_seed))
                        continue;
                *ret_stats = n->stats;
                ret_stats->breaker = n->breaker.state;
                ret_stats->open_nsec = n->breaker.open_nsec;
                ret_stats->open_until_nsec = n->breaker.until_nsec;
                is_found = true;
        }
        pthread_mutex_unlock(&s->lock);
        return is_found;
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

void remote_summary(struct remote_store *s, struct remote_summary *ret_summary)
{
        struct remote_summary *sum = ret_summary;
        struct remote_node_stats node;
        struct remote_stats stats;
        unsigned iter = 0;

        *sum = (struct remote_summary){.state = REMOTE_UNKNOWN};
        remote_stats(s, &stats);
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
