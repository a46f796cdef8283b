/* Internals of module exchange, shared by its files. */
#ifndef KVL_EXCHANGE_EXCHANGE_IMPL_H
#define KVL_EXCHANGE_EXCHANGE_IMPL_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/exchange/exports.h"
#include "daemon/exchange/set-probe.h"

/* Per tenant: requests, and bytes of values under way or not looked at yet. Buffers are the
 * daemon's, and charged to no account. Not tuned, except the window: half of it makes the store
 * wait for the loop (kvlease-bench remote-hosts long). */
#define IMPORTS_MAX         64
#define PROBES_MAX          32 /* with so many imports under way, another one only probes */
#define IMPORT_BYTES_MAX    (UINT64_C(64) << 20)
#define IMPORT_WINDOW_BYTES (UINT64_C(16) << 20) /* of one request */
#define IMPORT_TRIAL_AFTER  128                  /* consecutive imports that aren't worth it */

/* Part of exchange_work(). */
uint64_t imports_work(struct exchange *x);

/* Imports that wait for pages may be able to get some. */
void imports_take_room(const struct exchange_ns *e);

/* Reports the end of the imports of the namespace and of the attachment; NULL: of all. */
void imports_end(struct exchange *x, const struct exchange_ns *e, const struct attach *a);

/* ---- sessions: session-load.c ---------------------------------------------------------------- */

/* Parts of exchange_work(). */
uint64_t session_loads_work(struct exchange *x);
void session_loads_end(struct exchange *x, const struct exchange_ns *e, const struct attach *a);

#endif
