/* Pages: page numbers leased or pinned together, and given back together. */
#include "client/python/src/module.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

PyTypeObject *pages_type;

static const char *const state_names[] = {"leased", "pinned", "mapped", "closed"};

/* Without the GIL. Doesn't block. */
static int give_back_start(
        struct ns_object *ns, const uint32_t *numbers, uint32_t n, enum pages_state state)
{
        if (state == PAGES_LEASED)
                return kvl_free_start(ns->ns, numbers, n, NULL, NULL);
        return state == PAGES_PINNED ? kvl_release_start(ns->ns, numbers, n, NULL, NULL) : 0;
}

void numbers_give_back(
        struct ns_object *ns, const uint32_t *numbers, uint32_t n, enum pages_state state)
{
        PyObject *type, *value, *traceback;

        if (n == 0)
                return;
        PyErr_Fetch(&type, &value, &traceback);
        (void)CALL(ending, ns, give_back_start(ns, numbers, n, state));
        PyErr_Restore(type, value, traceback);
}

struct pages_object *pages_new(
        struct ns_object *ns, uint32_t *numbers, uint32_t n, enum pages_state state)
{
        struct pages_object *self = object_new(pages_type);

        if (!self) {
                numbers_give_back(ns, numbers, n, state);
                free(numbers);
                return NULL;
        }
        self->ns = (struct ns_object *)Py_NewRef((PyObject *)ns);
        self->numbers = numbers;
        self->n = n;
        self->state = state;
        return self;
}

static bool is_open(struct pages_object *self)
{
        if (self->state != PAGES_CLOSED)
                return true;
        raise_closed("pages object");
        return false;
}

bool pages_is_usable(struct pages_object *self)
{
        if (!is_open(self))
                return false;
        if (self->is_moving)
                raise_busy("a call that was begun moves these pages, or gives them back");
        return !self->is_moving;
}

void pages_begin_move(struct pages_object *self)
{
        ++self->n_busy;
        self->is_moving = true;
}

void pages_end_move(struct pages_object *self)
{
        --self->n_busy;
        self->is_moving = false;
}

bool pages_can_change(struct pages_object *self, const char *what)
{
        if (!is_open(self))
                return false;
        if (self->n_views > 0) {
                PyErr_Format(PyExc_BufferError, "%u views of the pages are still used: %s",
                        self->n_views, what);
                return false;
        }
        if (self->n_busy > 0) {
                raise_busy("another call that was begun has some of these pages");
                return false;
        }
        return true;
}

void pages_drop_first(struct pages_object *self, uint32_t n)
{
        self->n -= n;
        memmove(self->numbers, self->numbers + n, self->n * sizeof(*self->numbers));
}

bool pages_put_first(struct pages_object *self, const uint32_t *numbers, uint32_t n)
{
        uint32_t *at;

        if (n == 0)
                return true;
        at = malloc(((size_t)n + self->n) * sizeof(*at));
        if (!at) {
                PyErr_NoMemory();
                return false;
        }
        memcpy(at, numbers, n * sizeof(*at));
        if (self->n)
                memcpy(at + n, self->numbers, self->n * sizeof(*at));
        free(self->numbers);
        self->numbers = at;
        self->n += n;
        return true;
}

/* ---- giving back ----------------------------------------------------------------------------- */

/* The end of the connection gives everything back as well. */
static bool is_over(int r)
{
        return r == -ENOTCONN || r == -ESTALE || r == -ECONNRESET || r == -EPROTO;
}

static void set_closed(struct pages_object *self)
{
        self->state = PAGES_CLOSED;
        self->numbers = NULL;
        self->n = 0;
}

/* Gives the pages back. The object is closed to other threads meanwhile. If nothing happened it is
 * as before. */
