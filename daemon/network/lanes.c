#include "daemon/network/lanes.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/macros.h"
#include "base/parse.h"
#include "base/secret-file.h"
#include "daemon/relay/relay-channel.h"
#include "daemon/remote/store/remote.h"

/* A client, and the number by which lanes ask for it. */
struct store {
        struct list_link link; /* lanes.stores */
        uint64_t number;
        struct remote_store *remote; /* owned */
        unsigned n_lanes;            /* 0: it is closed in this turn */
};

struct lane {
        struct list_link link; /* lanes.list */
        struct lanes *all;
        struct relay_channel channel; /* fd -1: gone */
        struct store *store;          /* NULL: it greets */
        uint8_t *arena;
        uint64_t arena_bytes;
        uint64_t accepted_nsec;
        bool is_first;         /* gets STATUS */
        uint64_t status_nsec;  /* time of the next one */
        struct list_link jobs; /* struct job.link */
};

/* A batch. */
struct job {
        struct list_link link; /* lane.jobs */
        struct lane *lane;
        struct remote_io *io;
        uint64_t id;
        struct iovec values[];
};

/* Writes the sentence to the log, unless that has it as its last one, or had another just now. */
static void complain(struct lanes *s, const char *sentence)
{
        const uint64_t now_nsec = clock_now_nsec();

        if (now_nsec < s->quiet_until_nsec || strcmp(sentence, s->complaint) == 0)
                return;
        s->quiet_until_nsec = now_nsec + LANES_QUIET_NSEC;
        snprintf(s->complaint, sizeof(s->complaint), "%s", sentence);
        fprintf(stderr, "kvlease-exchange: %s\n", sentence);
}

/* ---- lanes ----------------------------------------------------------------------------------- */

static bool is_gone(const struct lane *l)
{
        return l->channel.fd < 0;
}

static void free_lane(struct lane *l)
{
        if (l->arena)
                munmap(l->arena, l->arena_bytes);
        if (l->store)
                l->store->n_lanes--;
        l->all->n--;
        list_remove(&l->link);
        free(l);
}

/* kvleased doesn't need its operations any more. */
static void close_lane(struct lane *l)
{
        if (is_gone(l))
                return;
        relay_channel_deinit(&l->channel);
        list_for_each (j, &l->jobs, struct job, link)
                remote_cancel(l->store->remote, j->io);
}

static void accept_lane(struct lanes *s)
{
        int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        struct lane *l = fd >= 0 && s->n < LANES_MAX ? calloc(1, sizeof(*l)) : NULL;

        s->is_full = fd < 0;
        if (!l) {
                fd_close(fd);
                return;
        }
        relay_channel_init(&l->channel, fd);
        l->channel.takes_fd = true;
        l->all = s;
        l->accepted_nsec = clock_now_nsec();
        list_init(&l->jobs);
        list_init(&l->link);
        list_append(&s->list, &l->link);
        s->n++;
}

/* ---- greeting -------------------------------------------------------------------------------- */

/* The greeting of kvleased, which names a store. */
struct greeting {
        struct relay_open open;
        const char *texts[N_RELAY_TEXTS]; /* borrowed from the message; "": none */
};

/* Returns 0; -EPROTO, with the sentence: it isn't a greeting, or one of another version. */
static int read_greeting(
        const struct relay_message *m, struct greeting *ret, char why[RELAY_WHY_BYTES])
{
        const char *at = (const char *)m->bytes + sizeof(ret->open);
        const char *end = (const char *)m->bytes + m->head.bytes;

        snprintf(why, RELAY_WHY_BYTES, "it sent an invalid greeting");
        if (m->head.kind != RELAY_OPEN || m->head.bytes < sizeof(ret->open))
                return -EPROTO;
        memcpy(&ret->open, m->bytes, sizeof(ret->open));
        if (ret->open.version != RELAY_VERSION)
                return say_why(why, RELAY_WHY_BYTES, -EPROTO,
                        "kvleased speaks version %u, and kvlease-exchange version %d: install both of one release",
                        ret->open.version, RELAY_VERSION);
        for (unsigned i = 0; i < N_RELAY_TEXTS; i++) {
                const char *behind = at < end ? memchr(at, '\0', (size_t)(end - at)) : NULL;

                if (!behind)
                        return -EPROTO;
                ret->texts[i] = at;
                at = behind + 1;
        }
        return 0;
}

