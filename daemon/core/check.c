/*
 * The checker of the whole state. It trusts nothing: indices are checked before use and every walk
 * is bounded, because the data may be damaged. It stops at the first violation.
 */
#include <errno.h>
#include <string.h>

#include "daemon/core/cache/announced.h"
#include "daemon/core/cache/nsset.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/check-impl.h"
#include "daemon/core/core.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/memory/run.h"
#include "daemon/core/moves/fill.h"
#include "daemon/core/moves/space.h"
#include "daemon/core/moves/transfer.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/feed.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/memory/region.h"
#include "daemon/core/reclaim/compact.h"
#include "daemon/core/reclaim/recall.h"
#include "daemon/core/state/records.h"
#include "daemon/core/state/shared.h"
#include "daemon/tier/disk.h"
#include "policy/ancestors.h"

int check_expect(
        struct checker *c, const char *what, const char *name, uint64_t is, uint64_t should_be)
{
        if (is == should_be)
                return 0;
        return BROKEN(
                c->d, "%s of %s is %llu, should be %llu", what, name, llu(is), llu(should_be));
}

int check_page_broken(const struct checker *c, uint32_t page, const char *why)
{
        return BROKEN(c->d, "page %u of namespace %s/%s: %s", page, c->ns->tenant->name,
                c->ns->name, why);
}

/* ---- sets ----------------------------------------------------------------------------------- */

static int check_free_list(struct checker *c, const struct extent_set *set)
{
        uint32_t page = set->free_head, before = PAGE_NONE, n = 0;

        for (; page != PAGE_NONE && n <= set->n_free; n++) {
                const struct page *p = ns_page(c->ns, page);

                if (!p || page / c->ns->geometry.set_pages != set->index)
                        return check_page_broken(c, page, "is in the free list of another set");
                if (p->state != PAGE_FREE)
                        return check_page_broken(c, page, "is in a free list but not free");
                if (p->prev != before || !run_is_marked(set, page))
                        return check_page_broken(
                                c, page, "is in a free list, but that knows it not");
                before = page;
                page = p->next;
        }
        if (n != set->n_free || page != PAGE_NONE)
                return BROKEN(c->d,
                        "set %u of namespace %s/%s: its free list has not n_free (%u) pages",
                        set->index, c->ns->tenant->name, c->ns->name, set->n_free);
        if (run_count_marks(set) != n)
                return BROKEN(c->d, "set %u of namespace %s/%s: %u pages are marked as free of %u",
                        set->index, c->ns->tenant->name, c->ns->name, run_count_marks(set), n);
        return 0;
}

int check_set(struct checker *c, const struct extent_set *set)
{
        const struct ns *ns = c->ns;
        uint32_t n_null = set->index == 0 && ns->sets.keep_page_zero;
        const char *why = NULL;

        if (set->index >= ns->geometry.n_set_slots || ns->sets.at[set->index] != set)
                why = "isn't in the slot it names";
        else if (set->index < ns->geometry.tiers[TIER_DEVICE].first_set)
                why = "is the null set, which is never bound";
        else if (set_kind(set) != tier_of_set(&ns->geometry, set->index))
                why = "is in another tier than its number";
        else if (set->ns != ns)
                why = "belongs to another namespace";
        else if (set->charge.tenant != &ns->tenant->accounts[set->pool->tier])
                why = "isn't charged to its tenant";
        else if (set->charge.pool != &set->tier->pool->account)
                why = "isn't charged to its device";
        else if (set->charge.bytes != ns->geometry.tiers[set_kind(set)].set_bytes)
                why = "is charged with another size than it has";
        else if (set->n_usable != ns->geometry.set_pages - n_null || set->n_free > set->n_usable)
                why = "counts its pages wrong";
        else if (set_is_idle(set) &&
                 (set->recall.state != RECALL_NONE ||
                         (!ns_awaits_sets(ns) && ns->reclaim.prealloc.n_to_keep == 0 &&
                                 ns->reclaim.prealloc.n_to_free == 0)))
                why = "is idle but still bound";
        else if (list_is_empty(&set->room_link) !=
                 (set->n_free == 0 || set->recall.state != RECALL_NONE))
                why = "is in the list of sets with room, or missing from it, against its n_free";
        if (!why)
                why = recall_check(set);
        for (uint32_t i = 0; !why && i < set->n_extents; i++)
                if (!set->extents[i] ||
                        set->extents[i]->bytes != ns->geometry.tiers[set_kind(set)].extent_bytes)
                        why = "lacks an extent, or has one of another size";
        if (why)
                return BROKEN(c->d, "set %u of namespace %s/%s %s", set->index, ns->tenant->name,
                        ns->name, why);
        return check_free_list(c, set);
}

