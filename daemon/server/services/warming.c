#include "daemon/server/services/warming.h"

#include "daemon/core/state/ns.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/reclaim/warm.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/tenancy.h"
#include "daemon/server/config/tenant-check.h"
#include "daemon/server/base/log.h"

static void start_tenant(const struct tenancy *t)
{
        struct warm_request rq;
        struct detail d = {""};

        if (tenant_parse_warm_tags(t->config.warm_tags, &rq) < 0 || rq.n_tags == 0)
                return;
        list_for_each (ns, &t->tenant->namespaces, struct ns, link)
                if (warm_begin(ns, &rq, &d) < 0)
                        log_error("warm_tags of tenant %s: %s", t->config.name, d.text);
}

void warming_start(struct server *s)
{
        list_for_each (t, &s->tenancies.list, struct tenancy, link)
                start_tenant(t);
}
