/*
 * Unrequested descriptors, on both ways of receiving. A pipe shows whether the receiver closed one:
 * its only writing end is sent, and while a process has that, the reading end isn't at its end.
 */
#include "tests/unit/test-support.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/server/base/inbound.h"
#include "proto/sock.h"
#include "tests/unit/fd-count.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* kernel (asm-generic/socket.h), since 6.16 */
#endif

#define MANY 40 /* descriptors: more than a frame may have */

static struct frame_parser parser;

struct line {
        int ours, peers; /* ends of a connection */
        struct inbound in;
};

static void open_line(struct line *l)
{
        int pair[2];

        assert_int_equal(
                socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
        *l = (struct line){.ours = pair[0], .peers = pair[1]};
        frame_parser_init(&parser);
        assert_int_equal(inbound_init(&l->in, l->ours), 0);
        assert_true(l->in.careful);
        assert_false(l->in.tainted);
}

static void close_line(struct line *l)
{
        l->ours = fd_close(l->ours);
        l->peers = fd_close(l->peers);
        frame_parser_deinit(&parser);
}

#define SCENE(fn, ...) TEST_ON(fn, struct line, l, open_line, close_line, ##__VA_ARGS__)

/* `len` bytes with `n` copies of a descriptor. 0 or -errno. */
static int send_fds(int socket, size_t len, int fd, unsigned n, int flags)
{
        static const char zeros[1 << 16];
        union {
                char bytes[CMSG_SPACE(MANY * sizeof(int))];
                struct cmsghdr align;
        } control = {0};
        struct iovec iov = {(void *)zeros, len};
        struct msghdr msg = {.msg_iov = &iov,
                .msg_iovlen = 1,
                .msg_control = &control,
                .msg_controllen = CMSG_SPACE(n * sizeof(int))};
        struct cmsghdr *c = &control.align;
        int fds[MANY];

        assert_true(n <= MANY && len <= sizeof(zeros));
        for (unsigned i = 0; i < n; i++)
                fds[i] = fd;
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n * sizeof(int));
        memcpy(CMSG_DATA(c), fds, n * sizeof(int));
        if (sendmsg(socket, &msg, MSG_NOSIGNAL | flags) < 0)
                return -errno;
        return 0;
}

/* Sends the only end for writing of a pipe; returns the other. */
static int send_probe(int socket, size_t len, unsigned n, int flags)
{
        int ends[2];

        assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
        assert_int_equal(send_fds(socket, len, ends[1], n, flags), 0);
        fd_close(ends[1]);
        return ends[0];
}

/* True if a process still has the writing end. */
static bool probe_is_held(int probe)
{
        char byte;

        return read(probe, &byte, 1) < 0 && errno == EAGAIN;
}

static ssize_t receive(struct line *l)
{
        return inbound_receive(&l->in, l->ours, &parser, NULL);
}

static void send_bytes(struct line *l, size_t len)
{
        static const char zeros[1 << 16];

        assert_int_equal(send(l->peers, zeros, len, MSG_NOSIGNAL), len);
}

/* Tainted, for good; what was sent is dropped when the socket is closed, and not before. */
static void expect_tainted(struct line *l, int probe)
{
        int before = fd_count_open();

        assert_int_equal(receive(l), -EPROTO);
        assert_true(l->in.tainted);
        assert_int_equal(receive(l), -EPROTO);
        assert_false(inbound_finish(&l->in, l->ours));
        assert_int_equal(fd_count_open(), before);
        assert_true(probe_is_held(probe));
        l->ours = fd_close(l->ours);
        assert_false(probe_is_held(probe));
        fd_close(probe);
}

TEST(test_descriptors)
{
        static const struct {
                size_t before; /* bytes sent and received */
                size_t len;
                unsigned n;
                int flags;
        } cases[] = {
                {0, 10, 1, 0},
                {0, 1, MANY, 0},
                {40, 10, 1, 0},
                {0, 1, 1, MSG_OOB},
                {30, 1, MANY, MSG_OOB},
        };

        for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
                struct line l;
                int probe;

                open_line(&l);
                if (cases[i].before > 0) {
                        send_bytes(&l, cases[i].before);
                        assert_int_equal(receive(&l), cases[i].before);
                }
                probe = send_probe(l.peers, cases[i].len, cases[i].n, cases[i].flags);
                send_bytes(&l, 20);
                expect_tainted(&l, probe);
                close_line(&l);
        }
}