static int give_back(struct pages_object *self, kvl_stream stream, bool has_stream)
{
        bool is_lease = self->state == PAGES_LEASED, is_ours = self->state != PAGES_MAPPED;
        enum pages_state state = self->state;
        uint32_t *numbers = self->numbers, n = self->n;
        struct ns_object *ns = self->ns;
        int r = 0;

        set_closed(self);
        if (n > 0 && is_ours && has_stream)
                (void)CALL(ending, ns,
                        r = (is_lease ? kvl_free_on_stream : kvl_release_on_stream)(
                                ns->ns, numbers, n, stream));
        else if (n > 0 && is_ours)
                (void)CALL(ending, ns, r = (is_lease ? kvl_free : kvl_release)(ns->ns, numbers, n));
        if (is_over(r))
                r = 0;
        if (r && r != -ETIMEDOUT) {
                self->state = state;
                self->numbers = numbers;
                self->n = n;
                return r;
        }
        free(numbers);
        return r;
}

static PyObject *pages_close(
        struct pages_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"close", {"stream"}, 0, 0};
        kvl_stream stream = NULL;
        PyObject *a[1];
        int r;

        if (!args_parse(&s, args, n, names, a) || !arg_stream(a[0], &stream))
                return NULL;
        if (self->state == PAGES_CLOSED)
                Py_RETURN_NONE;
        if (!pages_can_change(self, "they keep their pages"))
                return NULL;
        r = give_back(self, stream, is_given(a[0]));
        return none_or_raise(r);
}

/* Unlike exit_close(), which looks the method up: each hit of an engine ends here. */
static PyObject *pages_exit(struct pages_object *self, PyObject *args)
{
        return pages_close(self, NULL, 0, NULL);
}

/* Gives pins or leases back without waiting for an answer: for callbacks and event loops. */
static PyObject *pages_close_soon(struct pages_object *self, PyObject *unused)
{
        int r = 0;

        if (self->state == PAGES_CLOSED)
                Py_RETURN_NONE;
        if (!pages_can_change(self, "they keep their pages"))
                return NULL;
        pages_begin_move(self);
        if (self->n > 0)
                (void)CALL(ending, self->ns,
                        r = give_back_start(self->ns, self->numbers, self->n, self->state));
        pages_end_move(self);
        if (r && !is_over(r))
                return raise_code(r);
        free(self->numbers);
        set_closed(self);
        Py_RETURN_NONE;
}

static int pages_traverse(struct pages_object *self, visitproc visit, void *arg)
{
        Py_VISIT(Py_TYPE((PyObject *)self));
        Py_VISIT(self->ns);
        Py_VISIT(self->spans);
        return 0;
}

static void pages_give_up(PyObject *object)
{
        struct pages_object *self = (struct pages_object *)object;

        if (self->state != PAGES_CLOSED && self->state != PAGES_MAPPED && self->n > 0 &&
                self->ns->ns && !conn_is_inherited(self->ns->conn)) {
                if (PyErr_ResourceWarning(NULL, 1, "kvlease.Pages (%u, %s) were not closed",
                            self->n, state_names[self->state]) < 0)
                        PyErr_WriteUnraisable(NULL);
                give_back(self, NULL, false);
        }
        free(self->numbers);
        Py_XDECREF(self->spans);
        Py_XDECREF((PyObject *)self->ns);
}

static void pages_dealloc(PyObject *self)
{
        object_dealloc(self, pages_give_up);
}

static PyObject *pages_detach(struct pages_object *self, PyObject *unused)
{
        PyObject *ret;

        if (!pages_can_change(self, "they keep their pages"))
                return NULL;
        ret = numbers_tuple(self->numbers, self->n);
        if (!ret)
                return NULL;
        free(self->numbers);
        set_closed(self);
        return ret;
}

static PyObject *pages_take(struct pages_object *self, PyObject *object)
{
        struct pages_object *ret;
        uint32_t n = 0, *at;
        uint64_t n_tokens;

        if (!arg_u32(object, "n_pages", &n) || !pages_can_change(self, "they can't be divided"))
                return NULL;
        if (self->is_of_window)
                return raise_code_as(-EINVAL, "pages of a window's take() can't be divided", NULL);
        if (n > self->n) {
                PyErr_Format(PyExc_ValueError, "%u pages of %u", n, self->n);
                return NULL;
        }
        at = numbers_new(self->numbers, n);
        if (!at)
                return NULL;
        ret = pages_new(self->ns, at, n, self->state);
        if (!ret)
                return NULL;
        n_tokens = (uint64_t)n * self->ns->page_tokens;
        if (n_tokens > self->n_tokens)
                n_tokens = self->n_tokens;
        if (n)
                pages_drop_first(self, n);
        self->n_tokens -= n_tokens;
        ret->n_tokens = n_tokens;
        return (PyObject *)ret;
}

