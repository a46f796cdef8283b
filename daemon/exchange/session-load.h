/*
 * Loads sessions that another host has continued, or begun: reads the session's record, imports its
 * pages that aren't here (import.h), and makes the session equal to the other host's. Loop thread
 * only.
 *
 *   load:  reads the epoch -> reads the record -> imports, one run of pages after the other -> over
 *
 * Pages that are missing in the end (lost by the store, not worth loading, the deadline) are
 * missing at the session's end, as if they had been evicted: the session says how many tokens.
 *
 * The record is from the host that last ended a turn (session-export.c). A session that was changed
 * here since its record was written isn't replaced; nor is one that is open or truncated.
 */
#ifndef KVL_EXCHANGE_SESSION_LOAD_H
#define KVL_EXCHANGE_SESSION_LOAD_H

#include <stdint.h>

struct attach;
struct detail;
struct session_load;

/* Reports the end of a load, which is freed. code 0: the session has the record's state, n_pages of
 * it were imported. KVL_STATUS_MISS (nothing changed): no other host knows the session, or knows
 * more than is here, or the record couldn't be read. KVL_STATUS_STALE. Called from exchange_work(),
 * exchange_close() and attach_close(), never from session_load_begin(). */
typedef void (*session_load_fn)(uint32_t n_pages, int code, void *data);

struct session_load_request {
        const uint8_t *id; /* borrowed */
        uint32_t id_len;
        uint64_t deadline_nsec; /* CLOCK_MONOTONIC */
        session_load_fn done;   /* is called once, with `data` */
        void *data;
};

/* Begins a load. Returns 0: *ret_load is under way, and ends at its deadline at the latest.
 * KVL_STATUS_MISS with the sentence: nothing will be loaded; KVL_STATUS_STALE; -EACCES: the client
 * may only read; -EINVAL: the id; -ENOMEM. */
int session_load_begin(struct attach *a, const struct session_load_request *rq, uint64_t now_nsec,
        struct session_load **ret_load, struct detail *d);

/* Stops reporting; published pages stay. */
void session_load_cancel(struct session_load *l);

#endif
