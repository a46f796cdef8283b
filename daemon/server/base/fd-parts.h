/*
 * Divides a budget of descriptors among tenants: each is guaranteed a part, and shares the rest
 * first come, first served. Two budgets are divided so: the open files of the process, and the
 * entries of the descriptor store. Only numbers; no state.
 *
 *   budget = reserve | guaranteed, equal | guaranteed, by reserved memory | rest;
 *            1/8, 128    half of the rest     at most as much
 *
 * A part in use isn't taken back. After a tenant was added, tenants above their bound get no more
 * until they are below it.
 */
#ifndef KVL_SERVER_FD_PARTS_H
#define KVL_SERVER_FD_PARTS_H

#include <stdint.h>

/* Reserve for connections of administrators, files being replaced, the descriptors of a reply. Not
 * tuned. */
#define DESCRIPTORS_RESERVE 48

/*
 * 1/n of the budget, at most FD_NOBODYS_MAX, is for descriptors without a tenant: connections of
 * monitors and refused ones (at most 32 of each, of two descriptors), and extents being freed. Not
 * tuned.
 */
#define FD_NOBODYS_PART 8
#define FD_NOBODYS_MAX  128

/* Guaranteed to each tenant if possible: some connections, namespaces, and a set of extents in 16
 * planes. Not tuned. */
#define FD_SURE_MIN 64

/* Use of one budget. */
struct fd_room {
        uint64_t max;      /* descriptors for tenants and the reserve */
        uint64_t nobodys;  /* in use without a tenant */
        uint64_t used;     /* in use by all tenants */
        uint64_t promised; /* sum over the tenants of the larger of use and guarantee */
};

/* One tenant's part of a budget. */
struct fd_part {
        uint64_t used, sure;
};

/*
 * Descriptors guaranteed to a tenant, in a budget of `max` with n_tenants (> 0). The tenant has
 * reserved_bytes of memory_bytes (0: nothing can be reserved). The sum over the tenants is at most
 * 7/8 of `max`, if reservations fit into the memory.
 */
uint64_t fd_part_sure(
        uint64_t max, uint64_t n_tenants, uint64_t reserved_bytes, uint64_t memory_bytes);

/* The reserve of a budget of `max` for descriptors without a tenant. */
uint64_t fd_nobodys(uint64_t max);

void fd_room_add(struct fd_room *room, const struct fd_part *part);

/* Bound of the tenant, given the use of other tenants; its part was added to the room. If it uses
 * more, it gets no more. */
uint64_t fd_part_limit(const struct fd_room *room, const struct fd_part *part);

#endif
