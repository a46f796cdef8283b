#include "daemon/core/life/tenant-life.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/state/detail.h"
#include "daemon/core/state/feed.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/life/placing.h"
#include "daemon/core/life/sizing.h"
#include "daemon/core/memory/discard.h"
#include "daemon/core/memory/dma.h"
#include "daemon/core/moves/space.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/listeners.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/memory/region.h"
#include "daemon/core/memory/wait.h"
#include "daemon/core/reclaim/recall.h"
#include "daemon/core/reclaim/reclaim.h"
#include "daemon/core/reclaim/room.h"
#include "daemon/core/state/suspect.h"
#include "daemon/core/sessions/session-purge.h"

#define DEVICES_MAX 64 /* more than a daemon has */

static uint64_t budgets(const struct store *s)
{
        uint64_t bytes = 0;

        list_for_each (pool, &s->pools, struct pool, link)
                bytes += pool->account.limit_bytes;
        return bytes;
}

/* A reservation beyond all devices isn't the limit's fault. */
static int check_reserve(const struct store *s, const struct tenant_attrs *attrs, struct detail *d)
{
        char reserve[FORMAT_BYTES_MAX], limit[FORMAT_BYTES_MAX];

        if (attrs->reserve_bytes == 0)
                return 0;
        if (attrs->class != TENANT_PINNED)
                return detail_set(d, -EINVAL,
                        "%s can't be reserved for a dynamic tenant: set class=pinned, too",
                        format_bytes(attrs->reserve_bytes, reserve));
        if (attrs->reserve_bytes > attrs->limit_bytes && attrs->limit_bytes < budgets(s))
                return detail_set(d, -EINVAL,
                        "a reservation of %s is more than the limit of %s: raise the limit, or reserve less",
                        format_bytes(attrs->reserve_bytes, reserve),
                        format_bytes(attrs->limit_bytes, limit));
        return 0;
}

static int check_attrs(const struct store *s, const struct tenant_attrs *attrs, struct detail *d)
{
        const struct {
                const char *name;
                uint32_t value, min, max;
        } ranges[] = {
                {"weight", attrs->weight, 1, 1000},
                {"priority", attrs->priority, 0, 100},
                {"max_clients", attrs->max_clients, 1, TENANT_MAX_CLIENTS},
        };

        for (size_t i = 0; i < ARRAY_SIZE(ranges); i++)
                if (ranges[i].value < ranges[i].min || ranges[i].value > ranges[i].max)
                        return detail_set(d, -EINVAL, "%s is %u: %u to %u are allowed",
                                ranges[i].name, ranges[i].value, ranges[i].min, ranges[i].max);
        return check_reserve(s, attrs, d);
}

/* ---- reservations --------------------------------------------------------------------------- */

static int refuse_reserve(
        const struct tenant *t, uint64_t bytes, uint64_t missing, struct detail *d)
{
        char wanted[FORMAT_BYTES_MAX], left[FORMAT_BYTES_MAX], all[FORMAT_BYTES_MAX];
        char holders[REGION_HOLDERS_MAX];

        return detail_set(d, -ENOSPC,
                "%s can't be reserved for tenant %s: %s is left where it may be placed (in all the "
                "devices have budgets of %s, and for others is reserved: %s); reserve less, lower "
                "another reservation with: kvleasectl tenants set NAME reserve=..., or give a device a larger budget",
                format_bytes(bytes, wanted), t->name, format_bytes(bytes - missing, left),
                format_bytes(budgets(t->store), all),
                region_holders(t, NULL, holders, sizeof(holders)));
}

/* Applies the split, which fits; devices that get less come first. */
static void apply_split(struct tenant *t, const uint64_t *split)
{
        for (int raise = 0; raise < 2; raise++) {
                size_t i = 0;

                list_for_each (pool, &t->store->pools, struct pool, link) {
                        struct pool_share *s = pool_share_find(t, pool);
                        uint64_t bytes = i < DEVICES_MAX ? split[i++] : 0;
                        int r;

                        if ((bytes > s->reserve_bytes) != raise)
                                continue;
                        r = region_reserve(s, bytes, NULL);
                        assert(r == 0);
                        (void)r;
                }
        }
}

