/* LlamaContext: sequences of a context of llama.cpp, kept in pages. For kvlease.llama. */
#include "client/python/src/module.h"

#include "client/llama/kvlease-llama.h"

#include <errno.h>

static PyTypeObject *llama_type;

struct llama_object {
        PyObject_HEAD struct conn_object *conn; /* counts it as a view; NULL: not attached */
        struct kvl_llama *llama;                /* NULL: closed */
        bool is_used;                           /* by a call, maybe of another thread */
};

static PyObject *raise_llama(int code)
{
        return raise_code_as(code, kvl_llama_last_error(), NULL);
}

/* ---- module functions ------------------------------------------------------------------------ */

static PyObject *llama_new(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"llama_new",
                {"context", "library", "weights", "model", "salt", "device", "chunk_tokens",
                        "scratch", "swa_full"},
                3, 3};
        struct kvl_llama_options o = {.size = sizeof(o)};
        _cleanup_buffer_ Py_buffer salt = {0};
        struct llama_object *self;
        uint32_t scratch = 0;
        uint64_t context = 0;
        bool swa_full = false;
        PyObject *a[9];
        int r;

        if (!args_parse(&s, args, n, names, a) || !arg_u64(a[0], "context", &context) ||
                !arg_text(a[1], "library", &o.library) || !arg_text(a[2], "weights", &o.weights) ||
                !arg_text(a[3], "model", &o.model) || !arg_text(a[5], "device", &o.device) ||
                !arg_u32(a[6], "chunk_tokens", &o.chunk_tokens) ||
                !arg_u32(a[7], "scratch", &scratch) || !arg_bool(a[8], &swa_full) ||
                (a[4] && PyObject_GetBuffer(a[4], &salt, PyBUF_SIMPLE) < 0))
                return NULL;
        o.salt = salt.buf;
        o.salt_bytes = (size_t)salt.len;
        o.scratch_seq = (int32_t)scratch;
        o.swa_full = swa_full;
        self = object_new(llama_type);
        if (!self)
                return NULL;
        UNLOCKED(r = kvl_llama_new((struct llama_context *)(uintptr_t)context, &o, &self->llama));
        if (!r)
                return (PyObject *)self;
        self->llama = NULL;
        raise_llama(r);
        Py_DECREF((PyObject *)self);
        return NULL;
}

static PyObject *llama_hash(PyObject *module, PyObject *object)
{
        _cleanup_ref_ PyObject *path = NULL;
        char hash[KVL_LLAMA_HASH_CHARS];
        const char *file;
        int r;

        if (!PyUnicode_FSConverter(object, &path))
                return NULL;
        file = PyBytes_AsString(path);
        UNLOCKED(r = kvl_llama_hash_files(&file, 1, hash));
        return r ? raise_llama(r) : PyUnicode_FromString(hash);
}

/* ---- LlamaContext ---------------------------------------------------------------------------- */

static bool is_idle(struct llama_object *self)
{
        if (!self->llama)
                raise_closed("context");
        else if (self->is_used)
                raise_busy("another thread uses the context");
        return self->llama && !self->is_used;
}

