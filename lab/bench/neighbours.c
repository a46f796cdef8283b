/*
 * neighbours: times of one tenant's client for a publish, a lease on the socket and a hit of 128
 * pages. Measured alone and beside each of the hostile tenants of tests/fault/neighbour.h. `table`
 * is a hit's control: the same probes and increments on a table of this process, after the same
 * waits. Its loss beside a tenant is the machine's, as no other process uses its memory. The client
 * has a core of its own; the daemon and the hostile tenant have the other one, the tenant at the
 * lowest priority. This measures the daemon's fairness, not the kernel's.
 */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "tests/bench/bench.h"
#include "tests/bench/qos.h"
#include "tests/bench/table.h"
#include "tests/fault/neighbour.h"
#include "tests/integration/pattern.h"

#define MAX_USEC      5000 /* specification: p99 of publishes and leases */
#define MAX_HIT_RATIO 1.5  /* specification: p99 of hits, by that alone; and by the table's */

#define N_KEYS     128
#define PAGE_BYTES 4096
#define SAMPLES    1000 /* of a round, beside each */
#define PAUSE_USEC 200  /* between two samples: requests come seldom, not in a stream */
#define SETTLE     200  /* ms after a neighbour was killed */
#define LIMIT_MIB  512u /* of the hostile tenant: its pages are all used */
#define MEMORY_MIB 1536u

enum what { PUBLISH, LEASE, HIT, TABLE, N_WHATS };
#define ALONE N_NEIGHBOURS

static const char *const whats[N_WHATS] = {"publish", "lease", "hit", "table"};

struct side {
        struct kvl_conn *conn;
        struct kvl_ns *ns;
};

struct neighbours {
        struct private_daemon daemon;
        int cores[N_CORES];
        struct side shared, socket; /* of the client that is measured */
        uint8_t keys[N_KEYS * KVL_KEY_BYTES];
        struct table *table; /* owned; the keys, in private memory */
        uint64_t n_published;
        _Atomic uint32_t *ready; /* shared with the neighbours */
        struct series all[N_NEIGHBOURS + 1][N_WHATS];
        struct series p99[N_NEIGHBOURS + 1][N_WHATS]; /* of the rounds */
};

/* ---- the daemon and its clients ------------------------------------------------------------- */

static int start_daemon(struct neighbours *b)
{
        static const struct private_tenant tenants[] = {{"good", "limit = 128MiB\n"},
                {"bad", "limit = 1GiB\nmax_clients = 64\n"}, {"big", NULL}, {NULL, NULL}};
        static const struct private_options options = {
                .tenants = tenants, .device_lines = "memory = 1536MiB\nextent = 2MiB\n"};
        int r = bench_find_cores(b->cores);

        if (r == 0 && b->cores[CORE_OTHER] < 0)
                return bench_fail("neighbours needs two cores", -ENODEV);
        if (r == 0)
                r = private_daemon_init(&b->daemon, &options);
        if (r == 0)
                r = private_daemon_start(&b->daemon);
        if (r == 0)
                r = bench_pin(0, b->cores[CORE_CLIENT]);
        if (r == 0)
                r = bench_pin(b->daemon.pid, b->cores[CORE_OTHER]);
        /* Ahead of the machine's other work, if that is permitted. */
        (void)setpriority(PRIO_PROCESS, 0, -20);
        (void)setpriority(PRIO_PROCESS, (id_t)b->daemon.pid, -20);
        return r < 0 ? bench_fail("private kvleased", r) : 0;
}

static int open_side(struct neighbours *b, unsigned flags, struct side *ret)
{
        char socket[PRIVATE_PATH_MAX];
        struct kvl_connect_options o = {.size = sizeof(o),
                .socket_path = private_daemon_socket(&b->daemon, "good", socket),
                .client_name = "kvlease-bench",
                .flags = flags};
        struct kvl_layout layout = {.size = sizeof(layout),
                .model = "bench",
                .version = "1",
                .dtype = KVL_DTYPE_F16,
                .n_layers = 1,
                .n_kv_heads = 1,
                .head_size = 64,
                .page_tokens = 16,
                .n_planes = 1,
                .plane_page_bytes = PAGE_BYTES,
                .tp_size = 1};
        int r = kvl_connect(&o, &ret->conn);

        if (r == 0)
                r = kvl_ns_open(ret->conn, "bench", &layout, NULL, 0, &ret->ns);
        return r ? bench_fail(kvl_last_error(), r) : 0;
}

static int publish(struct neighbours *b, uint32_t *pages, const uint8_t *keys, uint32_t n)
{
        struct kvl_publish p = {
                .size = sizeof(p), .pages = pages, .keys = keys, .n_pages = n, .last_tokens = 16};
        uint32_t carriers[N_KEYS];

        return kvl_publish(b->shared.ns, &p, carriers, NULL);
}

