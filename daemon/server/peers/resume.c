#include "daemon/server/peers/resume.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "daemon/core/clients/client-record.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/state/suspect.h"
#include "daemon/core/life/recover.h"
#include "daemon/core/life/resume.h"
#include "daemon/core/sessions/session.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/answer.h"
#include "daemon/server/peers/fetches.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/base/creds.h"
#include "daemon/server/base/log.h"
#include "proto/status.h"

/* The resumption that a HELLO asked for. */
struct resume {
        uint64_t client;
        uint8_t presented[CLIENT_TOKEN_BYTES], fresh[CLIENT_TOKEN_BYTES];
        uint32_t n_pending;
        uint64_t pending[];
};

/* ---- at start -------------------------------------------------------------------------------- */

/* Returns the process of a descriptor, as /proc shows it: -1: it has exited; 0: unreadable. */
static int process_of(int pidfd)
{
        char path[64], line[128];
        int pid = 0;
        FILE *f;

        snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
        f = fopen(path, "re");
        while (f && fgets(line, sizeof(line), f))
                if (sscanf(line, "Pid: %d", &pid) == 1)
                        break;
        if (f)
                fclose(f);
        return pid;
}

/*
 * Returns the client's process (owned) to watch. -ESRCH: it has exited; another -errno: unknown. If
 * it isn't known which process the stored descriptor refers to, the process with the recorded
 * number stands for it: a client that may live loses nothing.
 */
static int get_process(struct server *s, const struct member *m, pid_t pid)
{
        struct keep *keep = &s->store.keep;
        int pidfd = keep->ops->take(keep->data, KEEP_PROCESS, m->record - 1), shown;

        if (pidfd < 0)
                return creds_open_pidfd(pid);
        shown = process_of(pidfd);
        if (shown == pid || (shown == -1 && creds_pidfd_exited(pidfd)))
                return pidfd;
        fd_close(pidfd);
        /* Else it is the previous client of the row: the new one was never told that it is a
         * client. */
        return shown == 0 ? creds_open_pidfd(pid) : -ESRCH;
}

/* Adopts the ring: without it the client's submissions would never be executed. Returns 0 or
 * -errno. */
static int adopt_ring(struct peer *p)
{
        bool had_one = client_slot_of(p->member)->marks & CLIENT_RING;
        struct client_cursors *cursors;
        int fd = client_take_ring(p->member, &cursors), r;

        if (fd < 0) {
                if (had_one)
                        log_warning(
                                "the client segment of client %llu of tenant %s is gone: if it knows of one it must connect anew",
                                (unsigned long long)p->member->id, p->tenancy->config.name);
                return 0;
        }
        r = ring_adopt(&p->ring, fd, cursors);
        p->ring.fetch = fetches_submit;
        if (r < 0)
                fd_close(fd);
        return r;
}

/* Reports a client that isn't taken over: it keeps reading its mapped pages, and can make no
 * requests. */
static void say_suspect(struct peer *p)
{
        log_warning(
                "client %llu of tenant %s (%s) is not taken over, as earlier kvleaseds died while "
                "they served it or others of its tenant: what it has stays until it exits",
                (unsigned long long)p->member->id, p->tenancy->config.name, p->identity.who);
        peer_note_end(p, "kvleased died serving it");
}

static int adopt_member(struct server *s, struct member *m)
{
        struct peer_origin origin = {.kind = LISTEN_TENANT};
        struct state_serving was;
        struct client_who who;
        bool is_unread;
        struct peer *p;
        int pidfd, r;

        client_get_who(m, &who);
        origin.tenancy = m->group->tenant->server_data;
        origin.pid = who.pid;
        origin.uid = who.uid;
        pidfd = get_process(s, m, who.pid);
        if (pidfd < 0 && pidfd != -ESRCH)
                return pidfd;
        r = peer_adopt(s, &origin, pidfd < 0 ? -1 : pidfd, &p);
        if (r < 0)
                return r;
        memcpy(p->identity.name, who.name, sizeof(p->identity.name));
        peer_set_who(p);
        p->member = m;
        m->server_data = p;
        p->muted = client_is_muted(m);
        if (suspect_is_client(&s->store, m->group->tenant->mark, m->id, &is_unread))
                say_suspect(p);
        if (is_unread)
                return 0;
        was = suspect_take_over(&s->store, m->group->tenant->mark, m->id);
        r = adopt_ring(p);
        suspect_serve_end(&s->store, was);
        return r;
}

