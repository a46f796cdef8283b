#include "tests/unit/server-fixture.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/core.h"
#include "daemon/server/base/log.h"
#include "daemon/server/services/tenants.h"
#include "proto/sock.h"
#include "tests/unit/child.h"
#include "proto/status.h"

int world_warm_up(void **state)
{
        uv_loop_t loop;

        return uv_loop_init(&loop) < 0 || uv_loop_close(&loop) < 0;
}

/* ---- the server ----------------------------------------------------------------------------- */

static void fail_by_report(void *data, bool is_error, const char *sentence)
{
        if (is_error)
                fail_msg("%s", sentence);
}

void world_init(struct world *w, const char *device)
{
        memset(w, 0, sizeof(*w));
        log_init(LEVEL_ERROR, TARGET_TEXT);
        fake_device_init(&w->device, device, SET_BYTES);
}

void world_parse(const char *text, struct config *ret_config)
{
        assert_int_equal(
                config_parse("test", text, strlen(text), ret_config, fail_by_report, NULL), 0);
}

void world_serve(struct world *w, const char *text, unsigned n_sets)
{
        struct config config;

        world_parse(text, &config);
        assert_int_equal(server_init_for_test(&w->server, &config, &w->device.device,
                                 n_sets * SET_BYTES, SET_BYTES),
                0);
        assert_int_equal(arena_init(&w->arena, ARENA_BUDGET_BYTES), 0);
}

void world_check(struct world *w)
{
        uint64_t pages, sets;
        struct detail d = {""};

        idle_sets_drain(&w->server.store); /* tests call the core, too */
        if (store_check(&w->server.store, &pages, &sets, &d) != 0)
                fail_msg("%s", d.text);
}

void world_stop(struct world *w)
{
        list_for_each_safe (p, &w->server.peers.list, struct peer, links.all)
                peer_end(p);
        world_check(w);
        assert_true(list_is_empty(&w->server.leases.parked));
        server_deinit(&w->server);
}

void world_free(struct world *w)
{
        for (unsigned i = 0; i < w->n_clients; i++) {
                frame_parser_deinit(&w->clients[i].parser);
                hang_up(&w->clients[i]);
        }
        arena_deinit(&w->arena);
}

void world_end(struct world *w)
{
        world_check(w);
        world_stop(w);
        assert_false(w->server.life.left_behind);
        assert_true(w->device.closed);
        assert_int_equal(w->device.n_extents, 0);
        world_free(w);
        fake_device_deinit(&w->device);
}

/* ---- what clients are told ------------------------------------------------------------------ */

static void take_event(struct client *c, uint16_t type, const ProtobufCMessage *m)
{
        const Kvlease__V1__RecallEvent *recall = (const Kvlease__V1__RecallEvent *)m;
        const Kvlease__V1__NoticeEvent *notice = (const Kvlease__V1__NoticeEvent *)m;

        if (type == MSG_NOTICE && notice->kind == KVLEASE__V1__NOTICE_EVENT__KIND__MEMBER_LEFT)
                c->n_left++;
        if (type != MSG_RECALL)
                return;
        c->n_recalls++;
        c->recall_set = recall->set_index;
        c->recall_idle = recall->idle;
        c->recall_msec = recall->timeout_msec;
}

const void *rows_of(
        struct world *w, const struct client *c, const struct figure_table *t, size_t *ret_n)
{
        const void *rows;

        assert_int_equal(figures_read((const Kvlease__V1__AdminRowsReply *)c->reply, t, &w->arena,
                                 &rows, ret_n),
                0);
        return rows;
}

static void take_figures(struct world *w, struct client *c, uint16_t type)
{
        const struct figures_status *status;
        const struct figures_device *device;
        size_t n;

        if (type == MSG_ADMIN_STATUS) {
                status = rows_of(w, c, &figures_table_status, &n);
                c->waiting = status->members_waiting_exit;
        }
        if (type == MSG_ADMIN_DEVICES) {
                device = rows_of(w, c, &figures_table_device, &n);
                snprintf(c->state, sizeof(c->state), "%s", device->state);
                c->n_preparing = (uint32_t)device->n_preparing;
        }
}

static void take_reply(
        struct world *w, struct client *c, const struct msg_info *info, const ProtobufCMessage *m)
{
        const Kvlease__V1__SimpleReply *reply = (const Kvlease__V1__SimpleReply *)m;
        size_t len = strlen(c->replies);

        c->reply = m;
        c->status = reply->status;
        snprintf(c->replies + len, sizeof(c->replies) - len, "%s:%u ", info->name, reply->status);
        snprintf(c->detail, sizeof(c->detail), "%s", reply->detail);
        if (info->reply == &kvlease__v1__count_reply__descriptor)
                c->count = ((const Kvlease__V1__CountReply *)m)->count;
        if (reply->status == WIRE_OK)
                take_figures(w, c, info->type);
}

static void take_frame(struct world *w, struct client *c, const struct frame *f)
{
        const struct msg_info *info = msg_find(f->header.type);
        ProtobufCMessage *m;

        arena_reset(&w->arena);
        m = msg_unpack(info->reply, &w->arena, f->payload, f->header.length);
        assert_non_null(m);
        if (f->header.flags & FRAME_EVENT)
                take_event(c, f->header.type, m);
        else
                take_reply(w, c, info, m);
}

