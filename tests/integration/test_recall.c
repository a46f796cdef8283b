/* Memory is recalled from live clients. Memory stays safe after the death of a client or of the
 * daemon that has it mapped. A tenant gets memory without another tenant's bytes. */
#include <errno.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "tests/integration/harness.h"
#include "tests/integration/pattern.h"

#define N         4
#define SET_PAGES 512
#define MIB       (UINT64_C(1) << 20)

#define GRACE_NSEC UINT64_C(1500000000) /* of those that test it */

static const struct private_tenant two[] = {
        {"a", "limit = 16MiB\n"}, {"b", "limit = 16MiB\n"}, {NULL, NULL}};
static const struct private_options patient = {
        .tenants = two, .daemon_lines = "revoke_timeout = 60s\n"};
/* Room for one of them at a time. */
static const struct private_options tight = {.tenants = two,
        .daemon_lines = "revoke_timeout = 60s\n",
        .device_lines = "memory = 16MiB\nextent = 2MiB\n"};
static const struct private_options graceful = {
        .device_lines = "memory = 256MiB\nextent = 2MiB\ndeath_grace = 1500ms\n"};

static uint64_t client_number(struct harness *h, const char *name)
{
        json_t *reply = ctl_json(h, "clients"), *list = ctl_list(reply, "clients");
        uint64_t sum = 0;
        json_t *client;
        size_t i;

        json_array_foreach(list, i, client)
        {
                sum += (uint64_t)json_integer_value(json_object_get(client, name));
        }
        json_decref(reply);
        return sum;
}

static void wait_charged(struct harness *h, const char *tenant, uint64_t bytes)
{
        for (unsigned i = 0; ctl_tenant(h, tenant, "charged_bytes") != bytes; ++i) {
                if (i == 2000)
                        fail_msg("%s is charged %llu bytes, %llu were expected", tenant,
                                (unsigned long long)ctl_tenant(h, tenant, "charged_bytes"),
                                (unsigned long long)bytes);
                sleep_msec(5);
        }
}

/* One set is charged. Where making one takes long, as on a GPU or a busy machine, another may be
 * kept ready. */
static void assert_charged_one(struct harness *h)
{
        assert_in_range(ctl_tenant(h, "a", "charged_bytes"), 2 * MIB, 4 * MIB);
}

/* Waits for a "revoke" event; earlier events are lost. */
static void wait_event(struct worker *w, const char *words)
{
        for (unsigned i = 0; !strstr(worker_tell(w, "events"), words); ++i) {
                assert_true(i < 2000);
                sleep_msec(5);
        }
}

/* A whole recall by hand: held memory stays, released memory is unmapped at the safe point. */
HARNESS_TEST(test_recall, &patient)
{
        struct worker *a = worker_start(h, "a", "ns", 1), *b = worker_start(h, "a", "ns", 1);
        uint32_t pages[N], found[N];

        worker_publish_chain(a, 1, N, pages);
        worker_tell(b, "lookup 1:0-3");
        assert_int_equal(worker_numbers(b, found, N), N);
        ctl(h, "recall a");
        wait_event(a, "revoke:");
        wait_event(b, "revoke:");
        worker_tell(a, "safepoint");
        assert_int_equal(atoi(a->rest), 0); /* it holds pages */
        worker_tell(a, "verify %u 1003", pages[3]);
        worker_tell(a, "release %u %u %u %u", pages[0], pages[1], pages[2], pages[3]);
        worker_tell(b, "verify %u 1003", found[3]);
        worker_tell(a, "safepoint");
        worker_tell(b, "release %u %u %u %u", found[0], found[1], found[2], found[3]);
        wait_event(a, "revoke-idle:");
        worker_tell(a, "safepoint");
        assert_int_equal(atoi(a->rest), 1);
        assert_charged_one(h);
        wait_event(b, "revoke-idle:");
        worker_tell(b, "safepoint");
        assert_int_equal(atoi(b->rest), 1);
        wait_charged(h, "a", 0);
        assert_int_equal(client_number(h, "quarantined_sets"), 0);
        /* Both go on, with memory that is new. */
        worker_publish_chain(a, 2, N, pages);
        worker_tell(b, "lookup 2:0-3");
        assert_int_equal(worker_numbers(b, found, N), N);
        worker_tell(b, "verify %u 2003", found[3]);
}

/* A client that calls safe points gives memory back while it works, and another tenant gets it. */
HARNESS_TEST(test_serving, &tight)
{
        uint64_t random = harness_seed();
        struct worker *serving[2], *b;

        for (unsigned i = 0; i < 2; ++i)
                serving[i] = worker_start_job(h, "serve", "a",
                        (struct worker_job){
                                .seed = pattern_next(&random), .n_planes = 1, .n_chains = 640});
        wait_charged(h, "a", 16 * MIB);
        b = worker_start(h, "b", "ns", 1);
        assert_int_equal(worker_ask(b, "lease %u", 2 * SET_PAGES), 4); /* KVL_FULL */
        ctl(h, "tenants set a limit=8MiB");
        wait_charged(h, "a", 8 * MIB);
        worker_tell(b, "lease %u", 4 * SET_PAGES);
        for (unsigned i = 0; i < 2; ++i) {
                assert_true(worker_is_running(serving[i]));
                worker_kill(serving[i]);
        }
}

/* ---- death ---- */

static size_t n_clients(struct harness *h)
{
        json_t *reply = ctl_json(h, "clients");
        size_t n = json_array_size(ctl_list(reply, "clients"));

        json_decref(reply);
        return n;
}

/* On a GPU the dead client's pages are free only after its exit and the grace, as its kernels may
 * still write. On the host they are free at once. */
