/*
 * On which device a namespace is made, and a reservation lies. PURE.
 */
#ifndef KVL_POLICY_PLACE_H
#define KVL_POLICY_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum place_policy {
        PLACE_PACK,   /* where the tenant has most already, as long as there is room; then the first
                       */
        PLACE_SPREAD, /* where the tenant has least */
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
 * Index of the device for a new namespace that takes sets of `set_bytes`. exclusive: no other
 * tenant may be there. SIZE_MAX: none will do. Ties go to where the tenant has more namespaces
 * (PLACE_SPREAD: fewer), then to the lower index. A device without room is taken where none has
 * any: the cache of others may give way there. One whose budget is less than a set comes last.
 */
size_t place_choose(const struct place_device *devices, size_t n, enum place_policy policy,
        bool exclusive, uint64_t set_bytes);

/*
 * Splits a reservation: ret_bytes[i] for each device, multiples of step_bytes[i] (> 0) and at most
 * free_bytes there, in sum at least `bytes`, and no whole step more. PLACE_PACK and PLACE_DEVICE:
 * where the tenant's namespaces are, as far as there is room (a reservation that grows must not
 * leave them); what is left on as few devices as hold it, of these where the tenant has most;
 * PLACE_SPREAD: evenly, as far as
 * there is room. True, *ret_missing is 0; false: it doesn't fit, *ret_missing says by how much, and
 * ret_bytes is all 0. O(n^4), for a handful of devices.
 */
bool place_reserve(const struct place_device *devices, const uint64_t *step_bytes, size_t n,
        enum place_policy policy, bool exclusive, uint64_t bytes, uint64_t *ret_bytes,
        uint64_t *ret_missing);

#endif
