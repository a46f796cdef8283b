/* kvleased --keep: the small parent hands its stored descriptors to the next daemon, which it
 * starts. It also does the rest of a service manager's work. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "proto/sock.h"
#include "tests/integration/harness.h"

#define WAIT_MSEC 30000 /* not tuned */

/* A parent with a daemon, beside a service manager, which the test plays. */
struct kept {
        struct harness *h;
        int above;       /* $NOTIFY_SOCKET of the parent */
        char text[4096]; /* the last message there */
        pid_t daemon;    /* as last seen */
};

/* The child of a process; 0: it has none. */
static pid_t child_of(pid_t pid)
{
        char path[64], text[64] = "";
        int fd;

        snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && read(fd, text, sizeof(text) - 1) < 0)
                text[0] = '\0';
        fd_close(fd);
        return (pid_t)atoi(text);
}

/* `more` follows --config FILE. */
static void kept_spawn_as(struct kept *k, int log, const char *const *more)
{
        struct private_daemon *d = &k->h->daemon;
        const char *argv[16] = {program_daemon(), "--config", d->config};
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        char notify[PRIVATE_PATH_MAX + 32];
        char place[PRIVATE_PATH_MAX +
                   32]; /* of the parent's socket, which one killed leaves there */
        const char *env[] = {notify, place, "FDSTORE=64", NULL};

        for (unsigned n = 3; *more; more++)
                argv[n++] = *more;
        snprintf(address.sun_path, sizeof(address.sun_path), "%.40s/above", d->dir);
        snprintf(notify, sizeof(notify), "NOTIFY_SOCKET=%.60s", address.sun_path);
        snprintf(place, sizeof(place), "RUNTIME_DIRECTORY=%.40s", d->dir);
        unlink(address.sun_path);
        k->above = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(k->above, (struct sockaddr *)&address, sizeof(address)), 0);
        d->pid = proc_spawn(argv, env, (struct proc_files){-1, log, log});
        assert_true(d->pid > 0);
}

