/* Session: a conversation that the daemon keeps. Request: the work on one prompt. */
#include "client/python/src/module.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

PyTypeObject *session_type, *request_type;

bool session_enter(struct session_object *self)
{
        if (!ns_enter(self->ns))
                return false;
        if (!self->session) {
                ns_leave(self->ns);
                raise_closed("session");
                return false;
        }
        ++self->n_calls;
        return true;
}

void session_leave(struct session_object *self)
{
        --self->n_calls;
        ns_leave(self->ns);
}

static PyObject *info_object(const struct kvl_session_info *i)
{
        return types_new("SessionInfo",
                Py_BuildValue("(NIKKN)", PyBool_FromLong(i->is_new), i->n_pages,
                        (unsigned long long)i->n_tokens, (unsigned long long)i->lost_tokens,
                        i->n_pages ? PyBytes_FromStringAndSize(
                                             (const char *)i->last_key, sizeof(i->last_key))
                                   : Py_NewRef(Py_None)));
}

static PyObject *open_session(
        struct ns_object *ns, const Py_buffer *id, const struct kvl_session_options *o)
{
        struct kvl_session_info info = {.size = sizeof(info)};
        _cleanup_ref_ PyObject *object = object_new(session_type);
        struct session_object *self = (struct session_object *)object;
        struct kvl_session *session;
        int r;

        if (!self)
                return NULL;
        self->ns = (struct ns_object *)Py_NewRef((PyObject *)ns);
        if (!CALL(ns, ns,
                    r = kvl_session_open(ns->ns, id->buf, (size_t)id->len, o, &info, &session)))
                return NULL;
        if (r)
                return raise_code(r);
        self->session = session;
        self->info = info_object(&info);
        return self->info ? Py_NewRef(object) : NULL;
}

PyObject *namespace_session(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"session", {"id", "must_exist", "expire", "load"}, 1, 1};
        struct kvl_session_options o = {.size = sizeof(o)};
        _cleanup_ref_ PyObject *bytes = NULL;
        _cleanup_buffer_ Py_buffer id = {0};
        bool must_exist = false;
        int expire_msec = 0, load_msec = 0;
        PyObject *a[4];

        if (!args_parse(&s, args, n, names, a) || !arg_bool(a[1], &must_exist) ||
                !arg_msec(a[2], "expire", 0, &expire_msec) ||
                !arg_msec(a[3], "load", 0, &load_msec))
                return NULL;
        o.must_exist = must_exist;
        o.expire_sec = ((uint32_t)expire_msec + 999) / 1000;
        o.load_msec = (uint32_t)load_msec;
        bytes = PyUnicode_Check(a[0]) ? PyUnicode_AsUTF8String(a[0]) : Py_NewRef(a[0]);
        if (!bytes || PyObject_GetBuffer(bytes, &id, PyBUF_SIMPLE) < 0)
                return NULL;
        return open_session(self, &id, &o);
}

/* ---- its pages ------------------------------------------------------------------------------- */

static PyObject *span_object(const struct kvl_session_page *p)
{
        return types_new(
                "Span", Py_BuildValue("(KIy#)", (unsigned long long)p->first_token, p->n_tokens,
                                (const char *)p->key, (Py_ssize_t)sizeof(p->key)));
}

static PyObject *pages_of_session(
        struct ns_object *ns, const struct kvl_session_page *all, uint32_t n)
{
        uint32_t *numbers = malloc(((size_t)n + 1) * sizeof(*numbers));
        struct pages_object *pages;

        if (!numbers) {
                PyErr_NoMemory();
                for (uint32_t i = 0; i < n; ++i)
                        numbers_give_back(ns, &all[i].page, 1, PAGES_PINNED);
                return NULL;
        }
        for (uint32_t i = 0; i < n; ++i)
                numbers[i] = all[i].page;
        pages = pages_new(ns, numbers, n, PAGES_PINNED);
        if (!pages)
                return NULL;
        pages->spans = PyTuple_New(n);
        for (uint32_t i = 0; pages->spans && i < n; ++i) {
                PyObject *span = span_object(&all[i]);

                pages->n_tokens += all[i].n_tokens;
                if (!span || PyTuple_SetItem(pages->spans, i, span) < 0)
                        Py_CLEAR(pages->spans);
        }
        if (!pages->spans)
                Py_CLEAR(pages);
        return (PyObject *)pages;
}

