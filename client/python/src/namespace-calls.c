/* The calls of a namespace that take keys or page numbers. */
#include "client/python/src/module.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- lookups --------------------------------------------------------------------------------- */

static uint32_t *numbers_alloc(uint32_t n)
{
        uint32_t *at = malloc((n ? n : 1) * sizeof(*at));

        if (!at)
                PyErr_NoMemory();
        return at;
}

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
        uint64_t request, n_tokens = 0;
        uint32_t *at, n_pages = 0;
        struct keys keys;
        PyObject *a[2];
        int r;

        if (!args_parse(s, args, n, names, a) || !arg_request(a[1], &request) ||
                !keys_get(a[0], &keys))
                return NULL;
        at = numbers_alloc(keys.n);
        if (!at || !ns_enter(self)) {
                free(at);
                keys_free(&keys);
                return NULL;
        }
        if (keys.n == 0)
                r = KVL_MISS;
        else
                UNLOCKED(r = fn(self->ns, request, keys.bytes, keys.n, at, &n_pages, &n_tokens));
        ns_leave(self);
        keys_free(&keys);
        return pages_found(self, r, at, n_pages, n_tokens);
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
        uint64_t request, n_tokens = 0;
        uint32_t *at, n_pages = 0;
        int r, msec = 0, is_pending = 0;
        struct keys keys;
        PyObject *a[3], *ret;

        if (!args_parse(&s, args, n, names, a) || !arg_msec(a[1], "timeout", 600000, &msec) ||
                !arg_request(a[2], &request) || !keys_get(a[0], &keys))
                return NULL;
        at = numbers_alloc(keys.n);
        if (!at || !ns_enter(self)) {
                free(at);
                keys_free(&keys);
                return NULL;
        }
        UNLOCKED(r = kvl_lookup_wait(self->ns, request, keys.bytes, keys.n, msec, at, &n_pages,
                         &n_tokens, &is_pending));
        ns_leave(self);
        keys_free(&keys);
        ret = pages_found(self, r, at, n_pages, n_tokens);
        if (ret)
                ((struct pages_object *)ret)->is_pending = is_pending;
        return ret;
}

/* Default time for asking other hosts: as long as a router may wait. Not tuned. */
#define HOSTS_MSEC 1000

static PyObject *ns_probe(struct ns_object *self, PyObject *object)
{
        struct keys keys;
        uint32_t n = 0;
        uint8_t *tiers;
        PyObject *ret;
        int r;

        if (!keys_get(object, &keys))
                return NULL;
        tiers = malloc(keys.n ? keys.n : 1);
        if (!tiers || !ns_enter(self)) {
                if (!tiers)
                        PyErr_NoMemory();
                free(tiers);
                keys_free(&keys);
                return NULL;
        }
        if (keys.n == 0)
                r = KVL_MISS;
        else
                UNLOCKED(r = kvl_probe(self->ns, keys.bytes, keys.n, tiers, &n));
        ns_leave(self);
        keys_free(&keys);
        ret = r == 0 || r == KVL_MISS
                      ? PyBytes_FromStringAndSize((const char *)tiers, r ? 0 : (Py_ssize_t)n)
                      : raise_code(r);
        free(tiers);
        return ret;
}

static PyObject *ns_probe_hosts(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"probe_hosts", {"keys", "timeout"}, 1, 2};
        int r = 0, msec = HOSTS_MSEC, would_load = 0;
        uint32_t n_here = 0, n_keys = 0;
        struct keys keys;
        PyObject *a[2];

        if (!args_parse(&s, args, n, names, a) || !arg_msec(a[1], "timeout", 600000, &msec) ||
                !keys_get(a[0], &keys))
                return NULL;
        if (!ns_enter(self)) {
                keys_free(&keys);
                return NULL;
        }
        if (keys.n > 0)
                UNLOCKED(r = kvl_probe_hosts(self->ns, keys.bytes, keys.n, msec ? msec : 1, &n_here,
                                 &n_keys, &would_load));
        ns_leave(self);
        keys_free(&keys);
        return r ? raise_code(r)
                 : types_new("HostsProbe", Py_BuildValue("(IIN)", (unsigned)n_here,
                                                   (unsigned)n_keys, PyBool_FromLong(would_load)));
}

