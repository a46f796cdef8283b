/* Arguments of METH_FASTCALL | METH_KEYWORDS methods, and their conversions. */
#include "client/python/src/module.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static bool take_named(const struct signature *s, PyObject *name, PyObject *value, PyObject **ret)
{
        for (int i = 0; s->names[i]; ++i) {
                if (PyUnicode_CompareWithASCIIString(name, s->names[i]) != 0)
                        continue;
                if (!ret[i]) {
                        ret[i] = value;
                        return true;
                }
                PyErr_Format(PyExc_TypeError, "%s() got two values for '%s'", s->name, s->names[i]);
                return false;
        }
        PyErr_Format(PyExc_TypeError, "%s() has no argument '%U'", s->name, name);
        return false;
}

bool args_parse(const struct signature *s, PyObject *const *args, Py_ssize_t n, PyObject *names,
        PyObject **ret)
{
        Py_ssize_t n_names = names ? PyTuple_Size(names) : 0;

        for (int i = 0; s->names[i]; ++i)
                ret[i] = i < n ? args[i] : NULL;
        if (n > s->n_positional) {
                PyErr_Format(PyExc_TypeError, "%s() takes %d positional arguments, not %zd",
                        s->name, s->n_positional, n);
                return false;
        }
        for (Py_ssize_t i = 0; i < n_names; ++i) {
                if (!take_named(s, PyTuple_GetItem(names, i), args[n + i], ret))
                        return false;
        }
        for (int i = 0; i < s->n_required; ++i) {
                if (ret[i])
                        continue;
                PyErr_Format(PyExc_TypeError, "%s() needs '%s'", s->name, s->names[i]);
                return false;
        }
        return true;
}

bool arg_u64(PyObject *object, const char *name, uint64_t *ret)
{
        PyObject *number;

        if (!object)
                return true;
        number = PyNumber_Index(object);
        if (!number)
                return false;
        *ret = PyLong_AsUnsignedLongLong(number);
        Py_DECREF(number);
        if (!PyErr_Occurred())
                return true;
        PyErr_Format(PyExc_ValueError, "%s must be an int from 0 to 2**64 - 1", name);
        return false;
}

bool arg_u32(PyObject *object, const char *name, uint32_t *ret)
{
        uint64_t v = *ret;

        if (!arg_u64(object, name, &v) && !PyErr_ExceptionMatches(PyExc_ValueError))
                return false;
        if (PyErr_Occurred() || v > UINT32_MAX) {
                PyErr_Format(PyExc_ValueError, "%s must be an int from 0 to 2**32 - 1", name);
                return false;
        }
        *ret = (uint32_t)v;
        return true;
}

bool arg_bool(PyObject *object, bool *ret)
{
        int r;

        if (!object)
                return true;
        r = PyObject_IsTrue(object);
        *ret = r > 0;
        return r >= 0;
}

bool arg_contiguous(PyObject *object, unsigned *ret)
{
        bool is_set = false;

        if (object && PyUnicode_Check(object)) {
                if (PyUnicode_CompareWithASCIIString(object, "prefer") != 0) {
                        PyErr_SetString(
                                PyExc_ValueError, "contiguous must be True, False or 'prefer'");
                        return false;
                }
                *ret = KVL_LEASE_PREFER_CONTIGUOUS;
                return true;
        }
        if (!arg_bool(object, &is_set))
                return false;
        if (is_set)
                *ret = KVL_LEASE_CONTIGUOUS;
        return true;
}

bool arg_text(PyObject *object, const char *name, const char **ret)
{
        Py_ssize_t n;

        if (!object)
                return true;
        *ret = NULL;
        if (Py_IsNone(object))
                return true;
        if (!PyUnicode_Check(object)) {
                PyErr_Format(PyExc_TypeError, "%s must be a str or None", name);
                return false;
        }
        *ret = PyUnicode_AsUTF8AndSize(object, &n);
        if (*ret && strlen(*ret) != (size_t)n) {
                PyErr_Format(PyExc_ValueError, "%s has a NUL character", name);
                return false;
        }
        return *ret != NULL;
}

