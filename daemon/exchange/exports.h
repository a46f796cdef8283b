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

#include <stdbool.h>
#include <stdint.h>

#include "daemon/exchange/exchange-epoch.h"
#include "daemon/exchange/exchange-io.h"
#include "daemon/exchange/exchange-ns.h"

struct attach;
struct session;

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

/* ---- texts: export.c ------------------------------------------------------------------------- */

/* For one tenant: bytes of values under way, and waiting texts. Buffers are the daemon's, and
 * charged to no account. Not tuned. */
#define EXPORT_BYTES_MAX     (UINT64_C(16) << 20)
#define EXPORT_TEXTS_MAX     256
#define EXPORT_BATCH         16
#define EXPORT_DEADLINE_NSEC (5 * NSEC_PER_SEC)
#define EXPORT_LOOKS         4096 /* at pages, in one iteration of the event loop */

/* May the page be exported? Its generation is this one, its bytes are there, and it isn't older
 * than the epoch. */
bool export_may_go(const struct exchange_ns *e, uint32_t page, uint64_t generation);

/* Did the store have the page lately, or is it asked for now? While all is exported: since that
 * began. */
bool export_is_done(const struct exchange_ns *e, uint32_t page);

/* Adds the text that ends with the page, which may be exported and isn't yet, to the export of all.
 * Returns false if there is no space now. */
bool export_add_of_all(struct exchange_ns *e, uint32_t page);

void exports_drop_all(struct exchange *x);

/* Adds the text that ends with the page, which may be exported. is_found: a client found it, or
 * will, so that it comes before texts that were only published. Without space it replaces another
 * text. */
void export_add_text(struct exchange_ns *e, uint32_t page, bool is_found);

/* Adds the session's record, if it has changed for other hosts. Returns false if there is no space
 * now. */
bool session_export_add(struct exchange_ns *e, const struct session *s);

/* ---- all cached pages: export-all.c ---------------------------------------------------------- */

/* Pause after a store accepted nothing, and after a pass. Not tuned. */
#define EXPORT_ALL_HOLD_NSEC (NSEC_PER_SEC)

static inline bool export_all_is_on(const struct exchange *x)
{
        return x->all.phase != ALL_OFF;
}

/* A page is published; was written, or was there; couldn't be written. */
void export_all_note_published(struct exchange *x);
void export_all_note_done(struct exchange_ns *e, bool is_written);
void export_all_note_failed(struct exchange *x, enum exchange_drop why);

/* Continues after writes; returns when to call it again, or UINT64_MAX. */
uint64_t export_all_go_on(struct exchange *x);

#endif
