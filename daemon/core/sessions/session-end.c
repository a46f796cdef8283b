/*
 * Ends of sessions in the prefix tree. All sessions that end at a page share one struct ending,
 * which the page's page_extra.tails names. So dropping or moving a page takes one step for any
 * number of sessions.
 */
#include <assert.h>

#include "daemon/core/cache/pages.h"
#include "daemon/core/sessions/session-impl.h"

/* Returns NULL if no session ends at the page. */
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

/* No session ends at the page any more. */
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

/* Makes all sessions that end at `from` end at `to`, or nowhere (NULL). */
static void merge_endings(struct ns *ns, struct ending *from, struct ending *to)
{
        while (!list_is_empty(&from->sessions)) {
                struct session *s = list_first(&from->sessions, struct session, end_link);

                list_remove(&s->end_link);
                s->end = NULL;
                if (to)
                        join_ending(s, to);
        }
        from->n = 0;
        spare_ending(ns, from);
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
        there = up == PAGE_NONE ? NULL : ending_at(ns, up);
        if (up == PAGE_NONE || (there && there->n > e->n)) {
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
               ns_is_pinned(ns, page);
}
