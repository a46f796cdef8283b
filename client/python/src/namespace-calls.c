/* The calls of a namespace that take keys or page numbers. */
#include "client/python/src/module.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- lookups --------------------------------------------------------------------------------- */

/* Makes Pages of a lookup's result; 0 pages: a miss. */
static PyObject *pages_found(
        struct ns_object *self, int r, uint32_t *at, uint32_t n, uint64_t n_tokens)
{
        struct pages_object *pages;

        if (r != 0 && r != KVL_MISS) {
                free(at);
                return raise_code(r);
        }
        if (r == KVL_MISS) {
                free(at);
                at = NULL;
                n = 0;
                n_tokens = 0;
        }
        pages = pages_new(self, at, n, PAGES_PINNED);
        if (pages)
                pages->n_tokens = n_tokens;
        return (PyObject *)pages;
}

typedef int (*lookup_fn)(struct kvl_ns *ns, uint64_t request, const uint8_t *keys, uint32_t n_keys,
        uint32_t *ret_pages, uint32_t *ret_n_pages, uint64_t *ret_n_tokens);

static PyObject *call_lookup(struct ns_object *self, lookup_fn fn, const struct signature *s,
        PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        _cleanup_keys_ struct keys keys = {0};
        uint64_t request, n_tokens = 0;
        uint32_t *at, n_pages = 0;
        PyObject *a[2];
        int r;

        if (!args_parse(s, args, n, names, a) || !arg_request(a[1], &request) ||
                !keys_get(a[0], &keys) || !(at = numbers_new(NULL, keys.n)))
                return NULL;
        if (CALL(ns, self,
                    r = keys.n == 0 ? KVL_MISS
                                    : fn(self->ns, request, keys.bytes, keys.n, at, &n_pages,
                                              &n_tokens)))
                return pages_found(self, r, at, n_pages, n_tokens);
        free(at);
        return NULL;
}

static PyObject *ns_lookup(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"lookup", {"keys", "request"}, 1, 2};

        return call_lookup(self, kvl_lookup, &s, args, n, names);
}

static PyObject *ns_find(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"find", {"keys", "request"}, 1, 2};

        return call_lookup(self, kvl_find, &s, args, n, names);
}

static PyObject *ns_lookup_wait(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"lookup_wait", {"keys", "timeout", "request"}, 2, 2};
        _cleanup_keys_ struct keys keys = {0};
        uint64_t request, n_tokens = 0;
        uint32_t *at, n_pages = 0;
        int r, msec = 0, is_pending = 0;
        PyObject *a[3], *ret;

        if (!args_parse(&s, args, n, names, a) || !arg_msec(a[1], "timeout", 600000, &msec) ||
                !arg_request(a[2], &request) || !keys_get(a[0], &keys) ||
                !(at = numbers_new(NULL, keys.n)))
                return NULL;
        if (!CALL(ns, self,
                    r = kvl_lookup_wait(self->ns, request, keys.bytes, keys.n, msec, at, &n_pages,
                            &n_tokens, &is_pending))) {
                free(at);
                return NULL;
        }
        ret = pages_found(self, r, at, n_pages, n_tokens);
        if (ret)
                ((struct pages_object *)ret)->is_pending = is_pending;
        return ret;
}

/* Default time for asking other hosts: as long as a router may wait. Not tuned. */
#define HOSTS_MSEC 1000

static PyObject *ns_probe(struct ns_object *self, PyObject *object)
{
        _cleanup_keys_ struct keys keys = {0};
        _cleanup_free_ uint8_t *tiers = NULL;
        uint32_t n = 0;
        int r;

        if (!keys_get(object, &keys))
                return NULL;
        tiers = malloc((size_t)keys.n + 1);
        if (!tiers)
                return PyErr_NoMemory();
        if (!CALL(ns, self,
                    r = keys.n == 0 ? KVL_MISS
                                    : kvl_probe(self->ns, keys.bytes, keys.n, tiers, &n)))
                return NULL;
        return r == 0 || r == KVL_MISS
                       ? PyBytes_FromStringAndSize((const char *)tiers, r ? 0 : (Py_ssize_t)n)
                       : raise_code(r);
}

