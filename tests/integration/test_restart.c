/* kvleasectl restart: its warnings, and clients that continue. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/macros.h"
#include "daemon/core/state/state-root.h"
#include "tests/integration/harness.h"

#define EXIT_TIMEOUT 4
#define EXIT_LOSS    6

static const struct private_options kept = {.is_kept = true};
static const struct private_options started_again = {
        .is_kept = true, .daemon_lines = "keep_state = off"};

static int run(struct harness *h, const char *words, char **ret_out)
{
        struct proc_output out = {0};
        int status = ctl_run(h, words, &out);

        *ret_out = strdup(out.out ? out.out : "");
        proc_output_free(&out);
        return status;
}

static void assert_says(struct harness *h, const char *words, int status, const char *text)
{
        char *out;

        assert_int_equal(run(h, words, &out), status);
        if (!strstr(out, text))
                fail_msg("'%s' isn't in: %s", text, out);
        free(out);
}

/* A worker with pages pinned, in the middle of a conversation. */
static struct worker *start_talking(struct harness *h, uint32_t pages[3])
{
        struct worker *w = worker_start(h, "a", "ns", 1);

        worker_publish_chain(w, 7, 3, pages);
        worker_tell(w, "session-open chat");
        worker_tell(w, "session-talk 8 0 3");
        return w;
}

HARNESS_TEST(test_goes_on, &kept)
{
        uint32_t pages[3], found[3];
        uint64_t pid = ctl_status(h, "pid");
        struct worker *w;

        harness_needs_kept_memory();
        w = start_talking(h, pages);
        assert_says(h, "restart --check", 0, "nothing would be lost");
        ctl(h, "restart");
        assert_int_equal(private_daemon_await(&h->daemon), 0);
        assert_int_not_equal(ctl_status(h, "pid"), pid);
        worker_tell(w, "session-talk 8 4 5");
        assert_int_equal(ctl_status(h, "recovered_pages"), 7);
        assert_int_equal(ctl_status(h, "recovered_namespaces"), 1);
        assert_int_equal(ctl_status(h, "recovered_sessions"), 1);
        assert_int_equal(ctl_status(h, "clients_recovered"), 1);
        assert_int_equal(ctl_status(h, "clients_resumed"), 1);
        assert_int_equal(ctl_status(h, "clients_waiting"), 0);
        assert_int_equal(ctl_status(h, "clients_expired"), 0);
        worker_tell(w, "verify %u 7000", pages[0]);
        worker_tell(w, "lookup 7:0-2");
        assert_int_equal(worker_numbers(w, found, 3), 3);
        assert_memory_equal(found, pages, sizeof(found));
        worker_tell(w, "lease 2");
        worker_stop(w);
        ctl(h, "sessions purge a");
}

static void assert_number(json_t *o, const char *name, json_int_t value)
{
        json_t *n = json_object_get(o, name);

        if (!json_is_integer(n) || json_integer_value(n) != value)
                fail_msg("%s is %lld, %lld was expected", name, (long long)json_integer_value(n),
                        (long long)value);
}

HARNESS_TEST(test_json, &kept)
{
        uint32_t pages[3];
        struct worker *w;
        json_t *o;

        harness_needs_kept_memory();
        w = start_talking(h, pages);
        o = ctl_json(h, "restart --check");
        assert_true(json_is_true(json_object_get(o, "keeps_state")));
        assert_number(o, "state_layout", (json_int_t)STATE_LAYOUT_VERSION);
        assert_number(o, "kept_fds", (json_int_t)ctl_status(h, "kept_fds"));
        assert_number(o, "kept_max", (json_int_t)ctl_status(h, "kept_max"));
        assert_number(o, "pages", (json_int_t)ctl_status(h, "pages_sealed"));
        assert_number(o, "sessions", 1);
        assert_number(o, "clients_kept", 1);
        assert_number(o, "clients_lost", 0);
        assert_int_equal(json_array_size(json_object_get(o, "losses")), 0);
        assert_number(o, "more_losses", 0);
        json_decref(o);
        o = ctl_json(h, "restart");
        assert_true(json_is_true(json_object_get(o, "restarted")));
        assert_true(json_is_real(json_object_get(o, "seconds")));
        assert_number(o, "pages", 7);
        json_decref(o);
        assert_int_equal(private_daemon_await(&h->daemon), 0);
        worker_stop(w);
        ctl(h, "sessions purge a");
}

/* Another kvleased that can't read this one's stored state, or a program that isn't one. */
HARNESS_TEST(test_other_binary, &kept)
{
        uint32_t pages[3];
        struct worker *w = start_talking(h, pages);
        uint64_t pid = ctl_status(h, "pid");

        assert_says(h, "restart --check --binary /bin/true", EXIT_LOSS, "everything: /bin/true");
        assert_says(h, "restart --check --binary /no/such", EXIT_LOSS, "everything: /no/such");
        assert_says(h, "restart --binary /bin/true", EXIT_LOSS, "everything");
        assert_int_equal(ctl_status(h, "pid"), pid);
        worker_stop(w);
        ctl(h, "sessions purge a");
}

/*
 * Another kvleased that reads this one's stored state and accepts its arguments, but not the files.
 */
