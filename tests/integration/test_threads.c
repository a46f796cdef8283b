/* Many threads on one connection, as the library's header allows. Runs under the thread sanitizer,
 * too. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>

#include "base/macros.h"
#include "tests/integration/harness.h"
#include "tests/integration/pattern.h"
#include "tests/integration/worker.h"

#define N_THREADS 8

static const struct private_tenant one[] = {{"a", "limit = 4MiB\n"}, {NULL, NULL}};
static const struct private_options small_tenant = {.tenants = one};

struct job {
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        uint64_t seed, n_ops;
        int result;
};

static void *run(void *data)
{
        struct job *job = data;

        job->result = worker_load_on(job->conn, job->ns,
                &(struct worker_job){.seed = job->seed,
                        .count = job->n_ops,
                        .n_chains = WORKER_LOAD_CHAINS,
                        .has_safepoints = true});
        return NULL;
}

static void open_namespace(struct harness *h, struct kvl_conn **ret_conn, struct kvl_ns **ret_ns)
{
        char socket[PRIVATE_PATH_MAX];
        struct kvl_connect_options o = {.size = sizeof(o), .client_name = "threads"};
        struct kvl_layout layout = worker_layout(2);

        o.socket_path = private_daemon_socket(&h->daemon, "a", socket);
        assert_int_equal(kvl_connect(&o, ret_conn), 0);
        assert_int_equal(kvl_ns_open(*ret_conn, "load", &layout, NULL, 0, ret_ns), 0);
}

/* Four threads on each of two connections. */
HARNESS_TEST(test_threads, &small_tenant)
{
        uint64_t seed = harness_seed(), n_ops = private_full() ? 5000 : private_short() ? 100 : 300;
        struct kvl_conn *conns[2];
        struct kvl_ns *spaces[2];
        struct job jobs[N_THREADS];
        pthread_t threads[N_THREADS];

        for (unsigned i = 0; i < 2; ++i)
                open_namespace(h, &conns[i], &spaces[i]);
        for (unsigned i = 0; i < N_THREADS; ++i) {
                jobs[i] =
                        (struct job){conns[i % 2], spaces[i % 2], pattern_mix(seed + i), n_ops, -1};
                assert_int_equal(pthread_create(&threads[i], NULL, run, &jobs[i]), 0);
        }
        for (unsigned i = 0; i < N_THREADS; ++i) {
                assert_int_equal(pthread_join(threads[i], NULL), 0);
                assert_int_equal(jobs[i].result, 0);
        }
        for (unsigned i = 0; i < 2; ++i)
                kvl_disconnect(conns[i]);
}

/* ---- closing a namespace under the callbacks of other threads ------------------------------- */

struct looker {
        struct kvl_ns *ns;
        _Atomic int stop;
        _Atomic int result; /* of the thread that was last */
};

/* Waits on one namespace again and again, and so runs callbacks of all. */
static void *look(void *data)
{
        struct looker *looker = data;
        uint8_t key[KVL_KEY_BYTES] = {1};
        uint32_t page, n_pages;
        uint64_t n_tokens;

        while (!looker->stop && (looker->result == 0 || looker->result == KVL_MISS))
                looker->result = kvl_lookup(looker->ns, 0, key, 1, &page, &n_pages, &n_tokens);
        return NULL;
}

static void use_name(struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n_pages,
        uint64_t n_tokens, void *data)
{
        _Atomic int *n_done = data;

        usleep(5);
        assert_string_equal(kvl_ns_name(ns), "closing");
        (*n_done)++;
}

