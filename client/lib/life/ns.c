/* Namespaces: opening and closing them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "client/lib/connection/error.h"
#include "client/lib/keys/layout.h"
#include "client/lib/life/life-impl.h"
#include "client/lib/mapping/map.h"
#include "client/lib/objects/args.h"
#include "client/lib/objects/ns.h"
#include "gpu/device.h"
#include "proto/status.h"

/* More addresses than x86-64 gives a process; keeps the sums below from overflowing. */
#define ARENA_MAX_BYTES (UINT64_C(1) << 47)
#define SET_SIZE_MAX    64  /* protocol */
#define CODEC_BY_LAYER  255 /* protocol */
#define CODECS_TEXT_MAX 512 /* 16 ranges with the longest numbers, and more */

void ns_free(struct kvl_ns *ns)
{
        conn_lock(ns->conn->conn);
        list_remove(&ns->link);
        ns_forget(ns);
        conn_unlock(ns->conn->conn);
        fast_deinit(&ns->fast);
        ns_unmap_all(ns);
        free(ns);
}

/* ---- opening -----------------------------------------------------------------------------------
 */

struct open_call {
        struct conn_call call;
        struct kvl_ns *ns;
};

/* Adds the namespace's next tier; false: it makes no sense. */
static bool take_tier(struct kvl_ns *ns, const Kvlease__V1__Tier *m)
{
        struct kvl_ns_info *info = &ns->info;
        uint64_t page_bytes = info->plane_page_bytes * info->n_planes;
        struct kvl_tier_info *t = &info->tiers[info->n_tiers];
        uint32_t first = info->n_tiers > 0 ? t[-1].first_page + t[-1].n_pages : 0;

        if (info->n_tiers == KVL_TIERS || m->first_page != first ||
                (info->n_tiers > 0 ? m->kind <= (uint32_t)t[-1].tier : m->kind != 0) ||
                m->n_pages > info->capacity_pages - first || m->n_pages % info->set_pages != 0)
                return false;
        if (m->is_readable && (m->page_bytes < page_bytes || m->kind != KVL_TIER_HOST ||
                                      m->extent_bytes > ARENA_MAX_BYTES / ns->n_sets ||
                                      m->extent_bytes / info->set_pages < m->page_bytes))
                return false;
        *t = (struct kvl_tier_info){
                .tier = (enum kvl_tier)m->kind,
                .first_page = m->first_page,
                .n_pages = m->n_pages,
                .page_bytes = m->page_bytes,
                .is_readable = m->is_readable,
        };
        if (m->is_readable)
                ns->below.extent_bytes = m->extent_bytes;
        info->n_tiers++;
        return true;
}

/* A daemon without tiers has all pages on the device. */
static bool take_tiers(struct kvl_ns *ns, const Kvlease__V1__NsOpenReply *m)
{
        const struct kvl_tier_info *last;
        struct kvl_ns_info *info = &ns->info;
        const Kvlease__V1__Tier device = {
                .n_pages = info->capacity_pages, .page_bytes = info->stride_bytes * info->n_planes};

        if (m->n_tiers == 0 && !take_tier(ns, &device))
                return false;
        for (size_t i = 0; i < m->n_tiers; i++)
                if (!take_tier(ns, m->tiers[i]))
                        return false;
        last = &info->tiers[info->n_tiers - 1];
        ns->first_lower = info->tiers[0].n_pages;
        ns->n_device_sets = ns->first_lower / info->set_pages;
        return ns->first_lower > 0 && last->first_page + last->n_pages == info->capacity_pages;
}

