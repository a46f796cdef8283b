/*
 * The disk tier's store: one preallocated file that keeps the cold pages of one device. It knows no
 * namespaces, tenants or page records: what it has are *spaces* (one for each kind of page of one
 * namespace), to which it hands out the file in *chunks*, whose *slots* have a page each. It is a
 * cache: a page may be gone at any time, and is then a miss. docs/DISK.md has the file's format.
 *
 *   page:   written -> (comes back after a restart) -> removed, or found to be bad
 *   chunk:  free -> in use by a space -> freeing (until that is durable, and nothing reads it)
 *   disk:   ok <-> failing -> off
 *
 * What holds, after a kill, a power cut, or a write that was torn, reordered or lost:
 *
 *   - a read brings exactly the bytes that were written under that key, or none
 *   - what disk_remove() or disk_raise() took out never comes back once their callback was called
 *   - a chunk that changes hands shows nothing of what it had: it is zeroed (where the file system
 *     can't, what it holds is nobody's: entries and bytes must fit sums that the space before
 *     doesn't have)
 *
 * *Failing*: the last operations ended with an error, or one takes longer than the deadline;
 * nothing new is taken while one does. *Off*: DISK_ERRORS_MAX errors in a row, an index that can't
 * be written, or a file that was deleted or shortened. That is the end of the file: it is truncated
 * to nothing, as what is taken out could come back otherwise, and every page of it is gone. The
 * next disk_open() starts anew.
 *
 * Threads: all functions from one (the loop). Callbacks run in disk_reap() alone; if a call returns
 * an error, or a condition, the callback never runs. The disk's own threads (disk-engine.h) do all
 * that may block, but for disk_open() and disk_close().
 *
 * Memory: DISK_SLOT_MEMORY bytes for each slot of the chunks in use by spaces that were loaded, in
 * 4 KiB for each chunk; 400 for each chunk of the file, 250 for each space, and 64 KiB.
 */
#ifndef KVL_TIER_DISK_H
#define KVL_TIER_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct disk_file;
struct disk_space;

#define DISK_ALIGN      4096 /* of buffers, slots, chunks: the largest sector of drives, and a page */
#define DISK_KEY_BYTES  32
#define DISK_ID_BYTES   32
#define DISK_WHY_BYTES  256
#define DISK_NAME_MAX   63 /* bytes of a device's name */
#define DISK_DEPTH_MAX  256
#define DISK_ERRORS_MAX 8 /* in a row; not tuned */

#define DISK_CHUNK_BYTES_MIN (64ull << 10)
#define DISK_CHUNK_BYTES_MAX (1ull << 30)
#define DISK_CHUNKS_MAX      (1u << 24)
#define DISK_SPACES_MAX      65536
#define DISK_SLOT_MEMORY     136

/* Conditions (> 0). */
enum {
        DISK_NEW = 1, /* disk_open: the file has nothing in it */
        DISK_FULL,    /* no slot, and no chunk is free */
        DISK_BUSY,    /* not now: too much waits, the disk is late, a chunk is yet to be free */
};

enum disk_engine_kind {
        DISK_ENGINE_AUTO,    /* io_uring where the kernel allows it, else threads */
        DISK_ENGINE_URING,   /* io_uring, driven by one thread */
        DISK_ENGINE_THREADS, /* DISK_THREADS threads with preadv and pwritev */
};
/* Threads that read and write: as many operations as fio has under way in the comparison that
 * `kvlease-bench disk` makes. With pages of 256 KiB two threads wrote 0.55 of what fio did, four
 * 0.71. */
#define DISK_THREADS 8

/* Zeros: the defaults. */
struct disk_options {
        const char
                *device; /* name (UUID) of what the pages are of, at most DISK_NAME_MAX; not NULL */
        enum disk_engine_kind engine;
        unsigned depth;         /* operations under way at once, <= DISK_DEPTH_MAX; 0: 32. A
                                   quarter more may wait in the engine */
        unsigned waiting_pages; /* that may wait or be under way: beyond it DISK_BUSY; 0: 4096 */
        unsigned deadline_msec; /* of an operation: then the disk is late; 0: 10,000 */
        /* The chunks of a file that is made now (a multiple of DISK_ALIGN; 0: 64 MiB), and how many
         * spaces it has room for (0: 1,024). A file that is there keeps what it has. Large pages
         * waste up to a slot of each chunk. */
        uint64_t chunk_bytes;
        unsigned max_spaces;
};