static PyObject *ns_probe_hosts(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"probe_hosts", {"keys", "timeout"}, 1, 2};
        int r, msec = HOSTS_MSEC, would_load = 0;
        _cleanup_keys_ struct keys keys = {0};
        uint32_t n_here = 0, n_keys = 0;
        PyObject *a[2];

        if (!args_parse(&s, args, n, names, a) || !arg_msec(a[1], "timeout", 600000, &msec) ||
                !keys_get(a[0], &keys) ||
                !CALL(ns, self,
                        r = keys.n == 0 ? 0
                                        : kvl_probe_hosts(self->ns, keys.bytes, keys.n,
                                                  msec ? msec : 1, &n_here, &n_keys, &would_load)))
                return NULL;
        return r ? raise_code(r)
                 : types_new("HostsProbe", Py_BuildValue("(IIN)", (unsigned)n_here,
                                                   (unsigned)n_keys, PyBool_FromLong(would_load)));
}

/* Returns True: the daemon was told; False: it had no time for hints. */
static PyObject *ns_expect(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"expect", {"keys", "ttl"}, 1, 2};
        _cleanup_keys_ struct keys keys = {0};
        PyObject *a[2];
        int r, msec = 0;

        if (!args_parse(&s, args, n, names, a) || !arg_msec(a[1], "ttl", 0, &msec) ||
                !keys_get(a[0], &keys) ||
                !CALL(ns, self,
                        r = keys.n == 0 ? 0
                                        : kvl_expect(self->ns, keys.bytes, keys.n, (uint32_t)msec)))
                return NULL;
        return r == 0 || r == -EAGAIN ? PyBool_FromLong(r == 0) : raise_code(r);
}

/* Longest time that can be noted (kvlease.h). */
#define PREFILL_MAX_SECONDS 3600.0

static PyObject *ns_note_prefill(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"note_prefill", {"n_tokens", "seconds"}, 2, 2};
        PyObject *a[2];
        uint32_t n_tokens;
        double seconds;
        int r;

        if (!args_parse(&s, args, n, names, a) || !arg_u32(a[0], "n_tokens", &n_tokens))
                return NULL;
        seconds = PyFloat_AsDouble(a[1]);
        if (PyErr_Occurred())
                return NULL;
        if (!(seconds * 1e9 >= 1 && seconds <= PREFILL_MAX_SECONDS)) {
                PyErr_SetString(PyExc_ValueError, "seconds must be from a nanosecond to an hour");
                return NULL;
        }
        if (!CALL(ns, self, r = kvl_note_prefill(self->ns, n_tokens, (uint64_t)(seconds * 1e9))))
                return NULL;
        return r == 0 || r == -EAGAIN ? PyBool_FromLong(r == 0) : raise_code(r);
}

static PyObject *ns_leasable_pages(struct ns_object *self, PyObject *unused)
{
        int r;

        if (!CALL(ns, self, r = kvl_leasable_pages(self->ns)))
                return NULL;
        return r < 0 ? raise_code(r) : PyLong_FromLong(r);
}

static PyObject *ns_check_room(struct ns_object *self, PyObject *argument)
{
        uint32_t n_pages = 0;
        int r;

        if (!arg_u32(argument, "n_pages", &n_pages) ||
                !CALL(ns, self, r = kvl_check_room(self->ns, n_pages)))
                return NULL;
        return none_or_raise(r);
}

/* ---- lookups in several namespaces ----------------------------------------------------------- */

#define MAX_SET 64

static bool enter_all(struct ns_object **all, uint32_t n)
{
        for (uint32_t i = 0; i < n; ++i) {
                if (ns_enter(all[i]))
                        continue;
                while (i > 0)
                        ns_leave(all[--i]);
                return false;
        }
        return true;
}

