/* LEASE, LEASABLE, PUBLISH, LOOKUP, EXPECT, PIN, HELD, RELEASE, FREE, REPORT, REQUEST_END, FETCH:
 * the frequent requests of engines. */
#include <errno.h>

#include "base/clock.h"
#include "daemon/core/clients/client-record.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/clients/pin.h"
#include "daemon/core/clients/request.h"
#include "daemon/core/reclaim/room.h"
#include "daemon/core/requests/expected.h"
#include "daemon/core/requests/lease.h"
#include "daemon/core/requests/lookup.h"
#include "daemon/core/requests/publish.h"
#include "daemon/core/reclaim/leasable.h"
#include "daemon/server/handlers/handlers.h"
#include "daemon/server/peers/fetches.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/peer.h"
#include "policy/expect.h"
#include "proto/kvlease.pb-c.h"

static int refuse_count(struct request *rq, const char *what, size_t n, size_t max)
{
        return detail_set(&rq->detail, -EMSGSIZE,
                "the request names %zu %s: at most %zu are allowed in one", n, what, max);
}

/* A number of pages or keys in a request. */
static int check_count(struct request *rq, const char *what, size_t n, size_t max)
{
        if (n == 0)
                return detail_set(&rq->detail, -EINVAL,
                        "the request names no %s: 1 to %zu are allowed", what, max);
        return n > max ? refuse_count(rq, what, n, max) : 0;
}

static uint64_t max_wait_nsec(const Kvlease__V1__LeaseRequest *m)
{
        if (m->no_wait)
                return 0;
        return m->max_wait_msec > 0 ? m->max_wait_msec * NSEC_PER_MSEC : UINT64_MAX;
}

/* Is it a request that was sent before the client went on on this connection, so that it may have
 * been done already? */
static bool is_repeated(const struct request *rq)
{
        return rq->header->seq <= rq->peer->resumption.repeats_until;
}

/* Something that mustn't be done twice is to be done. False: it was already. */
static bool do_once(struct request *rq)
{
        struct member *m = rq->peer->member;

        if (is_repeated(rq) && client_frame_is_done(m, rq->header->seq))
                return false;
        client_note_frame(m, rq->header->seq);
        return true;
}

int handle_LEASE(struct request *rq)
{
        const Kvlease__V1__LeaseRequest *m = rq->message;
        Kvlease__V1__LeaseReply *reply = rq->reply;
        const struct lease_request lease = {
                .n = m->n_pages,
                .min = m->min_pages > 0 ? m->min_pages : m->n_pages,
                .max_wait_nsec = max_wait_nsec(m),
                .take_back_nsec = rq->server->config.daemon.revoke_timeout_nsec,
                .holds_some = m->holds_some,
                .seq = lease_seq(rq->header->seq),
                .how = (enum lease_how)m->contiguous,
        };
        struct lease_result result;
        struct attach *a = rq->attach;
        int r = check_count(rq, "pages", m->n_pages, MAX_LEASE_PAGES);

        if (r != 0)
                return r;
        r = lease_ask(
                a, &lease, server_now(rq->server), rq->server->scratch.pages, &result, &rq->detail);
        reply->pages = rq->server->scratch.pages;
        reply->n_pages = result.n;
        reply->waited_usec = result.waited_nsec / NSEC_PER_USEC;
        reply->reason = result.reason;
        return r;
}

static int check_publish(struct request *rq, const struct ns *ns,
        const Kvlease__V1__PublishRequest *m, char ret_names[SHM_FEED_NAMES_BYTES])
{
        uint64_t n_tokens = (uint64_t)(m->n_pages - 1) * ns->layout.page_tokens + m->last_tokens;
        int r = check_count(rq, "pages", m->n_pages, MAX_PUBLISH_PAGES);

        if (r < 0)
                return r;
        if (m->keys.len != m->n_pages * KEY_BYTES)
                return detail_set(&rq->detail, -EINVAL, "%zu pages need %zu bytes of keys, not %zu",
                        m->n_pages, m->n_pages * KEY_BYTES, m->keys.len);
        if (m->parent_key.len != 0 && m->parent_key.len != KEY_BYTES)
                return detail_set(&rq->detail, -EINVAL, "parent_key has %zu bytes, not %d or none",
                        m->parent_key.len, KEY_BYTES);
        if (m->token_ids.len != 0 && m->token_ids.len != n_tokens * sizeof(uint32_t))
                return detail_set(&rq->detail, -EINVAL,
                        "pages of %llu tokens need %llu bytes of token_ids, or none, not %zu",
                        (unsigned long long)n_tokens,
                        (unsigned long long)(n_tokens * sizeof(uint32_t)), m->token_ids.len);
        if (!shm_feed_put_names(ret_names, m->lora_name, m->cache_salt))
                return detail_set(&rq->detail, -EINVAL,
                        "lora_name and cache_salt have more than %d bytes",
                        SHM_FEED_NAMES_BYTES - 2);
        return 0;
}

