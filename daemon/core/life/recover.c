#include "daemon/core/life/recover.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault-point.h"
#include "base/fd.h"
#include "base/parse.h"
#include "daemon/core/cache/nsset.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/client-table.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/clients/pin.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/life/open.h"
#include "daemon/core/life/recover-pages.h"
#include "daemon/core/life/recover-sessions.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/memory/region.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/moves/space.h"
#include "daemon/core/reclaim/recall.h"
#include "daemon/core/sessions/session.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/state/feed.h"
#include "daemon/core/state/listeners.h"
#include "daemon/core/state/records.h"
#include "daemon/core/state/shared.h"
#include "daemon/core/state/state.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/suspect.h"
#include "daemon/core/state/tenant.h"
#include "gpu/queue.h"
#include "proto/status.h"

struct recoverer {
        struct store *store;
        struct recovery *r;
        recover_say say;
        void *data;
};

const char *recover_drop_name(enum recover_drop r)
{
        static const char *const names[] = {
                [DROP_CHECKSUM] = "checksum",
                [DROP_PARENT] = "parent",
                [DROP_DUPLICATE] = "duplicate",
                [DROP_INDEX] = "index",
        };

        return (unsigned)r < ARRAY_SIZE(names) ? names[r] : "unknown";
}

static void say_detail(const struct recoverer *v, const struct detail *d)
{
        if (v->say)
                v->say(d, v->data);
}

static int take_kept(const struct store *s, enum keep_kind kind, uint32_t number)
{
        return s->keep.ops->take(s->keep.data, kind, number);
}

/* ---- extents --------------------------------------------------------------------------------- */

static void close_handles(struct job_extent *extents, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++)
                extents[i].handle.fd = fd_close(extents[i].handle.fd);
}

/* Drops extents that were taken and turned out to be unusable. */
static void drop_taken(const struct store *s, uint32_t first, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++)
                keep_drop(&s->keep, KEEP_EXTENT, first + i);
}

/* Takes all handles, or none. */
static int take_handles(const struct store *s, const struct device_props *props, uint32_t first,
        uint32_t n, struct job_extent *extents)
{
        for (uint32_t i = 0; i < n; i++) {
                extents[i].number = first + i;
                extents[i].member = device_member_of(props, i, n);
                extents[i].handle.fd = take_kept(s, KEEP_EXTENT, first + i);
                if (extents[i].handle.fd < 0) {
                        close_handles(extents, i);
                        drop_taken(s, first, i);
                        return -ENOENT;
                }
        }
        return 0;
}

/* Imports duplicates by the queue; on success `extents` has those. Closes the given descriptors,
 * unless the driver may still use them. */
static int import_by_queue(
        struct pool *pool, uint64_t bytes, struct job_extent *extents, uint32_t n)
{
        _cleanup_free_ struct job_extent *made = calloc(n, sizeof(*made));
        struct job *job = made ? job_new(JOB_CREATE, n) : NULL;
        int r;

        if (!job)
                return -ENOMEM;
        memcpy(job->extents, extents, n * sizeof(extents[0]));
        job->bytes = bytes;
        job->is_import = true;
        r = queue_run(pool->queue, job, made, pool->why);
        if (r != -ETIMEDOUT) /* otherwise the driver may still look at them */
                close_handles(extents, n);
        if (r == 0)
                memcpy(extents, made, n * sizeof(extents[0]));
        return r;
}

static int import_inline(
        struct device *device, uint64_t bytes, struct job_extent *extents, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++) {
                int r = device_import(
                        device, extents[i].member, &extents[i].handle, bytes, &extents[i].extent);

                extents[i].handle.fd = -1; /* taken in any case */
                if (r == 0)
                        continue;
                while (i-- > 0)
                        device->ops->extent_destroy(extents[i].extent, false);
                close_handles(extents, n);
                return r;
        }
        return 0;
}

