/* Directories that the daemon can't or must not use, and its messages about missing files.
 * Leftovers of a crashed daemon are removed by the next one's clean stop. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "tests/fault/raw.h"
#include "tests/integration/harness.h"

#define DAEMON_TIMEOUT_MSEC 30000
#define STRANGER            65533 /* no user of the system's */

struct paths {
        char config[PRIVATE_PATH_MAX], runtime[PRIVATE_PATH_MAX], state[PRIVATE_PATH_MAX];
};

/* A configuration of its own below the harness' directory. */
static void write_config(struct paths *p, struct harness *h, const char *runtime, const char *state)
{
        FILE *f;

        snprintf(p->config, sizeof(p->config), "%.32s/second.conf", h->daemon.dir);
        snprintf(p->runtime, sizeof(p->runtime), "%.32s/%s", h->daemon.dir, runtime);
        snprintf(p->state, sizeof(p->state), "%.32s/%s", h->daemon.dir, state);
        f = fopen(p->config, "we");
        assert_non_null(f);
        fprintf(f, "[daemon]\nruntime_dir = %s\nstate_dir = %s\ndevices = host\n", p->runtime,
                p->state);
        fprintf(f, "[device host]\nmemory = 64MiB\n");
        assert_int_equal(fclose(f), 0);
}

/* kvleased exits with `code`, and a message with these words. */
static void refuses(const char *config, int code, const char *a, const char *b)
{
        const char *argv[] = {program_daemon(), "--config", config, NULL};
        const char *env[] = {"NOTIFY_SOCKET=", NULL};
        struct proc_output o;

        assert_int_equal(proc_run(argv, env, DAEMON_TIMEOUT_MSEC, &o), 0);
        if (!WIFEXITED(o.status) || WEXITSTATUS(o.status) != code || !strstr(o.err, a) ||
                !strstr(o.err, b))
                fail_msg("status 0x%x, not %d with \"%s\" and \"%s\": %s", o.status, code, a, b,
                        o.err);
        proc_output_free(&o);
}

/* Two daemons that write one file would lose each other's tenants. */
HARNESS_TEST(test_state_dir_in_use, NULL)
{
        struct paths p;
        char pid[32];

        ctl(h, "tenants add kept");
        write_config(&p, h, "run2", "state");
        snprintf(pid, sizeof(pid), "(pid %d)", (int)h->daemon.pid);
        refuses(p.config, 5, pid, "--state-dir");
        assert_int_equal(access(p.runtime, F_OK), -1); /* made and removed again */
        ctl(h, "tenants add another");
        ctl(h, "tenants remove another");
        ctl(h, "tenants remove kept");
}

HARNESS_TEST(test_open_to_everybody, NULL)
{
        struct paths p;

        write_config(&p, h, "open", "state2");
        assert_int_equal(mkdir(p.runtime, 0755), 0);
        assert_int_equal(chmod(p.runtime, 01777), 0);
        refuses(p.config, 3, p.runtime, "chmod o-w");
        assert_int_equal(rmdir(p.runtime), 0); /* nothing was left in it */
}

static void assert_log(struct harness *h, const char *words)
{
        size_t len;
        char *text;

        assert_int_equal(file_read(h->daemon.log, 16 << 20, &text, &len), 0);
        if (!strstr(text, words))
                fail_msg("no \"%s\" in: %s", words, text);
        free(text);
}

HARNESS_TEST(test_open_to_a_group, NULL)
{
        int status;

        assert_int_equal(private_daemon_stop(&h->daemon, &status), 0);
        assert_int_equal(chmod(h->daemon.runtime, 0775), 0);
        assert_int_equal(private_daemon_start(&h->daemon), 0);
        assert_log(h, "chmod g-w");
}

/* A daemon run by root opens files only in directories of its own, never in one that another user
 * made. */
