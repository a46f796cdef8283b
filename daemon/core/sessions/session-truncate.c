#include "daemon/core/sessions/session-truncate.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/catalog/drop.h"
#include "daemon/core/catalog/pages.h"
#include "daemon/core/memory/settle.h"
#include "daemon/core/objects/store.h"
#include "daemon/core/objects/tenant.h"
#include "daemon/core/quota/chores.h"
#include "daemon/core/sessions/session-impl.h"

/* ---- what is held ---------------------------------------------------------------------------- */

static uint32_t count_held(const struct session_truncation *t)
{
        return t->room - t->first;
}

/* The session won't have the window that it was to have. What is held for that is let go of by the
 * next slices. */
static void lose_window(struct session_truncation *t)
{
        struct session *s = t->session;

        if (t->is_lost)
                return;
        t->is_lost = true;
        t->ns->sessions->n_room -= count_held(t);
        s->window.coming = NULL;
        s->window.n_coming = 0;
        session_unlog_beyond(s, s->window.n);
}

/* Lets go of at most so many of the pages that are held. Returns how many. */
static uint32_t let_go(struct session_truncation *t, uint64_t most)
{
        uint32_t n = (uint32_t)MIN(most, (uint64_t)count_held(t));

        for (uint32_t i = 0; i < n; i++) {
                uint32_t page = t->pages[t->first++];

                if (page != PAGE_NONE) /* its set was taken back before */
                        ns_unkeep_page(t->ns, page);
        }
        return n;
}

/* The session and its truncation don't know of each other from now on. */
static void leave_session(struct session_truncation *t, int result)
{
        lose_window(t);
        t->session->truncation = NULL;
        t->session = NULL;
        t->at = PAGE_NONE;
        t->result = result;
}

/* The truncation is over: it holds nothing, and is in no list of the namespace. */
static void end_truncation(struct session_truncation *t)
{
        free(t->pages);
        t->pages = NULL;
        t->first = t->room = 0;
        list_remove(&t->link);
}

/* ---- the walk -------------------------------------------------------------------------------- */

/* Will the page be in the window? */
static bool is_of_window(const struct session_truncation *t, uint32_t page)
{
        return t->fills && page_end_token(t->ns, page) > t->gap_end;
}

/* Notes whether the walk has come to the last page of the head. Then all is known. */
static void look_for_head(struct session_truncation *t)
{
        const struct ns *ns = t->ns;
        uint32_t page = t->at;

        t->has_head = page == PAGE_NONE ||
                      (page_first_token(ns, page) < t->first_tokens && !is_of_window(t, page));
        if (t->has_head)
                t->head_tokens = page == PAGE_NONE ? 0 : page_end_token(ns, page);
}

/* The page, which is in the tree, will be in the window. */
static void hold_page(struct session_truncation *t, uint32_t page)
{
        assert(t->first > 0);

        t->window_token = page_first_token(t->ns, page);
        if (!sessions_may_hold(t->ns, page))
                lose_window(t);
        if (t->is_lost)
                return;
        t->pages[--t->first] = page;
        ns_keep_page(t->ns, page);
        t->ns->sessions->n_room++;
}

/* Goes past the page, to its parent. There is room to hold it. */
static void take_step(struct session_truncation *t)
{
        uint32_t page = t->at;

        if (is_of_window(t, page))
                hold_page(t, page);
        else
                t->n_left++;
        t->at = tree_parent(&t->ns->tree, page);
        look_for_head(t);
}

/* Goes past the page where there is room to hold it; else the truncation is off. */
static void walk(struct session_truncation *t)
{
        int r = t->is_lost ? 0 : sessions_make_room(t->ns, 1, &t->why);

        if (r < 0)
                leave_session(t, r);
        else
                take_step(t);
}

/* ---- done ------------------------------------------------------------------------------------ */

/* The session ends at `head` in the tree from now on, and what was beyond that leaves it. */
static void end_earlier(struct session *s, uint32_t head)
{
        uint32_t tail = session_tail(s);

        session_end_at(s, head);
        session_log_put(s);
        if (tail != PAGE_NONE)
                drop_text(s->ns, tail, head == PAGE_NONE ? 0 : ns_note(s->ns, head)->depth,
                        session_page_is_shared);
}

