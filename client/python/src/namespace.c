/* Namespace: open, close, properties. Its calls are in namespace-calls.c and start.c. */
#include "client/python/src/module.h"

#include <errno.h>
#include <string.h>

PyTypeObject *ns_type;

bool ns_enter(struct ns_object *self)
{
        if (!self->ns && !conn_is_inherited(self->conn)) {
                raise_closed("namespace");
                return false;
        }
        if (!conn_enter(self->conn))
                return false;
        ++self->n_calls;
        return true;
}

void ns_leave(struct ns_object *self)
{
        --self->n_calls;
        conn_leave(self->conn);
}

bool ending_enter(struct ns_object *self)
{
        if (!self->ns || conn_is_inherited(self->conn))
                return false;
        ++self->conn->n_calls;
        ++self->n_calls;
        return true;
}

void ns_forget(struct ns_object *self)
{
        *self->prev_ns = self->next_ns;
        if (self->next_ns)
                self->next_ns->prev_ns = self->prev_ns;
        self->ns = NULL;
}

static void link_ns(struct ns_object *self, struct kvl_ns *ns)
{
        struct conn_object *conn = self->conn;

        self->ns = ns;
        self->next_ns = conn->first_ns;
        self->prev_ns = &conn->first_ns;
        if (self->next_ns)
                self->next_ns->prev_ns = &self->next_ns;
        conn->first_ns = self;
}

/* ---- open ------------------------------------------------------------------------------------ */

/* Gets a Codec, or a string with codecs by layer. */
static bool get_codec(
        PyObject *object, const char *name, enum kvl_codec *ret_codec, const char **ret_layers)
{
        uint32_t codec = KVL_CODEC_NONE;

        if (object && PyUnicode_Check(object))
                return arg_text(object, name, ret_layers);
        if (!arg_u32(object, name, &codec))
                return false;
        *ret_codec = (enum kvl_codec)codec;
        return true;
}

static bool get_options(PyObject *const *a, struct kvl_ns_options *o)
{
        bool keeps_zero = false, is_same = false, backs_holes = false;
        int expire_msec = 0;

        if (!arg_text(a[2], "device", &o->device) || !arg_bool(a[3], &keeps_zero) ||
                !arg_bool(a[4], &is_same) || !arg_text(a[5], "set", &o->set) ||
                !arg_u32(a[6], "set_size", &o->set_size) ||
                !arg_msec(a[7], "expire", 0, &expire_msec) ||
                !get_codec(a[8], "host_codec", &o->host_codec, &o->host_layer_codecs) ||
                !get_codec(a[9], "disk_codec", &o->disk_codec, &o->disk_layer_codecs) ||
                !arg_u64(a[10], "stride_bytes", &o->stride_bytes) ||
                !arg_bool(a[11], &backs_holes) || !arg_u32(a[12], "first_plane", &o->first_plane) ||
                (is_given(a[13]) && !arg_u32(a[13], "n_planes", &o->n_planes)))
                return false;
        o->flags = (keeps_zero ? KVL_NS_KEEP_PAGE_ZERO : 0) | (is_same ? KVL_NS_SAME_ADDRESS : 0) |
                   (backs_holes ? KVL_NS_BACK_HOLES : 0);
        o->expire_sec = ((uint32_t)expire_msec + 999) / 1000;
        return true;
}

static void remember(struct ns_object *self)
{
        struct kvl_ns_info info = {.size = sizeof(info)};

        kvl_ns_info(self->ns, &info);
        self->page_tokens = info.page_tokens;
        self->n_planes = info.n_planes;
        self->plane_page_bytes = info.plane_page_bytes;
        self->stride_bytes = info.stride_bytes;
        self->capacity_pages = info.capacity_pages;
        self->n_device_pages = info.n_tiers > 0 ? info.tiers[0].n_pages : info.capacity_pages;
        self->is_cpu_memory = info.is_cpu_memory;
        self->is_contiguous = info.is_contiguous;
        memcpy(self->device, info.member[0] ? info.member : info.device, sizeof(self->device));
}

