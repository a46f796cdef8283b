/*
 * data: 32 MiB written, and found and read whole, by processes that have just opened the namespace.
 * Compared with processes that have touched all of its memory. The memory exists already: fresh
 * processes only lack entries in their page tables.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "tests/bench/data.h"
#include "tests/bench/fixture.h"
#include "tests/integration/pattern.h"

#define PAGE_BYTES 65536
#define TEXT_PAGES 512              /* 32 MiB */
#define N_PAGES    (3 * TEXT_PAGES) /* of the device: leases always find free ones */
#define MAX_RATIO  1.3

enum order { ORDER_WRITE, ORDER_READ, ORDER_DROP, ORDER_TOUCH_ALL, ORDER_END };

struct answer {
        int code;
        uint64_t begin_nsec, end_nsec;
};

/* A process with the namespace open, which follows orders. */
struct worker {
        pid_t pid;
        int orders[2], answers[2];
};

enum what { WRITE, READ, HANDOVER, N_WHATS };

struct fresh {
        struct fixture fixture;
        struct worker warm[2];
        struct series series[2 * N_WHATS]; /* fresh, warm */
};

/* ---- in the worker -------------------------------------------------------------------------- */

static struct fixture_client client;
static uint8_t content[PAGE_BYTES];
static uint8_t keys[TEXT_PAGES * KVL_KEY_BYTES];
static uint32_t pages[N_PAGES];

static int write_text(void)
{
        struct kvl_publish p = {.size = sizeof(p),
                .pages = pages,
                .keys = keys,
                .n_pages = TEXT_PAGES,
                .last_tokens = FIXTURE_PAGE_TOKENS};
        int r = kvl_lease(client.ns, 0, TEXT_PAGES, pages);

        for (uint32_t i = 0; r == 0 && i < TEXT_PAGES; ++i)
                memcpy(kvl_page_ptr(client.ns, pages[i], 0), content, PAGE_BYTES);
        if (r == 0)
                r = kvl_publish(client.ns, &p, NULL, NULL);
        return r ? r : kvl_release(client.ns, pages, TEXT_PAGES);
}

static int read_text(void)
{
        uint64_t n_tokens;
        uint32_t n = 0;
        int r = kvl_lookup(client.ns, 0, keys, TEXT_PAGES, pages, &n, &n_tokens);

        if (r == 0 && n != TEXT_PAGES)
                r = KVL_MISS;
        for (uint32_t i = 0; r == 0 && i < TEXT_PAGES; ++i)
                if (memcmp(kvl_page_ptr(client.ns, pages[i], 0), content, PAGE_BYTES) != 0)
                        r = -EBADMSG;
        return r ? r : kvl_release(client.ns, pages, TEXT_PAGES);
}

/* Touches the whole device; the text isn't published. */
static int touch_all(void)
{
        uint32_t n = 0;
        int r = 0;

        while (r == 0 && n < N_PAGES) {
                r = kvl_lease(client.ns, 0, TEXT_PAGES, pages + n);
                for (uint32_t i = 0; r == 0 && i < TEXT_PAGES; ++i)
                        memset(kvl_page_ptr(client.ns, pages[n + i], 0), 1, PAGE_BYTES);
                n += r == 0 ? TEXT_PAGES : 0;
        }
        return r ? r : kvl_free(client.ns, pages, n);
}

static int do_order(enum order order)
{
        switch (order) {
        case ORDER_WRITE:
                return write_text();
        case ORDER_READ:
                return read_text();
        case ORDER_DROP:
                return kvl_invalidate(client.ns, keys, NULL);
        default:
                return touch_all();
        }
}

static void worker_main(const struct worker *w, const struct fixture *f)
{
        struct answer a = {0};
        uint8_t order;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        memset(content, 0x5a, sizeof(content));
        for (uint32_t i = 0; i < TEXT_PAGES; ++i)
                pattern_key(1, i, keys + i * KVL_KEY_BYTES);
        a.code = fixture_connect(f, 0, &client);
        while (write(w->answers[1], &a, sizeof(a)) == sizeof(a) &&
                read(w->orders[0], &order, 1) == 1 && order != ORDER_END) {
                a.begin_nsec = now_nsec();
                a.code = do_order(order);
                a.end_nsec = now_nsec();
        }
        fixture_disconnect(&client);
        _exit(0);
}

/* ---- its parent ----------------------------------------------------------------------------- */

static int hear(struct worker *w, struct answer *ret)
{
        if (read(w->answers[0], ret, sizeof(*ret)) != sizeof(*ret))
                return -EIO;
        return ret->code;
}

static int tell(struct worker *w, enum order order, struct answer *ret)
{
        const uint8_t byte = (uint8_t)order;

        return write(w->orders[1], &byte, 1) == 1 ? hear(w, ret) : -EIO;
}

static const struct worker no_worker = {.orders = {-1, -1}, .answers = {-1, -1}};

