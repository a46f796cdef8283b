#include "tests/unit/fake-keep.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/state/state-root.h"
#include "tests/unit/child.h"
#include "tests/unit/test-support.h"

struct order {
        enum keep_kind kind;
        uint32_t number;
        bool is_drop;
};

static struct fake_kept *find(const struct fake_keep *k, enum keep_kind kind, uint32_t number)
{
        for (uint32_t i = 0; i < k->n; i++)
                if (k->kept[i].kind == kind && k->kept[i].number == number)
                        return (struct fake_kept *)&k->kept[i];
        return NULL;
}

/* ---- at the other end ----------------------------------------------------------------------- */

static void send_order(int socket, const struct order *o, int fd)
{
        char control[CMSG_SPACE(sizeof(int))] = {0};
        struct iovec data = {.iov_base = (void *)o, .iov_len = sizeof(*o)};
        struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1};

        if (fd >= 0) {
                struct cmsghdr *c;

                m.msg_control = control;
                m.msg_controllen = sizeof(control);
                c = CMSG_FIRSTHDR(&m);
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(sizeof(int));
                memcpy(CMSG_DATA(c), &fd, sizeof(int));
        }
        if (sendmsg(socket, &m, 0) != sizeof(*o))
                abort();
}

static bool receive_order(int socket, struct order *ret_order, int *ret_fd)
{
        char control[CMSG_SPACE(sizeof(int))];
        struct iovec data = {.iov_base = ret_order, .iov_len = sizeof(*ret_order)};
        struct msghdr m = {.msg_iov = &data,
                .msg_iovlen = 1,
                .msg_control = control,
                .msg_controllen = sizeof(control)};
        ssize_t n = recvmsg(socket, &m, MSG_CMSG_CLOEXEC);
        struct cmsghdr *c;

        if (n <= 0)
                return false;
        assert_int_equal(n, sizeof(*ret_order));
        c = CMSG_FIRSTHDR(&m);
        *ret_fd = -1;
        if (c)
                memcpy(ret_fd, CMSG_DATA(c), sizeof(int));
        return true;
}

/* ---- struct keep_ops ------------------------------------------------------------------------ */

static int put(struct fake_keep *k, enum keep_kind kind, uint32_t number, int fd)
{
        if (k->n >= k->room)
                return -EMFILE;
        k->kept[k->n++] = (struct fake_kept){kind, number, fd, false};
        return 0;
}

static int add(void *data, enum keep_kind kind, uint32_t number, int fd, struct detail *d)
{
        struct fake_keep *k = data;
        int copy;

        if (k->n >= k->room)
                return detail_set(d, -EMFILE, "there is no room for more descriptors");
        if (find(k, kind, number))
                abort(); /* a name stands for one */
        copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (copy < 0)
                return -errno;
        if (k->sends_to >= 0)
                send_order(k->sends_to, &(struct order){kind, number, false}, fd);
        return put(k, kind, number, copy);
}

static void drop(void *data, enum keep_kind kind, uint32_t number)
{
        struct fake_keep *k = data;
        struct fake_kept *kept = find(k, kind, number);

        if (!kept)
                return;
        if (k->sends_to >= 0)
                send_order(k->sends_to, &(struct order){kind, number, true}, -1);
        fd_close(kept->fd);
        *kept = k->kept[--k->n];
}

static int take(void *data, enum keep_kind kind, uint32_t number)
{
        struct fake_kept *kept = find(data, kind, number);

        if (!kept || !kept->is_old)
                return -ENOENT;
        kept->is_old = false;
        return fcntl(kept->fd, F_DUPFD_CLOEXEC, 0);
}

static uint32_t list(void *data, enum keep_kind kind, uint32_t *ret_numbers, uint32_t max)
{
        const struct fake_keep *k = data;
        uint32_t n = 0;

        for (uint32_t i = 0; i < k->n; i++) {
                if (k->kept[i].kind != kind || !k->kept[i].is_old)
                        continue;
                if (n < max)
                        ret_numbers[n] = k->kept[i].number;
                n++;
        }
        return n;
}

static const struct keep_ops ops = {.add = add, .drop = drop, .take = take, .list = list};

void fake_keep_init(struct fake_keep *k)
{
        k->n = 0;
        k->room = FAKE_KEEP_MAX;
        k->sends_to = -1;
        k->keep = (struct keep){.ops = &ops, .data = k};
}

void fake_keep_deinit(struct fake_keep *k)
{
        while (k->n > 0)
                fd_close(k->kept[--k->n].fd);
}

void fake_keep_restart(struct fake_keep *k)
{
        for (uint32_t i = 0; i < k->n; i++)
                k->kept[i].is_old = true;
}

void fake_keep_leave(struct fake_keep *k, enum keep_kind kind, uint32_t number, int fd)
{
        assert_int_equal(put(k, kind, number, fd), 0);
        k->kept[k->n - 1].is_old = true;
}

uint32_t fake_keep_count(const struct fake_keep *k, enum keep_kind kind)
{
        uint32_t n = 0;

        for (uint32_t i = 0; i < k->n; i++)
                n += k->kept[i].kind == kind;
        return n;
}

int fake_keep_find(const struct fake_keep *k, enum keep_kind kind, uint32_t number)
{
        const struct fake_kept *kept = find(k, kind, number);

        return kept ? kept->fd : -1;
}

/* ---- a child that is killed ----------------------------------------------------------------- */

static void receive_all(struct fake_keep *k, int socket)
{
        struct order o;
        int fd;

        while (receive_order(socket, &o, &fd)) {
                if (o.is_drop)
                        drop(k, o.kind, o.number);
                else
                        assert_int_equal(put(k, o.kind, o.number, fd), 0);
        }
}

void fake_keep_set_unsure(const struct fake_keep *k)
{
        const uint64_t yes = 1;

        assert_int_equal(pwrite(fake_keep_find(k, KEEP_STATE, 0), &yes, sizeof(yes),
                                 offsetof(struct state_root, is_unsure)),
                sizeof(yes));
}

int fake_keep_fork(struct fake_keep *k, const char *point, unsigned pass,
        void (*fn)(struct fake_keep *k, void *data), void *data)
{
        int sockets[2], status;
        char text[16];
        pid_t pid;

        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
        pid = child_fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                snprintf(text, sizeof(text), "%u", pass);
                if (point) {
                        setenv("KVL_FAULT_POINT", point, 1);
                        setenv("KVL_FAULT_PASS", text, 1);
                }
                setenv("CMOCKA_TEST_ABORT", "1", 1); /* else the child would go on with the tests */
                fd_close(sockets[0]);
                k->sends_to = sockets[1];
                fn(k, data);
                _exit(0);
        }
        fd_close(sockets[1]);
        receive_all(k, sockets[0]);
        fd_close(sockets[0]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        fake_keep_restart(k);
        return status;
}
