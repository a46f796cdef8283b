/*
 * Pages of other hosts. A tenant may have an *exchange*: a store that several hosts share
 * (daemon/remote). This daemon writes copies of cached pages to it (*exports*, export.c), and
 * reads pages that a lookup lacks from it (*imports*, import.h). A page there has a name, and no
 * number: it is in no tier. Pages of this host aren't changed or evicted because of it.
 *
 *   namespace:  unknown -> asked -> known -> changing -> known ...      (its epoch)
 *
 * The *epoch* is a random number that all hosts have for a namespace, or for all namespaces of a
 * set: a page that one rank invalidates must not be found by any. It lies in the store, and is part
 * of every page's name (format/keys.h). An invalidation in a namespace writes another epoch, so
 * that no host finds earlier exports again. The epoch is read again with each import. While it is
 * unknown, no page is imported or exported. If the store has lost it, the next exporter makes
 * another one.
 *
 * Pages cached here before the epoch was learnt, or changed, aren't exported: another host may have
 * invalidated them. An invalidation is also written to a log (format/change.h). All hosts read the
 * epoch once a second, and drop their own pages that the log names.
 *
 * The namespaces of a set have one place for a page, and import only pages that all of them have
 * here or find there (import.h).
 *
 * A thread of the store's opens a value where its page lies, or in a buffer, from which it is
 * copied (import.h).
 *
 * Above daemon/core, which knows it as the listener of some tenants (state/listeners.h).
 *
 * Nothing here blocks: the store's threads have the sockets, the server reaps answers, and
 * exchange_work() handles the results. Nothing survives a restart: then no request is under way,
 * and pages that were being imported are withdrawn, as all announcements are. Loop thread only.
 */
#ifndef KVL_EXCHANGE_EXCHANGE_H
#define KVL_EXCHANGE_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/macros.h"
#include "base/map.h"
#include "daemon/exchange/buffers.h"
#include "daemon/core/state/listeners.h"
#include "daemon/core/state/task.h"
#include "daemon/core/state/tenant.h"
#include "daemon/exchange/format/change.h"
#include "daemon/exchange/format/keys.h"
#include "policy/bucket.h"
#include "policy/load-cost.h"
#include "proto/exchange-drop.h"

struct detail;
struct exchange_io;
struct exchange_news;
struct export_batch;
struct remote_store;

struct exchange_options {
        struct remote_store *remote; /* borrowed until exchange_close() */
        struct exchange_news *news;  /* reports refused values (exchange-news.h); borrowed like
                                        `remote`; NULL: no reports */
        bool may_write;              /* else nothing is exported */
        const uint8_t *secret;       /* copied; keys.h says how long it may be */
        size_t secret_len;           /* 0: none, pages are summed and not sealed */
        uint64_t expiry_msec;        /* of written values: 1 .. a year */
        uint64_t write_bytes_per_sec;
        uint64_t probe_nsec;         /* the most time that an import spends on probing */
        uint64_t bytes_per_sec;      /* the store's bandwidth, until it has been measured */
        uint64_t token_nsec;         /* time to compute a token; 0: as engines measure it */
        void (*on_work)(void *data); /* exchange_work() is to be called soon; NULL: not told */
        void *data;                  /* of on_work; borrowed */
};

/* Since the exchange was opened. */
struct exchange_counters {
        uint64_t probes;         /* requests that asked the store */
        uint64_t probed_pages;   /* keys that it was asked for */
        uint64_t found_pages;    /* of these, the leading keys that the store had */
        uint64_t imported_pages; /* published here */
        uint64_t imported_bytes;
        uint64_t exported_pages; /* written */
        uint64_t exported_bytes;
        uint64_t there_pages;     /* found in the store, at an export or a use here */
        uint64_t session_records; /* records of sessions written */
        uint64_t sessions;        /* sessions of other hosts that continued here */
        /* Imports that began to load because that seemed faster than computing, and have ended.
         * Trials and those ended by EXCHANGE_CALLED_OFF or EXCHANGE_EPOCH don't count. A load is
         * lost if, from its probe on, it took longer than computing the tokens of the pages that it
         * published. The time of a token at its end counts (load_cost_lost()). */
        uint64_t loads, loads_lost;
        uint64_t epochs;                         /* epoch changes that this daemon made */
        uint64_t followed;                       /* changes of other hosts, applied here */
        uint64_t not_imported[N_EXCHANGE_DROPS]; /* pages; a failed probe counts its keys */
        uint64_t not_exported[N_EXCHANGE_DROPS]; /* pages */
};

