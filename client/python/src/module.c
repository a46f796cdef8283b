/* The module, and measurements for python -m kvlease bench. */
#include "client/python/src/module.h"

#include <errno.h>
#include <string.h>
#include <time.h>

int type_add(
        PyObject *module, PyTypeObject **ret, const char *name, size_t bytes, PyType_Slot *slots)
{
        PyType_Spec spec = {name, (int)bytes, 0,
                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
        PyObject *type = PyType_FromSpec(&spec);

        *ret = (PyTypeObject *)type;
        return type ? PyModule_AddObjectRef(module, strrchr(name, '.') + 1, type) : -1;
}

static const void *field_at(PyObject *self, void *offset)
{
        return (const char *)self + (size_t)offset;
}

PyObject *get_u32_field(PyObject *self, void *offset)
{
        return PyLong_FromUnsignedLong(*(const uint32_t *)field_at(self, offset));
}

PyObject *get_u64_field(PyObject *self, void *offset)
{
        return PyLong_FromUnsignedLongLong(*(const uint64_t *)field_at(self, offset));
}

PyObject *get_bool_field(PyObject *self, void *offset)
{
        return PyBool_FromLong(*(const bool *)field_at(self, offset));
}

PyObject *get_object_field(PyObject *self, void *offset)
{
        PyObject *object = *(PyObject *const *)field_at(self, offset);

        return Py_NewRef(object ? object : Py_None);
}

static PyObject *module_version(PyObject *module, PyObject *unused)
{
        return PyUnicode_FromString(kvl_version());
}

static double now_sec(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int lookup_rounds(
        struct kvl_ns *ns, const struct keys *keys, uint32_t rounds, uint32_t *pages)
{
        uint32_t n_pages = 0;
        uint64_t n_tokens;
        int r = 0;

        for (uint32_t i = 0; i < rounds && !r; ++i) {
                r = kvl_lookup(ns, 0, keys->bytes, keys->n, pages, &n_pages, &n_tokens);
                if (!r)
                        r = kvl_release(ns, pages, n_pages);
        }
        return r;
}

static PyObject *bench(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"bench_lookup", {"namespace", "keys", "rounds"}, 3, 3};
        _cleanup_keys_ struct keys keys = {0};
        _cleanup_free_ uint32_t *pages = NULL;
        uint32_t rounds = 0;
        struct ns_object *ns;
        double seconds;
        PyObject *a[3];
        int r;

        if (!args_parse(&s, args, n, names, a) || !arg_u32(a[2], "rounds", &rounds))
                return NULL;
        ns = (struct ns_object *)a[0];
        if (Py_TYPE(a[0]) != ns_type || rounds == 0)
                return raise_code_as(-EINVAL, "a Namespace and rounds > 0 are needed", NULL);
        if (!keys_get(a[1], &keys) || !(pages = numbers_new(NULL, keys.n)))
                return NULL;
        seconds = -now_sec();
        if (!CALL(ns, ns, r = lookup_rounds(ns->ns, &keys, rounds, pages)))
                return NULL;
        seconds += now_sec();
        if (r == KVL_MISS)
                return raise_code_as(-ENOENT, "a page was evicted meanwhile", NULL);
        return r ? raise_code(r) : PyFloat_FromDouble(seconds / rounds);
}

static PyMethodDef functions[] = {
        METHOD("connect", connection_connect,
                "connect($module, socket=None, *, client_name=None, group_token=None, "
                "group_secret=None, metadata_only=False, shm=True, safepoints=False, timeout=30, reconnect=60)"
                "\n--\n\n"
                "Connects to kvleased: a Connection.\n\n"
                "socket: a path; None: $KVLEASE_SOCKET, else /run/kvlease/sock. client_name: at "
                "most 64 bytes, which\nkvleasectl clients shows. group_token: 16 bytes of a member "
                "whose group it joins; group_secret: 16..256\nbytes that name the group. "
                "metadata_only: no page is mapped. shm: shared memory, where the daemon "
                "offers\nit. "
                "safepoints: the engine calls Connection.safepoint(). timeout: seconds of every "
                "blocking call;\nreconnect: how long the daemon may be away before the connection "
                "is over; None: for ever.\n\nRaises Unreachable, Denied, Draining, "
                "VersionMismatch, "
                "NotFound (no such group, or, with a token, no\nsuch socket), Invalid, Busy (too "
                "many clients, or descriptors), Timeout, Disconnected."),
        METHOD("follow", module_follow,
                "follow($module, socket=None, *, tenant=None, client_name=None, timeout=30)\n--\n\n"
                "The raw calls of kvlease.Follower."),
        METHOD("lookup_set", namespace_lookup_set,
                "lookup_set($module, namespaces, keys, request=0)\n--\n\n"
                "The longest run that is cached in all namespaces of a set: a list of Pages, one "
                "for "
                "each, of equal length\n(0: a miss).\n\nnamespaces: 1..64 open ones, of any connections of the process. Raises as Namespace.lookup()."),
        {"version", module_version, METH_NOARGS,
                "version($module)\n--\n\nVersion of the library that is linked in."},
        METHOD("bench_lookup", bench,
                "bench_lookup($module, namespace, keys, rounds)\n"
                "--\n\n"
                "Seconds that the C library alone takes for a lookup and the release of the found pages."),
        {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "kvlease._kvlease",
        "libkvlease for Python; import kvlease instead.", -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kvlease(void);

PyMODINIT_FUNC PyInit__kvlease(void)
{
        PyObject *module = PyModule_Create(&definition);

        if (module && PyModule_AddFunctions(module, keys_methods) == 0 &&
                errors_init(module) == 0 && keys_init(module) == 0 &&
                connection_init(module) == 0 && namespace_init(module) == 0 &&
                pages_init(module) == 0 && view_init(module) == 0 && session_init(module) == 0 &&
                request_init(module) == 0 && window_init(module) == 0 && follow_init(module) == 0 &&
                llama_init(module) == 0)
                return module;
        Py_XDECREF(module);
        return NULL;
}
