/* Connection: connect, events, dispatch, safe points, close. */
#include "client/python/src/module.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

PyTypeObject *conn_type;

/* Counted up in each forked child: a connection with another count is its parent's. */
static unsigned fork_count;

static void count_fork(void)
{
        ++fork_count;
}

bool conn_is_inherited(const struct conn_object *self)
{
        return self->fork_count != fork_count;
}

bool conn_enter(struct conn_object *self)
{
        if (self->fork_count != fork_count) {
                raise_code_as(-ECHILD,
                        "this connection is the parent process's: connect anew after a fork", NULL);
                return false;
        }
        if (!self->conn) {
                raise_closed("connection");
                return false;
        }
        ++self->n_calls;
        return true;
}

void conn_leave(struct conn_object *self)
{
        --self->n_calls;
}

PyObject *types_new(const char *name, PyObject *arguments)
{
        PyObject *module, *type = NULL, *ret = NULL;

        if (!arguments)
                return NULL;
        module = PyImport_ImportModule("kvlease._types");
        if (module)
                type = PyObject_GetAttrString(module, name);
        if (type)
                ret = PyObject_CallObject(type, arguments);
        Py_XDECREF(type);
        Py_XDECREF(module);
        Py_DECREF(arguments);
        return ret;
}

/* ---- events ---------------------------------------------------------------------------------- */

static PyObject *find_ns(struct conn_object *self, const struct kvl_ns *ns)
{
        for (struct ns_object *it = self->first_ns; it; it = it->next_ns) {
                if (it->ns == ns)
                        return Py_NewRef((PyObject *)it);
        }
        return Py_NewRef(Py_None);
}

static PyObject *event_object(struct conn_object *self, const struct kvl_event *e)
{
        return types_new(
                "Event", Py_BuildValue("(iNKNIIdN)", (int)e->type, find_ns(self, e->ns),
                                 (unsigned long long)e->client_id,
                                 text_new(e->detail ? e->detail : ""), e->first_page, e->n_pages,
                                 e->timeout_msec / 1000.0, PyBool_FromLong(e->is_idle)));
}

static void on_event(struct kvl_conn *conn, const struct kvl_event *e, void *data)
{
        PyGILState_STATE gil = PyGILState_Ensure();
        struct conn_object *self = data;
        PyObject *handler = Py_XNewRef(self->handler), *event, *ret = NULL;

        event = event_object(self, e);
        if (event && handler)
                ret = PyObject_CallFunctionObjArgs(handler, event, NULL);
        else if (event)
                ret = types_new("log_event", PyTuple_Pack(1, event));
        if (!ret)
                PyErr_WriteUnraisable(handler ? handler : (PyObject *)self);
        Py_XDECREF(ret);
        Py_XDECREF(event);
        Py_XDECREF(handler);
        PyGILState_Release(gil);
}

/* ---- connect and close ----------------------------------------------------------------------- */

static bool set_secrets(PyObject *token, PyObject *secret, struct kvl_connect_options *o,
        Py_buffer *token_buffer, Py_buffer *secret_buffer)
{
        if ((is_given(token) && PyObject_GetBuffer(token, token_buffer, PyBUF_SIMPLE) < 0) ||
                (is_given(secret) && PyObject_GetBuffer(secret, secret_buffer, PyBUF_SIMPLE) < 0))
                return false;
        if (is_given(token) && token_buffer->len != KVL_GROUP_TOKEN_BYTES) {
                PyErr_Format(PyExc_ValueError, "group_token has %d bytes, not %zd",
                        KVL_GROUP_TOKEN_BYTES, token_buffer->len);
                return false;
        }
        o->group_token = token_buffer->buf;
        o->group_secret = secret_buffer->buf;
        o->group_secret_bytes = (size_t)secret_buffer->len;
        return true;
}