/* ---- calls that leave them as they are ------------------------------------------------------- */

/* `numbers` is read with the GIL alone: the end of a publish by another thread replaces it. */

bool pages_enter(struct pages_object *self)
{
        if (!pages_is_usable(self) || !ns_enter(self->ns))
                return false;
        ++self->n_busy;
        return true;
}

void pages_leave(struct pages_object *self)
{
        --self->n_busy;
        ns_leave(self->ns);
}

static bool is_index(struct pages_object *self, Py_ssize_t i, uint32_t *ret)
{
        if (!pages_is_usable(self))
                return false;
        if (i < 0)
                i += self->n;
        if (i < 0 || i >= (Py_ssize_t)self->n) {
                PyErr_Format(PyExc_IndexError, "there are %u pages", self->n);
                return false;
        }
        *ret = (uint32_t)i;
        return true;
}

/* The conversion may run Python code that changes the pages, so it comes first. */
static bool get_index(struct pages_object *self, PyObject *object, uint32_t *ret)
{
        Py_ssize_t i = PyNumber_AsSsize_t(object, PyExc_IndexError);

        return !(i == -1 && PyErr_Occurred()) && is_index(self, i, ret);
}

static PyObject *pages_pin(struct pages_object *self, PyObject *unused)
{
        uint32_t *at = numbers_new(self->numbers, self->n), n = self->n;
        struct pages_object *ret;
        int r;

        if (!at || !CALL(pages, self, r = n ? kvl_pin(self->ns->ns, at, n) : 0)) {
                free(at);
                return NULL;
        }
        if (r) {
                free(at);
                return raise_code(r);
        }
        ret = pages_new(self->ns, at, n, PAGES_PINNED);
        if (ret)
                ret->n_tokens = self->n_tokens;
        return (PyObject *)ret;
}

static PyObject *pages_fetch(struct pages_object *self, PyObject *unused)
{
        _cleanup_free_ uint32_t *at = NULL;
        int r = 0;

        if (!pages_can_change(self, "their pages would move") ||
                !(at = numbers_new(self->numbers, self->n)) || !pages_enter(self))
                return NULL;
        if (self->n) {
                self->is_moving = true;
                UNLOCKED(r = kvl_fetch(self->ns->ns, self->numbers, self->n, at));
                self->is_moving = false;
                memcpy(self->numbers, at, self->n * sizeof(*at));
        }
        pages_leave(self);
        return none_or_raise(r);
}

static PyObject *pages_tier(struct pages_object *self, PyObject *object)
{
        uint32_t i = 0, number;
        int r;

        if (!get_index(self, object, &i))
                return NULL;
        number = self->numbers[i];
        if (!CALL(pages, self, r = kvl_page_tier(self->ns->ns, number)))
                return NULL;
        return r < 0 ? raise_code(r) : types_new("Tier", Py_BuildValue("(i)", r));
}

static PyObject *pages_read(
        struct pages_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"read", {"index", "n_bytes", "plane", "offset"}, 1, 2};
        uint64_t offset = 0, n_bytes;
        uint32_t i = 0, plane = 0, number;
        _cleanup_ref_ PyObject *bytes = NULL;
        PyObject *a[4];
        char *to;
        int r;

        if (!args_parse(&s, args, n, names, a) || !arg_u32(a[2], "plane", &plane) ||
                !arg_u64(a[3], "offset", &offset))
                return NULL;
        n_bytes = offset < self->ns->plane_page_bytes ? self->ns->plane_page_bytes - offset : 0;
        if ((is_given(a[1]) && !arg_u64(a[1], "n_bytes", &n_bytes)) || !get_index(self, a[0], &i))
                return NULL;
        if (n_bytes > self->ns->plane_page_bytes)
                return raise_code_as(-EINVAL, "a page isn't that large in a plane", NULL);
        if (!pages_have_planes(self, plane, 1))
                return NULL;
        number = self->numbers[i];
        bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n_bytes);
        to = bytes ? PyBytes_AsString(bytes) : NULL;
        if (!to || !CALL(pages, self,
                           r = kvl_page_read(self->ns->ns, number, plane, offset, to, n_bytes)))
                return NULL;
        return r ? raise_code(r) : Py_NewRef(bytes);
}

