/* Changes of a session when pages are published to it, and hints of its next use. */
#include "daemon/core/sessions/session.h"

#include <errno.h>
#include <string.h>

#include "daemon/core/cache/pages.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/records.h"
#include "daemon/core/sessions/session-impl.h"

const char *session_hint_name(enum evict_hint hint)
{
        static const char *const names[] = {"unknown", "continues", "done", "returns"};

        return (unsigned)hint < ARRAY_SIZE(names) ? names[hint] : "unknown";
}

/* Returns the session of a handle. NULL: the handle is 0, or the session has ended. */
static struct session *session_or_none(struct attach *a, uint32_t handle)
{
        return handle == 0 ? NULL : session_of(a, handle, NULL);
}

int session_reserve(struct attach *a, uint32_t handle, uint32_t n, struct detail *d)
{
        struct session *s;

        if (handle == 0)
                return 0;
        s = session_of(a, handle, d);
        if (!s)
                return -ENOENT;
        return s->is_truncated ? session_reserve_window(s, n, d) : 0;
}

bool session_is_private(struct attach *a, uint32_t handle)
{
        const struct session *s = session_or_none(a, handle);

        return s && s->is_truncated;
}

/* Returns the number of the window's pages up to this one, if it is among the last
 * SESSION_REWIND_PAGES; else 0. */
static uint32_t place_in_window(const struct session *s, uint32_t page)
{
        uint32_t i = s->window.n, n = MIN(s->window.n, (uint32_t)SESSION_REWIND_PAGES);

        for (; n > 0; n--, i--)
                if (s->window.pages[i - 1] == page)
                        return i;
        return 0;
}

uint64_t session_next_token(struct attach *a, uint32_t handle, uint32_t parent)
{
        const struct session *s = session_or_none(a, handle);
        uint32_t n;

        if (!s || !s->is_truncated)
                return parent != PAGE_NONE && ns_page(a->ns, parent) ? page_end_token(a->ns, parent)
                                                                     : 0;
        n = place_in_window(s, parent);
        return n > 0 ? page_end_token(a->ns, s->window.pages[n - 1]) : s->window.token;
}

bool session_may_continue(struct attach *a, uint32_t handle, uint32_t page)
{
        const struct session *s = session_or_none(a, handle);

        return s && place_in_window(s, page) > 0;
}

uint32_t session_find_parent(struct attach *a, uint32_t handle, const uint8_t key[KEY_BYTES])
{
        const struct session *s = session_or_none(a, handle);
        uint32_t n = s ? MIN(s->window.n, (uint32_t)SESSION_REWIND_PAGES) : 0;

        for (uint32_t i = s ? s->window.n : 0; n > 0; n--, i--)
                if (memcmp(ns_page(a->ns, s->window.pages[i - 1])->key, key, KEY_BYTES) == 0)
                        return s->window.pages[i - 1];
        return ns_find_page(a->ns, key);
}

/* Sets the end of the page, which is in no tree, in the text. */
static void set_end_token(struct ns *ns, uint32_t page, uint32_t end_token)
{
        struct page *p = ns_page(ns, page);

        if (p->end_token == end_token)
                return;
        p->end_token = end_token;
        /* The parent stays; this writes the record's sum again. */
        records_reparent(ns, page, ns_note(ns, page)->place.parent);
}

static void append_to_window(struct session *s, uint32_t page, uint32_t parent)
{
        uint32_t n = place_in_window(s, parent);
        struct ns *ns = s->ns;

        if (n > 0)
                session_cut_window(s, n);
        else
                session_leave_front(s, s->window.n);
        s->n_tokens = session_window_end(s) + ns_page(ns, page)->tokens;
        set_end_token(ns, page, (uint32_t)s->n_tokens);
        if (!sessions_may_hold(ns, page)) {
                session_abandon_window(s);
                return;
        }
        s->window.pages[s->window.n++] = page;
        ns_keep_page(ns, page);
}

static void append_to_tree(struct session *s, uint32_t page, uint32_t parent)
{
        const struct tree *t = &s->ns->tree;
        bool continues = page_first_token(s->ns, page) == s->n_tokens;

        s->n_tokens = page_end_token(s->ns, page);
        if (tree_has(t, page))
                session_end_at(s, page);
        else if (parent == PAGE_NONE || tree_has(t, parent))
                session_end_at(s, parent);
        else if (!continues) /* it follows lost pages of another text */
                session_end_at(s, PAGE_NONE);
}

void session_pass_hint(struct session *s, uint64_t now_nsec)
{
        const struct evict_ops *ops = s->ns->evict;
        uint64_t left = s->returns_nsec - MIN(now_nsec, s->returns_nsec);

        if (s->end && ops->hint)
                ops->hint(s->ns->policy, s->end->page, s->hint, left, now_nsec);
}

void session_append(
        struct attach *a, uint32_t handle, uint32_t page, uint32_t parent, uint64_t now_nsec)
{
        struct session *s = session_or_none(a, handle);

        if (!s)
                return;
        truncation_call_off(s, -EAGAIN);
        s->told = SESSION_UNTOLD;
        if (s->is_truncated)
                append_to_window(s, page, parent);
        else
                append_to_tree(s, page, parent);
        session_use(s, now_nsec);
        session_log_put(s);
        if (s->hint != EVICT_HINT_UNKNOWN && !s->is_truncated)
                session_pass_hint(s, now_nsec);
}

void session_begin_telling(struct session *s)
{
        s->told = SESSION_TELLING;
}

void session_end_telling(struct session *s, bool is_done)
{
        if (s->told != SESSION_TELLING)
                return;
        s->told = is_done ? SESSION_TOLD : SESSION_UNTOLD;
        if (is_done)
                session_log_put(s);
}

bool session_may_be_replaced(const struct session *s)
{
        return s->n_open == 0 && !s->is_truncated && (s->told == SESSION_TOLD || !s->end);
}

int session_replace(struct ns *ns, const uint8_t *id, uint32_t id_len, uint32_t tail,
        uint64_t n_tokens, uint64_t now_nsec, struct detail *d)
{
        struct session *s = session_find(ns, id, id_len);
        int r = s ? 0 : session_new(ns, id, id_len, &s, d);

        if (r < 0)
                return r;
        if (!session_may_be_replaced(s))
                return -EBUSY;
        truncation_call_off(s, -EAGAIN);
        session_end_at(s, tail);
        s->n_tokens = MAX(n_tokens, tail == PAGE_NONE ? 0 : page_end_token(ns, tail));
        s->told = SESSION_TOLD;
        session_use(s, now_nsec);
        session_log_put(s);
        return 0;
}

enum evict_hint session_hint_of(const struct session *s, uint64_t *ret_returns_nsec)
{
        *ret_returns_nsec = s->returns_nsec;
        return s->hint;
}

void session_hint(struct session *s, enum evict_hint hint, uint64_t after_nsec, uint64_t now_nsec)
{
        store_set_now(s->ns->store, now_nsec);
        s->hint = hint;
        s->returns_nsec = hint == EVICT_HINT_RETURNS ? now_nsec + after_nsec : 0;
        session_log_put(s);
        session_pass_hint(s, now_nsec);
        session_tell(s->ns, s->id, s->id_len);
}