/* Returns what is wrong with it; NULL: nothing. */
static const char *take_open_reply(struct kvl_ns *ns, const Kvlease__V1__NsOpenReply *m)
{
        struct kvl_ns_info *info = &ns->info;

        if (m->capacity_pages == 0 || m->set_pages == 0 || m->capacity_pages % m->set_pages != 0)
                return "kvleased sent a namespace with a broken number of pages";
        if (strlen(m->device) >= sizeof(info->device) || strlen(m->members) >= sizeof(ns->members))
                return "kvleased sent a device name that is too long";
        ns->n_sets = m->capacity_pages / m->set_pages;
        info->capacity_pages = m->capacity_pages;
        info->set_pages = m->set_pages;
        info->stride_bytes = m->stride_bytes ? m->stride_bytes : info->plane_page_bytes;
        if (!take_tiers(ns, m))
                return "kvleased sent a namespace with broken tiers";
        ns->set_factor = divide_factor(m->set_pages);
        ns->extent_bytes = m->extent_bytes;
        if (info->stride_bytes < info->plane_page_bytes ||
                info->stride_bytes > ARENA_MAX_BYTES / m->set_pages ||
                m->extent_bytes != m->set_pages * info->stride_bytes ||
                m->extent_bytes > ARENA_MAX_BYTES / ns->n_device_sets / info->n_planes)
                return "kvleased sent a namespace with a broken extent size";
        ns->plane_stride_bytes = ns->n_device_sets * ns->extent_bytes;
        ns->id = m->ns_id;
        ns->transport = m->transport;
        ns->address = m->address;
        ns->null.has_set = m->null_set;
        ns->huge_pages = m->huge_pages;
        ns->imports = m->imports;
        info->takes_token_ids = m->events;
        info->epoch = m->epoch;
        info->is_cpu_memory = m->transport == TRANSPORT_MEMFD;
        info->is_contiguous = m->transport != TRANSPORT_CUDAIPC;
        memcpy(info->device, m->device, strlen(m->device) + 1);
        memcpy(ns->members, m->members, strlen(m->members) + 1);
        return NULL;
}

static void on_open(struct conn *c, struct conn_call *call, int code, const ProtobufCMessage *reply,
        struct frame *frame)
{
        struct kvl_ns *ns = container_of(call, struct open_call, call)->ns;
        const char *wrong = NULL;

        if (reply && code == 0)
                wrong = take_open_reply(ns, (const Kvlease__V1__NsOpenReply *)reply);
        /* Listed at once: a restarted daemon must be told of it, even before its caller wakes. */
        if (reply && code == 0 && !wrong)
                list_append(&ns->conn->namespaces, &ns->link);
        if (wrong)
                conn_finish_violated(c, call, wrong);
        else
                conn_finish(c, call, code);
}

static int send_close(struct conn *c, struct conn_call *call, uint32_t id)
{
        Kvlease__V1__NsCloseRequest m = KVLEASE__V1__NS_CLOSE_REQUEST__INIT;

        m.ns_id = id;
        return conn_start(c, call, MSG_NS_CLOSE, &m.base);
}

/* Closes a namespace that was opened after its caller gave up. */
static void on_open_late(struct conn *c, struct conn_call *call, int code,
        const ProtobufCMessage *reply, struct frame *frame)
{
        if (reply && code == 0 &&
                send_close(c, call, ((const Kvlease__V1__NsOpenReply *)reply)->ns_id) == 0)
                return;
        conn_finish(c, call, code);
}

static void fill_layout(Kvlease__V1__NsLayout *m, const struct kvl_layout *l)
{
        m->model = (char *)l->model;
        m->version = (char *)l->version;
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
        m->salt.data = (uint8_t *)l->salt;
        m->salt.len = l->salt_bytes;
        m->format.data = (uint8_t *)l->format;
        m->format.len = l->format_bytes;
}

/* A daemon that doesn't know CODEC_BY_LAYER refuses it, so it can't overlook the string. */
static void fill_codec(
        enum kvl_codec codec, const char *layers, uint32_t *ret_codec, char **ret_layers)
{
        *ret_codec = layers ? CODEC_BY_LAYER : (uint32_t)codec;
        *ret_layers = (char *)(layers ? layers : "");
}

/* [L] */
static int ask_open(
        struct kvl_ns *ns, const struct kvl_layout *layout, const struct kvl_ns_options *options)
{
        Kvlease__V1__NsOpenRequest m = KVLEASE__V1__NS_OPEN_REQUEST__INIT;
        Kvlease__V1__NsLayout layout_m = KVLEASE__V1__NS_LAYOUT__INIT;
        struct open_call call = {.call.on_reply = on_open, .call.on_late = on_open_late, .ns = ns};
        struct conn *c = ns->conn->conn;
        int r;

