/*
 * Pages of other hosts. A tenant may have an *exchange*: a store that several hosts share
 * (daemon/remote), to which this daemon gives copies of what is cached (*exports*,
 * exports/exports.h), and from which it takes what a lookup lacks (*imports*, import.h). A page
 * there has a name, and no number: it is in no tier, and nothing here changes what a page of this
 * host is, or when it goes.
 *
 *   namespace:  unknown -> asked -> known -> changing -> known ...      (its epoch)
 *
 * The *epoch* is a random number that all hosts have for a namespace, or for all namespaces of a
 * set: what one rank invalidates must be found by none. It lies in the store, and is part of every
 * page's name (daemon/exchange/keys.h). Whoever invalidates anything of a namespace writes another
 * one, so that nothing that was exported before is found again, by any host; and it is read again
 * with each import. Nothing is imported or exported while it isn't known. Where the store has lost
 * it, the next exporter makes another one.
 *
 * What was cached here before the epoch was learnt, or changed, isn't exported: it may be what
 * another host has invalidated. Whoever invalidates something also writes down what it was
 * (daemon/exchange/change.h). All hosts read the epoch once a second, and drop what of that they
 * have cached themselves.
 *
 * The namespaces of a set have one place for a page, and import only what all of them have here or
 * find there (import.h).
 *
 * What is read is opened by a thread of the store's where its page lies, or in a buffer, from which
 * it is copied (import.h).
 *
 * Nothing here blocks: the store's threads have the sockets, its answers are reaped by the server,
 * and exchange_work() draws the consequences. Nothing outlives the process: after a restart nothing
 * is under way, and pages that were being imported are withdrawn, as all announcements are. Loop
 * thread only.
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
        uint32_t n_texts;         /* that wait to be exported */
        uint64_t bytes_under_way; /* of buffers */
        /* As measured lately; 0: nothing was. */
        uint64_t import_bytes_per_sec;   /* that values came with */
        uint64_t prefill_tokens_per_sec; /* that engines compute, where they are slowest; nothing is
                                            measured where exchange_options.token_nsec says it */
        double load_error;               /* exchange.error.mean */
};

/*
 * The tenant's namespaces take part from now on. One that is open already is closed first, but
 * where only times and rates are others: then it goes on with these, and knows its epochs. 0;
 * -EINVAL: a number is out of its range; -ENOMEM; both with the sentence, and nothing is open.
 */
int exchange_open(struct tenant *t, const struct exchange_options *options, struct detail *d);

/* Nothing is imported or exported any more; who waits for an import is told that it is over. The
 * store isn't used after this but for what it still has to end. Safe to repeat. */
void exchange_close(struct tenant *t);

/* False: it has none, *ret is all zero. */
bool exchange_figures(const struct tenant *t, struct exchange_figures *ret);

/* An engine says what computing takes (NOTE_PREFILL): what is worth loading is decided by that,
 * where exchange_options.token_nsec is 0. Nothing is done where the namespace takes no part.
 * n_tokens >= 1; nsec: 1 .. PREFILL_NSEC_MAX. */
#define PREFILL_NSEC_MAX (UINT64_C(3600) * 1000000000)
void exchange_note_prefill(const struct ns *ns, uint64_t n_tokens, uint64_t nsec);

/* Whether the namespace takes part; *ret_why (NULL: isn't wanted) is else a static phrase that says
 * why not. */
bool exchange_has_ns(const struct ns *ns, const char **ret_why);

/*
 * Goes on with all that is under way. To be called when store.owner.on_exchange_work says so, and
 * when the time comes that it returns: CLOCK_MONOTONIC, UINT64_MAX where there is nothing to wait
 * for; now_nsec where there is more to do at once.
 */
uint64_t exchange_work(struct store *s, uint64_t now_nsec);

/* ---- for the rest of the core ---------------------------------------------------------------- */

/* The namespace was made, and is in its set if it has one; or it goes; or what its pages are has
 * changed (it leaves, and enters anew). */
void exchange_enter_ns(struct ns *ns);
void exchange_leave_ns(struct ns *ns);

/* Memory that was being made for the namespace has come, and goes again where nobody takes it now.
 */
void exchange_note_room(struct ns *ns);

/* Imports of the namespace let go of what isn't theirs any more at the next exchange_work(), which
 * is asked for (listeners.h: import_disturbed). */
void exchange_note_disturbed(struct ns *ns);

/* That was invalidated in the namespace; all of it was. Cheap to repeat. */
void exchange_note_change(struct ns *ns, const struct change_item *what);
void exchange_note_invalidated(struct ns *ns);

#endif
