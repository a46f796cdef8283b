/*
 * A witness of the daemon's restarts. One thread publishes texts, and records when they are
 * acknowledged. Another looks them up and compares every byte, all the time. No page of an
 * acknowledged text may ever be missing.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "tests/integration/pattern.h"
#include "tests/integration/witness.h"
#include "tests/integration/worker.h"

#define PACE_USEC 5000 /* between two texts. Not tuned */
#define LOOK_USEC                                                                                \
        200            /* between two lookups: eight workers without pauses would use all of two \
                          cores. Not tuned */
#define LOST_SHOWN 100 /* pages, of which it is said that they are lost */

struct observer {
        const struct worker_job *job;
        struct kvl_ns *ns;
        const char *tenant;
        struct witness *w;
        _Atomic int code; /* of the library, where one of the threads had to end */
};

static uint64_t chain_of(const struct observer *o, uint64_t text)
{
        return (o->job->seed << 32) + text;
}

static uint32_t length_of(uint64_t chain)
{
        return 1 + (uint32_t)(pattern_mix(chain) % WORKER_TEXT_PAGES);
}

static void note_longest(_Atomic uint64_t *longest, uint64_t begin_nsec)
{
        uint64_t nsec = clock_now_nsec() - begin_nsec;

        if (nsec > atomic_load(longest))
                atomic_store(longest, nsec);
}

static void make_keys(uint64_t chain, uint32_t n, uint8_t *ret_keys)
{
        for (uint32_t i = 0; i < n; ++i)
                pattern_key(chain, i, ret_keys + i * KVL_KEY_BYTES);
}

static void compare(struct observer *o, uint64_t chain, const uint32_t *pages, uint32_t n)
{
        for (uint32_t i = 0; i < n; ++i)
                for (unsigned p = 0; p < o->job->n_planes; ++p) {
                        if (worker_page_matches(
                                    o->ns, pages[i], p, pattern_seed(o->tenant, chain, i)))
                                continue;
                        fprintf(stderr, "page %u plane %u isn't %llx:%u\n", pages[i], p,
                                (unsigned long long)chain, i);
                        atomic_fetch_add(&o->w->n_bad, 1);
                }
}

/* 0 or the library's error. */
static int look_up(struct observer *o, uint64_t text)
{
        uint64_t chain = chain_of(o, text), n_tokens, begin_nsec = clock_now_nsec();
        uint8_t keys[WORKER_TEXT_PAGES * KVL_KEY_BYTES];
        uint32_t pages[WORKER_TEXT_PAGES], n = 0, length = length_of(chain);
        int r;

        make_keys(chain, length, keys);
        r = kvl_lookup(o->ns, 0, keys, length, pages, &n, &n_tokens);
        if (r < 0)
                return r;
        note_longest(&o->w->hit_nsec, begin_nsec);
        if (r > 0)
                n = 0;
        atomic_fetch_add(&o->w->n_lookups, 1);
        if (n < length && text >= atomic_load(&o->w->n_dropped)) {
                if (atomic_load(&o->w->n_lost) < LOST_SHOWN)
                        fprintf(stderr, "text %llu has %u pages of %u\n", (unsigned long long)text,
                                n, length);
                atomic_fetch_add(&o->w->n_lost, length - n);
        }
        compare(o, chain, pages, n);
        return n > 0 ? kvl_release(o->ns, pages, n) : 0;
}

static bool goes_on(const struct observer *o)
{
        return atomic_load(&o->code) == 0 && atomic_load(&o->w->stop) == 0;
}

static void *read_all(void *data)
{
        struct observer *o = data;
        uint64_t random = o->job->seed;

        while (goes_on(o)) {
                uint64_t first = atomic_load(&o->w->n_dropped), n = atomic_load(&o->w->n_acked);
                int r;

                if (n == first) {
                        usleep(1000);
                        continue;
                }
                r = look_up(o, first + pattern_next(&random) % (n - first));
                if (r < 0) {
                        fprintf(stderr, "lookup: %d: %s\n", r, kvl_last_error());
                        atomic_store(&o->code, r);
                }
                usleep(LOOK_USEC);
        }
        return NULL;
}