/* Returns True: the daemon was told; False: it had no time for hints. */
static PyObject *ns_expect(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"expect", {"keys", "ttl"}, 1, 2};
        struct keys keys;
        PyObject *a[2];
        int r, msec = 0;

        if (!args_parse(&s, args, n, names, a) || !arg_msec(a[1], "ttl", 0, &msec) ||
                !keys_get(a[0], &keys))
                return NULL;
        if (!ns_enter(self)) {
                keys_free(&keys);
                return NULL;
        }
        if (keys.n == 0)
                r = 0;
        else
                UNLOCKED(r = kvl_expect(self->ns, keys.bytes, keys.n, (uint32_t)msec));
        ns_leave(self);
        keys_free(&keys);
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
        if (!ns_enter(self))
                return NULL;
        UNLOCKED(r = kvl_note_prefill(self->ns, n_tokens, (uint64_t)(seconds * 1e9)));
        ns_leave(self);
        return r == 0 || r == -EAGAIN ? PyBool_FromLong(r == 0) : raise_code(r);
}

static PyObject *ns_leasable_pages(struct ns_object *self, PyObject *unused)
{
        int r;

        (void)unused;
        if (!ns_enter(self))
                return NULL;
        UNLOCKED(r = kvl_leasable_pages(self->ns));
        ns_leave(self);
        return r < 0 ? raise_code(r) : PyLong_FromLong(r);
}

static PyObject *ns_check_room(struct ns_object *self, PyObject *argument)
{
        uint32_t n_pages = 0;
        int r;

        if (!arg_u32(argument, "n_pages", &n_pages) || !ns_enter(self))
                return NULL;
        UNLOCKED(r = kvl_check_room(self->ns, n_pages));
        ns_leave(self);
        if (r != 0)
                return raise_code(r);
        Py_RETURN_NONE;
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
                uint32_t *own = list ? numbers_alloc(n_pages) : NULL;
                PyObject *pages = NULL;

                if (own) {
                        memcpy(own, from, n_pages * sizeof(*own));
                        pages = pages_found(all[i], n_pages ? 0 : KVL_MISS, own, n_pages, n_tokens);
                } else {
                        numbers_give_back(all[i], from, n_pages, PAGES_PINNED);
                }
                if (!list)
                        continue;
                if (!pages || PyList_Append(list, pages) < 0)
                        Py_CLEAR(list);
                Py_XDECREF(pages);
        }
        return list;
}

static PyObject *lookup_all(
        struct ns_object **all, uint32_t n, uint64_t request, const struct keys *keys)
{
        struct kvl_ns *nss[MAX_SET];
        uint32_t *at, n_pages = 0;
        uint64_t n_tokens = 0;
        PyObject *ret;
        int r;

        at = malloc(((size_t)n * keys->n + 1) * sizeof(*at));
        if (!at)
                return PyErr_NoMemory();
        if (!enter_all(all, n)) {
                free(at);
                return NULL;
        }
        for (uint32_t i = 0; i < n; ++i)
                nss[i] = all[i]->ns;
        UNLOCKED(
                r = kvl_lookup_set(nss, n, request, keys->bytes, keys->n, at, &n_pages, &n_tokens));
        for (uint32_t i = 0; i < n; ++i)
                ns_leave(all[i]);
        if (r != 0 && r != KVL_MISS)
                ret = raise_code(r);
        else
                ret = found_in_set(all, n, at, keys->n, r ? 0 : n_pages, n_tokens);
        free(at);
        return ret;
}

PyObject *namespace_lookup_set(
        PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"lookup_set", {"namespaces", "keys", "request"}, 2, 3};
        struct ns_object *all[MAX_SET];
        PyObject *a[3], *list, *ret = NULL;
        struct keys keys;
        uint64_t request;
        Py_ssize_t count;

        (void)module;
        if (!args_parse(&s, args, n, names, a) || !arg_request(a[2], &request))
                return NULL;
        list = PySequence_List(a[0]);
        if (!list)
                return NULL;
        count = PyList_Size(list);
        for (Py_ssize_t i = 0; i < count && i < MAX_SET; ++i) {
                all[i] = (struct ns_object *)PyList_GetItem(list, i);
                if (Py_TYPE((PyObject *)all[i]) != ns_type)
                        count = 0;
        }
        if (count < 1 || count > MAX_SET) {
                PyErr_SetString(PyExc_TypeError, "namespaces must be 1 to 64 Namespaces");
        } else if (keys_get(a[1], &keys)) {
                ret = lookup_all(all, (uint32_t)count, request, &keys);
                keys_free(&keys);
        }
        Py_DECREF(list);
        return ret;
}

/* ---- leases and publishes -------------------------------------------------------------------- */

