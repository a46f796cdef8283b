#include "daemon/server/tenants.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/tenant.h"
#include "daemon/server/access.h"
#include "daemon/server/listener.h"
#include "daemon/server/log.h"
#include "daemon/server/peer.h"

struct tenancy *tenancy_find(struct server *s, const char *name)
{
        struct tenant *t = tenant_find(&s->store, name);

        return t ? t->server_data : NULL;
}

static struct tenant_attrs attrs_of(const struct server *s, const struct tenant_config *c)
{
        return (struct tenant_attrs){
                .limit_bytes = MIN(c->limit_bytes, s->budget_bytes),
                .weight = c->weight,
                .priority = c->priority,
                .max_clients = c->max_clients,
        };
}

int tenancy_listen(struct tenancy *t, struct detail *d)
{
        return listener_open(t->server, LISTEN_TENANT, t, &t->listener, d);
}

int tenancy_add(struct server *s, const struct tenant_config *config, bool from_config,
        struct tenancy **ret_tenancy, struct detail *d)
{
        struct tenant_attrs attrs = attrs_of(s, config);
        struct tenancy *t;
        int r;

        r = config_check_socket_path(
                s->config.daemon.runtime_dir, config->name, d->text, sizeof(d->text));
        if (r < 0)
                return r;
        t = calloc(1, sizeof(*t));
        if (!t)
                return detail_set(d, -ENOMEM, "out of memory");
        r = tenant_new(&s->store, config->name, &attrs, &t->tenant, d);
        if (r < 0) {
                free(t);
                return r;
        }
        t->server = s;
        t->config = *config;
        t->from_config = from_config;
        t->tenant->server_data = t;
        r = s->serving ? tenancy_listen(t, d) : 0;
        if (r < 0) {
                tenant_remove(t->tenant, true, NULL);
                free(t);
                return r;
        }
        t->id = ++s->last_tenancy_id;
        list_append(&s->tenancies, &t->link);
        *ret_tenancy = t;
        return 0;
}

int tenancy_change(struct tenancy *t, const struct tenant_config *config, struct detail *d)
{
        struct tenant_attrs attrs = attrs_of(t->server, config);
        bool new_group = strcmp(t->config.group, config->group) != 0;
        int r = tenant_set_attrs(t->tenant, &attrs, d);

        if (r < 0)
                return r;
        t->config = *config;
        if (new_group && t->listener)
                listener_update_group(t->listener);
        return 0;
}

/* Frees a tenancy whose tenant is gone; connections not introduced yet end with it. */
static void tenancy_free(struct tenancy *t)
{
        list_for_each (p, &t->server->peers, struct peer, link)
                if (p->tenancy == t) {
                        p->tenancy = NULL;
                        p->doomed = true;
                        peer_schedule(p);
                }
        listener_close(t->listener);
        list_remove(&t->link);
        free(t);
}

int tenancy_remove(struct tenancy *t, bool force, struct detail *d)
{
        int r = tenant_remove(t->tenant, force, d);

        if (r < 0)
                return r;
        tenancy_free(t);
        return 0;
}

void tenants_free(struct server *s)
{
        list_for_each_safe (t, &s->tenancies, struct tenancy, link)
                tenancy_free(t);
}

/* The tenant `name` as the configuration and the database together have it. False: neither does. */
static bool effective_config(const struct server *s, const struct config *config, const char *name,
        struct tenant_config *ret_config, bool *ret_from_config)
{
        const struct tenant_config *base = tenant_table_find(&config->tenants, name);
        const struct tenant_config *changed = tenantdb_find(&s->db, name);

        if (!base && !changed)
                return false;
        if (base)
                *ret_config = *base;
        else
                tenant_config_init(ret_config, name);
        if (changed)
                options_copy(SECTION_TENANT, changed->set, ret_config, changed);
        *ret_from_config = base;
        return true;
}

/* Makes the tenant, or puts its configuration in force. 0 or -errno with the sentence. */
static int ensure(struct server *s, const struct config *config, const char *name, struct detail *d)
{
        struct tenancy *t = tenancy_find(s, name);
        struct tenant_config effective;
        bool from_config;

        if (!effective_config(s, config, name, &effective, &from_config))
                return 0;
        if (!t)
                return tenancy_add(s, &effective, from_config, &t, d);
        t->from_config = from_config;
        return tenancy_change(t, &effective, d);
}

int tenants_load(struct server *s)
{
        const struct tenant_table *tables[] = {&s->config.tenants, &s->db.table};

        for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
                for (size_t k = 0; k < tables[i]->n; k++) {
                        struct detail d = {""};
                        int r = ensure(s, &s->config, tables[i]->rows[k].name, &d);

                        if (r < 0) {
                                log_error("tenant %s: %s", tables[i]->rows[k].name, d.text);
                                return r;
                        }
                }
        return 0;
}

/* A tenant that no file names any more. */
static void drop_removed(struct tenancy *t)
{
        struct detail d = {""};
        char name[TENANT_NAME_MAX + 1];

        strcpy(name, t->config.name);
        if (tenancy_remove(t, false, &d) < 0)
                log_warning("tenant %s is gone from the configuration but stays until a later "
                            "reload: %s",
                        name, d.text);
        else
                log_message(LOG_TENANT_REMOVED, LOG_FIELDS({"TENANT", name}),
                        "tenant %s is removed", name);
}

static void reload_tenant(struct server *s, const struct config *next, const char *name)
{
        struct detail d = {""};

        if (ensure(s, next, name, &d) < 0)
                log_warning("tenant %s: %s: it is left as it was", name, d.text);
}

