/* Guesses the next pages of a stream, and the next turn of a session. */
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/clients/pin.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/sessions/session.h"
#include "daemon/core/reclaim/fetch.h"
#include "daemon/core/reclaim/prefetch-impl.h"

static uint32_t steps_of(const struct ns *ns)
{
        return ns->tenant->attrs.prefetch_steps;
}

/* ---- a client's position --------------------------------------------------------------------- */

enum where { ELSEWHERE, BEHIND, AHEAD };

static uint32_t depth_of(const struct ns *ns, uint32_t page)
{
        return ns_note(ns, page)->depth;
}

/* Does `page` continue `up`, `n` pages further on? */
static bool is_continued_by(const struct ns *ns, uint32_t page, uint32_t up, uint32_t n)
{
        for (; n > 0 && page != NODE_NONE; n--)
                page = tree_parent(&ns->tree, page);
        return page == up;
}

static bool is_reading(const struct reader *r, uint64_t now_nsec)
{
        return r->seen_nsec > 0 && now_nsec - MIN(now_nsec, r->seen_nsec) <= PREFETCH_STREAM_NSEC;
}

/* Returns the page's place relative to the reader: pages that it has passed, itself included, are
 * BEHIND. */
static enum where where_is(const struct ns *ns, const struct reader *r, uint32_t page)
{
        uint32_t at, from, to;

        if (!is_reading(r, ns->store->now_nsec))
                return ELSEWHERE;
        at = ns_find_page(ns, r->key);
        if (at == PAGE_NONE)
                return ELSEWHERE;
        from = depth_of(ns, at);
        to = depth_of(ns, page);
        if (to > from)
                return to - from <= PREFETCH_STRIDE && is_continued_by(ns, page, at, to - from)
                               ? AHEAD
                               : ELSEWHERE;
        return from - to <= PREFETCH_STRIDE && is_continued_by(ns, at, page, from - to) ? BEHIND
                                                                                        : ELSEWHERE;
}

/* Returns the reader in this text, or the one not seen for longest. */
static struct reader *find_reader(struct attach *a, uint32_t page, enum where *ret)
{
        struct reader *oldest = &a->readers->all[0];

        for (unsigned i = 0; i < PREFETCH_READERS; i++) {
                struct reader *r = &a->readers->all[i];

                *ret = where_is(a->ns, r, page);
                if (*ret != ELSEWHERE)
                        return r;
                if (r->seen_nsec < oldest->seen_nsec)
                        oldest = r;
        }
        return oldest;
}

static void set_due(struct ns *ns, struct reader *r, bool is_due)
{
        ns->prefetching->n_due += is_due;
        ns->prefetching->n_due -= r->is_due;
        r->is_due = is_due;
}

static void move_to(struct ns *ns, struct reader *r, uint32_t page)
{
        memcpy(r->key, ns_page(ns, page)->key, KEY_BYTES);
}

static void start_over(struct ns *ns, struct reader *r, uint32_t page)
{
        set_due(ns, r, false);
        *r = (struct reader){0};
        move_to(ns, r, page);
}

/* Moves the reader to `page`: by another lookup, or by the one that began it. */
static void move_reader(struct ns *ns, struct reader *r, uint32_t page, bool is_lookup)
{
        move_to(ns, r, page);
        r->is_streaming |= is_lookup;
        if (!r->is_streaming ||
                prefetch_steps(depth_of(ns, page) - 1, r->n_asked, UINT32_MAX, steps_of(ns)) == 0)
                return;
        set_due(ns, r, true);
        store_wake_transfers(ns->store);
}

/* Only a fetch begins a stream: pages on the device needn't be promoted. */
static void note_read(struct attach *a, uint32_t page, bool fetches, bool is_lookup)
{
        enum where where;
        struct reader *r = find_reader(a, page, &where);

        if (where == ELSEWHERE && !fetches)
                return;
        if (where == ELSEWHERE)
                start_over(a->ns, r, page);
        r->seen_nsec = MAX(a->ns->store->now_nsec, UINT64_C(1));
        if (where == AHEAD)
                move_reader(a->ns, r, page, is_lookup);
}

void prefetch_note_found(struct attach *a, uint32_t page)
{
        struct prefetching *p = a->ns->prefetching;
        uint32_t up = page;

        if (!p)
                return;
        for (uint32_t i = 0; i < EVICT_WALK_PAGES && up != NODE_NONE && p->pages.n_used > 0; i++) {
                prefetch_note_used(a->ns, up);
                up = tree_parent(&a->ns->tree, up);
        }
        if (a->readers)
                note_read(a, page, false, true);
}