static int import_extents(struct pool *pool, uint64_t bytes, struct job_extent *extents, uint32_t n)
{
        return pool->queue ? import_by_queue(pool, bytes, extents, n)
                           : import_inline(pool->device, bytes, extents, n);
}

/* Destroys extents that only clients may still have mapped. */
static void destroy_imported(struct pool *pool, struct job_extent *extents, uint32_t n)
{
        struct job *job = pool->queue ? job_new(JOB_DESTROY, n) : NULL;

        if (job) {
                memcpy(job->extents, extents, n * sizeof(extents[0]));
                job->lets_go = true;
                queue_submit(pool->queue, job);
                return;
        }
        for (uint32_t i = 0; !pool->queue && i < n; i++)
                pool->device->ops->extent_destroy(extents[i].extent, false);
}

/* ---- sets ------------------------------------------------------------------------------------ */

static int recover_set(struct recoverer *v, struct ns *ns, uint32_t index, uint32_t first)
{
        enum tier_kind kind = tier_of_set(&ns->geometry, index);
        const struct tier_geometry *g = &ns->geometry.tiers[kind];
        struct pool *pool = ns->tiers[kind].pool;
        uint32_t n = g->n_extents;
        _cleanup_free_ struct job_extent *extents = calloc(MAX(n, 1u), sizeof(*extents));
        struct extent_set *set;
        int r = extents ? 0 : -ENOMEM;

        if (r == 0 && (!pool || (kind == TIER_DISK && !pool->disk)))
                r = -ENODEV;
        if (r == 0 && !account_fits(&pool->account, g->set_bytes))
                r = -ENOSPC;
        if (r == 0)
                r = take_handles(v->store, pool->props, first, n, extents);
        if (r < 0)
                return r;
        r = import_extents(pool, g->extent_bytes, extents, n);
        if (r == 0) {
                r = set_adopt(ns, index, first, extents, &set);
                if (r < 0)
                        destroy_imported(pool, extents, n);
        }
        if (r < 0)
                drop_taken(v->store, first, n);
        return r;
}

static bool is_extents(uint64_t first, uint32_t n)
{
        return n == 0 ? first == 0 : first > 0 && first + n <= KEEP_MAX_NUMBER;
}

/* Sets of lower tiers are a cache of their own: the namespace is usable without them. */
static void say_lost_sets(const struct recoverer *v, const struct ns *ns, uint32_t n, int why)
{
        struct detail d;

        (void)detail_set(&d, why,
                "%u extent sets below the device of namespace %s of tenant %s are gone: %s", n,
                ns->name, ns->tenant->name,
                why == -ENODEV   ? "there is no such tier any more"
                : why == -ENOSPC ? "the tier has a smaller budget than it holds"
                : why == -ENOENT ? "extents of it weren't kept"
                                 : status_text(why));
        say_detail(v, &d);
}

/* Reserves memory for all sets that were bound: arrays that grow with each one are copied often. If
 * that fails, set_adopt() reports it. */
static void reserve_nodes(struct ns *ns)
{
        uint32_t n = ns->geometry.n_set_slots;

        while (n > 0 &&
                !(atomic_load_explicit(&ns->records.sets[n - 1].word, memory_order_acquire) &
                        SET_RECORD_BOUND))
                n--;
        if (ns->evict->reserve(ns->policy, n * ns->geometry.set_pages) == 0)
                (void)tree_reserve(&ns->tree, n * ns->geometry.set_pages);
}

