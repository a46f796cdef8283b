/* Copies of many pages in one call: methods of Pages. */
#include "client/python/src/module.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool pages_have_planes(const struct pages_object *self, uint32_t first, uint32_t n)
{
        uint64_t end = (uint64_t)first + n,
                 end_taken = (uint64_t)self->first_plane + self->n_planes;
        char sentence[160];

        if (self->n_planes == 0 || end > self->ns->n_planes ||
                (first >= self->first_plane && end <= end_taken))
                return true;
        snprintf(sentence, sizeof(sentence),
                "%u planes from %u on: the window's take() was of planes %u to %u alone", n, first,
                self->first_plane, (uint32_t)(end_taken - 1));
        raise_code_as(-EINVAL, sentence, NULL);
        return false;
}

/* Returns the page numbers at these indices; None: all. malloc'd, NULL with an exception set. */
static uint32_t *pick_numbers(struct pages_object *self, PyObject *indices, uint32_t *ret_n)
{
        _cleanup_numbers_ struct numbers at = {0};
        uint32_t *ret;

        if (!is_given(indices)) {
                *ret_n = self->n;
                return numbers_new(self->numbers, self->n);
        }
        if (!numbers_get(indices, &at))
                return NULL;
        *ret_n = at.n;
        ret = numbers_new(NULL, at.n);
        for (uint32_t i = 0; ret && i < at.n; ++i) {
                if (at.at[i] < self->n) {
                        ret[i] = self->numbers[at.at[i]];
                        continue;
                }
                PyErr_Format(PyExc_IndexError, "there are %u pages", self->n);
                free(ret);
                ret = NULL;
        }
        return ret;
}

/* a: indices, n_bytes, first_plane, n_planes, offset. Sets io->memory_bytes accordingly. Returns
 * io->pages, malloc'd; NULL with an exception set. */
static uint32_t *get_io(struct pages_object *self, PyObject **a, struct kvl_page_io *io)
{
        uint64_t page_bytes = self->ns->plane_page_bytes, each;
        uint32_t n_planes, *numbers;

        if ((is_given(a[1]) && !arg_u64(a[1], "n_bytes", &io->bytes)) ||
                !arg_u32(a[2], "first_plane", &io->first_plane) ||
                (is_given(a[3]) && !arg_u32(a[3], "n_planes", &io->n_planes)) ||
                !arg_u64(a[4], "offset", &io->offset))
                return NULL;
        n_planes = io->n_planes;
        if (n_planes == 0 && io->first_plane < self->ns->n_planes)
                n_planes = self->ns->n_planes - io->first_plane;
        if (n_planes > self->ns->n_planes || io->offset >= page_bytes ||
                io->bytes > page_bytes - io->offset) {
                raise_code_as(-EINVAL, "the namespace's pages aren't that large", NULL);
                return NULL;
        }
        if (!pages_have_planes(self, io->first_plane, n_planes))
                return NULL;
        numbers = pick_numbers(self, a[0], &io->n_pages);
        each = n_planes * (io->bytes > 0 ? io->bytes : page_bytes - io->offset);
        if (numbers && io->n_pages > 0 && each > (uint64_t)PY_SSIZE_T_MAX / io->n_pages) {
                free(numbers);
                numbers = NULL;
                PyErr_NoMemory();
        }
        io->pages = numbers;
        io->memory_bytes = each * io->n_pages;
        return numbers;
}

/* Returns true if it was done. */
static bool run(struct pages_object *self, const struct kvl_page_io *io,
        int (*fn)(const struct kvl_ns *ns, const struct kvl_page_io *io))
{
        int r;

        if (!CALL(pages, self, r = io->n_pages > 0 ? fn(self->ns->ns, io) : 0))
                return false;
        if (r)
                raise_code(r);
        return r == 0;
}

static bool check_size(const struct kvl_page_io *io, const Py_buffer *buffer)
{
        if ((uint64_t)buffer->len == io->memory_bytes)
                return true;
        PyErr_Format(PyExc_ValueError, "the buffer has %zd bytes, these pages %llu", buffer->len,
                (unsigned long long)io->memory_bytes);
        return false;
}

static PyObject *read_into(struct pages_object *self, struct kvl_page_io *io, PyObject *into)
{
        _cleanup_buffer_ Py_buffer buffer = {0};

        if (PyObject_GetBuffer(into, &buffer, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0)
                return NULL;
        io->memory = buffer.buf;
        return check_size(io, &buffer) && run(self, io, kvl_pages_read) ? Py_NewRef(Py_None) : NULL;
}

static PyObject *read_bytes(struct pages_object *self, struct kvl_page_io *io)
{
        PyObject *ret = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)io->memory_bytes);

        io->memory = ret ? PyBytes_AsString(ret) : NULL;
        if (io->memory && run(self, io, kvl_pages_read))
                return ret;
        Py_XDECREF(ret);
        return NULL;
}

PyObject *pages_read_many(
        struct pages_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"read_many",
                {"indices", "n_bytes", "first_plane", "n_planes", "offset", "into"}, 0, 2};
        struct kvl_page_io io = {.size = sizeof(io)};
        _cleanup_free_ uint32_t *numbers = NULL;
        PyObject *a[6];

        if (!args_parse(&s, args, n, names, a) || !(numbers = get_io(self, a, &io)))
                return NULL;
        return is_given(a[5]) ? read_into(self, &io, a[5]) : read_bytes(self, &io);
}

PyObject *pages_write_many(
        struct pages_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"write_many",
                {"data", "indices", "n_bytes", "first_plane", "n_planes", "offset"}, 1, 2};
        struct kvl_page_io io = {.size = sizeof(io)};
        _cleanup_free_ uint32_t *numbers = NULL;
        _cleanup_buffer_ Py_buffer data = {0};
        PyObject *a[6];

        if (!args_parse(&s, args, n, names, a) || !(numbers = get_io(self, a + 1, &io)) ||
                PyObject_GetBuffer(a[0], &data, PyBUF_C_CONTIGUOUS) < 0)
                return NULL;
        io.memory = data.buf;
        if (self->state != PAGES_LEASED)
                return raise_code_as(-EACCES, "only leased pages are written: these aren't", NULL);
        return check_size(&io, &data) && run(self, &io, kvl_pages_write) ? Py_NewRef(Py_None)
                                                                         : NULL;
}
