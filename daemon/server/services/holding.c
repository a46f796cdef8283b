#include "daemon/server/services/holding.h"

#include "base/macros.h"
#include "base/parse.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/sessions/session.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/services/sentences.h"

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

void holding_lose(struct sentences *losses, const struct holding *h, const char *why)
{
        char bytes[FORMAT_BYTES_MAX];

        if (h->n_bytes > 0 || h->n_sessions > 0)
                sentences_add(losses, "%llu cached page%s (%s) and %llu session%s: %s",
                        (unsigned long long)h->n_pages, PLURAL(h->n_pages),
                        format_bytes(h->n_bytes, bytes), (unsigned long long)h->n_sessions,
                        PLURAL(h->n_sessions), why);
}