/* What is held becomes the window of the session, which had none. */
static void take_window(struct session_truncation *t, struct session *s)
{
        assert(s->window.n == 0 && s->window.n_before == 0);

        s->window.coming = NULL;
        s->window.n_coming = 0;
        if (t->is_lost || count_held(t) == 0)
                return;
        s->window.pages = t->pages + t->first;
        s->window.n_before = s->window.n_shed = t->first;
        s->window.n = s->window.room = count_held(t);
        t->pages = NULL;
        t->first = t->room = 0;
}

/* The first n pages leave the window. */
static void shift_window(struct session *s, uint32_t n)
{
        uint64_t window_token = page_end_token(s->ns, s->window.pages[n - 1]);

        s->window.first += n;
        s->window.token = window_token;
        if (n == s->window.n)
                session_abandon_window(s);
        else
                session_leave_front(s, n);
}

/* How many pages at the front of the window end at this token or before. */
static uint32_t count_before(const struct session *s, uint64_t end_token)
{
        uint32_t from = 0, to = s->window.n;

        while (from < to) {
                uint32_t middle = from + (to - from) / 2;

                if (page_end_token(s->ns, s->window.pages[middle]) <= end_token)
                        from = middle + 1;
                else
                        to = middle;
        }
        return from;
}

/* A session that lay in the tree as a whole has a gap from now on, or an earlier end. */
static void cut_text(struct session_truncation *t, struct session *s)
{
        take_window(t, s);
        s->is_truncated = t->has_end;
        s->head_tokens = t->head_tokens;
        s->window.token = t->window_token;
        s->n_tokens = t->has_end ? t->end : t->head_tokens;
        end_earlier(s, t->at);
}

/* The gap of a session that has one grows. */
static void cut_more(struct session_truncation *t, struct session *s)
{
        uint32_t n = count_before(s, t->gap_end);
        bool has_shorter_head = t->n_left > 0;

        if (n > 0)
                shift_window(s, n);
        if (has_shorter_head)
                s->head_tokens = t->head_tokens;
        if (!t->has_end) {
                s->is_truncated = false;
                s->n_tokens = s->head_tokens;
        }
        if (has_shorter_head)
                end_earlier(s, t->at);
        t->n_left += n;
}

/* Changes the session: it is truncated. */
static void cut_session(struct session_truncation *t)
{
        struct session *s = t->session;

        if (!t->fills)
                cut_more(t, s);
        else if (t->n_left > 0)
                cut_text(t, s);
        session_use(s, ns_store(t->ns)->now_nsec);
        session_log_put(s);
        leave_session(t, 0);
}

/* Gives back the room for pages that aren't held, where that is most of it, so that moving the
 * others costs no more than the walk did. */
static void give_back_room(struct session_truncation *t)
{
        uint32_t n = count_held(t), *smaller;

        if (t->first <= n)
                return;
        memmove(t->pages, t->pages + t->first, n * sizeof(*t->pages));
        t->first = 0;
        t->room = n;
        smaller = realloc(t->pages, MAX(n, 1u) * sizeof(*t->pages));
        t->pages = smaller ? smaller : t->pages;
}

/* All is known. Does some of what must be done before the session can change at once, or changes
 * it. Returns what took as long as so many looks at pages. */
static uint64_t finish(struct session_truncation *t, uint64_t budget)
{
        struct session *s = t->session;

        if (!t->fills || t->n_left == 0) {
                cut_session(t);
                return 1;
        }
        if (s->window.n_before >
                s->window.n_shed) /* of an earlier window, where this one's place is */
                return session_shed(s, (uint32_t)MIN(budget, (uint64_t)UINT32_MAX));
        if (!t->is_lost && s->window.n_coming == 0) {
                give_back_room(t);
                s->window.coming = t->pages + t->first;
                s->window.n_coming = count_held(t);
        }
        if (session_log_coming(s))
                cut_session(t);
        return SESSION_LOG_PAGES;
}

/* ---- slices ---------------------------------------------------------------------------------- */

