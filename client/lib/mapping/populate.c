/*
 * A process' first access to each 4 KiB of mapped memory is a fault: 8,192 for 32 MiB, which take
 * several times as long as writing the bytes. So a call's pages are populated before it returns
 * (device.h, arena_populate()): once in each process, until their set is unmapped.
 *
 * Populating works in *units*: the pages of a set that share 64 KiB of a plane, because one touch
 * brings that much, or a huge page. A populated unit is also mapped, so a hit checks only its bit.
 */
#include "client/lib/mapping/map.h"

#include <errno.h>
#include <stdlib.h>

#include "client/lib/connection/error.h"
#include "client/lib/objects/ns.h"
#include "gpu/device.h"

#define UNIT_BYTES      65536 /* as arena_populate() */
#define HUGE_UNIT_BYTES (2 << 20)

static uint64_t bit_of(uint32_t unit)
{
        return UINT64_C(1) << unit % NS_WORD_UNITS;
}

static _Atomic uint64_t *word_of(const struct kvl_ns *ns, uint32_t unit)
{
        return &ns->populated.bits[unit / NS_WORD_UNITS];
}

int ns_make_units(struct kvl_ns *ns)
{
        uint64_t unit_bytes = ns->huge_pages ? HUGE_UNIT_BYTES : UNIT_BYTES;
        uint32_t n_units, pages = 1;

        /* A set consists of whole units. */
        while (2 * pages * ns->info.stride_bytes <= unit_bytes &&
                ns->info.set_pages % (2 * pages) == 0) {
                pages *= 2;
                ns->populated.unit_shift++;
        }
        n_units = ns->info.capacity_pages / pages;
        ns->populated.bits = calloc(n_units / NS_WORD_UNITS + 1, sizeof(*ns->populated.bits));
        return ns->populated.bits ? 0 : error_set(-ENOMEM, "out of memory");
}

static void populate_page(const struct kvl_ns *ns, uint32_t page)
{
        const struct device_ops *ops = ns->device->ops;

        for (uint32_t i = 0; ops->arena_populate && i < ns->planes.n; i++)
                ops->arena_populate(ns->arena,
                        (ns->planes.first + i) * ns->plane_stride_bytes +
                                page * ns->info.stride_bytes,
                        ns->info.plane_page_bytes);
}

/* The set may be unmapped meanwhile only if the caller, against the rules, doesn't hold the page.
 * Then ns_forget_populated() sees the bit, or this function sees that the set isn't mapped. */
static void populate_unit(const struct kvl_ns *ns, uint32_t unit, uint32_t page)
{
        populate_page(ns, page);
        atomic_fetch_or_explicit(word_of(ns, unit), bit_of(unit), memory_order_seq_cst);
        atomic_thread_fence(memory_order_seq_cst);
        if (!ns_is_mapped(ns, ns_set_of(ns, page)))
                atomic_fetch_and_explicit(word_of(ns, unit), ~bit_of(unit), memory_order_relaxed);
}

void ns_populate(const struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages)
{
        for (uint32_t i = 0; ns->sets && i < n_pages; i++)
                if (!ns_are_populated(ns, &pages[i], 1) && ns_are_mapped(ns, &pages[i], 1))
                        populate_unit(ns, pages[i] >> ns->populated.unit_shift, pages[i]);
}

void ns_forget_populated(const struct kvl_ns *ns, uint32_t set)
{
        uint32_t n = ns->info.set_pages >> ns->populated.unit_shift;

        atomic_thread_fence(memory_order_seq_cst);
        for (uint32_t unit = set * n; unit < (set + 1) * n; unit++)
                atomic_fetch_and_explicit(word_of(ns, unit), ~bit_of(unit), memory_order_relaxed);
}