static int open_log(const struct kept *k)
{
        int log = open(k->h->daemon.log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

        assert_true(log >= 0);
        return log;
}

/* Starts kvleased --keep: a parent that stores the daemon's descriptors. */
static void kept_spawn(struct kept *k, const char *const *more)
{
        const char *argv[8] = {"--keep"};
        int log = open_log(k);

        for (unsigned n = 1; more && *more; more++)
                argv[n++] = *more;
        kept_spawn_as(k, log, argv);
        fd_close(log);
}

/* The next message with the text; earlier ones are dropped. */
static void expect(struct kept *k, const char *text)
{
        struct pollfd p = {k->above, POLLIN, 0};
        uint64_t end = now_nsec() + WAIT_MSEC * UINT64_C(1000000);

        while (now_nsec() < end && poll(&p, 1, WAIT_MSEC) > 0) {
                ssize_t len = recv(k->above, k->text, sizeof(k->text) - 1, 0);

                assert_true(len >= 0);
                k->text[len] = '\0';
                if (strstr(k->text, text))
                        return;
        }
        fail_msg("never said: %s", text);
}

static void expect_ready(struct kept *k)
{
        pid_t before = k->daemon;

        expect(k, "READY=1");
        k->daemon = child_of(k->h->daemon.pid);
        assert_true(k->daemon > 0 && k->daemon != before);
}

static void kept_start(struct kept *k, struct harness *h, const char *const *more)
{
        int status;

        assert_int_equal(private_daemon_stop(&h->daemon, &status), 0);
        *k = (struct kept){.h = h};
        kept_spawn(k, more);
        expect_ready(k);
}

/* Waits for the parent's end. */
static int kept_wait(struct kept *k)
{
        int status;

        assert_int_equal(proc_wait(k->h->daemon.pid, WAIT_MSEC, &status), 0);
        k->h->daemon.pid = 0;
        k->above = fd_close(k->above);
        return status;
}

/* Stops both, and restarts the harness's own daemon. */
static void kept_stop(struct kept *k)
{
        pid_t daemon = k->daemon;

        kill(k->h->daemon.pid, SIGTERM);
        expect(k, "STOPPING=1");
        expect(k, "all that was cached in memory");
        assert_int_equal(kept_wait(k), 0);
        assert_int_equal(kill(daemon, 0), -1);
        harness_start(k->h);
}

static ino_t inode_at(const char *path)
{
        struct stat st;

        assert_int_equal(stat(path, &st), 0);
        return st.st_ino;
}

static uint64_t kept_now(struct kept *k)
{
        return ctl_status(k->h, "kept_fds");
}

/* A killed daemon is restarted with the same sockets, where a client may be waiting. */
HARNESS_TEST(test_killed, NULL)
{
        char path[PRIVATE_PATH_MAX];
        struct kept k;
        uint64_t n;
        ino_t inode;
        int waiting;

        kept_start(&k, h, NULL);
        private_daemon_socket(&k.h->daemon, "a", path);
        inode = inode_at(path);
        n = kept_now(&k);
        assert_true(n >= 3); /* the sockets */
        kill(k.daemon, SIGSTOP);
        waiting = sock_connect(path); /* in the backlog, not accepted yet */
        assert_true(waiting >= 0);
        kill(k.daemon, SIGKILL);
        expect(&k, "killed by signal 9: it is started again");
        expect_ready(&k);
        assert_int_equal(inode_at(path), inode);
        assert_int_equal(kept_now(&k), n);
        assert_int_equal(ctl_status(k.h, "kept_released"), 0);
        assert_int_equal(ctl_status(k.h, "deaths"), 1);
        worker_stop(worker_start(k.h, "a", "ns", 1));
        fd_close(waiting);
        kept_stop(&k);
}

/* SIGUSR1: another daemon from the same file, with the same sockets, and without STOPPING to the
 * manager. */
HARNESS_TEST(test_upgrade, NULL)
{
        char path[PRIVATE_PATH_MAX];
        struct kept k;
        uint64_t n;
        ino_t inode;

        kept_start(&k, h, NULL);
        inode = inode_at(private_daemon_socket(&k.h->daemon, "a", path));
        n = kept_now(&k);
        for (unsigned i = 0; i < 3; i++) {
                kill(k.h->daemon.pid, SIGUSR1);
                expect_ready(&k);
                assert_int_equal(inode_at(path), inode);
                assert_int_equal(kept_now(&k), n);
                assert_int_equal(ctl_status(k.h, "deaths"), 0);
        }
        kept_stop(&k);
}

/* The socket of a tenant removed meanwhile is removed, too. */
HARNESS_TEST(test_socket_of_nobody, NULL)
{
        static const struct private_tenant one[] = {{"a", "limit = 4MiB\n"}, {NULL, NULL}};
        static const struct private_tenant two[] = {
                {"a", "limit = 4MiB\n"}, {"b", "limit = 4MiB\n"}, {NULL, NULL}};
        const struct private_options o[] = {{.tenants = two}, {.tenants = one}};
        char path[PRIVATE_PATH_MAX];
        struct kept k;
        uint64_t n;

        assert_int_equal(private_daemon_configure(&h->daemon, &o[0]), 0);
        kept_start(&k, h, NULL);
        n = kept_now(&k);
        private_daemon_socket(&h->daemon, "b", path);
        assert_int_equal(access(path, F_OK), 0);
        assert_int_equal(private_daemon_configure(&h->daemon, &o[1]), 0);
        kill(k.daemon, SIGKILL);
        expect_ready(&k);
        assert_int_equal(kept_now(&k), n - 1);
        assert_int_equal(access(path, F_OK), -1);
        /* A tenant that is removed while the daemon runs. */
        ctl(h, "tenants add c limit=1MiB");
        assert_int_equal(kept_now(&k), n);
        ctl(h, "tenants remove c");
        assert_int_equal(kept_now(&k), n - 1);
        /* Its directory is removed, whichever daemon made it. */
        ctl(h, "tenants add c limit=1MiB");
        kill(k.daemon, SIGKILL);
        expect_ready(&k);
        ctl(h, "tenants remove c");
        *strrchr(private_daemon_socket(&h->daemon, "c", path), '/') = '\0';
        assert_int_equal(access(path, F_OK), -1);
        kept_stop(&k);
}

/* A full store is reported, and the daemon serves. */
HARNESS_TEST(test_full_store, NULL)
{
        struct private_daemon *d = &((struct harness *)h)->daemon;
        char *text;
        size_t len;
        struct kept k;

        kept_start(&k, h, (const char *const[]){"--keep-max", "2", NULL});
        assert_int_equal(ctl_status(k.h, "kept_max"), 2);
        assert_int_equal(kept_now(&k), 2);
        assert_int_equal(file_read(d->log, 1 << 20, &text, &len), 0);
        assert_non_null(strstr(text,
                "2 descriptors of kvleased are kept for its next start, of at most 2: raise FileDescriptorStoreMax"));
        free(text);
        kept_stop(&k);
}

/* Passes a socket to the parent, and a descriptor that it doesn't know. */
static void exec_activated(struct kept *k, int fd, int unknown)
{
        struct private_daemon *d = &k->h->daemon;
        char pid[16], notify[PRIVATE_PATH_MAX];

        if (dup2(fd, 3) < 0 || dup2(unknown, 4) < 0)
                _exit(126);
        snprintf(pid, sizeof(pid), "%d", (int)getpid());
        snprintf(notify, sizeof(notify), "%.60s/above", d->dir);
        setenv("NOTIFY_SOCKET", notify, 1);
        setenv("LISTEN_PID", pid, 1);
        setenv("LISTEN_FDS", "2", 1);
        setenv("LISTEN_FDNAMES", "tenant-a:x99", 1);
        execl(program_daemon(), program_daemon(), "--config", d->config, "--keep", (char *)NULL);
        _exit(127);
}

HARNESS_TEST(test_activated, NULL)
{
        struct kept k = {.h = h};
        char path[PRIVATE_PATH_MAX], dir[PRIVATE_PATH_MAX];
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int status, fd, high, null;
        ino_t inode;

        assert_int_equal(private_daemon_stop(&h->daemon, &status), 0);
        snprintf(dir, sizeof(dir), "%.40s/t", h->daemon.runtime);
        mkdir(dir, 0755);
        snprintf(dir, sizeof(dir), "%.40s/t/a", h->daemon.runtime);
        mkdir(dir, 0755);
        fd = sock_listen(private_daemon_socket(&h->daemon, "a", path), 0666);
        high = fcntl(fd, F_DUPFD_CLOEXEC, 100);
        null = fcntl(0, F_DUPFD_CLOEXEC, 100);
        assert_true(fd >= 0 && high >= 0 && null >= 0);
        inode = inode_at(path);
        snprintf(address.sun_path, sizeof(address.sun_path), "%.60s/above", h->daemon.dir);
        unlink(address.sun_path);
        k.above = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(k.above, (struct sockaddr *)&address, sizeof(address)), 0);
        h->daemon.pid = fork();
        if (h->daemon.pid == 0)
                exec_activated(&k, high, null);
        fd_close(fd);
        fd_close(high);
        fd_close(null);
        for (unsigned i = 0; i < 2; i++) {
                expect_ready(&k);
                assert_int_equal(inode_at(path), inode);
                assert_true(ctl_status(h, "kept_released") >= 1); /* x99, given each time */
                worker_stop(worker_start(h, "a", "ns", 1));
                kill(k.daemon, SIGKILL);
        }
        expect_ready(&k);
        kept_stop(&k);
}

