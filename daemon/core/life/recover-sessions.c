#include "daemon/core/life/recover-sessions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/map.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/sessions/session-log.h"
#include "daemon/core/state/store.h"
#include "daemon/core/sessions/session.h"

/* The log's data about the session in a slot. */
struct replayed {
        bool is_there;
        struct session_put put; /* its last record */
        uint8_t id[SESSION_ID_MAX];
        uint32_t id_len;
        struct session_log_page *window; /* owned */
        uint32_t n_window, room;         /* pages in the window and behind it */
        uint64_t window_first;           /* place of the window's first page */
        uint64_t window_end; /* place of the first page that isn't part of the window yet */
};

/* A log that is read, and the sessions made from it. */
struct replay {
        struct ns *ns;
        struct replayed *slots; /* owned */
        uint32_t n_slots;
        struct map moved;    /* page -> the page at which its sessions end now; see word_of() */
        uint32_t n_sessions; /* made so far */
        bool is_damaged;
};

/* ---- the log's data -------------------------------------------------------------------------- */

/* Converts a page and its generation to a key or a value of a map, and back. */
static uint64_t word_of(struct session_log_page p)
{
        return (uint64_t)p.generation << 32 | p.page;
}

static struct session_log_page page_of(uint64_t word)
{
        return (struct session_log_page){(uint32_t)word, (uint32_t)(word >> 32)};
}

/* Returns the data of a slot; enlarges the array. NULL: no memory. */
static struct replayed *get_slot(struct replay *r, uint32_t slot)
{
        uint32_t n = MAX(r->n_slots, 64u);
        struct replayed *slots;

        if (slot < r->n_slots)
                return &r->slots[slot];
        while (n <= slot)
                n *= 2;
        slots = realloc(r->slots, n * sizeof(*slots));
        if (!slots)
                return NULL;
        memset(slots + r->n_slots, 0, (n - r->n_slots) * sizeof(*slots));
        r->slots = slots;
        r->n_slots = n;
        return &slots[slot];
}

/* The slot has no session (any more). */
static void forget_slot(struct replayed *s)
{
        free(s->window);
        *s = (struct replayed){0};
}

/* Takes the first n pages out of the window. */
static void shift_window(struct replayed *s, uint64_t n)
{
        n = MIN(n, (uint64_t)s->n_window);
        if (n == 0)
                return;
        s->n_window -= (uint32_t)n;
        memmove(s->window, s->window + n, s->n_window * sizeof(*s->window));
}

/* Keeps only the first n pages in the window. */
static void cut_window(struct replayed *s, uint64_t n)
{
        s->n_window = (uint32_t)MIN(n, (uint64_t)s->n_window);
}

/* Returns 0 or -ENOMEM. */
static int add_pages(struct replayed *s, const struct session_log_page *pages, uint32_t n)
{
        uint32_t room = s->room;
        struct session_log_page *window;

        if (n > room - s->n_window) {
                room = MAX(s->n_window + n, 2 * room);
                window = realloc(s->window, room * sizeof(*window));
                if (!window)
                        return -ENOMEM;
                s->window = window;
                s->room = room;
        }
        if (n > 0)
                memcpy(s->window + s->n_window, pages, n * sizeof(*pages));
        s->n_window += n;
        return 0;
}

/* Applies the record's changes of the window. Returns 0; -EBADMSG: it doesn't fit the earlier
 * records; -ENOMEM. */
static int replay_window(struct replayed *s, const struct session_put *p)
{
        uint64_t end;

        if (s->n_window == 0)
                s->window_first = p->window_first;
        end = s->window_first + s->n_window;
        if (p->window_first < s->window_first || p->pages_first < p->window_first ||
                p->pages_first > MAX(end, p->window_first))
                return -EBADMSG;
        cut_window(s, p->pages_first - s->window_first);
        shift_window(s, p->window_first - s->window_first);
        s->window_first = p->window_first;
        s->window_end =
                p->is_coming ? MIN(s->window_end, p->pages_first) : p->pages_first + p->n_pages;
        return add_pages(s, session_put_pages(p), p->n_pages);
}

