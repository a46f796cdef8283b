#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/fakecuda-process.h"
#include "tests/unit/child.h"
#include "tests/unit/test-support.h"

void child_fails(const char *file, int line, const char *what)
{
        fprintf(stderr, "%s:%d: %s\n", file, line, what);
        _exit(1);
}

void child_expects(const char *file, int line, const char *what, int got, int want)
{
        if (got == want)
                return;
        fprintf(stderr, "%s:%d: %s: %d instead of %d\n", file, line, what, got, want);
        _exit(1);
}

/* The status of fn in a process of its own; what it said. */
static int run_process(child_fn fn, char *said, size_t size)
{
        const char *dir = test_dir_make();
        int to_us[2], status;
        size_t len = 0;
        ssize_t n;
        pid_t pid;

        assert_int_equal(pipe(to_us), 0);
        fflush(NULL);
        pid = child_fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                setrlimit(RLIMIT_CORE, &(struct rlimit){0});
                dup2(to_us[1], STDERR_FILENO);
                close(to_us[0]);
                close(to_us[1]);
                setenv("FAKECUDA_DIR", dir, 1);
                alarm(50);
                signal(SIGABRT, SIG_DFL);
                fn();
                exit(0);
        }
        close(to_us[1]);
        while ((n = read(to_us[0], said + len, size - 1 - len)) > 0)
                len += (size_t)n;
        said[len] = '\0';
        close(to_us[0]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        test_dir_remove(dir);
        return status;
}

void expect_clean(child_fn fn)
{
        char said[4096];
        int status = run_process(fn, said, sizeof(said));

        assert_string_equal(said, "");
        assert_int_equal(status, 0);
}

void expect_abort(child_fn fn, const char *line)
{
        char said[4096], want[512];
        int status = run_process(fn, said, sizeof(said));

        snprintf(want, sizeof(want), "fakecuda: %s", line);
        if (strncmp(said, want, strlen(want)) != 0)
                fail_msg("\"%s\" instead of \"%s\"", said, want);
        assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGABRT);
}

struct peer peer_start(void (*fn)(int fd))
{
        struct peer p;
        int pair[2];

        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
        p.pid = child_fork();
        CHECK(p.pid >= 0);
        if (p.pid == 0) {
                close(pair[0]);
                alarm(50);
                fn(pair[1]);
                exit(0);
        }
        close(pair[1]);
        p.fd = pair[0];
        return p;
}

void peer_join(struct peer *p)
{
        int status;

        CHECK(waitpid(p->pid, &status, 0) == p->pid);
        CHECK(status == 0);
        close(p->fd);
}

void peer_kill(struct peer *p)
{
        int status;

        CHECK(kill(p->pid, SIGKILL) == 0);
        CHECK(waitpid(p->pid, &status, 0) == p->pid);
        close(p->fd);
}

void say(int fd)
{
        CHECK(write(fd, "x", 1) == 1);
}

void hear(int fd)
{
        char c;

        CHECK(read(fd, &c, 1) == 1);
}

void send_bytes(int fd, const void *data, size_t len)
{
        CHECK(write(fd, data, len) == (ssize_t)len);
}

void receive_bytes(int fd, void *data, size_t len)
{
        CHECK(recv(fd, data, len, MSG_WAITALL) == (ssize_t)len);
}

union control {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
};

void send_fd(int fd, int sent)
{
        union control control = {0};
        struct iovec iov = {.iov_base = (char[]){'f'}, .iov_len = 1};
        struct msghdr msg = {.msg_iov = &iov,
                .msg_iovlen = 1,
                .msg_control = control.bytes,
                .msg_controllen = sizeof(control.bytes)};
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &sent, sizeof(int));
        CHECK(sendmsg(fd, &msg, 0) == 1);
}

int receive_fd(int fd)
{
        union control control = {0};
        char byte;
        struct iovec iov = {.iov_base = &byte, .iov_len = 1};
        struct msghdr msg = {.msg_iov = &iov,
                .msg_iovlen = 1,
                .msg_control = control.bytes,
                .msg_controllen = sizeof(control.bytes)};
        int received = -1;

        CHECK(recvmsg(fd, &msg, MSG_CMSG_CLOEXEC) == 1);
        CHECK(CMSG_FIRSTHDR(&msg));
        memcpy(&received, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int));
        return received;
}

cu_context begin(void)
{
        cu_context context;

        OK(cuInit(0));
        OK(cuDevicePrimaryCtxRetain(&context, 0));
        OK(cuCtxPushCurrent_v2(context));
        return context;
}

void end(void)
{
        OK(cuCtxPopCurrent_v2(NULL));
        OK(cuDevicePrimaryCtxRelease_v2(0));
}

cu_mem_allocation_prop prop_of(int ordinal)
{
        return (cu_mem_allocation_prop){.type = CU_ALLOC_PINNED,
                .requested_handle_type = CU_HANDLE_POSIX_FD,
                .location = {CU_LOCATION_DEVICE, ordinal}};
}

cu_mem_handle create(void)
{
        cu_mem_allocation_prop prop = prop_of(0);
        cu_mem_handle handle;

        OK(cuMemCreate(&handle, EXTENT, &prop, 0));
        return handle;
}

void set_access(cu_deviceptr at, int flags)
{
        cu_mem_access_desc desc = {.location = {CU_LOCATION_DEVICE, 0}, .flags = flags};

        OK(cuMemSetAccess(at, EXTENT, &desc, 1));
}

cu_deviceptr map(cu_mem_handle handle)
{
        cu_deviceptr at;

        OK(cuMemAddressReserve(&at, EXTENT, 0, 0, 0));
        OK(cuMemMap(at, EXTENT, 0, handle, 0));
        set_access(at, CU_ACCESS_READ_WRITE);
        return at;
}

void unmap(cu_deviceptr at)
{
        OK(cuMemUnmap(at, EXTENT));
        OK(cuMemAddressFree(at, EXTENT));
}

void fill(cu_deviceptr at, uint8_t value)
{
        OK(cuMemsetD8Async(at, value, EXTENT, NULL));
        OK(cuStreamSynchronize(NULL));
}

bool holds(cu_deviceptr at, size_t bytes, uint8_t value)
{
        uint8_t *copy = malloc(bytes);
        bool same = true;

        CHECK(copy);
        OK(cuMemcpyDtoHAsync_v2(copy, at, bytes, NULL));
        OK(cuStreamSynchronize(NULL));
        for (size_t i = 0; i < bytes; i++)
                same &= copy[i] == value;
        free(copy);
        return same;
}
