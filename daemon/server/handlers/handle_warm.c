/* ADMIN_WARM: fetches named pages from lower tiers. */
#include <errno.h>

#include "daemon/core/state/ns.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/sessions/session.h"
#include "daemon/core/reclaim/warm.h"
#include "daemon/server/handlers/handlers.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/base/log.h"
#include "proto/kvlease.pb-c.h"

static int take_keys(const ProtobufCBinaryData *keys, struct warm_request *ret, struct detail *d)
{
        if (keys->len % KEY_BYTES != 0 || keys->len / KEY_BYTES > WARM_MAX_KEYS)
                return detail_set(d, -EINVAL, "%zu bytes of keys: 1 to %d keys of %d are allowed",
                        keys->len, WARM_MAX_KEYS, KEY_BYTES);
        ret->keys = keys->data;
        ret->n_keys = (uint32_t)(keys->len / KEY_BYTES);
        return 0;
}

static int take_tags(
        const Kvlease__V1__AdminWarmRequest *m, struct warm_request *ret, struct detail *d)
{
        if (m->n_tags > WARM_MAX_TAGS)
                return detail_set(
                        d, -EINVAL, "%zu tags: 1 to %d are allowed", m->n_tags, WARM_MAX_TAGS);
        for (size_t i = 0; i < m->n_tags; i++) {
                if (m->tags[i] == 0)
                        return detail_set(d, -EINVAL, "0 is no tag: tags begin with 1");
                ret->tags[ret->n_tags++] = m->tags[i];
        }
        return 0;
}

static int take_session(const struct ns *ns, const ProtobufCBinaryData *id,
        struct warm_request *ret, struct detail *d)
{
        const struct session *s = NULL;
        uint32_t page;

        if (id->len <= SESSION_ID_MAX)
                s = session_find(ns, id->data, (uint32_t)id->len);
        if (!s)
                return detail_set(d, -ENOENT,
                        "namespace %s has no such session: kvleasectl sessions lists them",
                        ns->name);
        page = session_tail(s);
        if (page == PAGE_NONE)
                return detail_set(
                        d, -ENOENT, "nothing of the session is cached in namespace %s", ns->name);
        ret->keys = ns_page(ns, page)->key;
        ret->n_keys = 1;
        return 0;
}

static int begin_warming(struct ns *ns, const Kvlease__V1__AdminWarmRequest *m, struct detail *d)
{
        struct warm_request rq = {0};
        int n = (m->keys.len > 0) + (m->session.len > 0) + (m->n_tags > 0) + (m->all != 0), r = 0;

        if (n != 1)
                return detail_set(d, -EINVAL,
                        "exactly one of keys, session, tags and all says what is to come up");
        if (m->keys.len > 0)
                r = take_keys(&m->keys, &rq, d);
        else if (m->session.len > 0)
                r = take_session(ns, &m->session, &rq, d);
        else
                r = take_tags(m, &rq, d);
        return r < 0 ? r : warm_begin(ns, &rq, d);
}

static void log_warm(const struct request *rq, const struct ns *ns, const struct warm_figures *f)
{
        char uid[16];

        snprintf(uid, sizeof(uid), "%u", (unsigned)rq->peer->identity.uid);
        log_event(LEVEL_NOTICE, LOG_FIELDS({"TENANT", ns->tenant->name}, {"PEER_UID", uid}),
                "namespace %s of tenant %s is warmed, asked for by uid %s: %llu pages below, %llu on the device",
                ns->name, ns->tenant->name, uid, (unsigned long long)f->n_left,
                (unsigned long long)f->n_there);
}

int handle_ADMIN_WARM(struct request *rq)
{
        const Kvlease__V1__AdminWarmRequest *m = rq->message;
        Kvlease__V1__AdminWarmReply *reply = rq->reply;
        struct ns *ns = request_ns(rq, m->tenant, m->ns);
        bool begins = m->action == KVLEASE__V1__ADMIN_WARM_REQUEST__ACTION__BEGIN;
        struct warm_figures f;
        int r = 0;

        if (!ns)
                return -ENOENT;
        if (begins)
                r = begin_warming(ns, m, &rq->detail);
        else if (m->action == KVLEASE__V1__ADMIN_WARM_REQUEST__ACTION__STOP)
                warm_stop(ns);
        if (r < 0)
                return r;
        warm_figures(ns, &f);
        if (begins)
                log_warm(rq, ns, &f);
        reply->running = f.is_running;
        reply->full = f.is_full;
        reply->there = f.n_there;
        reply->came = f.n_came;
        reply->left = f.n_left;
        reply->missing = f.n_missing;
        return 0;
}
