/*
 * observe: the cost of being observed. 100 tenants have a namespace and 64 cached pages each; hits
 * of a whole text are timed all the time. For half of each round kvlease-exporter is scraped every
 * second, like by Prometheus. CPU time is that of the processes, by their clocks; the daemon's in
 * the other half is its baseline. A scrape counts from the request to the last byte.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "client/lib/kvlease.h"
#include "tests/bench/bench.h"
#include "tests/integration/pattern.h"
#include "tests/integration/private-daemon.h"

#define N_TENANTS    100 /* specification */
#define N_PAGES      64  /* of each */
#define PAGE_BYTES   4096
#define PAGE_TOKENS  16
#define START_MSEC   30000
#define PERIOD_NSEC  1000000000ull /* between two scrapes; specification */
#define HALF_SCRAPES 5             /* of a round */
#define HITS_MAX     1000          /* timed in a half */

struct tenant {
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        uint8_t keys[N_PAGES * KVL_KEY_BYTES];
};

enum half { QUIET, SCRAPED, N_HALVES };

struct observe {
        struct private_daemon daemon;
        char names[N_TENANTS][8];
        struct private_tenant tenants[N_TENANTS + 1];
        struct tenant clients[N_TENANTS];
        int cores[N_CORES];
        char http[PRIVATE_PATH_MAX];
        pid_t exporter; /* 0: none */
        unsigned n_scrapes;
        struct series hit[N_HALVES], daemon_cpu[N_HALVES], exporter_cpu, scrape, size;
};

/* ---- the load -------------------------------------------------------------------------------- */

static int fill(struct tenant *t, unsigned number)
{
        uint32_t pages[N_PAGES];
        struct kvl_publish p = {.size = sizeof(p),
                .pages = pages,
                .keys = t->keys,
                .n_pages = N_PAGES,
                .last_tokens = PAGE_TOKENS};
        int r = kvl_lease(t->ns, 0, N_PAGES, pages);

        for (uint32_t i = 0; i < N_PAGES; ++i)
                pattern_key(number, i, t->keys + i * KVL_KEY_BYTES);
        if (r == 0)
                r = kvl_publish(t->ns, &p, NULL, NULL);
        return r ? r : kvl_release(t->ns, pages, N_PAGES);
}

static int connect_tenant(struct observe *o, unsigned i)
{
        struct tenant *t = &o->clients[i];
        char path[PRIVATE_PATH_MAX];
        struct kvl_connect_options options = {.size = sizeof(options),
                .socket_path = private_daemon_socket(&o->daemon, o->names[i], path),
                .client_name = "kvlease-bench"};
        struct kvl_layout layout = {.size = sizeof(layout),
                .model = "bench",
                .version = "1",
                .dtype = KVL_DTYPE_F16,
                .n_layers = 1,
                .n_kv_heads = 1,
                .head_size = 64,
                .page_tokens = PAGE_TOKENS,
                .n_planes = 1,
                .plane_page_bytes = PAGE_BYTES,
                .tp_size = 1};
        int r = kvl_connect(&options, &t->conn);

        if (r == 0)
                r = kvl_ns_open(t->conn, "bench", &layout, NULL, 0, &t->ns);
        if (r == 0)
                r = fill(t, i);
        return r ? bench_fail(kvl_last_error(), r) : 0;
}

/* Hits of the next tenant's text. */
static int hit(struct observe *o, unsigned i, struct series *s)
{
        struct tenant *t = &o->clients[i % N_TENANTS];
        uint32_t found[N_PAGES], n = 0;
        uint64_t tokens, start = now_nsec();
        int r = kvl_lookup(t->ns, 0, t->keys, N_PAGES, found, &n, &tokens);

        if (r == 0)
                r = kvl_release(t->ns, found, n);
        series_add(s, (double)(now_nsec() - start));
        return r || n != N_PAGES ? bench_fail("a hit", r ? r : -EIO) : 0;
}

