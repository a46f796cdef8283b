/*
 * Clients that don't take descriptors sent to them. The kernel counts those in flight for all
 * clients together, so a client that doesn't read must not use the others' share. And a log that
 * isn't read.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "daemon/server/base/outqueue.h"
#include "proto/sock.h"
#include "proto/status.h"
#include "tests/fault/raw.h"

#define FEW_FDS    128
#define N_FLOOD    200 /* requests: more than FEW_FDS, and less than a socket's buffer holds */
#define N_FLOODERS 5   /* they may leave more than FEW_FDS unread */
#define WATCH_MSEC 300

static_assert(N_FLOODERS * OUTQUEUE_MAX_UNREAD_FDS > FEW_FDS + OUTQUEUE_MAX_UNREAD_FDS / 2,
        "too few to starve anybody");

static const struct private_tenant two[] = {{"a", NULL}, {"b", NULL}, {NULL, NULL}};
static const struct private_options options = {.tenants = two};

/* Does the kernel count for the daemon at all? */
static bool is_counted(struct harness *h)
{
        const uint64_t exempt = UINT64_C(1) << 24 | UINT64_C(1) << 21; /* SYS_RESOURCE, SYS_ADMIN */
        char path[64], line[256];
        uint64_t caps = 0;
        FILE *f;

        snprintf(path, sizeof(path), "/proc/%d/status", (int)h->daemon.pid);
        f = fopen(path, "re");
        assert_non_null(f);
        while (fgets(line, sizeof(line), f))
                if (strncmp(line, "CapEff:", 7) == 0)
                        caps = strtoull(line + 7, NULL, 16);
        fclose(f);
        return !(caps & exempt);
}

static void limit_fds(struct harness *h, rlim_t n)
{
        struct rlimit limit;

        assert_int_equal(prlimit(h->daemon.pid, RLIMIT_NOFILE, NULL, &limit), 0);
        limit.rlim_cur = n;
        assert_int_equal(prlimit(h->daemon.pid, RLIMIT_NOFILE, &limit, NULL), 0);
}

/* Connects to a tenant and leases a page: set 0 is there to be mapped. */
static uint32_t attach(struct raw *r, struct harness *h, const char *tenant)
{
        Kvlease__V1__LeaseRequest lease = KVLEASE__V1__LEASE_REQUEST__INIT;
        const Kvlease__V1__LeaseReply *reply;
        char path[PRIVATE_PATH_MAX];

        raw_open(r, h, private_daemon_socket(&h->daemon, tenant, path));
        lease.ns_id = raw_attach(r);
        lease.n_pages = 1;
        assert_true(raw_request(r, MSG_LEASE, 0, &lease.base));
        reply = (const Kvlease__V1__LeaseReply *)raw_answer(r);
        assert_non_null(reply);
        assert_int_equal(reply->status, WIRE_OK);
        return lease.ns_id;
}

static void ask_map(struct raw *r, uint32_t ns_id)
{
        Kvlease__V1__MapRequest map = KVLEASE__V1__MAP_REQUEST__INIT;

        map.ns_id = ns_id;
        assert_true(raw_request(r, MSG_MAP, 0, &map.base));
}

static void assert_mapped(struct raw *r)
{
        const Kvlease__V1__MapReply *reply = (const Kvlease__V1__MapReply *)raw_answer(r);

        assert_non_null(reply);
        assert_int_equal(reply->status, WIRE_OK);
        assert_int_equal(reply->n_planes, 1);
}

static bool is_silent(struct raw *r, short events)
{
        struct pollfd p = {r->fd, events, 0};

        return poll(&p, 1, WATCH_MSEC) == 0;
}

