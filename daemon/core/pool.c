#include "daemon/core/pool.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/detail.h"
#include "daemon/core/ns.h"
#include "daemon/core/store.h"
#include "daemon/core/tenant.h"
#include "proto/status.h"

/* UINT32_MAX where there is none. */
static uint32_t free_slot(const struct ns *ns)
{
        /* A set that consists of the null page alone would be bound for nothing. */
        uint32_t i = ns->keep_page_zero && ns->geometry.set_pages == 1;

        while (i < ns->geometry.n_set_slots && ns->sets[i])
                i++;
        return i < ns->geometry.n_set_slots ? i : UINT32_MAX;
}

/* Tree and policy know the pages of a set before it is there. */
static int reserve_nodes(struct ns *ns, uint32_t set_index)
{
        uint32_t n = (set_index + 1) * ns->geometry.set_pages;
        int r;

        r = ns->evict->reserve(ns->policy, n);
        if (r < 0)
                return r;
        return tree_reserve(&ns->tree, n);
}

static void destroy_extents(struct extent_set *set)
{
        for (uint32_t i = 0; i < set->ns->layout.n_planes && set->extents[i]; i++)
                set->extents[i]->device->ops->extent_destroy(set->extents[i], true);
}

static int create_extents(struct extent_set *set)
{
        struct device *device = set->ns->pool->device;
        int r;

        for (uint32_t i = 0; i < set->ns->layout.n_planes; i++) {
                r = device->ops->extent_create(
                        device, set->ns->geometry.extent_bytes, &set->extents[i]);
                if (r < 0) {
                        destroy_extents(set);
                        return r;
                }
        }
        return 0;
}

static void init_pages(struct extent_set *set)
{
        uint32_t n = set->ns->geometry.set_pages, first = set->index * n;
        uint32_t skip = set->index == 0 && set->ns->keep_page_zero;

        for (uint32_t i = 0; i < n; i++) {
                /* Lines outlive sets: generations go on where the last set here left off. */
                set->pages[i].generation =
                        atomic_load_explicit(
                                &set->ns->shared.lines[first + i].state, memory_order_relaxed) >>
                        8;
                set->pages[i].prev = PAGE_NONE;
                set->pages[i].next = i + 1 < n ? first + i + 1 : PAGE_NONE;
        }
        if (skip)
                set->pages[0] =
                        (struct page){.state = PAGE_NULL, .prev = PAGE_NONE, .next = PAGE_NONE};
        set->n_usable = set->n_free = n - skip;
        set->free_head = set->n_free > 0 ? first + skip : PAGE_NONE;
}

static int set_new(struct ns *ns, uint32_t index, struct extent_set **ret_set)
{
        struct extent_set *set;
        int r;

        set = calloc(1, sizeof(*set) + ns->layout.n_planes * sizeof(set->extents[0]));
        if (!set)
                return -ENOMEM;
        list_init(&set->link);
        list_init(&set->room_link);
        set->ns = ns;
        set->index = index;
        set->pages = calloc(ns->geometry.set_pages, sizeof(*set->pages));
        r = set->pages ? create_extents(set) : -ENOMEM;
        if (r != 0) {
                free(set->pages);
                free(set);
                return r;
        }
        init_pages(set);
        *ret_set = set;
        return 0;
}

/* From here on the set counts. */
static void set_link(struct extent_set *set)
{
        struct ns *ns = set->ns;

        ns->sets[set->index] = set;
        list_append(&ns->sets_bound, &set->link);
        if (set->n_free > 0)
                list_append(&ns->sets_room, &set->room_link);
        ns->n_sets++;
        ns->pool->n_sets++;
        ns->tenant->store->n_extents += ns->layout.n_planes;
        ns->n_pages[PAGE_FREE] += set->n_usable;
        ns->n_pages[PAGE_NULL] += ns->geometry.set_pages - set->n_usable;
}

static int admit_extents(struct ns *ns, struct detail *d)
{
        struct store *s = ns->tenant->store;

        return s->admit_extents ? s->admit_extents(ns->layout.n_planes, d, s->callback_data) : 0;
}