static PyObject *found_in_set(struct ns_object **all, uint32_t n, const uint32_t *at,
        uint32_t n_keys, uint32_t n_pages, uint64_t n_tokens)
{
        PyObject *list = PyList_New(0);

        for (uint32_t i = 0; i < n; ++i) {
                const uint32_t *from = at + (size_t)i * n_keys;
                uint32_t *own = list ? numbers_new(from, n_pages) : NULL;
                _cleanup_ref_ PyObject *pages = NULL;

                if (own)
                        pages = pages_found(all[i], n_pages ? 0 : KVL_MISS, own, n_pages, n_tokens);
                else
                        numbers_give_back(all[i], from, n_pages, PAGES_PINNED);
                if (list && (!pages || PyList_Append(list, pages) < 0))
                        Py_CLEAR(list);
        }
        return list;
}

static PyObject *lookup_all(
        struct ns_object **all, uint32_t n, uint64_t request, const struct keys *keys)
{
        _cleanup_free_ uint32_t *at = malloc(((size_t)n * keys->n + 1) * sizeof(*at));
        struct kvl_ns *nss[MAX_SET];
        uint32_t n_pages = 0;
        uint64_t n_tokens = 0;
        int r;

        if (!at)
                return PyErr_NoMemory();
        if (!enter_all(all, n))
                return NULL;
        for (uint32_t i = 0; i < n; ++i)
                nss[i] = all[i]->ns;
        UNLOCKED(
                r = kvl_lookup_set(nss, n, request, keys->bytes, keys->n, at, &n_pages, &n_tokens));
        for (uint32_t i = 0; i < n; ++i)
                ns_leave(all[i]);
        if (r != 0 && r != KVL_MISS)
                return raise_code(r);
        return found_in_set(all, n, at, keys->n, r ? 0 : n_pages, n_tokens);
}

PyObject *namespace_lookup_set(
        PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"lookup_set", {"namespaces", "keys", "request"}, 2, 3};
        _cleanup_keys_ struct keys keys = {0};
        _cleanup_ref_ PyObject *list = NULL;
        struct ns_object *all[MAX_SET];
        uint64_t request;
        Py_ssize_t count;
        PyObject *a[3];

        if (!args_parse(&s, args, n, names, a) || !arg_request(a[2], &request) ||
                !(list = PySequence_List(a[0])))
                return NULL;
        count = PyList_Size(list);
        for (Py_ssize_t i = 0; i < count && i < MAX_SET; ++i) {
                all[i] = (struct ns_object *)PyList_GetItem(list, i);
                if (Py_TYPE((PyObject *)all[i]) != ns_type)
                        count = 0;
        }
        if (count < 1 || count > MAX_SET) {
                PyErr_SetString(PyExc_TypeError, "namespaces must be 1 to 64 Namespaces");
                return NULL;
        }
        return keys_get(a[1], &keys) ? lookup_all(all, (uint32_t)count, request, &keys) : NULL;
}

/* ---- leases and publishes -------------------------------------------------------------------- */

bool lease_args_get(PyObject **a, struct lease_args *ret)
{
        int msec = -1;

        ret->options.size = sizeof(ret->options);
        if (!arg_u32(a[0], "n_pages", &ret->n_pages) || !arg_request(a[1], &ret->request) ||
                !arg_u32(a[2], "min_pages", &ret->options.min_pages) ||
                !arg_msec(a[3], "max_wait", -1, &msec) ||
                !arg_contiguous(a[4], &ret->options.flags))
                return false;
        /* In C, 0 is the tenant's limit, and < 0 no wait. */
        ret->options.max_wait_msec = msec < 0 ? 0 : msec == 0 ? -1 : msec;
        return true;
}

