/* ADMIN_CONFIG: each option, its value in force, and the origin of the configured value.
 * ADMIN_RELOAD: applies a changed configuration, and reports the outcome of each change. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/state/pool.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/server/handlers/list-page.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/services/next-config.h"
#include "daemon/server/services/reload.h"
#include "daemon/server/services/tenants.h"
#include "proto/arena.h"
#include "proto/kvlease.pb-c.h"

/*
 * Ids of rows: those of a section follow each other, behind its number. [daemon] is the first
 * section, devices come next in their order, then remotes in theirs, and tenants by their own
 * numbers.
 */
#define SECTION_ROWS 64
static_assert(SECTION_OPTIONS_MAX <= SECTION_ROWS, "an id for each option");
#define FIRST_DEVICE 1
#define FIRST_REMOTE (FIRST_DEVICE + CONFIG_DEVICES_MAX)
#define FIRST_TENANT (FIRST_REMOTE + CONFIG_REMOTES_MAX)

/* More rows than fit a page of a list; the next request gets the rest. */
#define ROWS_MAX 2048

struct option_row {
        const struct option *option;
        struct pool *pool;                  /* NULL: of no device */
        const struct remote_config *remote; /* in force; NULL: of no remote */
        struct tenancy *tenancy;            /* NULL: of no tenant */
};

/* Adds a section's options behind the cursor. `of`: the section, without an option. */
static void add_options(struct rows *rows, uint64_t section_number, enum option_section section,
        struct option_row of)
{
        const uint64_t first_id = section_number * SECTION_ROWS + 1;

        if (first_id + SECTION_ROWS <= rows->m->after)
                return;
        for (size_t i = 0; i < n_options && rows->n < ROWS_MAX; i++) {
                of.option = &options[i];
                if (of.option->section == section)
                        rows_add_copy(rows, first_id + option_index(of.option), &of, sizeof(of));
        }
}

static void add_rows(struct rows *rows, struct server *s)
{
        uint64_t number = FIRST_DEVICE;

        if (rows_want(rows, "")) {
                add_options(rows, 0, SECTION_DAEMON, (struct option_row){0});
                list_for_each (pool, &s->store.pools, struct pool, link)
                        add_options(
                                rows, number++, SECTION_DEVICE, (struct option_row){.pool = pool});
                for (size_t i = 0; i < s->config.n_remotes; i++)
                        add_options(rows, FIRST_REMOTE + i, SECTION_REMOTE,
                                (struct option_row){.remote = &s->config.remotes[i]});
        }
        list_for_each (t, &s->tenancies.list, struct tenancy, link)
                if (rows_want(rows, t->config.name))
                        add_options(rows, FIRST_TENANT + t->id, SECTION_TENANT,
                                (struct option_row){.tenancy = t});
}

/* A copy in the arena. NULL: no room. */
static char *copy_text(struct request *rq, const char *text)
{
        return arena_strdup(&rq->server->scratch.arena, text);
}

/* Values of one section: in force, and configured. */
struct section_values {
        const void *now, *configured;
        const struct origins *from;
        struct device_config device_now, device_next;
        struct remote_config remote_next;
        struct tenant_config tenant;
};

static void look_at_device(struct server *s, const char *name, struct section_values *ret)
{
        const struct device_config *next = next_config_device(&s->next, name, &ret->device_next);

        ret->now = next_config_device(&s->config, name, &ret->device_now);
        ret->configured = next;
        ret->from = &next->from;
}

static void look_at_remote(
        struct server *s, const struct remote_config *now, struct section_values *ret)
{
        const struct remote_config *next =
                next_config_remote(&s->next, now->name, &ret->remote_next);

        ret->now = now;
        ret->configured = next;
        ret->from = &next->from;
}

/* A tenant that is no longer configured stays until a reload can end it, with its values in
 * force. */
static void look_at_tenant(struct server *s, const struct tenancy *t, struct section_values *ret)
{
        bool from_config;

        if (!tenants_configured(s, &s->config, t->config.name, &ret->tenant, &from_config))
                ret->tenant = t->config;
        ret->now = &t->config;
        ret->configured = &ret->tenant;
        ret->from = &ret->tenant.from;
}

