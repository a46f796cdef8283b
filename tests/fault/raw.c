#include "tests/fault/raw.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "proto/sock.h"

#define RAW_TIMEOUT_MSEC 10000
#define RAW_ARENA_BYTES  (1024 * 1024)

void raw_open(struct raw *r, struct harness *h, const char *path)
{
        char buf[PRIVATE_PATH_MAX];

        memset(r, 0, sizeof(*r));
        frame_parser_init(&r->parser);
        assert_int_equal(arena_init(&r->arena, RAW_ARENA_BYTES), 0);
        r->fd = sock_connect(path ? path : private_daemon_socket(&h->daemon, "a", buf));
        assert_true(r->fd >= 0);
        assert_int_equal(fcntl(r->fd, F_SETFL, 0), 0);
}

void raw_close(struct raw *r)
{
        r->fd = fd_close(r->fd);
        frame_parser_deinit(&r->parser);
        arena_deinit(&r->arena);
}

bool raw_send(struct raw *r, const void *data, size_t len, unsigned n_fds)
{
        union {
                char bytes[CMSG_SPACE(64 * sizeof(int))];
                struct cmsghdr align;
        } control = {0};
        struct iovec iov = {(void *)data, len};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

        assert_true(n_fds <= 64);
        if (n_fds) {
                struct cmsghdr *c = &control.align;
                int fds[64];

                for (unsigned i = 0; i < n_fds; ++i)
                        fds[i] = STDERR_FILENO;
                msg.msg_control = &control;
                msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
                memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
        }
        return sendmsg(r->fd, &msg, MSG_NOSIGNAL) == (ssize_t)len;
}

bool raw_frame(struct raw *r, struct frame_header header)
{
        uint8_t buf[FRAME_MAX_SIZE] = {0};

        header.magic = header.magic ? header.magic : FRAME_MAGIC;
        header.version = header.version ? header.version : 1;
        header.seq = ++r->seq;
        frame_encode_header(&header, buf);
        return raw_send(
                r, buf, FRAME_HEADER_SIZE + MIN(header.length, (uint32_t)FRAME_MAX_PAYLOAD), 0);
}

bool raw_request(struct raw *r, uint16_t type, uint16_t flags, const ProtobufCMessage *m)
{
        uint8_t buf[FRAME_MAX_SIZE];
        int n = msg_pack(buf, 1, type, flags, ++r->seq, 0, m);

        assert_true(n > 0);
        return raw_send(r, buf, (size_t)n, 0);
}

/* Receives once. Returns 1: input; 0: end; -EAGAIN: time-out. */
static int receive(struct raw *r)
{
        struct pollfd p = {r->fd, POLLIN, 0};
        ssize_t n;

        if (poll(&p, 1, RAW_TIMEOUT_MSEC) <= 0)
                return -EAGAIN;
        n = sock_receive(r->fd, &r->parser);
        return n > 0 ? 1 : n == -ECONNRESET || n == 0 ? 0 : (int)n;
}

/* Reads the next frame; false: the daemon hung up. */
static bool next_frame(struct raw *r)
{
        for (;;) {
                int n;

                frame_close_fds(&r->frame);
                r->frame.header.fd_count = 0;
                n = frame_parser_next(&r->parser, &r->frame, NULL);
                assert_true(n >= 0);
                if (n == 1)
                        return true;
                n = receive(r);
                if (n == 0)
                        return false;
                assert_int_equal(n, 1);
        }
}

/* Stores the answer's descriptors if the caller wants them, else closes them. */
static void take_fds(struct raw *r)
{
        if (r->fds) {
                assert_int_equal(r->frame.header.fd_count, r->n_fds);
                memcpy(r->fds, r->frame.fds, r->n_fds * sizeof(int));
        } else {
                frame_close_fds(&r->frame);
        }
        r->frame.header.fd_count = 0;
        r->fds = NULL;
}

const ProtobufCMessage *raw_answer(struct raw *r)
{
        const struct msg_info *info;
        const ProtobufCMessage *m;

        do
                if (!next_frame(r))
                        return NULL;
        while (!(r->frame.header.flags & FRAME_REPLY));
        info = msg_find(r->frame.header.type);
        assert_int_equal(r->frame.header.seq, r->seq);
        arena_reset(&r->arena);
        m = msg_unpack(info ? info->reply : &kvlease__v1__simple_reply__descriptor, &r->arena,
                r->frame.payload, r->frame.header.length);
        assert_non_null(m);
        take_fds(r);
        return m;
}