/* The log's reader has exited: the parent continues, and so does a daemon that it starts then. */
HARNESS_TEST(test_log_of_nobody, NULL)
{
        struct kept k = {.h = h};
        int status, log[2];

        assert_int_equal(private_daemon_stop(&k.h->daemon, &status), 0);
        assert_int_equal(pipe2(log, O_CLOEXEC), 0);
        kept_spawn_as(&k, log[1], (const char *const[]){"--keep", NULL});
        fd_close(log[1]);
        expect_ready(&k);
        fd_close(log[0]);
        kill(k.daemon, SIGKILL);
        expect(&k, "killed by signal 9");
        expect_ready(&k);
        kept_stop(&k);
}

/* The next message from a daemon without a parent, with its descriptor. False: none for `msec`. */
static bool hear(struct kept *k, int msec, int *ret_fd)
{
        union {
                char bytes[CMSG_SPACE(sizeof(int))];
                struct cmsghdr align;
        } control;
        struct pollfd p = {k->above, POLLIN, 0};
        struct iovec iov = {k->text, sizeof(k->text) - 1};
        struct msghdr m = {.msg_iov = &iov,
                .msg_iovlen = 1,
                .msg_control = &control,
                .msg_controllen = sizeof(control)};
        ssize_t len;

        *ret_fd = -1;
        if (poll(&p, 1, msec) <= 0)
                return false;
        len = recvmsg(k->above, &m, MSG_CMSG_CLOEXEC);
        assert_true(len >= 0);
        k->text[len] = '\0';
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
                if (c->cmsg_type == SCM_RIGHTS)
                        memcpy(ret_fd, CMSG_DATA(c), sizeof(*ret_fd));
        return true;
}

