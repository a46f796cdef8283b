/* Where a session ends, its pages, what is published to it. Truncation: session-truncate.c. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/catalog/drop.h"
#include "daemon/core/catalog/pages.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/client-record.h"
#include "daemon/core/clients/found.h"
#include "daemon/core/objects/store.h"
#include "daemon/core/records/records.h"
#include "daemon/core/records/shared.h"
#include "daemon/core/sessions/session-impl.h"
#include "proto/status.h"

/* ---- its end in the tree --------------------------------------------------------------------- */

static struct ending *ending_at(const struct ns *ns, uint32_t page)
{
        uint32_t id = ns_extra(ns, page)->tails;

        return id == 0 ? NULL : ns->sessions->slots[id - 1].ending;
}

static void put_ending(struct ns *ns, struct ending *e, uint32_t page)
{
        e->page = page;
        ns_make_extra(ns, page)->tails = e->id;
}

/* Nothing ends there any more. */
static void spare_ending(struct ns *ns, struct ending *e)
{
        e->page = PAGE_NONE;
        list_append(&ns->sessions->spare_endings, &e->spare_link);
}

static void leave_ending(struct session *s)
{
        struct ending *e = s->end;

        if (!e)
                return;
        list_remove(&s->end_link);
        s->end = NULL;
        if (--e->n > 0)
                return;
        ns_make_extra(s->ns, e->page)->tails = 0;
        spare_ending(s->ns, e);
}

static void join_ending(struct session *s, struct ending *e)
{
        s->end = e;
        list_append(&e->sessions, &s->end_link);
        e->n++;
}

void session_end_at(struct session *s, uint32_t page)
{
        struct sessions *all = s->ns->sessions;
        struct ending *e;

        leave_ending(s);
        if (page == PAGE_NONE)
                return;
        e = ending_at(s->ns, page);
        if (!e) {
                e = list_first(&all->spare_endings, struct ending, spare_link);
                list_remove(&e->spare_link);
                put_ending(s->ns, e, page);
        }
        join_ending(s, e);
}

/* All that end at `from` do so at `to` from now on. */
static void merge_endings(struct ns *ns, struct ending *from, struct ending *to)
{
        while (!list_is_empty(&from->sessions)) {
                struct session *s = list_first(&from->sessions, struct session, end_link);

                list_remove(&s->end_link);
                join_ending(s, to);
        }
        from->n = 0;
        spare_ending(ns, from);
}

static void end_nowhere(struct ns *ns, struct ending *e)
{
        while (!list_is_empty(&e->sessions)) {
                struct session *s = list_first(&e->sessions, struct session, end_link);

                list_remove(&s->end_link);
                s->end = NULL;
        }
        e->n = 0;
        spare_ending(ns, e);
}

void sessions_page_goes(struct ns *ns, uint32_t page)
{
        struct ending *e = ending_at(ns, page), *there;
        uint32_t up = tree_has(&ns->tree, page) ? tree_parent(&ns->tree, page) : PAGE_NONE;

        truncations_page_goes(ns, page);
        if (!e)
                return;
        if (up != PAGE_NONE)
                session_log_moved(ns, page, up);
        ns_make_extra(ns, page)->tails = 0;
        if (up == PAGE_NONE) {
                end_nowhere(ns, e);
                return;
        }
        there = ending_at(ns, up);
        if (there && there->n > e->n) {
                merge_endings(ns, e, there);
                return;
        }
        if (there)
                merge_endings(ns, there, e);
        put_ending(ns, e, up);
}

void sessions_page_moved(struct ns *ns, uint32_t page, uint32_t to)
{
        struct ending *e = ending_at(ns, page);

        assert(ns_extra(ns, page)->n_windows == 0);

        truncations_page_moved(ns, page, to);
        if (!e)
                return;
        session_log_moved(ns, page, to);
        ns_make_extra(ns, page)->tails = 0;
        put_ending(ns, e, to);
}

bool session_page_is_shared(const struct ns *ns, uint32_t page)
{
        return !tree_is_leaf(&ns->tree, page) || ns_extra(ns, page)->tails != 0 ||
               page_pins(ns_page(ns, page)) > 0 || shared_is_pinned(ns, page);
}

/* ---- windows --------------------------------------------------------------------------------- */

