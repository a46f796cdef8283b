#include "daemon/core/sessions/session-truncate.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/cache/drop.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/memory/tasks.h"
#include "daemon/core/sessions/session-impl.h"

/* ---- held pages ------------------------------------------------------------------------------ */

static uint32_t count_held(const struct session_truncation *t)
{
        return t->past - t->first;
}

/* The session won't get the new window. The next slices release the held pages. */
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

/* Releases at most `most` of the held pages. Returns how many. */
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

/* Separates the session and its truncation. */
static void leave_session(struct session_truncation *t, int result)
{
        lose_window(t);
        t->session->truncation = NULL;
        t->session = NULL;
        t->at = PAGE_NONE;
        t->result = result;
}

/* Ends the truncation: it holds no page, and is in no list. */
static void end_truncation(struct session_truncation *t)
{
        free(t->pages);
        t->pages = NULL;
        t->first = t->past = t->room = 0;
        free(t->ranges);
        t->ranges = NULL;
        t->n_ranges = 0;
        list_remove(&t->link);
}

/* ---- the walk -------------------------------------------------------------------------------- */

/* Does a range have any of the tokens from `first` on, before `end`? */
static bool range_has_any(const struct session_truncation *t, uint64_t first, uint64_t end)
{
        uint32_t from = 0, to = t->n_ranges;

        while (from < to) {
                uint32_t middle = from + (to - from) / 2;

                if (t->ranges[middle].end <= first)
                        from = middle + 1;
                else
                        to = middle;
        }
        return from < t->n_ranges && t->ranges[from].first < end;
}

static bool page_stays(const struct session_truncation *t, uint32_t page)
{
        return range_has_any(t, page_first_token(t->ns, page), page_end_token(t->ns, page));
}

/* Is the page, and so all before it, in the first range? */
static bool is_of_head(const struct session_truncation *t, uint32_t page)
{
        return t->n_ranges > 0 && t->ranges[0].first == 0 &&
               page_first_token(t->ns, page) < t->ranges[0].end;
}

/* Notes whether the walk has reached the last page of the head. Then the tree is done. */
static void look_for_head(struct session_truncation *t)
{
        t->has_head = t->at == PAGE_NONE || is_of_head(t, t->at);
        if (t->has_head)
                t->head_tokens = t->at == PAGE_NONE ? 0 : page_end_token(t->ns, t->at);
}

/* Holds a page for the window. Returns false if it isn't held, because there will be no window. */
static bool hold_page(struct session_truncation *t, uint32_t page)
{
        t->window_token = MIN(t->window_token, page_first_token(t->ns, page));
        t->kept_end = MAX(t->kept_end, page_end_token(t->ns, page));
        if (!sessions_may_hold(t->ns, page))
                lose_window(t);
        if (t->is_lost)
                return false;
        ns_keep_page(t->ns, page);
        t->ns->sessions->n_room++;
        return true;
}

/* Steps over the page of the tree, to its parent. There is space to hold it. */
static void take_step(struct session_truncation *t)
{
        uint32_t page = t->at;
        bool stays = t->builds && page_stays(t, page);

        assert(!stays || t->first > 0);

        t->has_shorter_head = true;
        if (!stays)
                t->n_left++;
        else if (hold_page(t, page))
                t->pages[--t->first] = page;
        t->at = tree_parent(&t->ns->tree, page);
        look_for_head(t);
}

/* Steps over the next page of the window. There is space to hold it. */
static void take_window_step(struct session_truncation *t)
{
        uint32_t page = t->session->window.pages[t->n_seen];
        uint64_t first = page_first_token(t->ns, page);

        assert(t->past < t->room);

        if (first > t->seen_end && range_has_any(t, t->seen_end, first)) {
                detail_set(&t->why, -EINVAL,
                        "the tokens from %llu on, before %llu, were given up before: ranges may have none of them",
                        (unsigned long long)t->seen_end, (unsigned long long)first);
                leave_session(t, -EINVAL);
                return;
        }
        t->seen_end = page_end_token(t->ns, page);
        t->n_seen++;
        if (!page_stays(t, page))
                t->n_left++;
        else if (hold_page(t, page))
                t->pages[t->past++] = page;
}

/* Steps over a page if there is space to hold it; else ends the truncation. */
static void walk(struct session_truncation *t)
{
        int r = t->is_lost ? 0 : sessions_make_room(t->ns, 1, &t->why);

        if (!t->session)
                return; /* the session's own window was dropped for space */
        if (r < 0)
                leave_session(t, r);
        else if (t->n_seen < t->n_window)
                take_window_step(t);
        else
                take_step(t);
}

/* ---- done ------------------------------------------------------------------------------------ */

