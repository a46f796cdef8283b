/*
 * The daemon's end of a client segment (proto/shm.h): it takes submissions and stores completions.
 * Every entry is copied once, and only the copy is used; both heads and the sequence numbers are
 * the daemon's own. It knows no loop and no socket: peer.c calls it, and rings. Loop thread only;
 * the client reads and writes at the same time.
 */
#ifndef KVL_SERVER_RING_H
#define KVL_SERVER_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/clients/client-record.h"
#include "daemon/core/requests/submit.h"
#include "policy/evict.h"
#include "proto/shm.h"

/* Submissions copied and completed at a time: 2 KiB of stack. Not tuned. */
#define RING_BATCH 32

/*
 * Begins a FETCH of the attachment's client. Returns true: started, completes by ring_complete().
 * False: *ret has its completion.
 */
typedef bool (*ring_fetch_fn)(struct attach *a, const struct fetch_request *rq, uint64_t user_data,
        struct submit_result *ret);

/* Zero: the client has no segment. */
struct ring {
        struct shm_client *shm;             /* owned mapping; NULL: none */
        struct shm_submission *submissions; /* in it */
        struct shm_completion *completions; /* in it */
        uint64_t sub_head;                  /* executed: the next one's sequence number */
        uint64_t sub_tail;                  /* as last seen; sub_head <= sub_tail <= sub_head + N */
        uint64_t comp_head;                 /* as last seen; <= comp_tail */
        uint64_t comp_tail;                 /* stored */
        struct submit_chain chain;
        int fd;                      /* owned; -1: isn't kept */
        struct client_cursors *kept; /* borrowed; NULL likewise */
        ring_fetch_fn fetch;         /* set by the opener, before it is drained */
        uint32_t n_fetches;          /* under way: each has a reserved completion */
        bool repeats;                /* the previous daemon may have executed the next entry */
        bool ended; /* the client takes no completions any more: none is stored or waited for */
};

struct ring_turn {
        uint32_t n;            /* executed */
        uint64_t n_walked;     /* pages walked for these */
        bool more;             /* further ones could be executed now */
        bool is_news;          /* a sleeping client may wait for the results */
        const char *violation; /* the rule that the client broke, static; then don't drain again.
                                  NULL: none */
};

/*
 * Makes the segment, with the daemon asleep. *ret_fd: owned, for the client; this side doesn't need
 * it. Returns 0; -ENOMEM, -EMFILE, -ENFILE, another -errno: *r is unchanged.
 */
int ring_open(struct ring *r, uint64_t client_id, uint64_t boot_epoch, int *ret_fd);

/*
 * Keeps a copy of the descriptor, for a client that asks for it again. Called before ring.kept is
 * set, where progress is noted after every entry, for the next daemon. Returns 0 or -errno.
 */
int ring_keep(struct ring *r, int fd);

/*
 * Adopts the segment of a client of the previous daemon; the client may have written anything into
 * it meanwhile. Execution continues where that daemon stopped; the entry at which it was killed may
 * be executed again. Takes the fd, which has the right size, only on success. Returns 0; -ENOMEM:
 * *r is unchanged.
 */
int ring_adopt(struct ring *r, int fd, struct client_cursors *kept);

/* Unmaps the segment; the client's mapping stays. Idempotent. */
void ring_close(struct ring *r);

static inline bool ring_is_open(const struct ring *r)
{
        return r->shm;
}

/* Bound of pages that the submissions of a turn walk: a few milliseconds, like one walk up the
 * deepest text. */
#define RING_WALK_PAGES EVICT_WALK_PAGES

/*
 * Executes up to `budget` submissions in order, each only if its completion has room (also if it
 * completes nothing). At least one; none after ends_nsec by clock_now_nsec(), except some that take
 * a microsecond each; UINT64_MAX: no end.
 */
struct ring_turn ring_drain(
        struct ring *r, struct member *m, uint32_t budget, uint64_t now_nsec, uint64_t ends_nsec);

/* The client's tail, for ring_is_at(). */
static inline uint64_t ring_tail(const struct ring *r)
{
        return r->shm ? atomic_load_explicit(&r->shm->sub_tail, memory_order_acquire) : 0;
}

/* True if all submissions before this position are executed, or can't be now: their completions
 * don't fit. */
bool ring_is_at(struct ring *r, uint64_t position);

/* True if there may be submissions to execute, by a quick look. */
static inline bool ring_has_any(const struct ring *r)
{
        return r->shm && ring_tail(r) != r->sub_head;
}

/* Completes a FETCH, for which ring_drain() has reserved a place. If the client takes no
 * completions any more, only frees the place. */
void ring_complete(struct ring *r, uint64_t user_data, uint32_t status, uint32_t page);

/*
 * Called before the daemon sleeps: the client rings from now on. Returns false if submissions
 * arrived meanwhile: then the daemon counts as awake.
 */
bool ring_sleep(struct ring *r);

/* After a turn with news: must the client be rung? True at most once per sleep. */
bool ring_wakes_client(struct ring *r);

/* Number of touches that the client says it dropped. */
uint64_t ring_touches_dropped(const struct ring *r);

#endif
