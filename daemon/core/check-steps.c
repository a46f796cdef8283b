/*
 * The checker (check.c) in steps: each namespace goes through them, then the rest of the store. A
 * slice ends after enough looks; the store may change before the next one.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "daemon/core/cache/announced.h"
#include "daemon/core/cache/drop.h"
#include "daemon/core/cache/tag.h"
#include "daemon/core/check-impl.h"
#include "daemon/core/core.h"
#include "daemon/core/reclaim/prefetch.h"
#include "daemon/core/sessions/session.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/page.h"
#include "daemon/core/state/pin-counts.h"
#include "daemon/core/state/records.h"
#include "daemon/core/state/store.h"
#include "policy/ancestors.h"
#include "policy/expect.h"
#include "proto/shm.h"

/* ---- holders --------------------------------------------------------------------------------- */

static void add_pins(struct checker *c, const struct attach *a, uint32_t first, uint32_t n)
{
        uint32_t iter = first, page;

        while (iter - first < n) {
                page = pin_counts_next(&a->pins, &iter, n - (iter - first));
                if (page == PAGE_NONE)
                        return;
                c->pins[page - first] += pin_counts_get(&a->pins, page);
        }
}

/* Sums the pins of n pages (at most CHECK_RUN_PAGES) from `first` on into c->pins. */
static void check_sum_pins(struct checker *c, uint32_t first, uint32_t n)
{
        memset(c->pins, 0, sizeof(c->pins));
        list_for_each (a, &c->ns->clients.attachments, struct attach, ns_link)
                add_pins(c, a, first, n);
        list_for_each (a, &c->ns->clients.closing, struct attach, ns_link)
                add_pins(c, a, first, n);
}

static int count_pinned(struct checker *c, const struct attach *a)
{
        uint32_t iter = 0, page, n_pinned = 0;

        while ((page = pin_counts_next(&a->pins, &iter, UINT32_MAX)) != PAGE_NONE) {
                if (!ns_page(c->ns, page))
                        return BROKEN(c->d,
                                "client %llu pins page %u of namespace %s, which isn't bound",
                                llu(a->member->id), page, c->ns->name);
                n_pinned++;
        }
        if (n_pinned != a->pins.n_pinned)
                return BROKEN(c->d, "client %llu counts %u pinned pages of namespace %s, has %u",
                        llu(a->member->id), a->pins.n_pinned, c->ns->name, n_pinned);
        return 0;
}

/* Checks clients' own counts of their pins. Returns 0 or -EUCLEAN. */
static int check_pin_counts(struct checker *c)
{
        int r = 0;

        list_for_each (a, &c->ns->clients.attachments, struct attach, ns_link) {
                if (a->ns != c->ns || a->member->group->tenant != c->ns->tenant)
                        return BROKEN(c->d,
                                "client %llu of another tenant has namespace %s/%s open",
                                llu(a->member->id), c->ns->tenant->name, c->ns->name);
                r = count_pinned(c, a);
                if (r < 0)
                        return r;
        }
        list_for_each (a, &c->ns->clients.closing, struct attach, ns_link) {
                r = task_is_queued(&a->task) ? count_pinned(c, a)
                                             : BROKEN(c->d, "what is closing waits for no turn");
                if (r < 0)
                        return r;
        }
        return 0;
}

static int check_mapped(struct checker *c)
{
        const struct list_link *lists[] = {&c->ns->clients.attachments, &c->ns->clients.closing};
        uint64_t n_mapped = 0, n_entries = 0;
        struct map_slot slot;

        ns_for_each_set (set, c->ns) {
                uint32_t n = 0;

                for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
                        list_for_each (a, lists[i], struct attach, ns_link)
                                n += map_find(&a->mapped, set->index) != NULL;
                if (n != set->n_mapped)
                        return BROKEN(c->d,
                                "set %u of namespace %s/%s is mapped by %u clients, it says %u",
                                set->index, c->ns->tenant->name, c->ns->name, n, set->n_mapped);
                n_mapped += n;
        }
        for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
                list_for_each (a, lists[i], struct attach, ns_link)
                        for (size_t iter = 0; map_next(&a->mapped, &iter, &slot);)
                                n_entries++;
        return check_expect(c, "clients' entries of mapped sets", c->ns->name, n_entries, n_mapped);
}