/* Does one thing. Returns what took as long as so many looks at pages. */
static uint64_t do_some(struct session_truncation *t, uint64_t budget)
{
        if (t->is_lost && count_held(t) > 0)
                return let_go(t, budget);
        if (t->has_head)
                return finish(t, budget);
        walk(t);
        return 1;
}

static void take_slice(struct session_truncation *t, uint64_t budget)
{
        for (uint64_t n = 0; n < budget && (t->session || count_held(t) > 0);)
                n += do_some(t, budget - n);
        if (!t->session && count_held(t) == 0)
                end_truncation(t);
}

/* May one more truncation begin in the namespace? */
static bool may_begin(const struct sessions *all)
{
        unsigned n = 0;

        list_for_each (t, &all->truncations, struct session_truncation, link)
                n++;
        return n < TRUNCATIONS_MAX;
}

static int check_range(
        const struct session *s, uint64_t first_tokens, uint64_t last_tokens, struct detail *d)
{
        if (first_tokens == 0 && last_tokens == 0)
                return detail_set(d, -EINVAL,
                        "first_tokens and last_tokens are 0, which keeps nothing: drop the session "
                        "instead");
        if (s->is_truncated && first_tokens > s->window.token)
                return detail_set(d, -EINVAL,
                        "first_tokens %llu is beyond the gap that the session has already, which "
                        "ends at token %llu",
                        (unsigned long long)first_tokens, (unsigned long long)s->window.token);
        if (s->truncation)
                return detail_set(d, -EAGAIN,
                        "the session is being truncated: ask again when that is answered");
        if (!may_begin(s->ns->sessions))
                return detail_set(d, -EAGAIN,
                        "%d sessions of namespace %s are being truncated, the most there may be: "
                        "ask again when some are answered",
                        TRUNCATIONS_MAX, s->ns->name);
        return 0;
}

/* Takes memory for all pages of the text, most of which may never be touched. 0 or -ENOMEM. */
static int make_room(struct session_truncation *t)
{
        uint32_t n = t->at == PAGE_NONE ? 0 : ns_note(t->ns, t->at)->depth;

        if (!t->fills || !t->has_end || t->has_head)
                return 0;
        t->pages = malloc(MAX(n, 1u) * sizeof(*t->pages));
        if (!t->pages)
                return -ENOMEM;
        t->first = t->room = n;
        return 0;
}

/* Finds out what the range means for the text that the session has. */
static void measure_text(struct session_truncation *t, uint64_t first_tokens, uint64_t last_tokens)
{
        const struct session *s = t->session;
        uint32_t tail = session_tail(s);

        t->fills = !s->is_truncated;
        t->has_end = last_tokens > 0;
        t->first_tokens = first_tokens;
        t->end = s->is_truncated     ? session_window_end(s)
                 : tail == PAGE_NONE ? 0
                                     : page_end_token(s->ns, tail);
        t->gap_end = t->end - MIN(last_tokens, t->end);
        t->window_token = t->end;
        t->at = tail;
        look_for_head(t);
        if (t->fills && t->gap_end <= first_tokens)
                t->has_head = true; /* nothing lies between */
}

int truncation_begin(struct session_truncation *t, struct session *s, uint64_t first_tokens,
        uint64_t last_tokens, struct detail *d)
{
        SETTLE_AT_END(ns_store(s->ns));
        int r = check_range(s, first_tokens, last_tokens, d);

        *t = (struct session_truncation){.ns = s->ns, .session = s};
        list_init(&t->link);
        chore_init(&t->chore);
        if (r < 0)
                return r;
        measure_text(t, first_tokens, last_tokens);
        r = make_room(t);
        if (r < 0)
                return detail_set(d, r, "no memory for the pages of a session");
        s->truncation = t;
        list_append(&s->ns->sessions->truncations, &t->link);
        take_slice(t, ns_store(s->ns)->drop_slice_pages);
        return 0;
}

static bool work_truncation(struct chore *c, uint64_t budget)
{
        struct session_truncation *t = container_of(c, struct session_truncation, chore);
        SETTLE_AT_END(ns_store(t->ns));

        take_slice(t, budget);
        if (!truncation_is_over(t))
                return true;
        t->done(t);
        return false;
}