void prefetch_note_fetch(struct attach *a, uint32_t page, bool copies)
{
        prefetch_note_used(a->ns, page);
        if (copies || steps_of(a->ns) == 0 || !prefetch_is_possible(a->ns) || !prefetch_get(a->ns))
                return;
        if (!a->readers)
                a->readers = calloc(1, sizeof(*a->readers));
        /* Pages of one lookup are fetched together. */
        if (a->readers)
                note_read(a, page, true, fetch_count(a) == 0);
}

void prefetch_forget(struct attach *a)
{
        for (unsigned i = 0; a->readers && i < PREFETCH_READERS; i++)
                if (a->ns->prefetching)
                        set_due(a->ns, &a->readers->all[i], false);
        free(a->readers);
        a->readers = NULL;
}

/* ---- a stream -------------------------------------------------------------------------------- */

/* Returns the next page of the text, if it is clear: the only one, or the one that the client has
 * pinned. */
static uint32_t next_of(const struct attach *a, uint32_t page)
{
        const struct tree *t = &a->ns->tree;
        uint32_t child = tree_first_child(t, page);

        if (child == NODE_NONE || tree_next_sibling(t, child) == NODE_NONE)
                return child;
        while (child != NODE_NONE && !pin_has(a, child))
                child = tree_next_sibling(t, child);
        return child;
}

/* Returns true if there is more to begin. */
static bool stream(struct attach *a, struct reader *r)
{
        struct ns *ns = a->ns;
        uint32_t at = ns_find_page(ns, r->key), last = at;
        enum bring b = BRING_DONE;

        if (at == PAGE_NONE || !is_reading(r, ns->store->now_nsec))
                return false;
        for (uint32_t i = 0, next; i < steps_of(ns); i++, last = next) {
                next = next_of(a, last);
                if (next == NODE_NONE)
                        break;
        }
        if (last != at)
                b = prefetch_bring(ns, PREFETCH_STREAM, last, at);
        if (b == BRING_DONE)
                r->n_asked = depth_of(ns, last);
        return b == BRING_MORE;
}

static bool stream_all(struct ns *ns)
{
        bool more = false;

        if (ns->prefetching->n_due == 0)
                return false;
        list_for_each (a, &ns->clients.attachments, struct attach, ns_link)
                for (unsigned i = 0; a->readers && i < PREFETCH_READERS; i++) {
                        struct reader *r = &a->readers->all[i];

                        if (r->is_due)
                                set_due(ns, r, stream(a, r));
                        more |= r->is_due;
                }
        return more;
}

static bool is_streamed(const struct ns *ns, uint64_t now_nsec)
{
        if (!ns->prefetching)
                return false;
        list_for_each (a, &ns->clients.attachments, struct attach, ns_link)
                for (unsigned i = 0; a->readers && i < PREFETCH_READERS; i++) {
                        const struct reader *r = &a->readers->all[i];

                        if (r->is_streaming && now_nsec <= r->seen_nsec + PREFETCH_POLL_NSEC)
                                return true;
                }
        return false;
}

bool prefetch_is_streaming(const struct store *s, uint64_t now_nsec)
{
        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        if (is_streamed(ns, now_nsec))
                                return true;
        return false;
}

/* ---- the next turn --------------------------------------------------------------------------- */

/* Is the session's next turn near? By its hint if that says so, else by learnt use of such texts.
 */
static bool is_expected(const struct ns *ns, const struct session *s, uint32_t tail)
{
        uint64_t now_nsec = ns->store->now_nsec, returns_nsec;
        enum evict_hint hint = session_hint_of(s, &returns_nsec);

        if (hint == EVICT_HINT_DONE)
                return false;
        if (hint == EVICT_HINT_RETURNS)
                return now_nsec + PREFETCH_TURN_NSEC >= returns_nsec &&
                       now_nsec <= returns_nsec + PREFETCH_TURN_NSEC;
        return ns->evict->chance &&
               prefetch_expects(ns->evict->chance(ns->policy, tail, PREFETCH_TURN_NSEC, now_nsec));
}

static bool is_listed(
        const uint8_t (*keys)[KEY_BYTES], uint32_t n_keys, const uint8_t key[KEY_BYTES])
{
        for (uint32_t i = 0; i < n_keys; i++)
                if (memcmp(keys[i], key, KEY_BYTES) == 0)
                        return true;
        return false;
}