enum export_all_phase {
        ALL_OFF,
        ALL_COUNTS,   /* counts pages to export, and their ages */
        ALL_WALKS,    /* adds the pages of one age after the other as texts */
        ALL_ENDS,     /* the walk is over; added texts are still being written */
        ALL_SESSIONS, /* pages are written; session records follow */
        ALL_IDLE,     /* nothing is left to export */
};

/* Exports all that is cached (export-all.h). A *pass* counts pages, then walks over them. */
struct export_all {
        enum export_all_phase phase;
        struct task task;       /* counts and walks, in ALL_COUNTS and ALL_WALKS */
        uint32_t counted_sec;   /* when the pass began */
        struct exchange_ns *at; /* place of the count or walk; NULL: its end */
        uint32_t page;
        uint64_t session;   /* ALL_SESSIONS: number for session_next() */
        uint64_t ages;      /* counted and not walked yet: a bit for each age */
        bool again;         /* something was published since counting began */
        uint32_t n_texts;   /* its texts in exchange.texts */
        uint64_t n_failed;  /* failed in this pass; the next may write them */
        uint64_t hold_nsec; /* no batch begins before; the store refused the last one */
        bool is_failing;    /* a page failed and none was written since; `why` says why */
        enum exchange_drop why;
        uint64_t left_pages, left_bytes; /* left to export, as of the last count or so far */
        uint64_t old_pages;              /* counted too: pages from before the epoch */
        uint64_t written_pages, written_bytes, there_pages, there_bytes; /* since the beginning */
        uint64_t done_pages, done_bytes; /* of these, at the time of the count */
};

struct exchange {
        struct tenant_listener listener; /* tenant.listener */
        struct tenant *tenant;           /* borrowed */
        struct exchange_options options; /* without the secret */
        struct exchange_tenant whose;
        struct list_link namespaces; /* struct exchange_ns.link */
        struct list_link epochs;     /* struct exchange_epoch.link */
        struct map by_id;            /* id of a namespace -> struct exchange_ns */
        struct list_link imports;    /* struct import.link */
        uint32_t n_imports;
        bool is_importing; /* a page is being imported now; publishing it doesn't export it */
        uint64_t import_bytes, export_bytes; /* of values under way */
        uint32_t n_ops;                      /* operations that the store executes */
        struct list_link ios;                /* struct exchange_io.link: these operations */
        struct buffers buffers;              /* buffers for values */
        struct list_link texts;              /* struct export_text.link: waiting for export */
        uint32_t n_texts;
        struct list_link session_exports; /* struct session_export.link */
        uint32_t n_session_exports;
        struct list_link session_loads; /* struct session_load.link */
        uint32_t n_session_loads;
        struct export_batch *batch; /* under way; owned; NULL: none */
        struct export_all all;
        struct bucket bucket;             /* limits exported KiB */
        struct load_cost_ratio bandwidth; /* of imports */
        struct load_cost_error error;     /* of imports */
        unsigned n_refused;               /* consecutive imports that were refused as too slow */
        struct exchange_counters counters;
};

/* Returns NULL if the tenant has none. */
static inline struct exchange *exchange_of(const struct tenant *t)
{
        return t->listener ? container_of(t->listener, struct exchange, listener) : NULL;
}

enum epoch_asks {
        EPOCH_READS,   /* reads the store's epoch */
        EPOCH_MAKES,   /* writes an epoch if the store has none */
        EPOCH_TELLS,   /* writes the record of invalidations, before the epoch changes */
        EPOCH_CHANGES, /* replaces the store's epoch */
        EPOCH_FOLLOWS, /* reads another host's record of invalidations */
};

/* The log of invalidations that hosts share (format/change.h). A change is
 * stored under the epoch that it ended and names the next epoch. It is written only if there is
 * none under that name. So changes form a chain, of which no host can replace another's link. */
