/*
 * The connections of the scripted daemon, and its process: it listens, accepts, goes away and comes
 * back; frames are received and answered, and clients welcomed and taken up again. What it answers
 * otherwise: fake-serve.c.
 */
#include "tests/unit/fake-daemon-impl.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "proto/sock.h"
#include "proto/status.h"
#include "tests/unit/child.h"
#include "tests/unit/test-support.h"

/* A fake daemon that waits longer than that has a test that hangs. */
#define FAKE_PATIENCE_SEC 60

void fake_send_raw(struct fake_peer *p, const void *bytes, size_t len)
{
        for (size_t done = 0; done < len;) {
                ssize_t n = send(p->fd, (const char *)bytes + done, len - done, MSG_NOSIGNAL);

                if (n < 0)
                        return; /* the client hung up: its right */
                done += (size_t)n;
        }
}

void fake_send(struct fake_peer *p, uint16_t type, uint16_t flags, uint64_t seq,
        const ProtobufCMessage *m, const int *fds, unsigned n_fds)
{
        static uint8_t buf[FRAME_MAX_SIZE];
        int len;
        ssize_t n = 0;

        if (p->lie)
                p->lie(p, (ProtobufCMessage *)m);
        len = msg_pack(buf, PROTO_VERSION_MAX, type, flags, seq, n_fds, m);
        FAKE_CHECK(len > 0);
        if (p->is_mute)
                return;
        if (n_fds > 0)
                n = sock_send(p->fd, buf, (size_t)len, fds, n_fds);
        FAKE_CHECK(n >= 0);
        fake_send_raw(p, buf + n, (size_t)(len - n));
}

const ProtobufCMessage *fake_receive_any(struct fake_peer *p)
{
        const ProtobufCMessage *m;
        struct frame f;
        int r;

        while ((r = frame_parser_next(&p->in, &f, NULL)) == 0) {
                struct pollfd pfd = {.fd = p->fd, .events = POLLIN};
                ssize_t n;

                poll(&pfd, 1, -1);
                n = sock_receive(p->fd, &p->in);
                if (n == 0 || n == -ECONNRESET)
                        return NULL;
                FAKE_CHECK(n > 0 || n == -EAGAIN);
        }
        FAKE_CHECK(r == 1 && f.header.fd_count == 0 && !(f.header.flags & FRAME_REPLY));
        p->seq = f.header.seq;
        p->type = f.header.type;
        p->flags = f.header.flags;
        arena_reset(&p->arena);
        FAKE_CHECK(msg_find(p->type));
        m = msg_unpack(msg_find(p->type)->request, &p->arena, f.payload, f.header.length);
        FAKE_CHECK(m);
        return m;
}

const ProtobufCMessage *fake_receive(struct fake_peer *p, uint16_t type)
{
        const ProtobufCMessage *m = fake_receive_any(p);

        FAKE_CHECK(m && p->type == type);
        return m;
}

void fake_expect_end(struct fake_peer *p)
{
        while (fake_receive_any(p))
                if (p->type == MSG_BYE)
                        fake_reply_simple(p, WIRE_OK, "");
}

void fake_reply(struct fake_peer *p, const ProtobufCMessage *m)
{
        fake_send(p, p->type, FRAME_REPLY, p->seq, m, NULL, 0);
}

void fake_reply_simple(struct fake_peer *p, uint32_t status, const char *detail)
{
        Kvlease__V1__SimpleReply m = KVLEASE__V1__SIMPLE_REPLY__INIT;

        m.status = status;
        m.detail = (char *)detail;
        fake_reply(p, &m.base);
}

void fake_reply_pages(struct fake_peer *p, uint32_t status, const uint32_t *pages, uint32_t n)
{
        Kvlease__V1__LeaseReply lease = KVLEASE__V1__LEASE_REPLY__INIT;
        Kvlease__V1__PublishReply publish = KVLEASE__V1__PUBLISH_REPLY__INIT;
        Kvlease__V1__LookupReply lookup = KVLEASE__V1__LOOKUP_REPLY__INIT;

        lease.status = publish.status = lookup.status = status;
        lease.n_pages = publish.n_pages = lookup.n_pages = n;
        lease.pages = publish.pages = lookup.pages = (uint32_t *)pages;
        lookup.tokens = n * 16;
        fake_reply(p, p->type == MSG_LEASE     ? &lease.base
                      : p->type == MSG_PUBLISH ? &publish.base
                                               : &lookup.base);
}

/* ---- the peer ------------------------------------------------------------------------------- */

/* Frees the pages of pending leases. */
static void undo(struct fake_peer *p)
{
        for (size_t i = 0; i < p->n_pending; i++)
                for (uint32_t page = 0; page < FAKE_MAX_PAGES; page++)
                        if (p->leased_by[page] == p->pending[i])
                                p->leased[page] = 0;
}

