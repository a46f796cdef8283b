#include "daemon/exchange/session-load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/core/cache/pages.h"
#include "daemon/exchange/exchange-impl.h"
#include "daemon/exchange/import.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/sessions/session.h"
#include "daemon/exchange/format/session-record.h"
#include "proto/status.h"

/* Loads of one tenant at a time: each has space for a record. Not tuned. */
#define SESSION_LOADS_MAX 16

/* Time after which a page that is being imported or computed by another client is looked at again.
 * Not tuned. */
#define AGAIN_NSEC (5 * NSEC_PER_MSEC)

struct session_load {
        struct list_link link;              /* exchange.session_loads */
        struct exchange_ns *e;              /* borrowed: freed after its loads */
        struct attach *a;                   /* borrowed, too */
        session_load_fn done;               /* NULL: the end isn't reported */
        void *data;                         /* borrowed */
        uint64_t deadline_nsec, again_nsec; /* again_nsec 0: no page to look at again */
        struct session_name name;
        struct exchange_io *reads; /* the epoch, or (is_named) the record; NULL: read */
        bool is_named;
        struct session_record record; /* n_pages 0: not read yet */
        uint8_t *payload;             /* owned; the record borrows from it */
        struct import *import;        /* NULL: none is under way */
        bool is_looked_at;            /* scratch of session_loads_work() */
        bool is_cut;                  /* the last import brought no page, and no other will */
        uint32_t n_imported;
        uint32_t id_len;
        uint8_t id[SESSION_ID_MAX];
};

static const uint8_t *key_at(const struct session_load *l, uint32_t n)
{
        return l->record.keys + (size_t)n * KEY_BYTES;
}

/* ---- end ------------------------------------------------------------------------------------- */

static void load_free(struct session_load *l)
{
        if (l->import)
                import_cancel(l->import);
        exchange_io_end(l->reads);
        list_remove(&l->link);
        l->e->x->n_session_loads--;
        free(l->payload);
        free(l);
}

static void end_load(struct session_load *l, int code)
{
        session_load_fn done = l->done;
        void *data = l->data;
        uint32_t n = l->n_imported;

        l->e->x->counters.sessions += code == 0;
        load_free(l);
        if (done)
                done(n, code, data);
}

void session_load_cancel(struct session_load *l)
{
        load_free(l);
}

static struct session_load *find_load(
        const struct exchange *x, const struct exchange_ns *e, const struct attach *a)
{
        list_for_each (l, &x->session_loads, struct session_load, link)
                if ((!e || l->e == e) && (!a || l->a == a))
                        return l;
        return NULL;
}

void session_loads_end(struct exchange *x, const struct exchange_ns *e, const struct attach *a)
{
        struct session_load *l;

        while ((l = find_load(x, e, a)))
                end_load(l, KVL_STATUS_MISS);
}

/* ---- begin ----------------------------------------------------------------------------------- */

static int check_load(struct attach *a, const uint8_t *id, uint32_t id_len, struct detail *d)
{
        const struct exchange *x = exchange_of(a->ns->tenant);
        const struct session *s;
        const char *why;
        int r = session_check_id(a, id_len, d);

        if (r != 0)
                return r;
        if (a->member->read_only)
                return detail_set(d, -EACCES, "the client may only read, and so import nothing");
        if (!exchange_has_ns(a->ns, &why))
                return detail_set(d, KVL_STATUS_MISS,
                        "namespace %s isn't shared with other hosts: %s", a->ns->name, why);
        s = session_find(a->ns, id, id_len);
        if (s && !session_may_be_replaced(s))
                return detail_set(d, KVL_STATUS_MISS,
                        "the session is open here, or was changed here since other hosts were told of it");
        if (x->n_session_loads >= SESSION_LOADS_MAX)
                return detail_set(d, KVL_STATUS_MISS,
                        "%d sessions of tenant %s are being loaded, the most there may be at a time",
                        SESSION_LOADS_MAX, a->ns->tenant->name);
        return 0;
}

int session_load_begin(struct attach *a, const struct session_load_request *rq, uint64_t now_nsec,
        struct session_load **ret_load, struct detail *d)
{
        struct session_load *l;
        int r;