/* Begins a call on tokens, an array of 4-byte integers. Returns false with an exception. */
static bool call_begin(struct llama_object *self, PyObject *tokens, Py_buffer *ret)
{
        char type;

        if (!is_idle(self))
                return false;
        if (!self->conn) {
                raise_closed("connection");
                return false;
        }
        if (PyObject_GetBuffer(tokens, ret, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0)
                return false;
        type = array_type(ret->format);
        if (ret->itemsize != sizeof(int32_t) || (type != 'i' && type != 'l') ||
                ret->len / ret->itemsize > INT32_MAX) {
                PyBuffer_Release(ret);
                PyErr_SetString(PyExc_TypeError,
                        "tokens are an array of signed integers of 4 bytes in native order");
                return false;
        }
        if (!conn_enter(self->conn)) {
                PyBuffer_Release(ret);
                return false;
        }
        self->is_used = true;
        return true;
}

static PyObject *call_end(struct llama_object *self, Py_buffer *tokens, int r, uint32_t n)
{
        self->is_used = false;
        PyBuffer_Release(tokens);
        conn_leave(self->conn);
        return r ? raise_llama(r) : PyLong_FromUnsignedLong(n);
}

static PyObject *llama_find(struct llama_object *self, PyObject *object)
{
        uint32_t n = 0;
        Py_buffer b;
        int r;

        if (!call_begin(self, object, &b))
                return NULL;
        UNLOCKED(r = kvl_llama_find(self->llama, b.buf, (uint32_t)(b.len / 4), &n));
        return call_end(self, &b, r == KVL_MISS ? 0 : r, n);
}

static PyObject *llama_load(
        struct llama_object *self, PyObject *const *args, Py_ssize_t n_args, PyObject *names)
{
        static const struct signature s = {"load", {"sequence", "tokens", "n_have"}, 2, 3};
        uint32_t n = 0, seq = 0, n_have = 0;
        PyObject *a[3], *type, *error, *traceback, *left;
        Py_buffer b;
        int r;

        if (!args_parse(&s, args, n_args, names, a) || !arg_u32(a[0], "sequence", &seq) ||
                !arg_u32(a[2], "n_have", &n_have) || !call_begin(self, a[1], &b))
                return NULL;
        n = n_have;
        UNLOCKED(r = kvl_llama_load(
                         self->llama, (int32_t)seq, b.buf, (uint32_t)(b.len / 4), n_have, &n));
        if (call_end(self, &b, r == KVL_MISS ? 0 : r, 0) == NULL) {
                /* The exception says what the sequence has. */
                PyErr_Fetch(&type, &error, &traceback);
                PyErr_NormalizeException(&type, &error, &traceback);
                left = PyLong_FromUnsignedLong(n);
                if (!left || PyObject_SetAttrString(error, "n_tokens", left) < 0)
                        PyErr_Clear();
                Py_XDECREF(left);
                PyErr_Restore(type, error, traceback);
                return NULL;
        }
        return PyLong_FromUnsignedLong(n);
}

static PyObject *run_on_sequence(struct llama_object *self, const struct signature *s,
        PyObject *const *args, Py_ssize_t n_args, PyObject *names,
        int (*fn)(struct kvl_llama *, int32_t, const int32_t *, uint32_t, uint32_t *))
{
        uint32_t n = 0, seq = 0;
        PyObject *a[2];
        Py_buffer b;
        int r;

        if (!args_parse(s, args, n_args, names, a) || !arg_u32(a[0], "sequence", &seq) ||
                !call_begin(self, a[1], &b))
                return NULL;
        UNLOCKED(r = fn(self->llama, (int32_t)seq, b.buf, (uint32_t)(b.len / 4), &n));
        return call_end(self, &b, r, n);
}

static PyObject *llama_save(
        struct llama_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"save", {"sequence", "tokens"}, 2, 2};

        return run_on_sequence(self, &s, args, n, names, kvl_llama_save);
}

static PyObject *llama_verify(
        struct llama_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"verify", {"sequence", "tokens"}, 2, 2};

        return run_on_sequence(self, &s, args, n, names, kvl_llama_verify);
}

static PyObject *llama_info(struct llama_object *self, void *unused)
{
        struct kvl_llama_info i = {.size = sizeof(i)};

        if (!self->llama)
                return raise_closed("context");
        kvl_llama_info(self->llama, &i);
        return Py_BuildValue("{sIsNsNsKsKsy#}", "chunk_tokens", i.chunk_tokens, "has_rows",
                PyBool_FromLong(i.has_rows), "has_state", PyBool_FromLong(i.has_state),
                "chunk_bytes", (unsigned long long)i.chunk_bytes, "state_bytes",
                (unsigned long long)i.state_bytes, "identity", (char *)i.identity,
                (Py_ssize_t)sizeof(i.identity));
}

static PyObject *llama_attach(struct llama_object *self, PyObject *object)
{
        struct conn_object *conn = (struct conn_object *)object;
        int r;

        if (Py_TYPE(object) != conn_type)
                return PyErr_Format(PyExc_TypeError, "a Connection is needed, not %R", object);
        if (!is_idle(self) || !conn_enter(conn))
                return NULL;
        self->is_used = true;
        UNLOCKED(r = kvl_llama_attach(self->llama, conn->conn));
        self->is_used = false;
        conn_leave(conn);
        if (r)
                return raise_llama(r);
        ++conn->n_views;
        self->conn = (struct conn_object *)Py_NewRef(object);
        Py_RETURN_NONE;
}

