/*
 * The daemon in process: frames of several peers through the real parser, dispatcher and state,
 * over a small host device. With any input: no crash, replies that parse and unpack, state that
 * checks.
 *
 * Input: records of {peer, type, flags, length low, length high, payload}. Type 255: the payload is
 * fed without a header. Peers 0 and 1 are a group's members with a namespace open. Peer 2 is of
 * another tenant, 3 an administrator; 4 has not said hello.
 */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/core/core.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/server.h"
#include "daemon/server/base/log.h"
#include "daemon/server/services/tenant-changes.h"
#include "daemon/server/services/tenants.h"
#include "proto/kvlease.pb-c.h"
#include "proto/msg.h"
#include "proto/sock.h"
#include "tests/fuzz/fuzz.h"

#define N_PEERS  5
#define MIB      (UINT64_C(1) << 20)
#define TYPE_RAW 255
#define RECORD   5

struct client {
        uint64_t peer_id;
        int fd; /* the client's end */
        struct frame_parser parser;
        uint64_t seq;
};

static struct server server;
static struct client clients[N_PEERS];

static void ignore_report(void *data, bool is_error, const char *sentence)
{
        CHECK(!is_error);
}

static void start_server(void)
{
        static const char text[] = "[tenant a]\nlimit=4MiB\n[tenant b]\nlimit=4MiB\n";
        struct config config;
        char why[DEVICE_WHY_BYTES];
        struct device *device;

        log_init(LEVEL_ERROR, TARGET_TEXT);
        CHECK(config_parse("fuzz", text, strlen(text), &config, ignore_report, NULL) == 0);
        CHECK(device_open("host", NULL, &device, why) == 0);
        CHECK(server_init_for_test(&server, &config, device, 6 * MIB, 2 * MIB) == 0);
}

static void connect_client(struct client *c, enum listener_kind kind, const char *tenant)
{
        struct peer_origin origin = {
                .kind = kind,
                .tenancy = tenant ? tenancy_find(&server, tenant) : NULL,
        };
        struct peer *p;
        int fds[2];

        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
        CHECK(peer_new(&server, &origin, fds[0], -1, &p) == 0);
        frame_parser_init(&c->parser);
        c->peer_id = p->id;
        c->fd = fds[1];
        c->seq = 0;
}

/* NULL: it is gone. */
static struct peer *peer_of(const struct client *c)
{
        list_for_each (p, &server.peers.list, struct peer, links.all)
                if (p->id == c->peer_id && p->conn.parser)
                        return p;
        return NULL;
}

/* A client can read every frame that the daemon sends. */
static void check_frame(const struct frame *f)
{
        static struct arena arena;
        const struct msg_info *info = msg_find(f->header.type);
        const ProtobufCMessageDescriptor *d =
                info ? info->reply : &kvlease__v1__simple_reply__descriptor;

        CHECK(f->header.flags == FRAME_REPLY || f->header.flags == FRAME_EVENT);
        if (!arena.memory)
                CHECK(arena_init(&arena, ARENA_BUDGET_BYTES) == 0);
        arena_reset(&arena);
        CHECK(msg_unpack(d, &arena, f->payload, f->header.length));
}

static void read_replies(struct client *c)
{
        struct frame f;
        int r;

        while (sock_receive(c->fd, &c->parser) > 0) {
                while ((r = frame_parser_next(&c->parser, &f, NULL)) == 1) {
                        check_frame(&f);
                        frame_close_fds(&f);
                }
                CHECK(r == 0);
        }
}

static void turn(struct client *c)
{
        do
                uv_run(&server.loop.uv, UV_RUN_NOWAIT);
        while (tenant_changes_are_left(&server)); /* by a thread: the same each time */
        read_replies(c);
}

