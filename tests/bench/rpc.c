/*
 * rpc: what a request costs beyond the socket. Lease and free of one page through libkvlease,
 * against frames of the same sizes that another process sends back unread.
 *
 * Where the two processes run decides more than what they do: on one core an answer costs a switch,
 * on two it costs waking an idle core, up to 20 times as much on a virtual machine, and the
 * scheduler changes its mind within a run. So both are pinned: first on one core, then on two.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "client/lib/kvlease.h"
#include "proto/kvlease.pb-c.h"
#include "proto/msg.h"
#include "tests/bench/bench.h"
#include "tests/integration/private-daemon.h"

#define MAX_RATIO 1.8 /* specification: p50 of lease and of free */

enum what { LEASE, FREE, LEASE_ECHO, FREE_ECHO, N_WHATS };

/* Where the other process runs: on the client's core, or on another one. */
enum placement { ONE_CORE, TWO_CORES, N_PLACEMENTS };

/* What one request and its answer weigh. */
struct sizes {
        size_t request, reply; /* bytes */
};

/*
 * One process that answers a lease, a free, a lease...: by as many bytes, which it doesn't look at.
 * One process and one socket for both, because the daemon is one, too.
 */
struct echo {
        int fd; /* -1: none */
        pid_t pid;
        struct sizes sizes[2]; /* LEASE, FREE */
};

struct rpc {
        struct private_daemon daemon;
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        struct echo echo;
        unsigned n_ops;
        int cores[N_PLACEMENTS];  /* of the other process; the client's is the first; -1: no such
                                     core */
        double *samples[N_WHATS]; /* of one round and placement, microseconds; owned */
        double *medians[N_PLACEMENTS][N_WHATS], *p99s[N_PLACEMENTS][N_WHATS]; /* of rounds; owned */
};

static int transfer(int fd, bool out, size_t len)
{
        static char buf[FRAME_MAX_SIZE];
        ssize_t n;

        for (size_t done = 0; done < len; done += (size_t)n) {
                n = out ? write(fd, buf + done, len - done) : read(fd, buf + done, len - done);
                if (n <= 0)
                        return n < 0 ? -errno : -ECONNRESET;
        }
        return 0;
}

static void echo_serve(int fd, const struct sizes *sizes)
{
        for (unsigned i = 0;; i = !i)
                if (transfer(fd, false, sizes[i].request) < 0 ||
                        transfer(fd, true, sizes[i].reply) < 0)
                        return;
}

static int echo_open(struct echo *e)
{
        int fds[2];

        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
                return -errno;
        e->pid = fork();
        if (e->pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                fd_close(fds[0]);
                echo_serve(fds[1], e->sizes);
                _exit(0);
        }
        fd_close(fds[1]);
        e->fd = fds[0];
        return e->pid < 0 ? -errno : 0;
}

static void echo_close(struct echo *e)
{
        e->fd = fd_close(e->fd);
        if (e->pid > 0)
                waitpid(e->pid, NULL, 0);
}

static int echo_call(struct echo *e, unsigned what)
{
        int r = transfer(e->fd, true, e->sizes[what].request);

        return r < 0 ? r : transfer(e->fd, false, e->sizes[what].reply);
}

/* Bytes of the frames that a lease and a free of one page take, as the library sends them. */
static void frame_sizes(struct sizes ret_sizes[2])
{
        Kvlease__V1__LeaseRequest lease = KVLEASE__V1__LEASE_REQUEST__INIT;
        Kvlease__V1__LeaseReply leased = KVLEASE__V1__LEASE_REPLY__INIT;
        Kvlease__V1__FreeRequest free_pages = KVLEASE__V1__FREE_REQUEST__INIT;
        Kvlease__V1__SimpleReply freed = KVLEASE__V1__SIMPLE_REPLY__INIT;
        const ProtobufCMessage *messages[] = {
                &lease.base, &leased.base, &free_pages.base, &freed.base};
        static uint8_t buf[FRAME_MAX_SIZE];
        uint32_t page = 1;

        lease.ns_id = lease.n_pages = free_pages.ns_id = 1;
        leased.pages = free_pages.pages = &page;
        leased.n_pages = free_pages.n_pages = 1;
        for (unsigned i = 0; i < 2; ++i) {
                ret_sizes[i].request =
                        (size_t)msg_pack(buf, 1, MSG_LEASE, 0, 1, 0, messages[2 * i]);
                ret_sizes[i].reply =
                        (size_t)msg_pack(buf, 1, MSG_LEASE, 0, 1, 0, messages[2 * i + 1]);
        }
}