/* Forks it and waits until it has the namespace open. */
static int worker_start(struct worker *w, const struct fixture *f)
{
        struct answer a;

        *w = no_worker;
        if (pipe(w->orders) < 0 || pipe(w->answers) < 0)
                return -errno;
        w->pid = fork();
        if (w->pid == 0)
                worker_main(w, f);
        if (w->pid < 0)
                return -errno;
        w->orders[0] = fd_close(w->orders[0]);
        w->answers[1] = fd_close(w->answers[1]);
        return hear(w, &a);
}

/* The worker says goodbye first: its pages are free when this returns. */
static void worker_stop(struct worker *w)
{
        /* Not by the pipe's end, which workers forked later have, too. */
        const uint8_t order = ORDER_END;

        if (w->pid > 0 && write(w->orders[1], &order, 1) != 1)
                kill(w->pid, SIGKILL);
        if (w->pid > 0)
                waitpid(w->pid, NULL, 0);
        for (unsigned i = 0; i < 2; ++i) {
                w->orders[i] = fd_close(w->orders[i]);
                w->answers[i] = fd_close(w->answers[i]);
        }
        w->pid = 0;
}

/* ---- measuring ------------------------------------------------------------------------------ */

static void add(struct fresh *b, enum what what, bool warm, uint64_t begin, uint64_t end)
{
        series_add(&b->series[2 * what + warm], (double)(end - begin) / 1e6);
}

/* Passes the text from one worker to the other. */
static int hand_over(struct fresh *b, bool warm, struct worker *from, struct worker *to)
{
        struct answer wrote, found, dropped;
        int r = tell(from, ORDER_WRITE, &wrote);

        if (r == 0)
                r = tell(to, ORDER_READ, &found);
        if (r == 0)
                r = tell(from, ORDER_DROP, &dropped);
        if (r)
                return r;
        add(b, WRITE, warm, wrote.begin_nsec, wrote.end_nsec);
        add(b, READ, warm, found.begin_nsec, found.end_nsec);
        add(b, HANDOVER, warm, wrote.begin_nsec, found.end_nsec);
        return 0;
}

static int hand_over_fresh(struct fresh *b)
{
        struct worker w[2] = {no_worker, no_worker};
        int r = worker_start(&w[0], &b->fixture);

        if (r == 0)
                r = worker_start(&w[1], &b->fixture);
        if (r == 0)
                r = hand_over(b, false, &w[0], &w[1]);
        worker_stop(&w[0]);
        worker_stop(&w[1]);
        return r;
}

static int one_round(struct fresh *b, unsigned n, bool is_first)
{
        int r = 0;

        for (unsigned i = 0; r == 0 && i < n; ++i) {
                r = hand_over(b, true, &b->warm[0], &b->warm[1]);
                if (r == 0)
                        r = hand_over_fresh(b);
        }
        for (unsigned w = 0; w < ARRAY_SIZE(b->series); ++w)
                (is_first ? series_drop_round : series_close_round)(&b->series[w]);
        return r;
}

static int setup(struct fresh *b, unsigned n, unsigned rounds)
{
        struct answer a;
        int r = 0;

        for (unsigned w = 0; r == 0 && w < ARRAY_SIZE(b->series); ++w)
                r = series_init(&b->series[w], n, rounds);
        if (r == 0)
                r = fixture_open(&b->fixture, N_PAGES, PAGE_BYTES);
        for (unsigned i = 0; r == 0 && i < ARRAY_SIZE(b->warm); ++i) {
                r = worker_start(&b->warm[i], &b->fixture);
                if (r == 0)
                        r = tell(&b->warm[i], ORDER_TOUCH_ALL, &a);
        }
        return r;
}

static void report(struct fresh *b, struct bench_run *run, const char *suffix)
{
        static const char *const names[N_WHATS] = {"write", "read", "handover"};

        for (unsigned w = 0; w < N_WHATS; ++w) {
                struct bench_result *r = bench_add(run, "ms", "%s-32MiB-fresh%s", names[w], suffix);

                series_report(r, &b->series[2 * w], &b->series[2 * w + 1], "warm");
                r->max_ratio = MAX_RATIO;
        }
}

static int run_with(struct bench_run *run, const char *device_lines, const char *suffix)
{
        static struct fresh b;
        unsigned n = run->quick ? 2 : 20;
        int r;

        b = (struct fresh){.fixture = FIXTURE_INIT, .warm = {no_worker, no_worker}};
        b.fixture.device_lines = device_lines;
        r = setup(&b, n, run->rounds);
        for (unsigned i = 0; r == 0 && i <= run->rounds; ++i)
                r = one_round(&b, n, i == 0);
        if (r == 0)
                report(&b, run, suffix);
        worker_stop(&b.warm[0]);
        worker_stop(&b.warm[1]);
        fixture_close(&b.fixture);
        for (unsigned w = 0; w < ARRAY_SIZE(b.series); ++w)
                series_deinit(&b.series[w]);
        return r ? bench_fail("32 MiB of a fresh process", r) : 0;
}

int run_data_fresh(struct bench_run *run)
{
        int r = run_with(run, NULL, "");

        if (r == 0 && proc_can_make_huge_pages())
                r = run_with(run, "huge_pages = on\npopulate = on\n", "-huge");
        return r;
}