static void feed(struct client *c, uint8_t type, uint16_t flags, const uint8_t *payload, size_t len)
{
        static uint8_t buf[FRAME_MAX_SIZE];
        struct peer *p = peer_of(c);
        struct frame_header h = {
                .magic = FRAME_MAGIC,
                .version = PROTO_VERSION_MAX,
                .type = type,
                .length = (uint32_t)len,
                .flags = flags,
                .seq = ++c->seq,
        };

        if (!p)
                return;
        if (type == TYPE_RAW) {
                peer_feed(p, payload, len);
        } else {
                frame_encode_header(&h, buf);
                memcpy(buf + FRAME_HEADER_SIZE, payload, len);
                peer_feed(p, buf, FRAME_HEADER_SIZE + len);
        }
        turn(c);
}

static void feed_message(struct client *c, uint8_t type, const ProtobufCMessage *m)
{
        uint8_t buf[512];

        CHECK(protobuf_c_message_get_packed_size(m) <= sizeof(buf));
        feed(c, type, 0, buf, protobuf_c_message_pack(m, buf));
}

static void say_hello(struct client *c, const struct client *mate)
{
        Kvlease__V1__HelloRequest hello = KVLEASE__V1__HELLO_REQUEST__INIT;

        hello.min_version = hello.max_version = PROTO_VERSION_MAX;
        if (mate) {
                hello.group_token.data = peer_of(mate)->member->group->token;
                hello.group_token.len = GROUP_TOKEN_BYTES;
        }
        feed_message(c, MSG_HELLO, &hello.base);
        CHECK(peer_of(c)->state == PEER_ACTIVE);
}

static void open_ns(struct client *c)
{
        Kvlease__V1__NsOpenRequest open = KVLEASE__V1__NS_OPEN_REQUEST__INIT;
        Kvlease__V1__NsLayout layout = KVLEASE__V1__NS_LAYOUT__INIT;

        layout.model = (char *)"m";
        layout.dtype = layout.n_layers = layout.n_kv_heads = layout.head_size = layout.tp_size = 1;
        layout.page_tokens = 16;
        layout.n_planes = 2;
        layout.plane_page_bytes = 128 * 1024;
        open.name = (char *)"n";
        open.layout = &layout;
        feed_message(c, MSG_NS_OPEN, &open.base);
        CHECK(!list_is_empty(&peer_of(c)->member->attachments));
}

static void connect_all(void)
{
        connect_client(&clients[0], LISTEN_TENANT, "a");
        connect_client(&clients[1], LISTEN_TENANT, "a");
        connect_client(&clients[2], LISTEN_TENANT, "b");
        connect_client(&clients[3], LISTEN_ADMIN, NULL);
        connect_client(&clients[4], LISTEN_TENANT, "b");
        say_hello(&clients[0], NULL);
        say_hello(&clients[1], &clients[0]);
        say_hello(&clients[2], NULL);
        say_hello(&clients[3], NULL);
        for (unsigned i = 0; i < 3; i++)
                open_ns(&clients[i]);
}

static void check_state(void)
{
        uint64_t pages, sets;
        struct detail d = {""};

        if (store_check(&server.store, &pages, &sets, &d) != 0) {
                fprintf(stderr, "store_check: %s\n", d.text);
                abort();
        }
}

static void stop_server(void)
{
        /* Ends each peer as if its process had exited, with its mappings. */
        list_for_each_safe (p, &server.peers.list, struct peer, links.all)
                peer_end(p);
        check_state();
        server_deinit(&server);
        for (unsigned i = 0; i < N_PEERS; i++) {
                frame_parser_deinit(&clients[i].parser);
                fd_close(clients[i].fd);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        start_server();
        connect_all();
        while (size >= RECORD) {
                size_t len = MIN((size_t)(data[3] | data[4] << 8), size - RECORD);

                len = MIN(len, (size_t)FRAME_MAX_PAYLOAD);
                feed(&clients[data[0] % N_PEERS], data[1], data[2], data + RECORD, len);
                data += RECORD + len;
                size -= RECORD + len;
        }
        check_state();
        stop_server();
        return 0;
}
