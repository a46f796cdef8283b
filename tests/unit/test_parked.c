/*
 * The server in process, on a device behind a queue that answers when the test says so: requests
 * that wait for it, and what everybody else gets meanwhile. Leases that wait for room, too.
 */
#include "tests/unit/server-fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/core/state/tenant.h"
#include "daemon/server/services/stop.h"
#include "daemon/server/base/disk.h"
#include "daemon/server/peers/parked.h"
#include "gpu/queue.h"
#include "proto/status.h"
#include "daemon/core/clients/attach.h"
#include "tests/unit/at-once.h"
#include "tests/unit/child.h"
#include "daemon/core/requests/publish.h"

static void start(struct world *w, const char *timeout, unsigned n_sets)
{
        char text[256];

        snprintf(text, sizeof(text),
                "[daemon]\nhello_timeout=1s\n[device slow]\ndriver_timeout=%s\n[tenant a]\nlimit=1MiB\n",
                timeout);
        world_init(w, "slow");
        fake_device_make_slow(&w->device, true);
        world_serve(w, text, n_sets);
}

#define SCENE(fn, ...) TEST_ON(fn, struct world, w, start, world_end, ##__VA_ARGS__)

static struct client *connect_worker(struct world *w)
{
        return connect_client(w, getpid(), NULL);
}

static bool is_parked(struct world *w, const struct client *c)
{
        const struct peer *p = peer_of(w, c);

        return p && p->parked;
}

/* How many leases of the client come behind the one that is parked, or was. */
static unsigned count_behind(struct world *w, const struct client *c)
{
        const struct peer *p = peer_of(w, c);

        return p->waits[PENDING_LEASE].n - (p->parked != NULL);
}

static struct attach *attach_of(struct world *w, const struct client *c)
{
        return list_first(&peer_of(w, c)->member->attachments, struct attach, member_link);
}

static void say_free(struct client *c, uint32_t page)
{
        Kvlease__V1__FreeRequest request = KVLEASE__V1__FREE_REQUEST__INIT;

        request.ns_id = NS_ID;
        request.pages = &page;
        request.n_pages = 1;
        say(c, MSG_FREE, &request.base);
}

static void ask_devices(struct world *w, struct client *admin, const char *state, uint32_t n)
{
        Kvlease__V1__AdminListRequest request = KVLEASE__V1__ADMIN_LIST_REQUEST__INIT;

        say(admin, MSG_ADMIN_DEVICES, &request.base);
        expect(w, admin, "ADMIN_DEVICES:0 ");
        assert_string_equal(admin->state, state);
        assert_int_equal(admin->n_preparing, n);
}

/* Leases, by the answers not yet looked at, which are no others. */
static unsigned count_refused(const struct client *c)
{
        static const char word[] = "LEASE:36 ";
        unsigned n = 0;

        for (const char *at = c->replies; *at; at += strlen(word), n++)
                assert_memory_equal(at, word, strlen(word));
        return n;
}

/* The daemon keeps a bounded number of requests of a peer, and refuses leases beyond it. Other
 * requests are still handled: a lease or a recall may wait for them. */
SCENE(test_too_many_behind, "60s", 1)
{
        struct client *c;
        unsigned n = 0;

        c = connect_worker(w);
        fake_device_block(&w->device, "create");
        c->status = 0;
        for (; c->status == 0; n++) {
                assert_true(n < 5000);
                say_lease(c, 1);
                c->status = 0;
                world_turn(w);
        }
        assert_true(n > 200);
        /* A turn that has lasted long enough leaves the rest to the next one: maybe several. */
        AWAIT(w, 1 + count_behind(w, c) + count_refused(c) == n);
        c->replies[0] = '\0';
        assert_non_null(strstr(c->detail, "ask again"));
        assert_in_range(peer_of(w, c)->waits[PENDING_LEASE].bytes, PARKED_MAX_BEHIND_BYTES,
                PARKED_MAX_BEHIND_BYTES + 512);
        say_free(c, 0);
        expect(w, c, "FREE:32 ");
        fake_device_unblock(&w->device);
        AWAIT(w, !is_parked(w, c) && count_behind(w, c) == 0 && c->status == 4);
}