        fill_layout(&layout_m, layout);
        m.name = ns->name;
        m.layout = &layout_m;
        m.device = (char *)(options->device ? options->device : "");
        m.keep_page_zero = options->flags & KVL_NS_KEEP_PAGE_ZERO;
        m.set = (char *)(options->set ? options->set : "");
        m.set_size = options->set_size;
        m.expire_sec = options->expire_sec;
        fill_codec(options->host_codec, options->host_layer_codecs, &m.host_codec,
                &m.host_layer_codecs);
        fill_codec(options->disk_codec, options->disk_layer_codecs, &m.disk_codec,
                &m.disk_layer_codecs);
        m.stride_bytes = options->stride_bytes;
        r = conn_start(c, &call.call, MSG_NS_OPEN, &m.base);
        if (r == 0)
                r = conn_wait(c, &call.call, client_deadline(ns->conn));
        return error_note(r, call.call.detail);
}

/* [L] The daemon closes it even if the wait times out. */
static void ask_close(struct kvl_conn *conn, uint32_t id)
{
        struct conn_call call = {0};

        if (send_close(conn->conn, &call, id) == 0)
                conn_wait(conn->conn, &call, client_deadline(conn));
}

static bool has_name(const struct kvl_conn *conn, const char *name)
{
        list_for_each (ns, &conn->namespaces, struct kvl_ns, link)
                if (strcmp(ns->name, name) == 0)
                        return true;
        return false;
}

static bool is_name(const char *name)
{
        return *name && strlen(name) <= NS_NAME_BYTES_MAX;
}

static int check_set(const struct kvl_ns_options *o)
{
        if (!o->set && o->set_size > 0)
                return error_set(-EINVAL, "set_size is %u without a set", o->set_size);
        if (o->set && !is_name(o->set))
                return error_set(
                        -EINVAL, "a namespace set's name has 1 to %d bytes", NS_NAME_BYTES_MAX);
        if (o->set && (o->set_size < 2 || o->set_size > SET_SIZE_MAX))
                return error_set(
                        -EINVAL, "set_size is %u, must be 2 to %d", o->set_size, SET_SIZE_MAX);
        return 0;
}

/* `tier`: "host" or "disk". The daemon parses `layers`. */
static int check_codec(const char *tier, enum kvl_codec codec, const char *layers)
{
        if (codec > KVL_CODEC_INT4)
                return error_set(
                        -EINVAL, "codec %u isn't known: upgrade libkvlease", (unsigned)codec);
        if (layers && codec != KVL_CODEC_NONE)
                return error_set(-EINVAL,
                        "both %s_codec and %s_layer_codecs are given: one of them", tier, tier);
        if (layers && (!*layers || strlen(layers) > CODECS_TEXT_MAX))
                return error_set(-EINVAL,
                        "%s_layer_codecs has %zu bytes: 1 to %d, as 0-7:none,8-:int8, or NULL",
                        tier, strlen(layers), CODECS_TEXT_MAX);
        return 0;
}

static int check_options(
        const struct kvl_conn *conn, const struct kvl_ns_options *o, uint32_t n_planes)
{
        int r;

        if (o->device && strlen(o->device) > DEVICE_NAME_MAX)
                return error_set(-EINVAL, "a device's name has at most %d bytes", DEVICE_NAME_MAX);
        r = abi_check_flags(
                o->flags, KVL_NS_KEEP_PAGE_ZERO | KVL_NS_SAME_ADDRESS | KVL_NS_BACK_HOLES);
        if (r < 0)
                return r;
        if (o->first_plane >= n_planes || o->n_planes > n_planes - o->first_plane)
                return error_set(-EINVAL, "%u planes from %u on: the layout has %u", o->n_planes,
                        o->first_plane, n_planes);
        r = check_codec("host", o->host_codec, o->host_layer_codecs);
        if (r == 0)
                r = check_codec("disk", o->disk_codec, o->disk_layer_codecs);
        if (r == 0)
                r = check_set(o);
        return r < 0 ? r : client_check_process(conn);
}

/* Takes the given name, or the layout's. */
static int take_name(const char *name, const struct kvl_layout *l, char ret_name[KVL_NS_NAME_BYTES])
{
        if (!name || !*name)
                return layout_name(l, ret_name);
        if (!is_name(name))
                return error_set(
                        -EINVAL, "a namespace's name has 1 to %d bytes", NS_NAME_BYTES_MAX);
        memcpy(ret_name, name, strlen(name) + 1);
        return 0;
}

static struct kvl_ns *ns_new(struct kvl_conn *conn, const char *name, const struct kvl_layout *l)
{
        struct kvl_ns *ns = calloc(1, sizeof(*ns));

