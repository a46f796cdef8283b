/*
 * Unwanted descriptors whose last close() takes long: sockets that linger with unsent data, memory,
 * a file of a FUSE server. Strangers send them on the default socket before HELLO, a tenant's
 * client after it, alone and in numbers. The daemon's loop continues and a good client is answered.
 * In the end none is left in the daemon or its reaper. Both ways of receiving are tried
 * (daemon/server/base/inbound.h). If the kernel refuses descriptors, the sender gets an error.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "daemon/server/base/inbound.h"
#include "proto/sock.h"
#include "tests/fault/good.h"
#include "tests/fault/raw.h"
#include "tests/fault/slow-file.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* kernel (asm-generic/socket.h), since 6.16 */
#endif

#define LINGER_SEC    100000
#define MANY          40  /* descriptors in one message: more than a frame may have */
#define CROWD         200 /* connections at once */
#define MEMORY_BYTES  ((off_t)512 << 20) /* some 100 ms to give back */
#define PATIENCE_MSEC 30000

/* No tenant has a uid here, so each client of the default socket is a stranger. */
static const struct private_options refusing = {0};
static const char *const old_env[] = {INBOUND_TEST_VARIABLE "=1", NULL};
static const struct private_options careful = {.env = old_env};

/* ---- what takes long to close ---- */

/* Connections to one listening socket that isn't read from. */
struct bombs {
        int listening;
        int far[CROWD]; /* their other ends */
        unsigned n;
        pthread_t closing[CROWD];
        unsigned n_closing;
};

static void bombs_open(struct bombs *b)
{
        struct sockaddr_in address = {
                .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int small = 4096;

        *b = (struct bombs){.listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
        assert_true(b->listening >= 0);
        setsockopt(b->listening, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
        assert_int_equal(bind(b->listening, (struct sockaddr *)&address, sizeof(address)), 0);
        assert_int_equal(listen(b->listening, CROWD), 0);
}

static void set_linger(int fd, int seconds)
{
        struct linger l = {seconds > 0, seconds};

        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l)), 0);
}

/* A connection with more to send than the other end takes: owned; close it by bomb_close(). */
static int bomb_make(struct bombs *b)
{
        static const char zeros[65536];
        struct sockaddr_in address;
        socklen_t len = sizeof(address);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = 16384;

        assert_true(fd >= 0 && b->n < CROWD);
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
        assert_int_equal(getsockname(b->listening, (struct sockaddr *)&address, &len), 0);
        assert_int_equal(connect(fd, (struct sockaddr *)&address, len), 0);
        b->far[b->n] = accept4(b->listening, NULL, NULL, SOCK_CLOEXEC);
        assert_true(b->far[b->n++] >= 0);
        while (send(fd, zeros, sizeof(zeros), MSG_DONTWAIT) > 0)
                ;
        set_linger(fd, LINGER_SEC);
        return fd;
}

struct closing {
        int fd;
        sem_t begins;
};

static void *close_in_thread(void *data)
{
        struct closing *c = data;
        int fd = c->fd;

        sem_post(&c->begins);
        close(fd);
        return NULL;
}

/*
 * Closes our descriptor, which isn't the last if it was sent. If the daemon closed faster, ours is,
 * and a thread lingers until bombs_close(). Nothing looks at the descriptor meanwhile: such a
 * system call might become its last holder.
 */
static void bomb_close(struct bombs *b, int fd, bool was_sent)
{
        struct closing c = {.fd = fd};

        if (!was_sent) {
                set_linger(fd, 0);
                fd_close(fd);
                return;
        }
        assert_int_equal(sem_init(&c.begins, 0, 0), 0);
        assert_int_equal(pthread_create(&b->closing[b->n_closing++], NULL, close_in_thread, &c), 0);
        while (sem_wait(&c.begins) < 0)
                ;
        sem_destroy(&c.begins);
        sleep_msec(1); /* it has most likely; if not, this one does no harm */
}

/* Ends all lingering. */
static void bombs_close(struct bombs *b)
{
        for (unsigned i = 0; i < b->n; i++)
                fd_close(b->far[i]);
        fd_close(b->listening);
        while (b->n_closing > 0)
                assert_int_equal(pthread_join(b->closing[--b->n_closing], NULL), 0);
}

