/* Layouts, and the keys of a sequence under one. */
#include "client/python/src/module.h"

#include <stdlib.h>
#include <string.h>

static bool get_u32(PyObject *object, const char *name, uint32_t *ret)
{
        _cleanup_ref_ PyObject *value = PyObject_GetAttrString(object, name);

        return value && arg_u32(value, name, ret);
}

static bool get_text(PyObject *object, const char *name, PyObject **held, const char **ret)
{
        *held = PyObject_GetAttrString(object, name);
        return *held && arg_text(*held, name, ret);
}

/* Borrows the bytes of a str (UTF-8) or a buffer. */
static bool get_bytes(PyObject *object, const char *name, PyObject **held, Py_buffer *buffer,
        const void **ret, size_t *ret_bytes)
{
        Py_ssize_t n;

        *held = PyObject_GetAttrString(object, name);
        if (*held && PyUnicode_Check(*held)) {
                *ret = PyUnicode_AsUTF8AndSize(*held, &n);
                *ret_bytes = (size_t)n;
                return *ret != NULL;
        }
        if (!*held || PyObject_GetBuffer(*held, buffer, PyBUF_SIMPLE) < 0)
                return false;
        *ret = buffer->buf;
        *ret_bytes = (size_t)buffer->len;
        return true;
}

bool layout_get(PyObject *object, struct layout *ret)
{
        struct kvl_layout *l = &ret->layout;
        const struct {
                const char *name;
                uint32_t *at;
        } numbers[] = {
                {"n_layers", &l->n_layers},
                {"n_kv_heads", &l->n_kv_heads},
                {"head_size", &l->head_size},
                {"page_tokens", &l->page_tokens},
                {"n_planes", &l->n_planes},
                {"tp_rank", &l->tp_rank},
                {"tp_size", &l->tp_size},
                {"layer_group", &l->layer_group},
        };
        _cleanup_ref_ PyObject *bytes = NULL;
        uint32_t dtype = 0;

        *ret = (struct layout){.layout.size = sizeof(*l)};
        if (!get_text(object, "model", &ret->held[0], &l->model) ||
                !get_text(object, "version", &ret->held[1], &l->version) ||
                !get_u32(object, "dtype", &dtype))
                return false;
        l->dtype = (enum kvl_dtype)dtype;
        for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); ++i)
                if (!get_u32(object, numbers[i].name, numbers[i].at))
                        return false;
        bytes = PyObject_GetAttrString(object, "plane_page_bytes");
        return bytes && arg_u64(bytes, "plane_page_bytes", &l->plane_page_bytes) &&
               get_bytes(object, "salt", &ret->held[2], &ret->salt, &l->salt, &l->salt_bytes) &&
               get_bytes(
                       object, "format", &ret->held[3], &ret->format, &l->format, &l->format_bytes);
}

void layout_free(struct layout *layout)
{
        PyBuffer_Release(&layout->salt);
        PyBuffer_Release(&layout->format);
        for (int i = 0; i < 4; ++i)
                Py_CLEAR(layout->held[i]);
}

static PyObject *key_root(PyObject *module, PyObject *object)
{
        _cleanup_layout_ struct layout layout = {0};
        uint8_t key[KVL_KEY_BYTES];
        int r;

        if (!layout_get(object, &layout))
                return NULL;
        UNLOCKED(r = kvl_key_root(&layout.layout, key));
        return r ? raise_code(r) : PyBytes_FromStringAndSize((const char *)key, sizeof(key));
}

static PyObject *layout_name(PyObject *module, PyObject *object)
{
        _cleanup_layout_ struct layout layout = {0};
        char name[KVL_NS_NAME_BYTES];
        int r;

        if (!layout_get(object, &layout))
                return NULL;
        UNLOCKED(r = kvl_layout_name(&layout.layout, name));
        return r ? raise_code(r) : PyUnicode_FromString(name);
}

/* ---- token ids ------------------------------------------------------------------------------- */

