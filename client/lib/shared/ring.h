/*
 * The client's side of the two rings of a client segment (proto/shm.h): submissions to the daemon,
 * completions from it.
 *
 * Threads. Submitting is guarded by a small lock of its own, which is held for as long as it takes
 * to write the entries and never while something is waited for. Completions are taken under the
 * connection's lock. What the daemon writes is checked: a daemon that breaks the rules gets
 * -EPROTO.
 */
#ifndef KVL_LIB_RING_H
#define KVL_LIB_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/shm.h"

/* Used entries past which submissions are dropped that may be (TOUCH, REFILL), and those that wait
 * for nothing and complete nothing are refused (REQUEST_END): a full ring then holds enough that
 * complete, and whoever waits for room is woken. */
#define RING_LOSSY_ENTRIES (SHM_SUB_ENTRIES / 2)
#define RING_QUIET_ENTRIES (SHM_SUB_ENTRIES / 4 * 3)

/* Touches that wake a sleeping daemon; not tuned. */
#define RING_WAKE_ENTRIES (SHM_SUB_ENTRIES / 4)

/* Touches dropped without looking, once there was no room; kvlease-bench hit: 71 ns without, 28 ns
 * with it where the daemon is at work. */
#define RING_SKIP_TOUCHES 64

struct ring {
        struct shm_client *header; /* mapped, owned by who mapped it; NULL: there is none */
        struct shm_submission *submissions;       /* in the segment */
        const struct shm_completion *completions; /* likewise */
        _Atomic uint32_t submit_lock;
        uint64_t tail;              /* with submit_lock; what is in the segment, once committed */
        _Atomic uint64_t head_seen; /* the daemon's head, when last looked at */
        _Atomic uint32_t n_skips;   /* touches to drop without looking */
        uint64_t comp_head;         /* with the connection's lock */
};

/* The segment is valid: shm_map_client() of shm.h has seen to that. */
void ring_init(struct ring *r, struct shm_client *header);

/* ---- submitting ------------------------------------------------------------------------------ */

/*
 * Takes the submit lock. Returns the number of entries that can be written with ring_entry() before
 * ring_commit(), which must follow, if only of 0 entries. -EPROTO: the daemon's head is beyond the
 * tail (nothing to commit, the lock isn't held).
 */
int ring_begin(struct ring *r);

/* The i-th entry of the batch, zeroed but for what is given. */
static inline struct shm_submission *ring_entry(
        struct ring *r, uint32_t i, enum shm_op op, uint32_t ns_id, uint64_t request)
{
        struct shm_submission *s = &r->submissions[(r->tail + i) % SHM_SUB_ENTRIES];

        *s = (struct shm_submission){.op = (uint8_t)op, .ns_id = ns_id, .request_id = request};
        return s;
}

/* Shows the daemon the first n entries of the batch; gives the lock back. */
void ring_commit(struct ring *r, uint32_t n);

/* Full fence. True: the daemon sleeps, and it is the caller who rings. */
bool ring_take_doorbell(struct ring *r);

/* Takes that back: it couldn't be rung. */
void ring_return_doorbell(struct ring *r);

/* One entry, where fewer than `most` are used and nobody else is submitting. Doesn't wait, doesn't
 * ring. False: it isn't submitted. */
bool ring_try_submit(struct ring *r, const struct shm_submission *s, uint32_t most);

static inline uint64_t ring_look_at_head(struct ring *r)
{
        uint64_t head = atomic_load_explicit(&r->header->sub_head, memory_order_acquire);

        atomic_store_explicit(&r->head_seen, head, memory_order_relaxed);
        return head;
}

/* Used entries, from what is known of the head, if that is below `enough`; else from the head. */
static inline uint64_t ring_used_below(struct ring *r, uint64_t tail, uint64_t enough)
{
        uint64_t used = tail - atomic_load_explicit(&r->head_seen, memory_order_relaxed);

        return used < enough ? used : tail - ring_look_at_head(r);
}

/*
 * No room for a TOUCH, or there was none a moment ago: looking at the daemon's head costs more than
 * a hit while it is at work (a line that its core has just written). A hint, by a tail that may be
 * a little old.
 */
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

        /* Two threads at once may count one: it is a figure for people. */
        atomic_store_explicit(
                n, atomic_load_explicit(n, memory_order_relaxed) + 1, memory_order_relaxed);
}

/*
 * TOUCH: *s, or one more in n_touches_dropped; then false. *ret_wakes: so many lie there unread
 * that a daemon that sleeps should be rung (ring_take_doorbell()).
 */
bool ring_touch(struct ring *r, const struct shm_submission *s, bool *ret_wakes);

/* Entries the daemon hasn't taken yet. A hint. */
uint64_t ring_used(const struct ring *r);

/* ---- completions: with the connection's lock ---------------------------------------------------
 */

/*
 * Copies up to `max` completions, and frees their room. Where there are none, and the daemon had
 * rung, it is told that the client sleeps: the next completion rings. Their number, or -EPROTO.
 */
int ring_take(struct ring *r, struct shm_completion *ret_completions, uint32_t max);

#endif
