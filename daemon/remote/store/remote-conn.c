/* A connection: making and losing it, and sending. */
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/macros.h"
#include "daemon/remote/store/remote-impl.h"

/* Pieces of one sendmsg(): a value with all its pieces, and the parts around it. IOV_MAX is
 * 1,024. */
#define SEND_IOV_MAX (REMOTE_IOV_MAX + 8)

/* Keepalive of an idle connection by the kernel: time until the first probe, interval, and number
 * of probes. Not tuned. */
#define KEEPALIVE_IDLE_SEC     5
#define KEEPALIVE_INTERVAL_SEC 1
#define KEEPALIVE_TIMES        3

/* Unacknowledged bytes that show a value in transit, if they become fewer. Not tuned. */
#define QUEUED_BYTES (64u << 10)

/* Number of looks at a silent peer within silence_msec. Bytes of a value taken between two looks
 * aren't seen, so the peer may have up to a part less of silence_msec to answer. Not tuned. */
#define SILENCE_LOOKS 8

static const char asking[] = "*1\r\n$6\r\nASKING\r\n";

static struct remote_flight *flight_at(struct remote_conn *c, unsigned i)
{
        return &c->flight[(c->first + i) % REMOTE_WINDOW_OPS];
}

/* ---- objects --------------------------------------------------------------------------------- */

int remote_conn_get(struct remote_worker *w, unsigned node, struct remote_conn **ret_conn)
{
        struct remote_conn *c = w->conns[node];

        if (c) {
                *ret_conn = c;
                return 0;
        }
        c = calloc(1, sizeof(*c));
        if (!c)
                return -ENOMEM;
        c->worker = w;
        c->node = node;
        c->fd = -1;
        list_init(&c->dirty);
        list_init(&c->eager);
        list_init(&c->waiting);
        w->conns[node] = c;
        w->n_conns++;
        w->store->nodes[node].n_conns++;
        *ret_conn = c;
        return 0;
}

static void conn_close(struct remote_conn *c)
{
        if (c->state == CONN_READY) {
                pthread_mutex_lock(&c->worker->store->of.lock);
                c->worker->store->nodes[c->node].stats.n_connections--;
                pthread_mutex_unlock(&c->worker->store->of.lock);
        }
        list_remove(&c->eager);
        SSL_free(c->ssl);
        c->ssl = NULL;
        c->fd = fd_close(c->fd); /* epoll forgets it */
        c->state = CONN_CLOSED;
        c->events = 0;
        c->tls_wants_write = c->tls_wants_read = false;
        c->first = c->n_flight = c->n_sent = 0;
        c->sent = c->window = 0;
        c->input_len = 0;
}

void remote_conn_free(struct remote_conn *c)
{
        struct remote_client *s = c->worker->store;

        conn_close(c);
        list_remove(&c->dirty);
        c->worker->conns[c->node] = NULL;
        c->worker->n_conns--;
        pthread_mutex_lock(&s->of.lock);
        s->nodes[c->node].n_conns--;
        pthread_mutex_unlock(&s->of.lock);
        free(c);
}

/* ---- the end --------------------------------------------------------------------------------- */

static void waiting_end(struct remote_conn *c, int result)
{
        struct remote_request *q;

        while ((q = list_first(&c->waiting, struct remote_request, link)))
                remote_request_end(q, result);
}

static bool node_is_open(struct remote_conn *c)
{
        struct remote_client *s = c->worker->store;
        bool is_open;

        pthread_mutex_lock(&s->of.lock);
        is_open = s->nodes[c->node].breaker.state == BREAKER_OPEN;
        pthread_mutex_unlock(&s->of.lock);
        return is_open;
}

/* May the request be sent again after its connection was lost? */
static bool may_be_sent_again(const struct remote_request *q)
{
        return !q->op || !q->op->only_once;
}

void remote_conn_lose(struct remote_conn *c, int why, enum remote_loss loss)
{
        struct remote_request *lost[REMOTE_WINDOW_OPS] = {NULL};
        bool was_ready = c->state == CONN_READY, counts = loss != LOSS_OURS;
        bool trips = loss == LOSS_SILENT || why == -EACCES || why == -EKEYREJECTED;
        unsigned n = 0;

        for (unsigned i = 0; i < c->n_flight; i++)
                if (flight_at(c, i)->request)
                        lost[n++] = flight_at(c, i)->request;
        /* An idle connection closed by the server says nothing about the node. One that we close
         * for invalid replies does. */
        if (loss == LOSS_PEER && was_ready && c->n_flight == 0 && why != -EPROTO)
                counts = false;
        conn_close(c);
        /* Before any request ends: a retry must find the breaker's new state. */
        if (counts)
                remote_node_failed(c->worker->store, c->node, why, trips);
        else
                remote_refresh_want(c->worker->store);
        while (n-- > 0) {
                struct remote_request *q = lost[n];

                q->is_sent = false;
                if (loss != LOSS_OURS)
                        remote_request_end(q, why);
                else if (may_be_sent_again(q))
                        list_prepend(&c->waiting, &q->link);
                else
                        remote_request_end(q, -ECONNRESET);
        }
        if (!was_ready && loss == LOSS_PEER)
                waiting_end(c, why);
        else if (node_is_open(c))
                waiting_end(c, -EHOSTDOWN);
        remote_worker_mark(c);
}

