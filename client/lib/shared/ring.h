/*
 * The client's side of the two rings of a client segment (proto/shm.h): submissions to the daemon,
 * completions from it. Constants here are not tuned unless a source is given.
 *
 * Threads. A small lock guards submissions. It is held while entries are written, and never across
 * a wait. The connection's lock guards completions. The daemon's values are checked: a daemon that
 * breaks the rules gets -EPROTO.
 */
#ifndef KVL_LIB_RING_H
#define KVL_LIB_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/shm.h"

/* Used entries past which the ring drops lossy submissions (TOUCH, REFILL), and refuses those that
 * complete nothing (REQUEST_END). A full ring then holds enough entries that complete, which wakes
 * threads that wait for room. */
#define RING_LOSSY_ENTRIES (SHM_SUB_ENTRIES / 2)
#define RING_QUIET_ENTRIES (SHM_SUB_ENTRIES / 4 * 3)

/* Unread entries at which a TOUCH wakes a sleeping daemon. */
#define RING_WAKE_ENTRIES (SHM_SUB_ENTRIES / 4)

/* Touches dropped without looking, once there was no room. kvlease-bench hit: 71 ns without this,
 * 28 ns with it, with a busy daemon. */
#define RING_SKIP_TOUCHES 64

struct ring {
        struct shm_client *header;                /* mapped, owned by the mapper; NULL: none */
        struct shm_submission *submissions;       /* in the segment */
        const struct shm_completion *completions; /* in the segment */
        _Atomic uint32_t submit_lock;
        uint64_t tail;              /* guarded by submit_lock; the segment's tail, once committed */
        _Atomic uint64_t head_seen; /* the daemon's head, as last read */
        _Atomic uint32_t n_skips;   /* touches to drop without looking */
        uint64_t comp_head;         /* guarded by the connection's lock */
};

/* The segment must be valid: shm_map_client() of shm.h has checked it. */
void ring_init(struct ring *r, struct shm_client *header);

/* ---- submitting ------------------------------------------------------------------------------ */

/* Takes the submit lock. Returns the number of entries that can be written with ring_entry() before
 * ring_commit(), which must follow, even with 0 entries. -EPROTO: the daemon's head is beyond the
 * tail (the lock isn't held, no commit). */
int ring_begin(struct ring *r);

/* The i-th entry of the batch, zeroed except for the arguments. */
static inline struct shm_submission *ring_entry(
        struct ring *r, uint32_t i, enum shm_op op, uint32_t ns_id, uint64_t request)
{
        struct shm_submission *s = &r->submissions[(r->tail + i) % SHM_SUB_ENTRIES];

        *s = (struct shm_submission){.op = (uint8_t)op, .ns_id = ns_id, .request_id = request};
        return s;
}

/* Shows the daemon the first n entries of the batch; gives the lock back. */
void ring_commit(struct ring *r, uint32_t n);

/* Full fence. Returns true if the daemon sleeps and the caller must ring. */
bool ring_take_doorbell(struct ring *r);

/* Undoes ring_take_doorbell(): the bell couldn't be rung. */
void ring_return_doorbell(struct ring *r);

/* Submits one entry if fewer than `most` are used and no other thread is submitting. Doesn't wait,
 * doesn't ring. Returns false if it wasn't submitted. */
bool ring_try_submit(struct ring *r, const struct shm_submission *s, uint32_t most);

static inline uint64_t ring_look_at_head(struct ring *r)
{
        uint64_t head = atomic_load_explicit(&r->header->sub_head, memory_order_acquire);

        atomic_store_explicit(&r->head_seen, head, memory_order_relaxed);
        return head;
}

/* Used entries by the last known head, if below `enough`; else by the current head. */
static inline uint64_t ring_used_below(struct ring *r, uint64_t tail, uint64_t enough)
{
        uint64_t used = tail - atomic_load_explicit(&r->head_seen, memory_order_relaxed);

        return used < enough ? used : tail - ring_look_at_head(r);
}

/* Whether a TOUCH has no room, or had none a moment ago. A read of a busy daemon's head costs more
 * than a hit, as the line was just written by another core. A hint, by a tail that may be a little
 * old. */
static inline bool ring_is_busy(struct ring *r)
{
        uint32_t n = atomic_load_explicit(&r->n_skips, memory_order_relaxed);
        uint64_t tail;

        if (n == 0) {
                tail = atomic_load_explicit(&r->header->sub_tail, memory_order_relaxed);
                if (ring_used_below(r, tail, RING_LOSSY_ENTRIES) < RING_LOSSY_ENTRIES)
                        return false;
                n = RING_SKIP_TOUCHES;
        }
        atomic_store_explicit(&r->n_skips, n - 1, memory_order_relaxed);
        return true;
}

/* Counts a TOUCH that isn't submitted. */
static inline void ring_drop_touch(struct ring *r)
{
        _Atomic uint64_t *n = &r->header->n_touches_dropped;

        /* Two concurrent threads may count one: it is a figure for people. */
        atomic_store_explicit(
                n, atomic_load_explicit(n, memory_order_relaxed) + 1, memory_order_relaxed);
}

/* Submits the TOUCH *s, or counts it in n_touches_dropped and returns false. *ret_wakes: so many
 * entries are unread that a sleeping daemon should be rung (ring_take_doorbell()). */
bool ring_touch(struct ring *r, const struct shm_submission *s, bool *ret_wakes);

/* Entries that the daemon hasn't taken yet. A hint. */
uint64_t ring_used(const struct ring *r);

/* ---- completions: with the connection's lock ---------------------------------------------------
 */

/* Copies up to `max` completions, and frees their entries. If there are none, and the daemon had
 * rung, tells the daemon that the client sleeps: the next completion rings. Returns their number,
 * or -EPROTO. */
int ring_take(struct ring *r, struct shm_completion *ret_completions, uint32_t max);

#endif
