/*
 * The disk tier's store: one preallocated file with the cold pages of one device. It knows no
 * namespaces, tenants or page records. It has *spaces* (one for each kind of page of a namespace).
 * Each space gets *chunks* of the file, whose *slots* hold a page each. The store is a cache: a
 * page may be lost at any time, and is then a miss. docs/develop/DISK.md has the file's format.
 *
 *   page:   written -> (found again after a restart) -> removed, or found to be bad;
 *   chunk:  free -> in use by a space -> freeing (until that is durable, and not being read);
 *   disk:   ok <-> failing -> off.
 *
 * Guarantees, after a kill, a power cut, or a torn, reordered or lost write:
 *
 * - A read returns exactly the bytes written under that key, or none.
 * - Pages removed by disk_remove() or disk_raise() never reappear once their callback was called.
 * - A chunk that gets a new owner shows none of its former bytes: it is zeroed. If the file system
 *   can't zero, the former bytes don't match the new space's sums.
 *
 * *Failing*: the last operations ended with an error, or one is past the deadline; while one is
 * late, no new page is taken. *Off*: DISK_ERRORS_MAX errors in a row, an unwritable index, or a
 * deleted or shortened file. The file is then truncated to nothing, as removed pages could reappear
 * otherwise. All its pages are lost; the next disk_open() starts anew.
 *
 * Threads: all functions from one (the loop). Callbacks run only in disk_reap(). If a call returns
 * an error, or a condition, its callback never runs. The disk's own threads (disk-engine.h) make
 * all calls that may block, except those of disk_open() and disk_close().
 *
 * Memory: DISK_SLOT_MEMORY bytes for each slot of chunks in use by loaded spaces, in units of 4 KiB
 * for each chunk; 400 bytes for each chunk of the file, 250 for each space, and 64 KiB.
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
        DISK_BUSY,    /* not now: too many wait, the disk is late, a chunk is being freed */
};

enum disk_engine_kind {
        DISK_ENGINE_AUTO,    /* io_uring where the kernel allows it, else threads */
        DISK_ENGINE_URING,   /* io_uring, driven by one thread */
        DISK_ENGINE_THREADS, /* DISK_THREADS threads with preadv and pwritev */
};
/* Threads that read and write: as many as fio's operations in the comparison of `kvlease-bench
 * disk`. With pages of 256 KiB two threads wrote 0.55 of fio's rate, four 0.71. */
#define DISK_THREADS 8

/* Zeros: the defaults. */
struct disk_options {
        const char *device; /* name (UUID) of the pages' device, at most DISK_NAME_MAX; not NULL */
        enum disk_engine_kind engine;
        unsigned depth; /* operations running at once, <= DISK_DEPTH_MAX; 0: 32. A quarter more may
                           wait in the engine */
        unsigned waiting_pages; /* waiting and running pages at most, else DISK_BUSY; 0: 4096 */
        unsigned deadline_msec; /* time of an operation after which the disk is late; 0: 10,000 */
        /* Chunk size (a multiple of DISK_ALIGN; 0: 64 MiB) and number of spaces (0: 1,024) of a new
         * file. An existing file keeps its own. Large pages waste up to a slot of each chunk. */
        uint64_t chunk_bytes;
        unsigned max_spaces;
};

/*
 * Opens or makes the file (mode 0600, `bytes` preallocated), and starts the engine. Blocks for
 * reads of some KiB for each GiB, and for the preallocation of a new file.
 *
 *   0         the file's pages are kept; load its spaces;
 *   DISK_NEW  the file is empty; `why` says so if another file was given up: one with another
 *             version or size, or with a damaged or unfinished superblock;
 *   -EBUSY    another process has it open;
 *   -EXDEV    it belongs to another device;
 *   -EEXIST   the file isn't a disk store's: it is left alone;
 *   -EPERM    it belongs to another user;
 *   -EOPNOTSUPP  the file system can't preallocate; or io_uring was asked for, and isn't available;
 *   -ENOSPC   `why` has the path, the wanted bytes and the free bytes;
 *   -EINVAL   not a regular file, or `bytes` is too small for a chunk;
 *   other -errno.
 *
 * `why` is a sentence with the path, after an error and with DISK_NEW ("" for a new file).
 * disk_stats() has a note if I/O goes through the page cache. After an error nothing is open, and a
 * file made by this call is removed.
 */
int disk_open(const char *path, uint64_t bytes, const struct disk_options *options,
        struct disk_file **ret_disk, char why[DISK_WHY_BYTES]);

/*
 * Writes all entries and makes them durable, for the next disk_open(). Waiting operations end with
 * -ECANCELED; running ones are waited for, at most the deadline. Callbacks run meanwhile. Spaces
 * are freed. Returns false if the disk hangs: remaining callbacks won't run, and threads and their
 * buffers are left behind. The process should then end by _exit().
 */
