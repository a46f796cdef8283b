/* HELLO, AUTH, BYE. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>

#include "base/macros.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/state/suspect.h"
#include "daemon/server/handlers/handlers.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/events.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/resume.h"
#include "daemon/server/peers/descriptors.h"
#include "daemon/server/base/creds.h"
#include "daemon/server/base/log.h"
#include "daemon/server/services/tenants.h"
#include "daemon/server/peers/parked.h"
#include "kvlease-version.h"
#include "proto/kvlease.pb-c.h"
#include "proto/status.h"

/* Copies the peer's name, which appears in logs and tables: at most PEER_NAME_MAX printable
 * bytes. */
static void take_name(struct peer *p, const char *name)
{
        size_t n = 0;

        for (; name[n] && n < PEER_NAME_MAX; n++)
                p->identity.name[n] = name[n] >= ' ' && name[n] <= '~' ? name[n] : '?';
        p->identity.name[n] = '\0';
        peer_set_who(p);
}

/* The highest version both speak. */
static int agree_version(
        struct request *rq, const Kvlease__V1__HelloRequest *m, uint16_t *ret_version)
{
        uint32_t low = MAX(m->min_version, (uint32_t)PROTO_VERSION_MIN);
        uint32_t high = MIN(m->max_version, (uint32_t)PROTO_VERSION_MAX);

        if (m->min_version > m->max_version)
                return detail_set(&rq->detail, -EINVAL,
                        "min_version %" PRIu32 " is larger than max_version %" PRIu32,
                        m->min_version, m->max_version);
        if (low <= high) {
                *ret_version = (uint16_t)high;
                return 0;
        }
        return detail_set(&rq->detail, KVL_STATUS_VERSION,
                "the daemon speaks protocol %d to %d, the client %" PRIu32 " to %" PRIu32
                ": upgrade %s",
                PROTO_VERSION_MIN, PROTO_VERSION_MAX, m->min_version, m->max_version,
                m->min_version > PROTO_VERSION_MAX ? "kvleased" : "libkvlease");
}

/* A connection that waits to resume comes a second time, and is accepted beyond the limit for that
 * (listener.c). A new client has to keep to the limit. */
static int check_room(struct request *rq)
{
        const struct server *s = rq->server;

        if (s->peers.n_adopted == 0)
                return 0;
        if (s->peers.n_peers - s->peers.n_refused <= s->config.daemon.max_clients)
                return descriptors_admit_connection(rq->peer->tenancy, true, &rq->detail);
        return detail_set(&rq->detail, -EMFILE,
                "kvleased has %u connections, the most it may have, and keeps places for %u "
                "clients that it had before it was restarted: raise max_clients in [daemon]",
                s->config.daemon.max_clients, s->peers.n_adopted);
}

/* Refuses new clients of a tenant whose requests made kvleased crash repeatedly. */
static int check_suspect(struct request *rq)
{
        const struct tenant *t = rq->peer->tenancy->tenant;

        if (!suspect_is_tenant(t->store, t->mark, server_now(rq->server)))
                return 0;
        return detail_set(&rq->detail, -EACCES,
                "kvleased died %d times while it served clients of tenant %s: they are refused for "
                "an hour after the last time, or until kvleasectl restart",
                SUSPECT_TENANT_DEATHS, t->name);
}

static int join_group(struct request *rq, const Kvlease__V1__HelloRequest *m)
{
        struct peer *p = rq->peer;
        const uint8_t *token = m->group_token.len > 0 ? m->group_token.data : NULL;
        int r;

        if (token && m->group_token.len != GROUP_TOKEN_BYTES)
                return detail_set(&rq->detail, -EINVAL, "group_token has %zu bytes, not %d",
                        m->group_token.len, GROUP_TOKEN_BYTES);
        if (rq->server->store.draining || rq->server->life.stopping)
                return KVL_STATUS_DRAINING;
        r = check_room(rq);
        if (r == 0)
                r = check_suspect(rq);
        if (r < 0)
                return r;
        r = (m->group_create ? member_new_or_join : member_new)(
                p->tenancy->tenant, token, m->metadata_only, &p->member, &rq->detail);
        if (r < 0)
                return r;
        p->member->server_data = p;
        p->member->safepoints = m->safepoints;
        peer_update_rights(p);
        return 0;
}

static void send_challenge(struct peer *p)
{
        Kvlease__V1__ChallengeEvent event = KVLEASE__V1__CHALLENGE_EVENT__INIT;

        event.nonce.data = p->challenge.nonce;
        event.nonce.len = sizeof(p->challenge.nonce);
        events_send(p, MSG_CHALLENGE, &event.base);
}

/*
 * A pidfd opened by number could be another process's that got the number since. In that case, or
 * if so configured, the peer must prove that it is the watched process.
 */
static bool needs_challenge(const struct peer *p)
{
        return p->challenge.by_number || p->server->config.daemon.liveness == LIVENESS_CHALLENGE;
}

