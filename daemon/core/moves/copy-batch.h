/*
 * Copies the bytes of pages from one tier of a namespace to another. Pages are copied in batches of
 * up to one unit of policy/tier.h, because small copies and small writes are slow.
 *
 *   open (pages are added) -> under way, a step after another -> over: transfer.c handles
 *                                                                        the results
 *
 *   OUT    a device behind a queue -> plain bytes: a job of the queue
 *   READ   the disk -> stored bytes, whose sum the disk's store checks
 *   OPEN   stored -> plain bytes, whose sum the mover checks. Some planes alone are checked if the
 *          sums of parts are known (part-sums.h); else all of the page is
 *   PACK   plain -> stored bytes, whose sum the mover computes
 *   WRITE  stored bytes -> the disk
 *   IN     plain bytes -> a device behind a queue
 *
 * Instead of a page, one end may be a buffer of the caller's with the bytes of one page: plain, or
 * as TIER_HOST stores them (page_travel_form()). The caller checks the sums of bytes from a buffer.
 *
 * Memory that this process has mapped is read and written in place. Bytes behind a queue or on a
 * disk go through a buffer of the copy batch's. Loop thread only.
 */
#ifndef KVL_CORE_COPY_BATCH_H
#define KVL_CORE_COPY_BATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/list.h"
#include "daemon/core/state/codecs.h"
#include "daemon/core/state/geometry.h"
#include "daemon/tier/disk.h"
#include "policy/tier.h"

struct ns;
struct store;
struct extent_set;
struct move;
struct queue;

/* The end that is a buffer of the caller's. No tier is read or written at that end. */
enum batch_buffer { BATCH_NO_BUFFER, BATCH_TO_BUFFER, BATCH_FROM_BUFFER };

/* The common properties of the pages of a batch. */
struct batch_way {
        enum tier_kind from, to; /* for a buffer: the tier whose form it has */
        enum batch_buffer buffer;
        struct plane_range planes; /* to be moved: all, except for a copy */
        bool is_copy;              /* `to` keeps its owner */
        bool is_urgent;
        bool has_part_sums; /* some planes are moved, from TIER_HOST, with part_sums_are_known() */
};

struct batch_page {
        uint32_t from, to;          /* PAGE_NONE: a buffer */
        uint64_t generation;        /* of `from` */
        struct extent_set *sets[2]; /* of both; borrowed while the copy batch has its namespace */
        /* page_extra.content of `from`; at the end, if result is 0, of `to`. */
        uint64_t content;
        struct disk_page disk; /* its description on the disk */
        struct iovec iov;
        bool is_written; /* to a disk: it has a place there */
        bool is_unwanted;
        int result;
};

#define BATCH_STEPS_MAX 5

/* One in so many encoded pages is sampled: one matrix of each part is decoded again, and its errors
 * are counted in struct ns_coding. Not tuned. */
#define BATCH_SAMPLES_ONE_IN 64
#define BATCH_NONE_SAMPLED   UINT32_MAX

struct copy_batch {
        struct list_link link; /* store.moving.batches */
        struct store *store;   /* borrowed */
        struct ns *ns;         /* borrowed; NULL: it was freed */
        struct batch_way way;
        bool is_open; /* pages may be added: no step has begun */
        bool is_over;
        uint8_t steps[BATCH_STEPS_MAX];
        unsigned n_steps, at;    /* at: the step under way, or the next one */
        uint8_t *plain, *stored; /* owned buffers; NULL: in place */
        uint8_t *buffer; /* owned: the caller's, whose page begins at buffer_begin; or NULL */
        size_t buffer_begin;
        uint64_t slot_bytes;    /* bytes per page in `stored` */
        struct move *move;      /* borrowed while the mover has it */
        struct disk_io *io;     /* borrowed while the disk has it */
        struct disk_file *disk; /* the disk of `io` */
        struct queue *queue;    /* its job uses a buffer; borrowed; NULL: none */
        bool is_late;           /* the driver may use it until it isn't stuck any more */
        uint32_t sampled;       /* number of the sampled page; BATCH_NONE_SAMPLED */
        /* Errors of that page, by range of codecs; the mover's during the move. */
        struct codec_error errors[CODEC_RANGES_MAX];
        uint32_t n, n_max;
        struct batch_page pages[];
};

/* Returns an open batch for another page of the namespace with these properties. NULL: no memory.
 */
struct copy_batch *batch_find(struct ns *ns, const struct batch_way *way);

/* Makes a batch for a page whose other end is a buffer. The page begins at `begin` of `bytes`,
 * which the copy batch owns unless it returns NULL (no memory). */
struct copy_batch *batch_new_with_buffer(
        struct ns *ns, const struct batch_way *way, uint8_t *bytes, size_t begin);

/* Takes the buffer back after the end. */
static inline uint8_t *batch_take_buffer(struct copy_batch *c)
{
        uint8_t *bytes = c->buffer;

        c->buffer = NULL;
        return bytes;
}

/* Adds a page and returns its number. Its sets must stay until batch_drop_page() or the end. */
uint32_t batch_add(struct copy_batch *c, uint32_t from, uint32_t to);

/* Begins all batches that are open or couldn't continue. Returns true if one can't yet (the mover
 * or the disk is at its limit): call it again. */
bool batch_start(struct store *s);

/* A client waits for the batch now. */
void batch_hurry(struct copy_batch *c);

/* The page isn't needed any more; the others continue. */
void batch_leave(struct copy_batch *c, uint32_t i);

/* Discards pages that are being written to a disk and were dropped since: space_promise() must not
 * be answered while their entries exist. */
void batch_unwrite_gone(struct store *s);

/* Returns a batch that has ended, to be freed by batch_free(); NULL: none. */
struct copy_batch *batch_next_over(struct store *s);
void batch_free(struct copy_batch *c);

/* The namespace is being freed: when this returns, no mover uses its memory. That takes at most a
 * piece of a copy (mover.h). Jobs of a queue or a disk end by themselves. */
void batch_forget_ns(struct ns *ns);

/* Frees everything after the end of mover, queues and disks. */
void batch_deinit(struct store *s);

#endif
