/* Calls that don't wait: callback(result, error) is called once, from Connection.dispatch() or a
 * blocking call. One of the two is None. kvlease.aio makes awaitables of them. */
#include "client/python/src/module.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A call under way. Owned by the library until its callback ran. */
struct started {
        struct ns_object *ns;
        PyObject *callback;
        struct pages_object *source; /* publish, fetch: the Pages in use, counted in n_busy */
        uint32_t *taken;             /* publish: numbers taken from it, in order */
        uint32_t n_taken;
};

static struct started *started_new(struct ns_object *ns, PyObject *callback)
{
        struct started *s;

        if (!PyCallable_Check(callback)) {
                PyErr_SetString(PyExc_TypeError, "callback must be callable");
                return NULL;
        }
        s = calloc(1, sizeof(*s));
        if (!s) {
                PyErr_NoMemory();
                return NULL;
        }
        s->ns = (struct ns_object *)Py_NewRef((PyObject *)ns);
        s->callback = Py_NewRef(callback);
        return s;
}

static void started_free(struct started *s)
{
        if (!s)
                return;
        if (s->source) {
                --s->source->n_busy;
                s->source->is_moving = false;
                Py_DECREF((PyObject *)s->source);
        }
        free(s->taken);
        Py_DECREF(s->callback);
        Py_DECREF((PyObject *)s->ns);
        free(s);
}

/* Ends a method. is_run: r is the result of a *_start(), which has s where that is 0. */
static PyObject *started_return(struct started *s, bool is_run, int r)
{
        if (is_run && r == 0)
                Py_RETURN_NONE;
        started_free(s);
        return is_run ? raise_code(r) : NULL;
}

/* result: stolen; NULL: the current exception, or the one for `code`. */
static void finish_call(struct started *s, PyObject *result, int code, const char *reason)
{
        PyObject *callback = Py_NewRef(s->callback), *error = NULL, *type, *traceback, *ret;

        started_free(s);
        if (!result && !PyErr_Occurred())
                raise_code_as(code, kvl_strerror(code), reason);
        if (!result) {
                PyErr_Fetch(&type, &error, &traceback);
                PyErr_NormalizeException(&type, &error, &traceback);
                Py_XDECREF(type);
                Py_XDECREF(traceback);
        }
        ret = PyObject_CallFunctionObjArgs(
                callback, result ? result : Py_None, error ? error : Py_None, NULL);
        if (!ret)
                PyErr_WriteUnraisable(callback);
        Py_XDECREF(ret);
        Py_XDECREF(result);
        Py_XDECREF(error);
        Py_DECREF(callback);
}

static PyObject *pages_of(
        struct ns_object *ns, const uint32_t *pages, uint32_t n, enum pages_state state)
{
        uint32_t *at = numbers_new(pages, n);

        if (at)
                return (PyObject *)pages_new(ns, at, n, state);
        numbers_give_back(ns, pages, n, state);
        return NULL;
}

/* ---- lookup ---------------------------------------------------------------------------------- */

static void on_lookup(struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n,
        uint64_t n_tokens, void *data)
{
        PyGILState_STATE gil = PyGILState_Ensure();
        struct started *s = data;
        PyObject *result = NULL;

        if (code == 0 || code == KVL_MISS) {
                result = pages_of(s->ns, pages, code ? 0 : n, PAGES_PINNED);
                if (result && code == 0)
                        ((struct pages_object *)result)->n_tokens = n_tokens;
        }
        finish_call(s, result, code, NULL);
        PyGILState_Release(gil);
}

static PyObject *ns_start_lookup(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature sig = {"start_lookup", {"callback", "keys", "request"}, 2, 3};
        _cleanup_keys_ struct keys keys = {0};
        struct started *s;
        uint64_t request;
        PyObject *a[3];
        bool is_run;
        int r = 0;

        if (!args_parse(&sig, args, n, names, a) || !arg_request(a[2], &request) ||
                !keys_get(a[1], &keys))
                return NULL;
        s = started_new(self, a[0]);
        is_run = s &&
                 CALL(ns, self,
                         r = kvl_lookup_start(self->ns, request, keys.bytes, keys.n, on_lookup, s));
        return started_return(s, is_run, r);
}

/* ---- lease ----------------------------------------------------------------------------------- */

