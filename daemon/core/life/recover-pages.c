#include "daemon/core/life/recover-pages.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/fault-point.h"
#include "base/thread.h"
#include "daemon/core/cache/nsset.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/cache/tag.h"
#include "daemon/core/cache/announced.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/records.h"
#include "daemon/core/state/shared.h"

/* Pages to prefetch ahead: a recovery mostly waits for memory. Not tuned. */
#define AHEAD 16u

/* Pages that a thread examines at a time: some 0.2 ms. Not tuned. */
#define PIECE_PAGES 2048u

/* The criteria by which pages are sorted. */
enum order { BY_DEPTH, BY_AGE, N_ORDERS };

/* A page that was found SEALED, of this epoch. */
struct candidate {
        uint32_t page;
        uint32_t order[N_ORDERS]; /* placed.depth; UINT32_MAX - page_note.used_sec */
};

/* The data about a page for index, tree and policy, gathered while its record is read. There are
 * very many pages, and their records are shared memory in small pages. A random access to a record
 * takes a page walk for its address first, which takes longer than all else. Threads examine the
 * pages; all else is done in the caller's. */
struct placed {
        uint64_t id;     /* of its key, for the policy */
        uint32_t parent; /* PAGE_NONE: begins a text */
        uint32_t depth;  /* pages up to its end; 0: no candidate (any more) */
        uint32_t mark;   /* in the tree: the deepest marked page up to it (policy/ancestors.h);
                            PAGE_NONE */
        uint16_t tokens;
        uint8_t is_whole : 1; /* published, and its record is consistent */
        uint8_t has_line : 1; /* is_whole, SEALED, and its line shows that */
        uint8_t has_slot : 1; /* a candidate that has a slot, and no other page has its key */
};
static_assert(sizeof(struct placed) == 24, "there are as many as pages");

struct rebuild {
        struct ns *ns;
        struct recovery *r;
        struct candidate *pages; /* owned; first in descending order of page numbers in each set */
        struct candidate *other; /* owned; as large; for sort_candidates() */
        uint32_t n_pages;
        uint32_t n_slotless;   /* of them, the number without a slot of their own */
        uint32_t n_gone;       /* of them, dropped since */
        struct placed *placed; /* owned; by page */
        uint32_t least[N_ORDERS], most[N_ORDERS]; /* of the candidates */
        bool had_tags;
        bool had_sessions; /* sessions ended at a page, or held it */
};

/* ---- single pages ---------------------------------------------------------------------------- */

static bool is_zero(const struct page_note *note)
{
        uint64_t words[sizeof(*note) / sizeof(uint64_t)], sum = 0;

        memcpy(words, note, sizeof(words));
        for (size_t i = 0; i < ARRAY_SIZE(words); i++)
                sum |= words[i];
        return sum == 0;
}

/* Clears fields that are derived from other pages, clients, or segments. */
static void forget_derived(struct ns *ns, uint32_t page)
{
        struct page *p = ns_page(ns, page);
        struct page_extra *extra;

        p->n_pins = 0; /* or prev: lists of FREE and GRANTED pages are rebuilt */
        p->next = PAGE_NONE;
        p->mark = p->ready = p->reported = p->watched = p->given_back = p->announced = 0;
        if (!ns_note(ns, page)->has_extra)
                return;
        extra = ns_make_extra(ns, page);
        extra->tag_prev = extra->tag_next = 0;
        extra->tails = extra->n_windows = 0;
}

static void wipe_page(struct page *p, struct page_note *note)
{
        memset(p->key, 0, sizeof(p->key));
        p->tokens = 0;
        p->end_token = 0;
        p->owner = 0;
        p->unindexed = 0;
        if (!is_zero(note))
                *note = (struct page_note){0};
}

static void keep_granted(struct page *p, struct page_note *note)
{
        uint64_t client = note->client;
        uint32_t owner = p->owner, seq = note->seq;

        wipe_page(p, note);
        p->owner = owner;
        note->client = client;
        note->seq = seq;
}

/* Is the published page consistent, as far as its record tells? */
static bool holds(const struct ns *ns, uint32_t page)
{
        const struct page *p = ns_page(ns, page);
        const struct page_note *note = ns_note(ns, page);

        return p->tokens > 0 && p->tokens <= ns->layout.page_tokens && note->depth > 0 &&
               (note->place.parent == PAGE_NONE) == (note->depth == 1) &&
               records_page_holds(ns, page);
}

