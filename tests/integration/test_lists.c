/* Lists of administration that don't fit one frame: complete, once each, in order. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "tests/integration/harness.h"
#include "tests/unit/fake-redis.h"

#define N_ROWS 300

#define NAME_SIZE 160

static struct private_tenant tenants[N_ROWS + 1];
static char names[N_ROWS][NAME_SIZE];
static const struct private_options many_tenants = {.tenants = tenants};

/* Twice as many rows of regions, with something to say in each. */
static struct private_tenant scheduled[N_ROWS + 1];
static const struct private_options two_devices = {
        .tenants = scheduled, .devices = "host, host-1", .daemon_lines = "sizer_interval = 10ms\n"};

/* A server that says it is one of a cluster with so many masters. None but it answers. */
#define N_NODES 500

static struct fake_redis server;
static char slots[N_NODES * 80], remote_lines[256];
static struct private_tenant sharing[] = {{"a", remote_lines}, {"b", "limit = 1MiB\n"}, {0}};
static const struct private_options with_remote = {.tenants = sharing};

static char *tenant_name(unsigned i, char buf[NAME_SIZE])
{
        snprintf(buf, NAME_SIZE, "a-tenant-with-a-name-of-some-length-%05u", i);
        return buf;
}

/* A name of the greatest length: 128 bytes. */
static char *ns_name(unsigned i, char buf[NAME_SIZE])
{
        memset(buf, 'n', 123);
        snprintf(buf + 123, NAME_SIZE - 123, "%05u", i);
        return buf;
}

static void name_tenants(void)
{
        for (unsigned i = 0; i < N_ROWS; i++) {
                tenants[i] = (struct private_tenant){
                        tenant_name(i, names[i]), "limit = 1MiB\nuids = 1,2,3\n"};
                scheduled[i] = (struct private_tenant){
                        names[i], "class = pinned\nlimit = 64MiB\nschedule = 00:00-24:00 0-2MiB\n"};
        }
}

/* Writes the name of row i. Returns buf. */
typedef char *(*name_fn)(unsigned i, char buf[NAME_SIZE]);

/* All rows have the names they should, in order. */
static void assert_names(json_t *list, name_fn name, unsigned n)
{
        char expected[NAME_SIZE];
        json_t *row;
        size_t i;

        assert_int_equal(json_array_size(list), n);
        json_array_foreach(list, i, row)
        {
                const char *is = json_string_value(json_object_get(row, "name"));

                assert_string_equal(is, name((unsigned)i, expected));
        }
}

/* One answer is a frame at most: this much was more. */
static void assert_several_frames(struct harness *h, const char *words)
{
        struct proc_output o;

        assert_int_equal(ctl_run(h, words, &o), 0);
        assert_true(strlen(o.out) > 65536);
        proc_output_free(&o);
}

HARNESS_TEST(test_tenants, &many_tenants)
{
        json_t *reply = ctl_json(h, "tenants list");

        assert_names(ctl_list(reply, "tenants"), tenant_name, N_ROWS);
        json_decref(reply);
        assert_several_frames(h, "--json tenants list");
        /* Holes in the row of cursors, also at the ends. */
        tenants[N_ROWS - 1] = (struct private_tenant){0};
        assert_int_equal(private_daemon_configure(&h->daemon, &many_tenants), 0);
        kill(h->daemon.pid, SIGHUP);
        ctl_wait_status(h, "n_tenants", N_ROWS - 1);
        reply = ctl_json(h, "tenants list");
        assert_names(ctl_list(reply, "tenants"), tenant_name, N_ROWS - 1);
        json_decref(reply);
}

HARNESS_TEST(test_namespaces, NULL)
{
        struct worker *w = worker_spawn(h);
        char path[PRIVATE_PATH_MAX], name[NAME_SIZE];
        json_t *reply;

        worker_tell(w, "connect %s", private_daemon_socket(&h->daemon, "a", path));
        for (unsigned i = 0; i < N_ROWS; i++) {
                worker_tell(w, "open %s 1", ns_name(i, name));
        }
        reply = ctl_json(h, "namespaces");
        assert_names(ctl_list(reply, "namespaces"), ns_name, N_ROWS);
        json_decref(reply);
        assert_several_frames(h, "--json namespaces");
}

