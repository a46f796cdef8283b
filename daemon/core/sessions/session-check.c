/* sessions_check(): the invariants of sessions between calls. */
#include "daemon/core/sessions/session-impl.h"

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