static const char *text_or_null(const struct greeting *g, enum relay_text text)
{
        return *g->texts[text] ? g->texts[text] : NULL;
}

/* Reads a password, a word of RESP. */
static int read_password(const char *path, struct secret *ret, char why[RELAY_WHY_BYTES])
{
        char fault[SECRET_WHY_BYTES];
        int r = secret_read(path, 1, SECRET_BYTES_MAX, ret, fault);

        if (r == 0 && memchr(ret->bytes, '\0', ret->len)) {
                strcpy(fault, "has a NUL byte: a password has none");
                r = -EINVAL;
        }
        if (r < 0)
                snprintf(why, RELAY_WHY_BYTES, "secret_file = %.300s %s", path, fault);
        return r;
}

/* Says which file can't be read: OpenSSL doesn't. */
static int check_files(const struct greeting *g, char why[RELAY_WHY_BYTES])
{
        static const struct {
                enum relay_text text;
                const char *key;
        } rows[] = {
                {RELAY_TLS_CA, "tls_ca"}, {RELAY_TLS_CERT, "tls_cert"}, {RELAY_TLS_KEY, "tls_key"}};

        for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
                const char *path = g->texts[rows[i].text];

                if (!*path || access(path, R_OK) == 0)
                        continue;
                return say_why(why, RELAY_WHY_BYTES, -EACCES, "%s = %.300s can't be read: %s",
                        rows[i].key, path, strerror(errno));
        }
        return 0;
}

/* Opens the client. Blocks to read files. Returns 0; -errno, with the sentence. */
static int open_remote(
        const struct greeting *g, struct remote_store **ret, char why[RELAY_WHY_BYTES])
{
        _cleanup_free_ char *text = strdup(g->texts[RELAY_ADDRESSES]);
        const char *addresses[REMOTE_ADDRESSES_MAX + 1];
        struct remote_options o = {.addresses = addresses,
                .user = text_or_null(g, RELAY_USER),
                .large_threads = g->open.large_threads,
                .connect_msec = g->open.connect_msec,
                .silence_msec = g->open.silence_msec,
                .is_tls = g->open.is_tls,
                .tls_ca = text_or_null(g, RELAY_TLS_CA),
                .tls_host = text_or_null(g, RELAY_TLS_HOST),
                .tls_cert = text_or_null(g, RELAY_TLS_CERT),
                .tls_key = text_or_null(g, RELAY_TLS_KEY)};
        struct secret secret = {0};
        char *save = NULL;
        int r;

        if (!text)
                return say_why(why, RELAY_WHY_BYTES, -ENOMEM, "no memory for a client");
        for (char *at = strtok_r(text, " ", &save); at && o.n_addresses < ARRAY_SIZE(addresses);
                at = strtok_r(NULL, " ", &save))
                addresses[o.n_addresses++] = at;
        r = check_files(g, why);
        if (r == 0 && *g->texts[RELAY_SECRET_FILE])
                r = read_password(g->texts[RELAY_SECRET_FILE], &secret, why);
        if (r == 0) {
                char sentence[REMOTE_WHY_BYTES];

                o.secret = secret.len > 0 ? secret.bytes : NULL;
                r = remote_open(&o, ret, sentence);
                if (r < 0)
                        snprintf(why, RELAY_WHY_BYTES, "%s", sentence);
        }
        secret_wipe(&secret);
        return r;
}

static struct store *find_store(struct lanes *s, uint64_t number)
{
        list_for_each (t, &s->stores, struct store, link)
                if (t->number == number)
                        return t;
        return NULL;
}

static struct store *open_store(
        struct lanes *s, const struct greeting *g, char why[RELAY_WHY_BYTES])
{
        struct store *t = calloc(1, sizeof(*t));

        if (!t) {
                snprintf(why, RELAY_WHY_BYTES, "no memory for a client");
                return NULL;
        }
        if (open_remote(g, &t->remote, why) < 0) {
                free(t);
                return NULL;
        }
        t->number = g->open.store;
        list_init(&t->link);
        list_append(&s->stores, &t->link);
        return t;
}