static int check_preparing(struct checker *c)
{
        const struct ns *ns = c->ns;
        uint32_t n_listed = 0, n_slots = 0;
        uint64_t n_pages = 0;
        int r;

        for (uint32_t i = 0; i < ns->geometry.n_set_slots; i++)
                n_slots += ns->sets.preparing[i] != 0;
        list_for_each (set, &ns->device.sets_preparing, struct extent_set, link) {
                if (n_listed++ > n_slots)
                        break;
                if (set->ns != ns || set->index >= ns->geometry.n_set_slots ||
                        !ns->sets.preparing[set->index] || ns->sets.at[set->index] ||
                        set->charge.tenant != &ns->tenant->account ||
                        set->charge.pool != &ns->device.pool->account ||
                        set->charge.bytes != ns->geometry.set_bytes)
                        return BROKEN(c->d,
                                "set %u of namespace %s/%s is being made, but has no slot or no charge of its own",
                                set->index, ns->tenant->name, ns->name);
                n_pages += set->n_usable;
        }
        r = check_expect(c, "number of sets being made", ns->name, ns->device.n_preparing, n_slots);
        if (r == 0)
                r = check_expect(c, "list of sets being made", ns->name, n_listed, n_slots);
        if (r == 0)
                r = check_expect(
                        c, "pages being made", ns->name, ns->device.n_preparing_pages, n_pages);
        return r;
}

static int check_waiting(struct checker *c)
{
        const struct ns *ns = c->ns;
        uint64_t n_waiting = 0, n_wanted = 0, n_queued = 0;
        int r;

        list_for_each (a, &ns->clients.attachments, struct attach, ns_link) {
                if (a->wait.n_wanted == 0)
                        continue;
                if (wait_is_for_room(&a->wait)) {
                        n_queued++;
                        continue;
                }
                n_waiting++;
                n_wanted += a->wait.n_wanted;
        }
        r = check_expect(c, "number of waiting leases", ns->name, ns->waits.n, n_waiting);
        if (r == 0)
                r = check_expect(
                        c, "number of queued leases", ns->name, ns->waits.n_queued, n_queued);
        if (r == 0)
                r = check_expect(
                        c, "pages that leases wait for", ns->name, ns->waits.n_wanted, n_wanted);
        if (r == 0 && ns->waits.failure.code != 0 && n_waiting == 0)
                r = BROKEN(c->d, "namespace %s/%s keeps a failure that no client waits for",
                        ns->tenant->name, ns->name);
        return r;
}

static int check_tier(struct checker *c, enum tier_kind kind)
{
        const struct ns *ns = c->ns;
        const struct tier_geometry *g = &ns->geometry.tiers[kind];
        const struct ns_tier *tier = &ns->tiers[kind];
        uint32_t n_listed = 0, n_slots = 0, n_room = 0, n_with_room = 0;
        uint64_t n_withheld = 0;
        int r;

        for (uint32_t i = g->first_set; i < g->first_set + g->n_sets; i++)
                n_slots += ns->sets.at[i] != NULL;
        list_for_each (set, &tier->sets_bound, struct extent_set, link) {
                if (n_listed++ > n_slots)
                        break;
                if (set->recall.state == RECALL_NONE)
                        n_with_room += set->n_free > 0;
                else
                        n_withheld += set->n_free;
        }
        list_for_each (set, &tier->sets_room, struct extent_set, room_link)
                if (n_room++ > n_slots)
                        break;
        r = check_expect(c, "number of bound sets", ns->name, tier->n_sets, n_slots);
        if (r == 0)
                r = check_expect(c, "list of bound sets", ns->name, n_listed, n_slots);
        if (r == 0)
                r = check_expect(c, "list of sets with room", ns->name, n_room, n_with_room);
        if (r == 0)
                r = check_expect(c, "free pages withheld", ns->name, tier->n_withheld, n_withheld);
        c->n_sets += n_slots;
        return r;
}