struct ns_object *namespace_open(
        struct conn_object *conn, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"namespace",
                {"name", "layout", "device", "keep_page_zero", "same_address", "set", "set_size",
                        "expire", "host_codec", "disk_codec", "stride_bytes", "back_holes",
                        "first_plane", "n_planes"},
                0, 2};
        struct kvl_ns_options o = {.size = sizeof(o)};
        _cleanup_layout_ struct layout layout = {0};
        _cleanup_ref_ PyObject *object = NULL;
        const char *name = NULL;
        struct ns_object *self;
        struct kvl_ns *ns = NULL;
        PyObject *a[14];
        int r;

        if (!args_parse(&s, args, n, names, a) || !arg_text(a[0], "name", &name) ||
                !get_options(a, &o))
                return NULL;
        if (!is_given(a[1])) {
                PyErr_SetString(PyExc_TypeError, "namespace() needs 'layout'");
                return NULL;
        }
        if (!layout_get(a[1], &layout) || !(object = object_new(ns_type)) || !conn_enter(conn))
                return NULL;
        self = (struct ns_object *)object;
        self->conn = (struct conn_object *)Py_NewRef((PyObject *)conn);
        UNLOCKED(r = kvl_ns_open_with(conn->conn, name, &layout.layout, &o, &ns));
        if (!r) {
                link_ns(self, ns);
                remember(self);
        }
        conn_leave(conn);
        return r ? (struct ns_object *)raise_code(r) : (struct ns_object *)Py_NewRef(object);
}

/* ---- close ----------------------------------------------------------------------------------- */

/* Closes ns, which `self` has already given up. */
static void close_ns(struct ns_object *self, struct kvl_ns *ns)
{
        ++self->conn->n_calls;
        UNLOCKED(kvl_ns_close(ns));
        --self->conn->n_calls;
}

static PyObject *ns_close(struct ns_object *self, PyObject *unused)
{
        struct kvl_ns *ns;

        if (!self->ns)
                Py_RETURN_NONE;
        if (conn_is_inherited(self->conn)) {
                ns_forget(self); /* ends with the child's copy of the connection */
                Py_RETURN_NONE;
        }
        if (self->n_views > 0)
                return PyErr_Format(PyExc_BufferError,
                        "the namespace has %u views that are still used", self->n_views);
        if (self->n_calls > 0)
                return raise_busy(
                        "other threads use the namespace: let their calls end before it is closed");
        ns = self->ns;
        ns_forget(self);
        close_ns(self, ns);
        Py_RETURN_NONE;
}

static int ns_traverse(struct ns_object *self, visitproc visit, void *arg)
{
        Py_VISIT(Py_TYPE((PyObject *)self));
        Py_VISIT(self->conn);
        return 0;
}

static void ns_end(PyObject *object)
{
        struct ns_object *self = (struct ns_object *)object;
        struct kvl_ns *ns = self->ns;

        /* Before the warning: its hook may dispatch events of the namespace. */
        if (ns)
                ns_forget(self);
        if (ns && !conn_is_inherited(self->conn)) {
                if (PyErr_ResourceWarning(NULL, 1, "a kvlease.Namespace was not closed") < 0)
                        PyErr_WriteUnraisable(NULL);
                close_ns(self, ns);
        }
        Py_CLEAR(self->conn);
}

static void ns_dealloc(PyObject *self)
{
        object_dealloc(self, ns_end);
}

/* ---- what it is ------------------------------------------------------------------------------ */

static PyObject *tier_object(const struct kvl_tier_info *t)
{
        return types_new("TierInfo",
                Py_BuildValue("(iIIKN)", (int)t->tier, t->first_page, t->n_pages,
                        (unsigned long long)t->page_bytes, PyBool_FromLong(t->is_readable)));
}

static PyObject *tiers_object(const struct kvl_ns_info *info)
{
        PyObject *tiers = PyTuple_New(info->n_tiers);

        for (uint32_t i = 0; tiers && i < info->n_tiers; ++i) {
                PyObject *tier = tier_object(&info->tiers[i]);

                if (!tier || PyTuple_SetItem(tiers, i, tier) < 0)
                        Py_CLEAR(tiers);
        }
        return tiers;
}

static PyObject *ns_get_info(struct ns_object *self, void *unused)
{
        struct kvl_ns_info info = {.size = sizeof(info)};
        PyObject *tiers;

        if (!CALL(ns, self, kvl_ns_info(self->ns, &info)))
                return NULL;
        tiers = tiers_object(&info);
        if (!tiers)
                return NULL;
        return types_new("NamespaceInfo",
                Py_BuildValue("(IIIIKKsNNNKsN)", info.capacity_pages, info.set_pages,
                        info.page_tokens, info.n_planes, (unsigned long long)info.plane_page_bytes,
                        (unsigned long long)info.epoch, info.device,
                        PyBool_FromLong(info.is_cpu_memory), PyBool_FromLong(info.is_contiguous),
                        tiers, (unsigned long long)info.stride_bytes, info.member,
                        PyBool_FromLong(info.takes_token_ids)));
}

