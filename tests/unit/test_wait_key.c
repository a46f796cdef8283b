/*
 * Waiting for keys, lookups that wait, and lookups in a set, in shared memory: the library's side
 * against a test that plays the daemon in the same process.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/lib/objects/ns.h"
#include "tests/unit/fake-shm.h"
#include "tests/unit/test-support.h"

#define CAPACITY  64
#define CLIENT_ID 42
#define N_KEYS    40
#define N_NSS     3

/* Ended by an event, and never reached; one that is: its bound is that of valgrind on a loaded
 * machine. */
#define LONG_MSEC  60000
#define SHORT_MSEC 30
#define LATE_MSEC  20000

/* A metadata-only connection, its daemon awake, with namespaces that it shares. */
struct world {
        struct conn conn;
        struct kvl_conn kvl_conn;
        struct fake_rings rings;
        struct space {
                struct kvl_ns ns;
                struct fake_index index;
                struct fake_pins pins;
        } spaces[N_NSS];
        uint8_t keys[N_KEYS][SHM_KEY_BYTES];
};

static void open_space(struct world *w, struct space *s)
{
        struct shm_map index, pins;

        fake_index_open(&s->index, CAPACITY, 0);
        fake_pins_open(&s->pins, CAPACITY, CLIENT_ID);
        /* Both sides use the same mapping, because TSan knows atomics by their address. */
        index = (struct shm_map){s->index.header, s->index.bytes};
        pins = (struct shm_map){s->pins.header, s->pins.bytes};
        s->ns.conn = &w->kvl_conn;
        s->ns.info.capacity_pages = s->ns.first_lower = CAPACITY;
        fast_init(&s->ns.fast, &index, &pins, 1);
}

static void world_open(struct world *w)
{
        memset(w, 0, sizeof(*w));
        pthread_mutex_init(&w->conn.lock, NULL);
        w->kvl_conn.conn = &w->conn;
        w->kvl_conn.metadata_only = true;
        fake_rings_open(&w->rings, CLIENT_ID);
        ring_init(&w->kvl_conn.flights.ring, w->rings.header);
        for (int i = 0; i < N_NSS; i++)
                open_space(w, &w->spaces[i]);
        for (uint32_t i = 0; i < N_KEYS; i++) {
                memcpy(w->keys[i], &i, sizeof(i));
                w->keys[i][SHM_KEY_BYTES - 1] = 1;
        }
}

static void world_close(struct world *w)
{
        for (int i = 0; i < N_NSS; i++) {
                fake_index_close(&w->spaces[i].index);
                fake_pins_close(&w->spaces[i].pins);
        }
        fake_rings_close(&w->rings);
        pthread_mutex_destroy(&w->conn.lock);
}

#define SCENE(fn, ...) TEST_ON(fn, struct world, w, world_open, world_close, ##__VA_ARGS__)

static uint32_t n_pins(const struct space *s)
{
        uint32_t n = 0;

        for (uint32_t i = 0; i < CAPACITY; i++)
                n += s->pins.counters[i];
        return n;
}

/* Key i lies in page i + 3. */
static void announce(struct world *w, uint32_t first, uint32_t end)
{
        for (uint32_t i = first; i < end; i++)
                fake_index_announce(&w->spaces[0].index, i + 3, w->keys[i], 7);
}

static void add(struct world *w, int space, uint32_t end)
{
        for (uint32_t i = 0; i < end; i++)
                fake_index_add(&w->spaces[space].index, i + 3, w->keys[i], 16, 50 + i);
}

static void pause_msec(int msec)
{
        const struct timespec t = {.tv_nsec = msec * (long)NSEC_PER_MSEC};

        nanosleep(&t, NULL);
}

/* ---- waiting -------------------------------------------------------------------------------- */

struct waiter {
        pthread_t thread;
        struct kvl_ns *ns;
        const uint8_t *key;
        int timeout_msec, code;
        _Atomic bool is_over;
        uint64_t took_nsec;
};

static void change_version(struct world *w)
{
        w->spaces[0].index.header->version_epoch++;
        fake_index_withdraw(&w->spaces[0].index, 8);
}

static void on_alarm(int signal)
{
        (void)signal;
}

