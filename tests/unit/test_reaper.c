/* The daemon's reaper (daemon/reap/), with a process of its own: this program, started again. */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "daemon/reap/reaper.h"
#include "tests/unit/test-support.h"

#define BYTES       ((uint64_t)2 << 20)
#define PATIENCE_NS (UINT64_C(20) * NSEC_PER_SEC) /* of a busy machine */
#define TENANT      UINT64_C(7)
#define OTHER       UINT64_C(8)

struct scene {
        struct reaper *reaper;
        char said[512];
        unsigned n_done, n_lost;
        uint64_t order[4096]; /* numbers of what is done */
};

struct mark {
        struct scene *scene;
        uint64_t number;
        int result;
        bool is_done;
};

static void on_said(void *data, bool is_error, const char *sentence)
{
        struct scene *s = data;

        snprintf(s->said, sizeof(s->said), "%s", sentence);
}

static void on_done(void *data, int result)
{
        struct mark *m = data;

        m->result = result;
        m->is_done = true;
        m->scene->n_lost += result == -ECANCELED;
        m->scene->order[m->scene->n_done++] = m->number;
}

static void start_with(struct scene *s, const char *exe, int socket_bytes)
{
        struct reaper_options o = {
                .exe = exe, .say = on_said, .data = s, .socket_bytes = socket_bytes};

        *s = (struct scene){0};
        assert_int_equal(reaper_start(&o, &s->reaper), 0);
}

static void start(struct scene *s, const char *exe)
{
        start_with(s, exe, 0);
}

static void turn(struct scene *s, int msec)
{
        struct pollfd p = {.fd = reaper_fd(s->reaper), .events = POLLIN};

        poll(&p, 1, msec);
        reaper_dispatch(s->reaper);
}

static void wait_for(struct scene *s, unsigned n_done)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NS;

        while (s->n_done < n_done && clock_now_nsec() < until)
                turn(s, 100);
        assert_true(s->n_done >= n_done);
}

static int make_file(void)
{
        int fd = memfd_create_sized("test-reaper", BYTES);

        assert_true(fd >= 0);
        assert_int_equal(pwrite(fd, "x", 1, 0), 1);
        assert_int_equal(pwrite(fd, "x", 1, BYTES - 1), 1);
        return fd;
}

static blkcnt_t blocks_of(int fd)
{
        struct stat st;

        assert_int_equal(fstat(fd, &st), 0);
        return st.st_blocks;
}

static void punch(struct scene *s, int fd, uint64_t owner, struct mark *m)
{
        m->scene = s;
        reaper_submit(s->reaper, REAP_PUNCH, owner, dup(fd), BYTES, on_done, m);
}

/* ---- a file whose lock is held ----------------------------------------------------------------
 * A thread's write() into it reads a page that this test delivers, as a userfaultfd's owner, when
 * it likes.
 */

struct held {
        int fd, fault_fd;
        uint8_t *page;
        pthread_t writer;
};

static void *writer_main(void *data)
{
        struct held *h = data;

        assert_int_equal(pwrite(h->fd, h->page, 1, 0), 1);
        return NULL;
}

/* False, said: not here. */
static bool hold(struct held *h)
{
        struct uffdio_api api = {.api = UFFD_API};
        struct uffdio_register reg = {.mode = UFFDIO_REGISTER_MODE_MISSING};
        struct pollfd p = {.events = POLLIN};

        h->fault_fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
        if (h->fault_fd < 0) {
                print_message(
                        "no userfaultfd here (%s): what hangs isn't tested\n", strerror(errno));
                return false;
        }
        assert_int_equal(ioctl(h->fault_fd, UFFDIO_API, &api), 0);
        h->page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(h->page != MAP_FAILED);
        reg.range = (struct uffdio_range){.start = (uintptr_t)h->page, .len = 4096};
        assert_int_equal(ioctl(h->fault_fd, UFFDIO_REGISTER, &reg), 0);
        h->fd = make_file();
        assert_int_equal(pthread_create(&h->writer, NULL, writer_main, h), 0);
        /* The thread asks for its page, so it has the lock. */
        p.fd = h->fault_fd;
        assert_int_equal(poll(&p, 1, 20000), 1);
        return true;
}

