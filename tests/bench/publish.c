/*
 * publish: what submitting a page costs, in batches of 128, against an atomic increment; and how
 * long it takes until another process finds it, against the echo of a process on a socket. With
 * the daemon (or the echo) on the publisher's core and the reader spinning on the other one; and
 * with the daemon on the other core and the reader on the publisher's.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "tests/bench/baseline.h"
#include "tests/bench/bench.h"
#include "tests/bench/fixture.h"
#include "tests/bench/publish.h"
#include "tests/integration/pattern.h"

#define BATCH          128
#define MAX_INCREMENTS 15 /* specification: a page of a batch */
#define MAX_ECHOES     2  /* specification: until another process finds it */

enum what {
        SUBMIT,
        SUBMIT_AWAKE,
        COMPLETE,
        INCREMENT,
        VISIBLE,
        ECHO,
        VISIBLE_TWO,
        ECHO_TWO,
        N_WHATS
};

/* Words shared by publisher and reader. */
struct shared_words {
        uint8_t key[KVL_KEY_BYTES];
        _Atomic bool spinning;
        _Atomic uint64_t found_nsec;
        _Atomic bool failed;
};

struct reader {
        struct shared_words *words; /* mapped, shared */
        pid_t pid;
        int go[2], found[2]; /* pipes: a byte for each key */
        bool own_core;       /* looks the key up before it is published, and until it is there */
};

struct publish {
        struct fixture fixture;
        struct fixture_client client;
        struct echo echo;
        struct reader readers[2]; /* of VISIBLE, of VISIBLE_TWO */
        uint64_t text;
        struct series series[N_WHATS];
};

static void count_done(
        struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n, uint64_t tokens, void *data)
{
        *(int *)data = code ? -EIO : 1;
}

/* Waits until *done isn't 0. */
static int wait_done(struct kvl_conn *conn, const int *done)
{
        while (*done == 0) {
                struct pollfd p = {.fd = kvl_fd(conn), .events = POLLIN};
                int r = kvl_dispatch(conn);

                if (r < 0)
                        return r;
                if (r == 0 && *done == 0)
                        poll(&p, 1, 1000);
        }
        return *done < 0 ? *done : 0;
}

/* Submits the next text, of BATCH leased pages; *done is set once it is complete. */
static int submit(struct publish *b, const uint32_t *pages, int *done, struct series *s)
{
        uint8_t keys[BATCH * KVL_KEY_BYTES];
        struct kvl_publish p = {.size = sizeof(p),
                .pages = pages,
                .keys = keys,
                .n_pages = BATCH,
                .last_tokens = FIXTURE_PAGE_TOKENS};
        uint64_t start;
        int r;

        b->text++;
        for (unsigned i = 0; i < BATCH; ++i)
                pattern_key(b->text, i, keys + i * KVL_KEY_BYTES);
        start = now_nsec();
        r = kvl_publish_start(b->client.ns, &p, count_done, done);
        series_add(s, (double)(now_nsec() - start) / BATCH);
        return r;
}

/* Two batches: the first wakes the daemon, the second finds it awake. */
static int time_submit(struct publish *b)
{
        uint32_t pages[2 * BATCH];
        uint8_t keys[2 * KVL_KEY_BYTES];
        int done[2] = {0}, r = kvl_lease(b->client.ns, 0, 2 * BATCH, pages);
        uint64_t start = now_nsec();

        if (r == 0)
                r = submit(b, pages, &done[0], &b->series[SUBMIT]);
        if (r == 0)
                r = submit(b, pages + BATCH, &done[1], &b->series[SUBMIT_AWAKE]);
        for (unsigned i = 0; r == 0 && i < 2; ++i)
                r = wait_done(b->client.conn, &done[i]);
        series_add(&b->series[COMPLETE], (double)(now_nsec() - start) / (2 * BATCH));
        if (r == 0)
                r = kvl_release(b->client.ns, pages, 2 * BATCH);
        for (unsigned i = 0; i < 2; ++i)
                pattern_key(b->text - 1 + i, 0, keys + i * KVL_KEY_BYTES);
        return r ? r : fixture_drop(b->client.ns, keys, 2, 1);
}

/* ---- the reader ----------------------------------------------------------------------------- */