uint64_t session_window_end(const struct session *s)
{
        return s->window.n > 0 ? page_end_token(s->ns, s->window.pages[s->window.n - 1])
                               : s->window.token;
}

bool sessions_may_hold(const struct ns *ns, uint32_t page)
{
        const struct set_recall *r = &ns_set_of(ns, page)->recall;

        return r->state == RECALL_NONE || (r->kind == RECALL_COMPACT && r->state == RECALL_ASKED);
}

/* ---- what isn't its window any more ---------------------------------------------------------- */

/* Nothing before the window is held any more. Moving what is left costs no more than that did. */
static void close_gap(struct session *s)
{
        uint32_t *memory = session_memory(s), *smaller = NULL;

        list_remove(&s->window.shed_link);
        if (s->window.n_before < s->window.n)
                return;
        if (s->window.room > 0) {
                memmove(memory, s->window.pages, s->window.n * sizeof(*memory));
                smaller = realloc(memory, s->window.room * sizeof(*memory));
                s->window.pages = smaller ? smaller : memory;
        } else {
                free(memory);
                s->window.pages = NULL;
        }
        s->window.n_before = s->window.n_shed = 0;
}

uint32_t session_shed(struct session *s, uint32_t most)
{
        uint32_t n = MIN(s->window.n_before - s->window.n_shed, most);

        for (uint32_t i = 0; i < n; i++) {
                uint32_t page = session_memory(s)[s->window.n_shed++];

                if (page != PAGE_NONE) /* it went before its turn */
                        ns_unkeep_page(s->ns, page);
        }
        if (n > 0 && s->window.n_shed == s->window.n_before)
                close_gap(s);
        return n;
}

void session_leave_front(struct session *s, uint32_t n)
{
        struct store *store = ns_store(s->ns);
        struct sessions *all = s->ns->sessions;

        if (n == 0)
                return;
        s->window.pages += n;
        s->window.n_before += n;
        s->window.n -= n;
        if (session_is_live(s))
                all->n_room -= n;
        s->window.room -= n;
        session_unlog_first(s, n);
        if (s->window.n == 0)
                list_remove(&s->window.link);
        if (list_is_empty(&s->window.shed_link))
                list_append(&all->shedding, &s->window.shed_link);
        (void)session_shed(s, store->drop_slice_pages);
        if (!list_is_empty(&s->window.shed_link) && store->on_work)
                store->on_work(store->callback_data);
}

/* ---- windows that go ------------------------------------------------------------------------- */

/* Only the first n pages stay in the window, of many that go. */
static void cut_window(struct session *s, uint32_t n)
{
        while (s->window.n > n)
                ns_unkeep_page(s->ns, s->window.pages[--s->window.n]);
        session_unlog_beyond(s, s->window.n);
        if (n == 0)
                list_remove(&s->window.link);
}

void session_abandon_window(struct session *s)
{
        if (session_is_live(s))
                s->ns->sessions->n_room -= s->window.room - s->window.n;
        s->window.room = s->window.n;
        session_leave_front(s, s->window.n);
        if (s->window.n_before > 0)
                return;
        free(s->window.pages);
        s->window.pages = NULL;
}

void session_drop_window(struct session *s)
{
        (void)session_shed(s, UINT32_MAX);
        cut_window(s, 0);
        if (session_is_live(s))
                s->ns->sessions->n_room -= s->window.room;
        free(session_memory(s));
        s->window.pages = NULL;
        s->window.room = s->window.n_before = s->window.n_shed = 0;
}

uint32_t session_shed_window(struct session *s, uint32_t most)
{
        uint32_t n = MIN(s->window.n, most);

        cut_window(s, s->window.n - n);
        return n;
}

/* The window whose turn it is is abandoned. False: there is none. */
static bool sessions_lose_window(struct sessions *all, bool open)
{
        struct session *s = list_first(&all->windows[false], struct session, window.link);

        if (!s && open)
                s = list_first(&all->windows[true], struct session, window.link);
        if (!s)
                return false;
        session_abandon_window(s);
        session_log_put(s);
        return true;
}

bool sessions_give_way(struct ns *ns, bool open)
{
        struct sessions *all = ns->sessions;
        struct session *s =
                all ? list_first(&all->shedding, struct session, window.shed_link) : NULL;

        if (s)
                return session_shed(s, ns_store(ns)->drop_slice_pages) > 0;
        return all && (sessions_lose_window(all, open) || truncations_give_way(ns, open));
}

