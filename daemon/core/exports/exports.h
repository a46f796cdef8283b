/*
 * Exports: copies of what is cached, for other hosts, in the store that a tenant shares with them
 * (exchange/exchange.h).
 *
 * Exported is what a disk would take (policy/tier.h): what was found after it was published, with
 * all that comes before it in its text, and texts of EXCHANGE_LONG_TOKENS, in whatever tier they
 * lie. One TOUCH first; what isn't there is copied into a buffer (moves/transfer.h), summed or
 * sealed by a thread of the store's, and written, at most so many bytes a second. Sessions are
 * exported when a turn is over (session-export.c). Where the host is to go, everything else that is
 * cached is exported, too (export-all.h). Loop thread only.
 */
#ifndef KVL_CORE_EXPORTS_H
#define KVL_CORE_EXPORTS_H

#include <stdint.h>

#include "daemon/core/objects/exchange.h"

struct attach;
struct ns;

/* As disk_filter of tiers/sink.c: what is computed once and never asked for again is most of what
 * there is. Not tuned. */
#define EXCHANGE_MIN_USES    2
#define EXCHANGE_LONG_TOKENS 16384

/* What was exported and is found here again so much later is marked as used there, too, as servers
 * evict what nobody uses; where it is gone it is written again. Not tuned. */
#define EXCHANGE_AGAIN_SEC 60

/* A lookup has found the page as its deepest; it was published. */
void exchange_note_found(struct attach *a, uint32_t page);
void exchange_note_published(struct ns *ns, uint32_t page);

/* A turn of a session is over, or it was truncated or dropped (listeners.h: session_rests). */
void exchange_note_session(struct ns *ns, const uint8_t *id, uint32_t id_len);

/* ---- for the exchange ------------------------------------------------------------------------ */

/* As exchange_work(). */
uint64_t exports_work(struct exchange *x);
void session_exports_work(struct exchange *x);

/* The namespace goes, or its epoch changes. */
void exports_end(struct exchange *x, const struct exchange_ns *e);
void session_exports_end(struct exchange *x, const struct exchange_ns *e);

/* The page, just imported, is there. */
void export_note_there(struct exchange_ns *e, uint32_t page);

/* Of export-all.h: the exchange begins, ends, or one of its namespaces goes. */
void export_all_init(struct exchange *x);
void export_all_stop(struct exchange *x);
void export_all_note_left(struct exchange *x);

#endif