/* Does a page that was given back have a reason to wait? */
static bool is_waited_for(const struct checker *c, const struct grants *g, uint32_t page)
{
        list_for_each (a, &c->ns->clients.attachments, struct attach, ns_link)
                if (a->member->group == g->group && a->member->lingers &&
                        map_find(&a->mapped, page / c->ns->geometry.set_pages))
                        return true;
        list_for_each (a, &g->closing, struct attach, grants_link)
                if (a->grants_at != PAGE_NONE)
                        return true;
        return false;
}

static int check_grant_list(struct checker *c, const struct grants *g)
{
        uint32_t page = g->head, before = PAGE_NONE, n = 0, n_given_back = 0;

        for (; page != PAGE_NONE && n <= g->n_pages; n++) {
                const struct page *p = ns_page(c->ns, page);

                if (!p || p->state != PAGE_GRANTED)
                        return check_page_broken(
                                c, page, "is among a group's grants but not granted");
                if (p->owner != g->group->id)
                        return check_page_broken(
                                c, page, "is in the grants of a group that isn't its owner");
                if (p->prev != before)
                        return check_page_broken(
                                c, page, "its neighbours among the grants disagree");
                if (p->given_back && !is_waited_for(c, g, page))
                        return check_page_broken(c, page, "was given back but isn't free");
                n_given_back += p->given_back;
                before = page;
                page = p->next;
        }
        if (page != PAGE_NONE || n != g->n_pages)
                return BROKEN(c->d, "group %u has not n_pages (%u) grants in namespace %s",
                        g->group->id, g->n_pages, c->ns->name);
        return check_expect(c, "grants given back", c->ns->name, g->n_given_back, n_given_back);
}

/* Every ready page lies in exactly one magazine, one of its group. */
static int check_magazines(struct checker *c)
{
        uint64_t n_ready = 0;

        list_for_each (a, &c->ns->clients.attachments, struct attach, ns_link) {
                const struct magazine *m = a->magazine;
                uint32_t n = 0;

                if ((m != NULL) != pins_is_open(&a->share))
                        return BROKEN(c->d, "client %llu has a magazine or a pin segment alone",
                                llu(a->member->id));
                for (uint32_t slot = 0; m && slot < SHM_MAGAZINE_SLOTS; slot++) {
                        uint32_t page = m->pages[slot] - 1;
                        const struct page *p = ns_page(c->ns, page);

                        if (page == PAGE_NONE)
                                continue;
                        n++;
                        if (!p || !p->ready || p->tokens != slot ||
                                p->owner != a->grants->group->id)
                                return check_page_broken(
                                        c, page, "isn't ready as its magazine has it");
                }
                if (m && m->n_pages != n)
                        return BROKEN(c->d, "the magazine of client %llu has %u pages, not %u",
                                llu(a->member->id), n, m->n_pages);
                n_ready += n;
        }
        return check_expect(c, "pages in magazines", c->ns->name, n_ready, c->ns->clients.n_ready);
}

static int check_grants(struct checker *c)
{
        uint64_t n_granted = 0;
        int r;

        list_for_each (group, &c->ns->tenant->groups, struct group, link)
                list_for_each (g, &group->grants, struct grants, link) {
                        uint32_t n_attach = 0;

                        if (g->ns != c->ns)
                                continue;
                        list_for_each (a, &c->ns->clients.attachments, struct attach, ns_link)
                                n_attach += a->grants == g && a->member->group == group;
                        r = check_expect(c, "attachments that share grants", c->ns->name,
                                g->n_attach, n_attach);
                        if (r == 0)
                                r = check_grant_list(c, g);
                        if (r < 0)
                                return r;
                        n_granted += g->n_pages;
                }
        return check_expect(c, "granted pages in groups' lists", c->ns->name, n_granted,
                c->ns->device.n_pages[PAGE_GRANTED]);
}

static const char *check_tree(const struct ns *ns)
{
        return tree_check(&ns->tree);
}

static const char *check_ancestors(const struct ns *ns)
{
        return ancestors_check(&ns->catalog.ancestors, &ns->tree);
}