static int connect_client(struct rpc *b)
{
        char socket[PRIVATE_PATH_MAX];
        struct kvl_connect_options o = {.size = sizeof(o), .client_name = "kvlease-bench"};
        struct kvl_layout layout = {.size = sizeof(layout),
                .model = "bench",
                .version = "1",
                .dtype = KVL_DTYPE_F16,
                .n_layers = 1,
                .n_kv_heads = 1,
                .head_size = 64,
                .page_tokens = 16,
                .n_planes = 1,
                .plane_page_bytes = 65536,
                .tp_size = 1};
        int r;

        o.socket_path = private_daemon_socket(&b->daemon, "a", socket);
        r = kvl_connect(&o, &b->conn);
        return r ? r : kvl_ns_open(b->conn, "bench", &layout, NULL, 0, &b->ns);
}

static double usec_since(uint64_t start)
{
        return (double)(now_nsec() - start) / 1000;
}

/* One lease, one free and the two echoes, each timed: whatever disturbs the machine disturbs all.
 */
static int one_op(struct rpc *b, unsigned i)
{
        uint64_t start = now_nsec();
        uint32_t page;
        int r = kvl_lease(b->ns, 0, 1, &page);

        b->samples[LEASE][i] = usec_since(start);
        if (r)
                return r;
        start = now_nsec();
        r = kvl_free(b->ns, &page, 1);
        b->samples[FREE][i] = usec_since(start);
        return r;
}

static int one_echo(struct rpc *b, unsigned i)
{
        uint64_t start = now_nsec();
        int r = echo_call(&b->echo, LEASE);

        b->samples[LEASE_ECHO][i] = usec_since(start);
        if (r)
                return r;
        start = now_nsec();
        r = echo_call(&b->echo, FREE);
        b->samples[FREE_ECHO][i] = usec_since(start);
        return r;
}

/* Blocks of 50 each in turn: whatever disturbs the machine disturbs both. */
static int measure(struct rpc *b)
{
        const unsigned block = 50;
        int r = 0;

        for (unsigned i = 0; r == 0 && i < b->n_ops; i += block) {
                for (unsigned k = i; r == 0 && k < i + block; ++k)
                        r = one_op(b, k);
                for (unsigned k = i; r == 0 && k < i + block; ++k)
                        r = one_echo(b, k);
        }
        return r;
}

static int pin(pid_t pid, int core)
{
        cpu_set_t set;

        CPU_ZERO(&set);
        CPU_SET(core, &set);
        return sched_setaffinity(pid, sizeof(set), &set) < 0 ? -errno : 0;
}

/* The first two cores this process may use. */
static int find_cores(struct rpc *b)
{
        unsigned n = 0;
        cpu_set_t set;

        if (sched_getaffinity(0, sizeof(set), &set) < 0)
                return -errno;
        b->cores[ONE_CORE] = b->cores[TWO_CORES] = -1;
        for (int i = 0; i < CPU_SETSIZE && n < N_PLACEMENTS; ++i)
                if (CPU_ISSET(i, &set))
                        b->cores[n++] = i;
        return pin(0, b->cores[ONE_CORE]);
}

static int one_placement(struct rpc *b, unsigned placement, unsigned round)
{
        int r = pin(b->daemon.pid, b->cores[placement]);

        if (r == 0)
                r = pin(b->echo.pid, b->cores[placement]);
        if (r == 0)
                r = measure(b);
        for (unsigned w = 0; r == 0 && w < N_WHATS; ++w) {
                b->medians[placement][w][round] = bench_quantile(b->samples[w], b->n_ops, 0.5);
                b->p99s[placement][w][round] = bench_quantile(b->samples[w], b->n_ops, 0.99);
        }
        return r;
}

