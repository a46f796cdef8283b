/* kvlease-exporter beside a real daemon, and without it: its figures equal kvleasectl's. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "proto/frame.h"
#include "proto/kvlease.pb-c.h"
#include "proto/msg.h"
#include "tests/integration/exporter.h"
#include "tests/unit/child.h"
#include "tests/unit/help-text.h"

#define SET_PAGES   512 /* of 4 KiB */
#define CHAIN_PAGES 256

static const struct private_tenant both[] = {{"loser", NULL}, {"winner", NULL}, {NULL, NULL}};
/* Two sets: one for each tenant. */
static const struct private_options options = {
        .tenants = both, .device_lines = "memory = 4MiB\nextent = 2MiB\n"};

/* Both sets are the loser's; then one is the winner's, which leases and is refused. */
static struct worker *make_history(struct harness *h)
{
        struct worker *w = worker_start(h, "loser", "cache", 1);
        uint32_t pages[CHAIN_PAGES];

        for (unsigned chain = 0; chain < 2 * SET_PAGES / CHAIN_PAGES; ++chain)
                worker_publish_chain(w, chain, CHAIN_PAGES, pages);
        worker_stop(w);
        w = worker_start(h, "winner", "work", 1);
        worker_tell(w, "lease %u", SET_PAGES);
        assert_int_not_equal(worker_ask(w, "lease-with %u wait=-1", 2 * SET_PAGES), 0);
        return w;
}

static void assert_as_ctl(struct harness *h, const char *m, const char *series, const char *name)
{
        uint64_t expected = ctl_status(h, name);

        if (metric_of(m, series) != (double)expected)
                fail_msg("%s is %g, kvleasectl says %s is %lu", series, metric_of(m, series), name,
                        (unsigned long)expected);
}

static void assert_status(struct harness *h, const char *m)
{
        static const struct {
                const char *series, *name;
        } same[] = {{"kvlease_evicted_pages_total", "evictions"},
                {"kvlease_refused_leases_total", "leases_refused"},
                {"kvlease_published_pages_total", "publishes"},
                {"kvlease_pages{state=\"sealed\",tier=\"device\"}", "pages_sealed"},
                {"kvlease_pages{state=\"granted\",tier=\"device\"}", "pages_granted"},
                {"kvlease_tenants", "n_tenants"}, {"kvlease_namespaces", "n_namespaces"},
                {"kvlease_clients", "n_clients"}};

        for (size_t i = 0; i < ARRAY_SIZE(same); i++)
                assert_as_ctl(h, m, same[i].series, same[i].name);
}

HARNESS_TEST(test_figures, &options)
{
        struct worker *w = make_history(h);
        struct exporter e;
        _cleanup_free_ char *m = NULL;

        exporter_start(&e, h, NULL);
        m = exporter_metrics(&e);
        assert_true(metric_of(m, "kvlease_up") == 1);
        assert_status(h, m);
        assert_true(metric_of(m, "kvlease_clients") == 1);
        assert_true(
                metric_of(m, "kvlease_tenant_evicted_pages_total{tenant=\"loser\"}") >= SET_PAGES);
        assert_true(metric_of(m, "kvlease_taken_pages_total{victim=\"loser\",by=\"winner\"}") >=
                    SET_PAGES);
        assert_true(metric_of(m, "kvlease_taken_sets_total{victim=\"loser\",by=\"winner\"}") == 1);
        assert_true(
                metric_of(m, "kvlease_tenant_charged_bytes{tenant=\"winner\",tier=\"device\"}") ==
                (double)ctl_tenant(h, "winner", "charged_bytes"));
        assert_true(
                metric_of(m,
                        "kvlease_tenant_refused_leases_total{tenant=\"winner\",reason=\"pool_full\"}") ==
                1);
        assert_true(
                metric_exists(m, "kvlease_namespace_pages{tenant=\"winner\",namespace=\"work\""));
        worker_stop(w);
        exporter_stop(&e);
}

/* Sends a request before hello, and is disconnected. */
static void break_rule(struct harness *h, const char *tenant)
{
        Kvlease__V1__ByeRequest m = KVLEASE__V1__BYE_REQUEST__INIT;
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        char path[PRIVATE_PATH_MAX];
        uint8_t frame[FRAME_MAX_SIZE];
        int n = msg_pack(frame, PROTO_VERSION_MAX, MSG_BYE, 0, 1, 0, &m.base);

        assert_true(fd >= 0 && n > 0);
        strcpy(a.sun_path, private_daemon_socket(&h->daemon, tenant, path));
        assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
        assert_int_equal(send(fd, frame, (size_t)n, MSG_NOSIGNAL), n);
        assert_int_equal(read(fd, frame, 1), 0);
}

