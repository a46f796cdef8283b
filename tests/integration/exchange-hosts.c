#include "tests/integration/exchange-hosts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "tests/integration/exporter.h"
#include "tests/integration/redis-needed.h"

/* The most page names that tests write, each twice. */
#define NAMES_MAX 65536

/* Same value as in test_remote_links.c. An answer wakes a client, a thread of the store, the loop,
 * the client again and the test. */
#define LATE_NSEC (10 * NSEC_PER_MSEC)
#define N_WAKES   5

struct redis_cluster server;
struct harness *here, there, elsewhere;

/* Configuration of one daemon. */
struct host_config {
        char tenant_lines[1024];
        struct private_tenant tenants[2];
        struct private_options options;
};

static struct host_config configs[HOSTS_MAX];
static unsigned n_hosts;

/* ---- hosts ----------------------------------------------------------------------------------- */

struct harness *host_at(unsigned i)
{
        struct harness *const hosts[HOSTS_MAX] = {here, &there, &elsewhere};

        return hosts[i];
}

/* Cleans up after a test that failed. */
static void clean_up(void)
{
        redis_cluster_deinit(&server);
        for (unsigned i = 1; i < HOSTS_MAX; i++)
                if (host_at(i)->daemon.dir[0])
                        private_daemon_deinit(&host_at(i)->daemon);
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

void hosts_add_replicated(unsigned n_masters)
{
        assert_int_equal(redis_cluster_create(&server, n_masters, true), 0);
}

/* lines: more of [remote x]. */
static void write_config(struct host_config *c, const struct hosts_options *o, const char *lines)
{
        (void)snprintf(c->tenant_lines, sizeof(c->tenant_lines),
                "limit = 64MiB\nremote = x\nremote_prefill = %u\n%s\n[remote x]\naddresses = %s\nprobe_timeout = 1s\n%s",
                o->prefill, o->tenant_lines ? o->tenant_lines : "", server.servers[0].address,
                lines ? lines : "");
        c->tenants[0] = (struct private_tenant){"a", c->tenant_lines};
        c->options = (struct private_options){.tenants = c->tenants};
}

void hosts_start_daemons(void **state, const struct hosts_options *o)
{
        const char *const lines[HOSTS_MAX] = {o->here_lines, o->there_lines};

        n_hosts = o->n_hosts > 0 ? o->n_hosts : 2;
        for (unsigned i = 0; i < n_hosts; i++) {
                write_config(&configs[i], o, lines[i]);
                configs[i].options.is_kept = o->is_kept;
                configs[i].options.net_pid = o->net_pids ? o->net_pids[i] : 0;
        }
        *state = &configs[0].options;
        assert_int_equal(harness_setup(state), 0);
        here = *state;
        for (unsigned i = 1; i < n_hosts; i++) {
                assert_int_equal(private_daemon_init(&host_at(i)->daemon, &configs[i].options), 0);
                harness_start(host_at(i));
        }
        for (unsigned i = 0; i < n_hosts; i++)
                host_at(i)->n_connections = (int)(HARNESS_NODE_CONNECTIONS * server.n);
}

void hosts_restart_here(const struct hosts_options *o)
{
        write_config(&configs[0], o, o->here_lines);
        assert_int_equal(private_daemon_configure(&here->daemon, &configs[0].options), 0);
        harness_restart(here);
}

void hosts_end(void **state)
{
        int status;

        for (unsigned i = 1; i < n_hosts; i++) {
                struct harness *h = host_at(i);

                harness_assert_settled(h);
                assert_int_equal(private_daemon_stop(&h->daemon, &status), 0);
                assert_int_equal(status, 0);
                private_daemon_deinit(&h->daemon);
        }
        redis_cluster_deinit(&server);
        *state = here;
        assert_int_equal(harness_teardown(state), 0);
}

struct worker *host_worker(struct harness *h)
{
        return worker_start(h, "a", "ns", 2);
}

/* ---- what the servers have ------------------------------------------------------------------- */

char *read_epoch(unsigned *ret_server)
{
        char *epoch = NULL;

        for (unsigned i = 0; i < server.n && !epoch; i++) {
                char *name = NULL;

                if (redis_cluster_is_master(&server, i))
                        name = redis_cluster_call(&server, i, "--raw keys kvl:1:a:*:epoch");
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

/* Lets each daemon read its clients' rings, as a request for figures does. */
void hosts_look_at_rings(void)
{
        for (unsigned i = 0; i < n_hosts; i++)
                (void)ctl_status(host_at(i), "publishes");
}

static int compare_names(const void *a, const void *b)
{
        return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names are sorted. */
static unsigned count_different(char *const *names, unsigned n)
{
        unsigned n_different = 0;

        for (unsigned i = 0; i < n; i++)
                n_different += i == 0 || strcmp(names[i], names[i - 1]) != 0;
        return n_different;
}

/* While slots move, a page may be seen on its old and new server, or on neither. So all servers are
 * asked twice, and a page found on any counts once. */
unsigned count_exported(void)
{
        static char *names[NAMES_MAX];
        char *said[2 * REDIS_MAX] = {0};
        unsigned n = 0;

        for (unsigned i = 0; i < 2 * server.n; i++) {
                char *save = NULL;

                if (!redis_cluster_is_master(&server, i % server.n))
                        continue;
                said[i] = redis_cluster_call(&server, i % server.n, "--raw keys kvl:1:a:*:0");
                assert_non_null(said[i]);
                for (char *k = strtok_r(said[i], "\r\n", &save); k;
                        k = strtok_r(NULL, "\r\n", &save)) {
                        assert_true(n < NAMES_MAX);
                        names[n++] = k;
                }
        }
        qsort(names, n, sizeof(names[0]), compare_names);
        n = count_different(names, n);
        for (unsigned i = 0; i < 2 * server.n; i++)
                free(said[i]);
        return n;
}

void await_exported(unsigned n)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;

        while (count_exported() < n) {
                hosts_look_at_rings();
                assert_true(clock_now_nsec() < until);
                sleep_msec(20);
        }
}

void await_ready(struct harness *h)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;

        while (figure_of(h, "kvlease_exchange_namespaces_ready" OF_A) < 1)
                assert_true(clock_now_nsec() < until);
}

/* ---- texts ----------------------------------------------------------------------------------- */

void share_chain(unsigned chain, unsigned n_exported)
{
        struct worker *w = host_worker(&there);
        uint32_t pages[N_PAGES];

        await_epoch();
        await_ready(&there); /* the epoch may be of another host, and not be known there yet */
        worker_publish_chain(w, chain, N_PAGES, pages);
        worker_tell(w, "hits 1 %u:0-%u", chain, N_PAGES - 1);
        await_exported(n_exported);
        worker_stop(w);
}

void compute_chain(struct worker *w, unsigned chain)
{
        uint32_t pages[N_PAGES];

        worker_publish_chain(w, chain, N_PAGES, pages);
        for (unsigned i = 0; i < N_PAGES; i++)
                worker_tell(w, "release %u", pages[i]);
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

struct told ask_of_chain(struct worker *w, unsigned chain, unsigned msec)
{
        uint32_t told[3];

        worker_tell(w, "probe-hosts %u %u:0-%u", msec, chain, N_PAGES - 1);
        assert_int_equal(worker_numbers(w, told, ARRAY_SIZE(told)), ARRAY_SIZE(told));
        return (struct told){told[0], told[1], told[2]};
}

struct told await_whole(struct worker *w, unsigned chain)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;
        struct told told;

        while ((told = ask_of_chain(w, chain, LONG_MSEC)).n < N_PAGES) {
                if (clock_now_nsec() >= until)
                        fail_msg("of text %u there are %u pages", chain, told.n);
                hosts_look_at_rings();
        }
        return told;
}

void await_chain(struct worker *w, unsigned chain)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;

        for (unsigned n; (n = find_chain(w, chain, LONG_MSEC)) < N_PAGES;)
                if (clock_now_nsec() >= until)
                        fail_msg("of text %u there are %u pages after %llu s", chain, n,
                                (unsigned long long)(PATIENCE_NSEC / NSEC_PER_SEC));
}

void find_whole(struct worker *w, unsigned chain)
{
        (void)await_whole(w, chain);
        await_chain(w, chain);
}

void await_left(struct worker *w, unsigned chain, unsigned n)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;

        while (find_chain(w, chain, NOW_MSEC) != n) {
                assert_true(clock_now_nsec() < until);
                sleep_msec(20);
        }
}

