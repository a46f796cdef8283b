/*
 * The windows of truncated sessions. struct session_window (sessions/session.h) describes
 * their memory. Pages that leave a window at its front stay held for later slices, so that no call
 * releases more than a slice of them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/cache/pages.h"
#include "daemon/core/sessions/session-impl.h"
#include "daemon/core/sessions/session.h"
#include "daemon/core/state/records.h"
#include "daemon/core/state/store.h"

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

/* ---- pages that have left a window ----------------------------------------------------------- */

/* No page before the window is held any more: frees their space once there are more of them than in
 * the window, so that moving the window costs no more than holding them did. */
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

                if (page != PAGE_NONE) /* its set was taken back before */
                        ns_unkeep_page(s->ns, page);
        }
        if (n > 0 && s->window.n_shed == s->window.n_before)
                close_gap(s);
        return n;
}

void session_leave_front(struct session *s, uint32_t n)
{
        struct store *store = s->ns->store;
        struct sessions *all = s->ns->sessions;

        if (n == 0)
                return;
        s->window.pages += n;
        s->window.first += n;
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
        if (!list_is_empty(&s->window.shed_link) && store->owner.on_work)
                store->owner.on_work(store->owner.data);
}

/* ---- dropping windows ------------------------------------------------------------------------ */

/* Keeps only the first n pages in the window and releases the others. Doesn't write the log. */
static void session_cut_window(struct session *s, uint32_t n)
{
        while (s->window.n > n)
                ns_unkeep_page(s->ns, s->window.pages[--s->window.n]);
        session_unlog_beyond(s, s->window.n);
        if (n == 0)
                list_remove(&s->window.link);
}

void session_abandon_window(struct session *s)
{
        truncation_window_goes(s);
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
        session_cut_window(s, 0);
        if (session_is_live(s))
                s->ns->sessions->n_room -= s->window.room;
        free(session_memory(s));
        s->window.pages = NULL;
        s->window.room = s->window.n_before = s->window.n_shed = 0;
}

uint32_t session_shed_window(struct session *s, uint32_t most)
{
        uint32_t n = MIN(s->window.n, most);

        session_cut_window(s, s->window.n - n);
        return n;
}

/* Abandons the next window to drop, of a session that isn't open, or (`open`) of an open one.
 * Returns false if there is none. */
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

/* ---- space for pages ------------------------------------------------------------------------- */

/* Returns the most space that the windows of the namespace may have, in pages. */
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

/* Makes space for n more pages in the window of an open session, if necessary by abandoning other
 * windows. Returns 0; -ENOMEM with the sentence. */
static int session_reserve_window(struct session *s, uint64_t n, struct detail *d)
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

/* ---- giving memory back ---------------------------------------------------------------------- */

bool sessions_give_way(struct ns *ns, bool open)
{
        struct sessions *all = ns->sessions;
        struct session *s =
                all ? list_first(&all->shedding, struct session, window.shed_link) : NULL;

        if (s)
                return session_shed(s, ns->store->drop_slice_pages) > 0;
        return all && (sessions_lose_window(all, open) || truncations_give_way(ns, open));
}

/* Returns how many pages of the window are in the set. */
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

/* Drops the session's window, and releases its pages in the set at once. */
static void lose_window_for_set(struct session *s, struct extent_set *set)
{
        session_abandon_window(s);
        if (s->window.n_before > s->window.n_shed)
                session_pages_leave_set(session_memory(s) + s->window.n_shed,
                        s->window.n_before - s->window.n_shed, set);
        session_log_put(s);
}

/* Returns how often windows hold pages of the set, windows that are being swept included. */
static uint64_t count_held_in(const struct extent_set *set)
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
        bool may_hold = all && (all->n_room > 0 || !list_is_empty(&all->truncations));
        uint64_t n = 0, left = may_hold ? count_held_in(set) : 0;

        left -= left > 0 ? truncations_leave_set(set, &n) : 0;
        for (int open = 0; left > 0 && open < 2; open++)
                list_for_each_safe (s, &all->windows[open], struct session, window.link) {
                        uint64_t n_in = window_pages_in(s, set->index);

                        n += s->window.n;
                        if (n_in > 0)
                                lose_window_for_set(s, set);
                        left -= n_in;
                        if (left == 0)
                                break;
                }
        return n;
}

/* ---- publishing ------------------------------------------------------------------------------ */

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

/* ---- check ----------------------------------------------------------------------------------- */

static bool is_findable(const struct ns *ns, uint32_t page)
{
        const struct page *p = ns_page(ns, page);

        return p && p->state == PAGE_SEALED && !ns_page_is_stale(ns, p);
}

