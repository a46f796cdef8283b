#include "daemon/core/tenant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/detail.h"
#include "daemon/core/ns.h"
#include "daemon/core/recall.h"
#include "daemon/core/reclaim.h"
#include "daemon/core/store.h"

struct tenant *tenant_find(struct store *s, const char *name)
{
        list_for_each (t, &s->tenants, struct tenant, link)
                if (strcmp(t->name, name) == 0)
                        return t;
        return NULL;
}

static int check_attrs(const struct tenant_attrs *attrs, struct detail *d)
{
        const struct {
                const char *name;
                uint32_t value, min, max;
        } ranges[] = {
                {"weight", attrs->weight, 1, 1000},
                {"priority", attrs->priority, 0, 100},
                {"max_clients", attrs->max_clients, 1, 65535},
        };

        for (size_t i = 0; i < ARRAY_SIZE(ranges); i++)
                if (ranges[i].value < ranges[i].min || ranges[i].value > ranges[i].max)
                        return detail_set(d, -EINVAL, "%s is %u: %u to %u are allowed",
                                ranges[i].name, ranges[i].value, ranges[i].min, ranges[i].max);
        return 0;
}

int tenant_new(struct store *s, const char *name, const struct tenant_attrs *attrs,
        struct tenant **ret_tenant, struct detail *d)
{
        struct tenant *t;
        int r;

        if (!name_is_valid(name, TENANT_NAME_MAX))
                return detail_set(d, -EINVAL,
                        "a tenant's name is 1 to %d of A-Z a-z 0-9 . _ - and starts with none of . "
                        "-",
                        TENANT_NAME_MAX);
        r = check_attrs(attrs, d);
        if (r < 0)
                return r;
        if (tenant_find(s, name))
                return detail_set(d, -EEXIST, "tenant %s exists already", name);
        t = calloc(1, sizeof(*t));
        if (!t)
                return detail_set(d, -ENOMEM, "no memory for tenant %s", name);
        t->store = s;
        memcpy(t->name, name, strlen(name) + 1);
        t->attrs = *attrs;
        t->account.limit_bytes = attrs->limit_bytes;
        list_init(&t->namespaces);
        list_init(&t->groups);
        list_append(&s->tenants, &t->link);
        *ret_tenant = t;
        return 0;
}

int tenant_set_attrs(struct tenant *t, const struct tenant_attrs *attrs, struct detail *d)
{
        int r;

        r = check_attrs(attrs, d);
        if (r < 0)
                return r;
        t->attrs = *attrs;
        t->account.limit_bytes = attrs->limit_bytes;
        if (!reclaim_sets_of_tenant(t, NULL, 0))
                recall_excess(t);
        return 0;
}

int tenant_remove(struct tenant *t, bool force, struct detail *d)
{
        char held[FORMAT_BYTES_MAX];

        if (t->n_members > 0)
                return detail_set(d, -EBUSY, "tenant %s has %u clients; stop them first", t->name,
                        t->n_members);
        if (!force && !list_is_empty(&t->namespaces))
                return detail_set(d, -EBUSY,
                        "tenant %s has cached pages or namespaces (%s of memory); drop them with "
                        "--force",
                        t->name, format_bytes(t->account.charged_bytes, held));
        list_for_each_safe (ns, &t->namespaces, struct ns, link)
                ns_free(ns);
        list_remove(&t->link);
        free(t);
        return 0;
}
