/*
 * A page's bytes on their way between tiers of its namespace.
 *
 *   down   SEALED -> copying -> the key is at the new page, the old one is FREE
 *   up     SEALED -> copying -> the key is on the device; the old page is DETACHED while somebody
 *                               reads it, else FREE
 *   copy   SEALED -> copying -> a page that is GRANTED to a client has the bytes
 *              \-> given up: pinned (down), gone or stale by then, damaged, or the copy failed
 *
 * While it is copied a page can be found and read as ever; the new one is MOVING and nobody's (or,
 * of a copy, GRANTED as before). Bytes that lie below the device are those whose sum is in the
 * page's note (page_note.content), or it is dropped and counted: what a transfer brings up was
 * compared with it.
 *
 * Copies between memory of the host are made by the threads of a mover (daemon/tier/mover.h).
 * Memory of a device behind a queue is read and written by jobs of the queue, through a buffer. Of
 * each, callbacks only note the end; transfer_work() draws the consequences. Loop thread only.
 */
#ifndef KVL_CORE_TRANSFER_H
#define KVL_CORE_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct ns;
struct store;
struct extent_set;
struct move;
struct queue;

/* On their way down at a time, of all namespaces. Of pages of 1 MiB that is more than a millisecond
 * of copying for one thread; a demand for pages finds its place in front of those (mover.h,
 * "urgent"). Not tuned. */
#define TRANSFERS_MAX 32

enum transfer_kind { TRANSFER_DOWN, TRANSFER_UP, TRANSFER_COPY };

struct transfer {
        struct list_link link; /* store.transfers */
        struct store *store;   /* borrowed */
        struct ns *ns;         /* NULL: it has gone */
        enum transfer_kind kind;
        bool is_urgent;
        uint32_t from, to;
        uint64_t from_generation, to_generation;
        struct extent_set *sets[2]; /* of `from`, `to`; NULL with ns */
        struct move *move;          /* of the mover, while it has it; borrowed */
        uint8_t *buffer;            /* owned; for memory behind a queue */
        struct queue *queue;        /* whose job reads or writes it; borrowed; NULL: none's */
        bool is_late;               /* its driver may do so for as long as it is stuck */
        bool is_unwanted;           /* called off: a copy whose page was given back, a way down */
        unsigned step;              /* those that are done */
        bool is_over;               /* with this result: */
        int result;
        uint64_t content; /* of what is stored below */
};

/*
 * `from` is SEALED, not stale and in no window. `to` is MOVING, on the device for UP and below
 * `from` for DOWN; of a COPY it is GRANTED. The policy is told that `from` is locked (not of a
 * COPY). Urgent: somebody waits. 0: under way; how it ends is told to fetch.h (UP, COPY). -EBUSY:
 * as many are; -ENOMEM; -EIO: its memory can't be had: nothing was done, `to` is as it was.
 */
int transfer_begin(
        struct ns *ns, enum transfer_kind kind, uint32_t from, uint32_t to, bool is_urgent);

/* Of this page, down or up; NULL: none is under way. */
struct transfer *transfer_find(const struct ns *ns, uint32_t from);

/* Somebody waits for it by now. */
void transfer_hurry(struct transfer *t);

/* What is on its way down is a victim again at once: a lease lacks pages. False: there was none. */
bool transfer_call_off(struct ns *ns);

/* Ends what is over. Sets may be gone after. True while something is under way. */
bool transfer_work(struct store *s);

/* Of ns_free_page(): a page into which bytes are being copied isn't free before that is over. True:
 * it is MOVING until then. */
bool transfer_takes(struct ns *ns, uint32_t page);

/* The namespace goes, and its sets: nothing of the mover's touches them when it returns. That takes
 * at most a piece of a copy (mover.h). */
void transfer_forget_ns(struct ns *ns);

/* All of them, after the devices' end. */
void transfer_deinit(struct store *s);

/* Of one kind, under way. */
uint32_t transfer_count(const struct ns *ns, enum transfer_kind kind);

/* For the checker: MOVING pages of the namespace that are known here; is the page one? */
uint64_t transfer_count_moving(const struct ns *ns);
bool transfer_moves_to(const struct ns *ns, uint32_t page);

#endif