HARNESS_TEST(test_grace, &graceful)
{
        struct worker *w = worker_start(h, "a", "ns", 1);
        uint64_t start, is;

        worker_tell(w, "lease 100");
        assert_int_equal(ctl_status(h, "pages_granted"), 100);
        start = now_nsec();
        worker_kill(w);
        do {
                is = ctl_status(h, "pages_granted");
                if (is && private_on_gpu() && now_nsec() - start < GRACE_NSEC / 2)
                        assert_int_equal(n_clients(h), 1);
                sleep_msec(20);
        } while (is && now_nsec() - start < 10 * GRACE_NSEC);
        assert_int_equal(is, 0);
        print_message("after %llu ms\n", (unsigned long long)(now_nsec() - start) / 1000000);
        if (private_on_gpu())
                assert_true(now_nsec() - start >= GRACE_NSEC);
        else
                assert_true(now_nsec() - start < GRACE_NSEC);
        ctl_wait_status(h, "n_clients", 0);
}

/* ---- what the next one sees ---- */

static const struct private_options one_set = {
        .tenants = two, .device_lines = "memory = 2MiB\nextent = 2MiB\n"};

/* A whole set, given from one tenant to the other and back, is zero. It has neither the other's
 * bytes nor those of fresh memory. */
HARNESS_TEST(test_no_residue, &one_set)
{
        uint32_t pages[SET_PAGES];
        char line[8192];
        int at;

        for (unsigned round = 0; round < 4; ++round) {
                const char *tenant = round % 2 ? "b" : "a";
                struct worker *w = worker_start(h, tenant, "ns", 1);

                worker_tell(w, "lease %u", SET_PAGES);
                assert_int_equal(worker_numbers(w, pages, SET_PAGES), SET_PAGES);
                at = snprintf(line, sizeof(line), "zeros");
                for (unsigned i = 0; i < SET_PAGES; ++i)
                        at += snprintf(line + at, sizeof(line) - (size_t)at, " %u", pages[i]);
                worker_tell(w, "%s", line);
                assert_int_equal(atoi(w->rest), 0);
                for (unsigned i = 0; i < SET_PAGES; ++i)
                        worker_tell(w, "fill %u %u", pages[i], round);
                worker_stop(w);
                ctl_wait_status(h, "n_clients", 0);
                snprintf(line, sizeof(line), "purge --remove %s", tenant);
                ctl(h, line);
                ctl_wait_status(h, "charged_bytes", 0);
        }
}

/* Runs kvleasectl on a terminal of its own, which answers like a person; *ret_said: its output.
 * Returns its exit status. */
static int run_on_terminal(
        struct harness *h, const char *answer, const char *const *words, char ret_said[4096])
{
        const char *argv[16] = {program_ctl(), "--socket", h->daemon.admin};
        int terminal, status;
        size_t len = 0;
        ssize_t n;
        pid_t pid;

        for (size_t i = 0; words[i]; i++)
                argv[3 + i] = words[i];
        pid = forkpty(&terminal, NULL, NULL, NULL);
        if (pid == 0) {
                execv(argv[0], (char *const *)argv);
                _exit(127);
        }
        assert_true(pid > 0);
        assert_int_equal(write(terminal, answer, strlen(answer)), strlen(answer));
        /* EIO: the other end is closed. */
        while ((n = read(terminal, ret_said + len, 4095 - len)) > 0)
                len += (size_t)n;
        ret_said[len] = '\0';
        close(terminal);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status);
}

/* kvleasectl asks a person before much is recalled at once, and tells a program how much. */
HARNESS_TEST(test_much_at_once_is_asked, NULL)
{
        static const char *const all[] = {"recall", "a", NULL};
        static const char *const all_yes[] = {"recall", "a", "--yes", NULL};
        static const char *const less[] = {"tenants", "set", "a", "limit=4MiB", NULL};
        static const char *const more[] = {"tenants", "set", "a", "limit=12MiB", NULL};
        struct worker *w = worker_start(h, "a", "ns", 1);
        struct proc_output out;
        uint32_t pages[200];
        char said[4096];

        for (unsigned chain = 1; chain <= 7; chain++) /* more than two sets */
                worker_publish_chain(w, chain, 200, pages);
        worker_stop(w);
        ctl_wait_status(h, "n_clients", 0);
        assert_int_equal(ctl_tenant(h, "a", "charged_bytes"), 6 * MIB);
        assert_int_equal(run_on_terminal(h, "\n", less, said), 1);
        assert_non_null(strstr(said, "Tenant a holds 2 MiB more than that"));
        assert_int_equal(run_on_terminal(h, "n\n", all, said), 1);
        assert_non_null(strstr(said, "the tenant holds 6 MiB"));
        assert_non_null(strstr(said, "nothing was changed"));
        assert_int_equal(ctl_tenant(h, "a", "charged_bytes"), 6 * MIB);
        assert_int_equal(
                run_on_terminal(h, "", more, said), 0); /* no page is recalled: not asked */
        assert_int_equal(run_on_terminal(h, "y\n", less, said), 0);
        assert_int_equal(ctl_tenant(h, "a", "charged_bytes"), 4 * MIB);
        assert_int_equal(ctl_run(h, "tenants set a limit=2MiB", &out), 0);
        assert_non_null(strstr(out.out, "2 MiB beyond its new limit are taken back"));
        proc_output_free(&out);
        assert_int_equal(run_on_terminal(h, "", all_yes, said), 0);
        assert_null(strstr(said, "[y/N]"));
        assert_int_equal(ctl_tenant(h, "a", "charged_bytes"), 0);
        ctl(h, "tenants set a limit=none");
}