static PyObject *connect_with(const struct kvl_connect_options *o)
{
        struct conn_object *self = object_new(conn_type);
        int r;

        if (!self)
                return NULL;
        self->fork_count = fork_count;
        UNLOCKED(r = kvl_connect(o, &self->conn));
        if (r) {
                self->conn = NULL;
                /* A missing socket is a different error than a missing group. */
                if (r == -ENOENT && !o->group_token)
                        raise_unreachable(r, kvl_last_error());
                else
                        raise_code(r);
                Py_DECREF((PyObject *)self);
                return NULL;
        }
        kvl_set_event_handler(self->conn, on_event, self);
        return (PyObject *)self;
}

PyObject *connection_connect(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"connect",
                {"socket", "client_name", "group_token", "group_secret", "metadata_only", "shm",
                        "safepoints", "timeout", "reconnect"},
                0, 1};
        struct kvl_connect_options o = {.size = sizeof(o)};
        _cleanup_buffer_ Py_buffer token = {0}, secret = {0};
        _cleanup_ref_ PyObject *path = NULL;
        bool is_metadata = false, wants_shm = true, has_safepoints = false;
        PyObject *a[9];

        if (!args_parse(&s, args, n, names, a) || !arg_path(a[0], &path, &o.socket_path) ||
                !arg_text(a[1], "client_name", &o.client_name) ||
                !set_secrets(a[2], a[3], &o, &token, &secret) || !arg_bool(a[4], &is_metadata) ||
                !arg_bool(a[5], &wants_shm) || !arg_bool(a[6], &has_safepoints) ||
                !arg_msec(a[7], "timeout", -1, &o.timeout_msec) ||
                !arg_msec(a[8], "reconnect", -1, &o.reconnect_msec))
                return NULL;
        /* In C, 0 selects the default. */
        if (a[7] && o.timeout_msec == 0)
                o.timeout_msec = 1;
        if (a[8] && o.reconnect_msec == 0)
                o.reconnect_msec = 1;
        o.flags = (is_metadata ? KVL_CONNECT_METADATA_ONLY : 0) |
                  (wants_shm ? 0 : KVL_CONNECT_NO_SHM) |
                  (has_safepoints ? KVL_CONNECT_SAFEPOINTS : 0);
        return connect_with(&o);
}

/* Closes the library's connection, and the objects below. */
static void disconnect(struct conn_object *self)
{
        struct kvl_conn *conn = self->conn;

        self->conn = NULL;
        while (self->first_ns)
                ns_forget(self->first_ns);
        /* In a forked child this closes only the child's descriptor. */
        UNLOCKED(kvl_disconnect(conn));
        Py_CLEAR(self->handler);
}

static PyObject *conn_close(struct conn_object *self, PyObject *unused)
{
        if (!self->conn)
                Py_RETURN_NONE;
        if (!conn_is_inherited(self)) {
                if (self->n_views > 0)
                        return PyErr_Format(PyExc_BufferError,
                                "the connection has %u views that are still used", self->n_views);
                if (self->n_calls > 0)
                        return raise_busy(
                                "calls of other threads, or a dispatch(), use the connection: let them end before it is closed");
        }
        disconnect(self);
        Py_RETURN_NONE;
}

static int conn_traverse(struct conn_object *self, visitproc visit, void *arg)
{
        Py_VISIT(Py_TYPE((PyObject *)self));
        Py_VISIT(self->handler);
        return 0;
}

static int conn_clear(struct conn_object *self)
{
        Py_CLEAR(self->handler);
        return 0;
}

static void conn_end(PyObject *object)
{
        struct conn_object *self = (struct conn_object *)object;
        bool is_own = self->conn && !conn_is_inherited(self);

        if (is_own && PyErr_ResourceWarning(NULL, 1, "a kvlease.Connection was not closed") < 0)
                PyErr_WriteUnraisable(NULL);
        /* The object is unreachable: later callbacks must find no handler. */
        Py_CLEAR(self->handler);
        if (is_own)
                kvl_set_event_handler(self->conn, NULL, NULL);
        if (self->conn)
                disconnect(self);
}