static int explain_bind(int r, const struct ns *ns, struct detail *d)
{
        if (r == -EMFILE || r == -ENFILE)
                return detail_set(d, r,
                        "kvleased has as many open files as %s, and every extent is one: raise %s",
                        r == -EMFILE ? "it may have" : "the machine can have",
                        r == -EMFILE ? "LimitNOFILE of kvleased" : "sysctl fs.file-max");
        return detail_set(d, r, "device %s gave no memory for an extent set: %s",
                ns->pool->device->props.name, status_text(r));
}

int set_bind(struct ns *ns, struct extent_set **ret_set, struct detail *d)
{
        uint32_t slot = free_slot(ns);
        struct charge charge = {0};
        struct extent_set *set;
        int r;

        if (slot == UINT32_MAX)
                return detail_set(d, KVL_STATUS_FULL,
                        "namespace %s holds all %u extent sets that fit its device", ns->name,
                        ns->geometry.n_set_slots);
        r = charge_take(&charge, &ns->tenant->account, &ns->pool->account, ns->geometry.set_bytes);
        if (r != 0)
                return detail_set(d, r, "%s has no room for another extent set",
                        r == KVL_STATUS_QUOTA ? "the tenant's limit" : "the device's budget");
        r = admit_extents(ns, d);
        if (r < 0) {
                charge_drop(&charge);
                return r;
        }
        r = reserve_nodes(ns, slot);
        if (r == 0)
                r = set_new(ns, slot, &set);
        if (r != 0) {
                charge_drop(&charge);
                return explain_bind(r, ns, d);
        }
        set->charge = charge;
        set_link(set);
        *ret_set = set;
        return 0;
}

void set_discard(struct extent_set *set)
{
        struct ns *ns = set->ns;

        assert(set->n_mapped == 0);

        list_remove(&set->link);
        list_remove(&set->room_link);
        ns->sets[set->index] = NULL;
        ns->n_sets--;
        ns->pool->n_sets--;
        ns->tenant->store->n_extents -= ns->layout.n_planes;
        charge_drop(&set->charge);
        destroy_extents(set);
        free(set->pages);
        free(set);
}

void set_unbind(struct extent_set *set)
{
        struct ns *ns = set->ns;

        assert(set_is_idle(set));

        ns->n_pages[PAGE_FREE] -= set->n_usable;
        ns->n_pages[PAGE_NULL] -= ns->geometry.set_pages - set->n_usable;
        set_discard(set);
}

static struct page *page_of(struct extent_set *set, uint32_t page)
{
        assert(page / set->ns->geometry.set_pages == set->index);
        return &set->pages[page % set->ns->geometry.set_pages];
}

uint32_t set_take_page(struct extent_set *set)
{
        uint32_t page = set->free_head;
        struct page *p = page_of(set, page);

        assert(set->n_free > 0 && p->state == PAGE_FREE);

        set->free_head = p->next;
        set->n_free--;
        if (set->n_free == 0)
                list_remove(&set->room_link);
        p->next = PAGE_NONE;
        p->generation++;
        p->epoch = (uint32_t)set->ns->epoch;
        ns_set_state(set->ns, page, PAGE_GRANTED);
        return page;
}

void set_put_page(struct extent_set *set, uint32_t page)
{
        struct page *p = page_of(set, page);

        assert(p->state != PAGE_FREE && p->state != PAGE_NULL && p->n_pins == 0 && !p->watched);

        /* In front: a set that was full is used again before those that may empty. */
        if (set->n_free == 0)
                list_insert_before(set->ns->sets_room.next, &set->room_link);
        ns_set_state(set->ns, page, PAGE_FREE);
        memset(p->key, 0, sizeof(p->key));
        p->tokens = 0;
        p->ready = p->reported = p->unindexed = 0;
        p->owner = 0;
        p->prev = PAGE_NONE;
        p->next = set->free_head;
        set->free_head = page;
        set->n_free++;
}