static uint64_t window_pages_in(const struct session *s, uint32_t set_index)
{
        uint64_t n = 0;

        for (uint32_t i = 0; i < s->window.n; i++)
                n += s->window.pages[i] / s->ns->geometry.set_pages == set_index;
        return n;
}

void session_pages_leave_set(uint32_t *pages, uint32_t n, struct extent_set *set)
{
        uint32_t index = set->index;
        struct ns *ns = set->ns;

        for (uint32_t i = 0; i < n; i++) {
                uint32_t page = pages[i];

                if (page == PAGE_NONE || page / ns->geometry.set_pages != index)
                        continue;
                pages[i] = PAGE_NONE;
                ns_unkeep_page(ns, page);
        }
}

/* The window isn't its any more; the pages in the set aren't held any more, either. */
static void lose_for_set(struct session *s, struct extent_set *set)
{
        session_abandon_window(s);
        if (s->window.n_before > s->window.n_shed)
                session_pages_leave_set(session_memory(s) + s->window.n_shed,
                        s->window.n_before - s->window.n_shed, set);
        session_log_put(s);
}

/* How often windows hold pages of the set, those of sessions that are swept included. */
static uint64_t count_held(const struct extent_set *set)
{
        uint32_t n_pages = set->ns->geometry.set_pages, first = set->index * n_pages;
        uint64_t n = 0;

        for (uint32_t i = 0; i < n_pages; i++)
                n += ns_extra(set->ns, first + i)->n_windows;
        return n;
}

uint64_t sessions_leave_set(struct extent_set *set)
{
        struct sessions *all = set->ns->sessions;
        uint64_t n = 0, left = all && all->n_room > 0 ? count_held(set) : 0;

        left -= left > 0 ? truncations_leave_set(set, &n) : 0;
        for (int open = 0; left > 0 && open < 2; open++)
                list_for_each_safe (s, &all->windows[open], struct session, window.link) {
                        uint64_t n_in = window_pages_in(s, set->index);

                        n += s->window.n;
                        if (n_in > 0)
                                lose_for_set(s, set);
                        left -= n_in;
                        if (left == 0)
                                break;
                }
        return n;
}

/* ---- published to ---------------------------------------------------------------------------- */

/* NULL: handle 0, or it is gone. */
static struct session *session_or_none(struct attach *a, uint32_t handle)
{
        return handle == 0 ? NULL : session_of(a, handle, NULL);
}

static uint64_t most_room(const struct ns *ns)
{
        return SESSION_WINDOWS_SHARE * (uint64_t)tier_n_pages(&ns->geometry, TIER_DEVICE);
}

bool sessions_may_have_room(const struct ns *ns, uint64_t n)
{
        return n <= most_room(ns);
}

int sessions_make_room(struct ns *ns, uint64_t n, struct detail *d)
{
        struct sessions *all = ns->sessions;

        while (!sessions_may_have_room(ns, all->n_room + n))
                if (!sessions_lose_window(all, false))
                        return detail_set(d, -ENOMEM,
                                "the windows of open sessions of namespace %s have %llu pages in "
                                "sum, and may have %llu, %d times what it can hold: close some",
                                ns->name, (unsigned long long)all->n_room,
                                (unsigned long long)most_room(ns), SESSION_WINDOWS_SHARE);
        return 0;
}

/* Room for n pages more in its window, which somebody has open. Other windows may go for it. */
static int reserve_window(struct session *s, uint64_t n, struct detail *d)
{
        uint64_t wanted = s->window.n + n, room = MAX(wanted, 2 * (uint64_t)s->window.room);
        uint32_t *memory;
        int r;

        if (wanted <= s->window.room)
                return 0;
        r = sessions_make_room(s->ns, room - s->window.room, d);
        if (r < 0)
                return r;
        memory = realloc(session_memory(s), (s->window.n_before + room) * sizeof(*memory));
        if (!memory)
                return detail_set(d, -ENOMEM, "no memory for %llu pages of a session",
                        (unsigned long long)room);
        s->ns->sessions->n_room += room - s->window.room;
        s->window.pages = memory + s->window.n_before;
        s->window.room = (uint32_t)room;
        return 0;
}