/* Checks the lists of sets, without the sets' contents. */
int check_lists(struct checker *c)
{
        int r = 0;

        for (unsigned i = 0; i < TIER_COUNT && r == 0; i++)
                r = check_tier(c, i);
        if (r == 0)
                r = check_preparing(c);
        return r == 0 ? check_waiting(c) : r;
}

/* ---- pages ---------------------------------------------------------------------------------- */

struct tally {
        uint64_t n_state[8], n_free, n_pinned, n_stale, n_watched, n_ready, n_announced;
};

/* An indexed page: index and tree know it, and its parent is indexed too. */
static const char *check_cached(const struct ns *ns, uint32_t page, const struct page *p)
{
        uint32_t parent, depth = ns_note(ns, page)->depth;
        const struct page *up;

        if (!shared_has(ns, page))
                return "is sealed but not in the index";
        if (ns_find_page(ns, p->key) != page)
                return "its key is found at another page";
        if (!tree_has(&ns->tree, page))
                return "is sealed but not in the tree";
        if (p->tokens == 0 || p->tokens > ns->layout.page_tokens)
                return "has a token count out of range";
        parent = tree_parent(&ns->tree, page);
        if (parent != NODE_NONE) {
                up = ns_page(ns, parent);
                if (!up || up->state != PAGE_SEALED || ns_page_is_stale(ns, up))
                        return "its parent isn't cached";
        }
        /* So there is no cycle: each page is below a root. */
        if (depth != 1 + (parent == NODE_NONE ? 0 : (uint32_t)ns_note(ns, parent)->depth))
                return "isn't one page deeper than its parent";
        return ancestors_check_node(&ns->catalog.ancestors, &ns->tree, page, depth);
}

static const char *check_pins(const struct page *p, uint32_t pins, uint32_t n_windows)
{
        bool may_be_pinned = p->state == PAGE_SEALED || p->state == PAGE_DETACHED;

        if (pins > 0 && !may_be_pinned)
                return "is pinned in a state that has no pins";
        if (page_pins(p) != pins)
                return "its pin count isn't the sum of its clients' pins";
        if (pins == 0 && p->state == PAGE_DETACHED && !p->watched && n_windows == 0)
                return "is detached and has no pin";
        if (n_windows > 0 && !may_be_pinned)
                return "is in a window of a session, but neither cached nor detached";
        if (p->watched &&
                (pins > 0 || !may_be_pinned || (p->state == PAGE_DETACHED && n_windows > 0)))
                return "is watched, but not because of pins in segments";
        return NULL;
}

/* Checks the page's line, which clients see. */
static const char *check_line(const struct ns *ns, uint32_t page, const struct page *p)
{
        const struct shm_line *line = &ns->shared.lines[page];
        uint64_t word = atomic_load_explicit(&line->state, memory_order_relaxed);

        if (p->state != PAGE_SEALED && p->state != PAGE_DETACHED && !p->announced)
                return (word & 0xff) == PAGE_FREE ? NULL : "is shown in a state it isn't in";
        if (word != ((uint64_t)p->generation << 8 | (p->announced ? PAGE_PENDING : p->state)))
                return "is shown in another state or generation";
        if (memcmp(line->key, p->key, KEY_BYTES) != 0 || (uint32_t)line->epoch != p->epoch ||
                (!p->announced && line->tokens != p->tokens))
                return "is shown with another key, epoch or number of tokens";
        return NULL;
}

