/* Receives answers, routes their bytes, and sets results of operations. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/remote/store/remote-impl.h"

void remote_answer_reset(struct remote_answer *a)
{
        a->kind = RESP_MORE;
        a->number = 0;
        a->takes_value = a->is_too_long = false;
        a->n_taken = a->text_len = 0;
        a->text[0] = '\0';
}

/* ---- errors of the server's ------------------------------------------------------------------ */

enum error_effect {
        EFFECT_NONE,
        EFFECT_REFRESH, /* slots may have moved */
        EFFECT_TRIP,    /* the node can't serve for now */
};

static const struct {
        const char *word;
        int result;
        enum error_effect effect;
} errors[] = {
        {"MOVED", -EAGAIN, EFFECT_REFRESH}, /* a second redirection, or to an unknown node */
        {"ASK", -EAGAIN, EFFECT_NONE},
        {"TRYAGAIN", -EAGAIN, EFFECT_NONE},
        {"CLUSTERDOWN", -EAGAIN, EFFECT_REFRESH},
        {"READONLY", -EAGAIN, EFFECT_REFRESH},
        {"LOADING", -EAGAIN, EFFECT_TRIP},
        {"MASTERDOWN", -EAGAIN, EFFECT_TRIP},
        {"NOAUTH", -EACCES, EFFECT_TRIP},
        {"WRONGPASS", -EACCES, EFFECT_TRIP},
        {"NOPERM", -EACCES, EFFECT_NONE},
        {"OOM", -ENOSPC, EFFECT_NONE},
};

/* Does the text begin with this word? */
static bool text_begins(const struct remote_answer *a, const char *word)
{
        size_t len = strlen(word);

        return a->text_len >= len && memcmp(a->text, word, len) == 0 &&
               (a->text_len == len || a->text[len] == ' ');
}

/* The error's result, and its side effect. */
static int error_result(const struct remote_answer *a, enum error_effect *ret_effect)
{
        for (unsigned i = 0; i < ARRAY_SIZE(errors); i++)
                if (text_begins(a, errors[i].word)) {
                        *ret_effect = errors[i].effect;
                        return errors[i].result;
                }
        *ret_effect = EFFECT_NONE;
        return -EREMOTEIO;
}

/* Handles MOVED or ASK. Returns false if it is another error, or its node is unknown. */
static bool error_redirects(
        struct remote_conn *c, struct remote_request *q, const struct remote_answer *a)
{
        struct remote_client *s = c->worker->store;
        struct slot_redirect to;
        struct remote_conn *there;
        uint16_t node;

        if (!q->task || q->was_redirected || !slot_redirect_parse(a->text, a->text_len, &to))
                return false;
        pthread_mutex_lock(&s->of.lock);
        node = remote_node_get(s, to.to.host, to.to.port, (uint16_t)c->node);
        /* A connection keeps the node's place, until the request is sent there. */
        if (node != REMOTE_NO_NODE && remote_conn_get(c->worker, node, &there) < 0)
                node = REMOTE_NO_NODE;
        if (node != REMOTE_NO_NODE && !to.is_ask) {
                s->node_of[to.slot] = node;
                s->nodes[node].is_listed = true;
        }
        s->stats.n_redirects++;
        pthread_mutex_unlock(&s->of.lock);
        if (!to.is_ask)
                remote_refresh_want(s);
        if (node == REMOTE_NO_NODE)
                return false;
        q->was_redirected = true;
        q->is_asking = to.is_ask;
        q->node = node;
        return true;
}

/* Ends or redirects the request. */
static void error_answer(
        struct remote_conn *c, struct remote_request *q, const struct remote_answer *a)
{
        struct remote_client *s = c->worker->store;
        enum error_effect effect;
        int result;