/* Signals neither end it nor make it longer. */
SCENE(test_signals)
{
        const struct sigaction action = {.sa_handler = on_alarm};
        const struct itimerval often = {.it_interval = {.tv_usec = 2000}, .it_value = {0, 2000}};
        const struct itimerval never = {.it_value = {0, 0}};
        struct sigaction old;
        uint64_t begin;

        announce(w, 0, 10);
        sigaction(SIGALRM, &action, &old);
        setitimer(ITIMER_REAL, &often, NULL);
        begin = clock_now_nsec();
        assert_int_equal(kvl_wait(&w->spaces[0].ns, w->keys[5], SHORT_MSEC), KVL_TIMEOUT);
        assert_in_range(
                clock_now_nsec() - begin, SHORT_MSEC * NSEC_PER_MSEC, LATE_MSEC * NSEC_PER_MSEC);
        setitimer(ITIMER_REAL, &never, NULL);
        sigaction(SIGALRM, &old, NULL);
}

SCENE(test_arguments)
{
        uint32_t page, n;
        uint64_t n_tokens;
        struct kvl_ns *ns, *nss[2];

        nss[0] = ns = &w->spaces[0].ns;
        nss[1] = NULL;
        assert_int_equal(kvl_wait(NULL, w->keys[0], 1), -EINVAL);
        assert_int_equal(kvl_wait(ns, NULL, 1), -EINVAL);
        assert_int_equal(kvl_wait(ns, w->keys[0], 0), -EINVAL);
        assert_int_equal(kvl_wait(ns, w->keys[0], -1), -EINVAL);
        assert_int_equal(kvl_wait(ns, w->keys[0], 600001), -EINVAL);
        assert_non_null(strstr(kvl_last_error(), "600001 ms, must be 1 to 600000"));
        assert_int_equal(kvl_wait_start(ns, w->keys[0], 0, NULL, NULL), -EINVAL);
        assert_int_equal(kvl_wait_start(ns, NULL, 1, NULL, NULL), -EINVAL);
        assert_int_equal(
                kvl_lookup_wait(ns, 0, w->keys[0], 0, 1, &page, &n, &n_tokens, NULL), -EINVAL);
        assert_int_equal(
                kvl_lookup_wait(ns, 0, w->keys[0], 1, 0, &page, &n, &n_tokens, NULL), -EINVAL);
        assert_int_equal(
                kvl_lookup_wait(ns, 0, w->keys[0], 1, 1, NULL, &n, &n_tokens, NULL), -EINVAL);
        assert_int_equal(kvl_lookup_set(nss, 0, 0, w->keys[0], 1, &page, &n, &n_tokens), -EINVAL);
        assert_int_equal(kvl_lookup_set(nss, 65, 0, w->keys[0], 1, &page, &n, &n_tokens), -EINVAL);
        assert_int_equal(kvl_lookup_set(nss, 2, 0, w->keys[0], 1, &page, &n, &n_tokens), -EINVAL);
        assert_int_equal(kvl_lookup_set(NULL, 1, 0, w->keys[0], 1, &page, &n, &n_tokens), -EINVAL);
        assert_int_equal(kvl_lookup_set(nss, 1, 0, w->keys[0], 1, &page, NULL, &n_tokens), -EINVAL);
}

/* ---- lookups that wait ---------------------------------------------------------------------- */

struct publisher {
        pthread_t thread;
        struct world *w;
        uint32_t first, end; /* keys */
        bool gives_up;       /* at the end: what is announced beyond it is withdrawn */
};

static void *run_publisher(void *data)
{
        struct publisher *p = data;
        struct fake_index *x = &p->w->spaces[0].index;

        for (uint32_t i = p->first; i < p->end; i++) {
                pause_msec(1);
                fake_index_seal(x, i + 3, 16);
        }
        for (uint32_t i = p->end; i < N_KEYS && p->gives_up; i++)
                fake_index_withdraw(x, i + 3);
        return NULL;
}

struct found {
        uint32_t pages[N_KEYS], n_pages;
        uint64_t n_tokens;
        int is_pending;
};

static int lookup_wait(struct world *w, int timeout_msec, struct found *ret)
{
        *ret = (struct found){.is_pending = -1};
        return kvl_lookup_wait(&w->spaces[0].ns, 9, w->keys[0], N_KEYS, timeout_msec, ret->pages,
                &ret->n_pages, &ret->n_tokens, &ret->is_pending);
}