/* Returns all pages that it had at the call: it may grow meanwhile. */
static PyObject *session_pages(
        struct session_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"pages", {"start", "max_pages"}, 0, 2};
        _cleanup_free_ struct kvl_session_page *all = NULL;
        uint32_t start = 0, max = 65536, count = 0;
        PyObject *a[2];
        int r;

        if (!args_parse(&s, args, n, names, a) || !arg_u32(a[0], "start", &start) ||
                !arg_u32(a[1], "max_pages", &max))
                return NULL;
        if (max < 1 || max > 1 << 20)
                return raise_code_as(-EINVAL, "max_pages must be from 1 to 1048576", NULL);
        all = calloc(max, sizeof(*all));
        if (!all)
                return PyErr_NoMemory();
        if (!CALL(session, self, r = kvl_session_pages(self->session, start, max, all, &count)))
                return NULL;
        return r == 0 || r == KVL_MISS ? pages_of_session(self->ns, all, r ? 0 : count)
                                       : raise_code(r);
}

static PyObject *session_truncate(
        struct session_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"truncate", {"first_tokens", "last_tokens"}, 2, 2};
        uint64_t first = 0, last = 0;
        uint32_t n_pages = 0;
        PyObject *a[2];
        int r;

        if (!args_parse(&s, args, n, names, a) || !arg_u64(a[0], "first_tokens", &first) ||
                !arg_u64(a[1], "last_tokens", &last) ||
                !CALL(session, self,
                        r = kvl_session_truncate(self->session, first, last, &n_pages)))
                return NULL;
        return r ? raise_code(r) : PyLong_FromUnsignedLong(n_pages);
}

/* Reads (first, end); end None: the end of the sequence. */
static bool range_get(PyObject *object, struct kvl_token_range *ret)
{
        _cleanup_ref_ PyObject *pair = PySequence_Tuple(object);

        *ret = (struct kvl_token_range){.end_token = KVL_TEXT_END};
        if (!pair)
                return false;
        if (PyTuple_Size(pair) != 2) {
                PyErr_SetString(
                        PyExc_ValueError, "a range is a pair: its first token, and its end");
                return false;
        }
        return arg_u64(PyTuple_GetItem(pair, 0), "the first token of a range", &ret->first_token) &&
               (PyTuple_GetItem(pair, 1) == Py_None ||
                       arg_u64(PyTuple_GetItem(pair, 1), "the end of a range", &ret->end_token));
}

/* Returns *ret_n owned ranges. NULL: an exception is set. */
static struct kvl_token_range *ranges_get(PyObject *object, uint32_t *ret_n)
{
        PyObject *list = PySequence_List(object); /* not shared, so its length is constant */
        Py_ssize_t n = list ? PyList_Size(list) : 0;
        struct kvl_token_range *ranges = NULL;

        if (list && (n < 1 || n > KVL_SESSION_RANGES_MAX)) {
                raise_code_as(-EINVAL, "the number of ranges must be from 1 to 1024", NULL);
        } else if (list) {
                ranges = calloc((size_t)n, sizeof(*ranges));
                if (!ranges)
                        PyErr_NoMemory();
        }
        for (Py_ssize_t i = 0; ranges && i < n; ++i)
                if (!range_get(PyList_GetItem(list, i), &ranges[i])) {
                        free(ranges);
                        ranges = NULL;
                }
        Py_XDECREF(list);
        *ret_n = (uint32_t)n;
        return ranges;
}

static PyObject *session_keep(
        struct session_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"keep", {"ranges"}, 1, 1};
        _cleanup_free_ struct kvl_token_range *ranges = NULL;
        uint32_t n_ranges, n_pages = 0;
        PyObject *a[1];
        int r;

        if (!args_parse(&s, args, n, names, a) || !(ranges = ranges_get(a[0], &n_ranges)) ||
                !CALL(session, self,
                        r = kvl_session_keep(self->session, ranges, n_ranges, &n_pages)))
                return NULL;
        return r ? raise_code(r) : PyLong_FromUnsignedLong(n_pages);
}

