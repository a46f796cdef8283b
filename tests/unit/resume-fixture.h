/*
 * A server whose clients are kept (fake-keep.h), so that they can go on on another connection, of
 * this daemon or of the next one; and what such clients say.
 */
#ifndef KVL_TESTS_RESUME_FIXTURE_H
#define KVL_TESTS_RESUME_FIXTURE_H

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/fd.h"
#include "daemon/core/clients/client-record.h"
#include "daemon/core/state/tenant.h"
#include "daemon/server/takeover.h"
#include "proto/status.h"
#include "tests/unit/fake-keep.h"
#include "tests/unit/server-fixture.h"

#define N_SETS   8
#define HOST_SET (UINT64_C(2) << 20) /* bytes; the host's granularity */

/* A client's own record of its identity. */
struct identity {
        uint64_t id;
        uint8_t token[CLIENT_TOKEN_BYTES];
};

struct scene {
        struct world w;
        struct fake_keep keep;
        bool is_on_host; /* its device, whose memory outlives the daemon */
        bool is_tight;   /* one descriptor is left for what the daemon takes over */
};

static inline void serve_on_host(struct world *w, const char *text)
{
        const struct device_options owner = {.side = DEVICE_OWNER};
        char why[DEVICE_WHY_BYTES] = "";
        struct device *device;
        struct config config;

        world_parse(text, &config);
        assert_int_equal(device_open("host", &owner, &device, why), 0);
        assert_int_equal(
                server_init_for_test(&w->server, &config, device, N_SETS * HOST_SET, HOST_SET), 0);
        assert_int_equal(arena_init(&w->arena, ARENA_BUDGET_BYTES), 0);
}

