/* SESSION_OPEN, SESSION_PAGES, SESSION_TRUNCATE, SESSION_KEEP, SESSION_HINT, SESSION_CLOSE. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/sessions/session.h"
#include "daemon/core/sessions/session-truncate.h"
#include "daemon/server/handlers/handlers.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/drops.h"
#include "proto/arena.h"
#include "proto/kvlease.pb-c.h"

/* Makes the next handle the wanted one; -EEXIST: it is in use. */
static int want_handle(struct request *rq, struct attach *a, uint32_t wanted)
{
        if (!rq->peer->resumption.resuming)
                return detail_set(&rq->detail, -EINVAL,
                        "wanted is %u: only a client that resumes may choose its handles", wanted);
        if (map_find(&a->sessions, wanted))
                return detail_set(&rq->detail, -EEXIST, "handle %u is open already", wanted);
        a->last_session = wanted - 1;
        return 0;
}

int handle_SESSION_OPEN(struct request *rq)
{
        const Kvlease__V1__SessionOpenRequest *m = rq->message;
        Kvlease__V1__SessionOpenReply *reply = rq->reply;
        struct attach *a = rq->attach;
        bool read_only = rq->peer->member->read_only, created;
        struct session_info info;
        uint32_t last;
        int r;

        last = a->last_session;
        r = m->wanted != 0 ? want_handle(rq, a, m->wanted) : 0;
        if (r < 0)
                return r;
        r = session_open(a,
                &(struct session_request){m->id.data, (uint32_t)MIN(m->id.len, (size_t)UINT32_MAX),
                        m->must_exist || read_only, read_only ? 0 : m->expire_sec * NSEC_PER_SEC,
                        server_now(rq->server)},
                &reply->session, &created, &rq->detail);
        a->last_session = MAX(a->last_session, last);
        if (r == -ENOENT && read_only && !m->must_exist)
                return detail_set(&rq->detail, -EACCES,
                        "there is no such session, and this client may not make one: only those that may publish can");
        if (r != 0)
                return r;
        session_info(session_of(a, reply->session, NULL), &info);
        reply->created = created;
        reply->n_pages = info.n_pages;
        reply->n_tokens = info.n_tokens;
        reply->lost_tokens = info.lost_tokens;
        if (info.n_pages == 0)
                return 0;
        reply->last_key.data = arena_alloc(&rq->server->scratch.arena, KEY_BYTES);
        if (!reply->last_key.data) {
                (void)session_close(a, reply->session, false, server_now(rq->server), NULL);
                return -ENOMEM;
        }
        memcpy(reply->last_key.data, info.last_key, KEY_BYTES);
        reply->last_key.len = KEY_BYTES;
        return 0;
}

/* Finds the session of a handle. Returns 0, or the status with the sentence. */
static int take_session(struct request *rq, uint32_t handle, struct session **ret)
{
        int r = attach_check_version(rq->attach, &rq->detail);

        if (r != 0)
                return r;
        *ret = session_of(rq->attach, handle, &rq->detail);
        return *ret ? 0 : -ENOENT;
}

/* Room for n rows in all lists of the reply. */
static int make_lists(struct arena *arena, uint32_t n, Kvlease__V1__SessionPagesReply *reply)
{
        reply->pages = arena_alloc(arena, n * sizeof(*reply->pages));
        reply->first_tokens = arena_alloc(arena, n * sizeof(*reply->first_tokens));
        reply->tokens = arena_alloc(arena, n * sizeof(*reply->tokens));
        reply->keys.data = arena_alloc(arena, n * (size_t)KEY_BYTES);
        return reply->pages && reply->first_tokens && reply->tokens && reply->keys.data ? 0
                                                                                        : -ENOMEM;
}

static void fill_lists(const struct ns *ns, const struct session_page *pages, uint32_t n,
        Kvlease__V1__SessionPagesReply *reply)
{
        for (uint32_t i = 0; i < n; i++) {
                reply->pages[i] = pages[i].page;
                reply->first_tokens[i] = pages[i].first_token;
                reply->tokens[i] = pages[i].tokens;
                memcpy(reply->keys.data + (size_t)i * KEY_BYTES, ns_page(ns, pages[i].page)->key,
                        KEY_BYTES);
        }
        reply->n_pages = reply->n_first_tokens = reply->n_tokens = n;
        reply->keys.len = (size_t)n * KEY_BYTES;
}

