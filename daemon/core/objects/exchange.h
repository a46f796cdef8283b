/*
 * What a tenant exchanges with other hosts (exchange/exchange.h), as it lies in memory: the
 * tenant's exchange, its namespaces that take part, and their epochs. Loop thread only.
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
        struct exchange_news *news;  /* told of what is refused (exchange-news.h); borrowed as it;
                                        NULL: nothing is told */
        bool may_write;              /* else nothing is exported */
        const uint8_t *secret;       /* copied; keys.h says how long it may be */
        size_t secret_len;           /* 0: none, pages are summed and not sealed */
        uint64_t expiry_msec;        /* of what is written: 1 .. a year */
        uint64_t write_bytes_per_sec;
        uint64_t probe_nsec;    /* that asking what is there may take, of an import's time */
        uint64_t bytes_per_sec; /* the store's bandwidth, until it has been measured */
        uint64_t token_nsec;    /* that computing a token takes; 0: as engines measure it */
};

/* Since the exchange was opened. */
struct exchange_counters {
        uint64_t probes;         /* requests that asked the store */
        uint64_t probed_pages;   /* keys that it was asked for */
        uint64_t found_pages;    /* of these, there and next to each other from the first on */
        uint64_t imported_pages; /* published here */
        uint64_t imported_bytes;
        uint64_t exported_pages; /* written */
        uint64_t exported_bytes;
        uint64_t there_pages;     /* to be exported, or used here again, and there already */
        uint64_t session_records; /* of sessions, written */
        uint64_t sessions;        /* of other hosts that were continued here */
        /* Imports that began to load because that seemed sooner than computing, and are over for
         * whatever reason but EXCHANGE_CALLED_OFF and EXCHANGE_EPOCH; no trials. Lost are those
         * that took, from their probe on, more time than computing the tokens of the pages that
         * they published, by the time a token takes when they are over (worth_lost()). */
        uint64_t loads, loads_lost;
        uint64_t epochs;   /* times a namespace's epoch was changed by this daemon */
        uint64_t followed; /* changes of other hosts that were followed here */
        uint64_t not_imported[N_EXCHANGE_DROPS]; /* pages; of a probe that failed: its keys */
        uint64_t not_exported[N_EXCHANGE_DROPS]; /* pages */
};

enum export_all_phase {
        ALL_OFF,
        ALL_COUNTS,   /* what is to be exported, and when it was used */
        ALL_WALKS,    /* over the pages of one age after another, and adds them as texts */
        ALL_ENDS,     /* it has walked, and what it added is still being written */
        ALL_SESSIONS, /* the pages are over, and sessions are told of */
        ALL_IDLE,     /* nothing is left that can be exported */
};

/* All that is cached is exported (export-all.h). A *pass* counts, and walks. */
struct export_all {
        enum export_all_phase phase;
        struct chore chore;     /* of ALL_COUNTS and ALL_WALKS */
        uint32_t counted_sec;   /* when the pass began */
        struct exchange_ns *at; /* where it counts or walks, and its page; NULL: at the end */
        uint32_t page;
        uint64_t session;   /* of ALL_SESSIONS: as session_next() counts them */
        uint64_t ages;      /* that counting has met and walking hasn't walked: a bit for each */
        bool again;         /* something was published since counting began */
        uint32_t n_texts;   /* of exchange.texts */
        uint64_t n_failed;  /* pages that this pass couldn't write, and another may */
        uint64_t hold_nsec; /* until then nothing is begun: the store didn't take the last batch */
        bool is_failing;    /* as long as nothing was written since a page failed, */
        enum exchange_drop why;          /* which did so for this reason */
        uint64_t left_pages, left_bytes; /* when they were counted; while they are, so far */
        uint64_t old_pages;              /* likewise: of before the epoch */
        uint64_t written_pages, written_bytes, there_pages, there_bytes; /* since the beginning */
        uint64_t done_pages, done_bytes; /* of these, when `left` was counted */
};