/* Returns true if the session's pages are to be promoted. */
static bool look_at(struct ns *ns, const struct session *s)
{
        uint32_t tail = session_tail(s);
        struct prefetching *p = ns->prefetching;

        if (tail == PAGE_NONE || tier_of_page(&ns->geometry, tail) == TIER_DEVICE ||
                !is_expected(ns, s, tail))
                return false;
        p = prefetch_get(ns);
        if (!p || p->n_turns == PREFETCH_TURNS ||
                is_listed(p->turns, p->n_turns, ns_page(ns, tail)->key))
                return false;
        memcpy(p->turns[p->n_turns++], ns_page(ns, tail)->key, KEY_BYTES);
        return true;
}

/* Looks at the next sessions, up to the limit. Returns true if some are expected. */
static bool look_at_sessions(struct ns *ns)
{
        struct prefetching *p = prefetch_get(ns);
        bool any = false;

        for (unsigned i = 0; p && i < PREFETCH_LOOKED; i++) {
                const struct session *s = session_next(ns, p->session, &p->session);

                if (!s) {
                        p->session = 0;
                        break;
                }
                any |= look_at(ns, s);
        }
        return any;
}

/* Time between two looks while there are sessions, and if the last one found none. Not tuned. */
#define LOOK_NSEC      (1 * NSEC_PER_SEC)
#define LOOK_IDLE_NSEC (5 * NSEC_PER_SEC)

static bool has_lower_pages(const struct ns *ns)
{
        for (unsigned i = TIER_DEVICE + 1; i < TIER_COUNT; i++)
                if (ns->tiers[i].n_pages[PAGE_SEALED] > 0)
                        return true;
        return false;
}

static uint64_t look_for_guesses(struct ns *ns)
{
        uint64_t now_nsec = ns->store->now_nsec;
        bool any = false, others = prefetch_end_old(ns);

        if (steps_of(ns) > 0 && sessions_count(ns) > 0 && has_lower_pages(ns) &&
                prefetch_is_possible(ns)) {
                any = look_at_sessions(ns);
                others = true;
        }
        if (any || (ns->prefetching && ns->prefetching->session > 0))
                return now_nsec + LOOK_NSEC;
        return others ? now_nsec + LOOK_IDLE_NSEC : UINT64_MAX;
}

uint64_t prefetch_look(struct store *s, uint64_t now_nsec)
{
        uint64_t next_nsec = UINT64_MAX;
        bool any = false;

        store_set_now(s, now_nsec);
        if (!s->moving.mover || s->draining)
                return UINT64_MAX;
        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link) {
                        next_nsec = MIN(next_nsec, look_for_guesses(ns));
                        any |= ns->prefetching && ns->prefetching->n_turns > 0;
                }
        if (any)
                store_wake_transfers(s);
        return next_nsec;
}

/* ---- expected texts -------------------------------------------------------------------------- */

void prefetch_note_expected(struct ns *ns, uint32_t page)
{
        struct prefetching *p;

        if (tier_of_page(&ns->geometry, page) == TIER_DEVICE || steps_of(ns) == 0 ||
                !prefetch_is_possible(ns))
                return;
        p = prefetch_get(ns);
        if (!p || p->n_expected == PREFETCH_EXPECTED ||
                is_listed(p->expected, p->n_expected, ns_page(ns, page)->key))
                return;
        memcpy(p->expected[p->n_expected++], ns_page(ns, page)->key, KEY_BYTES);
        store_wake_transfers(ns->store);
}

/* ---- texts promoted as a whole --------------------------------------------------------------- */

/* Promotes pages of the texts that end at these keys. Texts with more to begin stay in the list. */
static bool bring_texts(
        struct ns *ns, enum prefetch_kind kind, uint8_t (*keys)[KEY_BYTES], uint32_t *n_keys)
{
        uint32_t n = 0;

        for (uint32_t i = 0; i < *n_keys; i++) {
                uint32_t page = ns_find_page(ns, keys[i]);

                if (page == PAGE_NONE || prefetch_bring(ns, kind, page, PAGE_NONE) != BRING_MORE)
                        continue;
                memmove(keys[n++], keys[i], KEY_BYTES);
        }
        *n_keys = n;
        return n > 0;
}

/* Begins with the most certain kind. */
bool prefetch_guess(struct ns *ns)
{
        struct prefetching *p = ns->prefetching;
        bool more = stream_all(ns);

        more |= bring_texts(ns, PREFETCH_EXPECT, p->expected, &p->n_expected);
        more |= bring_texts(ns, PREFETCH_TURN, p->turns, &p->n_turns);
        return more;
}