/* Leases behind it run no faster than the peer reads the answers. */
SCENE(test_behind_and_not_reading, "60s", 1)
{
        struct client *c;
        struct peer *p;

        c = connect_worker(w);
        fake_device_block(&w->device, "create");
        say_lease(c, 1);
        say_lease(c, 1);
        AWAIT(w, count_behind(w, c) > 0);
        p = peer_of(w, c);
        p->out.bytes += OUTQUEUE_HOLD_BYTES + 1;
        fake_device_unblock(&w->device);
        AWAIT(w, !is_parked(w, c));
        for (unsigned i = 0; i < 20; i++)
                world_turn(w);
        assert_true(count_behind(w, c) > 0);
        assert_true(p->held);
        p->out.bytes -= OUTQUEUE_HOLD_BYTES + 1;
        peer_schedule(p); /* as peer.c does when it has written so much */
        expect(w, c, "LEASE:0 LEASE:0 ");
}

SCENE(test_close_while_parked, "60s", 4)
{
        Kvlease__V1__NsCloseRequest close = KVLEASE__V1__NS_CLOSE_REQUEST__INIT;
        struct client *c;

        c = connect_worker(w);
        fake_device_block(&w->device, "create");
        say_lease(c, 1);
        say_lease(c, 1);
        AWAIT(w, count_behind(w, c) > 0);
        close.ns_id = NS_ID + 1; /* another: nothing happens to it */
        say(c, MSG_NS_CLOSE, &close.base);
        expect(w, c, "NS_CLOSE:34 ");
        close.ns_id = NS_ID;
        say(c, MSG_NS_CLOSE, &close.base);
        expect(w, c, "LEASE:34 NS_CLOSE:0 LEASE:34 ");
        assert_true(list_is_empty(&w->server.leases.parked) &&
                    list_is_empty(&w->server.store.waits.leases));
        fake_device_unblock(&w->device);
}

SCENE(test_bye_while_parked, "60s", 4)
{
        Kvlease__V1__ByeRequest bye = KVLEASE__V1__BYE_REQUEST__INIT;
        struct client *c;

        c = connect_worker(w);
        fake_device_block(&w->device, "create");
        say_lease(c, 1);
        say_lease(c, 1);
        AWAIT(w, count_behind(w, c) > 0);
        say(c, MSG_BYE, &bye.base);
        expect(w, c, "LEASE:34 LEASE:34 BYE:0 ");
        AWAIT(w, !peer_of(w, c));
        fake_device_unblock(&w->device);
}

/* Parks all of them, each with a lease of a whole set; the device hangs in `call`. */
static void park_many(struct world *w, struct client *clients[], unsigned n, const char *call)
{
        for (unsigned i = 0; i < n; i++)
                clients[i] = connect_worker(w);
        fake_device_block(&w->device, call);
        for (unsigned i = 0; i < n; i++) {
                say_lease(clients[i], SET_PAGES);
                AWAIT(w, is_parked(w, clients[i]));
        }
}

/* Counts answered clients: in the order of requests none is parked before an answered one. */
static unsigned count_answered(struct world *w, struct client *clients[], unsigned n)
{
        unsigned n_answered = 0;

        while (n_answered < n && !is_parked(w, clients[n_answered]))
                n_answered++;
        for (unsigned i = n_answered; i < n; i++)
                assert_true(is_parked(w, clients[i]));
        return n_answered;
}

/* One extent set ends all of them, one with its pages: no turn has to look for room for them all,
 * and the namespace is topped up after the last one. */
