/* Namespaces and where their pages are mapped. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/macros.h"
#include "client/lib/op.h"
#include "client/lib/error.h"
#include "proto/status.h"

/* More addresses than x86-64 gives a process; keeps the sums below from overflowing. */
#define ARENA_MAX_BYTES (UINT64_C(1) << 47)

/* ---- mapping -----------------------------------------------------------------------------------
 */

static int map_plane(struct kvl_ns *ns, struct mapped_set *set, uint64_t offset, int *fd)
{
        uint32_t plane = atomic_load_explicit(&set->n_planes, memory_order_relaxed);
        const struct device_ops *ops = ns->device->ops;
        struct extent_handle handle = {.fd = fd_take(fd)};
        struct extent *e;
        int r;

        r = ops->extent_import(ns->device, &handle, ns->extent_bytes, &e);
        if (r < 0)
                return r;
        r = ops->arena_map(
                ns->arena, plane * ns->plane_stride_bytes + offset, e, DEVICE_READ_WRITE);
        if (r < 0) {
                ops->extent_destroy(e, false);
                return r;
        }
        set->extents[plane] = e;
        /* kvl_page_ptr() reads it without the lock: after this the mapping is there. */
        atomic_store_explicit(&set->n_planes, plane + 1, memory_order_release);
        return 0;
}

int ns_map(struct kvl_ns *ns, uint32_t set_index, uint32_t first_plane,
        const Kvlease__V1__MapReply *m, struct frame *frame)
{
        struct mapped_set *set = &ns->sets[set_index];
        uint64_t offset = set_index * ns->extent_bytes;
        int r;

        if (m->n_planes == 0 || m->n_planes != frame->header.fd_count ||
                m->n_planes > ns->info.n_planes - first_plane)
                return -EPROTO;
        if (!set->extents)
                set->extents = calloc(ns->info.n_planes, sizeof(*set->extents));
        if (!set->extents)
                return -ENOMEM;
        for (uint32_t i = 0; i < m->n_planes; i++) {
                /* Another call may have asked for the same, and been answered first. */
                if (first_plane + i < set->n_planes)
                        continue;
                r = map_plane(ns, set, offset, &frame->fds[i]);
                if (r < 0)
                        return r == -ENOMEM ? r : -EIO;
        }
        return 0;
}

/* 0, or an error after which some of it is still mapped. */
static int unmap_set(struct kvl_ns *ns, uint32_t set_index)
{
        struct mapped_set *set = &ns->sets[set_index];
        uint64_t offset = set_index * ns->extent_bytes;
        const struct device_ops *ops = ns->device->ops;
        int first_error = 0, r;

        for (uint32_t plane = 0; plane < set->n_planes; plane++) {
                struct extent *e = set->extents[plane];

                r = ops->arena_unmap(ns->arena, plane * ns->plane_stride_bytes + offset, e);
                if (r == 0)
                        ops->extent_destroy(e, false);
                else
                        first_error = r;
        }
        free(set->extents);
        return first_error;
}

static void unmap_all(struct kvl_ns *ns)
{
        int first_error = 0, r;

        for (uint32_t i = 0; ns->sets && i < ns->n_sets; i++) {
                r = unmap_set(ns, i);
                if (r < 0)
                        first_error = r;
        }
        free(ns->sets);
        /* What can't be unmapped stays until the process ends, and what it hangs on with it. */
        if (first_error < 0)
                return;
        if (ns->arena)
                ns->device->ops->arena_release(ns->arena);
        device_close(ns->device);
}

void ns_free(struct kvl_ns *ns)
{
        assert(list_is_empty(&ns->ops) && ns->n_callbacks == 0);
        conn_lock(ns->conn->conn);
        list_remove(&ns->link);
        conn_forget_cookie(ns->conn->conn, ns);
        flights_forget_ns(ns);
        conn_unlock(ns->conn->conn);
        fast_deinit(&ns->fast);
        unmap_all(ns);
        free(ns);
}

/* Reserves the addresses of everything it can ever hold. */
static int reserve(struct kvl_ns *ns)
{
        uint64_t bytes = ns->plane_stride_bytes * ns->info.n_planes;
        int r;

        r = device_open(ns->info.device, &ns->device);
        if (r == -ENODEV)
                return error_set(-ENOENT, "this process can't open the device %s", ns->info.device);
        if (r < 0)
                return error_set(
                        r, "can't open the device %s: %s", ns->info.device, status_text(r));
        if (ns->transport != ns->device->props.transport)
                return error_set(-EOPNOTSUPP,
                        "kvleased hands out memory in a way (%u) that this libkvlease doesn't "
                        "know: "
                        "upgrade libkvlease",
                        ns->transport);
        if (ns->extent_bytes % ns->device->props.granularity_bytes != 0)
                return error_set(-EPROTO, "kvleased sent an extent size that can't be mapped");
        ns->sets = calloc(ns->n_sets, sizeof(*ns->sets));
        if (!ns->sets)
                return error_set(-ENOMEM, "out of memory");
        r = ns->device->ops->arena_reserve(ns->device, bytes, &ns->arena);
        if (r < 0)
                return error_set(r, "can't reserve %llu bytes of addresses: %s",
                        (unsigned long long)bytes, status_text(r));
        ns->base = ns->device->ops->arena_base(ns->arena);
        return 0;
}