void truncation_queue(struct session_truncation *t, struct session_truncation *to,
        void (*done)(struct session_truncation *t))
{
        assert(!truncation_is_over(t));

        *to = *t;
        list_init(&to->link);
        list_append(&t->ns->sessions->truncations, &to->link);
        list_remove(&t->link);
        if (to->session)
                to->session->truncation = to;
        chore_init(&to->chore);
        to->done = done;
        to->chore.work = work_truncation;
        chore_queue(&to->chore, to->ns->tenant);
}

void truncation_cancel(struct session_truncation *t)
{
        SETTLE_AT_END(ns_store(t->ns));

        if (t->session)
                leave_session(t, -ENOMEM);
        take_slice(t, UINT64_MAX);
}

/* ---- for the rest of the core ---------------------------------------------------------------- */

void truncation_call_off(struct session *s, int why)
{
        struct session_truncation *t = s->truncation;

        if (!t)
                return;
        detail_set(&t->why, why,
                why == -EAGAIN ? "the session was published to while it was to be truncated, and "
                                 "isn't: ask again"
                               : "the session was dropped while it was to be truncated");
        leave_session(t, why);
}

void truncations_page_goes(struct ns *ns, uint32_t page)
{
        if (!ns->sessions)
                return;
        list_for_each (t, &ns->sessions->truncations, struct session_truncation, link) {
                if (t->at != page)
                        continue;
                if (t->has_head) {
                        t->at = tree_parent(&ns->tree, page);
                        continue;
                }
                /* Where there is no room, no other window is lost for it: that would free pages
                 * while this one is about to go. */
                if (!sessions_may_have_room(ns, ns->sessions->n_room + 1))
                        lose_window(t);
                take_step(t);
        }
}

void truncations_page_moved(struct ns *ns, uint32_t page, uint32_t to)
{
        if (!ns->sessions)
                return;
        list_for_each (t, &ns->sessions->truncations, struct session_truncation, link)
                if (t->at == page)
                        t->at = to;
}

void truncations_reset(struct sessions *all)
{
        list_for_each (t, &all->truncations, struct session_truncation, link)
                if (t->session)
                        truncation_call_off(t->session, -ENOENT);
}

void truncations_end(struct ns *ns)
{
        truncations_reset(ns->sessions);
        list_for_each_safe (t, &ns->sessions->truncations, struct session_truncation, link) {
                chore_remove(&t->chore, ns->tenant);
                end_truncation(t);
                t->done(t);
        }
}

bool truncations_give_way(struct ns *ns, bool open)
{
        uint32_t most = ns_store(ns)->drop_slice_pages;

        list_for_each (t, &ns->sessions->truncations, struct session_truncation, link) {
                if (count_held(t) == 0 || !(open || t->is_lost))
                        continue;
                if (t->session)
                        lose_window(t);
                (void)let_go(t, most);
                return true;
        }
        return false;
}

uint64_t truncations_leave_set(struct extent_set *set, uint64_t *n_seen)
{
        struct ns *ns = set->ns;
        uint64_t n = 0;

        list_for_each (t, &ns->sessions->truncations, struct session_truncation, link) {
                uint64_t before = n;

                for (uint32_t i = t->first; i < t->room; i++)
                        n += t->pages[i] / ns->geometry.set_pages == set->index;
                *n_seen += count_held(t);
                if (n == before)
                        continue;
                if (t->session)
                        lose_window(t);
                session_pages_leave_set(t->pages + t->first, count_held(t), set);
        }
        return n;
}

const char *truncations_check(const struct ns *ns, uint64_t *n_held, uint64_t *n_room)
{
        list_for_each (t, &ns->sessions->truncations, struct session_truncation, link) {
                if (!chore_is_queued(&t->chore))
                        return "a truncation that isn't over waits for no turn";
                if (t->session && (!session_is_live(t->session) || t->session->truncation != t))
                        return "a session is being truncated and doesn't know of it";
                if (t->at != PAGE_NONE && !tree_has(&ns->tree, t->at))
                        return "a truncation goes on at a page that isn't cached";
                for (uint32_t i = t->first; i < t->room; i++)
                        *n_held += t->pages[i] != PAGE_NONE;
                *n_room += t->is_lost ? 0 : count_held(t);
        }
        return NULL;
}