TEST(test_many_in_turns)
{
        enum { N = CLIENTS_MAX - 1 };
        struct client *clients[N], *admin;
        unsigned n = 0, before, n_turns = 0;
        const struct ns *ns;
        struct world w;

        assert_true(N > PARKED_RETRIES_PER_TURN && N <= 2 * PARKED_RETRIES_PER_TURN);
        start(&w, "60s", 1);
        admin = connect_admin(&w);
        park_many(&w, clients, N, "create");
        ns = attach_of(&w, clients[0])->ns;
        fake_device_unblock(&w.device);
        for (uint64_t until = clock_now_nsec() + PATIENCE; n<N; n_turns += n> before) {
                assert_true(clock_now_nsec() < until);
                before = n;
                world_turn(&w);
                n = count_answered(&w, clients, N);
                assert_true(n - before <= PARKED_RETRIES_PER_TURN);
                assert_int_equal(ns->sets.changed, n > 0 && n < N);
                world_check(&w);
        }
        assert_int_equal(n_turns, 2);
        expect(&w, clients[0], "LEASE:0 ");
        for (unsigned i = 1; i < N; i++)
                expect(&w, clients[i], "LEASE:4 ");
        ask_devices(&w, admin, "ok", 0);
        AWAIT(&w, uv_backend_timeout(&w.server.loop.uv) == -1);
        world_end(&w);
}

/* Goes through all of them though none can be answered yet: a destroyed set is no news to them. */
TEST(test_many_wait_on)
{
        enum { N = CLIENTS_MAX - 1 };
        struct client *clients[N], *c;
        struct world w;

        start(&w, "60s", 1);
        c = connect_worker(&w);
        say_lease(c, 1);
        expect(&w, c, "LEASE:0 ");
        fake_device_block(&w.device, "destroy");
        say_free(c, 0);
        expect(&w, c, "FREE:0 ");
        fake_device_wait_inside(&w.device);
        park_many(&w, clients, N, "destroy");
        fake_device_block(&w.device, "create");
        fake_device_wait_inside(&w.device);
        AWAIT(&w, uv_backend_timeout(&w.server.loop.uv) > 50000);
        assert_int_equal(count_answered(&w, clients, N), 0);
        fake_device_unblock(&w.device);
        for (unsigned i = 0; i < N; i++)
                expect(&w, clients[i], i == 0 ? "LEASE:0 " : "LEASE:4 ");
        world_end(&w);
}

/* A client that leaves between two turns is skipped, and its set is used all the same. */
TEST(test_last_due_leaves)
{
        enum { N = PARKED_RETRIES_PER_TURN + 1 };
        struct client *clients[N];
        const struct ns *ns;
        struct world w;

        start(&w, "60s", 1);
        park_many(&w, clients, N, "create");
        ns = attach_of(&w, clients[0])->ns;
        fake_device_unblock(&w.device);
        AWAIT(&w, count_answered(&w, clients, N) == N - 1);
        assert_true(ns->sets.changed);
        peer_end(peer_of(&w, clients[N - 1]));
        AWAIT(&w, !ns->sets.changed);
        expect(&w, clients[0], "LEASE:0 ");
        world_end(&w);
}

/* A client that has memory mapped, with a lease that waits. */
static struct client *park_with_memory(struct world *w)
{
        struct client *c = connect_worker(w);

        say_lease(c, 1);
        expect(w, c, "LEASE:0 ");
        map_set(w, c, 0);
        fake_device_block(&w->device, "create");
        say_lease(c, SET_PAGES);
        AWAIT(w, is_parked(w, c));
        return c;
}

TEST(test_hang_up_with_memory)
{
        struct client *c;
        struct world w;

        start(&w, "60s", 4);
        c = park_with_memory(&w);
        say_lease(c, SET_PAGES);
        hang_up(c);
        AWAIT(&w, peer_of(&w, c)->state == PEER_WAITING);
        assert_true(list_is_empty(&w.server.leases.parked));
        fake_device_unblock(&w.device);
        AWAIT(&w, w.server.store.memory.n_extents == 1);
        world_end(&w);
}

SCENE(test_drain_answers, "60s", 4)
{
        Kvlease__V1__AdminDrainRequest drain = KVLEASE__V1__ADMIN_DRAIN_REQUEST__INIT;
        struct client *c, *admin;

        c = connect_worker(w);
        admin = connect_admin(w);
        fake_device_block(&w->device, "create");
        say_lease(c, 1);
        AWAIT(w, is_parked(w, c));
        say(admin, MSG_ADMIN_DRAIN, &drain.base);
        expect(w, admin, "ADMIN_DRAIN:0 ");
        expect(w, c, "LEASE:7 ");
        fake_device_unblock(&w->device);
        AWAIT(w, w->server.store.memory.n_extents == 0);
}

