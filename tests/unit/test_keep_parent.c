/* Parts of the parent of kvleased --keep: its store, and the messages to it. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/keep/fdstore.h"
#include "daemon/keep/notify.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/fd-count.h"
#include "tests/unit/test-support.h"

static int new_fd(void)
{
        int fd = memfd_create_sized("stored", 4096);

        assert_true(fd >= 0);
        return fd;
}

TEST(test_store)
{
        struct fdstore s;
        int before = fd_count_open();

        assert_int_equal(fdstore_init(&s, 4, 100), 0);
        assert_int_equal(fdstore_add(&s, "e1", new_fd()), 0);
        assert_int_equal(fdstore_add(&s, "e2", new_fd()), 0);
        assert_int_equal(fdstore_add(&s, "e1", new_fd()), 0);
        assert_int_equal(fdstore_add(&s, "azzzzz", new_fd()), 0);
        assert_int_equal(s.names_bytes, 3 + 3 + 3 + 7);
        assert_int_equal(fdstore_add(&s, "e3", new_fd()), -ENOSPC);
        assert_int_equal(fd_count_open(), before + 4);
        fdstore_remove(&s, "e");
        fdstore_remove(&s, "e11");
        fdstore_remove(&s, "longer than any");
        assert_int_equal(s.n, 4);
        fdstore_remove(&s, "e1");
        assert_int_equal(s.n, 2);
        assert_int_equal(fd_count_open(), before + 2);
        assert_string_equal(s.names[0], "e2");
        assert_string_equal(s.names[1], "azzzzz");
        assert_int_equal(s.names_bytes, 3 + 7);
        assert_int_equal(fdstore_add(&s, "longer1", new_fd()), 0);
        assert_int_equal(fdstore_add(&s, "longer12", new_fd()), -ENAMETOOLONG);
        fdstore_deinit(&s);
        assert_int_equal(fd_count_open(), before);
}

/* Names are one string of the next child's environment. */
TEST(test_store_of_few_names)
{
        struct fdstore s;

        assert_int_equal(fdstore_init(&s, 100, 9), 0);
        for (unsigned i = 0; i < 3; i++)
                assert_int_equal(fdstore_add(&s, "e1", new_fd()), 0);
        assert_int_equal(fdstore_add(&s, "e1", new_fd()), -ENOSPC);
        fdstore_deinit(&s);
}

TEST(test_lines)
{
        static const char text[] = "FDSTORE=1\nFDNAME=e1\nSTATUS=a=b\nXFDNAME=no\nREADY=11";
        char value[8];

        assert_true(notify_has(text, "FDSTORE=1"));
        assert_true(notify_has(text, "READY=11"));
        assert_false(notify_has(text, "READY=1"));
        assert_false(notify_has(text, "DSTORE=1"));
        assert_false(notify_has("", "READY=1"));
        assert_true(notify_get(text, "FDNAME", value, sizeof(value)));
        assert_string_equal(value, "e1");
        assert_true(notify_get(text, "STATUS", value, sizeof(value)));
        assert_string_equal(value, "a=b");
        assert_true(notify_get(text, "FDNAME", value, 3));
        assert_false(notify_get(text, "FDNAME", value, 2)); /* doesn't fit */
        assert_false(notify_get(text, "NAME", value, sizeof(value)));
        assert_false(notify_get("\n\n", "READY", value, sizeof(value)));
}

/* Says it with descriptors. */
static void say(
        const struct notify *n, const void *text, size_t len, const int *fds, unsigned n_fds)
{
        char control[CMSG_SPACE(64 * sizeof(int))] = {0};
        struct iovec iov = {(void *)text, len};
        struct msghdr h = {
                .msg_name = (void *)&n->address,
                .msg_namelen = sizeof(n->address),
                .msg_iov = &iov,
                .msg_iovlen = 1,
        };
        int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

        if (n_fds > 0) {
                struct cmsghdr *c = (struct cmsghdr *)(void *)control;

                h.msg_control = control;
                h.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
                memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
        }
        assert_int_equal(sendmsg(fd, &h, 0), len);
        fd_close(fd);
}

TEST(test_messages)
{
        static char large[NOTIFY_MAX_BYTES + 1];
        struct notify_message m;
        int fds[NOTIFY_MAX_FDS + 4], before;
        struct notify n;
        struct stat st;

        assert_int_equal(notify_open(&n), 0);
        assert_int_equal(stat(n.dir, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0700); /* closed to other users */
        assert_int_equal(notify_receive(&n, &m), 0);
        notify_say(n.address.sun_path, "READY=1");
        assert_int_equal(notify_receive(&n, &m), 1);
        assert_string_equal(m.text, "READY=1");
        assert_int_equal(m.pid, getpid());
        assert_int_equal(m.n_fds, 0);
        for (unsigned i = 0; i < ARRAY_SIZE(fds); i++)
                fds[i] = new_fd();
        before = fd_count_open();
        say(&n, "FDSTORE=1", 9, fds, 2);
        assert_int_equal(notify_receive(&n, &m), 1);
        assert_int_equal(m.n_fds, 2);
        fd_close(m.fds[0]);
        fd_close(m.fds[1]);
        /* More than one message has: the kernel closes the others. */
        say(&n, "FDSTORE=1", 9, fds, ARRAY_SIZE(fds));
        assert_int_equal(notify_receive(&n, &m), 1);
        assert_int_equal(m.n_fds, NOTIFY_MAX_FDS);
        for (unsigned i = 0; i < m.n_fds; i++)
                fd_close(m.fds[i]);
        /* Cut off: not believed in part. */
        memset(large, 'x', sizeof(large));
        memcpy(large, "READY=1\n", 8);
        say(&n, large, sizeof(large), NULL, 0);
        assert_int_equal(notify_receive(&n, &m), 1);
        assert_string_equal(m.text, "");
        say(&n, large, NOTIFY_MAX_BYTES, NULL, 0);
        assert_int_equal(notify_receive(&n, &m), 1);
        assert_true(notify_has(m.text, "READY=1"));
        assert_int_equal(fd_count_open(), before);
        for (unsigned i = 0; i < ARRAY_SIZE(fds); i++)
                fd_close(fds[i]);
        notify_close(&n);
        assert_int_equal(stat(n.address.sun_path, &st), -1);
        notify_say(NULL, "READY=1"); /* without a receiver nothing happens */
        notify_say("", "READY=1");
        notify_say("vsock:2:1", "READY=1");
        notify_say("/nowhere/at/all", "READY=1");
}

/* A receiver that doesn't read is waited for, but not forever. */
TEST(test_unheard)
{
        struct sockaddr_un to;
        struct notify n;
        int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        assert_true(fd >= 0);
        assert_int_equal(notify_open(&n), 0);
        to = n.address;
        while (sendto(fd, "x", 1, 0, (struct sockaddr *)&to, sizeof(to)) == 1)
                ;
        assert_int_equal(errno, EAGAIN);
        notify_say(n.address.sun_path, "STATUS=nobody hears this");
        fd_close(fd);
        notify_close(&n);
}
