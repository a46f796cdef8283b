/*
 * The pinned tenant of the benchmark `qos`: a client with a steady demand. It waits for the daemon
 * only in leases; it publishes by kvl_publish_start(), like an engine. Its texts fill its
 * reservation, so that its own oldest ones are evicted.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/macros.h"
#include "tests/bench/qos.h"
#include "tests/integration/pattern.h"

#define PERIOD_NSEC UINT64_C(1000000) /* of a step; not tuned */
#define N_TEXTS     128               /* that are hit: the last ones published */
#define N_HELD      8                 /* leases that are kept a while, then freed */
#define SEED        UINT64_C(7)

struct lease {
        uint32_t pages[QOS_TEXT], n;
};

struct text {
        uint64_t chain;
        uint32_t n;
};

struct qos_pinned {
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        uint64_t random, next_chain;
        struct lease held[N_HELD];
        struct text texts[N_TEXTS]; /* published, a ring */
        uint64_t n_texts, n_steps;
        struct qos_pinned_counts counts;
        int failed; /* in a callback */
};

static uint64_t draw(struct qos_pinned *p, uint64_t below)
{
        return pattern_next(&p->random) % below;
}

static void make_keys(const struct text *t, uint8_t keys[QOS_TEXT * KVL_KEY_BYTES])
{
        for (uint32_t i = 0; i < t->n; ++i)
                pattern_key(t->chain, i, keys + i * KVL_KEY_BYTES);
}

int qos_pinned_open(struct qos *q, struct qos_pinned **ret)
{
        struct qos_pinned *p = calloc(1, sizeof(*p));
        int r;

        if (!p)
                return bench_fail("memory", -ENOMEM);
        p->random = SEED;
        r = qos_connect(&q->daemon, "pinned", 0, &p->conn, &p->ns);
        if (r == 0 && !kvl_uses_shm(p->ns))
                r = bench_fail("memory isn't shared with kvleased: no figures", -EOPNOTSUPP);
        if (r < 0) {
                qos_pinned_close(p);
                return r;
        }
        *ret = p;
        return 0;
}

void qos_pinned_close(struct qos_pinned *p)
{
        if (p)
                kvl_disconnect(p->conn);
        free(p);
}

struct qos_pinned_counts qos_pinned_counts(const struct qos_pinned *p)
{
        return p->counts;
}

/* ---- a step --------------------------------------------------------------------------------- */

/* A lease that is refused, or waited, is counted: the daemon promises that there is none. */
static int lease(struct qos_pinned *p, struct lease *l, struct series *alloc)
{
        struct kvl_lease_result result = {.size = sizeof(result)};
        uint64_t start;
        int r;

        l->n = 1 + (uint32_t)draw(p, QOS_TEXT);
        start = now_nsec();
        r = kvl_lease_with(p->ns, 0, l->n, NULL, l->pages, &result);
        series_add(alloc, (double)(now_nsec() - start));
        p->counts.waited += result.waited_usec > 0;
        if (r == 0)
                return 0;
        l->n = 0;
        p->counts.refused++;
        return r < 0 ? bench_fail(kvl_last_error(), r) : 0;
}

static void on_published(
        struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n, uint64_t tokens, void *data)
{
        struct qos_pinned *p = data;

        if (code == 0)
                code = kvl_release_start(ns, pages, n, NULL, NULL);
        if (code)
                p->failed = code;
        else
                p->n_texts++;
}

/* Publishes complete in the order in which they were started. */
static int publish(struct qos_pinned *p, const struct lease *l, uint64_t n_started)
{
        struct text *t = &p->texts[n_started % N_TEXTS];
        uint8_t keys[QOS_TEXT * KVL_KEY_BYTES];
        struct kvl_publish publish = {.size = sizeof(publish),
                .pages = l->pages,
                .keys = keys,
                .n_pages = l->n,
                .last_tokens = QOS_PAGE_TOKENS};

        *t = (struct text){.chain = n_started + (SEED << 32), .n = l->n};
        make_keys(t, keys);
        return kvl_publish_start(p->ns, &publish, on_published, p);
}

static int put(struct qos_pinned *p, struct lease *l)
{
        struct lease *held = &p->held[p->n_steps / 2 % N_HELD];
        int r = 0;

        if (l->n == 0)
                return 0;
        if (p->n_steps % 2 == 0) {
                r = publish(p, l, p->next_chain);
                if (r == 0)
                        p->next_chain++;
                if (r != -EAGAIN)
                        return r;
                /* The ring is full: the daemon is far behind. */
                p->counts.late++;
                return kvl_free(p->ns, l->pages, l->n);
        }
        if (held->n > 0)
                r = kvl_free(p->ns, held->pages, held->n);
        *held = *l;
        return r;
}

/* Hits one of the newer half of its texts: the rest of the ring may be overwritten soon. */
static int hit(struct qos_pinned *p, struct series *series)
{
        uint8_t keys[QOS_TEXT * KVL_KEY_BYTES];
        uint32_t pages[QOS_TEXT], n = 0;
        uint64_t start, tokens;
        struct text t;
        int r;

        if (p->n_texts < N_TEXTS)
                return 0;
        t = p->texts[(p->n_texts - 1 - draw(p, N_TEXTS / 2)) % N_TEXTS];
        make_keys(&t, keys);
        start = now_nsec();
        r = kvl_lookup(p->ns, 0, keys, t.n, pages, &n, &tokens);
        if (r == 0)
                r = kvl_release(p->ns, pages, n);
        series_add(series, (double)(now_nsec() - start));
        p->counts.missed += n < t.n;
        return r < 0 ? bench_fail(kvl_last_error(), r) : 0;
}

/* To the next beat; where it is late, the pace begins anew. */
static void wait_beat(struct qos_pinned *p, uint64_t *next)
{
        uint64_t now = now_nsec();
        struct timespec at;

        *next += PERIOD_NSEC;
        if (*next < now) {
                *next = now;
                return;
        }
        at = (struct timespec){
                .tv_sec = (time_t)(*next / 1000000000), .tv_nsec = (long)(*next % 1000000000)};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
                ;
}

int qos_pinned_run(
        struct qos_pinned *p, unsigned n_steps, struct series *alloc, struct series *hits)
{
        uint64_t next = now_nsec();
        struct lease l;
        int r = 0;

        for (unsigned i = 0; r >= 0 && i < n_steps; ++i) {
                wait_beat(p, &next);
                r = lease(p, &l, alloc);
                if (r == 0)
                        r = hit(p, hits);
                if (r == 0)
                        r = put(p, &l);
                p->n_steps++;
                if (r == 0)
                        r = kvl_dispatch(p->conn);
                if (r >= 0 && p->failed)
                        r = bench_fail("the pinned tenant's publish", p->failed);
        }
        return r < 0 ? r : 0;
}