HARNESS_TEST(test_other_binary_and_configuration, &kept)
{
        char path[PRIVATE_PATH_MAX + 16], words[PRIVATE_PATH_MAX + 64], *script;

        harness_needs_kept_memory();
        snprintf(path, sizeof(path), "%.32s/binary", h->daemon.dir);
        snprintf(words, sizeof(words), "restart --check --binary %s", path);
        assert_true(asprintf(&script,
                            "#!/bin/sh\n[ $1 = --state-layouts ] && exec %s $1\n"
                            "case \"$*\" in --check-config*--config\\ %s*)\n"
                            "echo \"kvlease.conf:3: no option 'gone'\" >&2; exit 2;;\nesac\n",
                            program_daemon(), h->daemon.config) > 0);
        assert_int_equal(file_replace(path, script, strlen(script), 0755), 0);
        assert_says(h, words, EXIT_LOSS, "refuses the configuration: kvlease.conf:3: no option");
        snprintf(words, sizeof(words), "restart --check --binary %s", program_daemon());
        assert_says(h, words, 0, "nothing would be lost");
        free(script);
}

/* The next daemon reads the file anew; nothing is lost where it is as it was. */
HARNESS_TEST(test_changed_configuration, &kept)
{
        static const struct private_tenant other[] = {{"b", NULL}, {NULL, NULL}};
        static const struct {
                struct private_options options;
                const char *says;
        } cases[] = {
                {{.is_kept = true, .device_lines = "memory = 2MiB\nextent = 2MiB"},
                        "would have memory = 2 MiB"},
                {{.is_kept = true, .daemon_lines = "max_clients = lots"},
                        "everything: the next kvleased wouldn't start: "},
                {{.is_kept = true, .daemon_lines = "keep_state = off"}, "keep_state would be off"},
                {{.is_kept = true, .tenants = other}, "there would be no tenant a"},
        };
        uint32_t pages[3];
        uint64_t pid = ctl_status(h, "pid");
        struct worker *w, *second;

        harness_needs_kept_memory();
        w = start_talking(h, pages);
        second = worker_start(h, "a", "other", 1);
        worker_publish_chain(second, 7, 3, pages);
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                assert_int_equal(private_daemon_configure(&h->daemon, &cases[i].options), 0);
                assert_says(h, "restart --check", EXIT_LOSS, cases[i].says);
                assert_says(h, "restart", EXIT_LOSS, cases[i].says);
                assert_int_equal(ctl_status(h, "pid"), pid);
        }
        assert_int_equal(private_daemon_configure(&h->daemon, &kept), 0);
        assert_says(h, "restart --check", 0, "nothing would be lost");
        worker_stop(w);
        worker_stop(second);
        ctl(h, "sessions purge a");
}

/* A program that takes long isn't waited for, even if it closes its output or prints. */
HARNESS_TEST(test_other_binary_that_stays, &kept)
{
        static const char *const scripts[] = {
                "#!/bin/sh\necho 1\nexec sleep 1000 >&-\n",
                "#!/bin/sh\nwhile sleep 1; do echo 1; done\n",
        };
        char path[PRIVATE_PATH_MAX + 16], words[PRIVATE_PATH_MAX + 64];

        snprintf(path, sizeof(path), "%.32s/binary", h->daemon.dir);
        snprintf(words, sizeof(words), "restart --check --binary %s", path);
        for (size_t i = 0; i < ARRAY_SIZE(scripts); ++i) {
                assert_int_equal(file_replace(path, scripts[i], strlen(scripts[i]), 0755), 0);
                assert_says(h, words, EXIT_LOSS, "doesn't say which layouts of kept state");
        }
}

/* The daemon's pid means another process there, so no program is run for it. */
HARNESS_TEST(test_other_pid_namespace, &kept)
{
        const char *const argv[] = {"unshare", "--pid", "--fork", program_ctl(), "--socket",
                h->daemon.admin, "restart", "--check", NULL};
        struct proc_output out = {0};

        if (geteuid() != 0)
                skip();
        assert_int_equal(proc_run(argv, NULL, 60000, &out), 0);
        if (strstr(out.err, "unshare")) {
                print_message("skipped: %s", out.err);
        } else {
                assert_int_equal(WEXITSTATUS(out.status), EXIT_LOSS);
                assert_non_null(strstr(out.out, "in the daemon's pid namespace"));
        }
        proc_output_free(&out);
}

HARNESS_TEST(test_nobody_keeps, NULL)
{
        uint32_t pages[3];
        struct worker *w = start_talking(h, pages);

        assert_says(h, "restart --check", EXIT_LOSS, "7 cached pages");
        assert_says(h, "restart", EXIT_LOSS, " must connect anew");
        worker_stop(w);
        ctl(h, "sessions purge a");
}

/* The old socket is removed, and the next one isn't there yet: kvleasectl waits for it. */
HARNESS_TEST(test_socket_that_goes, &started_again)
{
        uint64_t pid = ctl_status(h, "pid");

        ctl(h, "restart --force");
        assert_int_equal(private_daemon_await(&h->daemon), 0);
        assert_int_not_equal(ctl_status(h, "pid"), pid);
}

/* The socket is kept and takes connections, but no next daemon is started. */
HARNESS_TEST(test_nobody_comes, &kept)
{
        uint64_t begin_nsec;

        harness_needs_kept_memory();
        assert_int_equal(kill(h->daemon.pid, SIGSTOP), 0);
        begin_nsec = clock_now_nsec();
        assert_says(h, "restart --timeout 1s", EXIT_TIMEOUT, "");
        /* The time limit of the command holds, not that of an answer to a request. */
        assert_true(clock_now_nsec() - begin_nsec < 15 * NSEC_PER_SEC);
        assert_int_equal(kill(h->daemon.pid, SIGCONT), 0);
        assert_int_equal(private_daemon_await(&h->daemon), 0);
}