/* For live sessions only: dead ones are being swept. */
static const char *check_session(const struct session *s)
{
        const struct ns *ns = s->ns;
        uint32_t n_open = 0;

        list_for_each (o, &s->openings, struct opening, session_link) {
                if (o->session != s || n_open++ >= s->n_open)
                        return "a session is opened by a client that doesn't know it";
        }
        if (n_open != s->n_open)
                return "a session counts its handles wrong";
        if (s->end && !is_findable(ns, s->end->page))
                return "a session ends at a page that isn't cached";
        if (s->window.n > s->window.room || (s->window.n > 0 && !s->is_truncated))
                return "a session has a window that can't be";
        if (MAX(s->logged.n_pages[0], s->logged.n_pages[1]) > s->window.n + s->window.n_coming)
                return "a session's log has more of its window than there is";
        if (s->window.n_shed > s->window.n_before ||
                list_is_empty(&s->window.shed_link) != (s->window.n_shed == s->window.n_before))
                return "a session holds pages that aren't its any more, and are not being released";
        if (list_is_empty(&s->window.link) != (s->window.n == 0))
                return "a session is in the list of those with a window, or missing, against that";
        for (uint32_t i = 0; i < s->window.n; i++) {
                const struct page *p = ns_page(ns, s->window.pages[i]);

                if (!p || ns_extra(ns, s->window.pages[i])->n_windows == 0)
                        return "a session's window has a page that doesn't know of it";
                if (i > 0 && ns_page(ns, s->window.pages[i])->end_token <=
                                     ns_page(ns, s->window.pages[i - 1])->end_token)
                        return "the pages of a session's window aren't in the order of the text";
        }
        return NULL;
}

static const char *check_ending(const struct ns *ns, const struct ending *e)
{
        uint32_t n = 0;

        list_for_each (s, &e->sessions, struct session, end_link)
                if (s->end != e || n++ >= e->n)
                        return "a session is in the list of those that end elsewhere";
        if (n != e->n || (e->n == 0) != (e->page == PAGE_NONE))
                return "a page counts the sessions that end there wrong";
        if (e->n > 0 && (!ns_page(ns, e->page) || ns_extra(ns, e->page)->tails != e->id))
                return "sessions end at a page that doesn't know of them";
        return NULL;
}

/* Totals that both sessions and their lists have. */
struct tally {
        uint64_t n_live, n_dead, n_windows, n_room, n_endings;
};

/* Returns the pages that the session holds, in its window and before that. */
static uint64_t count_held(const struct session *s)
{
        uint64_t n = s->window.n;

        for (uint32_t i = s->window.n_shed; i < s->window.n_before; i++)
                n += session_memory(s)[i] != PAGE_NONE;
        return n;
}

static const char *check_slots(const struct sessions *all, const struct ns *ns, struct tally *t)
{
        for (uint32_t i = 0; i < all->n_slots; i++) {
                const struct session_slot *slot = &all->slots[i];
                const struct session *s = slot->session;
                const char *why = slot->ending ? check_ending(ns, slot->ending) : NULL;

                t->n_endings += slot->ending && slot->ending->n > 0;
                if (!why && s && (s->ns != ns || s->slot != i || !slot->ending))
                        why = "a session isn't where it says it is";
                if (!why && s && session_is_live(s))
                        why = check_session(s);
                if (why)
                        return why;
                if (s) {
                        t->n_live += session_is_live(s);
                        t->n_dead += !session_is_live(s);
                        t->n_windows += count_held(s);
                        t->n_room += session_is_live(s) ? s->window.room : 0;
                }
        }
        return NULL;
}

/* Counts the references of pages to sessions. */
static void count_pages(const struct ns *ns, struct tally *t)
{
        ns_for_each_set (set, ns)
                for (uint32_t i = 0; i < ns->geometry.set_pages; i++) {
                        const struct page_extra *extra =
                                ns_extra(ns, set->index * ns->geometry.set_pages + i);

                        t->n_endings += extra->tails != 0;
                        t->n_windows += extra->n_windows;
                }
}

const char *sessions_check(const struct ns *ns)
{
        const struct sessions *all = ns->sessions;
        struct tally is = {0}, said = {0};
        const char *why;

        count_pages(ns, &said);
        if (!all)
                return said.n_endings + said.n_windows == 0
                               ? NULL
                               : "pages know of sessions, but there are none";
        why = check_slots(all, ns, &is);
        if (!why)
                why = truncations_check(ns, &is.n_windows, &is.n_room);
        if (why)
                return why;
        if (is.n_live != all->n_live || is.n_dead != all->n_dead)
                return "sessions are counted wrong";
        if (is.n_room != all->n_room)
                return "the room of windows is counted wrong";
        if (is.n_endings != said.n_endings || is.n_windows != said.n_windows)
                return "pages know of other sessions than there are";
        return NULL;
}
