/* Many threads on one connection, as the library's header allows. Runs under the thread sanitizer,
 * too. */
#include <pthread.h>
#include <stdio.h>

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

        job->result = worker_load_on(job->conn, job->ns, job->seed, job->n_ops);
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
static void test_threads(void **state)
{
        uint64_t seed = harness_seed(), n_ops = private_full() ? 5000 : 300;
        struct kvl_conn *conns[2];
        struct kvl_ns *spaces[2];
        struct job jobs[N_THREADS];
        pthread_t threads[N_THREADS];

        for (unsigned i = 0; i < 2; ++i)
                open_namespace(*state, &conns[i], &spaces[i]);
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

int main(void)
{
        const struct CMUnitTest tests[] = {
                harness_test(test_threads, (void *)&small_tenant),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
