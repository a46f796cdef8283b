#include "daemon/server/services/tenant-changes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "daemon/core/life/sizing.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"

#include "daemon/server/peers/server.h"
#include "daemon/server/peers/answer.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/pending.h"
#include "daemon/server/peers/idle-interval.h"
#include "daemon/server/services/stop.h"
#include "daemon/server/peers/access.h"
#include "daemon/server/base/creds.h"
#include "daemon/server/base/log.h"
#include "daemon/server/services/tenants.h"
#include "daemon/server/peers/durable.h"
#include "daemon/server/peers/followers.h"
#include "proto/kvlease.pb-c.h"

enum change_kind { CHANGE_MAKE, CHANGE_SET, CHANGE_REMOVE };

struct tenant_change {
        struct list_link link;  /* server.tenancies.changes: the first is being written */
        struct server *server;  /* borrowed */
        struct pending pending; /* without a peer if none is to be answered */
        enum change_kind kind;
        bool force; /* of CHANGE_REMOVE */
        uid_t uid;  /* of the asking user */
        char who[PEER_WHO_MAX];
        char name[TENANT_NAME_MAX + 2]; /* one that is too long stays so */
        int refusal;                    /* after the write: the reason not to put it in force; 0 */
        struct detail detail;
        size_t n_options;
        char *options[]; /* their texts behind them */
};

/* ---- requests -------------------------------------------------------------------------------- */

/* A tenant's planned configuration, and its row in the database. */
struct plan {
        struct tenancy *tenancy; /* NULL: a new tenant */
        struct tenant_config config, row;
        bool asked;       /* the reservation is set */
        bool names_group; /* the group is set */
};

/* Lays assignments over the configuration, and the results into the row: words may be added to a
 * list of the configuration file. */
static int apply_options(struct plan *p, char *const *texts, size_t n, struct detail *d)
{
        uint64_t before = p->config.set, set;

        p->config.set = 0;
        for (size_t i = 0; i < n; i++) {
                int r = tenant_config_apply(&p->config, texts[i], d->text, sizeof(d->text));

                if (r < 0)
                        return r;
        }
        set = p->config.set;
        options_copy(SECTION_TENANT, set, &p->row, &p->config);
        p->row.set |= set;
        p->config.set |= before;
        p->asked = set & option_bit(option_find(SECTION_TENANT, "reserve"));
        p->names_group = set & option_bit(option_find(SECTION_TENANT, "group"));
        return 0;
}

static int check_name(const struct tenant_change *c, const struct tenancy *t, struct detail *d)
{
        if (!name_is_valid(c->name, TENANT_NAME_MAX))
                return detail_set(d, -EINVAL,
                        "a tenant's name is 1 to %d of A-Z a-z 0-9 . _ - and starts with none of . -",
                        TENANT_NAME_MAX);
        if (c->kind == CHANGE_MAKE && t)
                return detail_set(d, -EEXIST,
                        "tenant %s exists already: change it with kvleasectl tenants set", c->name);
        if (c->kind == CHANGE_SET && !t)
                return detail_set(
                        d, -ENOENT, "no tenant %s: make it with kvleasectl tenants add", c->name);
        return 0;
}

static int make_plan(const struct tenant_change *c, struct plan *ret, struct detail *d)
{
        const struct tenant_config *stored = tenantdb_find(&c->server->db, c->name);
        struct tenancy *t = tenancy_find(c->server, c->name);
        int r = check_name(c, t, d);

        if (r < 0)
                return r;
        ret->tenancy = t;
        tenant_config_init(&ret->config, c->name);
        ret->row = stored ? *stored : ret->config;
        if (t)
                ret->config = t->config;
        return apply_options(ret, c->options, c->n_options, d);
}