/* Recovers bound sets. */
static int recover_sets(struct recoverer *v, struct ns *ns)
{
        uint32_t n_lost = 0;
        int why_lost = 0;

        reserve_nodes(ns);
        for (uint32_t i = 0; i < ns->geometry.n_set_slots; i++) {
                uint64_t word =
                        atomic_load_explicit(&ns->records.sets[i].word, memory_order_acquire);
                enum tier_kind kind = tier_of_set(&ns->geometry, i);
                uint32_t n = ns->geometry.tiers[kind].n_extents;
                uint64_t first = word >> 1;
                int r;

                if (!(word & SET_RECORD_BOUND))
                        continue;
                if (!is_extents(first, n) || i < ns->geometry.tiers[TIER_DEVICE].first_set)
                        return -EINVAL;
                if (kind == TIER_DEVICE && ns->device.pool->is_doubted)
                        return -ESTALE;
                r = recover_set(v, ns, i, (uint32_t)first);
                if (r < 0 && kind == TIER_DEVICE)
                        return r;
                n_lost += r < 0;
                why_lost = r < 0 ? r : why_lost;
                state_raise(&v->store->state->last_extent, first + n - (n > 0));
        }
        if (n_lost > 0)
                say_lost_sets(v, ns, n_lost, why_lost);
        return 0;
}

static void wipe_unbound(const struct ns *ns)
{
        for (uint32_t i = 0, n; i < ns->geometry.n_set_slots; i += n) {
                for (n = 0; i + n < ns->geometry.n_set_slots && !ns->sets.at[i + n]; n++)
                        atomic_store_explicit(
                                &ns->records.sets[i + n].word, 0, memory_order_relaxed);
                if (n > 0)
                        records_wipe(ns, i, n);
                else
                        n = 1;
        }
}

/* ---- a namespace ----------------------------------------------------------------------------- */

static int check_identity(const struct recoverer *v, const struct ns_kept *k, uint32_t number,
        struct tenant **ret_tenant, struct pool **ret_pool, struct detail *d)
{
        const struct records_identity *i = &k->records.header->identity;
        struct ns_layout layout;
        struct tenant *t = tenant_find(v->store, i->tenant);
        struct pool *pool = i->device[0] ? store_find_pool(v->store, i->device) : NULL;

        records_layout(k->records.header, k->options, &layout);
        if (i->number != number || ns_layout_check(&layout, NULL) < 0 || !ns_name_is_valid(i->name))
                return detail_set(d, -EINVAL, "its records are damaged");
        if (!t)
                return detail_set(d, -ENOENT, "there is no tenant %s any more", i->tenant);
        if (!pool)
                return detail_set(d, -ENOENT, "there is no device %s any more", i->device);
        if (!pool->props->survives_restart)
                return detail_set(d, -EOPNOTSUPP,
                        "memory of device %s doesn't outlive kvleased; with transport = vmm it does",
                        i->device);
        if (i->geometry.extent_bytes % pool->props->unit_bytes != 0)
                return detail_set(d, -EINVAL, "device %s has another granularity", i->device);
        if (pool->props->n_members > 0 && layout.n_planes % pool->props->n_members != 0)
                return detail_set(d, -EINVAL,
                        "device %s has %u members, which don't divide the namespace's %u planes",
                        i->device, pool->props->n_members, layout.n_planes);
        if (ns_find(t, i->name))
                return detail_set(d, -EEXIST, "another one has its name");
        *ret_tenant = t;
        *ret_pool = pool;
        return 0;
}

static int explain_set(int r, const struct ns *ns, struct detail *d)
{
        const char *name = ns->device.pool->props->name, *why = ns->device.pool->why;

        switch (r) {
        case -ENOENT:
                return detail_set(d, r,
                        "extents of it weren't kept; FileDescriptorStoreMax= of kvleased.service is the most that are");
        case -ENOSPC:
                return detail_set(d, r, "device %s has a smaller budget than it holds", name);
        case -ESTALE:
                return detail_set(d, r, "what it had on device %s isn't there any more: %s", name,
                        why[0] ? why : "its canary wasn't kept");
        default:
                return detail_set(d, r, "extents of it can't be had from device %s: %s", name,
                        why[0] ? why : status_text(r));
        }
}

static int rejoin(struct ns *ns, struct detail *d)
{
        const struct records_identity *i = &ns->records.header->identity;
        struct state_root *state = ns->store->state;
        int r;

        if (!i->nsset[0])
                return 0;
        r = nsset_join(ns, i->nsset, i->nsset_size, d);
        if (r < 0)
                return r;
        ns->catalog.set->id = i->nsset_id;
        state_raise(&state->last_nsset_id, i->nsset_id);
        return 0;
}