static PyObject *pages_write(
        struct pages_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"write", {"index", "data", "plane", "offset"}, 2, 2};
        _cleanup_buffer_ Py_buffer data = {0};
        uint32_t i = 0, plane = 0, number;
        uint64_t offset = 0;
        PyObject *a[4];
        int r;

        if (!args_parse(&s, args, n, names, a) || !arg_u32(a[2], "plane", &plane) ||
                !arg_u64(a[3], "offset", &offset) ||
                PyObject_GetBuffer(a[1], &data, PyBUF_C_CONTIGUOUS) < 0 ||
                !get_index(self, a[0], &i))
                return NULL;
        if (self->state != PAGES_LEASED)
                return raise_code_as(
                        -EACCES, "only leased pages are written: these are published", NULL);
        number = self->numbers[i];
        if (!CALL(pages, self,
                    r = kvl_page_write(
                            self->ns->ns, number, plane, offset, data.buf, (uint64_t)data.len)))
                return NULL;
        return none_or_raise(r);
}

static PyObject *pages_copy_page(
        struct pages_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"copy_page", {"index", "source", "source_index"}, 3, 3};
        struct pages_object *from;
        Py_ssize_t to_index, from_index;
        uint32_t i = 0, j = 0, to, source;
        PyObject *a[3];
        int r;

        if (!args_parse(&s, args, n, names, a))
                return NULL;
        to_index = PyNumber_AsSsize_t(a[0], PyExc_IndexError);
        if (to_index == -1 && PyErr_Occurred())
                return NULL;
        from_index = PyNumber_AsSsize_t(a[2], PyExc_IndexError);
        if (from_index == -1 && PyErr_Occurred())
                return NULL;
        from = (struct pages_object *)a[1];
        if (!pages_is_usable(self))
                return NULL;
        if (Py_TYPE(a[1]) != pages_type || from->ns != self->ns || self->state != PAGES_LEASED)
                return raise_code_as(
                        -EINVAL, "a page of the same namespace is copied into a leased one", NULL);
        if (!is_index(self, to_index, &i) || !is_index(from, from_index, &j) ||
                !pages_have_planes(from, 0, self->ns->n_planes) || !pages_enter(self))
                return NULL;
        source = from->numbers[j];
        to = self->numbers[i];
        ++from->n_busy;
        UNLOCKED(r = kvl_page_copy(self->ns->ns, source, to));
        --from->n_busy;
        pages_leave(self);
        return none_or_raise(r);
}

/* ---- views ----------------------------------------------------------------------------------- */

static PyObject *pages_page(
        struct pages_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"page", {"index", "plane", "dtype"}, 1, 2};
        uint32_t i = 0, plane = 0;
        PyObject *a[3];

        if (!args_parse(&s, args, n, names, a) || !arg_u32(a[1], "plane", &plane) ||
                !get_index(self, a[0], &i))
                return NULL;
        return view_of_pages(self, i, 1, true, plane, a[2]);
}

static PyObject *pages_view(
        struct pages_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"view", {"plane", "start", "stop", "dtype"}, 0, 1};
        uint32_t plane = 0, start = 0, stop = self->n;
        PyObject *a[4];

        if (!args_parse(&s, args, n, names, a) || !arg_u32(a[0], "plane", &plane) ||
                !arg_u32(a[1], "start", &start) || !arg_u32(a[2], "stop", &stop) ||
                !pages_is_usable(self))
                return NULL;
        if (stop > self->n || start >= stop) {
                PyErr_Format(PyExc_IndexError, "pages %u to %u of %u", start, stop, self->n);
                return NULL;
        }
        return view_of_pages(self, start, stop - start, false, plane, a[3]);
}