static PyObject *ns_get_name(struct ns_object *self, void *unused)
{
        PyObject *ret;

        if (!ns_enter(self))
                return NULL;
        ret = PyUnicode_FromString(kvl_ns_name(self->ns));
        ns_leave(self);
        return ret;
}

static PyObject *ns_get_uses_shm(struct ns_object *self, void *unused)
{
        int r;

        if (!CALL(ns, self, r = kvl_uses_shm(self->ns)))
                return NULL;
        return PyBool_FromLong(r);
}

static PyObject *ns_get_is_closed(struct ns_object *self, void *unused)
{
        return PyBool_FromLong(!self->ns);
}

static PyObject *ns_arena(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"arena", {"plane", "writable", "dtype"}, 0, 1};
        bool is_writable = false;
        uint32_t plane = 0;
        PyObject *a[3];

        if (!args_parse(&s, args, n, names, a) || !arg_u32(a[0], "plane", &plane) ||
                !arg_bool(a[1], &is_writable))
                return NULL;
        return view_of_arena(self, plane, is_writable, a[2]);
}

static PyMethodDef own_methods[] = {
        METHOD("arena", ns_arena,
                "arena($self, plane=0, *, writable=False, dtype='u8')\n--\n\n"
                "View of a whole plane, of shape (pages of the device, elements of a page): page i "
                "is row i.\n\nOnly rows of pages that are leased or pinned here may be touched: "
                "others fault (SIGSEGV).\nwritable: write to leased, unpublished pages alone; nothing checks it."),
        METHOD("session", namespace_session,
                "session($self, id, *, must_exist=False, expire=0, load=0)\n"
                "--\n\n"
                "Opens the conversation with this id (1..64 bytes), or makes it. NotFound where it must\n"
                "exist. load: seconds for loading it from another host."),
        {"request", (PyCFunction)namespace_request, METH_NOARGS,
                "request($self)\n"
                "--\n\n"
                "Begins a request, which ties together the lookups, leases and publishes of one prompt."},
        METHOD("window", namespace_window,
                "window($self, *, first_tokens=0, last_tokens=0, chunk_pages=0, request=0, session=None)"
                "\n--\n\nOpens a window over a text that is larger than the device, and leases its buffer."),
        METHOD("adopt", namespace_adopt,
                "adopt($self, pages, state)\n"
                "--\n\n"
                "Pages of these numbers. state: 'leased' or 'pinned' where this connection (of a lease,\n"
                "its group) has them already and the object shall give them back; 'mapped' maps the pages\n"
                "that another member of the group has."),
        {"close", (PyCFunction)ns_close, METH_NOARGS,
                "close($self)\n--\n\n"
                "Unmaps it, drops its pins. BufferError while views live; Busy while other threads use it."},
        {"__enter__", return_self, METH_NOARGS, NULL},
        {"__reduce__", refuse_pickling, METH_NOARGS, NULL},
        {"__exit__", exit_close, METH_VARARGS, NULL},
};

static PyGetSetDef getset[] = {
        {"name", (getter)ns_get_name, NULL, "As it was opened.", NULL},
        {"info", (getter)ns_get_info, NULL, "A NamespaceInfo.", NULL},
        {"connection", get_object_field, NULL, "The Connection it is of.", FIELD(ns_object, conn)},
        {"uses_shm", (getter)ns_get_uses_shm, NULL, "Through shared memory; else the socket.",
                NULL},
        {"is_closed", (getter)ns_get_is_closed, NULL, "It, or its connection, was closed.", NULL},
        {"n_views", get_u32_field, NULL, "Views that live.", FIELD(ns_object, n_views)},
        {NULL, NULL, NULL, NULL, NULL},
};

/* A type has one table of methods: gathered from all files. */
#define MAX_METHODS 64
static PyMethodDef methods[MAX_METHODS];

static void gather(void)
{
        size_t n = 0;

        for (size_t i = 0; i < sizeof(own_methods) / sizeof(own_methods[0]); ++i)
                methods[n++] = own_methods[i];
        for (const PyMethodDef *m = ns_call_methods; m->ml_name; ++m)
                methods[n++] = *m;
        for (const PyMethodDef *m = ns_start_methods; m->ml_name; ++m)
                methods[n++] = *m;
}

static PyType_Slot slots[] = {
        {Py_tp_doc, (void *)"A model context of the tenant: Connection.namespace()."},
        {Py_tp_dealloc, ns_dealloc},
        {Py_tp_traverse, ns_traverse},
        {Py_tp_methods, methods},
        {Py_tp_getset, getset},
        {0, NULL},
};

int namespace_init(PyObject *module)
{
        gather();
        return type_add(module, &ns_type, "kvlease.Namespace", sizeof(struct ns_object), slots);
}
