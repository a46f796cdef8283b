#include "daemon/core/reclaim/prefetch.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/clients/pin.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/moves/transfer.h"
#include "daemon/core/reclaim/demote.h"
#include "daemon/core/reclaim/fetch.h"
#include "daemon/core/reclaim/room.h"
#include "daemon/core/reclaim/warm.h"
#include "daemon/core/sessions/session.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"

bool prefetch_is_possible(const struct ns *ns)
{
        if (!ns->store->moving.mover)
                return false;
        for (unsigned i = TIER_DEVICE + 1; i < TIER_COUNT; i++)
                if (ns->tiers[i].pool)
                        return true;
        return false;
}

struct prefetching *prefetch_get(struct ns *ns)
{
        struct prefetching *p = ns->prefetching;

        if (p)
                return p;
        p = calloc(1, sizeof(*p));
        if (!p)
                return NULL;
        for (unsigned i = 0; i < PREFETCH_KINDS; i++)
                prefetch_init(&p->kinds[i], i);
        map_init(&p->pages);
        ns->prefetching = p;
        return p;
}

const struct prefetch *prefetch_of(const struct ns *ns, enum prefetch_kind kind)
{
        return ns->prefetching ? &ns->prefetching->kinds[kind] : NULL;
}

/* ---- at stake -------------------------------------------------------------------------------- */

struct stake_of_page {
        enum prefetch_kind kind;
        bool is_coming;
        uint32_t begun_sec;
};

static uint64_t pack_stake(const struct stake_of_page *s)
{
        return (uint64_t)s->begun_sec << 8 | (uint64_t)s->is_coming << 7 | s->kind;
}

static struct stake_of_page unpack_stake(uint64_t value)
{
        return (struct stake_of_page){.kind = value & 0x7f,
                .is_coming = value >> 7 & 1,
                .begun_sec = (uint32_t)(value >> 8)};
}

/* The map has space for it. */
static void put_stake(struct ns *ns, uint32_t page, const struct stake_of_page *s)
{
        int r = map_put(&ns->prefetching->pages, page, pack_stake(s));

        assert(r == 0);
        (void)r;
        ns->prefetching->n_coming[s->kind] += s->is_coming;
        ns->store->fetching.n_prefetching += s->is_coming;
}

/* Returns false if the page isn't at stake. */
static bool take_stake(struct ns *ns, uint32_t page, struct stake_of_page *ret)
{
        struct prefetching *p = ns->prefetching;
        const uint64_t *value = p ? map_find(&p->pages, page) : NULL;

        *ret = unpack_stake(value ? *value : 0);
        if (!value)
                return false;
        map_remove(&p->pages, page);
        p->n_coming[ret->kind] -= ret->is_coming;
        ns->store->fetching.n_prefetching -= ret->is_coming;
        return true;
}

static bool is_on_device(const struct ns *ns, uint32_t page)
{
        return tier_of_page(&ns->geometry, page) == TIER_DEVICE;
}

void prefetch_note_used(struct ns *ns, uint32_t page)
{
        struct stake_of_page s;

        if (take_stake(ns, page, &s))
                prefetch_useful(&ns->prefetching->kinds[s.kind]);
}

void prefetch_note_moved(struct ns *ns, uint32_t page, uint32_t to)
{
        struct stake_of_page s;

        if (!take_stake(ns, page, &s))
                return;
        if (is_on_device(ns, page) && !is_on_device(ns, to)) {
                prefetch_wasted(&ns->prefetching->kinds[s.kind], ns->store->now_nsec);
                return;
        }
        if (s.is_coming && is_on_device(ns, to)) {
                s.is_coming = false;
                if (s.kind == PREFETCH_WARM)
                        warm_note_came(ns);
        }
        put_stake(ns, to, &s);
}

void prefetch_note_gone(struct ns *ns, uint32_t page, struct drop_reason reason)
{
        bool is_old = reason.cause == CAUSE_EXPIRED;
        struct stake_of_page s;

        if (!take_stake(ns, page, &s))
                return;
        if (!s.is_coming && (reason.why == EVICT_PRESSURE || is_old))
                prefetch_wasted(&ns->prefetching->kinds[s.kind], ns->store->now_nsec);
        else
                prefetch_give_up(&ns->prefetching->kinds[s.kind]);
}

void prefetch_note_failed(struct ns *ns, uint32_t page)
{
        struct stake_of_page s;

        if (take_stake(ns, page, &s))
                prefetch_give_up(&ns->prefetching->kinds[s.kind]);
}

void prefetch_reset(struct ns *ns)
{
        struct prefetching *p = ns->prefetching;
        struct map_slot slot;

        if (!p)
                return;
        for (size_t iter = 0; map_next(&p->pages, &iter, &slot); iter = 0)
                prefetch_note_failed(ns, (uint32_t)slot.key);
        p->n_turns = p->n_expected = 0;
}