/* Counters by kind exist from the start: the first event would otherwise be no increase. */
static void assert_zeros(const char *m)
{
        static const char *const series[] = {"violations_total{rule=\"hello-first\"}",
                "violations_total{rule=\"resume\"}", "violations_total{rule=\"other\"}",
                "lookup_pages_total{result=\"hit\"}", "lookup_pages_total{result=\"miss\"}",
                "announced_keys_total{result=\"reserved\"}",
                "announced_keys_total{result=\"pending\"}", "restarts_total{outcome=\"survived\"}",
                "restarts_total{outcome=\"emptied\"}"};
        static const char *const reasons[] = {"quota", "reservation_full", "pool_full", "deadline",
                "draining", "device", "no_run"};
        char name[128];

        for (size_t i = 0; i < ARRAY_SIZE(series); i++) {
                snprintf(name, sizeof(name), "kvlease_%s", series[i]);
                assert_true(metric_of(m, name) == 0);
        }
        for (size_t i = 0; i < ARRAY_SIZE(reasons); i++) {
                snprintf(name, sizeof(name),
                        "kvlease_tenant_refused_leases_total{tenant=\"winner\",reason=\"%s\"}",
                        reasons[i]);
                assert_true(metric_of(m, name) == 0);
        }
}

/* Requests and their times are exported; a peer that breaks a rule is counted under it. */
HARNESS_TEST(test_counters, &options)
{
        struct worker *w = worker_start(h, "loser", "cache", 1);
        double count, beyond;
        struct exporter e;
        _cleanup_free_ char *m = NULL;

        exporter_start(&e, h, NULL);
        m = exporter_metrics(&e);
        assert_zeros(m);
        free(m);
        break_rule(h, "loser");
        m = exporter_metrics(&e);
        count = metric_of(m, "kvlease_request_duration_seconds_count{type=\"NS_OPEN\"}");
        beyond = metric_of(
                m, "kvlease_request_duration_seconds_bucket{type=\"NS_OPEN\",le=\"+Inf\"}");
        assert_true(count == 1 && beyond == 1);
        assert_true(metric_of(m, "kvlease_request_duration_seconds_sum{type=\"NS_OPEN\"}") > 0);
        assert_false(metric_exists(m, "kvlease_request_duration_seconds_count{type=\"MAP\"} 0"));
        assert_true(metric_of(m, "kvlease_loop_turn_seconds_count") > 0);
        assert_true(metric_of(m, "kvlease_loop_turn_seconds_sum") > 0);
        assert_true(metric_of(m, "kvlease_violations_total{rule=\"hello-first\"}") == 1);
        h->violations = 1;
        worker_stop(w);
        exporter_stop(&e);
}

/* The daemon ends and returns: the exporter stays, and counts it. */
HARNESS_TEST(test_without_daemon, &options)
{
        struct exporter e;
        struct http_answer a;
        char *m;
        int status;

        exporter_start(&e, h, NULL);
        m = exporter_metrics(&e);
        assert_true(metric_of(m, "kvlease_restarts_total{outcome=\"emptied\"}") == 0);
        free(m);
        assert_int_equal(private_daemon_stop(&h->daemon, &status), 0);
        m = exporter_metrics(&e);
        assert_true(metric_of(m, "kvlease_up") == 0);
        assert_true(metric_of(m, "kvlease_exporter_failed_scrapes_total") == 1);
        assert_false(metric_exists(m, "kvlease_tenants"));
        free(m);
        http_ask(&e, "GET / HTTP/1.1\r\n", &a);
        assert_int_equal(a.status, 200);
        assert_non_null(strstr(a.body, "admin.sock"));
        http_answer_free(&a);
        http_ask(&e, "GET /-/healthy HTTP/1.1\r\n", &a);
        assert_int_equal(a.status, 200);
        http_answer_free(&a);
        harness_start(h);
        m = exporter_metrics(&e);
        assert_true(metric_of(m, "kvlease_up") == 1);
        assert_true(metric_of(m, "kvlease_restarts_total{outcome=\"emptied\"}") == 1);
        assert_true(metric_of(m, "kvlease_restarts_total{outcome=\"survived\"}") == 0);
        free(m);
        exporter_stop(&e);
}

