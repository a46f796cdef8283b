#include "client/lib/shared/ring.h"

#include <errno.h>
#include <sched.h>

#include "base/fault-point.h"
#include "base/macros.h"

#define SPINS_BEFORE_YIELD 64 /* some hundred ns: longer than a batch takes */

void ring_init(struct ring *r, struct shm_client *header)
{
        uint8_t *base = (uint8_t *)header;

        *r = (struct ring){
                .header = header,
                .submissions = (struct shm_submission *)(void *)(base + header->sub_offset),
                .completions = (const struct shm_completion *)(void *)(base + header->comp_offset),
        };
        /* Waiters sleep in poll(), which only a RING ends. */
        atomic_store(&header->client_sleeps, 1);
}

/* ---- the lock ----------------------------------------------------------------------------------
 */

static bool try_lock(struct ring *r)
{
        return atomic_load_explicit(&r->submit_lock, memory_order_relaxed) == 0 &&
               atomic_exchange_explicit(&r->submit_lock, 1, memory_order_acquire) == 0;
}

static void lock_submissions(struct ring *r)
{
        for (unsigned i = 1; !try_lock(r); i++)
                if (i % SPINS_BEFORE_YIELD == 0)
                        sched_yield();
}

static void unlock_submissions(struct ring *r)
{
        atomic_store_explicit(&r->submit_lock, 0, memory_order_release);
}

/* ---- submitting --------------------------------------------------------------------------------
 */

uint64_t ring_used(const struct ring *r)
{
        return atomic_load_explicit(&r->header->sub_tail, memory_order_relaxed) -
               atomic_load_explicit(&r->header->sub_head, memory_order_acquire);
}

int ring_begin(struct ring *r)
{
        uint64_t used;

        lock_submissions(r);
        used = r->tail - ring_look_at_head(r);
        if (used <= SHM_SUB_ENTRIES)
                return (int)(SHM_SUB_ENTRIES - used);
        unlock_submissions(r);
        return -EPROTO;
}

void ring_commit(struct ring *r, uint32_t n)
{
        if (n > 0) {
                FAULT_POINT("submit-stored");
                r->tail += n;
                atomic_store_explicit(&r->header->sub_tail, r->tail, memory_order_release);
                FAULT_POINT("submit-tail");
        }
        unlock_submissions(r);
}

bool ring_take_doorbell(struct ring *r)
{
        _Atomic uint32_t *sleeps = &r->header->daemon_sleeps;

        atomic_thread_fence(memory_order_seq_cst);
        return atomic_load_explicit(sleeps, memory_order_relaxed) == 1 &&
               atomic_exchange(sleeps, 0) == 1;
}

void ring_return_doorbell(struct ring *r)
{
        atomic_store(&r->header->daemon_sleeps, 1);
}

bool ring_try_submit(struct ring *r, const struct shm_submission *s, uint32_t most)
{
        if (!try_lock(r))
                return false;
        if (ring_used_below(r, r->tail, most) >= most) {
                unlock_submissions(r);
                return false;
        }
        r->submissions[r->tail % SHM_SUB_ENTRIES] = *s;
        ring_commit(r, 1);
        return true;
}

bool ring_touch(struct ring *r, const struct shm_submission *s, bool *ret_wakes)
{
        uint64_t tail;

        *ret_wakes = false;
        if (!ring_try_submit(r, s, RING_LOSSY_ENTRIES)) {
                ring_drop_touch(r);
                return false;
        }
        tail = atomic_load_explicit(&r->header->sub_tail, memory_order_relaxed);
        *ret_wakes = ring_used_below(r, tail, RING_WAKE_ENTRIES) >= RING_WAKE_ENTRIES &&
                     atomic_load_explicit(&r->header->daemon_sleeps, memory_order_relaxed) == 1;
        return true;
}

/* ---- completions -------------------------------------------------------------------------------
 */

/* Number of completions, or -EPROTO. */
static int count_completions(const struct ring *r)
{
        uint64_t tail = atomic_load_explicit(&r->header->comp_tail, memory_order_acquire);

        return tail - r->comp_head <= SHM_COMP_ENTRIES ? (int)(tail - r->comp_head) : -EPROTO;
}

/* The ring is empty: asks the daemon to ring for the next completion. Looks once more if it hadn't
 * been asked yet. */
static int count_asleep(struct ring *r)
{
        if (atomic_load_explicit(&r->header->client_sleeps, memory_order_relaxed) == 1)
                return 0;
        atomic_store_explicit(&r->header->client_sleeps, 1, memory_order_relaxed);
        atomic_thread_fence(memory_order_seq_cst);
        return count_completions(r);
}

int ring_take(struct ring *r, struct shm_completion *ret_completions, uint32_t max)
{
        int n = count_completions(r);

        if (n == 0)
                n = count_asleep(r);
        if (n <= 0)
                return n;
        n = MIN(n, (int)max);
        for (int i = 0; i < n; i++) {
                ret_completions[i] =
                        r->completions[(r->comp_head + (unsigned)i) % SHM_COMP_ENTRIES];
                FAULT_POINT("completion-read");
        }
        r->comp_head += (unsigned)n;
        atomic_store_explicit(&r->header->comp_head, r->comp_head, memory_order_release);
        FAULT_POINT("completion-done");
        return n;
}
