/* Window: reads a sequence that is larger than the device. */
#include "client/python/src/module.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct window_object {
        PyObject_HEAD struct ns_object *ns;
        struct kvl_window *window;  /* NULL: closed */
        struct pages_object *taken; /* of the last take(), or NULL */
        bool is_used;               /* a call is under way: one thread at a time */
};
static PyTypeObject *window_type;

PyObject *namespace_window(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"window",
                {"first_tokens", "last_tokens", "chunk_pages", "request", "session"}, 0, 0};
        struct kvl_window_options o = {.size = sizeof(o)};
        struct session_object *session = NULL;
        _cleanup_ref_ PyObject *object = NULL;
        struct window_object *window;
        struct kvl_window *opened;
        PyObject *a[5];
        int r;

        if (!args_parse(&s, args, n, names, a) || !arg_u64(a[0], "first_tokens", &o.first_tokens) ||
                !arg_u64(a[1], "last_tokens", &o.last_tokens) ||
                !arg_u32(a[2], "chunk_pages", &o.chunk_pages) || !arg_request(a[3], &o.request))
                return NULL;
        if (is_given(a[4])) {
                session = (struct session_object *)a[4];
                if (Py_TYPE(a[4]) != session_type || session->ns != self)
                        return raise_code_as(
                                -EINVAL, "session must be a Session of the namespace", NULL);
        }
        object = object_new(window_type);
        window = (struct window_object *)object;
        if (!window)
                return NULL;
        window->ns = (struct ns_object *)Py_NewRef((PyObject *)self);
        if (session ? !session_enter(session) : !ns_enter(self))
                return NULL;
        o.session = session ? session->session : NULL;
        UNLOCKED(r = kvl_window_open(self->ns, &o, &opened));
        if (session)
                session_leave(session);
        else
                ns_leave(self);
        if (r)
                return raise_code(r);
        window->window = opened;
        return Py_NewRef(object);
}

/* Ends the pages of the last take(), as the next call does. */
static bool end_taken(struct window_object *self)
{
        struct pages_object *taken = self->taken;

        if (taken && taken->n_views > 0) {
                PyErr_SetString(PyExc_BufferError,
                        "views of the pages that take() handed out are still used");
                return false;
        }
        if (taken && taken->n_busy > 0) {
                raise_busy("another thread reads pages that take() handed out");
                return false;
        }
        if (taken) {
                taken->state = PAGES_CLOSED;
                taken->n = 0;
        }
        self->taken = NULL;
        Py_XDECREF((PyObject *)taken);
        return true;
}

static bool begin_read(struct window_object *self)
{
        if (!ns_enter(self->ns))
                return false;
        if (self->window && !self->is_used) {
                self->is_used = true;
                return true;
        }
        ns_leave(self->ns);
        if (self->window)
                raise_busy("another thread uses the window");
        else
                raise_closed("window");
        return false;
}

static void end_use(struct window_object *self)
{
        self->is_used = false;
        ns_leave(self->ns);
}

/* Begins a call that ends the pages of the last take(). */
static bool begin_use(struct window_object *self)
{
        if (!begin_read(self))
                return false;
        if (end_taken(self))
                return true;
        end_use(self);
        return false;
}

static PyObject *window_append(
        struct window_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"append", {"pages", "stream"}, 1, 1};
        _cleanup_numbers_ struct numbers numbers = {0};
        struct pages_object *source = NULL;
        kvl_stream stream;
        PyObject *a[2];
        int r;

        if (!args_parse(&s, args, n, names, a) || !arg_stream(a[1], &stream) ||
                !numbers_get(a[0], &numbers))
                return NULL;
        if (Py_TYPE(a[0]) == pages_type) {
                source = (struct pages_object *)a[0];
                if (source->state != PAGES_PINNED || source->ns != self->ns)
                        return raise_code_as(
                                -EINVAL, "a window takes pinned pages of its namespace", NULL);
                if (!pages_can_change(source, "the window takes them over"))
                        return NULL;
        }
        if (!begin_use(self))
                return NULL;
        if (source)
                pages_begin_move(source);
        UNLOCKED(r = kvl_window_append(self->window, numbers.at, numbers.n, stream));
        end_use(self);
        if (source)
                pages_end_move(source);
        /* After other errors the window has the pages and their pins. */
        if (source && r != -EINVAL && r != -ENOMEM && r != -ECHILD) {
                source->state = PAGES_CLOSED;
                source->n = 0;
        }
        return none_or_raise(r);
}

/* a: first_plane, n_planes, as given. *ret_n is 0 if neither was given: all planes. None as
 * n_planes: all to the last; the library refuses a first plane that doesn't exist. Returns false
 * with an exception set. */
static bool get_planes(
        const struct ns_object *ns, PyObject *const *a, uint32_t *ret_first, uint32_t *ret_n)
{
        bool is_to_last = !is_given(a[1]);

        if (!arg_u32(a[0], "first_plane", ret_first) ||
                (!is_to_last && !arg_u32(a[1], "n_planes", ret_n)))
                return false;
        if (!is_to_last && *ret_n == 0) {
                raise_code_as(-EINVAL, "n_planes is 0, must be at least 1", NULL);
                return false;
        }
        if (is_to_last && *ret_first > 0)
                *ret_n = *ret_first < ns->n_planes ? ns->n_planes - *ret_first : 1;
        return true;
}

