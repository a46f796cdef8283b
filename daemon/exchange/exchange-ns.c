#include "daemon/exchange/exchange-ns.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/exchange/exchange-news.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"

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
