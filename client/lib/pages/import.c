/*
 * Importing keys that other hosts have: the daemon is asked to bring them here. That is a message
 * even with shared memory, as only the daemon talks to other hosts. A waiting lookup sends it if it
 * found less than it wants and no client here computes the rest (wait-key.c). A scheduler starts it
 * without blocking. A probe only asks what other hosts have.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "client/lib/calls/op.h"
#include "client/lib/connection/error.h"
#include "client/lib/objects/args.h"
#include "client/lib/pages/lookup.h"
#include "client/lib/pages/sessions.h"

#define IMPORT_MAX_MSEC  600000 /* protocol */
#define PREFILL_MAX_NSEC (3600 * NSEC_PER_SEC)

/* The daemon answers at the deadline; after this much more its answer is of no use. Not tuned. */
#define LATE_NSEC (50 * NSEC_PER_MSEC)

/* The message borrows the keys. parent_key NULL: they begin a sequence. */
static Kvlease__V1__ImportRequest import_message(const struct kvl_ns *ns, const uint8_t *parent_key,
        const uint8_t *keys, uint32_t n_keys, uint32_t timeout_msec)
{
        Kvlease__V1__ImportRequest m = KVLEASE__V1__IMPORT_REQUEST__INIT;

        m.ns_id = ns->id;
        m.keys.data = (uint8_t *)keys;
        m.keys.len = (size_t)n_keys * KVL_KEY_BYTES;
        if (parent_key) {
                m.parent_key.data = (uint8_t *)parent_key;
                m.parent_key.len = KVL_KEY_BYTES;
        }
        m.timeout_msec = timeout_msec;
        return m;
}

/* Returns KVL_MISS for codes that mean that other hosts may not be asked, or not now. Older daemons
 * don't know all requests. */
static int miss_or(int code)
{
        switch (code) {
        case KVL_NO_PARENT:
        case -EACCES:
        case -EBUSY:
        case -ENOMEM:
        case -EOPNOTSUPP:
        case -ETIMEDOUT:
                return KVL_MISS;
        default:
                return code;
        }
}

static int check_timeout(int timeout_msec)
{
        if (timeout_msec >= 1 && timeout_msec <= IMPORT_MAX_MSEC)
                return 0;
        return error_set(
                -EINVAL, "the timeout is %d ms, must be 1 to %d", timeout_msec, IMPORT_MAX_MSEC);
}

/* ---- for a lookup that waits ------------------------------------------------------------------
 */

static const struct op_type type_import = {.msg = MSG_IMPORT, .call_back = op_call_back_waited};

/* The meaning of an answer for a lookup, or a session. */
static int import_outcome(int code, uint32_t n_asked, uint32_t *ret_n_keys)
{
        switch (code) {
        case 0:
                *ret_n_keys = n_asked;
                return 0;
        case KVL_DUPLICATE:
                *ret_n_keys = 1;
                return 0;
        default:
                return miss_or(code);
        }
}

int lookup_import(struct lookup *l, uint64_t deadline_nsec, uint32_t *ret_n_keys)
{
        uint32_t n = MIN(l->n_keys - l->n_pages, (uint32_t)KVL_MAX_IMPORT_KEYS);
        const uint8_t *keys = l->keys + (size_t)l->n_pages * KVL_KEY_BYTES;
        const uint8_t *parent_key = l->n_pages > 0 ? keys - KVL_KEY_BYTES : NULL;
        uint32_t msec = conn_msec_until(deadline_nsec);
        Kvlease__V1__ImportRequest m;
        struct op op;

        if (msec == 0)
                return KVL_MISS;
        m = import_message(l->ns, parent_key, keys, n, msec);
        op_init(&op, l->ns, &type_import, NULL, 0);
        return import_outcome(op_run(&op, &m.base, deadline_nsec + LATE_NSEC), n, ret_n_keys);
}

/* ---- for a session that is opened --------------------------------------------------------------
 */

static const struct op_type type_load = {.msg = MSG_SESSION_LOAD, .call_back = op_call_back_waited};

int session_load(struct kvl_ns *ns, const void *id, size_t id_bytes, uint32_t timeout_msec)
{
        Kvlease__V1__SessionLoadRequest m = KVLEASE__V1__SESSION_LOAD_REQUEST__INIT;
        struct op op;
        uint32_t n;
        int r;

        m.ns_id = ns->id;
        m.id.data = (uint8_t *)id;
        m.id.len = id_bytes;
        m.timeout_msec = timeout_msec;
        op_init(&op, ns, &type_load, NULL, 0);
        r = op_run(&op, &m.base, conn_deadline((int)timeout_msec) + LATE_NSEC);
        r = import_outcome(r, 0, &n);
        return r == KVL_MISS ? 0 : r;
}

