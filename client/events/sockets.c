#include "client/events/sockets.h"

#include <errno.h>
#include <stddef.h>
#include <zmq.h>

#include "base/macros.h"

/* Batches that wait for one subscriber; a batch has some 64 KiB. The rest is dropped for it, and it
 * misses sequence numbers. Not tuned. */
#define LIVE_WAITING 256
/* A snapshot and the end of the answer, twice. */
#define REPLAY_WAITING 4
/* Limit on a part of a received message. Subscriptions and requests are shorter. */
#define RECEIVED_BYTES_MAX 512
/* A peer that is gone, or takes no byte for so long, is disconnected. Not tuned. */
#define SILENCE_MSEC   30000
#define HEARTBEAT_MSEC 10000
#define LINGER_MSEC    1000

static int set(void *socket, int option, int value)
{
        return zmq_setsockopt(socket, option, &value, sizeof(value)) < 0 ? -errno : 0;
}

static int set_limits(void *socket, int n_waiting)
{
        const int options[][2] = {
                {ZMQ_SNDHWM, n_waiting},
                {ZMQ_LINGER, 0},
                {ZMQ_IPV6, 1},
                {ZMQ_TCP_MAXRT, SILENCE_MSEC},
                {ZMQ_HEARTBEAT_IVL, HEARTBEAT_MSEC},
                {ZMQ_HEARTBEAT_TIMEOUT, SILENCE_MSEC},
        };
        int64_t bytes_max = RECEIVED_BYTES_MAX;
        int r = 0;

        if (zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &bytes_max, sizeof(bytes_max)) < 0)
                return -errno;
        for (size_t i = 0; r == 0 && i < ARRAY_SIZE(options); i++)
                r = set(socket, options[i][0], options[i][1]);
        return r;
}

static int open_at(struct sockets *s, void **socket, const char *endpoint, bool connects)
{
        int r;

        s->failed = endpoint;
        if (!*socket)
                return -errno;
        r = set_limits(*socket, *socket == s->live ? LIVE_WAITING : REPLAY_WAITING);
        if (r < 0)
                return r;
        r = connects ? zmq_connect(*socket, endpoint) : zmq_bind(*socket, endpoint);
        if (r < 0)
                return -errno;
        s->failed = NULL;
        return 0;
}

static int open_both(struct sockets *s)
{
        const struct sockets_options *o = s->options;
        int r;

        s->live = zmq_socket(s->context, ZMQ_XPUB);
        r = open_at(s, &s->live, o->endpoint, o->connects);
        /* Else a second subscriber of a topic isn't reported. */
        if (r == 0)
                r = set(s->live, ZMQ_XPUB_VERBOSE, 1);
        if (r < 0 || !o->replay)
                return r;
        s->replay = zmq_socket(s->context, ZMQ_ROUTER);
        return open_at(s, &s->replay, o->replay, false);
}

static void close_socket(void **socket, int linger_msec)
{
        if (!*socket)
                return;
        (void)set(*socket, ZMQ_LINGER, linger_msec);
        zmq_close(TAKE(*socket));
}

static void close_both(struct sockets *s, int linger_msec)
{
        close_socket(&s->live, linger_msec);
        close_socket(&s->replay, 0);
        zmq_ctx_term(TAKE(s->context)); /* addresses are free again only after this */
}

static int open_all(struct sockets *s)
{
        int r;

        s->context = zmq_ctx_new();
        if (!s->context)
                return -errno;
        r = open_both(s);
        if (r < 0)
                close_both(s, 0);
        return r;
}

int sockets_open(struct sockets *s, const struct sockets_options *options)
{
        *s = (struct sockets){.options = options};
        return open_all(s);
}

int sockets_reopen(struct sockets *s)
{
        close_both(s, 0);
        return open_all(s);
}

void sockets_close(struct sockets *s)
{
        if (s->context)
                close_both(s, LINGER_MSEC);
}

void sockets_wait(const struct sockets *s, int fd, int timeout_msec)
{
        zmq_pollitem_t items[3] = {{.socket = s->live, .events = ZMQ_POLLIN}};
        int n = 1;

        if (s->replay)
                items[n++] = (zmq_pollitem_t){.socket = s->replay, .events = ZMQ_POLLIN};
        if (fd >= 0)
                items[n++] = (zmq_pollitem_t){.fd = fd, .events = ZMQ_POLLIN};
        (void)zmq_poll(items, n, timeout_msec);
}