/*
 * Opens the file, or makes it (mode 0600, `bytes` preallocated), and starts the engine. Blocks, for
 * reads of some KiB for each GiB; where a file is made, for its preallocation.
 *
 *   0         what is in the file is there, spaces to be loaded
 *   DISK_NEW  it is empty; `why` says so where a file had to be given up for that: one of another
 *             version, another size than `bytes`, or whose superblock is damaged or was never
 *             finished
 *   -EBUSY    another process has it open
 *   -EXDEV    it is another device's
 *   -EEXIST   there is something that isn't this store's: it is left alone
 *   -EPERM    it is another user's
 *   -EOPNOTSUPP  the file system can't preallocate; or io_uring was asked for and isn't to be had
 *   -ENOSPC   `why` has the path, the bytes that are wanted and those that are free
 *   -EINVAL   not a regular file, or no room for a chunk in `bytes`
 *   other -errno
 *
 * `why` is a sentence with the path, after an error and with DISK_NEW ("" where there was no file);
 * disk_stats() has one where the file is read and written through the page cache. After an error
 * nothing is open, and a file that was made is gone.
 */
int disk_open(const char *path, uint64_t bytes, const struct disk_options *options,
        struct disk_file **ret_disk, char why[DISK_WHY_BYTES]);

/*
 * Writes what entries there are and makes them durable, so that the next disk_open() finds them.
 * What hasn't begun ends with -ECANCELED; what is under way is waited for, at most the deadline.
 * Callbacks run meanwhile. Spaces end with it. False: the disk hangs; callbacks that didn't run
 * won't, threads and what they write to are left behind: the process should end by _exit().
 */
bool disk_close(struct disk_file *d);

/* Readable where disk_reap() has something to do. Borrowed. */
int disk_fd(const struct disk_file *d);

/* Runs callbacks of what is done. Returns their number. Bounded: what was done when it began. */
unsigned disk_reap(struct disk_file *d);

/* When an operation that is under way is late (CLOCK_MONOTONIC, ns): disk_reap() then, which says
 * so in the state. UINT64_MAX: none is. */
uint64_t disk_deadline_nsec(const struct disk_file *d);

/* ---- spaces ---------------------------------------------------------------------------------- */

/*
 * A space has pages of one tenant alone; its slots have the same size. It is the disk's, lives
 * until disk_drop() or disk_close(), and is in the file soon after it was made.
 */
struct disk_space_info {
        uint8_t id[DISK_ID_BYTES], owner[DISK_ID_BYTES];
        uint64_t generation;
        uint32_t slot_bytes;
        uint32_t n_chunks, n_freeing; /* handed to it; not its any more, but not yet free: both are
                                         its owner's to pay for */
        uint64_t n_pages;             /* readable; 0 before it is loaded */
        uint64_t used_bytes;          /* what those take, in units of DISK_ALIGN */
        bool is_loaded;
};

/* id: names the space for ever; owner: whose it is, not looked at. NULL: there is none. Borrowed.
 */
struct disk_space *disk_space_find(struct disk_file *d, const uint8_t id[DISK_ID_BYTES]);

/* All spaces, also those that nobody asked for since the start: NULL first, NULL at the end. */
struct disk_space *disk_space_next(struct disk_file *d, struct disk_space *s);

/*
 * Makes one, loaded. slot_bytes: of its largest page, rounded up to DISK_ALIGN here; a chunk must
 * have room for one. 0; -EEXIST; -EINVAL; -ENOSPC: as many as the file has room for; -ENOMEM;
 * -ENODEV: off.
 */
int disk_space_new(struct disk_file *d, const uint8_t id[DISK_ID_BYTES],
        const uint8_t owner[DISK_ID_BYTES], uint64_t generation, uint64_t slot_bytes,
        struct disk_space **ret_space);

void disk_space_info(const struct disk_space *s, struct disk_space_info *ret_info);

/* Slots in each of its chunks. */
uint32_t disk_space_chunk_slots(const struct disk_space *s);

/* result: 0, or -errno: see the call. */
typedef void (*disk_fn)(int result, void *data);

/*
 * Reads the index of a space that the file had. Until the callback it has no pages and can't be
 * written to. Entries that don't check are dropped and counted; a chunk whose index can't be read
 * is freed. 0: under way; -EALREADY: it is loaded, or being loaded; -ENOMEM; -ENODEV. The callback:
 * 0; -ECANCELED: raised, dropped or closed meanwhile (raised: it is loaded, and empty); -ENODEV.
 */