static PyObject *session_hint(
        struct session_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"hint", {"hint", "after"}, 1, 1};
        uint32_t hint = 0;
        PyObject *a[2];
        int r, msec = 0;

        if (!args_parse(&s, args, n, names, a) || !arg_u32(a[0], "hint", &hint) ||
                !arg_msec(a[1], "after", 0, &msec) ||
                !CALL(session, self,
                        r = kvl_session_hint(self->session, (enum kvl_hint)hint, (uint32_t)msec)))
                return NULL;
        return none_or_raise(r);
}

/* ---- close ----------------------------------------------------------------------------------- */

static int close_session(struct session_object *self, bool drops)
{
        struct kvl_session *session = self->session;
        int r = 0;

        self->session = NULL;
        (void)CALL(ending, self->ns, r = kvl_session_close(session, drops));
        return r;
}

static PyObject *session_close(
        struct session_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"close", {"drop"}, 0, 0};
        bool drops = false;
        PyObject *a[1];
        int r;

        if (!args_parse(&s, args, n, names, a) || !arg_bool(a[0], &drops))
                return NULL;
        if (!self->session)
                Py_RETURN_NONE;
        if (self->n_calls > 0)
                return raise_busy("other threads use the session");
        r = close_session(self, drops);
        if (r && drops)
                return raise_code(r);
        Py_RETURN_NONE;
}

static int session_traverse(struct session_object *self, visitproc visit, void *arg)
{
        Py_VISIT(Py_TYPE((PyObject *)self));
        Py_VISIT(self->ns);
        Py_VISIT(self->info);
        return 0;
}

static void session_end(PyObject *object)
{
        struct session_object *self = (struct session_object *)object;

        if (self->session)
                close_session(self, false);
        Py_XDECREF(self->info);
        Py_XDECREF((PyObject *)self->ns);
}

static void session_dealloc(PyObject *self)
{
        object_dealloc(self, session_end);
}

static PyObject *session_is_closed(struct session_object *self, void *unused)
{
        return PyBool_FromLong(!self->session || !self->ns->ns);
}

static PyMethodDef session_methods[] = {
        METHOD("pages", session_pages,
                "pages($self, start=0, max_pages=65536)\n"
                "--\n\n"
                "Its pages from an index on, max_pages (1..1048576) at most, pinned: Pages with a Span\n"
                "for each in .spans. Empty where there are none. Raises NotFound (a client dropped the\n"
                "session), Stale, Quota."),
        METHOD("truncate", session_truncate,
                "truncate($self, first_tokens, last_tokens)\n"
                "--\n\n"
                "Keeps the pages of the first first_tokens and the last last_tokens tokens. Returns how\n"
                "many pages were given up. Pages after the gap can be found through the session alone.\n"
                "Raises Invalid, NotFound."),
        METHOD("keep", session_keep,
                "keep($self, ranges)\n"
                "--\n\n"
                "Keeps the pages that have a token of one of the ranges. Ranges are pairs of a first\n"
                "token and an end (None: the end of the text), and ascend. Returns how many pages were\n"
                "given up. They stay where they are in the text: Span. Pages after the first gap can be\n"
                "found through the session alone. Raises Invalid, also for tokens that were given up\n"
                "before, NotFound."),
        METHOD("hint", session_hint,
                "hint($self, hint, *, after=0)\n"
                "--\n\n"
                "Tells the eviction policy about the next turn by a Hint; after: seconds, for\n"
                "Hint.RETURNS."),
        METHOD("close", session_close,
                "close($self, *, drop=False)\n"
                "--\n\n"
                "Closes the session; drop: forgets it for all clients."),
        {"__enter__", return_self, METH_NOARGS, NULL},
        {"__reduce__", refuse_pickling, METH_NOARGS, NULL},
        {"__exit__", exit_close, METH_VARARGS, NULL},
        {NULL, NULL, 0, NULL},
};