static const char *check_policy(const struct ns *ns)
{
        return ns->evict->check(ns->policy);
}

static const char *check_expectations(const struct ns *ns)
{
        return ns->expect ? expect_verify(ns->expect) : NULL;
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* Does a part of a step: until *ret_n, the looks of the slice, is about `most`, if the step can be
 * sliced. Returns 1: there is more; 0; -EUCLEAN. */
typedef int (*step_fn)(struct checker *c, uint64_t most, uint64_t *ret_n);

static int step_sets(struct checker *c, uint64_t most, uint64_t *ret_n)
{
        const struct ns *ns = c->ns;

        for (; c->at < ns->geometry.n_set_slots && *ret_n < most; c->at++, ++*ret_n) {
                const struct extent_set *set = ns->sets.at[c->at];
                int r = set ? check_set(c, set) : 0;

                if (r < 0)
                        return r;
                *ret_n += set ? set->n_free : 0;
        }
        return c->at < ns->geometry.n_set_slots;
}

static int step_pages(struct checker *c, uint64_t most, uint64_t *ret_n)
{
        uint32_t set_pages = c->ns->geometry.set_pages;
        uint64_t end = (uint64_t)c->ns->geometry.n_set_slots * set_pages;

        while (*ret_n < most && c->at < end) {
                uint32_t first = c->at, left = set_pages - first % set_pages;
                uint32_t n = MIN(CHECK_RUN_PAGES, left);

                ++*ret_n;
                if (!c->ns->sets.at[first / set_pages]) {
                        c->at += left;
                        continue;
                }
                check_sum_pins(c, first, n);
                for (uint32_t i = 0; i < n; i++) {
                        const char *why = check_page(c, first + i, c->pins[i]);

                        if (why)
                                return check_page_broken(c, first + i, why);
                }
                c->at = first + n;
                *ret_n += n;
        }
        return c->at < end;
}

static int step_slots(struct checker *c, uint64_t most, uint64_t *ret_n)
{
        for (; *ret_n < most; ++*ret_n) {
                _Atomic uint64_t *at = shared_next_used(&c->ns->shared, &c->slots);
                const struct page *p;
                uint32_t page;

                if (!at)
                        return 0;
                page = (uint32_t)atomic_load_explicit(at, memory_order_relaxed) - 1;
                p = ns_page(c->ns, page);
                if (!p || (p->state != PAGE_SEALED && !p->announced))
                        return check_page_broken(
                                c, page, "is in the index but not sealed or announced");
        }
        return 1;
}

static const char *check_node(const struct ns *ns, uint32_t node)
{
        const char *why = tree_check_node(&ns->tree, node);

        if (!why && ns->evict->check_node)
                why = ns->evict->check_node(ns->policy, node);
        return why;
}

/* Checks each node with its neighbours in the tree and in the policy's order. */
static int step_nodes(struct checker *c, uint64_t most, uint64_t *ret_n)
{
        const struct ns *ns = c->ns;

        for (; c->at < ns->tree.n_nodes && *ret_n < most; c->at++, ++*ret_n) {
                const char *why = check_node(ns, c->at);

                if (why)
                        return check_page_broken(c, c->at, why);
        }
        return c->at < ns->tree.n_nodes;
}

static bool needs_mark(const void *data, uint32_t node)
{
        const struct ns *ns = data;

        return tree_has(&ns->tree, node) && ancestors_has_mark(ns_note(ns, node)->depth);
}

static int step_marks(struct checker *c, uint64_t most, uint64_t *ret_n)
{
        const struct ancestors *a = &c->ns->catalog.ancestors;

        for (; c->at < a->n_used && *ret_n < most; c->at++, ++*ret_n) {
                const char *why = ancestors_check_mark(a, c->at, needs_mark, c->ns);

                if (why)
                        return BROKEN(
                                c->d, "namespace %s/%s: %s", c->ns->tenant->name, c->ns->name, why);
        }
        return c->at < a->n_used;
}

/* Pages per look, when all pages of the namespace are looked at without a break. */
#define PAGES_PER_LOOK 8u

static uint64_t count_looks(const struct ns *ns)
{
        uint64_t n_sets = 0;

        for (unsigned i = 0; i < TIER_COUNT; i++)
                n_sets += ns->tiers[i].n_sets;
        return 1 + n_sets * ns->geometry.set_pages / PAGES_PER_LOOK;
}

static int step_lists(struct checker *c, uint64_t most, uint64_t *ret_n)
{
        int r = check_lists(c);

        *ret_n += count_looks(c->ns);
        return r == 0 ? check_pin_counts(c) : r;
}

/* Does the counts at once, because they must not change meanwhile. */
static int step_counts(struct checker *c, uint64_t most, uint64_t *ret_n)
{
        static int (*const parts[])(struct checker *) = {check_counts, check_slots, check_watched,
                check_mapped, check_grants, check_magazines};
        int r = parts[c->at](c);

        *ret_n += count_looks(c->ns);
        return r < 0 ? r : ++c->at < ARRAY_SIZE(parts);
}

/* The first parts look at all nodes. A check in slices leaves them out: step_nodes() and
 * step_marks() looked at each node. */
#define N_WHOLE 3u

static int step_structures(struct checker *c, uint64_t most, uint64_t *ret_n)
{
        static const char *(*const parts[])(const struct ns *) = {check_tree, check_ancestors,
                check_policy, check_expectations, announce_check, sessions_check, tags_check,
                drops_check, prefetch_check, records_check};
        const char *why;

        if (most < UINT64_MAX)
                c->at = MAX(c->at, N_WHOLE);
        why = parts[c->at](c->ns);
        *ret_n += count_looks(c->ns);
        if (why)
                return BROKEN(c->d,
                        "records, announcements, sessions, tags, drops, prefetch, prefix tree, expectations or eviction policy of namespace %s/%s: %s",
                        c->ns->tenant->name, c->ns->name, why);
        return ++c->at < ARRAY_SIZE(parts);
}

static const step_fn steps[] = {step_sets, step_lists, step_pages, step_slots, step_nodes,
        step_marks, step_counts, step_structures};

/* Begins with the walk's next namespace if the present one is done, or was freed. */
static void take_ns(struct checker *c)
{
        bool is_done = c->ns && c->step == ARRAY_SIZE(steps);

        if (is_done && c->n_freed == c->walk.n_freed)
                ns_walk_next(&c->walk);
        if (c->ns && !is_done && c->n_freed == c->walk.n_freed)
                return;
        while (c->walk.ns && c->walk.ns->id > c->last_id)
                ns_walk_next(&c->walk); /* it was made later */
        c->ns = c->walk.ns;
        c->n_freed = c->walk.n_freed;
        c->step = c->at = 0;
        c->slots = (struct shared_walk){0};
}

static void begin_check(struct checker *c, struct store *s)
{
        *c = (struct checker){.store = s, .last_id = s->state->last_ns_id};
        ns_walk_begin(&c->walk, s);
}

struct checker *checker_new(struct store *s)
{
        struct checker *c = malloc(sizeof(*c));

        if (c)
                begin_check(c, s);
        return c;
}

void checker_free(struct checker *c)
{
        if (c)
                ns_walk_end(&c->walk);
        free(c);
}

int checker_go_on(struct checker *c, uint64_t budget, struct detail *d)
{
        uint64_t n = 0;
        int r;

        c->d = d;
        while (!c->is_complete && n < budget) {
                take_ns(c);
                c->is_complete = c->ns == NULL;
                if (c->is_complete)
                        break;
                r = steps[c->step](c, budget, &n);
                if (r < 0)
                        return r;
                if (r == 0) {
                        c->step++;
                        c->at = 0;
                }
        }
        if (!c->is_complete || (n > 0 && budget < UINT64_MAX))
                return 1;
        return check_rest(c);
}

void checker_counts(const struct checker *c, uint64_t *ret_pages, uint64_t *ret_sets)
{
        *ret_pages = c->n_pages;
        *ret_sets = c->n_sets;
}

int store_check(struct store *s, uint64_t *ret_pages, uint64_t *ret_sets, struct detail *d)
{
        struct checker c;
        int r;

        begin_check(&c, s);
        r = checker_go_on(&c, UINT64_MAX, d);
        ns_walk_end(&c.walk);
        if (r == 0)
                checker_counts(&c, ret_pages, ret_sets);
        return r;
}
