/*
 * Internals of a disk store, by file:
 *
 *   disk-file.c    opens, makes, locks and closes the file; reads its tables;
 *   disk-queue.c   operations to and from the engine; errors; switching off; figures;
 *   disk-meta.c    blocks of tables and indexes: writing them and making them durable;
 *   disk-space.c   spaces and chunks;
 *   disk-io.c      pages;
 *   disk-check.c   disk_check().
 *
 * An operation of a page waits in its chunk while that is zeroed, then in the queue; then it runs,
 * then it has ended. All state is the loop thread's; an engine sees only struct disk_op.
 */
#ifndef KVL_TIER_DISK_IMPL_H
#define KVL_TIER_DISK_IMPL_H

#include "base/list.h"
#include "daemon/tier/disk-engine.h"
#include "daemon/tier/disk-format.h"
#include "daemon/tier/disk.h"

/* Entries that may stay unwritten while other work waits: one block's. */
#define DISK_LAZY_ENTRIES DISK_BLOCK_ENTRIES

/* Blocks that are written at once. Not tuned. */
#define DISK_BLOCK_OPS 16

/* Neighbours become one operation of at most so many bytes: drives take some hundred KiB. Not
 * tuned. */
#define DISK_MERGE_BYTES (4ull << 20)
#define DISK_MERGE_IOV   1024 /* IOV_MAX of the kernel */

/* 4 KiB of the file with a copy in memory. */
struct disk_block {
        struct list_link link; /* disk_file.dirty, or .round; unlinked: clean, or being written */
        uint64_t offset;
        const void *memory; /* borrowed */
};

struct disk_block_op {
        struct disk_op op;
        struct list_link idle; /* disk_file.idle_blocks */
        struct iovec iov;
        void *buffer; /* owned: copy of the block from the operation's start */
};

/* A caller that waits until its changes are durable. */
struct disk_waiter {
        struct list_link link;
        void (*run)(struct disk_file *d, struct disk_waiter *w, int result);
        int result;
        disk_fn done; /* the caller's callback */
        void *data;
        bool wants_data; /* needs written data durable, not only removals */
};

enum disk_slot_state { SLOT_FREE, SLOT_WRITING, SLOT_PAGE, SLOT_GONE /* but being read */ };

struct disk_slot {
        uint16_t n_reads;
        uint8_t state;
        bool is_found; /* its page was there at the start */
};

enum disk_chunk_state { CHUNK_FREE, CHUNK_USED, CHUNK_FREEING };

/* Former contents of a chunk's slots, by the serial of a space. */
#define CONTENTS_ANY  0 /* perhaps former bytes */
#define CONTENTS_NONE UINT64_MAX

struct disk_chunk {
        struct list_link link; /* disk_file.free, disk_space.chunks, disk_file.freeing */
        struct list_link room; /* disk_space.roomy: it has free slots */
        enum disk_chunk_state state;
        uint32_t number;
        struct disk_space *space; /* FREEING: charged for it; NULL: that space has ended */
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
        struct disk_waiter *loading; /* owned; NULL: no caller waits */
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
        unsigned n_given_max; /* operations that the engine may have: some can begin without a turn
                                 of the loop when one ends */
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
        unsigned n_row; /* errors since the last success */
        char why[DISK_WHY_BYTES];
        enum disk_discard discard;
        int discard_result;
        struct disk_op discard_op;

        struct disk_stats counts;               /* counts since the start */
        uint64_t histograms[2][DISK_HISTOGRAM]; /* reads, writes */
};

/* ---- disk-queue.c ---------------------------------------------------------------------------- */

/* Submits to the engine, once it has room. If the disk is off, ends the operation with -ENODEV. */
void disk_submit(struct disk_file *d, struct disk_op *op);
void disk_submit_urgent(struct disk_file *d, struct disk_op *op);

/* Ends an operation without the engine; done() runs in disk_reap(). */
void disk_op_end(struct disk_file *d, struct disk_op *op, int result);

/* Switches the disk off, with a sentence about the failed action. */
void disk_go_off(struct disk_file *d, const char *what, int r);

/* May new pages be taken now? Returns 0, DISK_BUSY or -ENODEV. */
int disk_may_take(const struct disk_file *d);

/* Wakes the loop for disk_reap(). */
void disk_wake(struct disk_file *d);

/* ---- disk-meta.c ----------------------------------------------------------------------------- */

void disk_meta_init(struct disk_file *d);

/* Marks a block as changed. */
void disk_touch(struct disk_file *d, struct disk_block *b);

/* Takes the waiter, and runs it once all changed blocks are durable. */
void disk_wait(struct disk_file *d, struct disk_waiter *w);

/* Makes a waiter for a caller; NULL: no memory. run() calls back and frees it. */
struct disk_waiter *disk_waiter_new(disk_fn done, void *data);

/* Sets the waiter's result; it is run in disk_reap(). */
void disk_waiter_end(struct disk_file *d, struct disk_waiter *w, int result);

/* Begins to write blocks if it is time. */
void disk_meta_go(struct disk_file *d);

/* Answers all waiters: the file was discarded, or not. */
void disk_meta_off(struct disk_file *d);

/* ---- disk-space.c ---------------------------------------------------------------------------- */

static inline uint64_t disk_chunk_at(const struct disk_chunk *c, const struct disk_file *d)
{
        return d->layout.data_at + c->number * d->super.chunk_bytes;
}

/* Place of the slot's bytes in the file. */
static inline uint64_t disk_slot_at(
        const struct disk_file *d, const struct disk_chunk *c, uint32_t slot, uint32_t slot_bytes)
{
        return disk_chunk_at(c, d) + (uint64_t)c->n_blocks * DISK_ALIGN +
               (uint64_t)slot * slot_bytes;
}

/* A random number, never 0, that clients can't predict. */
uint64_t disk_random(void);

struct disk_space *disk_space_add(struct disk_file *d, uint32_t row); /* NULL: no memory */
void disk_space_free(struct disk_space *s);
void disk_chunk_adopt(struct disk_space *s, struct disk_chunk *c); /* of the file's table */
void disk_chunk_memory_free(struct disk_file *d, struct disk_chunk *c);

/* Reserves n free slots in chunks of the space. Returns 0, DISK_FULL, DISK_BUSY or -ENOMEM. */
int disk_space_secure(struct disk_space *s, uint32_t n);

/* Takes a reserved slot. */
uint64_t disk_slot_take(struct disk_space *s);

/* Frees a slot. */
void disk_slot_free(struct disk_chunk *c, uint32_t slot);

/* Frees the chunk if it is empty. */
void disk_chunk_shrink(struct disk_file *d, struct disk_chunk *c);

/* An operation on the chunk has ended; it may be free now. */
void disk_chunk_unbusy(struct disk_file *d, struct disk_chunk *c);

/* ---- disk-io.c ------------------------------------------------------------------------------- */

static inline struct disk_task *disk_task_of(struct disk_io *io)
{
        return container_of(io, struct disk_task, io);
}

/* Adds the page of a written slot. */
void disk_page_add(struct disk_chunk *c, uint32_t slot);

/* Sets results of pages that were removed between their write and the caller's callback: they count
 * as not written. */
void disk_task_recheck(struct disk_file *d, struct disk_task *t);

/* Ends all operations that haven't begun. */
void disk_cancel_waiting(struct disk_file *d, int result);

#endif