/* ---- without blocking -------------------------------------------------------------------------
 */

/* A started import, until its callback has run. */
struct importing {
        uint8_t key[KVL_KEY_BYTES]; /* the first that isn't cached */
        uint64_t deadline_nsec;
        void (*done)(struct kvl_ns *ns, int code, void *data);
        void *data;
};

/* A client of this host is first with the key: waits for it by kvl_wait_start(), which then reports
 * to the caller. Returns true if that is under way. */
static bool wait_instead(struct kvl_ns *ns, const struct importing *i)
{
        uint32_t msec = conn_msec_until(i->deadline_nsec);

        return msec > 0 && kvl_wait_start(ns, i->key, (int)msec, i->done, i->data) == 0;
}

static void on_import(struct kvl_ns *ns, int code, void *data)
{
        struct importing *i = data;
        bool is_over = code != KVL_PENDING || !wait_instead(ns, i);

        if (code == KVL_PENDING)
                code = KVL_TIMEOUT;
        else if (code == KVL_DUPLICATE)
                code = 0;
        else if (code == KVL_NO_PARENT)
                code = KVL_MISS;
        if (is_over && i->done)
                i->done(ns, code, i->data);
        free(i);
}

int kvl_import_start(struct kvl_ns *ns, const uint8_t *parent_key, const uint8_t *keys,
        uint32_t n_keys, int timeout_msec, void (*done)(struct kvl_ns *ns, int code, void *data),
        void *data)
{
        uint32_t n = MIN(n_keys, (uint32_t)KVL_MAX_IMPORT_KEYS);
        Kvlease__V1__ImportRequest m;
        struct importing *i;
        struct op *op;
        int r = args_check_keys(ns, keys, n_keys, UINT32_MAX);

        if (r == 0)
                r = check_timeout(timeout_msec);
        if (r < 0)
                return r;
        if (!ns->imports)
                return error_note(KVL_MISS, "");
        i = malloc(sizeof(*i));
        if (!i)
                return error_set(-ENOMEM, "out of memory");
        *i = (struct importing){
                .deadline_nsec = conn_deadline(timeout_msec), .done = done, .data = data};
        memcpy(i->key, keys, KVL_KEY_BYTES);
        r = op_new(ns, &type_import, 0, NULL, i, &op);
        if (r == 0) {
                op->waited = on_import;
                m = import_message(ns, parent_key, keys, n, (uint32_t)timeout_msec);
                r = op_start(op, &m.base);
        }
        if (r < 0)
                free(i);
        return r;
}

/* ---- what is there ----------------------------------------------------------------------------
 */

struct hosts_call {
        struct conn_call call;
        uint32_t n_asked;
        uint32_t n_keys; /* of other hosts */
        bool would_load;
};

static void on_probed(struct conn *c, struct conn_call *call, int code,
        const ProtobufCMessage *reply, struct frame *frame)
{
        struct hosts_call *h = container_of(call, struct hosts_call, call);
        const Kvlease__V1__ProbeHostsReply *m = (const Kvlease__V1__ProbeHostsReply *)reply;

        if (m && code == 0 && (m->n_pages == 0 || m->n_pages > h->n_asked)) {
                conn_finish_violated(c, call, "kvleased found a wrong number of keys elsewhere");
                return;
        }
        if (m && code == 0) {
                h->n_keys = m->n_pages;
                h->would_load = m->would_load;
        }
        conn_finish(c, call, code);
}

/* Asks about at most KVL_MAX_IMPORT_KEYS. Returns 0: other hosts have some; KVL_MISS; KVL_STALE,
 * -errno. */
static int ask_hosts(struct kvl_ns *ns, const uint8_t *keys, uint32_t n_keys,
        uint64_t deadline_nsec, struct hosts_call *h)
{
        Kvlease__V1__ProbeHostsRequest m = KVLEASE__V1__PROBE_HOSTS_REQUEST__INIT;
        struct conn *c = conn_of(ns);
        int r;

        *h = (struct hosts_call){.call.on_reply = on_probed, .n_asked = n_keys};
        m.ns_id = ns->id;
        m.keys.data = (uint8_t *)keys;
        m.keys.len = (size_t)n_keys * KVL_KEY_BYTES;
        m.timeout_msec = conn_msec_until(deadline_nsec);
        if (m.timeout_msec == 0)
                return KVL_MISS;
        conn_lock(c);
        r = conn_start(c, &h->call, MSG_PROBE_HOSTS, &m.base);
        if (r == 0)
                r = conn_wait(c, &h->call, deadline_nsec + LATE_NSEC);
        conn_unlock(c);
        r = miss_or(r);
        return r == KVL_MISS ? r : error_note(r, h->call.detail);
}