static PyObject *ns_lease(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {
                "lease", {"n_pages", "request", "min_pages", "max_wait", "contiguous"}, 1, 2};
        struct kvl_lease_result result = {.size = sizeof(result)};
        struct lease_args l = {0};
        struct pages_object *pages;
        PyObject *a[5];
        uint32_t *at;
        int r;

        if (!args_parse(&s, args, n, names, a) || !lease_args_get(a, &l))
                return NULL;
        if (l.n_pages < 1 || l.n_pages > KVL_MAX_LEASE_PAGES)
                return raise_code_as(-EINVAL, "a lease is of 1 to 4096 pages", NULL);
        at = numbers_new(NULL, l.n_pages);
        if (!at || !CALL(ns, self,
                           r = kvl_lease_with(
                                   self->ns, l.request, l.n_pages, &l.options, at, &result))) {
                free(at);
                return NULL;
        }
        if (r) {
                free(at);
                return raise_code_as(r, kvl_last_error(), reason_name(result.reason));
        }
        pages = pages_new(self, at, result.n_pages, PAGES_LEASED);
        if (pages) {
                pages->reason = result.reason;
                pages->waited_usec = result.waited_usec;
        }
        return (PyObject *)pages;
}

PyObject *raise_stopped(int code, const char *sentence, struct pages_object *done)
{
        _cleanup_ref_ PyObject *error = error_new(code, sentence, NULL), *pages = (PyObject *)done;

        if (error && PyObject_SetAttrString(error, "published", pages) == 0)
                PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        return NULL;
}

static PyObject *ns_publish(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"publish",
                {"pages", "keys", "parent", "last_tokens", "request", "session", "tag",
                        "window_passed", "token_ids", "lora_name", "cache_salt"},
                2, 2};
        _cleanup_publish_ struct publish_args p = {0};
        struct pages_object *done;
        uint32_t *ret_pages, n_done = 0;
        const char *sentence;
        PyObject *a[11];
        int r;

        if (!args_parse(&s, args, n, names, a) || !publish_args_get(self, a, &p) ||
                !(ret_pages = numbers_new(NULL, p.publish.n_pages)))
                return NULL;
        if (!ns_enter(self)) {
                free(ret_pages);
                return NULL;
        }
        if (p.source) {
                ++p.source->n_busy;
                pages_drop_first(p.source, p.publish.n_pages);
        }
        UNLOCKED(r = kvl_publish(self->ns, &p.publish, ret_pages, &n_done));
        ns_leave(self);
        if (r == -EINVAL && n_done > p.publish.n_pages)
                n_done = 0;
        if (p.source)
                --p.source->n_busy;
        done = publish_finish(self, p.source, p.numbers.at, p.publish.n_pages, ret_pages, n_done);
        if (!done || r == 0 || r == KVL_DUPLICATE)
                return (PyObject *)done;
        sentence = kvl_last_error();
        return raise_stopped(r, sentence[0] ? sentence : kvl_strerror(r), done);
}

/* ---- by numbers ------------------------------------------------------------------------------ */

typedef int (*numbers_fn)(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages);

static PyObject *by_numbers(struct ns_object *self, PyObject *object, numbers_fn fn)
{
        _cleanup_numbers_ struct numbers numbers = {0};
        int r;

        if (Py_TYPE(object) == pages_type) {
                PyErr_SetString(PyExc_TypeError,
                        "this takes numbers; Pages objects have close(), pin() and detach()");
                return NULL;
        }
        if (!numbers_get(object, &numbers) ||
                !CALL(ns, self, r = numbers.n ? fn(self->ns, numbers.at, numbers.n) : 0))
                return NULL;
        return none_or_raise(r);
}

static PyObject *ns_release(struct ns_object *self, PyObject *object)
{
        return by_numbers(self, object, kvl_release);
}

static PyObject *ns_free(struct ns_object *self, PyObject *object)
{
        return by_numbers(self, object, kvl_free);
}

static PyObject *ns_pin(struct ns_object *self, PyObject *object)
{
        return by_numbers(self, object, kvl_pin);
}

static PyObject *ns_report(struct ns_object *self, PyObject *object)
{
        _cleanup_numbers_ struct numbers numbers = {0};
        uint64_t n_freed = 0;
        int r;

        if (!numbers_get_of(object, self, &numbers) ||
                !CALL(ns, self, r = kvl_report(self->ns, numbers.at, numbers.n, &n_freed)))
                return NULL;
        return r ? raise_code(r) : PyLong_FromUnsignedLongLong(n_freed);
}