/* ---- sending ---- */

static char *default_socket(struct harness *h, char path[PRIVATE_PATH_MAX + 8])
{
        snprintf(path, PRIVATE_PATH_MAX + 8, "%s/sock", h->daemon.runtime);
        return path;
}

/* Sends bytes with `n` copies of fd. False: the kernel refuses it. */
static bool send_fds(int socket, const void *data, size_t len, int fd, unsigned n, int flags)
{
        union {
                char bytes[CMSG_SPACE(MANY * sizeof(int))];
                struct cmsghdr align;
        } control = {0};
        struct iovec iov = {(void *)data, len};
        struct msghdr msg = {.msg_iov = &iov,
                .msg_iovlen = 1,
                .msg_control = &control,
                .msg_controllen = CMSG_SPACE(n * sizeof(int))};
        struct cmsghdr *c = &control.align;
        int fds[MANY];
        ssize_t sent;

        for (unsigned i = 0; i < n; i++)
                fds[i] = fd;
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n * sizeof(int));
        memcpy(CMSG_DATA(c), fds, n * sizeof(int));
        sent = sendmsg(socket, &msg, MSG_NOSIGNAL | flags);
        if (sent < 0 && errno != EPERM)
                fail_msg("sendmsg: %s", strerror(errno));
        return sent == (ssize_t)len;
}

static void make_header(uint8_t ret[FRAME_HEADER_SIZE], uint16_t type, uint16_t fd_count)
{
        frame_encode_header(&(struct frame_header){.magic = FRAME_MAGIC,
                                    .version = 1,
                                    .type = type,
                                    .fd_count = fd_count,
                                    .seq = 99},
                ret);
}

/* ---- the stage ---- */

struct stage {
        struct harness *h;
        struct good good;
        struct bombs bombs;
        bool refuses; /* the kernel does */
        int reaper_fds;
        pid_t reaper;
};

/* The daemon's reaper, a child of it; 0: none. */
static pid_t find_reaper(pid_t daemon)
{
        char path[64], line[256] = "";
        FILE *f;
        pid_t pid = 0;

        snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)daemon, (int)daemon);
        f = fopen(path, "re");
        assert_non_null(f);
        if (fgets(line, sizeof(line), f))
                pid = (pid_t)strtol(line, NULL, 10);
        fclose(f);
        return pid;
}

static bool begin(struct stage *s, void **state)
{
        struct rlimit limit;

        *s = (struct stage){.h = *state};
        s->refuses = s->h->daemon.env == NULL;
        if (s->refuses) {
                int value, fd = socket(AF_UNIX, SOCK_STREAM, 0);
                socklen_t len = sizeof(value);
                bool knows = getsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &value, &len) == 0;

                fd_close(fd);
                if (!knows) {
                        print_message("this kernel can't refuse descriptors (6.16)\n");
                        return false;
                }
        }
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
        limit.rlim_cur = limit.rlim_max;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        s->reaper = find_reaper(s->h->daemon.pid);
        assert_true(s->reaper > 0);
        good_start(&s->good, s->h, "a");
        /* By now the reaper has long closed its descriptors of the start. */
        s->reaper_fds = proc_count_fds(s->reaper);
        bombs_open(&s->bombs);
        return true;
}

/* Waits until all earlier clients were accepted and read. */
static void let_in_all(struct stage *s)
{
        char path[PRIVATE_PATH_MAX + 8];
        const Kvlease__V1__HelloReply *hello;
        uint64_t before, now = ctl_status(s->h, "violations");
        struct raw r;

        raw_open(&r, s->h, default_socket(s->h, path));
        hello = raw_hello(&r, 1, 1);
        assert_non_null(hello);
        assert_int_not_equal(hello->status, 0);
        raw_close(&r);
        do {
                before = now;
                sleep_msec(100);
                now = ctl_status(s->h, "violations");
        } while (now != before);
}

