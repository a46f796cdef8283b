/*
 * Two kvleased with clients of their own, and a real redis-server that both know. Texts of one host
 * are found on the other. If the server is gone, stopped or lies, that one answers in time, as if
 * there were none.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sys/stat.h>

#include "base/macros.h"
#include "tests/integration/certificate.h"
#include "tests/integration/exchange-hosts.h"

#define CHAIN 7

#define PATIENCE_MSEC 60000
#define SHORT_MSEC    1000 /* of a lookup that doesn't find anything */
/* Greatest delay of a lookup on a busy machine. */
#define LATE_OK_NSEC NSEC_PER_SEC

/* ---- the two of them ------------------------------------------------------------------------- */

/* prefill: as of hosts_options. */
static void hosts_start_with(void **state, unsigned n_masters, unsigned prefill)
{
        hosts_find_server();
        hosts_add_servers(n_masters);
        hosts_start_daemons(state, &(struct hosts_options){.prefill = prefill});
}

static void hosts_start(void **state)
{
        hosts_start_with(state, 1, HOSTS_PREFILL);
}

static void share_text(void)
{
        share_chain(CHAIN, N_PAGES);
}

static unsigned find_text(struct worker *w, unsigned msec)
{
        return find_chain(w, CHAIN, msec);
}

/* ---- what administrators are told ------------------------------------------------------------ */

static unsigned count_events(const char *reason, const char *tenant, uint64_t *ret_count)
{
        return count_events_that_say(reason, tenant, NULL, ret_count);
}

/* A number in the first row of kvleasectl exchanges, or (reason) in an object of it. */
static json_int_t json_figure_of(struct harness *h, const char *name, const char *reason)
{
        json_t *o = ctl_json(h, "exchanges"), *figure;
        json_int_t value;

        figure = json_object_get(json_array_get(ctl_list(o, "exchanges"), 0), name);
        if (reason)
                figure = json_object_get(figure, reason);
        assert_true(json_is_integer(figure));
        value = json_integer_value(figure);
        json_decref(o);
        return value;
}

/* A figure of kvleasectl remote's only node, the server. Owned. */
static json_t *json_of_node(struct harness *h, const char *name)
{
        json_t *o = ctl_json(h, "remote x --tenant a"), *node;

        assert_int_equal(json_array_size(ctl_list(o, "nodes")), 1);
        node = json_array_get(ctl_list(o, "nodes"), 0);
        assert_string_equal(json_string_value(json_object_get(node, "remote")), "x");
        assert_string_equal(
                json_string_value(json_object_get(node, "address")), server.servers[0].address);
        node = json_incref(json_object_get(node, name));
        assert_non_null(node);
        json_decref(o);
        return node;
}

/* Does a finding of kvleasectl status begin like this? */
static bool has_finding(struct harness *h, const char *begin)
{
        json_t *o = ctl_json(h, "status"), *finding;
        bool found = false;
        size_t i;

        json_array_foreach(json_object_get(o, "findings"), i, finding)
        {
                const char *what = json_string_value(json_object_get(finding, "what"));

                found |= strncmp(what, begin, strlen(begin)) == 0;
        }
        json_decref(o);
        return found;
}

static json_int_t number_of_node(struct harness *h, const char *name)
{
        json_t *figure = json_of_node(h, name);
        json_int_t value = json_integer_value(figure);

        json_decref(figure);
        return value;
}

static void await_text_of_node(struct harness *h, const char *name, const char *text)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;
        bool is_it;

        do {
                json_t *figure = json_of_node(h, name);

                is_it = strcmp(json_string_value(figure), text) == 0;
                json_decref(figure);
                assert_true(clock_now_nsec() < until);
        } while (!is_it);
}

/* A lookup ends in time, and leaves nothing behind. */
static void assert_finds_nothing(struct worker *w)
{
        uint64_t began = clock_now_nsec();

        assert_int_equal(find_text(w, SHORT_MSEC), 0);
        assert_true(clock_now_nsec() - began < SHORT_MSEC * NSEC_PER_MSEC + LATE_OK_NSEC);
        assert_int_equal(ctl_status(here, "pages_sealed"), 0);
}

/* ---- the decoder ---------------------------------------------------------------------------- */

struct decoded {
        char logits[64];
        json_int_t tokens, reused;
};

/* Decodes some tokens behind text `first` on this host. wait_msec: waits so long for pages of
 * others; 0: not. h NULL: with private memory. */