static PyObject *ns_page_tier(struct ns_object *self, PyObject *object)
{
        uint32_t page = 0;
        int r;

        if (!arg_u32(object, "page", &page) || !CALL(ns, self, r = kvl_page_tier(self->ns, page)))
                return NULL;
        return r < 0 ? raise_code(r) : types_new("Tier", Py_BuildValue("(i)", r));
}

/* ---- invalidation, single flight, explain ---------------------------------------------------- */

static PyObject *ns_invalidate(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"invalidate", {"key", "tag", "mismatch"}, 0, 1};
        _cleanup_keys_ struct keys key = {0};
        uint64_t n_pages = 0, tag = 0;
        bool mismatch = false;
        PyObject *a[3];
        int r;

        if (!args_parse(&s, args, n, names, a) || !arg_bool(a[2], &mismatch))
                return NULL;
        if (is_given(a[0]) + (a[1] != NULL) + mismatch > 1) {
                PyErr_SetString(
                        PyExc_TypeError, "invalidate() takes a key, a tag, or a mismatch alone");
                return NULL;
        }
        if (!arg_u64(a[1], "tag", &tag) ||
                (is_given(a[0]) && !key_get(a[0], "one key is needed", &key)) || !ns_enter(self))
                return NULL;
        if (mismatch)
                UNLOCKED(r = kvl_invalidate_mismatch(self->ns, &n_pages));
        else if (a[1])
                UNLOCKED(r = kvl_invalidate_tag(self->ns, tag, &n_pages));
        else
                UNLOCKED(r = kvl_invalidate(self->ns, key.n ? key.bytes : NULL, &n_pages));
        ns_leave(self);
        return r ? raise_code(r) : PyLong_FromUnsignedLongLong(n_pages);
}

static PyObject *ns_announce(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"announce", {"pages", "keys"}, 2, 2};
        _cleanup_numbers_ struct numbers numbers = {0};
        _cleanup_keys_ struct keys keys = {0};
        uint32_t n_done = 0;
        PyObject *a[2];
        int r;

        if (!args_parse(&s, args, n, names, a) || !numbers_get_of(a[0], self, &numbers) ||
                !keys_get(a[1], &keys))
                return NULL;
        if (keys.n > numbers.n)
                return PyErr_Format(PyExc_ValueError, "%u keys, but %u pages", keys.n, numbers.n);
        if (!CALL(ns, self, r = kvl_announce(self->ns, numbers.at, keys.bytes, keys.n, &n_done)))
                return NULL;
        if (r && r != KVL_PENDING && r != KVL_DUPLICATE)
                return raise_code(r);
        return types_new("Announcement", Py_BuildValue("(Iz)", n_done,
                                                 r == KVL_PENDING     ? "pending"
                                                 : r == KVL_DUPLICATE ? "cached"
                                                                      : NULL));
}

static PyObject *ns_wait(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"wait", {"key", "timeout"}, 1, 2};
        _cleanup_keys_ struct keys key = {0};
        PyObject *a[2];
        int r, msec = 600000;

        if (!args_parse(&s, args, n, names, a) || !arg_msec(a[1], "timeout", 600000, &msec) ||
                !key_get(a[0], "one key is needed", &key) ||
                !CALL(ns, self, r = kvl_wait(self->ns, key.bytes, msec ? msec : 1)))
                return NULL;
        return r == 0 || r == KVL_MISS ? PyBool_FromLong(r == 0) : raise_code(r);
}

#define MAX_EXPLAIN 256

static PyObject *explanation(const struct kvl_explanation *e)
{
        return types_new(
                "Explanation", Py_BuildValue("(iNiKKKN)", (int)e->state,
                                       e->page == KVL_PAGE_NONE ? Py_NewRef(Py_None)
                                                                : PyLong_FromUnsignedLong(e->page),
                                       (int)e->tier, (unsigned long long)e->age_sec,
                                       (unsigned long long)e->unused_sec,
                                       (unsigned long long)e->client_id, text_new(e->by)));
}