static void on_lease(struct kvl_ns *ns, int code, const uint32_t *pages,
        const struct kvl_lease_result *lease, void *data)
{
        PyGILState_STATE gil = PyGILState_Ensure();
        struct started *s = data;
        PyObject *result = NULL;

        if (code == 0) {
                result = pages_of(s->ns, pages, lease->n_pages, PAGES_LEASED);
                if (result) {
                        ((struct pages_object *)result)->reason = lease->reason;
                        ((struct pages_object *)result)->waited_usec = lease->waited_usec;
                }
        }
        finish_call(s, result, code, lease ? reason_name(lease->reason) : NULL);
        PyGILState_Release(gil);
}

static PyObject *ns_start_lease(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature sig = {"start_lease",
                {"callback", "n_pages", "request", "min_pages", "max_wait", "contiguous"}, 2, 3};
        struct lease_args l = {0};
        struct started *s;
        PyObject *a[6];
        bool is_run;
        int r = 0;

        if (!args_parse(&sig, args, n, names, a) || !lease_args_get(a + 1, &l))
                return NULL;
        s = started_new(self, a[0]);
        is_run = s && CALL(ns, self,
                              r = kvl_lease_with_start(
                                      self->ns, l.request, l.n_pages, &l.options, on_lease, s));
        return started_return(s, is_run, r);
}

/* ---- publish --------------------------------------------------------------------------------- */

static void on_publish(struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n,
        uint64_t n_tokens, void *data)
{
        PyGILState_STATE gil = PyGILState_Ensure();
        struct started *s = data;
        struct pages_object *done = NULL;
        uint32_t *at = numbers_new(pages, n);

        if (!at)
                numbers_give_back(s->ns, pages, n, PAGES_PINNED);
        else
                done = publish_finish(s->ns, s->source, s->taken, s->n_taken, at, n);
        if (done && code != 0 && code != KVL_DUPLICATE)
                done = (struct pages_object *)raise_stopped(code, kvl_strerror(code), done);
        finish_call(s, (PyObject *)done, code, NULL);
        PyGILState_Release(gil);
}

static PyObject *ns_start_publish(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature sig = {"start_publish",
                {"pages", "keys", "parent", "last_tokens", "request", "session", "tag",
                        "window_passed", "token_ids", "lora_name", "cache_salt", "callback",
                        "stream"},
                2, 2};
        _cleanup_publish_ struct publish_args p = {0};
        kvl_stream stream = NULL;
        struct started *s;
        PyObject *a[13];
        int r;

        if (!args_parse(&sig, args, n, names, a) || !arg_stream(a[12], &stream))
                return NULL;
        if (!a[11])
                return PyErr_Format(PyExc_TypeError, "start_publish() needs 'callback'");
        if (!publish_args_get(self, a, &p))
                return NULL;
        s = started_new(self, a[11]);
        if (s) {
                s->n_taken = p.publish.n_pages;
                s->taken = numbers_new(p.publish.pages, s->n_taken);
        }
        if (!s || !s->taken || !ns_enter(self))
                return started_return(s, false, 0);
        if (p.source) {
                s->source = (struct pages_object *)Py_NewRef((PyObject *)p.source);
                ++s->source->n_busy;
                pages_drop_first(s->source, s->n_taken);
        }
        if (is_given(a[12]))
                UNLOCKED(r = kvl_publish_on_stream(self->ns, &p.publish, stream, on_publish, s));
        else
                UNLOCKED(r = kvl_publish_start(self->ns, &p.publish, on_publish, s));
        ns_leave(self);
        if (r && p.source && !pages_put_first(p.source, p.publish.pages, p.publish.n_pages))
                return started_return(s, false, 0);
        return started_return(s, true, r);
}

/* ---- fetch ----------------------------------------------------------------------------------- */

static void on_fetch(struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n,
        uint64_t n_tokens, void *data)
{
        PyGILState_STATE gil = PyGILState_Ensure();
        struct started *s = data;
        PyObject *result = NULL;

        s->source->is_moving = false;
        if (pages && n == s->source->n)
                memcpy(s->source->numbers, pages, n * sizeof(*pages));
        if (code == 0)
                result = Py_NewRef((PyObject *)s->source);
        finish_call(s, result, code, NULL);
        PyGILState_Release(gil);
}

static PyObject *ns_start_fetch(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature sig = {"start_fetch", {"callback", "pages"}, 2, 2};
        struct pages_object *source;
        struct started *s;
        PyObject *a[2];
        int r;

        if (!args_parse(&sig, args, n, names, a))
                return NULL;
        source = (struct pages_object *)a[1];
        if (Py_TYPE(a[1]) != pages_type || source->ns != self)
                return raise_code_as(-EINVAL, "pages must be Pages of the namespace", NULL);
        if (!pages_can_change(source, "their pages would move"))
                return NULL;
        s = started_new(self, a[0]);
        if (!s || !ns_enter(self))
                return started_return(s, false, 0);
        s->source = (struct pages_object *)Py_NewRef(a[1]);
        pages_begin_move(source);
        UNLOCKED(r = kvl_fetch_start(self->ns, source->numbers, source->n, on_fetch, s));
        ns_leave(self);
        return started_return(s, true, r);
}