bool arg_msec(PyObject *object, const char *name, int forever, int *ret)
{
        double seconds;

        if (!object)
                return true;
        if (Py_IsNone(object)) {
                *ret = forever;
                return true;
        }
        seconds = PyFloat_AsDouble(object);
        if (PyErr_Occurred())
                return false;
        if (!(seconds >= 0 && seconds <= INT_MAX / 1000)) {
                PyErr_Format(
                        PyExc_ValueError, "%s must be seconds from 0 to %d", name, INT_MAX / 1000);
                return false;
        }
        *ret = (int)(seconds * 1000);
        if (*ret == 0 && seconds > 0)
                *ret = 1;
        return true;
}

bool arg_path(PyObject *object, PyObject **ret_held, const char **ret)
{
        if (!is_given(object))
                return true;
        if (!PyUnicode_FSConverter(object, ret_held))
                return false;
        *ret = PyBytes_AsString(*ret_held);
        return *ret != NULL;
}

bool arg_stream(PyObject *object, kvl_stream *ret)
{
        uint64_t v = 0;

        if (is_given(object) && !arg_u64(object, "stream", &v))
                return false;
        *ret = (kvl_stream)(uintptr_t)v;
        return true;
}

bool arg_request(PyObject *object, uint64_t *ret)
{
        *ret = 0;
        if (!is_given(object))
                return true;
        if (Py_TYPE(object) == request_type) {
                *ret = request_id(object);
                return true;
        }
        return arg_u64(object, "request", ret);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static bool set_count(struct keys *keys, Py_ssize_t n_bytes)
{
        if (n_bytes % KVL_KEY_BYTES == 0 && n_bytes / KVL_KEY_BYTES <= UINT32_MAX) {
                keys->n = (uint32_t)(n_bytes / KVL_KEY_BYTES);
                return true;
        }
        PyErr_Format(PyExc_ValueError, "keys have %d bytes each: %zd bytes is no number of them",
                KVL_KEY_BYTES, n_bytes);
        return false;
}

static bool copy_key(PyObject *object, uint8_t *to)
{
        _cleanup_buffer_ Py_buffer buffer = {0};

        if (PyObject_GetBuffer(object, &buffer, PyBUF_SIMPLE) < 0)
                return false;
        if (buffer.len == KVL_KEY_BYTES)
                memcpy(to, buffer.buf, KVL_KEY_BYTES);
        else
                PyErr_Format(
                        PyExc_ValueError, "a key has %d bytes, not %zd", KVL_KEY_BYTES, buffer.len);
        return buffer.len == KVL_KEY_BYTES;
}

static bool copy_keys(PyObject *object, struct keys *ret)
{
        _cleanup_ref_ PyObject *list =
                PySequence_List(object); /* not shared: its length is constant */
        Py_ssize_t n = list ? PyList_Size(list) : 0;

        if (!list || !set_count(ret, n * KVL_KEY_BYTES))
                return false;
        ret->bytes = ret->copy = malloc((size_t)n * KVL_KEY_BYTES + 1);
        if (!ret->copy)
                return PyErr_NoMemory(), false;
        for (Py_ssize_t i = 0; i < n; ++i)
                if (!copy_key(PyList_GetItem(list, i), (uint8_t *)ret->copy + i * KVL_KEY_BYTES))
                        return false;
        return true;
}

bool keys_get(PyObject *object, struct keys *ret)
{
        char *bytes;
        Py_ssize_t n;

        if (PyBytes_Check(object)) {
                if (PyBytes_AsStringAndSize(object, &bytes, &n) < 0 || !set_count(ret, n))
                        return false;
                ret->object = Py_NewRef(object);
                ret->bytes = (const uint8_t *)bytes;
                return true;
        }
        if (!PyObject_CheckBuffer(object))
                return copy_keys(object, ret);
        if (PyObject_GetBuffer(object, &ret->buffer, PyBUF_SIMPLE) < 0)
                return false;
        ret->bytes = ret->buffer.buf;
        return set_count(ret, ret->buffer.len);
}

void keys_free(struct keys *keys)
{
        if (keys->buffer.obj)
                PyBuffer_Release(&keys->buffer);
        Py_CLEAR(keys->object);
        free(keys->copy);
}

bool key_get(PyObject *object, const char *sentence, struct keys *ret)
{
        if (!keys_get(object, ret))
                return false;
        if (ret->n == 1)
                return true;
        PyErr_Format(PyExc_ValueError, "%s, not %u", sentence, ret->n);
        return false;
}

/* ---- page numbers ---------------------------------------------------------------------------- */

static bool copy_numbers(PyObject *object, struct numbers *ret)
{
        _cleanup_ref_ PyObject *list = PySequence_List(object);
        Py_ssize_t n = list ? PyList_Size(list) : -1;

        if (n < 0)
                return false;
        if (n > UINT32_MAX) {
                PyErr_SetString(PyExc_ValueError, "there are at most 2**32 - 1 page numbers");
                return false;
        }
        ret->n = (uint32_t)n;
        ret->at = ret->copy = numbers_new(NULL, ret->n);
        for (Py_ssize_t i = 0; ret->copy && i < n; ++i) {
                ret->copy[i] = 0;
                if (!arg_u32(PyList_GetItem(list, i), "a page", &ret->copy[i]))
                        numbers_free(ret);
        }
        return ret->copy != NULL;
}

char array_type(const char *format)
{
        static const union {
                uint16_t number;
                uint8_t first;
        } one = {1};
        char native = one.first ? '<' : '>';

        if (!format)
                return 'B';
        if (format[0] == '=' || format[0] == '@' || format[0] == native)
                ++format;
        return format[0] && !format[1] ? format[0] : '\0';
}

/* Copies a contiguous array of 4-byte integers, which may change without the GIL. */
static bool copy_array(PyObject *object, struct numbers *ret)
{
        _cleanup_buffer_ Py_buffer buffer = {0};
        char type;

        if (PyObject_GetBuffer(object, &buffer, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0)
                return false;
        type = array_type(buffer.format);
        if (buffer.itemsize != sizeof(uint32_t) || !type || !strchr("IiLl", type)) {
                PyErr_SetString(PyExc_TypeError,
                        "page numbers in an array are integers of 4 bytes in native order");
                return false;
        }
        ret->n = (uint32_t)(buffer.len / (Py_ssize_t)sizeof(uint32_t));
        ret->at = ret->copy = numbers_new(buffer.buf, ret->n);
        return ret->copy != NULL;
}

bool numbers_get(PyObject *object, struct numbers *ret)
{
        const struct pages_object *pages = (const struct pages_object *)object;

        ret->copy = NULL;
        if (Py_TYPE(object) != pages_type)
                return PyObject_CheckBuffer(object) ? copy_array(object, ret)
                                                    : copy_numbers(object, ret);
        if (pages->state == PAGES_CLOSED)
                return raise_closed("pages object"), false;
        ret->n = pages->n;
        ret->at = ret->copy = numbers_new(pages->numbers, pages->n);
        return ret->copy != NULL;
}

bool numbers_get_of(PyObject *object, const struct ns_object *ns, struct numbers *ret)
{
        if (Py_TYPE(object) == pages_type && ((const struct pages_object *)object)->ns != ns) {
                raise_code_as(-EINVAL, "the pages are of another namespace", NULL);
                return false;
        }
        return numbers_get(object, ret);
}

void numbers_free(struct numbers *numbers)
{
        free(numbers->copy);
        numbers->copy = NULL;
}

uint32_t *numbers_new(const uint32_t *from, uint32_t n)
{
        uint32_t *at = malloc(((size_t)n + 1) * sizeof(*at));

        if (!at)
                PyErr_NoMemory();
        else if (from && n)
                memcpy(at, from, n * sizeof(*at));
        return at;
}

PyObject *numbers_tuple(const uint32_t *at, uint32_t n)
{
        PyObject *tuple = PyTuple_New(n);

        for (uint32_t i = 0; tuple && i < n; ++i) {
                PyObject *number = PyLong_FromUnsignedLong(at[i]);

                if (!number || PyTuple_SetItem(tuple, i, number) < 0)
                        Py_CLEAR(tuple);
        }
        return tuple;
}