static void let_go(struct held *h)
{
        struct uffdio_zeropage zero = {.range = {(uintptr_t)h->page, 4096}};

        assert_int_equal(ioctl(h->fault_fd, UFFDIO_ZEROPAGE, &zero), 0);
        pthread_join(h->writer, NULL);
        munmap(h->page, 4096);
        fd_close(h->fault_fd);
}

/* ---- many ------------------------------------------------------------------------------------ */

/* More than its socket holds in either direction, which is a few messages. Nothing is lost, though
 * its answers aren't read until all are submitted. */
TEST(test_full_socket)
{
        static struct mark marks[200];
        struct reaper_owner o;
        struct scene s;
        int fd = make_file();

        start_with(&s, NULL, 1); /* the least the kernel gives */
        for (unsigned i = 0; i < ARRAY_SIZE(marks); i++) {
                marks[i] = (struct mark){.number = i};
                /* Owners enough that all of a socketful could be on its way. */
                punch(&s, fd, i % 100, &marks[i]);
        }
        assert_int_equal(s.n_done, 0);
        assert_true(reaper_find_owner(s.reaper, 3, &o));
        assert_int_equal(o.n_waiting + o.n_running, 2);
        assert_int_equal(o.bytes, 2 * BYTES);
        wait_for(&s, ARRAY_SIZE(marks));
        for (unsigned i = 0; i < ARRAY_SIZE(marks); i++)
                assert_true(marks[i].is_done && marks[i].result == 0);
        assert_false(reaper_find_owner(s.reaper, 3, &o));
        reaper_stop(s.reaper);
        assert_string_equal(s.said, "");
        fd_close(fd);
}

TEST(test_order)
{
        static struct mark marks[500];
        struct reaper_owner o;
        struct scene s;
        int fd = make_file();

        start(&s, NULL);
        for (unsigned i = 0; i < ARRAY_SIZE(marks); i++) {
                marks[i] = (struct mark){.number = i};
                punch(&s, fd, TENANT, &marks[i]);
        }
        assert_true(reaper_find_owner(s.reaper, TENANT, &o));
        assert_int_equal(o.n_running, REAPER_OWNER_RUNNING);
        assert_int_equal(o.n_waiting, ARRAY_SIZE(marks) - REAPER_OWNER_RUNNING);
        wait_for(&s, ARRAY_SIZE(marks));
        /* One may be overtaken, by its thread's luck; none begins before those that came first. */
        for (unsigned i = 0; i < ARRAY_SIZE(marks); i++)
                assert_true(s.order[i] <= i + REAPER_OWNER_RUNNING - 1);
        assert_string_equal(s.said, "");
        reaper_stop(s.reaper);
        fd_close(fd);
}

/* ---- what hangs ------------------------------------------------------------------------------ */

TEST(test_owner_that_hangs)
{
        struct mark hung[REAPER_OWNER_RUNNING + 2] = {0}, others[20] = {0};
        struct reaper_owner o;
        struct scene s;
        struct held h;
        size_t iter = 0;
        int fd;

        if (!hold(&h))
                skip();
        start(&s, NULL);
        for (unsigned i = 0; i < ARRAY_SIZE(hung); i++) {
                hung[i].number = 100;
                punch(&s, h.fd, TENANT, &hung[i]);
        }
        fd = make_file();
        for (unsigned i = 0; i < ARRAY_SIZE(others); i++)
                punch(&s, fd, OTHER, &others[i]);
        wait_for(&s, ARRAY_SIZE(others));
        assert_int_equal(blocks_of(fd), 0);
        for (unsigned i = 0; i < ARRAY_SIZE(hung); i++)
                assert_false(hung[i].is_done);
        assert_true(reaper_next_owner(s.reaper, &iter, &o));
        assert_int_equal(o.owner, TENANT);
        assert_int_equal(o.n_running, REAPER_OWNER_RUNNING);
        assert_int_equal(o.n_waiting, 2);
        assert_int_equal(o.bytes, ARRAY_SIZE(hung) * BYTES);
        assert_true(o.running_nsec > 0 && o.running_nsec <= clock_now_nsec());
        assert_false(reaper_next_owner(s.reaper, &iter, &o));
        assert_string_equal(s.said, "");
        let_go(&h);
        wait_for(&s, ARRAY_SIZE(others) + ARRAY_SIZE(hung));
        assert_int_equal(hung[0].result, 0);
        assert_int_equal(blocks_of(h.fd), 0);
        reaper_stop(s.reaper);
        fd_close(h.fd);
        fd_close(fd);
}

