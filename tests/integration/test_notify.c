/* Messages to the service manager over $NOTIFY_SOCKET: state, status and watchdog. */
#include <errno.h>
#include <fcntl.h>
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
#include "proto/sock.h"
#include "tests/integration/harness.h"

#define WAIT_MSEC 30000 /* not tuned */

static const struct private_tenant two[] = {
        {"a", "limit = 4MiB\n"}, {"b", "limit = 8MiB\n"}, {NULL, NULL}};
static const struct private_options two_tenants = {.tenants = two};

/* A notify socket of the test's own, beside the harness' one. */
struct notify {
        struct harness *h;
        int fd;
        char path[PRIVATE_PATH_MAX];
        char text[4096]; /* last message */
};

/* Stops the harness' daemon; makes the socket. */
static void notify_open(struct notify *n, struct harness *h)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int status;

        assert_int_equal(private_daemon_stop(&h->daemon, &status), 0);
        *n = (struct notify){.h = h};
        snprintf(n->path, sizeof(n->path), "%.40s/systemd", h->daemon.dir);
        snprintf(address.sun_path, sizeof(address.sun_path), "%.60s", n->path);
        unlink(n->path);
        n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        assert_true(n->fd >= 0);
        assert_int_equal(bind(n->fd, (struct sockaddr *)&address, sizeof(address)), 0);
}

/* Starts the daemon with one more variable; its log is written to the harness' file. */
static void notify_start(struct notify *n, const char *variable)
{
        struct private_daemon *d = &n->h->daemon;
        char socket[PRIVATE_PATH_MAX + 32];
        const char *argv[] = {program_daemon(), "--config", d->config, NULL};
        const char *env[] = {socket, variable, NULL}, *wrapped[PROGRAM_ARGS_MAX];
        int log = open(d->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

        assert_true(log >= 0);
        snprintf(socket, sizeof(socket), "NOTIFY_SOCKET=%s", n->path);
        program_wrap(argv, wrapped);
        d->pid = proc_spawn(wrapped, env, (struct proc_files){-1, log, log});
        assert_true(d->pid > 0);
        fd_close(log);
}

/* The next message within that time, or NULL. */
static const char *notify_next(struct notify *n, int msec)
{
        struct pollfd p = {n->fd, POLLIN, 0};
        ssize_t len;

        if (poll(&p, 1, msec) <= 0)
                return NULL;
        len = recv(n->fd, n->text, sizeof(n->text) - 1, 0);
        assert_true(len >= 0);
        n->text[len] = '\0';
        return n->text;
}

/* A line of a message, whole. */
static bool has_line(const char *text, const char *line)
{
        size_t len = strlen(line);

        for (const char *at = text; at; at = strchr(at, '\n')) {
                at += *at == '\n';
                if (strncmp(at, line, len) == 0 && (at[len] == '\n' || !at[len]))
                        return true;
        }
        return false;
}

/* The next message must have the line. */
static void expect(struct notify *n, const char *line)
{
        const char *text = notify_next(n, WAIT_MSEC);

        if (!text || !has_line(text, line))
                fail_msg("\"%s\" came where \"%s\" was expected", text ? text : "nothing", line);
}

static void expect_ready(struct notify *n)
{
        expect(n, "STATUS=2 tenants");
        expect(n, "READY=1");
}

static void notify_close(struct notify *n)
{
        n->fd = fd_close(n->fd);
        assert_int_equal(private_daemon_start(&n->h->daemon), 0);
}

static bool answers(const char *path)
{
        int fd = sock_connect(path);

        if (fd >= 0)
                fd_close(fd);
        return fd >= 0;
}

/* Makes the socket's queue so full that the daemon's first message waits. */
static void stuff(struct notify *n)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        snprintf(address.sun_path, sizeof(address.sun_path), "%.60s", n->path);
        while (sendto(fd, "X=1", 3, 0, (struct sockaddr *)&address, sizeof(address)) == 3)
                ;
        assert_int_equal(errno, EAGAIN);
        fd_close(fd);
}

/* The daemon's first message is blocked: answers on the sockets now are from before READY=1. */
HARNESS_TEST(test_ready_after_sockets, &two_tenants)
{
        char paths[4][PRIVATE_PATH_MAX];
        struct notify n;

        notify_open(&n, h);
        stuff(&n);
        notify_start(&n, NULL);
        snprintf(paths[0], sizeof(paths[0]), "%.60s", h->daemon.admin);
        snprintf(paths[1], sizeof(paths[1]), "%.60s/sock", h->daemon.runtime);
        private_daemon_socket(&h->daemon, "a", paths[2]);
        private_daemon_socket(&h->daemon, "b", paths[3]);
        for (unsigned i = 0; i < ARRAY_SIZE(paths); i++) {
                unsigned msec = 0;

                for (; !answers(paths[i]) && msec < WAIT_MSEC; msec += 5)
                        sleep_msec(5);
                if (msec >= WAIT_MSEC)
                        fail_msg("%s doesn't answer before READY=1", paths[i]);
        }
        do
                assert_non_null(notify_next(&n, WAIT_MSEC));
        while (has_line(n.text, "X=1"));
        assert_true(has_line(n.text, "STATUS=2 tenants"));
        expect(&n, "READY=1");
        assert_int_equal(private_daemon_stop(&h->daemon, &(int){0}), 0);
        notify_close(&n);
}

