#include "tests/unit/keep-parent.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "tests/unit/child.h"

struct message {
        enum keep_kind kind;
        uint32_t number;
        bool is_add;
};

static struct keep_entry *find(struct keep_parent *k, enum keep_kind kind, uint32_t number)
{
        for (unsigned i = 0; i < KEEP_PARENT_MAX; i++)
                if (k->entries[i].fd >= 0 && k->entries[i].kind == kind &&
                        k->entries[i].number == number)
                        return &k->entries[i];
        return NULL;
}

static void note_drop(struct keep_parent *k, enum keep_kind kind, uint32_t number)
{
        struct keep_entry *e = find(k, kind, number);

        if (e)
                e->fd = fd_close(e->fd);
}

/* Takes the fd. */
static int note_add(struct keep_parent *k, enum keep_kind kind, uint32_t number, int fd)
{
        note_drop(k, kind, number);
        for (unsigned i = 0; i < KEEP_PARENT_MAX; i++)
                if (k->entries[i].fd < 0) {
                        k->entries[i] =
                                (struct keep_entry){.kind = kind, .number = number, .fd = fd};
                        return 0;
                }
        fd_close(fd);
        return -EMFILE;
}

/* ---- the child's ---- */

static void tell(struct keep_parent *k, const struct message *m, int fd)
{
        union {
                struct cmsghdr header;
                char bytes[CMSG_SPACE(sizeof(int))];
        } control = {0};
        struct iovec iov = {(void *)(uintptr_t)m, sizeof(*m)};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
        struct cmsghdr *c;

        if (k->fd < 0)
                return;
        if (fd >= 0) {
                msg.msg_control = control.bytes;
                msg.msg_controllen = sizeof(control.bytes);
                c = CMSG_FIRSTHDR(&msg);
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(sizeof(int));
                memcpy(CMSG_DATA(c), &fd, sizeof(fd));
        }
        if (sendmsg(k->fd, &msg, MSG_NOSIGNAL) != (ssize_t)sizeof(*m))
                abort();
}

static int op_add(void *data, enum keep_kind kind, uint32_t number, int fd, struct detail *d)
{
        struct keep_parent *k = data;
        int copy;

        (void)d;
        assert(!find(k, kind, number)); /* a name stands for one, as in keeper.c */
        copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (copy < 0)
                return -errno;
        tell(k, &(struct message){kind, number, true}, fd);
        return note_add(k, kind, number, copy);
}

static void op_drop(void *data, enum keep_kind kind, uint32_t number)
{
        struct keep_parent *k = data;

        tell(k, &(struct message){kind, number, false}, -1);
        note_drop(k, kind, number);
}

static int op_take(void *data, enum keep_kind kind, uint32_t number)
{
        struct keep_entry *e = find(data, kind, number);

        if (!e || !e->is_left)
                return -ENOENT;
        e->is_left = false;
        return fcntl(e->fd, F_DUPFD_CLOEXEC, 0);
}

static uint32_t op_list(void *data, enum keep_kind kind, uint32_t *ret_numbers, uint32_t max)
{
        const struct keep_parent *k = data;
        uint32_t n = 0;

        for (unsigned i = 0; i < KEEP_PARENT_MAX; i++)
                if (k->entries[i].fd >= 0 && k->entries[i].kind == kind && k->entries[i].is_left) {
                        if (n < max)
                                ret_numbers[n] = k->entries[i].number;
                        n++;
                }
        return n;
}

const struct keep_ops keep_parent_ops = {
        .add = op_add, .drop = op_drop, .take = op_take, .list = op_list};

/* ---- the parent's ---- */

void keep_parent_init(struct keep_parent *k)
{
        *k = (struct keep_parent){.fd = -1};
        for (unsigned i = 0; i < KEEP_PARENT_MAX; i++)
                k->entries[i].fd = -1;
}

void keep_parent_deinit(struct keep_parent *k)
{
        for (unsigned i = 0; i < KEEP_PARENT_MAX; i++)
                k->entries[i].fd = fd_close(k->entries[i].fd);
}

void keep_parent_begin(struct keep_parent *k)
{
        for (unsigned i = 0; i < KEEP_PARENT_MAX; i++)
                k->entries[i].is_left = k->entries[i].fd >= 0;
}

int keep_parent_find(const struct keep_parent *k, enum keep_kind kind, uint32_t number)
{
        const struct keep_entry *e = find((struct keep_parent *)(uintptr_t)k, kind, number);

        return e ? e->fd : -1;
}

unsigned keep_parent_count(const struct keep_parent *k, enum keep_kind kind)
{
        unsigned n = 0;

        for (unsigned i = 0; i < KEEP_PARENT_MAX; i++)
                n += k->entries[i].fd >= 0 && k->entries[i].kind == kind;
        return n;
}

/* False: the child is dead and everything it said was heard. */
static bool hear(struct keep_parent *k, int fd)
{
        union {
                struct cmsghdr header;
                char bytes[CMSG_SPACE(sizeof(int))];
        } control;
        struct message m;
        struct iovec iov = {&m, sizeof(m)};
        struct msghdr msg = {.msg_iov = &iov,
                .msg_iovlen = 1,
                .msg_control = control.bytes,
                .msg_controllen = sizeof(control.bytes)};
        ssize_t n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
        int got;

        if (n <= 0)
                return false;
        assert(n == (ssize_t)sizeof(m));
        if (!m.is_add) {
                note_drop(k, m.kind, m.number);
                return true;
        }
        assert(CMSG_FIRSTHDR(&msg));
        memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(got));
        if (note_add(k, m.kind, m.number, got) < 0)
                abort();
        return true;
}

int keep_parent_run(struct keep_parent *k, int (*fn)(struct keep_parent *k, void *data), void *data,
        uint64_t kill_after_usec)
{
        uint64_t until = clock_now_nsec() + kill_after_usec * 1000;
        int sockets[2], status;
        struct pollfd p;
        pid_t pid;

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
                abort();
        pid = child_fork();
        if (pid < 0)
                abort();
        if (pid == 0) {
                fd_close(sockets[0]);
                k->fd = sockets[1];
                keep_parent_begin(k);
                _exit(fn(k, data));
        }
        fd_close(sockets[1]);
        p = (struct pollfd){.fd = sockets[0], .events = POLLIN};
        for (bool more = true; more;) {
                uint64_t now = clock_now_nsec();
                struct timespec left = {0, now < until ? (long)(until - now) : 0};

                if (kill_after_usec == 0 || now >= until) {
                        if (kill_after_usec > 0)
                                kill(pid, SIGKILL);
                        more = hear(k, sockets[0]);
                } else if (ppoll(&p, 1, &left, NULL) > 0) {
                        more = hear(k, sockets[0]);
                }
        }
        fd_close(sockets[0]);
        if (waitpid(pid, &status, 0) != pid)
                abort();
        return status;
}