struct exchange_changes {
        uint64_t seen;        /* the store's epoch when last read; 0: none */
        uint64_t at;          /* all changes before this epoch were applied; 0: unknown */
        bool is_behind;       /* a change at `at` may be waiting */
        bool has_met;         /* while behind: `seen` was among the applied changes */
        bool is_read;         /* the epoch was read since must_change was set */
        bool is_due;          /* send the records once no change waits and no drop runs */
        unsigned n_missed;    /* while behind: how often no change was found */
        unsigned n_followed;  /* changes applied since the epoch was last read */
        struct change made;   /* collected here, not sent; no items: none */
        struct change sent;   /* being sent by EPOCH_TELLS, EPOCH_CHANGES */
        struct change coming; /* another host's; items from `n_done` on aren't applied yet */
        uint32_t n_done;
};

/* The epoch of one namespace, or shared by all namespaces of a set: an invalidation in one of them
 * counts for all. */
struct exchange_epoch {
        struct list_link link;         /* exchange.epochs */
        struct exchange *x;            /* borrowed */
        uint8_t id[EXCHANGE_ID_BYTES]; /* from the name of the namespace or of the set */
        uint32_t n_namespaces;         /* that share it; 0: freed once it has changed */
        uint64_t number;               /* 0: not known */
        uint64_t turn;                 /* how often `number` changed or became unknown */
        struct seal_key seal;          /* for the epoch, if the tenant has a secret */
        bool must_change;              /* an invalidation isn't in the store yet */
        struct exchange_io *asking;    /* NULL: nothing is under way */
        enum epoch_asks asks;          /* the request under way */
        uint64_t new_epoch;            /* to be written, or to be announced */
        uint64_t asked_nsec;           /* start of the last request */
        struct exchange_changes changes;
        bool was_known;     /* by this daemon or the previous one */
        uint32_t known_sec; /* when it was learnt; older pages aren't exported */
        /* The previous daemon's values, until the epoch is known; kept_number 0: it had none. */
        uint64_t kept_number;
        uint32_t kept_sec;
};

/* A page that was exported, or was to be exported. */
struct exported_page {
        uint32_t generation; /* the page's at that time, low 32 bits; 0: none */
        uint32_t seen_sec;   /* when the store had the page, or was asked for it */
};

/* A namespace that takes part in the exchange. */
struct exchange_ns {
        struct list_link link;         /* exchange.namespaces */
        struct exchange *x;            /* borrowed */
        struct ns *ns;                 /* borrowed */
        struct exchange_epoch *epoch;  /* shared by the namespaces of a set */
        uint8_t id[EXCHANGE_ID_BYTES]; /* exchange_identify() */
        uint32_t rank;
        uint32_t part;                   /* follows the place in pages' names: keys.h */
        struct exported_page *exported;  /* by page; owned; NULL: none */
        uint32_t n_disturbed;            /* listeners.h: ns_is_disturbed(); wraps */
        struct load_cost_ratio prefill;  /* as engines measure it; empty: they don't */
        struct load_cost_answer decided; /* for the last import that found pages */
        uint32_t n_decided;              /* pages it found; 0: no such import yet */
};

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

/* Returns "not-worth", for example; static. */
const char *exchange_drop_name(enum exchange_drop drop);

/* Notes an engine's measurement of computing (NOTE_PREFILL), which decides which pages are worth
 * loading if exchange_options.token_nsec is 0. Does nothing if the namespace takes no part.
 * n_tokens >= 1; nsec: 1 .. PREFILL_NSEC_MAX. */
#define PREFILL_NSEC_MAX (UINT64_C(3600) * 1000000000)
void exchange_note_prefill(const struct ns *ns, uint64_t n_tokens, uint64_t nsec);

/* Does the namespace take part? If not, *ret_why (may be NULL) is a static phrase: the reason. */
bool exchange_has_ns(const struct ns *ns, const char **ret_why);

/* Continues all work. Call it after exchange_options.on_work, and at the time that it returns:
 * CLOCK_MONOTONIC, UINT64_MAX if there is nothing to wait for; now_nsec if there is more to do at
 * once. */
uint64_t exchange_work(struct store *s, uint64_t now_nsec);

#endif
