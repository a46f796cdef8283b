/*
 * Pages of other hosts. A tenant may have an *exchange*: a store that several hosts share
 * (daemon/remote). This daemon writes copies of cached pages to it (*exports*, exports/exports.h),
 * and reads pages that a lookup lacks from it (*imports*, import.h). A page there has a name, and
 * no number: it is in no tier. Pages of this host aren't changed or evicted because of it.
 *
 *   namespace:  unknown -> asked -> known -> changing -> known ...      (its epoch)
 *
 * The *epoch* is a random number that all hosts have for a namespace, or for all namespaces of a
 * set: a page that one rank invalidates must not be found by any. It lies in the store, and is part
 * of every page's name (daemon/exchange/keys.h). An invalidation in a namespace writes another
 * epoch, so that no host finds earlier exports again. The epoch is read again with each import.
 * While it is unknown, no page is imported or exported. If the store has lost it, the next exporter
 * makes another one.
 *
 * Pages cached here before the epoch was learnt, or changed, aren't exported: another host may have
 * invalidated them. An invalidation is also written to a log (daemon/exchange/change.h). All hosts
 * read the epoch once a second, and drop their own pages that the log names.
 *
 * The namespaces of a set have one place for a page, and import only pages that all of them have
 * here or find there (import.h).
 *
 * A thread of the store's opens a value where its page lies, or in a buffer, from which it is
 * copied (import.h).
 *
 * Nothing here blocks: the store's threads have the sockets, the server reaps answers, and
 * exchange_work() handles the results. Nothing survives a restart: then no request is under way,
 * and pages that were being imported are withdrawn, as all announcements are. Loop thread only.
 */
#ifndef KVL_CORE_EXCHANGE_H
#define KVL_CORE_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/core/objects/exchange.h"
#include "proto/exchange-drop.h"

struct detail;
struct exchange_news;
struct ns;
struct remote_store;
struct store;
struct tenant;

/* Larger pages aren't exchanged: each takes a buffer of its size. Not tuned. */
#define EXCHANGE_PAGE_MAX (UINT64_C(16) << 20)

struct exchange_figures {
        struct exchange_counters counters;
        bool may_write, is_sealed;
        uint32_t n_namespaces;    /* that take part */
        uint32_t n_ready;         /* of these, with a known epoch */
        uint32_t n_imports;       /* requests under way */
        uint32_t n_texts;         /* waiting to be exported */
        uint64_t bytes_under_way; /* in buffers */
        /* Recent measurements; 0: none. */
        uint64_t import_bytes_per_sec;   /* rate of imported values */
        uint64_t prefill_tokens_per_sec; /* of the slowest engines; not measured if
                                            exchange_options.token_nsec is set */
        double load_error;               /* exchange.error.mean */
};

/* Begins the exchange of the tenant's namespaces. An exchange that is open is closed first.
 * Exception: if only times and rates differ, it continues with these, and keeps its epochs. Returns
 * 0; -EINVAL: a number is out of its range; -ENOMEM; both with the sentence, and no exchange is
 * open. */
int exchange_open(struct tenant *t, const struct exchange_options *options, struct detail *d);

/* Ends imports and exports; waiting clients are notified. The store is used afterwards only to end
 * its operations. Idempotent. */
void exchange_close(struct tenant *t);

/* Returns false if the tenant has none; *ret is all zero. */
bool exchange_figures(const struct tenant *t, struct exchange_figures *ret);

/* Notes an engine's measurement of computing (NOTE_PREFILL), which decides which pages are worth
 * loading if exchange_options.token_nsec is 0. Does nothing if the namespace takes no part.
 * n_tokens >= 1; nsec: 1 .. PREFILL_NSEC_MAX. */
#define PREFILL_NSEC_MAX (UINT64_C(3600) * 1000000000)
void exchange_note_prefill(const struct ns *ns, uint64_t n_tokens, uint64_t nsec);

/* Does the namespace take part? If not, *ret_why (may be NULL) is a static phrase with the reason.
 */
bool exchange_has_ns(const struct ns *ns, const char **ret_why);

/* Continues all work. Call it after store.owner.on_exchange_work, and at the time that it returns:
 * CLOCK_MONOTONIC, UINT64_MAX if there is nothing to wait for; now_nsec if there is more to do at
 * once. */
uint64_t exchange_work(struct store *s, uint64_t now_nsec);

/* ---- for the rest of the core ---------------------------------------------------------------- */

/* The namespace was made, and is in its set, if any; is being freed; or its identity has changed
 * (it leaves, and enters again). */
void exchange_enter_ns(struct ns *ns);
void exchange_leave_ns(struct ns *ns);

/* Memory that was being made for the namespace has come, and is given back if it isn't used now. */
void exchange_note_room(struct ns *ns);

/* Requests a check of the namespace's imports in the next exchange_work(): they release pages that
 * aren't theirs any more (listeners.h: import_disturbed). */
void exchange_note_disturbed(struct ns *ns);

/* `what` was invalidated in the namespace; all of it was. Cheap to repeat. */
void exchange_note_change(struct ns *ns, const struct change_item *what);
void exchange_note_invalidated(struct ns *ns);

#endif
