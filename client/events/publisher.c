#include "client/events/publisher.h"

#include <endian.h>
#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <zmq.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/macros.h"

/* ---- sockets --------------------------------------------------------------------------------- */

/*
 * The two ZeroMQ sockets of kvlease-events, with limits for peers that read slowly or send
 * garbage. Not thread-safe.
 *
 * ZeroMQ bounds neither connections, nor the subscriptions of a peer, nor the parts of its message.
 * So the process watches its memory and descriptors, and sockets_reopen() drops all peers at once.
 * Routers connect again by themselves.
 */
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

/* Returns 0 or -errno: s->failed is the endpoint, or NULL. */
static int sockets_open(struct sockets *s, const struct sockets_options *options)
{
        *s = (struct sockets){.options = options};
        return open_all(s);
}

/* Closes the sockets and opens them again. Peers lose what wasn't sent. Returns as above. */
static int sockets_reopen(struct sockets *s)
{
        close_both(s, 0);
        return open_all(s);
}

/* Closes both sockets. Waits up to a second for messages that peers have not received yet. */
static void sockets_close(struct sockets *s)
{
        if (s->context)
                close_both(s, LINGER_MSEC);
}

/* Waits until a socket has a message, `fd` (-1: none) has data, a signal arrives, or timeout_msec
 * have passed. */
static void sockets_wait(const struct sockets *s, int fd, int timeout_msec)
{
        zmq_pollitem_t items[3] = {{.socket = s->live, .events = ZMQ_POLLIN}};
        int n = 1;

        if (s->replay)
                items[n++] = (zmq_pollitem_t){.socket = s->replay, .events = ZMQ_POLLIN};
        if (fd >= 0)
                items[n++] = (zmq_pollitem_t){.fd = fd, .events = ZMQ_POLLIN};
        (void)zmq_poll(items, n, timeout_msec);
}

/* A batch is sent when it has so many bytes, or at the end of a turn. Not tuned. */
#define BATCH_BYTES (64 * 1024)
/* Messages of peers that one turn takes from each socket. */
#define RECEIVED_MAX 64
/* Routers that wait for a state; more ask again. */
#define WAITING_MAX 64
#define ID_MAX      255 /* of ZeroMQ */
/* Making states takes at most a fifth of the time. States that all get keep the same pauses, also
 * one that needn't be made: a peer can subscribe again and again. */
#define PAUSE_MIN_NSEC  (100 * NSEC_PER_MSEC)
#define PAUSE_PER_STATE 4

/* Memory and descriptors are checked so often. Memory may be that of the model so many times, and
 * so many bytes. A state is as large as the model, and two may be under way. Not tuned. */
#define CHECK_NSEC    NSEC_PER_SEC
#define MEMORY_FACTOR 4
#define MEMORY_BYTES  (UINT64_C(256) << 20)

struct router {
        uint8_t id[ID_MAX];
        size_t len;
};

struct publisher {
        const struct publisher_options *options;
        struct sockets sockets;
        struct model *model; /* borrowed; NULL: nothing is cached */
        struct batch batch;
        uint64_t sequence; /* of the next live batch */
        uint64_t last_nsec;
        bool is_held, state_due, failed;
        bool state_is_current; /* no event since `state` was made */
        uint64_t next_state_nsec, pause_nsec, refresh_nsec, check_nsec;
        zmq_msg_t state;
        struct router waiting[WAITING_MAX];
        unsigned n_waiting;
};

/* ---- sending --------------------------------------------------------------------------------- */

static double seconds_now(void)
{
        struct timespec now = {0};

        clock_gettime(CLOCK_REALTIME, &now);
        return (double)now.tv_sec + (double)now.tv_nsec / (double)NSEC_PER_SEC;
}

static void free_memory(void *data, void *memory)
{
        (void)data;
        free(memory);
}

/* Makes a message of a batch, which is empty afterwards. */
static int make_message(struct batch *b, zmq_msg_t *ret)
{
        uint8_t *data;
        void *memory;
        size_t len;
        int r = batch_end(b, seconds_now(), &memory, &data, &len);

        if (r < 0)
                return r;
        if (zmq_msg_init_data(ret, data, len, free_memory, memory) < 0) {
                free(memory);
                return -ENOMEM;
        }
        return 0;
}

/* Sends a copy of a payload, which shares its memory. A peer without room loses it. */
static void send_payload(void *socket, zmq_msg_t *payload, int flags)
{
        zmq_msg_t copy;

        zmq_msg_init(&copy);
        zmq_msg_copy(&copy, payload);
        if (zmq_msg_send(&copy, socket, flags | ZMQ_DONTWAIT) < 0)
                zmq_msg_close(&copy);
}

static void send_part(void *socket, const void *data, size_t len)
{
        (void)zmq_send(socket, data, len, ZMQ_SNDMORE | ZMQ_DONTWAIT);
}