        store_set_now(a->ns->store, now_nsec);
        r = check_load(a, rq->id, rq->id_len, d);
        if (r != 0)
                return r;
        l = calloc(1, sizeof(*l));
        if (!l)
                return detail_set(d, -ENOMEM, "no memory to load a session");
        *l = (struct session_load){.e = exchange_find_ns(a->ns),
                .a = a,
                .deadline_nsec = rq->deadline_nsec,
                .id_len = rq->id_len};
        memcpy(l->id, rq->id, rq->id_len);
        list_init(&l->link);
        list_append(&l->e->x->session_loads, &l->link);
        l->e->x->n_session_loads++;
        l->reads = epoch_read_new(l->e->epoch);
        r = l->reads ? exchange_io_begin(l->reads, rq->deadline_nsec) : -ENOMEM;
        if (r < 0) {
                load_free(l);
                return detail_set(d, KVL_STATUS_MISS,
                        "what other hosts share takes no more requests now: %s", strerror(-r));
        }
        l->done = rq->done;
        l->data = rq->data;
        *ret_load = l;
        return 0;
}

/* ---- the record ------------------------------------------------------------------------------ */

/* The epoch was read: reads the record. Returns false if there is none to read. */
static bool ask_for_record(struct session_load *l)
{
        const uint64_t most = ENVELOPE_BYTES + SESSION_RECORD_BYTES_MAX;
        struct exchange_ns *e = l->e;
        struct envelope want;
        struct exchange_io *io;
        int r = epoch_take(e->epoch, l->reads);

        exchange_io_end(l->reads);
        l->reads = NULL;
        if (r < 0 || exchange_name_session(e, l->id, l->id_len, &l->name) < 0)
                return false;
        io = exchange_io_new(e->x, REMOTE_READ, REMOTE_LARGE, 1, most, true);
        if (!io)
                return false;
        want = exchange_session_envelope(e, &l->name);
        exchange_io_name(io, 0, l->name.name);
        exchange_io_envelop(io, &want, exchange_ns_key(e));
        l->reads = io;
        l->is_named = true;
        return exchange_io_begin(io, l->deadline_nsec) == 0;
}