        if (error_redirects(c, q, a)) {
                q->conn = NULL;
                q->is_trial = false;
                remote_worker_route(c->worker, q);
                return;
        }
        result = error_result(a, &effect);
        if (!q->task && result == -EREMOTEIO && strstr(a->text, "cluster support disabled"))
                result = REMOTE_ALONE;
        if (effect == EFFECT_REFRESH)
                remote_refresh_want(s);
        if (effect == EFFECT_TRIP)
                remote_node_failed(s, c->node, result, true);
        remote_request_end(q, result);
}

/* ---- good answers ---------------------------------------------------------------------------- */

/* The result, or -EPROTO: no server answers so. */
static int count_result(struct remote_op *op, const struct remote_answer *a)
{
        if (a->kind != RESP_INTEGER || a->number < 0 || a->number > op->n_keys)
                return -EPROTO;
        op->n_found = (uint32_t)a->number;
        return 0;
}

static int read_result(struct remote_op *op, const struct remote_answer *a)
{
        if (a->kind == RESP_NULL)
                return -ENOENT;
        if (a->kind != RESP_BULK)
                return -EPROTO;
        op->n_bytes = (uint64_t)a->number;
        return a->is_too_long ? -EMSGSIZE : 0;
}

static int write_result(const struct remote_op *op, const struct remote_answer *a)
{
        if (a->kind == RESP_NULL && op->only_new)
                return -EEXIST;
        return a->kind == RESP_STATUS && strcmp(a->text, "OK") == 0 ? 0 : -EPROTO;
}

static int good_result(struct remote_request *q, const struct remote_answer *a)
{
        if (!q->task)
                return a->kind == RESP_ARRAY ? 0 : -EPROTO;
        switch (q->task->io.kind) {
        case REMOTE_READ:
                return read_result(q->op, a);
        case REMOTE_WRITE:
                return write_result(q->op, a);
        case REMOTE_PROBE:
        case REMOTE_REMOVE:
        case REMOTE_TOUCH:
                break;
        }
        return count_result(q->op, a);
}

/* Lets on_value see a received value. Returns 0, or the request's result. */
static int value_result(const struct remote_request *q)
{
        if (!q->task || q->task->io.kind != REMOTE_READ || !q->op->on_value)
                return 0;
        return q->op->on_value(q->op, q->op->value_data);
}

/* Handles an answer without error: ends or continues the request. Returns 0; -EPROTO: no server
 * answers so, and the connection isn't trusted any more. */
static int good_answer(struct remote_conn *c, struct remote_request *q,
        const struct remote_answer *a, const struct remote_note *note)
{
        bool is_absent = q->step == STEP_ASK && a->kind == RESP_INTEGER && a->number == 0;
        int result;

        if (q->step == STEP_ASK)
                result = a->kind == RESP_INTEGER && a->number == 1 ? -EEXIST : -EPROTO;
        else
                result = good_result(q, a);
        if (is_absent || result != -EPROTO)
                remote_node_answered(c->worker->store, c->node, note);
        if (is_absent) {
                q->step = STEP_ONLY;
                list_prepend(&c->waiting, &q->link);
                return 0;
        }
        remote_request_end(q, result == 0 ? value_result(q) : result);
        return result == -EPROTO ? -EPROTO : 0;
}

/* ---- answers, as a whole --------------------------------------------------------------------- */

static struct remote_note answer_note(
        const struct remote_flight *f, const struct remote_answer *a, uint64_t now_nsec)
{
        const struct remote_request *q = f->request;
        struct remote_note note = {.is_error = a->kind == RESP_ERROR, .is_refresh = f->is_slots};

        if (q && q->task && q->task->io.of_class == REMOTE_SMALL)
                note.rtt_nsec = MAX(minus_u64(now_nsec, f->since_nsec), (uint64_t)1);
        if (a->kind == RESP_BULK && a->takes_value)
                note.bytes_in = a->n_taken;
        if (q && q->task && q->task->io.kind == REMOTE_WRITE && q->step == STEP_ONLY)
                note.bytes_out = q->value_bytes;
        return note;
}

/* Ends the answer to a request (NULL: not needed any more). The node's figures are updated before
 * the request ends, so that the caller sees them. Returns 0 or -EPROTO. */