static struct decoded decode(const struct harness *h, unsigned first, unsigned wait_msec)
{
        char socket[PRIVATE_PATH_MAX], wait[32], file[PRIVATE_PATH_MAX];
        const char *argv[24] = {program_decoder(), "--json", "--layers=2", "--width=64",
                "--ffn-width=128", "--page-tokens=32", "--generate=4"};
        struct proc_output o;
        struct decoded d;
        unsigned n = 7;
        json_t *reply;
        FILE *f;

        (void)snprintf(file, sizeof(file), "%.40s/text", here->daemon.dir);
        f = fopen(file, "we");
        assert_non_null(f);
        for (unsigned i = first; i < first + 60; ++i)
                fprintf(f, "%u times the same is %u words of its own. ", i, i * i + 3);
        fclose(f);
        if (h) {
                argv[n++] = "--socket";
                argv[n++] = private_daemon_socket(&h->daemon, "a", socket);
        } else {
                argv[n++] = "--no-daemon";
                argv[n++] = "--device";
                argv[n++] = private_device();
        }
        if (getenv("KVL_FAKECUDA_KERNELS")) {
                argv[n++] = "--kernels";
                argv[n++] = getenv("KVL_FAKECUDA_KERNELS");
        }
        (void)snprintf(wait, sizeof(wait), "--wait-ms=%u", wait_msec);
        if (wait_msec > 0)
                argv[n++] = wait;
        argv[n] = file;
        assert_int_equal(proc_run(argv, NULL, PATIENCE_MSEC, &o), 0);
        if (o.status)
                fail_msg("decoder: status 0x%x: %s", o.status, o.err);
        reply = json_loads(o.out, JSON_DISABLE_EOF_CHECK, NULL);
        assert_non_null(reply);
        (void)snprintf(d.logits, sizeof(d.logits), "%s",
                json_string_value(json_object_get(reply, "logits")));
        d.tokens = json_integer_value(json_object_get(reply, "tokens"));
        d.reused = json_integer_value(json_object_get(reply, "reused"));
        json_decref(reply);
        proc_output_free(&o);
        return d;
}

/* ---- tests ----------------------------------------------------------------------------------- */

TEST_BARE(test_found_on_the_other_host)
{
        struct worker *w;

        hosts_start(state);
        w = host_worker(here);
        assert_finds_nothing(w);
        share_text();
        assert_int_equal(find_text(w, LONG_MSEC), N_PAGES);
        assert_true(figure_of(here, "kvlease_exchange_imported_pages_total" OF_A) == N_PAGES);
        assert_true(figure_of(&there, "kvlease_exchange_exported_pages_total" OF_A) == N_PAGES);
        assert_true(figure_of(here, "kvlease_exchange_loads_total" OF_A) == 1);
        assert_true(figure_of(here, "kvlease_exchange_lost_loads_total" OF_A) == 0);
        assert_forecast(here, "asks", "; the last one: 20 pages, ");
        assert_forecast(here, "asks", " to load against 320 s to compute: loaded");
        assert_forecast(here, "asks", " (1 a second, as remote_prefill says)");
        /* From here on the text is this host's own. */
        assert_int_equal(kill(server.servers[0].pid, SIGKILL), 0);
        assert_int_equal(find_text(w, SHORT_MSEC), N_PAGES);
        worker_stop(w);
        hosts_end(state);
}

/* Pages are exchanged as int8, in less than half the bytes; int8 stores these numbers exactly. This
 * includes a GPU whose tenant has no host memory. */
TEST_BARE(test_found_through_a_codec)
{
        const struct hosts_options o = {
                .prefill = HOSTS_PREFILL, .tenant_lines = "host_codec = int8\n"};
        struct worker *w;
        double bytes;

        hosts_find_server();
        hosts_add_servers(1);
        hosts_start_daemons(state, &o);
        assert_int_equal(setenv("KVL_WORKER_NUMBERS", "1", 1), 0);
        w = host_worker(here);
        share_text();
        assert_int_equal(find_text(w, LONG_MSEC), N_PAGES);
        bytes = figure_of(here, "kvlease_exchange_imported_bytes_total" OF_A);
        assert_true(bytes > 0 && bytes < N_PAGES * 2 * 4096 / 2);
        assert_true(figure_of(&there, "kvlease_exchange_exported_bytes_total" OF_A) == bytes);
        worker_stop(w);
        assert_int_equal(unsetenv("KVL_WORKER_NUMBERS"), 0);
        hosts_end(state);
}

static void assert_told(struct worker *w, unsigned n_here, unsigned n, bool would_load)
{
        struct told told = ask_of_chain(w, CHAIN, LONG_MSEC);

        assert_true(told.n_here == n_here && told.n == n && told.would_load == would_load);
}

