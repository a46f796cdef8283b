/*
 * Lists of administration, a page at a time. Rows come in order of an id that is never reused; the
 * cursor is the id of the last row sent, so that what comes and goes between two pages repeats
 * nothing.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/parse.h"
#include "daemon/core/group.h"
#include "daemon/core/magazine.h"
#include "daemon/core/ns.h"
#include "daemon/core/store.h"
#include "daemon/core/tenant.h"
#include "daemon/server/dispatch.h"
#include "daemon/server/listener.h"
#include "daemon/server/queues.h"
#include "daemon/server/server.h"
#include "daemon/server/tenants.h"
#include "proto/arena.h"
#include "proto/kvlease.pb-c.h"

/* Bytes of rows in one reply: three quarters of a frame, so that the last row always fits. */
#define PAGE_BYTES (48 * 1024)

/* Objects to list, by id. */
struct row {
        uint64_t id;
        void *object; /* borrowed */
};

struct rows {
        struct row *rows; /* owned */
        size_t n, size;
};

/* A reply's list as it fills; all of it borrowed from the arena. */
struct list_page {
        ProtobufCMessage **messages;
        size_t n, bytes;
        uint64_t next;
};

static int rows_add(struct rows *r, uint64_t id, void *object)
{
        if (r->n == r->size) {
                size_t size = r->size ? 2 * r->size : 64;
                struct row *rows = realloc(r->rows, size * sizeof(*rows));

                if (!rows)
                        return -ENOMEM;
                r->rows = rows;
                r->size = size;
        }
        r->rows[r->n++] = (struct row){id, object};
        return 0;
}

static int compare_rows(const void *a, const void *b)
{
        const struct row *x = a, *y = b;

        return (x->id > y->id) - (x->id < y->id);
}

/* Makes the message of one object in the arena. NULL: no room. */
typedef ProtobufCMessage *(*make_fn)(struct request *rq, void *object);

/* Fills *ret_page with the rows from the cursor on that fit; frees the rows. 0 or -ENOMEM. */
static int fill_page(
        struct request *rq, struct rows *rows, make_fn make, struct list_page *ret_page)
{
        struct arena *arena = &rq->server->arena;
        struct list_page page = {.messages = arena_alloc(arena, rows->n * sizeof(void *))};
        int r = page.messages || rows->n == 0 ? 0 : -ENOMEM;

        if (rows->n > 0)
                qsort(rows->rows, rows->n, sizeof(*rows->rows), compare_rows);
        for (size_t i = 0; i < rows->n && r == 0; i++) {
                ProtobufCMessage *m = make(rq, rows->rows[i].object);
                size_t bytes = m ? protobuf_c_message_get_packed_size(m) + 8 : 0;

                if (!m && page.n == 0)
                        r = -ENOMEM;
                if (!m || page.bytes + bytes > PAGE_BYTES) {
                        page.next = i > 0 ? rows->rows[i - 1].id : 0;
                        break;
                }
                page.messages[page.n++] = m;
                page.bytes += bytes;
        }
        free(rows->rows);
        *ret_page = page;
        return r;
}

/* Whether the request wants what is of this tenant. */
static bool wants(const Kvlease__V1__AdminListRequest *m, const char *tenant)
{
        return !*m->tenant || strcmp(m->tenant, tenant) == 0;
}

static int check_tenant(struct request *rq, const Kvlease__V1__AdminListRequest *m)
{
        if (!*m->tenant || tenant_find(&rq->server->store, m->tenant))
                return 0;
        return detail_set(
                &rq->detail, -ENOENT, "no tenant %.64s: kvleasectl tenants lists them", m->tenant);
}

static const char *transport_name(enum device_transport transport)
{
        switch (transport) {
        case TRANSPORT_MEMFD:
                return "memfd";
        case TRANSPORT_VMM:
                return "vmm";
        case TRANSPORT_CUDAIPC:
                return "cudaipc";
        }
        return "unknown";
}

static ProtobufCMessage *make_device(struct request *rq, void *object)
{
        struct pool *pool = object;
        const struct device_props *props = pool->props;
        Kvlease__V1__AdminDevice *row = arena_alloc(&rq->server->arena, sizeof(*row));

        if (!row)
                return NULL;
        kvlease__v1__admin_device__init(row);
        row->name = (char *)props->name;
        row->backend = (char *)props->backend;
        row->budget_bytes = pool->account.limit_bytes;
        row->charged_bytes = pool->account.charged_bytes;
        row->extent_bytes = pool->extent_bytes;
        row->n_sets = pool->n_sets;
        row->total_bytes = props->total_bytes;
        row->transport = (char *)transport_name(props->transport);
        row->state = (char *)queues_state(pool);
        row->why = pool->why;
        row->n_preparing = pool->n_preparing;
        return &row->base;
}

