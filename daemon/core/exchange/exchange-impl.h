/* The insides of the room exchange, shared by its files. */
#ifndef KVL_CORE_EXCHANGE_IMPL_H
#define KVL_CORE_EXCHANGE_IMPL_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/exchange/exchange.h"
#include "daemon/core/objects/exchange.h"
#include "daemon/core/remote/exchange-epoch.h"
#include "daemon/core/remote/exchange-io.h"
#include "daemon/core/remote/exchange-ns.h"
#include "daemon/core/remote/set-probe.h"

/* Of one tenant: requests, and bytes of values that are under way or not looked at yet. Buffers are
 * the daemon's, and charged to nobody. Not tuned, but for the window: half of it has the store wait
 * for the loop (kvlease-bench remote-hosts long). */
#define IMPORTS_MAX          64
#define PROBES_MAX           32 /* imports under way with which another one may only probe */
#define IMPORT_BYTES_MAX     (UINT64_C(64) << 20)
#define IMPORT_WINDOW_BYTES  (UINT64_C(16) << 20) /* of one request */
#define IMPORT_TRIAL_AFTER   128                  /* imports that aren't worth it, in a row */
#define EXPORT_BYTES_MAX     (UINT64_C(16) << 20)
#define EXPORT_TEXTS_MAX     256
#define EXPORT_BATCH         16
#define EXPORT_DEADLINE_NSEC (5 * NSEC_PER_SEC)
#define EXPORT_LOOKS         4096 /* at pages, in one turn */

struct session;

/* ---- imports, exports ------------------------------------------------------------------------ */

/* As exchange_work(). */
uint64_t imports_work(struct exchange *x);
uint64_t exports_work(struct exchange *x);

/* There may be pages for imports that wait for them. */
void imports_take_room(const struct exchange_ns *e);

/* The namespace goes, or its epoch changes; NULL: all of them. */
void imports_end(struct exchange *x, const struct exchange_ns *e, enum exchange_drop why);
void exports_end(struct exchange *x, const struct exchange_ns *e);

/* Of this generation, where its bytes are, and not of before the epoch. */
bool export_may_go(const struct exchange_ns *e, uint32_t page, uint64_t generation);

/* The store had the page lately, or is asked for it now. While all is exported: since that began.
 */
bool export_is_done(const struct exchange_ns *e, uint32_t page);

/* The text that ends with the page, which may go and isn't done, is exported with all the others.
 * False: there is no room for it now. */
bool export_add_of_all(struct exchange_ns *e, uint32_t page);

void exports_drop_all(struct exchange *x);

/* The text that ends with the page, which may go, is exported, whoever has found it. */
void export_add_text(struct exchange_ns *e, uint32_t page);

/* ---- sessions: session-export.c, session-load.c ---------------------------------------------- */

/* Other hosts are told of the session, if there is something to tell. False: there is no room for
 * it now. */
bool session_export_add(struct exchange_ns *e, const struct session *s);

void session_exports_work(struct exchange *x);
void session_exports_end(struct exchange *x, const struct exchange_ns *e);

/* As exchange_work(). */
uint64_t session_loads_work(struct exchange *x);
void session_loads_end(struct exchange *x, const struct exchange_ns *e);

/* ---- of all that is cached: export-all.c ----------------------------------------------------- */

/* So long nothing is sent to a store that took nothing, and after a pass. Not tuned. */
#define EXPORT_ALL_HOLD_NSEC (NSEC_PER_SEC)

static inline bool export_all_is_on(const struct exchange *x)
{
        return x->all.phase != ALL_OFF;
}

void export_all_init(struct exchange *x);

void export_all_stop(struct exchange *x);

/* A namespace goes; something is published; a page was written, or was there; or couldn't be. */
void export_all_note_left(struct exchange *x);
void export_all_note_published(struct exchange *x);
void export_all_note_done(struct exchange_ns *e, bool is_written);
void export_all_note_failed(struct exchange *x, enum exchange_drop why);

/* Goes on, after what was written; when it is to be called again, or UINT64_MAX. */
uint64_t export_all_go_on(struct exchange *x);

/* The page, just imported, is there. */
void export_note_there(struct exchange_ns *e, uint32_t page);

#endif