bool disk_close(struct disk_file *d);

/* Readable if disk_reap() has something to do. Borrowed. */
int disk_fd(const struct disk_file *d);

/* Runs callbacks of operations that were done when it began. Returns their number. */
unsigned disk_reap(struct disk_file *d);

/* Time (CLOCK_MONOTONIC, ns) when a running operation will be late: call disk_reap() then, which
 * updates the state. UINT64_MAX: none runs. */
uint64_t disk_deadline_nsec(const struct disk_file *d);

/* ---- spaces ---------------------------------------------------------------------------------- */

/*
 * A space has pages of one tenant, in slots of one size. It is the disk's, and lives until
 * disk_drop() or disk_close(). It is in the file soon after it was made.
 */
struct disk_space_info {
        uint8_t id[DISK_ID_BYTES], owner[DISK_ID_BYTES];
        uint64_t generation;
        uint32_t slot_bytes;
        uint32_t n_chunks, n_freeing; /* in use by it; being freed. Both are charged to its owner */
        uint64_t n_pages;             /* readable; 0 before it is loaded */
        uint64_t used_bytes;          /* their size, in units of DISK_ALIGN */
        bool is_loaded;
};

/* `id` names the space forever; `owner` isn't interpreted. NULL: there is none. Borrowed. */
struct disk_space *disk_space_find(struct disk_file *d, const uint8_t id[DISK_ID_BYTES]);

/* Iterates over all spaces, also those not asked for since the start: NULL first, NULL at the
 * end. */
struct disk_space *disk_space_next(struct disk_file *d, struct disk_space *s);

/*
 * Makes a space, loaded. slot_bytes: size of its largest page, rounded up to DISK_ALIGN here; a
 * chunk must fit one. Returns 0; -EEXIST; -EINVAL; -ENOSPC: the file has no row for it; -ENOMEM;
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
 * written. Bad entries are dropped and counted; a chunk whose index can't be read is freed. Returns
 * 0: started; -EALREADY: loaded, or being loaded; -ENOMEM; -ENODEV. Callback: 0; -ECANCELED:
 * raised, dropped or closed meanwhile (raised: loaded, and empty); -ENODEV.
 */
int disk_space_load(struct disk_space *s, disk_fn done, void *data);

/*
 * Drops the space's pages at once: running reads and writes end with -ENOENT. generation: more than
 * it has. `done` (not NULL) is called when that is durable: 0, or -EIO: the disk is off and its
 * file couldn't be truncated, so pages may reappear with it. Returns 0, -ENOMEM (nothing was done)
 * or -EINVAL: generation too low. Works if the disk is off, too.
 */
int disk_raise(struct disk_space *s, uint64_t generation, disk_fn done, void *data);

/* disk_raise(), and frees the space: the pointer is invalid when this returns 0. A space with the
 * same id can be made at once, of any generation. Returns 0 or -ENOMEM (nothing was done). */
int disk_drop(struct disk_space *s, disk_fn done, void *data);

/*
 * Frees the space's least recently used chunk, for other spaces. Each of its pages is first named
 * to `gone`, which mustn't call back. Pages of a write whose callback is still due may be among
 * them: their result is -ENOENT. Not durable: after a power cut the chunk may be the space's again.
 * Returns 0; DISK_BUSY: it has no chunk to give, or isn't loaded.
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
        struct disk_page page; /* write: all. read: key; the rest is set */
        uint64_t at;           /* its place. read: given; write: set with result 0 */
        /* Its bytes: n_iov <= DISK_IOV_MAX pieces, aligned to DISK_ALIGN, all but the last one a
         * multiple of it long. Together at least round_up(length, DISK_ALIGN). Borrowed, with their
         * memory. Bytes behind `length` are zeroed, by a write too. */
        const struct iovec *iov;
        unsigned n_iov;
        /*
         * 0
         *  -ENOENT     read: it isn't there (any more). write: its generation was raised;
         *  -EBADMSG    read: the bytes differ from the written ones: counted, and the page is
         *  removed;
         *  -ECANCELED  disk_cancel(), or disk_close();
         *  -ENODEV     off;
         *  other -errno of the disk.
         * If a read didn't end with 0, the contents of its buffers are undefined.
         */
        int result;
        bool is_unwritten; /* internal: disk_unwrite() */
};
#define DISK_IOV_MAX 256 /* of a page: planes; a quarter of the kernel's IOV_MAX */

struct disk_io;
typedef void (*disk_io_fn)(struct disk_io *io, void *data);

/* Heap memory, from disk_io_new(). A call that takes it owns it until its callback returns, and
 * then frees it. */
struct disk_io {
        disk_io_fn done; /* when all pages have their results */
        void *data;      /* borrowed */
        uint32_t n;      /* pages */
        struct disk_io_page pages[];
};

