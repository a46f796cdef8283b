#include "tests/integration/exchange-hosts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "tests/integration/exporter.h"
#include "tests/integration/redis-needed.h"

#define N_CONNECTIONS 3 /* to one node: option `connections`, and one for small operations */

struct redis_cluster server;
struct harness *here, there;

/* Of a daemon. */
struct host_config {
        char tenant_lines[1024];
        struct private_tenant tenants[2];
        struct private_options options;
};

static struct host_config configs[2];
static unsigned n_planes;

/* ---- the two of them ------------------------------------------------------------------------- */

/* What a test left that failed. */
static void clean_up(void)
{
        redis_cluster_deinit(&server);
        if (there.daemon.dir[0])
                private_daemon_deinit(&there.daemon);
}

void hosts_find_server(void)
{
        clean_up();
        redis_needed(&server);
}

void hosts_add_servers(unsigned n_masters)
{
        static const char *const words[] = {NULL};
        int r;

        if (n_masters == 1)
                r = redis_cluster_add(&server, words, false);
        else
                r = redis_cluster_create(&server, n_masters, false);
        assert_int_equal(r, 0);
}

static void write_config(struct host_config *c, unsigned prefill, const char *lines)
{
        (void)snprintf(c->tenant_lines, sizeof(c->tenant_lines),
                "limit = 64MiB\nremote = x\nremote_prefill = %u\n\n[remote x]\naddresses = "
                "%s\nprobe_timeout = 1s\n%s",
                prefill, server.servers[0].address, lines ? lines : "");
        c->tenants[0] = (struct private_tenant){"a", c->tenant_lines};
        c->options = (struct private_options){.tenants = c->tenants};
}

void hosts_start_daemons(void **state, const struct hosts_options *o)
{
        n_planes = o->n_planes > 0 ? o->n_planes : 2;
        write_config(&configs[0], o->prefill, o->here_lines);
        write_config(&configs[1], o->prefill, o->there_lines);
        configs[0].options.is_kept = configs[1].options.is_kept = o->is_kept;
        *state = &configs[0].options;
        assert_int_equal(harness_setup(state), 0);
        here = *state;
        assert_int_equal(private_daemon_init(&there.daemon, &configs[1].options), 0);
        harness_start(&there);
        here->n_connections = there.n_connections = (int)(N_CONNECTIONS * server.n);
}

void hosts_restart_here(const struct hosts_options *o)
{
        write_config(&configs[0], o->prefill, o->here_lines);
        assert_int_equal(private_daemon_configure(&here->daemon, &configs[0].options), 0);
        harness_restart(here);
}

void hosts_end(void **state)
{
        int status;

        harness_assert_settled(&there);
        assert_int_equal(private_daemon_stop(&there.daemon, &status), 0);
        assert_int_equal(status, 0);
        private_daemon_deinit(&there.daemon);
        redis_cluster_deinit(&server);
        *state = here;
        assert_int_equal(harness_teardown(state), 0);
}

struct worker *host_worker(struct harness *h)
{
        return worker_start(h, "a", "ns", n_planes);
}

/* ---- what the servers have ------------------------------------------------------------------- */

char *read_epoch(unsigned *ret_server)
{
        char *epoch = NULL;

        for (unsigned i = 0; i < server.n && !epoch; i++) {
                char *name = redis_cluster_call(&server, i, "--raw keys kvl:1:a:*:epoch");

                if (name && strstr(name, "epoch")) {
                        name[strcspn(name, "\r\n")] = '\0';
                        epoch = redis_cluster_call(&server, i, "--no-raw get %s", name);
                        if (ret_server)
                                *ret_server = i;
                }
                free(name);
        }
        return epoch;
}

void await_epoch(void)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;
        char *epoch;

        while (!(epoch = read_epoch(NULL))) {
                assert_true(clock_now_nsec() < until);
                sleep_msec(20);
        }
        free(epoch);
}

void await_other_epoch(const char *before)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;
        char *now;

        for (bool is_same = true; is_same; sleep_msec(20)) {
                now = read_epoch(NULL);
                is_same = now && strcmp(now, before) == 0;
                free(now);
                assert_true(clock_now_nsec() < until);
        }
}

unsigned count_exported(void)
{
        unsigned n = 0;

        for (unsigned i = 0; i < server.n; i++) {
                char *keys = redis_cluster_call(&server, i, "--raw keys kvl:1:a:*:0"), *save = NULL;

                assert_non_null(keys);
                for (char *k = strtok_r(keys, "\r\n", &save); k; k = strtok_r(NULL, "\r\n", &save))
                        n++;
                free(keys);
        }
        return n;
}

void await_exported(unsigned n)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;

        while (count_exported() < n) {
                /* Whoever asks for figures has the daemon look at what lies in rings. */
                (void)ctl_status(&there, "publishes");
                assert_true(clock_now_nsec() < until);
                sleep_msec(20);
        }
}

/* ---- texts ----------------------------------------------------------------------------------- */

void share_chain(unsigned chain, unsigned n_exported)
{
        struct worker *w = host_worker(&there);
        uint32_t pages[N_PAGES];

        await_epoch();
        worker_publish_chain(w, chain, N_PAGES, pages);
        worker_tell(w, "hits 1 %u:0-%u", chain, N_PAGES - 1);
        await_exported(n_exported);
        worker_stop(w);
}

unsigned find_chain_timed(struct worker *w, unsigned chain, unsigned msec, uint64_t *ret_nsec)
{
        uint64_t began = clock_now_nsec();
        uint32_t numbers[1 + N_PAGES];
        unsigned n;
        int r = worker_ask(w, "lookup-wait %u %u:0-%u", msec, chain, N_PAGES - 1);

        *ret_nsec = clock_now_nsec() - began;
        assert_true(r >= 0);
        if (r != 0)
                return 0;
        n = worker_numbers(w, numbers, ARRAY_SIZE(numbers));
        assert_true(n > 1);
        for (unsigned i = 1; i < n; i++) {
                worker_tell(w, "verify %u %u", numbers[i], 1000 * chain + i - 1);
                worker_tell(w, "release %u", numbers[i]);
        }
        return n - 1;
}

unsigned find_chain(struct worker *w, unsigned chain, unsigned msec)
{
        uint64_t nsec;

        return find_chain_timed(w, chain, msec, &nsec);
}

void await_chain(struct worker *w, unsigned chain)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;

        while (find_chain(w, chain, LONG_MSEC) < N_PAGES)
                assert_true(clock_now_nsec() < until);
}

/* ---- what administrators are told ------------------------------------------------------------ */

double figure_of(const struct harness *h, const char *series)
{
        struct exporter e;
        char *text;
        double value;

        exporter_start(&e, h, NULL);
        text = exporter_metrics(&e);
        value = metric_of(text, series);
        free(text);
        exporter_stop(&e);
        return value;
}

void assert_outlook(struct harness *h, const char *outlook, const char *part)
{
        static const char figure[] = "kvlease_exchange_probes_total" OF_A;
        const double before = figure_of(h, figure);
        const char *now;
        json_t *o, *explained;

        o = ctl_json(h, "explain a ns "
                        "00000000000000000000000000000000000000000000000000000000000000ff");
        explained = json_array_get(ctl_list(o, "explanations"), 0);
        now = json_string_value(json_object_get(explained, "import"));
        assert_non_null(now);
        assert_string_equal(now, outlook);
        now = json_string_value(json_object_get(explained, "import_detail"));
        assert_non_null(now);
        assert_non_null(strstr(now, part));
        json_decref(o);
        assert_true(figure_of(h, figure) == before);
}
