/* The insides of the room exports, shared by its files. */
#ifndef KVL_CORE_EXPORTS_IMPL_H
#define KVL_CORE_EXPORTS_IMPL_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/exports/exports.h"
#include "daemon/core/remote/exchange-epoch.h"
#include "daemon/core/remote/exchange-io.h"
#include "daemon/core/remote/exchange-ns.h"

/* Of one tenant: bytes of values that are under way, and texts that wait. Buffers are the daemon's,
 * and charged to nobody. Not tuned. */
#define EXPORT_BYTES_MAX     (UINT64_C(16) << 20)
#define EXPORT_TEXTS_MAX     256
#define EXPORT_BATCH         16
#define EXPORT_DEADLINE_NSEC (5 * NSEC_PER_SEC)
#define EXPORT_LOOKS         4096 /* at pages, in one turn */

struct session;

/* Of this generation, where its bytes are, and not of before the epoch. */
bool export_may_go(const struct exchange_ns *e, uint32_t page, uint64_t generation);

/* The store had the page lately, or is asked for it now. While all is exported: since that began.
 */
bool export_is_done(const struct exchange_ns *e, uint32_t page);

/* The text that ends with the page, which may go and isn't done, is exported with all the others.
 * False: there is no room for it now. */
bool export_add_of_all(struct exchange_ns *e, uint32_t page);

void exports_drop_all(struct exchange *x);

/* The text that ends with the page, which may go, is exported. is_found: somebody has found it, or
 * will, so that it goes before what was only published. Where there is no room another one goes for
 * it. */
void export_add_text(struct exchange_ns *e, uint32_t page, bool is_found);

/* Other hosts are told of the session, if there is something to tell. False: there is no room for
 * it now. */
bool session_export_add(struct exchange_ns *e, const struct session *s);

/* ---- of all that is cached: export-all.c ----------------------------------------------------- */

/* So long nothing is sent to a store that took nothing, and after a pass. Not tuned. */
#define EXPORT_ALL_HOLD_NSEC (NSEC_PER_SEC)

static inline bool export_all_is_on(const struct exchange *x)
{
        return x->all.phase != ALL_OFF;
}

/* Something is published; a page was written, or was there; or couldn't be. */
void export_all_note_published(struct exchange *x);
void export_all_note_done(struct exchange_ns *e, bool is_written);
void export_all_note_failed(struct exchange *x, enum exchange_drop why);

/* Goes on, after what was written; when it is to be called again, or UINT64_MAX. */
uint64_t export_all_go_on(struct exchange *x);

#endif
