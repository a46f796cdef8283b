/*
 * The server in process, on a device behind a queue that answers when the test says so: requests
 * that wait for it, and what everybody else gets meanwhile.
 */
#include "tests/unit/test-support.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "daemon/core/tenant.h"
#include "daemon/server/log.h"
#include "daemon/server/parked.h"
#include "daemon/server/peer.h"
#include "daemon/server/queues.h"
#include "daemon/server/server.h"
#include "daemon/server/tenants.h"
#include "gpu/queue.h"
#include "proto/kvlease.pb-c.h"
#include "proto/msg.h"
#include "proto/sock.h"
#include "proto/status.h"
#include "tests/unit/fake-device.h"

#define KIB       UINT64_C(1024)
#define SET_BYTES (64 * KIB)
#define SET_PAGES 16
#define PATIENCE  (10 * NSEC_PER_SEC)

struct client {
        uint64_t peer_id;
        int fd;
        struct frame_parser parser;
        uint64_t seq;
        char replies[128]; /* "LEASE:0 " as they came */
        char detail[512];  /* of the last one */
        unsigned n_notices;
        char state[16]; /* of the last ADMIN_DEVICES */
        uint32_t n_preparing;
};

struct world {
        struct fake_device device;
        struct server server;
        struct arena arena;
        struct client clients[4];
        unsigned n_clients;
};

static void ignore_report(void *data, bool is_error, const char *sentence)
{
        if (is_error)
                fail_msg("%s", sentence);
}

static void start(struct world *w, const char *timeout, unsigned n_sets)
{
        char text[256];
        struct config config;

        memset(w, 0, sizeof(*w));
        log_init(LEVEL_ERROR, TARGET_TEXT);
        snprintf(text, sizeof(text),
                "[daemon]\nhello_timeout=1s\n[device slow]\ndriver_timeout=%s\n[tenant "
                "a]\nlimit=1MiB\n",
                timeout);
        assert_int_equal(config_parse("test", text, strlen(text), &config, ignore_report, NULL), 0);
        fake_device_init(&w->device, "slow", SET_BYTES);
        fake_device_make_slow(&w->device, true);
        assert_int_equal(server_init_for_test(&w->server, &config, &w->device.device,
                                 n_sets * SET_BYTES, SET_BYTES),
                0);
        assert_int_equal(arena_init(&w->arena, ARENA_BUDGET_BYTES), 0);
}

static void take_frame(struct world *w, struct client *c, const struct frame *f)
{
        const struct msg_info *info = msg_find(f->header.type);
        const Kvlease__V1__AdminDevicesReply *devices;
        const Kvlease__V1__SimpleReply *reply;
        size_t len = strlen(c->replies);
        ProtobufCMessage *m;

        arena_reset(&w->arena);
        m = msg_unpack(info->reply, &w->arena, f->payload, f->header.length);
        assert_non_null(m);
        if (f->header.flags & FRAME_EVENT) {
                c->n_notices++;
                return;
        }
        reply = (const Kvlease__V1__SimpleReply *)m;
        snprintf(c->replies + len, sizeof(c->replies) - len, "%s:%u ", info->name, reply->status);
        snprintf(c->detail, sizeof(c->detail), "%s", reply->detail);
        if (f->header.type != MSG_ADMIN_DEVICES)
                return;
        devices = (const Kvlease__V1__AdminDevicesReply *)m;
        snprintf(c->state, sizeof(c->state), "%s", devices->devices[0]->state);
        c->n_preparing = devices->devices[0]->n_preparing;
}

static void turn(struct world *w)
{
        uv_run(&w->server.loop, UV_RUN_NOWAIT);
        for (unsigned i = 0; i < w->n_clients; i++) {
                struct client *c = &w->clients[i];
                struct frame f;

                while (c->fd >= 0 && sock_receive(c->fd, &c->parser, NULL) > 0)
                        while (frame_parser_next(&c->parser, &f, NULL) == 1) {
                                take_frame(w, c, &f);
                                frame_close_fds(&f);
                        }
        }
}