/* Makes a page that can't be found any more DETACHED; clients may continue to read it. */
static void keep_detached(struct ns *ns, uint32_t page, bool is_whole)
{
        struct page *p = ns_page(ns, page);

        p->unindexed &= is_whole;
        tag_store(ns, page, 0);
        if (p->state != PAGE_DETACHED)
                page_turn(p, p->generation, PAGE_DETACHED);
}

static void add_candidate(struct rebuild *b, uint32_t page, const struct page_note *note)
{
        struct candidate *c = &b->pages[b->n_pages++];

        *c = (struct candidate){.page = page,
                .order = {[BY_DEPTH] = note->depth, [BY_AGE] = UINT32_MAX - note->used_sec}};
        if (!b->placed[page].has_slot)
                b->other[b->n_slotless++] = *c;
        for (unsigned i = 0; i < N_ORDERS; i++) {
                b->least[i] = MIN(b->least[i], c->order[i]);
                b->most[i] = MAX(b->most[i], c->order[i]);
        }
        b->placed[page].depth = note->depth;
}

/* Notes the facts of a page's record that recover_page() needs. Changes nothing else. Returns the
 * hash of the key for the index if the page may have a slot; 0 otherwise. */
static uint64_t examine_page(const struct rebuild *b, uint32_t page)
{
        const struct ns *ns = b->ns;
        const struct page *p = ns_page(ns, page);

        if ((p->state != PAGE_SEALED && p->state != PAGE_DETACHED) || !holds(ns, page))
                return 0;
        b->placed[page] = (struct placed){.id = store_hash_key(ns->store, p->key),
                .parent = ns_note(ns, page)->place.parent,
                .tokens = p->tokens,
                .is_whole = true,
                .has_line = p->state == PAGE_SEALED && shared_has_line(ns, page)};
        return p->state == PAGE_SEALED ? shared_hash(&ns->shared, p->key) : 0;
}

/* Notes which of n pages from `first` on have slots. hashes: of their keys; 0: has none. */
static void examine_slots(
        const struct rebuild *b, uint32_t first, const uint64_t *hashes, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++) {
                if (i + AHEAD < n && hashes[i + AHEAD] != 0)
                        shared_prefetch(&b->ns->shared, hashes[i + AHEAD]);
                if (hashes[i] != 0)
                        b->placed[first + i].has_slot =
                                shared_has_slot(b->ns, hashes[i], first + i);
        }
}

/* Examines PIECE_PAGES pages. */
static void examine_pages(const struct rebuild *b, uint32_t first)
{
        const struct ns *ns = b->ns;
        uint32_t page = first, set_pages = ns->geometry.set_pages;
        uint32_t end = MIN(first + PIECE_PAGES, ns->geometry.capacity_pages);
        uint64_t hashes[PIECE_PAGES] = {0};

        while (page < end) {
                uint32_t number = ns_set_number(ns, page);
                uint32_t until = MIN((number + 1) * set_pages, end);

                for (; ns->sets.at[number] && page < until; page++)
                        hashes[page - first] = examine_page(b, page);
                page = until;
        }
        examine_slots(b, first, hashes, end - first);
}

/* The first piece is the number of slots, the others are the pages. */
static void examine_piece(void *data, uint32_t piece)
{
        const struct rebuild *b = data;

        if (piece == 0)
                (void)shared_count_slots(b->ns);
        else
                examine_pages(b, (piece - 1) * PIECE_PAGES);
}

/* Recovers a page, except a page 0 that is never granted. */
static void recover_page(struct rebuild *b, uint32_t page)
{
        struct ns *ns = b->ns;
        struct page *p = ns_page(ns, page);
        struct page_note *note = ns_note(ns, page);
        bool is_whole = b->placed[page].is_whole;

        switch ((enum page_state)p->state) {
        case PAGE_MOVING:
                page_turn(p, p->generation, PAGE_FREE);
                wipe_page(p, note);
                return;
        case PAGE_FREE:
                wipe_page(p, note);
                return;
        case PAGE_GRANTED:
                b->r->n_granted++;
                keep_granted(p, note);
                return;
        case PAGE_SEALED:
        case PAGE_DETACHED:
                break;
        default: /* no such state: clients that map it may be reading */
                memset(p->key, 0, sizeof(p->key));
        }
        b->r->n_dropped[DROP_CHECKSUM] += !is_whole && p->state != PAGE_DETACHED;
        if (!is_whole || p->state != PAGE_SEALED) {
                keep_detached(ns, page, is_whole);
                return;
        }
        p->unindexed = 0;
        if (ns_page_is_stale(ns, p)) {
                tag_store(ns, page, 0);
                ns->catalog.n_stale++;
                return;
        }
        p->published_sec = MIN(p->published_sec, store_now_sec(ns->store));
        note->used_sec = MIN(note->used_sec, store_now_sec(ns->store));
        b->had_tags |= ns_extra(ns, page)->tag != 0;
        add_candidate(b, page, note);
}

