/*
 * kvleasectl drain --export, with two kvleased, their clients and a real redis-server. A drained
 * host's pages are found on the other host, though no client found them before. If nothing can be
 * written, the drain reports it.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "tests/integration/harness.h"
#include "tests/integration/redis-needed.h"

#define N_PAGES       20 /* 320 tokens: from 256 on they are loaded */
#define CHAIN         7
#define PATIENCE_MSEC 60000

static struct redis_cluster server;
static struct harness leaving; /* beside the harness' own host, which stays */
static char lines[512];
static const struct private_tenant tenants[] = {{"a", lines}, {NULL, NULL}};
static const struct private_options options = {.tenants = tenants};

/* The tenant of both hosts has `more` lines. */
static struct harness *start(void **state, const char *more)
{
        static const char *const words[] = {NULL};
        struct harness *staying;

        redis_needed(&server);
        assert_int_equal(redis_cluster_add(&server, words, false), 0);
        (void)snprintf(lines, sizeof(lines),
                "limit = 64MiB\nremote_prefill = 1\n%s\n[remote x]\nprobe_timeout = 1s\n"
                "addresses = %s\n",
                more, server.servers[0].address);
        *state = (void *)&options;
        assert_int_equal(harness_setup(state), 0);
        staying = *state;
        assert_int_equal(private_daemon_init(&leaving.daemon, &options), 0);
        harness_start(&leaving);
        leaving.n_connections = staying->n_connections = HARNESS_NODE_CONNECTIONS;
        return staying;
}

static void end(void **state, struct harness *staying)
{
        int status;

        harness_assert_settled(&leaving);
        assert_int_equal(private_daemon_stop(&leaving.daemon, &status), 0);
        assert_int_equal(status, 0);
        private_daemon_deinit(&leaving.daemon);
        redis_cluster_deinit(&server);
        *state = staying;
        assert_int_equal(harness_teardown(state), 0);
}

/* A figure in the first row of kvleasectl exchanges. */
static json_int_t figure_of_exchange(const char *name)
{
        json_t *o = ctl_json(&leaving, "exchanges");
        json_int_t value = json_integer_value(
                json_object_get(json_array_get(ctl_list(o, "exchanges"), 0), name));

        json_decref(o);
        return value;
}

/*
 * A client there computes a text once, after its namespace's epoch is known (or not), and leaves.
 */
static void compute(bool awaits_epoch)
{
        uint64_t until = clock_now_nsec() + PATIENCE_MSEC * NSEC_PER_MSEC;
        struct worker *w = worker_start(&leaving, "a", "ns", 2);
        uint32_t pages[N_PAGES];

        while (awaits_epoch && figure_of_exchange("n_namespaces_ready") == 0)
                assert_true(clock_now_nsec() < until);
        worker_publish_chain(w, CHAIN, N_PAGES, pages);
        worker_stop(w);
}

/* A figure of the export in the JSON of kvleasectl drain --export. */
static json_int_t figure_of_export(const char *json, const char *name)
{
        json_t *o = json_loads(json, 0, NULL);
        json_int_t value;

        assert_non_null(o);
        assert_non_null(json_object_get(json_object_get(o, "export"), name));
        value = json_integer_value(json_object_get(json_object_get(o, "export"), name));
        json_decref(o);
        return value;
}

static void assert_exports(json_int_t n_written, json_int_t n_there, json_int_t n_old)
{
        struct proc_output o;

        assert_int_equal(ctl_run(&leaving, "--json drain --export", &o), 0);
        assert_int_equal(figure_of_export(o.out, "pages_written"), n_written);
        assert_int_equal(figure_of_export(o.out, "pages_there"), n_there);
        assert_int_equal(figure_of_export(o.out, "pages_old"), n_old);
        assert_int_equal(figure_of_export(o.out, "pages_left"), 0);
        proc_output_free(&o);
}

static void assert_fails(const char *words, int code, const char *sentence)
{
        struct proc_output o;

        assert_int_equal(ctl_run(&leaving, words, &o), code);
        if (!strstr(o.err, sentence))
                fail_msg("%s: %s", words, o.err);
        proc_output_free(&o);
}

/* Once that host knows its namespace's epoch, it finds all of the text, with the right bytes. */
static void assert_finds_text(struct worker *w)
{
        uint64_t until = clock_now_nsec() + PATIENCE_MSEC * NSEC_PER_MSEC;
        uint32_t numbers[1 + N_PAGES];

        while (worker_ask(w, "lookup-wait 10000 %u:0-%u", CHAIN, N_PAGES - 1) != 0)
                assert_true(clock_now_nsec() < until);
        assert_int_equal(worker_numbers(w, numbers, ARRAY_SIZE(numbers)), ARRAY_SIZE(numbers));
        for (unsigned i = 0; i < N_PAGES; i++) {
                worker_tell(w, "verify %u %u", numbers[1 + i], 1000 * CHAIN + i);
                worker_tell(w, "release %u", numbers[1 + i]);
        }
}

TEST_BARE(test_computed_once)
{
        struct harness *staying = start(state, "remote = x\n");
        struct worker *w;

        compute(true);
        assert_int_equal(figure_of_exchange("exported_pages"), 0);
        assert_exports(N_PAGES, 0, 0);
        assert_exports(0, N_PAGES, 0);
        w = worker_start(staying, "a", "ns", 2);
        assert_finds_text(w);
        worker_stop(w);
        ctl(&leaving, "drain --off");
        worker_stop(worker_start(&leaving, "a", "ns", 2));
        end(state, staying);
}

TEST_BARE(test_no_remote)
{
        struct harness *staying = start(state, "");

        assert_fails("drain --export", 1, "no tenant has a remote");
        worker_stop(worker_start(&leaving, "a", "ns", 2)); /* it doesn't drain */
        end(state, staying);
}

TEST_BARE(test_may_not_write)
{
        struct harness *staying = start(state, "remote = x\nremote_write = 0\n");

        assert_fails("drain --export", 1, "no tenant has a remote");
        end(state, staying);
}

/* The drain reports the stopped server. It continues once the server does, also if no administrator
 * waits. */
TEST_BARE(test_server_is_stopped)
{
        uint64_t until = clock_now_nsec() + PATIENCE_MSEC * NSEC_PER_MSEC;
        struct harness *staying = start(state, "remote = x\n");

        compute(true);
        assert_int_equal(kill(server.servers[0].pid, SIGSTOP), 0);
        assert_fails("drain --export --timeout 6s", 4, "pages not exported after 6s: 20 (");
        assert_fails("drain --export --timeout 6s", 4, "as no server of remote x answers");
        assert_int_equal(kill(server.servers[0].pid, SIGCONT), 0);
        while (figure_of_exchange("exported_pages") < N_PAGES) {
                assert_true(clock_now_nsec() < until);
                sleep_msec(100);
        }
        end(state, staying);
}

/* Pages computed before a server reported its epoch aren't exported. */
TEST_BARE(test_no_epoch)
{
        struct harness *staying = start(state, "remote = x\n");

        assert_int_equal(kill(server.servers[0].pid, SIGSTOP), 0);
        compute(false);
        assert_fails("drain --export --timeout 1s", 4, "remote x hasn't said which epoch");
        sleep_msec(1100); /* so that it is learnt in another second */
        assert_int_equal(kill(server.servers[0].pid, SIGCONT), 0);
        assert_exports(0, 0, N_PAGES);
        end(state, staying);
}
