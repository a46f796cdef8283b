/* ADMIN_SESSIONS (list-page.h), ADMIN_SESSION_PURGE. */
#include <assert.h>
#include <errno.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/parse.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/sessions/session.h"
#include "daemon/core/sessions/session-purge.h"
#include "daemon/server/handlers/list-page.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/drops.h"
#include "proto/arena.h"
#include "proto/kvlease.pb-c.h"

static uint64_t expires_in_sec(const struct session_info *info, uint64_t idle_nsec)
{
        uint64_t left = info->expire_nsec - MIN(idle_nsec, info->expire_nsec);

        return info->expire_nsec == 0 ? 0 : MAX(left / NSEC_PER_SEC, UINT64_C(1));
}

static int make_session(struct request *rq, void *object, void *ret)
{
        struct figures_session *row = ret;
        uint64_t now_nsec = server_now(rq->server), idle_nsec;
        const struct session *s = object;
        const struct ns *ns = s->ns;
        struct session_info info;
        char *id;

        session_info(s, &info);
        idle_nsec = now_nsec - MIN(now_nsec, info.used_nsec);
        row->tenant = ns->tenant->name;
        row->namespace = ns->name;
        id = arena_alloc(&rq->server->scratch.arena, 2 * SESSION_ID_MAX + 1);
        if (!id)
                return -ENOMEM;
        row->id = format_hex(info.id, info.id_len, id);
        row->n_pages = info.n_pages;
        row->n_tokens = info.n_tokens;
        row->lost_tokens = info.lost_tokens;
        row->bytes = info.n_pages * layout_page_bytes(&ns->layout);
        row->n_open = info.n_open;
        row->idle_sec = idle_nsec / NSEC_PER_SEC;
        row->expires_in_sec = expires_in_sec(&info, idle_nsec);
        row->hint = session_hint_name(info.hint);
        row->truncated = info.is_truncated;
        return 0;
}

/* A row's id: the namespace's, and in it the session's number. */
#define NUMBER_BITS 17
static_assert(SESSIONS_MAX < 1 << NUMBER_BITS, "session numbers are at most SESSIONS_MAX");

/* More rows than fit a reply: a row with its hint takes at least 24 bytes. */
#define ROWS_MAX 2048

static void add_rows(struct rows *rows, const struct ns *ns)
{
        uint64_t first = ns->id << NUMBER_BITS, number = minus_u64(rows->m->after, first);
        const struct session *s;

        if (rows->m->after >> NUMBER_BITS > ns->id)
                return;
        for (unsigned n = 0; n < ROWS_MAX && (s = session_next(ns, number, &number)); n++)
                rows_add(rows, first + number, (void *)s);
}

int handle_ADMIN_SESSIONS(struct request *rq)
{
        struct rows rows = rows_begin_of_tenant(rq);

        list_for_each (t, &rq->server->store.tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        if (rows_want(&rows, t->name))
                                add_rows(&rows, ns);
        return rows_fill_page(&rows, make_session, &figures_table_session);
}

int handle_ADMIN_SESSION_PURGE(struct request *rq)
{
        const Kvlease__V1__AdminSessionPurgeRequest *m = rq->message;
        Kvlease__V1__CountReply *reply = rq->reply;
        struct tenant *t;
        struct ns *ns;
        uint64_t now_nsec = server_now(rq->server);
        struct session_purge purge;
        uint64_t idle_nsec = MIN(m->idle_sec, UINT64_MAX / NSEC_PER_SEC) * NSEC_PER_SEC;
        int r = request_tenant_ns(rq, m->tenant, m->ns, &t, &ns);

        if (r < 0)
                return r;
        if (m->id.len > SESSION_ID_MAX)
                return detail_set(&rq->detail, -EINVAL, "a session's id has 1 to %d bytes, not %zu",
                        SESSION_ID_MAX, m->id.len);
        store_set_now(&rq->server->store, now_nsec);
        session_purge_init(&purge, t, idle_nsec, now_nsec);
        purge.only_ns_id = ns ? ns->id : 0;
        if (m->id.len == 0)
                return drops_purge(rq, &purge);
        list_for_each (each, &t->namespaces, struct ns, link)
                if (!ns || each == ns)
                        session_purge_id(&purge, each, m->id.data, (uint32_t)m->id.len);
        reply->count = purge.n_sessions;
        return 0;
}