/* Returns the number of pages in the window. */
static uint32_t count_window(const struct replayed *s)
{
        return s->window_end > s->window_first
                       ? (uint32_t)MIN(s->window_end - s->window_first, (uint64_t)s->n_window)
                       : 0;
}

/* Are the lengths in the record possible? */
static bool put_is_right(const struct replay *r, const struct session_put *p)
{
        uint64_t bytes = sizeof(*p);

        if (p->record.bytes < bytes || p->record.slot >= SESSIONS_MAX ||
                p->id_len > SESSION_ID_MAX || p->is_coming > 1 ||
                p->n_pages > r->ns->geometry.capacity_pages)
                return false;
        bytes += session_put_id_bytes(p->id_len) +
                 p->n_pages * (uint64_t)sizeof(struct session_log_page);
        return bytes == p->record.bytes;
}

static int replay_put(struct replay *r, const struct session_put *p)
{
        struct replayed *s = put_is_right(r, p) ? get_slot(r, p->record.slot) : NULL;

        if (!s)
                return put_is_right(r, p) ? -ENOMEM : -EBADMSG;
        if (p->id_len > 0) {
                forget_slot(s);
                s->is_there = true;
                s->id_len = p->id_len;
                memcpy(s->id, session_put_id(p), p->id_len);
        }
        if (!s->is_there)
                return -EBADMSG;
        s->put = *p;
        return replay_window(s, p);
}

static int replay_moved(struct replay *r, const struct session_moved *m)
{
        uint64_t from = word_of(m->from);

        if (m->record.bytes != sizeof(*m) || from == MAP_KEY_NONE)
                return -EBADMSG;
        return map_put(&r->moved, from, word_of(m->to));
}

static int replay_gone(struct replay *r, const struct session_record *record)
{
        if (record->bytes != sizeof(*record) || record->slot >= r->n_slots)
                return -EBADMSG;
        forget_slot(&r->slots[record->slot]);
        return 0;
}

static int replay_one(struct replay *r, const struct session_record *record)
{
        const void *what = record;

        switch (record->type) {
        case SESSION_RECORD_PUT:
                return replay_put(r, what);
        case SESSION_RECORD_MOVED:
                return replay_moved(r, what);
        case SESSION_RECORD_GONE:
                return replay_gone(r, record);
        default:
                return -EBADMSG;
        }
}

/* Reads the log up to its end, or to the first damaged record. Returns 0 or -ENOMEM. */
static int replay_all(struct replay *r)
{
        const struct session_record *record;
        uint64_t offset = 0;
        int code;

        while ((record = session_log_next(&r->ns->sessions->log, &offset, &r->is_damaged))) {
                code = replay_one(r, record);
                if (code == -ENOMEM)
                        return code;
                if (code < 0) {
                        r->is_damaged = true;
                        break;
                }
        }
        return 0;
}

/* ---- existing pages -------------------------------------------------------------------------- */

/* Returns the record of this page. NULL: it has another generation now. */
static const struct page *find_page(const struct ns *ns, struct session_log_page name)
{
        const struct page *p = ns_page(ns, name.page);

        return p && (uint32_t)p->generation == name.generation && !ns_page_is_stale(ns, p) ? p
                                                                                           : NULL;
}

static bool is_in_tree(const struct ns *ns, struct session_log_page name)
{
        const struct page *p = find_page(ns, name);

        return p && p->state == PAGE_SEALED && tree_has(&ns->tree, name.page);
}

/* Returns the page at which sessions that ended at this page end now. NULL: no record says so. */
static uint64_t *next_of(const struct replay *r, struct session_log_page name)
{
        return name.page == PAGE_NONE ? NULL : map_find(&r->moved, word_of(name));
}

/* Returns where sessions end that ended at this page: at the first page on the way that is in the
 * tree, because existing pages take precedence over the log. Every page on the way gets the answer,
 * so that all sessions together take no more steps than there are records. The number of steps is
 * bounded by that, too, in case the log has a cycle. */