/* Makes the session end at `head` in the tree, and drops the pages beyond that. */
static void end_earlier(struct session *s, uint32_t head)
{
        uint32_t tail = session_tail(s);

        session_end_at(s, head);
        session_log_put(s);
        if (tail != PAGE_NONE)
                drop_text(s->ns, tail, head == PAGE_NONE ? 0 : ns_note(s->ns, head)->depth,
                        session_page_is_shared);
}

/* The held pages become the session's window. The old window becomes the held pages, to be
 * released; no page is before it any more. */
static void exchange_windows(struct session_truncation *t, struct session *s)
{
        struct session_window *w = &s->window;
        uint32_t *before = session_memory(s);
        uint32_t first = w->n_before, n_before = w->n, n = count_held(t);

        assert(w->n_shed == w->n_before);

        t->ns->sessions->n_room -= w->room;
        session_unlog_first(s, w->n);
        w->first += w->n;
        w->coming = NULL;
        w->n_coming = 0;
        w->pages = n > 0 ? t->pages + t->first : NULL;
        w->n_before = w->n_shed = n > 0 ? t->first : 0;
        w->n = w->room = n;
        if (n == 0)
                free(t->pages);
        t->pages = before;
        t->first = first;
        t->past = t->room = first + n_before;
        t->is_lost = true;
}

/* Takes the first n pages out of the window. */
static void shift_window(struct session *s, uint32_t n)
{
        uint64_t window_token = page_end_token(s->ns, s->window.pages[n - 1]);

        s->window.token = window_token;
        if (n == s->window.n)
                session_abandon_window(s);
        else
                session_leave_front(s, n);
}

/* Returns how many pages at the window's front end at this token or before. */
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

/* Does the session keep all its pages, and the end of its text? */
static bool nothing_leaves(const struct session_truncation *t)
{
        return t->n_left == 0 && (!t->session->is_truncated || t->keeps_end);
}

/* Gives the session its new gaps, or an earlier end. */
static void cut_text(struct session_truncation *t, struct session *s)
{
        if (t->has_shorter_head || !s->is_truncated)
                s->head_tokens = t->head_tokens;
        s->is_truncated = t->keeps_end || t->kept_end > 0;
        s->n_tokens = t->keeps_end ? t->text_end : t->kept_end > 0 ? t->kept_end : s->head_tokens;
        s->window.token = t->window_token;
        exchange_windows(t, s);
        if (t->has_shorter_head)
                end_earlier(s, t->at);
}

/* Extends the first gap of a session that has one. */
static void cut_more(struct session_truncation *t, struct session *s)
{
        uint64_t gap_end = t->keeps_end ? t->ranges[t->n_ranges - 1].first : t->end;
        uint32_t n = count_before(s, gap_end);

        if (n > 0)
                shift_window(s, n);
        if (t->has_shorter_head)
                s->head_tokens = t->head_tokens;
        if (!t->keeps_end) {
                s->is_truncated = false;
                s->n_tokens = s->head_tokens;
        }
        if (t->has_shorter_head)
                end_earlier(s, t->at);
        t->n_left += n;
}

/* Truncates the session. */
static void cut_session(struct session_truncation *t)
{
        struct session *s = t->session;

        s->told = SESSION_UNTOLD; /* in all records of this change */
        if (!t->builds)
                cut_more(t, s);
        else if (!nothing_leaves(t))
                cut_text(t, s);
        session_use(s, t->ns->store->now_nsec);
        session_log_put(s);
        session_tell(s->ns, s->id, s->id_len);
        leave_session(t, 0);
}

/* Gives back the space for pages that aren't held, if that is most of it: moving the others then
 * costs no more than the walk did. */
static void give_back_room(struct session_truncation *t)
{
        uint32_t n = count_held(t), *smaller;

        if (t->room - n <= n)
                return;
        memmove(t->pages, t->pages + t->first, n * sizeof(*t->pages));
        t->first = 0;
        t->past = t->room = n;
        smaller = realloc(t->pages, MAX(n, 1u) * sizeof(*t->pages));
        t->pages = smaller ? smaller : t->pages;
}

/* The walk is over. Does some of the work that must precede the change, or makes the change.
 * Returns the work done, in looks at pages. */
