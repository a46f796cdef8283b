/*
 * Asks the store for pages that aren't cached here; for a namespace of a set (cache/nsset.h),
 * whether all namespaces can get them. Loop thread only.
 */
#ifndef KVL_EXCHANGE_SET_PROBE_H
#define KVL_EXCHANGE_SET_PROBE_H

#include <stdint.h>

#include "daemon/exchange/exchange-io.h"

/* Keys of a probe. Not tuned. */
#define SET_PROBE_KEYS_MAX 256

/* Names of a probe. All keys of a request fit if no more than 32 namespaces lack them; otherwise it
 * asks for fewer keys. Not tuned. */
#define SET_PROBE_NAMES_MAX (32 * SET_PROBE_KEYS_MAX)

/*
 * Makes an operation for each key (*n_keys of them, 1 .. SET_PROBE_KEYS_MAX) that checks whether
 * the page can be made complete. It asks the store for the page of the namespace itself, and of
 * each other open namespace of its set that takes part. It skips other namespaces that have the
 * key, or in which it is announced. Namespaces that aren't open on this host aren't known here, and
 * aren't asked for. exchange_io_found_all(): the store has all.
 *
 * Lowers *n_keys if there would be too many names. Returns 0; -ENOMEM, with *ret_io NULL.
 */
int set_probe_new(const struct exchange_ns *e, const uint8_t *keys, uint32_t *n_keys,
        struct exchange_io **ret_io);

#endif