static void send_number(void *socket, uint64_t number)
{
        uint64_t be = htobe64(number);

        send_part(socket, &be, sizeof(be));
}

static void send_live(struct publisher *p, zmq_msg_t *payload)
{
        const struct publisher_options *o = p->options;

        for (unsigned i = 0; i < o->n_topics; i++) {
                send_part(p->sockets.live, o->topics[i], strlen(o->topics[i]));
                send_number(p->sockets.live, p->sequence);
                send_payload(p->sockets.live, payload, 0);
        }
        p->sequence++;
        p->last_nsec = clock_now_nsec();
}

static void send_batch(struct publisher *p)
{
        zmq_msg_t payload;

        if (make_message(&p->batch, &payload) < 0) {
                p->failed = true;
                return;
        }
        send_live(p, &payload);
        zmq_msg_close(&payload);
}

/* A state is large, and is of no use after an event. */
static void drop_state(struct publisher *p)
{
        if (!p->state_is_current)
                return;
        p->state_is_current = false;
        zmq_msg_close(&p->state);
        zmq_msg_init(&p->state);
}

void publisher_tell(void *data, bool is_stored, const struct batch_blocks *blocks)
{
        struct publisher *p = data;

        drop_state(p);
        if (is_stored)
                batch_stored(&p->batch, blocks);
        else
                batch_removed(&p->batch, blocks);
        if (p->batch.bytes.len >= BATCH_BYTES)
                send_batch(p);
}

/* ---- the whole state ------------------------------------------------------------------------- */

static void add_to_state(void *data, bool is_stored, const struct batch_blocks *blocks)
{
        (void)is_stored;
        batch_stored(data, blocks);
}

/* Makes the state unless the last one is current. */
static void make_state(struct publisher *p)
{
        uint64_t begun_nsec = clock_now_nsec();
        struct batch b;

        if (p->state_is_current)
                return;
        batch_init(&b, p->options->group);
        batch_cleared(&b);
        if (p->model)
                model_tell_all(p->model, add_to_state, &b);
        p->state_is_current = make_message(&b, &p->state) == 0;
        p->failed |= !p->state_is_current;
        batch_deinit(&b);
        p->pause_nsec = PAUSE_MIN_NSEC + PAUSE_PER_STATE * (clock_now_nsec() - begun_nsec);
        p->next_state_nsec = clock_now_nsec() + p->pause_nsec;
}

static bool may_send_state(const struct publisher *p)
{
        return !p->is_held && clock_now_nsec() >= p->next_state_nsec;
}

static bool may_answer(const struct publisher *p)
{
        return may_send_state(p) || (!p->is_held && p->state_is_current);
}

static void send_state(struct publisher *p)
{
        make_state(p);
        p->state_due = false;
        p->next_state_nsec = clock_now_nsec() + p->pause_nsec;
        p->refresh_nsec = clock_now_nsec() + p->options->refresh_nsec;
        if (!p->failed)
                send_live(p, &p->state);
}

static void answer_router(struct publisher *p, const struct router *router)
{
        void *socket = p->sockets.replay;
        const char *topic = p->options->topics[0];

        send_part(socket, router->id, router->len);
        send_part(socket, "", 0);
        send_part(socket, topic, strlen(topic));
        send_number(socket, p->sequence - 1);
        send_payload(socket, &p->state, 0);

        send_part(socket, router->id, router->len);
        send_part(socket, "", 0);
        send_part(socket, "", 0);
        send_number(socket, UINT64_MAX);
        (void)zmq_send(socket, "", 0, ZMQ_DONTWAIT);
}

/* All events have been sent, so the state is that of the last sequence number. */
static void answer_all(struct publisher *p)
{
        if (!may_answer(p))
                return;
        make_state(p);
        for (unsigned i = 0; i < p->n_waiting && !p->failed; i++)
                answer_router(p, &p->waiting[i]);
        p->n_waiting = 0;
}

void publisher_hold(struct publisher *p)
{
        p->is_held = true;
}

void publisher_replace(struct publisher *p, struct model *model)
{
        drop_state(p);
        p->model = model;
        p->is_held = false;
        p->state_due = true;
        p->next_state_nsec = 0;
        /* Events that weren't sent yet are of the state before. */
        batch_deinit(&p->batch);
        batch_init(&p->batch, p->options->group);
}

/* ---- receiving ------------------------------------------------------------------------------- */

struct part {
        uint8_t data[ID_MAX];
        size_t len; /* before bytes were dropped */
};

/* Receives a message of up to n_max parts; parts beyond, and bytes beyond a part's room, are
 * dropped. Returns the number of parts it had; 0: there is no message. */