void prefetch_free(struct ns *ns)
{
        struct prefetching *p = ns->prefetching;

        if (!p)
                return;
        prefetch_reset(ns);
        warm_free(ns);
        map_deinit(&p->pages);
        free(p);
        ns->prefetching = NULL;
}

/* Returns a guess that was wrong for too long, or PAGE_NONE. */
static uint32_t find_old(const struct ns *ns, uint32_t now_sec)
{
        const struct prefetching *p = ns->prefetching;
        struct map_slot slot;

        for (size_t iter = 0; map_next(&p->pages, &iter, &slot);) {
                struct stake_of_page s = unpack_stake(slot.value);

                if (s.kind != PREFETCH_WARM && !s.is_coming &&
                        now_sec - s.begun_sec >= PREFETCH_STAKE_SEC)
                        return (uint32_t)slot.key;
        }
        return PAGE_NONE;
}

/* Ends guesses that weren't used for too long: they were wrong. Returns true if others are left. */
static bool prefetch_end_old(struct ns *ns)
{
        struct prefetching *p = ns->prefetching;
        struct stake_of_page s;
        uint32_t page;

        if (!p)
                return false;
        while ((page = find_old(ns, store_now_sec(ns->store))) != PAGE_NONE) {
                (void)take_stake(ns, page, &s);
                prefetch_wasted(&p->kinds[s.kind], ns->store->now_nsec);
        }
        return p->kinds[PREFETCH_STREAM].n_stake + p->kinds[PREFETCH_TURN].n_stake +
                       p->kinds[PREFETCH_EXPECT].n_stake >
               0;
}

/* ---- a place --------------------------------------------------------------------------------- */

/* Returns the FREE pages that are left to leases. */
static uint64_t kept_free(const struct ns *ns)
{
        return ns->waits.n_wanted + (room_leaves_another(ns) ? 0 : demote_n_kept(ns));
}

static bool has_spare(const struct ns *ns)
{
        return ns_n_room(ns) > kept_free(ns);
}

static enum demote_for demote_reason(enum prefetch_kind kind)
{
        if (kind == PREFETCH_EXPECT)
                return DEMOTE_FOR_EXPECTED;
        return kind == PREFETCH_STREAM ? DEMOTE_FOR_READER : DEMOTE_FOR_GUESS;
}

/* Demotes pages of less value than the text that ends at `end`, to make space for n pages of it.
 * Returns -EAGAIN: some are being demoted; -ENOSPC. */
static int make_room(struct ns *ns, enum prefetch_kind kind, uint32_t end, uint32_t n)
{
        uint64_t kept = kept_free(ns);
        uint64_t coming = ns_n_room(ns) + transfer_count(ns, TRANSFER_DOWN);

        while (coming < kept + n && demote_swaps(ns, end, demote_reason(kind)))
                coming = ns_n_room(ns) + transfer_count(ns, TRANSFER_DOWN);
        return coming > kept ? -EAGAIN : -ENOSPC;
}

/* Takes a FREE page of the device that no lease needs, MOVING. Returns 0; -EAGAIN: one will be
 * FREE; -ENOSPC. */
static int take_place(
        struct ns *ns, enum prefetch_kind kind, uint32_t end, uint32_t n, uint32_t *ret_page)
{
        struct extent_set *set;

        if (ns->waits.n_queued > 0 || ns->store->draining)
                return -ENOSPC;
        if (!has_spare(ns) && room_leaves_another(ns))
                (void)set_bind(ns, NULL, &set, NULL);
        if (!has_spare(ns) && ns->device.n_preparing > 0)
                return -EAGAIN;
        if (!has_spare(ns))
                return make_room(ns, kind, end, n);
        set = list_first(&ns->device.sets_room, struct extent_set, room_link);
        *ret_page = set_take_page(set, &(struct page_use){.state = PAGE_MOVING});
        return 0;
}

/* ---- a page ---------------------------------------------------------------------------------- */

static bool may_begin(const struct ns *ns)
{
        const struct prefetching *p = ns->prefetching;
        uint32_t n = 0;

        for (unsigned i = 0; i < PREFETCH_KINDS; i++)
                n += p->n_coming[i];
        return n < PREFETCHES_MAX / 2 && ns->store->fetching.n_prefetching < PREFETCHES_MAX;
}

/* n: pages to promote of the text that ends at `end`, this one included. BRING_DONE: it is under
 * way. */
static enum bring begin_bringing(
        struct ns *ns, enum prefetch_kind kind, uint32_t page, uint32_t end, uint32_t n)
{
        struct prefetching *p = ns->prefetching;
        struct store *s = ns->store;
        struct stake_of_page stake = {kind, true, store_now_sec(s)};
        uint32_t to;
        int r;