static struct session_log_page find_end(const struct replay *r, struct session_log_page name)
{
        static const struct session_log_page nowhere = {PAGE_NONE, 0};
        struct session_log_page end = name;
        size_t n = 0;

        while (!is_in_tree(r->ns, end)) {
                const uint64_t *next = next_of(r, end);

                if (!next || n++ > r->moved.n_used) {
                        end = nowhere;
                        break;
                }
                end = page_of(*next);
        }
        for (; n > 0; n--) {
                uint64_t *next = next_of(r, name);

                if (!next)
                        break;
                name = page_of(*next);
                *next = word_of(end);
        }
        return end;
}

/* May this page follow in the window, after one that ends at end_token? */
static bool may_hold(const struct ns *ns, struct session_log_page name, uint64_t end_token)
{
        const struct page *p = find_page(ns, name);

        /* In a text that once exceeded 32 bits, positions restarted from 0: a page would end before
         * its own beginning. */
        return p && (p->state == PAGE_SEALED || p->state == PAGE_DETACHED) &&
               ns_page(ns, name.page)->end_token > end_token &&
               ns_page(ns, name.page)->end_token >= p->tokens;
}

/* Restores the session's window from the log, without pages at either end that were released before
 * the log said so. */
static void restore_window(struct replay *r, struct session *s, const struct replayed *from)
{
        struct ns *ns = r->ns;
        struct sessions *all = ns->sessions;
        uint32_t first = 0, n = 0, n_window = count_window(from);

        while (first < n_window && !may_hold(ns, from->window[first], 0))
                first++;
        if (first == n_window || !s->is_truncated ||
                !sessions_may_have_room(ns, all->n_room + n_window))
                return;
        s->window.pages = malloc((n_window - first) * sizeof(*s->window.pages));
        if (!s->window.pages)
                return; /* the window is lost, as if memory had been needed */
        s->window.room = n_window - first;
        all->n_room += s->window.room;
        s->window.token = ns_page(ns, from->window[first].page)->end_token -
                          (uint64_t)ns_page(ns, from->window[first].page)->tokens;
        for (uint64_t end = 0; n < s->window.room && may_hold(ns, from->window[first + n], end);
                n++) {
                s->window.pages[n] = from->window[first + n].page;
                end = ns_page(ns, s->window.pages[n])->end_token;
                ns_keep_page(ns, s->window.pages[n]);
        }
        s->window.n = n;
}

/* Limits a position from the log to the possible range. */
static uint64_t bound_tokens(uint64_t tokens)
{
        return MIN(tokens, (uint64_t)TEXT_TOKENS_MAX);
}

/* The text is at least as long as its existing pages. */
static void restore_tokens(struct session *s, const struct session_put *p)
{
        uint32_t tail = session_tail(s);
        uint64_t head = tail == PAGE_NONE ? 0 : ns_page(s->ns, tail)->end_token;

        s->head_tokens = s->is_truncated ? MAX(bound_tokens(p->head_tokens), head) : 0;
        s->n_tokens =
                MAX(bound_tokens(p->n_tokens), s->is_truncated ? session_window_end(s) : head);
}

/* An unknown hint counts as none; then other hosts count as not knowing the session. */
static void restore_hint(struct session *s, const struct session_put *p)
{
        uint8_t hint = p->hint & (uint8_t)~SESSION_PUT_TOLD;

        s->returns_nsec = p->returns_nsec;
        if (hint > EVICT_HINT_RETURNS)
                return;
        s->hint = (enum evict_hint)hint;
        s->told = p->hint & SESSION_PUT_TOLD ? SESSION_TOLD : SESSION_UNTOLD;
}

static void restore_session(struct replay *r, struct session *s, const struct replayed *from)
{
        const struct session_put *p = &from->put;
        struct session_log_page end = find_end(r, p->tail);
        uint64_t now_nsec = r->ns->store->now_nsec;

        s->used_nsec = MIN(p->used_nsec, now_nsec);
        s->expire_nsec = p->expire_nsec;
        restore_hint(s, p);
        s->is_truncated = p->is_truncated == 1;
        s->window.token = bound_tokens(p->window_token);
        session_end_at(s, end.page);
        restore_window(r, s, from);
        restore_tokens(s, p);
        if (s->hint != EVICT_HINT_UNKNOWN)
                session_pass_hint(s, now_nsec);
        r->n_sessions++;
}

