#include "tests/unit/keep-life.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

#define WAIT_MSEC 20000 /* for what takes milliseconds, on a loaded machine; not tuned */
#define MEETING   "KVL_TEST_MEETING" /* where a child finds the test */

/* ---- the child ------------------------------------------------------------------------------ */

static const char *variable(const char *name)
{
        const char *value = getenv(name);

        return value ? value : "-";
}

/* Says it to the parent; fd < 0: without a descriptor. */
static void notify(const char *text, int fd)
{
        char control[CMSG_SPACE(sizeof(int))] = {0};
        struct sockaddr_un to = {.sun_family = AF_UNIX};
        struct iovec iov = {(void *)(uintptr_t)text, strlen(text)};
        struct msghdr h = {.msg_name = &to, .msg_namelen = sizeof(to), .msg_iov = &iov};
        int from = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

        snprintf(to.sun_path, sizeof(to.sun_path), "%s", variable("NOTIFY_SOCKET"));
        h.msg_iovlen = 1;
        if (fd >= 0) {
                struct cmsghdr *c = (struct cmsghdr *)(void *)control;

                h.msg_control = control;
                h.msg_controllen = sizeof(control);
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(sizeof(int));
                memcpy(CMSG_DATA(c), &fd, sizeof(fd));
        }
        if (sendmsg(from, &h, 0) < 0)
                _exit(99);
        fd_close(from);
}

static int exit_code_of[64]; /* by signal */
static bool says_stopping;

static void on_signal(int number)
{
        if (says_stopping)
                notify("STOPPING=1", -1);
        _exit(exit_code_of[number]);
}

/* One that has as many bytes as its name says: "e7". */
static void keep(const char *name)
{
        char text[64];
        int fd = memfd_create_sized("kept", (uint64_t)atoi(name + 1));

        snprintf(text, sizeof(text), "FDSTORE=1\nFDNAME=%.8s", name);
        notify(text, fd);
        fd_close(fd);
}

/* By a process that the parent didn't start. */
static void say_as_another(const char *text)
{
        pid_t pid = fork();

        if (pid == 0) {
                notify(text, memfd_create_sized("foreign", 1));
                _exit(0);
        }
        waitpid(pid, NULL, 0);
}

/* Reports the child's environment, and the sizes behind its descriptors. */
static void introduce(int fd)
{
        char text[LIFE_TEXT_BYTES];
        int n = atoi(variable("LISTEN_FDS")), at;
        struct rlimit files;

        getrlimit(RLIMIT_NOFILE, &files);
        at = snprintf(text, sizeof(text),
                "%d files=%llu store=%s usec=%s wpid=%d pid=%d names=%s sizes=", (int)getpid(),
                (unsigned long long)files.rlim_cur, variable("FDSTORE"), variable("WATCHDOG_USEC"),
                atoi(variable("WATCHDOG_PID")) == (int)getpid(),
                atoi(variable("LISTEN_PID")) == (int)getpid(), variable("LISTEN_FDNAMES"));
        for (int i = 0; i < n; i++) {
                struct stat st;

                if (fstat(3 + i, &st) == 0)
                        at += snprintf(
                                text + at, sizeof(text) - (size_t)at, "%d,", (int)st.st_size);
        }
        if (!parent_is_there() || parent_is_there())
                at += snprintf(text + at, sizeof(text) - (size_t)at, " orphan");
        if (send(fd, text, (size_t)at, 0) != at)
                _exit(99);
}

/* One line of the test's; answered, but for those that end it. */
static void obey(int fd, const char *line)
{
        int number, code;

        if (strncmp(line, "say ", 4) == 0)
                notify(line + 4, -1);
        else if (strncmp(line, "another ", 8) == 0)
                say_as_another(line + 8);
        else if (strncmp(line, "keep ", 5) == 0)
                keep(line + 5);
        else if (sscanf(line, "on %d exit %d", &number, &code) == 2) {
                exit_code_of[number] = code;
                signal(number, on_signal);
        } else if (strcmp(line, "stop aloud") == 0)
                says_stopping = true;
        else if (sscanf(line, "exit %d", &code) == 1)
                _exit(code);
        else if (sscanf(line, "keep-and-exit %d", &code) == 1) {
                keep("e5");
                _exit(code);
        }
        (void)!send(fd, "done", 4, 0);
}

int life_child(void)
{
        struct sockaddr_un to = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        char line[LIFE_TEXT_BYTES];
        ssize_t n;

        snprintf(to.sun_path, sizeof(to.sun_path), "%s", variable(MEETING));
        if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
                return 99;
        introduce(fd);
        while ((n = recv(fd, line, sizeof(line) - 1, 0)) > 0) {
                line[n] = '\0';
                obey(fd, line);
        }
        return 98;
}