/* A daemon that can't start never says that it is ready. */
HARNESS_TEST(test_never_ready, &two_tenants)
{
        struct notify n;
        int status, fd;

        notify_open(&n, h);
        fd = open(h->daemon.admin, O_WRONLY | O_CREAT | O_CLOEXEC, 0600); /* no socket */
        assert_true(fd >= 0);
        fd_close(fd);
        notify_start(&n, NULL);
        assert_int_equal(proc_wait(h->daemon.pid, WAIT_MSEC, &status), 0);
        h->daemon.pid = 0;
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
        assert_null(notify_next(&n, 0));
        assert_int_equal(unlink(h->daemon.admin), 0);
        notify_close(&n);
}

/* RELOADING=1 with the time it began, then READY=1: also where the file is bad. */
static void expect_reload(struct notify *n, const char *status)
{
        const char *usec;

        kill(n->h->daemon.pid, SIGHUP);
        expect(n, "RELOADING=1");
        usec = strstr(n->text, "MONOTONIC_USEC=");
        assert_non_null(usec);
        assert_true(now_nsec() / 1000 - strtoull(usec + 15, NULL, 10) < WAIT_MSEC * 1000);
        expect(n, status);
        expect(n, "READY=1");
}

static void break_config(struct harness *h)
{
        FILE *f = fopen(h->daemon.config, "ae");

        assert_non_null(f);
        fprintf(f, "[tenant z]\nno_such_option = 1\n");
        assert_int_equal(fclose(f), 0);
}

HARNESS_TEST(test_life, &two_tenants)
{
        static const struct private_options one_tenant = {.tenants = two + 1};
        struct notify n;

        notify_open(&n, h);
        notify_start(&n, NULL);
        expect_ready(&n);
        ctl(h, "tenants add c limit=1MiB");
        expect(&n, "STATUS=3 tenants");
        ctl(h, "tenants remove c");
        expect(&n, "STATUS=2 tenants");
        ctl(h, "drain");
        expect(&n, "STATUS=2 tenants, draining");
        ctl(h, "drain --off");
        expect(&n, "STATUS=2 tenants");
        expect_reload(&n, "STATUS=2 tenants");
        break_config(h);
        expect_reload(&n, "STATUS=2 tenants");
        assert_int_equal(private_daemon_configure(&h->daemon, &one_tenant), 0);
        expect_reload(&n, "STATUS=1 tenant");
        assert_int_equal(private_daemon_configure(&h->daemon, &two_tenants), 0);
        expect_reload(&n, "STATUS=2 tenants");
        assert_int_equal(private_daemon_stop(&h->daemon, &(int){0}), 0);
        expect(&n, "STOPPING=1");
        assert_null(notify_next(&n, 0));
        notify_close(&n);
}

/* A sign of life at half the interval: not rarer, and not for ever more often. */
HARNESS_TEST(test_watchdog, &two_tenants)
{
        unsigned n_pings = 0;
        struct notify n;
        uint64_t start;

        notify_open(&n, h);
        notify_start(&n, "WATCHDOG_USEC=400000");
        expect_ready(&n);
        expect(&n, "WATCHDOG=1");
        start = now_nsec();
        for (; n_pings < 5; n_pings++)
                expect(&n, "WATCHDOG=1");
        assert_in_range((now_nsec() - start) / 1000000, 700, WAIT_MSEC); /* 1000, the first late */
        if (!private_under_valgrind())
                assert_true((now_nsec() - start) / 1000000 < 2000); /* 5 whole intervals */
        assert_int_equal(private_daemon_stop(&h->daemon, &(int){0}), 0);
        notify_close(&n);
}

HARNESS_TEST(test_no_watchdog, &two_tenants)
{
        int64_t before;
        struct notify n;

        notify_open(&n, h);
        notify_start(&n, NULL);
        expect_ready(&n);
        before = proc_status_value(h->daemon.pid, "voluntary_ctxt_switches");
        assert_null(notify_next(&n, 500));
        /* The daemon slept, as no request came. One switch is for going to sleep after READY=1. */
        assert_in_range(proc_status_value(h->daemon.pid, "voluntary_ctxt_switches") - before, 0, 1);
        assert_int_equal(private_daemon_stop(&h->daemon, &(int){0}), 0);
        notify_close(&n);
        /* Set for another process: not ours to answer. */
        notify_open(&n, h);
        setenv("WATCHDOG_PID", "1", 1);
        notify_start(&n, "WATCHDOG_USEC=200000");
        unsetenv("WATCHDOG_PID");
        expect_ready(&n);
        assert_null(notify_next(&n, 500));
        assert_int_equal(private_daemon_stop(&h->daemon, &(int){0}), 0);
        notify_close(&n);
}

int main(void)
{
        unsetenv("WATCHDOG_USEC");
        unsetenv("WATCHDOG_PID");
        return test_run_all(NULL, NULL);
}