#define AWAIT(w, condition)                                        \
        do {                                                       \
                uint64_t until = clock_now_nsec() + PATIENCE;      \
                                                                   \
                for (turn(w); !(condition); turn(w)) {             \
                        if (clock_now_nsec() > until)              \
                                fail_msg("never: %s", #condition); \
                        usleep(200);                               \
                }                                                  \
        } while (0)

static void say(struct client *c, uint16_t type, const ProtobufCMessage *m)
{
        static uint8_t buf[FRAME_MAX_SIZE];
        int n = msg_pack(buf, PROTO_VERSION_MAX, type, 0, ++c->seq, 0, m);

        assert_true(n > 0);
        assert_int_equal(send(c->fd, buf, (size_t)n, MSG_NOSIGNAL), n);
}

/* Until it has got these replies, in this order. */
static void expect(struct world *w, struct client *c, const char *replies)
{
        AWAIT(w, strlen(c->replies) >= strlen(replies));
        assert_string_equal(c->replies, replies);
        c->replies[0] = '\0';
}

static struct client *connect_as(struct world *w, enum listener_kind kind)
{
        Kvlease__V1__HelloRequest hello = KVLEASE__V1__HELLO_REQUEST__INIT;
        struct client *c = &w->clients[w->n_clients++];
        struct peer_origin origin = {.kind = kind};
        struct peer *p;
        int fds[2], pidfd = -1;

        if (kind == LISTEN_TENANT) {
                origin.tenancy = tenancy_find(&w->server, "a");
                origin.pid = getpid();
                pidfd = pidfd_open(getpid(), 0);
                assert_true(pidfd >= 0);
        }
        assert_int_equal(
                socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
        assert_int_equal(peer_new(&w->server, &origin, fds[0], pidfd, &p), 0);
        frame_parser_init(&c->parser);
        c->peer_id = p->id;
        c->fd = fds[1];
        hello.min_version = hello.max_version = PROTO_VERSION_MAX;
        say(c, MSG_HELLO, &hello.base);
        expect(w, c, "HELLO:0 ");
        return c;
}

static struct client *connect_client(struct world *w, const char *ns)
{
        Kvlease__V1__NsOpenRequest open = KVLEASE__V1__NS_OPEN_REQUEST__INIT;
        Kvlease__V1__NsLayout layout = KVLEASE__V1__NS_LAYOUT__INIT;
        struct client *c = connect_as(w, LISTEN_TENANT);

        layout.model = (char *)"m";
        layout.dtype = layout.n_layers = layout.n_kv_heads = layout.head_size = layout.tp_size = 1;
        layout.page_tokens = 16;
        layout.n_planes = 1;
        layout.plane_page_bytes = SET_BYTES / SET_PAGES;
        open.name = (char *)ns;
        open.layout = &layout;
        say(c, MSG_NS_OPEN, &open.base);
        expect(w, c, "NS_OPEN:0 ");
        return c;
}

static struct peer *peer_of(struct world *w, const struct client *c)
{
        list_for_each (p, &w->server.peers, struct peer, link)
                if (p->id == c->peer_id)
                        return p;
        return NULL;
}

static bool is_parked(struct world *w, const struct client *c)
{
        const struct peer *p = peer_of(w, c);

        return p && p->parked;
}

static void say_lease(struct client *c, uint32_t n)
{
        Kvlease__V1__LeaseRequest lease = KVLEASE__V1__LEASE_REQUEST__INIT;

        lease.ns_id = 1;
        lease.n_pages = n;
        say(c, MSG_LEASE, &lease.base);
}

static void say_free(struct client *c, uint32_t page)
{
        Kvlease__V1__FreeRequest request = KVLEASE__V1__FREE_REQUEST__INIT;

        request.ns_id = 1;
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

static void check(struct world *w)
{
        uint64_t pages, sets;
        struct detail d = {""};

        if (store_check(&w->server.store, &pages, &sets, &d) != 0)
                fail_msg("%s", d.text);
}

static void end(struct world *w)
{
        check(w);
        list_for_each_safe (p, &w->server.peers, struct peer, link)
                peer_end(p);
        check(w);
        assert_true(list_is_empty(&w->server.parked));
        server_deinit(&w->server);
        assert_false(w->server.left_behind);
        assert_true(w->device.closed);
        for (unsigned i = 0; i < w->n_clients; i++) {
                frame_parser_deinit(&w->clients[i].parser);
                fd_close(w->clients[i].fd);
        }
        arena_deinit(&w->arena);
        fake_device_deinit(&w->device);
}

static void test_lease_waits_and_others_do_not(void **state)
{
        struct client *c, *other, *admin;
        struct world w;

        start(&w, "60s", 4);
        c = connect_client(&w, "n");
        other = connect_client(&w, "n");
        admin = connect_as(&w, LISTEN_ADMIN);
        fake_device_block(&w.device, "create");
        say_lease(c, 1);
        say_free(c, 0); /* the page that it will get: done before, it would be refused */
        AWAIT(&w, is_parked(&w, c));
        /* Its socket doesn't wake the loop for what isn't read, its end would. */
        assert_int_equal(peer_of(&w, c)->socket_events, UV_DISCONNECT);
        say_free(other, 0);
        expect(&w, other, "FREE:32 ");
        ask_devices(&w, admin, "ok", 1);
        check(&w);
        assert_string_equal(c->replies, "");
        fake_device_unblock(&w.device);
        expect(&w, c, "LEASE:0 FREE:0 ");
        assert_false(is_parked(&w, c));
        assert_int_equal(peer_of(&w, c)->n_requests, 4);
        say_free(c, 0);
        expect(&w, c, "FREE:32 ");
        end(&w);
}

static void test_first_come_first_served(void **state)
{
        struct client *c, *other;
        struct world w;

        start(&w, "60s", 1);
        c = connect_client(&w, "n");
        other = connect_client(&w, "n");
        fake_device_block(&w.device, "create");
        say_lease(other, SET_PAGES);
        AWAIT(&w, is_parked(&w, other));
        say_lease(c, SET_PAGES);
        AWAIT(&w, is_parked(&w, c));
        fake_device_unblock(&w.device);
        expect(&w, other, "LEASE:0 ");
        expect(&w, c, "LEASE:4 ");
        end(&w);
}

static void test_hang_up_while_parked(void **state)
{
        struct client *c;
        struct world w;

        start(&w, "60s", 4);
        c = connect_client(&w, "n");
        fake_device_block(&w.device, "create");
        say_lease(c, 1);
        say_lease(c, 1); /* what it said before it left is done, and waits for nothing */
        AWAIT(&w, is_parked(&w, c));
        c->fd = fd_close(c->fd);
        AWAIT(&w, !peer_of(&w, c));
        check(&w);
        fake_device_unblock(&w.device);
        AWAIT(&w, w.server.store.n_extents == 0);
        assert_int_equal(tenancy_find(&w.server, "a")->tenant->account.charged_bytes, 0);
        end(&w);
}

static void test_violation_while_parked(void **state)
{
        struct client *c;
        struct world w;

        start(&w, "60s", 4);
        c = connect_client(&w, "n");
        fake_device_block(&w.device, "create");
        say_lease(c, 1);
        AWAIT(&w, is_parked(&w, c));
        peer_violation(peer_of(&w, c), "test");
        AWAIT(&w, !peer_of(&w, c));
        fake_device_unblock(&w.device);
        end(&w);
}

/* A client that has memory mapped, with a lease that waits. */
static struct client *park_with_memory(struct world *w)
{
        Kvlease__V1__MapRequest map = KVLEASE__V1__MAP_REQUEST__INIT;
        struct client *c = connect_client(w, "n");

        say_lease(c, 1);
        expect(w, c, "LEASE:0 ");
        map.ns_id = 1;
        say(c, MSG_MAP, &map.base);
        expect(w, c, "MAP:0 ");
        fake_device_block(&w->device, "create");
        say_lease(c, SET_PAGES);
        AWAIT(w, is_parked(w, c));
        return c;
}

/* It keeps what it maps, and waits for nothing. */
static void test_muted_while_parked(void **state)
{
        struct client *c;
        struct world w;

        start(&w, "60s", 4);
        c = park_with_memory(&w);
        peer_violation(peer_of(&w, c), "test");
        AWAIT(&w, !is_parked(&w, c));
        assert_true(peer_of(&w, c)->muted);
        check(&w);
        fake_device_unblock(&w.device);
        AWAIT(&w, w.server.store.n_extents == 1);
        assert_string_equal(c->replies, "");
        end(&w);
}

static void test_hang_up_with_memory(void **state)
{
        struct client *c;
        struct world w;

        start(&w, "60s", 4);
        c = park_with_memory(&w);
        say_lease(c, SET_PAGES);
        c->fd = fd_close(c->fd);
        AWAIT(&w, peer_of(&w, c)->state == PEER_WAITING);
        assert_true(list_is_empty(&w.server.parked));
        fake_device_unblock(&w.device);
        AWAIT(&w, w.server.store.n_extents == 1);
        end(&w);
}

static void test_drain_answers(void **state)
{
        Kvlease__V1__AdminDrainRequest drain = KVLEASE__V1__ADMIN_DRAIN_REQUEST__INIT;
        struct client *c, *admin;
        struct world w;

        start(&w, "60s", 4);
        c = connect_client(&w, "n");
        admin = connect_as(&w, LISTEN_ADMIN);
        fake_device_block(&w.device, "create");
        say_lease(c, 1);
        AWAIT(&w, is_parked(&w, c));
        say(admin, MSG_ADMIN_DRAIN, &drain.base);
        expect(&w, admin, "ADMIN_DRAIN:0 ");
        expect(&w, c, "LEASE:7 ");
        fake_device_unblock(&w.device);
        AWAIT(&w, w.server.store.n_extents == 0);
        end(&w);
}

static void test_stop_answers(void **state)
{
        struct client *c;
        struct world w;

        start(&w, "60s", 4);
        c = connect_client(&w, "n");
        fake_device_block(&w.device, "create");
        say_lease(c, 1);
        AWAIT(&w, is_parked(&w, c));
        server_stop(&w.server);
        expect(&w, c, "LEASE:7 ");
        assert_false(w.server.store.draining);
        fake_device_unblock(&w.device);
        end(&w);
}

static void test_hanging_driver(void **state)
{
        struct client *c, *admin;
        struct world w;

        start(&w, "250ms", 4);
        c = connect_client(&w, "n");
        admin = connect_as(&w, LISTEN_ADMIN);
        fake_device_block(&w.device, "create");
        say_lease(c, 1);
        expect(&w, c, "LEASE:42 ");
        assert_non_null(strstr(c->detail, "hasn't answered extent_create for 250 ms"));
        ask_devices(&w, admin, "stuck", 0);
        say_lease(c, 1);
        expect(&w, c, "LEASE:42 ");
        check(&w);
        fake_device_unblock(&w.device);
        AWAIT(&w, strcmp(queues_state(list_first(&w.server.store.pools, struct pool, link)),
                          "ok") == 0);
        ask_devices(&w, admin, "ok", 0);
        say_lease(c, 1);
        expect(&w, c, "LEASE:0 ");
        end(&w);
}

static void test_broken_device(void **state)
{
        struct client *c, *admin;
        struct world w;

        start(&w, "60s", 4);
        c = connect_client(&w, "n");
        admin = connect_as(&w, LISTEN_ADMIN);
        fake_device_fail(&w.device, "create", 1, -ENXIO);
        say_lease(c, 1);
        expect(&w, c, "LEASE:42 ");
        ask_devices(&w, admin, "broken", 0);
        end(&w);
}

/* Nothing runs where nothing is submitted. */
static void test_idle(void **state)
{
        struct client *c;
        struct world w;

        start(&w, "60s", 4);
        c = connect_client(&w, "n");
        fake_device_block(&w.device, "create");
        say_lease(c, 1);
        AWAIT(&w, is_parked(&w, c));
        turn(&w);
        /* Just the deadline, beside what looks after rings a moment later. */
        AWAIT(&w, uv_backend_timeout(&w.server.loop) > 50000);
        fake_device_unblock(&w.device);
        expect(&w, c, "LEASE:0 ");
        AWAIT(&w, uv_backend_timeout(&w.server.loop) == -1);
        end(&w);
}

static void test_end_with_a_hanging_driver(void **state)
{
        struct client *c;
        struct world w;

        start(&w, "250ms", 4);
        c = connect_client(&w, "n");
        fake_device_block(&w.device, "create");
        say_lease(c, 1);
        expect(&w, c, "LEASE:42 ");
        list_for_each_safe (p, &w.server.peers, struct peer, link)
                peer_end(p);
        server_deinit(&w.server);
        assert_true(w.server.left_behind);
        fake_device_unblock(&w.device);
        fake_device_wait_closed(&w.device);
        frame_parser_deinit(&c->parser);
        fd_close(c->fd);
        arena_deinit(&w.arena);
}

/* libuv opens a pipe for signals once, with the first loop, and keeps it. */
static int warm_up(void **state)
{
        uv_loop_t loop;

        return uv_loop_init(&loop) < 0 || uv_loop_close(&loop) < 0;
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_lease_waits_and_others_do_not),
                TEST(test_first_come_first_served),
                TEST(test_hang_up_while_parked),
                TEST(test_violation_while_parked),
                TEST(test_muted_while_parked),
                TEST(test_hang_up_with_memory),
                TEST(test_drain_answers),
                TEST(test_stop_answers),
                TEST(test_hanging_driver),
                TEST(test_broken_device),
                TEST(test_idle),
                TEST(test_end_with_a_hanging_driver),
        };

        return cmocka_run_group_tests(tests, warm_up, NULL);
}