/* Maps the arena. Its size must be sealed: else a shorter file would end this process. */
static int map_arena(struct lane *l, uint64_t bytes)
{
        struct stat st;
        int seals = fcntl(l->channel.received_fd, F_GET_SEALS);

        if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(l->channel.received_fd, &st) < 0 ||
                (uint64_t)st.st_size != bytes || bytes == 0)
                return -EINVAL;
        l->arena = memory_map(l->channel.received_fd, bytes);
        if (!l->arena)
                return -errno;
        l->arena_bytes = bytes;
        l->channel.received_fd = fd_close(l->channel.received_fd);
        return 0;
}

/* Returns 0; or -errno, with the sentence. */
static int take_greeting(struct lane *l, const struct relay_message *m, char why[RELAY_WHY_BYTES])
{
        struct greeting g;
        int r = read_greeting(m, &g, why);

        if (r < 0)
                return r;
        if (map_arena(l, g.open.arena_bytes) < 0)
                return say_why(why, RELAY_WHY_BYTES, -EINVAL, "its arena can't be mapped");
        l->store = find_store(l->all, g.open.store);
        if (!l->store)
                l->store = open_store(l->all, &g, why);
        if (!l->store)
                return -EINVAL;
        l->store->n_lanes++;
        l->is_first = g.open.lane == 0;
        l->all->complaint[0] = '\0';
        return relay_channel_put(&l->channel, RELAY_READY, 0, NULL, 0);
}

/* Refuses with the sentence, and closes once that is sent. */
static void refuse_lane(struct lane *l, char *why)
{
        char sentence[LANES_COMPLAINT_BYTES];

        snprintf(sentence, sizeof(sentence), "refused kvleased: %s", why);
        complain(l->all, sentence);
        if (relay_channel_put(
                    &l->channel, RELAY_REFUSED, 0, &(const struct iovec){why, strlen(why)}, 1) == 0)
                (void)relay_channel_flush(&l->channel);
        close_lane(l);
}

static void refuse_silent(struct lane *l, uint64_t now_nsec)
{
        char why[] = "it sent no greeting in time";

        if (!is_gone(l) && !l->store && now_nsec >= l->accepted_nsec + LANES_GREETING_NSEC)
                refuse_lane(l, why);
}

/* ---- operations ------------------------------------------------------------------------------ */

static void put_done(struct lane *l, uint64_t id, const struct remote_io *io, int failed)
{
        struct relay_result results[REMOTE_OPS_MAX];

        for (uint32_t i = 0; i < io->n; i++) {
                const struct remote_op *op = &io->ops[i];

                results[i] = (struct relay_result){.result = failed ? failed : op->result,
                        .n_found = op->n_found,
                        .n_bytes = op->n_bytes};
        }
        if (relay_channel_put(&l->channel, RELAY_DONE, id,
                    &(const struct iovec){results, io->n * sizeof(results[0])}, 1) < 0)
                close_lane(l);
}

static void end_job(struct remote_io *io, void *data)
{
        struct job *j = data;
        struct lane *l = j->lane;

        list_remove(&j->link);
        if (!is_gone(l))
                put_done(l, j->id, io, 0);
        free(j);
}

/* Reads the operations of a message; the keys are borrowed from it. Returns 0 or -EPROTO. */
static int read_ops(struct lane *l, struct job *j, const uint8_t *at, const uint8_t *end,
        struct iovec *keys, size_t n_keys_max)
{
        const uint8_t *key_at = at + j->io->n * sizeof(struct relay_op);
        size_t n_keys = 0;

        for (uint32_t i = 0; i < j->io->n; i++) {
                struct remote_op *op = &j->io->ops[i];
                struct relay_op row;

                memcpy(&row, at + i * sizeof(row), sizeof(row));
                if (row.n_keys > n_keys_max - n_keys || row.value_bytes > l->arena_bytes ||
                        row.value_at > l->arena_bytes - row.value_bytes)
                        return -EPROTO;
                op->keys = keys + n_keys;
                op->n_keys = row.n_keys;
                op->expiry_msec = row.expiry_msec;
                op->asks_first = row.flags & RELAY_ASKS_FIRST;
                op->only_new = row.flags & RELAY_ONLY_NEW;
                op->only_once = row.flags & RELAY_ONLY_ONCE;
                j->values[i] = (struct iovec){l->arena + row.value_at, row.value_bytes};
                op->iov = &j->values[i];
                op->n_iov = row.value_bytes > 0;
                for (uint32_t k = 0; k < row.n_keys; k++, n_keys++) {
                        uint16_t len;

                        if ((size_t)(end - key_at) < sizeof(len))
                                return -EPROTO;
                        memcpy(&len, key_at, sizeof(len));
                        key_at += sizeof(len);
                        if ((size_t)(end - key_at) < len)
                                return -EPROTO;
                        keys[n_keys] = (struct iovec){(void *)key_at, len};
                        key_at += len;
                }
        }
        return 0;
}

