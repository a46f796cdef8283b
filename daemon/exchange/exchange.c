#include "daemon/exchange/exchange.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/exchange/exchange-impl.h"
#include "daemon/exchange/exchange-news.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/nsset-keys.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"

#define EXPIRY_MAX_MSEC (UINT64_C(365) * 24 * 3600 * 1000) /* remote.h */

void exchange_wake(struct exchange *x)
{
        if (x->options.on_work)
                x->options.on_work(x->options.data);
}

void exchange_note_refused(
        struct exchange *x, const char *reason, const char *what, uint32_t n_pages)
{
        struct store *s = x->tenant->store;

        if (!x->options.news)
                return;
        exchange_news_refused(x->options.news, x->tenant->name, reason, what, n_pages);
        exchange_news_tell(x->options.news, &s->event_log, s->now_nsec);
}

struct exchange_ns *exchange_find_ns(const struct ns *ns)
{
        const struct exchange *x = exchange_of(ns->tenant);
        const uint64_t *found = x ? map_find(&x->by_id, ns->id) : NULL;

        return found ? (struct exchange_ns *)(uintptr_t)*found : NULL;
}

/* ---- namespaces ------------------------------------------------------------------------------ */

static const char *why_not(const struct ns *ns)
{
        if (!exchange_of(ns->tenant))
                return "its tenant has no remote";
        if (layout_page_bytes(&ns->layout) > EXCHANGE_PAGE_MAX)
                return "its pages have more than 16 MiB";
        return NULL;
}

bool exchange_has_ns(const struct ns *ns, const char **ret_why)
{
        const char *why = why_not(ns);

        if (!why && !exchange_find_ns(ns))
                why = "there was no memory for it";
        if (ret_why)
                *ret_why = why;
        return !why;
}

/* Computes the identity of the pages' bytes. */
static int identify_ns(struct exchange_ns *e)
{
        const struct ns *ns = e->ns;
        const struct ns_layout *l = &ns->layout;
        const struct page_codecs *codecs = &ns->codecs.of_pages;
        char text[CODEC_LAYERS_TEXT_MAX];
        const struct exchange_model m = {
                .scope = ns->name,
                .model = l->model,
                .version = l->version,
                .dtype = l->dtype,
                .n_layers = l->n_layers,
                .n_kv_heads = l->n_kv_heads,
                .head_size = l->head_size,
                .page_tokens = l->page_tokens,
                .n_planes = l->n_planes,
                .plane_page_bytes = l->plane_page_bytes,
                .tp_size = l->tp_size,
                .layer_group = l->layer_group,
                .codecs = codec_layers_format(
                        &codecs->tiers[page_travel_form(codecs)], l->n_layers, text),
                .salt = l->salt,
                .salt_len = l->salt_len,
                .format = l->format,
                .format_len = l->format_len,
        };
        int r = exchange_identify(&e->x->whose, &m, e->id);

        e->rank = e->part = l->tp_rank;
        if (r == 0 && ns->catalog.set)
                r = exchange_member_number(&e->x->whose, e->id, e->rank, &e->part);
        return r;
}

static void enter_ns(struct ns *ns)
{
        struct exchange *x = exchange_of(ns->tenant);
        struct exchange_ns *e = why_not(ns) ? NULL : calloc(1, sizeof(*e));

        if (!e)
                return;
        e->x = x;
        e->ns = ns;
        list_init(&e->link);
        e->epoch = identify_ns(e) < 0 ? NULL : epoch_get(e);
        if (!e->epoch || map_put(&x->by_id, ns->id, (uintptr_t)e) < 0) {
                if (e->epoch)
                        epoch_put(e);
                free(e);
                return;
        }
        list_append(&x->namespaces, &e->link);
        epoch_recall(e);
        exchange_wake(x);
}

static void free_ns(struct exchange_ns *e)
{
        struct exchange *x = e->x;

        session_loads_end(x, e, NULL);
        session_exports_end(x, e);
        imports_end(x, e, NULL);
        exports_end(x, e);
        epoch_put(e);
        (void)map_remove(&x->by_id, e->ns->id);
        list_remove(&e->link);
        export_all_note_left(x);
        free(e->exported);
        free(e);
}

static void leave_ns(struct ns *ns)
{
        struct exchange_ns *e = exchange_find_ns(ns);

        if (e)
                free_ns(e);
}

static void note_invalidated(struct ns *ns, const uint8_t *key, uint64_t tag)
{
        struct exchange_ns *e = exchange_find_ns(ns);
        struct change_item what = {.kind = tag > 0 ? CHANGE_TAG : CHANGE_ALL, .tag = tag};

        if (!e)
                return;
        if (key) {
                what.kind = CHANGE_KEY;
                memcpy(what.key, key, sizeof(what.key));
        }
        epoch_change(e->epoch, &what);
        exchange_wake(e->x);
}

