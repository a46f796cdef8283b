#include "tests/unit/fake-notify.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "tests/unit/test-support.h"

#define PATIENCE_SEC 10 /* not tuned */

/* Locked. */
static void note(struct fake_notify *n, const char *what, const char *name)
{
        size_t len = strlen(n->log);

        snprintf(n->log + len, sizeof(n->log) - len, "%s%s ", what, name);
        pthread_cond_broadcast(&n->changed);
}

static void on_barrier(struct fake_notify *n, int fd)
{
        n->n_barriers++;
        if (n->deaf) {
                assert_true(n->n_held < ARRAY_SIZE(n->barriers));
                n->barriers[n->n_held++] = fd_take(&fd);
        }
        fd_close(fd);
        note(n, "|", "");
}

static void on_store(struct fake_notify *n, const char *name, int fd)
{
        assert_true(fd >= 0 && n->n_kept < FAKE_NOTIFY_KEPT);
        strcpy(n->kept[n->n_kept].name, name);
        n->kept[n->n_kept++].fd = fd;
        note(n, "+", name);
}

static void on_remove(struct fake_notify *n, const char *name)
{
        for (unsigned i = 0; i < n->n_kept; i++)
                if (strcmp(n->kept[i].name, name) == 0) {
                        fd_close(n->kept[i].fd);
                        n->kept[i--] = n->kept[--n->n_kept];
                }
        note(n, "-", name);
}

/* Takes fd. */
static void hear(struct fake_notify *n, const char *text, int fd)
{
        char name[8];

        if (strcmp(text, "BARRIER=1") == 0)
                on_barrier(n, fd);
        else if (sscanf(text, "FDSTORE=1\nFDNAME=%7[0-9a-zA-Z]\nFDPOLL=0", name) == 1)
                on_store(n, name, fd);
        else if (sscanf(text, "FDSTOREREMOVE=1\nFDNAME=%7[0-9a-zA-Z]", name) == 1 && fd < 0)
                on_remove(n, name);
        else
                fail_msg("not expected: %s", text);
}

static void receive(struct fake_notify *n)
{
        char text[256], control[CMSG_SPACE(sizeof(int))];
        struct iovec iov = {text, sizeof(text) - 1};
        struct msghdr h = {.msg_iov = &iov,
                .msg_iovlen = 1,
                .msg_control = control,
                .msg_controllen = sizeof(control)};
        ssize_t len = recvmsg(n->fd, &h, MSG_CMSG_CLOEXEC);
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);
        int fd = -1;

        assert_true(len > 0);
        text[len] = '\0';
        if (c && c->cmsg_type == SCM_RIGHTS)
                memcpy(&fd, CMSG_DATA(c), sizeof(fd));
        pthread_mutex_lock(&n->lock);
        hear(n, text, fd);
        pthread_mutex_unlock(&n->lock);
}

static void *thread_main(void *data)
{
        struct fake_notify *n = data;
        struct pollfd p[2] = {
                {.fd = n->fd, .events = POLLIN}, {.fd = n->stop_fd, .events = POLLIN}};

        for (;;) {
                poll(p, 2, -1);
                if (p[0].revents)
                        receive(n);
                else if (p[1].revents)
                        return NULL;
        }
}

void fake_notify_start(struct fake_notify *n)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};

        memset(n, 0, sizeof(*n));
        n->dir = test_dir_make();
        snprintf(address.sun_path, sizeof(address.sun_path), "%.90s/notify", n->dir);
        setenv("NOTIFY_SOCKET", address.sun_path, 1);
        n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(n->fd, (struct sockaddr *)&address, sizeof(address)), 0);
        n->stop_fd = eventfd(0, EFD_CLOEXEC);
        pthread_mutex_init(&n->lock, NULL);
        pthread_cond_init(&n->changed, NULL);
        assert_int_equal(pthread_create(&n->thread, NULL, thread_main, n), 0);
}

void fake_notify_stop(struct fake_notify *n)
{
        assert_int_equal(eventfd_write(n->stop_fd, 1), 0);
        pthread_join(n->thread, NULL);
        fake_notify_set_deaf(n, false);
        for (unsigned i = 0; i < n->n_kept; i++)
                fd_close(n->kept[i].fd);
        fd_close(n->fd);
        fd_close(n->stop_fd);
        pthread_mutex_destroy(&n->lock);
        pthread_cond_destroy(&n->changed);
        unsetenv("NOTIFY_SOCKET");
        test_dir_remove(n->dir);
}

void fake_notify_set_deaf(struct fake_notify *n, bool deaf)
{
        pthread_mutex_lock(&n->lock);
        n->deaf = deaf;
        while (!deaf && n->n_held > 0)
                fd_close(n->barriers[--n->n_held]);
        pthread_mutex_unlock(&n->lock);
}

void fake_notify_await(struct fake_notify *n, unsigned n_barriers)
{
        struct timespec until;

        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += PATIENCE_SEC;
        pthread_mutex_lock(&n->lock);
        while (n->n_barriers < n_barriers)
                if (pthread_cond_timedwait(&n->changed, &n->lock, &until) != 0)
                        fail_msg("%u barriers came, of %u", n->n_barriers, n_barriers);
        pthread_mutex_unlock(&n->lock);
}

int fake_notify_get(struct fake_notify *n, const char *name)
{
        int fd = -1;

        pthread_mutex_lock(&n->lock);
        for (unsigned i = 0; i < n->n_kept && fd < 0; i++)
                if (strcmp(n->kept[i].name, name) == 0)
                        fd = fcntl(n->kept[i].fd, F_DUPFD_CLOEXEC, 0);
        pthread_mutex_unlock(&n->lock);
        return fd;
}

unsigned fake_notify_count(struct fake_notify *n)
{
        unsigned count;

        pthread_mutex_lock(&n->lock);
        count = n->n_kept;
        pthread_mutex_unlock(&n->lock);
        return count;
}

const char *fake_notify_take_log(struct fake_notify *n, char buf[FAKE_NOTIFY_LOG])
{
        pthread_mutex_lock(&n->lock);
        strcpy(buf, n->log);
        n->log[0] = '\0';
        pthread_mutex_unlock(&n->lock);
        return buf;
}