int tenant_reserve(struct tenant *t, uint64_t bytes, uint64_t *ret_missing, struct detail *d)
{
        struct place_device devices[DEVICES_MAX];
        uint64_t steps[DEVICES_MAX], split[DEVICES_MAX] = {0}, missing = 0;
        size_t n = placing_look(t, devices, DEVICES_MAX), i = 0;

        if (bytes > 0 && t->attrs.placement == PLACE_DEVICE &&
                !store_find_pool(t->store, t->attrs.device))
                return detail_set(
                        d, -ENOENT, "no device %s; see: kvleasectl devices", t->attrs.device);
        list_for_each (pool, &t->store->pools, struct pool, link) {
                const struct pool_share *s = pool_share_find(t, pool);

                if (i == n)
                        break;
                /* The present holders of the memory don't matter. */
                devices[i].free_bytes =
                        pool->account.limit_bytes - (pool->reserved_bytes - s->reserve_bytes);
                steps[i++] = pool->extent_bytes;
        }
        if (bytes > 0 && !place_reserve(&(struct place_request){devices, steps, n,
                                                t->attrs.placement, t->attrs.exclusive},
                                 bytes, split, &missing)) {
                if (ret_missing)
                        *ret_missing = missing;
                return refuse_reserve(t, bytes, missing, d);
        }
        if (ret_missing)
                *ret_missing = 0;
        apply_split(t, split);
        wait_wake(t->store);
        return 0;
}

static uint64_t sum_reserved(const struct tenant *t)
{
        uint64_t bytes = 0;

        list_for_each (s, &t->shares, struct pool_share, tenant_link)
                bytes += s->reserve_bytes;
        return bytes;
}

/* t has the new attributes already. */
static int move_reserve(struct tenant *t, const struct tenant_attrs *old, struct detail *d)
{
        const struct tenant_attrs *new = &t->attrs;
        uint64_t bytes = new->reserve_bytes;

        if (new->class == old->class &&new->reserve_bytes == old->reserve_bytes) {
                if (new->placement == old->placement &&new->exclusive == old->exclusive &&
                        strcmp(new->device, old->device) == 0)
                        return 0;
                bytes = sum_reserved(t);
        }
        return tenant_reserve(t, bytes, NULL, d);
}

/* ---- tenants -------------------------------------------------------------------------------- */

static void set_limits(struct tenant *t)
{
        for (enum tier_kind tier = 0; tier < TIER_COUNT; tier++)
                t->accounts[tier].limit_bytes = tenant_limit(&t->attrs, tier);
}

static void free_shares(struct tenant *t)
{
        list_for_each_safe (share, &t->shares, struct pool_share, tenant_link)
                pool_share_free(share);
}

int tenant_new(struct store *s, const char *name, const struct tenant_attrs *attrs,
        struct tenant **ret_tenant, struct detail *d)
{
        struct tenant *t;
        int r;

        if (!name_is_valid(name, TENANT_NAME_MAX))
                return detail_set(d, -EINVAL,
                        "a tenant's name is 1 to %d of A-Z a-z 0-9 . _ - and starts with none of . -",
                        TENANT_NAME_MAX);
        r = check_attrs(s, attrs, d);
        if (r < 0)
                return r;
        if (tenant_find(s, name))
                return detail_set(d, -EEXIST, "tenant %s exists already", name);
        t = calloc(1, sizeof(*t));
        if (!t)
                return detail_set(d, -ENOMEM, "no memory for tenant %s", name);
        t->store = s;
        t->number = ++s->last_tenant_number;
        memcpy(t->name, name, strlen(name) + 1);
        t->mark = suspect_mark(name);
        t->attrs = *attrs;
        set_limits(t);
        list_init(&t->namespaces);
        list_init(&t->nssets);
        list_init(&t->groups);
        list_init(&t->shares);
        list_init(&t->blames);
        list_init(&t->tasks);
        list_init(&t->tasks_link);
        store_for_each_pool (pool, s)
                if (r == 0)
                        r = pool_share_new(t, pool);
        if (r < 0) {
                free_shares(t);
                free(t);
                return detail_set(d, r, "no memory for tenant %s", name);
        }
        list_append(&s->tenants, &t->link);
        r = tenant_reserve(t, attrs->reserve_bytes, NULL, d);
        if (r < 0) {
                free_shares(t);
                list_remove(&t->link);
                free(t);
                return r;
        }
        *ret_tenant = t;
        return 0;
}

int tenant_set_attrs(struct tenant *t, const struct tenant_attrs *attrs, struct detail *d)
{
        struct tenant_attrs old = t->attrs;
        int r;

        r = check_attrs(t->store, attrs, d);
        if (r < 0)
                return r;
        t->attrs = *attrs;
        r = move_reserve(t, &old, d);
        if (r < 0) {
                t->attrs = old;
                return r;
        }
        set_limits(t);
        store_for_each_pool (pool, t->store) {
                region_changed(pool);
                region_work(pool); /* memory may not be lent any more */
        }
        reclaim_over_limits(t);
        if (attrs->events_bytes == 0)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        feed_close(ns);
        wait_wake(t->store);
        return 0;
}

