#include "daemon/remote/store/remote.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/parse.h"
#include "daemon/remote/endpoint/remote-resolve.h"
#include "daemon/remote/store/remote-impl.h"

#define DEFAULT_LARGE_THREADS 2
#define DEFAULT_MAX_OPS       8192
#define DEFAULT_SILENCE_MSEC  500

/* ---- batches --------------------------------------------------------------------------------- */

static struct remote_client *client_of(struct remote_store *of)
{
        return container_of(of, struct remote_client, of);
}

static void free_requests(struct remote_task *t)
{
        struct remote_request *requests = t->work;

        for (uint32_t i = 0; requests && i < t->io.n; i++)
                free(requests[i].text);
        free(requests);
        t->work = NULL;
}

/* 0 or -errno, with nothing done. */
static int prepare_task(struct remote_task *t, const uint16_t *slots)
{
        struct remote_request *requests = calloc(t->io.n, sizeof(*requests));
        int r = 0;

        t->work = requests;
        if (!requests)
                return -ENOMEM;
        for (uint32_t i = 0; i < t->io.n && r == 0; i++)
                r = remote_request_init(&requests[i], t, i, slots[i]);
        for (uint32_t i = 0; i < t->io.n && r == 0; i++)
                requests[i].deadline_nsec = t->io.deadline_nsec;
        if (r < 0)
                free_requests(t);
        return r;
}

/* Chooses the worker: for large operations, the one with the fewest bytes. With the lock held. */
static struct remote_worker *worker_choose(struct remote_client *s, enum remote_class of_class)
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

static void task_hand_out(struct remote_client *s, struct remote_task *t)
{
        struct remote_request *requests = t->work;
        bool wakes[REMOTE_WORKERS_MAX] = {0};

        /* Callbacks of others can't run meanwhile, but results can come. */
        pthread_mutex_lock(&s->of.lock);
        for (uint32_t i = 0; i < t->io.n; i++) {
                struct remote_request *q = &requests[i];
                struct remote_worker *w = worker_choose(s, t->io.of_class);

                q->worker = w;
                w->n_outstanding++;
                w->bytes += q->value_bytes;
                for (unsigned k = 0; k < s->n_workers; k++)
                        wakes[k] |= s->workers[k] == w && list_is_empty(&w->inbox);
                list_append(&w->inbox, &q->link);
        }
        pthread_mutex_unlock(&s->of.lock);
        for (unsigned k = 0; k < s->n_workers; k++)
                if (wakes[k])
                        remote_worker_wake(s->workers[k]);
}

static int begin_task(struct remote_store *of, struct remote_task *t, const uint16_t *slots)
{
        int r = prepare_task(t, slots);

        if (r == 0)
                task_hand_out(client_of(of), t);
        return r;
}

static void cancel_task(struct remote_store *of, struct remote_task *t)
{
        struct remote_client *s = client_of(of);

        if (t->io.of_class == REMOTE_SMALL)
                remote_worker_wake(s->workers[0]);
        for (unsigned i = 1; t->io.of_class == REMOTE_LARGE && i < s->n_workers; i++)
                remote_worker_wake(s->workers[i]);
}

/* ---- the store ------------------------------------------------------------------------------- */

static int commands_init(struct remote_client *s, const struct remote_options *o)
{
        const char *const slots[] = {"CLUSTER", "SLOTS", NULL};
        const char *const named[] = {"AUTH", o->user, o->secret, NULL};
        const char *const unnamed[] = {"AUTH", o->secret, NULL};

        s->slots_text = resp_command_new(slots, &s->slots_len);
        if (s->slots_text && o->secret)
                s->auth = resp_command_new(o->user ? named : unnamed, &s->auth_len);
        return s->slots_text && (s->auth || !o->secret) ? 0 : -ENOMEM;
}

static void seeds_add(struct remote_client *s, const struct remote_options *o)
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

static int workers_start(struct remote_client *s)
{
        int r = 0;

        for (unsigned i = 0; i < s->n_workers && r == 0; i++)
                r = remote_worker_new(s, &s->workers[i]);
        for (unsigned i = 0; i < s->n_workers && r == 0; i++)
                r = remote_worker_start(s->workers[i]);
        return r;
}