static struct job *new_job(struct lane *l, uint64_t id, const struct relay_begin *begin)
{
        struct job *j = calloc(1, sizeof(*j) + begin->n * sizeof(j->values[0]));

        if (!j)
                return NULL;
        j->io = remote_io_new(begin->n);
        if (!j->io) {
                free(j);
                return NULL;
        }
        j->lane = l;
        j->id = id;
        j->io->kind = (enum remote_kind)begin->kind;
        j->io->of_class = (enum remote_class)begin->of_class;
        j->io->deadline_nsec = clock_now_nsec() + MIN(begin->left_nsec, REMOTE_DEADLINE_MAX_NSEC);
        j->io->done = end_job;
        j->io->data = j;
        list_init(&j->link);
        return j;
}

/* Submits a batch that was read. */
static void submit_job(struct lane *l, struct job *j)
{
        int r = remote_submit(l->store->remote, j->io);

        if (r == 0) {
                list_append(&l->jobs, &j->link);
                return;
        }
        put_done(l, j->id, j->io, r == REMOTE_BUSY ? -EBUSY : r);
        remote_io_free(j->io);
        free(j);
}

/* Returns 0, -EPROTO or -ENOMEM. */
static int take_begin(struct lane *l, const struct relay_message *m)
{
        const size_t head_bytes = sizeof(struct relay_begin) + sizeof(struct relay_op);
        struct relay_begin begin;
        struct iovec *keys;
        struct job *j;
        size_t left;
        int r;

        if (m->head.bytes < head_bytes)
                return -EPROTO;
        memcpy(&begin, m->bytes, sizeof(begin));
        left = m->head.bytes - sizeof(begin);
        if (begin.n == 0 || begin.n > REMOTE_OPS_MAX || begin.kind > REMOTE_TOUCH ||
                begin.of_class > REMOTE_LARGE || left < begin.n * sizeof(struct relay_op))
                return -EPROTO;
        /* Each key has at least its length. */
        left = (left - begin.n * sizeof(struct relay_op)) / sizeof(uint16_t);
        keys = calloc(left + 1, sizeof(*keys));
        j = new_job(l, m->head.id, &begin);
        r = keys && j
                    ? read_ops(l, j, m->bytes + sizeof(begin), m->bytes + m->head.bytes, keys, left)
                    : -ENOMEM;
        if (r == 0) {
                submit_job(l, j);
        } else if (j) {
                remote_io_free(j->io);
                free(j);
        }
        free(keys);
        return r;
}

static void take_cancel(struct lane *l, uint64_t id)
{
        list_for_each (j, &l->jobs, struct job, link)
                if (j->id == id) {
                        remote_cancel(l->store->remote, j->io);
                        return;
                }
}

static int take_message(struct lane *l, const struct relay_message *m)
{
        char why[RELAY_WHY_BYTES] = "it sent an invalid greeting";

        if (!l->store) {
                if (take_greeting(l, m, why) < 0)
                        refuse_lane(l, why);
                return 0;
        }
        if (m->head.kind == RELAY_BEGIN)
                return take_begin(l, m);
        if (m->head.kind != RELAY_CANCEL)
                return -EPROTO;
        take_cancel(l, m->head.id);
        return 0;
}

static void receive_lane(struct lane *l)
{
        struct relay_message m;
        int r = relay_channel_fill(&l->channel);

        while (r == 0 && !is_gone(l)) {
                r = relay_channel_next(&l->channel, &m);
                if (r <= 0)
                        break;
                r = take_message(l, &m);
        }
        if (r == -EPROTO)
                complain(l->all, "kvleased sent an invalid message");
        if (r < 0)
                close_lane(l);
}

/* ---- figures --------------------------------------------------------------------------------- */