HARNESS_TEST(test_close_under_callbacks, &small_tenant)
{
        struct kvl_layout layout = worker_layout(2);
        /* No other connection here holds the context: a real driver takes 0.1 s each round to make
         * it. */
        int n_rounds = private_on_real_gpu() ? 50
                       : private_full()      ? 20000
                       : private_short()     ? 200
                                             : 2000;
        int n_started = 0;
        uint8_t key[KVL_KEY_BYTES] = {2};
        struct looker looker = {0};
        _Atomic int n_done = 0;
        struct kvl_conn *conn;
        pthread_t threads[2];
        struct kvl_ns *ns;

        open_namespace(h, &conn, &looker.ns);
        for (unsigned i = 0; i < ARRAY_SIZE(threads); ++i)
                assert_int_equal(pthread_create(&threads[i], NULL, look, &looker), 0);
        for (int i = 0; i < n_rounds; ++i) {
                assert_int_equal(kvl_ns_open(conn, "closing", &layout, NULL, 0, &ns), 0);
                for (int k = 0; k < i % 12; ++k, ++n_started)
                        assert_int_equal(
                                kvl_lookup_start(ns, 0, key, 1, use_name, (void *)&n_done), 0);
                kvl_ns_close(ns);
        }
        assert_int_equal(n_done, n_started);
        looker.stop = 1;
        for (unsigned i = 0; i < ARRAY_SIZE(threads); ++i)
                assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(looker.result, KVL_MISS);
        kvl_disconnect(conn);
}

static void close_it(struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n_pages,
        uint64_t n_tokens, void *data)
{
        *(int *)data = code;
        kvl_ns_close(ns);
}

/* A callback may close the namespace that it is called for. */
HARNESS_TEST(test_close_from_callback, &small_tenant)
{
        uint8_t key[KVL_KEY_BYTES] = {3};
        int code = 0;
        struct kvl_conn *conn;
        struct kvl_ns *ns;

        open_namespace(h, &conn, &ns);
        assert_int_equal(kvl_lookup_start(ns, 0, key, 1, close_it, &code), 0);
        while (code == 0) {
                struct pollfd p = {.fd = kvl_fd(conn), .events = POLLIN};

                poll(&p, 1, -1);
                assert_true(kvl_dispatch(conn) >= 0);
        }
        assert_int_equal(code, KVL_MISS);
        kvl_disconnect(conn);
}

/* ---- one computes, the others wait for it --------------------------------------------------- */

#define N_FOLLOWERS 3
#define TEXT_PAGES  8

struct texts {
        struct kvl_ns *ns;
        _Atomic unsigned n_over; /* published, or given up */
        unsigned n;
        _Atomic unsigned n_found, n_wrong;
};

static void keys_of(unsigned chain, uint8_t keys[TEXT_PAGES][KVL_KEY_BYTES])
{
        for (unsigned i = 0; i < TEXT_PAGES; ++i)
                pattern_key(chain, i, keys[i]);
}

/* Page by page, up to `end`; the rest is given up. 0 or why not. */
static int compute(struct kvl_ns *ns, unsigned chain, unsigned end)
{
        uint8_t keys[TEXT_PAGES][KVL_KEY_BYTES];
        uint32_t pages[TEXT_PAGES], n = 0;
        int r = kvl_lease(ns, 0, TEXT_PAGES, pages);

        keys_of(chain, keys);
        if (r == 0)
                r = kvl_announce(ns, pages, keys[0], TEXT_PAGES, &n);
        for (unsigned i = 0; i < end && r == 0; ++i) {
                const struct kvl_publish p = {.size = sizeof(p),
                        .pages = &pages[i],
                        .keys = keys[i],
                        .n_pages = 1,
                        .parent_key = i ? keys[i - 1] : NULL,
                        .last_tokens = 16};

                r = worker_page_fill(ns, pages[i], 0, chain * 100 + i);
                if (r == 0)
                        r = kvl_publish(ns, &p, NULL, NULL);
        }
        if (r == 0 && end < TEXT_PAGES)
                r = kvl_free(ns, pages + end, TEXT_PAGES - end);
        return r ? r : kvl_release(ns, pages, end);
}

static void *compute_all(void *data)
{
        struct texts *t = data;

        for (unsigned i = 0; i < t->n; ++i) {
                t->n_wrong += compute(t->ns, i, i % 4 ? TEXT_PAGES : TEXT_PAGES / 2) != 0;
                t->n_over++;
        }
        return NULL;
}