/* The text that is hit, in a table as large as the namespace's index. */
static int make_table(struct neighbours *b, const uint32_t *pages)
{
        struct kvl_ns_info info = {.size = sizeof(info)};
        int r;

        kvl_ns_info(b->shared.ns, &info);
        r = table_new(info.capacity_pages, &b->table);
        for (uint32_t i = 0; r == 0 && i < N_KEYS; i++)
                if (!table_insert(b->table, b->keys + i * KVL_KEY_BYTES, pages[i], 16))
                        r = -ENOSPC;
        return r ? bench_fail("the table", r) : 0;
}

/* The text that is hit. */
static int publish_text(struct neighbours *b)
{
        uint32_t pages[N_KEYS];
        int r = kvl_lease(b->shared.ns, 0, N_KEYS, pages);

        for (uint32_t i = 0; i < N_KEYS; i++)
                pattern_key(1, i, b->keys + i * KVL_KEY_BYTES);
        if (r == 0)
                r = publish(b, pages, b->keys, N_KEYS);
        if (r == 0)
                r = kvl_release(b->shared.ns, pages, N_KEYS);
        return r ? bench_fail(kvl_last_error(), r) : make_table(b, pages);
}

/* ---- a neighbour ---------------------------------------------------------------------------- */

static void be_neighbour(struct neighbours *b, enum neighbour kind, bool quick)
{
        struct neighbour_run run = {.kind = kind,
                .n_pages = kind == NEIGHBOUR_ASKS
                                   ? MEMORY_MIB * 1024 * 1024 / PAGE_BYTES
                                   : (quick ? 8u : LIMIT_MIB) * 1024 * 1024 / PAGE_BYTES,
                .ready = b->ready};

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setenv("CMOCKA_TEST_ABORT", "1", 1);
        private_daemon_socket(&b->daemon, "bad", run.socket);
        private_daemon_socket(&b->daemon, "big", run.other);
        if (bench_pin(0, b->cores[CORE_OTHER]) < 0 || setpriority(PRIO_PROCESS, 0, 19) < 0)
                _exit(1);
        neighbour_run(&run);
}

static int neighbour_start(struct neighbours *b, enum neighbour kind, bool quick, pid_t *ret_pid)
{
        pid_t pid;

        atomic_store(b->ready, 0);
        pid = fork();
        if (pid < 0)
                return bench_fail("fork", -errno);
        if (pid == 0)
                be_neighbour(b, kind, quick);
        while (atomic_load(b->ready) == 0) {
                if (waitpid(pid, NULL, WNOHANG) != 0)
                        return bench_fail(neighbour_name(kind), -EIO);
                sleep_msec(1);
        }
        *ret_pid = pid;
        return 0;
}

static void neighbour_stop(pid_t pid)
{
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        sleep_msec(SETTLE);
}

/* ---- what is measured ----------------------------------------------------------------------- */

static int time_publish(struct neighbours *b, struct series *s)
{
        uint8_t key[KVL_KEY_BYTES];
        uint64_t start;
        uint32_t page;
        int r = kvl_lease(b->shared.ns, 0, 1, &page);

        pattern_key(2, (unsigned)b->n_published++, key);
        start = now_nsec();
        if (r == 0)
                r = publish(b, &page, key, 1);
        series_add(s, bench_usec_since(start));
        return r ? r : kvl_release(b->shared.ns, &page, 1);
}

static int time_lease(struct neighbours *b, struct series *s)
{
        uint64_t start = now_nsec();
        uint32_t page;
        int r = kvl_lease(b->socket.ns, 0, 1, &page);

        series_add(s, bench_usec_since(start));
        return r ? r : kvl_free(b->socket.ns, &page, 1);
}

static int time_hit(struct neighbours *b, struct series *s)
{
        uint64_t start = now_nsec(), tokens;
        uint32_t pages[N_KEYS], n = 0;
        int r = kvl_lookup(b->shared.ns, 0, b->keys, N_KEYS, pages, &n, &tokens);

        if (r == 0)
                r = kvl_release(b->shared.ns, pages, n);
        series_add(s, bench_usec_since(start));
        return r == 0 && n < N_KEYS ? -EIO : r;
}

static int time_table(struct neighbours *b, struct series *s)
{
        uint64_t start = now_nsec(), tokens;
        uint32_t pages[N_KEYS], n = table_lookup(b->table, b->keys, N_KEYS, pages, &tokens);

        table_release(b->table, pages, n);
        series_add(s, bench_usec_since(start));
        return n < N_KEYS ? -EIO : 0;
}

static int one_block(struct neighbours *b, unsigned beside, unsigned n)
{
        struct series *s = b->all[beside];
        int r = 0;

        for (unsigned i = 0; r == 0 && i < n; i++) {
                r = time_publish(b, &s[PUBLISH]);
                if (r == 0)
                        r = time_lease(b, &s[LEASE]);
                /* One of them, so that each is measured after the same wait. */
                if (r == 0)
                        r = i % 2 ? time_hit(b, &s[HIT]) : time_table(b, &s[TABLE]);
                usleep(PAUSE_USEC);
        }
        for (unsigned k = 0; k < N_WHATS; k++) {
                if (s[k].n > 0)
                        series_add(&b->p99[beside][k], bench_quantile(s[k].samples, s[k].n, 0.99));
                series_close_round(&s[k]);
                series_close_round(&b->p99[beside][k]);
        }
        return r ? bench_fail(kvl_last_error(), r) : 0;
}

