#include "daemon/server/base/fd-parts.h"

#include "base/macros.h"

uint64_t fd_nobodys(uint64_t max)
{
        return MIN(max / FD_NOBODYS_PART, (uint64_t)FD_NOBODYS_MAX);
}

uint64_t fd_part_sure(
        uint64_t max, uint64_t n_tenants, uint64_t reserved_bytes, uint64_t memory_bytes)
{
        uint64_t room = max - fd_nobodys(max), most = room / n_tenants;
        uint64_t equal = MAX(room / (2 * n_tenants), MIN((uint64_t)FD_SURE_MIN, most));
        uint64_t rest = room - equal * n_tenants;

        if (memory_bytes == 0)
                return equal;
        /* In floating point: bytes times descriptors don't fit 64 bits. */
        return equal + (uint64_t)((double)rest * ((double)MIN(reserved_bytes, memory_bytes) /
                                                         (double)memory_bytes));
}

void fd_room_add(struct fd_room *room, const struct fd_part *part)
{
        room->used += part->used;
        room->promised += MAX(part->used, part->sure);
}

uint64_t fd_part_limit(const struct fd_room *room, const struct fd_part *part)
{
        uint64_t all = minus_u64(room->max, room->nobodys);
        uint64_t shared = MIN(all, room->max - fd_nobodys(room->max));
        uint64_t others_promised = room->promised - MAX(part->used, part->sure);
        uint64_t others_used = room->used - part->used;

        return MAX(
                minus_u64(shared, others_promised), MIN(part->sure, minus_u64(all, others_used)));
}