/* Doesn't reuse a generation that clients have seen. */
static void raise_generation(struct ns *ns, uint32_t page)
{
        struct page *p = ns_page(ns, page);
        uint64_t line =
                atomic_load_explicit(&ns->shared.lines[page].state, memory_order_relaxed) >> 8;

        if ((p->state == PAGE_FREE || p->state == PAGE_GRANTED) && line > p->generation)
                page_turn(p, line, p->state);
}

static void recover_set(struct rebuild *b, struct extent_set *set)
{
        struct ns *ns = b->ns;
        uint32_t n = ns->geometry.set_pages, first = set->index * n;

        for (uint32_t i = n; i-- > 0;) {
                struct page *p = &set->pages[i];
                const struct page_extra *extra = ns_extra(ns, first + i);
                bool was_announced = p->announced, is_fixed;

                b->had_sessions |= extra->tails > 0 || extra->n_windows > 0;
                forget_derived(ns, first + i);
                if (i < n - set->n_usable) {
                        page_turn(p, 0, PAGE_NULL);
                        wipe_page(p, ns_note(ns, first + i));
                } else {
                        recover_page(b, first + i);
                        raise_generation(ns, first + i);
                }
                set->tier->n_pages[p->state]++;
                is_fixed = !b->placed[first + i].has_line && shared_correct_line(ns, first + i);
                b->r->n_slots_fixed += is_fixed;
                if (is_fixed || was_announced)
                        wake_waiters(ns, first + i);
                if (p->state != PAGE_FREE)
                        continue;
                set_list_page(set, first + i);
        }
        set_adopted(set);
}

static void recover_sets(struct rebuild *b)
{
        uint32_t n = b->ns->geometry.capacity_pages;

        spread(1 + n / PIECE_PAGES + (n % PIECE_PAGES > 0), examine_piece, b);
        ns_for_each_set (set, b->ns)
                recover_set(b, set);
}

/* ---- the index ------------------------------------------------------------------------------- */

/* Drops a candidate that has no slot and is in no tree. */
static void drop_candidate(struct rebuild *b, uint32_t page, enum recover_drop why)
{
        b->placed[page].depth = 0;
        b->n_gone++;
        tag_store(b->ns, page, 0);
        ns_page(b->ns, page)->unindexed = why == DROP_INDEX;
        ns_set_state(b->ns, page, PAGE_DETACHED);
        b->r->n_dropped[why]++;
}

/* Returns true if it has a slot. */
static bool find_slot(struct rebuild *b, uint32_t page)
{
        uint64_t hash = shared_hash(&b->ns->shared, ns_page(b->ns, page)->key);
        uint32_t other;

        switch (shared_correct_slot(b->ns, hash, page, &other)) {
        case SHARED_SLOT_HAD:
                return true;
        case SHARED_SLOT_MADE:
                b->r->n_slots_fixed++;
                return true;
        case SHARED_SLOT_OTHER:
                drop_candidate(b, page, DROP_DUPLICATE);
                return false;
        case SHARED_SLOT_NONE:
                drop_candidate(b, page, DROP_INDEX);
                return false;
        }
        return false;
}

static void mark_candidates(struct rebuild *b, bool mark)
{
        for (uint32_t i = 0; i < b->n_pages; i++)
                if (b->placed[b->pages[i].page].depth > 0)
                        ns_page(b->ns, b->pages[i].page)->mark = mark;
}

/* Looks at the candidates without a slot of their own, which are the first of b->other. */
static void recover_index(struct rebuild *b)
{
        struct ns *ns = b->ns;
        uint64_t n_slots = b->n_pages - b->n_slotless;

        for (uint32_t i = 0; i < b->n_slotless; i++)
                n_slots += find_slot(b, b->other[i].page);
        if (ns->shared.n_indexed == n_slots)
                return;
        mark_candidates(b, true);
        b->r->n_slots_fixed += shared_correct_rest(ns, n_slots);
        mark_candidates(b, false);
}

/* ---- orders ---------------------------------------------------------------------------------- */

#define DIGIT_BITS 11
#define DIGITS     (1u << DIGIT_BITS)

static uint32_t digit_of(
        const struct rebuild *b, const struct candidate *c, enum order order, unsigned shift)
{
        return (c->order[order] - b->least[order]) >> shift & (DIGITS - 1);
}