/* ---- observing ------------------------------------------------------------------------------- */

/* Bytes of the answer, or -errno. */
static ssize_t get(const struct observe *o)
{
        static const char ask[] = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        char buf[65536];
        ssize_t n, sum = 0;

        strcpy(a.sun_path, o->http);
        if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ||
                send(fd, ask, sizeof(ask) - 1, MSG_NOSIGNAL) < 0)
                return -errno;
        while ((n = read(fd, buf, sizeof(buf))) > 0) {
                if (sum == 0 && memcmp(buf, "HTTP/1.1 200", 12) != 0)
                        return -EPROTO;
                sum += n;
        }
        return n < 0 ? -errno : sum;
}

static int start_exporter(struct observe *o)
{
        const char *argv[] = {
                program_exporter(), "--socket", o->daemon.admin, "--listen", o->http, NULL};
        int null;

        snprintf(o->http, sizeof(o->http), "%.90s/http", o->daemon.dir);
        null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        o->exporter = proc_spawn(argv, NULL, (struct proc_files){-1, null, -1});
        fd_close(null);
        if (o->exporter < 0)
                return bench_fail("kvlease-exporter", o->exporter);
        /* The first scrape connects it to the daemon. */
        for (unsigned i = 0; get(o) < 0; ++i) {
                if (i == START_MSEC / 10)
                        return bench_fail("kvlease-exporter", -ETIMEDOUT);
                sleep_msec(10);
        }
        return 0;
}

static int scrape(struct observe *o)
{
        uint64_t start = now_nsec();
        ssize_t n = get(o);

        if (n < 0)
                return bench_fail("a scrape", (int)n);
        series_add(&o->scrape, (double)(now_nsec() - start) / 1e6);
        series_add(&o->size, (double)n);
        o->n_scrapes++;
        return 0;
}

/* CPU seconds of all its threads, including ended ones; -1: the process is gone. */
static double cpu_sec(pid_t pid)
{
        struct timespec t;
        clockid_t clock;

        if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) < 0)
                return -1;
        return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* One period: a scrape at its beginning, where there is one, and hits of one tenant after another
 * until its end. They are as far from each other as scrapes are from being noticed: a ms. */
static int run_period(struct observe *o, enum half half, unsigned *i)
{
        uint64_t until = now_nsec() + PERIOD_NSEC;
        int r = 0;

        if (half == SCRAPED)
                r = scrape(o);
        while (r == 0 && now_nsec() < until) {
                r = hit(o, (*i)++, &o->hit[half]);
                sleep_msec(1);
        }
        return r;
}

static int run_half(struct observe *o, enum half half, unsigned n_periods)
{
        double daemon = cpu_sec(o->daemon.pid), exporter = cpu_sec(o->exporter), sec;
        uint64_t start = now_nsec();
        unsigned i = 0;
        int r = 0;

        while (r == 0 && n_periods-- > 0)
                r = run_period(o, half, &i);
        sec = (double)(now_nsec() - start) / 1e9;
        series_add(&o->daemon_cpu[half], (cpu_sec(o->daemon.pid) - daemon) / sec);
        if (half == SCRAPED)
                series_add(&o->exporter_cpu, (cpu_sec(o->exporter) - exporter) / sec);
        return r;
}

static void close_round(struct observe *o)
{
        for (unsigned h = 0; h < N_HALVES; ++h) {
                series_close_round(&o->hit[h]);
                series_close_round(&o->daemon_cpu[h]);
        }
        series_close_round(&o->exporter_cpu);
        series_close_round(&o->scrape);
        series_close_round(&o->size);
}