/* A daemon that doesn't answer: up 0 after the timeout, and the exporter itself is healthy. */
HARNESS_TEST(test_daemon_hangs, &options)
{
        static const char *const words[] = {"--timeout", "50ms", NULL};
        struct exporter e;
        struct http_answer a;
        char *m;

        exporter_start(&e, h, words);
        free(exporter_metrics(&e));
        assert_int_equal(kill(h->daemon.pid, SIGSTOP), 0);
        m = exporter_metrics(&e);
        assert_true(metric_of(m, "kvlease_up") == 0);
        free(m);
        http_ask(&e, "GET /-/healthy HTTP/1.1\r\n", &a);
        assert_int_equal(a.status, 200);
        http_answer_free(&a);
        assert_int_equal(kill(h->daemon.pid, SIGCONT), 0);
        /* The exporter starts slowly on a busy machine. */
        for (unsigned i = 0; i < 300; i++) {
                bool up;

                m = exporter_metrics(&e);
                up = metric_of(m, "kvlease_up") == 1;
                free(m);
                if (up)
                        break;
                assert_true(i < 299);
        }
        exporter_stop(&e);
}

/* A tenant's socket isn't the admin socket, and must not look like a daemon. */
HARNESS_TEST(test_wrong_socket, &options)
{
        char socket[PRIVATE_PATH_MAX];
        const char *words[] = {
                "--socket", private_daemon_socket(&h->daemon, "loser", socket), NULL};
        struct exporter e;
        _cleanup_free_ char *m = NULL;

        exporter_start(&e, h, words);
        m = exporter_metrics(&e);
        assert_true(metric_of(m, "kvlease_up") == 0);
        exporter_stop(&e);
}

/* ---- many rows ------------------------------------------------------------------------------- */

#define N_TENANTS 5

static const struct private_tenant many[] = {
        {"t0", NULL}, {"t1", NULL}, {"t2", NULL}, {"t3", NULL}, {"t4", NULL}, {NULL, NULL}};
static const struct private_options options_many = {.tenants = many};

HARNESS_TEST(test_limit, &options_many)
{
        static const char *const words[] = {"--max-rows", "2", NULL};
        struct worker *w[N_TENANTS];
        double sum = 0;
        struct exporter e;
        _cleanup_free_ char *m = NULL;

        for (unsigned i = 0; i < N_TENANTS; i++) {
                char name[8];

                snprintf(name, sizeof(name), "t%u", i);
                w[i] = worker_start(h, name, "ns", 1);
                worker_tell(w[i], "lease %u", i + 1);
                sum += i < 2 ? 0 : (double)ctl_tenant(h, name, "charged_bytes");
        }
        exporter_start(&e, h, words);
        m = exporter_metrics(&e);
        assert_true(
                metric_exists(m, "kvlease_tenant_charged_bytes{tenant=\"t0\",tier=\"device\"}"));
        assert_true(
                metric_exists(m, "kvlease_tenant_charged_bytes{tenant=\"t1\",tier=\"device\"}"));
        assert_false(
                metric_exists(m, "kvlease_tenant_charged_bytes{tenant=\"t2\",tier=\"device\"}"));
        assert_true(sum > 0);
        assert_true(
                metric_of(m, "kvlease_tenant_charged_bytes{tenant=\"(others)\",tier=\"device\"}") ==
                sum);
        assert_true(metric_of(m, "kvlease_tenant_clients{tenant=\"(others)\"}") == N_TENANTS - 2);
        assert_false(metric_exists(m, "kvlease_tenant_weight{tenant=\"(others)\"}"));
        assert_true(metric_of(m, "kvlease_exporter_rows{list=\"namespaces\",told=\"summed\"}") ==
                    N_TENANTS - 2);
        for (unsigned i = 0; i < N_TENANTS; i++)
                worker_stop(w[i]);
        exporter_stop(&e);
}

/* ---- HTTP and the text ----------------------------------------------------------------------- */

static void assert_answer(const struct exporter *e, const char *head, int status, const char *type)
{
        struct http_answer a;

        http_ask(e, head, &a);
        if (a.status != status || !strstr(a.head, type))
                fail_msg("%s: %s", head, a.head);
        http_answer_free(&a);
}

