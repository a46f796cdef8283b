#include "tests/unit/test-support.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "proto/msg.h"
#include "proto/sock.h"

static struct frame_parser parser;

static void make_pair(int pair[2])
{
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        frame_parser_init(&parser);
}

static void end_pair(int pair[2])
{
        frame_parser_deinit(&parser);
        fd_close(pair[0]);
        fd_close(pair[1]);
}

static void make_header(uint8_t *buf, uint32_t length, uint16_t fd_count, uint64_t seq)
{
        frame_encode_header(
                &(struct frame_header){FRAME_MAGIC, 1, MSG_MAP, length, fd_count, 0, seq}, buf);
}

TEST(test_bytes_and_end)
{
        uint8_t buf[FRAME_HEADER_SIZE];
        struct frame f;
        int pair[2];

        make_pair(pair);
        assert_int_equal(sock_receive(pair[1], &parser), -EAGAIN);
        make_header(buf, 0, 0, 5);
        assert_int_equal(sock_send(pair[0], buf, sizeof(buf), NULL, 0), sizeof(buf));
        assert_int_equal(sock_receive(pair[1], &parser), sizeof(buf));
        assert_int_equal(frame_parser_next(&parser, &f, NULL), 1);
        assert_int_equal(f.header.seq, 5);
        fd_close(pair[0]);
        assert_int_equal(sock_receive(pair[1], &parser), 0);
        assert_int_equal(sock_send(pair[1], buf, 0, NULL, 0), -EINVAL);
        assert_int_equal(sock_send(pair[1], buf, 1, pair, FRAME_MAX_FDS + 1), -EINVAL);
        /* SIGPIPE would end the test. */
        assert_int_equal(sock_send(pair[1], buf, sizeof(buf), NULL, 0), -EPIPE);
        assert_int_equal(sock_send(pair[1], buf, sizeof(buf), pair + 1, 1), -EPIPE);
        pair[0] = -1;
        end_pair(pair);
}

TEST(test_fds_arrive)
{
        uint8_t buf[FRAME_HEADER_SIZE];
        int pair[2], fds[FRAME_MAX_FDS];
        struct stat sent, got;
        struct frame f;

        make_pair(pair);
        for (unsigned i = 0; i < FRAME_MAX_FDS; i++)
                fds[i] = memfd_create_sized("sent", 4096);
        make_header(buf, 0, FRAME_MAX_FDS, 1);
        assert_int_equal(sock_send(pair[0], buf, sizeof(buf), fds, FRAME_MAX_FDS), sizeof(buf));
        assert_int_equal(sock_receive(pair[1], &parser), sizeof(buf));
        assert_int_equal(frame_parser_next(&parser, &f, NULL), 1);
        for (unsigned i = 0; i < FRAME_MAX_FDS; i++) {
                assert_int_equal(fstat(fds[i], &sent), 0);
                assert_int_equal(fstat(f.fds[i], &got), 0);
                assert_int_equal(sent.st_ino, got.st_ino);
                assert_int_equal(fcntl(f.fds[i], F_GETFD), FD_CLOEXEC);
                fd_close(fds[i]);
        }
        frame_close_fds(&f);
        end_pair(pair);
}

/* Sends one byte with fds that sock_send() would refuse. */
static void send_raw_fds(int socket, unsigned n)
{
        union {
                char bytes[CMSG_SPACE(100 * sizeof(int))];
                struct cmsghdr align;
        } control = {0};
        char byte = 0;
        struct iovec iov = {&byte, 1};
        struct msghdr msg = {.msg_iov = &iov,
                .msg_iovlen = 1,
                .msg_control = &control,
                .msg_controllen = CMSG_SPACE(n * sizeof(int))};
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n * sizeof(int));
        for (unsigned i = 0; i < n; i++)
                memcpy(CMSG_DATA(c) + i * sizeof(int), &socket, sizeof(int));
        assert_int_equal(sendmsg(socket, &msg, 0), 1);
}

TEST(test_too_many_fds)
{
        static const unsigned counts[] = {17, 20, 24, 25, 100};

        for (unsigned i = 0; i < ARRAY_SIZE(counts); i++) {
                int pair[2];

                make_pair(pair);
                send_raw_fds(pair[0], counts[i]);
                assert_int_equal(sock_receive(pair[1], &parser), -EPROTO);
                end_pair(pair);
        }
}

/* A process at its limit of descriptors: its own trouble, not the peer's. */
TEST(test_no_room_for_fds)
{
        struct rlimit old, low;
        uint8_t byte = 1;
        int pair[2], fds[3];

        make_pair(pair);
        fds[0] = fds[1] = fds[2] = pair[0];
        assert_int_equal(sock_send(pair[0], &byte, 1, fds, 3), 1);
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
        low = (struct rlimit){(rlim_t)pair[1] + 2, old.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
        assert_int_equal(sock_receive(pair[1], &parser), -EMFILE);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
        end_pair(pair);
}

TEST(test_listen_and_connect)
{
        const char *dir = test_dir_make();
        _cleanup_free_ char *path = test_path(dir, "sock");
        mode_t mask = umask(0077);
        struct stat st;
        int server = sock_listen(path, 0666), client;

        umask(mask);
        assert_true(server >= 0);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0666);
        assert_int_equal(fcntl(server, F_GETFD), FD_CLOEXEC);
        assert_true(fcntl(server, F_GETFL) & O_NONBLOCK);
        client = sock_connect(path);
        assert_true(client >= 0);
        assert_true(fcntl(client, F_GETFL) & O_NONBLOCK);
        assert_int_equal(fcntl(client, F_GETFD), FD_CLOEXEC);
        assert_int_equal(sock_listen(path, 0600), -EADDRINUSE);
        fd_close(client);
        fd_close(server);
        assert_int_equal(sock_connect(path), -ECONNREFUSED);
        server = sock_listen(path, 0600);
        assert_true(server >= 0);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0600);
        fd_close(server);
        test_dir_remove(dir);
}

TEST(test_listen_where_it_may_not)
{
        const char *dir = test_dir_make();
        _cleanup_free_ char *file = test_path(dir, "file");
        _cleanup_free_ char *link = test_path(dir, "link");
        _cleanup_free_ char *absent = test_path(dir, "absent/sock");
        char longest[sizeof(((struct sockaddr_un *)0)->sun_path) + 1];

        assert_int_equal(file_replace(file, "precious", 8, 0600), 0);
        assert_int_equal(symlink("nowhere", link), 0);
        assert_int_equal(sock_listen(file, 0600), -EEXIST);
        assert_int_equal(sock_listen(link, 0600), -EEXIST);
        assert_int_equal(sock_listen(dir, 0600), -EEXIST);
        assert_int_equal(sock_listen(absent, 0600), -ENOENT);
        assert_int_equal(sock_listen("", 0600), -EINVAL);
        assert_int_equal(test_dir_count(dir), 2);
        memset(longest, 'x', sizeof(longest) - 1);
        longest[sizeof(longest) - 1] = '\0';
        assert_int_equal(sock_listen(longest, 0600), -ENAMETOOLONG);
        assert_int_equal(sock_connect(longest), -ENAMETOOLONG);
        assert_int_equal(sock_connect(absent), -ENOENT);
        test_dir_remove(dir);
}
