/* Remembers which TOUCHes in the submission ring the daemon hasn't read yet. Another such TOUCH
 * would tell it nothing, and cost more than the hit. Lossy and racy on purpose: a TOUCH too many or
 * too few does no harm. Thread-safe. */
#ifndef KVL_LIB_TOUCH_H
#define KVL_LIB_TOUCH_H

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/shared/ring.h"

#define TOUCH_MARKS 512 /* 8 KiB, of which pages hit by turns use a line each; not tuned */

struct touch_mark {
        _Atomic uint64_t what;     /* touch_what(); 0: nothing */
        _Atomic uint64_t position; /* of the entry, or a little before it */
};

struct touches {
        struct touch_mark marks[TOUCH_MARKS];
};

/* Page, generation and request in one word that is almost unique. */
static inline uint64_t touch_what(uint32_t page, uint64_t generation, uint64_t request)
{
        return (generation << 32 | page) ^ ((request + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

static inline struct touch_mark *touch_mark_of(struct touches *t, uint32_t page)
{
        return &t->marks[(page ^ page / TOUCH_MARKS) % TOUCH_MARKS];
}

static inline bool touch_is_unread(
        const struct touch_mark *mark, const struct ring *r, uint64_t what)
{
        uint64_t head = atomic_load_explicit(&r->header->sub_head, memory_order_relaxed);
        uint64_t position = atomic_load_explicit(&mark->position, memory_order_relaxed);

        return atomic_load_explicit(&mark->what, memory_order_relaxed) == what &&
               (int64_t)(position - head) >= 0;
}

/* Notes that it was just submitted. */
static inline void touch_note(struct touch_mark *mark, const struct ring *r, uint64_t what)
{
        uint64_t tail = atomic_load_explicit(&r->header->sub_tail, memory_order_relaxed);

        atomic_store_explicit(&mark->position, tail - 1, memory_order_relaxed);
        atomic_store_explicit(&mark->what, what, memory_order_relaxed);
}

#endif
