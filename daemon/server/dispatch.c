#include "daemon/server/dispatch.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/requests/lease.h"
#include "daemon/server/handlers/handlers.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/serving.h"
#include "daemon/server/peers/answer.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/pending.h"
#include "daemon/server/peers/idle-interval.h"
#include "daemon/server/peers/resume.h"
#include "daemon/server/peers/turns.h"
#include "daemon/server/peers/listener.h"
#include "daemon/server/peers/descriptors.h"
#include "daemon/server/peers/parked.h"
#include "proto/kvlease.pb-c.h"
#include "proto/status.h"

static handler_fn find_handler(uint16_t type)
{
        switch (type) {
#define X(name, number, ...) \
        case number:         \
                return handle_##name;
                MSG_TABLE(X)
#undef X
        default:
                return NULL;
        }
}

/* The rule that the frame breaks, or NULL. */
static const char *broken_rule(
        const struct peer *p, const struct frame *f, const struct msg_info *info)
{
        /* The monitor socket refuses requests that change state, but they break no rule. */
        unsigned socket = peer_is_watcher(p) ? MSG_ON_ADMIN : MSG_ON_TENANT;
        bool is_hello = f->header.type == MSG_HELLO;

        if (f->header.flags & ~FRAME_NO_REPLY)
                return "flags-in-request";
        if (p->state == PEER_NEW && !is_hello)
                return "hello-first";
        if (p->state != PEER_NEW && is_hello)
                return "hello-twice";
        if (!is_hello && f->header.version != p->conn.version)
                return "bad-version";
        if (!info)
                return NULL;
        if (!info->request || !(info->sockets & socket))
                return "type-not-allowed";
        if ((f->header.flags & FRAME_NO_REPLY) && !info->may_skip_reply)
                return "no-reply-not-allowed";
        return NULL;
}

/* Watched pages between two readings of the clock: a millisecond with 64 clients. Not tuned. */
#define LOOK_PAGES 1024

/* Looks at the namespace's watched pages, within its tenant's time. */
static void look_at_watched(struct tenancy *t, struct ns *ns)
{
        for (uint64_t left = ns->catalog.watched.n; left > 0 && turns_may_visit(t);) {
                uint64_t began = clock_now_nsec();
                uint32_t n = (uint32_t)MIN(left, (uint64_t)LOOK_PAGES);

                ns_look_again(ns, n);
                turns_visited(t, began);
                left -= n;
        }
        idle_sets_drain(ns->store);
}

/* Takes over all changes that clients made in shared memory until now. Exception: tenants that made
 * more than they have time for. */
static void catch_up_all(struct server *s)
{
        turns_begin_visits(s, TURNS_FIGURES_NSEC);
        list_for_each (p, &s->peers.list, struct peer, links.all)
                turns_visit(p, peer_catch_up);
        list_for_each (t, &s->tenancies.list, struct tenancy, link)
                list_for_each (ns, &t->tenant->namespaces, struct ns, link)
                        look_at_watched(t, ns);
}

/*
 * Executes the peer's submissions that precede this frame. For an administrator, executes those of
 * all clients. A DOORBELL needs no order: it waits for its turn.
 */
static void catch_up(struct peer *p, uint16_t type)
{
        if (peer_is_watcher(p)) {
                if (p->kind == LISTEN_ADMIN)
                        admin_fds_open(p->server);
                if (type != MSG_HELLO)
                        catch_up_all(p->server);
        } else if (type != MSG_DOORBELL)
                peer_take_submissions(p, SHM_SUB_ENTRIES);
}

/* Returns 0, or -EACCES with the sentence: the peer may only look up. */
static int check_may_publish(struct request *rq, const struct msg_info *info)
{
        struct member *m = rq->peer->member;

        if (!m || !m->read_only || !(info->sockets & MSG_FOR_PUBLISHERS))
                return 0;
        /* The lease may have waited since before the right was withdrawn. */
        if (info->type == MSG_LEASE)
                list_for_each (a, &m->attachments, struct attach, member_link)
                        lease_call_off(a);
        return detail_set(&rq->detail, -EACCES,
                "uid %u may only look up in tenant %s: add it to the tenant's publish_uids, or one of its groups to publish_gids",
                (unsigned)rq->peer->identity.uid, m->group->tenant->name);
}

static bool only_reads(const struct request *rq, const struct msg_info *info)
{
        if (info->sockets & MSG_ON_MONITOR)
                return true;
        /* ADMIN_RESTART with `check` changes nothing: kvlease-exporter uses it. */
        return info->type == MSG_ADMIN_RESTART &&
               ((const Kvlease__V1__AdminRestartRequest *)rq->message)->check;
}

/* Returns 0, or -EACCES with the sentence: the peer is a monitor. */
static int check_may_change(struct request *rq, const struct msg_info *info)
{
        const struct daemon_config *c = &rq->server->config.daemon;
        /* Older exporters ask for figures by this number. */
        const char *old = info->type == MSG_ADMIN_PROCESS
                                  ? " (a kvlease-exporter that asks for it is older than kvleased)"
                                  : "";

        if (rq->peer->kind != LISTEN_MONITOR || only_reads(rq, info))
                return 0;
        return detail_set(&rq->detail, -EACCES,
                "%s is refused%s on %s/monitor.sock, which is for reading: use %s/admin.sock, as root%s%s",
                info->name, old, c->runtime_dir, c->runtime_dir,
                *c->admin_group ? " or a member of group " : "", c->admin_group);
}

