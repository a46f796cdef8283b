/*
 * Exports: copies of cached pages for other hosts, in the store that a tenant shares with them
 * (exchange.h).
 *
 * It exports the pages that a disk would take (policy/tier.h), in any tier: pages found after they
 * were published, with all before them in their texts, and texts of EXCHANGE_LONG_TOKENS. It asks
 * with one TOUCH first. Missing pages are copied into a buffer (moves/transfer.h), summed or sealed
 * by a thread of the store's, and written, at a limited rate. Sessions are exported after each turn
 * (session-export.c). Before a host is shut down, all other cached pages are exported, too
 * (export-all.h). Loop thread only.
 */
#ifndef KVL_EXCHANGE_EXPORTS_H
#define KVL_EXCHANGE_EXPORTS_H

#include <stdint.h>

#include "daemon/exchange/exchange.h"

struct attach;
struct ns;

/* The limits of disk_filter in reclaim/demote.c: most pages are computed once and never asked for
 * again. Not tuned. */
#define EXCHANGE_MIN_USES    2
#define EXCHANGE_LONG_TOKENS 16384

/* If an exported page is found here again after this time, its use is noted in the store, too,
 * because servers evict unused values. If the store has lost it, it is written again. Not tuned. */
#define EXCHANGE_AGAIN_SEC 60

/* Events of the tenant (struct tenant_listeners). */
void exports_note_found(struct attach *a, uint32_t page);
void exports_note_published(struct ns *ns, uint32_t page);
void exports_note_session(struct ns *ns, const uint8_t *id, uint32_t id_len);

/* Parts of exchange_work(). */
uint64_t exports_work(struct exchange *x);
void session_exports_work(struct exchange *x);

/* The namespace is being freed, or its epoch changes. */
void exports_end(struct exchange *x, const struct exchange_ns *e);
void session_exports_end(struct exchange *x, const struct exchange_ns *e);

/* Notes that the store has the page, which was just imported. */
void export_note_there(struct exchange_ns *e, uint32_t page);

/* For export-all.h: the exchange begins, ends, or loses one of its namespaces. */
void export_all_init(struct exchange *x);
void export_all_stop(struct exchange *x);
void export_all_note_left(struct exchange *x);

#endif