/* Strangers, all of them, have as many places as they have; a tenant has its own. */
TEST(test_strangers_that_hang)
{
        static struct mark hung[REAPER_STRANGERS_RUNNING + 3];
        struct mark late = {0}, tenant = {0};
        struct reaper_owner o;
        struct scene s;
        struct held h;
        int fd;

        if (!hold(&h))
                skip();
        fd = make_file();
        start(&s, NULL);
        memset(hung, 0, sizeof(hung));
        for (unsigned i = 0; i < ARRAY_SIZE(hung); i++)
                punch(&s, h.fd, REAPER_STRANGER | i, &hung[i]);
        punch(&s, fd, REAPER_STRANGER | 5000, &late);
        punch(&s, fd, TENANT, &tenant);
        wait_for(&s, 1);
        assert_true(tenant.is_done);
        assert_true(reaper_find_owner(s.reaper, REAPER_STRANGER | 5000, &o));
        assert_int_equal(o.n_running, 0);
        let_go(&h);
        wait_for(&s, ARRAY_SIZE(hung) + 2);
        reaper_stop(s.reaper);
        fd_close(h.fd);
        fd_close(fd);
}

/* The daemon's end doesn't wait for it, and it is done all the same, when it can be. */
TEST(test_stop_while_it_hangs)
{
        struct mark running = {0}, last = {0};
        struct scene s;
        struct held h;
        uint64_t since;
        int fd, i;

        if (!hold(&h))
                skip();
        fd = make_file();
        start(&s, NULL);
        for (i = 0; i < REAPER_OWNER_RUNNING; i++)
                punch(&s, h.fd, TENANT, &running);
        punch(&s, fd, TENANT, &last);
        since = clock_now_nsec();
        reaper_stop(s.reaper);
        assert_true(clock_now_nsec() - since < 10 * REAPER_STOP_NSEC);
        assert_int_equal(running.result, -ECANCELED);
        /* There was time for what waited behind it. */
        assert_int_equal(last.result, 0);
        assert_int_equal(blocks_of(fd), 0);
        assert_true(blocks_of(h.fd) > 0);
        let_go(&h);
        for (i = 0; i < 2000 && blocks_of(h.fd) > 0; i++)
                usleep(10000);
        assert_int_equal(blocks_of(h.fd), 0);
        fd_close(h.fd);
        fd_close(fd);
}

/* Killed with a job that hangs, it is seen to be dead at once, and there is another. */
static void kill_and_go_on(struct scene *s, unsigned n_lost)
{
        struct mark m = {0};
        int fd = make_file(), pid = reaper_pid(s->reaper);
        unsigned n = s->n_done;

        assert_int_equal(kill(pid, SIGKILL), 0);
        wait_for(s, n + n_lost);
        assert_int_equal(s->n_lost, n_lost);
        assert_non_null(strstr(s->said, "died"));
        usleep(1100 * 1000); /* REAPER_YOUNG_NSEC */
        turn(s, 0);
        assert_true(reaper_pid(s->reaper) > 0 && reaper_pid(s->reaper) != pid);
        punch(s, fd, TENANT, &m);
        wait_for(s, n + n_lost + 1);
        assert_int_equal(m.result, 0);
        assert_int_equal(blocks_of(fd), 0);
        fd_close(fd);
}

TEST(test_killed_while_it_hangs)
{
        struct mark m = {0};
        struct scene s;
        struct held h;

        if (!hold(&h))
                skip();
        start(&s, NULL);
        punch(&s, h.fd, TENANT, &m);
        turn(&s, 300);
        kill_and_go_on(&s, 1);
        let_go(&h);
        reaper_stop(s.reaper);
        fd_close(h.fd);
}

