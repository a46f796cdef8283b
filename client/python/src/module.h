/*
 * The extension kvlease._kvlease: libkvlease.so's interface as Python objects.
 *
 * CPython's limited API of 3.11, so that one build serves that and all later versions. One file per
 * kind of object. The GIL guards all state of objects. It is released around every library call
 * that may block, take a lock or run callbacks.
 *
 * Lifetimes. A view holds its pages, pages their namespace, a namespace its connection. Counters
 * guard the other direction: closing an object with views raises BufferError, and with calls of
 * other threads Busy. An event handler may hold any object, so all take part in the collection of
 * cycles; connections break the cycles. Closing a namespace or a connection leaves the Python
 * objects below it in place, closed.
 */
#ifndef KVLEASE_PYTHON_MODULE_H
#define KVLEASE_PYTHON_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "client/lib/kvlease.h"

/* ---- errors.c -------------------------------------------------------------------------------- */

int errors_init(PyObject *module);

/* Sets the exception for a library call's result, with the sentence of the calling thread's last
 * call. Returns NULL. */
PyObject *raise_code(int code);

/* Does raise_code() if kvl_last_error() has no sentence for it (a callback), or the daemon gave a
 * reason. reason: the value of .reason, or NULL. */
PyObject *raise_code_as(int code, const char *sentence, const char *reason);

/* Returns the exception for code as an object. New reference; NULL with an exception set. */
PyObject *error_new(int code, const char *sentence, const char *reason);

/* Raises Unreachable: before a socket is connected, codes mean something else. */
PyObject *raise_unreachable(int code, const char *sentence);
PyObject *raise_closed(const char *what);
PyObject *raise_busy(const char *sentence);

/* Makes a str of external text: bytes that are no UTF-8 (of a path) become escapes. */
PyObject *text_new(const char *text);

/* Returns the name of a kvl_reason; NULL for KVL_REASON_NONE. */
const char *reason_name(enum kvl_reason reason);

/* ---- args.c: arguments ----------------------------------------------------------------------- */

#define MAX_ARGS 20

/* A method's arguments: names in order, ending with NULL. */
struct signature {
        const char *name;
        const char *names[MAX_ARGS];
        int n_required;
        int n_positional; /* the others must be given by name */
};

/* ret: borrowed references, NULL for missing arguments. Returns false with an exception set. */
bool args_parse(const struct signature *s, PyObject *const *args, Py_ssize_t n, PyObject *names,
        PyObject **ret);

#define METHOD(name, fn, doc)                                                               \
        {                                                                                   \
                name, (PyCFunction)(void (*)(void))(fn), METH_FASTCALL | METH_KEYWORDS, doc \
        }

/* Each leaves *ret unchanged if object is NULL (not given). Returns false with an exception set. */
bool arg_u64(PyObject *object, const char *name, uint64_t *ret);
bool arg_u32(PyObject *object, const char *name, uint32_t *ret);
bool arg_bool(PyObject *object, bool *ret);
bool arg_contiguous(PyObject *object, unsigned *ret);                /* enum kvl_lease_flags */
bool arg_text(PyObject *object, const char *name, const char **ret); /* None: NULL */
/* Seconds, a float or an int; None: ret is `forever`. In ms, at least 1 unless 0. */
bool arg_msec(PyObject *object, const char *name, int forever, int *ret);
/* A path; None: unchanged. *ret_held: owned, has the text. */
bool arg_path(PyObject *object, PyObject **ret_held, const char **ret);
bool arg_stream(PyObject *object, kvl_stream *ret); /* an int; None: NULL */
bool arg_request(PyObject *object, uint64_t *ret);  /* a Request, an int, or None */

/* Keys, as any buffer of n * 32 bytes or a sequence of such buffers. All zeros before keys_get();
 * keys_free() also after a failure. */
struct keys {
        const uint8_t *bytes;
        uint32_t n;
        Py_buffer buffer;
        void *copy;
        PyObject *object;
};
bool keys_get(PyObject *object, struct keys *ret);
/* Gets one key; sentence: of the exception for another number. */
bool key_get(PyObject *object, const char *sentence, struct keys *ret);
void keys_free(struct keys *keys);

