/* Ends of connections and of the daemon: silent clients, clients that don't read, signals. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "proto/status.h"
#include "tests/fault/raw.h"

#define WAIT_MSEC 30000 /* not tuned */

static uint64_t msec_since(uint64_t nsec)
{
        return (now_nsec() - nsec) / 1000000;
}

/* ---- silent clients ---- */

static const struct private_options short_hello = {.daemon_lines = "hello_timeout = 400ms\n"};

static void test_hello_timeout(void **state)
{
        struct harness *h = *state;
        const struct frame_header header = {.magic = FRAME_MAGIC, .version = 1, .type = MSG_HELLO};
        uint8_t half[FRAME_HEADER_SIZE];
        struct raw silent, halfway, good;
        uint64_t start = now_nsec();

        raw_open(&silent, h, NULL);
        sleep_msec(150); /* the second one's time ends later, and nothing else wakes the daemon */
        raw_open(&halfway, h, NULL);
        frame_encode_header(&header, half);
        assert_true(raw_send(&halfway, half, sizeof(half) - 1, 0));
        raw_open(&good, h, NULL);
        raw_attach(&good);
        assert_true(raw_hung_up(&silent));
        assert_in_range(msec_since(start), 400, 5000);
        assert_true(raw_hung_up(&halfway));
        /* Another silent client, after the first timer has run out. */
        raw_close(&silent);
        start = now_nsec();
        raw_open(&silent, h, NULL);
        assert_true(raw_hung_up(&silent));
        assert_in_range(msec_since(start), 400, 5000);
        assert_int_equal(ctl_status(h, "n_clients"), 1);
        assert_true(
                raw_hello(&good, 1, 1) == NULL); /* it was there still: a second hello is wrong */
        h->violations = 1;
        raw_close(&silent);
        raw_close(&halfway);
        raw_close(&good);
}

static const struct private_options short_challenge = {
        .daemon_lines = "hello_timeout = 400ms\nliveness = challenge\n"};

/* A client that says hello but answers no challenge isn't introduced. */
static void test_challenge_timeout(void **state)
{
        struct harness *h = *state;
        const Kvlease__V1__HelloReply *hello;
        struct raw r;

        raw_open(&r, h, NULL);
        hello = raw_hello(&r, 1, 1);
        assert_non_null(hello);
        assert_true(hello->auth_required);
        assert_true(raw_hung_up(&r));
        raw_close(&r);
}

/* A reload changes the time limit. */
static void test_timeout_reloaded(void **state)
{
        struct harness *h = *state;
        struct raw r;

        assert_int_equal(private_daemon_configure(&h->daemon, &short_hello), 0);
        kill(h->daemon.pid, SIGHUP);
        sleep_msec(300);
        raw_open(&r, h, NULL);
        assert_true(raw_hung_up(&r)); /* it waits 10 s at most: less than the default leaves */
        raw_close(&r);
}

static const struct private_options default_hello = {.daemon_lines = "hello_timeout = 60s\n"};

/* ---- clients that don't read ---- */

/* A client that sends requests and reads no answer, until the daemon has output waiting for it. */
static void open_deaf(struct raw *r, struct harness *h)
{
        Kvlease__V1__LookupRequest lookup = KVLEASE__V1__LOOKUP_REQUEST__INIT;

        raw_open(r, h, NULL);
        raw_attach(r);
        assert_int_equal(fcntl(r->fd, F_SETFL, O_NONBLOCK), 0);
        for (unsigned idle = 0; idle < 50;) {
                if (raw_request(r, MSG_LOOKUP, 0, &lookup.base)) {
                        idle = 0;
                } else {
                        idle++;
                        sleep_msec(5);
                }
        }
}

/* Sends the signal and waits for the exit with status 0. Returns how long it took. */
static uint64_t stop_by(struct harness *h, int signal)
{
        uint64_t start = now_nsec();
        int status = -1;

        kill(h->daemon.pid, signal);
        assert_int_equal(proc_wait(h->daemon.pid, WAIT_MSEC, &status), 0);
        h->daemon.pid = 0;
        assert_int_equal(status, 0);
        return msec_since(start);
}

static void assert_nothing_left(struct harness *h)
{
        char path[PRIVATE_PATH_MAX];

        assert_int_not_equal(access(h->daemon.admin, F_OK), 0);
        assert_int_not_equal(access(private_daemon_socket(&h->daemon, "a", path), F_OK), 0);
        snprintf(path, sizeof(path), "%.60s/lock", h->daemon.runtime);
        assert_int_not_equal(access(path, F_OK), 0);
}

static const struct private_options short_stop = {.daemon_lines = "stop_timeout = 700ms\n"};

static void test_stop_timeout(void **state)
{
        struct harness *h = *state;
        struct raw r;

        open_deaf(&r, h);
        assert_in_range(stop_by(h, SIGTERM), 650, 10000);
        assert_nothing_left(h);
        raw_close(&r);
        assert_int_equal(private_daemon_start(&h->daemon), 0);
}

static const struct private_options long_stop = {.daemon_lines = "stop_timeout = 1h\n"};

/* The daemon doesn't wait for clients that have read everything; each gets a notice of the stop. */
static void test_stop_at_once(void **state)
{
        struct harness *h = *state;
        struct worker *w = worker_start(h, "a", "ns", 1);
        char junk[65536];
        struct raw r;
        ssize_t n;

        raw_open(&r, h, NULL);
        raw_attach(&r);
        stop_by(h, SIGTERM);
        assert_nothing_left(h);
        n = read(r.fd, junk, sizeof(junk));
        assert_true(n > FRAME_HEADER_SIZE); /* the last notice, then the end */
        assert_true(memmem(junk, (size_t)n, "kvleased stops", 14) != NULL);
        assert_int_equal(read(r.fd, junk, sizeof(junk)), 0);
        raw_close(&r);
        worker_ask(w, "events");
        assert_non_null(strstr(w->rest, "disconnected"));
        worker_kill(w);
        assert_int_equal(private_daemon_start(&h->daemon), 0);
}

/* After a second signal it waits no longer. */
static void test_stop_twice(void **state)
{
        struct harness *h = *state;
        struct raw r;
        int status;

        open_deaf(&r, h);
        kill(h->daemon.pid, SIGTERM);
        assert_int_equal(proc_wait(h->daemon.pid, 500, &status), -ETIMEDOUT);
        stop_by(h, SIGTERM);
        assert_nothing_left(h);
        raw_close(&r);
        assert_int_equal(private_daemon_start(&h->daemon), 0);
}

/* Two signals at once, without clients: still a clean end. */
static void test_signals(void **state)
{
        static const int signals[] = {SIGINT, SIGTERM};
        struct harness *h = *state;

        for (unsigned i = 0; i < ARRAY_SIZE(signals); i++) {
                kill(h->daemon.pid, signals[i]);
                stop_by(h, SIGTERM);
                assert_nothing_left(h);
                assert_int_equal(private_daemon_start(&h->daemon), 0);
        }
        stop_by(h, SIGINT);
        assert_nothing_left(h);
        assert_int_equal(private_daemon_start(&h->daemon), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                harness_test(test_hello_timeout, (void *)&short_hello),
                harness_test(test_challenge_timeout, (void *)&short_challenge),
                harness_test(test_timeout_reloaded, (void *)&default_hello),
                harness_test(test_stop_timeout, (void *)&short_stop),
                harness_test(test_stop_at_once, (void *)&long_stop),
                harness_test(test_stop_twice, (void *)&long_stop),
                harness_test(test_signals, NULL),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
