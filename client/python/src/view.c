/* View: memory of pages, or of an arena, without a copy: the buffer protocol, DLPack, CUDA's array
 * interface. While a view lives, its pages or arena can't be closed. */
#include "client/python/src/module.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- DLPack 1.0, as its header has it -------------------------------------------------------- */

#define DL_CPU       1
#define DL_CUDA      2
#define DL_READ_ONLY UINT64_C(1)

struct dl_device {
        int32_t type, id;
};

struct dl_tensor {
        void *data;
        struct dl_device device;
        int32_t ndim;
        struct {
                uint8_t code, bits;
                uint16_t lanes;
        } dtype;
        int64_t *shape, *strides;
        uint64_t byte_offset;
};

struct dl_managed {
        struct dl_tensor tensor;
        void *context;
        void (*deleter)(struct dl_managed *self);
};

struct dl_managed_versioned {
        uint32_t major, minor;
        void *context;
        void (*deleter)(struct dl_managed_versioned *self);
        uint64_t flags;
        struct dl_tensor tensor;
};

static const struct dtype {
        const char *name;
        uint8_t dl_code; /* DLDataTypeCode */
        uint8_t bytes;
        const char *format;  /* of the buffer protocol; NULL: none */
        const char *typestr; /* of CUDA's array interface; NULL: none */
} dtypes[] = {
        {"u8", 1, 1, "B", "|u1"}, {"i8", 0, 1, "b", "|i1"}, {"f16", 2, 2, "e", "<f2"},
        {"f32", 2, 4, "f", "<f4"}, {"bf16", 4, 2, NULL, NULL},
        {"f8_e4m3", 10, 1, NULL, NULL}, /* kDLFloat8_e4m3fn */
        {"f8_e5m2", 12, 1, NULL, NULL}, /* kDLFloat8_e5m2 */
};

struct view_object {
        PyObject_HEAD PyObject *holder; /* Pages or Namespace; NULL: released */
        struct ns_object *ns;
        uint32_t n_exports;
        const struct dtype *dtype;
        void *at;
        int ndim;
        Py_ssize_t shape[2], strides[2]; /* bytes */
        struct dl_device device;
        bool is_read_only;
};
static PyTypeObject *view_type;

/* ---- which device ---------------------------------------------------------------------------- */

/* Compares with a UUID as text: "GPU-" and hexadecimal digits with dashes. */
static bool is_uuid(const char *text, const unsigned char bytes[16])
{
        char hex[33];
        size_t n = 0;

        for (const char *c = strncmp(text, "GPU-", 4) == 0 ? text + 4 : text; *c && n < 33; ++c) {
                if (*c != '-')
                        hex[n++] = *c;
        }
        for (size_t i = 0; n == 32 && i < 16; ++i) {
                char pair[3];

                snprintf(pair, sizeof(pair), "%02x", bytes[i]);
                if (strncasecmp(pair, hex + 2 * i, 2) != 0)
                        return false;
        }
        return n == 32;
}

/* Returns CUDA's number of the device in this process. The library has loaded the driver. */
static int32_t cuda_ordinal(const char *uuid)
{
        void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
        int (*count)(int *) = NULL;
        int (*get)(int *, int) = NULL;
        int (*get_uuid)(unsigned char *, int) = NULL;
        unsigned char bytes[16];
        int n = 0, device;
        int32_t ret = -1;

        if (!driver)
                return -1;
        *(void **)&count = dlsym(driver, "cuDeviceGetCount");
        *(void **)&get = dlsym(driver, "cuDeviceGet");
        *(void **)&get_uuid = dlsym(driver, "cuDeviceGetUuid_v2");
        if (!get_uuid)
                *(void **)&get_uuid = dlsym(driver, "cuDeviceGetUuid");
        if (count && get && get_uuid && count(&n) == 0) {
                for (int i = 0; i < n && ret < 0; ++i) {
                        if (get(&device, i) == 0 && get_uuid(bytes, device) == 0 &&
                                is_uuid(uuid, bytes))
                                ret = i;
                }
        }
        dlclose(driver);
        return ret;
}

static bool set_device(struct view_object *self, bool is_on_device)
{
        if (!is_on_device || self->ns->is_cpu_memory) {
                self->device = (struct dl_device){DL_CPU, 0};
                return true;
        }
        self->device = (struct dl_device){DL_CUDA, cuda_ordinal(self->ns->device)};
        if (self->device.id >= 0)
                return true;
        raise_code_as(-ENOENT, "the CUDA driver has no device of the namespace's UUID here", NULL);
        return false;
}

