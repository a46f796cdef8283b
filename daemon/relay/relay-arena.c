#include "daemon/relay/relay-arena.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/fd.h"
#include "base/macros.h"

/* Places begin at multiples of it: a processor's cache lines. */
#define UNIT_BYTES 64

int relay_arena_init(struct relay_arena *a, uint64_t bytes)
{
        *a = (struct relay_arena){
                .fd = memfd_create_sized("kvlease-exchange", bytes), .bytes = bytes};
        list_init(&a->places);
        if (a->fd < 0)
                return a->fd;
        a->at = memory_map(a->fd, bytes);
        if (a->at)
                return 0;
        a->fd = fd_close(a->fd);
        return -errno;
}

void relay_arena_deinit(struct relay_arena *a)
{
        if (a->at)
                munmap(a->at, a->bytes);
        a->at = NULL;
        /* kvlease-exchange may keep the file, whose memory is charged to this process. */
        if (a->fd >= 0 && a->touched > 0)
                (void)fd_punch_hole(a->fd, 0, a->touched);
        a->fd = fd_close(a->fd);
}

int relay_arena_take(struct relay_arena *a, uint64_t bytes, struct relay_place *ret_place)
{
        struct list_link *before = &a->places;
        uint64_t at = 0;

        bytes = (bytes + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
        list_for_each (p, &a->places, struct relay_place, link) {
                if (p->at - at >= bytes) {
                        before = &p->link;
                        break;
                }
                at = p->at + p->bytes;
        }
        if (bytes > a->bytes || a->bytes - bytes < at)
                return -ENOMEM;
        ret_place->at = at;
        ret_place->bytes = bytes;
        list_init(&ret_place->link);
        list_insert_before(before, &ret_place->link);
        a->touched = MAX(a->touched, at + bytes);
        return 0;
}

void relay_arena_give_back(struct relay_arena *a, struct relay_place *place, uint64_t now_nsec)
{
        if (place->bytes == 0)
                return;
        list_remove(&place->link);
        place->bytes = 0;
        a->used_nsec = now_nsec;
}

uint64_t relay_arena_trim(struct relay_arena *a, uint64_t now_nsec)
{
        if (a->touched == 0 || !list_is_empty(&a->places))
                return UINT64_MAX;
        if (now_nsec < a->used_nsec + RELAY_ARENA_KEPT_NSEC)
                return a->used_nsec + RELAY_ARENA_KEPT_NSEC;
        (void)fd_punch_hole(a->fd, 0, a->touched);
        a->touched = 0;
        return UINT64_MAX;
}