int handle_SESSION_PAGES(struct request *rq)
{
        const Kvlease__V1__SessionPagesRequest *m = rq->message;
        Kvlease__V1__SessionPagesReply *reply = rq->reply;
        struct session_page *pages;
        struct session_info info;
        struct session *s;
        uint32_t n;
        int r = take_session(rq, m->session, &s);

        if (r != 0)
                return r;
        if (m->max == 0 || m->max > MAX_SESSION_PAGES)
                return detail_set(&rq->detail, -EINVAL, "max is %u: 1 to %d are allowed", m->max,
                        MAX_SESSION_PAGES);
        pages = arena_alloc(&rq->server->scratch.arena, m->max * sizeof(*pages));
        if (!pages || make_lists(&rq->server->scratch.arena, m->max, reply) < 0)
                return -ENOMEM;
        r = session_pages(rq->attach, s, (struct session_range){m->from, m->max},
                server_now(rq->server), pages, &n, &rq->detail);
        session_info(s, &info);
        reply->total = info.n_pages;
        fill_lists(rq->attach->ns, pages, n, reply);
        return r;
}

int handle_SESSION_TRUNCATE(struct request *rq)
{
        const Kvlease__V1__SessionTruncateRequest *m = rq->message;
        struct session_truncation t;
        struct session *s;
        int r = take_session(rq, m->session, &s);

        if (r == 0)
                r = truncation_begin_ends(&t, s, m->first_tokens, m->last_tokens, &rq->detail);
        return r == 0 ? drops_truncate(rq, &t) : r;
}

/* Takes the ranges of the request. Returns 0 with *ret_ranges, borrowed from the request's memory;
 * -EINVAL with the sentence; -ENOMEM. */
static int take_ranges(struct request *rq, const Kvlease__V1__SessionKeepRequest *m,
        const struct token_range **ret_ranges)
{
        size_t n = m->n_first_tokens;
        struct token_range *ranges;

        if (n != m->n_end_tokens)
                return detail_set(&rq->detail, -EINVAL,
                        "there are %zu first_tokens, and %zu end_tokens: a range has one of each",
                        n, m->n_end_tokens);
        if (n > TRUNCATION_RANGES_MAX)
                return detail_set(&rq->detail, -EINVAL, "there are %zu ranges: 1 to %d are allowed",
                        n, TRUNCATION_RANGES_MAX);
        ranges = arena_alloc(&rq->server->scratch.arena, MAX(n, (size_t)1) * sizeof(*ranges));
        if (!ranges)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++)
                ranges[i] = (struct token_range){m->first_tokens[i], m->end_tokens[i]};
        *ret_ranges = ranges;
        return 0;
}

int handle_SESSION_KEEP(struct request *rq)
{
        const Kvlease__V1__SessionKeepRequest *m = rq->message;
        const struct token_range *ranges = NULL;
        struct session_truncation t;
        struct session *s;
        int r = take_session(rq, m->session, &s);

        if (r == 0)
                r = take_ranges(rq, m, &ranges);
        if (r == 0)
                r = truncation_begin(&t, s, ranges, (uint32_t)m->n_first_tokens, &rq->detail);
        return r == 0 ? drops_truncate(rq, &t) : r;
}

int handle_SESSION_HINT(struct request *rq)
{
        const Kvlease__V1__SessionHintRequest *m = rq->message;
        struct session *s;
        int r = take_session(rq, m->session, &s);

        if (r != 0)
                return r;
        if (m->hint > EVICT_HINT_RETURNS)
                return detail_set(&rq->detail, -EINVAL, "hint is %u: 0 to %d are known", m->hint,
                        EVICT_HINT_RETURNS);
        session_hint(
                s, (enum evict_hint)m->hint, m->after_msec * NSEC_PER_MSEC, server_now(rq->server));
        return 0;
}

int handle_SESSION_CLOSE(struct request *rq)
{
        const Kvlease__V1__SessionCloseRequest *m = rq->message;
        struct attach *a = rq->attach;

        if (m->drop && rq->peer->member->read_only)
                return detail_set(&rq->detail, -EACCES,
                        "this client may only look up: it may close a session, but not drop it");
        return session_close(a, m->session, m->drop, server_now(rq->server), &rq->detail);
}