static void report(struct observe *o, struct bench_run *run)
{
        struct bench_result *r = bench_add(run, "1", "exporter-cores");
        double quiet;

        series_report(r, &o->exporter_cpu, NULL, NULL);
        r->max_value = 0.02; /* specification */
        r = bench_add(run, "1", "daemon-cores-quiet");
        series_report(r, &o->daemon_cpu[QUIET], NULL, NULL);
        quiet = r->median;
        r = bench_add(run, "1", "daemon-cores-by-scraping");
        series_report(r, &o->daemon_cpu[SCRAPED], NULL, NULL);
        r->median -= quiet;
        r->p99 -= quiet;
        r->max_value = 0.01; /* specification */
        r = bench_add(run, "ns", "hit-64-scraped");
        series_report(r, &o->hit[SCRAPED], &o->hit[QUIET], "quiet");
        r->max_ratio = 1.05; /* unchanged, but for noise */
        r = bench_add(run, "ms", "scrape");
        series_report(r, &o->scrape, NULL, NULL);
        r = bench_add(run, "bytes", "scrape-size");
        series_report(r, &o->size, NULL, NULL);
}

static int open_all(struct observe *o, const struct bench_run *run)
{
        struct private_options options = {
                .tenants = o->tenants, .device_lines = "memory = 256MiB\nextent = 2MiB\n"};
        int r = bench_find_cores(o->cores);

        for (unsigned i = 0; i < N_TENANTS; ++i) {
                snprintf(o->names[i], sizeof(o->names[i]), "t%u", i);
                o->tenants[i].name = o->names[i];
        }
        if (r == 0 && o->cores[CORE_OTHER] < 0)
                return bench_fail("observe needs two cores", -ENODEV);
        if (r == 0)
                r = private_daemon_init(&o->daemon, &options);
        if (r == 0)
                r = private_daemon_start(&o->daemon);
        if (r == 0)
                r = bench_pin(0, o->cores[CORE_CLIENT]);
        if (r == 0)
                r = bench_pin(o->daemon.pid, o->cores[CORE_OTHER]);
        if (r < 0)
                return bench_fail("private kvleased", r);
        for (unsigned i = 0; r == 0 && i < N_TENANTS; ++i)
                r = connect_tenant(o, i);
        for (unsigned h = 0; r == 0 && h < N_HALVES; ++h) {
                r = series_init(&o->hit[h], HITS_MAX * HALF_SCRAPES, run->rounds);
                if (r == 0)
                        r = series_init(&o->daemon_cpu[h], 1, run->rounds);
        }
        if (r == 0)
                r = series_init(&o->exporter_cpu, 1, run->rounds);
        if (r == 0)
                r = series_init(&o->scrape, HALF_SCRAPES, run->rounds);
        if (r == 0)
                r = series_init(&o->size, HALF_SCRAPES, run->rounds);
        return r == 0 ? start_exporter(o) : r;
}

static void close_all(struct observe *o)
{
        int status;

        if (o->exporter > 0) {
                kill(o->exporter, SIGKILL);
                proc_wait(o->exporter, START_MSEC, &status);
        }
        for (unsigned i = 0; i < N_TENANTS; ++i)
                kvl_disconnect(o->clients[i].conn);
        for (unsigned h = 0; h < N_HALVES; ++h) {
                series_deinit(&o->hit[h]);
                series_deinit(&o->daemon_cpu[h]);
        }
        series_deinit(&o->exporter_cpu);
        series_deinit(&o->scrape);
        series_deinit(&o->size);
        private_daemon_deinit(&o->daemon);
}

static int run_observe(struct bench_run *run)
{
        static struct observe o = {.daemon = {.notify_fd = -1}};
        unsigned n_periods = run->quick ? 1 : HALF_SCRAPES;
        int r = open_all(&o, run);

        for (unsigned i = 0; r == 0 && i < run->rounds; ++i) {
                r = run_half(&o, QUIET, n_periods);
                if (r == 0)
                        r = run_half(&o, SCRAPED, n_periods);
                close_round(&o);
        }
        if (r == 0)
                report(&o, run);
        close_all(&o);
        return r;
}

const struct bench bench_observe = {"observe",
        "a load of 100 tenants, scraped every second through kvlease-exporter", 7, run_observe};