int handle_ADMIN_DEVICES(struct request *rq)
{
        const Kvlease__V1__AdminListRequest *m = rq->message;
        Kvlease__V1__AdminDevicesReply *reply = rq->reply;
        struct rows rows = {0};
        struct list_page page = {0};
        uint64_t id = 0;
        int r = 0;

        list_for_each (pool, &rq->server->store.pools, struct pool, link)
                if (++id > m->after && r == 0)
                        r = rows_add(&rows, id, pool);
        if (r == 0)
                r = fill_page(rq, &rows, make_device, &page);
        else
                free(rows.rows);
        reply->devices = (Kvlease__V1__AdminDevice **)page.messages;
        reply->n_devices = page.n;
        reply->next = page.next;
        return r;
}

static void count_tenant_pages(const struct tenant *t, Kvlease__V1__AdminTenant *row)
{
        list_for_each (ns, &t->namespaces, struct ns, link) {
                row->n_namespaces++;
                row->pages_granted += ns->n_pages[PAGE_GRANTED] - ns->n_ready;
                row->pages_sealed += ns->n_pages[PAGE_SEALED];
                row->pages_detached += ns->n_pages[PAGE_DETACHED];
        }
}

static ProtobufCMessage *make_tenant(struct request *rq, void *object)
{
        struct arena *arena = &rq->server->arena;
        struct tenancy *t = object;
        Kvlease__V1__AdminTenant *row = arena_alloc(arena, sizeof(*row));
        char *path = row ? arena_alloc(arena, LISTENER_PATH_MAX) : NULL;

        if (!path)
                return NULL;
        kvlease__v1__admin_tenant__init(row);
        row->name = t->config.name;
        row->limit_bytes = t->tenant->account.limit_bytes;
        row->weight = t->config.weight;
        row->priority = t->config.priority;
        row->max_clients = t->config.max_clients;
        row->charged_bytes = t->tenant->account.charged_bytes;
        row->n_clients = t->tenant->n_members;
        row->socket_path = listener_tenant_path(rq->server, t->config.name, path);
        row->source = (char *)(t->from_config ? "config" : "admin");
        row->evictions = t->tenant->counters.evictions;
        row->recalled_sets = t->tenant->n_recalled;
        row->refusals = t->tenant->counters.refusals;
        row->uids = t->config.uids.text;
        row->gids = t->config.gids.text;
        row->group = t->config.group;
        count_tenant_pages(t->tenant, row);
        return &row->base;
}

int handle_ADMIN_TENANTS(struct request *rq)
{
        const Kvlease__V1__AdminListRequest *m = rq->message;
        Kvlease__V1__AdminTenantsReply *reply = rq->reply;
        struct rows rows = {0};
        struct list_page page = {0};
        int r = check_tenant(rq, m);

        list_for_each (t, &rq->server->tenancies, struct tenancy, link)
                if (r == 0 && t->id > m->after && wants(m, t->config.name))
                        r = rows_add(&rows, t->id, t);
        if (r == 0)
                r = fill_page(rq, &rows, make_tenant, &page);
        else
                free(rows.rows);
        reply->tenants = (Kvlease__V1__AdminTenant **)page.messages;
        reply->n_tenants = page.n;
        reply->next = page.next;
        return r;
}

/* Borrows from the namespace. NULL: no room. */
static Kvlease__V1__NsLayout *make_layout(struct arena *arena, struct ns_layout *l)
{
        Kvlease__V1__NsLayout *m = arena_alloc(arena, sizeof(*m));

        if (!m)
                return NULL;
        kvlease__v1__ns_layout__init(m);
        m->model = l->model;
        m->version = l->version;
        m->dtype = l->dtype;
        m->n_layers = l->n_layers;
        m->n_kv_heads = l->n_kv_heads;
        m->head_size = l->head_size;
        m->page_tokens = l->page_tokens;
        m->n_planes = l->n_planes;
        m->plane_page_bytes = l->plane_page_bytes;
        m->tp_rank = l->tp_rank;
        m->tp_size = l->tp_size;
        m->layer_group = l->layer_group;
        m->salt.data = l->salt;
        m->salt.len = l->salt_len;
        return m;
}

static uint32_t count_attachments(const struct ns *ns)
{
        uint32_t n = 0;

        list_for_each (a, &ns->attachments, struct attach, ns_link)
                n++;
        return n;
}

