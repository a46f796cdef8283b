/* Chooses devices for namespaces and reservations. PURE. */
#ifndef KVL_POLICY_PLACE_H
#define KVL_POLICY_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum place_policy {
        PLACE_PACK,   /* the device with most of the tenant, while it has room; then the first */
        PLACE_SPREAD, /* the device with least of the tenant */
        PLACE_DEVICE, /* on the one that was named */
};

struct place_device {
        uint64_t budget_bytes;
        uint64_t free_bytes; /* neither charged nor reserved for others */
        uint64_t own_bytes;  /* charged to, or reserved for, this tenant */
        uint32_t n_own;      /* its namespaces there */
        uint32_t n_others;   /* other tenants there: with namespaces or a reservation */
        bool is_exclusive;   /* another tenant has it for itself */
        bool is_named;       /* PLACE_DEVICE: it */
        bool is_broken;      /* nothing can be made there now */
};

/*
 * Index of the device for a new namespace with sets of `set_bytes`. exclusive: no other tenant may
 * be there. SIZE_MAX: none will do. Ties go to the device with more of the tenant's namespaces
 * (PLACE_SPREAD: fewer), then to the lower index. A device without room is taken if none has any:
 * others' cached pages may be evicted there. A device with a budget below a set comes last.
 */
size_t place_choose(const struct place_device *devices, size_t n, enum place_policy policy,
        bool exclusive, uint64_t set_bytes);

/* The devices that a reservation may be split among. */
struct place_request {
        const struct place_device *devices; /* n of them; borrowed, like step_bytes */
        const uint64_t *step_bytes;         /* a device's part is a multiple of it; > 0 */
        size_t n;
        enum place_policy policy;
        bool exclusive; /* no other tenant may be there */
};

/*
 * Splits a reservation: ret_bytes[i] for each device, multiples of step_bytes[i] (> 0), at most
 * free_bytes there, in sum at least `bytes` and less than a step more. PLACE_PACK and PLACE_DEVICE:
 * first on devices with the tenant's namespaces, as a growing reservation must not leave them. The
 * rest is on as few devices as possible, those with most of the tenant first. PLACE_SPREAD: evenly,
 * as far as there is room.
 *
 * Returns true (*ret_missing is 0), or false: it doesn't fit, *ret_missing is the shortage, and
 * ret_bytes is all 0. O(n^4), for a handful of devices.
 */
bool place_reserve(
        const struct place_request *rq, uint64_t bytes, uint64_t *ret_bytes, uint64_t *ret_missing);

#endif
