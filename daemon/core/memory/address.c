#include "daemon/core/memory/address.h"

#include <stdbool.h>

#include "base/macros.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"

uint64_t address_bytes(const struct ns *ns)
{
        /* At most all sets of the device's budget, and a null set. */
        uint64_t bytes = ns->geometry.set_bytes * geometry_device_slots(&ns->geometry);

        return bytes <= ADDRESS_END ? round_up_u64(bytes, ADDRESS_STEP) : UINT64_MAX;
}

/* Returns the end of a namespace's range that overlaps this one; 0: none does. */
static uint64_t end_of_other(const struct store *s, uint64_t address, uint64_t bytes)
{
        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        if (ns->address && ns->address < address + bytes &&
                                address < ns->address + address_bytes(ns))
                                return ns->address + address_bytes(ns);
        return 0;
}

/* Returns 0 if no range fits from there on. */
static uint64_t find_from(const struct store *s, uint64_t address, uint64_t bytes)
{
        while (address <= ADDRESS_END - bytes) {
                uint64_t end = end_of_other(s, address, bytes);

                if (end == 0)
                        return address;
                address = end;
        }
        return 0;
}

uint64_t address_take(struct store *s, const struct ns *ns)
{
        uint64_t bytes = address_bytes(ns), address;

        if (!ns->device.pool->props->is_contiguous || bytes > ADDRESS_END - ADDRESS_FIRST)
                return 0;
        address = find_from(s, MAX(s->memory.next_address, ADDRESS_FIRST), bytes);
        if (address == 0)
                address = find_from(s, ADDRESS_FIRST, bytes);
        if (address)
                s->memory.next_address = address + bytes;
        return address;
}

uint64_t address_claim(struct store *s, const struct ns *ns, uint64_t address)
{
        uint64_t bytes = address_bytes(ns);

        if (address < ADDRESS_FIRST || address % ADDRESS_STEP != 0 || bytes > ADDRESS_END ||
                address > ADDRESS_END - bytes || end_of_other(s, address, bytes) != 0)
                return 0;
        s->memory.next_address = MAX(s->memory.next_address, address + bytes);
        return address;
}