HARNESS_TEST(test_http, &options)
{
        struct exporter e;
        struct http_answer a;

        exporter_start(&e, h, NULL);
        assert_answer(&e, "GET /metrics HTTP/1.1\r\n", 200, "text/plain; version=0.0.4");
        assert_answer(&e, "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n", 200,
                "application/openmetrics-text; version=1.0.0");
        assert_answer(&e, "GET / HTTP/1.1\r\n", 200, "text/html");
        assert_answer(&e, "GET /metrics/ HTTP/1.1\r\n", 404, "text/plain");
        assert_answer(&e, "DELETE /metrics HTTP/1.1\r\n", 405, "Allow: GET, HEAD");
        assert_answer(&e, "POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n", 405, "text/plain");
        assert_answer(&e, "GET / HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n",
                400, "Connection: close");
        assert_answer(&e, "GET / HTTP/1.1\r\nContent-Length: 4\r\nContent-Length: 5\r\n", 400, "");
        assert_answer(&e, "GET / HTTP/1.1\r\nHost: y\r\n", 400, "text/plain"); /* a second one */
        assert_answer(&e, "GET / HTTP/1.1\r\nContent-Length : 4\r\n", 400, "text/plain");
        http_ask(&e, "HEAD /metrics HTTP/1.1\r\n", &a);
        assert_int_equal(a.status, 200);
        assert_string_equal(a.body, "");
        http_answer_free(&a);
        http_ask(&e, "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n", &a);
        assert_string_equal(a.body + strlen(a.body) - strlen("\n# EOF\n"), "\n# EOF\n");
        http_answer_free(&a);
        exporter_stop(&e);
}

/* Each HELP text of a scrape, and figures of the exporter's own process. */
HARNESS_TEST(test_help, &options)
{
        struct worker *w = make_history(h);
        _cleanup_free_ char *m = NULL;
        struct exporter e;
        unsigned n = 0;

        exporter_start(&e, h, NULL);
        m = exporter_metrics(&e);
        assert_true(metric_of(m, "process_open_fds") > 3);
        assert_true(metric_of(m, "process_max_fds") >= metric_of(m, "process_open_fds"));
        assert_true(metric_of(m, "process_resident_memory_bytes") > 0);
        assert_true(metric_of(m, "process_cpu_seconds_total") >= 0);
        assert_true(metric_of(m, "process_start_time_seconds") > 1e9);
        assert_true(metric_of(m, "process_virtual_memory_bytes") > 0);
        for (char *line = strtok(m, "\n"); line; line = strtok(NULL, "\n")) {
                const char *name = line + strlen("# HELP "), *text;

                if (strncmp(line, "# HELP ", strlen("# HELP ")) != 0)
                        continue;
                text = strchr(name, ' ') + 1;
                if (help_text_fault(text))
                        fail_msg("%s: %s", name, help_text_fault(text));
                n++;
        }
        assert_true(n > 100);
        worker_stop(w);
        exporter_stop(&e);
}

#define N_HALF_OPEN 48 /* more than SLOTS_KEPT */
#define N_SCRAPES   20

/* Connections with half a request, or none: each other request is answered. */
HARNESS_TEST(test_half_open, &options)
{
        static const char part[] = "GET /metrics HTTP/1.1\r\n";
        struct http_answer a;
        int fds[N_HALF_OPEN];
        struct exporter e;
        unsigned n_gone = 0;

        exporter_start(&e, h, NULL);
        for (unsigned i = 0; i < N_HALF_OPEN; i++) {
                fds[i] = exporter_connect(&e);
                if (i % 2)
                        (void)send(fds[i], part, strlen(part), MSG_NOSIGNAL);
        }
        for (unsigned i = 0; i < N_SCRAPES; i++)
                free(exporter_metrics(&e));
        for (unsigned i = 0; i < N_HALF_OPEN; i++) {
                char byte;

                n_gone += recv(fds[i], &byte, 1, MSG_DONTWAIT) == 0;
        }
        assert_in_range(n_gone, 0, N_HALF_OPEN - 32 + N_SCRAPES); /* one for each that came */
        /* The newest connection has waited for the shortest time. */
        send(fds[N_HALF_OPEN - 1], "Host: x\r\n\r\n", strlen("Host: x\r\n\r\n"), MSG_NOSIGNAL);
        http_ask(&e, "GET /-/healthy HTTP/1.1\r\n", &a);
        assert_int_equal(a.status, 200);
        http_answer_free(&a);
        for (unsigned i = 0; i < N_HALF_OPEN; i++)
                fd_close(fds[i]);
        exporter_stop(&e);
}