/* Copies an array of signed or unsigned 4- or 8-byte integers, or the bytes of a uint32 array. */
static bool tokens_of_array(const Py_buffer *b, struct tokens *ret)
{
        char type = array_type(b->format);
        bool is_wide = b->itemsize == 8;
        bool is_signed = type == 'i' || type == 'l' || type == 'q';

        if ((type == 'B' || type == 'c') && b->itemsize == 1 && b->len % 4 == 0) {
                is_wide = is_signed = false;
        } else if (!strchr("iIlLqQ", type) || !type || (b->itemsize != 4 && b->itemsize != 8)) {
                PyErr_Format(PyExc_TypeError,
                        "token ids in an array are 4- or 8-byte integers in native order, or bytes of uint32; not '%s'",
                        b->format ? b->format : "B");
                return false;
        }
        ret->n = (size_t)b->len / (is_wide ? 8 : 4);
        ret->at = malloc(ret->n * sizeof(*ret->at) + 1);
        if (!ret->at)
                return PyErr_NoMemory(), false;
        if (is_wide)
                memset(ret->at, 0, ret->n * 4);
        else if (ret->n)
                memcpy(ret->at, b->buf, ret->n * 4);
        for (size_t i = 0; i < ret->n; ++i) {
                uint64_t v = ret->at[i];

                if (is_wide) /* may be unaligned */
                        memcpy(&v, (const char *)b->buf + 8 * i, sizeof(v));
                if (v > (is_signed && !is_wide ? (uint32_t)INT32_MAX : UINT32_MAX)) {
                        PyErr_SetString(
                                PyExc_ValueError, "a token id must be an int from 0 to 2**32 - 1");
                        return false;
                }
                ret->at[i] = (uint32_t)v;
        }
        return true;
}

static bool token_of(PyObject *object, uint32_t *ret)
{
        /* The common case, without errors to look for, takes less than half of the time. */
        long long v = PyLong_CheckExact(object) ? PyLong_AsLongLong(object) : -1;

        if (v >= 0 && v <= UINT32_MAX)
                return *ret = (uint32_t)v, true;
        PyErr_Clear();
        return arg_u32(object, "a token id", ret);
}

static bool tokens_of_list(PyObject *object, struct tokens *ret)
{
        _cleanup_ref_ PyObject *list = PySequence_List(object);

        if (!list)
                return false;
        ret->n = (size_t)PyList_Size(list);
        ret->at = malloc(ret->n * sizeof(*ret->at) + 1);
        if (!ret->at)
                return PyErr_NoMemory(), false;
        for (size_t i = 0; i < ret->n; ++i) {
                ret->at[i] = 0;
                if (!token_of(PyList_GetItem(list, (Py_ssize_t)i), &ret->at[i]))
                        return false;
        }
        return true;
}

bool tokens_get(PyObject *object, struct tokens *ret)
{
        _cleanup_buffer_ Py_buffer buffer = {0};

        *ret = (struct tokens){NULL, 0};
        if (!PyObject_CheckBuffer(object))
                return tokens_of_list(object, ret);
        return PyObject_GetBuffer(object, &buffer, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) == 0 &&
               tokens_of_array(&buffer, ret);
}

void tokens_free(struct tokens *tokens)
{
        free(tokens->at);
        tokens->at = NULL;
}

/* ---- keys ------------------------------------------------------------------------------------ */

struct memo_object {
        PyObject_HEAD struct kvl_key_memo *memo;
        uint32_t page_tokens;
};

static PyTypeObject *memo_type;

static PyObject *key_memo(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"key_memo", {"page_tokens", "max_bytes"}, 1, 1};
        uint64_t max_bytes = UINT64_C(64) << 20;
        uint32_t page_tokens = 0;
        struct memo_object *self;
        PyObject *a[2];
        int r;

        if (!args_parse(&s, args, n, names, a) || !arg_u32(a[0], "page_tokens", &page_tokens) ||
                !arg_u64(a[1], "max_bytes", &max_bytes))
                return NULL;
        self = object_new(memo_type);
        if (!self)
                return NULL;
        self->page_tokens = page_tokens;
        r = kvl_key_memo_new(page_tokens, max_bytes, &self->memo);
        if (r == 0)
                return (PyObject *)self;
        Py_DECREF((PyObject *)self);
        return raise_code(r);
}

static void memo_end(PyObject *self)
{
        kvl_key_memo_free(((struct memo_object *)self)->memo);
}

static void memo_dealloc(PyObject *self)
{
        object_dealloc(self, memo_end);
}

static PyMethodDef memo_methods[] = {
        {"__reduce__", refuse_pickling, METH_NOARGS, NULL},
        {NULL, NULL, 0, NULL},
};

static PyType_Slot memo_slots[] = {
        {Py_tp_doc, (void *)"Keys of earlier texts: key_memo()."},
        {Py_tp_dealloc, memo_dealloc},
        {Py_tp_traverse, traverse_none},
        {Py_tp_methods, memo_methods},
        {0, NULL},
};

int keys_init(PyObject *module)
{
        return type_add(
                module, &memo_type, "kvlease.KeyMemo", sizeof(struct memo_object), memo_slots);
}