/* ---- opening -----------------------------------------------------------------------------------
 */

struct open_call {
        struct conn_call call;
        struct kvl_ns *ns;
};

/* What is wrong with it; NULL: nothing. */
static const char *take_open_reply(struct kvl_ns *ns, const Kvlease__V1__NsOpenReply *m)
{
        struct kvl_ns_info *info = &ns->info;

        if (m->capacity_pages == 0 || m->set_pages == 0 || m->capacity_pages % m->set_pages != 0)
                return "kvleased sent a namespace with a broken number of pages";
        if (strlen(m->device) >= sizeof(info->device))
                return "kvleased sent a device name that is too long";
        ns->n_sets = m->capacity_pages / m->set_pages;
        ns->set_factor = m->set_pages > 1 ? UINT64_MAX / m->set_pages + 1 : 0;
        ns->extent_bytes = m->extent_bytes;
        if (info->plane_page_bytes > ARENA_MAX_BYTES / m->set_pages ||
                m->extent_bytes != m->set_pages * info->plane_page_bytes ||
                m->extent_bytes > ARENA_MAX_BYTES / ns->n_sets / info->n_planes)
                return "kvleased sent a namespace with a broken extent size";
        ns->plane_stride_bytes = ns->n_sets * ns->extent_bytes;
        ns->id = m->ns_id;
        ns->transport = m->transport;
        info->capacity_pages = m->capacity_pages;
        info->set_pages = m->set_pages;
        info->epoch = m->epoch;
        memcpy(info->device, m->device, strlen(m->device) + 1);
        return NULL;
}

static void on_open(struct conn *c, struct conn_call *call, int code, const ProtobufCMessage *reply,
        struct frame *frame)
{
        struct kvl_ns *ns = container_of(call, struct open_call, call)->ns;
        const char *wrong = NULL;

        if (reply && code == 0)
                wrong = take_open_reply(ns, (const Kvlease__V1__NsOpenReply *)reply);
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

/* Opened after its caller had given up: closed again. */
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
}

/* [L] */
static int ask_open(
        struct kvl_ns *ns, const struct kvl_layout *layout, const char *device, unsigned flags)
{
        Kvlease__V1__NsOpenRequest m = KVLEASE__V1__NS_OPEN_REQUEST__INIT;
        Kvlease__V1__NsLayout layout_m = KVLEASE__V1__NS_LAYOUT__INIT;
        struct open_call call = {.call.on_reply = on_open, .call.on_late = on_open_late, .ns = ns};
        struct conn *c = ns->conn->conn;
        int r;

        fill_layout(&layout_m, layout);
        m.name = ns->name;
        m.layout = &layout_m;
        m.device = (char *)(device ? device : "");
        m.keep_page_zero = flags & KVL_NS_KEEP_PAGE_ZERO;
        r = conn_start(c, &call.call, MSG_NS_OPEN, &m.base);
        if (r == 0)
                r = conn_wait(c, &call.call, client_deadline(ns->conn));
        return error_note(r, call.call.detail);
}

/* [L] Where it gives up waiting, the daemon does it all the same. */
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

static int check_open(
        const struct kvl_conn *conn, const char *name, const char *device, unsigned flags)
{
        if (!name || !*name || strlen(name) > NS_NAME_BYTES_MAX)
                return error_set(
                        -EINVAL, "a namespace's name has 1 to %d bytes", NS_NAME_BYTES_MAX);
        if (device && strlen(device) > DEVICE_NAME_MAX)
                return error_set(-EINVAL, "a device's name has at most %d bytes", DEVICE_NAME_MAX);
        if (flags & ~(unsigned)KVL_NS_KEEP_PAGE_ZERO)
                return error_set(-EINVAL, "flags 0x%x aren't known: upgrade libkvlease", flags);
        return client_check_process(conn);
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
        return ns;
}

/* [L] After a failure the daemon has it closed, and so should the caller. */
static int open_ns(
        struct kvl_ns *ns, const struct kvl_layout *layout, const char *device, unsigned flags)
{
        struct kvl_conn *conn = ns->conn;
        int r;