/* Opens connections as fast as possible, and keeps as many as it can. */
static void open_for_ever(const struct exporter *e)
{
        int fds[256];

        for (unsigned i = 0; i < ARRAY_SIZE(fds); i++)
                fds[i] = -1;
        for (unsigned i = 0;; i = (i + 1) % ARRAY_SIZE(fds)) {
                fd_close(fds[i]);
                fds[i] = exporter_connect(e);
        }
}

/* Scrapes are answered while another process attacks. */
static void scrape_beside(struct harness *h, void (*attack)(const struct exporter *), unsigned msec)
{
        struct exporter e;
        pid_t pid;

        exporter_start(&e, h, NULL);
        pid = child_fork();
        if (pid == 0)
                attack(&e);
        assert_true(pid > 0);
        for (unsigned i = 0; i < N_SCRAPES; i++) {
                free(exporter_metrics(&e));
                sleep_msec(msec);
        }
        assert_int_equal(waitpid(pid, NULL, WNOHANG), 0); /* the attack continues */
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        exporter_stop(&e);
}

HARNESS_TEST(test_stream_of_connections, &options)
{
        scrape_beside(h, open_for_ever, 0);
}

/* More connections than the exporter allows. */
#define N_UNREAD 300

/* Each connection sends many requests, and reads nothing; closed ones are opened again. */
static void ask_for_ever(const struct exporter *e)
{
        static const char head[] = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
        struct pollfd all[N_UNREAD];

        for (unsigned i = 0; i < N_UNREAD; i++)
                all[i] = (struct pollfd){.fd = -1, .revents = POLLHUP};
        for (;; sleep_msec(10)) {
                for (unsigned i = 0; i < N_UNREAD; i++) {
                        if (!(all[i].revents & (POLLHUP | POLLERR)))
                                continue;
                        fd_close(all[i].fd);
                        all[i] = (struct pollfd){.fd = exporter_connect(e)};
                        for (unsigned n = 0; n < 60; n++)
                                if (send(all[i].fd, head, strlen(head), MSG_NOSIGNAL) < 0)
                                        break;
                }
                poll(all, N_UNREAD, 0);
        }
}

HARNESS_TEST(test_unread_answers, &options)
{
        scrape_beside(h, ask_for_ever, 100); /* unread answers pile up */
}

/* `promtool check metrics` has no finding; status 3 would mean one. */
HARNESS_TEST(test_promtool, &options)
{
        struct worker *w = make_history(h);
        char path[PRIVATE_PATH_MAX];
        char command[PRIVATE_PATH_MAX + 64];
        const char *argv[] = {"/bin/sh", "-c", command, NULL};
        _cleanup_free_ char *m = NULL;
        struct proc_output o;
        struct exporter e;

        exporter_start(&e, h, NULL);
        m = exporter_metrics(&e);
        snprintf(path, sizeof(path), "%.90s/metrics", h->daemon.dir);
        assert_int_equal(file_replace(path, m, strlen(m), 0600), 0);
        snprintf(command, sizeof(command), "promtool check metrics <%s", path);
        assert_int_equal(proc_run(argv, NULL, 60000, &o), 0);
        if (o.status != 0)
                fail_msg("status %d: %s%s", o.status, o.out, o.err);
        assert_string_equal(o.err, "");
        proc_output_free(&o);
        worker_stop(w);
        exporter_stop(&e);
}

/* Refused command lines: status 2 and a sentence. */
HARNESS_TEST(test_command_line, &options)
{
        static const char *const wrong[][3] = {{"--listen", "nowhere"}, {"--listen", "::1:80"},
                {"--listen", "127.0.0.1:65536"}, {"--timeout", "soon"}, {"--timeout", "0"},
                {"--max-rows", "0"}, {"--allow-host", "gpu1:80"}, {"--colour"}, {"--timeout"},
                {"word"}};
        struct proc_output o;

        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
                const char *argv[] = {program_exporter(), wrong[i][0], wrong[i][1], NULL};

                assert_int_equal(proc_run(argv, NULL, 60000, &o), 0);
                assert_int_equal(o.status, 2 << 8);
                assert_true(strlen(o.err) > 0);
                proc_output_free(&o);
        }
        assert_int_equal(proc_run((const char *const[]){program_exporter(), "--lisen", NULL}, NULL,
                                 60000, &o),
                0);
        assert_string_equal(
                o.err, "kvlease-exporter: there is no option --lisen: did you mean --listen?\n");
        proc_output_free(&o);
}