/* *ret: NULL for None or nothing. Returns false with an exception. */
static bool get_memo(PyObject *object, uint32_t page_tokens, struct kvl_key_memo **ret)
{
        const struct memo_object *memo = (const struct memo_object *)object;

        *ret = NULL;
        if (!is_given(object))
                return true;
        if (Py_TYPE(object) != memo_type)
                PyErr_SetString(PyExc_TypeError, "memo must be a KeyMemo");
        else if (memo->page_tokens != page_tokens)
                PyErr_Format(PyExc_ValueError, "the memo is for pages of %u tokens, not %u",
                        (unsigned)memo->page_tokens, (unsigned)page_tokens);
        else
                *ret = memo->memo;
        return *ret != NULL;
}

/* Makes keys of whole pages, or is_partial of a last one that isn't full, too. */
static PyObject *keys_of(const uint8_t *parent, const struct tokens *tokens, uint32_t page_tokens,
        bool is_partial, struct kvl_key_memo *memo)
{
        size_t n_keys = (tokens->n + (is_partial ? page_tokens - 1 : 0)) / page_tokens;
        uint32_t n_hashed = (uint32_t)(is_partial ? tokens->n : n_keys * page_tokens);
        _cleanup_free_ uint8_t *keys = malloc(n_keys * KVL_KEY_BYTES + 1);
        int r;

        if (!keys)
                return PyErr_NoMemory();
        UNLOCKED(r = memo ? kvl_key_memo_keys(memo, parent, tokens->at, n_hashed, keys, NULL)
                          : kvl_keys(parent, tokens->at, n_hashed, page_tokens, keys));
        return r ? raise_code(r)
                 : PyBytes_FromStringAndSize(
                           (const char *)keys, (Py_ssize_t)(n_keys * KVL_KEY_BYTES));
}

static PyObject *chain_keys(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {
                "chain_keys", {"parent", "tokens", "page_tokens", "partial", "memo"}, 3, 3};
        _cleanup_keys_ struct keys parent = {0};
        _cleanup_tokens_ struct tokens tokens = {0};
        uint32_t page_tokens = 0;
        struct kvl_key_memo *memo;
        bool is_partial = false;
        PyObject *a[5];

        if (!args_parse(&s, args, n, names, a) || !arg_u32(a[2], "page_tokens", &page_tokens) ||
                !arg_bool(a[3], &is_partial) || !get_memo(a[4], page_tokens, &memo))
                return NULL;
        if (page_tokens < 1 || page_tokens > 1024) {
                PyErr_SetString(PyExc_ValueError, "page_tokens must be from 1 to 1024");
                return NULL;
        }
        if (!key_get(a[0], "parent must be one key", &parent) || !tokens_get(a[1], &tokens))
                return NULL;
        if (tokens.n > UINT32_MAX) {
                PyErr_SetString(PyExc_ValueError, "a text has at most 2**32 - 1 tokens");
                return NULL;
        }
        return keys_of(parent.bytes, &tokens, page_tokens, is_partial, memo);
}

PyMethodDef keys_methods[] = {
        {"key_root", key_root, METH_O,
                "key_root($module, layout, /)\n--\n\n"
                "Key that begins every text under a layout: 32 bytes."},
        {"layout_name", layout_name, METH_O,
                "layout_name($module, layout, /)\n--\n\n"
                "Name of the namespace of a layout where none is given: 'model@0123456789ab'."},
        METHOD("chain_keys", chain_keys,
                "chain_keys($module, parent, tokens, page_tokens, *, partial=False, memo=None)\n--\n\n"
                "Keys of all pages of a text, one call for a whole prompt: n * 32 bytes.\n\n"
                "parent: the key of the page before, or key_root(). tokens: an array of 4- or "
                "8-byte integers,\nthe bytes of a uint32 array, or a sequence of ints. One key for "
                "each page_tokens of them;\npartial: one for a partly filled last page, too. memo: "
                "a KeyMemo for pages of page_tokens, whose\nknown pages aren't hashed again."),
        METHOD("key_memo", key_memo,
                "key_memo($module, page_tokens, *, max_bytes=67108864)\n--\n\n"
                "A KeyMemo of at most max_bytes, for texts that begin like earlier ones, such as "
                "the "
                "turns of a conversation.\nchain_keys() and Layout.keys() hash only their new "
                "pages. "
                "A page takes 4 * page_tokens + 104 bytes;\nif the memo is full, the pages that "
                "were hashed longest ago are dropped.\n\nRaises Invalid."),
        {NULL, NULL, 0, NULL},
};