/* ---- lookups that mustn't be late ------------------------------------------------------------ */

void lookups_begin(struct lookups *l)
{
        *l = (struct lookups){0};
        assert_int_equal(oversleep_begin(&l->asleep), 0);
}

unsigned look_up(struct lookups *l, struct worker *w, unsigned chain, unsigned msec)
{
        uint64_t nsec, deadline_nsec = msec * NSEC_PER_MSEC;
        unsigned n = find_chain_timed(w, chain, msec, &nsec);

        l->n++;
        if (nsec > deadline_nsec)
                l->late_nsec = MAX(l->late_nsec, nsec - deadline_nsec);
        return n;
}

void lookups_end(struct lookups *l)
{
        uint64_t asleep_nsec;

        oversleep_end(&l->asleep);
        asleep_nsec = N_WAKES * l->asleep.worst_nsec;
        print_message(
                "%u lookups; after the deadline by %u us at worst (%u times a thread's worst sleep: %u us)\n",
                l->n, (unsigned)(l->late_nsec / NSEC_PER_USEC), N_WAKES,
                (unsigned)(asleep_nsec / NSEC_PER_USEC));
        assert_true(l->late_nsec <= LATE_NSEC + asleep_nsec);
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

/* The sentence about a missing key, with this outlook. Owned. */
static char *forecast(struct harness *h, const char *outlook)
{
        json_t *o = ctl_json(
                h, "explain a ns 00000000000000000000000000000000000000000000000000000000000000ff");
        json_t *explained = json_array_get(ctl_list(o, "explanations"), 0);
        const char *now = json_string_value(json_object_get(explained, "import"));
        char *detail;

        assert_non_null(now);
        assert_string_equal(now, outlook);
        now = json_string_value(json_object_get(explained, "import_detail"));
        assert_non_null(now);
        detail = strdup(now);
        json_decref(o);
        return detail;
}

void assert_forecast(struct harness *h, const char *outlook, const char *part)
{
        static const char figure[] = "kvlease_exchange_probes_total" OF_A;
        const double before = figure_of(h, figure);
        const uint64_t until = clock_now_nsec() + PATIENCE_NSEC;
        char *detail = forecast(h, outlook);

        /* kvlease-exchange tells its figures now and then. */
        while (!strstr(detail, part)) {
                if (clock_now_nsec() > until)
                        fail_msg("'%s' isn't in: %s", part, detail);
                free(detail);
                sleep_msec(20);
                detail = forecast(h, outlook);
        }
        free(detail);
        assert_true(figure_of(h, figure) == before);
}

/* ---- what administrators are told ------------------------------------------------------------ */

static bool is_event(json_t *e, const char *reason, const char *tenant)
{
        const char *its = json_string_value(json_object_get(e, "tenant"));

        return strcmp(json_string_value(json_object_get(e, "reason")), reason) == 0 &&
               strcmp(json_string_value(json_object_get(e, "by")), "remote x") == 0 &&
               strcmp(its ? its : "", tenant) == 0;
}

unsigned count_events_that_say(
        const char *reason, const char *tenant, const char *says, uint64_t *ret_count)
{
        struct proc_output o;
        json_error_t error;
        unsigned n = 0;

        *ret_count = 0;
        assert_int_equal(ctl_run(here, "--json events --kind remote", &o), 0);
        for (const char *at = o.out; *at; at += error.position + 1) {
                json_t *e = json_loads(at, JSON_DISABLE_EOF_CHECK, &error);

                assert_non_null(e);
                if (is_event(e, reason, tenant)) {
                        n++;
                        *ret_count += (uint64_t)json_integer_value(json_object_get(e, "count"));
                        if (says)
                                assert_non_null(strstr(
                                        json_string_value(json_object_get(e, "detail")), says));
                }
                json_decref(e);
        }
        proc_output_free(&o);
        return n;
}

void await_event(const char *reason)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC, count;

        while (count_events_that_say(reason, "", NULL, &count) == 0) {
                assert_true(clock_now_nsec() < until);
                sleep_msec(100);
        }
}
