/*
 * Inside of a disk's store. Who does what:
 *
 *   disk-file.c    the file: made, opened, locked; its tables read; closed
 *   disk-queue.c   operations on their way to the engine and back; errors, and the end
 *   disk-meta.c    the blocks of tables and indexes: when they are written and durable
 *   disk-space.c   spaces and chunks
 *   disk-io.c      pages
 *   disk-stats.c   figures
 *   disk-check.c   disk_check()
 *
 * A page's operation waits in its chunk while that is zeroed, then in the queue, then it is under
 * way, then over. All of it is the loop thread's; an engine sees struct disk_op alone.
 */
#ifndef KVL_TIER_DISK_IMPL_H
#define KVL_TIER_DISK_IMPL_H

#include "base/list.h"
#include "daemon/tier/disk-engine.h"
#include "daemon/tier/disk-format.h"
#include "daemon/tier/disk.h"

/* Entries that may be unwritten while there is something else to do: one block's. */
#define DISK_LAZY_ENTRIES DISK_BLOCK_ENTRIES

/* Blocks that are written at once. Not tuned. */
#define DISK_BLOCK_OPS 16

/* Neighbours become one operation of so much at most: what a drive takes is in the hundreds of KiB.
 * Not tuned. */
#define DISK_MERGE_BYTES (4ull << 20)
#define DISK_MERGE_IOV   1024 /* IOV_MAX of the kernel */

/* 4 KiB of the file that memory has, too. */
struct disk_block {
        struct list_link link; /* disk_file.dirty, or .round; unlinked: clean, or being written */
        uint64_t offset;
        const void *memory; /* borrowed */
};

struct disk_block_op {
        struct disk_op op;
        struct list_link idle; /* disk_file.idle_blocks */
        struct iovec iov;
        void *buffer; /* owned: what the block was when the operation began */
};

/* Who waits for what was changed to be durable. */
struct disk_waiter {
        struct list_link link;
        void (*run)(struct disk_file *d, struct disk_waiter *w, int result);
        int result;
        disk_fn done; /* of the caller's */
        void *data;
        bool wants_data; /* and not only that nothing comes back */
};

enum disk_slot_state { SLOT_FREE, SLOT_WRITING, SLOT_PAGE, SLOT_GONE /* but being read */ };

struct disk_slot {
        uint16_t n_reads;
        uint8_t state;
        bool is_found; /* its page was there at the start */
};

enum disk_chunk_state { CHUNK_FREE, CHUNK_USED, CHUNK_FREEING };

/* What a chunk has in its slots, by the serial of a space. */
#define CONTENTS_ANY  0 /* perhaps something */
#define CONTENTS_NONE UINT64_MAX

struct disk_chunk {
        struct list_link link; /* disk_file.free, disk_space.chunks, disk_file.freeing */
        struct list_link room; /* disk_space.roomy: it has free slots */
        enum disk_chunk_state state;
        uint32_t number;
        struct disk_space *space; /* FREEING: who pays for it; NULL: that is gone */
        uint64_t nonce, contents, last_use;
        /* USED and loaded, FREEING: owned. */
        struct disk_entry *entries; /* as in the file; aligned */
        struct disk_slot *slots;
        struct disk_block *blocks;
        uint32_t n_slots, n_blocks;
        uint32_t n_used, n_pages;    /* slots that aren't free; that have pages */
        uint32_t hint;               /* no slot before it is free */
        uint32_t n_busy;             /* operations */
        uint64_t used_bytes;         /* of pages */
        uint64_t memory_bytes;       /* of the three above */
        bool is_zeroing, is_durable; /* FREEING: that it is free */
        struct list_link waiting;    /* operations, while it is zeroed */
        struct disk_op op;           /* loading, zeroing */
        struct iovec iov;
        struct disk_waiter waiter; /* FREEING */
};

struct disk_space {
        struct list_link link; /* disk_file.spaces */
        struct disk_file *disk;
        uint64_t serial; /* of this process */
        uint32_t row;
        uint8_t id[DISK_ID_BYTES], owner[DISK_ID_BYTES];
        uint64_t instance, generation;
        uint32_t slot_bytes, chunk_slots;
        struct list_link chunks, roomy;
        uint32_t n_chunks, n_freeing;
        uint64_t n_slots, n_used, n_pages, used_bytes; /* of its chunks */
        bool is_loaded;
        uint32_t n_loading;
        struct disk_waiter *loading; /* owned; NULL: nobody waits */
};

struct disk_task {
        struct list_link link; /* disk_file.finished */
        uint32_t n_left;       /* operations */
        bool is_canceled, is_write;
        struct disk_io io;
};

enum disk_round { ROUND_NONE, ROUND_WRITING, ROUND_FLUSHING };
enum disk_discard { DISCARD_NONE, DISCARD_UNDER_WAY, DISCARD_DONE };

#define DISK_HISTOGRAM (64 * 8) /* an eighth of an octave each */

struct disk_file {
        char *path; /* owned */
        int fd, event_fd;
        int lock_fd; /* the same file */
        bool is_direct;
        struct disk_engine *engine;
        struct disk_super super;
        struct disk_layout layout;
        unsigned depth, waiting_max, deadline_msec;
        unsigned n_given_max; /* operations that the engine may have: some are ready to begin when
                                 one ends, without a turn of the loop */
        char note[DISK_WHY_BYTES];

        /* Tables: as in the file, and their blocks. */
        struct disk_space_record *space_records;
        struct disk_chunk_record *chunk_records;
        struct disk_block *space_blocks, *chunk_blocks;