/* Counted once, however often it looked; and told the policy once. */
static void assert_counted(struct world *w, struct space *s, uint32_t n_pages)
{
        const struct shm_pins *h = s->pins.header;
        struct shm_submission touch;

        assert_true(h->n_lookups == 1 && h->n_keys == N_KEYS && h->n_hits == n_pages);
        assert_true(fake_rings_take(&w->rings, &touch));
        assert_true(touch.op == SHM_OP_TOUCH && touch.request_id == 9);
        assert_true(touch.touch.n_keys == N_KEYS && touch.touch.n_hits == n_pages);
        assert_int_equal(touch.page, n_pages > 0 ? n_pages + 2 : KVL_PAGE_NONE);
        assert_int_equal(touch.aux, n_pages > 0 ? s->index.lines[touch.page].state >> 8 : 0);
        assert_int_equal(n_pins(s), n_pages);
        for (uint32_t i = 0; i < n_pages; i++)
                assert_int_equal(s->pins.counters[i + 3], 1);
}

static void follow(uint32_t n_cached, uint32_t end, bool gives_up, int timeout_msec, int is_pending)
{
        struct publisher p;
        struct found found;
        struct world w;

        world_open(&w);
        add(&w, 0, n_cached);
        announce(&w, n_cached, N_KEYS);
        p = (struct publisher){.w = &w, .first = n_cached, .end = end, .gives_up = gives_up};
        assert_int_equal(pthread_create(&p.thread, NULL, run_publisher, &p), 0);
        assert_int_equal(lookup_wait(&w, timeout_msec, &found), 0);
        pthread_join(p.thread, NULL);
        assert_true(found.n_pages == end && found.n_tokens == 16 * end);
        assert_int_equal(found.is_pending, is_pending);
        for (uint32_t i = 0; i < end; i++)
                assert_int_equal(found.pages[i], i + 3);
        assert_counted(&w, &w.spaces[0], end);
        world_close(&w);
}

TEST(test_follow)
{
        follow(0, N_KEYS, false, LONG_MSEC, 0);
        follow(10, N_KEYS, false, LONG_MSEC, 0);
        follow(N_KEYS, N_KEYS, false, LONG_MSEC, 0);
        follow(10, 30, true, LONG_MSEC, 0);
        follow(10, 10, true, LONG_MSEC, 0);
        follow(10, 10, false, SHORT_MSEC, 1);
}

static void *run_change(void *data)
{
        pause_msec(SHORT_MSEC);
        change_version(data);
        return NULL;
}

/* Pages that were found before are released. */
SCENE(test_stale_meanwhile)
{
        struct found found;
        pthread_t thread;

        add(w, 0, 5);
        announce(w, 5, N_KEYS);
        assert_int_equal(pthread_create(&thread, NULL, run_change, w), 0);
        assert_int_equal(lookup_wait(w, LONG_MSEC, &found), KVL_STALE);
        pthread_join(thread, NULL);
        assert_true(found.n_pages == 0 && found.is_pending == -1);
        assert_int_equal(n_pins(&w->spaces[0]), 0);
}

/* ---- announcers and waiters ----------------------------------------------------------------- */

#define N_WAITERS 3
#define N_TEXTS   6 /* keys, and fewer pages for them */
#define N_LINES   4
#define N_ROUNDS  3000

struct traffic {
        struct world *w;
        _Atomic bool is_over;
        _Atomic unsigned n_begun, n_cached, n_missed, n_wrong;
};

static void *run_waits(void *data)
{
        struct traffic *t = data;
        unsigned seed = ++t->n_begun;

        while (!t->is_over) {
                const uint8_t *key = t->w->keys[(unsigned)rand_r(&seed) % N_TEXTS];
                int r = kvl_wait(&t->w->spaces[0].ns, key, LONG_MSEC);

                t->n_cached += r == 0;
                t->n_missed += r == KVL_MISS;
                t->n_wrong += r != 0 && r != KVL_MISS;
        }
        return NULL;
}

/* Retires a page like daemon/core/state/shared.h, once threads that look have dropped their pins.
 */
static void retire(struct world *w, uint32_t page)
{
        struct space *s = &w->spaces[0];

        atomic_exchange(
                &s->index.lines[page].state, s->index.lines[page].state >> 8 << 8 | PAGE_RETIRING);
        atomic_thread_fence(memory_order_seq_cst);
        while (atomic_load_explicit(&s->pins.counters[page], memory_order_acquire) > 0)
                sched_yield();
}