int handle_PUBLISH(struct request *rq)
{
        const Kvlease__V1__PublishRequest *m = rq->message;
        Kvlease__V1__PublishReply *reply = rq->reply;
        struct attach *a = rq->attach;
        char names[SHM_FEED_NAMES_BYTES];
        struct publish publish;
        uint32_t n = 0;
        int r;

        r = check_publish(rq, a->ns, m, names);
        if (r < 0)
                return r;
        publish = (struct publish){
                .pages = m->pages,
                .keys = m->keys.data,
                .n = (uint32_t)m->n_pages,
                .parent_key = m->parent_key.len > 0 ? m->parent_key.data : NULL,
                .last_tokens = m->last_tokens,
                .request = m->request_id,
                .session = m->session,
                .tag = m->tag,
                .window_passed = m->window_passed,
                .token_ids = m->token_ids.len > 0 ? m->token_ids.data : NULL,
                .names = m->parent_key.len > 0 ? NULL : names,
        };
        rq->peer->member->repeats = is_repeated(rq);
        r = publish_pages(
                a, &publish, server_now(rq->server), rq->server->scratch.pages, &n, &rq->detail);
        reply->pages = rq->server->scratch.pages;
        reply->n_pages = n;
        return r;
}

/* Where one lies below the device: who brings them up may have to end the run before it. */
static void tell_page_tokens(struct request *rq, const struct ns *ns, uint32_t n)
{
        Kvlease__V1__LookupReply *reply = rq->reply;
        const uint32_t *pages = rq->server->scratch.pages;
        uint32_t *tokens = rq->server->scratch.page_tokens;
        uint32_t first_lower = tier_first_page(&ns->geometry, TIER_HOST);
        bool any_lower = false;

        for (uint32_t i = 0; i < n; i++)
                any_lower |= pages[i] >= first_lower;
        if (!any_lower)
                return;
        for (uint32_t i = 0; i < n; i++)
                tokens[i] = ns_page(ns, pages[i])->tokens;
        reply->page_tokens = tokens;
        reply->n_page_tokens = n;
}

static int check_keys(struct request *rq, const ProtobufCBinaryData *keys)
{
        if (keys->len % KEY_BYTES != 0)
                return detail_set(&rq->detail, -EINVAL, "keys has %zu bytes, no multiple of %d",
                        keys->len, KEY_BYTES);
        return check_count(rq, "keys", keys->len / KEY_BYTES, MAX_LOOKUP_KEYS);
}

int handle_LOOKUP(struct request *rq)
{
        const Kvlease__V1__LookupRequest *m = rq->message;
        Kvlease__V1__LookupReply *reply = rq->reply;
        struct attach *a = rq->attach;
        uint32_t n = 0, n_keys = (uint32_t)(m->keys.len / KEY_BYTES);
        uint64_t tokens = 0;
        int r;

        r = check_keys(rq, &m->keys);
        if (r == 0)
                r = lookup_pages(a,
                        &(struct lookup_request){
                                m->keys.data, n_keys, server_now(rq->server), m->request_id},
                        rq->server->scratch.pages, &n, &tokens, &rq->detail);
        reply->pages = rq->server->scratch.pages;
        reply->n_pages = n;
        reply->tokens = (uint32_t)tokens;
        if (r == 0)
                tell_page_tokens(rq, a->ns, n);
        return r;
}

int handle_RELEASE(struct request *rq)
{
        const Kvlease__V1__ReleaseRequest *m = rq->message;
        struct attach *a = rq->attach;
        int r = check_count(rq, "pages", m->n_pages, MAX_LEASE_PAGES);

        if (r < 0 || !do_once(rq))
                return r;
        return release_pages(
                a, m->pages, (uint32_t)m->n_pages, server_now(rq->server), &rq->detail);
}

int handle_PIN(struct request *rq)
{
        const Kvlease__V1__PinRequest *m = rq->message;
        struct attach *a = rq->attach;
        int r = check_count(rq, "pages", m->n_pages, MAX_LEASE_PAGES);

        if (r < 0 || !do_once(rq))
                return r;
        return pin_again(a, m->pages, (uint32_t)m->n_pages, &rq->detail);
}