static int put_status(struct lane *l, uint64_t now_nsec)
{
        static struct remote_node_stats nodes[REMOTE_NODES_MAX]; /* large for a stack */
        struct remote_stats stats;
        unsigned iter = 0;

        remote_stats(l->store->remote, &stats);
        stats.n_nodes = stats.n_waiting = 0;
        while (stats.n_nodes < REMOTE_NODES_MAX &&
                remote_node_next(l->store->remote, &iter, &nodes[stats.n_nodes])) {
                struct remote_node_stats *n = &nodes[stats.n_nodes++];

                n->open_until_nsec = minus_u64(n->open_until_nsec, now_nsec);
        }
        return relay_channel_put(&l->channel, RELAY_STATUS, 0,
                (const struct iovec[]){
                        {&stats, RELAY_STATUS_BYTES}, {nodes, stats.n_nodes * sizeof(nodes[0])}},
                2);
}

static void tell_status(struct lane *l, uint64_t now_nsec)
{
        if (is_gone(l) || !l->store || !l->is_first || now_nsec < l->status_nsec)
                return;
        l->status_nsec = now_nsec + RELAY_STATUS_NSEC;
        if (put_status(l, now_nsec) < 0)
                close_lane(l);
}

/* ---- turns ----------------------------------------------------------------------------------- */

void lanes_init(struct lanes *s, int listen_fd)
{
        *s = (struct lanes){.listen_fd = listen_fd};
        list_init(&s->list);
        list_init(&s->stores);
}

/* Frees what isn't needed any more. */
static void sweep(struct lanes *s)
{
        list_for_each_safe (l, &s->list, struct lane, link)
                if (is_gone(l) && list_is_empty(&l->jobs))
                        free_lane(l);
        list_for_each_safe (t, &s->stores, struct store, link)
                if (t->n_lanes == 0) {
                        list_remove(&t->link);
                        remote_close(t->remote);
                        free(t);
                }
}

/* Writes the descriptors to wait for, in the order of the lists. Returns their number. */
static unsigned gather_fds(struct lanes *s, int wake_fd, struct pollfd *fds)
{
        unsigned n = 0;

        fds[n++] = (struct pollfd){.fd = wake_fd, .events = POLLIN};
        fds[n++] = (struct pollfd){.fd = s->is_full ? -1 : s->listen_fd, .events = POLLIN};
        list_for_each (t, &s->stores, struct store, link)
                fds[n++] = (struct pollfd){.fd = remote_fd(t->remote), .events = POLLIN};
        list_for_each (l, &s->list, struct lane, link)
                fds[n++] = (struct pollfd){.fd = l->channel.fd,
                        .events = (short)(POLLIN |
                                          (relay_channel_has_out(&l->channel) ? POLLOUT : 0))};
        return n;
}

int lanes_turn(struct lanes *s, int wake_fd)
{
        struct pollfd fds[2 + 2 * LANES_MAX];
        const bool waits = s->n > 0 || s->is_full;
        unsigned n = gather_fds(s, wake_fd, fds), i = 2;
        uint64_t now_nsec;

        if (poll(fds, n, waits ? (int)(RELAY_STATUS_NSEC / NSEC_PER_MSEC) : -1) < 0)
                return errno == EINTR ? 0 : -errno;
        list_for_each (t, &s->stores, struct store, link)
                if (fds[i++].revents)
                        (void)remote_reap(t->remote);
        /* New stores and lanes are appended, and none leaves a list before sweep(). */
        list_for_each (l, &s->list, struct lane, link) {
                if (i < n && fds[i++].revents & (POLLIN | POLLHUP | POLLERR) && !is_gone(l))
                        receive_lane(l);
        }
        s->is_full = false;
        if (fds[1].revents)
                accept_lane(s);
        now_nsec = clock_now_nsec();
        list_for_each (l, &s->list, struct lane, link) {
                refuse_silent(l, now_nsec);
                tell_status(l, now_nsec);
                if (!is_gone(l) && relay_channel_flush(&l->channel) < 0)
                        close_lane(l);
        }
        sweep(s);
        return 0;
}

void lanes_deinit(struct lanes *s)
{
        list_for_each (l, &s->list, struct lane, link)
                close_lane(l);
        /* remote_close() ends the jobs. */
        list_for_each_safe (t, &s->stores, struct store, link) {
                list_remove(&t->link);
                remote_close(t->remote);
                t->n_lanes = 0;
                list_for_each_safe (l, &s->list, struct lane, link)
                        if (l->store == t) {
                                l->store = NULL;
                                free_lane(l);
                        }
                free(t);
        }
        list_for_each_safe (l, &s->list, struct lane, link)
                free_lane(l);
}
