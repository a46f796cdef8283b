/*
 * Waits by priority: one tenant holds all memory. Two clients each of three others, which queue,
 * ask for memory, those of the lowest priority first. Then held memory is freed bit by bit, and
 * from there on time counts.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "tests/bench/qos.h"

#define N_PRIORITIES 3
#define N_EACH       2
#define N_WAITERS    (N_PRIORITIES * N_EACH)
#define SET_PAGES    ((uint32_t)(QOS_EXTENT_BYTES / QOS_PAGE_BYTES))
#define N_SETS       (N_WAITERS + 2) /* all of the memory; a waiter wants one */
#define BIT_MSEC     5               /* from one set that is given back to the next; not tuned */
#define WAIT_MSEC    10000

#define WAITER "weight = 1000\nwhen_full = queue\nmax_wait = 30s\n"

/* All that wait want no more than their fair share: it is their priority alone that counts. */
static const struct private_tenant tenants[] = {
        {"hog", "weight = 1\n"},
        {"p10", "priority = 10\n" WAITER},
        {"p50", "priority = 50\n" WAITER},
        {"p90", "priority = 90\n" WAITER},
        {NULL, NULL},
};

struct client {
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        uint32_t pages[N_SETS * SET_PAGES];
        pthread_t thread;
        bool has_waited;
        uint64_t granted_nsec;
        int r;
};

struct queue {
        struct private_daemon daemon;
        struct client hog, waiters[N_WAITERS];
        struct series waits[N_PRIORITIES];
};

static int lease_all(struct client *c)
{
        for (unsigned i = 0; i < N_SETS; ++i) {
                int r = 0;

                /* Memory freed by the others is available when their requests are done. */
                for (unsigned n = 0; n < WAIT_MSEC; ++n) {
                        r = kvl_lease(c->ns, 0, SET_PAGES, c->pages + i * SET_PAGES);
                        if (r != KVL_FULL)
                                break;
                        sleep_msec(1);
                }
                if (r)
                        return bench_fail(kvl_last_error(), r);
        }
        return 0;
}

static void *wait_main(void *data)
{
        struct kvl_lease_result result = {.size = sizeof(result)};
        struct client *c = data;

        c->r = kvl_lease_with(c->ns, 0, SET_PAGES, NULL, c->pages, &result);
        c->granted_nsec = now_nsec();
        c->has_waited = result.waited_usec > 0;
        return NULL;
}

static int wait_waiting(struct queue *q, unsigned n)
{
        for (unsigned i = 0; i < WAIT_MSEC; ++i) {
                json_t *reply = qos_ctl(&q->daemon, "status");
                json_int_t is = json_integer_value(json_object_get(reply, "n_waiting"));

                json_decref(reply);
                if (!reply)
                        return -EIO;
                if (is == n)
                        return 0;
                sleep_msec(1);
        }
        return bench_fail("leases that should wait don't", -ETIMEDOUT);
}

/* *ret_n: how many threads run, also after a failure. */
static int start_waiters(struct queue *q, unsigned *ret_n)
{
        int r = 0;

        for (*ret_n = 0; r == 0 && *ret_n < N_WAITERS; ++*ret_n) {
                struct client *c = &q->waiters[*ret_n];

                if (pthread_create(&c->thread, NULL, wait_main, c) != 0)
                        return bench_fail("thread", -EAGAIN);
                r = wait_waiting(q, *ret_n + 1);
        }
        return r;
}

static int give_back(struct queue *q)
{
        int r = 0;

        for (unsigned i = 0; r == 0 && i < N_WAITERS; ++i) {
                r = kvl_free(q->hog.ns, q->hog.pages + i * SET_PAGES, SET_PAGES);
                sleep_msec(BIT_MSEC);
        }
        return r;
}

static int one_round(struct queue *q)
{
        int r = lease_all(&q->hog);
        unsigned n_started = 0;
        uint64_t start;

        if (r == 0)
                r = start_waiters(q, &n_started);
        start = now_nsec();
        if (r == 0)
                r = give_back(q);
        for (unsigned i = 0; i < n_started; ++i) {
                struct client *c = &q->waiters[i];

                pthread_join(c->thread, NULL);
                if (r == 0)
                        r = c->r;
                if (r == 0 && !c->has_waited)
                        r = bench_fail("a lease that waited doesn't say so", -EIO);
                series_add(&q->waits[i / N_EACH], (double)(c->granted_nsec - start) / 1000);
                if (r == 0)
                        r = kvl_free(c->ns, c->pages, SET_PAGES);
        }
        for (unsigned p = 0; p < N_PRIORITIES; ++p)
                series_close_round(&q->waits[p]);
        for (unsigned i = N_WAITERS; r == 0 && i < N_SETS; ++i)
                r = kvl_free(q->hog.ns, q->hog.pages + i * SET_PAGES, SET_PAGES);
        return r > 0 ? bench_fail("a lease that waits", r) : r;
}

static int open_all(struct queue *q, unsigned rounds)
{
        unsigned flags = KVL_CONNECT_METADATA_ONLY | KVL_CONNECT_NO_SHM;
        char device[96];
        struct private_options o = {.tenants = tenants, .device_lines = device};
        int r;

        snprintf(device, sizeof(device), "memory = %llu\nextent = %llu\n",
                (unsigned long long)(N_SETS * QOS_EXTENT_BYTES),
                (unsigned long long)QOS_EXTENT_BYTES);
        r = private_daemon_init(&q->daemon, &o);
        if (r == 0)
                r = private_daemon_start(&q->daemon);
        if (r < 0)
                return bench_fail("private kvleased", r);
        for (unsigned p = 0; r == 0 && p < N_PRIORITIES; ++p)
                r = series_init(&q->waits[p], N_EACH, rounds);
        if (r == 0)
                r = qos_connect(&q->daemon, "hog", flags, &q->hog.conn, &q->hog.ns);
        for (unsigned i = 0; r == 0 && i < N_WAITERS; ++i)
                r = qos_connect(&q->daemon, tenants[1 + i / N_EACH].name, flags,
                        &q->waiters[i].conn, &q->waiters[i].ns);
        return r;
}

/* The higher a priority the shorter the wait. */
static void report(struct queue *q, struct bench_run *run)
{
        for (unsigned p = 0; p < N_PRIORITIES; ++p) {
                struct bench_result *r = bench_add(run, "us", "wait-%s", tenants[1 + p].name);

                series_report(r, &q->waits[p], p > 0 ? &q->waits[p - 1] : NULL,
                        p > 0 ? tenants[p].name : NULL);
                if (p > 0)
                        r->max_ratio = 1;
        }
}

int qos_run_queue(struct bench_run *run)
{
        static struct queue q;
        int r;

        q.daemon.notify_fd = -1;
        r = open_all(&q, run->rounds);
        for (unsigned i = 0; r == 0 && i < run->rounds; ++i)
                r = one_round(&q);
        if (r == 0)
                report(&q, run);
        kvl_disconnect(q.hog.conn);
        for (unsigned i = 0; i < N_WAITERS; ++i)
                kvl_disconnect(q.waiters[i].conn);
        private_daemon_deinit(&q.daemon);
        for (unsigned p = 0; p < N_PRIORITIES; ++p)
                series_deinit(&q.waits[p]);
        return r;
}
