/*
 * What events (ground/chronicle.h) tell of a store that hosts share: that it can't be reached, that
 * it can be again, that some of its nodes are left alone, that none is any more, and that values of
 * it were refused, because they are damaged or somebody else's.
 * The store and the network are an enemy's, who may do all of that as often as he likes; so each of
 * these is told at most once in EXCHANGE_NEWS_NSEC, of each store and reason, with the number of
 * times since it was told before. What is told last of reaching the store, or its nodes, is true
 * within that time.
 *
 * Whoever opened the store has one for it. Time is a parameter: CLOCK_MONOTONIC. Loop thread only.
 */
#ifndef KVL_CORE_EXCHANGE_NEWS_H
#define KVL_CORE_EXCHANGE_NEWS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/parse.h"
#include "daemon/exchange/envelope.h"
#include "daemon/remote/store/remote.h"

struct chronicle;

/* Not tuned. */
#define EXCHANGE_NEWS_NSEC (60 * NSEC_PER_SEC)

/* A store that can't be reached for less than that isn't told of, nor is a node that is left alone
 * for less, or not for as long afterwards: breakers try a node again after a second
 * (daemon/remote/endpoint/breaker.h). Not tuned. */
#define EXCHANGE_UNREACHED_NSEC (3 * NSEC_PER_SEC)

/* The words of envelope.h, and one for an epoch that is none. */
#define EXCHANGE_REFUSALS_MAX (N_ENVELOPE_FAULTS + 1)

/* One thing that is told sparsely. Zeroed: it never was, and there is nothing to tell. */
struct exchange_item {
        uint64_t n;         /* times since it was told */
        uint64_t told_nsec; /* when that was; 0: never */
};

/* Values that were refused for one reason. */
struct exchange_refusal {
        const char *reason, *what; /* static */
        struct exchange_item item;
        uint64_t n_pages;                 /* of item.n */
        char tenant[TENANT_NAME_MAX + 1]; /* whose they were; */
        bool is_of_several;               /* not of that one alone */
};

/* Some nodes of a store that is reached are left alone (daemon/remote/endpoint/breaker.h), as one
 * state: it lasts from the first one's failure until none is. */
struct exchange_nodes_news {
        bool are_away;        /* as it is told: that changes once the other has held for a while */
        uint64_t since_nsec;  /* since when it is the other way round; 0: it isn't */
        uint32_t n_away;      /* the most of them while they are; */
        uint32_t n_nodes;     /* of so many */
        uint64_t away_nsec;   /* since when they are; */
        uint64_t lasted_nsec; /* how long they were the last time */
        char name[REMOTE_NAME_BYTES]; /* one of these, and why: -errno; 0: not known */
        int error;
        struct exchange_item lost, regained;
};

struct exchange_news {
        const char *name; /* of the store, as the configuration has it; borrowed */
        bool is_unreached;
        uint64_t unreached_nsec; /* since when it can't be reached; 0: it can, or isn't known */
        uint64_t lasted_nsec;    /* so long it couldn't be the last time */
        uint32_t n_nodes;        /* that it had then */
        int last_error;          /* why: -errno; 0: not known */
        struct exchange_item lost, regained;
        struct exchange_nodes_news nodes;
        struct exchange_refusal refusals[EXCHANGE_REFUSALS_MAX];
        unsigned n_refusals;
};

/* What the store is like now: to be called about every second. */
void exchange_news_see(
        struct exchange_news *n, const struct remote_summary *summary, uint64_t now_nsec);

/* A value of the tenant's, or (n_pages) so many pages, was refused. `reason` is a word, `what` a
 * sentence without its end, as envelope_fault_name() and envelope_fault_text(): both static. Of
 * more than EXCHANGE_REFUSALS_MAX reasons the rest are told as the last one. */
void exchange_news_refused(struct exchange_news *n, const char *tenant, const char *reason,
        const char *what, uint32_t n_pages);

/* Tells all that is due: to be called after both, and about every second. */
void exchange_news_tell(struct exchange_news *n, struct chronicle *c, uint64_t now_nsec);

#endif