/* Asking loads nothing and counts no miss. Clients that may only read are answered, too. */
TEST_BARE(test_told_what_the_other_host_has)
{
        struct worker *w;

        hosts_start(state);
        w = host_worker(here);
        assert_told(w, 0, 0, false);
        share_text();
        ctl(here, "tenants set a publish_uids=4321");
        assert_int_equal(worker_ask(w, "lease 1"), -EACCES);
        assert_told(w, 0, N_PAGES, true);
        ctl(here, "tenants set a publish_uids=");
        assert_told(w, 0, N_PAGES, true);
        assert_int_equal(ctl_status(here, "pages_sealed"), 0);
        assert_true(figure_of(here, "kvlease_exchange_imported_pages_total" OF_A) == 0);
        assert_int_equal(find_text(w, LONG_MSEC), N_PAGES);
        assert_told(w, N_PAGES, N_PAGES, false);
        worker_tell(w, "invalidate %u:0", CHAIN);
        assert_int_equal(kill(server.servers[0].pid, SIGKILL), 0);
        assert_told(w, 0, 0, false);
        worker_stop(w);
        hosts_end(state);
}

/* A text is loaded if that is faster than an engine's computing, by the engine's own figure once it
 * gives one. */
TEST_BARE(test_what_is_computed_sooner_is_not_loaded)
{
        struct worker *w;

        hosts_start_with(state, 1, 0);
        share_text();
        w = host_worker(here);
        assert_forecast(here, "asks", " (10000 a second, until an engine has measured it)");
        worker_tell(w, "note-prefill 1000000 1000000 1"); /* a token a nanosecond */
        assert_told(w, 0, N_PAGES, false);
        assert_int_equal(find_text(w, LONG_MSEC), 0);
        assert_forecast(here, "asks", " (1000000000 a second, as engines measured)");
        assert_forecast(here, "asks", " to compute: not loaded");
        assert_true(
                figure_of(here,
                        "kvlease_exchange_not_imported_pages_total{tenant=\"a\",remote=\"x\",reason=\"not-worth\"}") ==
                N_PAGES);
        assert_int_equal(json_figure_of(here, "not_imported", "not-worth"), N_PAGES);
        assert_int_equal(json_figure_of(here, "prefill_tokens_per_sec", NULL), 1000000000);
        assert_true(figure_of(here, "kvlease_exchange_prefill_tokens_per_second" OF_A) == 1e9);
        assert_int_equal(json_figure_of(here, "loads", NULL), 0);
        /* One such sample counts as four times slower than the known rate: more of them are
         * believed. */
        worker_tell(w, "note-prefill 1000000 1000000000000 100");
        assert_int_equal(find_text(w, LONG_MSEC), N_PAGES);
        assert_forecast(here, "asks", " to compute: loaded");
        worker_stop(w);
        hosts_end(state);
}

/* The logits are the same bits on the other host as without any daemon. */
TEST_BARE(test_decoder_on_the_other_host)
{
        struct decoded oracle, d;
        unsigned n_pages;

        hosts_start(state);
        oracle = decode(NULL, 0, 0);
        n_pages = (unsigned)((oracle.tokens - 1) / 32);
        /* Pages computed before the namespace's epoch is known aren't exported. */
        (void)decode(&there, 1, 0);
        await_epoch();
        for (unsigned i = 0; i < 2; i++) {
                d = decode(&there, 0, 0);
                assert_int_equal(d.reused, i * n_pages * 32);
                assert_string_equal(d.logits, oracle.logits);
        }
        await_exported(n_pages);
        d = decode(here, 0, LONG_MSEC);
        assert_int_equal(d.reused, n_pages * 32);
        assert_string_equal(d.logits, oracle.logits);
        hosts_end(state);
}