        if (has_name(conn, ns->name))
                return error_set(
                        -EEXIST, "namespace %s is open on this connection already", ns->name);
        r = ask_open(ns, layout, device, flags);
        if (r != 0)
                return r;
        r = conn->metadata_only ? 0 : reserve(ns);
        if (r == 0)
                r = share_ns(ns);
        if (r < 0) {
                ask_close(conn, ns->id);
                return r;
        }
        list_append(&conn->namespaces, &ns->link);
        return 0;
}

int kvl_ns_open(struct kvl_conn *conn, const char *name, const struct kvl_layout *layout,
        const char *device, unsigned flags, struct kvl_ns **ret_ns)
{
        struct kvl_layout l;
        struct kvl_ns *ns;
        int r;

        if (!conn || !ret_ns)
                return error_set(-EINVAL, "a connection and room for the namespace are needed");
        r = check_open(conn, name, device, flags);
        if (r < 0)
                return r;
        r = client_copy_layout(layout, &l);
        if (r < 0)
                return r;
        ns = ns_new(conn, name, &l);
        if (!ns)
                return error_set(-ENOMEM, "out of memory");
        conn_lock(conn->conn);
        r = open_ns(ns, &l, device, flags);
        conn_unlock(conn->conn);
        if (r != 0) {
                ns_free(ns);
                return r;
        }
        *ret_ns = ns;
        return 0;
}

static _Thread_local struct ns_callback *innermost_callback;

void ns_callback_enter(struct ns_callback *cb, struct kvl_ns *ns)
{
        *cb = (struct ns_callback){.ns = ns, .outer = innermost_callback};
        innermost_callback = cb;
        ns->n_callbacks++;
}

void ns_callback_leave(struct ns_callback *cb)
{
        struct kvl_ns *ns = cb->ns;
        struct kvl_conn *conn;

        innermost_callback = cb->outer;
        if (!ns)
                return;
        conn = ns->conn;
        conn_lock(conn->conn);
        if (--ns->n_callbacks == 0)
                pthread_cond_broadcast(&conn->idle);
        conn_unlock(conn->conn);
}

void ns_wait_callbacks(struct kvl_ns *ns)
{
        /* Those this thread is inside of itself can't return first: they lose the namespace. */
        for (struct ns_callback *cb = innermost_callback; cb; cb = cb->outer) {
                if (cb->ns != ns)
                        continue;
                cb->ns = NULL;
                ns->n_callbacks--;
        }
        while (!list_is_empty(&ns->ops) || ns->n_callbacks > 0)
                pthread_cond_wait(&ns->conn->idle, &ns->conn->conn->lock);
}

void kvl_ns_close(struct kvl_ns *ns)
{
        struct kvl_conn *conn;
        uint32_t id;

        if (!ns || client_check_process(ns->conn) < 0)
                return;
        conn = ns->conn;
        id = ns->id;
        conn_lock(conn->conn);
        ns_cancel_ops(ns);
        conn_unlock(conn->conn);
        conn_dispatch(conn->conn);
        conn_lock(conn->conn);
        ns_wait_callbacks(ns);
        conn_unlock(conn->conn);
        /* Unmapped first: once the daemon knows, others may get the memory. */
        ns_free(ns);
        conn_lock(conn->conn);
        ask_close(conn, id);
        conn_unlock(conn->conn);
}

/* ---- what it is --------------------------------------------------------------------------------
 */

void kvl_ns_info(const struct kvl_ns *ns, struct kvl_ns_info *info)
{
        size_t size = info->size;

        /* The rest of what a newer program has room for is left as it was. */
        if (size > sizeof(size))
                memcpy((uint8_t *)info + sizeof(size), (const uint8_t *)&ns->info + sizeof(size),
                        MIN(size, sizeof(ns->info)) - sizeof(size));
}

const char *kvl_ns_name(const struct kvl_ns *ns)
{
        return ns->name;
}

void *kvl_plane_base(const struct kvl_ns *ns, uint32_t plane)
{
        if (!ns->base || plane >= ns->info.n_planes)
                return NULL;
        return ns->base + plane * ns->plane_stride_bytes;
}

void *kvl_page_ptr(const struct kvl_ns *ns, uint32_t page, uint32_t plane)
{
        if (!ns->base || page >= ns->info.capacity_pages || plane >= ns->info.n_planes ||
                !ns_is_mapped(ns, page / ns->info.set_pages))
                return NULL;
        return ns->base + plane * ns->plane_stride_bytes + page * ns->info.plane_page_bytes;
}
