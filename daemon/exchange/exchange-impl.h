/* Internals of the exchange, shared by its files. Loop thread only. */
#ifndef KVL_EXCHANGE_EXCHANGE_IMPL_H
#define KVL_EXCHANGE_EXCHANGE_IMPL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "daemon/core/state/page.h"
#include "daemon/exchange/exchange-io.h"
#include "daemon/exchange/exchange.h"
#include "daemon/exchange/format/envelope.h"
#include "daemon/exchange/import.h"

struct attach;
struct session;

/* ---- namespaces: exchange.c ------------------------------------------------------------------ */

/* Returns NULL if the namespace takes no part. */
struct exchange_ns *exchange_find_ns(const struct ns *ns);

const struct seal_key *exchange_ns_key(const struct exchange_ns *e);

/* Requests a call of exchange_work(). */
void exchange_wake(struct exchange *x);

/* Returns the name of the page with this key. 0 or -ENOMEM. */
int exchange_name_page(
        const struct exchange_ns *e, const uint8_t key[KEY_BYTES], char name[EXCHANGE_NAME_MAX]);

/* Returns the name of a session's record. 0; -EINVAL: the id is empty or too long; -ENOMEM. */
struct session_name {
        uint8_t place[EXCHANGE_PLACE_BYTES]; /* the key in its envelope */
        char name[EXCHANGE_NAME_MAX];
};

int exchange_name_session(
        const struct exchange_ns *e, const uint8_t *id, uint32_t id_len, struct session_name *ret);

/* Returns the envelope of a session's record, without its length. */
struct envelope exchange_session_envelope(
        const struct exchange_ns *e, const struct session_name *name);

/* Changes the name of a key's page in another namespace of the set into the name in this one. Costs
 * no HMAC. */
void exchange_rename_page(const struct exchange_ns *e, char name[EXCHANGE_NAME_MAX]);

/* Returns a page's envelope, without tokens and tag. parent_key NULL: it begins a text. */
struct envelope exchange_envelope(
        const struct exchange_ns *e, const uint8_t key[KEY_BYTES], const uint8_t *parent_key);

/* Counts a refused value, as exchange_news_refused(), which explains the words; n_pages is 0 for an
 * epoch. */
void exchange_note_refused(
        struct exchange *x, const char *reason, const char *what, uint32_t n_pages);

/* Forgets which pages the store has, for namespaces of this epoch (NULL: all). */
void exchange_forget_exported(struct exchange *x, const struct exchange_epoch *p);

/* ---- epochs: exchange-epoch.c ---------------------------------------------------------------- */

/* An epoch is read again after this time, known or not: other hosts' invalidations are known here
 * then. */
#define EPOCH_AGAIN_NSEC (NSEC_PER_SEC)

/* Returns the epoch that the namespace shares with others of its set, or makes one. e is counted as
 * one of its namespaces; e's id is set before. NULL: no memory. */
struct exchange_epoch *epoch_get(struct exchange_ns *e);

/* Restores the state of the epoch from the records of e's namespace, after a restart. e is in its
 * exchange's list. */
void epoch_recall(struct exchange_ns *e);

/* e doesn't use the epoch any more. The epoch is freed with the last namespace. If it must change,
 * epoch_work() continues until it has, and frees it then. */
void epoch_put(struct exchange_ns *e);

/* Frees all epochs; no namespace has one any more. Changes that are due are sent once more. */
void epochs_end(struct exchange *x);

/* Makes an operation that reads the epoch. NULL: no memory. */
struct exchange_io *epoch_read_new(struct exchange_epoch *p);

/* Takes in the epoch that `io`, which is over, has read. Returns 0: it is known, and is the
 * store's; -ENOENT: the store has none, and so no page; -ESTALE: it is about to change, or has
 * changed since the read; else the reason why it is unknown. */
int epoch_take(struct exchange_epoch *p, const struct exchange_io *io);

/* Notes an invalidation: no page is imported or exported before the store has a new epoch. First
 * the invalidation, then the epoch is written, at once and until that succeeds. */
void epoch_change(struct exchange_epoch *p, const struct change_item *what);

/* Reads the epoch if the last read is older than EPOCH_AGAIN_NSEC: another host may have changed
 * it, and pages under the old one can't be found. Returns true if it is known, and the caller
 * needn't wait. */
bool epoch_refresh(struct exchange_epoch *p);

/* Continues; returns when to call it again, or UINT64_MAX. Reads the epoch every EPOCH_AGAIN_NSEC,
 * and applies other hosts' invalidations. It may free the epoch. */
uint64_t epoch_work(struct exchange_epoch *p);

/* ---- imports: import.c ----------------------------------------------------------------------- */

/* Per tenant: requests, and bytes of values under way or not looked at yet. Buffers are the
 * daemon's, and charged to no account. Not tuned, except the window: half of it makes the store
 * wait for the loop (kvlease-bench remote-hosts long). */
#define IMPORTS_MAX         64
#define PROBES_MAX          32 /* with so many imports under way, another one only probes */
#define IMPORT_BYTES_MAX    (UINT64_C(64) << 20)
#define IMPORT_WINDOW_BYTES (UINT64_C(16) << 20) /* of one request */
#define IMPORT_TRIAL_AFTER  128                  /* consecutive imports that aren't worth it */

/* Names of a probe. All keys of a request fit if no more than 32 namespaces lack them; otherwise it
 * asks for fewer keys. Not tuned. */
#define SET_PROBE_NAMES_MAX (32 * IMPORT_KEYS_MAX)

/* Part of exchange_work(). */
uint64_t imports_work(struct exchange *x);

/* Imports that wait for pages may be able to get some. */
void imports_take_room(const struct exchange_ns *e);

/* Reports the end of the imports of the namespace and of the attachment; NULL: of all. */
void imports_end(struct exchange *x, const struct exchange_ns *e, const struct attach *a);

/* ---- loading sessions: session-load.c -------------------------------------------------------- */

/* Parts of exchange_work(). */
uint64_t session_loads_work(struct exchange *x);
void session_loads_end(struct exchange *x, const struct exchange_ns *e, const struct attach *a);

/* ---- exports --------------------------------------------------------------------------------- */

/*
 * A tenant exports the pages that a disk would take (policy/tier.h), in any tier: pages found after
 * they were published, with all before them in their texts, and texts of EXCHANGE_LONG_TOKENS. It
 * asks with one TOUCH first. Missing pages are copied into a buffer (moves/transfer.h), summed or
 * sealed by a thread of the store's, and written, at a limited rate. Sessions are exported after
 * each turn (session-export.c). Before a host is shut down, all other cached pages are exported,
 * too (export-all.h).
 */

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