int session_reserve(struct attach *a, uint32_t handle, uint32_t n, struct detail *d)
{
        struct session *s;

        if (handle == 0)
                return 0;
        s = session_of(a, handle, d);
        if (!s)
                return -ENOENT;
        return s->is_truncated ? reserve_window(s, n, d) : 0;
}

bool session_is_private(struct attach *a, uint32_t handle)
{
        const struct session *s = session_or_none(a, handle);

        return s && s->is_truncated;
}

/* How many pages of the window there are up to this one; 0: it isn't among the last of it. */
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

/* The page, which is in no tree, ends there in the text. */
static void put_at(struct ns *ns, uint32_t page, uint32_t end_token)
{
        struct page *p = ns_page(ns, page);

        if (p->end_token == end_token)
                return;
        p->end_token = end_token;
        records_reparent(ns, page, ns_note(ns, page)->place.parent); /* for the sum */
}

static void append_to_window(struct session *s, uint32_t page, uint32_t parent)
{
        uint32_t n = place_in_window(s, parent);
        struct ns *ns = s->ns;

        if (n > 0)
                cut_window(s, n);
        else
                session_leave_front(s, s->window.n);
        s->n_tokens = session_window_end(s) + ns_page(ns, page)->tokens;
        put_at(ns, page, (uint32_t)s->n_tokens);
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
        else if (!continues) /* after lost pages of another text: where that begins isn't known */
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
        if (s->is_truncated)
                append_to_window(s, page, parent);
        else
                append_to_tree(s, page, parent);
        session_use(s, now_nsec);
        session_log_put(s);
        if (s->hint != EVICT_HINT_UNKNOWN && !s->is_truncated)
                session_pass_hint(s, now_nsec);
}

void session_hint(struct session *s, enum evict_hint hint, uint64_t after_nsec, uint64_t now_nsec)
{
        store_set_now(ns_store(s->ns), now_nsec);
        s->hint = hint;
        s->returns_nsec = hint == EVICT_HINT_RETURNS ? now_nsec + after_nsec : 0;
        session_log_put(s);
        session_pass_hint(s, now_nsec);
}

/* ---- asked for ------------------------------------------------------------------------------- */

static uint32_t count_head(const struct session *s)
{
        return s->end ? ns_note(s->ns, s->end->page)->depth : 0;
}

/* Its pages from index `from` on, n of them, which it has. */
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

/* How many of them can be pinned once more. */
static uint32_t count_pinnable(const struct attach *a, const struct session_page *pages, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++)
                if (!pins_is_open(&a->share) &&
                        attach_check_page_pins(a, pages[i].page, 1, NULL) != 0)
                        return i;
        return n;
}

/* The deepest first, as all callers of policies do. */
static void pin(struct attach *a, const struct session_page *pages, uint32_t n)
{
        for (uint32_t i = n; i-- > 0;)
                if (pins_is_open(&a->share)) {
                        pins_add(&a->share, pages[i].page);
                } else {
                        ns_pin_page(a->ns, pages[i].page);
                        attach_note_pin(a, pages[i].page);
                }
}

int session_pages(struct attach *a, struct session *s, uint32_t from, uint32_t max,
        uint64_t now_nsec, struct session_page *ret, uint32_t *ret_n, struct detail *d)
{
        struct ns *ns = a->ns;
        uint32_t total = count_head(s) + s->window.n, n, tail = session_tail(s);
        int r;

        store_set_now(ns_store(ns), now_nsec);
        *ret_n = 0;
        n = from < total ? MIN(max, total - from) : 0;
        list_pages(s, from, n, ret);
        if (n > 0 && count_pinnable(a, ret, n) == 0)
                return attach_check_page_pins(a, ret[0].page, 1, d);
        n = count_pinnable(a, ret, n);
        r = pins_is_open(&a->share) ? 0 : attach_reserve_pins(a, n, d);
        if (r != 0)
                return r;
        session_use(s, now_nsec);
        session_log_used(s);
        if (tail != PAGE_NONE)
                touch_page(a, tail, (uint32_t)ns_page(ns, tail)->generation, 0, now_nsec);
        if (n == 0)
                return KVL_STATUS_MISS;
        pin(a, ret, n);
        *ret_n = n;
        return 0;
}