static int store_init(
        struct remote_client *s, const struct remote_options *o, char why[REMOTE_WHY_BYTES])
{
        unsigned n_large = o->large_threads ? o->large_threads : DEFAULT_LARGE_THREADS;
        int r;

        for (unsigned slot = 0; slot < N_SLOTS; slot++)
                s->node_of[slot] = REMOTE_NO_NODE;
        s->n_workers = 1 + n_large;
        s->connect_msec = o->connect_msec ? o->connect_msec : REMOTE_CONNECT_MSEC;
        s->silence_msec = o->silence_msec ? o->silence_msec : DEFAULT_SILENCE_MSEC;
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
static void auth_free(struct remote_client *s)
{
        if (s->auth)
                explicit_bzero(s->auth, s->auth_len);
        free(s->auth);
}

static void stop_threads(struct remote_store *of)
{
        struct remote_client *s = client_of(of);

        remote_resolver_stop(s->resolver);
        /* The first one last: the others wake it. */
        for (unsigned i = s->n_workers; i-- > 0;)
                remote_worker_stop(s->workers[i]);
}

static void free_client(struct remote_store *of)
{
        struct remote_client *s = client_of(of);

        remote_tls_free(s->tls);
        auth_free(s);
        free(s->slots_text);
        free(s->refresh);
        free(s);
}

/* ---- figures --------------------------------------------------------------------------------- */

static void copy_stats(struct remote_store *of, struct remote_stats *ret_stats)
{
        struct remote_client *s = client_of(of);

        pthread_mutex_lock(&s->of.lock);
        *ret_stats = s->stats;
        ret_stats->n_nodes = 0;
        for (unsigned i = 0; i < s->n_nodes; i++)
                ret_stats->n_nodes += s->nodes[i].is_used && s->nodes[i].is_listed;
        pthread_mutex_unlock(&s->of.lock);
}

#define PER_WORKER 2 /* its epoll and its event descriptor */

static unsigned count_descriptors(struct remote_store *of)
{
        struct remote_client *s = client_of(of);
        unsigned n = PER_WORKER * s->n_workers;

        pthread_mutex_lock(&s->of.lock);
        for (unsigned i = 0; i < s->n_nodes; i++) {
                const struct remote_node *node = &s->nodes[i];

                if (node->is_used)
                        n += node->is_listed || node->is_seed ? s->n_workers : node->n_conns;
        }
        pthread_mutex_unlock(&s->of.lock);
        return n;
}

static bool next_node(struct remote_store *of, unsigned *iter, struct remote_node_stats *ret_stats)
{
        struct remote_client *s = client_of(of);
        bool is_found = false;

        pthread_mutex_lock(&s->of.lock);
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
        pthread_mutex_unlock(&s->of.lock);
        return is_found;
}

/* ---- opening --------------------------------------------------------------------------------- */

const struct remote_ops remote_client_ops = {
        .begin = begin_task,
        .cancel = cancel_task,
        .free_work = free_requests,
        .stop = stop_threads,
        .free = free_client,
        .descriptors = count_descriptors,
        .stats = copy_stats,
        .node_next = next_node,
};

int remote_open(const struct remote_options *options, struct remote_store **ret_store,
        char why[REMOTE_WHY_BYTES])
{
        struct remote_client *s;
        int r;

        why[0] = '\0';
        r = remote_options_check(options, why);
        if (r < 0)
                return r;
        s = calloc(1, sizeof(*s));
        if (!s)
                return say_why(why, REMOTE_WHY_BYTES, -ENOMEM,
                        "no memory for the client of a Redis or Valkey cluster");
        r = remote_store_init(
                &s->of, &remote_client_ops, options->max_ops ? options->max_ops : DEFAULT_MAX_OPS);
        if (r == 0)
                r = store_init(s, options, why);
        if (r < 0) {
                remote_close(&s->of);
                if (!why[0])
                        snprintf(why, REMOTE_WHY_BYTES,
                                "the client of a Redis or Valkey cluster can't start: %s",
                                strerror(-r));
                return r;
        }
        *ret_store = &s->of;
        return 0;
}