static void take_up(struct fake_peer *p, const Kvlease__V1__HelloRequest *request)
{
        if (request->resume_client == 0)
                return;
        FAKE_CHECK(p->resumes && request->resume_client == FAKE_CLIENT_ID);
        FAKE_CHECK(request->resume_token.len == 16 &&
                   memcmp(request->resume_token.data, FAKE_TOKEN, 16) == 0);
        FAKE_CHECK(request->n_pending <= FAKE_MAX_PENDING);
        p->n_pending = request->n_pending;
        if (p->n_pending > 0)
                memcpy(p->pending, request->pending, p->n_pending * sizeof(*p->pending));
        undo(p);
        p->is_resuming = true;
        p->n_resume_ns = p->n_reopened = 0;
        memset(p->is_mapped, 0, sizeof(p->is_mapped));
}

void fake_serve_hello(struct fake_peer *p, const Kvlease__V1__HelloRequest *request)
{
        Kvlease__V1__HelloReply m = KVLEASE__V1__HELLO_REPLY__INIT;

        take_up(p, request);
        if (p->resumes) {
                m.resume_token.data = (uint8_t *)FAKE_TOKEN;
                m.resume_token.len = 16;
        }
        m.version = PROTO_VERSION_MAX;
        m.tenant = (char *)"blue";
        m.daemon_version = (char *)"0.1.0";
        m.client_id = FAKE_CLIENT_ID;
        m.group_token.data = (uint8_t *)"0123456789abcdef";
        m.group_token.len = 16;
        fake_reply(p, &m.base);
}

void fake_welcome(struct fake_peer *p)
{
        fake_serve_hello(p, (const Kvlease__V1__HelloRequest *)fake_receive(p, MSG_HELLO));
}

void fake_serve_resume_ns(struct fake_peer *p, const Kvlease__V1__ResumeNsRequest *request)
{
        FAKE_CHECK(p->is_resuming && request->ns_id == FAKE_NS_ID);
        p->n_resume_ns++;
        p->said_shares = request->shares;
        for (size_t i = 0; i < request->n_mapped_sets; i++) {
                FAKE_CHECK(request->mapped_sets[i] < FAKE_N_SETS);
                FAKE_CHECK(!p->is_mapped[request->mapped_sets[i]]);
                p->is_mapped[request->mapped_sets[i]] = true;
        }
        fake_reply_simple(p, WIRE_OK, "");
}

void fake_serve_resumed(struct fake_peer *p)
{
        FAKE_CHECK(p->is_resuming);
        p->is_resuming = false;
        fake_reply_simple(p, WIRE_OK, "");
}

void fake_take_up(struct fake_peer *p)
{
        do
                FAKE_CHECK(fake_serve_one(p, fake_receive_any(p)));
        while (p->type != MSG_RESUMED);
}

/* ---- its process ---------------------------------------------------------------------------- */

static int call_fd = -1; /* both processes have it */

void fake_call(void)
{
        FAKE_CHECK(eventfd_write(call_fd, 1) == 0);
}

void fake_await_call(void)
{
        eventfd_t n;

        FAKE_CHECK(eventfd_read(call_fd, &n) == 0);
}

void fake_accept(struct fake_peer *p)
{
        struct pollfd pfd = {.fd = p->listener, .events = POLLIN};

        fd_close(p->fd);
        frame_parser_deinit(&p->in);
        frame_parser_init(&p->in);
        poll(&pfd, 1, -1);
        p->fd = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
        FAKE_CHECK(p->fd >= 0);
        p->is_resuming = p->resumes;
}

static struct sockaddr_un address; /* of the listener that was left */

void fake_leave(struct fake_peer *p)
{
        socklen_t len = sizeof(address);

        FAKE_CHECK(getsockname(p->listener, (struct sockaddr *)&address, &len) == 0);
        p->listener = fd_close(p->listener);
        p->fd = fd_close(p->fd);
}

void fake_return(struct fake_peer *p)
{
        p->listener = sock_listen(address.sun_path, 0600);
        FAKE_CHECK(p->listener >= 0);
        fake_accept(p);
}

static void run(int listener, fake_script script)
{
        struct fake_peer *p = calloc(1, sizeof(*p));

        alarm(FAKE_PATIENCE_SEC);
        FAKE_CHECK(p && arena_init(&p->arena, ARENA_BUDGET_BYTES) == 0);
        frame_parser_init(&p->in);
        memset(p->extents, 0xff, sizeof(p->extents));
        p->fetch_room = UINT32_MAX;
        p->listener = listener;
        p->fd = -1;
        fake_accept(p);
        script(p);
        _exit(0);
}

void fake_start(struct fake *f, fake_script script)
{
        int listener;

        f->dir = test_dir_make();
        f->path = test_path(f->dir, "sock");
        listener = sock_listen(f->path, 0600);
        assert_true(listener >= 0);
        call_fd = eventfd(0, EFD_CLOEXEC);
        assert_true(call_fd >= 0);
        f->pid = child_fork();
        assert_true(f->pid >= 0);
        if (f->pid == 0)
                run(listener, script);
        fd_close(listener);
}

/* Waits for its end. */
static int release(struct fake *f)
{
        int status = -1;

        assert_int_equal(waitpid(f->pid, &status, 0), f->pid);
        call_fd = fd_close(call_fd);
        test_dir_remove(f->dir);
        free(f->path);
        return status;
}

void fake_stop(struct fake *f)
{
        int status = release(f);

        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
}

void fake_kill(struct fake *f)
{
        kill(f->pid, SIGKILL);
        (void)release(f);
}