/* After a life of some length the next one is there at once. */
TEST(test_killed_old)
{
        struct scene s;
        int pid;

        start(&s, NULL);
        pid = reaper_pid(s.reaper);
        usleep(REAPER_YOUNG_NSEC / NSEC_PER_USEC + 100000);
        assert_int_equal(kill(pid, SIGKILL), 0);
        for (int i = 0; i < 200 && !s.said[0]; i++)
                turn(&s, 100);
        assert_true(reaper_pid(s.reaper) > 0 && reaper_pid(s.reaper) != pid);
        reaper_stop(s.reaper);
}

/* ---- the process ----------------------------------------------------------------------------- */

/* The process has none of our descriptors, gets none of our signals, and ends with its socket. */
TEST(test_process)
{
        struct scene s;
        struct mark m = {0};
        char path[64];
        int fd = make_file(), leak = dup(fd), pid; /* without close-on-exec */

        start(&s, NULL);
        pid = reaper_pid(s.reaper);
        punch(&s, fd, TENANT, &m);
        wait_for(&s, 1);
        snprintf(path, sizeof(path), "/proc/%d/fd", pid);
        assert_int_equal(test_dir_count(path), 5); /* three standard ones, events, the socket */
        assert_int_equal(getpgid(pid), pid);
        assert_int_equal(kill(pid, SIGTERM), 0);
        assert_int_equal(kill(pid, SIGINT), 0);
        punch(&s, fd, TENANT, &m);
        wait_for(&s, 2);
        assert_int_equal(m.result, 0);
        reaper_stop(s.reaper);
        assert_int_equal(kill(pid, 0), -1);
        assert_int_equal(errno, ESRCH);
        fd_close(leak);
        fd_close(fd);
}

/* The close of a socket that lingers, with bytes that the other side never takes, for an hour. */
TEST(test_linger)
{
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        struct linger linger = {.l_onoff = 1, .l_linger = 3600};
        socklen_t len = sizeof(at);
        char bytes[65536] = {0};
        struct scene s;
        struct mark m = {.scene = &s};
        int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), other;

        if (bind(listener, (struct sockaddr *)&at, len) < 0 || listen(listener, 1) < 0 ||
                getsockname(listener, (struct sockaddr *)&at, &len) < 0 ||
                connect(fd, (struct sockaddr *)&at, len) < 0) {
                print_message("no TCP here (%s)\n", strerror(errno));
                fd_close(listener);
                fd_close(fd);
                skip();
        }
        other = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
                ;
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
        start(&s, NULL);
        reaper_submit(s.reaper, REAP_CLOSE, REAPER_STRANGER | 1, fd, 0, on_done, &m);
        turn(&s, 200);
        assert_false(m.is_done);
        wait_for(&s, 1);
        reaper_stop(s.reaper);
        fd_close(other);
        fd_close(listener);
}

/* ---- without a process ----------------------------------------------------------------------- */

TEST(test_no_process)
{
        struct scene s;
        struct mark m = {0};
        int fd = make_file();

        start(&s, "/nonexistent/kvleased");
        assert_int_equal(reaper_pid(s.reaper), 0);
        assert_non_null(strstr(s.said, "cannot start the process that gives memory back"));
        s.said[0] = '\0';
        punch(&s, fd, TENANT, &m);
        assert_true(m.is_done);
        assert_int_equal(m.result, 0);
        assert_int_equal(blocks_of(fd), 0);
        turn(&s, 0);
        assert_string_equal(s.said, ""); /* once */
        reaper_stop(s.reaper);
        fd_close(fd);
}

/* One that starts and exits at once. */
TEST(test_process_that_dies_young)
{
        struct scene s;
        struct mark m = {0};
        int fd = make_file();

        start(&s, "/bin/true");
        for (int i = 0; i < 200 && !s.said[0]; i++)
                turn(&s, 100);
        assert_non_null(strstr(s.said, "died"));
        punch(&s, fd, TENANT, &m);
        assert_true(m.is_done && m.result == 0);
        reaper_stop(s.reaper);
        fd_close(fd);
}

int main(int argc, char **argv)
{
        if (reap_is_asked(argc, argv))
                return reap_process();
        return test_run_all(NULL, NULL);
}
