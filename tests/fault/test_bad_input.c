/* Mistakes of users. Each gets one line that names the thing and the remedy, and an exit status of
 * failure. None loses anything. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "tests/integration/harness.h"

#define DAEMON_TIMEOUT_MSEC 30000

/* Runs kvleased with up to two more words; *ret_output owned. Returns its exit status. */
static int run_daemon(const char *config, const char *word, struct proc_output *ret_output)
{
        const char *argv[] = {program_daemon(), "--config", config, word, NULL};
        const char *env[] = {"NOTIFY_SOCKET=", NULL};

        assert_int_equal(proc_run(argv, env, DAEMON_TIMEOUT_MSEC, ret_output), 0);
        assert_true(WIFEXITED(ret_output->status));
        return WEXITSTATUS(ret_output->status);
}

/* One line (of errors), with these words in it. In a chroot kvleased first reports that it can't
 * mount. */
static void assert_line(const char *text, const char *a, const char *b)
{
        const char *end = strchr(text, '\n'),
                   *notice = strstr(text, " notice: no read-only mount ");

        if (end && notice && notice < end) {
                text = end + 1;
                end = strchr(text, '\n');
        }
        if (!end || end[1])
                fail_msg("not one line: \"%s\"", text);
        if (!strstr(text, a) || !strstr(text, b))
                fail_msg("no \"%s\" and \"%s\" in: %s", a, b, text);
}

static void daemon_refuses(const char *config, const char *word, const char *a, const char *b)
{
        struct proc_output o;
        int status = run_daemon(config, word, &o);

        if (status == 0)
                fail_msg("kvleased %s started: %s", config, o.err);
        assert_line(o.err, a, b);
        proc_output_free(&o);
}

static void write_file(const char *path, const char *text)
{
        FILE *f = fopen(path, "we");

        assert_non_null(f);
        fputs(text, f);
        assert_int_equal(fclose(f), 0);
}

HARNESS_TEST(test_daemon_words, NULL)
{
        char path[PRIVATE_PATH_MAX], text[512];

        daemon_refuses(h->daemon.config, "--no-such-option", "--no-such-option", "--help");
        daemon_refuses(h->daemon.config, "--chek-config", "--chek-config", "mean --check-config?");
        daemon_refuses(h->daemon.config, "--keep-", "--keep-", "--keep-max, --keep-tries, ");
        daemon_refuses(h->daemon.config, "--keep-max", "--keep-max", "needs a value");
        daemon_refuses("/nonexistent/kvlease.conf", "--check-config", "/nonexistent/kvlease.conf",
                "No such file");
        /* If the daemon waited for the FIFO, run_daemon() would time out. */
        snprintf(path, sizeof(path), "%.40s/fifo", h->daemon.dir);
        assert_int_equal(mkfifo(path, 0600), 0);
        daemon_refuses(path, "--check-config", path, "no regular file: name a regular file by");
        daemon_refuses(path, NULL, path, "no regular file: name a regular file by --config");
        daemon_refuses("/dev/zero", NULL, "/dev/zero", "no regular file");
        assert_int_equal(unlink(path), 0);
        snprintf(path, sizeof(path), "%.40s/bad.conf", h->daemon.dir);
        snprintf(text, sizeof(text), "[daemon]\nruntime_dir = %s\nmax_clientz = 5\n",
                h->daemon.runtime);
        write_file(path, text);
        daemon_refuses(path, "--check-config", "bad.conf:3", "max_clients");
        snprintf(text, sizeof(text), "[daemon]\nmax_clients = many\n");
        write_file(path, text);
        daemon_refuses(path, "--check-config", "bad.conf:2", "1 to 65535");
        write_file(path, "[tenant a]\nlimit = 4\n");
        daemon_refuses(path, "--check-config", "bad.conf:2", "limit");
        write_file(path, "[daemon]\nstate_dir = relative\n");
        daemon_refuses(path, "--check-config", "bad.conf:2", "state_dir");
        write_file(path, "[daemon]\n");
        snprintf(text, sizeof(text), "%s.d", path);
        assert_int_equal(mkdir(text, 0700), 0);
        strcat(text, "/more.conf");
        write_file(text, "[daemon]\n\nstate_dir = relative\n");
        daemon_refuses(path, "--check-config", "bad.conf.d/more.conf:3", "state_dir");
}

HARNESS_TEST(test_check_config, NULL)
{
        struct proc_output o;

        char path[PRIVATE_PATH_MAX];

        assert_int_equal(run_daemon(h->daemon.config, "--check-config", &o), 0);
        assert_string_equal(o.err, "");
        proc_output_free(&o);
        assert_int_equal(run_daemon("/dev/null", "--check-config", &o), 0);
        assert_string_equal(o.err, "");
        proc_output_free(&o);
        /* A warning only: the machine may get more memory. */
        snprintf(path, sizeof(path), "%.40s/large.conf", h->daemon.dir);
        write_file(path, "[device host]\nmemory = 100TiB\n");
        assert_int_equal(run_daemon(path, "--check-config", &o), 0);
        assert_line(o.err, "100 TiB of the host", "which has");
        proc_output_free(&o);
}

