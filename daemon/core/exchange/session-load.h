/*
 * Sessions that another host has continued, or begun: the session's record is read, what it has and
 * isn't here is imported (import.h), and from then on the session is here what it was there. Loop
 * thread only.
 *
 *   load:  reads the epoch -> reads the record -> imports, one run of pages after the other -> over
 *
 * What is missing in the end (the store hasn't it any more, it isn't worth loading, the deadline)
 * is missing at the session's end, as if it had been evicted: the session says how many tokens.
 *
 * The record is what the host wrote that was last done with a turn (session-export.c). A session
 * that is here, and was changed here since other hosts were told of it, stays as it is, and so does
 * one that somebody has open, or that is truncated.
 */
#ifndef KVL_CORE_SESSION_LOAD_H
#define KVL_CORE_SESSION_LOAD_H

#include <stdint.h>

struct attach;
struct detail;
struct session_load;

/* code 0: the session is here as the record has it, n_pages of it were imported. KVL_STATUS_MISS:
 * nothing has changed: no other host knows of the session, or knows more than is here, or the
 * record couldn't be had. KVL_STATUS_STALE. The load is gone. Called from exchange_work(),
 * exchange_close() and attach_close(), never from within session_load_begin(). */
typedef void (*session_load_fn)(uint32_t n_pages, int code, void *data);

/*
 * 0: *ret_load is under way, and ends at its deadline (CLOCK_MONOTONIC) at the latest.
 * KVL_STATUS_MISS with the sentence: nothing will be loaded; KVL_STATUS_STALE; -EACCES: the client
 * may only read; -EINVAL: the id; -ENOMEM.
 */
int session_load_begin(struct attach *a, const uint8_t *id, uint32_t id_len, uint64_t deadline_nsec,
        uint64_t now_nsec, session_load_fn done, void *data, struct session_load **ret_load,
        struct detail *d);

/* Nothing is told any more; what is published stays. */
void session_load_cancel(struct session_load *l);

/* The attachment closes: each of its loads is told to be over. Before import_end_all(). */
void session_load_end_all(struct attach *a);

#endif
