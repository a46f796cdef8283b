/*
 * remote: values of 2 MiB read from and written to a Redis server over TCP on this host, by the
 * client of daemon/remote with one connection. Baselines are plain TCP from a memory file, which is
 * the network's time alone, and hiredis, which others use. In each case the bytes end in, and come
 * from, the same buffers. Also: how late an operation ends whose server is stopped.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef HAVE_HIREDIS
#include <hiredis/hiredis.h>
#endif

#include "base/clock.h"
#include "base/fd.h"
#include "base/macros.h"
#include "daemon/remote/store/remote.h"
#include "tests/bench/bench.h"
#include "tests/integration/redis-cluster.h"
#include "tests/unit/child.h"

#define VALUE_BYTES  (2u << 20)
#define N_BUFFERS    16
#define N_VALUES     128 /* of a round, each */
#define N_QUICK      4
#define N_FLIGHTS    4  /* operations that are submitted at once */
#define N_STOPS      10 /* of a round */
#define STOP_MSEC    20 /* until the deadline of an operation whose server is stopped */
#define EXPIRY_MSEC  3600000
#define MIN_GET      0.8
#define MIN_SET      3.0
#define MAX_GET_CPU  0.3
#define MAX_LATE     10.0
#define DEADLINE_SEC 20

enum { TCP_GET, OURS_GET, OURS_SET, HIREDIS_GET, HIREDIS_SET, N_WHATS };

struct flight {
        bool is_free;
        int result;
        uint64_t done_nsec;
        struct iovec iov;
};

struct bench_state {
        int cores[N_CORES];
        unsigned n_values;
        uint8_t *buffers; /* N_BUFFERS values */
        struct redis_cluster redis;
        struct remote_store *store;
        struct flight flights[N_FLIGHTS];
        pid_t tcp_pid; /* 0: none */
        int tcp_fd;
        double worst_late_msec;
        struct series speed[N_WHATS], cpu[N_WHATS]; /* MiB/s, s/GB */
};

/* ---- plain TCP --------------------------------------------------------------------------------
 */

/* Sends a value for each byte received, until the connection ends. */
static void tcp_serve(int listen_fd, int memory_fd)
{
        int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC), one = 1;
        char byte;

        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        while (recv(fd, &byte, 1, 0) == 1) {
                off_t at = 0;

                while (at < VALUE_BYTES)
                        if (sendfile(fd, memory_fd, &at, VALUE_BYTES - (size_t)at) <= 0)
                                return;
        }
}