/* Requests and writes get no answer; events tell when this begins and ends. */
TEST_BARE(test_server_is_stopped)
{
        struct worker *w;
        uint64_t count;

        hosts_start(state);
        share_text();
        w = host_worker(here);
        assert_int_equal(kill(server.servers[0].pid, SIGSTOP), 0);
        for (unsigned i = 0; i < 3; i++)
                assert_finds_nothing(w);
        await_event("unreachable");
        await_text_of_node(here, "breaker", "open");
        await_text_of_node(here, "state", "unreached");
        assert_true(has_finding(here, "no node of remote x answers"));
        assert_true(number_of_node(here, "trips") > 0);
        assert_true(number_of_node(here, "losses") > 0);
        assert_int_equal(count_events("reachable again", "", &count), 0);
        /* The server continues, and so do the hosts. */
        assert_int_equal(kill(server.servers[0].pid, SIGCONT), 0);
        await_chain(w, CHAIN);
        await_event("reachable again");
        await_text_of_node(here, "breaker", "closed");
        await_text_of_node(here, "state", "reached");
        assert_false(has_finding(here, "no node of remote x"));
        assert_int_equal(number_of_node(here, "open_left_msec"), 0);
        assert_int_equal(number_of_node(here, "slots"), 16384);
        assert_true(number_of_node(here, "rtt_usec") > 0);
        assert_true(number_of_node(here, "bytes_read") >= N_PAGES * 2 * 4096);
        assert_true(number_of_node(&there, "bytes_written") >= N_PAGES * 2 * 4096);
        assert_true(number_of_node(here, "reads") >= N_PAGES);
        worker_stop(w);
        hosts_end(state);
}

/* One of three servers is stopped, and later continues. The others serve all the time, so each
 * lookup asks it again. */
TEST_BARE(test_one_node_is_stopped)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC, count;
        unsigned chain = CHAIN + 1;
        struct worker *w;

        hosts_start_with(state, 3, HOSTS_PREFILL);
        share_text();
        w = host_worker(here);
        assert_int_equal(find_text(w, LONG_MSEC), N_PAGES);
        assert_int_equal(kill(server.servers[1].pid, SIGSTOP), 0);
        while (count_events("node left alone", "", &count) == 0) {
                assert_int_equal(find_chain(w, chain++, SHORT_MSEC), 0);
                assert_true(clock_now_nsec() < until);
        }
        assert_int_equal(count_events("unreachable", "", &count), 0);
        assert_int_equal(count_events("all nodes answer", "", &count), 0);
        assert_true(has_finding(here, "nodes of remote x that are left alone"));
        assert_true(figure_of(here, "kvlease_exchange_nodes_left_alone" OF_A) == 1);
        assert_int_equal(kill(server.servers[1].pid, SIGCONT), 0);
        while (count_events("all nodes answer", "", &count) == 0) {
                (void)find_chain(w, chain++, SHORT_MSEC);
                assert_true(clock_now_nsec() < until + PATIENCE_NSEC);
        }
        assert_false(has_finding(here, "nodes of remote x"));
        worker_stop(w);
        hosts_end(state);
}

/* kvlease-exchange is stopped, and later continues. Lookups end in time, local pages are found. */
TEST_BARE(test_process_is_stopped)
{
        struct lookups lookups;
        struct worker *w;

        hosts_start(state);
        share_text();
        w = host_worker(here);
        compute_chain(w, CHAIN + 1);
        assert_int_equal(kill(here->daemon.exchange_pid, SIGSTOP), 0);
        lookups_begin(&lookups);
        for (unsigned i = 0; i < 20; i++) {
                assert_int_equal(look_up(&lookups, w, CHAIN, SHORT_MSEC), 0);
                assert_int_equal(look_up(&lookups, w, CHAIN + 1, SHORT_MSEC), N_PAGES);
        }
        lookups_end(&lookups);
        await_event("unreachable");
        assert_forecast(here, "unreachable", "kvlease-exchange");
        assert_int_equal(kill(here->daemon.exchange_pid, SIGCONT), 0);
        await_chain(w, CHAIN);
        await_event("reachable again");
        worker_stop(w);
        hosts_end(state);
}

/* kvlease-exchange is killed, and another one started. */
TEST_BARE(test_process_is_killed)
{
        struct worker *w;

        hosts_start(state);
        share_text();
        w = host_worker(here);
        assert_int_equal(kill(here->daemon.exchange_pid, SIGKILL), 0);
        assert_int_equal(waitpid(here->daemon.exchange_pid, NULL, 0), here->daemon.exchange_pid);
        here->daemon.exchange_pid = 0;
        for (unsigned i = 0; i < 3; i++)
                assert_finds_nothing(w);
        compute_chain(w, CHAIN + 1);
        assert_int_equal(find_chain(w, CHAIN + 1, SHORT_MSEC), N_PAGES);
        await_event("unreachable");
        assert_forecast(here, "unreachable", "start kvlease-exchange");
        assert_int_equal(private_exchange_start(&here->daemon), 0);
        await_chain(w, CHAIN);
        worker_stop(w);
        hosts_end(state);
}

/* ---- the server's identity and limits ------------------------------------------------------- */

/* Certificates of two authorities; "ca" signs the server's. */
static char ca[128], other_ca[128];