/* ---- making and releasing -------------------------------------------------------------------- */

static const struct dtype *dtype_get(PyObject *object)
{
        if (!object)
                return &dtypes[0];
        for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); ++i) {
                if (PyUnicode_Check(object) &&
                        PyUnicode_CompareWithASCIIString(object, dtypes[i].name) == 0)
                        return &dtypes[i];
        }
        PyErr_SetString(
                PyExc_ValueError, "dtype must be one of u8, i8, f16, f32, bf16, f8_e4m3, f8_e5m2");
        return NULL;
}

/* Makes a view of n pages from `at` on, with `stride` bytes from one to the next. */
static struct view_object *view_new(
        struct ns_object *ns, void *at, uint32_t n, uint64_t stride, bool is_one, PyObject *dtype)
{
        const struct dtype *type = dtype_get(dtype);
        Py_ssize_t row = (Py_ssize_t)ns->plane_page_bytes;
        struct view_object *self;

        if (!type)
                return NULL;
        self = object_new(view_type);
        if (!self)
                return NULL;
        self->ns = ns;
        self->at = at;
        self->dtype = type;
        self->ndim = is_one ? 1 : 2;
        self->shape[0] = n;
        self->strides[0] = (Py_ssize_t)stride;
        self->shape[self->ndim - 1] = row / type->bytes;
        self->strides[self->ndim - 1] = type->bytes;
        return self;
}

/* Counts the view and makes it hold `holder`. */
static PyObject *view_hold(struct view_object *self, PyObject *holder)
{
        self->holder = Py_NewRef(holder);
        Py_INCREF((PyObject *)self->ns);
        ++self->ns->n_views;
        ++self->ns->conn->n_views;
        if (Py_TYPE(holder) == pages_type)
                ++((struct pages_object *)holder)->n_views;
        return (PyObject *)self;
}

static void let_go(struct view_object *self)
{
        struct ns_object *ns = self->ns;
        PyObject *holder = self->holder;

        self->holder = NULL;
        self->at = NULL;
        --ns->n_views;
        --ns->conn->n_views;
        if (Py_TYPE(holder) == pages_type)
                --((struct pages_object *)holder)->n_views;
        Py_DECREF(holder);
        Py_DECREF((PyObject *)ns);
}

PyObject *view_of_pages(struct pages_object *pages, uint32_t first, uint32_t n, bool is_one,
        uint32_t plane, PyObject *dtype)
{
        struct ns_object *ns = pages->ns;
        struct view_object *self;
        uint64_t stride;
        uint8_t *at;
        int tier;

        if (!pages_is_usable(pages) || !pages_have_planes(pages, plane, 1) || !ns_enter(ns))
                return NULL;
        at = kvl_page_ptr(ns->ns, pages->numbers[first], plane);
        tier = kvl_page_tier(ns->ns, pages->numbers[first]);
        stride = tier == KVL_TIER_DEVICE ? ns->stride_bytes : ns->plane_page_bytes;
        for (uint32_t i = 1; at && i < n; ++i) {
                if (kvl_page_ptr(ns->ns, pages->numbers[first + i], plane) == at + i * stride)
                        continue;
                ns_leave(ns);
                return raise_code_as(-EINVAL,
                        "the pages don't lie one after the other: take a view of each", NULL);
        }
        ns_leave(ns);
        if (!at && tier > KVL_TIER_DEVICE && plane < ns->n_planes)
                return raise_code_as(-ENOENT,
                        "the page lies below the device: fetch() brings the pages up", NULL);
        if (!at)
                return raise_code_as(-ENOENT,
                        "the page is not mapped here (a metadata-only connection, no such plane)",
                        NULL);
        self = view_new(ns, at, n, stride, is_one, dtype);
        if (!self)
                return NULL;
        self->is_read_only = pages->state != PAGES_LEASED;
        if (!set_device(self, tier == KVL_TIER_DEVICE)) {
                Py_DECREF((PyObject *)self);
                return NULL;
        }
        return view_hold(self, (PyObject *)pages);
}