/* ---- wait ------------------------------------------------------------------------------------ */

static void on_wait(struct kvl_ns *ns, int code, void *data)
{
        PyGILState_STATE gil = PyGILState_Ensure();

        finish_call(data, code == 0 || code == KVL_MISS ? PyBool_FromLong(code == 0) : NULL, code,
                NULL);
        PyGILState_Release(gil);
}

static PyObject *ns_start_wait(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature sig = {"start_wait", {"callback", "key", "timeout"}, 2, 3};
        _cleanup_keys_ struct keys key = {0};
        int r = 0, msec = 600000;
        struct started *s;
        PyObject *a[3];
        bool is_run;

        if (!args_parse(&sig, args, n, names, a) || !arg_msec(a[2], "timeout", 600000, &msec) ||
                !key_get(a[1], "one key is needed", &key))
                return NULL;
        s = started_new(self, a[0]);
        is_run = s && CALL(ns, self,
                              r = kvl_wait_start(self->ns, key.bytes, msec ? msec : 1, on_wait, s));
        return started_return(s, is_run, r);
}

/* ---- import ---------------------------------------------------------------------------------- */

static void on_import(struct kvl_ns *ns, int code, void *data)
{
        PyGILState_STATE gil = PyGILState_Ensure();
        bool is_known = code == 0 || code == KVL_MISS || code == KVL_TIMEOUT;

        finish_call(data, is_known ? PyBool_FromLong(code == 0) : NULL, code, NULL);
        PyGILState_Release(gil);
}

static PyObject *ns_start_import(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature sig = {
                "start_import", {"callback", "keys", "parent", "timeout"}, 2, 2};
        _cleanup_keys_ struct keys keys = {0}, parent = {0};
        int r = 0, msec = 600000;
        struct started *s;
        PyObject *a[4];
        bool is_run;

        if (!args_parse(&sig, args, n, names, a) || !arg_msec(a[3], "timeout", 600000, &msec) ||
                !keys_get(a[1], &keys) ||
                (is_given(a[2]) && !key_get(a[2], "parent must be one key", &parent)))
                return NULL;
        s = started_new(self, a[0]);
        is_run = s && CALL(ns, self,
                              r = kvl_import_start(self->ns, parent.n > 0 ? parent.bytes : NULL,
                                      keys.bytes, keys.n, msec ? msec : 1, on_import, s));
        if (!is_run || r < 0)
                return started_return(s, is_run, r);
        if (r == KVL_MISS)
                started_free(s);
        return PyBool_FromLong(r == 0);
}

PyMethodDef ns_start_methods[] = {
        METHOD("start_lookup", ns_start_lookup,
                "start_lookup($self, callback, keys, request=0)\n--\n\n"
                "lookup() without waiting, of 1536 keys at most: callback(Pages, None) or "
                "callback(None, error) from\nConnection.dispatch(). Call that once after it."),
        METHOD("start_lease", ns_start_lease,
                "start_lease($self, callback, n_pages, request=0, *, min_pages=0, max_wait=None, contiguous=False)\n--\n\n"
                "lease() without waiting."),
        METHOD("start_publish", ns_start_publish,
                "start_publish($self, pages, keys, *, parent=None, last_tokens=None, request=0, "
                "session=None, tag=0, window_passed=False, token_ids=None, lora_name=None, cache_salt=None, callback, stream=None)\n--\n\n"
                "publish() without waiting, of 1024 pages at most; stream: after everything that was put on it before."),
        METHOD("start_fetch", ns_start_fetch,
                "start_fetch($self, callback, pages)\n--\n\nPages.fetch() without waiting."),
        METHOD("start_wait", ns_start_wait,
                "start_wait($self, callback, key, timeout=600)\n--\n\nwait() without waiting."),
        METHOD("start_import", ns_start_import,
                "start_import($self, callback, keys, *, parent=None, timeout=600)\n"
                "--\n\n"
                "Has kvleased load pages of a text from other hosts, from the first of these keys on.\n"
                "That key isn't cached; parent, the key before it, is. Returns False where the tenant has\n"
                "no other hosts. callback(True, None): look them up; (False, None): there is nothing, or\n"
                "not in time."),
        {NULL, NULL, 0, NULL},
};