/* Reads answers with a descriptor, until there are `max` or the daemon has no more. */
static unsigned take_maps(struct raw *r, unsigned max)
{
        struct pollfd p = {r->fd, POLLIN, 0};
        struct frame f;
        unsigned n = 0;

        while (n < max && poll(&p, 1, 5000) == 1) {
                assert_true(sock_receive(r->fd, &r->parser) > 0);
                while (frame_parser_next(&r->parser, &f, NULL) == 1) {
                        n += f.header.fd_count;
                        frame_close_fds(&f);
                }
        }
        return n;
}

/* Says goodbye: its mappings would otherwise count until this process exits. */
static void leave(struct raw *r)
{
        Kvlease__V1__ByeRequest bye = KVLEASE__V1__BYE_REQUEST__INIT;

        assert_true(raw_request(r, MSG_BYE, 0, &bye.base));
        assert_true(raw_hung_up(r));
        raw_close(r);
}

HARNESS_TEST(test_flood, &options)
{
        struct raw flood, other;
        uint32_t id = attach(&flood, h, "a"), other_id = attach(&other, h, "b");

        limit_fds(h, FEW_FDS);
        for (unsigned i = 0; i < N_FLOOD; i++)
                ask_map(&flood, id);
        sleep_msec(WATCH_MSEC);
        for (unsigned i = 0; i < 2 * OUTQUEUE_MAX_UNREAD_FDS; i++) {
                ask_map(&other, other_id); /* a client that reads isn't held */
                assert_mapped(&other);
        }
        /* Nothing is lost either: each request is answered as the client reads. */
        assert_int_equal(take_maps(&flood, N_FLOOD), N_FLOOD);
        leave(&flood);
        leave(&other);
        limit_fds(h, 1024);
}

/* How many descriptors a client leaves unread, for any limit of the machine. */
HARNESS_TEST(test_bound, &options)
{
        struct raw r;
        uint32_t id = attach(&r, h, "a");
        unsigned n = 0;
        struct frame f;

        for (unsigned i = 0; i < N_FLOOD; i++)
                ask_map(&r, id);
        sleep_msec(WATCH_MSEC);
        assert_int_equal(shutdown(r.fd, SHUT_WR), 0); /* no later answer can come */
        while (sock_receive(r.fd, &r.parser) > 0)
                while (frame_parser_next(&r.parser, &f, NULL) == 1) {
                        n += f.header.fd_count;
                        frame_close_fds(&f);
                }
        assert_in_range(n, 1, OUTQUEUE_MAX_UNREAD_FDS);
        raw_close(&r);
        /* The client mapped: the daemon waits for the end of its process, which is this one. */
        assert_int_equal(ctl_status(h, "members_waiting_exit"), 1);
        harness_restart(h);
}

static double idle_load(struct harness *h)
{
        struct timespec from, to;
        clockid_t clock;

        assert_int_equal(clock_getcpuclockid(h->daemon.pid, &clock), 0);
        assert_int_equal(clock_gettime(clock, &from), 0);
        sleep_msec(WATCH_MSEC);
        assert_int_equal(clock_gettime(clock, &to), 0);
        return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) /
               (WATCH_MSEC * 1e6);
}

static void assert_logged_once(struct harness *h, const char *words)
{
        const char *first;
        size_t len;
        char *text;

        assert_int_equal(file_read(h->daemon.log, 16 << 20, &text, &len), 0);
        first = strstr(text, words);
        if (!first || strstr(first + 1, words))
                fail_msg("\"%s\" is not once in: %s", words, text);
        free(text);
}

/*
 * So many that together they starve the rest. A client's request then waits, and only loses time.
 */