void world_turn(struct world *w)
{
        idle_sets_drain(&w->server.store);
        uv_run(&w->server.loop.uv, UV_RUN_NOWAIT);
        for (unsigned i = 0; i < w->n_clients; i++) {
                struct client *c = &w->clients[i];
                struct frame f;

                while (c->fd >= 0 && sock_receive(c->fd, &c->parser) > 0)
                        while (frame_parser_next(&c->parser, &f, NULL) == 1) {
                                take_frame(w, c, &f);
                                frame_close_fds(&f);
                        }
        }
}

/* ---- what they say -------------------------------------------------------------------------- */

void say(struct client *c, uint16_t type, const ProtobufCMessage *m)
{
        static uint8_t buf[FRAME_MAX_SIZE];
        int n = msg_pack(buf, PROTO_VERSION_MAX, type, 0, ++c->seq, 0, m);

        assert_true(n > 0);
        c->status = UINT32_MAX;
        assert_int_equal(send(c->fd, buf, (size_t)n, MSG_NOSIGNAL), n);
}

void expect(struct world *w, struct client *c, const char *replies)
{
        AWAIT(w, strlen(c->replies) >= strlen(replies));
        assert_string_equal(c->replies, replies);
        c->replies[0] = '\0';
}

uint32_t ask(struct world *w, struct client *c, uint16_t type, const ProtobufCMessage *m)
{
        say(c, type, m);
        AWAIT(w, c->status != UINT32_MAX);
        c->replies[0] = '\0';
        return c->status;
}

static void say_hello(struct world *w, struct client *c, const struct client *mate)
{
        Kvlease__V1__HelloRequest hello = KVLEASE__V1__HELLO_REQUEST__INIT;

        hello.min_version = hello.max_version = PROTO_VERSION_MAX;
        if (mate) {
                hello.group_token.data = peer_of(w, mate)->member->group->token;
                hello.group_token.len = GROUP_TOKEN_BYTES;
        }
        assert_int_equal(ask(w, c, MSG_HELLO, &hello.base), 0);
}

static void open_ns(struct world *w, struct client *c)
{
        Kvlease__V1__NsOpenRequest open = KVLEASE__V1__NS_OPEN_REQUEST__INIT;
        Kvlease__V1__NsLayout layout = KVLEASE__V1__NS_LAYOUT__INIT;

        layout.model = (char *)"m";
        layout.dtype = layout.n_layers = layout.n_kv_heads = layout.head_size = layout.tp_size = 1;
        layout.page_tokens = 16;
        layout.n_planes = 1;
        layout.plane_page_bytes = SET_BYTES / SET_PAGES;
        open.name = (char *)"n";
        open.layout = &layout;
        assert_int_equal(ask(w, c, MSG_NS_OPEN, &open.base), 0);
        assert_int_equal(
                list_first(&peer_of(w, c)->member->attachments, struct attach, member_link)->id,
                NS_ID);
}

pid_t start_process(void)
{
        pid_t pid = child_fork();

        assert_true(pid >= 0);
        if (pid == 0) {
                for (;;)
                        pause();
        }
        return pid;
}

void kill_process(pid_t pid)
{
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static struct client *connect_as(struct world *w, const struct peer_origin *origin, int pidfd)
{
        struct client *c = &w->clients[w->n_clients++];
        struct peer *p;
        int fds[2];

        assert_true(w->n_clients <= CLIENTS_MAX);
        assert_int_equal(
                socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
        assert_int_equal(peer_new(&w->server, origin, fds[0], pidfd, &p), 0);
        frame_parser_init(&c->parser);
        c->peer_id = p->id;
        c->fd = fds[1];
        return c;
}

struct client *connect_admin(struct world *w)
{
        struct client *c = connect_as(w, &(struct peer_origin){.kind = LISTEN_ADMIN}, -1);

        say_hello(w, c, NULL);
        return c;
}

struct client *connect_process(struct world *w, const char *tenant, pid_t pid)
{
        struct peer_origin origin = {.kind = LISTEN_TENANT, .pid = pid};
        int pidfd = pidfd_open(pid, 0);

        assert_true(pidfd >= 0);
        origin.tenancy = tenancy_find(&w->server, tenant);
        return connect_as(w, &origin, pidfd);
}

struct client *connect_client_of(
        struct world *w, const char *tenant, pid_t pid, const struct client *mate)
{
        struct client *c = connect_process(w, tenant, pid);

        say_hello(w, c, mate);
        open_ns(w, c);
        return c;
}

struct client *connect_client(struct world *w, pid_t pid, const struct client *mate)
{
        return connect_client_of(w, "a", pid, mate);
}

struct peer *peer_of(struct world *w, const struct client *c)
{
        list_for_each (p, &w->server.peers.list, struct peer, links.all)
                if (p->id == c->peer_id)
                        return p;
        return NULL;
}

void hang_up(struct client *c)
{
        c->fd = fd_close(c->fd);
}

void say_lease(struct client *c, uint32_t n)
{
        Kvlease__V1__LeaseRequest request = KVLEASE__V1__LEASE_REQUEST__INIT;

        request.ns_id = NS_ID;
        request.n_pages = n;
        say(c, MSG_LEASE, &request.base);
}

void map_set(struct world *w, struct client *c, uint32_t set)
{
        Kvlease__V1__MapRequest request = KVLEASE__V1__MAP_REQUEST__INIT;

        request.ns_id = NS_ID;
        request.set_index = set;
        assert_int_equal(ask(w, c, MSG_MAP, &request.base), 0);
}