HARNESS_TEST(test_of_somebody_else, NULL)
{
        struct paths p;
        char t[PRIVATE_PATH_MAX], link[PRIVATE_PATH_MAX];

        write_config(&p, h, "run3", "state3");
        snprintf(t, sizeof(t), "%.60s/t", p.runtime);
        snprintf(link, sizeof(link), "%.60s/elsewhere", h->daemon.dir);
        assert_int_equal(mkdir(p.runtime, 0755), 0);
        assert_int_equal(mkdir(link, 0700), 0);
        assert_int_equal(symlink(link, t), 0);
        refuses(p.config, 3, t, "symbolic link");
        assert_int_equal(unlink(t), 0);
        assert_int_equal(rmdir(link), 0); /* nothing was made in it */
        if (geteuid() == 0) {
                assert_int_equal(mkdir(t, 0755), 0);
                assert_int_equal(chown(t, STRANGER, (gid_t)-1), 0);
                refuses(p.config, 3, t, "belongs to uid");
                assert_int_equal(rmdir(t), 0);
                assert_int_equal(chown(p.runtime, STRANGER, (gid_t)-1), 0);
                refuses(p.config, 3, p.runtime, "belongs to uid");
                assert_int_equal(chown(p.runtime, 0, (gid_t)-1), 0);
                assert_int_equal(mkdir(p.state, 0750), 0);
                assert_int_equal(chown(p.state, STRANGER, (gid_t)-1), 0);
                refuses(p.config, 5, p.state, "belongs to uid");
                assert_int_equal(chown(p.state, 0, (gid_t)-1), 0);
                assert_int_equal(chmod(p.state, 0777), 0);
                refuses(p.config, 5, p.state, "chmod o-w");
                assert_int_equal(rmdir(p.state), 0); /* nothing was left in it */
        }
        assert_int_equal(rmdir(p.runtime), 0);
}

static unsigned mode_of(const char *dir, const char *name)
{
        char path[PRIVATE_PATH_MAX];
        struct stat st;

        snprintf(path, sizeof(path), "%.60s/%.40s", dir, name);
        assert_int_equal(stat(path, &st), 0);
        return st.st_mode & 07777;
}

/* Paths were left open to all users, by an older daemon or by hand. A stranger still has the old
 * lock open. */
HARNESS_TEST(test_mended, NULL)
{
        char path[PRIVATE_PATH_MAX];
        int status, stranger;

        assert_int_equal(kill(h->daemon.pid, SIGKILL), 0);
        waitpid(h->daemon.pid, NULL, 0);
        h->daemon.pid = 0;
        snprintf(path, sizeof(path), "%.60s/t", h->daemon.runtime);
        assert_int_equal(chmod(path, 0777), 0);
        snprintf(path, sizeof(path), "%.60s/t/a", h->daemon.runtime);
        assert_int_equal(chmod(path, 0777), 0);
        snprintf(path, sizeof(path), "%.60s/lock", h->daemon.runtime);
        assert_int_equal(chmod(path, 0644), 0);
        stranger = open(path, O_RDONLY | O_CLOEXEC);
        assert_int_equal(flock(stranger, LOCK_EX | LOCK_NB), 0);
        assert_int_equal(private_daemon_start(&h->daemon), 0);
        assert_int_equal(mode_of(h->daemon.runtime, "t"), 0755);
        assert_int_equal(mode_of(h->daemon.runtime, "t/a"), 0750);
        assert_int_equal(mode_of(h->daemon.runtime, "lock"), 0600);
        assert_int_equal(mode_of(h->daemon.state, "lock"), 0600);
        assert_log(h, "holds a lock on the file");
        fd_close(stranger);
        assert_int_equal(private_daemon_stop(&h->daemon, &status), 0);
        assert_int_equal(private_daemon_start(&h->daemon), 0);
}

/* Tenants reach their sockets with any umask of the daemon. */
HARNESS_TEST(test_umask, NULL)
{
        char path[PRIVATE_PATH_MAX];
        struct stat st;
        mode_t mask;
        int status;

        assert_int_equal(private_daemon_stop(&h->daemon, &status), 0);
        mask = umask(0077);
        assert_int_equal(private_daemon_start(&h->daemon), 0);
        umask(mask);
        snprintf(path, sizeof(path), "%.60s/t", h->daemon.runtime);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0755);
        snprintf(path, sizeof(path), "%.60s/t/a", h->daemon.runtime);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0750);
}

