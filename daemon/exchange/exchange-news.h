/*
 * Events (state/event-log.h) about a store that hosts share: it became unreachable or reachable,
 * some of its nodes are skipped or none is any more, values were refused as damaged or foreign.
 *
 * The store and the network are untrusted and can cause any number of these. So each is reported at
 * most once per EXCHANGE_NEWS_NSEC, store and reason, with the number of times since the last
 * report. The last report about the store, or about its nodes, is true within that time.
 *
 * Each opened store has one struct exchange_news. Time is a parameter: CLOCK_MONOTONIC. Loop thread
 * only.
 */
#ifndef KVL_EXCHANGE_EXCHANGE_NEWS_H
#define KVL_EXCHANGE_EXCHANGE_NEWS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/parse.h"
#include "daemon/exchange/format/envelope.h"
#include "daemon/remote/io/remote-io.h"

struct event_log;

/* The shortest time between two reports of one kind. Not tuned. */
#define EXCHANGE_NEWS_NSEC (60 * NSEC_PER_SEC)

/* An unreachable store is reported after this time, and so are skipped nodes and nodes that are no
 * longer skipped: breakers try a node again after a second (daemon/remote/endpoint/breaker.h). Not
 * tuned. */
#define EXCHANGE_UNREACHED_NSEC (3 * NSEC_PER_SEC)

/* The faults of envelope.h, and one for an invalid epoch. */
#define EXCHANGE_REFUSALS_MAX (N_ENVELOPE_FAULTS + 1)

/* A report that is rate-limited. Zeroed: never reported, nothing to report. */
struct exchange_item {
        uint64_t n;         /* occurrences since the last report */
        uint64_t told_nsec; /* time of the last report; 0: never */
};

/* Values that were refused for one reason. */
struct exchange_refusal {
        const char *reason, *what; /* static */
        struct exchange_item item;
        uint64_t n_pages;                 /* pages among item.n */
        char tenant[TENANT_NAME_MAX + 1]; /* the tenant of the first value */
        bool is_of_several;               /* values of several tenants were refused */
};

/* Nodes that a reachable store skips (daemon/remote/endpoint/breaker.h), as one state: it lasts
 * from the first node's failure until no node is skipped. */
struct exchange_nodes_news {
        bool are_away;        /* as reported; changes once the opposite has held for a while */
        uint64_t since_nsec;  /* since when the opposite holds; 0: it doesn't */
        uint32_t n_away;      /* the largest number while they are skipped */
        uint32_t n_nodes;     /* nodes of the store then */
        uint64_t away_nsec;   /* since when nodes are skipped */
        uint64_t lasted_nsec; /* how long the last such time lasted */
        char name[REMOTE_NAME_BYTES]; /* a node, and why: -errno, 0: unknown */
        int error;
        struct exchange_item lost, regained;
};

struct exchange_news {
        const char *name; /* the store's name in the configuration; borrowed */
        bool is_unreached;
        uint64_t unreached_nsec;      /* since when it is unreachable; 0: reachable, or unknown */
        uint64_t lasted_nsec;         /* how long the last outage lasted */
        uint32_t n_nodes;             /* nodes of the store then */
        char why[REMOTE_FAULT_BYTES]; /* its reason; "": unknown */
        struct exchange_item lost, regained;
        struct exchange_nodes_news nodes;
        struct exchange_refusal refusals[EXCHANGE_REFUSALS_MAX];
        unsigned n_refusals;
};

/* Takes in the store's present state. Call it about every second. */
void exchange_news_see(
        struct exchange_news *n, const struct remote_summary *summary, uint64_t now_nsec);

/* Notes that a value of the tenant, or n_pages pages, was refused. `reason` is a word and `what` a
 * sentence without its end (envelope_fault_name(), envelope_fault_text()), both static. Beyond
 * EXCHANGE_REFUSALS_MAX reasons, the rest count as the last one. */
void exchange_news_refused(struct exchange_news *n, const char *tenant, const char *reason,
        const char *what, uint32_t n_pages);

/* Reports what is due. Call it after both functions above, and about every second. */
void exchange_news_tell(struct exchange_news *n, struct event_log *c, uint64_t now_nsec);

#endif