static unsigned receive(void *socket, struct part *parts, unsigned n_max)
{
        struct part spare = {0};
        unsigned n = 0;
        int more = 1;

        while (more) {
                struct part *part = n < n_max ? &parts[n] : &spare;
                size_t size = sizeof(more);
                int len = zmq_recv(socket, part->data, sizeof(part->data), ZMQ_DONTWAIT);

                if (len < 0)
                        return 0;
                part->len = (size_t)len;
                n++;
                if (zmq_getsockopt(socket, ZMQ_RCVMORE, &more, &size) < 0)
                        return 0;
        }
        return n;
}

static void take_subscriptions(struct publisher *p)
{
        struct part part;

        for (unsigned i = 0; i < RECEIVED_MAX && receive(p->sockets.live, &part, 1) > 0; i++)
                if (p->options->refresh_nsec > 0 && part.len > 0 && part.data[0] == 1)
                        p->state_due = true;
}

/* A request is [router's id, empty, number of 8 bytes]. The number isn't used: the answer is always
 * the whole state. */
static void take_requests(struct publisher *p)
{
        struct part parts[3];

        for (unsigned i = 0; i < RECEIVED_MAX && p->n_waiting < WAITING_MAX; i++) {
                struct router *router = &p->waiting[p->n_waiting];
                unsigned n = receive(p->sockets.replay, parts, ARRAY_SIZE(parts));

                if (n == 0)
                        return;
                if (n != 3 || parts[0].len > ID_MAX || parts[1].len != 0 ||
                        parts[2].len != sizeof(uint64_t))
                        continue;
                memcpy(router->id, parts[0].data, parts[0].len);
                router->len = parts[0].len;
                p->n_waiting++;
        }
}

/* ---- turns ----------------------------------------------------------------------------------- */

/* Returns the bytes that malloc() has given out. */
static uint64_t memory_in_use(void)
{
        struct mallinfo2 info = mallinfo2();

        return info.uordblks + info.hblkhd;
}

/* Descriptors have the lowest free numbers, so a new one tells how many there are. */
static bool has_descriptors(void)
{
        struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
        int fd = dup(STDERR_FILENO);

        fd_close(fd);
        getrlimit(RLIMIT_NOFILE, &limit);
        return fd >= 0 && (uint64_t)fd < limit.rlim_cur / 4 * 3;
}

static int disconnect_all(struct publisher *p, const char *why)
{
        int r;

        fprintf(stderr,
                "kvlease-events: peers use too %s, so all are disconnected: let only routers reach the endpoints\n",
                why);
        p->n_waiting = 0;
        r = sockets_reopen(&p->sockets);
        malloc_trim(0);
        return r;
}

/* Disconnects all peers if together they take what the process needs itself. */
static int check_peers(struct publisher *p, uint64_t now_nsec)
{
        uint64_t allowed = MEMORY_BYTES;

        if (now_nsec < p->check_nsec)
                return 0;
        p->check_nsec = now_nsec + CHECK_NSEC;
        if (p->model)
                allowed += MEMORY_FACTOR * model_bytes(p->model);
        if (memory_in_use() > allowed)
                return disconnect_all(p, "much memory");
        return has_descriptors() ? 0 : disconnect_all(p, "many connections");
}

int publisher_turn(struct publisher *p)
{
        const struct publisher_options *o = p->options;
        uint64_t now_nsec = clock_now_nsec();

        take_subscriptions(p);
        if (p->sockets.replay)
                take_requests(p);
        if (p->batch.n_events > 0)
                send_batch(p);
        if (o->refresh_nsec > 0 && now_nsec >= p->refresh_nsec)
                p->state_due = true;
        if (p->state_due && may_send_state(p))
                send_state(p);
        if (now_nsec - p->last_nsec >= o->heartbeat_nsec)
                send_batch(p);
        if (p->n_waiting > 0)
                answer_all(p);
        return p->failed ? -ENOMEM : check_peers(p, now_nsec);
}

void publisher_wait(const struct publisher *p, int fd, int timeout_msec)
{
        sockets_wait(&p->sockets, fd, timeout_msec);
}

int publisher_new(
        const struct publisher_options *options, struct publisher **ret, const char **ret_failed)
{
        struct publisher *p = calloc(1, sizeof(*p));
        struct timespec now = {0};
        int r;

        *ret_failed = NULL;
        if (!p)
                return -ENOMEM;
        r = sockets_open(&p->sockets, &options->sockets);
        if (r < 0) {
                *ret_failed = p->sockets.failed;
                free(p);
                return r;
        }
        clock_gettime(CLOCK_REALTIME, &now);
        p->options = options;
        p->sequence = (uint64_t)now.tv_sec * NSEC_PER_SEC + (uint64_t)now.tv_nsec;
        p->is_held = true;
        zmq_msg_init(&p->state);
        batch_init(&p->batch, options->group);
        *ret = p;
        return 0;
}

void publisher_free(struct publisher *p)
{
        if (!p)
                return;
        publisher_replace(p, NULL);
        send_state(p);
        sockets_close(&p->sockets);
        zmq_msg_close(&p->state);
        batch_deinit(&p->batch);
        free(p);
}