static void add_tls_server(void)
{
        static const char *const cli[] = {"--tls", "--cacert", ca, NULL};
        char crt[128], key[128];
        const char *const words[] = {"--tls-ca-cert-file", ca, "--tls-cert-file", crt,
                "--tls-key-file", key, "--tls-auth-clients", "no", NULL};

        (void)snprintf(ca, sizeof(ca), "%s/ca.crt", server.dir);
        (void)snprintf(other_ca, sizeof(other_ca), "%s/other.crt", server.dir);
        (void)snprintf(crt, sizeof(crt), "%s/server.crt", server.dir);
        (void)snprintf(key, sizeof(key), "%s/server.key", server.dir);
        certificate_make(server.dir, "ca", NULL);
        certificate_make(server.dir, "other", NULL);
        certificate_make(server.dir, "server", "subjectAltName=IP:127.0.0.1");
        server.cli_words = cli;
        assert_int_equal(redis_cluster_add(&server, words, true), 0);
}

/* The authority that this host trusts hasn't signed the server's certificate; the one that the
 * other host trusts has. */
TEST_BARE(test_certificate_of_somebody_else)
{
        char here_lines[256], there_lines[256];
        struct hosts_options o = {
                .prefill = HOSTS_PREFILL, .here_lines = here_lines, .there_lines = there_lines};
        uint32_t pages[N_PAGES];
        struct worker *w;

        hosts_find_server();
        add_tls_server();
        (void)snprintf(here_lines, sizeof(here_lines), "tls = on\ntls_ca = %s\n", other_ca);
        (void)snprintf(there_lines, sizeof(there_lines), "tls = on\ntls_ca = %s\n", ca);
        hosts_start_daemons(state, &o);
        share_text();
        w = host_worker(here);
        for (unsigned i = 0; i < 3; i++)
                assert_finds_nothing(w);
        await_event("unreachable");
        assert_forecast(here, "unreachable", "certificate");
        worker_publish_chain(w, CHAIN + 1, N_PAGES, pages);
        assert_int_equal(find_chain(w, CHAIN + 1, SHORT_MSEC), N_PAGES);
        worker_stop(w);
        /* Another trusted authority needs a restart. */
        o.here_lines = there_lines;
        hosts_restart_here(&o);
        w = host_worker(here);
        await_chain(w, CHAIN);
        assert_forecast(here, "asks", "which answers");
        worker_stop(w);
        hosts_end(state);
}

/* ---- slots move ----------------------------------------------------------------------------- */

/* Each value has wrong bytes, in the page or in its header. */
TEST_BARE(test_server_lies)
{
        uint64_t began, count, more;
        char *keys, *save = NULL;
        unsigned n = 0, told;
        struct worker *w;

        hosts_start(state);
        share_text();
        keys = redis_cluster_call(&server, 0, "--raw keys kvl:1:a:*:0");
        assert_non_null(keys);
        for (char *k = strtok_r(keys, "\r\n", &save); k; k = strtok_r(NULL, "\r\n", &save))
                free(redis_cluster_call(
                        &server, 0, "setrange %s %u damaged", k, n++ % 2 == 0 ? 1000 : 100));
        free(keys);
        assert_int_equal(n, N_PAGES);
        w = host_worker(here);
        began = clock_now_nsec();
        for (unsigned i = 0; i < 3; i++)
                assert_finds_nothing(w);
        /* The event is of the text's first page, if that is damaged. It comes at once, and not
         * again within a minute. */
        told = count_events("payload-sum", "a", &count) + count_events("header-sum", "a", &more);
        assert_true(told == 1 || clock_now_nsec() - began > 60 * NSEC_PER_SEC);
        assert_true(count + more > 0);
        assert_true(
                figure_of(here,
                        "kvlease_exchange_not_imported_pages_total{tenant=\"a\",remote=\"x\",reason=\"damaged\"}") >
                0);
        worker_stop(w);
        hosts_end(state);
}

/* The text isn't found on the host that computed it, nor on hosts that hadn't imported it yet. */
TEST_BARE(test_invalidated_on_the_other_host)
{
        struct worker *w, *other;
        char *before;

        hosts_start(state);
        share_text();
        before = read_epoch(NULL);
        assert_non_null(before);
        other = host_worker(&there);
        worker_tell(other, "invalidate %u:3", CHAIN);
        await_other_epoch(before);
        free(before);
        w = host_worker(here);
        assert_finds_nothing(w);
        worker_stop(other);
        worker_stop(w);
        hosts_end(state);
}