HARNESS_TEST(test_starved, &options)
{
        struct raw floods[N_FLOODERS], other;
        uint32_t ids[N_FLOODERS], other_id = attach(&other, h, "b");

        if (!is_counted(h))
                skip();
        for (unsigned i = 0; i < N_FLOODERS; i++)
                ids[i] = attach(&floods[i], h, "a");
        limit_fds(h, FEW_FDS);
        for (unsigned i = 0; i < N_FLOODERS; i++)
                for (unsigned k = 0; k < N_FLOOD; k++)
                        ask_map(&floods[i], ids[i]);
        sleep_msec(WATCH_MSEC);
        ask_map(&other, other_id);
        assert_true(is_silent(&other, POLLIN));
        assert_true(idle_load(h) < 0.5);
        assert_int_equal(ctl_status(h, "n_clients"), N_FLOODERS + 1);
        /* Two flooders leave. The starved client takes some of their share: the rest is enough. */
        raw_close(&floods[0]);
        raw_close(&floods[1]);
        assert_mapped(&other);
        assert_logged_once(h, "raise LimitNOFILE");
        for (unsigned i = 2; i < N_FLOODERS; i++)
                raw_close(&floods[i]);
        leave(&other);
        harness_restart(h); /* it waits for the exit of clients with mappings: this process */
}

/* After a goodbye the connection stays until its descriptors were read. */
HARNESS_TEST(test_goodbye, &options)
{
        Kvlease__V1__ByeRequest bye = KVLEASE__V1__BYE_REQUEST__INIT;
        struct raw r;

        ask_map(&r, attach(&r, h, "a"));
        assert_true(raw_request(&r, MSG_BYE, 0, &bye.base));
        ctl_wait_status(h, "n_clients", 0);
        assert_true(is_silent(&r, POLLRDHUP));
        assert_true(raw_hung_up(&r));
        raw_close(&r);
}

/* After half a hang-up it stays, too. */
HARNESS_TEST(test_half_closed, &options)
{
        Kvlease__V1__NsCloseRequest close_ns = KVLEASE__V1__NS_CLOSE_REQUEST__INIT;
        struct raw r;

        close_ns.ns_id = attach(&r, h, "a");
        ask_map(&r, close_ns.ns_id);
        assert_true(raw_request(&r, MSG_NS_CLOSE, 0, &close_ns.base));
        assert_int_equal(shutdown(r.fd, SHUT_WR), 0);
        sleep_msec(WATCH_MSEC);
        assert_int_equal(ctl_status(h, "n_clients"), 1);
        assert_true(idle_load(h) < 0.5);
        assert_true(raw_hung_up(&r));
        ctl_wait_status(h, "n_clients", 0);
        raw_close(&r);
}

#define N_CHANGES 60 /* their lines are more than the pipe holds */

/* The daemon writes its log to a pipe that isn't read, like that of a stopped container driver.
 * Clients and administrators are served, and no line is lost. */
HARNESS_TEST(test_log, &options)
{
        _cleanup_free_ char *text = calloc(1, 1 << 20);
        size_t len = 0;
        int fifo, status, n = 0;

        assert_non_null(text);
        assert_int_equal(private_daemon_stop(&h->daemon, &status), 0);
        assert_int_equal(unlink(h->daemon.log), 0);
        assert_int_equal(mkfifo(h->daemon.log, 0600), 0);
        fifo = open(h->daemon.log, O_RDWR | O_NONBLOCK | O_CLOEXEC);
        assert_true(fifo >= 0);
        assert_true(fcntl(fifo, F_SETPIPE_SZ, 4096) > 0);
        harness_start(h);
        for (int i = 0; i < N_CHANGES; i++) {
                char words[64];

                snprintf(words, sizeof(words), "tenants set a weight=%d", 10 + i);
                ctl(h, words);
        }
        for (unsigned i = 0; i < 1000 && n < N_CHANGES; i++, sleep_msec(10)) {
                ssize_t got = read(fifo, text + len, (1 << 20) - len - 1);

                len += got > 0 ? (size_t)got : 0;
                n = 0;
                for (const char *at = text; (at = strstr(at, "tenant a was changed")); at++)
                        n++;
        }
        assert_int_equal(n, N_CHANGES);
        assert_int_equal(unlink(h->daemon.log), 0);
        fd_close(open(h->daemon.log, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        fd_close(fifo);
}
