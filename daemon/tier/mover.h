/*
 * Copies the bytes of cold pages between tiers, on threads of its own: from their plain form to
 * their stored form (down: copied, or encoded by base/codec), and back (up). All of it is memory of
 * this process; files and devices are handled elsewhere. The loop submits moves, and a descriptor
 * signals their end.
 *
 *   move:  submitted -> running -> done (its callback runs in mover_reap() or mover_close())
 *               \           \
 *                \-----------\-> cancelled: done with -ECANCELED, at once or after a piece;
 *
 * Moves begin in order of submission, urgent ones before all others; with several threads they may
 * end in another order. The caller decides the order among tenants, by the order of its
 * submissions. A submitted move allocates nothing.
 *
 * A result of 0 means, for a page:
 * - Down: `sum` is of the stored bytes, all of them written. Without a codec it is computed from
 *   the bytes as they are read from the source, each once: a source that changes meanwhile causes a
 *   torn page, not a wrong sum. With a codec it is computed from the encoded bytes, as the CPU
 *   reads them back behind the encoder. `reads_back` also compares the stored memory (-EIO if it
 *   differs). It reads the whole page again: moves of 1 MiB take half as long again (kvlease-bench
 *   tiers).
 * - Up: the stored bytes had the expected sum (except with MOVE_SUM_NONE), and exactly these bytes
 *   were copied. With a codec, and for MOVE_SUM_BOTH, they are read twice, piece by piece: no other
 *   thread may write to them.
 * Neither shows that the plain bytes were the right ones.
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
        /* UP: that, compared; also one of each plane, which the mover sets. */
        MOVE_SUM_BOTH,
        /* UP: of each plane, given by the caller; move_page.sum isn't used. After one move of a
         * whole page has set the planes' sums, a move of some of them can be checked. */
        MOVE_SUM_PLANES,
        /* UP: none: the caller has compared them. Bytes that no encoder makes are refused all the
         * same. */
        MOVE_SUM_NONE,
};

/* A page's bytes in one plane, or those of them that have one codec. Plain and stored bytes don't
 * overlap, and don't move until the callback. Alignment isn't needed (64 bytes of `to` is best). */
struct move_plane {
        const void *from; /* borrowed */
        void *to;         /* borrowed; its bytes are the mover's. UP: NULL: only the sum is taken */
        size_t plain_bytes;
        uint64_t sum; /* of the stored bytes of this plane alone: enum move_sums */
        enum codec codec;
        /* Borrowed: of a matrix, of which plain_bytes are a multiple; n_matrices doesn't count.
         * CODEC_NONE: may be NULL. */
        const struct codec_shape *shape;
        /* DOWN with a codec: adds the error of the first matrix after decoding, if a matrix has at
         * most MOVER_ERROR_BYTES. Borrowed until the callback; NULL: not measured. */
        struct codec_error *error;
};

struct move_page {
        /* The sum (base/sum.h) of the stored bytes of all planes in order. DOWN: set by the mover,
         * with result 0. UP: the expected one, set by the caller. */
        uint64_t sum;
        /*
         * Set at the callback: 0; -ECANCELED: `to` is undefined; -EDOM (down): a number isn't
         * finite, the page can only be stored with CODEC_NONE; -EBADMSG (up): the sum differs, or
         * no encoder makes the bytes; `to` of all its planes is zeroed; -EIO (down): reads_back
         * found other bytes.
         */
        int result;
};

struct move;

/* result: 0 if each page was moved, else that of the first page that wasn't; always -ECANCELED
 * after mover_cancel(). */
typedef void (*move_fn)(struct move *move, int result, void *data);

/* Heap memory, from move_new(). The mover owns it from submission until its callback returns, and
 * then frees it. One page, or a batch of one namespace's: they are moved in order, and share one
 * callback. */
struct move {
        enum move_direction direction;
        enum move_sums sums;
        bool is_urgent;  /* a caller waits for it */
        bool reads_back; /* DOWN: see above */
        move_fn done;    /* may be NULL */
        void *data;      /* borrowed */
        size_t n_pages, n_planes;
        struct move_page *pages;   /* n_pages; part of the move, like the next */
        struct move_plane *planes; /* of page i: planes[i * n_planes] and on */
};

/* All zeros but direction and counts, which aren't 0. NULL: no memory. */
struct move *move_new(enum move_direction direction, size_t n_pages, size_t n_planes);

/* Frees a move that isn't submitted. Nothing for NULL. */
void move_free(struct move *move);

struct mover_options {
        unsigned n_threads; /* 0: 1 */
        unsigned max_moves; /* submitted and not reaped, of each lane; 0: 64, not tuned */
};

/* Starts the threads, with signals blocked. options NULL: defaults. Returns 0 with an owned
 * *ret_mover; -ENOMEM; -EMFILE, -ENFILE: no descriptor; -EAGAIN: no thread. */
int mover_open(const struct mover_options *options, struct mover **ret_mover);

/* Waits for running moves, and runs all callbacks; waiting moves end with -ECANCELED. Ends the
 * threads. Nothing for NULL. */
void mover_close(struct mover *m);

/* Readable if mover_reap() must be called: an urgent or cancelled move is done, or any while none
 * waits, or max_moves / 2, or 4 MiB of plain bytes. Borrowed. */
int mover_fd(const struct mover *m);

#define MOVER_FULL 1

/* Takes the move; its callback runs in mover_reap(), never here. Returns 0; MOVER_FULL: its lane
 * (urgent, or not) is full; -ESHUTDOWN: mover_close() runs. On failure it stays the caller's, and
 * its callback never runs. */
int mover_submit(struct mover *m, struct move *move);

/*
 * Cancels a submitted move, at any time before its callback. A waiting one ends at once, a running
 * one after at most MOVER_PIECE_BYTES. The result is always -ECANCELED, even if all of it was done;
 * the pages' own results say which were moved. The callback runs in mover_reap().
 */
void mover_cancel(struct mover *m, struct move *move);

/* Makes a submitted move urgent, before its callback. A waiting one goes behind the urgent ones,
 * beyond their limit; others stay as they are. */
void mover_hurry(struct mover *m, struct move *move);

/* Plain bytes between two checks for cancellation (with a codec, at least a matrix): some 20 us of
 * a copy. Not tuned. */
#define MOVER_PIECE_BYTES ((size_t)256 << 10)

/* Bound of a matrix whose error is measured: some ms of a mover's thread. Not tuned. */
#define MOVER_ERROR_BYTES ((size_t)1 << 20)

/* Runs callbacks of done moves; they may submit and cancel. Returns their number. */
unsigned mover_reap(struct mover *m);

#endif