/* One device after the other, each with its dynamic pool first. Returns how many were decided. */
static unsigned assert_regions(json_t *list)
{
        char expected[NAME_SIZE];
        unsigned n_decided = 0;
        json_t *row;
        size_t i;

        assert_int_equal(json_array_size(list), 2 * (N_ROWS + 1));
        json_array_foreach(list, i, row)
        {
                unsigned n = (unsigned)i % (N_ROWS + 1);

                assert_string_equal(json_string_value(json_object_get(row, "device")),
                        i <= N_ROWS ? "host" : "host-1");
                assert_string_equal(json_string_value(json_object_get(row, "tenant")),
                        n == 0 ? "" : tenant_name(n - 1, expected));
                if (n > 0)
                        n_decided += strcmp(json_string_value(json_object_get(row, "decision")),
                                             "none") != 0;
        }
        return n_decided;
}

HARNESS_TEST(test_regions, &two_devices)
{
        char words[NAME_SIZE + 32], name[NAME_SIZE];
        json_t *reply;

        for (unsigned n_decided = 0; n_decided < 2 * N_ROWS; sleep_msec(5)) {
                reply = ctl_json(h, "regions");
                n_decided = assert_regions(ctl_list(reply, "regions"));
                json_decref(reply);
        }
        assert_several_frames(h, "--json regions");
        snprintf(words, sizeof(words), "regions --tenant %s", tenant_name(77, name));
        reply = ctl_json(h, words);
        assert_int_equal(json_array_size(ctl_list(reply, "regions")), 2);
        json_decref(reply);
}

/* ---- nodes of a remote ----------------------------------------------------------------------- */

static char *node_name(unsigned i, char buf[NAME_SIZE])
{
        snprintf(buf, NAME_SIZE, "127.1.%u.%u:1", i / 250, i % 250 + 1);
        return buf;
}

static bool answer_slots(
        struct fake_redis *e, struct fake_conn *c, unsigned n, const struct fake_arg *args)
{
        fake_say(c, fake_arg_is(&args[0], "CLUSTER") ? slots : "$-1\r\n");
        return true;
}

static int start_server(void **state)
{
        char *at = slots, host[NAME_SIZE];

        at += sprintf(at, "*%u\r\n", N_NODES);
        for (unsigned i = 0; i < N_NODES; i++) {
                *strchr(node_name(i, host), ':') = '\0';
                at += sprintf(at, "*3\r\n:%u\r\n:%u\r\n*2\r\n$%zu\r\n%s\r\n:1\r\n", 2 * i,
                        2 * i + 1, strlen(host), host);
        }
        fake_redis_start(&server, 0, answer_slots, NULL);
        snprintf(remote_lines, sizeof(remote_lines),
                "remote = x\n[remote x]\naddresses = %s\n[remote x2]\naddresses = %s\n"
                "[remote y]\naddresses = none.invalid:1\n",
                server.address, server.address);
        return 0;
}

static int stop_server(void **state)
{
        fake_redis_stop(&server);
        return 0;
}

static size_t count_nodes(struct harness *h, const char *words)
{
        json_t *reply = ctl_json(h, words);
        size_t n = json_array_size(ctl_list(reply, "nodes"));

        json_decref(reply);
        return n;
}

/* The name of row i of a remote: the server comes first, then those that it names. */
static const char *row_name(unsigned i, char buf[NAME_SIZE])
{
        return i == 0 ? server.address : node_name(i - 1, buf);
}

/* Twice as many as one answer has, in the order of the remotes; last is one without nodes. */
HARNESS_TEST(test_nodes, &with_remote)
{
        const unsigned n = N_NODES + 1;
        char expected[NAME_SIZE];
        json_t *reply, *row;
        size_t i;

        h->n_connections = 2 * HARNESS_NODE_CONNECTIONS; /* x and x2, to the one that answers */
        while (count_nodes(h, "remote") < 2 * n + 1)
                sleep_msec(20);
        reply = ctl_json(h, "remote");
        assert_int_equal(json_array_size(ctl_list(reply, "nodes")), 2 * n + 1);
        json_array_foreach(ctl_list(reply, "nodes"), i, row)
        {
                assert_string_equal(
                        json_string_value(json_object_get(row, "remote")), i < n       ? "x"
                                                                           : i < 2 * n ? "x2"
                                                                                       : "y");
                assert_string_equal(json_string_value(json_object_get(row, "address")),
                        i < 2 * n ? row_name((unsigned)i % n, expected) : "");
        }
        json_decref(reply);
        assert_int_equal(count_nodes(h, "remote x2"), n);
        assert_int_equal(count_nodes(h, "remote y"), 1);
        assert_int_equal(count_nodes(h, "remote --tenant a"), n);
        assert_int_equal(count_nodes(h, "remote --tenant b"), 0);
}

int main(void)
{
        name_tenants();
        return test_run_all(start_server, stop_server);
}
