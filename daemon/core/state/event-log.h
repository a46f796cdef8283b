/*
 * The event log for ADMIN_EVENTS: EVENT_LOG_EVENTS recent events and their reasons, numbered from
 * 1. Evictions are many, so notes that agree in kind, tenant, namespace, actor, reason and tier are
 * added up in one *open* event. An open event gets its number when its window ends, or when an
 * event with later notes gets one. So numbers are in the order of last_nsec.
 *
 * Noting allocates nothing, reads no clock and never fails. When the log is full, the oldest event
 * of the owner with the most events is overwritten. An event belongs to the tenant whose lease
 * caused it, else to its own tenant, else to the daemon. With n owners, each keeps its last
 * EVENT_LOG_EVENTS / n events, however many the others have. Readers see from gaps in the numbers
 * how many they missed. The log ends with the process. It holds names and sentences for people:
 * never keys, page contents or tokens. Loop thread only.
 */
#ifndef KVL_CORE_EVENT_LOG_H
#define KVL_CORE_EVENT_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/parse.h"
#include "proto/event-kind.h"

#define EVENT_LOG_EVENTS      2048         /* 1.5 MiB where all are used; not tuned */
#define EVENT_LOG_OPEN_EVENTS 64           /* beyond that, one is closed early; not tuned */
#define EVENT_LOG_WINDOW_NSEC NSEC_PER_SEC /* not tuned */

#define EVENT_LOG_BY_MAX     95
#define EVENT_LOG_REASON_MAX 63
#define EVENT_LOG_DETAIL_MAX 255 /* bytes; longer sentences are cut */

/* NULL text means "", a number 0 means unknown. All text is copied. */
struct event_note {
        enum event_kind kind;
        const char *tenant, *ns;
        const char *by_tenant; /* the tenant whose lease caused it */
        const char *by;        /* the actor, "process 12 (decoder)"; NULL: event_log.by */
        const char *reason;    /* one or two words */
        uint8_t tier;          /* 1 + enum tier_kind; 0: no tier */
        const char *detail;    /* an open event has its last note's */
        uint64_t pages, bytes, before_bytes;
        uint64_t count; /* things in this one note; 0: one */
};

struct log_event {
        uint64_t number; /* 0: open */
        uint64_t first_nsec, last_nsec;
        uint64_t count; /* sum of the notes' counts */
        uint64_t pages, bytes, before_bytes;
        enum event_kind kind;
        uint8_t tier; /* as noted */
        char tenant[TENANT_NAME_MAX + 1], by_tenant[TENANT_NAME_MAX + 1];
        char ns[NS_NAME_MAX + 1];
        char by[EVENT_LOG_BY_MAX + 1];
        char reason[EVENT_LOG_REASON_MAX + 1];
        char detail[EVENT_LOG_DETAIL_MAX + 1];
};

struct event_log_kept;

struct event_log {
        struct event_log_kept *kept; /* owned; NULL: nothing is noted */
        struct log_event *open;      /* part of `kept`'s memory; in order of first_nsec */
        uint32_t n_open;
        uint32_t recent;      /* index in `open` of the event noted last */
        uint64_t last;        /* number of the event closed last */
        uint64_t latest_nsec; /* time of the latest note */
        const char *by; /* the client whose request is handled, for notes without `by`; borrowed */
        /* An event was noted. It must not note anything itself. May be NULL. */
        void (*on_note)(void *data);
        void *data;
};

/* Selects events. Zeroed: all events. */
struct event_log_filter {
        const char *tenant;  /* owner of the pages or of the lease; NULL or "": any */
        const char *ns;      /* NULL or "": any */
        uint32_t kinds;      /* 1 << EVENT_*; 0: all */
        uint64_t since_nsec; /* leaves out events that ended before */
};

/* Begins to note. Returns 0 or -ENOMEM. */
int event_log_open(struct event_log *c);

/* Idempotent; accepts a zeroed log. */
void event_log_close(struct event_log *c);

void event_note(struct event_log *c, uint64_t now_nsec, const struct event_note *n);

/* Closes the open events whose window has ended; all: every open event. */
void event_log_flush(struct event_log *c, uint64_t now_nsec, bool all);

/* Returns when the next window ends; UINT64_MAX: no event is open. */
uint64_t event_log_due(const struct event_log *c);

/* Returns how many events numbered above `after` were overwritten. */
uint64_t event_log_lost(const struct event_log *c, uint64_t after);

/* Returns the first event numbered above `after` that the filter selects; NULL: none. Borrowed
 * until the next call that changes the log. */
const struct log_event *event_log_next(
        const struct event_log *c, const struct event_log_filter *f, uint64_t after);

/* Returns the number after which the last `n` selected events follow, for event_log_next(). */
uint64_t event_log_before_last(
        const struct event_log *c, const struct event_log_filter *f, uint64_t n);

/* Returns "evicted", for example; static. */
const char *event_log_kind_name(enum event_kind kind);

/* Returns the kind with this name, or EVENT_KINDS if there is none. */
enum event_kind event_log_find_kind(const char *name);

#endif
