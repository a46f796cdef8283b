#include "daemon/core/memory/sets.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault-point.h"
#include "base/fd.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/memory/discard.h"
#include "daemon/core/memory/dma.h"
#include "daemon/core/memory/run.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/pool.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/memory/region.h"
#include "daemon/core/memory/wait.h"
#include "daemon/core/state/nsset-keys.h"
#include "daemon/core/state/records.h"
#include "gpu/queue.h"
#include "proto/status.h"

/* Returns a free slot, or UINT32_MAX. */
static uint32_t free_slot(const struct ns *ns, enum tier_kind kind)
{
        const struct tier_geometry *t = &ns->geometry.tiers[kind];
        uint32_t i = t->first_set;

        /* Binding a set that has only the null page would be of no use. */
        i += i == 0 && ns->sets.keep_page_zero && ns->geometry.set_pages == 1;
        while (i < t->first_set + t->n_sets && (ns->sets.at[i] || ns->sets.preparing[i]))
                i++;
        return i < t->first_set + t->n_sets ? i : UINT32_MAX;
}

static const struct tier_geometry *geometry_of(const struct extent_set *set)
{
        return &set->ns->geometry.tiers[set_kind(set)];
}

/* Reserves space for the set's pages in tree, policy and namespace set, before they exist. */
static int reserve_nodes(struct ns *ns, uint32_t set_index)
{
        uint32_t n = (set_index + 1) * ns->geometry.set_pages;
        int r;

        r = ns->evict->reserve(ns->policy, n);
        if (r == 0)
                r = tree_reserve(&ns->tree, n);
        return r < 0 ? r : nsset_reserve(ns, ns->geometry.set_pages);
}

/* Notes why destroying failed; no caller waits for it. */
static void on_destroyed(struct job *job, int result, void *data)
{
        struct pool *pool = data;

        if (result < 0)
                memcpy(pool->why, job->why, sizeof(pool->why));
}

static const struct keep *keep_of(const struct extent_set *set)
{
        return &set->ns->store->keep;
}

/* Clients had the files, so the process must not block on them (discard.h). */
static bool goes_by_discard(const struct extent_set *set)
{
        return set->n_extents > 0 && set->pool->props->is_cpu_memory;
}

/* Destroys on the queue, whose thread drops the stored descriptors, too. If the set's files were
 * emptied first, they stay stored until then: the next daemon would empty them again. */
static void destroy_on_queue(struct extent_set *set)
{
        struct discard *what = TAKE(set->discard);

        if (!what) {
                queue_submit(set->pool->queue, TAKE(set->parting));
                return;
        }
        what->parting = TAKE(set->parting);
        what->queue = set->pool->queue;
        what->bytes = set->n_extents * set->extents[0]->bytes;
        discard_submit(set->pool->discards, what);
}

/* Destroys the set's extents, in order if there is a queue. */
static void destroy_extents(struct extent_set *set)
{
        struct discard *what = set->discard;

        if (set->parting) {
                destroy_on_queue(set);
                return;
        }
        set->discard = NULL;
        for (uint32_t i = 0; i < set->n_extents && set->extents[i]; i++) {
                keep_drop(keep_of(set), KEEP_EXTENT, set_extent_number(set, i));
                what->extents[what->n++] = TAKE(set->extents[i]);
        }
        what->arena = TAKE(set->arena);
        what->extent_bytes = geometry_of(set)->extent_bytes;
        what->bytes = what->n * what->extent_bytes;
        what->n_mapped = set->n_arena;
        set->n_arena = 0;
        if (set->dma)
                charge_drop(&what->charge);
        if (!dma_takes(set, what))
                discard_submit(set->pool->discards, what);
}

/* Stores the exported descriptor of an extent. */
static int keep_extent(const struct extent_set *set, uint32_t n)
{
        const struct device_ops *ops = set->extents[n]->device->ops;
        struct extent_handle handle;
        int r;

        if (!keep_is_on(keep_of(set)))
                return 0;
        r = ops->extent_export(set->extents[n], &handle);
        if (r < 0)
                return r;
        r = handle.fd < 0 ? 0
                          : keep_add(keep_of(set), KEEP_EXTENT, set_extent_number(set, n),
                                    handle.fd, NULL);
        fd_close(handle.fd);
        return r;
}