/* Looks up a text when it is no longer being computed. */
static void follow(struct texts *t, unsigned chain)
{
        uint8_t keys[TEXT_PAGES][KVL_KEY_BYTES];
        uint32_t pages[TEXT_PAGES], n = 0;
        bool was_over;
        uint64_t n_tokens;
        int r;

        keys_of(chain, keys);
        do {
                was_over = t->n_over > chain;
                r = kvl_lookup_wait(
                        t->ns, 0, keys[0], TEXT_PAGES, 60000, pages, &n, &n_tokens, NULL);
        } while (r == KVL_MISS && !was_over);
        t->n_wrong += r < 0 || r > KVL_MISS;
        if (r)
                return;
        for (unsigned i = 0; i < n; ++i)
                t->n_wrong += !worker_page_copy_matches(t->ns, pages[i], 0, chain * 100 + i);
        t->n_found += n;
        t->n_wrong += kvl_release(t->ns, pages, n) != 0;
}

static void *follow_all(void *data)
{
        struct texts *t = data;

        for (unsigned i = 0; i < t->n; ++i)
                follow(t, i);
        return NULL;
}

HARNESS_TEST(test_single_flight, &small_tenant)
{
        struct texts t = {.n = private_full() ? 2000 : private_short() ? 30 : 200};
        pthread_t threads[1 + N_FOLLOWERS];
        struct kvl_conn *conn;

        open_namespace(h, &conn, &t.ns);
        for (unsigned i = 0; i < ARRAY_SIZE(threads); ++i)
                assert_int_equal(
                        pthread_create(&threads[i], NULL, i == 0 ? compute_all : follow_all, &t),
                        0);
        for (unsigned i = 0; i < ARRAY_SIZE(threads); ++i)
                assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(t.n_wrong, 0);
        assert_true(t.n_found > 0);
        kvl_disconnect(conn);
}

/* ---- calls that are started in callbacks, and beside a polling thread ----------------------- */

struct storm {
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        uint32_t page; /* not leased by any client: the daemon refuses to free it */
        unsigned n_refused;
        sem_t done;
        _Atomic unsigned n_started, n_done, n_wrong;
};

static void note_done(struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n_pages,
        uint64_t n_tokens, void *data)
{
        struct storm *s = data;

        s->n_wrong += code != -EINVAL;
        s->n_done++;
        sem_post(&s->done);
}

/* Starts as many calls as may be, one in the caller's place, and one more. */
static void start_all(struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n_pages,
        uint64_t n_tokens, void *data)
{
        struct storm *s = data;
        int r;

        while ((r = kvl_free_start(ns, &s->page, 1, note_done, s)) == 0)
                s->n_started++;
        s->n_refused += r == -EAGAIN;
        s->n_wrong += code != -EINVAL;
        s->n_done++;
}

/* An event loop that knows nothing but the descriptor. */
static void *poll_all(void *data)
{
        struct storm *s = data;
        struct pollfd p = {.fd = kvl_fd(s->conn), .events = POLLIN};

        while (s->n_done < 3 * KVL_MAX_STARTED && poll(&p, 1, 60000) == 1)
                s->n_wrong += kvl_dispatch(s->conn) < 0;
        return NULL;
}

HARNESS_TEST(test_started, &small_tenant)
{
        struct storm s = {0};
        struct kvl_ns_info info = {.size = sizeof(info)};
        pthread_t loop;

        open_namespace(h, &s.conn, &s.ns);
        kvl_ns_info(s.ns, &info);
        s.page = info.capacity_pages - 1;
        assert_int_equal(sem_init(&s.done, 0, 0), 0);
        s.n_started = 1;
        assert_int_equal(kvl_free_start(s.ns, &s.page, 1, start_all, &s), 0);
        assert_int_equal(pthread_create(&loop, NULL, poll_all, &s), 0);
        /* Each callback makes room for one. */
        for (sem_wait(&s.done); s.n_started < 3 * KVL_MAX_STARTED; s.n_started++) {
                assert_int_equal(kvl_free_start(s.ns, &s.page, 1, note_done, &s), 0);
                sem_wait(&s.done);
        }
        pthread_join(loop, NULL);
        assert_int_equal(s.n_refused, 1);
        assert_int_equal(s.n_wrong, 0);
        assert_int_equal(s.n_done, s.n_started);
        kvl_disconnect(s.conn);
        sem_destroy(&s.done);
}