static PyObject *window_take(
        struct window_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {
                "take", {"first", "n_pages", "first_plane", "n_planes", "stream"}, 2, 2};
        uint32_t first = 0, n_pages = 0, first_plane = 0, n_planes = 0, count = 0, *copy;
        const uint32_t *at = NULL;
        kvl_stream stream;
        PyObject *a[5];
        int r;

        if (!args_parse(&s, args, n, names, a) || !arg_u32(a[0], "first", &first) ||
                !arg_u32(a[1], "n_pages", &n_pages) ||
                !get_planes(self->ns, a + 2, &first_plane, &n_planes) ||
                !arg_stream(a[4], &stream) || !begin_use(self))
                return NULL;
        if (n_planes == 0)
                UNLOCKED(r = kvl_window_take(self->window, first, n_pages, stream, &at, &count));
        else
                UNLOCKED(r = kvl_window_take_planes(self->window, first, n_pages, first_plane,
                                 n_planes, stream, &at, &count));
        copy = r ? NULL : numbers_new(at, count);
        end_use(self);
        if (!copy)
                return r ? raise_code(r) : NULL;
        self->taken = pages_new(self->ns, copy, count, PAGES_MAPPED);
        if (self->taken) {
                self->taken->is_of_window = true;
                self->taken->first_plane = first_plane;
                self->taken->n_planes = n_planes;
        }
        return Py_XNewRef((PyObject *)self->taken);
}

static PyObject *window_get_pages(struct window_object *self, void *unused)
{
        const uint32_t *at;
        PyObject *ret;
        uint32_t n = 0;

        if (!begin_read(self))
                return NULL;
        at = kvl_window_pages(self->window, &n);
        ret = numbers_tuple(at, at ? n : 0);
        end_use(self);
        return ret;
}

static int close_window(struct window_object *self, kvl_stream stream)
{
        struct kvl_window *window = self->window;
        int r = 0;

        self->window = NULL;
        (void)CALL(ending, self->ns, r = kvl_window_close(window, stream));
        return r;
}

static PyObject *window_close(
        struct window_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"close", {"stream"}, 0, 0};
        kvl_stream stream;
        PyObject *a[1];
        int r;

        if (!args_parse(&s, args, n, names, a) || !arg_stream(a[0], &stream))
                return NULL;
        if (!self->window)
                Py_RETURN_NONE;
        if (self->is_used)
                return raise_busy("another thread uses the window");
        if (!end_taken(self))
                return NULL;
        r = close_window(self, stream);
        return none_or_raise(r == -ENOTCONN ? 0 : r);
}

static int window_traverse(struct window_object *self, visitproc visit, void *arg)
{
        Py_VISIT(Py_TYPE((PyObject *)self));
        Py_VISIT(self->ns);
        Py_VISIT(self->taken);
        return 0;
}

/* Views hold the taken pages, which hold no window: so the window may be freed before them. Then
 * its buffer stays until the namespace is closed, which views prevent. */
static void window_end(PyObject *object)
{
        struct window_object *self = (struct window_object *)object;

        if (self->window && !(self->taken && self->taken->n_views > 0)) {
                end_taken(self);
                close_window(self, NULL);
        }
        Py_XDECREF((PyObject *)self->taken);
        Py_XDECREF((PyObject *)self->ns);
}

static void window_dealloc(PyObject *self)
{
        object_dealloc(self, window_end);
}

static PyMethodDef methods[] = {
        METHOD("append", window_append,
                "append($self, pages, *, stream=0)\n--\n\n"
                "Appends pinned pages in order of the text; the window takes them over, also where "
                "it raises Full,\nNotFound, Stale or Timeout: then some stay where they are."),
        METHOD("take", window_take,
                "take($self, first, n_pages, *, first_plane=0, n_planes=None, stream=0)\n"
                "--\n\n"
                "Returns pages of the text on the device, from an index on, at least one. They are valid\n"
                "until the next call on the window, which raises BufferError while views of them live.\n"
                "Pages, at most n_pages. With first_plane and n_planes (None: to the last) only these\n"
                "planes are moved and can be read, as attention layer by layer needs them. stream: its\n"
                "earlier work may still read the pages of the previous call. Raises Invalid (there are no\n"
                "such pages or planes), NotFound (a page is damaged or gone), Timeout (then close it),\n"
                "DeviceFailure."),
        METHOD("close", window_close,
                "close($self, *, stream=0)\n--\n\nCloses it: pins and buffer go. The text stays cached."),
        {"__enter__", return_self, METH_NOARGS, NULL},
        {"__reduce__", refuse_pickling, METH_NOARGS, NULL},
        {"__exit__", exit_close, METH_VARARGS, NULL},
        {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
        {"pages", (getter)window_get_pages, NULL,
                "Numbers of the text's pages, where each lies now.", NULL},
        {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
        {Py_tp_doc, (void *)"Over a text that is larger than the device: Namespace.window()."},
        {Py_tp_dealloc, window_dealloc},
        {Py_tp_traverse, window_traverse},
        {Py_tp_methods, methods},
        {Py_tp_getset, getset},
        {0, NULL},
};

int window_init(PyObject *module)
{
        return type_add(
                module, &window_type, "kvlease.Window", sizeof(struct window_object), slots);
}