/* ---- what they are --------------------------------------------------------------------------- */

static Py_ssize_t pages_len(struct pages_object *self)
{
        return self->n;
}

static PyObject *pages_item(struct pages_object *self, Py_ssize_t i)
{
        if (!is_open(self))
                return NULL;
        if (i < 0 || i >= (Py_ssize_t)self->n) {
                PyErr_Format(PyExc_IndexError, "there are %u pages", self->n);
                return NULL;
        }
        return PyLong_FromUnsignedLong(self->numbers[i]);
}

static PyObject *pages_repr(struct pages_object *self)
{
        return PyUnicode_FromFormat("<kvlease.Pages %s %u>", state_names[self->state], self->n);
}

static PyObject *get_numbers(struct pages_object *self, void *unused)
{
        return is_open(self) ? numbers_tuple(self->numbers, self->n) : NULL;
}

static PyObject *get_state(struct pages_object *self, void *unused)
{
        return PyUnicode_FromString(state_names[self->state]);
}

static PyObject *get_reason(struct pages_object *self, void *unused)
{
        const char *name = reason_name(self->reason);

        return name ? PyUnicode_FromString(name) : Py_NewRef(Py_None);
}

static PyObject *get_waited(struct pages_object *self, void *unused)
{
        return PyFloat_FromDouble((double)self->waited_usec / 1e6);
}

static PyObject *get_is_closed(struct pages_object *self, void *unused)
{
        return PyBool_FromLong(self->state == PAGES_CLOSED || !self->ns->ns);
}

PyObject *namespace_adopt(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"adopt", {"pages", "state"}, 2, 2};
        enum pages_state state = PAGES_CLOSED;
        _cleanup_numbers_ struct numbers numbers = {0};
        uint32_t *at;
        PyObject *a[2];
        int r;

        if (!args_parse(&s, args, n, names, a))
                return NULL;
        for (int i = PAGES_LEASED; i < PAGES_CLOSED; ++i) {
                if (PyUnicode_Check(a[1]) &&
                        PyUnicode_CompareWithASCIIString(a[1], state_names[i]) == 0)
                        state = (enum pages_state)i;
        }
        if (state == PAGES_CLOSED) {
                PyErr_SetString(PyExc_ValueError, "state must be 'leased', 'pinned' or 'mapped'");
                return NULL;
        }
        if (!numbers_get(a[0], &numbers) ||
                !CALL(ns, self, r = numbers.n ? kvl_map_pages(self->ns, numbers.at, numbers.n) : 0))
                return NULL;
        /* A scheduler process uses pages that it never maps. */
        if (r && !(r == -EACCES && state != PAGES_MAPPED))
                return raise_code(r);
        at = numbers.copy;
        numbers.copy = NULL;
        return (PyObject *)pages_new(self, at, numbers.n, state);
}