int handle_HELD(struct request *rq)
{
        const Kvlease__V1__HeldRequest *m = rq->message;
        struct attach *a = rq->attach;
        int r = check_count(rq, "pages", m->n_pages, MAX_HELD_PAGES);

        return r < 0 ? r : pin_check_held(a, m->pages, (uint32_t)m->n_pages, &rq->detail);
}

int handle_LEASABLE(struct request *rq)
{
        const Kvlease__V1__LeasableRequest *m = rq->message;
        Kvlease__V1__CountReply *reply = rq->reply;
        struct attach *a = rq->attach;
        uint32_t budget = MAX_LEASABLE_LOOK;

        if (m->together > 0)
                return room_check(a->ns, m->together, &rq->detail);
        (void)leasable_look(a->ns, &budget, false);
        reply->count = a->version_epoch == a->ns->version_epoch ? leasable_pages(a->ns) : 0;
        return 0;
}

int handle_EXPECT(struct request *rq)
{
        const Kvlease__V1__ExpectRequest *m = rq->message;
        struct attach *a = rq->attach;
        int r;

        if (m->ttl_msec > EXPECT_TTL_MOST_MSEC)
                return detail_set(&rq->detail, -EINVAL,
                        "ttl_msec is %u: an expectation stands for %u ms at most", m->ttl_msec,
                        EXPECT_TTL_MOST_MSEC);
        r = check_keys(rq, &m->keys);
        if (r < 0)
                return r;
        return expected_by_keys(a, m->keys.data, (uint32_t)(m->keys.len / KEY_BYTES), m->ttl_msec,
                server_now(rq->server), &rq->detail);
}

int handle_FREE(struct request *rq)
{
        const Kvlease__V1__FreeRequest *m = rq->message;
        struct attach *a = rq->attach;
        int r = check_count(rq, "pages", m->n_pages, MAX_LEASE_PAGES);

        if (r < 0 || !do_once(rq))
                return r;
        return free_pages(a, m->pages, (uint32_t)m->n_pages, &rq->detail);
}

int handle_REPORT(struct request *rq)
{
        const Kvlease__V1__ReportRequest *m = rq->message;
        Kvlease__V1__CountReply *reply = rq->reply;
        struct attach *a = rq->attach;

        if (m->n_pages > MAX_LEASE_PAGES)
                return refuse_count(rq, "pages", m->n_pages, MAX_LEASE_PAGES);
        return report_pages(a, m->pages, (uint32_t)m->n_pages, m->continues, m->more, &reply->count,
                &rq->detail);
}

int handle_REQUEST_END(struct request *rq)
{
        const Kvlease__V1__RequestEndRequest *m = rq->message;

        request_end(rq->attach, m->request_id, m->ending, server_now(rq->server));
        return 0;
}

/* FETCH over the socket: fetches pages from lower tiers, demotes them, or copies them. */
int handle_FETCH(struct request *rq)
{
        const Kvlease__V1__FetchRequest *m = rq->message;
        struct attach *a = rq->attach;
        int r;

        if (m->n_pages == 0 || m->n_pages > FETCHES_MAX_PAGES)
                return detail_set(&rq->detail, m->n_pages == 0 ? -EINVAL : -EMSGSIZE,
                        "the request names %zu pages: 1 to %d are allowed", m->n_pages,
                        FETCHES_MAX_PAGES);
        if (m->n_targets != 0 && m->n_targets != m->n_pages)
                return detail_set(&rq->detail, -EINVAL,
                        "%zu pages and %zu targets: one each, or none", m->n_pages, m->n_targets);
        if (m->down && m->n_targets > 0)
                return detail_set(&rq->detail, -EINVAL,
                        "pages that go down the tiers are copied into no targets");
        if (m->n_targets == 0 && (m->first_plane > 0 || m->n_planes > 0))
                return detail_set(
                        &rq->detail, -EINVAL, "planes are named of copies, and no targets are");
        if (m->first_plane > 0 && m->n_planes == 0)
                return detail_set(&rq->detail, -EINVAL,
                        "planes from %u on, and none of them: n_planes is 0", m->first_plane);
        r = attach_check_version(a, &rq->detail);
        if (r == 0 && m->n_targets == 0)
                r = pin_check(a, (uint32_t)m->n_pages, &rq->detail);
        return r != 0 ? r : fetches_ask(rq);
}