/* Checks texts of the message. Returns 0, or -EINVAL with the sentence. Exception: HELLO's name is
 * made printable later. */
static int check_texts(struct request *rq, const struct msg_info *info, const struct frame *f)
{
        bool is_hello = info->type == MSG_HELLO;
        const char *field, *wrong = msg_bad_text(
                                   info->request, f->payload, f->header.length, is_hello, &field);

        if (!wrong)
                return 0;
        if (is_hello)
                rq->after = peer_close;
        return detail_set(&rq->detail, -EINVAL,
                "%s has %s: texts are UTF-8 without control characters", field, wrong);
}

/* False: it waits. */
static bool handle(struct peer *p, const struct frame *f, const struct msg_info *info)
{
        _Alignas(max_align_t) uint8_t storage[REPLY_STRUCT_MAX];
        struct request rq = {
                .server = p->server, .peer = p, .reply = storage, .header = &f->header};
        int code;

        arena_reset(&p->server->scratch.arena);
        rq.message =
                msg_unpack(info->request, &p->server->scratch.arena, f->payload, f->header.length);
        if (!rq.message) {
                peer_violation(p, "bad-message");
                return true;
        }
        assert(info->reply->sizeof_message <= sizeof(storage));
        protobuf_c_message_init(info->reply, storage);
        code = check_texts(&rq, info, f);
        if (code == 0)
                code = check_may_publish(&rq, info);
        if (code == 0)
                code = check_may_change(&rq, info);
        if (code == 0)
                code = request_find_attach(&rq);
        p->server->store.event_log.by = p->identity.who;
        if (code == 0)
                code = find_handler(info->type)(&rq);
        p->server->store.event_log.by = NULL;
        if (code == -EINPROGRESS)
                return false;
        if (rq.is_deferred)
                return true;
        assert(rq.n_fds <= info->max_reply_fds);
        if (code == 0)
                answer_set_outcome(info->reply, storage, 0, "");
        else
                answer_set_outcome(info->reply, storage, code,
                        rq.detail.text[0] ? rq.detail.text : status_text(code));
        if (!(f->header.flags & FRAME_NO_REPLY))
                answer_send(&rq, info->type, f->header.seq);
        if (rq.after)
                rq.after(p);
        return true;
}

/* Calls handle(), and counts an answered request with its time since `start_nsec`. */
static bool handle_timed(
        struct peer *p, const struct frame *f, const struct msg_info *info, uint64_t start_nsec)
{
        struct server *s = p->server;
        bool answered = handle(p, f, info);
        uint64_t nsec = clock_now_nsec() - start_nsec;

        if (answered)
                calls_note(&s->calls, info, nsec);
        turn_watch_part(
                &s->turn_watch, info->name, p->tenancy ? p->tenancy->config.name : NULL, nsec);
        return answered;
}

/* Runs a waiting request again (parked.h). Returns true if it was answered; false: it still
 * waits. */
static bool dispatch_again(struct peer *p, const struct frame *f)
{
        struct server *s = p->server;
        const struct state_serving was = serving_begin(p);
        bool answered = handle_timed(p, f, msg_find(f->header.type), clock_now_nsec());

        idle_sets_drain(&s->store);
        serving_end(s, was);
        return answered;
}

static void let_wait(struct peer *p, const struct frame *f)
{
        int r = parked_add(p, f, dispatch_again);

        if (r < 0)
                answer_refuse(p, &f->header, r,
                        r == -EBUSY
                                ? "so many leases of this connection wait that no more can: ask again when some are answered"
                                : PENDING_FULL_TEXT);
}

/* One that breaks no rule. */
static void serve_frame(struct peer *p, const struct frame *f, const struct msg_info *info)
{
        uint64_t start_nsec = clock_now_nsec();

        p->counts.n_requests++;
        turns_charge(p, 1);
        idle_interval_end(p->server);
        store_set_now(&p->server->store, server_now(p->server));
        catch_up(p, f->header.type);
        if (p->muted || p->doomed)
                return;
        if (!info) /* from a client of another version: no fault of its */
                answer_unknown(p, &f->header, &kvlease__v1__simple_reply__descriptor, -EOPNOTSUPP,
                        msg_is_retired(f->header.type)
                                ? MSG_RETIRED_TEXT
                                : "this kvleased does not know the request: upgrade it");
        else if (p->state == PEER_AUTH && info->type != MSG_AUTH)
                answer_refuse(p, &f->header, -EACCES, "answer the challenge first");
        else if (p->resumption.resuming && !resume_allows(info->type))
                answer_refuse(p, &f->header, -EINVAL,
                        "the client resumes: what it has open comes first, then RESUMED");
        else if (parked_comes_behind(p, info->type) || !handle_timed(p, f, info, start_nsec))
                let_wait(p, f);
}

void dispatch_frame(struct peer *p, const struct frame *f)
{
        struct server *s = p->server;
        const struct state_serving was = serving_begin(p);
        const struct msg_info *info = msg_find(f->header.type);
        const char *rule = broken_rule(p, f, info);

        if (rule)
                peer_violation(p, rule);
        else
                serve_frame(p, f, info);
        idle_sets_drain(&s->store);
        serving_end(s, was);
}