static PyMethodDef methods[] = {
        METHOD("close", pages_close,
                "close($self, *, stream=None)\n"
                "--\n\n"
                "Releases pins, and frees pages that are still leased. stream: after the work that was\n"
                "put on it, without waiting. BufferError while views live. An end of the connection is no\n"
                "error. Where it raises the pages stay as they are, but after Timeout."),
        {"close_soon", (PyCFunction)pages_close_soon, METH_NOARGS,
                "close_soon($self)\n--\n\nAs close(), without waiting for the daemon's answer."},
        {"detach", (PyCFunction)pages_detach, METH_NOARGS,
                "detach($self)\n--\n\n"
                "Their numbers, which the caller gives back: Namespace.release(), free(), adopt()."},
        {"take", (PyCFunction)pages_take, METH_O,
                "take($self, n_pages, /)\n--\n\nMoves the first n pages into an object of their own."},
        {"pin", (PyCFunction)pages_pin, METH_NOARGS,
                "pin($self)\n--\n\nOne pin more of each page, in an object of its own."},
        {"fetch", (PyCFunction)pages_fetch, METH_NOARGS,
                "fetch($self)\n--\n\n"
                "Brings pinned pages up to the device; their numbers change. Full, NotFound, Timeout where some\nstay where they are, still pinned."},
        {"tier", (PyCFunction)pages_tier, METH_O,
                "tier($self, index, /)\n--\n\nWhere a page lies."},
        METHOD("read", pages_read,
                "read($self, index, n_bytes=None, *, plane=0, offset=0)\n--\n\n"
                "Copies out of a page, wherever it lies. None: to its end."),
        METHOD("write", pages_write,
                "write($self, index, data, *, plane=0, offset=0)\n--\n\nCopies into a leased page."),
        METHOD("read_many", pages_read_many,
                "read_many($self, indices=None, n_bytes=None, *, first_plane=0, n_planes=None, offset=0, into=None)\n--\n\n"
                "Copies out of many pages in one call: page after page, of each plane after plane. "
                "Indices None:\nof all pages; n_planes None: to the last; n_bytes None: to the "
                "end of each page. Bytes, or None\nwhere they were copied into the buffer `into`, which has their size."),
        METHOD("write_many", pages_write_many,
                "write_many($self, data, indices=None, *, n_bytes=None, first_plane=0, n_planes=None, offset=0)\n--\n\n"
                "The reverse, into leased pages. Nothing is written where one is refused."),
        METHOD("copy_page", pages_copy_page,
                "copy_page($self, index, source, source_index)\n--\n\n"
                "Copies a pinned page into a leased one of these, in all planes."),
        METHOD("page", pages_page,
                "page($self, index, plane=0, *, dtype='u8')\n--\n\n"
                "View of one page, of shape (elements,): a buffer, for DLPack and CUDA arrays, without a copy."),
        METHOD("view", pages_view,
                "view($self, plane=0, *, start=0, stop=..., dtype='u8')\n--\n\n"
                "View of pages that lie one after the other, of shape (pages, elements of one). Invalid where\nthey don't."),
        {"__enter__", return_self, METH_NOARGS, NULL},
        {"__reduce__", refuse_pickling, METH_NOARGS, NULL},
        {"__exit__", (PyCFunction)pages_exit, METH_VARARGS, NULL},
        {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
        {"numbers", (getter)get_numbers, NULL, "Their numbers, a tuple.", NULL},
        {"state", (getter)get_state, NULL, "'leased', 'pinned', 'mapped' or 'closed'.", NULL},
        {"namespace", get_object_field, NULL, "The Namespace they are of.",
                FIELD(pages_object, ns)},
        {"n_tokens", get_u64_field, NULL, "Tokens in what a lookup found.",
                FIELD(pages_object, n_tokens)},
        {"reason", (getter)get_reason, NULL,
                "Why a lease waited or got fewer pages than it asked for, or None.", NULL},
        {"waited", (getter)get_waited, NULL, "Seconds a lease waited for room.", NULL},
        {"is_pending", get_bool_field, NULL,
                "lookup_wait(): the key after the last found is still being computed.",
                FIELD(pages_object, is_pending)},
        {"spans", get_object_field, NULL, "Of a session: a Span for each page; else None.",
                FIELD(pages_object, spans)},
        {"is_closed", (getter)get_is_closed, NULL, "They were given back.", NULL},
        {"n_views", get_u32_field, NULL, "Views that live.", FIELD(pages_object, n_views)},
        {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
        {Py_tp_doc,
                (void *)"Pages that were leased or pinned together. A sequence of their numbers."},
        {Py_tp_dealloc, pages_dealloc},
        {Py_tp_traverse, pages_traverse},
        {Py_tp_methods, methods},
        {Py_tp_getset, getset},
        {Py_tp_repr, pages_repr},
        {Py_sq_length, pages_len},
        {Py_sq_item, pages_item},
        {0, NULL},
};

int pages_init(PyObject *module)
{
        return type_add(module, &pages_type, "kvlease.Pages", sizeof(struct pages_object), slots);
}