static PyGetSetDef session_getset[] = {
        {"info", get_object_field, NULL, "A SessionInfo, of when it was opened.",
                FIELD(session_object, info)},
        {"is_closed", (getter)session_is_closed, NULL, "It, or its namespace, was closed.", NULL},
        {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot session_slots[] = {
        {Py_tp_doc, (void *)"A conversation that the daemon keeps: Namespace.session()."},
        {Py_tp_dealloc, session_dealloc},
        {Py_tp_traverse, session_traverse},
        {Py_tp_methods, session_methods},
        {Py_tp_getset, session_getset},
        {0, NULL},
};

int session_init(PyObject *module)
{
        return type_add(module, &session_type, "kvlease.Session", sizeof(struct session_object),
                session_slots);
}

/* ---- requests -------------------------------------------------------------------------------- */

struct request_object {
        PyObject_HEAD struct ns_object *ns;
        uint64_t id; /* 0: ended */
};

uint64_t request_id(PyObject *request)
{
        return ((struct request_object *)request)->id;
}

PyObject *namespace_request(struct ns_object *self, PyObject *unused)
{
        _cleanup_ref_ PyObject *object = object_new(request_type);
        struct request_object *request = (struct request_object *)object;

        if (!request)
                return NULL;
        request->ns = (struct ns_object *)Py_NewRef((PyObject *)self);
        if (!CALL(ns, self, request->id = kvl_request_begin(self->ns)))
                return NULL;
        return Py_NewRef(object);
}

/* The daemon also forgets requests by itself, so a failure to tell it is no error. */
static PyObject *end_as(struct request_object *self, uint32_t ending)
{
        uint64_t id = self->id;
        int r = 0;

        self->id = 0;
        if (id)
                (void)CALL(ending, self->ns, r = kvl_request_end_as(self->ns->ns, id, ending));
        return none_or_raise(r == -EINVAL || r == -ENOMEM ? r : 0);
}

static PyObject *request_end(
        struct request_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"end", {"ending"}, 0, 0};
        uint32_t ending = 0;
        PyObject *a[1];

        if (!args_parse(&s, args, n, names, a) || !arg_u32(a[0], "ending", &ending))
                return NULL;
        return end_as(self, ending);
}

static PyObject *request_exit(struct request_object *self, PyObject *args)
{
        return end_as(self, 0);
}

static int request_traverse(struct request_object *self, visitproc visit, void *arg)
{
        Py_VISIT(Py_TYPE((PyObject *)self));
        Py_VISIT(self->ns);
        return 0;
}

static void request_finish(PyObject *object)
{
        struct request_object *self = (struct request_object *)object;

        if (self->id)
                Py_XDECREF(end_as(self, 0));
        Py_XDECREF((PyObject *)self->ns);
}

static void request_dealloc(PyObject *self)
{
        object_dealloc(self, request_finish);
}

static PyMethodDef request_methods[] = {
        METHOD("end", request_end,
                "end($self, *, ending=0)\n"
                "--\n\n"
                "Ends it; doesn't wait. ending: how its generation ended, 1 to 2**32 - 1, from which the\n"
                "eviction policy learns; 0: unknown. Equal ends have one number in all processes: a\n"
                "zlib.crc32(), not hash(). It counts for texts looked up or published with the request\n"
                "before. The end of a with block tells none."),
        {"__enter__", return_self, METH_NOARGS, NULL},
        {"__reduce__", refuse_pickling, METH_NOARGS, NULL},
        {"__exit__", (PyCFunction)request_exit, METH_VARARGS, NULL},
        {NULL, NULL, 0, NULL},
};

static PyGetSetDef request_getset[] = {
        {"id", get_u64_field, NULL, "Unique in the connection; 0 once it ended.",
                FIELD(request_object, id)},
        {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot request_slots[] = {
        {Py_tp_doc, (void *)"What one prompt looks up, leases and publishes: Namespace.request()."},
        {Py_tp_dealloc, request_dealloc},
        {Py_tp_traverse, request_traverse},
        {Py_tp_methods, request_methods},
        {Py_tp_getset, request_getset},
        {0, NULL},
};

int request_init(PyObject *module)
{
        return type_add(module, &request_type, "kvlease.Request", sizeof(struct request_object),
                request_slots);
}