void tenants_reload(struct server *s, const struct config *next)
{
        list_for_each_safe (t, &s->tenancies, struct tenancy, link) {
                struct tenant_config unused;
                bool from_config;

                if (!effective_config(s, next, t->config.name, &unused, &from_config))
                        drop_removed(t);
        }
        for (size_t i = 0; i < next->tenants.n; i++)
                reload_tenant(s, next, next->tenants.rows[i].name);
        /* Those of the database alone: what a section gave one before is not in force any more. */
        for (size_t i = 0; i < s->db.table.n; i++)
                if (!tenant_table_find(&next->tenants, s->db.table.rows[i].name))
                        reload_tenant(s, next, s->db.table.rows[i].name);
}

/* Lays assignments over *config, notes them in *row. */
static int apply_options(struct tenant_config *config, struct tenant_config *row,
        char *const *texts, size_t n, struct detail *d)
{
        for (size_t i = 0; i < n; i++) {
                int r = tenant_config_apply(config, texts[i], d->text, sizeof(d->text));

                if (r == 0)
                        r = tenant_config_apply(row, texts[i], d->text, sizeof(d->text));
                if (r < 0)
                        return r;
        }
        return 0;
}

static int create(struct server *s, const struct tenant_config *config,
        const struct tenant_config *row, struct detail *d)
{
        struct tenancy *t;
        int r = tenancy_add(s, config, false, &t, d);

        if (r < 0)
                return r;
        r = tenantdb_put(&s->db, row, d);
        if (r < 0)
                tenancy_remove(t, true, NULL);
        return r;
}

/* Disk first: putting it in force may evict, which can't be undone. */
static int change(struct server *s, struct tenancy *t, const struct tenant_config *config,
        const struct tenant_config *row, struct detail *d)
{
        const struct tenant_config *stored = tenantdb_find(&s->db, config->name);
        struct tenant_config before;
        int r;

        if (stored)
                before = *stored;
        r = tenantdb_put(&s->db, row, d);
        if (r < 0)
                return r;
        r = tenancy_change(t, config, d);
        if (r < 0 && (stored ? tenantdb_put(&s->db, &before, NULL)
                             : tenantdb_remove(&s->db, config->name, NULL)) < 0)
                log_error("%s still has the refused change of tenant %s: correct it by hand",
                        s->db.path, config->name);
        return r;
}

int tenants_set(struct server *s, const char *name, bool is_new, char *const *texts, size_t n,
        struct detail *d)
{
        struct tenancy *t = tenancy_find(s, name);
        const struct tenant_config *stored = tenantdb_find(&s->db, name);
        struct tenant_config config, row;
        int r;

        if (!name_is_valid(name, TENANT_NAME_MAX))
                return detail_set(d, -EINVAL,
                        "a tenant's name is 1 to %d of A-Z a-z 0-9 . _ - and starts with none of . "
                        "-",
                        TENANT_NAME_MAX);
        if (is_new && t)
                return detail_set(d, -EEXIST,
                        "tenant %s exists already: change it with kvleasectl tenants set", name);
        if (!is_new && !t)
                return detail_set(
                        d, -ENOENT, "no tenant %s: make it with kvleasectl tenants add", name);
        tenant_config_init(&config, name);
        row = stored ? *stored : config;
        if (t)
                config = t->config;
        r = apply_options(&config, &row, texts, n, d);
        if (r < 0)
                return r;
        return is_new ? create(s, &config, &row, d) : change(s, t, &config, &row, d);
}

/* What tenant_remove() will refuse, asked before anything is written. */
static int check_removable(const struct tenancy *t, bool force, struct detail *d)
{
        const struct tenant *core = t->tenant;

        if (t->from_config)
                return detail_set(d, -EBUSY,
                        "tenant %s comes from the configuration file: remove its section there, "
                        "then "
                        "reload kvleased (SIGHUP)",
                        t->config.name);
        if (core->n_members > 0)
                return detail_set(d, -EBUSY, "tenant %s has %u clients: stop them first",
                        t->config.name, core->n_members);
        if (!force && !list_is_empty(&core->namespaces))
                return detail_set(d, -EBUSY,
                        "tenant %s still has namespaces with cached pages: add --force to drop "
                        "them",
                        t->config.name);
        return 0;
}

int tenants_remove(struct server *s, const char *name, bool force, struct detail *d)
{
        struct tenancy *t = tenancy_find(s, name);
        int r;

        if (!t)
                return detail_set(d, -ENOENT, "no tenant %s", name);
        r = check_removable(t, force, d);
        if (r == 0)
                r = tenantdb_remove(&s->db, name, d);
        return r < 0 ? r : tenancy_remove(t, force, d);
}

int tenants_of_uid(
        struct server *s, const struct creds *c, struct tenancy **ret_tenancy, struct detail *d)
{
        struct tenancy *found = NULL;

        if (c->uid == UID_NOBODY)
                return detail_set(d, -EACCES,
                        "uid %d stands for every user unknown here: use the socket of a tenant",
                        UID_NOBODY);
        list_for_each (t, &s->tenancies, struct tenancy, link) {
                if (!id_list_has(&t->config.uids, c->uid))
                        continue;
                if (found)
                        return detail_set(d, -EACCES,
                                "uid %u is listed by tenants %s and %s: use the socket of one of "
                                "them",
                                (unsigned)c->uid, found->config.name, t->config.name);
                found = t;
        }
        if (!found)
                return detail_set(d, -EACCES,
                        "no tenant lists uid %u: add it with kvleasectl tenants set NAME uids=%u, "
                        "or "
                        "use the socket of a tenant",
                        (unsigned)c->uid, (unsigned)c->uid);
        *ret_tenancy = found;
        return 0;
}