static const char *check_bits(const struct page *p)
{
        if (p->mark)
                return "has a mark left";
        if ((p->ready || p->reported) && p->state != PAGE_GRANTED)
                return "is ready or reported but not granted";
        if (p->given_back && (p->state != PAGE_GRANTED || p->ready || p->reported))
                return "is given back but not granted, or ready or reported";
        if (p->unindexed && p->state != PAGE_DETACHED)
                return "has no slot in the index but isn't detached";
        if (p->announced && (p->state != PAGE_GRANTED || p->ready || p->given_back))
                return "is announced but not granted, or ready or given back";
        return NULL;
}

const char *check_page(const struct checker *c, uint32_t page, uint32_t pins)
{
        const struct ns *ns = c->ns;
        const struct page *p = ns_page(ns, page);
        bool stale = ns_page_is_stale(ns, p), cached = p->state == PAGE_SEALED && !stale;
        const char *why;

        if (p->state > PAGE_NULL || p->state == PAGE_RETIRING || p->state == PAGE_QUARANTINED)
                return "is in a state that doesn't exist yet";
        if ((p->state == PAGE_MOVING) !=
                (compact_moves_to(ns, page) || transfer_moves_to(ns, page) ||
                        fill_has_moving(ns, page)))
                return "is moving, but nothing is moved to it, or the other way round";
        if ((p->state == PAGE_NULL) != (page == 0 && ns->sets.keep_page_zero))
                return "only page 0 of a namespace that keeps it back is null";
        if (cached && tier_of_page(&ns->geometry, page) == TIER_DISK && !space_has(ns, page))
                return "is on a disk that doesn't have it";
        why = check_bits(p);
        if (!why)
                why = check_pins(p, pins, ns_extra(ns, page)->n_windows);
        if (!why && cached)
                why = check_cached(ns, page, p);
        if (!why && p->announced)
                why = announce_check_page(ns, page);
        if (!why && !cached && tree_has(&ns->tree, page))
                why = "is in the tree but not cached";
        if (!why)
                why = check_line(ns, page, p);
        if (!why)
                why = feed_check_page(ns, page);
        return why ? why : records_check_page(ns, page);
}

int check_watched(struct checker *c)
{
        uint32_t page = c->ns->catalog.watched.first, before = PAGE_NONE;
        uint64_t n = 0;

        for (; page != PAGE_NONE && n <= c->ns->catalog.watched.n; n++) {
                const struct page *p = ns_page(c->ns, page);

                if (!p || !p->watched || p->prev != before)
                        return check_page_broken(c, page, "doesn't belong among the watched pages");
                before = page;
                page = p->next;
        }
        return check_expect(c, "list of watched pages", c->ns->name, n, c->ns->catalog.watched.n);
}

static int check_tally(struct checker *c, const struct tally *t)
{
        const struct ns *ns = c->ns;
        int r = 0;

        for (int s = 0; s < 8 && r == 0; s++)
                if (ns_n_pages(ns, s) != t->n_state[s])
                        r = BROKEN(c->d, "namespace %s/%s counts %llu %s pages, there are %llu",
                                ns->tenant->name, ns->name, llu(ns_n_pages(ns, s)),
                                page_state_name(s), llu(t->n_state[s]));
        if (r == 0)
                r = check_expect(
                        c, "free pages in lists", ns->name, t->n_free, t->n_state[PAGE_FREE]);
        if (r == 0)
                r = check_expect(
                        c, "count of pinned pages", ns->name, ns_n_pinned(ns), t->n_pinned);
        if (r == 0)
                r = check_expect(
                        c, "count of stale pages", ns->name, ns->catalog.n_stale, t->n_stale);
        if (r == 0)
                r = check_expect(
                        c, "count of watched pages", ns->name, ns->catalog.watched.n, t->n_watched);
        if (r == 0)
                r = check_expect(
                        c, "count of ready pages", ns->name, ns->clients.n_ready, t->n_ready);
        if (r == 0)
                r = check_expect(c, "count of announced pages", ns->name, ns->catalog.announced.n,
                        t->n_announced);
        if (r == 0)
                r = check_expect(c, "count of moving pages", ns->name, t->n_state[PAGE_MOVING],
                        compact_count_moves(ns) + transfer_count_moving(ns) +
                                fill_count_moving(ns));
        return r;
}