/* n descriptors more can be opened. Returns what the limit was. */
static inline struct rlimit leave_descriptors(unsigned n)
{
        struct rlimit before, low;
        int fds[8];

        assert_true(n > 0 && n <= ARRAY_SIZE(fds));
        for (unsigned i = 0; i < n; i++)
                fds[i] = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
        low = (struct rlimit){(rlim_t)fds[n - 1] + 1, before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
        for (unsigned i = 0; i < n; i++)
                fd_close(fds[i]);
        return before;
}

static inline void start_daemon(struct scene *s, const char *config)
{
        struct detail d = {""};
        struct rlimit before;

        world_init(&s->w, "fake");
        if (s->is_on_host)
                serve_on_host(&s->w, config);
        else
                world_serve(&s->w, config, N_SETS);
        s->w.server.store.keep = s->keep.keep;
        if (takeover_begin(&s->w.server, &d) < 0)
                fail_msg("%s", d.text);
        if (s->is_tight)
                before = leave_descriptors(1);
        if (takeover_end(&s->w.server, &d) < 0)
                fail_msg("%s", d.text);
        if (s->is_tight)
                assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

static inline struct scene *start(const char *config)
{
        struct scene *s = calloc(1, sizeof(*s));

        fake_keep_init(&s->keep);
        start_daemon(s, config);
        return s;
}

static inline void end(struct scene *s)
{
        if (s->is_on_host) {
                world_stop(&s->w);
                world_free(&s->w);
                fake_device_deinit(&s->w.device);
        } else {
                world_end(&s->w);
        }
        fake_keep_deinit(&s->keep);
        free(s);
}

/* ---- what clients say ----------------------------------------------------------------------- */

static inline struct identity identity_of(struct scene *s, struct client *c)
{
        const struct member *m = peer_of(&s->w, c)->member;
        struct identity i = {.id = m->id};

        memcpy(i.token, m->resume_token, CLIENT_TOKEN_BYTES);
        return i;
}

static inline uint32_t hello(
        struct scene *s, struct client *c, struct identity *i, uint64_t *pending, size_t n_pending)
{
        Kvlease__V1__HelloRequest m = KVLEASE__V1__HELLO_REQUEST__INIT;

        m.min_version = m.max_version = PROTO_VERSION_MAX;
        m.client_name = (char *)"again";
        m.resume_client = i->id;
        m.resume_token = (ProtobufCBinaryData){CLIENT_TOKEN_BYTES, i->token};
        m.pending = pending;
        m.n_pending = n_pending;
        return ask(&s->w, c, MSG_HELLO, &m.base);
}

/* Goes on as another connection of the process; the token is the one for the next time. */
static inline struct client *resume(
        struct scene *s, pid_t pid, struct identity *i, uint64_t *pending, size_t n_pending)
{
        struct client *c = connect_process(&s->w, "a", pid);
        const Kvlease__V1__HelloReply *reply;

        if (hello(s, c, i, pending, n_pending) != 0)
                fail_msg("%s", c->detail);
        reply = (const Kvlease__V1__HelloReply *)c->reply;
        assert_int_equal(reply->client_id, i->id);
        assert_int_equal(reply->resume_token.len, CLIENT_TOKEN_BYTES);
        assert_memory_not_equal(reply->resume_token.data, i->token, CLIENT_TOKEN_BYTES);
        memcpy(i->token, reply->resume_token.data, CLIENT_TOKEN_BYTES);
        return c;
}

static inline uint32_t resume_ns(struct scene *s, struct client *c, uint32_t *sets, size_t n)
{
        Kvlease__V1__ResumeNsRequest m = KVLEASE__V1__RESUME_NS_REQUEST__INIT;

        m.ns_id = NS_ID;
        m.mapped_sets = sets;
        m.n_mapped_sets = n;
        return ask(&s->w, c, MSG_RESUME_NS, &m.base);
}

static inline uint32_t resumed(struct scene *s, struct client *c)
{
        Kvlease__V1__ResumedRequest m = KVLEASE__V1__RESUMED_REQUEST__INIT;

        return ask(&s->w, c, MSG_RESUMED, &m.base);
}

static inline uint32_t lease(struct scene *s, struct client *c, uint32_t n)
{
        say_lease(c, n);
        AWAIT(&s->w, c->status != UINT32_MAX);
        c->replies[0] = '\0';
        return c->status;
}

static inline uint32_t page_request(struct scene *s, struct client *c, uint16_t type, uint32_t page)
{
        Kvlease__V1__ReleaseRequest release = KVLEASE__V1__RELEASE_REQUEST__INIT;
        Kvlease__V1__FreeRequest free_request = KVLEASE__V1__FREE_REQUEST__INIT;

        release.ns_id = free_request.ns_id = NS_ID;
        release.pages = free_request.pages = &page;
        release.n_pages = free_request.n_pages = 1;
        return ask(&s->w, c, type, type == MSG_FREE ? &free_request.base : &release.base);
}

static inline uint32_t publish(struct scene *s, struct client *c, uint32_t page, uint8_t key_byte)
{
        Kvlease__V1__PublishRequest m = KVLEASE__V1__PUBLISH_REQUEST__INIT;
        uint8_t key[KEY_BYTES] = {key_byte};

        m.ns_id = NS_ID;
        m.pages = &page;
        m.n_pages = 1;
        m.keys = (ProtobufCBinaryData){KEY_BYTES, key};
        m.last_tokens = 16;
        return ask(&s->w, c, MSG_PUBLISH, &m.base);
}

static inline uint32_t lookup(struct scene *s, struct client *c, uint8_t key_byte)
{
        Kvlease__V1__LookupRequest m = KVLEASE__V1__LOOKUP_REQUEST__INIT;
        uint8_t key[KEY_BYTES] = {key_byte};

        m.ns_id = NS_ID;
        m.keys = (ProtobufCBinaryData){KEY_BYTES, key};
        return ask(&s->w, c, MSG_LOOKUP, &m.base);
}

static inline uint32_t open_session(struct scene *s, struct client *c, uint32_t wanted)
{
        Kvlease__V1__SessionOpenRequest m = KVLEASE__V1__SESSION_OPEN_REQUEST__INIT;

        m.ns_id = NS_ID;
        m.id = (ProtobufCBinaryData){4, (uint8_t *)"talk"};
        m.wanted = wanted;
        if (ask(&s->w, c, MSG_SESSION_OPEN, &m.base) != 0)
                return 0;
        return ((const Kvlease__V1__SessionOpenReply *)c->reply)->session;
}

static inline struct attach *attach_of(struct scene *s, struct client *c)
{
        return attach_find(peer_of(&s->w, c)->member, NS_ID);
}

/* A client with a leased page and a mapped set hangs up. */
static inline struct identity break_off(struct scene *s, struct client *c)
{
        struct identity i = identity_of(s, c);
        struct peer *p = peer_of(&s->w, c);

        hang_up(c);
        AWAIT(&s->w, p->state == PEER_WAITING);
        return i;
}

static inline struct client *connect_worker(struct scene *s, pid_t pid)
{
        struct client *c = connect_client(&s->w, pid, NULL);

        assert_int_equal(lease(s, c, 2), 0);
        map_set(&s->w, c, 0);
        return c;
}

static inline void refuse(struct scene *s, const char *tenant, pid_t pid, struct identity i,
        uint32_t status, const char *why)
{
        struct client *c = connect_process(&s->w, tenant, pid);

        assert_int_equal(hello(s, c, &i, NULL, 0), status);
        if (!strstr(c->detail, why))
                fail_msg("%s: %s", why, c->detail);
        AWAIT(&s->w, peer_of(&s->w, c) == NULL);
}

#endif
