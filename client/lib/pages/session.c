/* Sessions: chains of pages that the daemon keeps by name. All requests go over the socket, except
 * publishes to sessions (publish.c). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "client/lib/calls/give-back.h"
#include "client/lib/calls/op.h"
#include "client/lib/connection/error.h"
#include "client/lib/objects/args.h"
#include "client/lib/objects/session.h"
#include "client/lib/pages/lookup.h"
#include "client/lib/pages/sessions.h"
#include "client/lib/calls/fetch.h"

#define MAX_REPLY_PAGES 1024   /* of one SESSION_PAGES; protocol */
#define LOAD_MAX_MSEC   600000 /* protocol */

static int check_session(const struct kvl_session *session)
{
        if (!session)
                return error_set(-EINVAL, "no session was given");
        return client_check_process(session->ns->conn);
}

/* ---- opening -----------------------------------------------------------------------------------
 */

struct open_call {
        struct conn_call call;
        struct kvl_session *session;
        struct kvl_session_info info;
};

/* Returns what is wrong with the reply; NULL: nothing. */
static const char *take_open_reply(struct open_call *o, const Kvlease__V1__SessionOpenReply *m)
{
        if (m->session == 0)
                return "kvleased sent a session without a number";
        if (m->last_key.len != (m->n_pages > 0 ? KVL_KEY_BYTES : 0))
                return "kvleased sent a session without the key of its last page";
        o->session->handle = m->session;
        o->info = (struct kvl_session_info){
                .is_new = m->created,
                .n_pages = m->n_pages,
                .n_tokens = m->n_tokens,
                .lost_tokens = m->lost_tokens,
        };
        if (m->n_pages > 0)
                memcpy(o->info.last_key, m->last_key.data, KVL_KEY_BYTES);
        return NULL;
}

static void on_open(struct conn *c, struct conn_call *call, int code, const ProtobufCMessage *reply,
        struct frame *frame)
{
        struct open_call *o = container_of(call, struct open_call, call);
        const char *wrong = NULL;

        if (reply && code == 0)
                wrong = take_open_reply(o, (const Kvlease__V1__SessionOpenReply *)reply);
        /* Listed at once: a restarted daemon must be told of it, even before its caller wakes. */
        if (reply && code == 0 && !wrong)
                list_append(&o->session->ns->sessions, &o->session->link);
        if (wrong)
                conn_finish_violated(c, call, wrong);
        else
                conn_finish(c, call, code);
}

static int send_close(struct kvl_ns *ns, struct conn_call *call, uint32_t handle, bool drop)
{
        Kvlease__V1__SessionCloseRequest m = KVLEASE__V1__SESSION_CLOSE_REQUEST__INIT;

        m.ns_id = ns->id;
        m.session = handle;
        m.drop = drop;
        return conn_start(conn_of(ns), call, MSG_SESSION_CLOSE, &m.base);
}

/* Closes a session that was opened after its caller gave up. */
static void on_open_late(struct conn *c, struct conn_call *call, int code,
        const ProtobufCMessage *reply, struct frame *frame)
{
        const Kvlease__V1__SessionOpenReply *m = (const Kvlease__V1__SessionOpenReply *)reply;

        if (m && code == 0 && send_close(call->cookie, call, m->session, false) == 0)
                return;
        conn_finish(c, call, code);
}

/* [L] Adds it to its namespace after success. */
static int ask_open(struct open_call *o, const struct kvl_session_options *options)
{
        Kvlease__V1__SessionOpenRequest m = KVLEASE__V1__SESSION_OPEN_REQUEST__INIT;
        struct kvl_session *session = o->session;
        struct kvl_ns *ns = session->ns;
        int r;

        o->call = (struct conn_call){.on_reply = on_open, .on_late = on_open_late, .cookie = ns};
        m.ns_id = ns->id;
        m.id.data = session->id;
        m.id.len = session->id_bytes;
        m.must_exist = options->must_exist;
        m.expire_sec = session->expire_sec;
        r = conn_start(conn_of(ns), &o->call, MSG_SESSION_OPEN, &m.base);
        if (r == 0)
                r = conn_wait(conn_of(ns), &o->call, client_deadline(ns->conn));
        return error_note(r, o->call.detail);
}