/* Page numbers: Pages, a buffer of uint32, or a sequence of ints. Owned: numbers_free(). */
struct numbers {
        const uint32_t *at;
        uint32_t n;
        uint32_t *copy;
};
bool numbers_get(PyObject *object, struct numbers *ret);
/* Does numbers_get(), but refuses Pages of another namespace, whose numbers differ. */
struct ns_object;
bool numbers_get_of(PyObject *object, const struct ns_object *ns, struct numbers *ret);
void numbers_free(struct numbers *numbers);
/* Makes an array of n numbers (malloc), copied from `from` unless that is NULL. NULL: no memory,
 * with an exception. */
uint32_t *numbers_new(const uint32_t *from, uint32_t n);

/* Returns a buffer's single type character in native order; 0: it has more, or another order. */
char array_type(const char *format);

PyObject *numbers_tuple(const uint32_t *at, uint32_t n);

/* ---- keys.c ---------------------------------------------------------------------------------- */

/* Token ids of an array, of bytes or of a list. */
struct tokens {
        uint32_t *at; /* malloc */
        size_t n;
};
bool tokens_get(PyObject *object, struct tokens *ret);
void tokens_free(struct tokens *tokens); /* also after a failure */
#define _cleanup_tokens_ __attribute__((cleanup(tokens_free)))

struct layout {
        struct kvl_layout layout;
        PyObject *held[4]; /* owners of the memory that it points to */
        Py_buffer salt, format;
};
/* object: a kvlease.Layout. layout_free() also after a failure. */
bool layout_get(PyObject *object, struct layout *ret);
void layout_free(struct layout *layout);
#define _cleanup_layout_ __attribute__((cleanup(layout_free)))

int keys_init(PyObject *module);
extern PyMethodDef keys_methods[];

/* ---- connection.c ---------------------------------------------------------------------------- */

struct ns_object;

struct conn_object {
        PyObject_HEAD struct kvl_conn *conn; /* NULL: closed */
        struct ns_object *first_ns;          /* open ones */
        PyObject *handler;                   /* or NULL */
        unsigned fork_count;                 /* of the process that made it */
        uint32_t n_calls;                    /* under way, including those of its namespaces */
        uint32_t n_views;
};
extern PyTypeObject *conn_type;

int connection_init(PyObject *module);

/* Begins and ends a call. conn_enter() returns false with an exception: closed, or the parent's. */
bool conn_enter(struct conn_object *self);
void conn_leave(struct conn_object *self);
bool conn_is_inherited(const struct conn_object *self); /* a forked child has its parent's */

PyObject *connection_connect(
        PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names);

/* Makes an object of a type of kvlease._types, by name, from `arguments` (stolen). */
PyObject *types_new(const char *name, PyObject *arguments);

/* ---- namespace.c, namespace-calls.c ---------------------------------------------------------- */

struct ns_object {
        PyObject_HEAD struct kvl_ns *ns; /* NULL: closed */
        struct conn_object *conn;
        struct ns_object *next_ns, **prev_ns;
        uint32_t n_calls;
        uint32_t n_views;
        uint32_t page_tokens, n_planes, n_device_pages, capacity_pages;
        uint64_t plane_page_bytes, stride_bytes;
        bool is_cpu_memory, is_contiguous;
        char device[65];
};
extern PyTypeObject *ns_type;

int namespace_init(PyObject *module);
struct ns_object *namespace_open(
        struct conn_object *conn, PyObject *const *args, Py_ssize_t n, PyObject *names);
bool ns_enter(struct ns_object *self);
void ns_leave(struct ns_object *self);
/* Enters for the end of what belongs to the namespace. False: it is closed, or the parent's:
 * nothing is left to end. No exception. */
bool ending_enter(struct ns_object *self);
#define ending_leave ns_leave
/* Called when the connection closes: ns->ns becomes invalid. */
void ns_forget(struct ns_object *self);

/* Arguments of a lease: n_pages, request, min_pages, max_wait, contiguous. */
struct lease_args {
        struct kvl_lease_options options;
        uint32_t n_pages;
        uint64_t request;
};
bool lease_args_get(PyObject **a, struct lease_args *ret);

extern PyMethodDef ns_call_methods[];  /* namespace-calls.c */
extern PyMethodDef ns_start_methods[]; /* start.c */
PyObject *namespace_lookup_set(
        PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names);

/* ---- pages.c --------------------------------------------------------------------------------- */

enum pages_state {
        PAGES_LEASED, /* writable, to be freed */
        PAGES_PINNED, /* read-only, to be released */
        PAGES_MAPPED, /* another client holds them: neither */
        PAGES_CLOSED
};

