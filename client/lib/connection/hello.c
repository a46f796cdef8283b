/* The handshake on a connection: version, group, and proof of the client's identity. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/lib/connection/conn-impl.h"
#include "client/lib/connection/error.h"
#include "kvlease-version.h"
#include "proto/status.h"

struct hello_call {
        struct conn_call call;
        struct conn_welcome welcome;
        bool auth_required;
};

struct challenge_call {
        struct conn_call call;
        uint8_t nonce[CONN_NONCE_BYTES];
};

const char *conn_check_hello(const Kvlease__V1__HelloReply *m)
{
        if (m->version < PROTO_VERSION_MIN || m->version > PROTO_VERSION_MAX)
                return "kvleased chose a protocol version that wasn't offered";
        if (strlen(m->tenant) > CONN_TENANT_MAX)
                return "kvleased sent a tenant name that is too long";
        if (m->group_token.len != 0 && m->group_token.len != CONN_TOKEN_BYTES)
                return "kvleased sent a group token of a wrong size";
        if (m->resume_token.len != 0 && m->resume_token.len != CONN_TOKEN_BYTES)
                return "kvleased sent a token to resume with of a wrong size";
        return NULL;
}

static void on_hello(struct conn *c, struct conn_call *call, int code,
        const ProtobufCMessage *reply, struct frame *frame)
{
        const Kvlease__V1__HelloReply *m = (const Kvlease__V1__HelloReply *)reply;
        struct hello_call *h = container_of(call, struct hello_call, call);
        const char *wrong = m && code == 0 ? conn_check_hello(m) : NULL;

        if (wrong) {
                conn_finish_violated(c, call, wrong);
                return;
        }
        if (m && code == 0) {
                c->version = (uint16_t)m->version;
                snprintf(h->welcome.tenant, sizeof(h->welcome.tenant), "%s", m->tenant);
                snprintf(h->welcome.daemon_version, sizeof(h->welcome.daemon_version), "%s",
                        m->daemon_version);
                h->welcome.client_id = m->client_id;
                h->welcome.boot_epoch = m->boot_epoch;
                if (m->group_token.len > 0)
                        memcpy(h->welcome.group_token, m->group_token.data, CONN_TOKEN_BYTES);
                h->welcome.can_resume = m->resume_token.len > 0;
                if (h->welcome.can_resume)
                        memcpy(h->welcome.resume_token, m->resume_token.data, CONN_TOKEN_BYTES);
                h->auth_required = m->auth_required;
        }
        conn_finish(c, call, code);
}

static void on_challenge(struct conn *c, struct conn_call *call, int code,
        const ProtobufCMessage *event, struct frame *frame)
{
        const Kvlease__V1__ChallengeEvent *m = (const Kvlease__V1__ChallengeEvent *)event;
        struct challenge_call *challenge = container_of(call, struct challenge_call, call);

        if (m && m->nonce.len != CONN_NONCE_BYTES) {
                conn_finish_violated(c, call, "kvleased sent a challenge of a wrong size");
                return;
        }
        if (m)
                memcpy(challenge->nonce, m->nonce.data, CONN_NONCE_BYTES);
        conn_finish(c, call, code);
}

int conn_send_hello(
        struct conn *c, struct conn_call *call, const struct conn_hello *hello, conn_start_fn start)
{
        Kvlease__V1__HelloRequest m = KVLEASE__V1__HELLO_REQUEST__INIT;
        char name[CONN_NAME_MAX + 1];

        snprintf(name, sizeof(name), "%s", hello->client_name);
        m.min_version = PROTO_VERSION_MIN;
        m.max_version = PROTO_VERSION_MAX;
        m.client_name = name;
        m.library_version = (char *)KVLEASE_VERSION;
        if (hello->group_token) {
                m.group_token.data = (uint8_t *)hello->group_token;
                m.group_token.len = CONN_TOKEN_BYTES;
                m.group_create = hello->group_create;
        }
        m.metadata_only = hello->metadata_only;
        m.safepoints = hello->has_safepoints;
        if (hello->resume_token) {
                m.resume_client = hello->resume_client;
                m.resume_token.data = (uint8_t *)hello->resume_token;
                m.resume_token.len = CONN_TOKEN_BYTES;
                m.pending = hello->pending;
                m.n_pending = hello->n_pending;
        }
        return start(c, call, MSG_HELLO, &m.base);
}

/* Answers the challenge. The kernel attaches our credentials: the daemon enabled that on its end of
 * the socket. */