static int one_round(struct rpc *b, unsigned round)
{
        int r = 0;

        for (unsigned p = 0; r == 0 && p < N_PLACEMENTS; ++p)
                if (b->cores[p] >= 0)
                        r = one_placement(b, p, round);
        return r;
}

static void report(struct rpc *b, struct bench_run *run, unsigned placement)
{
        static const char *const names[N_PLACEMENTS][2] = {
                {"lease", "free"}, {"lease-two-cores", "free-two-cores"}};

        for (unsigned w = LEASE; w <= FREE; ++w) {
                struct bench_result *r = bench_add(run, names[placement][w], "us");
                double **medians = b->medians[placement], **p99s = b->p99s[placement];
                unsigned echo = w == LEASE ? LEASE_ECHO : FREE_ECHO;

                r->median = bench_quantile(medians[w], run->rounds, 0.5);
                r->p99 = bench_quantile(p99s[w], run->rounds, 0.5);
                r->baseline_median = bench_quantile(medians[echo], run->rounds, 0.5);
                r->baseline_p99 = bench_quantile(p99s[echo], run->rounds, 0.5);
                r->max_ratio = MAX_RATIO;
        }
}

static int allocate(struct rpc *b, unsigned rounds)
{
        bool ok = true;

        for (unsigned w = 0; w < N_WHATS; ++w) {
                ok &= (b->samples[w] = calloc(b->n_ops, sizeof(double))) != NULL;
                for (unsigned p = 0; p < N_PLACEMENTS; ++p) {
                        ok &= (b->medians[p][w] = calloc(rounds, sizeof(double))) != NULL;
                        ok &= (b->p99s[p][w] = calloc(rounds, sizeof(double))) != NULL;
                }
        }
        return ok ? 0 : bench_fail("samples", -ENOMEM);
}

static int setup(struct rpc *b, unsigned rounds)
{
        static const struct private_options options;
        int r;

        r = allocate(b, rounds);
        if (r < 0)
                return r;
        frame_sizes(b->echo.sizes);
        r = echo_open(&b->echo);
        if (r < 0)
                return bench_fail("echo", r);
        r = private_daemon_init(&b->daemon, &options);
        if (r == 0)
                r = private_daemon_start(&b->daemon);
        if (r < 0)
                return bench_fail("private kvleased", r);
        r = connect_client(b);
        if (r)
                return bench_fail(kvl_last_error(), r);
        r = find_cores(b);
        return r < 0 ? bench_fail("pinning to a core", r) : 0;
}

static void teardown(struct rpc *b)
{
        kvl_disconnect(b->conn);
        private_daemon_deinit(&b->daemon);
        echo_close(&b->echo);
        for (unsigned w = 0; w < N_WHATS; ++w) {
                free(b->samples[w]);
                for (unsigned p = 0; p < N_PLACEMENTS; ++p) {
                        free(b->medians[p][w]);
                        free(b->p99s[p][w]);
                }
        }
}

static int run_rpc(struct bench_run *run)
{
        struct rpc b = {.echo = {.fd = -1}, .daemon = {.notify_fd = -1}};
        int r;

        b.n_ops = run->quick ? 100 : 5000;
        r = setup(&b, run->rounds);
        if (r == 0 && one_round(&b, 0)) /* warm */
                r = bench_fail("a request", -EIO);
        for (unsigned i = 0; r == 0 && i < run->rounds; ++i)
                if (one_round(&b, i))
                        r = bench_fail("a request", -EIO);
        for (unsigned p = 0; r == 0 && p < N_PLACEMENTS; ++p)
                if (b.cores[p] >= 0)
                        report(&b, run, p);
        teardown(&b);
        return r;
}

const struct bench bench_rpc = {
        "rpc", "lease and free of one page, against an echo of the same sizes", 15, run_rpc};