static ProtobufCMessage *make_ns(struct request *rq, void *object)
{
        struct arena *arena = &rq->server->arena;
        struct ns *ns = object;
        Kvlease__V1__AdminNamespace *row = arena_alloc(arena, sizeof(*row));
        Kvlease__V1__NsLayout *layout = row ? make_layout(arena, &ns->layout) : NULL;

        if (!layout)
                return NULL;
        kvlease__v1__admin_namespace__init(row);
        row->tenant = ns->tenant->name;
        row->name = ns->name;
        row->layout = layout;
        row->device = (char *)ns->pool->props->name;
        row->epoch = ns->epoch;
        row->charged_bytes = ns_charged_bytes(ns);
        row->n_sets = ns->n_sets;
        row->pages_free = ns->n_pages[PAGE_FREE];
        row->pages_granted = ns->n_pages[PAGE_GRANTED] - ns->n_ready;
        row->pages_ready = ns->n_ready;
        row->pages_sealed = ns->n_pages[PAGE_SEALED];
        row->pages_pinned = ns_find_pinned(ns, NULL, NULL);
        row->pages_detached = ns->n_pages[PAGE_DETACHED];
        row->n_clients = count_attachments(ns);
        row->capacity_pages = ns->geometry.capacity_pages;
        row->set_pages = ns->geometry.set_pages;
        row->hits = ns->counters.hits;
        row->keys = ns->counters.keys;
        return &row->base;
}

int handle_ADMIN_NAMESPACES(struct request *rq)
{
        const Kvlease__V1__AdminListRequest *m = rq->message;
        Kvlease__V1__AdminNamespacesReply *reply = rq->reply;
        struct rows rows = {0};
        struct list_page page = {0};
        int r = check_tenant(rq, m);

        list_for_each (t, &rq->server->store.tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        if (r == 0 && ns->id > m->after && wants(m, t->name))
                                r = rows_add(&rows, ns->id, ns);
        if (r == 0)
                r = fill_page(rq, &rows, make_ns, &page);
        else
                free(rows.rows);
        reply->namespaces = (Kvlease__V1__AdminNamespace **)page.messages;
        reply->n_namespaces = page.n;
        reply->next = page.next;
        return r;
}

/* Enough of a hash to tell groups apart; the token itself is a capability. Seeded anew at each
 * start. */
static char *group_label(struct request *rq, const struct group *g)
{
        struct hash_seed seed = {rq->server->store.boot_epoch, 0};
        uint64_t hash = hash_bytes(seed, g->token, GROUP_TOKEN_BYTES);
        char *text = arena_alloc(&rq->server->arena, 9);

        return text ? format_hex(&hash, 4, text) : NULL;
}

/* Without what lies unclaimed in its members' magazines. */
static uint64_t granted_pages(const struct group *g)
{
        uint64_t n = 0;

        list_for_each (grants, &g->grants, struct grants, link)
                n += grants->n_pages;
        list_for_each (m, &g->members, struct member, link)
                list_for_each (a, &m->attachments, struct attach, member_link)
                        if (a->magazine)
                                n -= a->magazine->n_pages;
        return n;
}

static ProtobufCMessage *make_client(struct request *rq, void *object)
{
        struct peer *p = object;
        Kvlease__V1__AdminClient *row = arena_alloc(&rq->server->arena, sizeof(*row));
        char *group = row ? group_label(rq, p->member->group) : NULL;

        if (!group)
                return NULL;
        kvlease__v1__admin_client__init(row);
        row->client_id = p->member->id;
        row->tenant = p->tenancy->config.name;
        row->name = p->name;
        row->pid = (uint32_t)p->pid;
        row->uid = p->uid;
        row->state = (char *)peer_state_name(p);
        row->metadata_only = p->member->metadata_only;
        row->group = group;
        row->pages_granted = granted_pages(p->member->group);
        row->pins = member_count_pins(p->member);
        row->mapped_sets = p->member->n_mapped_sets;
        row->requests = p->n_requests;
        row->violations = p->n_violations;
        row->quarantined_sets = p->member->n_quarantined_sets;
        row->connected_sec = (clock_now_nsec() - p->connected_nsec) / NSEC_PER_SEC;
        return &row->base;
}

int handle_ADMIN_CLIENTS(struct request *rq)
{
        const Kvlease__V1__AdminListRequest *m = rq->message;
        Kvlease__V1__AdminClientsReply *reply = rq->reply;
        struct rows rows = {0};
        struct list_page page = {0};
        int r = check_tenant(rq, m);

        list_for_each (p, &rq->server->peers, struct peer, link)
                if (r == 0 && p->member && p->member->id > m->after &&
                        wants(m, p->tenancy->config.name))
                        r = rows_add(&rows, p->member->id, p);
        if (r == 0)
                r = fill_page(rq, &rows, make_client, &page);
        else
                free(rows.rows);
        reply->clients = (Kvlease__V1__AdminClient **)page.messages;
        reply->n_clients = page.n;
        reply->next = page.next;
        return r;
}