/* n: 1 .. 1,024. NULL: no memory. */
struct disk_io *disk_io_new(uint32_t n);

/* Frees one that no call took. Nothing for NULL. */
void disk_io_free(struct disk_io *io);

/*
 * Writes pages of the space's generation. Neighbours of the call become one operation if they fill
 * their slots. A page can be read once its callback was called. It survives a restart of the daemon
 * a moment later, when the queue is empty or some dozens wait. It survives a power cut once
 * disk_sync() reports that. The caller must not write a key that is there.
 *
 * Returns 0: taken. Otherwise nothing was done and the io is the caller's: DISK_FULL, for all of
 * its pages; DISK_BUSY; -EAGAIN: not loaded; -ENOMEM; -ENODEV: off.
 */
int disk_write(struct disk_space *s, struct disk_io *io);

/* Reads pages of the space by `at` and key, and compares their sums. Returns as disk_write(). */
int disk_read(struct disk_space *s, struct disk_io *io);

/* Ends operations of a taken io that haven't begun, with -ECANCELED. The callback waits for running
 * ones, which use the buffers. Pages already written are removed. */
void disk_cancel(struct disk_file *d, struct disk_io *io);

/* Removes page i of a taken write before its callback: its result is -ENOENT, with the guarantees
 * of disk_remove(). */
void disk_unwrite(struct disk_file *d, struct disk_io *io, uint32_t i);

/*
 * Removes pages at once: running reads end with -ENOENT, and missing pages are skipped. done NULL:
 * without a guarantee (eviction), written with later changes. Else done is called when it is
 * durable, as with disk_raise(). To remove by tag, the caller iterates by disk_page_next(). Returns
 * 0 or -ENOMEM (nothing was done).
 */
struct disk_ref {
        uint64_t at;
        uint8_t key[DISK_KEY_BYTES];
};
int disk_remove(
        struct disk_space *s, const struct disk_ref *pages, size_t n, disk_fn done, void *data);

/* Calls `done` when all removals until now, by any call, are durable, as disk_raise(). Returns 0 or
 * -ENOMEM. */
int disk_remove_sync(struct disk_file *d, disk_fn done, void *data);

/*
 * Iterates over the pages of a loaded space: *iter 0 first; false at the end. Other pages may be
 * written and removed meanwhile. Borrowed until the next call of the disk.
 */
bool disk_page_next(const struct disk_space *s, uint64_t *iter, const struct disk_page **ret_page,
        uint64_t *ret_at);

/* The page at a place of a loaded space; NULL: none, or one with another key (key NULL: any).
 * Borrowed until the next call of the disk. */
const struct disk_page *disk_page_at(
        const struct disk_space *s, uint64_t at, const uint8_t key[DISK_KEY_BYTES]);

/* Calls `done` when all pages that have a result now are durable: 0; -EIO, -ENODEV: they aren't.
 * Returns 0, -ENOMEM or -ENODEV. */
int disk_sync(struct disk_file *d, disk_fn done, void *data);

/* The sum (base/sum.h) of the first `length` bytes. Any thread may call it. */
uint64_t disk_sum(const struct iovec *iov, unsigned n_iov, uint64_t length);

/* Memory for pages: aligned, zeroed. NULL: none. free() it. */
void *disk_buffer_new(uint64_t bytes);

/* ---- figures --------------------------------------------------------------------------------- */

enum disk_state { DISK_OK, DISK_FAILING, DISK_OFF };

struct disk_stats {
        enum disk_state state;
        char why[DISK_WHY_BYTES];  /* FAILING, OFF: a sentence; OK: "" */
        char note[DISK_WHY_BYTES]; /* missing features: no O_DIRECT, no io_uring; "" */
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
        uint64_t n_late;      /* operations past the deadline */
        uint64_t n_bad;       /* pages whose sums didn't match */
        uint64_t n_bad_found; /* of those: pages found at the start; a power cut leaves some */
        uint64_t n_damaged;   /* entries of the tables and indexes that were dropped at loading */
        uint64_t read_p50_nsec, read_p99_nsec, write_p50_nsec, write_p99_nsec; /* of operations,
                                within 1/8; 0: none were made */
};

void disk_stats(const struct disk_file *d, struct disk_stats *ret_stats);

/* The state alone; whether new pages are taken now: the disk isn't off, and no operation is late.
 * (A failing disk takes pages: the next success makes it ok again.) */
enum disk_state disk_state(const struct disk_file *d);
bool disk_takes(const struct disk_file *d);

/* Checks the consistency of all its data. Returns true, or false with a sentence. For tests;
 * O(slots). */
bool disk_check(const struct disk_file *d, char why[DISK_WHY_BYTES]);

#endif