static uint64_t finish(struct session_truncation *t, uint64_t budget)
{
        struct session *s = t->session;

        if (!t->builds || nothing_leaves(t)) {
                cut_session(t);
                return 1;
        }
        if (s->window.n_before > s->window.n_shed) /* of an earlier window */
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

/* Does one step. Returns the work done, in looks at pages. */
static uint64_t do_some(struct session_truncation *t, uint64_t budget)
{
        if (t->is_lost && count_held(t) > 0)
                return let_go(t, budget);
        if (t->n_seen == t->n_window && t->has_head)
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

/* ---- ranges ---------------------------------------------------------------------------------- */

/* Are there ranges, in the right order? Returns 0; -EINVAL with the sentence. */
static int check_order(const struct token_range *ranges, uint32_t n, struct detail *d)
{
        if (n == 0)
                return detail_set(d, -EINVAL,
                        "there is no range, which keeps nothing: drop the session instead");
        if (n > TRUNCATION_RANGES_MAX)
                return detail_set(d, -EINVAL, "%u ranges are too many: 1 to %d are allowed", n,
                        TRUNCATION_RANGES_MAX);
        for (uint32_t i = 0; i < n; i++) {
                if (ranges[i].first >= ranges[i].end)
                        return detail_set(d, -EINVAL,
                                "range %u has no token: it begins at %llu, and ends before %llu", i,
                                (unsigned long long)ranges[i].first,
                                (unsigned long long)ranges[i].end);
                if (i > 0 && ranges[i].first < ranges[i - 1].end)
                        return detail_set(d, -EINVAL,
                                "range %u begins at token %llu, and the one before it ends before "
                                "%llu: they have to ascend, without a token in common",
                                i, (unsigned long long)ranges[i].first,
                                (unsigned long long)ranges[i - 1].end);
        }
        return 0;
}

/* Are the ranges within the session's text, and outside of its first gap? Only pages show the other
 * gaps. Returns 0; -EINVAL with the sentence. */
static int check_ranges(
        const struct session *s, const struct token_range *ranges, uint32_t n, struct detail *d)
{
        const struct token_range *last = &ranges[n - 1];

        if (last->first > s->n_tokens || (last->end > s->n_tokens && last->end != TOKEN_RANGE_END))
                return detail_set(d, -EINVAL,
                        "the last range begins at token %llu, and ends before %llu: the text has %llu",
                        (unsigned long long)last->first, (unsigned long long)last->end,
                        (unsigned long long)s->n_tokens);
        for (uint32_t i = 0; i < n && s->is_truncated; i++)
                if (ranges[i].first < s->window.token && ranges[i].end > s->head_tokens)
                        return detail_set(d, -EINVAL,
                                "the tokens from %llu on, before %llu, were given up before: range "
                                "%u, from %llu on, before %llu, may have none of them",
                                (unsigned long long)s->head_tokens,
                                (unsigned long long)s->window.token, i,
                                (unsigned long long)ranges[i].first,
                                (unsigned long long)ranges[i].end);
        return 0;
}

/* Copies the ranges, and joins adjacent ones. */
static void join_ranges(
        struct session_truncation *t, const struct token_range *ranges, uint32_t n_ranges)
{
        uint32_t n = 0;

        for (uint32_t i = 0; i < n_ranges; i++) {
                if (n > 0 && ranges[i].first <= t->ranges[n - 1].end)
                        t->ranges[n - 1].end = MAX(t->ranges[n - 1].end, ranges[i].end);
                else
                        t->ranges[n++] = ranges[i];
        }
        t->n_ranges = n;
}

/* ---- begin ----------------------------------------------------------------------------------- */

/* May another truncation begin in the namespace? */
static bool may_begin(const struct sessions *all)
{
        unsigned n = 0;

        list_for_each (t, &all->truncations, struct session_truncation, link)
                n++;
        return n < TRUNCATIONS_MAX;
}

/* May a truncation of this session begin? Returns 0; -EAGAIN with the sentence. */
static int check_begin(const struct session *s, struct detail *d)
{
        if (s->truncation)
                return detail_set(d, -EAGAIN,
                        "the session is being truncated: ask again when that is answered");
        if (!may_begin(s->ns->sessions))
                return detail_set(d, -EAGAIN,
                        "%d sessions of namespace %s are being truncated, the most there may be: ask again when some are answered",
                        TRUNCATIONS_MAX, s->ns->name);
        return 0;
}

/* Returns the end of the session's present pages, in tokens. */
static uint64_t present_end(const struct session *s)
{
        uint32_t tail = session_tail(s);

        if (s->is_truncated)
                return session_window_end(s);
        return tail == PAGE_NONE ? 0 : page_end_token(s->ns, tail);
}

/* Allocates memory for all pages that may be held; most may never be touched. Returns 0 or -ENOMEM.
 */
static int make_room(struct session_truncation *t)
{
        uint32_t n = t->has_head ? 0 : ns_note(t->ns, t->at)->depth;

        if (!t->builds || (t->n_ranges == 1 && t->ranges[0].first == 0 && t->n_window == 0))
                return 0; /* no page will be held */
        t->pages = malloc(MAX(n + t->n_window, 1u) * sizeof(*t->pages));
        if (!t->pages)
                return -ENOMEM;
        t->first = t->past = n;
        t->room = n + t->n_window;
        return 0;
}

/* Does what truncation_begin() does, with checked ranges. */
static int begin_ranges(struct session_truncation *t, struct session *s, bool builds,
        uint64_t text_end, const struct token_range *ranges, uint32_t n, struct detail *d)
{
        uint64_t end = present_end(s);

        *t = (struct session_truncation){.ns = s->ns,
                .session = s,
                .builds = builds,
                .keeps_end = ranges[n - 1].end >= end,
                .end = end,
                .text_end = text_end,
                .n_window = builds ? s->window.n : 0,
                .seen_end = s->window.token,
                .at = session_tail(s),
                .window_token = end};
        list_init(&t->link);
        task_init(&t->task);
        t->ranges = malloc(n * sizeof(*t->ranges));
        if (!t->ranges)
                return detail_set(d, -ENOMEM, "no memory for %u ranges of a session", n);
        join_ranges(t, ranges, n);
        look_for_head(t);
        if (make_room(t) < 0) {
                free(t->ranges);
                return detail_set(d, -ENOMEM, "no memory for the pages of a session");
        }
        s->truncation = t;
        list_append(&s->ns->sessions->truncations, &t->link);
        take_slice(t, s->ns->store->drop_slice_pages);
        return 0;
}

int truncation_begin(struct session_truncation *t, struct session *s,
        const struct token_range *ranges, uint32_t n, struct detail *d)
{
        int r = check_order(ranges, n, d);

        if (r == 0)
                r = check_begin(s, d);
        if (r == 0)
                r = check_ranges(s, ranges, n, d);
        return r < 0 ? r : begin_ranges(t, s, true, s->n_tokens, ranges, n, d);
}

/* With last_tokens 0 the text ends after the first ones. If the text has a gap already, the first
 * tokens are the head's and the last ones the window's, from which only first pages leave. */
int truncation_begin_ends(struct session_truncation *t, struct session *s, uint64_t first_tokens,
        uint64_t last_tokens, struct detail *d)
{
        uint64_t end = present_end(s);
        struct token_range ranges[2] = {{0, first_tokens}, {end - MIN(last_tokens, end), end}};
        int r;

        if (first_tokens == 0 && last_tokens == 0)
                return detail_set(d, -EINVAL,
                        "first_tokens and last_tokens are 0, which keeps nothing: drop the session instead");
        if (s->is_truncated && first_tokens > s->window.token)
                return detail_set(d, -EINVAL,
                        "first_tokens %llu is beyond the gap that the session has already, which ends at token %llu",
                        (unsigned long long)first_tokens, (unsigned long long)s->window.token);
        r = check_begin(s, d);
        if (r < 0)
                return r;
        if (s->is_truncated) {
                ranges[0].end = MIN(first_tokens, s->head_tokens);
                ranges[1].first = MAX(ranges[1].first, s->window.token);
        }
        return begin_ranges(t, s, !s->is_truncated, s->is_truncated ? s->n_tokens : end, ranges,
                last_tokens > 0 ? 2 : 1, d);
}

static bool work_truncation(struct task *c, uint64_t budget)
{
        struct session_truncation *t = container_of(c, struct session_truncation, task);

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
        task_init(&to->task);
        to->done = done;
        to->task.work = work_truncation;
        task_queue(&to->task, to->ns->tenant);
}

void truncation_cancel(struct session_truncation *t)
{
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
                why == -EAGAIN
                        ? "the session was published to while it was to be truncated, and isn't: ask again"
                        : "the session was dropped while it was to be truncated");
        leave_session(t, why);
}

void truncation_window_goes(struct session *s)
{
        struct session_truncation *t = s->truncation;

        if (!t || t->n_seen == t->n_window)
                return;
        detail_set(&t->why, -EAGAIN,
                "the session lost what it had after its gap while it was to be truncated, and isn't: ask again");
        leave_session(t, -EAGAIN);
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
                /* Without space, drops this truncation's window and no other: that would free pages
                 * while this page is about to be dropped. */
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
                task_remove(&t->task, ns->tenant);
                end_truncation(t);
                t->done(t);
        }
}

bool truncations_give_way(struct ns *ns, bool open)
{
        uint32_t most = ns->store->drop_slice_pages;

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

                for (uint32_t i = t->first; i < t->past; i++)
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
                if (!task_is_queued(&t->task))
                        return "a truncation that isn't over waits for no turn";
                if (t->session && (!session_is_live(t->session) || t->session->truncation != t))
                        return "a session is being truncated and doesn't know of it";
                if (t->at != PAGE_NONE && !tree_has(&ns->tree, t->at))
                        return "a truncation goes on at a page that isn't cached";
                for (uint32_t i = t->first; i < t->past; i++)
                        *n_held += t->pages[i] != PAGE_NONE;
                *n_room += t->is_lost ? 0 : count_held(t);
        }
        return NULL;
}
