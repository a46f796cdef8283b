/* The exceptions for the library's return values, as Python users expect them. */
#include "client/python/src/module.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum error_class {
        ERROR,
        FULL,
        QUOTA,
        NO_PARENT,
        STALE,
        DRAINING,
        LAYOUT_MISMATCH,
        VERSION_MISMATCH,
        TIMED_OUT,
        DISCONNECTED,
        UNREACHABLE,
        NOT_FOUND,
        BUSY,
        DENIED,
        INVALID,
        DEVICE_FAILURE,
        FORKED,
        CLOSED,
        N_ERRORS
};

static PyObject *classes[N_ERRORS];

static const struct {
        const char *name;
        PyObject **base; /* a further base class, beside Error */
        const char *doc;
} table[N_ERRORS] = {
        [ERROR] = {"Error", &PyExc_Exception,
                "What every call of this package raises where it fails.\n\n"
                "str() is a sentence for people. reason: a word for programs, such as 'full'. "
                "code: what\nlibkvlease returned: a KVL_ condition, or -errno."},
        [FULL] = {"Full", NULL,
                "The device, or the tenant's reservation, has no memory left to lease."},
        [QUOTA] = {"Quota", NULL, "The tenant's limit is reached."},
        [NO_PARENT] = {"NoParent", &PyExc_LookupError,
                "The page before those to be published is not cached (any more)."},
        [STALE] = {"Stale", NULL,
                "The namespace was invalidated, changed its version, or was lost: connect anew."},
        [DRAINING] = {"Draining", NULL, "The daemon is draining: it grants nothing new."},
        [LAYOUT_MISMATCH] = {"LayoutMismatch", &PyExc_ValueError,
                "The namespace exists with another layout; the sentence has both."},
        [VERSION_MISMATCH] = {"VersionMismatch", NULL,
                "Library and daemon have no protocol version in common."},
        [TIMED_OUT] = {"Timeout", &PyExc_TimeoutError, "It waited as long as it may."},
        [DISCONNECTED] = {"Disconnected", &PyExc_ConnectionError,
                "The connection is over: close it, and connect anew."},
        [UNREACHABLE] = {"Unreachable", &PyExc_ConnectionError,
                "No daemon listens there, or there is no such socket."},
        [NOT_FOUND] = {"NotFound", &PyExc_LookupError,
                "No such device, group, session, or mapped page: the sentence says which."},
        [BUSY] = {"Busy", NULL,
                "It can't be done right now: too much is under way, or other threads use the object."},
        [DENIED] = {"Denied", &PyExc_PermissionError,
                "Not allowed to this process, or to a metadata-only connection."},
        [INVALID] = {"Invalid", &PyExc_ValueError, "An argument is out of range."},
        [DEVICE_FAILURE] = {"DeviceFailure", NULL, "The device, or its stream, is broken."},
        [FORKED] = {"Forked", NULL,
                "The object is of the parent process: connect anew in the child."},
        [CLOSED] = {"Closed", &PyExc_ValueError, "The object was closed, or what it belongs to."},
};

/* Words for .reason if the daemon gave none. */
static const struct {
        int code;
        enum error_class class;
        const char *reason;
} codes[] = {
        {KVL_QUOTA, QUOTA, "quota"},
        {KVL_FULL, FULL, "full"},
        {KVL_RESERVATION, FULL, "reservation"},
        {KVL_NO_PARENT, NO_PARENT, "no-parent"},
        {KVL_STALE, STALE, "stale"},
        {KVL_DRAINING, DRAINING, "draining"},
        {KVL_LAYOUT, LAYOUT_MISMATCH, "layout"},
        {KVL_VERSION, VERSION_MISMATCH, "version"},
        {KVL_TIMEOUT, TIMED_OUT, "timeout"},
        {KVL_MISS, NOT_FOUND, "miss"},
        {KVL_DUPLICATE, ERROR, "duplicate"},
        {KVL_PENDING, ERROR, "pending"},
        {-ETIMEDOUT, TIMED_OUT, "timeout"},
        {-ENOTCONN, DISCONNECTED, "disconnected"},
        {-ECONNRESET, DISCONNECTED, "disconnected"},
        {-EPROTO, DISCONNECTED, "protocol"},
        {-ECANCELED, CLOSED, "canceled"},
        {-ESTALE, STALE, "stale"},
        {-ECONNREFUSED, UNREACHABLE, "unreachable"},
        {-ENOENT, NOT_FOUND, "not-found"},
        {-EEXIST, BUSY, "already-open"},
        {-EBUSY, BUSY, "busy"},
        {-EAGAIN, BUSY, "again"},
        {-EMFILE, BUSY, "too-many"},
        {-ENOSPC, BUSY, "no-space"},
        {-EACCES, DENIED, "denied"},
        {-EINVAL, INVALID, "invalid"},
        {-ENAMETOOLONG, INVALID, "invalid"},
        {-EOVERFLOW, INVALID, "overflow"},
        {-EOPNOTSUPP, INVALID, "not-supported"},
        {-EIO, DEVICE_FAILURE, "io"},
        {-ECHILD, FORKED, "forked"},
};

