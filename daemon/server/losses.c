#include "daemon/server/losses.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/parse.h"
#include "daemon/core/ns.h"
#include "daemon/core/session.h"
#include "daemon/core/tenant.h"
#include "daemon/server/server.h"
#include "proto/arena.h"

#define SENTENCE_BYTES 256

int losses_init(struct losses *l, struct arena *arena)
{
        *l = (struct losses){
                .arena = arena, .texts = arena_alloc(arena, LOSSES_MAX * sizeof(*l->texts))};
        return l->texts ? 0 : -ENOMEM;
}

void losses_add(struct losses *l, const char *format, ...)
{
        char *text = l->n < LOSSES_MAX ? arena_alloc(l->arena, SENTENCE_BYTES) : NULL;
        va_list args;

        if (!text) {
                l->n_more++;
                return;
        }
        va_start(args, format);
        vsnprintf(text, SENTENCE_BYTES, format, args);
        va_end(args);
        l->texts[l->n++] = text;
}

struct holding holding_count(
        const struct server *s, const struct pool *pool, const struct tenant *tenant)
{
        struct holding h = {0};

        list_for_each (t, &s->store.tenants, struct tenant, link) {
                if (tenant && t != tenant)
                        continue;
                list_for_each (ns, &t->namespaces, struct ns, link) {
                        if (pool && ns->device.pool != pool)
                                continue;
                        h.n_pages += ns_count_findable(ns);
                        h.n_bytes += ns_all_bytes(ns);
                        h.n_sessions += sessions_count(ns);
                }
        }
        return h;
}

void losses_add_holding(struct losses *l, const struct holding *h, const char *why)
{
        char bytes[FORMAT_BYTES_MAX];

        if (h->n_bytes > 0 || h->n_sessions > 0)
                losses_add(l, "%llu cached pages (%s) and %llu sessions: %s",
                        (unsigned long long)h->n_pages, format_bytes(h->n_bytes, bytes),
                        (unsigned long long)h->n_sessions, why);
}
