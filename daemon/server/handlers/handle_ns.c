/* NS_OPEN, NS_CLOSE, MAP, UNMAPPED, INVALIDATE. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/core/cache/drop.h"
#include "daemon/core/clients/attach.h"
#include "daemon/exchange/exchange.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/life/open.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/store.h"
#include "daemon/core/requests/invalidate.h"
#include "daemon/core/state/feed.h"
#include "daemon/server/handlers/handlers.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/descriptors.h"
#include "daemon/server/peers/drops.h"
#include "daemon/server/peers/durable.h"
#include "daemon/server/peers/parked.h"
#include "proto/arena.h"
#include "proto/kvlease.pb-c.h"
#include "proto/status.h"

static int take_text(
        struct request *rq, const char *field, const char *text, char *ret, size_t size)
{
        size_t len = strlen(text);

        if (len >= size)
                return detail_set(&rq->detail, -EINVAL,
                        "layout.%s has %zu bytes, at most %zu are allowed", field, len, size - 1);
        memcpy(ret, text, len + 1);
        return 0;
}

static int take_bytes(struct request *rq, const char *field, const ProtobufCBinaryData *bytes,
        size_t max, uint8_t *ret, uint32_t *ret_len)
{
        if (bytes->len > max)
                return detail_set(&rq->detail, -EINVAL,
                        "layout.%s has %zu bytes, at most %zu are allowed", field, bytes->len, max);
        *ret_len = (uint32_t)bytes->len;
        if (bytes->len > 0)
                memcpy(ret, bytes->data, bytes->len);
        return 0;
}

/* From the wire; ranges of numbers are ns_layout_check()'s. */
static int take_layout(struct request *rq, const Kvlease__V1__NsLayout *m, struct ns_layout *ret)
{
        int r;

        if (!m)
                return detail_set(&rq->detail, -EINVAL, "a namespace needs a layout");
        *ret = (struct ns_layout){
                .dtype = m->dtype,
                .n_layers = m->n_layers,
                .n_kv_heads = m->n_kv_heads,
                .head_size = m->head_size,
                .page_tokens = m->page_tokens,
                .n_planes = m->n_planes,
                .plane_page_bytes = m->plane_page_bytes,
                .tp_rank = m->tp_rank,
                .tp_size = m->tp_size,
                .layer_group = m->layer_group,
        };
        r = take_text(rq, "model", m->model, ret->model, sizeof(ret->model));
        if (r == 0)
                r = take_text(rq, "version", m->version, ret->version, sizeof(ret->version));
        if (r == 0)
                r = take_bytes(rq, "salt", &m->salt, NS_SALT_MAX, ret->salt, &ret->salt_len);
        if (r == 0)
                r = take_bytes(
                        rq, "format", &m->format, NS_FORMAT_MAX, ret->format, &ret->format_len);
        return r;
}

/* `tier`: "host" or "disk". */
static int take_codecs(struct request *rq, const char *tier, uint32_t number, const char *layers,
        uint32_t n_layers, struct codec_layers *ret)
{
        if ((number == CODEC_BY_LAYER) != (layers[0] != '\0'))
                return detail_set(&rq->detail, -EINVAL,
                        "%s_layer_codecs goes with %s_codec %d (by layer), and with no other one",
                        tier, tier, CODEC_BY_LAYER);
        if (number == CODEC_BY_LAYER)
                return codec_layers_parse(layers, n_layers, ret, &rq->detail);
        if (number >= N_CODECS)
                return detail_set(&rq->detail, -EINVAL,
                        "%s_codec is %u: 0 (none), 1 (int8), 2 (fp8), 3 (int4) and %d (by layer) are known",
                        tier, number, CODEC_BY_LAYER);
        *ret = codec_layers_all((enum codec)number);
        return 0;
}

static void fill_tier(Kvlease__V1__Tier *m, const struct ns_geometry *g, enum tier_kind kind)
{
        const struct tier_geometry *t = &g->tiers[kind];
        bool is_device = kind == TIER_DEVICE;

        kvlease__v1__tier__init(m);
        m->kind = kind;
        m->first_page = is_device ? 0 : tier_first_page(g, kind);
        m->n_pages = is_device ? geometry_device_slots(g) * g->set_pages : tier_n_pages(g, kind);
        m->page_bytes = is_device ? t->stored_bytes * t->n_extents : t->stored_bytes;
        m->is_readable = kind == TIER_HOST && t->codec == CODEC_NONE;
        m->extent_bytes = kind == TIER_HOST ? t->extent_bytes : 0;
}