PyObject *view_of_arena(struct ns_object *ns, uint32_t plane, bool is_writable, PyObject *dtype)
{
        struct view_object *self;
        void *at;

        if (!ns_enter(ns))
                return NULL;
        at = kvl_plane_base(ns->ns, plane);
        ns_leave(ns);
        if (!at)
                return raise_code_as(-ENOENT,
                        "the plane has no address here (a metadata-only connection, no such plane, or memory by cudaipc, which isn't contiguous)",
                        NULL);
        self = view_new(ns, at, ns->n_device_pages, ns->stride_bytes, false, dtype);
        if (!self)
                return NULL;
        self->is_read_only = !is_writable;
        if (!set_device(self, true)) {
                Py_DECREF((PyObject *)self);
                return NULL;
        }
        return view_hold(self, (PyObject *)ns);
}

static bool is_held(struct view_object *self)
{
        if (self->holder && !conn_is_inherited(self->ns->conn))
                return true;
        if (self->holder)
                raise_code_as(
                        -ECHILD, "pages of the parent process aren't mapped in a child", NULL);
        else
                raise_closed("view");
        return false;
}

static PyObject *view_release(struct view_object *self, PyObject *unused)
{
        if (self->n_exports > 0)
                return PyErr_Format(PyExc_BufferError,
                        "%u buffers or tensors of the view are still used", self->n_exports);
        if (self->holder)
                let_go(self);
        Py_RETURN_NONE;
}

static int view_traverse(struct view_object *self, visitproc visit, void *arg)
{
        Py_VISIT(Py_TYPE((PyObject *)self));
        Py_VISIT(self->holder);
        if (self->holder)
                Py_VISIT(self->ns);
        return 0;
}

static void view_end(PyObject *object)
{
        struct view_object *self = (struct view_object *)object;

        if (self->holder)
                let_go(self);
}

static void view_dealloc(PyObject *self)
{
        object_dealloc(self, view_end);
}

/* ---- the buffer protocol --------------------------------------------------------------------- */

/* Whether it is one page, or pages without gaps. */
static bool is_contiguous(const struct view_object *self)
{
        return self->ndim == 1 || self->shape[0] <= 1 ||
               self->strides[0] == self->shape[1] * self->strides[1];
}

/* Whether the consumer takes any strides. */
static bool takes_strides(int flags)
{
        return (flags & PyBUF_STRIDES) == PyBUF_STRIDES &&
               (flags & PyBUF_C_CONTIGUOUS) != PyBUF_C_CONTIGUOUS &&
               (flags & PyBUF_F_CONTIGUOUS) != PyBUF_F_CONTIGUOUS &&
               (flags & PyBUF_ANY_CONTIGUOUS) != PyBUF_ANY_CONTIGUOUS;
}

static int view_getbuffer(struct view_object *self, Py_buffer *buffer, int flags)
{
        buffer->obj = NULL;
        if (!is_held(self))
                return -1;
        if (self->device.type != DL_CPU) {
                PyErr_SetString(PyExc_BufferError,
                        "memory of a GPU has no CPU buffer: use DLPack, or Pages.read()");
                return -1;
        }
        if ((flags & PyBUF_WRITABLE) && self->is_read_only) {
                PyErr_SetString(PyExc_BufferError, "published pages are read-only");
                return -1;
        }
        if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && self->ndim == 2) {
                PyErr_SetString(PyExc_BufferError, "pages are rows: the view is C-contiguous");
                return -1;
        }
        if (!self->dtype->format) {
                PyErr_Format(PyExc_BufferError, "buffers have no format for %s: use DLPack",
                        self->dtype->name);
                return -1;
        }
        if (!is_contiguous(self) && !takes_strides(flags)) {
                PyErr_SetString(PyExc_BufferError,
                        "the pages lie stride_bytes apart, not one right behind the other: take a buffer with strides, DLPack, or a view of each page");
                return -1;
        }
        buffer->obj = Py_NewRef((PyObject *)self);
        buffer->buf = self->at;
        buffer->itemsize = self->dtype->bytes;
        buffer->len = self->shape[self->ndim - 1] * buffer->itemsize *
                      (self->ndim == 2 ? self->shape[0] : 1);
        buffer->readonly = self->is_read_only;
        buffer->ndim = self->ndim;
        buffer->format = flags & PyBUF_FORMAT ? (char *)(uintptr_t)self->dtype->format : NULL;
        buffer->shape = flags & PyBUF_ND ? self->shape : NULL;
        buffer->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? self->strides : NULL;
        buffer->suboffsets = NULL;
        buffer->internal = NULL;
        if (!buffer->shape)
                buffer->ndim = 1;
        ++self->n_exports;
        return 0;
}