/* Sorts by one digit, stable. */
static void sort_by_digit(struct rebuild *b, enum order order, unsigned shift)
{
        struct candidate *sorted = b->other;
        uint32_t starts[DIGITS] = {0}, sum = 0;

        for (uint32_t i = 0; i < b->n_pages; i++)
                starts[digit_of(b, &b->pages[i], order, shift)]++;
        for (uint32_t i = 0; i < DIGITS; i++) {
                uint32_t n_here = starts[i];

                starts[i] = sum;
                sum += n_here;
        }
        for (uint32_t i = 0; i < b->n_pages; i++)
                sorted[starts[digit_of(b, &b->pages[i], order, shift)]++] = b->pages[i];
        b->other = b->pages;
        b->pages = sorted;
}

/* Sorts ascending, and keeps the order of equal ones. */
static void sort_candidates(struct rebuild *b, enum order order)
{
        uint32_t range = b->n_pages > 0 ? b->most[order] - b->least[order] : 0;

        for (unsigned shift = 0; shift < 32 && range >> shift > 0; shift += DIGIT_BITS)
                sort_by_digit(b, order, shift);
}

/* ---- the tree -------------------------------------------------------------------------------- */

/* If a kill interrupted a move, a dropped page has a twin with the same key, which has its place.
 * Returns the twin, or PAGE_NONE. */
static uint32_t find_twin(struct ns *ns, uint32_t page)
{
        const struct page *p = ns_page(ns, page);

        return p && p->state == PAGE_DETACHED && holds(ns, page) ? ns_find_page(ns, p->key)
                                                                 : PAGE_NONE;
}

/* Is the page in the tree, and can a page of `depth` (> 1) pages continue it? Candidates of less
 * depth are in the tree. */
static bool is_parent(const struct rebuild *b, uint32_t page, uint32_t depth)
{
        return page < b->ns->geometry.capacity_pages && b->placed[page].depth + 1 == depth;
}

static void enter_candidate(struct rebuild *b, uint32_t page, uint32_t parent)
{
        struct ns *ns = b->ns;
        struct placed *p = &b->placed[page];
        uint32_t above = parent == PAGE_NONE ? PAGE_NONE : b->placed[parent].mark;

        if (p->parent != parent)
                records_reparent(ns, page, parent);
        p->mark = ancestors_has_mark(p->depth) ? page : above;
        tree_insert(&ns->tree, page, parent);
        ancestors_insert_below(&ns->catalog.ancestors, page, p->depth, above);
        ns->evict->insert(ns->policy, page,
                &(struct evict_insert){.id = p->id, .tokens = p->tokens, .depth = p->depth},
                (UINT32_MAX - b->most[BY_AGE]) * NSEC_PER_SEC);
        nsset_sealed(ns, page);
}

/* The page before it is in the tree; otherwise it is lost, and so is this one. */
static void enter_or_drop(struct rebuild *b, uint32_t page)
{
        uint32_t depth = b->placed[page].depth, parent = b->placed[page].parent;

        if (depth == 0)
                return;
        if (depth > 1 && !is_parent(b, parent, depth))
                parent = find_twin(b->ns, parent);
        if (depth == 1 || is_parent(b, parent, depth)) {
                enter_candidate(b, page, parent);
                return;
        }
        (void)shared_remove(b->ns, page);
        drop_candidate(b, page, DROP_PARENT);
}

static void prefetch_node(const struct ns *ns, uint32_t page)
{
        tree_prefetch(&ns->tree, page);
        if (ns->evict->prefetch)
                ns->evict->prefetch(ns->policy, page);
}

/* Prefetches two steps ahead: the page's place first, then its node and its parent. */
static void prefetch_page(const struct rebuild *b, uint32_t i)
{
        const struct placed *p;

        if (i + 2 * AHEAD < b->n_pages)
                __builtin_prefetch(&b->placed[b->pages[i + 2 * AHEAD].page]);
        if (i + AHEAD >= b->n_pages)
                return;
        p = &b->placed[b->pages[i + AHEAD].page];
        prefetch_node(b->ns, b->pages[i + AHEAD].page);
        if (p->parent >= b->ns->geometry.capacity_pages)
                return;
        prefetch_node(b->ns, p->parent);
        __builtin_prefetch(&b->placed[p->parent]);
}

/* Enters parents before their children, so that no page is looked at twice. */
static void recover_tree(struct rebuild *b)
{
        sort_candidates(b, BY_DEPTH);
        for (uint32_t i = 0; i < b->n_pages; i++) {
                prefetch_page(b, i);
                enter_or_drop(b, b->pages[i].page);
        }
}