SCENE(test_credentials)
{
        struct sock_creds creds;
        int probe;

        send_bytes(l, 10);
        assert_int_equal(inbound_receive(&l->in, l->ours, &parser, &creds), 10);
        assert_false(creds.present);
        assert_int_equal(inbound_pass_creds(&l->in, l->ours, true), 0);
        send_bytes(l, 14);
        assert_int_equal(inbound_receive(&l->in, l->ours, &parser, &creds), 14);
        assert_true(creds.present);
        assert_int_equal(creds.pid, getpid());
        assert_int_equal(creds.uid, getuid());
        assert_int_equal(creds.gid, getgid());
        assert_int_equal(inbound_pass_creds(&l->in, l->ours, false), 0);
        send_bytes(l, 10);
        assert_int_equal(inbound_receive(&l->in, l->ours, &parser, &creds), 10);
        assert_false(creds.present);
        assert_int_equal(inbound_pass_creds(&l->in, l->ours, true), 0);
        probe = send_probe(l->peers, 1, 1, 0);
        expect_tainted(l, probe);
}

/* Descriptors in the queue of a connection that ends. */
SCENE(test_finish)
{
        int probe;

        send_bytes(l, 1 << 16);
        send_bytes(l, 1 << 16);
        assert_true(inbound_finish(&l->in, l->ours));
        assert_int_equal(send(l->peers, "x", 1, MSG_NOSIGNAL), -1);
        assert_int_equal(send_fds(l->peers, 1, STDERR_FILENO, 1, 0), -EPIPE);
        close_line(l);

        open_line(l);
        send_bytes(l, 1 << 16);
        send_bytes(l, 1 << 16);
        probe = send_probe(l->peers, 1, 1, 0);
        assert_false(inbound_finish(&l->in, l->ours));
        assert_true(l->in.tainted);
        assert_true(probe_is_held(probe));
        l->ours = fd_close(l->ours);
        assert_false(probe_is_held(probe));
        fd_close(probe);
}

/* One that sent as many bytes as it can, each by itself. */
SCENE(test_finish_small_pieces)
{
        while (send(l->peers, "x", 1, MSG_NOSIGNAL) == 1)
                ;
        assert_true(inbound_finish(&l->in, l->ours));
}

/* The peer went without reading what it was sent: that is told once, with nothing behind it. */
SCENE(test_finish_reset)
{
        assert_int_equal(send(l->ours, "x", 1, MSG_NOSIGNAL), 1);
        l->peers = fd_close(l->peers);
        assert_true(inbound_finish(&l->in, l->ours));
}

/* Bytes, then a descriptor, that come while the receiver looks and receives. */
static void *send_both(void *data)
{
        int *args = data;

        for (unsigned i = 0; i < 20; i++)
                send(args[0], "x", 1, MSG_NOSIGNAL);
        send_fds(args[0], 1, args[1], 1, 0);
        return NULL;
}

TEST(test_race)
{
        for (unsigned i = 0; i < 200; i++) {
                struct line l;
                int ends[2], args[2];
                pthread_t thread;

                open_line(&l);
                assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
                args[0] = l.peers;
                args[1] = ends[1];
                assert_int_equal(pthread_create(&thread, NULL, send_both, args), 0);
                while (receive(&l) != -EPROTO)
                        ;
                pthread_join(thread, NULL);
                fd_close(ends[1]);
                assert_true(probe_is_held(ends[0]));
                fd_close(ends[0]);
                close_line(&l);
        }
}

/* ---- where the kernel refuses them ---- */

static bool kernel_refuses(int fd)
{
        int value;
        socklen_t len = sizeof(value);

        return getsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &value, &len) == 0;
}

/* Connections from before and after inbound_listen(). */
TEST(test_listen)
{
        const char *dir = test_dir_make();
        _cleanup_free_ char *path = test_path(dir, "sock");
        int server = sock_listen(path, 0600), early, late, fds[2], on = 1;
        struct inbound in[2];

        assert_true(server >= 0);
        /* A .socket unit can set this option. */
        assert_int_equal(setsockopt(server, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
        early = sock_connect(path);
        assert_int_equal(inbound_listen(server), 0);
        late = sock_connect(path);
        for (unsigned i = 0; i < 2; i++) {
                fds[i] = accept4(server, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
                assert_true(fds[i] >= 0);
                assert_int_equal(inbound_init(&in[i], fds[i]), 0);
        }
        assert_true(in[0].careful);
        assert_int_equal(in[1].careful, !kernel_refuses(server));
        if (kernel_refuses(server)) {
                assert_int_equal(send_fds(late, 10, STDERR_FILENO, 1, 0), -EPERM);
                assert_int_equal(send_fds(late, 1, STDERR_FILENO, 1, MSG_OOB), -EPERM);
        }
        frame_parser_init(&parser);
        assert_int_equal(send(late, "hello", 5, 0), 5);
        assert_int_equal(inbound_receive(&in[1], fds[1], &parser, NULL), 5);
        assert_int_equal(send_fds(early, 10, STDERR_FILENO, 1, 0), 0);
        assert_int_equal(inbound_receive(&in[0], fds[0], &parser, NULL), -EPROTO);
        assert_true(inbound_finish(&in[1], fds[1]));
        for (unsigned i = 0; i < 2; i++)
                fd_close(fds[i]);
        fd_close(early);
        fd_close(late);
        fd_close(server);
        test_dir_remove(dir);
}