static PyObject *ns_lease(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {
                "lease", {"n_pages", "request", "min_pages", "max_wait", "contiguous"}, 1, 2};
        struct kvl_lease_options o = {.size = sizeof(o)};
        struct kvl_lease_result result = {.size = sizeof(result)};
        struct pages_object *pages;
        uint32_t n_pages = 0, *at;
        uint64_t request;
        PyObject *a[5];
        int r, msec = -1;

        if (!args_parse(&s, args, n, names, a) || !arg_u32(a[0], "n_pages", &n_pages) ||
                !arg_request(a[1], &request) || !arg_u32(a[2], "min_pages", &o.min_pages) ||
                !arg_msec(a[3], "max_wait", -1, &msec) || !arg_contiguous(a[4], &o.flags))
                return NULL;
        /* In C, 0 is the tenant's limit, and < 0 no wait. */
        o.max_wait_msec = msec < 0 ? 0 : msec == 0 ? -1 : msec;
        if (n_pages < 1 || n_pages > KVL_MAX_LEASE_PAGES)
                return raise_code_as(-EINVAL, "a lease is of 1 to 4096 pages", NULL);
        at = numbers_alloc(n_pages);
        if (!at || !ns_enter(self)) {
                free(at);
                return NULL;
        }
        UNLOCKED(r = kvl_lease_with(self->ns, request, n_pages, &o, at, &result));
        ns_leave(self);
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

/* Raises the exception of a publish that stopped, with the pages published before. */
static PyObject *raise_stopped(int code, struct pages_object *done)
{
        const char *sentence = kvl_last_error();
        PyObject *error = error_new(code, sentence[0] ? sentence : kvl_strerror(code), NULL);

        if (error && PyObject_SetAttrString(error, "published", (PyObject *)done) == 0)
                PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_XDECREF(error);
        Py_DECREF((PyObject *)done);
        return NULL;
}

static PyObject *ns_publish(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"publish",
                {"pages", "keys", "parent", "last_tokens", "request", "session", "tag",
                        "window_passed", "token_ids", "lora_name", "cache_salt"},
                2, 2};
        struct pages_object *done;
        uint32_t *ret_pages, n_done = 0;
        struct publish_args p;
        PyObject *a[11];
        int r;

        if (!args_parse(&s, args, n, names, a) || !publish_args_get(self, a, &p))
                return NULL;
        ret_pages = numbers_alloc(p.publish.n_pages);
        if (!ret_pages || !ns_enter(self)) {
                free(ret_pages);
                publish_args_free(&p);
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
        publish_args_free(&p);
        if (done && r != 0 && r != KVL_DUPLICATE)
                return raise_stopped(r, done);
        return (PyObject *)done;
}

/* ---- by numbers ------------------------------------------------------------------------------ */

typedef int (*numbers_fn)(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages);

static PyObject *by_numbers(struct ns_object *self, PyObject *object, numbers_fn fn)
{
        struct numbers numbers;
        int r;

        if (Py_TYPE(object) == pages_type) {
                PyErr_SetString(PyExc_TypeError,
                        "this takes numbers; Pages objects have close(), pin() and detach()");
                return NULL;
        }
        if (!numbers_get(object, &numbers))
                return NULL;
        if (!ns_enter(self)) {
                numbers_free(&numbers);
                return NULL;
        }
        UNLOCKED(r = numbers.n ? fn(self->ns, numbers.at, numbers.n) : 0);
        ns_leave(self);
        numbers_free(&numbers);
        if (r)
                return raise_code(r);
        Py_RETURN_NONE;
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
        struct numbers numbers;
        uint64_t n_freed = 0;
        int r;

        if (!numbers_get_of(object, self, &numbers))
                return NULL;
        if (!ns_enter(self)) {
                numbers_free(&numbers);
                return NULL;
        }
        UNLOCKED(r = kvl_report(self->ns, numbers.at, numbers.n, &n_freed));
        ns_leave(self);
        numbers_free(&numbers);
        return r ? raise_code(r) : PyLong_FromUnsignedLongLong(n_freed);
}

static PyObject *ns_page_tier(struct ns_object *self, PyObject *object)
{
        uint32_t page = 0;
        int r;

        if (!arg_u32(object, "page", &page) || !ns_enter(self))
                return NULL;
        r = kvl_page_tier(self->ns, page);
        ns_leave(self);
        return r < 0 ? raise_code(r) : types_new("Tier", Py_BuildValue("(i)", r));
}

/* ---- invalidation, single flight, explain ---------------------------------------------------- */

/* Gets one key, or none. */
static bool one_key(PyObject *object, struct keys *ret)
{
        if (!keys_get(object, ret))
                return false;
        if (ret->n == 1)
                return true;
        PyErr_Format(PyExc_ValueError, "one key is needed, not %u", ret->n);
        keys_free(ret);
        return false;
}

static PyObject *ns_invalidate(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"invalidate", {"key", "tag", "mismatch"}, 0, 1};
        uint64_t n_pages = 0, tag = 0;
        struct keys key = {.n = 0};
        PyObject *a[3];
        int mismatch = 0, r;

        if (!args_parse(&s, args, n, names, a))
                return NULL;
        if (a[2] && (mismatch = PyObject_IsTrue(a[2])) < 0)
                return NULL;
        if ((a[0] && !Py_IsNone(a[0])) + (a[1] != NULL) + mismatch > 1) {
                PyErr_SetString(
                        PyExc_TypeError, "invalidate() takes a key, a tag, or a mismatch alone");
                return NULL;
        }
        if (!arg_u64(a[1], "tag", &tag) || (a[0] && !Py_IsNone(a[0]) && !one_key(a[0], &key)))
                return NULL;
        if (!ns_enter(self)) {
                keys_free(&key);
                return NULL;
        }
        if (mismatch)
                UNLOCKED(r = kvl_invalidate_mismatch(self->ns, &n_pages));
        else if (a[1])
                UNLOCKED(r = kvl_invalidate_tag(self->ns, tag, &n_pages));
        else
                UNLOCKED(r = kvl_invalidate(self->ns, key.n ? key.bytes : NULL, &n_pages));
        ns_leave(self);
        keys_free(&key);
        return r ? raise_code(r) : PyLong_FromUnsignedLongLong(n_pages);
}