static uint64_t sum_charged(const struct tenant *t)
{
        uint64_t bytes = 0;

        for (enum tier_kind tier = 0; tier < TIER_COUNT; tier++)
                bytes += t->accounts[tier].charged_bytes;
        return bytes;
}

void tenant_free(struct tenant *t)
{
        assert(t->n_members == 0);

        session_purges_end(t);
        leave_finish(t);
        tenant_tell(t, tenant_ends, t);
        list_for_each_safe (ns, &t->namespaces, struct ns, link)
                ns_free(ns);
        discards_leave_tenant(&t->store->memory.discards, t);
        store_for_each_pool (pool, t->store)
                dma_leave_tenant(pool, t);
        free_shares(t);
        sizing_free(t);
        blame_free(t);
        recall_forget_tenant(t->store, t);
        list_remove(&t->link);
        free(t);
}

int tenant_refuse_leaving(const struct tenant *t, struct detail *d)
{
        return detail_set(d, -EBUSY,
                "clients of tenant %s have just ended, and what they held is being let go of: ask again in a moment",
                t->name);
}

int tenant_refuse_namespaces(const struct tenant *t, struct detail *d)
{
        char held[FORMAT_BYTES_MAX];
        uint64_t n_pages = 0;

        list_for_each (ns, &t->namespaces, struct ns, link)
                for (enum tier_kind tier = 0; tier < TIER_COUNT; tier++)
                        n_pages += ns->tiers[tier].n_pages[PAGE_SEALED];
        if (n_pages == 0)
                return detail_set(d, -EBUSY,
                        "tenant %s still has namespaces (%u), which hold no cached page: add --force to drop them, or kvleasectl purge %s --remove",
                        t->name, t->n_namespaces, t->name);
        return detail_set(d, -EBUSY,
                "tenant %s still has namespaces (%u) with %llu cached pages (%s in all tiers): add --force to drop them",
                t->name, t->n_namespaces, (unsigned long long)n_pages,
                format_bytes(sum_charged(t), held));
}

int tenant_remove(struct tenant *t, bool force, struct detail *d)
{
        if (t->n_members > 0)
                return detail_set(d, -EBUSY, "tenant %s has clients: %u; stop them first", t->name,
                        t->n_members);
        if (!list_is_empty(&t->groups))
                return tenant_refuse_leaving(t, d);
        if (!force && !list_is_empty(&t->namespaces))
                return tenant_refuse_namespaces(t, d);
        list_for_each_safe (ns, &t->namespaces, struct ns, link) {
                int r = space_erase(ns);

                if (r < 0)
                        return detail_set(d, r, "no memory to erase namespace %s", ns->name);
                tenant_tell(t, invalidated, ns, NULL, 0);
                ns_free(ns);
        }
        space_erase_unopened(t);
        tenant_free(t);
        return 0;
}

/* Checks the counts by which the server limits descriptors. */
static const char *check_counts(const struct tenant *t)
{
        uint32_t n_namespaces = 0, n_attachments = 0;

        list_for_each (ns, &t->namespaces, struct ns, link) {
                n_namespaces++;
                list_for_each (a, &ns->clients.attachments, struct attach, ns_link)
                        n_attachments++;
        }
        if (t->n_namespaces != n_namespaces || t->n_attachments != n_attachments)
                return "it has other numbers of namespaces or attachments than are counted";
        list_for_each (s, &t->shares, struct pool_share, tenant_link) {
                uint64_t n = 0;

                list_for_each (ns, &t->namespaces, struct ns, link) {
                        const struct ns_tier *tier = ns_tier_on(ns, s->pool);

                        if (tier)
                                n += (uint64_t)(tier->n_sets + tier->n_preparing) *
                                     ns->geometry.tiers[s->pool->tier].n_extents;
                }
                if (s->n_extents != n)
                        return "it has another number of extents than is counted";
        }
        return NULL;
}

const char *tenant_check(const struct tenant *t)
{
        for (enum tier_kind tier = 0; tier < TIER_COUNT; tier++) {
                uint64_t bytes = 0;

                if (t->accounts[tier].limit_bytes != tenant_limit(&t->attrs, tier))
                        return "the limit of an account isn't what its attributes say";
                list_for_each (ns, &t->namespaces, struct ns, link)
                        bytes += ns_charged_bytes(ns, tier);
                list_for_each (what, &t->store->memory.discards.going, struct discard, link)
                        if (what->charge.tenant == &t->accounts[tier])
                                bytes += what->charge.bytes;
                if (t->accounts[tier].charged_bytes != bytes)
                        return "what is charged to an account isn't the sum of its sets";
        }
        return check_counts(t);
}