static void conn_dealloc(PyObject *self)
{
        object_dealloc(self, conn_end);
}

/* ---- methods --------------------------------------------------------------------------------- */

static PyObject *conn_namespace(
        struct conn_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        return (PyObject *)namespace_open(self, args, n, names);
}

static PyObject *conn_set_event_handler(struct conn_object *self, PyObject *handler)
{
        PyObject *old = self->handler;

        if (!Py_IsNone(handler) && !PyCallable_Check(handler)) {
                PyErr_SetString(PyExc_TypeError, "the handler must be callable, or None");
                return NULL;
        }
        if (!conn_enter(self))
                return NULL;
        conn_leave(self);
        self->handler = Py_IsNone(handler) ? NULL : Py_NewRef(handler);
        Py_XDECREF(old);
        Py_RETURN_NONE;
}

static PyObject *conn_fileno(struct conn_object *self, PyObject *unused)
{
        int fd;

        if (!CALL(conn, self, fd = kvl_fd(self->conn)))
                return NULL;
        if (fd < 0)
                return raise_code_as(-ENOTCONN, "the connection is over", NULL);
        return PyLong_FromLong(fd);
}

static PyObject *conn_dispatch(struct conn_object *self, PyObject *unused)
{
        int r;

        if (!CALL(conn, self, r = kvl_dispatch(self->conn)))
                return NULL;
        return r < 0 ? raise_code(r) : PyLong_FromLong(r);
}

static PyObject *conn_safepoint(
        struct conn_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"safepoint", {"stream"}, 0, 1};
        kvl_stream stream;
        PyObject *a[1];
        int r;

        if (!args_parse(&s, args, n, names, a) || !arg_stream(a[0], &stream) ||
                !CALL(conn, self, r = kvl_safepoint(self->conn, stream)))
                return NULL;
        return r < 0 ? raise_code(r) : PyLong_FromLong(r);
}

static PyObject *conn_get_tenant(struct conn_object *self, void *unused)
{
        PyObject *ret;

        if (!conn_enter(self))
                return NULL;
        ret = text_new(kvl_tenant(self->conn));
        conn_leave(self);
        return ret;
}

static PyObject *conn_get_client_id(struct conn_object *self, void *unused)
{
        uint64_t id;

        if (!CALL(conn, self, id = kvl_client_id(self->conn)))
                return NULL;
        return PyLong_FromUnsignedLongLong(id);
}

static PyObject *conn_get_group_token(struct conn_object *self, void *unused)
{
        uint8_t token[KVL_GROUP_TOKEN_BYTES];

        if (!CALL(conn, self, kvl_group_token(self->conn, token)))
                return NULL;
        return PyBytes_FromStringAndSize((const char *)token, sizeof(token));
}

static PyObject *conn_get_wants_write(struct conn_object *self, void *unused)
{
        int r;

        if (!CALL(conn, self, r = kvl_wants_write(self->conn)))
                return NULL;
        return PyBool_FromLong(r);
}

static PyObject *conn_get_is_connected(struct conn_object *self, void *unused)
{
        int r;

        if (!CALL(conn, self, r = kvl_is_connected(self->conn)))
                return NULL;
        return PyBool_FromLong(r);
}

static PyObject *conn_get_is_closed(struct conn_object *self, void *unused)
{
        return PyBool_FromLong(!self->conn);
}