int errors_init(PyObject *module)
{
        char name[64];

        for (int i = 0; i < N_ERRORS; ++i) {
                PyObject *bases;

                snprintf(name, sizeof(name), "kvlease.%s", table[i].name);
                if (i == ERROR)
                        bases = PyTuple_Pack(1, *table[i].base);
                else if (table[i].base)
                        bases = PyTuple_Pack(2, classes[ERROR], *table[i].base);
                else
                        bases = PyTuple_Pack(1, classes[ERROR]);
                if (!bases)
                        return -1;
                classes[i] = PyErr_NewExceptionWithDoc(name, table[i].doc, bases, NULL);
                Py_DECREF(bases);
                if (!classes[i] || PyModule_AddObjectRef(module, table[i].name, classes[i]) < 0)
                        return -1;
        }
        return 0;
}

const char *reason_name(enum kvl_reason reason)
{
        static const char *const names[] = {NULL, "quota", "reservation-full", "pool-full",
                "deadline", "degraded", "draining", "device", "no-run"};

        if ((unsigned)reason >= sizeof(names) / sizeof(names[0]))
                return "other";
        return names[reason];
}

PyObject *text_new(const char *text)
{
        return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace");
}

static PyObject *new_of(enum error_class class, int code, const char *sentence, const char *reason)
{
        PyObject *error = PyObject_CallFunction(classes[class], "N", text_new(sentence));
        PyObject *word = PyUnicode_FromString(reason), *number = PyLong_FromLong(code);

        if (!error || !word || !number || PyObject_SetAttrString(error, "reason", word) < 0 ||
                PyObject_SetAttrString(error, "code", number) < 0)
                Py_CLEAR(error);
        Py_XDECREF(word);
        Py_XDECREF(number);
        return error;
}

PyObject *error_new(int code, const char *sentence, const char *reason)
{
        if (code == -ENOMEM) {
                PyErr_NoMemory();
                return NULL;
        }
        for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); ++i) {
                if (codes[i].code == code)
                        return new_of(
                                codes[i].class, code, sentence, reason ? reason : codes[i].reason);
        }
        return new_of(ERROR, code, sentence, reason ? reason : "other");
}

static PyObject *raise(PyObject *error)
{
        if (error) {
                PyErr_SetObject((PyObject *)Py_TYPE(error), error);
                Py_DECREF(error);
        }
        return NULL;
}

PyObject *raise_code_as(int code, const char *sentence, const char *reason)
{
        return raise(error_new(code, sentence, reason));
}

PyObject *raise_code(int code)
{
        const char *sentence = kvl_last_error();

        return raise_code_as(code, sentence && sentence[0] ? sentence : kvl_strerror(code), NULL);
}

PyObject *raise_unreachable(int code, const char *sentence)
{
        return raise(new_of(UNREACHABLE, code, sentence, "unreachable"));
}

PyObject *raise_closed(const char *what)
{
        char sentence[80];

        snprintf(sentence, sizeof(sentence), "the %s is closed", what);
        return raise(new_of(CLOSED, 0, sentence, "closed"));
}

PyObject *raise_busy(const char *sentence)
{
        return raise(new_of(BUSY, -EBUSY, sentence, "busy"));
}
