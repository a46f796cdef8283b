/*
 * Moves the bytes of cold pages between tiers, on threads of its own: from where they are plain to
 * where they are stored (down: copied, or encoded by base/codec), and back (up). All of it is
 * memory of this process: files and devices are others' business. The loop submits moves and learns
 * of their end through a descriptor.
 *
 *   move:  submitted -> running -> done (its callback runs in mover_reap() or mover_close())
 *               \           \
 *                \-----------\-> cancelled: done with -ECANCELED, at once or after a piece
 *
 * Moves begin in order of submission, the urgent ones before all others; with more than one thread
 * they may end in another. Who comes after whom among tenants is the caller's to decide, by what it
 * submits when. Nothing is allocated for a move once it is submitted.
 *
 * What a result of 0 says of a page, and what it doesn't:
 *
 *   down   `sum` is of the stored bytes, all of them written. Without a codec it is of the bytes as
 *          they were read from the source, each once, and written: a source that changes meanwhile
 *          makes a torn page, not a wrong sum. With a codec it is of the encoded bytes, as the CPU
 *          reads them back behind the encoder. That memory holds them, too, is looked at only by
 *          `reads_back`: -EIO where it doesn't. It reads all of the page once more: moves of 1 MiB
 *          take half as long again (kvlease-bench tiers).
 *
 *   up     the stored bytes had the expected sum (but for MOVE_SUM_NONE), and these very bytes are
 *          what was copied. With a
 *          codec, and for MOVE_SUM_BOTH, they are read twice, piece by piece: nobody else may write
 *          where they are stored.
 *
 * That the plain bytes were the right ones nobody can tell.
 *
 * Threads: all functions from one (the loop), callbacks run there.
 */
#ifndef KVL_DAEMON_TIER_MOVER_H
#define KVL_DAEMON_TIER_MOVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/codec/codec.h"

struct mover;

enum move_direction {
        MOVE_DOWN, /* plain to stored */
        MOVE_UP,
};

/* Which sums a move takes. */
enum move_sums {
        MOVE_SUM_PAGE, /* of each page: move_page.sum */
        /* UP: that, which is compared, and besides one of each plane, which the mover sets. */
        MOVE_SUM_BOTH,
        /* UP: of each plane, as the caller says; move_page.sum isn't looked at. So a move of some
         * of a page's planes can be compared, once a move of the whole has set their sums. */
        MOVE_SUM_PLANES,
        /* UP: none: the caller has compared them. What no encoder makes is refused all the same. */
        MOVE_SUM_NONE,
};

/* A page's bytes in one plane, or those of them that have one codec. Plain and stored bytes don't
 * overlap, and stay where they are until the callback; no alignment is needed (64 bytes of `to` is
 * best). */
struct move_plane {
        const void *from; /* borrowed */
        void *to;         /* borrowed; its bytes are the mover's. UP: NULL: only the sum is taken */
        size_t plain_bytes;
        uint64_t sum; /* of the stored bytes of this plane alone: enum move_sums */
        enum codec codec;
        /* Borrowed: of a matrix, of which plain_bytes are a multiple; n_matrices doesn't count.
         * CODEC_NONE: may be NULL. */
        const struct codec_shape *shape;
        /* DOWN with a codec: how far the first matrix is off when it is decoded again is added
         * there, for as long as a matrix is one of MOVER_ERROR_BYTES at most. Borrowed until the
         * callback; NULL: it isn't measured. */
        struct codec_error *error;
};

struct move_page {
        /* The sum (base/sum.h) of the stored bytes, as if those of all planes lay one behind the
         * other. DOWN: the mover sets it where the result is 0. UP: the caller says which one it
         * expects. */
        uint64_t sum;
        /*
         * Set by then: 0; -ECANCELED: `to` holds anything; -EDOM (down): a number isn't finite, the
         * page can be kept by CODEC_NONE only; -EBADMSG (up): stored bytes of another sum, or which
         * no encoder makes, and all of `to` of its planes is zeros; -EIO (down): reads_back found
         * other bytes.
         */
        int result;
};

struct move;

/* result: 0 if each page was moved, else that of the first page that wasn't; -ECANCELED for good
 * after mover_cancel(). */
typedef void (*move_fn)(struct move *move, int result, void *data);

/* Heap memory, from move_new(); the mover's from submission until its callback returns, then freed.
 * One page, or a batch of one namespace's: they go in order, and share one callback. */
struct move {
        enum move_direction direction;
        enum move_sums sums;
        bool is_urgent;  /* somebody waits for it */
        bool reads_back; /* DOWN: see above */
        move_fn done;    /* may be NULL */
        void *data;      /* borrowed */
        size_t n_pages, n_planes;
        struct move_page *pages;   /* n_pages; part of the move, like the next */
        struct move_plane *planes; /* of page i: planes[i * n_planes] and on */
};

/* All zeros but direction and counts, which aren't 0. NULL: no memory. */
struct move *move_new(enum move_direction direction, size_t n_pages, size_t n_planes);

/* One that isn't submitted. NULL: nothing. */
void move_free(struct move *move);

struct mover_options {
        unsigned n_threads; /* 0: 1 */
        unsigned max_moves; /* submitted and not reaped, of each lane; 0: 64, not tuned */
};

/* NULL: all defaults. 0; -ENOMEM; -EMFILE, -ENFILE: no descriptor; -EAGAIN: no thread. Signals are
 * blocked in the threads. ret_mover: owned. */
int mover_open(const struct mover_options *options, struct mover **ret_mover);

/* Waits for the moves that run, which end as they would have, and runs all callbacks, of the others
 * with -ECANCELED. Ends the threads. NULL: nothing. */
void mover_close(struct mover *m);

/* Readable where mover_reap() is to be called: an urgent or cancelled move is done, or any while
 * none waits; else when half of max_moves are, or as many as have 4 MiB of plain bytes. Borrowed.
 */
int mover_fd(const struct mover *m);

#define MOVER_FULL 1

/* 0: takes the move; its callback runs in mover_reap(), never here. MOVER_FULL: as many of its lane
 * (urgent, or not) as may be are submitted; -ESHUTDOWN: mover_close() runs. Then it stays the
 * caller's, and its callback never runs. */
int mover_submit(struct mover *m, struct move *move);

/*
 * Of a move that is submitted, at any time before its callback. One that hasn't begun is over at
 * once, one that runs after at most MOVER_PIECE_BYTES; the result is -ECANCELED in any case, be all
 * of it done, while pages' own results tell what was. The callback runs in mover_reap() as ever.
 */
void mover_cancel(struct mover *m, struct move *move);

/* Somebody waits for it by now: one that hasn't begun goes behind the urgent ones, whatever their
 * limit; others stay as they are. When: as mover_cancel(). */
void mover_hurry(struct mover *m, struct move *move);

/* Plain bytes between two looks at whether it is cancelled; with a codec a matrix, where that is
 * more. Some 20 us of a copy. Not tuned. */
#define MOVER_PIECE_BYTES ((size_t)256 << 10)

/* Of a matrix whose error is measured: some ms of a mover's thread. Not tuned. */
#define MOVER_ERROR_BYTES ((size_t)1 << 20)

/* Runs callbacks of moves that are done by now; they may submit and cancel. Returns their number.
 */
unsigned mover_reap(struct mover *m);

#endif