static int check_open(const struct kvl_ns *ns, const void *id, size_t id_bytes,
        const struct kvl_session_info *info)
{
        int r = args_check_ns(ns);

        if (r < 0)
                return r;
        if (!id || id_bytes == 0 || id_bytes > KVL_SESSION_ID_MAX)
                return error_set(-EINVAL, "a session's id has 1 to %d bytes", KVL_SESSION_ID_MAX);
        return abi_check_size(info, "info's");
}

int kvl_session_open(struct kvl_ns *ns, const void *id, size_t id_bytes,
        const struct kvl_session_options *options, struct kvl_session_info *info,
        struct kvl_session **ret_session)
{
        _cleanup_free_ struct kvl_session *session = NULL;
        struct kvl_session_options o = {0};
        struct open_call open;
        int r = check_open(ns, id, id_bytes, info);

        if (r == 0 && !ret_session)
                r = error_set(-EINVAL, "there is no room for the session");
        if (r == 0)
                r = abi_copy_options(&o, sizeof(o), options);
        if (r < 0)
                return r;
        if (o.load_msec > LOAD_MAX_MSEC)
                return error_set(
                        -EINVAL, "load_msec is %u, must be 0 to %d", o.load_msec, LOAD_MAX_MSEC);
        r = o.load_msec > 0 && ns->imports ? session_load(ns, id, id_bytes, o.load_msec) : 0;
        if (r != 0)
                return r;
        session = calloc(1, sizeof(*session));
        if (!session)
                return error_set(-ENOMEM, "out of memory");
        session->ns = ns;
        session->expire_sec = o.expire_sec;
        memcpy(session->id, id, id_bytes);
        session->id_bytes = id_bytes;
        list_init(&session->link);
        open.session = session;
        conn_lock(conn_of(ns));
        r = ask_open(&open, &o);
        conn_unlock(conn_of(ns));
        if (r != 0)
                return r;
        abi_fill(info, &open.info, sizeof(open.info));
        *ret_session = TAKE(session);
        return 0;
}

/* ---- its pages ---------------------------------------------------------------------------------
 */

/* Reads the pages' places in the sequence. Returns what is wrong with the reply; NULL: nothing. */
static const char *take_session_pages(struct op *op, const Kvlease__V1__SessionPagesReply *m)
{
        if (m->n_first_tokens != m->n_pages || m->n_tokens != m->n_pages ||
                m->keys.len != m->n_pages * KVL_KEY_BYTES)
                return "kvleased answered with pages whose places in the text are missing";
        for (size_t i = 0; i < m->n_pages; i++) {
                struct kvl_session_page *p = &op->session_pages[i];

                if (m->tokens[i] == 0 || m->tokens[i] > op->ns->info.page_tokens)
                        return "kvleased answered with a page of a wrong number of tokens";
                p->page = m->pages[i];
                p->n_tokens = m->tokens[i];
                p->first_token = m->first_tokens[i];
                memcpy(p->key, m->keys.data + i * KVL_KEY_BYTES, KVL_KEY_BYTES);
        }
        return NULL;
}

static void take_pages_reply(struct op *op, int code, const ProtobufCMessage *reply)
{
        const op_pages_reply *m = (const op_pages_reply *)reply;
        const char *wrong = m ? op_check_pages(op, m, is_found_right(op, code, m->n_pages)) : NULL;

        if (m && !wrong)
                wrong = take_session_pages(op, (const Kvlease__V1__SessionPagesReply *)reply);
        if (m && !wrong)
                op_take_pages(op, m);
        op_end_reply(op, wrong);
}

static const struct op_type type_pages = {
        .msg = MSG_SESSION_PAGES,
        .populates = true,
        .reply = take_pages_reply,
        .late = op_late_pins,
        .give_back = give_back_pins,
        .fetch = &fetch_steps,
};