/* Counts in one iteration of the event loop: nothing may change meanwhile. */
int check_counts(struct checker *c)
{
        uint32_t set_pages = c->ns->geometry.set_pages;
        struct tally t = {0};

        ns_for_each_set (set, c->ns) {
                uint32_t n_ready = 0;

                t.n_free += set->n_free;
                for (uint32_t i = 0; i < set_pages; i++) {
                        const struct page *p = &set->pages[i];

                        t.n_state[p->state % ARRAY_SIZE(t.n_state)]++;
                        t.n_pinned += page_pins(p) > 0;
                        t.n_stale += ns_page_is_stale(c->ns, p);
                        t.n_watched += p->watched;
                        n_ready += p->ready;
                        t.n_announced += p->announced;
                }
                t.n_ready += n_ready;
                if (n_ready != set->n_ready)
                        return BROKEN(c->d,
                                "set %u of namespace %s/%s counts %u ready pages, there are %u",
                                set->index, c->ns->tenant->name, c->ns->name, set->n_ready,
                                n_ready);
                c->n_pages += set_pages;
        }
        return check_tally(c, &t);
}

int check_slots(struct checker *c)
{
        struct shared_walk slots = {0};
        uint64_t n_used = 0;

        while (shared_next_used(&c->ns->shared, &slots))
                n_used++;
        return check_expect(
                c, "slots used in the index", c->ns->name, c->ns->shared.n_indexed, n_used);
}

/* ---- the whole ------------------------------------------------------------------------------ */

static uint64_t count_pins(const struct attach *a)
{
        uint32_t iter = 0, page;
        uint64_t n = 0;

        while ((page = pin_counts_next(&a->pins, &iter, UINT32_MAX)) != PAGE_NONE)
                n += pin_counts_get(&a->pins, page);
        return n;
}

static int check_member(struct checker *c, const struct member *m)
{
        const struct list_link *lists[] = {&m->attachments, &m->closing};
        uint64_t n_pins = 0, n_mapped = 0, n_quarantined = 0;
        struct map_slot slot;

        for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
                list_for_each (a, lists[i], struct attach, member_link) {
                        n_pins += count_pins(a);
                        for (size_t iter = 0; map_next(&a->mapped, &iter, &slot);) {
                                n_mapped++;
                                n_quarantined += (slot.value & MAPPED_QUARANTINE) != 0;
                        }
                }
        if (m->n_quarantined_sets != n_quarantined)
                return BROKEN(c->d, "client %llu counts %u quarantined sets, has %llu", llu(m->id),
                        m->n_quarantined_sets, llu(n_quarantined));
        if (m->n_pins != n_pins || m->n_mapped_sets != n_mapped)
                return BROKEN(c->d,
                        "client %llu counts %llu pins and %u mapped sets, has %llu and %llu",
                        llu(m->id), llu(m->n_pins), m->n_mapped_sets, llu(n_pins), llu(n_mapped));
        return 0;
}

static int check_group(struct checker *c, const struct group *g, uint64_t *n_members)
{
        uint64_t n_lingering = 0;

        list_for_each (m, &g->members, struct member, link) {
                int r = check_member(c, m);

                if (r < 0)
                        return r;
                (*n_members)++;
                n_lingering += m->lingers;
        }
        list_for_each (m, &g->leaving, struct member, link) {
                int r = check_member(c, m);

                if (r < 0)
                        return r;
        }
        return check_expect(
                c, "lingering clients of a group", g->tenant->name, g->n_lingering, n_lingering);
}