static void read_one(struct reader *r, struct kvl_ns *ns)
{
        uint32_t page, n_pages;
        uint64_t tokens;
        uint8_t byte;
        int e;

        if (read(r->go[0], &byte, 1) != 1)
                _exit(0);
        atomic_store(&r->words->spinning, true);
        while ((e = kvl_lookup(ns, 0, r->words->key, 1, &page, &n_pages, &tokens)) == KVL_MISS)
                ;
        atomic_store(&r->words->found_nsec, now_nsec());
        if (e || kvl_release(ns, &page, 1))
                atomic_store(&r->words->failed, true);
        if (write(r->found[1], "", 1) != 1)
                _exit(1);
}

static void reader_main(struct reader *r, const struct fixture *f, int core)
{
        struct fixture_client c;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (bench_pin(0, core) < 0 || fixture_connect(f, 0, &c) < 0)
                atomic_store(&r->words->failed, true);
        if (write(r->found[1], "", 1) != 1 || atomic_load(&r->words->failed))
                _exit(1);
        for (;;)
                read_one(r, c.ns);
}

/* Forks it and waits until it is connected. */
static int reader_start(struct reader *r, const struct fixture *f, int core, bool own_core)
{
        char byte;

        r->own_core = own_core;
        r->words = mmap(
                NULL, sizeof(*r->words), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (r->words == MAP_FAILED || pipe(r->found) < 0 || pipe(r->go) < 0)
                return bench_fail("reader", -errno);
        r->pid = fork();
        if (r->pid == 0)
                reader_main(r, f, core);
        if (r->pid < 0 || read(r->found[0], &byte, 1) != 1 || atomic_load(&r->words->failed))
                return bench_fail("reader", -EIO);
        return 0;
}

static void reader_stop(struct reader *r)
{
        if (r->pid > 0) {
                kill(r->pid, SIGKILL);
                waitpid(r->pid, NULL, 0);
        }
        for (unsigned i = 0; i < 2; ++i) {
                r->go[i] = fd_close(r->go[i]);
                r->found[i] = fd_close(r->found[i]);
        }
        if (r->words && r->words != MAP_FAILED)
                munmap(r->words, sizeof(*r->words));
}

/* ---- how long until it finds a page --------------------------------------------------------- */

static int wake_reader(struct reader *r)
{
        atomic_store(&r->words->spinning, false);
        if (write(r->go[1], "", 1) != 1)
                return -errno;
        while (r->own_core && !atomic_load(&r->words->spinning))
                ;
        return 0;
}

static int time_visible(struct publish *b, struct reader *r, struct series *s)
{
        uint32_t page;
        struct kvl_publish p = {.size = sizeof(p),
                .pages = &page,
                .keys = r->words->key,
                .n_pages = 1,
                .last_tokens = FIXTURE_PAGE_TOKENS};
        int done = 0, e = kvl_lease(b->client.ns, 0, 1, &page);
        uint64_t start;
        uint8_t byte;

        if (e)
                return e;
        pattern_key(++b->text, 0, r->words->key);
        if (r->own_core)
                e = wake_reader(r);
        start = now_nsec();
        if (e == 0)
                e = kvl_publish_start(b->client.ns, &p, count_done, &done);
        if (e == 0 && !r->own_core)
                e = wake_reader(r);
        if (e == 0 && (read(r->found[0], &byte, 1) != 1 || atomic_load(&r->words->failed)))
                e = -EIO;
        series_add(s, (double)(atomic_load(&r->words->found_nsec) - start) / 1000);
        if (e == 0)
                e = wait_done(b->client.conn, &done);
        if (e == 0)
                e = kvl_release(b->client.ns, &page, 1);
        return e ? e : fixture_drop(b->client.ns, r->words->key, 1, 1);
}

static int time_echo(struct publish *b, struct series *s)
{
        uint64_t start = now_nsec();
        int r = echo_call(&b->echo);

        series_add(s, bench_usec_since(start));
        return r;
}

/* The daemon and the echo on `core`. */
static int time_placement(struct publish *b, unsigned placement, unsigned n)
{
        struct series *visible = &b->series[placement == CORE_CLIENT ? VISIBLE : VISIBLE_TWO];
        int core = b->fixture.cores[placement];
        int r = bench_pin(b->fixture.daemon.pid, core);

        if (r == 0)
                r = bench_pin(b->echo.pid, core);
        for (unsigned i = 0; r == 0 && i < n; ++i)
                r = time_visible(b, &b->readers[placement], visible);
        for (unsigned i = 0; r == 0 && i < n; ++i)
                r = time_echo(b, visible + 1);
        return r;
}

static int one_round(struct publish *b, unsigned n_blocks, unsigned block, bool warm)
{
        bool two = b->fixture.cores[CORE_OTHER] >= 0;
        int r = 0;

        for (unsigned i = 0; r == 0 && i < n_blocks; ++i) {
                r = bench_pin(b->fixture.daemon.pid, b->fixture.cores[two]);
                for (unsigned k = 0; r == 0 && k < block; ++k) {
                        r = time_submit(b);
                        series_add(&b->series[INCREMENT], increment_nsec());
                }
                for (unsigned p = 0; r == 0 && two && p < N_CORES; ++p)
                        r = time_placement(b, p, block);
        }
        for (unsigned w = 0; w < N_WHATS; ++w)
                (warm ? series_drop_round : series_close_round)(&b->series[w]);
        return r ? bench_fail(kvl_last_error(), r) : 0;
}

static void report(struct publish *b, struct bench_run *run)
{
        struct series *s = b->series;
        struct bench_result *r = bench_add(run, "ns", "submit-128-per-page");

        series_report(r, &s[SUBMIT], &s[INCREMENT], "increment");
        r->max_ratio = MAX_INCREMENTS;
        r = bench_add(run, "ns", "submit-128-awake-per-page");
        series_report(r, &s[SUBMIT_AWAKE], &s[INCREMENT], "increment");
        r = bench_add(run, "ns", "complete-128-per-page");
        series_report(r, &s[COMPLETE], &s[INCREMENT], "increment");
        if (b->fixture.cores[CORE_OTHER] < 0)
                return;
        r = bench_add(run, "us", "visible");
        series_report(r, &s[VISIBLE], &s[ECHO], "echo");
        r->max_ratio = MAX_ECHOES;
        r = bench_add(run, "us", "visible-two-cores");
        series_report(r, &s[VISIBLE_TWO], &s[ECHO_TWO], "echo-two-cores");
        r->max_ratio = MAX_ECHOES;
}

static int setup(struct publish *b, unsigned n_samples, unsigned rounds)
{
        const int *cores = b->fixture.cores;
        struct echo_sizes sizes[2];
        int r = 0;

        for (unsigned w = 0; r == 0 && w < N_WHATS; ++w)
                r = series_init(&b->series[w], n_samples, rounds);
        if (r < 0)
                return r;
        echo_frame_sizes(sizes);
        r = echo_open(&b->echo, sizes);
        if (r < 0)
                return bench_fail("echo", r);
        r = fixture_open(&b->fixture, 16384, FIXTURE_PAGE_BYTES);
        if (r == 0 && cores[CORE_OTHER] >= 0) {
                r = reader_start(&b->readers[0], &b->fixture, cores[CORE_OTHER], true);
                if (r == 0)
                        r = reader_start(&b->readers[1], &b->fixture, cores[CORE_CLIENT], false);
        }
        return r ? r : fixture_connect(&b->fixture, 0, &b->client);
}

static int run_empty(struct bench_run *run)
{
        static const struct reader no_reader = {.go = {-1, -1}, .found = {-1, -1}};
        struct publish b = {
                .fixture = FIXTURE_INIT, .echo = {.fd = -1}, .readers = {no_reader, no_reader}};
        unsigned n_blocks = run->quick ? 1 : 10, block = run->quick ? 5 : 50;
        int r = setup(&b, n_blocks * block, run->rounds);

        for (unsigned i = 0; r == 0 && i <= run->rounds; ++i)
                r = one_round(&b, n_blocks, block, i == 0);
        if (r == 0)
                report(&b, run);
        fixture_disconnect(&b.client);
        reader_stop(&b.readers[0]);
        reader_stop(&b.readers[1]);
        fixture_close(&b.fixture);
        echo_close(&b.echo);
        for (unsigned w = 0; w < N_WHATS; ++w)
                series_deinit(&b.series[w]);
        return r;
}

/* All parts, or the one that is named. */
static int run_publish(struct bench_run *run)
{
        bool is_full = !run->argument || strcmp(run->argument, "full") == 0;
        bool is_empty = !run->argument || strcmp(run->argument, "empty") == 0;
        bool is_events = !run->argument || strcmp(run->argument, "events") == 0;
        int r = is_full || is_empty || is_events
                        ? 0
                        : bench_fail("the parts of publish are empty, full and events", -EINVAL);

        if (r == 0 && is_empty)
                r = run_empty(run);
        if (r == 0 && is_full)
                r = publish_run_full(run);
        if (r == 0 && is_events)
                r = publish_run_events(run);
        return r;
}

const struct bench bench_publish = {"publish",
        "submitting pages in batches, until another process finds one, into a full namespace, and with events for followers",
        11, run_publish, .argument = "[PART]"};
