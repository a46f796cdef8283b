#include "daemon/core/life/namespace.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/cache/announced.h"
#include "daemon/core/cache/drop.h"
#include "daemon/core/cache/history.h"
#include "daemon/core/cache/nsset.h"
#include "daemon/core/cache/tag.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/life/idle.h"
#include "daemon/core/memory/address.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/moves/fill.h"
#include "daemon/core/moves/space.h"
#include "daemon/core/moves/transfer.h"
#include "daemon/core/state/feed.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/listeners.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/memory/tasks.h"
#include "daemon/core/reclaim/compact.h"
#include "daemon/core/state/records.h"
#include "daemon/core/state/shared.h"
#include "daemon/core/requests/invalidate.h"
#include "daemon/core/sessions/session.h"
#include "daemon/core/reclaim/prefetch.h"
#include "daemon/core/reclaim/leasable.h"
#include "daemon/tier/disk.h"
#include "policy/expect.h"
#include "proto/status.h"

/* Gives the tree the tiers with pages; a policy that knows one tier gets no more. */
static void set_tiers(struct ns *ns)
{
        uint32_t first[TREE_TIERS], n = 1;

        static_assert(TREE_TIERS >= TIER_COUNT, "a tier of the tree for each");
        for (unsigned i = 0; i < TIER_COUNT; i++) {
                first[i] = i == TIER_DEVICE ? 0 : tier_first_page(&ns->geometry, i);
                n = ns->geometry.tiers[i].n_sets > 0 ? i + 1 : n;
        }
        tree_set_tiers(&ns->tree, first, n);
}

static int init_policy(struct ns *ns, const struct tenant *t)
{
        struct evict_params params = {.tree = &ns->tree,
                .page_tokens = ns->layout.page_tokens,
                .crossover_tokens = t->attrs.crossover_tokens};

        tree_init(&ns->tree);
        set_tiers(ns);
        ns->evict = t->attrs.evict ? t->attrs.evict : t->store->evict;
        return ns->evict->new (&params, &ns->policy);
}

/* Allocates a namespace that can't be found yet. */
static int ns_alloc(const struct ns_layout *layout, const struct ns_geometry *geometry,
        const struct page_codecs *codecs, struct ns **ret_ns)
{
        struct ns *ns = calloc(1, sizeof(*ns));

        if (!ns)
                return -ENOMEM;
        ns->layout = *layout;
        ns->geometry = *geometry;
        ns->sets.factor = divide_factor(geometry->set_pages);
        ns->codecs.of_pages = *codecs;
        ns->records.fd = ns->shared.segment.fd = ns->shared.segment.reader_fd = -1;
        ns->feed.segment.fd = ns->feed.segment.reader_fd = -1;
        ns->catalog.watched.first = ns->catalog.watched.last = PAGE_NONE;
        for (unsigned i = 0; i < TIER_COUNT; i++) {
                list_init(&ns->tiers[i].sets_bound);
                list_init(&ns->tiers[i].sets_room);
                list_init(&ns->tiers[i].sets_preparing);
        }
        list_init(&ns->clients.attachments);
        list_init(&ns->clients.closing);
        list_init(&ns->catalog.drops);
        list_init(&ns->catalog.announced.sets);
        task_init(&ns->catalog.announced.withdrawal);
        ns->catalog.announced.withdraw_at = PAGE_NONE;
        wake_init(ns);
        ns->sets.at = calloc(geometry->n_set_slots, sizeof(*ns->sets.at));
        ns->sets.preparing = calloc(geometry->n_set_slots, sizeof(*ns->sets.preparing));
        if (!ns->sets.at || !ns->sets.preparing) {
                free(ns->sets.preparing);
                free(ns->sets.at);
                free(ns);
                return -ENOMEM;
        }
        *ret_ns = ns;
        return 0;
}

static void ns_discard(struct ns *ns)
{
        expect_free(ns->expect);
        if (ns->policy)
                ns->evict->free(ns->policy);
        tree_deinit(&ns->tree);
        ancestors_deinit(&ns->catalog.ancestors);
        shared_deinit(&ns->shared);
        records_close(&ns->records);
        free(ns->sets.preparing);
        free(ns->sets.at);
        free(ns);
}