/* Leases pages for a text. After KVL_QUOTA and similar codes it waits for dropped pages. */
static int lease(struct observer *o, uint32_t n, uint32_t *ret_pages)
{
        int r;

        do {
                uint64_t begin_nsec = clock_now_nsec();

                r = kvl_lease(o->ns, 0, n, ret_pages);
                note_longest(&o->w->lease_nsec, begin_nsec);
                if (r > 0)
                        usleep(1000);
        } while (r > 0 && goes_on(o));
        return r;
}

static int publish(struct observer *o, uint64_t text)
{
        uint64_t chain = chain_of(o, text), begin_nsec;
        uint8_t keys[WORKER_TEXT_PAGES * KVL_KEY_BYTES];
        uint32_t pages[WORKER_TEXT_PAGES], found[WORKER_TEXT_PAGES], n_done = 0,
                                                                     n = length_of(chain);
        struct kvl_publish p = {
                .size = sizeof(p), .pages = pages, .keys = keys, .n_pages = n, .last_tokens = 16};
        int r = lease(o, n, pages);

        if (r != 0)
                return r;
        for (uint32_t i = 0; i < n; ++i)
                for (unsigned plane = 0; plane < o->job->n_planes && r == 0; ++plane)
                        r = worker_page_fill(
                                o->ns, pages[i], plane, pattern_seed(o->tenant, chain, i));
        if (r != 0)
                return r;
        make_keys(chain, n, keys);
        begin_nsec = clock_now_nsec();
        r = kvl_publish(o->ns, &p, found, &n_done);
        note_longest(&o->w->publish_nsec, begin_nsec);
        if (r != 0 || n_done != n)
                return r != 0 ? r : -1;
        atomic_store(&o->w->n_acked, text + 1);
        return kvl_release(o->ns, found, n);
}

/* The oldest text, where there are more than job.count. */
static int drop_oldest(struct observer *o)
{
        uint64_t text = atomic_load(&o->w->n_dropped);
        uint8_t key[KVL_KEY_BYTES];

        if (atomic_load(&o->w->n_acked) - text <= o->job->count)
                return 0;
        atomic_store(&o->w->n_dropped, text + 1);
        make_keys(chain_of(o, text), 1, key);
        return kvl_invalidate(o->ns, key, NULL);
}

static void publish_all(struct observer *o)
{
        int r = 0;

        while (goes_on(o)) {
                r = publish(o, atomic_load(&o->w->n_acked));
                if (r == 0)
                        r = drop_oldest(o);
                /* At the tenant's limit pages would be evicted, which is no loss. */
                usleep(PACE_USEC);
                if (r == 0 || (r > 0 && !goes_on(o)))
                        continue;
                fprintf(stderr, "publish: %d: %s\n", r, kvl_last_error());
                atomic_store(&o->code, r);
        }
}

static int observe(struct observer *o)
{
        pthread_t reader;
        int r = 0;

        if (pthread_create(&reader, NULL, read_all, o) != 0)
                return 1;
        publish_all(o);
        pthread_join(reader, NULL);
        for (uint64_t i = atomic_load(&o->w->n_dropped); i < atomic_load(&o->w->n_acked) && r == 0;
                ++i)
                r = look_up(o, i);
        printf("texts %llu lookups %llu lost %llu bad %llu\n",
                (unsigned long long)atomic_load(&o->w->n_acked),
                (unsigned long long)atomic_load(&o->w->n_lookups),
                (unsigned long long)atomic_load(&o->w->n_lost),
                (unsigned long long)atomic_load(&o->w->n_bad));
        return r != 0 || atomic_load(&o->code) != 0 || atomic_load(&o->w->n_lost) > 0 ||
               atomic_load(&o->w->n_bad) > 0;
}

static struct witness *open_witness(void)
{
        const char *path = getenv("KVL_WITNESS");
        _cleanup_fd_ int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
        void *at;

        if (fd < 0)
                return NULL;
        at = mmap(NULL, sizeof(struct witness), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        return at == MAP_FAILED ? NULL : at;
}

int worker_witness(const struct worker_job *job)
{
        struct observer o = {.job = job, .w = open_witness()};
        struct kvl_conn *conn = NULL;
        int r;

        if (!o.w) {
                fprintf(stderr, "no file in $KVL_WITNESS\n");
                return 1;
        }
        r = worker_open_job(job, &conn, &o.ns);
        if (r == 0) {
                o.tenant = kvl_tenant(conn);
                r = observe(&o);
        }
        kvl_disconnect(conn);
        munmap(o.w, sizeof(*o.w));
        return r != 0;
}