static int check_tenant(struct checker *c, struct tenant *t)
{
        uint64_t n_members = 0, n_recalled = 0, recalled_bytes = 0;
        const char *why;
        int r;

        list_for_each (ns, &t->namespaces, struct ns, link) {
                ns_for_each_set (set, ns)
                        if (set->recall.state != RECALL_NONE) {
                                n_recalled++;
                                recalled_bytes += set->charge.bytes;
                        }
        }
        list_for_each (set, &t->nssets, struct nsset, link) {
                why = nsset_check(set);
                if (why)
                        return BROKEN(c->d, "set %s of tenant %s %s", set->name, t->name, why);
        }
        list_for_each (g, &t->groups, struct group, link) {
                r = check_group(c, g, &n_members);
                if (r < 0)
                        return r;
        }
        why = tenant_check(t);
        if (why)
                return BROKEN(c->d, "tenant %s: %s", t->name, why);
        r = check_expect(c, "number of recalled sets", t->name, t->n_recalled, n_recalled);
        if (r == 0)
                r = check_expect(c, "recalled bytes", t->name, t->recalled_bytes, recalled_bytes);
        if (r == 0)
                r = check_expect(c, "number of clients", t->name, t->n_members, n_members);
        return r;
}

static int check_pool(struct checker *c, const struct pool *pool)
{
        const char *name = pool->props->name;
        uint64_t bytes = 0, n_sets = 0, n_preparing = 0;
        char text[DISK_WHY_BYTES];
        const char *why;
        int r;

        list_for_each (t, &c->store->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        if (ns->tiers[pool->tier].pool == pool) {
                                bytes += ns_charged_bytes(ns, pool->tier);
                                n_sets += ns->tiers[pool->tier].n_sets;
                                n_preparing += ns->tiers[pool->tier].n_preparing;
                        }
        list_for_each (set, &pool->orphans, struct extent_set, link) {
                bytes += set->charge.bytes;
                n_preparing++;
        }
        list_for_each (what, &pool->discards->going, struct discard, link)
                if (what->charge.pool == &pool->account)
                        bytes += what->charge.bytes;
        r = check_expect(c, "charge of device", name, pool->account.charged_bytes, bytes);
        if (r == 0)
                r = check_expect(c, "number of sets on device", name, pool->n_sets, n_sets);
        if (r == 0)
                r = check_expect(
                        c, "sets being made on device", name, pool->n_preparing, n_preparing);
        if (r == 0 && bytes > pool->account.limit_bytes)
                r = BROKEN(c->d, "device %s is charged with %llu bytes, over its budget of %llu",
                        name, llu(bytes), llu(pool->account.limit_bytes));
        why = region_check(pool);
        if (r == 0 && why)
                r = BROKEN(c->d, "regions of device %s: %s", name, why);
        if (r == 0 && pool->disk && !disk_check(pool->disk, text))
                r = BROKEN(c->d, "%s: %s", name, text);
        return r;
}

static int check_recalls(struct checker *c)
{
        const struct store *s = c->store;
        uint64_t n = 0, n_quarantined = 0, n_of_tenants = 0;
        int r;

        list_for_each (t, &s->tenants, struct tenant, link)
                n_of_tenants += t->n_recalled;
        list_for_each (set, &s->recalls.sets, struct extent_set, recall.link) {
                if (n++ > n_of_tenants)
                        break;
                n_quarantined += set->recall.quarantined;
        }
        r = check_expect(c, "list of recalled sets", "the daemon", n, n_of_tenants);
        if (r == 0)
                r = check_expect(
                        c, "number of recalled sets", "the daemon", s->recalls.n, n_of_tenants);
        if (r == 0)
                r = check_expect(c, "number of quarantined sets", "the daemon",
                        s->recalls.n_quarantined, n_quarantined);
        return r;
}

/* Checks the state outside of namespaces, and sums over them. */
int check_rest(struct checker *c)
{
        struct store *s = c->store;
        uint64_t n_members = 0;
        int r;

        list_for_each (t, &s->tenants, struct tenant, link) {
                r = check_tenant(c, t);
                if (r < 0)
                        return r;
                n_members += t->n_members;
        }
        store_for_each_pool (pool, s) {
                r = check_pool(c, pool);
                if (r < 0)
                        return r;
        }
        r = check_expect(c, "number of clients", "the daemon", s->n_members, n_members);
        if (r == 0)
                r = check_recalls(c);
        if (r == 0 && !list_is_empty(&s->memory.idle_sets))
                r = BROKEN(c->d,
                        "sets with fewer holds than before weren't drained from the idle list");
        return r;
}