static int ns_make(struct tenant *t, const struct ns_layout *layout,
        const struct ns_geometry *geometry, const struct page_codecs *codecs, struct ns **ret_ns)
{
        struct store *s = t->store;
        struct ns *ns;
        int r = ns_alloc(layout, geometry, codecs, &ns);

        if (r < 0)
                return r;
        ns->id = state_next(&s->state->last_ns_id);
        r = records_new(s, geometry, &ns->records);
        if (r == 0)
                r = shared_init(&ns->shared, &s->room, geometry->capacity_pages, ns->records.seed,
                        ns->id, s->boot_epoch);
        if (r == 0)
                r = init_policy(ns, t);
        if (r < 0) {
                ns_discard(ns);
                return r;
        }
        *ret_ns = ns;
        return 0;
}

static void place_in_pools(struct ns *ns, struct tenant *t, struct pool *pool, const char *name)
{
        ns->tenant = t;
        ns->store = t->store;
        for (struct pool *p = pool; p; p = p->below) {
                if (ns->geometry.tiers[p->tier].n_sets == 0)
                        continue;
                ns->tiers[p->tier].pool = p;
                ns->tiers[p->tier].share = pool_share_find(t, p);
        }
        memcpy(ns->name, name, strlen(name) + 1);
}

/* Makes the namespace findable; it is empty. */
static void enter_tenant(struct ns *ns)
{
        struct store *s = ns->store;

        list_append(&ns->tenant->namespaces, &ns->link);
        ns->tenant->n_namespaces++;
        leasable_begin(ns);
        if (s->owner.on_ns)
                s->owner.on_ns(ns, false, s->owner.data);
}

int ns_adopt(struct tenant *t, struct pool *pool, const struct ns_kept *kept, struct ns **ret_ns)
{
        const struct records_identity *i = &kept->records.header->identity;
        struct page_codecs codecs;
        struct ns_layout layout;
        struct ns *ns;
        int r;

        records_layout(kept->records.header, kept->options, &layout);
        r = records_codecs(kept->records.header, &codecs);
        if (r == 0)
                r = ns_alloc(&layout, &i->geometry, &codecs, &ns);
        if (r < 0)
                return r;
        r = init_policy(ns, t);
        if (r == 0)
                r = shared_adopt(&ns->shared, kept->index_fd, kept->reader_fd,
                        i->geometry.capacity_pages, kept->records.seed, i->ns_id,
                        t->store->boot_epoch);
        if (r < 0) {
                ns_discard(ns);
                return r;
        }
        ns->id = i->ns_id;
        ns->records = kept->records;
        ns->sets.keep_page_zero = i->keep_page_zero;
        ns->epoch = atomic_load_explicit(&kept->records.header->epoch, memory_order_relaxed);
        ns->version_epoch = kept->options->version_epoch;
        ns->catalog.expiry.after_nsec = kept->options->expire_nsec;
        place_in_pools(ns, t, pool, i->name);
        ns->address = address_claim(t->store, ns, i->address);
        enter_tenant(ns);
        *ret_ns = ns;
        return 0;
}

static int check_page_bytes(const struct ns_layout *layout, uint64_t min_bytes, struct detail *d)
{
        uint64_t page_bytes = layout_page_bytes(layout);

        if (page_bytes >= min_bytes)
                return 0;
        return detail_set(d, -EINVAL,
                "plane_page_bytes %llu in %u planes makes pages of %llu bytes: %llu is the minimum; choose a larger page_tokens (or plane_page_bytes)",
                (unsigned long long)layout->plane_page_bytes, layout->n_planes,
                (unsigned long long)page_bytes, (unsigned long long)min_bytes);
}

/* A page in host memory takes a multiple of this: a cache line. */
#define HOST_UNIT_BYTES 64

