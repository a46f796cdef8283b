/* ANNOUNCE, WAIT, IMPORT, PROBE_HOSTS, NOTE_PREFILL. */
#include <errno.h>

#include "daemon/core/clients/announce.h"
#include "daemon/exchange/exchange.h"
#include "daemon/exchange/import.h"
#include "daemon/core/state/tenant.h"
#include "daemon/server/handlers/handlers.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/pending.h"
#include "daemon/server/peers/imports.h"
#include "daemon/server/peers/key-waits.h"
#include "proto/kvlease.pb-c.h"
#include "proto/status.h"

#define WAIT_MAX_MSEC 600000 /* kvlease.proto */

static int check_announce(struct request *rq, const Kvlease__V1__AnnounceRequest *m)
{
        if (m->n_pages == 0 || m->n_pages > MAX_PUBLISH_PAGES)
                return detail_set(&rq->detail, m->n_pages == 0 ? -EINVAL : -EMSGSIZE,
                        "the request names %zu pages: 1 to %d are allowed", m->n_pages,
                        MAX_PUBLISH_PAGES);
        if (m->keys.len != m->n_pages * KEY_BYTES)
                return detail_set(&rq->detail, -EINVAL, "%zu pages need %zu bytes of keys, not %zu",
                        m->n_pages, m->n_pages * KEY_BYTES, m->keys.len);
        return 0;
}

int handle_ANNOUNCE(struct request *rq)
{
        const Kvlease__V1__AnnounceRequest *m = rq->message;
        Kvlease__V1__AnnounceReply *reply = rq->reply;
        struct attach *a = rq->attach;
        int r;

        r = check_announce(rq, m);
        if (r < 0)
                return r;
        return announce_pages(a, m->pages, m->keys.data, (uint32_t)m->n_pages, &reply->n_announced,
                &reply->page, &rq->detail);
}

static int check_timeout(struct request *rq, uint32_t timeout_msec)
{
        if (timeout_msec > 0 && timeout_msec <= WAIT_MAX_MSEC)
                return 0;
        return detail_set(&rq->detail, -EINVAL, "timeout_msec is %u: 1 to %d are allowed",
                timeout_msec, WAIT_MAX_MSEC);
}

int handle_WAIT(struct request *rq)
{
        const Kvlease__V1__WaitRequest *m = rq->message;
        struct attach *a = rq->attach;
        int r;

        if (m->key.len != KEY_BYTES)
                return detail_set(
                        &rq->detail, -EINVAL, "key has %zu bytes, not %d", m->key.len, KEY_BYTES);
        r = check_timeout(rq, m->timeout_msec);
        if (r < 0)
                return r;
        r = announce_state(a, m->key.data, &rq->detail);
        return r == KVL_STATUS_PENDING ? key_waits_ask(rq, m->key.data, m->timeout_msec) : r;
}

/* Asks other hosts; `want` has all but keys and deadline. */
static int ask_hosts(struct request *rq, const ProtobufCBinaryData *keys, uint32_t timeout_msec,
        struct import_request want)
{
        int r;

        if (keys->len == 0 || keys->len % KEY_BYTES != 0 || keys->len / KEY_BYTES > IMPORT_KEYS_MAX)
                return detail_set(&rq->detail, -EINVAL,
                        "keys has %zu bytes: %d for each of 1 to %d keys are allowed", keys->len,
                        KEY_BYTES, IMPORT_KEYS_MAX);
        want.keys = keys->data;
        want.n_keys = (uint32_t)(keys->len / KEY_BYTES);
        r = check_timeout(rq, timeout_msec);
        return r < 0 ? r : imports_ask(rq, &want, timeout_msec);
}

int handle_IMPORT(struct request *rq)
{
        const Kvlease__V1__ImportRequest *m = rq->message;

        if (m->parent_key.len != 0 && m->parent_key.len != KEY_BYTES)
                return detail_set(&rq->detail, -EINVAL, "parent_key has %zu bytes, not %d or none",
                        m->parent_key.len, KEY_BYTES);
        return ask_hosts(rq, &m->keys, m->timeout_msec,
                (struct import_request){
                        .parent_key = m->parent_key.len > 0 ? m->parent_key.data : NULL});
}

int handle_PROBE_HOSTS(struct request *rq)
{
        const Kvlease__V1__ProbeHostsRequest *m = rq->message;

        return ask_hosts(
                rq, &m->keys, m->timeout_msec, (struct import_request){.only_probes = true});
}

int handle_SESSION_LOAD(struct request *rq)
{
        const Kvlease__V1__SessionLoadRequest *m = rq->message;
        int r = check_timeout(rq, m->timeout_msec);

        return r < 0 ? r : imports_ask_session(rq);
}

int handle_NOTE_PREFILL(struct request *rq)
{
        const Kvlease__V1__NotePrefillRequest *m = rq->message;
        struct attach *a = rq->attach;

        if (m->n_tokens == 0 || m->nsec == 0 || m->nsec > PREFILL_NSEC_MAX)
                return detail_set(&rq->detail, -EINVAL,
                        "%u tokens in %llu ns: at least 1 token in 1 ns to an hour are allowed",
                        m->n_tokens, (unsigned long long)m->nsec);
        exchange_note_prefill(a->ns, m->n_tokens, m->nsec);
        return 0;
}