static PyMethodDef methods[] = {
        METHOD("namespace", conn_namespace,
                "namespace($self, name=None, layout=None, *, device=None, "
                "keep_page_zero=False, same_address=False, set=None, set_size=0, expire=0, "
                "host_codec=0, disk_codec=0, stride_bytes=0, back_holes=False, first_plane=0, n_planes=None)\n"
                "--\n\n"
                "Opens a namespace of the tenant, makes it where it doesn't exist.\n\n"
                "name: None: that of the layout (Layout.name()). device: the UUID of a GPU, 'host', or\n"
                "None for the daemon's default. set, set_size: the namespace set it belongs to, and how\n"
                "many that has. expire: seconds after which an unused page is dropped. host_codec,\n"
                "disk_codec: a Codec, or text with one for each range of layers:\n"
                "'0-7:none,8-23:int8,24-:int4'. stride_bytes: from a page to the next one, as\n"
                "NamespaceInfo has it; 0: kvleased chooses. back_holes: unmapped parts of an arena() read\n"
                "as zeros, on host memory. first_plane, n_planes: those of a rank, which alone are\n"
                "mapped; None: to the last. Raises LayoutMismatch, NotFound (no such device), Busy (open\n"
                "on this connection already), Draining."),
        {"set_event_handler", (PyCFunction)conn_set_event_handler, METH_O,
                "set_event_handler($self, handler, /)\n--\n\n"
                "handler(event) is called in dispatch() and blocking calls, in their thread. None: events go\nto the logger 'kvlease'."},
        {"fileno", (PyCFunction)conn_fileno, METH_NOARGS,
                "fileno($self)\n--\n\nThe descriptor to poll. Disconnected once the connection is over."},
        {"dispatch", (PyCFunction)conn_dispatch, METH_NOARGS,
                "dispatch($self)\n"
                "--\n\n"
                "Sends and receives without blocking, and runs callbacks. Returns how many it ran."},
        METHOD("safepoint", conn_safepoint,
                "safepoint($self, stream=0)\n"
                "--\n\n"
                "Between two steps: nothing on the stream uses pages that aren't held. Gives back the\n"
                "memory that EventType.REVOKE names: the number of extent sets. stream: a CUstream as an\n"
                "int; 0 or None: the default one. Views of the arena must not be used where pages were\n"
                "removed. Raises DeviceFailure (the stream is broken), Invalid (it is being captured),\n"
                "Timeout, Disconnected."),
        {"close", (PyCFunction)conn_close, METH_NOARGS,
                "close($self)\n--\n\n"
                "Unmaps everything and ends the connection. BufferError while views live; Busy "
                "while other\nthreads use it. Published pages stay cached."},
        {"__enter__", return_self, METH_NOARGS, NULL},
        {"__reduce__", refuse_pickling, METH_NOARGS, NULL},
        {"__exit__", exit_close, METH_VARARGS, NULL},
        {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
        {"tenant", (getter)conn_get_tenant, NULL, "Tenant the socket stands for.", NULL},
        {"client_id", (getter)conn_get_client_id, NULL, "Id that kvleasectl shows.", NULL},
        {"group_token", (getter)conn_get_group_token, NULL,
                "16 bytes for other processes of this engine to join; a secret.", NULL},
        {"wants_write", (getter)conn_get_wants_write, NULL,
                "Poll for writing, too, and dispatch().", NULL},
        {"is_connected", (getter)conn_get_is_connected, NULL,
                "There is a daemon that knows this connection.", NULL},
        {"is_closed", (getter)conn_get_is_closed, NULL, "close() was called.", NULL},
        {"n_views", get_u32_field, NULL, "Views that live.", FIELD(conn_object, n_views)},
        {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
        {Py_tp_doc, (void *)"A connection to the daemon: kvlease.connect()."},
        {Py_tp_dealloc, conn_dealloc},
        {Py_tp_traverse, conn_traverse},
        {Py_tp_clear, conn_clear},
        {Py_tp_methods, methods},
        {Py_tp_getset, getset},
        {0, NULL},
};

int connection_init(PyObject *module)
{
        int r = pthread_atfork(NULL, NULL, count_fork);

        if (r) {
                errno = r;
                PyErr_SetFromErrno(PyExc_OSError);
                return -1;
        }
        return type_add(
                module, &conn_type, "kvlease.Connection", sizeof(struct conn_object), slots);
}
