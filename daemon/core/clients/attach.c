#include "daemon/core/clients/attach.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fd.h"
#include "daemon/core/clients/client-record.h"
#include "daemon/core/clients/request.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/shared.h"
#include "proto/status.h"

int attach_share(struct attach *a, struct detail *d)
{
        int r;

        if (pins_is_open(&a->share))
                return detail_set(
                        d, -EEXIST, "namespace %s is shared with this client already", a->ns->name);
        a->magazine = calloc(1, sizeof(*a->magazine));
        r = a->magazine ? pins_open(&a->share, &a->ns->shared, a->member->id) : -ENOMEM;
        if (r < 0)
                detail_set(
                        d, r, "no pin segment for namespace %s: %s", a->ns->name, status_text(r));
        else
                r = attach_record_share(a, d);
        if (r == 0)
                return 0;
        pins_close(&a->share);
        free(a->magazine);
        a->magazine = NULL;
        return r;
}

int attach_adopt_share(struct attach *a, int fd)
{
        int r;

        a->magazine = calloc(1, sizeof(*a->magazine));
        r = a->magazine ? pins_adopt(&a->share, &a->ns->shared, fd) : -ENOMEM;
        if (r == 0) {
                magazine_adopt(a);
                return 0;
        }
        free(a->magazine);
        a->magazine = NULL;
        return r;
}

/* More keys than a client looks up between two calls: a year at 30 k a second. */
#define SYNC_MAX_KEYS (UINT64_C(1) << 40)

/* Returns the growth of `counter` since the last call. */
static uint64_t count_more(const _Atomic uint64_t *counter, uint64_t *seen)
{
        uint64_t now = atomic_load_explicit(counter, memory_order_relaxed), more = now - *seen;

        *seen = now;
        return more;
}

bool attach_sync(struct attach *a)
{
        struct pins *p = &a->share;
        uint64_t n_lookups, n_keys, n_hits;

        if (!pins_is_open(p))
                return true;
        n_lookups = count_more(&p->header->n_lookups, &p->n_lookups);
        n_keys = count_more(&p->header->n_keys, &p->n_keys);
        n_hits = count_more(&p->header->n_hits, &p->n_hits);
        /* Ignores values that can't be counts. */
        if (n_hits <= n_keys && n_lookups <= n_keys && n_keys <= SYNC_MAX_KEYS)
                count_lookups(a->ns, n_lookups, n_keys, n_hits);
        return magazine_sync(a);
}

/* Notes that one client less maps the set. */
static void let_go(struct attach *a, struct extent_set *set, uint64_t bits)
{
        set->n_mapped--;
        a->member->n_mapped_sets--;
        a->member->n_quarantined_sets -= (bits & MAPPED_QUARANTINE) != 0;
        set->tier->has_lighter |= set->n_mapped == 0;
        idle_sets_add(set);
}

void attach_forget_mapped(struct attach *a, uint32_t set_index)
{
        const uint64_t *bits = map_find(&a->mapped, set_index);
        uint64_t was;

        if (!bits)
                return;
        was = *bits;
        map_remove(&a->mapped, set_index);
        let_go(a, a->ns->sets.at[set_index], was);
}

int attach_unmapped(struct attach *a, uint32_t set_index, struct detail *d)
{
        const uint64_t *bits = map_find(&a->mapped, set_index);
        struct extent_set *set = bits ? a->ns->sets.at[set_index] : NULL;

        if (!set)
                return detail_set(d, -ENOENT, "set %u of namespace %s isn't mapped by this client",
                        set_index, a->ns->name);
        if (!recall_is_idle(set))
                return detail_set(d, -EBUSY, "set %u of namespace %s %s: it stays mapped",
                        set_index, a->ns->name,
                        set->recall.state == RECALL_NONE ? "isn't recalled"
                                                         : "has pages that clients hold");
        attach_forget_mapped(a, set_index);
        return 0;
}

static void close_handles(struct extent_handle *handles, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++)
                handles[i].fd = fd_close(handles[i].fd);
}

int attach_note_mapped(struct attach *a, struct extent_set *set)
{
        int r;

        if (map_find(&a->mapped, set->index))
                return 0;
        r = map_put(&a->mapped, set->index, MAPPED);
        if (r < 0)
                return r;
        set->n_mapped++;
        a->member->n_mapped_sets++;
        set->recall.told = false;
        return 0;
}

/* Clients may only read memory of lower tiers. */
static int export_extent(struct extent_set *set, uint32_t n, struct extent_handle *ret_handle)
{
        struct extent_handle handle;
        int fd, r = set_export(set, n, &handle);

        if (r == 0 && set_kind(set) != TIER_DEVICE) {
                fd = fd_reopen_read_only(handle.fd);
                r = MIN(fd, 0);
                fd_close(handle.fd);
                handle.fd = fd;
        }
        if (r == 0)
                *ret_handle = handle;
        return r;
}

static int export_extents(
        struct extent_set *set, uint32_t first, uint32_t n, struct extent_handle *ret_handles)
{
        for (uint32_t i = 0; i < n; i++) {
                int r = export_extent(set, first + i, &ret_handles[i]);

                if (r < 0) {
                        close_handles(ret_handles, i);
                        return r;
                }
        }
        return 0;
}

int attach_map_set(struct attach *a, uint32_t set_index, uint32_t first_plane, uint32_t max,
        struct extent_handle *ret_handles, struct detail *d)
{
        struct ns *ns = a->ns;
        struct extent_set *set;
        uint32_t n;
        int r;

        assert(max > 0);

        if (a->member->metadata_only)
                return detail_set(d, -EACCES, "this client said it maps nothing (metadata_only)");
        set = set_index < ns->geometry.n_set_slots ? ns->sets.at[set_index] : NULL;
        if (!set)
                return detail_set(
                        d, -ENOENT, "set %u of namespace %s isn't bound", set_index, ns->name);
        if (recall_is_idle(set))
                return detail_set(d, -ENOENT,
                        "set %u of namespace %s is being taken back and nothing in it is held",
                        set_index, ns->name);
        if (set->n_extents == 0)
                return detail_set(
                        d, -EINVAL, "set %u of namespace %s is on disk", set_index, ns->name);
        if (first_plane >= set->n_extents)
                return detail_set(d, -EINVAL, "plane %u: the namespace has planes 0 to %u",
                        first_plane, set->n_extents - 1);
        n = MIN(max, set->n_extents - first_plane);
        r = export_extents(set, first_plane, n, ret_handles);
        if (r == -EAGAIN)
                return detail_set(d, -EBUSY,
                        "set %u of namespace %s is below the device, and another client keeps it "
                        "from being opened by a lease (fcntl F_SETLEASE): end that client",
                        set_index, ns->name);
        if (r < 0)
                return detail_set(d, r, "set %u can't be exported: %s", set_index, status_text(r));
        r = attach_note_mapped(a, set);
        if (r < 0) {
                close_handles(ret_handles, n);
                return detail_set(d, r, "no memory to note that set %u is mapped", set_index);
        }
        return (int)n;
}
