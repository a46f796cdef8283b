/* A thread with its connections: submitted operations, deadlines, and asking for slots. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/macros.h"
#include "base/thread.h"
#include "daemon/remote/store/remote-impl.h"

#define EVENTS_MAX 64

/* Longest wait; all due work is looked for then. */
#define WAIT_MAX_NSEC NSEC_PER_SEC

/* The first worker's state of reading the map of slots. */
struct remote_refresh {
        struct remote_request request;
        bool is_under_way;
        uint16_t node; /* the node asked now, or last; REMOTE_NO_NODE: none yet */
        uint64_t begun_nsec, learnt_nsec;
        struct slot_reader reader;
        struct slot_table table;
};

/* ---- asking for slots ------------------------------------------------------------------------ */

void remote_refresh_begin(struct remote_client *s)
{
        slot_reader_init(&s->refresh->reader, &s->refresh->table);
}

struct slot_reader *remote_refresh_reader(struct remote_client *s)
{
        return &s->refresh->reader;
}

void remote_refresh_end(struct remote_client *s, struct remote_request *q, int result)
{
        struct remote_refresh *r = s->refresh;

        r->is_under_way = false;
        if (result == 0 && !remote_nodes_learn(s, &r->table, r->node))
                result = -ENOENT;
        else if (result == REMOTE_ALONE)
                result = remote_nodes_learn(s, NULL, r->node) ? 0 : -ENOENT;
        if (result == 0)
                r->learnt_nsec = clock_now_nsec();
        else
                remote_refresh_want(s);
        pthread_mutex_lock(&s->of.lock);
        s->stats.refresh_error = result;
        pthread_mutex_unlock(&s->of.lock);
}

/* When slots are to be asked for. */
static uint64_t refresh_due(struct remote_client *s)
{
        struct remote_refresh *r = s->refresh;
        bool is_wanted;

        if (r->is_under_way)
                return UINT64_MAX;
        pthread_mutex_lock(&s->of.lock);
        is_wanted = s->is_refresh_wanted || !s->stats.is_known;
        pthread_mutex_unlock(&s->of.lock);
        return is_wanted ? r->begun_nsec + REMOTE_REFRESH_MIN_NSEC
                         : r->learnt_nsec + REMOTE_REFRESH_NSEC;
}

static void worker_add(struct remote_worker *w, struct remote_request *q)
{
        list_append(&w->live, &q->live);
        w->deadline_nsec = MIN(w->deadline_nsec, q->deadline_nsec);
}

static void refresh_go(struct remote_worker *w, uint64_t now_nsec)
{
        struct remote_client *s = w->store;
        struct remote_refresh *r = s->refresh;
        struct remote_request *q = &r->request;
        struct remote_conn *c;
        uint16_t node;
        int e = 0;

        if (refresh_due(s) > now_nsec)
                return;
        r->begun_nsec = now_nsec;
        *q = (struct remote_request){.worker = w,
                .text = s->slots_text,
                .head_len = s->slots_len,
                .deadline_nsec = now_nsec + REMOTE_SLOTS_MSEC * NSEC_PER_MSEC};
        list_init(&q->live);
        list_init(&q->link);
        pthread_mutex_lock(&s->of.lock);
        s->is_refresh_wanted = false;
        node = remote_node_to_ask(s, r->node, now_nsec, &q->is_trial);
        if (node != REMOTE_NO_NODE)
                e = remote_conn_get(w, node, &c);
        if (e < 0 && q->is_trial)
                breaker_give_back(&s->nodes[node].breaker);
        s->is_refresh_wanted = node == REMOTE_NO_NODE || e < 0;
        pthread_mutex_unlock(&s->of.lock);
        if (node == REMOTE_NO_NODE || e < 0)
                return;
        r->node = node;
        r->is_under_way = true;
        worker_add(w, q);
        q->conn = c;
        list_append(&c->waiting, &q->link);
        remote_worker_mark(c);
}

/* ---- where requests go ----------------------------------------------------------------------- */

void remote_worker_mark(struct remote_conn *c)
{
        list_remove(&c->dirty);
        list_append(&c->worker->dirty, &c->dirty);
}

static bool is_write(const struct remote_request *q)
{
        return q->task && q->task->io.kind == REMOTE_WRITE;
}

/* Reads go before writes that aren't under way: callers wait for reads only. */
static void conn_queue(struct remote_conn *c, struct remote_request *q)
{
        struct list_link *before = &c->waiting;

        while (!is_write(q) && before->prev != &c->waiting &&
                is_write(list_entry(before->prev, struct remote_request, link)))
                before = before->prev;
        list_insert_before(before, &q->link);
}