static int answer_challenge(
        struct conn *c, struct challenge_call *challenge, uint64_t deadline_nsec)
{
        Kvlease__V1__AuthRequest m = KVLEASE__V1__AUTH_REQUEST__INIT;
        struct conn_call call = {0};
        int r = conn_wait(c, &challenge->call, deadline_nsec);

        if (r != 0)
                return error_note(r, challenge->call.detail);
        m.nonce.data = challenge->nonce;
        m.nonce.len = sizeof(challenge->nonce);
        r = conn_start(c, &call, MSG_AUTH, &m.base);
        if (r == 0)
                r = conn_wait(c, &call, deadline_nsec);
        return error_note(r, call.detail);
}

static int say_hello(struct conn *c, const struct conn_hello *hello, uint64_t deadline_nsec,
        struct hello_call *h)
{
        struct challenge_call challenge = {.call.on_reply = on_challenge};
        int r;

        /* Registered before it can come: number 0, which no request has. */
        list_append(&c->calls, &challenge.call.link);
        r = conn_send_hello(c, &h->call, hello, conn_start);
        if (r == 0)
                r = conn_wait(c, &h->call, deadline_nsec);
        error_note(r, h->call.detail);
        if (r == 0 && h->auth_required)
                r = answer_challenge(c, &challenge, deadline_nsec);
        list_remove(&challenge.call.link);
        return r;
}

int conn_hello(struct conn *c, const struct conn_hello *hello, uint64_t deadline_nsec,
        struct conn_welcome *ret_welcome)
{
        struct hello_call h = {.call.on_reply = on_hello};
        int r;

        conn_lock(c);
        r = say_hello(c, hello, deadline_nsec, &h);
        conn_unlock(c);
        if (r == 0)
                *ret_welcome = h.welcome;
        return r;
}

/* ---- one request, for callers without state of their own --------------------------------------
 */

struct request_call {
        struct conn_call call;
        struct arena *arena;
        const ProtobufCMessage *reply;
};

static void on_request_reply(struct conn *c, struct conn_call *call, int code,
        const ProtobufCMessage *reply, struct frame *frame)
{
        struct request_call *request = container_of(call, struct request_call, call);

        /* Unpacked again, into memory that outlives this frame. */
        if (frame) {
                request->reply = msg_unpack(
                        reply->descriptor, request->arena, frame->payload, frame->header.length);
                if (!request->reply)
                        code = -ENOMEM;
        }
        conn_finish(c, call, code);
}

int conn_request(struct conn *c, uint16_t type, const ProtobufCMessage *request, struct arena *a,
        uint64_t deadline_nsec, const ProtobufCMessage **ret_reply)
{
        struct request_call call = {.call.on_reply = on_request_reply, .arena = a};
        int r;

        arena_reset(a);
        conn_lock(c);
        r = conn_start(c, &call.call, type, request);
        if (r == 0)
                r = conn_wait(c, &call.call, deadline_nsec);
        conn_unlock(c);
        if (call.reply)
                *ret_reply = call.reply;
        return error_note(r, call.call.detail);
}

#define BYE_TIMEOUT_MSEC 1000 /* the daemon also notices a hang-up; not tuned */

void conn_say_bye(struct conn *c)
{
        Kvlease__V1__ByeRequest m = KVLEASE__V1__BYE_REQUEST__INIT;
        uint64_t deadline = conn_deadline(BYE_TIMEOUT_MSEC);
        struct conn_call call = {0};

        conn_lock(c);
        c->events.tell = NULL;
        /* Without an answer this is a hang-up, which the daemon handles as well. */
        if (conn_start(c, &call, MSG_BYE, &m.base) == 0)
                conn_wait(c, &call, deadline);
        conn_unlock(c);
}