static int adopt_group(struct server *s, struct group *g)
{
        int r = 0;

        list_for_each (m, &g->members, struct member, link)
                if (r == 0)
                        r = adopt_member(s, m);
        return r;
}

int resume_adopt(struct server *s, struct detail *d)
{
        int r = clients_recover(&s->store, &s->life.recovery, d);

        if (r < 0)
                return r;
        list_for_each (t, &s->store.tenants, struct tenant, link)
                list_for_each (g, &t->groups, struct group, link)
                        if (r == 0)
                                r = adopt_group(s, g);
        if (r < 0)
                return detail_set(
                        d, r, "cannot go on with the clients that were kept: %s", strerror(-r));
        return 0;
}

void resume_end_exited(struct server *s)
{
        list_for_each_safe (p, &s->peers.list, struct peer, links.all)
                if (p->resumption.adopted && p->conn.pidfd < 0)
                        peer_exited(p);
}

/* ---- the same client? ------------------------------------------------------------------------ */

static struct member *find_member(const struct tenant *t, uint64_t id)
{
        list_for_each (g, &t->groups, struct group, link)
                list_for_each (m, &g->members, struct member, link)
                        if (m->id == id)
                                return m;
        return NULL;
}

/* True if the peer's process is the client's, and lives. */
static bool is_same_process(const struct peer *p, const struct peer *old)
{
        return p->identity.pid > 0 && p->identity.pid == old->identity.pid &&
               old->conn.pidfd >= 0 && !creds_pidfd_exited(old->conn.pidfd);
}

/* Counts and logs an attempt to resume another process's client. */
static int refuse_forged(struct peer *p, int code, const char *why, struct detail *d)
{
        p->counts.n_violations++;
        p->server->peers.n_violations++;
        calls_note_violation(&p->server->calls, "resume");
        if (log_first_of("resume"))
                log_message(LOG_VIOLATION, LOG_FIELDS({"RULE", "resume"}),
                        "process %d may not go on as a client of tenant %s: %s; more of this kind is only counted",
                        (int)p->identity.pid, p->tenancy->config.name, why);
        return detail_set(d, code, "%s", why);
}

/* 0 with the member. */
static int check_resumption(struct peer *p, struct member **ret_member, struct detail *d)
{
        struct resume *resume = p->resumption.resume;
        struct member *m = find_member(p->tenancy->tenant, resume->client);
        struct peer *old = m ? peer_of_member(m) : NULL;
        bool has_token = m && client_token_is(m, resume->presented);

        if (has_token && old->state == PEER_ACTIVE && !peer_has_hung_up(old))
                return refuse_forged(p, -EACCES, "the client has a connection that is open", d);
        /* The client may have ended with the connection, if it held nothing. */
        m = find_member(p->tenancy->tenant, resume->client);
        if (!m || peer_of_member(m)->state == PEER_LEAVING)
                return detail_set(d, -ESTALE,
                        "kvleased knows no client %llu of tenant %s: it was restarted without its "
                        "state, or the client has left; connect anew, as a new client",
                        (unsigned long long)resume->client, p->tenancy->config.name);
        if (!has_token)
                return refuse_forged(p, -ESTALE, "the resume token isn't that of the client", d);
        old = peer_of_member(m);
        if (!is_same_process(p, old))
                return refuse_forged(p, -EACCES, "another process is the client", d);
        if (client_is_lost(m))
                return detail_set(d, -ESTALE,
                        "kvleased ended before it was kept what client %llu of tenant %s had been told: connect anew, as a new client",
                        (unsigned long long)resume->client, p->tenancy->config.name);
        if (old->muted || old->state != PEER_WAITING)
                return refuse_forged(p, -EACCES,
                        "the client broke the protocol and is ignored until it exits", d);
        *ret_member = m;
        return 0;
}

