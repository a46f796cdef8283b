/* Output that a peer hasn't taken: nothing lost, nothing twice, descriptors with the first byte. */
#include "tests/unit/test-support.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/server/base/outqueue.h"
#include "proto/frame.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/fd-count.h"

#define LEN 3000

struct pipe {
        int ours, theirs;
        struct outqueue q;
};

static void pipe_open(struct pipe *p)
{
        int fds[2], small = 1; /* the kernel makes the smallest buffer it allows of it */

        assert_int_equal(
                socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
        p->ours = fds[0];
        p->theirs = fds[1];
        assert_int_equal(setsockopt(p->ours, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
        outqueue_init(&p->q);
}

static void pipe_close(struct pipe *p)
{
        outqueue_clear(&p->q);
        assert_int_equal(p->q.bytes, 0);
        fd_close(p->ours);
        fd_close(p->theirs);
}

#define SCENE(fn, ...) TEST_ON(fn, struct pipe, p, pipe_open, pipe_close, ##__VA_ARGS__)

/* Frame number i: every byte tells where it belongs. */
static void fill(uint8_t *buf, unsigned i)
{
        for (unsigned k = 0; k < LEN; k++)
                buf[k] = (uint8_t)(i * 31 + k * 7 + k / 256);
}

static int send_frame(struct pipe *p, unsigned i, int *fds, unsigned n_fds)
{
        uint8_t frame[LEN];

        fill(frame, i);
        return outqueue_send(&p->q, p->ours, frame, LEN, fds, n_fds);
}

static int open_null(void)
{
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

        assert_true(fd >= 0);
        return fd;
}

/* Receives what is there; n bytes at most. Notes at which offset descriptors came. */
static size_t take(struct pipe *p, uint8_t *buf, size_t n, unsigned *ret_fds)
{
        union {
                char bytes[CMSG_SPACE(FRAME_MAX_FDS * sizeof(int))];
                struct cmsghdr align;
        } control;
        struct iovec iov = {buf, n};
        struct msghdr msg = {.msg_iov = &iov,
                .msg_iovlen = 1,
                .msg_control = &control,
                .msg_controllen = sizeof(control)};
        ssize_t got = recvmsg(p->theirs, &msg, MSG_CMSG_CLOEXEC);
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

        *ret_fds = 0;
        if (got < 0)
                return 0;
        if (c) {
                int fds[FRAME_MAX_FDS];

                *ret_fds = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
                memcpy(fds, CMSG_DATA(c), *ret_fds * sizeof(int));
                for (unsigned i = 0; i < *ret_fds; i++)
                        fd_close(fds[i]);
        }
        return (size_t)got;
}

/*
 * Frames until the socket is full and long beyond; every third has two descriptors. The reader
 * takes odd amounts. Everything comes, in order, descriptors with the first byte of their frame.
 */
TEST(test_in_order)
{
        enum { N = 60 };
        static uint8_t all[N * LEN], expected[LEN];
        size_t got = 0, n;
        unsigned n_fds, n_stuck = 0, fds_seen = 0;
        struct pipe p;

        pipe_open(&p);
        for (unsigned i = 0; i < N; i++) {
                int fds[2] = {-1, -1};
                bool with = i % 3 == 0;

                if (with)
                        fds[0] = open_null(), fds[1] = open_null();
                assert_int_equal(send_frame(&p, i, fds, with ? 2 : 0), 0);
        }
        assert_false(outqueue_is_empty(&p.q));
        while (got < sizeof(all) && n_stuck < 2) {
                n = take(&p, all + got, MIN((size_t)1111, sizeof(all) - got), &n_fds);
                if (n_fds) {
                        /* Descriptors end what one recvmsg() merges: they came with byte `got`. */
                        assert_int_equal(n_fds, 2);
                        assert_true(
                                (got + n) / (3 * LEN) * (3 * LEN) >= got || got % (3 * LEN) == 0);
                        fds_seen++;
                }
                got += n;
                n_stuck = n ? 0 : n_stuck + 1;
                assert_int_equal(outqueue_flush(&p.q, p.ours, 0), 0);
        }
        assert_int_equal(got, sizeof(all));
        assert_int_equal(fds_seen, N / 3);
        assert_true(outqueue_is_empty(&p.q));
        for (unsigned i = 0; i < N; i++) {
                fill(expected, i);
                assert_memory_equal(all + i * LEN, expected, LEN);
        }
        pipe_close(&p);
}

#define SMALL 100 /* several fit the smallest buffer */

/* Frames that wait for a ticket are sent with it, and block later ones. */
SCENE(test_tickets)
{
        static uint8_t buf[4 * SMALL];
        uint8_t frame[LEN];
        int fd = open_null();
        unsigned n_fds;

        assert_true(outqueue_is_held(&p->q, UINT64_MAX));
        fill(frame, 0);
        assert_int_equal(outqueue_hold(&p->q, 7, frame, SMALL, &fd, 1), 0);
        assert_int_equal(outqueue_unread_fds(&p->q, p->ours), 1);
        fill(frame, 1);
        assert_int_equal(outqueue_send(&p->q, p->ours, frame, SMALL, NULL, 0),
                0); /* said after it passed, seen before */
        fill(frame, 2);
        assert_int_equal(outqueue_hold(&p->q, 9, frame, SMALL, NULL, 0), 0);
        assert_true(outqueue_is_held(&p->q, 6));
        assert_int_equal(outqueue_flush(&p->q, p->ours, 6), 0);
        assert_int_equal(take(p, buf, sizeof(buf), &n_fds), 0);
        assert_false(outqueue_is_held(&p->q, 7));
        assert_int_equal(outqueue_flush(&p->q, p->ours, 8), 0);
        assert_int_equal(take(p, buf, sizeof(buf), &n_fds), SMALL); /* descriptors end it */
        assert_int_equal(n_fds, 1);
        assert_int_equal(take(p, buf + SMALL, SMALL, &n_fds), SMALL);
        fill(frame, 0);
        assert_memory_equal(buf, frame, SMALL);
        fill(frame, 1);
        assert_memory_equal(buf + SMALL, frame, SMALL);
        assert_true(outqueue_is_held(&p->q, 8));
        assert_int_equal(outqueue_flush(&p->q, p->ours, UINT64_MAX), 0);
        assert_int_equal(take(p, buf, sizeof(buf), &n_fds), SMALL);
        assert_true(outqueue_is_empty(&p->q));
}

TEST(test_out_of_memory)
{
        unsigned n_failed = 0;

        alloc_fail_each(n)
        {
                struct pipe p;
                int r = 0;

                pipe_open(&p);
                for (unsigned i = 0; i < 5 && r == 0; i++) {
                        int fd = open_null();

                        r = send_frame(&p, i, &fd, 1);
                }
                assert_true(r == 0 || r == -ENOMEM);
                n_failed += r == -ENOMEM;
                pipe_close(&p);
        }
        assert_true(n_failed >= 1);
}