static int request_answered(struct remote_conn *c, struct remote_request *q,
        const struct remote_answer *a, const struct remote_note *note)
{
        if (q)
                q->is_sent = false;
        if (q && a->kind != RESP_ERROR)
                return good_answer(c, q, a, note);
        remote_node_answered(c->worker->store, c->node, note);
        if (q)
                error_answer(c, q, a);
        return 0;
}

/* Ends AUTH. Returns 0, or -errno: the connection is useless. */
static int auth_end(struct remote_conn *c, const struct remote_answer *a)
{
        remote_conn_landed(c);
        if (a->kind == RESP_STATUS && strcmp(a->text, "OK") == 0) {
                remote_conn_ready(c);
                return 0;
        }
        /* Any other error ("ERR AUTH <password> called without any password configured") means that
         * the credentials are wrong, too. */
        return a->kind == RESP_ERROR ? -EACCES : -EPROTO;
}

/* Ends a complete answer. Returns 0, or -errno: the connection has to be closed. */
static int answer_end(struct remote_conn *c, uint64_t now_nsec)
{
        struct remote_flight *f = remote_conn_flight(c);
        struct remote_request *q = f->request;
        struct remote_answer *a = &c->answer;
        struct remote_note note;
        int r = 0;

        if (f->n_skip > 0) {
                /* An answer to ASKING. If ASKING was refused, the request will be, too: by
                 * MOVED. */
                f->n_skip--;
        } else if (f->is_auth) {
                r = auth_end(c, a);
        } else {
                note = answer_note(f, a, now_nsec);
                remote_conn_landed(c);
                r = request_answered(c, q, a, &note);
        }
        remote_answer_reset(a);
        return r;
}

/* Begins a bulk string outside of arrays. Returns 0; -EPROTO; -EMSGSIZE: the value is so long that
 * the connection is closed, without a fault of the node. */
static int bulk_place(struct remote_conn *c, struct remote_flight *f, uint64_t bytes)
{
        struct remote_request *q = f->request;
        struct remote_answer *a = &c->answer;

        if (f->is_auth || f->n_skip > 0)
                return -EPROTO;
        /* Its cost has the bytes that were expected. */
        if (!q)
                return bytes <= f->cost + REMOTE_SKIP_BYTES ? 0 : -EMSGSIZE;
        if (!q->task || q->task->io.kind != REMOTE_READ)
                return -EPROTO;
        a->takes_value = bytes <= q->value_bytes;
        a->is_too_long = !a->takes_value;
        if (!a->is_too_long || bytes <= q->value_bytes + REMOTE_SKIP_BYTES)
                return 0;
        f->request = NULL;
        remote_request_end(q, -EMSGSIZE);
        return -EMSGSIZE;
}