static void look_at_section(
        struct server *s, const struct option_row *row, struct section_values *ret)
{
        if (row->tenancy) {
                look_at_tenant(s, row->tenancy, ret);
        } else if (row->pool) {
                look_at_device(s, row->pool->props->name, ret);
        } else if (row->remote) {
                look_at_remote(s, row->remote, ret);
        } else {
                ret->now = &s->config.daemon;
                ret->configured = &s->next.daemon;
                ret->from = &s->next.daemon.from;
        }
}

static char *origin_text(
        struct request *rq, const struct option_row *row, const struct origins *from)
{
        const struct tenant_config *kept =
                row->tenancy ? tenantdb_find(&rq->server->db, row->tenancy->config.name) : NULL;
        char buf[CONFIG_ORIGIN_MAX];

        if (kept && (kept->set & option_bit(row->option)))
                return (char *)"kvleasectl";
        return copy_text(
                rq, config_origin(&rq->server->config, from->of[option_index(row->option)], buf));
}

static int make_option(struct request *rq, void *object, void *ret)
{
        const struct option_row *of = object;
        const struct option *o = of->option;
        struct figures_option *row = ret;
        char value[OPTION_VALUE_MAX], configured[OPTION_VALUE_MAX];
        struct section_values values;

        look_at_section(rq->server, of, &values);
        row->section = option_section_name(o->section);
        if (of->tenancy)
                row->name = of->tenancy->config.name;
        else if (of->pool)
                row->name = of->pool->props->name;
        else if (of->remote)
                row->name = of->remote->name;
        row->key = o->key;
        row->default_value = o->default_text;
        row->reloadable = o->reloadable;
        row->value = copy_text(rq, option_format(o, values.now, value));
        row->origin = origin_text(rq, of, values.from);
        row->waits = strcmp(value, option_format(o, values.configured, configured)) != 0;
        row->configured = row->waits ? copy_text(rq, configured) : NULL;
        return row->value && row->origin && (row->configured || !row->waits) ? 0 : -ENOMEM;
}

int handle_ADMIN_CONFIG(struct request *rq)
{
        struct rows rows = rows_begin_of_tenant(rq);

        add_rows(&rows, rq->server);
        return rows_fill_page(&rows, make_option, &figures_table_option);
}

/* ---- ADMIN_RELOAD ---------------------------------------------------------------------------- */

#define N_KINDS    (RELOAD_ERROR + 1)
#define KIND_BYTES (12 * 1024) /* of an answer's 64 KiB, for each kind; not tuned */

static void note_sentence(void *data, enum reload_kind kind, const char *sentence)
{
        struct sentences *of = data; /* by kind */

        sentences_add(&of[kind], "%s", sentence);
}

int handle_ADMIN_RELOAD(struct request *rq)
{
        Kvlease__V1__AdminReloadReply *reply = rq->reply;
        struct sentences of[N_KINDS];
        int r = 0;

        for (size_t i = 0; i < N_KINDS && r == 0; i++)
                r = sentences_init(&of[i], &rq->server->scratch.arena, KIND_BYTES);
        if (r < 0)
                return detail_set(&rq->detail, -ENOMEM, "no memory for the answer");
        r = reload_config(rq->server, note_sentence, of);
        reply->changes = of[RELOAD_CHANGED].texts;
        reply->n_changes = of[RELOAD_CHANGED].n;
        reply->pending = of[RELOAD_PENDING].texts;
        reply->n_pending = of[RELOAD_PENDING].n;
        reply->refused = of[RELOAD_REFUSED].texts;
        reply->n_refused = of[RELOAD_REFUSED].n;
        reply->warnings = of[RELOAD_WARNING].texts;
        reply->n_warnings = of[RELOAD_WARNING].n;
        reply->errors = of[RELOAD_ERROR].texts;
        reply->n_errors = of[RELOAD_ERROR].n;
        for (size_t i = 0; i < N_KINDS; i++)
                reply->more += (uint32_t)of[i].n_more;
        if (r < 0)
                return detail_set(&rq->detail, r,
                        "nothing was changed: the configuration can't be put in force");
        return 0;
}