/* Checks for tenant_remove(), before anything is written. */
static int check_removable(const struct tenancy *t, bool force, struct detail *d)
{
        const struct tenant *core = t->tenant;

        if (t->from_config)
                return detail_set(d, -EBUSY,
                        "tenant %s comes from the configuration file: remove its section there, then reload kvleased (SIGHUP)",
                        t->config.name);
        if (core->n_members > 0)
                return detail_set(d, -EBUSY, "tenant %s has %u clients: stop them first",
                        t->config.name, core->n_members);
        if (!list_is_empty(&core->groups))
                return tenant_refuse_leaving(core, d);
        if (!force && !list_is_empty(&core->namespaces))
                return tenant_refuse_namespaces(core, d);
        return 0;
}

static int find_removable(
        const struct tenant_change *c, struct tenancy **ret_tenancy, struct detail *d)
{
        *ret_tenancy = tenancy_find(c->server, c->name);
        if (!*ret_tenancy)
                return detail_set(d, -ENOENT, "no tenant %s", c->name);
        return check_removable(*ret_tenancy, c->force, d);
}

/* ---- reports --------------------------------------------------------------------------------- */

static const char *verb_of(const struct tenant_change *c)
{
        static const char *const verbs[] = {
                [CHANGE_MAKE] = "made", [CHANGE_SET] = "changed", [CHANGE_REMOVE] = "removed"};

        return verbs[c->kind];
}

/* Notes a change with its values, as far as they fit. */
static void note_tenant(const struct tenant_change *c)
{
        char text[EVENT_LOG_DETAIL_MAX + 1] = "";
        size_t len = 0;

        for (size_t i = 0; i < c->n_options && len < sizeof(text); i++)
                len += (size_t)snprintf(
                        text + len, sizeof(text) - len, "%s%s", i > 0 ? " " : "", c->options[i]);
        server_note(c->server, &(struct event_note){.kind = EVENT_TENANT,
                                       .tenant = c->name,
                                       .reason = verb_of(c),
                                       .detail = text});
}

static void tell_log(const struct tenant_change *c)
{
        static const enum log_message_name ids[] = {[CHANGE_MAKE] = LOG_TENANT_MADE,
                [CHANGE_SET] = LOG_TENANT_CHANGED,
                [CHANGE_REMOVE] = LOG_TENANT_REMOVED};
        char uid[16];

        snprintf(uid, sizeof(uid), "%u", (unsigned)c->uid);
        log_message(ids[c->kind], LOG_FIELDS({"TENANT", c->name}, {"PEER_UID", uid}),
                "tenant %s was %s by uid %s", c->name, verb_of(c), uid);
        note_tenant(c);
        if (c->kind != CHANGE_SET)
                status_notify(c->server);
}

/* 0 also without such a tenant. */
static uint64_t reserved_bytes(const struct tenant_change *c)
{
        const struct tenant *t = tenant_find(&c->server->store, c->name);

        return t ? sizing_reserved(t) : 0;
}

static void note_reserve(const struct tenant_change *c, uint64_t before_bytes)
{
        uint64_t bytes = reserved_bytes(c);

        if (bytes != before_bytes)
                server_note(c->server, &(struct event_note){.kind = EVENT_RESIZED,
                                               .tenant = c->name,
                                               .reason = "set",
                                               .before_bytes = before_bytes,
                                               .bytes = bytes});
}

/* Logs a tenant that is too small. The administrator learns it from ADMIN_TENANTS, which kvleasectl
 * requests after a change. */
static void warn_small(const struct tenant_change *c)
{
        const struct tenancy *t = tenancy_find(c->server, c->name);
        struct detail d;

        if (t && tenant_room_check(t, &d) < 0)
                log_warning("%s", d.text);
}

/* ---- one after the other --------------------------------------------------------------------- */

static void begin_next(struct server *s);

/* Answers and frees the change. A removal is durable once disks have dropped the tenant's pages. */
static void end_change(struct tenant_change *c, int code)
{
        struct peer *p = c->pending.peer;
        Kvlease__V1__SimpleReply reply = KVLEASE__V1__SIMPLE_REPLY__INIT;
        struct request rq = {
                .server = c->server, .peer = p, .reply = &reply, .header = &c->pending.request};

        list_remove(&c->link);
        c->server->tenancies.n_changes--;
        if (p) {
                pending_remove(&c->pending);
                rq.detail = c->detail;
                if (code == 0 && c->kind == CHANGE_REMOVE)
                        code = durable_answer(&rq);
                if (!rq.is_deferred)
                        answer_end(p, rq.header, &reply.base, code, rq.detail.text);
                peer_schedule(p);
        }
        free(c);
}