static void note_disturbed(struct ns *ns)
{
        struct exchange_ns *e = exchange_find_ns(ns);

        if (!e || e->x->n_imports == 0)
                return;
        e->n_disturbed++;
        exchange_wake(e->x);
}

static void note_room(struct ns *ns)
{
        const struct exchange_ns *e = exchange_find_ns(ns);

        if (e && e->x->n_imports > 0)
                imports_take_room(e);
}

static void leave_attach(struct attach *a)
{
        struct exchange *x = exchange_of(a->ns->tenant);

        session_loads_end(x, NULL, a); /* first: a load cancels its import */
        imports_end(x, NULL, a);
}

static const struct tenant_listeners listeners = {
        .ns_enters = enter_ns,
        .ns_leaves = leave_ns,
        .ns_has_room = note_room,
        .ns_is_disturbed = note_disturbed,
        .invalidated = note_invalidated,
        .page_found = exports_note_found,
        .page_published = exports_note_published,
        .session_rests = exports_note_session,
        .attach_leaves = leave_attach,
        .tenant_ends = exchange_close,
};

/* ---- names of pages and sessions ------------------------------------------------------------- */

const struct seal_key *exchange_ns_key(const struct exchange_ns *e)
{
        return e->x->whose.secret_len > 0 ? &e->epoch->seal : NULL;
}

int exchange_name_page(
        const struct exchange_ns *e, const uint8_t key[KEY_BYTES], char name[EXCHANGE_NAME_MAX])
{
        uint8_t place[EXCHANGE_PLACE_BYTES];
        int r = exchange_page_place(&e->x->whose, e->epoch->id, e->epoch->number, key, place);

        if (r == 0)
                (void)exchange_page_name(&e->x->whose, place, e->part, name);
        return r;
}

int exchange_name_session(
        const struct exchange_ns *e, const uint8_t *id, uint32_t id_len, struct session_name *ret)
{
        int r = exchange_session_place(&e->x->whose, e->id, id, id_len, ret->place);

        return r == 0 ? exchange_session_name(&e->x->whose, e->id, id, id_len, ret->name) : r;
}

struct envelope exchange_session_envelope(
        const struct exchange_ns *e, const struct session_name *name)
{
        struct envelope v = {.epoch = e->epoch->number,
                .rank = EXCHANGE_RANK_SESSION,
                .codec = CODEC_NONE,
                .tokens = 1};

        memcpy(v.id, e->id, sizeof(v.id));
        memcpy(v.key, name->place, sizeof(v.key));
        return v;
}

void exchange_rename_page(const struct exchange_ns *e, char name[EXCHANGE_NAME_MAX])
{
        (void)exchange_page_rename(name, e->part);
}

struct envelope exchange_envelope(
        const struct exchange_ns *e, const uint8_t key[KEY_BYTES], const uint8_t *parent_key)
{
        const struct page_codecs *codecs = &e->ns->codecs.of_pages;
        struct envelope v = {.epoch = e->epoch->number,
                .rank = e->rank,
                .codec = codec_layers_number(&codecs->tiers[page_travel_form(codecs)]),
                .payload_bytes = page_travel_bytes(codecs),
                .tokens = e->ns->layout.page_tokens};

        static_assert(KEY_BYTES == EXCHANGE_KEY_BYTES, "a page's key");
        memcpy(v.id, e->id, sizeof(v.id));
        memcpy(v.key, key, KEY_BYTES);
        if (parent_key)
                memcpy(v.parent, parent_key, KEY_BYTES);
        return v;
}

void exchange_forget_exported(struct exchange *x, const struct exchange_epoch *p)
{
        list_for_each (e, &x->namespaces, struct exchange_ns, link)
                if (!p || e->epoch == p) {
                        free(e->exported);
                        e->exported = NULL;
                }
}

/* ---- the tenant's exchange ------------------------------------------------------------------- */

static int check_options(const struct tenant *t, const struct exchange_options *o, struct detail *d)
{
        if (o->secret_len > 0 &&
                (o->secret_len < EXCHANGE_SECRET_MIN || o->secret_len > EXCHANGE_SECRET_MAX))
                return detail_set(d, -EINVAL, "tenant %s: a secret has %d to %d bytes, not %zu",
                        t->name, EXCHANGE_SECRET_MIN, EXCHANGE_SECRET_MAX, o->secret_len);
        if (o->expiry_msec == 0 || o->expiry_msec > EXPIRY_MAX_MSEC)
                return detail_set(d, -EINVAL,
                        "tenant %s: what is exported expires after 1 ms to a year", t->name);
        if (o->write_bytes_per_sec == 0 || o->bytes_per_sec == 0)
                return detail_set(d, -EINVAL, "tenant %s: a rate of 0 bytes a second", t->name);
        return 0;
}

/* Do the options leave store, write permission and secret as they are? */
static bool goes_on(const struct exchange *x, const struct exchange_options *o)
{
        return x && x->options.remote == o->remote && x->options.may_write == o->may_write &&
               x->whose.secret_len == o->secret_len &&
               (o->secret_len == 0 || memcmp(x->whose.secret, o->secret, o->secret_len) == 0);
}