/* Allocates the reply's rows in the arena, before anything is done. NULL: no memory. */
static Kvlease__V1__Tier **make_tiers(struct request *rq)
{
        Kvlease__V1__Tier **tiers =
                arena_alloc(&rq->server->scratch.arena, TIER_COUNT * sizeof(*tiers));

        for (unsigned i = 0; tiers && i < TIER_COUNT; i++) {
                tiers[i] = arena_alloc(&rq->server->scratch.arena, sizeof(*tiers[i]));
                if (!tiers[i])
                        return NULL;
        }
        return tiers;
}

static void fill_tiers(Kvlease__V1__NsOpenReply *reply, const struct ns_geometry *g)
{
        for (unsigned kind = 0; kind < TIER_COUNT; kind++)
                if (g->tiers[kind].n_sets > 0)
                        fill_tier(reply->tiers[reply->n_tiers++], g, (enum tier_kind)kind);
}

int handle_NS_OPEN(struct request *rq)
{
        const Kvlease__V1__NsOpenRequest *m = rq->message;
        Kvlease__V1__NsOpenReply *reply = rq->reply;
        struct attach_options o = {
                .device = m->device,
                .keep_page_zero = m->keep_page_zero,
                .set = m->set,
                .set_size = m->set_size,
                .expire_nsec = m->expire_sec * NSEC_PER_SEC,
                .frame = rq->header->seq,
                .stride_bytes = m->stride_bytes,
        };
        struct ns_layout layout;
        struct attach *a;
        int r = take_layout(rq, m->layout, &layout);

        if (r == 0)
                r = take_codecs(rq, "host", m->host_codec, m->host_layer_codecs, layout.n_layers,
                        &o.host_codecs);
        if (r == 0)
                r = take_codecs(rq, "disk", m->disk_codec, m->disk_layer_codecs, layout.n_layers,
                        &o.disk_codecs);
        o.names_host_codecs = m->host_codec != CODEC_NONE;
        o.names_disk_codecs = m->disk_codec != CODEC_NONE;
        reply->tiers = make_tiers(rq);
        if (r == 0 && !reply->tiers)
                r = -ENOMEM;
        if (r == 0)
                r = descriptors_admit_ns(rq->peer->tenancy,
                        ns_find(rq->peer->tenancy->tenant, m->name), &rq->detail);
        if (r == 0)
                r = attach_open_with(rq->peer->member, m->name, &layout, &o, &a, &rq->detail);
        if (r != 0)
                return r;
        reply->ns_id = a->id;
        reply->epoch = a->ns->epoch;
        reply->capacity_pages = a->ns->geometry.capacity_pages;
        reply->set_pages = a->ns->geometry.set_pages;
        reply->extent_bytes = a->ns->geometry.extent_bytes;
        reply->device = (char *)a->ns->device.pool->props->name;
        reply->members = (char *)a->ns->device.pool->props->members;
        reply->transport = a->ns->device.pool->props->transport;
        reply->address = a->ns->address;
        reply->stride_bytes = geometry_stride(&a->ns->geometry);
        reply->huge_pages = a->ns->device.pool->props->huge_pages;
        reply->null_set = geometry_has_null_set(&a->ns->geometry);
        reply->imports = exchange_has_ns(a->ns, NULL);
        reply->events = feed_is_on(&a->ns->feed);
        fill_tiers(reply, &a->ns->geometry);
        /* Another version may have retired the old contents. */
        loop_kick(&rq->server->loop);
        return 0;
}

int handle_NS_CLOSE(struct request *rq)
{
        const Kvlease__V1__NsCloseRequest *m = rq->message;

        parked_cancel(rq->peer, m->ns_id);
        pending_cancel(rq->peer, m->ns_id);
        loop_kick(&rq->server->loop);
        return drops_close(rq);
}

int handle_UNMAPPED(struct request *rq)
{
        const Kvlease__V1__UnmappedRequest *m = rq->message;

        return attach_unmapped(rq->attach, m->set_index, &rq->detail);
}