static void crash(struct harness *h)
{
        assert_int_equal(kill(h->daemon.pid, SIGKILL), 0);
        waitpid(h->daemon.pid, NULL, 0);
        h->daemon.pid = 0;
}

/* Directories of two tenants, one of them removed since. A file from elsewhere in them stays. */
HARNESS_TEST(test_after_a_crash, NULL)
{
        static const struct private_tenant both[] = {{"a", NULL}, {"gone", NULL}, {NULL, NULL}};
        static const struct private_options two = {.tenants = both}, one = {0};
        char path[PRIVATE_PATH_MAX], file[PRIVATE_PATH_MAX];
        int status;

        assert_int_equal(private_daemon_stop(&h->daemon, &status), 0);
        assert_int_equal(private_daemon_configure(&h->daemon, &two), 0);
        assert_int_equal(private_daemon_start(&h->daemon), 0);
        snprintf(path, sizeof(path), "%.60s/t", h->daemon.runtime);
        crash(h);
        snprintf(file, sizeof(file), "%.60s/t/a/file", h->daemon.runtime);
        assert_int_equal(file_replace(file, "x", 1, 0600), 0);
        assert_int_equal(private_daemon_configure(&h->daemon, &one), 0);
        assert_int_equal(private_daemon_start(&h->daemon), 0);
        assert_int_equal(private_daemon_stop(&h->daemon, &status), 0);
        assert_int_equal(access(file, F_OK), 0);
        snprintf(path, sizeof(path), "%.60s/t/gone", h->daemon.runtime);
        assert_int_equal(access(path, F_OK), -1);
        assert_int_equal(unlink(file), 0);
        /* Without a crash an empty directory isn't the daemon's, and stays. */
        assert_int_equal(mkdir(path, 0755), 0);
        assert_int_equal(private_daemon_start(&h->daemon), 0);
        assert_int_equal(private_daemon_stop(&h->daemon, &status), 0);
        assert_int_equal(access(path, F_OK), 0);
        assert_int_equal(private_daemon_start(&h->daemon), 0);
}

/* ---- the configuration file ---- */

/* A tenant's directory is removed with the tenant, also if a previous daemon made it. */
HARNESS_TEST(test_tenant_goes_after_a_crash, NULL)
{
        char path[PRIVATE_PATH_MAX];

        ctl(h, "tenants add c limit=1MiB");
        *strrchr(private_daemon_socket(&h->daemon, "c", path), '/') = '\0';
        assert_int_equal(access(path, F_OK), 0);
        crash(h);
        assert_int_equal(private_daemon_start(&h->daemon), 0);
        ctl(h, "tenants remove c");
        assert_int_equal(access(path, F_OK), -1);
}

HARNESS_TEST(test_unreadable_config, NULL)
{
        struct paths p;

        refuses("/nonexistent/kvleased.conf", 2, "No such file", "--config");
        if (geteuid() == 0) /* may read everything */
                return;
        write_config(&p, h, "run2", "state2");
        assert_int_equal(chmod(p.config, 0), 0);
        refuses(p.config, 2, "Permission denied", "make it readable");
}

HARNESS_TEST(test_status_without_a_file, NULL)
{
        const char *argv[] = {program_daemon(), "--runtime-dir", h->daemon.runtime, "--state-dir",
                h->daemon.state, "--option", "daemon.devices=host", "--option",
                "device.host.memory=64MiB", NULL};
        json_t *reply;
        int status;
        pid_t pid;

        if (access("/etc/kvlease/kvleased.conf", F_OK) == 0) {
                print_message("skipped: this machine has a configuration of its own\n");
                skip();
        }
        assert_int_equal(private_daemon_stop(&h->daemon, &status), 0);
        pid = proc_spawn(argv, NULL, (struct proc_files){-1, -1, -1});
        assert_true(pid > 0);
        for (unsigned i = 0; i < 1000 && access(h->daemon.admin, F_OK) < 0; i++)
                sleep_msec(10);
        reply = ctl_json(h, "status");
        assert_string_equal(json_string_value(json_object_get(reply, "config_file")),
                "none (built-in defaults)");
        json_decref(reply);
        assert_int_equal(kill(pid, SIGTERM), 0);
        assert_int_equal(proc_wait(pid, DAEMON_TIMEOUT_MSEC, &status), 0);
        assert_int_equal(status, 0);
        assert_int_equal(private_daemon_start(&h->daemon), 0);
}

