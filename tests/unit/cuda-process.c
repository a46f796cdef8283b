#include "tests/unit/cuda-process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "base/fd.h"
#include "tests/unit/child.h"
#include "tests/unit/fd-count.h"
#include "tests/unit/test-support.h"

/* Time limit of one process, which ends a hang. */
#define SECONDS 60

void child_fails(const char *file, int line, const char *what)
{
        fprintf(stderr, "%s:%d: %s\n", file, line, what);
        _exit(99);
}

void child_expects(const char *file, int line, const char *what, int got, int want)
{
        if (got == want)
                return;
        fprintf(stderr, "%s:%d: %s: %d, not %d\n", file, line, what, got, want);
        _exit(99);
}

void use_double(char **argv)
{
        const char *path = getenv("LD_LIBRARY_PATH");
        char *both = NULL;

        if (path && strncmp(path, FAKECUDA_LIB_DIR, strlen(FAKECUDA_LIB_DIR)) == 0)
                return;
        if (asprintf(&both, "%s:%s", FAKECUDA_LIB_DIR, path ? path : "") < 0)
                _exit(98);
        setenv("LD_LIBRARY_PATH", both, 1);
        unsetenv("CUDA_VISIBLE_DEVICES");
        execv("/proc/self/exe", argv);
        _exit(98);
}

static void set_environment(const char *dir, const char *env)
{
        char copy[512], control_path[512], *save = NULL;

        setenv("FAKECUDA_DIR", dir, 1);
        snprintf(control_path, sizeof(control_path), "%s-control", dir);
        setenv("FAKECUDA_CONTROL", control_path, 1);
        snprintf(copy, sizeof(copy), "%s", env ? env : "");
        for (char *one = strtok_r(copy, " ", &save); one; one = strtok_r(NULL, " ", &save)) {
                char *value = strchr(one, '=');

                *value++ = '\0';
                if (*value)
                        setenv(one, value, 1);
                else
                        unsetenv(one);
        }
}

_Noreturn static void child_runs(void (*fn)(void), const char *dir, const char *env, bool is_clean)
{
        int n = fd_count_open();

        alarm(SECONDS);
        set_environment(dir, env);
        fn();
        CHECK(!is_clean || fd_count_open() == n);
        exit(0);
}

static int run_status(void (*fn)(void), const char *env, bool is_clean, unsigned *ret_left)
{
        char dir[256], control_path[300];
        int status = 0;
        pid_t pid;

        snprintf(dir, sizeof(dir), "%s", test_dir_make());
        snprintf(control_path, sizeof(control_path), "%s-control", dir);
        fflush(NULL);
        pid = child_fork();
        assert_true(pid >= 0);
        if (pid == 0)
                child_runs(fn, dir, env, is_clean);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        *ret_left = test_dir_count(dir);
        test_dir_remove(dir);
        unlink(control_path);
        return status;
}

static void expect_end(int status, const char *env)
{
        if (status != 0)
                print_error("status %#x with \"%s\"\n", (unsigned)status, env ? env : "");
        assert_int_equal(status, 0);
}

void run(void (*fn)(void), const char *env)
{
        unsigned left;

        expect_end(run_status(fn, env, true, &left), env);
        /* The double's lock file. */
        assert_true(left <= 1);
}

void run_broken(void (*fn)(void), const char *env)
{
        unsigned left;

        expect_end(run_status(fn, env, false, &left), env);
}