void remote_conn_drop(struct remote_conn *c, struct remote_request *q, bool is_late)
{
        int result = is_late ? -ETIMEDOUT : -ECANCELED;
        struct remote_client *s = c->worker->store;
        struct remote_flight *f;
        unsigned i;

        if (!q->is_sent) {
                remote_request_end(q, result);
                return;
        }
        for (i = 0; flight_at(c, i)->request != q; i++)
                ;
        if (is_late) {
                pthread_mutex_lock(&s->of.lock);
                s->nodes[c->node].stats.n_timeouts++;
                pthread_mutex_unlock(&s->of.lock);
        }
        f = flight_at(c, i);
        f->request = NULL;
        /* Nothing was received since slots were asked for, and they don't wait behind a value. */
        if (is_late && f->is_slots && i < c->n_sent && c->alive_nsec <= f->since_nsec)
                remote_conn_lose(c, result, LOSS_PEER);
        else if (i >= c->n_sent)
                remote_conn_lose(c, result, LOSS_OURS);
        remote_request_end(q, result);
}

/* ---- patience -------------------------------------------------------------------------------- */

static uint64_t silence_nsec(const struct remote_conn *c)
{
        return c->worker->store->silence_msec * NSEC_PER_MSEC;
}

/* Starts or continues waiting for an answer. */
static void conn_await(struct remote_conn *c, uint64_t now_nsec)
{
        c->alive_nsec = now_nsec;
        c->queued = 0;
        c->until_nsec = c->n_flight > 0 ? now_nsec + silence_nsec(c) / SILENCE_LOOKS : UINT64_MAX;
}

void remote_conn_progress(struct remote_conn *c, uint64_t now_nsec)
{
        if (c->state == CONN_READY)
                conn_await(c, now_nsec);
}

/* Looks at a peer that was silent for a while. It is alive if it sent bytes, or takes a value. A
 * few acknowledged bytes prove nothing: the kernel of a stopped server acknowledges them. */
static void conn_look(struct remote_conn *c, uint64_t now_nsec)
{
        unsigned before = c->queued;
        int in = 0, out = 0;

        (void)ioctl(c->fd, FIONREAD, &in);
        (void)ioctl(c->fd, SIOCOUTQ, &out);
        c->queued = (unsigned)out;
        if (in > 0 || (before >= QUEUED_BYTES && c->queued < before))
                c->alive_nsec = now_nsec;
        c->until_nsec =
                MIN(now_nsec + silence_nsec(c) / SILENCE_LOOKS, c->alive_nsec + silence_nsec(c));
}

void remote_conn_expire(struct remote_conn *c, uint64_t now_nsec)
{
        if (c->state != CONN_READY) {
                remote_conn_lose(c, -ETIMEDOUT, LOSS_PEER);
                return;
        }
        conn_look(c, now_nsec);
        if (c->until_nsec <= now_nsec)
                remote_conn_lose(c, -ETIMEDOUT, LOSS_SILENT);
}

/* ---- the beginning --------------------------------------------------------------------------- */

static void socket_adjust(const struct remote_client *s, int fd)
{
        const struct {
                int level, name, value;
        } options[] = {{IPPROTO_TCP, TCP_NODELAY, 1}, {SOL_SOCKET, SO_KEEPALIVE, 1},
                {IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_SEC},
                {IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_SEC},
                {IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_TIMES}};

        /* These options are improvements: failures are ignored. */
        for (unsigned i = 0; i < ARRAY_SIZE(options); i++)
                (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value,
                        sizeof(options[i].value));
}

void remote_conn_ready(struct remote_conn *c)
{
        struct remote_client *s = c->worker->store;

        c->state = CONN_READY;
        c->until_nsec = UINT64_MAX;
        pthread_mutex_lock(&s->of.lock);
        s->nodes[c->node].stats.n_connections++;
        pthread_mutex_unlock(&s->of.lock);
        remote_worker_mark(c);
}

/* The socket, and TLS, stand. */
static void conn_introduce(struct remote_conn *c)
{
        struct remote_client *s = c->worker->store;

        resp_init(&c->parser, RESP_BULK_MAX);
        remote_answer_reset(&c->answer);
        if (!s->auth) {
                remote_conn_ready(c);
                return;
        }
        c->state = CONN_AUTH;
        *flight_at(c, 0) = (struct remote_flight){.prefix = s->auth,
                .prefix_len = s->auth_len,
                .length = s->auth_len,
                .is_auth = true};
        c->n_flight = 1;
        remote_worker_mark(c);
}