/* Directories and models may have names in any language. */
HARNESS_TEST(test_beyond_ascii, NULL)
{
        static const char model[] = "/data/\xe6\xa8\xa1\xe5\x9e\x8b/Qwen";
        struct paths p;
        const char *argv[] = {program_daemon(), "--config", p.config, NULL};
        const char *ask[] = {program_ctl(), "--runtime-dir", p.runtime, "status", "--json", NULL};
        struct proc_output o;
        json_t *reply, *ns;
        struct raw r;
        int status;
        pid_t pid;

        write_config(&p, h, "l\xc3\xa4uft", "st\xc3\xa4nde");
        pid = proc_spawn(argv, NULL, (struct proc_files){-1, -1, -1});
        assert_true(pid > 0);
        assert_int_equal(proc_run(ask, NULL, DAEMON_TIMEOUT_MSEC, &o), 0);
        for (unsigned i = 0; i < 1000 && !*o.out; i++) {
                proc_output_free(&o);
                sleep_msec(10);
                assert_int_equal(proc_run(ask, NULL, DAEMON_TIMEOUT_MSEC, &o), 0);
        }
        reply = json_loads(o.out, 0, NULL);
        assert_non_null(reply);
        assert_string_equal(json_string_value(json_object_get(reply, "runtime_dir")), p.runtime);
        json_decref(reply);
        proc_output_free(&o);
        assert_int_equal(kill(pid, SIGTERM), 0);
        assert_int_equal(proc_wait(pid, DAEMON_TIMEOUT_MSEC, &status), 0);
        assert_int_equal(status, 0);

        raw_open(&r, h, NULL);
        assert_true(raw_authenticate(&r, raw_hello(&r, 1, 1)));
        assert_int_equal(raw_try_model(&r, "n", model)->status, 0);
        reply = ctl_json(h, "namespaces");
        ns = json_array_get(json_object_get(reply, "namespaces"), 0);
        assert_string_equal(json_string_value(json_object_get(ns, "model")), model);
        json_decref(reply);
        raw_close(&r);
}

/* A file of a newer kvleased is used, with a message. One that was truncated, or that every user
 * may write to, isn't. */
HARNESS_TEST(test_tenants_of_others, NULL)
{
        static const char newer[] = "[tenant newer]\nlimit = 8MiB\nfuture_option = 3\n";
        struct proc_output o;
        char path[PRIVATE_PATH_MAX], *text;
        size_t len;
        int status;

        snprintf(path, sizeof(path), "%.32s/state/tenants.conf", h->daemon.dir);
        assert_int_equal(private_daemon_stop(&h->daemon, &status), 0);
        assert_int_equal(file_replace(path, newer, strlen(newer), 0640), 0);
        harness_start(h);
        assert_int_equal(ctl_status(h, "options_unknown"), 1);
        ctl(h, "tenants set newer weight=7");
        assert_int_equal(ctl_run(h, "status --all", &o), 0);
        assert_non_null(strstr(o.out, "this kvleased doesn't know, and skips: 1"));
        proc_output_free(&o);
        assert_int_equal(private_daemon_stop(&h->daemon, &status), 0);
        assert_int_equal(file_read(path, 65536, &text, &len), 0);
        assert_non_null(strstr(text, "weight = 7\nfuture_option = 3\n"));
        assert_int_equal(chmod(path, 0666), 0);
        refuses(h->daemon.config, 5, path, "chmod o-w");
        assert_int_equal(file_replace(path, text, len - 1, 0640), 0);
        refuses(h->daemon.config, 5, path, "was cut off");
        assert_int_equal(unlink(path), 0);
        harness_start(h);
        free(text);
}