int handle_MAP(struct request *rq)
{
        const Kvlease__V1__MapRequest *m = rq->message;
        Kvlease__V1__MapReply *reply = rq->reply;
        struct extent_handle handles[FRAME_MAX_FDS];
        struct attach *a = rq->attach;
        uint32_t most = FRAME_MAX_FDS;
        uint8_t *bytes;
        int n;

        bytes = arena_alloc(
                &rq->server->scratch.arena, (size_t)FRAME_MAX_FDS * DEVICE_HANDLE_BYTES);
        if (!bytes)
                return -ENOMEM;
        if (m->n_planes > 0)
                most = MIN(most, m->n_planes);
        n = attach_map_set(a, m->set_index, m->first_plane, most, handles, &rq->detail);
        if (n < 0)
                return n;
        reply->n_planes = (uint32_t)n;
        for (int i = 0; i < n; i++)
                if (handles[i].fd >= 0)
                        rq->fds[rq->n_fds++] = handles[i].fd;
                else
                        memcpy(bytes + i * DEVICE_HANDLE_BYTES, handles[i].bytes,
                                DEVICE_HANDLE_BYTES);
        if (rq->n_fds == 0) {
                reply->handles.data = bytes;
                reply->handles.len = (size_t)n * DEVICE_HANDLE_BYTES;
        }
        return 0;
}

int handle_INVALIDATE(struct request *rq)
{
        const Kvlease__V1__InvalidateRequest *m = rq->message;
        Kvlease__V1__CountReply *reply = rq->reply;
        struct attach *a = rq->attach;
        struct drop drop;
        int r;

        if (m->key.len != 0 && m->key.len != KEY_BYTES)
                return detail_set(&rq->detail, -EINVAL, "key has %zu bytes, not %d or none",
                        m->key.len, KEY_BYTES);
        if (m->key.len > 0 && m->tag != 0)
                return detail_set(&rq->detail, -EINVAL, "both a key and a tag: one of them");
        if (m->mismatch && (m->key.len > 0 || m->tag != 0))
                return detail_set(&rq->detail, -EINVAL,
                        "a mismatch with a key or a tag: it invalidates the whole namespace");
        r = durable_check(rq);
        if (r < 0)
                return r;
        loop_kick(&rq->server->loop);
        if (m->tag == 0 && m->key.len == 0) {
                r = a->version_epoch == a->ns->version_epoch
                            ? ns_invalidate(a->ns, m->mismatch ? CAUSE_MISMATCH : CAUSE_NAMESPACE,
                                      &reply->count)
                            : KVL_STATUS_STALE;
                return r == 0 ? durable_answer(rq) : r;
        }
        r = m->tag != 0 ? drop_tag(&drop, a, m->tag, &rq->detail)
                        : drop_key(&drop, a, m->key.data, &rq->detail);
        return r == 0 ? drops_answer(rq, &drop) : r;
}

int request_find_attach(struct request *rq)
{
        const ProtobufCMessageDescriptor *d = ((const ProtobufCMessage *)rq->message)->descriptor;
        const ProtobufCFieldDescriptor *first = d->fields;
        uint32_t ns_id;

        if (d->n_fields == 0 || strcmp(first->name, "ns_id") != 0 ||
                d == &kvlease__v1__resume_ns_request__descriptor) /* it has its own sentence */
                return 0;
        ns_id = *(const uint32_t *)(const void *)((const char *)rq->message + first->offset);
        rq->attach = attach_find(rq->peer->member, ns_id);
        if (rq->attach)
                return 0;
        return detail_set(&rq->detail, -ENOENT,
                "no namespace with ns_id %u is open on this connection", ns_id);
}

struct tenant *request_tenant(struct request *rq, const char *name)
{
        struct tenant *t = tenant_find(&rq->server->store, name);

        if (!t)
                detail_set(&rq->detail, -ENOENT, "no tenant %.64s: kvleasectl tenants lists them",
                        name);
        return t;
}

struct ns *request_ns(struct request *rq, const char *tenant, const char *ns)
{
        struct tenant *t = request_tenant(rq, tenant);
        struct ns *found = t ? ns_find(t, ns) : NULL;

        if (t && !found)
                detail_set(&rq->detail, -ENOENT,
                        "tenant %s has no namespace %.128s: kvleasectl namespaces lists them",
                        t->name, ns);
        return found;
}

int request_tenant_ns(struct request *rq, const char *tenant, const char *ns,
        struct tenant **ret_tenant, struct ns **ret_ns)
{
        struct tenant *t = request_tenant(rq, tenant);

        if (!t)
                return -ENOENT;
        *ret_tenant = t;
        *ret_ns = *ns ? ns_find(t, ns) : NULL;
        if (*ns && !*ret_ns)
                return detail_set(
                        &rq->detail, -ENOENT, "tenant %s has no namespace %.128s", t->name, ns);
        return 0;
}