/* 0 or -errno. */
static int answer_token(struct remote_conn *c, struct remote_flight *f, const struct resp_token *t)
{
        struct remote_answer *a = &c->answer;

        if (t->depth == 0 && t->kind != RESP_END) {
                a->kind = t->kind;
                a->number = t->number;
                a->text_len = t->text_len;
                if (t->text_len > 0)
                        memcpy(a->text, t->text, t->text_len);
                a->text[t->text_len] = '\0';
        }
        if (f->is_slots && f->request && a->kind != RESP_ERROR)
                return slot_reader_token(remote_refresh_reader(c->worker->store), t);
        /* The answer to a late CLUSTER SLOTS is skipped. No other request is answered by an
         * array. */
        if (!f->is_slots && (t->kind == RESP_ARRAY || t->depth > 0))
                return -EPROTO;
        if (t->kind == RESP_BULK)
                return bulk_place(c, f, (uint64_t)t->number);
        return 0;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* The operation whose buffers take the rest of a value; NULL: none. */
static const struct remote_op *value_target(struct remote_conn *c)
{
        const struct remote_flight *f = remote_conn_flight(c);

        return f && f->request && c->answer.takes_value ? f->request->op : NULL;
}

/* Takes bytes of a bulk string that arrived behind a header. Returns 0 or -errno. */
static int payload_take(struct remote_conn *c, const char *data, size_t n)
{
        const struct remote_flight *f = remote_conn_flight(c);
        const struct remote_op *op = value_target(c);
        struct iovec iov[REMOTE_IOV_MAX];
        unsigned n_iov;

        resp_took(&c->parser, n);
        if (f->is_slots && f->request)
                return slot_reader_text(remote_refresh_reader(c->worker->store), data, n);
        if (!op)
                return 0;
        n_iov = remote_iov_gather(op->iov, op->n_iov, c->answer.n_taken, n, iov, REMOTE_IOV_MAX);
        for (unsigned i = 0; i < n_iov; i++) {
                memcpy(iov[i].iov_base, data, iov[i].iov_len);
                data += iov[i].iov_len;
        }
        c->answer.n_taken += n;
        return 0;
}

static int token_take(struct remote_conn *c, const struct resp_token *t, uint64_t now_nsec)
{
        int r = answer_token(c, remote_conn_flight(c), t);

        return r == 0 && t->kind == RESP_END ? answer_end(c, now_nsec) : r;
}

/* Parses c->input. Returns 0 or -errno. */
static int input_parse(struct remote_conn *c, uint64_t now_nsec)
{
        size_t at = 0, used;
        int r = 0;

        /* The end of a reply is a token of no bytes. */
        while (r == 0 && (at < c->input_len || c->parser.is_over)) {
                struct resp_token t;

                /* Nothing was asked. */
                if (!remote_conn_flight(c))
                        return -EPROTO;
                if (c->parser.payload_left > 0) {
                        used = MIN(c->input_len - at, c->parser.payload_left);
                        r = payload_take(c, c->input + at, used);
                        at += used;
                        continue;
                }
                r = resp_next(&c->parser, c->input + at, c->input_len - at, &used, &t);
                /* Also a bulk string longer than any valid one. */
                if (r < 0)
                        return -EPROTO;
                at += used;
                if (t.kind == RESP_MORE)
                        break;
                r = token_take(c, &t, now_nsec);
        }
        if (r < 0)
                return r;
        c->input_len -= at;
        memmove(c->input, c->input + at, c->input_len);
        return 0;
}

/* One read: of a value into its buffers, and of the bytes behind it. Returns bytes, 0 at the end of
 * the connection, or -errno. */
static ssize_t receive_some(struct remote_conn *c)
{
        const struct remote_op *op = c->input_len == 0 ? value_target(c) : NULL;
        struct iovec iov[REMOTE_IOV_MAX + 1];
        uint64_t direct = 0;
        unsigned n_iov = 0;
        ssize_t n;

        if (op && c->parser.payload_left > 0) {
                n_iov = remote_iov_gather(op->iov, op->n_iov, c->answer.n_taken,
                        c->parser.payload_left, iov, REMOTE_IOV_MAX);
                direct = c->parser.payload_left;
        }
        iov[n_iov++] = (struct iovec){c->input + c->input_len, REMOTE_INPUT_BYTES - c->input_len};
        n = remote_conn_read(c, iov, n_iov);
        if (n <= 0)
                return n;
        direct = MIN(direct, (uint64_t)n);
        resp_took(&c->parser, direct);
        c->answer.n_taken += direct;
        c->input_len += (size_t)n - direct;
        return n;
}

int remote_receive(struct remote_conn *c, uint64_t now_nsec)
{
        for (;;) {
                ssize_t n = receive_some(c);
                int r;

                if (n == -EAGAIN)
                        return 0;
                if (n <= 0)
                        return n < 0 ? (int)n : -ECONNRESET;
                r = input_parse(c, now_nsec);
                remote_conn_progress(c, now_nsec);
                /* A socket is empty now, or epoll will report more. TLS may hold bytes: continue
                 * until its bound of reads. */
                if (r < 0 || !c->ssl || c->tls_reads == 0)
                        return r;
        }
}