int exchange_open(struct tenant *t, const struct exchange_options *options, struct detail *d)
{
        int r = check_options(t, options, d);
        struct exchange *x = exchange_of(t);

        if (r < 0)
                return r;
        if (goes_on(x, options)) {
                x->options = *options;
                x->options.secret = NULL;
                x->bucket = (struct bucket){0}; /* no debt of the old rate */
                exchange_wake(x);
                return 0;
        }
        exchange_close(t);
        x = calloc(1, sizeof(*x));
        if (!x)
                return detail_set(d, -ENOMEM, "no memory for what tenant %s exchanges", t->name);
        x->listener.events = &listeners;
        x->tenant = t;
        x->options = *options;
        x->options.secret = NULL;
        memcpy(x->whose.name, t->name, sizeof(t->name));
        x->whose.secret_len = options->secret_len;
        if (options->secret_len > 0)
                memcpy(x->whose.secret, options->secret, options->secret_len);
        list_init(&x->namespaces);
        list_init(&x->epochs);
        list_init(&x->imports);
        list_init(&x->ios);
        list_init(&x->texts);
        list_init(&x->session_exports);
        list_init(&x->session_loads);
        map_init(&x->by_id);
        export_all_init(x);
        t->listener = &x->listener;
        list_for_each (ns, &t->namespaces, struct ns, link)
                enter_ns(ns);
        return 0;
}

void exchange_close(struct tenant *t)
{
        struct exchange *x = exchange_of(t);

        if (!x)
                return;
        export_all_stop(x);
        session_loads_end(x, NULL, NULL);
        imports_end(x, NULL, NULL);
        list_for_each_safe (e, &x->namespaces, struct exchange_ns, link)
                free_ns(e);
        epochs_end(x);
        exchange_ios_forget(x);
        t->listener = NULL;
        map_deinit(&x->by_id);
        buffers_free(&x->buffers);
        explicit_bzero(&x->whose, sizeof(x->whose));
        free(x);
}

static uint64_t measured_per_sec(const struct load_cost_ratio *seen)
{
        return seen->amount > 0 ? load_cost_per_sec(seen, *seen) : 0;
}

/* The lowest of the namespaces' measurements counts. */
static void figure_namespace(struct exchange_figures *f, const struct exchange_ns *e)
{
        uint64_t rate = e->x->options.token_nsec > 0 ? 0 : measured_per_sec(&e->prefill);

        f->n_namespaces++;
        f->n_ready += e->epoch->number != 0;
        if (rate > 0 && (f->prefill_tokens_per_sec == 0 || rate < f->prefill_tokens_per_sec))
                f->prefill_tokens_per_sec = rate;
}

bool exchange_figures(const struct tenant *t, struct exchange_figures *ret)
{
        const struct exchange *x = exchange_of(t);

        *ret = (struct exchange_figures){0};
        if (!x)
                return false;
        *ret = (struct exchange_figures){.counters = x->counters,
                .may_write = x->options.may_write,
                .is_sealed = x->whose.secret_len > 0,
                .n_imports = x->n_imports,
                .n_texts = x->n_texts,
                .bytes_under_way = x->import_bytes + x->export_bytes,
                .import_bytes_per_sec = measured_per_sec(&x->bandwidth),
                .load_error = x->error.mean};
        list_for_each (e, &x->namespaces, struct exchange_ns, link)
                figure_namespace(ret, e);
        return true;
}

const char *exchange_drop_name(enum exchange_drop drop)
{
        static const char *const names[] = {
#define X(name, text, what) text,
                EXCHANGE_DROPS(X)
#undef X
        };

        return names[drop];
}

void exchange_note_prefill(const struct ns *ns, uint64_t n_tokens, uint64_t nsec)
{
        struct exchange_ns *e = exchange_find_ns(ns);

        if (e && e->x->options.token_nsec == 0)
                load_cost_note(&e->prefill, n_tokens, nsec);
}

static uint64_t work_of_tenant(struct exchange *x)
{
        uint64_t next = UINT64_MAX;

        list_for_each_safe (p, &x->epochs, struct exchange_epoch, link)
                next = MIN(next, epoch_work(p));
        next = MIN(next, imports_work(x));
        next = MIN(next, session_loads_work(x)); /* continues after imports */
        session_exports_work(x);
        next = MIN(next, buffers_work(&x->buffers, x->tenant->store->now_nsec));
        return MIN(next, exports_work(x));
}

uint64_t exchange_work(struct store *s, uint64_t now_nsec)
{
        uint64_t next = UINT64_MAX;

        store_set_now(s, now_nsec);
        list_for_each (t, &s->tenants, struct tenant, link)
                if (exchange_of(t))
                        next = MIN(next, work_of_tenant(exchange_of(t)));
        return next;
}
