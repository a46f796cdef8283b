/*
 * Memory of the host on its way back to the system, a piece in a loop turn: giving back all of a
 * set takes a millisecond for some megabytes, and requests would wait. Nobody else ever gets such
 * an extent, so nothing waits for it. A GPU's memory goes back on its queue instead. Loop thread
 * only.
 */
#ifndef KVL_CORE_DISCARD_H
#define KVL_CORE_DISCARD_H

#include <stdbool.h>
#include <stdint.h>

struct extent;
struct store;

/* Each has its file open; not tuned. */
#define DISCARDS_MAX 8

/* In the store; zeroed at first. */
struct discards {
        struct extent *extents[DISCARDS_MAX]; /* n of them, the oldest first */
        unsigned n;
        uint64_t done_bytes; /* of the oldest, from its start */
};

/*
 * Takes an extent that is mapped nowhere in this process and that nobody is handed any more. The
 * oldest goes at once where DISCARDS_MAX wait already, and every one where nobody set
 * store.on_work.
 */
void discard_extent(struct store *s, struct extent *e);

/* The next piece. True: there are more. Of store_work(). */
bool discard_work(struct store *s);

/* Everything, at once. */
void discard_all(struct store *s);

#endif