static int one_round(struct neighbours *b, const struct bench_run *run)
{
        unsigned n = run->quick ? 20 : SAMPLES;
        int r = one_block(b, ALONE, n);

        for (unsigned kind = 0; r == 0 && kind < N_NEIGHBOURS; kind++) {
                pid_t pid;

                if (run->argument && strcmp(run->argument, neighbour_name(kind)) != 0)
                        continue;
                r = neighbour_start(b, kind, run->quick, &pid);
                if (r < 0)
                        return r;
                r = one_block(b, kind, n);
                neighbour_stop(pid);
        }
        return r;
}

/* The longest iteration of the daemon's loop since its start. */
static int report_turns(struct neighbours *b, struct bench_run *run)
{
        json_t *status = qos_ctl(&b->daemon, "status");

        if (!status)
                return -EIO;
        bench_add(run, "us", "longest-turn")->median =
                (double)json_integer_value(json_object_get(status, "longest_turn_nsec")) / 1000;
        json_decref(status);
        return 0;
}

/* Reports an operation's times beside a tenant, and those of hits also by the table's. */
static void report_beside(
        struct neighbours *b, struct bench_run *run, unsigned k, enum neighbour kind)
{
        const char *name = neighbour_name(kind);
        struct bench_result *r = bench_add(run, "us", "%s-beside-%s", whats[k], name);

        series_report(r, &b->all[kind][k], &b->all[ALONE][k], "alone");
        r = bench_add(run, "us", "%s-beside-%s-p99", whats[k], name);
        series_report(r, &b->p99[kind][k], &b->p99[ALONE][k], "alone");
        r->p99 = r->baseline_p99 = NAN;
        if (k == PUBLISH || k == LEASE)
                r->max_value = MAX_USEC;
        if (k != HIT)
                return;
        r->max_ratio = MAX_HIT_RATIO;
        r = bench_add(run, "us", "hit-beside-%s-p99-table", name);
        series_report(r, &b->p99[kind][HIT], &b->p99[kind][TABLE], "table");
        r->p99 = r->baseline_p99 = NAN;
        r->max_ratio = MAX_HIT_RATIO;
}

static int report(struct neighbours *b, struct bench_run *run)
{
        for (unsigned k = 0; k < N_WHATS; k++) {
                series_report(
                        bench_add(run, "us", "%s-alone", whats[k]), &b->all[ALONE][k], NULL, NULL);
                for (unsigned kind = 0; kind < N_NEIGHBOURS; kind++)
                        if (b->all[kind][k].n_rounds > 0)
                                report_beside(b, run, k, kind);
        }
        return report_turns(b, run);
}

static int run_all(struct neighbours *b, struct bench_run *run)
{
        int r = start_daemon(b);

        b->ready = mmap(
                NULL, sizeof(*b->ready), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (b->ready == MAP_FAILED)
                return bench_fail("memory", -errno);
        for (unsigned i = 0; r == 0 && i <= N_NEIGHBOURS; i++)
                for (unsigned k = 0; r == 0 && k < N_WHATS; k++) {
                        r = series_init(&b->all[i][k], SAMPLES, run->rounds);
                        if (r == 0)
                                r = series_init(&b->p99[i][k], 1, run->rounds);
                }
        if (r == 0)
                r = open_side(b, 0, &b->shared);
        if (r == 0 && !kvl_uses_shm(b->shared.ns))
                r = bench_fail("memory isn't shared with kvleased: no figures", -EOPNOTSUPP);
        if (r == 0)
                r = open_side(b, KVL_CONNECT_NO_SHM, &b->socket);
        if (r == 0)
                r = publish_text(b);
        for (unsigned i = 0; r == 0 && i < run->rounds; i++)
                r = one_round(b, run);
        if (r == 0)
                r = report(b, run);
        return r;
}

static int run_neighbours(struct bench_run *run)
{
        static struct neighbours b = {.daemon = {.notify_fd = -1}};
        int r = run_all(&b, run);

        kvl_disconnect(b.shared.conn);
        kvl_disconnect(b.socket.conn);
        for (unsigned i = 0; i <= N_NEIGHBOURS; i++)
                for (unsigned k = 0; k < N_WHATS; k++) {
                        series_deinit(&b.all[i][k]);
                        series_deinit(&b.p99[i][k]);
                }
        table_free(b.table);
        private_daemon_deinit(&b.daemon);
        return r;
}

const struct bench bench_neighbours = {"neighbours",
        "publishes, leases and hits of one tenant beside hostile ones", 5, run_neighbours,
        .argument = "[KIND]"};