static void add_tiers(
        const struct pool *pool, const struct page_codecs *codecs, struct ns_geometry *g)
{
        for (const struct pool *p = pool->below; p; p = p->below) {
                if (p->tier == TIER_DISK && !p->disk)
                        continue;
                struct tier_source source = {.granularity_bytes = p->props->granularity_bytes,
                        .unit_bytes = p->tier == TIER_DISK ? DISK_ALIGN : HOST_UNIT_BYTES,
                        .budget_bytes = p->account.limit_bytes,
                        .page_bytes = codecs->stored_bytes[p->tier],
                        .codec = codec_layers_number(&codecs->tiers[p->tier])};

                ns_geometry_add(p->tier, &source, g);
        }
}

int ns_new(struct tenant *t, struct pool *pool, const char *name, const struct ns_layout *layout,
        const struct ns_options *options, struct ns **ret_ns, struct detail *d)
{
        struct ns_geometry geometry;
        struct page_codecs codecs;
        struct set_source source;
        struct ns *ns;
        int r;

        assert(ns_name_is_valid(name) && !ns_find(t, name));

        if (t->n_namespaces >= NS_MAX_PER_TENANT && idle_drop(t, 1) == 0)
                return detail_set(d, -EMFILE,
                        "tenant %s has %d namespaces, the most there may be; drop unused ones with: kvleasectl purge %s --remove",
                        t->name, NS_MAX_PER_TENANT, t->name);
        r = check_page_bytes(layout, t->store->min_page_bytes, d);
        if (r < 0)
                return r;
        source = pool_set_source(pool);
        source.has_null_set = options->keep_page_zero && !pool->props->is_cpu_memory;
        r = ns_geometry_of(layout, &source, options->stride_bytes, &geometry, d);
        if (r < 0)
                return r;
        if (options->keep_page_zero && !source.has_null_set &&
                tier_n_pages(&geometry, TIER_DEVICE) == 1)
                return detail_set(d, -EINVAL,
                        "the device's budget holds one page of this layout and page 0 is kept back");
        r = page_codecs_init(&codecs, layout, options->codecs, d);
        if (r < 0)
                return r;
        add_tiers(pool, &codecs, &geometry);
        r = ns_make(t, layout, &geometry, &codecs, &ns);
        if (r < 0)
                return detail_set(d, r, "no memory for namespace %s: %s", name, status_text(r));
        place_in_pools(ns, t, pool, name);
        ns->sets.keep_page_zero = options->keep_page_zero && !source.has_null_set;
        ns->address = address_take(t->store, ns);
        enter_tenant(ns);
        feed_open(ns);
        (void)space_open(ns, false); /* if it fails, cold pages are dropped */
        *ret_ns = ns;
        return 0;
}

void ns_free(struct ns *ns)
{
        struct store *store = ns->store;

        assert(list_is_empty(&ns->clients.attachments) && list_is_empty(&ns->clients.closing));

        if (store->owner.on_ns)
                store->owner.on_ns(ns, true, store->owner.data);
        tenant_tell(ns->tenant, ns_leaves, ns);
        drops_end(ns);
        task_remove(&ns->catalog.announced.withdrawal, ns->tenant);
        records_end(ns);
        feed_close(ns);
        nsset_leave(ns);
        history_free(ns);
        prefetch_free(ns);
        sessions_free(ns);
        tags_reset(ns);
        compact_forget_ns(ns);
        transfer_forget_ns(ns);
        fill_forget_ns(ns);
        space_close(ns, false);
        for (unsigned i = 0; i < TIER_COUNT; i++) {
                list_for_each_safe (set, &ns->tiers[i].sets_bound, struct extent_set, link)
                        set_discard(set);
                list_for_each_safe (set, &ns->tiers[i].sets_preparing, struct extent_set, link)
                        set_orphan(set);
        }
        ns_leave_walks(ns);
        list_remove(&ns->link);
        ns->tenant->n_namespaces--;
        leasable_end(ns);
        wake_deinit(ns);
        ns_discard(ns);
}

int ns_invalidate(struct ns *ns, enum drop_cause cause, uint64_t *ret_pages)
{
        int r = ns_empty(ns, cause, ret_pages);

        if (r == 0)
                tenant_tell(ns->tenant, invalidated, ns, NULL, 0);
        if (r == 0 && cause == CAUSE_MISMATCH)
                ns->tenant->counters.mismatches++;
        return r;
}