/* The second daemon exits; the first one continues. */
HARNESS_TEST(test_two_daemons, NULL)
{
        struct worker *w = worker_start(h, "a", "ns", 1);
        uint32_t pages[2];

        worker_publish_chain(w, 1, 2, pages);
        daemon_refuses(h->daemon.config, NULL, h->daemon.runtime, "another kvleased");
        worker_tell(w, "lookup 1:0-1");
        worker_stop(w);
        w = worker_start(h, "a", "ns", 1);
}

/* SIGKILL leaves socket files: the next daemon takes their places. */
HARNESS_TEST(test_stale_sockets, NULL)
{
        struct stat st;

        kill(h->daemon.pid, SIGKILL);
        waitpid(h->daemon.pid, NULL, 0);
        h->daemon.pid = 0;
        assert_int_equal(stat(h->daemon.admin, &st), 0);
        assert_int_equal(private_daemon_start(&h->daemon), 0);
        worker_start(h, "a", "ns", 1);
}

/* Another file is in the socket's place. */
HARNESS_TEST(test_occupied_socket, NULL)
{
        int status;

        assert_int_equal(private_daemon_stop(&h->daemon, &status), 0);
        unlink(h->daemon.admin);
        write_file(h->daemon.admin, "a file of somebody's");
        daemon_refuses(h->daemon.config, NULL, h->daemon.admin, "");
        assert_int_equal(unlink(h->daemon.admin), 0);
        assert_int_equal(private_daemon_start(&h->daemon), 0);
}

HARNESS_TEST(test_long_runtime_dir, NULL)
{
        char path[PRIVATE_PATH_MAX], text[512], dir[101];

        memset(dir, 'x', sizeof(dir) - 1);
        dir[100] = '\0';
        snprintf(path, sizeof(path), "%.40s/long.conf", h->daemon.dir);
        snprintf(text, sizeof(text), "[daemon]\nruntime_dir = %s/%s\nstate_dir = %s\n[tenant a]\n",
                h->daemon.dir, dir, h->daemon.state);
        write_file(path, text);
        daemon_refuses(path, NULL, "runtime_dir", "");
}

/* ---- kvleasectl ---- */

static void ctl_refuses(const char *const *words, int expected, const char *a, const char *b)
{
        const char *argv[8] = {program_ctl()};
        struct proc_output o;

        for (unsigned i = 0; words[i]; ++i)
                argv[i + 1] = words[i];
        assert_int_equal(proc_run(argv, NULL, DAEMON_TIMEOUT_MSEC, &o), 0);
        if (!WIFEXITED(o.status) || WEXITSTATUS(o.status) != expected)
                fail_msg("kvleasectl %s: status 0x%x: %s", words[0], o.status, o.err);
        assert_line(o.err, a, b);
        proc_output_free(&o);
}

HARNESS_TEST(test_ctl_words, NULL)
{
        const char *admin = h->daemon.admin;

        ctl_refuses((const char *[]){"--jsen", "status", NULL}, 2, "--jsen", "--json");
        ctl_refuses((const char *[]){"statsu", NULL}, 2, "statsu", "status");
        ctl_refuses((const char *[]){"--socket", "/nonexistent/s", "status", NULL}, 3,
                "/nonexistent/s", "is kvleased running");
        ctl_refuses((const char *[]){"--socket", admin, "tenants", "show", "nobody", NULL}, 1,
                "nobody", "tenants list");
        ctl_refuses((const char *[]){"--socket", admin, "tenants", "set", "a", "limit=x", NULL}, 1,
                "limit", "x");
        ctl_refuses(
                (const char *[]){"--socket", admin, "tenants", "add", "a", NULL}, 1, "a", "exists");
        ctl_refuses((const char *[]){"--socket", admin, "purge", "nobody", NULL}, 1, "nobody", "");
        assert_int_equal(ctl_status(h, "n_tenants"), 1);
}

/* A socket that isn't listened on, and one that may not be used. */
HARNESS_TEST(test_ctl_sockets, NULL)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const char *words[] = {"--socket", address.sun_path, "status", NULL};

        snprintf(address.sun_path, sizeof(address.sun_path), "%.40s/stale", h->daemon.dir);
        assert_true(fd >= 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        ctl_refuses(words, 3, address.sun_path, "no process listens");
        fd_close(fd);
        if (geteuid() != 0) { /* root may everything */
                assert_int_equal(chmod(address.sun_path, 0), 0);
                ctl_refuses(words, 3, "permission denied", "kvlease-admin");
        }
}