static const struct op_type type_truncate = {.msg = MSG_SESSION_TRUNCATE, .reply = op_take_count};
static const struct op_type type_keep = {.msg = MSG_SESSION_KEEP, .reply = op_take_count};

/* Asks for the session's pages from index `from` on, and gets as many as one reply brings, at most
 * op->n_asked. */
static int run_pages(
        const struct kvl_session *session, uint32_t from, uint64_t deadline_nsec, struct op *op)
{
        Kvlease__V1__SessionPagesRequest m = KVLEASE__V1__SESSION_PAGES_REQUEST__INIT;

        m.ns_id = session->ns->id;
        m.session = session->handle;
        m.from = from;
        m.max = op->n_asked;
        return op_run(op, &m.base, deadline_nsec);
}

/* A part of kvl_session_pages(): at most `max` pages, by one request. Returns as
 * kvl_session_pages(). */
static int pages_batch(struct kvl_session *session, uint32_t from, uint32_t max,
        uint64_t deadline_nsec, struct kvl_session_page *ret_pages, uint32_t *ret_n_pages)
{
        uint32_t pages[MAX_REPLY_PAGES];
        struct op op;
        int r;

        op_init(&op, session->ns, &type_pages, pages, max);
        op.session_pages = ret_pages;
        r = run_pages(session, from, deadline_nsec, &op);
        if (r == 0)
                *ret_n_pages = op.n_pages;
        return r;
}

int session_find_pages(struct kvl_session *session, uint32_t from, uint32_t max,
        uint32_t *ret_pages, uint32_t *ret_n_pages)
{
        struct kvl_session_page described[MAX_REPLY_PAGES];
        struct op op;
        int r;

        op_init(&op, session->ns, &type_pages, ret_pages, MIN(max, (uint32_t)MAX_REPLY_PAGES));
        op.session_pages = described; /* checked against the reply */
        op.fetch.stays = true;
        r = run_pages(session, from, client_deadline(session->ns->conn), &op);
        if (r == 0)
                *ret_n_pages = op.n_pages;
        return r;
}

static void give_back(struct kvl_ns *ns, const struct kvl_session_page *pages, uint32_t n_pages)
{
        uint32_t indices[MAX_REPLY_PAGES];

        conn_lock(conn_of(ns));
        for (uint32_t i = 0, n; i < n_pages; i += n) {
                n = MIN(n_pages - i, (uint32_t)MAX_REPLY_PAGES);
                for (uint32_t j = 0; j < n; j++)
                        indices[j] = pages[i + j].page;
                give_back_pins(ns, indices, n);
        }
        conn_unlock(conn_of(ns));
}

int kvl_session_pages(struct kvl_session *session, uint32_t from, uint32_t max,
        struct kvl_session_page *ret_pages, uint32_t *ret_n_pages)
{
        uint32_t n_done = 0, n_asked = 0, n = 0;
        uint64_t deadline;
        int r = check_session(session);

        if (r == 0)
                r = args_check_count("pages", max, UINT32_MAX);
        if (r == 0 && (!ret_pages || !ret_n_pages))
                r = error_set(-EINVAL, "there is no room for the pages");
        if (r < 0)
                return r;
        deadline = client_deadline(session->ns->conn);
        for (; r == 0 && n == n_asked && n_done < max; n_done += n) {
                n_asked = MIN(max - n_done, (uint32_t)MAX_REPLY_PAGES);
                n = 0;
                r = pages_batch(session, from + n_done, n_asked, deadline, ret_pages + n_done, &n);
        }
        if (r == KVL_MISS && n_done > 0)
                r = 0;
        if (r != 0)
                give_back(session->ns, ret_pages, n_done);
        else
                *ret_n_pages = n_done;
        return r;
}

/* ---- what becomes of it ------------------------------------------------------------------------
 */

/* Asks to give up pages; *ret_n_pages: how many were. */
static int run_truncate(const struct kvl_session *session, const struct op_type *type,
        const ProtobufCMessage *m, uint32_t *ret_n_pages)
{
        struct op op;
        int r;

        op_init(&op, session->ns, type, NULL, 0);
        r = op_run(&op, m, client_deadline(session->ns->conn));
        if (r == 0 && ret_n_pages)
                *ret_n_pages = (uint32_t)op.n_tokens;
        return r;
}