static void detach(struct llama_object *self)
{
        struct conn_object *conn = self->conn;

        self->conn = NULL;
        if (!conn)
                return;
        --conn->n_views;
        /* The connection is open: it counts this as a view. */
        if (!conn_is_inherited(conn))
                UNLOCKED(kvl_llama_detach(self->llama));
        Py_DECREF((PyObject *)conn);
}

static PyObject *llama_detach(struct llama_object *self, PyObject *unused)
{
        if (!is_idle(self))
                return NULL;
        detach(self);
        Py_RETURN_NONE;
}

static void close_llama(struct llama_object *self)
{
        bool is_inherited = self->conn && conn_is_inherited(self->conn);

        detach(self);
        if (!is_inherited)
                kvl_llama_free(self->llama);
        self->llama = NULL;
}

static PyObject *llama_close(struct llama_object *self, PyObject *unused)
{
        if (self->is_used)
                return raise_busy("another thread uses the context");
        close_llama(self);
        Py_RETURN_NONE;
}

static int llama_traverse(struct llama_object *self, visitproc visit, void *arg)
{
        Py_VISIT(Py_TYPE((PyObject *)self));
        Py_VISIT(self->conn);
        return 0;
}

static void llama_end(PyObject *self)
{
        close_llama((struct llama_object *)self);
}

static void llama_dealloc(PyObject *self)
{
        object_dealloc(self, llama_end);
}

static PyMethodDef methods[] = {
        {"attach", (PyCFunction)llama_attach, METH_O,
                "attach($self, connection, /)\n--\n\n"
                "Opens the namespaces: before find(), load(), save() and verify()."},
        {"detach", (PyCFunction)llama_detach, METH_NOARGS,
                "detach($self)\n--\n\nCloses the namespaces, before the connection is closed."},
        {"find", (PyCFunction)llama_find, METH_O,
                "find($self, tokens, /)\n--\n\n"
                "How many of the tokens load() would load; 0: none. tokens: an array of 4-byte integers."},
        METHOD("load", llama_load,
                "load($self, sequence, tokens, n_have=0)\n--\n\n"
                "Loads the longest saved beginning of the tokens into a sequence, which has the "
                "first n_have of them.\nReturns how many it has then. An Error has them as n_tokens."),
        METHOD("save", llama_save,
                "save($self, sequence, tokens)\n--\n\n"
                "Saves the unsaved pages of a sequence that begins with the tokens. Returns how many tokens are saved."),
        METHOD("verify", llama_verify,
                "verify($self, sequence, tokens)\n--\n\n"
                "Compares a computed sequence with the saved pages. Returns how many tokens were "
                "compared. Raises Error with\ncode -errno.EBADMSG if they differ; then all pages of the identity were dropped."),
        {"close", (PyCFunction)llama_close, METH_NOARGS,
                "close($self)\n--\n\nBefore the context of llama.cpp is freed."},
        {"__reduce__", refuse_pickling, METH_NOARGS, NULL},
        {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
        {"info", (getter)llama_info, NULL, "kvl_llama_info() as a dict.", NULL},
        {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
        {Py_tp_doc, (char *)"Sequences of a context of llama.cpp, kept in pages. By llama_new()."},
        {Py_tp_dealloc, llama_dealloc},
        {Py_tp_traverse, llama_traverse},
        {Py_tp_methods, methods},
        {Py_tp_getset, getset},
        {0, NULL},
};

static PyMethodDef functions[] = {
        METHOD("llama_new", llama_new,
                "llama_new($module, context, library, weights, *, model=None, salt=b'', "
                "device=None, chunk_tokens=0, scratch=0, swa_full=False)\n--\n\n"
                "kvl_llama_new(): a LlamaContext. context: the address of a llama_context. "
                "library: the path of the\nlibllama that made it; None: its functions are visible to the whole process."),
        {"llama_hash", llama_hash, METH_O,
                "llama_hash($module, file, /)\n--\n\nNames weights by all bytes of a GGUF file."},
        {NULL, NULL, 0, NULL},
};

int llama_init(PyObject *module)
{
        return type_add(module, &llama_type, "kvlease._kvlease.LlamaContext",
                       sizeof(struct llama_object), slots) < 0
                       ? -1
                       : PyModule_AddFunctions(module, functions);
}