        if (!ns)
                return NULL;
        ns->conn = conn;
        memcpy(ns->name, name, strlen(name) + 1);
        ns->info.page_tokens = l->page_tokens;
        ns->info.n_planes = l->n_planes;
        ns->info.plane_page_bytes = l->plane_page_bytes;
        list_init(&ns->link);
        list_init(&ns->ops);
        list_init(&ns->streams.waiting);
        list_init(&ns->sessions);
        list_init(&ns->windows);
        return ns;
}

/* [L] A broken device stays so, also for namespaces opened later. */
static bool is_device_broken(const struct kvl_conn *conn, const char *device)
{
        list_for_each (ns, &conn->namespaces, struct kvl_ns, link)
                if (ns->streams.are_broken && strcmp(ns->info.device, device) == 0)
                        return true;
        return false;
}

/* [L] Opens it, and adds it to the connection's list once the daemon has it open. After a failure
 * the daemon has it closed, and so should the caller. */
static int open_ns(
        struct kvl_ns *ns, const struct kvl_layout *layout, const struct kvl_ns_options *options)
{
        struct kvl_conn *conn = ns->conn;
        int r;

        if (has_name(conn, ns->name))
                return error_set(
                        -EEXIST, "namespace %s is open on this connection already", ns->name);
        r = ask_open(ns, layout, options);
        if (r != 0)
                return r;
        r = conn->metadata_only ? 0 : ns_reserve(ns, options->flags);
        if (r == 0)
                r = share_ns(ns);
        if (r < 0) {
                /* First: a restarted daemon may have closed it already. */
                list_remove(&ns->link);
                ask_close(conn, ns->id);
                return r;
        }
        ns->streams.are_broken = is_device_broken(conn, ns->info.device);
        ns->is_open = true;
        return 0;
}

int kvl_ns_open_with(struct kvl_conn *conn, const char *name, const struct kvl_layout *layout,
        const struct kvl_ns_options *options, struct kvl_ns **ret_ns)
{
        struct kvl_ns_options o = {0};
        char full_name[KVL_NS_NAME_BYTES];
        struct kvl_layout l;
        struct kvl_ns *ns;
        int r;

        if (!conn || !ret_ns)
                return error_set(-EINVAL, "a connection and room for the namespace are needed");
        r = abi_copy_options(&o, sizeof(o), options);
        if (r == 0)
                r = layout_copy(layout, &l);
        if (r == 0)
                r = check_options(conn, &o, l.n_planes);
        if (r == 0)
                r = take_name(name, &l, full_name);
        if (r < 0)
                return r;
        ns = ns_new(conn, full_name, &l);
        if (!ns)
                return error_set(-ENOMEM, "out of memory");
        ns->planes.first = o.first_plane;
        ns->planes.n = o.n_planes > 0 ? o.n_planes : l.n_planes - o.first_plane;
        conn_lock(conn->conn);
        r = open_ns(ns, &l, &o);
        conn_unlock(conn->conn);
        if (r != 0) {
                ns_free(ns);
                return r;
        }
        *ret_ns = ns;
        return 0;
}

int kvl_ns_open(struct kvl_conn *conn, const char *name, const struct kvl_layout *layout,
        const char *device, unsigned flags, struct kvl_ns **ret_ns)
{
        const struct kvl_ns_options options = {
                .size = sizeof(options), .device = device, .flags = flags};

        return kvl_ns_open_with(conn, name, layout, &options, ret_ns);
}

static void end_calls(struct kvl_ns *ns)
{
        struct conn *c = ns->conn->conn;

        conn_lock(c);
        ns->is_open = false;
        ns_cancel_calls(ns);
        conn_unlock(c);
        conn_dispatch(c);
}

void kvl_ns_close(struct kvl_ns *ns)
{
        struct kvl_conn *conn;
        uint32_t id;

        if (!ns || client_check_process(ns->conn) < 0)
                return;
        conn = ns->conn;
        id = ns->id;
        end_calls(ns);
        /* Again, for calls that callbacks of finished calls started. */
        end_calls(ns);
        conn_lock(conn->conn);
        ns_wait_calls(ns);
        /* Under the same lock: calls in all namespaces of the connection, as kvl_safepoint(), are
         * over for this one, and none begins. */
        list_remove(&ns->link);
        conn_unlock(conn->conn);
        /* Unmapped first: once the daemon knows, other clients may get the memory. */
        ns_free(ns);
        conn_lock(conn->conn);
        ask_close(conn, id);
        conn_unlock(conn->conn);
}