static void say_sessions(struct recoverer *v, const struct ns *ns, const char *what)
{
        struct detail d;

        v->r->n_logs_lost++;
        (void)detail_set(&d, -ESTALE, "%s of namespace %s of tenant %s are gone: %s", what,
                ns->name, ns->tenant->name, "their log wasn't kept, or is damaged");
        say_detail(v, &d);
}

static void fill_sessions(struct recoverer *v, struct ns *ns, bool had_some)
{
        struct sessions_recovered found = sessions_recover(ns);

        v->r->n_sessions += found.n_sessions;
        if (found.has_log ? found.is_damaged : had_some)
                say_sessions(v, ns, found.n_sessions > 0 ? "some sessions" : "sessions");
}

/* Recovers all of it; on failure call ns_free(). */
static int fill_ns(struct recoverer *v, struct ns *ns, struct detail *d)
{
        bool had_sessions;
        int r = rejoin(ns, d);

        if (r < 0)
                return r;
        r = recover_sets(v, ns);
        if (r < 0)
                return explain_set(r, ns, d);
        wipe_unbound(ns);
        shared_show_epochs(ns);
        r = recover_pages(ns, v->r, &had_sessions);
        if (r < 0)
                return detail_set(d, r, "no memory for it");
        feed_recover(ns);
        fill_sessions(v, ns, had_sessions);
        (void)space_open(ns, true); /* if it fails, its pages on disk are lost */
        tenant_tell(ns->tenant, ns_enters, ns);
        return 0;
}

static int open_ns(const struct recoverer *v, struct ns_kept *k, uint32_t number,
        struct ns **ret_ns, struct detail *d)
{
        struct tenant *t = NULL;
        struct pool *pool = NULL;
        int r;

        k->options = records_options(&k->records);
        if (!k->options)
                return detail_set(d, -EINVAL, "its records are damaged");
        r = check_identity(v, k, number, &t, &pool, d);
        if (r < 0)
                return r;
        k->index_fd = take_kept(v->store, KEEP_INDEX, number);
        k->reader_fd = take_kept(v->store, KEEP_INDEX_READER, number);
        if (k->index_fd < 0 || k->reader_fd < 0)
                r = detail_set(d, -ENOENT, "its index wasn't kept");
        else
                r = ns_adopt(t, pool, k, ret_ns);
        if (r == 0)
                return 0;
        if (k->index_fd >= 0)
                shared_end_kept(k->index_fd);
        k->index_fd = fd_close(k->index_fd);
        k->reader_fd = fd_close(k->reader_fd);
        return d->text[0] ? r
                          : detail_set(d, r, "its index segment is of no use: %s", status_text(r));
}

/* Clients that map its index find no page there any more. */
static void drop_names(const struct store *s, uint32_t number)
{
        static const enum keep_kind kinds[] = {
                KEEP_RECORDS, KEEP_INDEX, KEEP_INDEX_READER, KEEP_SESSIONS};
        _cleanup_fd_ int index_fd = take_kept(s, KEEP_INDEX, number);

        if (index_fd >= 0)
                shared_end_kept(index_fd);
        feed_end_kept(&s->keep, number);
        for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
                fd_close(take_kept(s, kinds[i], number));
                keep_drop(&s->keep, kinds[i], number);
        }
}

static void count_ns(struct recoverer *v, const struct ns *ns)
{
        struct state_root *state = v->store->state;

        state_raise(&state->last_ns_id, ns->id);
        state_raise(&state->last_records, ns->records.number);
        v->r->n_namespaces++;
        v->r->n_bytes += ns_all_bytes(ns);
}

static void tell_lost(struct recoverer *v, const struct records *records, const struct detail *why)
{
        const struct records_identity *i = records ? &records->header->identity : NULL;
        struct detail d;

        v->r->n_lost++;
        if (i)
                (void)detail_set(&d, -ESTALE, "namespace %s of tenant %s is gone: %s", i->name,
                        i->tenant, why->text);
        else
                (void)detail_set(&d, -ESTALE, "a namespace is gone: %s", why->text);
        say_detail(v, &d);
}