/* Nothing is left, and no client had to wait. */
static void end(struct stage *s)
{
        uint64_t until = now_nsec() + PATIENCE_MSEC * UINT64_C(1000000);

        good_round(&s->good);
        harness_assert_prompt(s->h);
        bombs_close(&s->bombs);
        let_in_all(s);
        good_stop(&s->good);
        while (proc_status_value(s->reaper, "Threads") > 1 && now_nsec() < until)
                sleep_msec(10);
        assert_int_equal(proc_status_value(s->reaper, "Threads"), 1);
        assert_in_range(proc_count_fds(s->reaper), 1, s->reaper_fds);
        assert_int_equal(find_reaper(s->h->daemon.pid), s->reaper);
        assert_true(s->refuses == (ctl_status(s->h, "violations") == 0));
        s->h->violations = ctl_status(s->h, "violations");
        harness_assert_prompt(s->h);
}

/* The daemon doesn't take the descriptors: the kernel refuses them to the sender, or the daemon
 * hangs up. */
static void expect_refused(struct stage *s, struct raw *r, bool sent)
{
        assert_int_equal(sent, !s->refuses);
        if (sent)
                assert_true(raw_hung_up(r));
        good_round(&s->good);
}

/* ---- scenes ---- */

struct way {
        bool after_hello; /* to the tenant's socket, by a client of its */
        size_t before;    /* bytes of a header that go before */
        unsigned n;
        int flags;
        bool declares; /* them in fd_count */
};

static void send_one(struct stage *s, const struct way *w)
{
        char path[PRIVATE_PATH_MAX + 8];
        uint8_t header[FRAME_HEADER_SIZE];
        int bomb = bomb_make(&s->bombs);
        struct raw r;
        bool sent;

        raw_open(&r, s->h, w->after_hello ? NULL : default_socket(s->h, path));
        if (w->after_hello)
                raw_attach(&r);
        make_header(header, w->after_hello ? MSG_LEASE : MSG_HELLO, w->declares ? w->n : 0);
        if (w->before > 0)
                assert_true(raw_send(&r, header, w->before, 0));
        sent = send_fds(
                r.fd, header + w->before, w->flags & MSG_OOB ? 1 : 10, bomb, w->n, w->flags);
        bomb_close(&s->bombs, bomb, sent);
        expect_refused(s, &r, sent);
        raw_close(&r);
        good_round(&s->good);
}

static void test_one(void **state)
{
        static const struct way ways[] = {
                {.n = 1},
                {.before = 10, .n = 1},
                {.n = MANY},
                {.n = 1, .flags = MSG_OOB},
                {.after_hello = true, .n = 1},
                {.after_hello = true, .n = 2, .declares = true},
                {.after_hello = true, .before = 10, .n = 1},
                {.after_hello = true, .n = MANY},
                {.after_hello = true, .n = 1, .flags = MSG_OOB},
        };
        struct stage s;

        if (!begin(&s, state))
                return;
        for (unsigned i = 0; i < ARRAY_SIZE(ways); i++)
                send_one(&s, &ways[i]);
        end(&s);
}

/* A client hangs up at once and leaves descriptors in the queue, also before it was accepted. */
static void test_left_in_the_queue(void **state)
{
        char path[PRIVATE_PATH_MAX + 8];
        struct stage s;

        if (!begin(&s, state))
                return;
        for (unsigned i = 0; i < 8; i++) {
                int bomb = bomb_make(&s.bombs);
                struct raw r;
                bool sent;

                if (i % 2 == 1)
                        kill(s.h->daemon.pid, SIGSTOP);
                raw_open(&r, s.h, i < 4 ? default_socket(s.h, path) : NULL);
                sent = send_fds(r.fd, "0123456789", 10, bomb, 1, i % 4 >= 2 ? MSG_OOB : 0);
                assert_int_equal(sent, !s.refuses);
                bomb_close(&s.bombs, bomb, sent);
                raw_close(&r);
                kill(s.h->daemon.pid, SIGCONT);
                good_round(&s.good);
        }
        end(&s);
}

static void test_crowd(void **state)
{
        char path[PRIVATE_PATH_MAX + 8];
        struct stage s;
        struct raw r;

        if (!begin(&s, state))
                return;
        for (unsigned i = 0; i < CROWD; i++) {
                int bomb = bomb_make(&s.bombs), fd = sock_connect(default_socket(s.h, path));
                bool sent;

                assert_true(fd >= 0);
                sent = send_fds(fd, "0123456789", 10, bomb, 1, 0);
                assert_int_equal(sent, !s.refuses);
                bomb_close(&s.bombs, bomb, sent);
                fd_close(fd);
                if (i % 20 == 0)
                        good_round(&s.good);
        }
        /* Others still get in over the default socket. */
        raw_open(&r, s.h, NULL);
        raw_attach(&r);
        raw_close(&r);
        end(&s);
}