/* ---- the test's end ------------------------------------------------------------------------- */

static int listen_at(const char *dir, const char *name, int type)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

        snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", dir, name);
        assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        if (type == SOCK_SEQPACKET)
                assert_int_equal(listen(fd, 8), 0);
        return fd;
}

static void set_path(const char *variable_name, const char *dir, const char *name)
{
        char path[LIFE_TEXT_BYTES];

        snprintf(path, sizeof(path), "%s/%s", dir, name);
        setenv(variable_name, path, 1);
}

void life_begin(struct life *l, struct parent_options o, void (*prepare)(void))
{
        static char *argv[] = {(char *)"test_keep_run", (char *)"child", NULL};

        o.argv = argv;
        *l = (struct life){.dir = test_dir_make(), .fd = -1};
        l->above = listen_at(l->dir, "above", SOCK_DGRAM);
        l->meeting = listen_at(l->dir, "meeting", SOCK_SEQPACKET);
        fflush(NULL);
        l->parent = fork();
        assert_true(l->parent >= 0);
        if (l->parent > 0)
                return;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        set_path("NOTIFY_SOCKET", l->dir, "above");
        set_path(MEETING, l->dir, "meeting");
        set_path("RUNTIME_DIRECTORY", l->dir, "");
        if (prepare)
                prepare();
        _exit(parent_run(&o));
}

struct parent_options life_patient(void)
{
        return (struct parent_options){.max = 8, .tries = 20, .young_nsec = LIFE_FOREVER};
}

void life_meet(struct life *l)
{
        struct pollfd p = {l->meeting, POLLIN, 0};
        ssize_t n;

        assert_int_equal(poll(&p, 1, WAIT_MSEC), 1);
        fd_close(l->fd); /* not before: the child would leave by itself */
        l->fd = accept4(l->meeting, NULL, NULL, SOCK_CLOEXEC);
        assert_true(l->fd >= 0);
        n = recv(l->fd, l->about, sizeof(l->about) - 1, 0);
        assert_true(n > 0);
        l->about[n] = '\0';
        l->child = (pid_t)atoi(l->about);
        assert_null(strstr(l->about, "orphan"));
}

void life_start(struct life *l, struct parent_options o)
{
        life_begin(l, o, NULL);
        life_meet(l);
}

void life_assert_about(const struct life *l, const char *text)
{
        if (!strstr(l->about, text))
                fail_msg("\"%s\" isn't in \"%s\"", text, l->about);
}

void life_order(struct life *l, const char *line)
{
        assert_int_equal(send(l->fd, line, strlen(line), MSG_NOSIGNAL), strlen(line));
}

void life_tell(struct life *l, const char *line)
{
        struct pollfd p = {l->fd, POLLIN, 0};
        char answer[8];

        life_order(l, line);
        assert_int_equal(poll(&p, 1, WAIT_MSEC), 1);
        assert_int_equal(recv(l->fd, answer, sizeof(answer), 0), 4);
}

void life_await_death(struct life *l)
{
        struct pollfd p = {l->fd, POLLIN, 0};
        char byte;

        assert_int_equal(poll(&p, 1, WAIT_MSEC), 1);
        assert_int_equal(recv(l->fd, &byte, 1, 0), 0);
}

/* Says READY, so that it isn't one that never was. */
void life_get_ready(struct life *l)
{
        life_tell(l, "say READY=1");
}

void life_hear(struct life *l)
{
        struct pollfd p = {l->above, POLLIN, 0};
        ssize_t n;

        assert_int_equal(poll(&p, 1, WAIT_MSEC), 1);
        n = recv(l->above, l->text, sizeof(l->text) - 1, 0);
        assert_true(n >= 0);
        l->text[n] = '\0';
}

void life_expect(struct life *l, const char *text)
{
        do
                life_hear(l);
        while (!strstr(l->text, text));
}

int life_wait(struct life *l)
{
        int status;

        for (unsigned i = 0; waitpid(l->parent, &status, WNOHANG) == 0; i++) {
                assert_true(i < WAIT_MSEC);
                poll(NULL, 0, 1);
        }
        l->fd = fd_close(l->fd);
        fd_close(l->above);
        fd_close(l->meeting);
        test_dir_remove(l->dir);
        return status;
}

int life_end(struct life *l)
{
        int status = life_wait(l);

        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status);
}

void life_stop(struct life *l)
{
        life_tell(l, "on 15 exit 0");
        kill(l->parent, SIGTERM);
        assert_int_equal(life_end(l), 0);
}