/* TLS may have reached its bound of reads with bytes left. */
static void conn_go_on(struct remote_conn *c)
{
        list_remove(&c->eager);
        if (c->ssl && c->tls_reads == 0)
                list_append(&c->worker->eager, &c->eager);
}

static void conn_shake(struct remote_conn *c)
{
        int r;

        c->tls_reads = REMOTE_TLS_READS;
        r = remote_tls_handshake(c->ssl, &c->tls_wants_write);
        conn_go_on(c);
        if (r == 0)
                conn_introduce(c);
        else if (r == -EAGAIN)
                remote_worker_mark(c);
        else
                remote_conn_lose(c, r, LOSS_PEER);
}

static void conn_connected(struct remote_conn *c)
{
        struct remote_client *s = c->worker->store;
        socklen_t len = sizeof(int);
        int error, r;

        if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
                error = errno;
        if (error != 0) {
                remote_conn_lose(c, -error, LOSS_PEER);
                return;
        }
        if (!s->tls) {
                conn_introduce(c);
                return;
        }
        r = remote_tls_begin(s->tls, c->fd, s->nodes[c->node].host, &c->tls_reads, &c->ssl);
        if (r < 0) {
                remote_conn_lose(c, r, LOSS_PEER);
                return;
        }
        c->state = CONN_HANDSHAKE;
        conn_shake(c);
}