static int recover_tags(struct rebuild *b)
{
        struct ns *ns = b->ns;

        for (uint32_t i = 0; b->had_tags && i < b->n_pages; i++) {
                uint32_t page = b->pages[i].page;

                if (i + AHEAD < b->n_pages)
                        __builtin_prefetch(ns_note(ns, b->pages[i + AHEAD].page));
                if (b->placed[page].depth == 0 || ns_extra(ns, page)->tag == 0)
                        continue;
                if (tag_reserve(ns) < 0)
                        return -ENOMEM;
                tag_enter(ns, page);
        }
        return 0;
}

/* ---- the policy ------------------------------------------------------------------------------ */

/* Inserts pages from the least recently used on; of equal ones the deepest first, as clients
 * release them. No page counts as held yet: the recovery of clients adds that. Time doesn't go
 * backwards for the policy: all were inserted when the oldest was used. */
static void recover_policy(struct rebuild *b)
{
        struct ns *ns = b->ns;

        sort_candidates(b, BY_AGE); /* still by depth, too */
        for (uint32_t i = b->n_pages; i-- > 0;) {
                const struct candidate *c = &b->pages[i];

                if (i >= AHEAD)
                        prefetch_node(ns, b->pages[i - AHEAD].page);
                if (b->n_gone > 0 && b->placed[c->page].depth == 0)
                        continue;
                ns->evict->idle(ns->policy, c->page,
                        (uint64_t)(UINT32_MAX - c->order[BY_AGE]) * NSEC_PER_SEC);
                b->r->n_pages++;
        }
}

/* ---- the namespace --------------------------------------------------------------------------- */

static int rebuild_pages(struct rebuild *b, bool *ret_sessions)
{
        int r;

        recover_sets(b);
        *ret_sessions = b->had_sessions;
        FAULT_POINT("recover-after-sets");
        recover_index(b);
        FAULT_POINT("recover-after-index");
        recover_tree(b);
        FAULT_POINT("recover-after-tree");
        r = recover_tags(b);
        recover_policy(b);
        return r;
}

int recover_pages(struct ns *ns, struct recovery *r, bool *ret_sessions)
{
        uint32_t n = (uint32_t)ns_n_sets(ns) * ns->geometry.set_pages, n_placed = 0;
        _cleanup_free_ struct candidate *pages = calloc(n + 1, sizeof(*pages));
        _cleanup_free_ struct candidate *other = calloc(n + 1, sizeof(*other));
        struct rebuild b = {.ns = ns,
                .r = r,
                .pages = pages,
                .other = other,
                .least = {UINT32_MAX, UINT32_MAX}};
        void *placed = NULL;
        int error = -ENOMEM;

        if (pages && other &&
                array_reserve(&placed, &n_placed, ns->geometry.capacity_pages,
                        ns->geometry.capacity_pages, sizeof(*b.placed)) == 0) {
                b.placed = placed;
                error = rebuild_pages(&b, ret_sessions);
        }
        array_free(placed, n_placed, sizeof(*b.placed));
        return error;
}

/* ---- claims ---------------------------------------------------------------------------------- */

/* Maps group ids to the namespace's grants. Returns 0 or -ENOMEM. */
static int map_owners(const struct ns *ns, struct map *ret_owners)
{
        int r = 0;

        list_for_each (a, &ns->clients.attachments, struct attach, ns_link)
                if (r == 0)
                        r = map_put(ret_owners, a->grants->group->id, (uintptr_t)a->grants);
        return r;
}

static void recover_claim(
        struct ns *ns, uint32_t page, const struct map *owners, struct recovery *r)
{
        const struct page *p = ns_page(ns, page);
        const uint64_t *owner;

        if (p->state == PAGE_DETACHED) {
                ns_let_go_unheld(ns, page);
                return;
        }
        if (p->state != PAGE_GRANTED)
                return;
        owner = map_find(owners, p->owner);
        /* A page of an import has no owner: no client was told of it. */
        if (owner && ns_note(ns, page)->seq != PAGE_SEQ_IMPORT) {
                grants_add((struct grants *)(uintptr_t)*owner, page);
                return;
        }
        ns_free_page(ns, page);
        r->n_unclaimed++;
}

int recover_claims(struct ns *ns, struct recovery *r)
{
        uint32_t n = ns->geometry.set_pages;
        struct map owners;
        int error;

        map_init(&owners);
        error = map_owners(ns, &owners);
        if (error == 0) {
                ns_for_each_set (set, ns)
                        for (uint32_t i = 0; i < n; i++)
                                recover_claim(ns, set->index * n + i, &owners, r);
                idle_sets_add_all(ns);
        }
        map_deinit(&owners);
        return error;
}