static void view_releasebuffer(struct view_object *self, Py_buffer *buffer)
{
        --self->n_exports;
}

/* ---- DLPack ---------------------------------------------------------------------------------- */

/* Both kinds of tensor, and the arrays that they point to. */
struct exported {
        union {
                struct dl_managed plain;
                struct dl_managed_versioned versioned;
        };
        struct view_object *view;
        int64_t shape[2], strides[2]; /* elements */
};

static void exported_free(struct exported *e)
{
        PyGILState_STATE gil;

        if (Py_IsInitialized()) {
                gil = PyGILState_Ensure();
                --e->view->n_exports;
                Py_DECREF((PyObject *)e->view);
                PyGILState_Release(gil);
        }
        free(e);
}

static void delete_plain(struct dl_managed *tensor)
{
        exported_free(tensor->context);
}

static void delete_versioned(struct dl_managed_versioned *tensor)
{
        exported_free(tensor->context);
}

/* Deletes a capsule that wasn't consumed: a consumer renames it. */
static void delete_capsule(PyObject *capsule)
{
        const char *name = PyCapsule_GetName(capsule);
        void *at;

        if (!name || strncmp(name, "used_", 5) == 0)
                return;
        at = PyCapsule_GetPointer(capsule, name);
        if (at)
                exported_free(at); /* the tensor is its first member */
}

static struct exported *export(struct view_object *view, bool is_versioned)
{
        struct exported *e = calloc(1, sizeof(*e));
        struct dl_tensor *t;

        if (!e) {
                PyErr_NoMemory();
                return NULL;
        }
        for (int i = 0; i < view->ndim; ++i) {
                e->shape[i] = view->shape[i];
                e->strides[i] = view->strides[i] / view->dtype->bytes;
        }
        if (is_versioned) {
                e->versioned.major = 1;
                e->versioned.context = e;
                e->versioned.deleter = delete_versioned;
                e->versioned.flags = view->is_read_only ? DL_READ_ONLY : 0;
                t = &e->versioned.tensor;
        } else {
                e->plain.context = e;
                e->plain.deleter = delete_plain;
                t = &e->plain.tensor;
        }
        t->data = view->at;
        t->device = view->device;
        t->ndim = view->ndim;
        t->dtype.code = view->dtype->dl_code;
        t->dtype.bits = (uint8_t)(view->dtype->bytes * 8);
        t->dtype.lanes = 1;
        t->shape = e->shape;
        t->strides = e->strides;
        e->view = (struct view_object *)Py_NewRef((PyObject *)view);
        ++view->n_exports;
        return e;
}

/* Whether the consumer knows version 1 and later. */
static bool get_max_version(PyObject *object, bool *ret_is_versioned)
{
        PyObject *major;
        long n;

        *ret_is_versioned = false;
        if (!is_given(object))
                return true;
        major = PySequence_GetItem(object, 0);
        if (!major)
                return false;
        n = PyLong_AsLong(major);
        Py_DECREF(major);
        *ret_is_versioned = n >= 1;
        return !PyErr_Occurred();
}

static bool is_own_device(struct view_object *self, PyObject *object)
{
        PyObject *own;
        int r;

        if (!is_given(object))
                return true;
        own = Py_BuildValue("(ii)", (int)self->device.type, (int)self->device.id);
        r = own ? PyObject_RichCompareBool(own, object, Py_EQ) : -1;
        Py_XDECREF(own);
        if (r == 0)
                PyErr_SetString(PyExc_BufferError, "a view is exported on its own device alone");
        return r > 0;
}

static PyObject *view_dlpack(
        struct view_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {
                "__dlpack__", {"stream", "max_version", "dl_device", "copy"}, 0, 0};
        bool is_versioned;
        struct exported *e;
        PyObject *a[4], *ret;

        if (!args_parse(&s, args, n, names, a) || !is_held(self) ||
                !get_max_version(a[1], &is_versioned) || !is_own_device(self, a[2]))
                return NULL;
        if (a[3] && Py_IsTrue(a[3])) {
                PyErr_SetString(PyExc_BufferError, "a view is exported without a copy");
                return NULL;
        }
        if (self->is_read_only && !is_versioned) {
                PyErr_SetString(PyExc_BufferError,
                        "published pages are read-only, which a consumer of DLPack before 1.0 can't be told");
                return NULL;
        }
        e = export(self, is_versioned);
        if (!e)
                return NULL;
        ret = PyCapsule_New(e, is_versioned ? "dltensor_versioned" : "dltensor", delete_capsule);
        if (!ret)
                exported_free(e);
        return ret;
}