/* Activates the peer after its identity was proven: it becomes a client. */
static int activate(struct request *rq)
{
        struct peer *p = rq->peer;
        struct client_who who = {.pid = p->identity.pid, .uid = p->identity.uid};
        int r;

        memcpy(who.name, p->identity.name, sizeof(who.name));
        if (peer_is_watcher(p))
                r = 0;
        else if (p->resumption.resume)
                r = resume_take(p, &rq->detail);
        else
                r = client_record(p->member, &who, p->conn.pidfd, &rq->detail);
        if (r < 0)
                return r;
        p->state = PEER_ACTIVE;
        peer_introduced(p);
        return 0;
}

/* Sets the peer's state after an accepted HELLO. */
static int start_session(struct request *rq)
{
        struct peer *p = rq->peer;
        int r;

        if (peer_is_watcher(p) || !needs_challenge(p))
                return activate(rq);
        if (getrandom(p->challenge.nonce, sizeof(p->challenge.nonce), 0) !=
                sizeof(p->challenge.nonce))
                return -EIO;
        r = inbound_pass_creds(&p->conn.inbound, p->conn.fd, true);
        if (r < 0)
                return detail_set(&rq->detail, -EIO, "SO_PASSCRED: %s", strerror(-r));
        p->state = PEER_AUTH;
        rq->after = send_challenge;
        return 0;
}

static void fill_hello(struct request *rq, Kvlease__V1__HelloReply *reply)
{
        struct peer *p = rq->peer;
        struct member *m = p->resumption.resume ? resume_member(p) : p->member;
        const uint8_t *token = p->resumption.resume ? resume_token(p) : m ? m->resume_token : NULL;

        reply->version = p->conn.version;
        reply->boot_epoch = rq->server->store.boot_epoch;
        reply->auth_required = p->state == PEER_AUTH;
        if (!m)
                return;
        reply->tenant = p->tenancy->config.name;
        reply->client_id = m->id;
        reply->group_token.data = m->group->token;
        reply->group_token.len = GROUP_TOKEN_BYTES;
        if (!rq->server->store.clients)
                return;
        reply->resume_token.data = (uint8_t *)token;
        reply->resume_token.len = CLIENT_TOKEN_BYTES;
}

int handle_HELLO(struct request *rq)
{
        const Kvlease__V1__HelloRequest *m = rq->message;
        Kvlease__V1__HelloReply *reply = rq->reply;
        struct peer *p = rq->peer;
        uint16_t version = p->conn.version;
        int r;

        reply->daemon_version = (char *)KVLEASE_VERSION;
        reply->min_version = PROTO_VERSION_MIN;
        reply->max_version = PROTO_VERSION_MAX;
        take_name(p, m->client_name);
        r = agree_version(rq, m, &version);
        if (r == 0 && p->refusal.code != 0)
                r = detail_set(&rq->detail, p->refusal.code, "%s", p->refusal.detail);
        if (r == 0 && !peer_is_watcher(p))
                r = m->resume_client != 0 ? resume_ask(rq, m) : join_group(rq, m);
        p->conn.version = version;
        if (r == 0)
                r = start_session(rq);
        if (r == 0)
                fill_hello(rq, reply);
        else
                rq->after = peer_close;
        return r;
}

int handle_AUTH(struct request *rq)
{
        const Kvlease__V1__AuthRequest *m = rq->message;
        struct peer *p = rq->peer;
        int r;

        if (p->state != PEER_AUTH)
                return detail_set(
                        &rq->detail, -EINVAL, "nothing was challenged on this connection");
        rq->after = peer_close;
        if (m->nonce.len != PEER_NONCE_SIZE ||
                memcmp(m->nonce.data, p->challenge.nonce, PEER_NONCE_SIZE) != 0)
                return detail_set(
                        &rq->detail, -EACCES, "the nonce is not the one of the challenge");
        if (!p->challenge.sent_creds.present || p->challenge.sent_creds.pid != p->identity.pid)
                return detail_set(&rq->detail, -EACCES,
                        "process %d answered the challenge, process %d connected: the same must do both",
                        (int)p->challenge.sent_creds.pid, (int)p->identity.pid);
        if (p->conn.pidfd >= 0 && creds_pidfd_exited(p->conn.pidfd))
                return detail_set(
                        &rq->detail, -EACCES, "process %d has exited", (int)p->identity.pid);
        if (inbound_pass_creds(&p->conn.inbound, p->conn.fd, false) < 0)
                return -EIO;
        r = activate(rq);
        if (r == 0)
                rq->after = NULL;
        return r;
}

int handle_BYE(struct request *rq)
{
        struct peer *p = rq->peer;
        struct member *m = p->member;

        parked_cancel(p, 0);
        pending_cancel(p, 0);
        p->member = NULL;
        peer_note_end(p, "said goodbye");
        events_member_left(m);
        member_leave(m);
        loop_kick(&rq->server->loop);
        rq->after = peer_close;
        return 0;
}