static PyObject *ns_explain(struct ns_object *self, PyObject *object)
{
        _cleanup_free_ struct kvl_explanation *all = NULL;
        _cleanup_keys_ struct keys keys = {0};
        PyObject *list;
        int r;

        if (!keys_get(object, &keys))
                return NULL;
        if (keys.n > MAX_EXPLAIN)
                return raise_code_as(-EINVAL, "at most 256 keys can be explained at once", NULL);
        all = calloc(keys.n + 1, sizeof(*all));
        if (!all)
                return PyErr_NoMemory();
        if (!CALL(ns, self, r = keys.n ? kvl_explain(self->ns, keys.bytes, keys.n, all) : 0))
                return NULL;
        list = r ? raise_code(r) : PyList_New(0);
        for (uint32_t i = 0; list && i < keys.n; ++i) {
                _cleanup_ref_ PyObject *one = explanation(&all[i]);

                if (!one || PyList_Append(list, one) < 0)
                        Py_CLEAR(list);
        }
        return list;
}

PyMethodDef ns_call_methods[] = {
        METHOD("lookup", ns_lookup,
                "lookup($self, keys, request=0)\n"
                "--\n\n"
                "Finds the longest run of cached pages from the first key on, pinned and mapped: Pages,\n"
                "empty if the first isn't cached. Pages in lower tiers are moved to the device.\n\n"
                "keys: n * 32 bytes in one buffer, or a sequence of n buffers, any number, from the\n"
                "text's first page on. request: a Request or its id. Raises Stale, Quota (pins),\n"
                "DeviceFailure, Timeout, Disconnected."),
        METHOD("find", ns_find,
                "find($self, keys, request=0)\n"
                "--\n\n"
                "Does lookup(), but each page stays in its tier."),
        METHOD("lookup_wait", ns_lookup_wait,
                "lookup_wait($self, keys, timeout, *, request=0)\n"
                "--\n\n"
                "Does lookup(), but waits for keys that another client is computing, timeout seconds in\n"
                "all (None: 600). Pages.is_pending: the key after the last found one is still being\n"
                "computed."),
        METHOD("expect", ns_expect,
                "expect($self, keys, ttl=None)\n"
                "--\n\n"
                "Announces that a request will look up this text soon, for example one in an engine's\n"
                "queue. Its cached pages are kept for ttl seconds (None: 30; at most 600), or until a\n"
                "lookup finds them, and move to the device. A hint, which waits for nothing. True:\n"
                "kvleased was told; False: it has no time for hints."),
        METHOD("note_prefill", ns_note_prefill,
                "note_prefill($self, n_tokens, seconds)\n"
                "--\n\n"
                "Reports the time in which this engine computed n_tokens tokens of prompts, of all\n"
                "requests of one or more steps together. start_import() loads pages that arrive sooner.\n"
                "Ten times a second is plenty. A hint, which waits for nothing. True: kvleased was told,\n"
                "or doesn't want to know; False: it has no time for hints."),
        {"leasable_pages", (PyCFunction)ns_leasable_pages, METH_NOARGS,
                "leasable_pages($self)\n"
                "--\n\n"
                "Returns how many pages leases would get now without waiting, and without memory of other\n"
                "tenants. It is a hint and no promise. With shared memory it sends no message."},
        {"check_room", (PyCFunction)ns_check_room, METH_O,
                "check_room($self, n_pages, /)\n"
                "--\n\n"
                "Raises Quota or Full if so many pages can never be held together. The sentence names the\n"
                "limit and the remedy."},
        {"probe", (PyCFunction)ns_probe, METH_O,
                "probe($self, keys, /)\n--\n\n"
                "How many leading keys are cached, and where: bytes of that length, each a Tier. Pins nothing."},
        METHOD("probe_hosts", ns_probe_hosts,
                "probe_hosts($self, keys, timeout=1)\n"
                "--\n\n"
                "How many leading keys are cached on this host, and how many on this host or others: a\n"
                "HostsProbe. Asks others for timeout seconds at most (None: 600). The answer has the\n"
                "pages that are known by then, also if no host can be asked. Pins and loads nothing."),
        METHOD("lease", ns_lease,
                "lease($self, n_pages, request=0, *, min_pages=0, max_wait=None, contiguous=False)\n"
                "--\n\n"
                "Leases 1..4096 pages for writing, all or none, mapped: leased Pages. min_pages: fewest\n"
                "of use, where the tenant is degraded when it is full. max_wait: seconds to wait for\n"
                "memory, at most the tenant's max_wait (when_full = queue); None: as long as that.\n"
                "contiguous: pages with consecutive numbers, or Full; 'prefer': in few runs of these.\n"
                "Raises Full, Quota, Draining, Stale, Timeout, with .reason."),
        METHOD("publish", ns_publish,
                "publish($self, pages, keys, *, parent=None, last_tokens=None, request=0, "
                "session=None, tag=0, window_passed=False, token_ids=None, lora_name=None, cache_salt=None)\n"
                "--\n\n"
                "Publishes the first len(keys) of leased pages: immutable and findable from now on.\n\n"
                "parent: key of the page before the first; None: it begins the text. last_tokens: in the\n"
                "last page; None: it is full. The result has the pages that carry the keys, pinned.\n"
                "`pages` keeps the pages that are still leased: the rest, and those whose key another\n"
                "client published first. NoParent and Stale stop it; their .published has the pages\n"
                "before that. window_passed: they are of layers with a window, and the text goes on\n"
                "beyond it: kvleased evicts them before others. BufferError while `pages` has views. A\n"
                "page whose key another client published first may be in a lower tier (Pages.tier()):\n"
                "fetch() the result before it is used on the device. token_ids: of all these pages, for\n"
                "routers (docs/operate/routing.md). lora_name, cache_salt: of a text that begins here, to tell\n"
                "it from others of the same tokens. With more than 78 bytes token_ids aren't told."),
        {"release", (PyCFunction)ns_release, METH_O,
                "release($self, pages, /)\n--\n\nDrops one pin of each page, by numbers."},
        {"free", (PyCFunction)ns_free, METH_O,
                "free($self, pages, /)\n--\n\nGives leased, unpublished pages back, by numbers."},
        {"pin", (PyCFunction)ns_pin, METH_O,
                "pin($self, pages, /)\n--\n\nOne pin more of each page that is pinned, by numbers."},
        {"report", (PyCFunction)ns_report, METH_O,
                "report($self, pages, /)\n--\n\n"
                "Which leased pages this connection still holds; the group's others are freed: how "
                "many. Busy where\nother members of the group have the namespace open, too."},
        {"page_tier", (PyCFunction)ns_page_tier, METH_O,
                "page_tier($self, page, /)\n--\n\nTier that a page's number belongs to."},
        METHOD("invalidate", ns_invalidate,
                "invalidate($self, key=None, *, tag=..., mismatch=False)\n"
                "--\n\n"
                "Makes a page and all after it unfindable, or those published with a tag (not 0), or,\n"
                "without either, the whole namespace. mismatch: it is dropped because a page held other\n"
                "numbers than the caller computed; kvleased counts it (kvlease_verify_failures_total).\n"
                "How many pages were dropped. Pinned pages stay readable. Raises Invalid, Busy (too many\n"
                "are under way)."),
        METHOD("announce", ns_announce,
                "announce($self, pages, keys)\n--\n\n"
                "Says that these leased pages (1024 at most) are about to get these keys, one "
                "each, so "
                "that others\nwait() for them: an Announcement. It ends with the pages' publish or "
                "close. Raises Invalid (a page isn't\nleased, or announced already), Busy (no room: go on without), Stale."),
        METHOD("wait", ns_wait,
                "wait($self, key, timeout=600)\n"
                "--\n\n"
                "Waits for whoever announced the key. True: it is cached, look it up; False: no client\n"
                "computes it. timeout: seconds up to 600; None: 600. Raises Timeout, Stale, Busy."),
        {"explain", (PyCFunction)ns_explain, METH_O,
                "explain($self, keys, /)\n--\n\nWhy these keys (256 at most) would hit or miss, "
                "for people: a list of Explanation,\none for each. Pins nothing. Raises Invalid, Stale."},
        {NULL, NULL, 0, NULL},
};