/* Should the slot's session be restored? Not if an invalidation ended it: its epoch differs then.
 * The other conditions hold in every log that a daemon has written. */
static bool may_restore(const struct ns *ns, const struct replayed *s)
{
        return s->is_there && s->put.epoch == ns->epoch && ns->sessions->n_live < SESSIONS_MAX &&
               !session_find(ns, s->id, s->id_len);
}

static int compare_use(const void *a, const void *b)
{
        const struct session *const *x = a, *const *y = b;

        return ((*x)->used_nsec > (*y)->used_nsec) - ((*x)->used_nsec < (*y)->used_nsec);
}

/* Puts windows into the list in the order of dropping, the least recently used first. Returns 0 or
 * -ENOMEM. */
static int link_windows(struct sessions *all)
{
        struct session **order = malloc(MAX(all->n_slots, 1u) * sizeof(struct session *));
        size_t n = 0;

        if (!order)
                return -ENOMEM;
        for (uint32_t i = 0; i < all->n_slots; i++)
                if (all->slots[i].session && all->slots[i].session->window.n > 0)
                        order[n++] = all->slots[i].session;
        qsort(order, n, sizeof(struct session *), compare_use);
        for (size_t i = 0; i < n; i++)
                list_append(&all->windows[false], &order[i]->window.link);
        free(order);
        return 0;
}

/* Returns 0 or -ENOMEM. */
static int restore_all(struct replay *r)
{
        struct ns *ns = r->ns;

        for (uint32_t i = 0; i < r->n_slots; i++) {
                const struct replayed *from = &r->slots[i];
                struct session *s;

                if (!may_restore(ns, from))
                        continue;
                s = session_make(ns, from->id, from->id_len);
                if (!s)
                        return -ENOMEM;
                restore_session(r, s, from);
        }
        return link_windows(ns->sessions);
}

/* Returns 0 with *found; -ENOMEM: some sessions may exist. */
static int recover_from_log(struct ns *ns, struct sessions_recovered *found)
{
        struct replay r = {.ns = ns};
        int code;

        map_init(&r.moved);
        code = replay_all(&r);
        if (code == 0)
                code = restore_all(&r);
        for (uint32_t i = 0; i < r.n_slots; i++)
                forget_slot(&r.slots[i]);
        free(r.slots);
        map_deinit(&r.moved);
        *found = (struct sessions_recovered){true, r.is_damaged, r.n_sessions};
        return code;
}

/* Removes all references of pages to sessions, without memory to restore them all. Frees no page:
 * other holds aren't known yet. */
static void forget_all(struct sessions *all)
{
        for (uint32_t i = 0; i < all->n_slots; i++) {
                struct session *s = all->slots[i].session;

                if (!s)
                        continue;
                session_end_at(s, PAGE_NONE);
                for (uint32_t j = 0; j < s->window.n; j++)
                        ns_make_extra(s->ns, s->window.pages[j])->n_windows--;
        }
}

/* The log is unusable: drops its descriptor. */
static void drop_log(struct ns *ns)
{
        keep_drop(&ns->store->keep, KEEP_SESSIONS, ns->records.number);
        sessions_free(ns);
}

struct sessions_recovered sessions_recover(struct ns *ns)
{
        struct sessions_recovered nothing = {0}, found;
        const struct keep *k = &ns->store->keep;
        int fd = keep_is_on(k) ? k->ops->take(k->data, KEEP_SESSIONS, ns->records.number) : -ENOENT;

        if (fd < 0)
                return nothing;
        if (!sessions_get(ns) || session_log_map(ns, fd) < 0) {
                fd_close(fd);
                drop_log(ns);
                return nothing;
        }
        if (recover_from_log(ns, &found) == 0) {
                session_log_rewrite(ns);
                return found;
        }
        forget_all(ns->sessions);
        drop_log(ns);
        return nothing;
}
