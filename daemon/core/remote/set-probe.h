/*
 * Whether pages that aren't cached here can be had from other hosts: of a namespace of a set
 * (catalog/nsset.h) whether all of it can. Loop thread only.
 */
#ifndef KVL_CORE_SET_PROBE_H
#define KVL_CORE_SET_PROBE_H

#include <stdint.h>

#include "daemon/core/remote/exchange-io.h"

/* Keys that one asks for. Not tuned. */
#define SET_PROBE_KEYS_MAX 256

/* Names that one asks for. All keys of a request fit where no more than 32 namespaces lack them;
 * else fewer keys are asked for. Not tuned. */
#define SET_PROBE_NAMES_MAX (32 * SET_PROBE_KEYS_MAX)

/*
 * An operation for each key (*n_keys of them, 1 .. SET_PROBE_KEYS_MAX), which says whether the page
 * can be made complete: of the namespace itself, and of each other of its set that is open here and
 * takes part, the store is asked for it; but of another one that has the key, or in which somebody
 * is about to have it, nothing is asked for. exchange_io_found_all(): all are there. What
 * namespaces have that aren't open on this host isn't known here, and isn't asked for.
 *
 * *n_keys becomes less where there would be too many names. 0; -ENOMEM, with *ret_io NULL.
 */
int set_probe_new(const struct exchange_ns *e, const uint8_t *keys, uint32_t *n_keys,
        struct exchange_io **ret_io);

#endif