static PyObject *view_dlpack_device(struct view_object *self, PyObject *unused)
{
        return Py_BuildValue("(ii)", (int)self->device.type, (int)self->device.id);
}

/* ---- what it is ------------------------------------------------------------------------------ */

static PyObject *get_shape(struct view_object *self, void *unused)
{
        return self->ndim == 1 ? Py_BuildValue("(n)", self->shape[0])
                               : Py_BuildValue("(nn)", self->shape[0], self->shape[1]);
}

static PyObject *get_cuda_array(struct view_object *self, void *unused)
{
        if (self->device.type != DL_CUDA || !self->dtype->typestr) {
                PyErr_SetString(PyExc_AttributeError,
                        "only views of memory of a GPU, of u8, i8, f16 or f32, are CUDA arrays");
                return NULL;
        }
        if (!is_held(self))
                return NULL;
        return Py_BuildValue("{s:N,s:s,s:(KO),s:i}", "shape", get_shape(self, unused), "typestr",
                self->dtype->typestr, "data", (unsigned long long)(uintptr_t)self->at,
                self->is_read_only ? Py_True : Py_False, "version", 3);
}

static PyObject *get_address(struct view_object *self, void *unused)
{
        return is_held(self) ? PyLong_FromVoidPtr(self->at) : NULL;
}

static PyObject *get_n_bytes(struct view_object *self, void *unused)
{
        return PyLong_FromSsize_t(self->shape[self->ndim - 1] * self->dtype->bytes *
                                  (self->ndim == 2 ? self->shape[0] : 1));
}

static PyObject *get_dtype(struct view_object *self, void *unused)
{
        return PyUnicode_FromString(self->dtype->name);
}

static PyObject *get_is_released(struct view_object *self, void *unused)
{
        return PyBool_FromLong(!self->holder);
}

static PyMethodDef methods[] = {
        METHOD("__dlpack__", view_dlpack,
                "__dlpack__($self, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
                "For from_dlpack() of numpy, torch and cupy. Nothing is pending on the memory, so a stream needs\nno wait."),
        {"__dlpack_device__", (PyCFunction)view_dlpack_device, METH_NOARGS,
                "__dlpack_device__($self)\n--\n\n(1, 0): CPU; (2, n): CUDA device n of this process."},
        {"release", (PyCFunction)view_release, METH_NOARGS,
                "release($self)\n--\n\nEnds the view. BufferError while buffers or tensors of it live."},
        {"__enter__", return_self, METH_NOARGS, NULL},
        {"__reduce__", refuse_pickling, METH_NOARGS, NULL},
        {"__exit__", (PyCFunction)view_release, METH_VARARGS, NULL},
        {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
        {"__cuda_array_interface__", (getter)get_cuda_array, NULL, "Version 3.", NULL},
        {"shape", (getter)get_shape, NULL, "(elements,) or (pages, elements).", NULL},
        {"dtype", (getter)get_dtype, NULL, "'u8' and so on.", NULL},
        {"address", (getter)get_address, NULL, "Of its first byte.", NULL},
        {"n_bytes", (getter)get_n_bytes, NULL, "Of all of it.", NULL},
        {"is_read_only", get_bool_field, NULL, "Of published pages.",
                FIELD(view_object, is_read_only)},
        {"is_released", (getter)get_is_released, NULL, "release() was called.", NULL},
        {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
        {Py_tp_doc,
                (void *)"Memory of pages without a copy. It keeps what it is of from being "
                        "closed.\n\nPublished pages are read-only, and consumers are told. "
                        "torch.from_dlpack() doesn't care: writing\nto such a tensor changes the pages for everybody who finds them."},
        {Py_tp_dealloc, view_dealloc},
        {Py_tp_traverse, view_traverse},
        {Py_tp_methods, methods},
        {Py_tp_getset, getset},
        {Py_bf_getbuffer, view_getbuffer},
        {Py_bf_releasebuffer, view_releasebuffer},
        {0, NULL},
};

int view_init(PyObject *module)
{
        return type_add(module, &view_type, "kvlease.View", sizeof(struct view_object), slots);
}
