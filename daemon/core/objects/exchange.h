/*
 * The state of a tenant's exchange with other hosts (exchange/exchange.h): the exchange, its
 * namespaces and their epochs. Loop thread only.
 */
#ifndef KVL_CORE_OBJECTS_EXCHANGE_H
#define KVL_CORE_OBJECTS_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/map.h"
#include "daemon/core/ground/buffers.h"
#include "daemon/core/ground/chore.h"
#include "daemon/exchange/change.h"
#include "daemon/exchange/keys.h"
#include "policy/bucket.h"
#include "policy/worth.h"
#include "proto/exchange-drop.h"

struct exchange_io;
struct exchange_news;
struct export_batch;
struct ns;
struct remote_store;
struct tenant;

struct exchange_options {
        struct remote_store *remote; /* borrowed until exchange_close() */
        struct exchange_news *news;  /* reports refused values (exchange-news.h); borrowed like
                                        `remote`; NULL: no reports */
        bool may_write;              /* else nothing is exported */
        const uint8_t *secret;       /* copied; keys.h says how long it may be */
        size_t secret_len;           /* 0: none, pages are summed and not sealed */
        uint64_t expiry_msec;        /* of written values: 1 .. a year */
        uint64_t write_bytes_per_sec;
        uint64_t probe_nsec;    /* the most time that an import spends on probing */
        uint64_t bytes_per_sec; /* the store's bandwidth, until it has been measured */
        uint64_t token_nsec;    /* time to compute a token; 0: as engines measure it */
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
         * published. The time of a token at its end counts (worth_lost()). */
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
        struct chore chore;     /* counts and walks, in ALL_COUNTS and ALL_WALKS */
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
        struct bucket bucket;         /* limits exported KiB */
        struct worth_ratio bandwidth; /* of imports */
        struct worth_error error;     /* of imports */
        unsigned n_refused;           /* consecutive imports that were refused as too slow */
        struct exchange_counters counters;
};

enum epoch_asks {
        EPOCH_READS,   /* reads the store's epoch */
        EPOCH_MAKES,   /* writes an epoch if the store has none */
        EPOCH_TELLS,   /* writes the record of invalidations, before the epoch changes */
        EPOCH_CHANGES, /* replaces the store's epoch */
        EPOCH_FOLLOWS, /* reads another host's record of invalidations */
};

/* The log in which hosts tell each other what they invalidated (daemon/exchange/change.h). A change
 * is stored under the epoch that it ended and names the next epoch. It is written only if there is
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
        uint32_t part;                  /* follows the place in pages' names: keys.h */
        struct exported_page *exported; /* by page; owned; NULL: none */
        uint32_t n_disturbed;           /* listeners.h: import_disturbed(); wraps */
        struct worth_ratio prefill;     /* as engines measure it; empty: they don't */
        struct worth_answer decided;    /* for the last import that found pages */
        uint32_t n_decided;             /* pages it found; 0: no such import yet */
};

#endif
