/*
 * Memory of the host on its way back to the system, a piece in a loop turn: to unmap a set and give
 * it back takes a millisecond for some megabytes, and requests would wait. Nobody else ever gets
 * such an extent, so nothing waits for it. A GPU's memory goes back on its queue instead. Loop
 * thread only.
 */
#ifndef KVL_CORE_DISCARD_H
#define KVL_CORE_DISCARD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct device_arena;
struct extent;
struct store;

/* Each has its file open; not tuned. */
#define DISCARDS_MAX_EXTENTS 8

/* In the store. */
struct discards {
        struct list_link waiting; /* struct discard, the oldest first */
        uint32_t n_extents;       /* of all that wait */
};

/* What to discard: n extents, mapped one after the other in the arena where there is one. */
struct discarded {
        struct device_arena *arena; /* NULL: mapped nowhere in this process */
        uint64_t extent_bytes;      /* of each */
        struct extent *const *extents;
        uint32_t n;
};

void discards_init(struct discards *d);

/*
 * Takes arena and extents, which nobody is handed any more and nobody copies from or to; `what`
 * itself and its array are borrowed during the call. The oldest go at once where more than
 * DISCARDS_MAX_EXTENTS would wait. All of it goes at once where nobody set store.on_work, or there
 * is no memory left to remember it.
 */
void discard_extents(struct store *s, const struct discarded *what);

/* The same, at once. */
void discard_now(const struct discarded *what);

/* The next piece. True: there are more. Of store_work(). */
bool discard_work(struct store *s);

/* Everything, at once. */
void discard_all(struct store *s);

#endif