/* Keys come and go on lines that are used again, most of them as soon as that can be. */
static void *run_announces(void *data)
{
        struct traffic *t = data;
        struct fake_index *x = &t->w->spaces[0].index;
        uint32_t generation = 1;

        for (uint32_t i = 0; i < N_ROUNDS; i++) {
                uint32_t page = i % N_LINES;

                fake_index_announce(x, page, t->w->keys[i * 5 % N_TEXTS], generation++);
                if (i % 16 == 0)
                        pause_msec(1);
                if (i % 3 == 0) {
                        fake_index_seal(x, page, 16);
                        sched_yield();
                        retire(t->w, page);
                }
                fake_index_withdraw(x, page);
        }
        t->is_over = true;
        return NULL;
}

SCENE(test_traffic)
{
        pthread_t announcer, waiters[N_WAITERS];
        struct traffic t = {0};

        t.w = w;
        for (int i = 0; i < N_WAITERS; i++)
                assert_int_equal(pthread_create(&waiters[i], NULL, run_waits, &t), 0);
        assert_int_equal(pthread_create(&announcer, NULL, run_announces, &t), 0);
        pthread_join(announcer, NULL);
        for (int i = 0; i < N_WAITERS; i++)
                pthread_join(waiters[i], NULL);
        /* None slept through the end of what it waited for. */
        assert_true(t.n_wrong == 0 && t.n_missed > 0);
        assert_int_equal(n_pins(&w->spaces[0]), 0);
}

/* ---- sets ----------------------------------------------------------------------------------- */

static int lookup_set(struct world *w, uint32_t *ret_pages, uint32_t *ret_n, uint64_t *ret_n_tokens)
{
        struct kvl_ns *nss[N_NSS];

        for (int i = 0; i < N_NSS; i++)
                nss[i] = &w->spaces[i].ns;
        *ret_n = 0;
        *ret_n_tokens = 0;
        return kvl_lookup_set(nss, N_NSS, 9, w->keys[0], N_KEYS, ret_pages, ret_n, ret_n_tokens);
}

TEST(test_set)
{
        static const uint32_t has[][N_NSS] = {
                {40, 40, 40}, {40, 39, 40}, {1, 40, 20}, {30, 20, 10}, {30, 10, 20}, {40, 1, 1}};
        uint32_t pages[N_NSS * N_KEYS], n, shortest;
        uint64_t n_tokens;
        struct world w;

        for (size_t i = 0; i < ARRAY_SIZE(has); i++) {
                world_open(&w);
                shortest = N_KEYS;
                for (int j = 0; j < N_NSS; j++) {
                        add(&w, j, has[i][j]);
                        shortest = MIN(shortest, has[i][j]);
                }
                assert_int_equal(lookup_set(&w, pages, &n, &n_tokens), 0);
                assert_true(n == shortest && n_tokens == 16 * shortest);
                for (int j = 0; j < N_NSS; j++) {
                        for (uint32_t k = 0; k < n; k++)
                                assert_int_equal(pages[(uint32_t)j * N_KEYS + k], k + 3);
                        assert_counted(&w, &w.spaces[j], n);
                }
                world_close(&w);
        }
}

TEST(test_set_misses)
{
        uint32_t pages[N_NSS * N_KEYS], n;
        uint64_t n_tokens;
        struct world w;

        for (int without = 0; without < N_NSS; without++) {
                world_open(&w);
                for (int j = 0; j < N_NSS; j++)
                        if (j != without)
                                add(&w, j, 7);
                assert_int_equal(lookup_set(&w, pages, &n, &n_tokens), KVL_MISS);
                for (int j = 0; j < N_NSS; j++)
                        assert_counted(&w, &w.spaces[j], 0);
                world_close(&w);
        }
        world_open(&w);
        add(&w, 0, 7);
        add(&w, 1, 7);
        w.spaces[2].index.header->version_epoch++;
        assert_int_equal(lookup_set(&w, pages, &n, &n_tokens), KVL_STALE);
        assert_string_equal(kvl_last_error(), kvl_strerror(KVL_STALE));
        assert_true(n_pins(&w.spaces[0]) == 0 && n_pins(&w.spaces[1]) == 0);
        world_close(&w);
}