struct pages_object {
        PyObject_HEAD struct ns_object *ns;
        uint32_t *numbers; /* owned, malloc; NULL if n is 0 */
        uint32_t n;
        enum pages_state state;
        uint32_t n_views;
        uint32_t n_busy;                /* calls under way that use some of them */
        bool is_moving;                 /* one of these calls takes or renumbers them */
        bool is_of_window;              /* from take(): the window's next call ends them */
        uint32_t first_plane, n_planes; /* with the sequence's bytes; 0 planes: all */
        uint64_t n_tokens;
        enum kvl_reason reason; /* of a lease */
        uint64_t waited_usec;
        bool is_pending;
        PyObject *spans; /* of a session, or NULL */
};
extern PyTypeObject *pages_type;

int pages_init(PyObject *module);
/* numbers: taken (malloc). After a failure they are freed, and the pages given back. */
struct pages_object *pages_new(
        struct ns_object *ns, uint32_t *numbers, uint32_t n, enum pages_state state);
/* Gives back pages that got no object. Doesn't block; keeps the current exception. */
void numbers_give_back(
        struct ns_object *ns, const uint32_t *numbers, uint32_t n, enum pages_state state);
/* Returns false with an exception: closed, or a call under way moves them. */
bool pages_is_usable(struct pages_object *self);
/* Returns false with an exception: closed, has views, or is part of a call under way. */
bool pages_can_change(struct pages_object *self, const char *what);
/* Begins and ends a call that takes them away, or changes their numbers. Meanwhile they can't be
 * viewed or used otherwise. After pages_can_change(). */
void pages_begin_move(struct pages_object *self);
void pages_end_move(struct pages_object *self);
/* Begins and ends a call during which the pages must stay. Returns false with an exception set. */
bool pages_enter(struct pages_object *self);
void pages_leave(struct pages_object *self);

/* page-io.c. */
/* Checks that these planes of the pages hold the sequence's bytes; pages of a window's take() may
 * have some planes only. Returns false with an exception. Planes that no page has pass: their user
 * reports them. */
bool pages_have_planes(const struct pages_object *self, uint32_t first, uint32_t n);
/* Methods. */
PyObject *pages_read_many(
        struct pages_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names);
PyObject *pages_write_many(
        struct pages_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names);

/* Takes the first n numbers away. */
void pages_drop_first(struct pages_object *self, uint32_t n);
/* Puts numbers before the others. Returns false with an exception: no memory, nothing changed. */
bool pages_put_first(struct pages_object *self, const uint32_t *numbers, uint32_t n);
PyObject *namespace_adopt(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names);

/* Arguments of a publish: pages, keys, parent, last_tokens, request, session, tag, window_passed,
 * token_ids, lora_name, cache_salt. */
struct publish_args {
        struct kvl_publish publish;
        struct pages_object *source; /* NULL: only `numbers` were given */
        struct numbers numbers;
        struct keys keys, parent;
        struct tokens token_ids;
        struct session_object *session;
};
bool publish_args_get(struct ns_object *ns, PyObject **args, struct publish_args *ret);
void publish_args_free(struct publish_args *a); /* also after a failure */
#define _cleanup_publish_ __attribute__((cleanup(publish_args_free)))
/* Raises the exception of a publish that stopped, with the pages published before (stolen). */
PyObject *raise_stopped(int code, const char *sentence, struct pages_object *done);
/* After a publish handled n_done pages: *ret_pages (malloc, taken) have the keys. Gives the source
 * back those of its n_taken numbers that are still leased. */
struct pages_object *publish_finish(struct ns_object *ns, struct pages_object *source,
        const uint32_t *taken, uint32_t n_taken, uint32_t *ret_pages, uint32_t n_done);

/* ---- follow.c -------------------------------------------------------------------------------- */

int follow_init(PyObject *module);
PyObject *module_follow(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names);

/* ---- view.c ---------------------------------------------------------------------------------- */

int view_init(PyObject *module);
/* Makes a view of pages[first..first + n - 1], which are contiguous, in a plane. */
PyObject *view_of_pages(struct pages_object *pages, uint32_t first, uint32_t n, bool is_one,
        uint32_t plane, PyObject *dtype);
PyObject *view_of_arena(struct ns_object *ns, uint32_t plane, bool is_writable, PyObject *dtype);

/* ---- session.c, window.c --------------------------------------------------------------------- */