struct exchange {
        struct tenant *tenant;           /* borrowed */
        struct exchange_options options; /* but for the secret */
        struct exchange_tenant whose;
        struct list_link namespaces; /* struct exchange_ns.link */
        struct list_link epochs;     /* struct exchange_epoch.link */
        struct map by_id;            /* id of a namespace -> struct exchange_ns */
        struct list_link imports;    /* struct import.link */
        uint32_t n_imports;
        bool is_importing; /* a page, right now: what is published was there, and isn't exported */
        uint64_t import_bytes, export_bytes; /* of values under way */
        uint32_t n_ops;                      /* operations that the store has */
        struct list_link ios;                /* struct exchange_io.link: those that it has */
        struct buffers buffers;              /* those that are kept */
        struct list_link texts;              /* struct export_text.link: what is to be exported */
        uint32_t n_texts;
        struct list_link session_exports; /* struct session_export.link */
        uint32_t n_session_exports;
        struct list_link session_loads; /* struct session_load.link */
        uint32_t n_session_loads;
        struct export_batch *batch; /* under way; owned; NULL: none */
        struct export_all all;
        struct bucket bucket;         /* of exported KiB */
        struct worth_ratio bandwidth; /* of imports */
        struct worth_error error;     /* likewise */
        unsigned n_refused;           /* imports that weren't worth it since one was */
        struct exchange_counters counters;
};

enum epoch_asks {
        EPOCH_READS,   /* the epoch that the store has */
        EPOCH_MAKES,   /* writes one where the store has none */
        EPOCH_TELLS,   /* writes what was invalidated, before it changes the epoch */
        EPOCH_CHANGES, /* writes another epoch over the one that is there */
        EPOCH_FOLLOWS, /* reads what another host has invalidated */
};

/*
 * What hosts tell each other of what they invalidate (daemon/exchange/change.h). Each change lies
 * under a name made of the epoch that it ended, is written only where there is none, and names the
 * epoch behind it: so changes are a chain, of which no host can take another one's link away.
 */
struct exchange_changes {
        uint64_t seen;        /* the epoch that the store had, as was known last; 0: none */
        uint64_t at;          /* all changes before this epoch were followed here; 0: not known */
        bool is_behind;       /* there may be one at `at` that wasn't */
        bool has_met;         /* while behind: `seen` was among those that were followed */
        bool is_read;         /* since it must change, the epoch was read */
        bool is_due;          /* the records are to be told, once nothing is behind or dropped */
        unsigned n_missed;    /* while behind: how often none was there */
        unsigned n_followed;  /* since the epoch was read last */
        struct change made;   /* here, and not sent yet: no items, nothing was since */
        struct change sent;   /* by EPOCH_TELLS, or with it by EPOCH_CHANGES */
        struct change coming; /* of another host, to be followed from item `n_done` on */
        uint32_t n_done;
};

/* An epoch is a namespace's, or has all namespaces of a set: what is invalidated in one of them is
 * so in all. */
struct exchange_epoch {
        struct list_link link;         /* exchange.epochs */
        struct exchange *x;            /* borrowed */
        uint8_t id[EXCHANGE_ID_BYTES]; /* of its name: the namespace's, or of the set's name */
        uint32_t n_namespaces;         /* that have it; 0: it goes once it has changed */
        uint64_t number;               /* 0: not known */
        uint64_t turn;                 /* how often the number has become another one, or unknown */
        struct seal_key seal;          /* of the epoch, where the tenant has a secret */
        bool must_change;              /* something was invalidated, and the store doesn't know */
        struct exchange_io *asking;    /* NULL: nothing is under way */
        enum epoch_asks asks;          /* what it does */
        uint64_t new_epoch;            /* that it writes, or tells of */
        uint64_t asked_nsec;           /* when something was begun last */
        struct exchange_changes changes;
        bool was_known;     /* some epoch was, here or by the daemon before this one */
        uint32_t known_sec; /* when it was learnt; pages of before aren't exported */
        /* As the daemon before this one knew it, until one is known; kept_number 0: it didn't. */
        uint64_t kept_number;
        uint32_t kept_sec;
};

/* A page that was exported, or was to be. */
struct exported_page {
        uint32_t generation; /* that it had then, the low 32 bits; 0: it wasn't */
        uint32_t seen_sec;   /* when the store had it, or was asked for it */
};

/* A namespace that takes part. */
struct exchange_ns {
        struct list_link link;         /* exchange.namespaces */
        struct exchange *x;            /* borrowed */
        struct ns *ns;                 /* borrowed */
        struct exchange_epoch *epoch;  /* shared with the others of its set */
        uint8_t id[EXCHANGE_ID_BYTES]; /* exchange_identify() */
        uint32_t rank;
        uint32_t part;                  /* behind the place in its pages' names: keys.h */
        struct exported_page *exported; /* of each page; owned; NULL: none was */
        uint32_t n_disturbed;           /* listeners.h: import_disturbed(); wraps */
        struct worth_ratio prefill;     /* as engines measure it; nothing: they don't */
        struct worth_answer decided;    /* of the last import that found something there, */
        uint32_t n_decided;             /* so many pages; 0: there was none */
};

#endif