/* The last descriptor of a memory file. */
static void test_memory(void **state)
{
        char path[PRIVATE_PATH_MAX + 8];
        struct stage s;

        if (!begin(&s, state))
                return;
        for (unsigned i = 0; i < 2; i++) {
                int fd = memfd_create("large", MFD_CLOEXEC);
                struct raw r;
                bool sent;

                assert_true(fd >= 0);
                assert_int_equal(posix_fallocate(fd, 0, MEMORY_BYTES), 0);
                raw_open(&r, s.h, i == 0 ? default_socket(s.h, path) : NULL);
                if (i == 1)
                        raw_attach(&r);
                sent = send_fds(r.fd, "0123456789", 10, fd, 1, 0);
                fd_close(fd);
                expect_refused(&s, &r, sent);
                raw_close(&r);
        }
        end(&s);
}

/* A file whose server doesn't answer a close. */
static void test_slow_file(void **state)
{
        char path[PRIVATE_PATH_MAX + 8];
        static const unsigned numbers[] = {1, MANY, 1, MANY};
        struct slow_file f;
        struct stage s;

        if (!begin(&s, state))
                return;
        if (!slow_file_begin(&f, (const pid_t[]){s.h->daemon.pid, s.reaper})) {
                s.refuses = true; /* as nothing was sent, nothing was a violation */
                end(&s);
                skip();
        }
        for (unsigned i = 0; i < ARRAY_SIZE(numbers); i++) {
                struct raw r;

                raw_open(&r, s.h, i < 2 ? default_socket(s.h, path) : NULL);
                if (i >= 2)
                        raw_attach(&r);
                expect_refused(&s, &r, send_fds(r.fd, "0123456789", 10, f.fd, numbers[i], 0));
                raw_close(&r);
        }
        f.fd = fd_close(f.fd);
        good_round(&s.good);
        harness_assert_prompt(s.h);
        /* No victim ever had a descriptor of it. */
        assert_int_equal(slow_file_flushes(&f), 0);
        slow_file_end(&f);
        end(&s);
}

/* The daemon stops with such connections, accepted and not. */
static void test_daemon_stops(void **state)
{
        char path[PRIVATE_PATH_MAX + 8];
        int fds[4], status;
        struct stage s;
        uint64_t begun;

        if (!begin(&s, state))
                return;
        good_stop(&s.good);
        for (unsigned i = 0; i < ARRAY_SIZE(fds); i++) {
                int bomb = bomb_make(&s.bombs);
                bool sent;

                if (i == 2)
                        kill(s.h->daemon.pid, SIGSTOP);
                fds[i] = sock_connect(default_socket(s.h, path));
                assert_true(fds[i] >= 0);
                sent = send_fds(fds[i], "0123456789", 10, bomb, 1, 0);
                bomb_close(&s.bombs, bomb, sent);
        }
        begun = now_nsec();
        kill(s.h->daemon.pid, SIGTERM);
        kill(s.h->daemon.pid, SIGCONT);
        assert_int_equal(private_daemon_stop(&s.h->daemon, &status), 0);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        /* The stop waits for the reaper, for two seconds at most. */
        assert_true(now_nsec() - begun < UINT64_C(8000000000) || private_under_valgrind());
        for (unsigned i = 0; i < ARRAY_SIZE(fds); i++)
                fd_close(fds[i]);
        bombs_close(&s.bombs);
        harness_start(s.h);
}

#define BOTH_WAYS(fn) harness_test(fn, (void *)&refusing), harness_test(fn, (void *)&careful)

int main(void)
{
        const struct CMUnitTest tests[] = {
                BOTH_WAYS(test_one),
                BOTH_WAYS(test_left_in_the_queue),
                BOTH_WAYS(test_crowd),
                BOTH_WAYS(test_memory),
                BOTH_WAYS(test_slow_file),
                BOTH_WAYS(test_daemon_stops),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