        if (transfer_find(ns, page))
                return BRING_DONE;
        if (ns_extra(ns, page)->n_windows > 0)
                return BRING_STUCK;
        if (!may_begin(ns))
                return BRING_MORE;
        if (prefetch_may(&p->kinds[kind], 1, s->now_nsec) == 0)
                return BRING_LATER;
        if (map_reserve(&p->pages, 1) < 0)
                return BRING_STUCK;
        r = take_place(ns, kind, end, n, &to);
        if (r < 0)
                return r == -EAGAIN ? BRING_MORE : BRING_FULL;
        r = transfer_begin(ns, TRANSFER_UP, page, to, false);
        if (r < 0) {
                ns_free_page(ns, to);
                return r == -EBUSY ? BRING_MORE : BRING_STUCK;
        }
        prefetch_begin(&p->kinds[kind], 1, s->now_nsec);
        put_stake(ns, page, &stake);
        return BRING_DONE;
}

/* Finds the first pages of the text behind `after` that are in lower tiers, in order. Returns their
 * number. */
static uint32_t find_lower(
        const struct ns *ns, uint32_t page, uint32_t after, uint32_t ret[PREFETCHES_MAX])
{
        uint32_t last[PREFETCHES_MAX] = {0}, n = 0, n_kept;

        for (uint32_t i = 0; page != PAGE_NONE && page != after && i < EVICT_WALK_PAGES; i++) {
                if (!is_on_device(ns, page))
                        last[n++ % PREFETCHES_MAX] = page;
                else if (n > 0) /* pages before it are on the device, too */
                        break;
                page = tree_parent(&ns->tree, page);
        }
        n_kept = MIN(n, (uint32_t)PREFETCHES_MAX);
        for (uint32_t i = 0; i < n_kept; i++)
                ret[i] = last[(n - 1 - i) % PREFETCHES_MAX];
        return n_kept;
}

enum bring prefetch_bring(struct ns *ns, enum prefetch_kind kind, uint32_t page, uint32_t after)
{
        uint32_t pages[PREFETCHES_MAX], n = find_lower(ns, page, after, pages);
        enum bring b = BRING_DONE;

        for (uint32_t i = 0; i < n && b == BRING_DONE; i++)
                b = begin_bringing(ns, kind, pages[i], page, n - i);
        return b == BRING_DONE && n == PREFETCHES_MAX ? BRING_MORE : b;
}

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

/* Begins to promote pages of expected texts. Returns true if there is more. */
/* Begins with the most certain kind. */
static bool prefetch_guess(struct ns *ns)
{
        struct prefetching *p = ns->prefetching;
        bool more = stream_all(ns);

        more |= bring_texts(ns, PREFETCH_EXPECT, p->expected, &p->n_expected);
        more |= bring_texts(ns, PREFETCH_TURN, p->turns, &p->n_turns);
        return more;
}

/* ---- turns ----------------------------------------------------------------------------------- */

bool prefetch_work(struct store *s, uint64_t now_nsec)
{
        bool more = false;

        store_set_now(s, now_nsec);
        if (!s->moving.mover || s->draining)
                return false;
        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link) {
                        if (!ns->prefetching)
                                continue;
                        more |= prefetch_guess(ns);
                        more |= warm_work(ns);
                }
        return more;
}

/* ---- the checker ----------------------------------------------------------------------------- */

static const char *check_page(const struct ns *ns, uint32_t page, const struct stake_of_page *s)
{
        const struct page *p = ns_page(ns, page);
        const struct transfer *t;

        if (!p || p->state != PAGE_SEALED || ns_page_is_stale(ns, p))
                return "a page is at stake that isn't cached";
        if (s->kind >= PREFETCH_KINDS)
                return "a page is at stake for no kind of guess";
        if (s->is_coming == is_on_device(ns, page))
                return "a page at stake is in another tier than it should be";
        t = transfer_find(ns, page);
        if (s->is_coming && (!t || t->kind != TRANSFER_UP))
                return "a page at stake should be on its way, and isn't";
        return NULL;
}

const char *prefetch_check(const struct ns *ns)
{
        const struct prefetching *p = ns->prefetching;
        uint64_t n[PREFETCH_KINDS] = {0}, n_coming[PREFETCH_KINDS] = {0};
        const char *why = NULL;
        struct map_slot slot;

        for (size_t iter = 0; p && !why && map_next(&p->pages, &iter, &slot);) {
                struct stake_of_page s = unpack_stake(slot.value);

                why = check_page(ns, (uint32_t)slot.key, &s);
                if (why)
                        return why;
                n[s.kind]++;
                n_coming[s.kind] += s.is_coming;
        }
        for (unsigned i = 0; p && i < PREFETCH_KINDS; i++) {
                const struct prefetch *k = &p->kinds[i];

                if (n[i] != k->n_stake || n_coming[i] != p->n_coming[i])
                        return "pages at stake are counted wrong";
                if (k->n_begun != k->n_useful + k->n_wasted + k->n_given_up + k->n_stake)
                        return "pages brought up ahead are lost from the account";
        }
        return NULL;
}