        struct disk_chunk *chunks;
        struct list_link free, freeing;
        uint32_t n_free, n_freeing;
        struct disk_space **rows; /* of the table; NULL: not used */
        struct list_link spaces;
        uint32_t n_spaces;
        uint64_t last_serial, uses;
        uint64_t index_bytes;

        /* Operations. */
        struct list_link urgent, queue; /* to be started: blocks and flushes first */
        struct list_link flight;        /* by age */
        unsigned n_flight, n_late_now;
        struct list_link over;     /* without the engine */
        struct list_link finished; /* struct disk_task */
        uint64_t n_waiting;        /* pages of tasks */

        /* Blocks. */
        struct list_link dirty, round;
        uint32_t n_lazy; /* entries that changed since the round began */
        enum disk_round in_round;
        unsigned n_writing;                 /* blocks */
        struct list_link next, round_waits; /* struct disk_waiter */
        struct list_link ready;             /* with results */
        struct disk_block_op block_ops[DISK_BLOCK_OPS];
        struct list_link idle_blocks;
        struct disk_op flush;

        /* The end. */
        bool is_off;
        unsigned n_row; /* errors since something worked */
        char why[DISK_WHY_BYTES];
        enum disk_discard discard;
        int discard_result;
        struct disk_op discard_op;

        struct disk_stats counts;               /* those since the start, and nothing else */
        uint64_t histograms[2][DISK_HISTOGRAM]; /* reads, writes */
};

/* ---- disk-queue.c ---------------------------------------------------------------------------- */

/* Towards the engine, when there is room. Where the disk is off it is over, with -ENODEV. */
void disk_submit(struct disk_file *d, struct disk_op *op);
void disk_submit_urgent(struct disk_file *d, struct disk_op *op);

/* Over without the engine; done() runs in disk_reap(). */
void disk_op_end(struct disk_file *d, struct disk_op *op, int result);

/* The end, with a sentence about what was done. */
void disk_go_off(struct disk_file *d, const char *what, int r);

/* Nothing new is to be taken now: DISK_BUSY, -ENODEV, or 0. */
int disk_may_take(const struct disk_file *d);

/* disk_reap() has something to do. */
void disk_wake(struct disk_file *d);

/* Counts how long an operation took that is over. */
void disk_note_latency(struct disk_file *d, const struct disk_op *op);

/* ---- disk-meta.c ----------------------------------------------------------------------------- */

void disk_meta_init(struct disk_file *d);

/* Its memory has changed. */
void disk_touch(struct disk_file *d, struct disk_block *b);

/* Takes the waiter until it is run: when all that was touched is durable. */
void disk_wait(struct disk_file *d, struct disk_waiter *w);

/* One for a caller; NULL: no memory. run() calls and frees it. */
struct disk_waiter *disk_waiter_new(disk_fn done, void *data);

/* It has its result, and is run in disk_reap(). */
void disk_waiter_end(struct disk_file *d, struct disk_waiter *w, int result);

/* Begins to write blocks where it is time for that. */
void disk_meta_go(struct disk_file *d);

/* Everybody that waits has an answer: the file was discarded, or not. */
void disk_meta_off(struct disk_file *d);

/* ---- disk-space.c ---------------------------------------------------------------------------- */

static inline uint64_t disk_chunk_at(const struct disk_chunk *c, const struct disk_file *d)
{
        return d->layout.data_at + c->number * d->super.chunk_bytes;
}

/* Where the slot's bytes are in the file. */
static inline uint64_t disk_slot_at(
        const struct disk_file *d, const struct disk_chunk *c, uint32_t slot, uint32_t slot_bytes)
{
        return disk_chunk_at(c, d) + (uint64_t)c->n_blocks * DISK_ALIGN +
               (uint64_t)slot * slot_bytes;
}

/* Not 0, and not to be guessed. */
uint64_t disk_random(void);

struct disk_space *disk_space_add(struct disk_file *d, uint32_t row); /* NULL: no memory */
void disk_space_free(struct disk_space *s);
void disk_chunk_adopt(struct disk_space *s, struct disk_chunk *c); /* of the file's table */
void disk_chunk_memory_free(struct disk_file *d, struct disk_chunk *c);

/* There are n free slots, in chunks of the space. 0; DISK_FULL, DISK_BUSY, -ENOMEM. */
int disk_space_secure(struct disk_space *s, uint32_t n);

/* Takes a slot that was secured. */
uint64_t disk_slot_take(struct disk_space *s);

/* A slot isn't used any more. */
void disk_slot_free(struct disk_chunk *c, uint32_t slot);

/* Gives the chunk back where it is empty. */
void disk_chunk_shrink(struct disk_file *d, struct disk_chunk *c);

/* An operation on it is over; it may be free now. */
void disk_chunk_unbusy(struct disk_file *d, struct disk_chunk *c);

/* ---- disk-io.c ------------------------------------------------------------------------------- */

static inline struct disk_task *disk_task_of(struct disk_io *io)
{
        return container_of(io, struct disk_task, io);
}

/* The page of a slot is there from now on. */
void disk_page_add(struct disk_chunk *c, uint32_t slot);

/* What was written and is gone already, before the caller knew of it, wasn't written. */
void disk_task_recheck(struct disk_file *d, struct disk_task *t);

/* Ends all that hasn't begun. */
void disk_cancel_waiting(struct disk_file *d, int result);

#endif