/* Returns 0: other hosts have *ret_n_keys of them, from the first on (0 if unknown); KVL_STALE,
 * -errno. */
static int probe_there(struct kvl_ns *ns, const uint8_t *keys, uint32_t n_keys,
        uint64_t deadline_nsec, uint32_t *ret_n_keys, bool *ret_would_load)
{
        uint32_t n_found = 0, n;
        struct hosts_call h;
        int r;

        *ret_would_load = false;
        do {
                n = MIN(n_keys - n_found, (uint32_t)KVL_MAX_IMPORT_KEYS);
                r = ask_hosts(ns, keys + (size_t)n_found * KVL_KEY_BYTES, n, deadline_nsec, &h);
                if (n_found == 0)
                        *ret_would_load = h.would_load;
                n_found += h.n_keys;
        } while (r == 0 && h.n_keys == n && n_found < n_keys);
        *ret_n_keys = n_found;
        return r == KVL_MISS ? 0 : r;
}

/* Does probe_there() for this host. */
static int probe_here(struct kvl_ns *ns, const uint8_t *keys, uint32_t n_keys, uint32_t *ret_n_keys)
{
        int r = n_keys > 0 ? kvl_probe(ns, keys, n_keys, NULL, ret_n_keys) : KVL_MISS;

        if (r == KVL_MISS)
                *ret_n_keys = 0;
        return r == KVL_MISS ? 0 : r;
}

/* Adds to *n_found the keys after the first *n_found, found here and elsewhere by turns. */
static int probe_by_turns(struct kvl_ns *ns, const uint8_t *keys, uint32_t n_keys,
        uint64_t deadline_nsec, uint32_t *n_found, bool *ret_would_load)
{
        uint32_t n = *n_found, there, here = 0;
        bool would;
        int r;

        do {
                r = probe_there(ns, keys + (size_t)n * KVL_KEY_BYTES, n_keys - n, deadline_nsec,
                        &there, &would);
                if (n == *n_found)
                        *ret_would_load = would;
                n += there;
                if (r == 0)
                        r = probe_here(ns, keys + (size_t)n * KVL_KEY_BYTES, n_keys - n, &here);
                n += here;
        } while (r == 0 && here > 0 && n < n_keys);
        *n_found = n;
        return r;
}

int kvl_probe_hosts(struct kvl_ns *ns, const uint8_t *keys, uint32_t n_keys, int timeout_msec,
        uint32_t *ret_n_here, uint32_t *ret_n_keys, int *ret_would_load)
{
        uint32_t n_here, n_found;
        bool would_load = false;
        int r = args_check_keys(ns, keys, n_keys, UINT32_MAX);

        if (r == 0)
                r = check_timeout(timeout_msec);
        if (r == 0 && (!ret_n_here || !ret_n_keys))
                r = error_set(-EINVAL, "there is no room for the numbers of keys");
        if (r == 0)
                r = probe_here(ns, keys, n_keys, &n_here);
        if (r != 0)
                return r;
        n_found = n_here;
        if (ns->imports && n_here < n_keys)
                r = probe_by_turns(
                        ns, keys, n_keys, conn_deadline(timeout_msec), &n_found, &would_load);
        if (r != 0)
                return r;
        *ret_n_here = n_here;
        *ret_n_keys = n_found;
        if (ret_would_load)
                *ret_would_load = would_load;
        return 0;
}

/* ---- what it is compared with -----------------------------------------------------------------
 */

static int send_prefill(struct kvl_ns *ns, uint32_t n_tokens, uint64_t nsec)
{
        Kvlease__V1__NotePrefillRequest m = KVLEASE__V1__NOTE_PREFILL_REQUEST__INIT;
        struct conn *c = conn_of(ns);
        int r;

        m.ns_id = ns->id;
        m.n_tokens = n_tokens;
        m.nsec = nsec;
        conn_lock(c);
        r = conn_is_congested(c) ? -EAGAIN : conn_notify(c, MSG_NOTE_PREFILL, &m.base);
        conn_unlock(c);
        return r;
}

int kvl_note_prefill(struct kvl_ns *ns, uint32_t n_tokens, uint64_t nsec)
{
        int r = args_check_ns(ns);

        if (r < 0)
                return r;
        if (n_tokens == 0 || nsec == 0 || nsec > PREFILL_MAX_NSEC)
                return error_set(-EINVAL,
                        "%u tokens in %llu ns: at least 1 token in 1 ns to an hour are allowed",
                        n_tokens, (unsigned long long)nsec);
        return ns->imports ? error_note(send_prefill(ns, n_tokens, nsec), "") : 0;
}
