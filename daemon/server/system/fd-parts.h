/*
 * How a room of descriptors is divided among tenants: each is *sure* of a part of it, whatever the
 * others do, and has of the rest what comes first to it. Two rooms are divided so: the open files
 * of the process, and what is kept for the next one. Numbers alone; no state.
 *
 *   room = nobody's | sure parts, equal | sure parts, by reserved memory | what is left
 *          1/8, 128    half of the rest           at most as much
 *
 * A part in use isn't taken back: where a tenant was added, those that have more than they may get
 * nothing more until they are below.
 */
#ifndef KVL_SERVER_FD_PARTS_H
#define KVL_SERVER_FD_PARTS_H

#include <stdint.h>

/* Connections of administrators, files being replaced, the descriptors of a reply. Not tuned. */
#define DESCRIPTORS_RESERVE 48

/*
 * Part 1/n of the room that no tenant gets, at most FD_NOBODYS_MAX: connections that are nobody's
 * (monitors, those that are being refused; 32 of each at most, of two descriptors), and extents on
 * their way out. Not tuned.
 */
#define FD_NOBODYS_PART 8
#define FD_NOBODYS_MAX  128

/* A tenant is sure of that many as long as all can be: some connections, namespaces, and a set of
 * extents in 16 planes. Not tuned. */
#define FD_SURE_MIN 64

/* What is known of one room. */
struct fd_room {
        uint64_t max;      /* descriptors that tenants and nobody share */
        uint64_t nobodys;  /* in use, and no tenant's */
        uint64_t used;     /* in use by all tenants */
        uint64_t promised; /* sum over the tenants of what each uses or is sure of: the larger */
};

/* What one tenant has of a room. */
struct fd_part {
        uint64_t used, sure;
};

/*
 * What a tenant is sure of, in a room of `max`, as one of n_tenants (> 0) of which this one has
 * reserved_bytes of memory_bytes (0: nothing is to be reserved). The sum over the tenants is at
 * most 7/8 of `max`, as long as no more is reserved than there is.
 */
uint64_t fd_part_sure(
        uint64_t max, uint64_t n_tenants, uint64_t reserved_bytes, uint64_t memory_bytes);

/* What of a room of `max` is nobody's. */
uint64_t fd_nobodys(uint64_t max);

void fd_room_add(struct fd_room *room, const struct fd_part *part);

/* What the tenant may use now, others being where they are; its part was added to the room. Less
 * than it uses: it gets no more. */
uint64_t fd_part_limit(const struct fd_room *room, const struct fd_part *part);

#endif
