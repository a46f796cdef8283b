/*
 * How the bytes of pages get from one tier of a namespace to another. Pages go together, as many as
 * policy/tier.h has in one unit: small copies are slow, and so are small writes.
 *
 *   carry:  open (pages are added) -> under way, a step after another -> over: transfer.c draws the
 *                                                                        consequences
 *
 *   OUT    a device behind a queue -> plain bytes: a job of the queue
 *   READ   the disk -> stored bytes, compared with their sum by the disk's store
 *   OPEN   stored -> plain bytes, compared with their sum by the mover: of some planes alone, where
 *          the sums of parts are known (part-sums.h); else all of the page is compared for them
 *   PACK   plain -> stored bytes, of which the mover takes the sum
 *   WRITE  stored bytes -> the disk
 *   IN     plain bytes -> a device behind a queue
 *
 * In the place of a page one end may be a buffer of the caller's, with the bytes of one page:
 * plain, or as TIER_HOST stores them (page_travel_form()). The sums of what comes from one are the
 * caller's business.
 *
 * Memory that this process has mapped is read and written in place; what is behind a queue or on a
 * disk goes through a buffer of the carry's. Loop thread only.
 */
#ifndef KVL_CORE_CARRY_H
#define KVL_CORE_CARRY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/list.h"
#include "daemon/core/ground/codecs.h"
#include "daemon/core/ground/geometry.h"
#include "daemon/tier/disk.h"
#include "policy/tier.h"

struct ns;
struct store;
struct extent_set;
struct move;
struct queue;

/* Which end is a buffer of the caller's; of that end no tier is read or written. */
enum carry_buffer { CARRY_NO_BUFFER, CARRY_TO_BUFFER, CARRY_FROM_BUFFER };

/* What pages that go together have in common. */
struct carry_way {
        enum tier_kind from, to; /* of a buffer: the one that has pages in its form */
        enum carry_buffer buffer;
        struct plane_range planes; /* that are moved: all, but for a copy */
        bool is_copy;              /* `to` stays whose it is */
        bool is_urgent;
        bool has_part_sums; /* some planes are moved, from TIER_HOST: part_sums_are_known() */
};

struct carry_page {
        uint32_t from, to;          /* PAGE_NONE: a buffer */
        uint64_t generation;        /* of `from` */
        struct extent_set *sets[2]; /* of these; borrowed while the carry has its namespace */
        /* What page_extra.content is of `from`; from the end on, where result is 0, of `to`. */
        uint64_t content;
        struct disk_page disk; /* to or from a disk: what it is there */
        struct iovec iov;
        bool is_written; /* to a disk: it has a place there */
        bool is_unwanted;
        int result;
};

#define CARRY_STEPS_MAX 5

/* Of so many pages that are encoded one is sampled: of each of its parts one matrix is decoded
 * again, and its errors are counted in struct ns_coding. Not tuned. */
#define CARRY_SAMPLES_ONE_IN 64
#define CARRY_NONE_SAMPLED   UINT32_MAX

struct carry {
        struct list_link link; /* store.moving.carries */
        struct store *store;   /* borrowed */
        struct ns *ns;         /* borrowed; NULL: it has gone */
        struct carry_way way;
        bool is_open; /* pages may be added: nothing has begun */
        bool is_over;
        uint8_t steps[CARRY_STEPS_MAX];
        unsigned n_steps, at;    /* at: the step that is under way, or next */
        uint8_t *plain, *stored; /* owned buffers; NULL: in place */
        uint8_t *buffer; /* owned: the caller's, whose page begins at buffer_begin; or NULL */
        size_t buffer_begin;
        uint64_t slot_bytes;    /* of a page in `stored` */
        struct move *move;      /* of the mover, while it has it; borrowed */
        struct disk_io *io;     /* likewise of the disk */
        struct disk_file *disk; /* whose that is */
        struct queue *queue;    /* whose job reads or writes a buffer; borrowed; NULL: none's */
        bool is_late;           /* its driver may do so for as long as it is stuck */
        uint32_t sampled; /* number of the page whose errors are measured; CARRY_NONE_SAMPLED */
        /* Of that page, by range of codecs; the mover's while it has the move. */
        struct codec_error errors[CODEC_RANGES_MAX];
        uint32_t n, n_max;
        struct carry_page pages[];
};

/* One that takes another page of the namespace that way, and is open. NULL: no memory. */
struct carry *carry_find(struct ns *ns, const struct carry_way *way);

/* One for a page whose other end is a buffer: the page is at `begin` of `bytes`, which the carry
 * owns unless it is NULL (no memory). */
struct carry *carry_new_with_buffer(
        struct ns *ns, const struct carry_way *way, uint8_t *bytes, size_t begin);

/* After its end: takes the buffer back. */
static inline uint8_t *carry_take_buffer(struct carry *c)
{
        uint8_t *bytes = c->buffer;

        c->buffer = NULL;
        return bytes;
}

/* Adds one; its number. Its sets aren't to go before carry_drop_page() or the end. */
uint32_t carry_add(struct carry *c, uint32_t from, uint32_t to);

/* All that are open, or could not go on, begin. To be called again where it returns true: there is
 * one that can't yet (the mover, or the disk, has as much as it takes). */
bool carry_start(struct store *s);

/* Somebody waits for it by now. */
void carry_hurry(struct carry *c);

/* Nobody wants this page any more; the others go on. */
void carry_leave(struct carry *c, uint32_t i);

/* Pages that are being written to a disk, and are gone since: their entries mustn't be there when
 * somebody is told that they aren't (space_promise()). */
void carry_unwrite_gone(struct store *s);

/* One that is over: to be freed by carry_free(). NULL: none. */
struct carry *carry_next_over(struct store *s);
void carry_free(struct carry *c);

/* The namespace goes: no mover touches its memory when it returns, which takes a piece of a copy
 * (mover.h) at most. What a queue or a disk still has ends by itself. */
void carry_forget_ns(struct ns *ns);

/* After the mover's, the queues' and the disks' end. */
void carry_deinit(struct store *s);

#endif