static void end_and_go_on(struct tenant_change *c, int code)
{
        struct server *s = c->server;

        end_change(c, code);
        begin_next(s);
        peers_note_drained(s); /* a stop may have waited for it */
}

/* Appends the reason why the tenant can currently lease nothing. */
static void tell_no_room(const struct tenancy *t, struct detail *d)
{
        size_t len = strlen(d->text);
        struct detail room;

        if (tenant_room_check(t, &room) < 0)
                snprintf(d->text + len, sizeof(d->text) - len, "%s%s", len > 0 ? "; " : "",
                        room.text);
}

/* Checks again, as other state may have changed during the write. */
static int put_in_force(struct tenant_change *c, struct detail *d)
{
        struct access_config before;
        struct tenancy *t;
        struct plan plan;
        int r;

        if (c->kind == CHANGE_REMOVE) {
                r = find_removable(c, &t, d);
                return r < 0 ? r : tenancy_remove(t, c->force, d);
        }
        r = make_plan(c, &plan, d);
        if (r < 0)
                return r;
        if (c->kind == CHANGE_MAKE) {
                d->text[0] = '\0';
                r = tenancy_add(c->server, &plan.config, false, &t, d);
                if (r == 0)
                        tell_no_room(t, d);
                return r;
        }
        before = plan.tenancy->config.access;
        r = tenancy_change(plan.tenancy, &plan.config, plan.asked, d);
        if (r == 0) {
                access_tell_change(c->name, &before, &plan.config.access, d);
                tell_no_room(plan.tenancy, d);
        }
        return r;
}

static void on_written(struct tenant_change *c)
{
        struct server *s = c->server;
        uint64_t reserved = reserved_bytes(c);

        idle_interval_end(s);
        store_set_now(&s->store, server_now(s));
        s->store.event_log.by = c->who;
        c->refusal = put_in_force(c, &c->detail);
        if (c->refusal < 0) {
                s->store.event_log.by = NULL;
                tenantdb_undo(&s->db, c->refusal);
                return;
        }
        tenantdb_keep(&s->db);
        tell_log(c);
        if (c->kind != CHANGE_REMOVE) {
                note_reserve(c, reserved);
                warn_small(c);
        }
        s->store.event_log.by = NULL;
        loop_kick(&s->loop);
        end_and_go_on(c, 0);
}

/* The change was refused, and the file is restored. If it isn't, an administrator must be told. */
static void on_refused(struct tenant_change *c, int result)
{
        if (c->refusal == 0)
                tenantdb_explain(&c->server->db, result, &c->detail);
        if (c->server->db.is_torn)
                log_error("%s still has the refused change of tenant %s: the next start would find "
                          "it; change a tenant once there is room, or correct it by hand",
                        c->server->db.path, c->name);
        end_and_go_on(c, result);
}

/* Tenants and clients have ended: no change is put in force any more. */
static void end_all(struct server *s)
{
        struct tenant_change *c;

        while ((c = list_first(&s->tenancies.changes, struct tenant_change, link)))
                end_change(c, -ECANCELED);
}

static void on_done(void *data, int result)
{
        struct tenant_change *c = data;
        struct server *s = c->server;

        if (s->life.leaving) {
                if (result == 0)
                        tenantdb_keep(&s->db);
                end_all(s);
        } else if (result == 0) {
                on_written(c);
        } else {
                on_refused(c, result);
        }
}

/* The tenant's group must exist. In a configuration file a missing group only causes a warning, as
 * the host may get it later. With a command, the socket has to be reachable now. */
static int check_group(const char *name, struct detail *d)
{
        gid_t gid;

        if (!name[0] || group_number(name, &gid) == 0)
                return 0;
        return detail_set(d, -EINVAL,
                "there is no group %s, to which the tenant's socket could be given: make it with groupadd --system %s",
                name, name);
}

