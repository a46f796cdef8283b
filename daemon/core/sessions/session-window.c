/*
 * The windows of truncated sessions. struct session_window (sessions/session.h) describes
 * their memory. Pages that leave a window at its front stay held for later slices, so that no call
 * releases more than a slice of them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/cache/pages.h"
#include "daemon/core/state/store.h"
#include "daemon/core/sessions/session-impl.h"

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

/* ---- pages that have left a window -------------------------------------------------------------
 */

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

void session_cut_window(struct session *s, uint32_t n)
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

int session_reserve_window(struct session *s, uint64_t n, struct detail *d)
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