void remote_worker_route(struct remote_worker *w, struct remote_request *q)
{
        struct remote_client *s = w->store;
        struct remote_conn *c = NULL;
        uint16_t node;
        int r = 0;

        pthread_mutex_lock(&s->of.lock);
        node = q->node != REMOTE_NO_NODE ? q->node : s->node_of[q->slot];
        if (node == REMOTE_NO_NODE)
                r = -EAGAIN;
        else if (!breaker_admits(&s->nodes[node].breaker, clock_now_nsec(), &q->is_trial))
                r = -EHOSTDOWN;
        else
                r = remote_conn_get(w, node, &c);
        if (!c && q->is_trial)
                breaker_give_back(&s->nodes[node].breaker);
        pthread_mutex_unlock(&s->of.lock);
        if (r == -EAGAIN)
                remote_refresh_want(s);
        if (r < 0) {
                remote_request_end(q, r);
                return;
        }
        q->conn = c;
        conn_queue(c, q);
        remote_worker_mark(c);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static bool request_is_canceled(const struct remote_request *q)
{
        return q->task && atomic_load(&q->task->is_canceled);
}

/*
 * Ends requests that are late or cancelled, and all if the worker stops. If ending one ends another
 * (a connection is lost), that one leaves these lists, too.
 */
static void worker_expire(struct remote_worker *w, bool is_stopping, uint64_t now_nsec)
{
        struct list_link late, canceled;
        struct remote_request *q;

        list_init(&late);
        list_init(&canceled);
        w->deadline_nsec = UINT64_MAX;
        list_for_each_safe (each, &w->live, struct remote_request, live) {
                struct list_link *to = is_stopping || request_is_canceled(each) ? &canceled
                                       : each->deadline_nsec <= now_nsec        ? &late
                                                                                : NULL;

                if (!to) {
                        w->deadline_nsec = MIN(w->deadline_nsec, each->deadline_nsec);
                        continue;
                }
                list_remove(&each->live);
                list_append(to, &each->live);
        }
        while ((q = list_first(&canceled, struct remote_request, live)))
                remote_conn_drop(q->conn, q, false);
        while ((q = list_first(&late, struct remote_request, live)))
                remote_conn_drop(q->conn, q, true);
}

static void worker_expire_conns(struct remote_worker *w, uint64_t now_nsec)
{
        for (unsigned i = 0, left = w->n_conns; left > 0; i++) {
                struct remote_conn *c = w->conns[i];

                if (!c)
                        continue;
                left--;
                if (c->state != CONN_CLOSED && c->until_nsec <= now_nsec)
                        remote_conn_expire(c, now_nsec);
        }
}

/* Closes idle connections to nodes without slots. */
static void worker_sweep(struct remote_worker *w)
{
        struct remote_client *s = w->store;
        bool is_changed, all_done = true;
        uint64_t version;

        pthread_mutex_lock(&s->of.lock);
        version = s->map_version;
        is_changed = version != w->map_version;
        pthread_mutex_unlock(&s->of.lock);
        for (unsigned i = 0, left = is_changed ? w->n_conns : 0; left > 0; i++) {
                struct remote_conn *c = w->conns[i];
                bool is_needed;

                if (!c)
                        continue;
                left--;
                pthread_mutex_lock(&s->of.lock);
                is_needed = s->nodes[i].is_listed || !s->stats.is_known;
                pthread_mutex_unlock(&s->of.lock);
                if (is_needed)
                        continue;
                if (c->n_flight == 0 && list_is_empty(&c->waiting))
                        remote_conn_free(c);
                else
                        all_done = false;
        }
        if (all_done)
                w->map_version = version;
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* True: the worker stops. */
static bool worker_take(struct remote_worker *w)
{
        struct list_link taken;
        struct remote_request *q;
        bool is_stopping;

        pthread_mutex_lock(&w->store->of.lock);
        list_take_all(&w->inbox, &taken);
        is_stopping = w->is_stopping;
        pthread_mutex_unlock(&w->store->of.lock);
        while ((q = list_first(&taken, struct remote_request, link))) {
                list_remove(&q->link);
                worker_add(w, q);
                if (is_stopping || request_is_canceled(q))
                        remote_request_end(q, -ECANCELED);
                else if (q->deadline_nsec <= clock_now_nsec())
                        remote_request_end(q, -ETIMEDOUT);
                else
                        remote_worker_route(w, q);
        }
        return is_stopping;
}

static void worker_go(struct remote_worker *w, uint64_t now_nsec)
{
        struct remote_conn *c;

        while ((c = list_first(&w->dirty, struct remote_conn, dirty))) {
                list_remove(&c->dirty);
                remote_conn_go(c, now_nsec);
        }
}

static int worker_timeout(struct remote_worker *w, uint64_t now_nsec)
{
        uint64_t until = MIN(w->deadline_nsec, now_nsec + WAIT_MAX_NSEC);

        if (w == w->store->workers[0])
                until = MIN(until, refresh_due(w->store));
        for (unsigned i = 0, left = w->n_conns; left > 0; i++) {
                struct remote_conn *c = w->conns[i];

                if (!c)
                        continue;
                left--;
                if (c->state != CONN_CLOSED)
                        until = MIN(until, c->until_nsec);
        }
        /* Rounded up, so that due work is due then. */
        return (int)((minus_u64(until, now_nsec) + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC);
}

/* Returns true if another thread rang. */
static bool worker_wait(struct remote_worker *w)
{
        struct epoll_event events[EVENTS_MAX];
        struct remote_conn *c;
        struct list_link eager;
        bool is_rung = false;
        uint64_t now, times;
        int n;

        list_take_all(&w->eager, &eager);
        n = epoll_wait(w->epoll_fd, events, EVENTS_MAX,
                list_is_empty(&eager) ? worker_timeout(w, clock_now_nsec()) : 0);
        now = clock_now_nsec();
        for (int i = 0; i < n; i++) {
                if (events[i].data.ptr) {
                        remote_conn_events(events[i].data.ptr, events[i].events, now);
                        continue;
                }
                is_rung = true;
                (void)!read(w->event_fd, &times, sizeof(times));
                /* The caller handles everything that was rung for before this. */
                (void)atomic_exchange(&w->is_rung, false);
        }
        /* Connections that had their turn just now are in no list, or in the worker's again. */
        while ((c = list_first(&eager, struct remote_conn, eager))) {
                list_remove(&c->eager);
                remote_conn_events(c, EPOLLIN, now);
        }
        return is_rung;
}

static void *worker_run(void *data)
{
        struct remote_worker *w = data;
        bool is_stopping = false, is_rung;

        while (!is_stopping) {
                uint64_t now;

                is_rung = worker_wait(w);
                if (is_rung)
                        is_stopping = worker_take(w);
                now = clock_now_nsec();
                /* A cancel rings. */
                if (is_rung || now >= w->deadline_nsec)
                        worker_expire(w, is_stopping, now);
                worker_expire_conns(w, now);
                if (is_stopping)
                        break;
                if (w == w->store->workers[0])
                        refresh_go(w, now);
                worker_go(w, now);
                worker_sweep(w);
        }
        return NULL;
}

void remote_worker_wake(struct remote_worker *w)
{
        const uint64_t once = 1;

        if (atomic_exchange(&w->is_rung, true)) /* it will look; many are cancelled at once */
                return;
        (void)!write(w->event_fd, &once, sizeof(once));
}

/* ---- made and ended -------------------------------------------------------------------------- */

static void worker_free(struct remote_worker *w)
{
        for (unsigned i = 0; i < REMOTE_NODES_MAX; i++)
                if (w->conns[i])
                        remote_conn_free(w->conns[i]);
        fd_close(w->epoll_fd);
        fd_close(w->event_fd);
        free(w);
}

static int worker_open(struct remote_worker *w)
{
        struct epoll_event event = {.events = EPOLLIN};

        w->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (w->event_fd < 0)
                return -errno;
        w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        if (w->epoll_fd < 0 || epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, w->event_fd, &event) < 0)
                return -errno;
        return 0;
}

int remote_worker_new(struct remote_client *s, struct remote_worker **ret_worker)
{
        struct remote_worker *w = calloc(1, sizeof(*w));
        int r;

        if (!w)
                return -ENOMEM;
        w->store = s;
        w->epoll_fd = w->event_fd = -1;
        w->deadline_nsec = UINT64_MAX;
        list_init(&w->inbox);
        list_init(&w->live);
        list_init(&w->dirty);
        list_init(&w->eager);
        r = worker_open(w);
        if (r < 0) {
                worker_free(w);
                return r;
        }
        *ret_worker = w;
        return 0;
}

int remote_worker_start(struct remote_worker *w)
{
        int r = thread_start(&w->thread, NULL, worker_run, w);

        w->is_started = r == 0;
        return r;
}

void remote_worker_stop(struct remote_worker *w)
{
        if (!w)
                return;
        if (w->is_started) {
                pthread_mutex_lock(&w->store->of.lock);
                w->is_stopping = true;
                pthread_mutex_unlock(&w->store->of.lock);
                remote_worker_wake(w);
                pthread_join(w->thread, NULL);
        }
        worker_free(w);
}

int remote_refresh_new(struct remote_refresh **ret_refresh)
{
        struct remote_refresh *r = calloc(1, sizeof(*r));

        if (!r)
                return -ENOMEM;
        r->node = REMOTE_NO_NODE;
        *ret_refresh = r;
        return 0;
}