SCENE(test_stop_answers, "60s", 4)
{
        struct client *c;

        c = connect_worker(w);
        fake_device_block(&w->device, "create");
        say_lease(c, 1);
        say_lease(c, 1);
        AWAIT(w, count_behind(w, c) > 0);
        server_stop(&w->server);
        expect(w, c, "LEASE:7 LEASE:7 ");
        assert_false(w->server.store.draining);
        fake_device_unblock(&w->device);
}

SCENE(test_broken_device, "60s", 4)
{
        struct client *c, *admin;

        c = connect_worker(w);
        admin = connect_admin(w);
        fake_device_fail(&w->device, "create", 1, -ENXIO);
        say_lease(c, 1);
        expect(w, c, "LEASE:42 ");
        ask_devices(w, admin, "broken", 0);
}

/* Nothing runs where nothing is submitted. */
SCENE(test_idle, "60s", 4)
{
        struct client *c;

        c = connect_worker(w);
        fake_device_block(&w->device, "create");
        say_lease(c, 1);
        AWAIT(w, is_parked(w, c));
        world_turn(w);
        /* Just the deadline, beside what looks after rings a moment later. */
        AWAIT(w, uv_backend_timeout(&w->server.loop.uv) > 50000);
        fake_device_unblock(&w->device);
        expect(w, c, "LEASE:0 ");
        AWAIT(w, uv_backend_timeout(&w->server.loop.uv) == -1);
}

/* ---- a queue that can't be listened to ------------------------------------------------------ */

static struct {
        bool polls_fail, threads_fail;
        atomic_uint n_jobs, n_jobs_done; /* of libuv's pool */
        uv_work_cb job;
        struct device *device; /* what queue_open() finds */
} wrapped;

int __real_pthread_create(
        pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *data), void *data);
int __wrap_pthread_create(
        pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *data), void *data);

int __wrap_pthread_create(
        pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *data), void *data)
{
        return wrapped.threads_fail ? EAGAIN : __real_pthread_create(ret, attr, fn, data);
}

int __real_uv_queue_work(uv_loop_t *loop, uv_work_t *work, uv_work_cb run, uv_after_work_cb after);
int __wrap_uv_queue_work(uv_loop_t *loop, uv_work_t *work, uv_work_cb run, uv_after_work_cb after);

static void run_job(uv_work_t *work)
{
        wrapped.job(work);
        wrapped.n_jobs_done++;
}

int __wrap_uv_queue_work(uv_loop_t *loop, uv_work_t *work, uv_work_cb run, uv_after_work_cb after)
{
        wrapped.n_jobs++;
        wrapped.job = run;
        return __real_uv_queue_work(loop, work, run_job, after);
}

int __real_uv_poll_init(uv_loop_t *loop, uv_poll_t *handle, int fd);
int __wrap_uv_poll_init(uv_loop_t *loop, uv_poll_t *handle, int fd);
int __wrap_queue_open(const char *name, const struct device_options *want, unsigned deadline_msec,
        struct queue **ret_queue, char why[DEVICE_WHY_BYTES]);

int __wrap_uv_poll_init(uv_loop_t *loop, uv_poll_t *handle, int fd)
{
        return wrapped.polls_fail ? -ENOSPC : __real_uv_poll_init(loop, handle, fd);
}

int __wrap_queue_open(const char *name, const struct device_options *want, unsigned deadline_msec,
        struct queue **ret_queue, char why[DEVICE_WHY_BYTES])
{
        return queue_open_device(wrapped.device, deadline_msec, ret_queue);
}

/* stderr is a file from here on; returns what it was. */
static int redirect_stderr(FILE *file)
{
        int saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);

        assert_true(saved >= 0);
        assert_true(dup2(fileno(file), STDERR_FILENO) >= 0);
        return saved;
}

/* Starts a server on a slow device, in vain. `ret_said`: what it says of that. */
static enum exit_code start_in_vain(char *ret_said, size_t size)
{
        const struct config_source source = {0};
        enum exit_code code;
        struct config config;
        struct world w;
        FILE *file = tmpfile();
        int saved;