void run_abort(void (*fn)(void))
{
        unsigned left;
        int status = run_status(fn, NULL, false, &left);

        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

void control(const char *lines)
{
        const char *path = getenv("FAKECUDA_CONTROL");
        char fresh[600];
        FILE *f;

        snprintf(fresh, sizeof(fresh), "%s.new", path);
        f = fopen(fresh, "we");
        CHECK(f && fputs(lines, f) >= 0 && fclose(f) == 0);
        OK(rename(fresh, path));
}

struct peer peer_start(void (*fn)(int fd))
{
        struct peer p;
        int fds[2];

        OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
        p.pid = child_fork();
        CHECK(p.pid >= 0);
        if (p.pid == 0) {
                alarm(SECONDS);
                close(fds[0]);
                /* Faults are for the process under test. */
                unsetenv("FAKECUDA_FAIL");
                unsetenv("FAKECUDA_CONTROL");
                fn(fds[1]);
                close(fds[1]);
                exit(0);
        }
        close(fds[1]);
        p.fd = fds[0];
        return p;
}

void peer_join(struct peer *p)
{
        int status = 0;

        close(p->fd);
        CHECK(waitpid(p->pid, &status, 0) == p->pid);
        OK(status);
}

void say(int fd)
{
        CHECK(send(fd, "", 1, MSG_NOSIGNAL) == 1);
}

/* The end of the other process counts too. */
void hear(int fd)
{
        char byte;

        CHECK(recv(fd, &byte, 1, 0) >= 0);
}

union fd_message {
        char buf[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
};

void send_handle(int fd, struct extent_handle *handle)
{
        struct iovec iov = {.iov_base = handle->bytes, .iov_len = sizeof(handle->bytes)};
        union fd_message u = {0};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

        if (handle->fd >= 0) {
                struct cmsghdr *c;

                m.msg_control = u.buf;
                m.msg_controllen = sizeof(u.buf);
                c = CMSG_FIRSTHDR(&m);
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(sizeof(int));
                memcpy(CMSG_DATA(c), &handle->fd, sizeof(int));
        }
        CHECK(sendmsg(fd, &m, MSG_NOSIGNAL) == (ssize_t)sizeof(handle->bytes));
        handle->fd = fd_close(handle->fd);
}

struct extent_handle receive_handle(int fd)
{
        struct extent_handle handle = {.fd = -1};
        struct iovec iov = {.iov_base = handle.bytes, .iov_len = sizeof(handle.bytes)};
        union fd_message u = {0};
        struct msghdr m = {.msg_iov = &iov,
                .msg_iovlen = 1,
                .msg_control = u.buf,
                .msg_controllen = sizeof(u.buf)};

        CHECK(recvmsg(fd, &m, MSG_CMSG_CLOEXEC | MSG_WAITALL) == (ssize_t)sizeof(handle.bytes));
        if (CMSG_FIRSTHDR(&m))
                memcpy(&handle.fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
        return handle;
}

struct device *open_gpu(enum device_side side, enum device_transport transport)
{
        struct device_options options = {.side = side, .transport = transport};
        char why[DEVICE_WHY_BYTES];
        struct device *d = NULL;

        OK(device_open("", &options, &d, why));
        CHECK(strcmp(why, "") == 0);
        CHECK(d->props.transport == transport);
        return d;
}

struct extent *create(struct device *d, uint64_t bytes)
{
        struct extent *e = NULL;

        OK(d->ops->extent_create(d, bytes, &e));
        CHECK(e->bytes == bytes && e->device == d);
        return e;
}

struct extent_handle export(struct extent *e)
{
        struct extent_handle handle;

        OK(e->device->ops->extent_export(e, &handle));
        CHECK((handle.fd >= 0) == (e->device->props.transport == TRANSPORT_VMM));
        return handle;
}

struct device_arena *reserve(struct device *d, uint64_t bytes)
{
        struct device_arena *a = NULL;

        OK(d->ops->arena_reserve(d, bytes, 0, &a));
        CHECK(a->device == d && a->bytes == bytes);
        return a;
}

struct extent *import(struct device_arena *a, uint64_t offset, struct extent_handle handle)
{
        struct device *d = a->device;
        struct extent *e = NULL;

        OK(d->ops->extent_import(d, &handle, 2 * STEP, &e));
        CHECK(handle.fd == -1);
        OK(d->ops->arena_map(a, offset, e, DEVICE_READ_WRITE));
        return e;
}

void unimport(struct device_arena *a, uint64_t offset, struct extent *e)
{
        OK(a->device->ops->arena_unmap(a, offset, e));
        a->device->ops->extent_destroy(e, false);
}

void fill(struct extent *e, uint8_t value)
{
        uint8_t *bytes = malloc(e->bytes);

        CHECK(bytes);
        memset(bytes, value, e->bytes);
        OK(e->device->ops->extent_write(e, 0, bytes, e->bytes));
        free(bytes);
}

bool holds(struct extent *e, uint64_t offset, uint64_t len, uint8_t value)
{
        uint8_t *bytes = malloc(len);
        bool all = true;

        CHECK(bytes);
        memset(bytes, (uint8_t)~value, len);
        OK(e->device->ops->extent_read(e, offset, bytes, len));
        for (uint64_t i = 0; i < len; i++)
                all &= bytes[i] == value;
        free(bytes);
        return all;
}

int batch_wait(struct device *d, struct device_batch *b)
{
        int r;

        while ((r = d->ops->batch_poll(b)) == -EBUSY)
                nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        return r;
}