/* Takes the record, or the value in its place. Returns false if there is no valid record. */
static bool take_record(struct session_load *l)
{
        struct exchange *x = l->e->x;
        struct exchange_io *io = l->reads;
        const struct exchange_result *r = &io->results[0];
        enum envelope_fault fault = r->result == -EMSGSIZE ? ENVELOPE_LENGTH : io->fault;

        if (r->result != 0 && r->result != -EMSGSIZE)
                return false;
        /* A record of another epoch was invalidated, or is newer than the epoch that was read. */
        if (fault == ENVELOPE_NO_MEMORY || fault == ENVELOPE_OTHER_EPOCH)
                return false;
        if (fault != ENVELOPE_GOOD) {
                exchange_note_refused(x, envelope_fault_name(fault), envelope_fault_text(fault), 0);
                exchange_remove(x, l->name.name);
                return false;
        }
        l->payload = malloc(io->envelope.payload_bytes);
        if (!l->payload)
                return false;
        memcpy(l->payload, io->buffer + ENVELOPE_BYTES, io->envelope.payload_bytes);
        if (!session_record_read(l->payload, io->envelope.payload_bytes, &l->record)) {
                exchange_note_refused(
                        x, "no-record", "what lies in the place of a session's record is none", 0);
                exchange_remove(x, l->name.name);
                return false;
        }
        exchange_io_end(l->reads);
        l->reads = NULL;
        return true;
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* Returns page n of the session's text; PAGE_NONE: not here, or another text's. */
static uint32_t page_at(const struct session_load *l, uint32_t n)
{
        const struct ns *ns = l->a->ns;
        uint32_t page = ns_find_page(ns, key_at(l, n));

        return page != PAGE_NONE && ns_note(ns, page)->depth == n + 1 ? page : PAGE_NONE;
}

/* Returns how many of its leading pages are here. Behind a missing page there is none. */
static uint32_t count_cached(const struct session_load *l)
{
        uint32_t from = 0, to = l->record.n_pages;

        while (from < to) {
                uint32_t middle = from + (to - from) / 2;

                if (page_at(l, middle) != PAGE_NONE)
                        from = middle + 1;
                else
                        to = middle;
        }
        return from;
}

static void on_imported(const struct import_outcome *outcome, void *data)
{
        struct session_load *l = data;
        int code = outcome->code;

        l->import = NULL;
        l->n_imported += outcome->n_pages;
        l->is_cut =
                outcome->n_pages == 0 && code != KVL_STATUS_PENDING && code != KVL_STATUS_DUPLICATE;
        l->again_nsec = l->a->ns->store->now_nsec + (code == KVL_STATUS_PENDING ? AGAIN_NSEC : 0);
        exchange_wake(l->e->x);
}

/* Begins to import pages behind the first n. Returns false if no more will come. */
static bool import_behind(struct session_load *l, uint32_t n)
{
        const struct import_request rq = {
                .parent_key = n > 0 ? key_at(l, n - 1) : NULL,
                .keys = key_at(l, n),
                .n_keys = MIN(l->record.n_pages - n, (uint32_t)IMPORT_KEYS_MAX),
                .deadline_nsec = l->deadline_nsec,
        };
        uint64_t now_nsec = l->a->ns->store->now_nsec;
        int r = import_begin(l->a, &rq, now_nsec, on_imported, l, &l->import, NULL);

        l->again_nsec = r == KVL_STATUS_PENDING ? now_nsec + AGAIN_NSEC : 0;
        return r == 0 || r == KVL_STATUS_PENDING;
}

/* Makes the session equal to the record, as far as its pages are here. */
static int replace_session(struct session_load *l, uint32_t n_cached)
{
        struct ns *ns = l->a->ns;
        uint32_t tail = n_cached > 0 ? page_at(l, n_cached - 1) : PAGE_NONE;
        int r = session_replace(
                ns, l->id, l->id_len, tail, l->record.n_tokens, ns->store->now_nsec, NULL);

        return r == 0 ? 0 : KVL_STATUS_MISS;
}

/* Is the session here just what the record says? */
static bool is_same(const struct session_load *l, uint32_t n_cached)
{
        const struct session *s = session_find(l->a->ns, l->id, l->id_len);

        return s && n_cached == l->record.n_pages && s->n_tokens == l->record.n_tokens &&
               session_tail(s) == page_at(l, n_cached - 1);
}

/* ---- work ------------------------------------------------------------------------------------ */

static void go_on_with_pages(struct session_load *l, uint64_t now_nsec)
{
        bool is_late = now_nsec >= l->deadline_nsec;
        uint32_t n;

        if (!is_late && (l->import || l->again_nsec > now_nsec))
                return;
        n = count_cached(l);
        if (n < l->record.n_pages && !is_late && !l->is_cut && import_behind(l, n))
                return;
        end_load(l, is_same(l, n) ? KVL_STATUS_MISS : replace_session(l, n));
}

static void go_on(struct session_load *l, uint64_t now_nsec)
{
        if (l->reads && !exchange_io_is_over(l->reads)) {
                if (now_nsec >= l->deadline_nsec)
                        end_load(l, KVL_STATUS_MISS);
                return;
        }
        if (l->reads && !(l->is_named ? take_record(l) : ask_for_record(l))) {
                end_load(l, KVL_STATUS_MISS);
                return;
        }
        if (!l->reads)
                go_on_with_pages(l, now_nsec);
}

/* The callback of one load may end others. */
static struct session_load *next_to_look_at(const struct exchange *x)
{
        list_for_each (l, &x->session_loads, struct session_load, link)
                if (!l->is_looked_at)
                        return l;
        return NULL;
}

/* Returns when the load has work at the latest. */
static uint64_t next_turn(const struct session_load *l, uint64_t now_nsec)
{
        return l->again_nsec > now_nsec ? MIN(l->again_nsec, l->deadline_nsec) : l->deadline_nsec;
}

uint64_t session_loads_work(struct exchange *x)
{
        uint64_t now_nsec = x->tenant->store->now_nsec, next = UINT64_MAX;
        struct session_load *next_load;

        list_for_each (l, &x->session_loads, struct session_load, link)
                l->is_looked_at = false;
        while ((next_load = next_to_look_at(x))) {
                next_load->is_looked_at = true;
                go_on(next_load, now_nsec);
        }
        list_for_each (l, &x->session_loads, struct session_load, link)
                next = MIN(next, next_turn(l, now_nsec));
        return next;
}