        assert_non_null(file);
        world_init(&w, "slow");
        fake_device_make_slow(&w.device, true);
        world_parse("[daemon]\ndevices=slow\n[device slow]\nmemory=4MiB\nextent=2MiB\n"
                    "[tenant a]\nlimit=1MiB\n",
                &config);
        wrapped.device = &w.device.device;
        saved = redirect_stderr(file);
        code = server_init(&w.server, &config, &source);
        assert_true(dup2(saved, STDERR_FILENO) >= 0);
        fd_close(saved);
        rewind(file);
        ret_said[fread(ret_said, 1, size - 1, file)] = '\0';
        fclose(file);
        assert_false(w.server.life.left_behind);
        assert_true(code == EXIT_OTHER || w.device.closed);
        fake_device_deinit(&w.device);
        return code;
}

/* The daemon doesn't start with a device that would never answer anybody. */
TEST(test_no_start_without_ears)
{
        char said[1024];

        wrapped.polls_fail = true;
        assert_int_equal(start_in_vain(said, sizeof(said)), EXIT_DEVICE);
        wrapped.polls_fail = false;
        assert_non_null(strstr(said, "cannot listen to device slow (No space left on device)"));
}

/* Nor without the thread that works on files, which libuv would abort for. */
TEST(test_no_start_without_threads)
{
        char said[1024];

        wrapped.threads_fail = true;
        assert_int_equal(start_in_vain(said, sizeof(said)), EXIT_OTHER);
        wrapped.threads_fail = false;
        assert_non_null(strstr(said, "no thread for its files"));
}

/* disk_start() waits for the pool's first job. */
TEST(test_pool_is_there)
{
        wrapped.n_jobs = wrapped.n_jobs_done = 0;
        assert_int_equal(disk_start(), 0);
        assert_int_equal(wrapped.n_jobs, 1);
        assert_int_equal(wrapped.n_jobs_done, 1);
}

/* An earlier daemon may have left as many files as the hard limit allows. */
TEST(test_limit_before_all)
{
        struct rlimit before, low, raised;
        char said[1024];

        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
        low = (struct rlimit){MIN(before.rlim_max - 1, (rlim_t)200), before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
        wrapped.polls_fail = true;
        assert_int_equal(start_in_vain(said, sizeof(said)), EXIT_DEVICE);
        wrapped.polls_fail = false;
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &raised), 0);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        assert_true(raised.rlim_cur == raised.rlim_max);
}

/* server_init_for_test() closes the caller's device if it fails. */
TEST(test_no_ears_for_a_given_device)
{
        char log[FAKE_LOG_BYTES];
        struct config config;
        struct world w;

        world_init(&w, "slow");
        fake_device_make_slow(&w.device, true);
        world_parse("[tenant a]\nlimit=1MiB\n", &config);
        wrapped.polls_fail = true;
        assert_int_equal(server_init_for_test(
                                 &w.server, &config, &w.device.device, 4 * SET_BYTES, SET_BYTES),
                -ENOSPC);
        wrapped.polls_fail = false;
        assert_string_equal(fake_device_take_log(&w.device, log), "close ");
        fake_device_deinit(&w.device);
}

/* ---- room ------------------------------------------------------------------------------------ */

/* A set's pages, published and pinned in the client's segment alone. */
static void seal_all_shared(struct attach *a)
{
        uint32_t pages[SET_PAGES], sealed;

        assert_int_equal(lease_pages(a, SET_PAGES, 1, pages, NULL), 0);
        for (unsigned i = 0; i < SET_PAGES; i++) {
                uint8_t key[KEY_BYTES] = {(uint8_t)(i + 1)};
                const struct publish_one one = {
                        .page = pages[i], .key = key, .parent = PAGE_NONE, .tokens = 16};

                a->share.counters[pages[i]]++;
                assert_int_equal(publish_shared(a, &one, 1, &sealed, NULL), 0);
        }
}

/* A device of one set, at once there; leases wait for it. */
static void start_queueing(struct world *w, const char *max_wait)
{
        char text[256];

        snprintf(text, sizeof(text), "[tenant a]\nlimit=1MiB\nwhen_full=queue\nmax_wait=%s\n",
                max_wait);
        world_init(w, "fake");
        world_serve(w, text, 1);
}

