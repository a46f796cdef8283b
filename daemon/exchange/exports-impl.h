/* Internals of module exports, shared by its files. */
#ifndef KVL_EXCHANGE_EXPORTS_IMPL_H
#define KVL_EXCHANGE_EXPORTS_IMPL_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/exchange/exports.h"
#include "daemon/exchange/exchange-epoch.h"
#include "daemon/exchange/exchange-io.h"
#include "daemon/exchange/exchange-ns.h"

/* For one tenant: bytes of values under way, and waiting texts. Buffers are the daemon's, and
 * charged to no account. Not tuned. */
#define EXPORT_BYTES_MAX     (UINT64_C(16) << 20)
#define EXPORT_TEXTS_MAX     256
#define EXPORT_BATCH         16
#define EXPORT_DEADLINE_NSEC (5 * NSEC_PER_SEC)
#define EXPORT_LOOKS         4096 /* at pages, in one iteration of the event loop */

struct session;

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