int resume_ask(struct request *rq, const Kvlease__V1__HelloRequest *m)
{
        struct peer *p = rq->peer;
        struct member *unused;
        int r;

        if (rq->server->life.stopping)
                return KVL_STATUS_DRAINING;
        if (m->resume_token.len != CLIENT_TOKEN_BYTES)
                return detail_set(&rq->detail, -EINVAL, "resume_token has %zu bytes, not %d",
                        m->resume_token.len, CLIENT_TOKEN_BYTES);
        if (m->n_pending > RESUME_MAX_PENDING)
                return detail_set(&rq->detail, -EMSGSIZE,
                        "the request names %zu pending ones: at most %d are allowed", m->n_pending,
                        RESUME_MAX_PENDING);
        p->resumption.resume =
                malloc(sizeof(*p->resumption.resume) + m->n_pending * sizeof(*m->pending));
        if (!p->resumption.resume)
                return -ENOMEM;
        p->resumption.resume->client = m->resume_client;
        memcpy(p->resumption.resume->presented, m->resume_token.data, CLIENT_TOKEN_BYTES);
        client_token_random(p->resumption.resume->fresh);
        p->resumption.resume->n_pending = (uint32_t)m->n_pending;
        if (m->n_pending > 0)
                memcpy(p->resumption.resume->pending, m->pending,
                        m->n_pending * sizeof(*m->pending));
        r = check_resumption(p, &unused, &rq->detail);
        if (r != 0)
                resume_drop(p);
        return r;
}

/* ---- the client is another peer's ------------------------------------------------------------ */

static void move_member(struct peer *p, struct peer *old)
{
        p->member = TAKE(old->member);
        p->member->server_data = p;
        p->ring = old->ring;
        old->ring = (struct ring){0};
        p->resumption.missed = TAKE(old->resumption.missed);
        p->resumption.n_missed = old->resumption.n_missed;
        p->counts.n_requests += old->counts.n_requests;
        p->counts.n_violations += old->counts.n_violations;
        peer_end(old);
}

/* Undoes requests that were never answered, and closes the client's sessions: it opens them
 * anew. */
static void undo_untold(struct peer *p, uint64_t *pending, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++)
                p->resumption.repeats_until = MAX(p->resumption.repeats_until, pending[i]);
        member_undo(p->member, pending, n);
        list_for_each (a, &p->member->attachments, struct attach, member_link)
                sessions_close_all(a, server_now(p->server));
}

int resume_take(struct peer *p, struct detail *d)
{
        struct resume *resume;
        struct member *m;
        int r = check_resumption(p, &m, d);

        if (r != 0)
                return r;
        (void)suspect_serve(&p->server->store, m->group->tenant->mark, m->id); /* the frame's */
        p->server->peers.n_resumed += peer_of_member(m)->resumption.adopted;
        resume = TAKE(p->resumption.resume);
        client_token_renew(m, resume->presented, resume->fresh);
        move_member(p, peer_of_member(m));
        p->resumption.resuming = true;
        undo_untold(p, resume->pending, resume->n_pending);
        free(resume);
        peer_update_rights(p);
        loop_kick(&p->server->loop);
        return 0;
}

struct member *resume_member(const struct peer *p)
{
        return find_member(p->tenancy->tenant, p->resumption.resume->client);
}

const uint8_t *resume_token(const struct peer *p)
{
        return p->resumption.resume->fresh;
}

void resume_drop(struct peer *p)
{
        free(p->resumption.resume);
        p->resumption.resume = NULL;
}

bool resume_allows(uint16_t type)
{
        return type == MSG_RESUME_NS || type == MSG_RESUMED || type == MSG_SESSION_OPEN ||
               type == MSG_BYE || type == MSG_DOORBELL;
}