/* Begins to write the change. Returns 0, or -errno. */
static int begin_change(struct tenant_change *c, struct detail *d)
{
        struct tenantdb *db = &c->server->db;
        struct tenancy *t;
        struct plan plan;
        int r;

        if (c->kind == CHANGE_REMOVE) {
                r = find_removable(c, &t, d);
                return r < 0 ? r : tenantdb_remove(db, c->name, on_done, c, d);
        }
        r = make_plan(c, &plan, d);
        if (r == 0 && plan.names_group)
                r = check_group(plan.config.access.group, d);
        if (r == 0)
                r = tenancy_check(c->server, &plan.config, d);
        return r < 0 ? r : tenantdb_put(db, &plan.row, on_done, c, d);
}

static void begin_next(struct server *s)
{
        struct tenant_change *c;
        int r = -1;

        while (r < 0 && (c = list_first(&s->tenancies.changes, struct tenant_change, link))) {
                r = begin_change(c, &c->detail);
                if (r < 0)
                        end_change(c, r);
        }
}

/* ---- requests -------------------------------------------------------------------------------- */

/* NULL: no memory. */
static struct tenant_change *new_change(
        const struct request *rq, const char *name, char *const *texts, size_t n_texts)
{
        size_t size = sizeof(struct tenant_change) + n_texts * sizeof(char *);
        struct tenant_change *c;
        char *text;

        for (size_t i = 0; i < n_texts; i++)
                size += strlen(texts[i]) + 1;
        c = calloc(1, size);
        if (!c)
                return NULL;
        c->server = rq->server;
        c->uid = rq->peer->identity.uid;
        snprintf(c->who, sizeof(c->who), "%s", rq->peer->identity.who);
        snprintf(c->name, sizeof(c->name), "%s", name);
        c->n_options = n_texts;
        text = (char *)(c->options + n_texts);
        for (size_t i = 0; i < n_texts; i++) {
                c->options[i] = text;
                text = stpcpy(text, texts[i]) + 1;
        }
        return c;
}

static struct tenant_change *new_change_of(const struct request *rq)
{
        const Kvlease__V1__AdminTenantRemoveRequest *removal = rq->message;
        const Kvlease__V1__AdminTenantSetRequest *set = rq->message;
        struct tenant_change *c;

        if (rq->header->type == MSG_ADMIN_TENANT_REMOVE) {
                c = new_change(rq, removal->name, NULL, 0);
                if (c) {
                        c->kind = CHANGE_REMOVE;
                        c->force = removal->force;
                }
                return c;
        }
        c = new_change(rq, set->name, set->options, set->n_options);
        if (c)
                c->kind = set->create ? CHANGE_MAKE : CHANGE_SET;
        return c;
}

static const struct pending_ops pending_ops = {PENDING_TENANT, pending_remove, NULL, NULL};

int tenant_changes_ask(struct request *rq)
{
        struct server *s = rq->server;
        struct tenant_change *c;
        int r = 0;

        if (s->tenancies.n_changes == TENANT_CHANGES_MAX)
                return detail_set(&rq->detail, -EAGAIN,
                        "%d changes of tenants wait for the disk, the most there may be: ask again when some are answered",
                        TENANT_CHANGES_MAX);
        c = new_change_of(rq);
        if (!c)
                return detail_set(&rq->detail, -ENOMEM, "out of memory: nothing was changed");
        list_init(&c->link);
        if (list_is_empty(&s->tenancies.changes))
                r = begin_change(c, &rq->detail);
        if (r < 0) {
                free(c);
                return r;
        }
        list_append(&s->tenancies.changes, &c->link);
        s->tenancies.n_changes++;
        pending_defer(&c->pending, rq, &pending_ops, 0);
        return 0;
}

void tenant_changes_init(struct server *s)
{
        list_init(&s->tenancies.changes);
}

bool tenant_changes_are_left(const struct server *s)
{
        return s->tenancies.n_changes > 0;
}