static int tcp_start(struct bench_state *b)
{
        struct sockaddr_in address = {
                .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, memory_fd;
        socklen_t len = sizeof(address);

        memory_fd = memfd_create_sized("kvlease-bench", VALUE_BYTES);
        if (listen_fd < 0 || memory_fd < 0)
                return -errno;
        if (write(memory_fd, b->buffers, VALUE_BYTES) != VALUE_BYTES ||
                bind(listen_fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
                listen(listen_fd, 1) < 0 ||
                getsockname(listen_fd, (struct sockaddr *)&address, &len) < 0)
                return -errno;
        b->tcp_pid = child_fork();
        if (b->tcp_pid < 0)
                return -errno;
        if (b->tcp_pid == 0) {
                tcp_serve(listen_fd, memory_fd);
                _exit(0);
        }
        if (b->cores[CORE_OTHER] >= 0)
                (void)bench_pin(b->tcp_pid, b->cores[CORE_OTHER]);
        b->tcp_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (b->tcp_fd < 0 || connect(b->tcp_fd, (struct sockaddr *)&address, len) < 0)
                return -errno;
        (void)setsockopt(b->tcp_fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        fd_close(listen_fd);
        fd_close(memory_fd);
        return 0;
}

static void tcp_stop(struct bench_state *b)
{
        b->tcp_fd = fd_close(b->tcp_fd);
        if (b->tcp_pid > 0) {
                kill(b->tcp_pid, SIGKILL);
                waitpid(b->tcp_pid, NULL, 0);
        }
        b->tcp_pid = 0;
}

static int tcp_get(struct bench_state *b, unsigned i)
{
        uint8_t *to = b->buffers + (size_t)(i % N_BUFFERS) * VALUE_BYTES;

        if (send(b->tcp_fd, "x", 1, MSG_NOSIGNAL) != 1 ||
                recv(b->tcp_fd, to, VALUE_BYTES, MSG_WAITALL) != VALUE_BYTES)
                return -ECONNRESET;
        return 0;
}

/* ---- ours -------------------------------------------------------------------------------------
 */

static void ours_done(struct remote_io *io, void *data)
{
        struct flight *f = data;

        f->is_free = true;
        f->result = io->ops[0].result;
        f->done_nsec = clock_now_nsec();
}

static int ours_submit(struct bench_state *b, struct flight *f, enum remote_kind kind, unsigned i,
        uint64_t deadline_nsec)
{
        struct remote_io *io = remote_io_new(1);
        struct iovec key;
        char name[16];
        int r;

        if (!io)
                return -ENOMEM;
        key = (struct iovec){name, (size_t)snprintf(name, sizeof(name), "key:%u", i % N_BUFFERS)};
        f->iov = (struct iovec){b->buffers + (size_t)(i % N_BUFFERS) * VALUE_BYTES, VALUE_BYTES};
        io->kind = kind;
        io->of_class = kind == REMOTE_PROBE ? REMOTE_SMALL : REMOTE_LARGE;
        io->deadline_nsec = deadline_nsec;
        io->done = ours_done;
        io->data = f;
        io->ops[0] = (struct remote_op){
                .keys = &key, .n_keys = 1, .iov = &f->iov, .n_iov = 1, .expiry_msec = EXPIRY_MSEC};
        f->is_free = false;
        r = remote_submit(b->store, io);
        if (r != 0)
                remote_io_free(io);
        return r > 0 ? -EBUSY : r;
}

static void ours_wait(struct bench_state *b)
{
        struct pollfd p = {.fd = remote_fd(b->store), .events = POLLIN};

        (void)poll(&p, 1, -1);
        (void)remote_reap(b->store);
}

static int ours_finish(struct bench_state *b, struct flight *f)
{
        while (!f->is_free)
                ours_wait(b);
        return f->result;
}

static int ours_move(struct bench_state *b, enum remote_kind kind)
{
        int r = 0, e;

        for (unsigned i = 0; i < b->n_values && r == 0; i++) {
                struct flight *f = &b->flights[i % N_FLIGHTS];

                r = ours_finish(b, f);
                if (r == 0)
                        r = ours_submit(
                                b, f, kind, i, clock_now_nsec() + DEADLINE_SEC * NSEC_PER_SEC);
        }
        for (unsigned i = 0; i < N_FLIGHTS; i++) {
                e = ours_finish(b, &b->flights[i]);
                r = r == 0 ? e : r;
        }
        return r;
}

/* ---- hiredis ----------------------------------------------------------------------------------
 */

#ifdef HAVE_HIREDIS

static redisContext *hiredis;

static int hiredis_start(struct bench_state *b)
{
        hiredis = redisConnect("127.0.0.1", b->redis.servers[0].port);
        return hiredis && !hiredis->err ? 0 : -ECONNREFUSED;
}

static void hiredis_stop(void)
{
        if (hiredis)
                redisFree(hiredis);
        hiredis = NULL;
}

static int hiredis_get(struct bench_state *b, unsigned i)
{
        redisReply *reply = redisCommand(hiredis, "GET key:%u", i % N_BUFFERS);
        int r = reply && reply->type == REDIS_REPLY_STRING && (size_t)reply->len == VALUE_BYTES
                        ? 0
                        : -EBADMSG;

        if (r == 0)
                memcpy(b->buffers + (size_t)(i % N_BUFFERS) * VALUE_BYTES, reply->str, VALUE_BYTES);
        freeReplyObject(reply);
        return r;
}

static int hiredis_set(struct bench_state *b, unsigned i)
{
        redisReply *reply = redisCommand(hiredis, "SET key:%u %b PX %u", i % N_BUFFERS,
                b->buffers + (size_t)(i % N_BUFFERS) * VALUE_BYTES, (size_t)VALUE_BYTES,
                EXPIRY_MSEC);
        int r = reply && reply->type == REDIS_REPLY_STATUS ? 0 : -EBADMSG;

        freeReplyObject(reply);
        return r;
}

#else

static int hiredis_start(struct bench_state *b)
{
        fputs("kvlease-bench: built without hiredis (Debian: libhiredis-dev): no figures against it\n",
                stderr);
        return 0;
}

static void hiredis_stop(void)
{
}

#endif

/* ---- measured ---------------------------------------------------------------------------------
 */

/* CPU seconds of all threads of this process. */
static double cpu_seconds(void)
{
        struct rusage u;

        getrusage(RUSAGE_SELF, &u);
        return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
               (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static int move_one(struct bench_state *b, unsigned what, unsigned i)
{
        if (what == TCP_GET)
                return tcp_get(b, i);
#ifdef HAVE_HIREDIS
        return what == HIREDIS_GET ? hiredis_get(b, i) : hiredis_set(b, i);
#else
        return -EOPNOTSUPP;
#endif
}

static int time_what(struct bench_state *b, unsigned what)
{
        double bytes = (double)b->n_values * VALUE_BYTES, cpu = cpu_seconds(), usec;
        uint64_t since = clock_now_nsec();
        int r = 0;

        if (what == OURS_GET || what == OURS_SET)
                r = ours_move(b, what == OURS_GET ? REMOTE_READ : REMOTE_WRITE);
        else
                for (unsigned i = 0; i < b->n_values && r == 0; i++)
                        r = move_one(b, what, i);
        usec = bench_usec_since(since);
        series_add(&b->speed[what], bytes / 1048576 / usec * 1e6);
        series_add(&b->cpu[what], (cpu_seconds() - cpu) / bytes * 1e9);
        series_close_round(&b->speed[what]);
        series_close_round(&b->cpu[what]);
        return r;
}

/* How long after its deadline an operation ends if the server is stopped. */
static int time_stop(struct bench_state *b)
{
        struct flight *f = &b->flights[0];
        uint64_t deadline;
        int r;

        kill(b->redis.servers[0].pid, SIGSTOP);
        deadline = clock_now_nsec() + STOP_MSEC * NSEC_PER_MSEC;
        r = ours_submit(b, f, REMOTE_READ, 0, deadline);
        if (r == 0)
                (void)ours_finish(b, f);
        kill(b->redis.servers[0].pid, SIGCONT);
        if (r < 0)
                return r;
        if (f->result == -ETIMEDOUT)
                b->worst_late_msec = fmax(b->worst_late_msec,
                        (double)minus_u64(f->done_nsec, deadline) / (double)NSEC_PER_MSEC);
        /* And it works again, before the next. */
        do {
                r = ours_submit(
                        b, f, REMOTE_READ, 0, clock_now_nsec() + DEADLINE_SEC * NSEC_PER_SEC);
                if (r == 0 && ours_finish(b, f) != 0)
                        usleep(10000);
        } while (r == 0 && f->result != 0);
        return r;
}

static int one_round(struct bench_state *b, bool quick)
{
        /* A connection of plain TCP keeps its speed; another one may be up to twice as fast. Each
         * round has a new one, warmed. */
        int r = tcp_start(b);

        for (unsigned i = 0; i < b->n_values && r == 0; i++)
                r = tcp_get(b, i);
#ifdef HAVE_HIREDIS
        enum { N_HERE = N_WHATS };
#else
        enum { N_HERE = HIREDIS_GET };
#endif
        for (unsigned what = 0; what < N_HERE && r == 0; what++)
                r = time_what(b, what);
        tcp_stop(b);
        for (unsigned i = 0; i < (quick ? 1 : N_STOPS) && r == 0; i++)
                r = time_stop(b);
        return r;
}

static void report_speed(struct bench_state *b, struct bench_run *run, const char *name,
        unsigned what, unsigned baseline, const char *baseline_name, double min_ratio)
{
        bool has = b->speed[baseline].n_rounds > 0;
        struct bench_result *r = bench_add(run, "MiB/s", "%s", name);

        series_report(r, &b->speed[what], has ? &b->speed[baseline] : NULL, baseline_name);
        r->p99 = r->baseline_p99 = NAN;
        if (has && min_ratio > 0)
                r->min_ratio = min_ratio;
}

static void report_cpu(struct bench_state *b, struct bench_run *run, const char *name,
        unsigned what, unsigned baseline, double max_cpu)
{
        bool has = b->cpu[baseline].n_rounds > 0;
        struct bench_result *r = bench_add(run, "s/GB", "%s", name);

        series_report(r, &b->cpu[what], has ? &b->cpu[baseline] : NULL, "hiredis");
        r->p99 = r->baseline_p99 = NAN;
        r->max_value = max_cpu;
}

static void report(struct bench_state *b, struct bench_run *run)
{
        struct bench_result *late;

        report_speed(b, run, "get-2MiB", OURS_GET, TCP_GET, "plain TCP", MIN_GET);
        report_speed(b, run, "get-2MiB-hiredis", OURS_GET, HIREDIS_GET, "hiredis", 0);
        report_speed(b, run, "set-2MiB", OURS_SET, HIREDIS_SET, "hiredis", MIN_SET);
        report_cpu(b, run, "get-2MiB-cpu", OURS_GET, HIREDIS_GET, MAX_GET_CPU);
        report_cpu(b, run, "set-2MiB-cpu", OURS_SET, HIREDIS_SET, NAN);
        late = bench_add(run, "ms", "late-worst");
        late->median = b->worst_late_msec;
        late->max_value = MAX_LATE;
}

/* ---- beginning and end ------------------------------------------------------------------------
 */

static int store_start(struct bench_state *b)
{
        const char *address = b->redis.servers[0].address;
        const struct remote_options options = {
                .addresses = &address, .n_addresses = 1, .large_threads = 1};
        char why[REMOTE_WHY_BYTES];
        struct remote_stats stats;
        int r = remote_open(&options, &b->store, why);

        if (r < 0) {
                fprintf(stderr, "kvlease-bench: %s\n", why);
                return r;
        }
        for (unsigned waited = 0;; waited++) {
                remote_stats(b->store, &stats);
                if (stats.is_known)
                        break;
                if (waited == 1000 * DEADLINE_SEC)
                        return -ETIMEDOUT;
                usleep(1000);
        }
        for (unsigned i = 0; i < N_BUFFERS && r == 0; i++) {
                r = ours_submit(b, &b->flights[0], REMOTE_WRITE, i,
                        clock_now_nsec() + DEADLINE_SEC * NSEC_PER_SEC);
                if (r == 0)
                        r = ours_finish(b, &b->flights[0]);
        }
        return r;
}

static int init(struct bench_state *b, const struct bench_run *run)
{
        int r = bench_find_cores(b->cores);

        b->tcp_fd = -1;
        b->n_values = run->quick ? N_QUICK : N_VALUES;
        for (unsigned i = 0; i < N_FLIGHTS; i++)
                b->flights[i].is_free = true;
        for (unsigned i = 0; i < N_WHATS && r == 0; i++) {
                r = series_init(&b->speed[i], 1, run->rounds);
                if (r == 0)
                        r = series_init(&b->cpu[i], 1, run->rounds);
        }
        if (r < 0)
                return r;
        b->buffers = memory_map(-1, (uint64_t)N_BUFFERS * VALUE_BYTES);
        if (!b->buffers)
                return -errno;
        for (size_t i = 0; i < (size_t)N_BUFFERS * VALUE_BYTES; i++)
                b->buffers[i] = (uint8_t)(i * 2654435761u >> 13);
        r = redis_cluster_init(&b->redis);
        if (r == -ENOENT) {
                fputs("kvlease-bench: there is no redis-server here (Debian: redis-tools)\n",
                        stderr);
                return -ENODEV;
        }
        return r;
}

static int start(struct bench_state *b)
{
        int r;

        if (b->cores[CORE_OTHER] >= 0)
                (void)bench_pin(0, b->cores[CORE_OTHER]); /* children inherit it */
        r = redis_cluster_add(&b->redis, NULL, false);
        if (b->cores[CORE_OTHER] >= 0)
                (void)bench_pin(0, b->cores[CORE_CLIENT]); /* and threads */
        if (r == 0)
                r = hiredis_start(b);
        return r == 0 ? store_start(b) : r;
}

static void end(struct bench_state *b)
{
        remote_close(b->store);
        hiredis_stop();
        tcp_stop(b);
        redis_cluster_deinit(&b->redis);
        if (b->buffers)
                munmap(b->buffers, (size_t)N_BUFFERS * VALUE_BYTES);
        for (unsigned i = 0; i < N_WHATS; i++) {
                series_deinit(&b->speed[i]);
                series_deinit(&b->cpu[i]);
        }
}

static int run_remote(struct bench_run *run)
{
        static struct bench_state b;
        int r = init(&b, run);

        if (r == 0)
                r = start(&b);
        for (unsigned i = 0; i < run->rounds && r == 0; i++)
                r = one_round(&b, run->quick);
        if (r == 0)
                report(&b, run);
        else if (r != -ENODEV)
                bench_fail("values on a Redis server", r);
        end(&b);
        return r;
}

const struct bench bench_remote = {
        "remote", "values of a Redis server, against plain TCP and hiredis", 15, run_remote};
