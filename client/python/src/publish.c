/* Arguments of a publish, and the pages that another client published first. */
#include "client/python/src/module.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool set_parent(struct ns_object *ns, PyObject **a, struct publish_args *ret)
{
        ret->publish.last_tokens = ns->page_tokens;
        if (is_given(a[3]) && !arg_u32(a[3], "last_tokens", &ret->publish.last_tokens))
                return false;
        if (is_given(a[2])) {
                if (!key_get(a[2], "parent must be one key", &ret->parent))
                        return false;
                ret->publish.parent_key = ret->parent.bytes;
        }
        if (!is_given(a[5]))
                return true;
        if (Py_TYPE(a[5]) != session_type) {
                PyErr_SetString(PyExc_TypeError, "session must be a Session or None");
                return false;
        }
        if (!session_enter((struct session_object *)a[5]))
                return false;
        ret->session = (struct session_object *)Py_NewRef(a[5]);
        ret->publish.session = ret->session->session;
        return true;
}

/* There must be as many as the published pages have tokens. */
static bool set_token_ids(struct ns_object *ns, PyObject *object, struct publish_args *ret)
{
        size_t n;

        if (!is_given(object))
                return true;
        if (!tokens_get(object, &ret->token_ids))
                return false;
        n = (size_t)(ret->keys.n - 1) * ns->page_tokens + ret->publish.last_tokens;
        if (ret->token_ids.n != n) {
                PyErr_Format(PyExc_ValueError, "%zu token ids for %zu tokens in %u pages",
                        ret->token_ids.n, n, ret->keys.n);
                return false;
        }
        ret->publish.token_ids = ret->token_ids.at;
        return true;
}

bool publish_args_get(struct ns_object *ns, PyObject **a, struct publish_args *ret)
{
        struct pages_object *source = NULL;
        bool window_passed = false;

        ret->publish.size = sizeof(ret->publish);
        if (Py_TYPE(a[0]) == pages_type) {
                source = (struct pages_object *)a[0];
                if (!pages_can_change(source, "close them before they are published"))
                        return false;
                if (source->state != PAGES_LEASED || source->ns != ns) {
                        raise_code_as(
                                -EINVAL, "only pages leased in this namespace are published", NULL);
                        return false;
                }
        }
        if (!arg_request(a[4], &ret->publish.request) || !arg_u64(a[6], "tag", &ret->publish.tag) ||
                !arg_bool(a[7], &window_passed) ||
                !arg_text(a[9], "lora_name", &ret->publish.lora_name) ||
                !arg_text(a[10], "cache_salt", &ret->publish.cache_salt) ||
                !numbers_get(a[0], &ret->numbers) || !keys_get(a[1], &ret->keys) ||
                !set_parent(ns, a, ret))
                return false;
        if (ret->keys.n < 1 || ret->keys.n > ret->numbers.n) {
                PyErr_Format(PyExc_ValueError, "%u keys for %u pages", ret->keys.n, ret->numbers.n);
                return false;
        }
        if (!set_token_ids(ns, a[8], ret))
                return false;
        /* The conversion of an argument may have run Python code that changed the pages. */
        if (source && !pages_can_change(source, "close them before they are published"))
                return false;
        if (source && source->n != ret->numbers.n)
                return raise_busy("the pages changed meanwhile"), false;
        ret->source = (struct pages_object *)Py_XNewRef((PyObject *)source);
        ret->publish.pages = ret->numbers.at;
        ret->publish.keys = ret->keys.bytes;
        ret->publish.n_pages = ret->keys.n;
        ret->publish.window_passed = window_passed;
        return true;
}

void publish_args_free(struct publish_args *a)
{
        if (a->session) {
                session_leave(a->session);
                Py_CLEAR(a->session);
        }
        numbers_free(&a->numbers);
        keys_free(&a->keys);
        keys_free(&a->parent);
        tokens_free(&a->token_ids);
        Py_CLEAR(a->source);
}

struct pages_object *publish_finish(struct ns_object *ns, struct pages_object *source,
        const uint32_t *taken, uint32_t n_taken, uint32_t *ret_pages, uint32_t n_done)
{
        uint32_t *left = malloc(((size_t)n_taken + 1) * sizeof(*left)), n_left = 0;
        bool ok = left != NULL;

        if (!ok)
                PyErr_NoMemory();
        for (uint32_t i = 0; ok && i < n_taken; ++i) {
                if (i >= n_done || ret_pages[i] != taken[i])
                        left[n_left++] = taken[i];
        }
        if (ok && source)
                ok = pages_put_first(source, left, n_left);
        free(left);
        if (ok)
                return pages_new(ns, ret_pages, n_done, PAGES_PINNED);
        numbers_give_back(ns, ret_pages, n_done, PAGES_PINNED);
        free(ret_pages);
        return NULL;
}