int disk_space_load(struct disk_space *s, disk_fn done, void *data);

/*
 * Its pages are gone, at once: reads and writes that are under way end with -ENOENT. generation:
 * more than it has. done (not NULL): that is durable; 0, or -EIO: the disk is off and its file
 * couldn't be truncated either, so that pages may come back with it. 0 or -ENOMEM (nothing was
 * done), -EINVAL: not more than it has. Works, and keeps its promise, where the disk is off, too.
 */
int disk_raise(struct disk_space *s, uint64_t generation, disk_fn done, void *data);

/* Does what disk_raise() does, and the space is gone: the pointer is invalid when this returns 0. A
 * space with the same id can be made at once, of any generation. 0 or -ENOMEM (nothing was done).
 */
int disk_drop(struct disk_space *s, disk_fn done, void *data);

/*
 * Takes the chunk back whose last use (a read or a write) is the longest ago, so that other spaces
 * can have it: its pages are gone, each is named to `gone` first, which mustn't call back. So may
 * be some of a write whose callback is still to come: there they end with -ENOENT. Not durable:
 * after a power cut it may be the space's, as it was. 0; DISK_BUSY: it has none to give, or isn't
 * loaded.
 */
struct disk_page;
typedef void (*disk_gone_fn)(const struct disk_page *page, uint64_t at, void *data);
int disk_give_chunk(struct disk_space *s, disk_gone_fn gone, void *data);

/* ---- pages ----------------------------------------------------------------------------------- */

struct disk_page {
        uint8_t key[DISK_KEY_BYTES];
        uint8_t parent[DISK_KEY_BYTES]; /* zeros: none */
        uint64_t tag;
        uint64_t end_token;
        uint64_t sum; /* disk_sum() of its bytes */
        uint32_t tokens, depth;
        uint32_t length;       /* bytes, > 0, <= slot_bytes */
        uint16_t codec, flags; /* the caller's */
};

struct disk_io_page {
        struct disk_page page; /* write: what it is. read: key; the rest is set */
        uint64_t at;           /* where it is: read: given; write: set with result 0 */
        /* Its bytes: n_iov <= DISK_IOV_MAX pieces, aligned to DISK_ALIGN, all but the last one a
         * multiple of it long. Together round_up(length, DISK_ALIGN), at least. Borrowed, as what
         * they name. What is behind `length` is zeroed, by a write too. */
        const struct iovec *iov;
        unsigned n_iov;
        /* 0
         * -ENOENT     read: it isn't there (any more). write: its generation isn't
         * -EBADMSG    read: what is there isn't what was written: counted, and the page is gone
         * -ECANCELED  disk_cancel(), or disk_close()
         * -ENODEV     off
         * other -errno of the disk
         * Where a read didn't end with 0 the buffers have nothing that counts. */
        int result;
        bool is_unwritten; /* the disk's: disk_unwrite() */
};
#define DISK_IOV_MAX 256 /* of a page: planes; a quarter of the kernel's IOV_MAX */

struct disk_io;
typedef void (*disk_io_fn)(struct disk_io *io, void *data);

/* Heap memory, from disk_io_new(); the disk's from a call that took it until its callback returns,
 * then freed. */
struct disk_io {
        disk_io_fn done; /* when all pages have their results */
        void *data;      /* borrowed */
        uint32_t n;      /* pages */
        struct disk_io_page pages[];
};

/* n: 1 .. 1,024. NULL: no memory. */
struct disk_io *disk_io_new(uint32_t n);

/* One that wasn't taken; NULL does nothing. */
void disk_io_free(struct disk_io *io);

/*
 * Writes pages of the space's generation. Neighbours of the call become one operation where they
 * fill their slots. A page can be read once its callback was called; it comes back after a restart
 * of the daemon a moment later, when nothing else is to do or some dozens wait; after a power cut
 * once disk_sync() says so. The caller sees to it that a key isn't there twice.
 *
 * 0: taken. The rest, with nothing done and the io the caller's: DISK_FULL, for all of its pages;
 * DISK_BUSY; -EAGAIN: not loaded; -ENOMEM; -ENODEV: off.
 */
int disk_write(struct disk_space *s, struct disk_io *io);

/* Reads pages of the space by `at` and key, and compares their sums. 0, and the rest, as above. */
int disk_read(struct disk_space *s, struct disk_io *io);