bool raw_hung_up(struct raw *r)
{
        struct pollfd p = {r->fd, POLLIN, 0};
        char junk[65536];
        ssize_t n;

        for (;;) {
                if (poll(&p, 1, RAW_TIMEOUT_MSEC) <= 0)
                        return false;
                n = read(r->fd, junk, sizeof(junk));
                if (n <= 0)
                        return n == 0 || errno == ECONNRESET;
        }
}

const Kvlease__V1__HelloReply *raw_hello(struct raw *r, uint32_t min_version, uint32_t max_version)
{
        Kvlease__V1__HelloRequest hello = KVLEASE__V1__HELLO_REQUEST__INIT;
        uint8_t buf[FRAME_MAX_SIZE];
        int n;

        hello.min_version = min_version;
        hello.max_version = max_version;
        hello.client_name = (char *)"raw";
        hello.library_version = (char *)"0";
        n = msg_pack(buf, (uint16_t)max_version, MSG_HELLO, 0, ++r->seq, 0, &hello.base);
        assert_true(n > 0);
        assert_true(raw_send(r, buf, (size_t)n, 0));
        return (const Kvlease__V1__HelloReply *)raw_answer(r);
}

bool raw_authenticate(struct raw *r, const Kvlease__V1__HelloReply *hello)
{
        Kvlease__V1__AuthRequest auth = KVLEASE__V1__AUTH_REQUEST__INIT;
        const Kvlease__V1__SimpleReply *reply;
        const Kvlease__V1__ChallengeEvent *event;

        if (!hello || hello->status != 0 || !hello->auth_required)
                return hello && hello->status == 0;
        do
                if (!next_frame(r))
                        return false;
        while (r->frame.header.type != MSG_CHALLENGE);
        event = (const Kvlease__V1__ChallengeEvent *)msg_unpack(
                &kvlease__v1__challenge_event__descriptor, &r->arena, r->frame.payload,
                r->frame.header.length);
        assert_non_null(event);
        auth.nonce = event->nonce;
        if (!raw_request(r, MSG_AUTH, 0, &auth.base))
                return false;
        reply = (const Kvlease__V1__SimpleReply *)raw_answer(r);
        return reply && reply->status == 0;
}

uint32_t raw_attach(struct raw *r)
{
        const Kvlease__V1__HelloReply *hello = raw_hello(r, 1, 1);

        if (!hello || hello->status != 0)
                print_error("HELLO: %s\n", hello ? hello->detail : "no answer");
        assert_true(raw_authenticate(r, hello));
        return raw_open_ns(r);
}

const Kvlease__V1__NsOpenReply *raw_try_model(struct raw *r, const char *name, const char *model)
{
        Kvlease__V1__NsOpenRequest open = KVLEASE__V1__NS_OPEN_REQUEST__INIT;
        Kvlease__V1__NsLayout layout = KVLEASE__V1__NS_LAYOUT__INIT;
        const Kvlease__V1__NsOpenReply *reply;

        layout.model = (char *)model;
        layout.dtype = 1;
        layout.n_layers = layout.n_kv_heads = layout.head_size = 1;
        layout.page_tokens = 16;
        layout.n_planes = layout.tp_size = 1;
        layout.plane_page_bytes = 4096;
        open.name = (char *)name;
        open.layout = &layout;
        assert_true(raw_request(r, MSG_NS_OPEN, 0, &open.base));
        reply = (const Kvlease__V1__NsOpenReply *)raw_answer(r);
        assert_non_null(reply);
        return reply;
}

const Kvlease__V1__NsOpenReply *raw_try_ns(struct raw *r, const char *name)
{
        return raw_try_model(r, name, "raw");
}

uint32_t raw_open_ns(struct raw *r)
{
        const Kvlease__V1__NsOpenReply *reply = raw_try_ns(r, "raw");

        assert_int_equal(reply->status, 0);
        return reply->ns_id;
}
