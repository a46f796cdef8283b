/* Queries of a session, and its pages, which are pinned for the client that asks for them. */
#include "daemon/core/sessions/session.h"

#include <string.h>

#include "daemon/core/cache/pages.h"
#include "daemon/core/clients/request.h"
#include "daemon/core/clients/pin.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/shared.h"
#include "daemon/core/sessions/session-impl.h"
#include "proto/status.h"

static uint32_t count_head(const struct session *s)
{
        return s->end ? ns_note(s->ns, s->end->page)->depth : 0;
}

/* tail_tokens: the end of the tail; 0: none. */
static uint64_t lost_tokens(const struct session *s, uint64_t tail_tokens)
{
        if (!s->is_truncated)
                return s->n_tokens - tail_tokens;
        return s->head_tokens - tail_tokens + s->n_tokens - session_window_end(s);
}

void session_info(const struct session *s, struct session_info *ret)
{
        uint32_t tail = session_tail(s);
        bool has_tail = tail != PAGE_NONE;
        uint32_t last = s->window.n > 0 ? s->window.pages[s->window.n - 1] : tail;

        *ret = (struct session_info){
                .id = s->id,
                .id_len = s->id_len,
                .n_pages = count_head(s) + s->window.n,
                .n_tokens = s->n_tokens,
                .lost_tokens = lost_tokens(s, has_tail ? ns_page(s->ns, tail)->end_token : 0),
                .n_open = s->n_open,
                .used_nsec = s->used_nsec,
                .expire_nsec = session_expire_time(s),
                .hint = s->hint,
                .is_truncated = s->is_truncated,
        };
        if (last != PAGE_NONE)
                memcpy(ret->last_key, ns_page(s->ns, last)->key, KEY_BYTES);
}

/* Lists n pages of the session from index `from` on; they exist. */
static void list_pages(const struct session *s, uint32_t from, uint32_t n, struct session_page *ret)
{
        const struct ns *ns = s->ns;
        uint32_t n_head = count_head(s), n_of_head = from < n_head ? MIN(n, n_head - from) : 0;
        uint32_t page =
                n_of_head == 0 ? PAGE_NONE : ns_page_of_text(ns, session_tail(s), from + n_of_head);

        for (uint32_t i = n_of_head; i-- > 0; page = tree_parent(&ns->tree, page))
                ret[i].page = page;
        for (uint32_t i = n_of_head; i < n; i++)
                ret[i].page = s->window.pages[from + i - n_head];
        for (uint32_t i = 0; i < n; i++) {
                ret[i].tokens = ns_page(ns, ret[i].page)->tokens;
                ret[i].first_token = page_first_token(ns, ret[i].page);
        }
}

/* Returns how many leading pages can be pinned once more. */
static uint32_t count_pinnable(const struct attach *a, const struct session_page *pages, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++)
                if (!pins_is_open(&a->share) && pin_check_page(a, pages[i].page, 1, NULL) != 0)
                        return i;
        return n;
}

/* Pins the deepest page first: eviction policies expect pages of a text in this order. */
static void pin_pages(struct attach *a, const struct session_page *pages, uint32_t n)
{
        for (uint32_t i = n; i-- > 0;)
                if (pins_is_open(&a->share))
                        pins_add(&a->share, pages[i].page);
                else
                        pin_add(a, pages[i].page);
}

void session_touch_tail(struct attach *a, const struct session *s, uint64_t now_nsec)
{
        uint32_t tail = session_tail(s);

        if (tail != PAGE_NONE)
                touch_page(a, tail, (uint32_t)ns_page(s->ns, tail)->generation, 0, now_nsec);
}

int session_pages(struct attach *a, struct session *s, struct session_range range,
        uint64_t now_nsec, struct session_page *ret, uint32_t *ret_n, struct detail *d)
{
        struct ns *ns = a->ns;
        uint32_t total = count_head(s) + s->window.n, n;
        int r;

        store_set_now(ns->store, now_nsec);
        *ret_n = 0;
        n = range.from < total ? MIN(range.max, total - range.from) : 0;
        list_pages(s, range.from, n, ret);
        if (n > 0 && count_pinnable(a, ret, n) == 0)
                return pin_check_page(a, ret[0].page, 1, d);
        n = count_pinnable(a, ret, n);
        r = pins_is_open(&a->share) ? 0 : pin_reserve(a, n, d);
        if (r != 0)
                return r;
        session_use(s, now_nsec);
        session_log_used(s);
        session_touch_tail(a, s, now_nsec);
        if (n == 0)
                return KVL_STATUS_MISS;
        pin_pages(a, ret, n);
        *ret_n = n;
        return 0;
}