/* Returns the member of the pool's device that has an extent of the set. */
static unsigned set_member(const struct extent_set *set, uint32_t extent)
{
        return device_member_of(set->pool->props, extent, set->n_extents);
}

static int create_extents(struct extent_set *set)
{
        struct device *device = set->pool->device;
        int r;

        for (uint32_t i = 0; i < set->n_extents; i++) {
                r = device_create(device, set_member(set, i), geometry_of(set)->extent_bytes,
                        &set->extents[i]);
                if (r == 0)
                        r = keep_extent(set, i);
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
        uint32_t skip = set->index == 0 && set->ns->sets.keep_page_zero;

        for (uint32_t i = 0; i < n; i++) {
                /* Lines outlive sets: generations continue from the last set here. A set that was
                 * lost in a restart left its pages as clients saw them. */
                _Atomic uint64_t *line = &set->ns->shared.lines[first + i].state;
                uint64_t word =
                        page_word(atomic_load_explicit(line, memory_order_relaxed) >> 8, PAGE_FREE);

                atomic_store_explicit(&set->pages[i].word, word, memory_order_relaxed);
                if (atomic_load_explicit(line, memory_order_relaxed) != word)
                        atomic_store_explicit(line, word, memory_order_release);
                set->pages[i].prev = set->pages[i].next = PAGE_NONE;
        }
        if (skip)
                atomic_store_explicit(
                        &set->pages[0].word, page_word(0, PAGE_NULL), memory_order_relaxed);
        set->n_usable = n - skip;
        set->free_head = PAGE_NONE;
        for (uint32_t i = n; i-- > skip;)
                set_list_page(set, first + i);
}

static void set_free(struct extent_set *set)
{
        job_free(set->parting);
        free(set->discard);
        free(set->free_bits);
        free(set->part_sums);
        free(set->moving.filled);
        if (set->ns) /* an orphan's records were freed with its namespace */
                records_wipe(set->ns, set->index, 1);
        free(set);
}

static bool overlaps(const struct list_link *sets, uint32_t first, uint32_t n)
{
        list_for_each (set, sets, struct extent_set, link)
                if (set->first_extent < first + n && first < set->first_extent + set->n_extents)
                        return true;
        return false;
}

static bool is_number_used(const struct store *s, uint32_t first, uint32_t n)
{
        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        for (unsigned i = 0; i < TIER_COUNT; i++)
                                if (overlaps(&ns->tiers[i].sets_bound, first, n) ||
                                        overlaps(&ns->tiers[i].sets_preparing, first, n))
                                        return true;
        return false;
}

/* Returns the first of n consecutive free extent numbers. Extents that are being destroyed got
 * theirs long before: the whole range of numbers lies between. */
static uint32_t next_extents(struct store *s, uint32_t n)
{
        _Atomic uint64_t *last = &s->state->last_extent;
        uint64_t first;

        do {
                first = atomic_load_explicit(last, memory_order_relaxed) + 1;
                if (first + n > KEEP_MAX_NUMBER)
                        first = 1;
                FAULT_POINT("extent-before-number");
                atomic_store_explicit(last, first + n - 1, memory_order_release);
                FAULT_POINT("extent-after-number");
        } while (is_number_used(s, (uint32_t)first, n));
        return (uint32_t)first;
}

static int set_new(struct ns *ns, uint32_t index, struct extent_set **ret_set)
{
        enum tier_kind kind = tier_of_set(&ns->geometry, index);
        uint32_t n = ns->geometry.tiers[kind].n_extents;
        struct extent_set *set;

        set = calloc(1, sizeof(*set) + n * sizeof(set->extents[0]));
        if (!set)
                return -ENOMEM;
        list_init(&set->link);
        list_init(&set->room_link);
        list_init(&set->idle_link);
        list_init(&set->moving.fills);
        list_init(&set->announced_link);
        list_init(&set->recall.link);
        set->ns = ns;
        set->tier = &ns->tiers[kind];
        set->pool = set->tier->pool;
        set->n_extents = n;
        set->cost_bytes = UINT64_MAX; /* not weighed yet */
        set->asked_nsec = clock_now_nsec();
        set->index = index;
        set->pages = &ns->records.pages[index * ns->geometry.set_pages];
        set->free_bits = calloc(run_words(ns->geometry.set_pages), sizeof(*set->free_bits));
        if (set->pool->queue)
                set->parting = job_new(JOB_DESTROY, n);
        if (!set->pool->queue || (set->parting && goes_by_discard(set)))
                set->discard = discard_new(n);
        if (set->pool->queue && goes_by_discard(set) && !set->discard)
                job_free(TAKE(set->parting));
        if (!set->free_bits || (set->pool->queue ? !set->parting : !set->discard)) {
                job_free(set->parting);
                free(set->discard);
                free(set->free_bits);
                free(set);
                return -ENOMEM;
        }
        *ret_set = set;
        return 0;
}

/* Makes a set with its extents, or with the job that will end them. */
static int set_make(struct ns *ns, uint32_t index, struct extent_set **ret_set)
{
        struct extent_set *set;
        int r = set_new(ns, index, &set);

        if (r < 0)
                return r;
        if (keep_is_on(keep_of(set)) && set->n_extents > 0)
                set->first_extent = next_extents(ns->store, set->n_extents);
        r = set->pool->queue ? 0 : create_extents(set);
        if (r != 0) {
                set_free(set);
                return r;
        }
        init_pages(set);
        *ret_set = set;
        return 0;
}

/* Counts the extents for the namespace's tenant, from the time of the charge on. */
static void count_extents(const struct extent_set *set, bool more)
{
        struct store *s = set->ns->store;
        uint64_t n = more ? set->n_extents : -(uint64_t)set->n_extents;

        s->memory.n_extents += n;
        set->tier->share->n_extents += n;
}

/* Counts the set in its tier. */
static void enter_tier(struct extent_set *set)
{
        struct ns *ns = set->ns;

        ns->sets.at[set->index] = set;
        list_append(&set->tier->sets_bound, &set->link);
        if (set->n_free > 0)
                list_append(&set->tier->sets_room, &set->room_link);
        set->tier->n_sets++;
        set->pool->n_sets++;
}

/* Links a bound set, all of whose pages are FREE. */
static void set_link(struct extent_set *set)
{
        struct ns *ns = set->ns;

        records_bind(set);
        enter_tier(set);
        set->tier->n_pages[PAGE_FREE] += set->n_usable;
        set->tier->n_pages[PAGE_NULL] += ns->geometry.set_pages - set->n_usable;
}

int set_adopt(struct ns *ns, uint32_t index, uint32_t first_extent,
        const struct job_extent *extents, struct extent_set **ret_set)
{
        struct extent_set *set;
        int r = reserve_nodes(ns, index);

        if (r == 0)
                r = set_new(ns, index, &set);
        if (r < 0)
                return r;
        charge_adopt(&set->charge, set->tier->share, geometry_of(set)->set_bytes);
        set->first_extent = first_extent;
        for (uint32_t i = 0; i < set->n_extents; i++) {
                set->extents[i] = extents[i].extent;
                if (!set->parting)
                        continue;
                set->parting->extents[i] = extents[i];
                set->parting->done = on_destroyed;
                set->parting->data = set->pool;
        }
        set->n_usable = ns->geometry.set_pages - (index == 0 && ns->sets.keep_page_zero);
        set->free_head = PAGE_NONE;
        enter_tier(set);
        count_extents(set, true);
        *ret_set = set;
        return 0;
}

void set_adopted(struct extent_set *set)
{
        if (set->n_free > 0)
                list_append(&set->tier->sets_room, &set->room_link);
}

static int admit_extents(const struct ns *ns, enum tier_kind kind, struct detail *d)
{
        const struct store *s = ns->store;

        return s->owner.admit_extents && ns->geometry.tiers[kind].n_extents > 0
                       ? s->owner.admit_extents(ns, kind, d, s->owner.data)
                       : 0;
}

static int explain_bind(int r, const struct pool *pool, struct detail *d)
{
        if (r == -EMFILE || r == -ENFILE)
                return detail_set(d, r,
                        "kvleased has as many open files as %s, and every extent is one: raise %s",
                        r == -EMFILE ? "it may have" : "the machine can have",
                        r == -EMFILE ? "LimitNOFILE of kvleased" : "sysctl fs.file-max");
        if (pool->queue)
                return detail_set(d, r, "kvleased has no memory to note an extent set");
        return detail_set(d, r, "device %s gave no memory for an extent set: %s", pool->props->name,
                status_text(r));
}

/* ---- on a queue ------------------------------------------------------------------------------ */

static int explain_device(const struct ns *ns, int result, const char *why, struct detail *d)
{
        const struct pool *pool = ns->device.pool;
        const char *name = pool->props->name, *text = why[0] ? why : status_text(result);
        char set[FORMAT_BYTES_MAX], budget[FORMAT_BYTES_MAX];

        switch (result) {
        case -ENOMEM:
                return detail_set(d, KVL_STATUS_FULL,
                        "device %s has no memory for an extent set of %s though its budget of %s "
                        "has room (%s): most likely other processes use the device, too; stop "
                        "them, or lower 'memory' of the device in kvleased's configuration",
                        name, format_bytes(ns->geometry.set_bytes, set),
                        format_bytes(pool->account.limit_bytes, budget), text);
        case -ETIMEDOUT:
                return detail_set(d, -EIO,
                        "device %s hangs: %s; it can be leased from again when its driver answers",
                        name, text);
        case -ENXIO:
                return detail_set(d, -EIO,
                        "device %s is broken: %s; restart kvleased when it has been reset", name,
                        text);
        default:
                return detail_set(d, -EIO, "device %s made no extent set: %s", name, text);
        }
}

/* Sends no request to a device that can't answer. */
static int check_queue(const struct ns *ns, struct detail *d)
{
        const struct pool *pool = ns->device.pool;

        if (queue_is_broken(pool->queue))
                return explain_device(ns, -ENXIO, pool->why, d);
        if (queue_is_stuck(pool->queue))
                return explain_device(ns, -ETIMEDOUT, pool->why, d);
        return 0;
}

static void begin_preparing(struct extent_set *set)
{
        struct ns *ns = set->ns;

        list_append(&set->tier->sets_preparing, &set->link);
        ns->sets.preparing[set->index] = 1;
        set->tier->n_preparing++;
        set->tier->n_preparing_pages += set->n_usable;
}

static void end_preparing(struct extent_set *set)
{
        struct ns *ns = set->ns;

        list_remove(&set->link);
        ns->sets.preparing[set->index] = 0;
        set->tier->n_preparing--;
        set->tier->n_preparing_pages -= set->n_usable;
}

static int explain_lowered(const struct ns *ns, struct detail *d)
{
        const struct tenant *t = ns->tenant;
        char limit[FORMAT_BYTES_MAX];

        return detail_set(d, KVL_STATUS_QUOTA,
                "the limit of tenant %s was lowered to %s while memory was being made for the "
                "lease; release pages or raise the limit with: kvleasectl tenants set %s limit=...",
                t->name, format_bytes(t->account.limit_bytes, limit), t->name);
}

/* Reports the failure to waiting leases; magazines don't retry by themselves. result 0: over the
 * limit. */
static void note_failure(struct ns *ns, int result, const char *why)
{
        list_for_each (a, &ns->clients.attachments, struct attach, ns_link)
                if (a->magazine)
                        a->magazine->is_short = false;
        if (ns->waits.n == 0)
                return;
        ns->waits.failure.code = result < 0
                                         ? explain_device(ns, result, why, &ns->waits.failure.why)
                                         : explain_lowered(ns, &ns->waits.failure.why);
}

static void end_orphan(struct extent_set *set, bool is_made)
{
        list_remove(&set->link);
        set->pool->n_preparing--;
        charge_drop(&set->charge);
        if (is_made)
                destroy_extents(set);
        set_free(set);
}

static void on_made(struct job *job, int result, void *data)
{
        struct extent_set *set = data;
        struct pool *pool = set->pool;
        struct ns *ns = set->ns;

        if (result < 0)
                memcpy(pool->why, job->why, sizeof(pool->why));
        for (size_t i = 0; result == 0 && i < job->n; i++) {
                set->extents[i] = job->extents[i].extent;
                set->parting->extents[i] = job->extents[i];
        }
        if (!ns) {
                end_orphan(set, result == 0);
                return;
        }
        end_preparing(set);
        pool->n_preparing--;
        ns->sets.changed = true;
        /* The limit may have been lowered since the request. */
        if (result == 0 && account_fits(ns->device.share->account, 0)) {
                ahead_made(&ns->reclaim.prealloc.ahead, clock_now_nsec() - set->asked_nsec);
                set_link(set);
                return;
        }
        count_extents(set, false);
        charge_drop(&set->charge);
        if (result == 0)
                destroy_extents(set);
        set_free(set);
        note_failure(ns, result, job->why);
}

/* Submits the creation of a charged set. */
static int prepare_on_queue(struct extent_set *set)
{
        struct job *job = job_new(JOB_CREATE, set->n_extents);

        if (!job)
                return -ENOMEM;
        job->bytes = geometry_of(set)->extent_bytes;
        for (uint32_t i = 0; i < set->n_extents; i++) {
                job->extents[i].member = set_member(set, i);
                if (set->first_extent > 0)
                        job->extents[i].number = set_extent_number(set, i);
        }
        job->done = on_made;
        job->data = set;
        set->parting->done = on_destroyed;
        set->parting->data = set->pool;
        begin_preparing(set);
        set->pool->n_preparing++;
        queue_submit(set->pool->queue, job);
        return -EINPROGRESS;
}

unsigned pool_reap(struct pool *pool)
{
        return queue_reap(pool->queue);
}

struct set_source pool_set_source(const struct pool *pool)
{
        return (struct set_source){.wanted_bytes = pool->extent_bytes,
                .n_members = pool->props->n_members,
                .granularity_bytes = pool->props->granularity_bytes,
                .unit_bytes = pool->props->unit_bytes,
                .budget_bytes = pool->account.limit_bytes};
}

void set_orphan(struct extent_set *set)
{
        struct pool_share *s = set->tier->share;
        uint64_t idle = pool_share_idle(s);

        end_preparing(set);
        count_extents(set, false);
        charge_leave_tenant(&set->charge);
        /* Reserved memory becomes free when the orphan is destroyed. */
        s->unbacked_bytes = MIN(s->unbacked_bytes, idle) + pool_share_idle(s) - idle;
        set->ns = NULL;
        list_append(&set->pool->orphans, &set->link);
}

void pool_forget_orphans(struct pool *pool)
{
        list_for_each_safe (set, &pool->orphans, struct extent_set, link)
                end_orphan(set, false);
}

int set_export(const struct extent_set *set, uint32_t n, struct extent_handle *ret_handle)
{
        struct extent *e = set->extents[n];
        struct extent_handle handle;

        if (!set->parting)
                return e->device->ops->extent_export(e, ret_handle);
        handle = set->parting->extents[n].handle;
        if (handle.fd >= 0) {
                handle.fd = fcntl(handle.fd, F_DUPFD_CLOEXEC, 0);
                if (handle.fd < 0)
                        return -errno;
        }
        *ret_handle = handle;
        return 0;
}

/* ---- in this process ------------------------------------------------------------------------- */

/* Continues where it failed before. */
static int map_extents(struct extent_set *set)
{
        struct device *device = set->pool->device;
        uint64_t bytes = geometry_of(set)->extent_bytes;
        int r = 0;

        if (!set->arena)
                r = device->ops->arena_reserve(device, set->n_extents * bytes, 0, &set->arena);
        for (uint32_t i = set->n_arena; r == 0 && i < set->n_extents; i++) {
                r = device->ops->arena_map(
                        set->arena, i * bytes, set->extents[i], DEVICE_READ_WRITE);
                set->n_arena += r == 0;
        }
        if (r == 0)
                dma_begin(set);
        return r;
}

uint8_t *set_address(struct extent_set *set, uint32_t page, uint32_t plane)
{
        const struct tier_geometry *t = geometry_of(set);
        uint64_t at = page % set->ns->geometry.set_pages * t->stored_bytes;

        assert(set->n_extents > 0 && !set->pool->queue);

        if (set->n_arena < set->n_extents && map_extents(set) < 0)
                return NULL;
        if (set->n_extents > 1)
                at += plane * t->extent_bytes;
        else if (t->codec == CODEC_NONE)
                at += plane * set->ns->layout.plane_page_bytes;
        return (uint8_t *)set->pool->device->ops->arena_base(set->arena) + at;
}

/* ---- binding --------------------------------------------------------------------------------- */

static int take_charge(struct ns_tier *tier, uint64_t bytes, struct claim *claim, struct charge *c,
        struct detail *d)
{
        enum lease_reason reason = region_admits(tier->share, bytes, claim);
        int r;

        if (reason != LEASE_REASON_NONE)
                return detail_set(d, lease_reason_status(reason),
                        "no other extent set is admitted for tenant %s on device %s: %s",
                        tier->share->tenant->name, tier->pool->props->name,
                        lease_reason_name(reason));
        r = charge_take(c, tier->share, bytes);
        assert(r == 0); /* admitted memory fits */
        region_note_charge(tier->share, bytes, claim);
        return r;
}

/* Binds a charged set, with its extents or the job that makes them. */
static int bind_charged(
        struct ns *ns, uint32_t slot, const struct charge *charge, struct extent_set **ret_set)
{
        struct extent_set *set;
        int r = reserve_nodes(ns, slot);

        if (r == 0)
                r = set_make(ns, slot, &set);
        if (r != 0)
                return r;
        set->charge = *charge;
        if (set->pool->queue)
                r = prepare_on_queue(set);
        if (r == -ENOMEM) {
                set_free(set);
                return r;
        }
        count_extents(set, true);
        *ret_set = set;
        return r;
}

int set_bind_in(struct ns *ns, enum tier_kind kind, struct claim *claim,
        struct extent_set **ret_set, struct detail *d)
{
        uint32_t slot = free_slot(ns, kind);
        struct ns_tier *tier = &ns->tiers[kind];
        struct charge charge = {0};
        struct extent_set *set;
        int r;

        if (slot == UINT32_MAX)
                return detail_set(d, KVL_STATUS_FULL,
                        "namespace %s holds all %u extent sets that fit its device", ns->name,
                        ns->geometry.tiers[kind].n_sets);
        r = tier->pool->queue ? check_queue(ns, d) : 0;
        if (r < 0)
                return r;
        r = take_charge(tier, ns->geometry.tiers[kind].set_bytes, claim, &charge, d);
        if (r != 0)
                return r;
        r = admit_extents(ns, kind, d);
        if (r < 0) {
                charge_drop(&charge);
                return r;
        }
        r = bind_charged(ns, slot, &charge, &set);
        if (r == -EINPROGRESS)
                return r;
        if (r != 0) {
                charge_drop(&charge);
                return explain_bind(r, tier->pool, d);
        }
        if (kind == TIER_DEVICE)
                ahead_made(&ns->reclaim.prealloc.ahead, clock_now_nsec() - set->asked_nsec);
        set_link(set);
        idle_sets_add(set); /* in case it isn't used */
        *ret_set = set;
        return 0;
}

int set_bind(struct ns *ns, struct claim *claim, struct extent_set **ret_set, struct detail *d)
{
        return set_bind_in(ns, TIER_DEVICE, claim, ret_set, d);
}

/* Drops the charge of a set that is freed, unless the tenant holds up earlier memory. */
static void part_with_charge(struct extent_set *set)
{
        struct tenant *t = set->ns->tenant;

        if (set->discard) {
                set->discard->share = set->tier->share;
                if (discard_is_charged(t)) {
                        set->discard->charge = set->charge;
                        set->charge = (struct charge){0};
                }
        }
        charge_drop(&set->charge);
}

void set_discard(struct extent_set *set)
{
        struct ns *ns = set->ns;

        assert(set->n_mapped == 0);

        records_unbind(ns, set->index);

        list_remove(&set->link);
        list_remove(&set->room_link);
        list_remove(&set->idle_link);
        recall_forget(set);
        ns->sets.at[set->index] = NULL;
        set->tier->n_sets--;
        set->pool->n_sets--;
        count_extents(set, false);
        part_with_charge(set);
        destroy_extents(set);
        set_free(set);
        wait_wake(ns->store);
}

void set_unbind(struct extent_set *set)
{
        assert(set_is_idle(set));

        set->tier->n_pages[PAGE_FREE] -= set->n_usable;
        set->tier->n_pages[PAGE_NULL] -= set->ns->geometry.set_pages - set->n_usable;
        set_discard(set);
}

/* The pages of a set: the list of FREE pages, taking a page and putting it back (sets.h). */

static struct page *page_of(struct extent_set *set, uint32_t page)
{
        assert(page / set->ns->geometry.set_pages == set->index);
        return &set->pages[page % set->ns->geometry.set_pages];
}

void set_list_page(struct extent_set *set, uint32_t page)
{
        struct page *p = page_of(set, page);

        p->prev = PAGE_NONE;
        p->next = set->free_head;
        if (set->free_head != PAGE_NONE)
                page_of(set, set->free_head)->prev = page;
        set->free_head = page;
        set->n_free++;
        run_mark(set, page, true);
}

static void unlist_page(struct extent_set *set, uint32_t page)
{
        struct page *p = page_of(set, page);

        if (p->prev != PAGE_NONE)
                page_of(set, p->prev)->next = p->next;
        else
                set->free_head = p->next;
        if (p->next != PAGE_NONE)
                page_of(set, p->next)->prev = p->prev;
        p->prev = p->next = PAGE_NONE;
        set->n_free--;
        run_mark(set, page, false);
}

void set_take(struct extent_set *set, uint32_t page, const struct page_use *use)
{
        struct page *p = page_of(set, page);
        struct page_note *note = ns_note(set->ns, page);

        assert(set->n_free > 0 && p->state == PAGE_FREE);

        unlist_page(set, page);
        if (set->n_free == 0)
                list_remove(&set->room_link);
        p->epoch = (uint32_t)set->ns->epoch;
        p->owner = use->owner;
        note->client = use->client;
        note->seq = use->seq;
        FAULT_POINT("page-before-take");
        ns_set_granted(set->ns, page, use->state);
        if (set_kind(set) == TIER_DEVICE)
                demote_note_taken(set->ns);
}

uint32_t set_take_page(struct extent_set *set, const struct page_use *use)
{
        uint32_t page = set->free_head;

        set_take(set, page, use);
        return page;
}

void set_put_page(struct extent_set *set, uint32_t page)
{
        struct page *p = page_of(set, page);

        assert(p->state != PAGE_FREE && p->state != PAGE_NULL && !page_is_held(p));

        /* Inserts at the head: a set that was full is used before those that may become empty. */
        if (set->recall.state != RECALL_NONE)
                set->tier->n_withheld++;
        else if (set->n_free == 0)
                list_insert_before(set->tier->sets_room.next, &set->room_link);
        ns_set_state(set->ns, page, PAGE_FREE);
        FAULT_POINT("page-before-wipe");
        *ns_note(set->ns, page) = (struct page_note){0};
        memset(p->key, 0, sizeof(p->key));
        p->tokens = 0;
        p->end_token = 0;
        p->ready = p->reported = p->unindexed = 0;
        p->owner = 0;
        set_list_page(set, page);
        set->ns->reclaim.compaction.is_possible = true;
}
