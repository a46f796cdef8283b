/*
 * What happened lately, and why: for who asks afterwards (ADMIN_EVENTS). CHRONICLE_EVENTS of them,
 * numbered from 1. Evictions are many: what is alike (kind, tenant, namespace, by whom, reason,
 * tier) is added up in an *open* event, which is kept, and gets its number, when its window is
 * over, or when another is kept that was added to later: numbers are in the order of last_nsec.
 *
 * Noting costs no allocation and no clock, and never fails: where there is no room, the oldest goes
 * of whoever has most. An event is its tenant's, one that was for a lease that lease's tenant's,
 * others are the daemon's own: of n that have any, each keeps its last CHRONICLE_EVENTS / n,
 * however many others have. Readers see by the numbers how many they missed. Nothing here outlives
 * the process. Names and sentences for people only, as in the log: never keys, page contents or
 * tokens. Loop thread only.
 */
#ifndef KVL_CORE_CHRONICLE_H
#define KVL_CORE_CHRONICLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/parse.h"
#include "proto/event-kind.h"

#define CHRONICLE_EVENTS      2048         /* 1.5 MiB where all are used; not tuned */
#define CHRONICLE_OPEN_EVENTS 64           /* then one is closed early; not tuned */
#define CHRONICLE_WINDOW_NSEC NSEC_PER_SEC /* not tuned */

#define CHRONICLE_BY_MAX     95
#define CHRONICLE_REASON_MAX 63
#define CHRONICLE_DETAIL_MAX 255 /* bytes; longer sentences are cut */

/* Text that is NULL is "", a number that is 0 isn't known. Copied. */
struct chronicle_note {
        enum event_kind kind;
        const char *tenant, *ns;
        const char *by_tenant; /* whose lease it was for */
        const char *by;        /* who did it: "process 12 (decoder)"; NULL: chronicle.by */
        const char *reason;    /* one or two words */
        uint8_t tier;          /* 1 + enum tier_kind; 0: of none */
        const char *detail;    /* of what is told together: of the last one */
        uint64_t pages, bytes, before_bytes;
        uint64_t count; /* of things that are told as one; 0: it is one */
};

struct chronicle_event {
        uint64_t number; /* 0: open */
        uint64_t first_nsec, last_nsec;
        uint64_t count; /* of notes, each with its own */
        uint64_t pages, bytes, before_bytes;
        enum event_kind kind;
        uint8_t tier; /* as noted */
        char tenant[TENANT_NAME_MAX + 1], by_tenant[TENANT_NAME_MAX + 1];
        char ns[NS_NAME_MAX + 1];
        char by[CHRONICLE_BY_MAX + 1];
        char reason[CHRONICLE_REASON_MAX + 1];
        char detail[CHRONICLE_DETAIL_MAX + 1];
};

struct chronicle_kept;

struct chronicle {
        struct chronicle_kept *kept;  /* owned; NULL: nothing is noted */
        struct chronicle_event *open; /* in the same memory; in order of their beginning */
        uint32_t n_open;
        uint32_t recent;      /* of open, that a note was added to last */
        uint64_t last;        /* number of the event closed last */
        uint64_t latest_nsec; /* of all that was noted */
        const char *by; /* whose request is being handled: of notes that say nobody. Borrowed */
        /* Something was noted. Must not note anything itself. May be NULL. */
        void (*on_note)(void *data);
        void *data;
};

/* What somebody wants to see. Zeroed: everything. */
struct chronicle_filter {
        const char *tenant;  /* whose pages, or whose lease, it was; NULL or "": any */
        const char *ns;      /* the same */
        uint32_t kinds;      /* 1 << EVENT_*; 0: all */
        uint64_t since_nsec; /* events that ended before that aren't wanted */
};

/* From now on it notes. 0 or -ENOMEM. */
int chronicle_open(struct chronicle *c);

/* Safe to repeat, and on a zeroed one. */
void chronicle_close(struct chronicle *c);

void chronicle_note(struct chronicle *c, uint64_t now_nsec, const struct chronicle_note *n);

/* Closes the open events whose window is over; all: every one. */
void chronicle_settle(struct chronicle *c, uint64_t now_nsec, bool all);

/* When the next window is over; UINT64_MAX: nothing is open. */
uint64_t chronicle_due(const struct chronicle *c);

/* Of the events numbered above `after`, how many aren't kept any more. */
uint64_t chronicle_lost(const struct chronicle *c, uint64_t after);

/* The first event numbered above `after` that is wanted. Borrowed until the next call that changes
 * something; NULL: none. */
const struct chronicle_event *chronicle_next(
        const struct chronicle *c, const struct chronicle_filter *f, uint64_t after);

/* The number above which the last `n` wanted events are: for chronicle_next(). */
uint64_t chronicle_before_last(
        const struct chronicle *c, const struct chronicle_filter *f, uint64_t n);

/* "evicted"; static. */
const char *chronicle_kind_name(enum event_kind kind);

/* The kind with this name, EVENT_KINDS where there is none. */
enum event_kind chronicle_find_kind(const char *name);

#endif