static PyObject *ns_announce(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"announce", {"pages", "keys"}, 2, 2};
        struct numbers numbers;
        struct keys keys;
        uint32_t n_done = 0;
        PyObject *a[2];
        int r;

        if (!args_parse(&s, args, n, names, a) || !numbers_get_of(a[0], self, &numbers))
                return NULL;
        if (!keys_get(a[1], &keys)) {
                numbers_free(&numbers);
                return NULL;
        }
        if (keys.n > numbers.n) {
                PyErr_Format(PyExc_ValueError, "%u keys, but %u pages", keys.n, numbers.n);
                r = -1;
        } else if (!ns_enter(self)) {
                r = -1;
        } else {
                UNLOCKED(r = kvl_announce(self->ns, numbers.at, keys.bytes, keys.n, &n_done));
                ns_leave(self);
                if (r && r != KVL_PENDING && r != KVL_DUPLICATE)
                        raise_code(r);
        }
        keys_free(&keys);
        numbers_free(&numbers);
        if (PyErr_Occurred())
                return NULL;
        return types_new("Announcement", Py_BuildValue("(Iz)", n_done,
                                                 r == KVL_PENDING     ? "pending"
                                                 : r == KVL_DUPLICATE ? "cached"
                                                                      : NULL));
}

static PyObject *ns_wait(
        struct ns_object *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        static const struct signature s = {"wait", {"key", "timeout"}, 1, 2};
        struct keys key;
        PyObject *a[2];
        int r, msec = 600000;

        if (!args_parse(&s, args, n, names, a) || !arg_msec(a[1], "timeout", 600000, &msec) ||
                !one_key(a[0], &key))
                return NULL;
        if (!ns_enter(self)) {
                keys_free(&key);
                return NULL;
        }
        UNLOCKED(r = kvl_wait(self->ns, key.bytes, msec ? msec : 1));
        ns_leave(self);
        keys_free(&key);
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
        struct kvl_explanation *all;
        PyObject *list = NULL;
        struct keys keys;
        int r = 0;

        if (!keys_get(object, &keys))
                return NULL;
        if (keys.n > MAX_EXPLAIN) {
                keys_free(&keys);
                return raise_code_as(-EINVAL, "at most 256 keys can be explained at once", NULL);
        }
        all = calloc(keys.n + 1, sizeof(*all));
        if (!all || !ns_enter(self)) {
                if (!all)
                        PyErr_NoMemory();
                free(all);
                keys_free(&keys);
                return NULL;
        }
        if (keys.n)
                UNLOCKED(r = kvl_explain(self->ns, keys.bytes, keys.n, all));
        ns_leave(self);
        if (r)
                raise_code(r);
        else
                list = PyList_New(0);
        for (uint32_t i = 0; list && i < keys.n; ++i) {
                PyObject *one = explanation(&all[i]);

                if (!one || PyList_Append(list, one) < 0)
                        Py_CLEAR(list);
                Py_XDECREF(one);
        }
        free(all);
        keys_free(&keys);
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
