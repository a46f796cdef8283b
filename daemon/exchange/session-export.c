/*
 * Records of sessions for other hosts (exchange-impl.h). After a turn of a session, its pages are
 * exported as a text, and its record is written in place of the old one. If the session was
 * truncated or dropped, its record is removed.
 *
 *   waits -> is written, or removed -> over, or waits again (it has changed meanwhile)
 *
 * The record has the session's state at the time of the write.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/core/cache/pages.h"
#include "daemon/exchange/exchange-impl.h"
#include "daemon/core/sessions/session.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/exchange/format/session-record.h"

/* Per tenant: records waiting or being written, and records being written at a time. Not tuned. */
#define SESSION_EXPORTS_MAX 256
#define SESSION_WRITES_MAX  4

struct session_export {
        struct list_link link;  /* exchange.session_exports */
        struct exchange_ns *e;  /* borrowed: freed after its session_exports */
        struct exchange_io *io; /* NULL: it waits */
        bool again;             /* it rests again, since this write began */
        uint32_t id_len;
        uint8_t id[SESSION_ID_MAX];
};

static void export_free(struct session_export *w)
{
        exchange_io_end(w->io);
        list_remove(&w->link);
        w->e->x->n_session_exports--;
        free(w);
}

static struct session *session_of_export(const struct session_export *w)
{
        return session_find(w->e->ns, w->id, w->id_len);
}

/* ---- adding sessions ------------------------------------------------------------------------- */

/* A session that a client hinted to be done, or one without pages, is of no use to other hosts. */
static bool has_news(const struct session *s)
{
        return s->told == SESSION_UNTOLD &&
               (s->is_truncated || (s->end && s->hint != EVICT_HINT_DONE));
}

static struct session_export *find_export(
        const struct exchange_ns *e, const uint8_t *id, uint32_t id_len)
{
        list_for_each (w, &e->x->session_exports, struct session_export, link)
                if (w->e == e && w->id_len == id_len && memcmp(w->id, id, id_len) == 0)
                        return w;
        return NULL;
}

/* Returns false if the limit of waiting exports is reached. */
static bool add_export(struct exchange_ns *e, const uint8_t *id, uint32_t id_len)
{
        struct session_export *w = find_export(e, id, id_len);

        if (w) {
                w->again = w->io;
                return true;
        }
        w = e->x->n_session_exports < SESSION_EXPORTS_MAX ? calloc(1, sizeof(*w)) : NULL;
        if (!w)
                return false;
        w->e = e;
        w->id_len = id_len;
        memcpy(w->id, id, id_len);
        list_init(&w->link);
        list_append(&e->x->session_exports, &w->link);
        e->x->n_session_exports++;
        exchange_wake(e->x);
        return true;
}

void exports_note_session(struct ns *ns, const uint8_t *id, uint32_t id_len)
{
        struct exchange_ns *e = exchange_find_ns(ns);
        const struct session *s;

        if (!e || !e->x->options.may_write)
                return;
        s = session_find(ns, id, id_len);
        if (!s || has_news(s))
                (void)add_export(e, id, id_len);
}

bool session_export_add(struct exchange_ns *e, const struct session *s)
{
        return !has_news(s) || s->is_truncated || add_export(e, s->id, s->id_len);
}

void session_exports_end(struct exchange *x, const struct exchange_ns *e)
{
        list_for_each_safe (w, &x->session_exports, struct session_export, link)
                if (w->e == e)
                        export_free(w);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Can other hosts get all of the session's pages, from the first one on? */
static bool may_go(const struct exchange_ns *e, uint32_t tail)
{
        uint32_t first = ns_page_of_text(e->ns, tail, 1);

        return ns_note(e->ns, tail)->depth <= SESSION_RECORD_PAGES_MAX &&
               export_may_go(e, tail, ns_page(e->ns, tail)->generation) &&
               export_may_go(e, first, ns_page(e->ns, first)->generation);
}

/* Writes the keys of the text that ends with the page. */
static void write_keys(const struct ns *ns, uint32_t page, uint8_t *keys)
{
        for (uint32_t n = ns_note(ns, page)->depth; n-- > 0; page = tree_parent(&ns->tree, page))
                memcpy(keys + (size_t)n * KEY_BYTES, ns_page(ns, page)->key, KEY_BYTES);
}

/* Returns NULL without memory. */
static struct exchange_io *write_new(
        struct session_export *w, const struct session *s, const struct session_name *name)
{
        struct exchange_ns *e = w->e;
        uint32_t tail = session_tail(s), n = ns_note(e->ns, tail)->depth;
        struct envelope says = exchange_session_envelope(e, name);
        struct exchange_io *io;

        says.payload_bytes = session_record_bytes(n);
        io = exchange_io_new(
                e->x, REMOTE_WRITE, REMOTE_LARGE, 1, ENVELOPE_BYTES + says.payload_bytes, false);
        if (!io)
                return NULL;
        write_keys(e->ns, tail, session_record_begin(io->buffer + ENVELOPE_BYTES, s->n_tokens, n));
        exchange_io_name(io, 0, name->name);
        exchange_io_envelop(io, &says, exchange_ns_key(e));
        io->io->ops[0].expiry_msec = e->x->options.expiry_msec;
        return io;
}

static struct exchange_io *remove_new(struct session_export *w, const struct session_name *name)
{
        struct exchange_io *io = exchange_io_new(w->e->x, REMOTE_REMOVE, REMOTE_SMALL, 1, 0, false);

        if (io)
                exchange_io_name(io, 0, name->name);
        return io;
}

/* Returns false if there is nothing to do, or it failed. */
static bool begin_export(struct session_export *w)
{
        struct session *s = session_of_export(w);
        bool is_gone = !s || s->is_truncated;
        struct session_name name;

        if (!is_gone && (!has_news(s) || !may_go(w->e, session_tail(s))))
                return false;
        if (exchange_name_session(w->e, w->id, w->id_len, &name) < 0)
                return false;
        w->io = is_gone ? remove_new(w, &name) : write_new(w, s, &name);
        if (!w->io ||
                exchange_io_begin(w->io, w->e->ns->store->now_nsec + EXPORT_DEADLINE_NSEC) < 0)
                return false;
        if (s)
                session_begin_telling(s);
        if (!is_gone)
                export_add_text(w->e, session_tail(s), true);
        return true;
}

/* The record's write or removal has finished; results[0] says how. */
static void end_export(struct session_export *w)
{
        bool is_done = w->io->results[0].result == 0;
        struct session *s = session_of_export(w);

        w->e->x->counters.session_records += is_done && w->io->envelope.payload_bytes > 0;
        if (s)
                session_end_telling(s, is_done);
        exchange_io_end(w->io);
        w->io = NULL;
        if (!w->again)
                export_free(w);
        else
                w->again = false;
}

void session_exports_work(struct exchange *x)
{
        unsigned n_begun = 0;

        list_for_each_safe (w, &x->session_exports, struct session_export, link) {
                if (w->io && exchange_io_is_over(w->io)) {
                        end_export(w);
                        exchange_wake(x); /* others may wait for its turn */
                } else if (w->io) {
                        n_begun++;
                }
        }
        list_for_each_safe (w, &x->session_exports, struct session_export, link) {
                if (w->io || w->e->epoch->number == 0 || n_begun >= SESSION_WRITES_MAX)
                        continue;
                if (begin_export(w)) { /* it walked a text: others have their turn now */
                        exchange_wake(x);
                        return;
                }
                export_free(w);
        }
}