int kvl_session_truncate(struct kvl_session *session, uint64_t first_tokens, uint64_t last_tokens,
        uint32_t *ret_n_pages)
{
        Kvlease__V1__SessionTruncateRequest m = KVLEASE__V1__SESSION_TRUNCATE_REQUEST__INIT;
        int r = check_session(session);

        if (r < 0)
                return r;
        m.ns_id = session->ns->id;
        m.session = session->handle;
        m.first_tokens = first_tokens;
        m.last_tokens = last_tokens;
        return run_truncate(session, &type_truncate, &m.base, ret_n_pages);
}

int kvl_session_keep(struct kvl_session *session, const struct kvl_token_range *ranges,
        uint32_t n_ranges, uint32_t *ret_n_pages)
{
        Kvlease__V1__SessionKeepRequest m = KVLEASE__V1__SESSION_KEEP_REQUEST__INIT;
        uint64_t first_tokens[KVL_SESSION_RANGES_MAX], end_tokens[KVL_SESSION_RANGES_MAX];
        int r = check_session(session);

        if (r == 0)
                r = args_check_count("ranges", n_ranges, KVL_SESSION_RANGES_MAX);
        if (r == 0 && !ranges)
                r = error_set(-EINVAL, "no ranges were given");
        if (r < 0)
                return r;
        for (uint32_t i = 0; i < n_ranges; i++) {
                first_tokens[i] = ranges[i].first_token;
                end_tokens[i] = ranges[i].end_token;
        }
        m.ns_id = session->ns->id;
        m.session = session->handle;
        m.first_tokens = first_tokens;
        m.end_tokens = end_tokens;
        m.n_first_tokens = m.n_end_tokens = n_ranges;
        return run_truncate(session, &type_keep, &m.base, ret_n_pages);
}

int kvl_session_hint(struct kvl_session *session, enum kvl_hint hint, uint32_t after_msec)
{
        Kvlease__V1__SessionHintRequest m = KVLEASE__V1__SESSION_HINT_REQUEST__INIT;
        struct conn *c;
        int r = check_session(session);

        if (r == 0 && (unsigned)hint > KVL_HINT_RETURNS)
                r = error_set(-EINVAL, "the hint %d isn't known: upgrade libkvlease", (int)hint);
        if (r < 0)
                return r;
        m.ns_id = session->ns->id;
        m.session = session->handle;
        m.hint = (uint32_t)hint;
        m.after_msec = after_msec;
        c = conn_of(session->ns);
        conn_lock(c);
        r = conn_is_congested(c) ? -EAGAIN : conn_notify(c, MSG_SESSION_HINT, &m.base);
        conn_unlock(c);
        return error_note(r, "");
}

struct close_call {
        struct conn_call call;
        struct kvl_session *session;
};

/* A restarted daemon must know the session until this reply, and not afterwards. */
static void on_close(struct conn *c, struct conn_call *call, int code,
        const ProtobufCMessage *reply, struct frame *frame)
{
        list_remove(&container_of(call, struct close_call, call)->session->link);
        conn_finish(c, call, code);
}

int kvl_session_close(struct kvl_session *session, int drop)
{
        struct close_call close = {.call.on_reply = on_close, .session = session};
        struct kvl_ns *ns;
        int r;

        if (!session)
                return 0;
        r = check_session(session);
        if (r < 0)
                return r;
        ns = session->ns;
        conn_lock(conn_of(ns));
        r = send_close(ns, &close.call, session->handle, drop);
        if (r == 0)
                r = conn_wait(conn_of(ns), &close.call, client_deadline(ns->conn));
        list_remove(&session->link); /* if it wasn't answered */
        conn_unlock(conn_of(ns));
        free(session);
        return error_note(r, close.call.detail);
}

void sessions_free(struct kvl_ns *ns)
{
        list_for_each_safe (session, &ns->sessions, struct kvl_session, link) {
                list_remove(&session->link);
                free(session);
        }
}