/* Clients that map its index find no page there any more, and may be reading pages found before. */
static void lose_ns(struct recoverer *v, struct ns *ns, const struct detail *why)
{
        tell_lost(v, &ns->records, why);
        shared_end(&ns->shared);
        feed_end_kept(&v->store->keep, ns->records.number);
        ns_for_each_set (set, ns)
                if (set->parting)
                        set->parting->lets_go = true;
        ns_free(ns);
}

static void recover_ns(struct recoverer *v, uint32_t number)
{
        struct ns_kept kept = {.index_fd = -1, .reader_fd = -1};
        struct detail why = {.text = ""};
        struct recovery before = *v->r;
        struct ns *ns;
        int fd = take_kept(v->store, KEEP_RECORDS, number);
        int r;

        if (fd < 0)
                return;
        r = records_adopt(fd, &kept.records);
        if (r < 0) {
                fd_close(fd);
                if (r != -ENOENT) {
                        (void)detail_set(&why, r,
                                r == -EINVAL ? "its records are damaged" : "no memory for it");
                        tell_lost(v, NULL, &why);
                }
                drop_names(v->store, number);
                return;
        }
        r = open_ns(v, &kept, number, &ns, &why);
        if (r < 0) {
                tell_lost(v, &kept.records, &why);
                records_close(&kept.records);
                drop_names(v->store, number);
                return;
        }
        r = fill_ns(v, ns, &why);
        if (r == 0) {
                count_ns(v, ns);
                return;
        }
        *v->r = before;
        lose_ns(v, ns, &why);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Namespaces whose records weren't stored have only an index left. */
static void drop_without_records(struct recoverer *v)
{
        const struct keep *k = &v->store->keep;
        uint32_t n = k->ops->list(k->data, KEEP_INDEX, NULL, 0);
        _cleanup_free_ uint32_t *numbers = calloc(n + 1, sizeof(*numbers));
        struct detail why;

        if (!numbers)
                return; /* they stay stored until the next start */
        (void)k->ops->list(k->data, KEEP_INDEX, numbers, n);
        (void)detail_set(&why, -ENOENT, "its records weren't kept");
        for (uint32_t i = 0; i < n; i++) {
                drop_names(v->store, numbers[i]);
                tell_lost(v, NULL, &why);
        }
}

static bool has_truncated_session(const struct ns *ns)
{
        const struct session *each;
        uint64_t number = 0;

        while ((each = session_next(ns, number, &number)))
                if (each->is_truncated)
                        return true;
        return false;
}

/* The state of keys that sessions gave up isn't stored. If there is such a session, all incomplete
 * keys stay until they are evicted; otherwise pages of other ranks would be lost. */
static void keep_given_up(const struct store *s)
{
        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (set, &t->nssets, struct nsset, link)
                        for (uint32_t i = 0; i < set->size; i++)
                                if (set->members[i] && has_truncated_session(set->members[i])) {
                                        nsset_keep_incomplete(set);
                                        break;
                                }
}

void store_recover(struct store *s, struct recovery *r, recover_say fn, void *data)
{
        struct recoverer v = {.store = s, .r = r, .say = fn, .data = data};
        uint64_t since_nsec = clock_now_nsec();
        uint32_t n, *numbers;

        *r = (struct recovery){0};
        if (!keep_is_on(&s->keep))
                return;
        n = s->keep.ops->list(s->keep.data, KEEP_RECORDS, NULL, 0);
        numbers = calloc(n + 1, sizeof(*numbers));
        if (numbers)
                n = MIN(n, s->keep.ops->list(s->keep.data, KEEP_RECORDS, numbers, n));
        for (uint32_t i = 0; numbers && i < n; i++)
                recover_ns(&v, numbers[i]);
        free(numbers);
        drop_without_records(&v);
        keep_given_up(s);
        idle_sets_drain(s);
        r->nsec = clock_now_nsec() - since_nsec;
}

struct ns *store_find_records(struct store *s, uint32_t number)
{
        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        if (ns->records.fd >= 0 && ns->records.number == number)
                                return ns;
        return NULL;
}

/* Begins the previous daemon's forced recalls again. */
static void ask_again(struct ns *ns)
{
        list_for_each (set, &ns->device.sets_bound, struct extent_set, link) {
                uint64_t recall = atomic_load_explicit(
                        &ns->records.sets[set->index].recall, memory_order_relaxed);

                if (recall > 0 && set->recall.state == RECALL_NONE)
                        recall_again(set, recall - 1);
        }
}

/* Drops descriptors that no record names. */
static void drop_unrecorded(const struct keep *k)
{
        static const enum keep_kind kinds[] = {KEEP_RECORDS, KEEP_INDEX, KEEP_INDEX_READER,
                KEEP_FEED, KEEP_FEED_READER, KEEP_SESSIONS, KEEP_EXTENT};

        for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
                (void)state_drop_kind(k, kinds[i]);
}

int store_recover_end(struct store *s, struct recovery *r)
{
        uint64_t since_nsec = clock_now_nsec();

        if (!keep_is_on(&s->keep))
                return 0;
        list_for_each (t, &s->tenants, struct tenant, link) {
                list_for_each_safe (ns, &t->namespaces, struct ns, link) {
                        int error = recover_claims(ns, r);

                        if (error < 0)
                                return error;
                        idle_sets_drain(s); /* pages without an owner aren't recalled again */
                        ask_again(ns);
                }
                (void)recall_over_limit(t);
        }
        drop_unrecorded(&s->keep);
        idle_sets_drain(s);
        r->nsec += clock_now_nsec() - since_nsec;
        return 0;
}

/* ---- clients --------------------------------------------------------------------------------- */

/* Returns 0 with the member, or with NULL if the row is unusable. */
static int recover_member(
        struct store *s, uint32_t row, struct member **ret_member, struct recovery *recovery)
{
        struct client_slot *c = &s->clients->clients[row - 1];
        uint64_t id = atomic_load_explicit(&c->live, memory_order_acquire);
        struct tenant *t;
        struct member *m;
        bool is_unread;

        *ret_member = NULL;
        c->tenant[sizeof(c->tenant) - 1] = c->name[CLIENT_NAME_MAX] = '\0';
        t = id == 0 ? NULL : tenant_find(s, c->tenant);
        if (!t) {
                client_row_free(s, row);
                return 0;
        }
        m = member_adopt(t, id, c->group_id, c->group_token);
        if (!m)
                return -ENOMEM;
        m->record = row;
        m->metadata_only = c->flags & CLIENT_METADATA_ONLY;
        m->safepoints = c->flags & CLIENT_SAFEPOINTS;
        *ret_member = m;
        if (suspect_is_client(s, t->mark, id, &is_unread)) {
                client_lose(m);
                client_mute(m);
                recovery->n_suspects++;
        }
        return 0;
}

/* ---- attachments ----------------------------------------------------------------------------- */

/* The client will name its mapped sets; until then all count as mapped. */
static int map_all(struct attach *a)
{
        int r = 0;

        if (a->member->metadata_only)
                return 0;
        ns_for_each_set (set, a->ns)
                if (r == 0)
                        r = attach_note_mapped(a, set);
        return r;
}

/* The descriptor for the mark is missing. */
static void forget_pins(const struct store *s, struct attach *a, struct attach_slot *slot,
        enum attach_marks mark, struct recovery *r)
{
        if (s->state->is_unsure) {
                attach_lose_pins(a);
                r->n_pins_lost++;
        }
        atomic_fetch_and(&slot->marks, ~mark);
}

static int recover_share(
        struct store *s, struct attach *a, struct attach_slot *slot, struct recovery *recovery)
{
        uint64_t bytes = pins_bytes(a->ns->shared.capacity_pages);
        int fd, r;

        if (!(slot->marks & ATTACH_SHARES))
                return 0;
        fd = client_take_kept(s, KEEP_PINS, a->record, bytes, slot->pins_inode);
        if (fd < 0) {
                forget_pins(s, a, slot, ATTACH_SHARES, recovery);
                return 0;
        }
        r = attach_adopt_share(a, fd);
        if (r < 0)
                fd_close(fd);
        return r;
}

static int recover_socket_pins(
        struct store *s, struct attach *a, struct attach_slot *slot, struct recovery *recovery)
{
        uint64_t bytes = pin_counts_bytes(a->ns->geometry.capacity_pages);
        _cleanup_fd_ int fd = -1;

        if (!(slot->marks & ATTACH_SOCKET_PINS))
                return 0;
        fd = client_take_kept(s, KEEP_SOCKET_PINS, a->record, bytes, slot->socket_pins_inode);
        if (fd >= 0)
                return pin_adopt(a, fd);
        forget_pins(s, a, slot, ATTACH_SOCKET_PINS, recovery);
        return 0;
}

/* Returns the attachment's member; NULL: it doesn't exist. */
static struct member *owner_of(
        struct store *s, const struct attach_slot *slot, struct member *const *members)
{
        uint64_t id = atomic_load_explicit(&slot->live, memory_order_acquire);
        struct member *m =
                slot->client < s->clients->header->n_clients ? members[slot->client] : NULL;

        return id != 0 && m && m->id == id ? m : NULL;
}

static int recover_attach(
        struct store *s, uint32_t row, struct member *const *members, struct recovery *recovery)
{
        struct attach_slot *slot = &s->clients->attaches[row - 1];
        struct member *m = owner_of(s, slot, members);
        struct ns *ns = m ? store_find_records(s, slot->records) : NULL;
        struct attach *a;
        bool is_unread;
        int r;

        if (!ns || ns->tenant != m->group->tenant || slot->id == 0 || attach_find(m, slot->id)) {
                attach_row_free(s, row);
                return 0;
        }
        a = attach_adopt(m, ns, slot->id, slot->version_epoch);
        if (!a)
                return -ENOMEM;
        a->record = row;
        a->open_frame = slot->open_frame;
        a->pins_lost = slot->marks & ATTACH_LOST;
        r = map_all(a);
        if (suspect_is_client(s, ns->tenant->mark, m->id, &is_unread) && is_unread)
                attach_lose_pins(a);
        if (r == 0 && !is_unread)
                r = recover_share(s, a, slot, recovery);
        if (r == 0 && !is_unread)
                r = recover_socket_pins(s, a, slot, recovery);
        return r;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static int recover_all(struct store *s, struct member **members, struct recovery *recovery)
{
        struct client_table_header *h = s->clients->header;
        int r = 0;

        for (uint32_t row = 1; row <= h->n_clients && r == 0; row++) {
                r = recover_member(s, row, &members[row - 1], recovery);
                recovery->n_clients += r == 0 && members[row - 1];
        }
        for (uint32_t row = 1; row <= h->n_attaches && r == 0; row++) {
                const struct member *m = owner_of(s, &s->clients->attaches[row - 1], members);

                struct state_serving was =
                        suspect_take_over(s, m ? m->group->tenant->mark : 0, m ? m->id : 0);

                r = recover_attach(s, row, members, recovery);
                suspect_serve_end(s, was);
        }
        return r;
}

int clients_recover(struct store *s, struct recovery *recovery, struct detail *d)
{
        struct member **members;
        int r;

        if (!s->clients || s->clients->header->n_clients == 0)
                return 0;
        members = calloc(s->clients->header->n_clients, sizeof(struct member *));
        r = members ? recover_all(s, members, recovery) : -ENOMEM;
        free(members);
        return r < 0 ? detail_set(d, r, "no memory for the clients that were kept") : 0;
}