/* READY is sent after everything is stored: a daemon killed from then on loses no socket. */
HARNESS_TEST(test_ready_comes_last, NULL)
{
        struct kept k = {.h = h};
        int status, fd, barrier = -1, log = open_log(&k);
        unsigned n_kept = 0;

        assert_int_equal(private_daemon_stop(&k.h->daemon, &status), 0);
        kept_spawn_as(&k, log, (const char *const[]){NULL});
        fd_close(log);
        for (bool is_ready = false; !is_ready; fd_close(fd)) {
                /* While it is held, no message comes. */
                if (!hear(&k, barrier >= 0 ? 300 : WAIT_MSEC, &fd)) {
                        assert_true(barrier >= 0);
                        barrier = fd_close(barrier);
                        continue;
                }
                if (strncmp(k.text, "BARRIER=1", 9) == 0)
                        barrier = fd_take(&fd);
                n_kept += strncmp(k.text, "FDSTORE=1", 9) == 0;
                is_ready = strstr(k.text, "READY=1");
        }
        assert_int_equal(barrier, -1);
        assert_true(n_kept >= 3); /* the sockets, and more */
        assert_int_equal(kept_now(&k), n_kept);
        kill(k.h->daemon.pid, SIGTERM);
        assert_int_equal(kept_wait(&k), 0);
        harness_start(k.h);
}

/* Without a descriptor store, or with keep_state = off, nothing is stored. */
HARNESS_TEST(test_off, NULL)
{
        static const struct private_options off = {.daemon_lines = "keep_state = off"};
        char path[PRIVATE_PATH_MAX];
        struct kept k;

        assert_int_equal(ctl_status(h, "kept_max"), 0);
        assert_int_equal(private_daemon_configure(&h->daemon, &off), 0);
        kept_start(&k, h, NULL);
        assert_int_equal(ctl_status(h, "kept_max"), 0);
        private_daemon_socket(&h->daemon, "a", path);
        kill(h->daemon.pid, SIGTERM);
        expect(&k, "STOPPING=1");
        assert_int_equal(kept_wait(&k), 0);
        assert_int_equal(access(path, F_OK), -1);
        assert_int_equal(private_daemon_configure(&h->daemon, &(struct private_options){0}), 0);
        harness_start(h);
}

/* The parent doesn't answer: administrators are served all the same. */
HARNESS_TEST(test_stopped_parent, NULL)
{
        struct kept k;

        kept_start(&k, h, NULL);
        kill(k.h->daemon.pid, SIGSTOP);
        ctl(k.h, "tenants add c limit=1MiB");
        kill(k.h->daemon.pid, SIGCONT);
        ctl(k.h, "tenants remove c");
        kept_stop(&k);
}

int main(void)
{
        unsetenv("WATCHDOG_USEC");
        unsetenv("WATCHDOG_PID");
        return test_run_all(NULL, NULL);
}