/* Ends what hasn't begun, with -ECANCELED; for the rest the callback waits for the disk, as that
 * has the buffers. What was written is gone again. Of an io that was taken. */
void disk_cancel(struct disk_file *d, struct disk_io *io);

/* Page i of a write that was taken, before its callback: it isn't to be there, and its result is
 * -ENOENT. What is promised of pages that were taken out holds for it, too. */
void disk_unwrite(struct disk_file *d, struct disk_io *io, uint32_t i);

/*
 * Takes pages out, at once: reads that are under way end with -ENOENT, and what isn't there is
 * passed over. done NULL: nobody was promised anything (eviction), it is written down with others.
 * Otherwise done is called when it is durable, as disk_raise(). By tag: the caller looks through
 * disk_page_next(). 0 or -ENOMEM (nothing was done).
 */
struct disk_ref {
        uint64_t at;
        uint8_t key[DISK_KEY_BYTES];
};
int disk_remove(
        struct disk_space *s, const struct disk_ref *pages, size_t n, disk_fn done, void *data);

/* done: everything that was taken out until now, by whatever call, doesn't come back; as
 * disk_raise(). 0 or -ENOMEM. */
int disk_remove_sync(struct disk_file *d, disk_fn done, void *data);

/*
 * The pages of a space that is loaded: *iter 0 first; false at the end. Others may be written and
 * removed meanwhile. Borrowed until the next call of the disk.
 */
bool disk_page_next(const struct disk_space *s, uint64_t *iter, const struct disk_page **ret_page,
        uint64_t *ret_at);

/* The page that is there; NULL: none is, or not one of this key (NULL: any). Of a space that is
 * loaded. Borrowed until the next call of the disk. */
const struct disk_page *disk_page_at(
        const struct disk_space *s, uint64_t at, const uint8_t key[DISK_KEY_BYTES]);

/* All that has a result now will be there after a power cut. done: 0; -EIO, -ENODEV: not so. 0,
 * -ENOMEM, -ENODEV. */
int disk_sync(struct disk_file *d, disk_fn done, void *data);

/* The sum (base/sum.h) of the first `length` bytes. Any thread may call it. */
uint64_t disk_sum(const struct iovec *iov, unsigned n_iov, uint64_t length);

/* Memory for pages: aligned, zeroed. NULL: none. free() it. */
void *disk_buffer_new(uint64_t bytes);

/* ---- what it says of itself ------------------------------------------------------------------ */

enum disk_state { DISK_OK, DISK_FAILING, DISK_OFF };

struct disk_stats {
        enum disk_state state;
        char why[DISK_WHY_BYTES];  /* FAILING, OFF: a sentence; OK: "" */
        char note[DISK_WHY_BYTES]; /* what is less than could be: no O_DIRECT, no io_uring; "" */
        const char *engine;        /* "io_uring", "threads" */
        bool is_direct;
        uint64_t bytes, chunk_bytes; /* of the file */
        uint32_t n_chunks, n_free, n_freeing, n_spaces;
        uint64_t index_bytes; /* memory that entries take */
        uint64_t n_pages;     /* readable, of loaded spaces */
        /* Since disk_open(). */
        uint64_t n_read, n_written, n_removed; /* pages */
        uint64_t read_bytes, written_bytes;    /* of pages */
        uint64_t n_operations, n_index_blocks, n_flushes;
        uint64_t n_errors;    /* operations that failed */
        uint64_t n_late;      /* operations that were over the deadline */
        uint64_t n_bad;       /* pages whose bytes weren't theirs */
        uint64_t n_bad_found; /* of those: that were there at the start: a power cut leaves some */
        uint64_t n_damaged;   /* entries of the tables and indexes that were dropped at loading */
        uint64_t read_p50_nsec, read_p99_nsec, write_p50_nsec, write_p99_nsec; /* of operations,
                                within 1/8; 0: none were made */
};

void disk_stats(const struct disk_file *d, struct disk_stats *ret_stats);

/* Its state alone; whether it takes anything new now: it isn't off, and nothing is late. (While the
 * last operations failed it takes: the next one that works makes it ok again.) */
enum disk_state disk_state(const struct disk_file *d);
bool disk_takes(const struct disk_file *d);

/* Compares all it keeps with each other. True, or false with a sentence. For tests; O(slots). */
bool disk_check(const struct disk_file *d, char why[DISK_WHY_BYTES]);

#endif
