/*
 * Leasing, finding, publishing. Each call is a struct op (client.h), whether somebody waits for it
 * or it was started: request, then the mappings that its pages need, then the end.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "client/lib/client.h"
#include "client/lib/error.h"
#include "proto/status.h"

/* What begins every reply that brings pages. */
typedef Kvlease__V1__LeaseReply pages_reply;

#define ASSERT_BRINGS_PAGES(type)                                                     \
        _Static_assert(offsetof(type, n_pages) == offsetof(pages_reply, n_pages) &&   \
                               offsetof(type, pages) == offsetof(pages_reply, pages), \
                #type)
ASSERT_BRINGS_PAGES(Kvlease__V1__PublishReply);
ASSERT_BRINGS_PAGES(Kvlease__V1__LookupReply);

static bool brings_pages(uint16_t type)
{
        return type == MSG_LEASE || type == MSG_LOOKUP || type == MSG_PUBLISH;
}

static struct conn *conn_of(const struct kvl_ns *ns)
{
        return ns->conn->conn;
}

/* ---- requests that carry pages -----------------------------------------------------------------
 */

/* [L] RELEASE or FREE; call NULL: nobody waits for the answer. */
static int send_pages(struct kvl_ns *ns, struct conn_call *call, uint16_t type,
        const uint32_t *pages, uint32_t n_pages)
{
        Kvlease__V1__ReleaseRequest release = KVLEASE__V1__RELEASE_REQUEST__INIT;
        Kvlease__V1__FreeRequest free_m = KVLEASE__V1__FREE_REQUEST__INIT;
        const ProtobufCMessage *m = &release.base;

        if (type == MSG_FREE)
                m = &free_m.base;
        release.ns_id = free_m.ns_id = ns->id;
        release.n_pages = free_m.n_pages = n_pages;
        release.pages = free_m.pages = (uint32_t *)pages;
        return call ? conn_start(conn_of(ns), call, type, m) : conn_notify(conn_of(ns), type, m);
}

/* [L] What a call of `type` got, and its caller never learns of or can't use, is the daemon's
 * again. */
static void give_back(struct kvl_ns *ns, uint16_t type, const uint32_t *pages, uint32_t n_pages)
{
        uint16_t how = type == MSG_LEASE ? MSG_FREE : MSG_RELEASE;
        int r = 0;

        for (uint32_t i = 0, n; i < n_pages && r == 0; i += n) {
                n = MIN(n_pages - i, (uint32_t)KVL_MAX_LEASE_PAGES);
                r = send_pages(ns, NULL, how, pages + i, n);
        }
        /* Not to leak them: with the connection everything ends. */
        if (r < 0)
                conn_break(conn_of(ns), r, "out of memory while giving pages back");
}

static void on_late(struct conn *c, struct conn_call *call, int code, const ProtobufCMessage *reply,
        struct frame *frame)
{
        const pages_reply *m = (const pages_reply *)reply;

        if (m && brings_pages(call->type))
                give_back(call->cookie, call->type, m->pages, (uint32_t)m->n_pages);
        conn_finish(c, call, code);
}

/* ---- replies -----------------------------------------------------------------------------------
 */

/* Whether the reply brings as many pages as it may. */
static bool is_count_right(const struct op *op, int code, size_t n)
{
        switch (op->type) {
        case MSG_LEASE:
                return n == (code == 0 ? op->n_asked : 0);
        case MSG_LOOKUP:
                return code == 0 ? n > 0 && n <= op->n_asked : n == 0;
        default: /* PUBLISH: all, or those before the one that was refused */
                return code == 0 || code == KVL_DUPLICATE ? n == op->n_asked : n < op->n_asked;
        }
}

/* What is wrong with it; NULL: nothing. */
static const char *take_pages(struct op *op, int code, const pages_reply *m)
{
        const struct kvl_ns_info *info = &op->ns->info;
        bool is_other = false;

        if (!is_count_right(op, code, m->n_pages))
                return "kvleased answered with a wrong number of pages";
        for (size_t i = 0; i < m->n_pages; i++) {
                if (m->pages[i] >= info->capacity_pages)
                        return "kvleased answered with a page beyond the namespace";
                is_other |= op->type == MSG_PUBLISH && m->pages[i] != op->pages[i];
        }
        if (op->type == MSG_PUBLISH && code >= 0 && code <= KVL_DUPLICATE && code != KVL_MISS)
                code = is_other ? KVL_DUPLICATE : 0;
        if (op->type == MSG_LOOKUP) {
                op->n_tokens = ((const Kvlease__V1__LookupReply *)m)->tokens;
                if (op->n_tokens > (uint64_t)m->n_pages * info->page_tokens)
                        return "kvleased answered with more tokens than fit the pages";
        }
        if (m->n_pages > 0)
                memcpy(op->pages, m->pages, m->n_pages * sizeof(*m->pages));
        op->n_pages = (uint32_t)m->n_pages;
        op->code = code;
        return NULL;
}

/* Pages came that can't be mapped. Published ones are: their pins stay the caller's. */
static void fail(struct op *op, int code)
{
        if (op->type == MSG_LEASE || op->type == MSG_LOOKUP) {
                give_back(op->ns, op->type, op->pages, op->n_pages);
                op->n_pages = 0;
        }
        conn_finish(conn_of(op->ns), &op->call, code);
}

/* [L] Asks for the next set that isn't mapped, or ends the call. */
static void proceed(struct op *op)
{
        Kvlease__V1__MapRequest m = KVLEASE__V1__MAP_REQUEST__INIT;
        struct kvl_ns *ns = op->ns;
        int r;

        for (; op->n_mapped < op->n_pages; op->n_mapped++) {
                op->set = op->pages[op->n_mapped] / ns->info.set_pages;
                if (!ns_is_mapped(ns, op->set))
                        break;
        }
        if (op->n_mapped == op->n_pages) {
                conn_finish(conn_of(ns), &op->call, op->code);
                return;
        }
        op->plane = ns->sets[op->set].n_planes;
        m.ns_id = ns->id;
        m.set_index = op->set;
        m.first_plane = op->plane;
        r = conn_start(conn_of(ns), &op->call, MSG_MAP, &m.base);
        if (r < 0)
                fail(op, r);
}

static void on_map(struct op *op, int code, const ProtobufCMessage *reply, struct frame *frame)
{
        if (reply && code == 0)
                code = ns_map(
                        op->ns, op->set, op->plane, (const Kvlease__V1__MapReply *)reply, frame);
        if (code == 0)
                proceed(op);
        else if (code == -EPROTO)
                conn_finish_violated(
                        conn_of(op->ns), &op->call, "kvleased sent memory that wasn't asked for");
        else
                fail(op, code);
}

static void on_reply(struct conn *c, struct conn_call *call, int code,
        const ProtobufCMessage *reply, struct frame *frame)
{
        struct op *op = container_of(call, struct op, call);
        const char *wrong = NULL;

        if (call->type == MSG_MAP) {
                on_map(op, code, reply, frame);
                return;
        }
        op->code = code;
        if (reply && brings_pages(op->type))
                wrong = take_pages(op, code, (const pages_reply *)reply);
        if (reply && op->type == MSG_INVALIDATE)
                op->n_tokens = ((const Kvlease__V1__CountReply *)reply)->count;
        if (wrong)
                conn_finish_violated(c, call, wrong);
        else
                proceed(op);
}

/* ---- both ways to call -------------------------------------------------------------------------
 */

static void op_init(
        struct op *op, struct kvl_ns *ns, uint16_t type, uint32_t *pages, uint32_t n_asked)
{
        op->call = (struct conn_call){.on_reply = on_reply, .on_late = on_late, .cookie = ns};
        op->ns = ns;
        list_init(&op->link);
        op->type = type;
        op->pages = pages;
        op->n_asked = n_asked;
        op->n_pages = op->n_mapped = 0;
        op->n_tokens = 0;
        op->code = 0;
}

/* Runs a call to its end; `started` is what starting it gave. [L], noting the sentence. */
static int finish_op(struct op *op, int started, uint64_t deadline_nsec)
{
        int r = started;

        if (r == 0)
                r = conn_wait(conn_of(op->ns), &op->call, deadline_nsec);
        /* The request itself was answered; only the mapping wasn't. */
        if (r == -ETIMEDOUT && op->call.type == MSG_MAP && brings_pages(op->type)) {
                give_back(op->ns, op->type, op->pages, op->n_pages);
                op->n_pages = 0;
        }
        return error_note(r, op->call.detail);
}

static int run_op(struct op *op, const ProtobufCMessage *m, uint64_t deadline_nsec)
{
        struct conn *c = conn_of(op->ns);
        int r;

        conn_lock(c);
        r = finish_op(op, conn_start(c, &op->call, op->type, m), deadline_nsec);
        conn_unlock(c);
        return r;
}

static int run_pages_op(struct op *op, uint64_t deadline_nsec)
{
        struct conn *c = conn_of(op->ns);
        int r;

        conn_lock(c);
        r = send_pages(op->ns, &op->call, op->type, op->pages, op->n_asked);
        r = finish_op(op, r, deadline_nsec);
        conn_unlock(c);
        return r;
}

/* Runs the user's callback of a started call, and ends it. */
static int on_op_done(struct conn_call *call)
{
        struct op *op = container_of(call, struct op, call);
        struct kvl_ns *ns = op->ns;

        struct ns_callback callback;

        conn_lock(conn_of(ns));
        list_remove(&op->link);
        ns_callback_enter(&callback, ns);
        conn_unlock(conn_of(ns));
        error_note(call->code, call->detail);
        if (op->done)
                op->done(ns, call->code, op->pages, op->n_pages, op->n_tokens, op->data);
        ns_callback_leave(&callback);
        free(op);
        return 1;
}

static struct op *op_new(
        struct kvl_ns *ns, uint16_t type, uint32_t n_asked, kvl_done_fn done, void *data)
{
        struct op *op = calloc(1, sizeof(*op) + n_asked * sizeof(uint32_t));

        if (!op) {
                error_set(-ENOMEM, "out of memory");
                return NULL;
        }
        op_init(op, ns, type, op->own_pages, n_asked);
        op->call.on_done = on_op_done;
        op->done = done;
        op->data = data;
        return op;
}

/* Takes the op. m NULL: RELEASE or FREE of op->pages. */
static int start_op(struct op *op, const ProtobufCMessage *m)
{
        struct kvl_ns *ns = op->ns;
        struct conn *c = conn_of(ns);
        int r;

        conn_lock(c);
        if (conn_is_congested(c))
                r = -EAGAIN;
        else if (m)
                r = conn_start(c, &op->call, op->type, m);
        else
                r = send_pages(ns, &op->call, op->type, op->pages, op->n_asked);
        if (r == 0)
                list_append(&ns->ops, &op->link);
        conn_unlock(c);
        if (r == 0)
                return 0;
        free(op);
        return error_note(r, r == -EAGAIN ? "kvleased doesn't read: too much is unsent" : "");
}

void ns_cancel_ops(struct kvl_ns *ns)
{
        list_for_each (op, &ns->ops, struct op, link) {
                if (op->call.is_done)
                        continue;
                /* What its reply brings ends with the namespace. */
                op->call.on_late = NULL;
                conn_abandon(conn_of(ns), &op->call);
                if (!op->call.is_done)
                        conn_finish(conn_of(ns), &op->call, -ECANCELED);
        }
}

/* ---- arguments ---------------------------------------------------------------------------------
 */

static int check_count(const char *what, uint32_t n, uint32_t max)
{
        if (n >= 1 && n <= max)
                return 0;
        return error_set(-EINVAL, "the number of %s is %u, must be 1 to %u", what, n, max);
}

static int check_ns(const struct kvl_ns *ns)
{
        if (!ns)
                return error_set(-EINVAL, "no namespace was given");
        return client_check_process(ns->conn);
}

static int check_pages(const struct kvl_ns *ns, const uint32_t *pages, uint32_t n, uint32_t max)
{
        int r = check_ns(ns);

        if (r == 0)
                r = check_count("pages", n, max);
        if (r < 0)
                return r;
        if (!pages)
                return error_set(-EINVAL, "no pages were given");
        for (uint32_t i = 0; i < n; i++)
                if (pages[i] >= ns->info.capacity_pages)
                        return error_set(-EINVAL, "page %u is beyond the namespace's %u pages",
                                pages[i], ns->info.capacity_pages);
        return 0;
}

static int check_keys(const struct kvl_ns *ns, const uint8_t *keys, uint32_t n, uint32_t max)
{
        int r = check_ns(ns);

        if (r == 0)
                r = check_count("keys", n, max);
        if (r == 0 && !keys)
                r = error_set(-EINVAL, "no keys were given");
        return r;
}

/* ---- requests ----------------------------------------------------------------------------------
 */

uint64_t kvl_request_begin(struct kvl_ns *ns)
{
        return atomic_fetch_add_explicit(&ns->conn->n_requests, 1, memory_order_relaxed) + 1;
}

int kvl_request_end(struct kvl_ns *ns, uint64_t request)
{
        Kvlease__V1__RequestEndRequest m = KVLEASE__V1__REQUEST_END_REQUEST__INIT;
        int r = check_ns(ns);

        if (r < 0 || request == 0)
                return r;
        m.ns_id = ns->id;
        m.request_id = request;
        conn_lock(conn_of(ns));
        r = conn_is_congested(conn_of(ns)) ? -EAGAIN
                                           : conn_notify(conn_of(ns), MSG_REQUEST_END, &m.base);
        conn_unlock(conn_of(ns));
        return error_note(r, "");
}

/* ---- lookup ------------------------------------------------------------------------------------
 */

static Kvlease__V1__LookupRequest lookup_message(
        const struct kvl_ns *ns, uint64_t request, const uint8_t *keys, uint32_t n_keys)
{
        Kvlease__V1__LookupRequest m = KVLEASE__V1__LOOKUP_REQUEST__INIT;

        m.ns_id = ns->id;
        m.keys.data = (uint8_t *)keys;
        m.keys.len = (size_t)n_keys * KVL_KEY_BYTES;
        m.request_id = request;
        return m;
}

/* Looks up batch after batch as long as all of it is found. As kvl_lookup(). */
static int lookup_all(struct kvl_ns *ns, uint64_t request, const uint8_t *keys, uint32_t n_keys,
        uint32_t *pages, uint32_t *ret_n_pages, uint64_t *ret_n_tokens)
{
        uint64_t deadline = client_deadline(ns->conn);
        bool goes_on = true;
        int r = 0;

        while (goes_on && *ret_n_pages < n_keys) {
                uint32_t done = *ret_n_pages;
                uint32_t n = MIN(n_keys - done, (uint32_t)KVL_MAX_LOOKUP_KEYS);
                Kvlease__V1__LookupRequest m =
                        lookup_message(ns, request, keys + (size_t)done * KVL_KEY_BYTES, n);
                struct op op;

                op_init(&op, ns, MSG_LOOKUP, pages + done, n);
                r = run_op(&op, &m.base, deadline);
                goes_on = r == 0 && op.n_pages == n;
                if (r != 0)
                        break;
                *ret_n_pages += op.n_pages;
                *ret_n_tokens += op.n_tokens;
        }
        return r == KVL_MISS && *ret_n_pages > 0 ? 0 : r;
}

int kvl_lookup(struct kvl_ns *ns, uint64_t request, const uint8_t *keys, uint32_t n_keys,
        uint32_t *ret_pages, uint32_t *ret_n_pages, uint64_t *ret_n_tokens)
{
        uint32_t n_pages = 0;
        uint64_t n_tokens = 0;
        int r = check_keys(ns, keys, n_keys, UINT32_MAX);

        if (r < 0)
                return r;
        if (!ret_pages || !ret_n_pages || !ret_n_tokens)
                return error_set(-EINVAL, "there is no room for what is found");
        r = lookup_all(ns, request, keys, n_keys, ret_pages, &n_pages, &n_tokens);
        if (r != 0) {
                conn_lock(conn_of(ns));
                give_back(ns, MSG_LOOKUP, ret_pages, n_pages);
                conn_unlock(conn_of(ns));
                return r;
        }
        *ret_n_pages = n_pages;
        *ret_n_tokens = n_tokens;
        return 0;
}

int kvl_lookup_start(struct kvl_ns *ns, uint64_t request, const uint8_t *keys, uint32_t n_keys,
        kvl_done_fn done, void *data)
{
        Kvlease__V1__LookupRequest m;
        struct op *op;
        int r = check_keys(ns, keys, n_keys, KVL_MAX_LOOKUP_KEYS);

        if (r < 0)
                return r;
        op = op_new(ns, MSG_LOOKUP, n_keys, done, data);
        if (!op)
                return -ENOMEM;
        m = lookup_message(ns, request, keys, n_keys);
        return start_op(op, &m.base);
}

/* ---- lease -------------------------------------------------------------------------------------
 */

static Kvlease__V1__LeaseRequest lease_message(
        const struct kvl_ns *ns, uint64_t request, uint32_t n_pages)
{
        Kvlease__V1__LeaseRequest m = KVLEASE__V1__LEASE_REQUEST__INIT;

        m.ns_id = ns->id;
        m.n_pages = n_pages;
        m.request_id = request;
        return m;
}

static int check_lease(const struct kvl_ns *ns, uint32_t n_pages)
{
        int r = check_ns(ns);

        return r < 0 ? r : check_count("pages", n_pages, KVL_MAX_LEASE_PAGES);
}

int kvl_lease(struct kvl_ns *ns, uint64_t request, uint32_t n_pages, uint32_t *ret_pages)
{
        Kvlease__V1__LeaseRequest m;
        struct op op;
        int r = check_lease(ns, n_pages);

        if (r < 0)
                return r;
        if (!ret_pages)
                return error_set(-EINVAL, "there is no room for the pages");
        op_init(&op, ns, MSG_LEASE, ret_pages, n_pages);
        m = lease_message(ns, request, n_pages);
        return run_op(&op, &m.base, client_deadline(ns->conn));
}

int kvl_lease_start(
        struct kvl_ns *ns, uint64_t request, uint32_t n_pages, kvl_done_fn done, void *data)
{
        Kvlease__V1__LeaseRequest m;
        struct op *op;
        int r = check_lease(ns, n_pages);

        if (r < 0)
                return r;
        op = op_new(ns, MSG_LEASE, n_pages, done, data);
        if (!op)
                return -ENOMEM;
        m = lease_message(ns, request, n_pages);
        return start_op(op, &m.base);
}

/* ---- publish -----------------------------------------------------------------------------------
 */

static int copy_publish(const struct kvl_ns *ns, const struct kvl_publish *publish,
        uint32_t max_pages, struct kvl_publish *ret)
{
        int r = check_ns(ns);

        if (r == 0 && !publish)
                r = error_set(-EINVAL, "nothing to publish was given");
        if (r == 0)
                r = client_copy_struct(ret, sizeof(*ret), publish);
        if (r == 0)
                r = check_pages(ns, ret->pages, ret->n_pages, max_pages);
        if (r == 0 && !ret->keys)
                r = error_set(-EINVAL, "no keys were given");
        if (r == 0 && (ret->last_tokens == 0 || ret->last_tokens > ns->info.page_tokens))
                r = error_set(-EINVAL, "last_tokens is %u, must be 1 to %u", ret->last_tokens,
                        ns->info.page_tokens);
        return r;
}

/* Of `n` pages from `first` on. */
static Kvlease__V1__PublishRequest publish_message(
        const struct kvl_ns *ns, const struct kvl_publish *p, uint32_t first, uint32_t n)
{
        Kvlease__V1__PublishRequest m = KVLEASE__V1__PUBLISH_REQUEST__INIT;
        const uint8_t *keys = p->keys + (size_t)first * KVL_KEY_BYTES;
        const uint8_t *parent = first > 0 ? keys - KVL_KEY_BYTES : p->parent_key;

        m.ns_id = ns->id;
        m.n_pages = n;
        m.pages = (uint32_t *)p->pages + first;
        m.keys.data = (uint8_t *)keys;
        m.keys.len = (size_t)n * KVL_KEY_BYTES;
        if (parent) {
                m.parent_key.data = (uint8_t *)parent;
                m.parent_key.len = KVL_KEY_BYTES;
        }
        m.last_tokens = first + n == p->n_pages ? p->last_tokens : ns->info.page_tokens;
        m.request_id = p->request;
        return m;
}

int kvl_publish(struct kvl_ns *ns, const struct kvl_publish *publish, uint32_t *ret_pages,
        uint32_t *ret_n_pages)
{
        uint32_t own_pages[KVL_MAX_PUBLISH_PAGES];
        struct kvl_publish p;
        bool is_duplicate = false;
        uint64_t deadline;
        uint32_t done = 0;
        int r = copy_publish(ns, publish, UINT32_MAX, &p);

        if (r < 0)
                return r;
        deadline = client_deadline(ns->conn);
        while (done < p.n_pages && (r == 0 || r == KVL_DUPLICATE)) {
                uint32_t n = MIN(p.n_pages - done, (uint32_t)KVL_MAX_PUBLISH_PAGES);
                Kvlease__V1__PublishRequest m = publish_message(ns, &p, done, n);
                uint32_t *pages = ret_pages ? ret_pages + done : own_pages;
                struct op op;

                memmove(pages, p.pages + done, n * sizeof(*pages));
                op_init(&op, ns, MSG_PUBLISH, pages, n);
                r = run_op(&op, &m.base, deadline);
                is_duplicate |= r == KVL_DUPLICATE;
                done += op.n_pages;
        }
        if (ret_n_pages)
                *ret_n_pages = done;
        return r == 0 && is_duplicate ? KVL_DUPLICATE : r;
}

int kvl_publish_start(
        struct kvl_ns *ns, const struct kvl_publish *publish, kvl_done_fn done, void *data)
{
        Kvlease__V1__PublishRequest m;
        struct kvl_publish p;
        struct op *op;
        int r = copy_publish(ns, publish, KVL_MAX_PUBLISH_PAGES, &p);

        if (r < 0)
                return r;
        op = op_new(ns, MSG_PUBLISH, p.n_pages, done, data);
        if (!op)
                return -ENOMEM;
        memcpy(op->pages, p.pages, p.n_pages * sizeof(*op->pages));
        m = publish_message(ns, &p, 0, p.n_pages);
        return start_op(op, &m.base);
}

/* ---- release, free -----------------------------------------------------------------------------
 */

static int put_all(struct kvl_ns *ns, uint16_t type, const uint32_t *pages, uint32_t n_pages)
{
        uint64_t deadline;
        int r = check_pages(ns, pages, n_pages, UINT32_MAX);

        if (r < 0)
                return r;
        deadline = client_deadline(ns->conn);
        for (uint32_t i = 0, n; i < n_pages && r == 0; i += n) {
                struct op op;

                n = MIN(n_pages - i, (uint32_t)KVL_MAX_LEASE_PAGES);
                op_init(&op, ns, type, (uint32_t *)pages + i, n);
                r = run_pages_op(&op, deadline);
        }
        return r;
}

static int put_start(struct kvl_ns *ns, uint16_t type, const uint32_t *pages, uint32_t n_pages,
        kvl_done_fn done, void *data)
{
        struct op *op;
        int r = check_pages(ns, pages, n_pages, KVL_MAX_LEASE_PAGES);

        if (r < 0)
                return r;
        op = op_new(ns, type, n_pages, done, data);
        if (!op)
                return -ENOMEM;
        memcpy(op->pages, pages, n_pages * sizeof(*pages));
        return start_op(op, NULL);
}

int kvl_release(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages)
{
        return put_all(ns, MSG_RELEASE, pages, n_pages);
}

int kvl_free(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages)
{
        return put_all(ns, MSG_FREE, pages, n_pages);
}

int kvl_release_start(
        struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages, kvl_done_fn done, void *data)
{
        return put_start(ns, MSG_RELEASE, pages, n_pages, done, data);
}

int kvl_free_start(
        struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages, kvl_done_fn done, void *data)
{
        return put_start(ns, MSG_FREE, pages, n_pages, done, data);
}

/* ---- the rest ----------------------------------------------------------------------------------
 */

int kvl_map_pages(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages)
{
        uint64_t deadline;
        struct op op;
        int r = check_pages(ns, pages, n_pages, UINT32_MAX);

        if (r < 0)
                return r;
        if (ns->conn->metadata_only)
                return error_set(-EACCES, "a metadata-only connection maps nothing");
        deadline = client_deadline(ns->conn);
        op_init(&op, ns, MSG_MAP, (uint32_t *)pages, n_pages);
        op.n_pages = n_pages;
        conn_lock(conn_of(ns));
        proceed(&op);
        r = finish_op(&op, 0, deadline);
        conn_unlock(conn_of(ns));
        return r;
}

int kvl_invalidate(struct kvl_ns *ns, const uint8_t *key, uint64_t *ret_n_pages)
{
        Kvlease__V1__InvalidateRequest m = KVLEASE__V1__INVALIDATE_REQUEST__INIT;
        struct op op;
        int r = check_ns(ns);

        if (r < 0)
                return r;
        m.ns_id = ns->id;
        if (key) {
                m.key.data = (uint8_t *)key;
                m.key.len = KVL_KEY_BYTES;
        }
        op_init(&op, ns, MSG_INVALIDATE, NULL, 0);
        r = run_op(&op, &m.base, client_deadline(ns->conn));
        if (r == 0 && ret_n_pages)
                *ret_n_pages = op.n_tokens;
        return r;
}