#define ROOM_SCENE(fn, ...) TEST_ON(fn, struct world, w, start_queueing, world_end, ##__VA_ARGS__)

/* A pin that ends in a segment, while leases of another client end at their deadline all the time:
 * they are no round of tries. */
ROOM_SCENE(test_deadlines_of_others, "60s")
{
        Kvlease__V1__LeaseRequest request = KVLEASE__V1__LEASE_REQUEST__INIT;
        struct client *c, *other, *hasty;
        struct attach *a;
        uint64_t began;

        c = connect_worker(w);
        other = connect_worker(w);
        hasty = connect_worker(w);
        a = attach_of(w, other);
        assert_int_equal(attach_share(a, NULL), 0);
        seal_all_shared(a);
        say_lease(c, 1);
        AWAIT(w, is_parked(w, c));
        request.ns_id = NS_ID;
        request.n_pages = SET_PAGES;
        request.max_wait_msec = 1;
        began = clock_now_nsec();
        for (unsigned i = 0; i < 20; i++) {
                say(hasty, MSG_LEASE, &request.base);
                expect(w, hasty, "LEASE:10 ");
        }
        a->share.counters[7]--;
        began = clock_now_nsec();
        while (is_parked(w, c)) {
                say(hasty, MSG_LEASE, &request.base);
                expect(w, hasty, "LEASE:10 ");
                assert_true(clock_now_nsec() - began < PATIENCE);
        }
        expect(w, c, "LEASE:0 ");
        for (unsigned i = 0; i < SET_PAGES; i++)
                a->share.counters[i] = 0;
}

/* Sets that a device made are for the leases that wait for it. Leases that wait for room don't stop
 * the reaping, and have their round. */
ROOM_SCENE(test_device_is_not_for_room, "60s")
{
        struct client *c, *other;

        c = connect_worker(w);
        other = connect_worker(w);
        say_lease(c, SET_PAGES);
        expect(w, c, "LEASE:0 ");
        say_lease(other, 1);
        AWAIT(w, is_parked(w, other));
        AWAIT(w, !w->server.leases.in_round && !w->server.leases.room_came);
        parked_make_due(&w->server, list_first(&w->server.store.pools, struct pool, link));
        assert_true(list_is_empty(&w->server.leases.due));
        assert_true(w->server.leases.room_came);
        AWAIT(w, !w->server.leases.in_round && !w->server.leases.room_came);
}

/* More of them than one turn tries. */
TEST(test_many_for_room)
{
        enum { N = CLIENTS_MAX - 1 };
        struct client *clients[N], *c;
        struct world w;

        start_queueing(&w, "60s");
        c = connect_worker(&w);
        say_lease(c, SET_PAGES);
        expect(&w, c, "LEASE:0 ");
        for (unsigned i = 0; i < N; i++) {
                clients[i] = connect_worker(&w);
                say_lease(clients[i], SET_PAGES);
                AWAIT(&w, is_parked(&w, clients[i]));
        }
        hang_up(c);
        for (unsigned i = 0; i < N; i++) {
                expect(&w, clients[i], "LEASE:0 ");
                hang_up(clients[i]);
        }
        world_end(&w);
}

#if !defined(__SANITIZE_THREAD__) /* no threads after a fork of a process with threads */
/* Maps memory of a device with a thread when the daemon ends. Returns whether it left a thread. */
static bool end_with_memory(void)
{
        struct client *c;
        struct world w;

        start(&w, "60s", 4);
        c = connect_worker(&w);
        say_lease(c, 1);
        expect(&w, c, "LEASE:0 ");
        map_set(&w, c, 0);
        server_deinit(&w.server);
        return w.server.life.left_behind;
}

/* The client's memory stays, and so does the device's thread: the process must end by _exit(). */
TEST(test_end_leaves_a_thread)
{
        pid_t pid = child_fork();
        int status;

        assert_true(pid >= 0);
        if (pid == 0) {
                setenv("CMOCKA_TEST_ABORT", "1", 1); /* else the child would go on with the tests */
                _exit(end_with_memory() ? 0 : 1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}
#endif

int main(void)
{
        return test_run_all(world_warm_up, NULL);
}
