/* Followers: the raw calls of kvlease/_follow.py, which makes objects of their tuples. */
#include "client/python/src/module.h"

#include <errno.h>

struct follower_object {
        PyObject_HEAD struct kvl_follower *follower; /* NULL: closed */
        bool is_used;                                /* a call is under way: one thread at a time */
};
static PyTypeObject *follower_type;

PyObject *module_follow(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {
                "follow", {"socket", "tenant", "client_name", "timeout"}, 0, 1};
        struct kvl_follow_options o = {.size = sizeof(o)};
        struct kvl_follower *follower = NULL;
        _cleanup_ref_ PyObject *path = NULL;
        struct follower_object *self;
        PyObject *a[4];
        int r;

        if (!args_parse(&s, args, n, names, a) || !arg_text(a[1], "tenant", &o.tenant) ||
                !arg_text(a[2], "client_name", &o.client_name) ||
                !arg_msec(a[3], "timeout", -1, &o.timeout_msec) ||
                !arg_path(a[0], &path, &o.socket_path))
                return NULL;
        /* In C, 0 selects the default. */
        if (a[3] && o.timeout_msec == 0)
                o.timeout_msec = 1;
        UNLOCKED(r = kvl_follow_open(&o, &follower));
        if (r) /* nothing but the socket can be missing */
                return r == -ENOENT ? raise_unreachable(r, kvl_last_error()) : raise_code(r);
        self = object_new(follower_type);
        if (self)
                self->follower = follower;
        else
                kvl_follow_close(follower);
        return (PyObject *)self;
}

static bool begin_follower_use(struct follower_object *self)
{
        if (!self->follower)
                return raise_closed("follower"), false;
        if (self->is_used)
                return raise_busy("another thread uses the follower"), false;
        return self->is_used = true;
}

/* Makes a tuple of a namespace's fields. */
static PyObject *namespace_tuple(const struct kvl_follow_ns *ns)
{
        return Py_BuildValue("(Kssssy#IIII)", (unsigned long long)ns->id, ns->tenant, ns->name,
                ns->model, ns->version, (const char *)ns->format, (Py_ssize_t)ns->format_bytes,
                ns->page_tokens, ns->layer_group, ns->tp_rank, ns->tp_size);
}

static PyObject *event_tuple(const struct kvl_follow_event *e)
{
        PyObject *ns =
                e->kind == KVL_FOLLOW_NAMESPACE ? namespace_tuple(e->ns) : Py_NewRef(Py_None);
        PyObject *ids =
                e->token_ids ? numbers_tuple(e->token_ids, e->n_tokens) : Py_NewRef(Py_None);

        if (!ns || !ids) {
                Py_XDECREF(ns);
                Py_XDECREF(ids);
                return NULL;
        }
        return Py_BuildValue("(iKNy#y#NIIKBByy)", (int)e->kind, (unsigned long long)e->ns->id, ns,
                (const char *)e->key, (Py_ssize_t)KVL_KEY_BYTES, (const char *)e->parent_key,
                (Py_ssize_t)KVL_KEY_BYTES, ids, e->n_tokens, e->depth, (unsigned long long)e->tag,
                e->tier, e->from_tier, e->lora_name, e->cache_salt);
}

static PyObject *follower_next(
        struct follower_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"next", {"timeout"}, 0, 1};
        struct kvl_follow_event e = {.size = sizeof(e)};
        PyObject *a[1], *ret;
        int msec = 0, r;

        if (!args_parse(&s, args, n, names, a) || !arg_msec(a[0], "timeout", -1, &msec) ||
                !begin_follower_use(self))
                return NULL;
        UNLOCKED(r = kvl_follow_next(self->follower, msec, &e));
        if (r == 0)
                ret = Py_NewRef(Py_None);
        else
                ret = r < 0 ? raise_code(r) : event_tuple(&e);
        self->is_used = false;
        return ret;
}

static PyObject *follower_reset(struct follower_object *self, PyObject *unused)
{
        if (!begin_follower_use(self))
                return NULL;
        kvl_follow_reset(self->follower);
        self->is_used = false;
        Py_RETURN_NONE;
}

static PyObject *follower_is_connected(struct follower_object *self, PyObject *unused)
{
        return PyBool_FromLong(self->follower && kvl_follow_is_connected(self->follower));
}

static PyObject *follower_close(struct follower_object *self, PyObject *unused)
{
        struct kvl_follower *follower = self->follower;

        if (self->is_used)
                return raise_busy("another thread uses the follower");
        self->follower = NULL;
        UNLOCKED(kvl_follow_close(follower));
        Py_RETURN_NONE;
}

static void follower_end(PyObject *self)
{
        kvl_follow_close(((struct follower_object *)self)->follower);
}

static void follower_dealloc(PyObject *self)
{
        object_dealloc(self, follower_end);
}

static PyMethodDef methods[] = {
        METHOD("next", follower_next, "next($self, timeout=0)\n--\n\nThe next event, or None."),
        {"reset", (PyCFunction)follower_reset, METH_NOARGS,
                "reset($self, /)\n--\n\nBegins all namespaces anew."},
        {"is_connected", (PyCFunction)follower_is_connected, METH_NOARGS,
                "is_connected($self, /)\n--\n\nFalse: kvleased is away."},
        {"close", (PyCFunction)follower_close, METH_NOARGS, "close($self, /)\n--\n\nEnds it."},
        {"__reduce__", refuse_pickling, METH_NOARGS, NULL},
        {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
        {Py_tp_doc, (void *)"The raw follower: kvlease.Follower."},
        {Py_tp_dealloc, follower_dealloc},
        {Py_tp_traverse, traverse_none},
        {Py_tp_methods, methods},
        {0, NULL},
};

int follow_init(PyObject *module)
{
        return type_add(module, &follower_type, "kvlease._kvlease.RawFollower",
                sizeof(struct follower_object), slots);
}