struct session_object {
        PyObject_HEAD struct ns_object *ns;
        struct kvl_session *session; /* NULL: closed */
        PyObject *info;
        uint32_t n_calls;
};
extern PyTypeObject *session_type;
int session_init(PyObject *module);
PyObject *namespace_session(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names);
bool session_enter(struct session_object *self);
void session_leave(struct session_object *self);

extern PyTypeObject *request_type;
uint64_t request_id(PyObject *request);
int request_init(PyObject *module);
PyObject *namespace_request(struct ns_object *self, PyObject *unused);

int window_init(PyObject *module);
PyObject *namespace_window(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names);

/* ---- llama.c --------------------------------------------------------------------------------- */

int llama_init(PyObject *module);

/* ---- small things ---------------------------------------------------------------------------- */

/* A local variable with one of these owns its content, which is freed at the end of the scope. */
#define _cleanup_keys_    __attribute__((cleanup(keys_free)))
#define _cleanup_numbers_ __attribute__((cleanup(numbers_free)))
#define _cleanup_buffer_  __attribute__((cleanup(PyBuffer_Release)))
#define _cleanup_free_    __attribute__((cleanup(free_at)))
#define _cleanup_ref_     __attribute__((cleanup(decref_at)))

static inline void free_at(void *at)
{
        free(*(void **)at);
}

static inline void decref_at(PyObject **at)
{
        Py_XDECREF(*at);
}

static inline bool is_given(PyObject *object)
{
        return object && !Py_IsNone(object);
}

/* Runs `call` without the GIL. */
#define UNLOCKED(call)                       \
        do {                                 \
                Py_BEGIN_ALLOW_THREADS call; \
                Py_END_ALLOW_THREADS         \
        } while (0)

/* Runs `call` without the GIL as a call of an object. kind: conn, ns, session, pages, or `ending`
 * for the end of what belongs to a namespace. False: it wasn't run, as KIND_enter() says. */
#define CALL(kind, object, call)                 \
        ({                                       \
                bool ok_ = kind##_enter(object); \
                if (ok_) {                       \
                        UNLOCKED(call);          \
                        kind##_leave(object);    \
                }                                \
                ok_;                             \
        })

/* Returns None, or raises r. */
static inline PyObject *none_or_raise(int r)
{
        return r ? raise_code(r) : Py_NewRef(Py_None);
}

/* Makes a type and adds it to the module. name: with the module's. Its objects are made by
 * object_new() alone. Returns 0; -1: an exception is set. */
int type_add(
        PyObject *module, PyTypeObject **ret, const char *name, size_t bytes, PyType_Slot *slots);

/* Ends an object: calls end(), which may run Python code, keeps the current exception, and frees
 * the memory. */
static inline void object_dealloc(PyObject *self, void (*end)(PyObject *self))
{
        PyTypeObject *class = Py_TYPE(self);
        freefunc fn = (freefunc)PyType_GetSlot(class, Py_tp_free);
        PyObject *type, *value, *traceback;

        PyObject_GC_UnTrack(self);
        PyErr_Fetch(&type, &value, &traceback);
        end(self);
        PyErr_Restore(type, value, traceback);
        fn(self);
        Py_DECREF((PyObject *)class);
}

static inline void *object_new(PyTypeObject *type)
{
        allocfunc fn = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);

        return fn(type, 0);
}

/* Getters of a field of the object. offset: FIELD(). An object that is NULL is None. */
PyObject *get_u32_field(PyObject *self, void *offset);
PyObject *get_u64_field(PyObject *self, void *offset);
PyObject *get_bool_field(PyObject *self, void *offset);
PyObject *get_object_field(PyObject *self, void *offset);
#define FIELD(type, field) ((void *)offsetof(struct type, field))

/* __exit__ of an object with close(). */
static inline PyObject *exit_close(PyObject *self, PyObject *args)
{
        return PyObject_CallMethod(self, "close", NULL);
}

/* tp_traverse of an object that refers to none. */
static inline int traverse_none(PyObject *self, visitproc visit, void *arg)
{
        Py_VISIT(Py_TYPE(self));
        return 0;
}

static inline PyObject *return_self(PyObject *self, PyObject *unused)
{
        return Py_NewRef(self);
}

/* __reduce__: objects of this process can't be pickled or copied. */
static inline PyObject *refuse_pickling(PyObject *self, PyObject *unused)
{
        return PyErr_Format(PyExc_TypeError,
                "cannot pickle an object of %R: it is this process's alone", Py_TYPE(self));
}

#endif