static void conn_connect(struct remote_conn *c, uint64_t now_nsec)
{
        struct remote_client *s = c->worker->store;
        const struct remote_node *node = &s->nodes[c->node];
        struct epoll_event event = {.data.ptr = c, .events = EPOLLOUT};
        int fd;

        fd = socket(node->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0) {
                waiting_end(c, -errno);
                return;
        }
        c->fd = fd;
        c->state = CONN_CONNECTING;
        c->until_nsec = now_nsec + s->connect_msec * NSEC_PER_MSEC;
        c->events = event.events;
        socket_adjust(s, fd);
        if (connect(fd, (const struct sockaddr *)&node->address, node->address_len) < 0 &&
                errno != EINPROGRESS)
                remote_conn_lose(c, -errno, LOSS_PEER);
        else if (epoll_ctl(c->worker->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
                remote_conn_lose(c, -errno, LOSS_PEER);
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Puts waiting requests under way, as many as fit the window. */
static void conn_fill(struct remote_conn *c)
{
        struct remote_request *q;

        while ((q = list_first(&c->waiting, struct remote_request, link))) {
                uint64_t cost = remote_request_cost(q);
                struct remote_flight *f;
                int r;

                if (c->n_flight == REMOTE_WINDOW_OPS)
                        return;
                if (c->n_flight > 0 && c->window + cost > REMOTE_WINDOW_BYTES)
                        return;
                r = remote_request_prepare(q);
                if (r < 0) {
                        remote_request_end(q, r);
                        continue;
                }
                if (!q->task)
                        remote_refresh_begin(c->worker->store);
                list_remove(&q->link);
                q->is_sent = true;
                f = flight_at(c, c->n_flight++);
                *f = (struct remote_flight){.request = q, .is_slots = !q->task, .cost = cost};
                if (q->is_asking) {
                        f->prefix = asking;
                        f->prefix_len = sizeof(asking) - 1;
                        f->n_skip = 1;
                }
                f->length = f->prefix_len + remote_request_length(q);
                c->window += cost;
        }
}

static unsigned flight_gather(
        const struct remote_flight *f, uint64_t at, struct iovec *iov, unsigned max)
{
        unsigned n = 0;

        if (at < f->prefix_len && max > 0)
                iov[n++] = (struct iovec){(char *)f->prefix + at, f->prefix_len - at};
        if (f->request)
                n += remote_request_gather(
                        f->request, minus_u64(at, f->prefix_len), iov + n, max - n);
        return n;
}

static ssize_t conn_write(struct remote_conn *c, struct iovec *iov, unsigned n_iov)
{
        struct msghdr message = {.msg_iov = iov, .msg_iovlen = n_iov};
        ssize_t n;

        if (c->ssl) {
                n = remote_tls_write(c->ssl, iov, n_iov);
                c->tls_wants_read = n == -EAGAIN && SSL_want_read(c->ssl);
                return n;
        }
        do
                n = sendmsg(c->fd, &message, MSG_NOSIGNAL);
        while (n < 0 && errno == EINTR);
        return n < 0 ? -errno : n;
}

static void conn_advance(struct remote_conn *c, uint64_t n, uint64_t now_nsec)
{
        c->sent += n;
        while (c->n_sent < c->n_flight && c->sent >= flight_at(c, c->n_sent)->length) {
                struct remote_flight *f = flight_at(c, c->n_sent++);

                c->sent -= f->length;
                f->since_nsec = now_nsec;
        }
}

static void conn_send(struct remote_conn *c, uint64_t now_nsec)
{
        struct iovec iov[SEND_IOV_MAX];
        bool goes_on = c->sent > 0; /* bytes that didn't fit into the socket before */

        while (c->n_sent < c->n_flight) {
                uint64_t at = c->sent;
                unsigned n_iov = 0;
                ssize_t n;

                for (unsigned i = c->n_sent; i < c->n_flight && n_iov < SEND_IOV_MAX; i++) {
                        n_iov += flight_gather(
                                flight_at(c, i), at, iov + n_iov, SEND_IOV_MAX - n_iov);
                        at = 0;
                }
                n = conn_write(c, iov, n_iov);
                if (n == -EAGAIN)
                        return;
                if (n <= 0) {
                        remote_conn_lose(c, n < 0 ? (int)n : -ECONNRESET, LOSS_PEER);
                        return;
                }
                conn_advance(c, (uint64_t)n, now_nsec);
                /* The peer takes bytes. The first ones of a message prove nothing, as a socket has
                 * room for them. */
                if (goes_on)
                        remote_conn_progress(c, now_nsec);
                goes_on = false;
        }
}

void remote_conn_landed(struct remote_conn *c)
{
        c->window -= flight_at(c, 0)->cost;
        c->first = (c->first + 1) % REMOTE_WINDOW_OPS;
        c->n_flight--;
        c->n_sent--;
}

struct remote_flight *remote_conn_flight(struct remote_conn *c)
{
        return c->n_sent > 0 ? flight_at(c, 0) : NULL;
}

ssize_t remote_conn_read(struct remote_conn *c, struct iovec *iov, unsigned n_iov)
{
        struct msghdr message = {.msg_iov = iov, .msg_iovlen = n_iov};
        ssize_t n;

        if (c->ssl) {
                n = remote_tls_read(c->ssl, iov, n_iov);
                c->tls_wants_write = n == -EAGAIN && SSL_want_write(c->ssl);
                return n;
        }
        do
                n = recvmsg(c->fd, &message, 0);
        while (n < 0 && errno == EINTR);
        return n < 0 ? -errno : n;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void conn_watch(struct remote_conn *c)
{
        struct epoll_event event = {.data.ptr = c};

        if (c->state == CONN_CLOSED)
                return;
        if (c->state == CONN_CONNECTING)
                event.events = EPOLLOUT;
        else if (c->tls_wants_write) /* it reads nothing before */
                event.events = EPOLLOUT;
        else if (c->state == CONN_HANDSHAKE || c->tls_wants_read)
                event.events = EPOLLIN;
        else
                event.events = EPOLLIN | (c->n_sent < c->n_flight ? EPOLLOUT : 0);
        if (event.events == c->events)
                return;
        c->events = event.events;
        if (epoll_ctl(c->worker->epoll_fd, EPOLL_CTL_MOD, c->fd, &event) < 0)
                remote_conn_lose(c, -errno, LOSS_PEER);
}

void remote_conn_go(struct remote_conn *c, uint64_t now_nsec)
{
        bool was_idle = c->n_flight == 0;

        if (c->state == CONN_CLOSED && !list_is_empty(&c->waiting))
                conn_connect(c, now_nsec);
        if (c->state == CONN_READY)
                conn_fill(c);
        if (c->state == CONN_READY && was_idle)
                conn_await(c, now_nsec);
        if (c->state == CONN_AUTH || c->state == CONN_READY)
                conn_send(c, now_nsec);
        conn_watch(c);
}

/* Receives bytes. Returns 0 or -errno. */
static int conn_receive(struct remote_conn *c, uint64_t now_nsec)
{
        int r;

        c->tls_reads = REMOTE_TLS_READS;
        r = remote_receive(c, now_nsec);
        conn_go_on(c);
        return r;
}

void remote_conn_events(struct remote_conn *c, uint32_t events, uint64_t now_nsec)
{
        int r = 0;

        switch (c->state) {
        case CONN_CLOSED:
                return;
        case CONN_CONNECTING:
                conn_connected(c);
                return;
        case CONN_HANDSHAKE:
                conn_shake(c);
                return;
        case CONN_AUTH:
        case CONN_READY:
                if (c->tls_wants_write || events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                        r = conn_receive(c, now_nsec);
                if (r < 0)
                        remote_conn_lose(c, r, r == -EMSGSIZE ? LOSS_OURS : LOSS_PEER);
                remote_worker_mark(c);
                return;
        }
}
