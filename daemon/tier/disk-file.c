/* The file: making, opening, locking, reading its tables, closing. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/dir.h"
#include "base/fault-point.h"
#include "base/fd.h"
#include "base/map.h"
#include "base/parse.h"
#include "daemon/tier/disk-impl.h"

#define DEPTH         32
#define WAITING_PAGES 4096
#define DEADLINE_MSEC (10 * 1000)
#define CHUNK_BYTES   (64ull << 20)
#define SPACES        1024

#define WAITING_MAX 32768u /* readers of a slot are counted in 16 bits */

/* ---- sentences ------------------------------------------------------------------------------- */

static int say_errno(char why[DISK_WHY_BYTES], int r, const char *path, const char *what)
{
        return say_why(why, DISK_WHY_BYTES, r, "%s %s: %s", what, path, strerror(-r));
}

/* ---- plain I/O before there is an engine ----------------------------------------------------- */

static int write_at(int fd, const void *from, size_t bytes, uint64_t offset)
{
        for (size_t done = 0; done < bytes;) {
                ssize_t n =
                        pwrite(fd, (const char *)from + done, bytes - done, (off_t)(offset + done));

                if (n < 0 && errno != EINTR)
                        return -errno;
                done += n > 0 ? (size_t)n : 0;
        }
        return 0;
}

/* ---- making one ------------------------------------------------------------------------------ */

static uint64_t free_bytes(int fd)
{
        struct statvfs v;

        return fstatvfs(fd, &v) < 0 ? 0 : (uint64_t)v.f_bavail * v.f_frsize;
}

static int allocate(int fd, const char *path, uint64_t bytes, char why[DISK_WHY_BYTES])
{
        if (fallocate(fd, 0, 0, (off_t)bytes) == 0)
                return 0;
        if (errno == ENOSPC)
                return say_why(why, DISK_WHY_BYTES, -ENOSPC,
                        "no room for %s: %llu bytes are wanted, %llu are free", path,
                        (unsigned long long)bytes, (unsigned long long)free_bytes(fd));
        if (errno == EOPNOTSUPP)
                return say_why(why, DISK_WHY_BYTES, -EOPNOTSUPP,
                        "the file system of %s can't preallocate (fallocate): it needs one that can, as ext4, xfs or tmpfs",
                        path);
        return say_errno(why, -errno, path, "can't preallocate");
}

static struct disk_super new_super(uint64_t bytes, const struct disk_options *o)
{
        struct disk_super s = {
                .magic = DISK_MAGIC,
                .version = DISK_VERSION,
                .max_spaces = o->max_spaces ? o->max_spaces : SPACES,
                .bytes = bytes,
                .chunk_bytes = o->chunk_bytes ? o->chunk_bytes : CHUNK_BYTES,
                .nonce = disk_random(),
        };

        s.n_chunks = disk_layout_of(bytes, s.chunk_bytes, s.max_spaces).n_chunks;
        memcpy(s.device, o->device, strlen(o->device));
        DISK_SEAL(&s, 0);
        return s;
}

/* Writes the superblock; allocated space reads as zeros, so the tables are empty. */
static int fill_file(int fd, const struct disk_super *super)
{
        uint8_t block[DISK_ALIGN] = {0};
        int r;

        memcpy(block, super, sizeof(*super));
        r = write_at(fd, block, sizeof(block), 0);
        return r == 0 && fsync(fd) < 0 ? -errno : r;
}

/* The directory of the file at `path`: owned. NULL: no memory. */
static char *directory_of(const char *path)
{
        const char *slash = strrchr(path, '/');

        if (!slash)
                return strdup(".");
        return strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

static int sync_directory(const char *path)
{
        _cleanup_free_ char *dir = directory_of(path);
        _cleanup_fd_ int fd = -1;

        if (!dir)
                return -ENOMEM;
        fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

/* Checks that no other user can replace the file. */
static int check_directory(const char *path, char why[DISK_WHY_BYTES])
{
        _cleanup_free_ char *dir = directory_of(path);
        char what[DIR_WHY_BYTES];
        int r;

        if (!dir)
                return say_errno(why, -ENOMEM, path, "can't open");
        r = dir_check(dir, DIR_STICKY, 0, what);
        return r < 0 ? say_why(why, DISK_WHY_BYTES, r, "can't use the directory of %s: %s", path,
                               what)
                     : 0;
}

/* Checks a file that will hold tenants' bytes: it has no other owner and no other name. */
static int check_file(int fd, const char *path, char why[DISK_WHY_BYTES])
{
        struct stat st;

        if (fstat(fd, &st) < 0)
                return say_errno(why, -errno, path, "can't look at");
        if (!S_ISREG(st.st_mode))
                return say_why(why, DISK_WHY_BYTES, -EINVAL, "%s is no regular file", path);
        if (st.st_uid != geteuid())
                return say_why(why, DISK_WHY_BYTES, -EPERM, "%s is another user's", path);
        if (st.st_nlink > 1)
                return say_why(why, DISK_WHY_BYTES, -EPERM,
                        "%s has a second name (a hard link): remove that", path);
        return fchmod(fd, 0600) < 0 ? say_errno(why, -errno, path, "can't protect") : 0;
}

static int lock(int fd)
{
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
                return 0;
        return errno == EWOULDBLOCK ? -EBUSY : -errno;
}

/* Makes the file under another name and renames it: a file of its name is always complete. Returns
 * the fd. */
static int make_beside(const char *path, const char *beside, const struct disk_super *super,
        char why[DISK_WHY_BYTES])
{
        _cleanup_fd_ int fd =
                open(beside, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
        int r;

        if (fd < 0)
                return say_errno(why, -errno, path, "can't make");
        r = check_file(fd, beside, why);
        if (r < 0)
                return r;
        r = lock(fd);
        if (r < 0)
                return say_errno(why, r, beside, "can't lock");
        if (ftruncate(fd, 0) < 0)
                return say_errno(why, -errno, path, "can't make");
        r = allocate(fd, path, super->bytes, why);
        if (r < 0)
                return r;
        FAULT_POINT("disk-before-superblock");
        r = fill_file(fd, super);
        FAULT_POINT("disk-after-superblock");
        if (r == 0 && rename(beside, path) < 0)
                r = -errno;
        if (r == 0)
                r = sync_directory(path);
        FAULT_POINT("disk-after-rename");
        return r < 0 ? say_errno(why, r, path, "can't make") : fd_take(&fd);
}

static int make_file(
        struct disk_file *d, uint64_t bytes, const struct disk_options *o, char why[DISK_WHY_BYTES])
{
        _cleanup_free_ char *beside = NULL;
        int fd;

        d->super = new_super(bytes, o);
        if (asprintf(&beside, "%s.new", d->path) < 0)
                return -ENOMEM;
        fd = make_beside(d->path, beside, &d->super, why);
        if (fd < 0) {
                if (fd != -EBUSY)
                        (void)unlink(beside);
                return fd;
        }
        fd_close(d->fd);
        d->fd = fd;
        return DISK_NEW;
}

/* ---- one that is there ----------------------------------------------------------------------- */

/* The descriptor; -ENOENT: there is none. */
static int open_there(const char *path, char why[DISK_WHY_BYTES])
{
        _cleanup_fd_ int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        int r;

        if (fd < 0)
                return errno == ENOENT ? -ENOENT : say_errno(why, -errno, path, "can't open");
        r = check_file(fd, path, why);
        return r < 0 ? r : fd_take(&fd);
}

/* Judges the file. Returns 0: usable; DISK_NEW with a sentence: it must be given up; -errno with
 * one. */
static int judge(const struct disk_file *d, uint64_t bytes, const struct disk_options *o,
        char why[DISK_WHY_BYTES])
{
        const struct disk_super *s = &d->super;
        struct stat st;

        if (s->magic != DISK_MAGIC)
                return say_why(why, DISK_WHY_BYTES, -EEXIST,
                        "%s isn't a file of this store: left alone", d->path);
        if (s->version != DISK_VERSION)
                return say_why(why, DISK_WHY_BYTES, DISK_NEW,
                        "%s has version %u, not %u: started anew", d->path, s->version,
                        DISK_VERSION);
        if (!DISK_IS_WHOLE(s, 0))
                return say_why(why, DISK_WHY_BYTES, DISK_NEW,
                        "the superblock of %s is damaged: started anew", d->path);
        if (strcmp(s->device, o->device) != 0)
                return say_why(why, DISK_WHY_BYTES, -EXDEV,
                        "%s has pages of device %s, not %s: left alone", d->path, s->device,
                        o->device);
        if (fstat(d->fd, &st) < 0)
                return say_errno(why, -errno, d->path, "can't look at");
        if (s->bytes != bytes || (uint64_t)st.st_size < bytes)
                return say_why(why, DISK_WHY_BYTES, DISK_NEW,
                        "%s has %llu bytes, not %llu: started anew", d->path,
                        (unsigned long long)MIN(s->bytes, (uint64_t)st.st_size),
                        (unsigned long long)bytes);
        return 0;
}

static bool super_is_sane(const struct disk_super *s)
{
        return s->chunk_bytes >= DISK_CHUNK_BYTES_MIN && s->chunk_bytes <= DISK_CHUNK_BYTES_MAX &&
               s->chunk_bytes % DISK_ALIGN == 0 && s->max_spaces > 0 &&
               s->max_spaces <= DISK_SPACES_MAX && s->n_chunks > 0 &&
               s->n_chunks == disk_layout_of(s->bytes, s->chunk_bytes, s->max_spaces).n_chunks;
}

/* judge(), after locking. An empty file was discarded (disk_go_off()). */
static int look_at_file(
        struct disk_file *d, uint64_t bytes, const struct disk_options *o, char why[DISK_WHY_BYTES])
{
        struct stat st;
        int r = lock(d->fd);

        if (r < 0)
                return say_errno(why, r, d->path, "can't lock");
        if (fstat(d->fd, &st) == 0 && st.st_size == 0)
                return say_why(
                        why, DISK_WHY_BYTES, DISK_NEW, "%s was discarded: started anew", d->path);
        r = fd_read_at(d->fd, &d->super, sizeof(d->super), 0);
        if (r == -ENODATA)
                return say_why(why, DISK_WHY_BYTES, -EEXIST,
                        "%s isn't a file of this store: left alone", d->path);
        if (r < 0)
                return say_errno(why, r, d->path, "can't read");
        r = judge(d, bytes, o, why);
        if (r == 0 && !super_is_sane(&d->super))
                return say_why(why, DISK_WHY_BYTES, DISK_NEW,
                        "the superblock of %s makes no sense: started anew", d->path);
        return r;
}

/* 0; DISK_NEW; -errno. The file is locked then. */
static int open_file(
        struct disk_file *d, uint64_t bytes, const struct disk_options *o, char why[DISK_WHY_BYTES])
{
        int r = check_directory(d->path, why);

        if (r < 0)
                return r;
        d->fd = open_there(d->path, why);
        if (d->fd == -ENOENT) {
                d->fd = -1;
                return make_file(d, bytes, o, why);
        }
        if (d->fd < 0)
                return d->fd;
        r = look_at_file(d, bytes, o, why);
        if (r != DISK_NEW)
                return r;
        /* Its room is needed. */
        if (ftruncate(d->fd, 0) < 0)
                return say_errno(why, -errno, d->path, "can't truncate");
        return make_file(d, bytes, o, why);
}

/*
 * Opens a second descriptor for I/O: the io_uring of a killed process keeps it a moment longer than
 * the process lives, and would keep the lock.
 */
static int reopen(struct disk_file *d)
{
        char path[64];

        d->lock_fd = d->fd;
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", d->lock_fd);
        d->fd = open(path, O_RDWR | O_CLOEXEC);
        return d->fd < 0 ? -errno : 0;
}

/* Bypasses the page cache, if the file system allows it. */
static void set_direct(struct disk_file *d)
{
        _cleanup_free_ void *block = disk_buffer_new(DISK_ALIGN);
        int flags = fcntl(d->fd, F_GETFL);

        if (block && flags >= 0 && fcntl(d->fd, F_SETFL, flags | O_DIRECT) == 0) {
                d->is_direct = fd_read_at(d->fd, block, DISK_ALIGN, 0) == 0;
                if (!d->is_direct)
                        (void)fcntl(d->fd, F_SETFL, flags);
        }
        if (!d->is_direct)
                (void)say_why(d->note, sizeof(d->note), 0,
                        "%s is read and written through the page cache: its file system has no O_DIRECT",
                        d->path);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static struct disk_block *new_blocks(const void *memory, uint32_t n, uint64_t at)
{
        struct disk_block *b = calloc(n, sizeof(*b));

        for (uint32_t i = 0; b && i < n; i++) {
                list_init(&b[i].link);
                b[i].offset = at + (uint64_t)i * DISK_ALIGN;
                b[i].memory = (const char *)memory + (size_t)i * DISK_ALIGN;
        }
        return b;
}

static int new_tables(struct disk_file *d)
{
        const struct disk_layout *l = &d->layout;

        d->space_records = disk_buffer_new((uint64_t)l->n_space_blocks * DISK_ALIGN);
        d->chunk_records = disk_buffer_new((uint64_t)l->n_chunk_blocks * DISK_ALIGN);
        d->space_blocks = new_blocks(d->space_records, l->n_space_blocks, l->spaces_at);
        d->chunk_blocks = new_blocks(d->chunk_records, l->n_chunk_blocks, l->chunks_at);
        d->rows = calloc(d->super.max_spaces, sizeof(struct disk_space *));
        d->chunks = calloc(l->n_chunks, sizeof(*d->chunks));
        if (!d->space_records || !d->chunk_records || !d->space_blocks || !d->chunk_blocks ||
                !d->rows || !d->chunks)
                return -ENOMEM;
        for (uint32_t i = 0; i < l->n_chunks; i++) {
                struct disk_chunk *c = &d->chunks[i];

                c->number = i;
                c->contents = CONTENTS_ANY;
                list_init(&c->link);
                list_init(&c->room);
                list_init(&c->waiting);
                list_append(&d->free, &c->link);
        }
        d->n_free = l->n_chunks;
        return 0;
}

static void drop_space_record(struct disk_file *d, uint32_t row)
{
        memset(&d->space_records[row], 0, sizeof(d->space_records[row]));
        disk_touch(d, &d->space_blocks[row / DISK_BLOCK_SPACES]);
        d->counts.n_damaged++;
}

static bool record_is_right(
        const struct disk_file *d, const struct disk_space_record *r, uint32_t row)
{
        return DISK_IS_WHOLE(r, d->super.nonce + row) && r->instance != 0 &&
               r->instance != MAP_KEY_NONE && r->slot_bytes > 0 &&
               r->slot_bytes % DISK_ALIGN == 0 &&
               disk_chunk_slots(d->super.chunk_bytes, r->slot_bytes) > 0;
}

static int read_space(struct disk_file *d, uint32_t row)
{
        const struct disk_space_record *r = &d->space_records[row];
        struct disk_space *s;

        if (disk_is_zero(r, sizeof(*r)))
                return 0;
        if (!record_is_right(d, r, row)) {
                drop_space_record(d, row);
                return 0;
        }
        s = disk_space_find(d, r->id);
        if (s) { /* dropped and made again before a power cut: it's unknown which is newer */
                uint32_t other = s->row;

                disk_space_free(s);
                drop_space_record(d, other);
                drop_space_record(d, row);
                return 0;
        }
        s = disk_space_add(d, row);
        if (!s)
                return -ENOMEM;
        memcpy(s->id, r->id, sizeof(s->id));
        memcpy(s->owner, r->owner, sizeof(s->owner));
        s->instance = r->instance;
        s->generation = r->generation;
        s->slot_bytes = r->slot_bytes;
        s->chunk_slots = disk_chunk_slots(d->super.chunk_bytes, r->slot_bytes);
        return 0;
}

/* Reads a chunk's record. A chunk is free if its space was dropped, or has another generation. */
static void read_chunk(struct disk_file *d, const struct map *instances, uint32_t number)
{
        struct disk_chunk_record *r = &d->chunk_records[number];
        bool is_whole = DISK_IS_WHOLE(r, d->super.nonce + number);
        const uint64_t *row = NULL;

        if (disk_is_zero(r, sizeof(*r)))
                return;
        if (is_whole && r->instance != MAP_KEY_NONE)
                row = map_find(instances, r->instance);
        if (row) {
                d->chunks[number].nonce = r->nonce;
                disk_chunk_adopt(d->rows[*row], &d->chunks[number]);
                return;
        }
        d->counts.n_damaged += !is_whole;
        *r = (struct disk_chunk_record){0};
        disk_touch(d, &d->chunk_blocks[number / DISK_BLOCK_CHUNKS]);
}

static int read_spaces(struct disk_file *d, struct map *instances)
{
        int r = 0;

        for (uint32_t i = 0; i < d->super.max_spaces && r == 0; i++)
                r = read_space(d, i);
        for (uint32_t i = 0; i < d->super.max_spaces && r == 0; i++)
                if (d->rows[i])
                        r = map_put(instances, d->rows[i]->instance, i);
        return r;
}

static int read_tables(struct disk_file *d)
{
        const struct disk_layout *l = &d->layout;
        struct map instances;
        int r;

        r = fd_read_at(
                d->fd, d->space_records, (size_t)l->n_space_blocks * DISK_ALIGN, l->spaces_at);
        if (r == 0)
                r = fd_read_at(d->fd, d->chunk_records, (size_t)l->n_chunk_blocks * DISK_ALIGN,
                        l->chunks_at);
        if (r < 0)
                return r;
        map_init(&instances);
        r = read_spaces(d, &instances);
        for (uint32_t i = 0; i < l->n_chunks && r == 0; i++)
                read_chunk(d, &instances, i);
        map_deinit(&instances);
        return r;
}

/* ---- the object ------------------------------------------------------------------------------ */

static void free_disk(struct disk_file *d)
{
        for (uint32_t i = 0; d->chunks && i < d->layout.n_chunks; i++)
                disk_chunk_memory_free(d, &d->chunks[i]);
        while (!list_is_empty(&d->spaces))
                disk_space_free(list_first(&d->spaces, struct disk_space, link));
        for (size_t i = 0; i < DISK_BLOCK_OPS; i++)
                free(d->block_ops[i].buffer);
        free(d->space_records);
        free(d->chunk_records);
        free(d->space_blocks);
        free(d->chunk_blocks);
        free(d->rows);
        free(d->chunks);
        fd_close(d->fd);
        fd_close(d->lock_fd);
        fd_close(d->event_fd);
        free(d->path);
        free(d);
}

static int new_disk(const char *path, const struct disk_options *o, struct disk_file **ret_disk)
{
        struct disk_file *d = calloc(1, sizeof(*d));
        bool is_complete;

        if (!d)
                return -ENOMEM;
        d->fd = d->lock_fd = -1;
        d->depth = o->depth ? o->depth : DEPTH;
        d->n_given_max = d->depth + d->depth / 4;
        d->waiting_max = MIN(o->waiting_pages ? o->waiting_pages : WAITING_PAGES, WAITING_MAX);
        d->deadline_msec = o->deadline_msec ? o->deadline_msec : DEADLINE_MSEC;
        list_init(&d->free);
        list_init(&d->freeing);
        list_init(&d->spaces);
        list_init(&d->urgent);
        list_init(&d->queue);
        list_init(&d->flight);
        list_init(&d->over);
        list_init(&d->finished);
        disk_meta_init(d);
        d->path = strdup(path);
        d->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        is_complete = d->path && d->event_fd >= 0;
        for (size_t i = 0; i < DISK_BLOCK_OPS; i++) {
                d->block_ops[i].buffer = disk_buffer_new(DISK_ALIGN);
                is_complete = is_complete && d->block_ops[i].buffer;
        }
        if (!is_complete) {
                int r = d->event_fd < 0 ? -EMFILE : -ENOMEM;

                free_disk(d);
                return r;
        }
        *ret_disk = d;
        return 0;
}

static bool options_are_right(const struct disk_options *o)
{
        bool has_chunks = o->chunk_bytes == 0 || (o->chunk_bytes % DISK_ALIGN == 0 &&
                                                         o->chunk_bytes >= DISK_CHUNK_BYTES_MIN &&
                                                         o->chunk_bytes <= DISK_CHUNK_BYTES_MAX);

        return has_chunks && o->max_spaces <= DISK_SPACES_MAX && o->depth <= DISK_DEPTH_MAX &&
               o->device && strlen(o->device) <= DISK_NAME_MAX;
}

/* After the file is open. */
static int prepare_file(struct disk_file *d, bool is_new, char why[DISK_WHY_BYTES])
{
        int r;

        d->layout = disk_layout_of(d->super.bytes, d->super.chunk_bytes, d->super.max_spaces);
        r = reopen(d);
        if (r == 0)
                r = new_tables(d);
        if (r == 0)
                r = read_tables(d);
        if (r < 0)
                return say_errno(why, r, d->path, "can't read the tables of");
        for (uint32_t i = 0; is_new && i < d->layout.n_chunks; i++)
                d->chunks[i].contents = CONTENTS_NONE;
        set_direct(d);
        return 0;
}

int disk_open_with(const char *path, uint64_t bytes, const struct disk_options *options,
        disk_engine_start_fn start, void *data, struct disk_file **ret_disk,
        char why[DISK_WHY_BYTES])
{
        struct disk_file *d;
        int opened, r;

        why[0] = '\0';
        bytes = bytes / DISK_ALIGN * DISK_ALIGN;
        if (!options_are_right(options))
                return say_why(why, DISK_WHY_BYTES, -EINVAL, "wrong options for %s", path);
        if (new_super(bytes, options).n_chunks == 0)
                return say_why(why, DISK_WHY_BYTES, -EINVAL,
                        "%llu bytes are too few for %s: there must be a chunk",
                        (unsigned long long)bytes, path);
        r = new_disk(path, options, &d);
        if (r < 0)
                return say_errno(why, r, path, "can't open");
        r = opened = open_file(d, bytes, options, why);
        if (r >= 0)
                r = prepare_file(d, opened == DISK_NEW, why);
        if (r == 0) {
                r = start(d->fd, d->event_fd, d->depth, data, &d->engine);
                if (r < 0)
                        say_errno(why, r, path, "can't start what reads and writes");
        }
        if (r < 0) {
                free_disk(d);
                return r;
        }
        *ret_disk = d;
        return opened;
}

struct choice {
        enum disk_engine_kind kind;
        int uring_result;
};

static int start_engine(
        int fd, int event_fd, unsigned depth, void *data, struct disk_engine **ret_engine)
{
        struct choice *c = data;

        if (c->kind != DISK_ENGINE_THREADS)
                c->uring_result = disk_uring_start(fd, event_fd, depth, NULL, ret_engine);
        if (c->kind == DISK_ENGINE_URING || (c->kind == DISK_ENGINE_AUTO && c->uring_result == 0))
                return c->uring_result;
        return disk_threads_start(fd, event_fd, depth, NULL, ret_engine);
}

int disk_open(const char *path, uint64_t bytes, const struct disk_options *options,
        struct disk_file **ret_disk, char why[DISK_WHY_BYTES])
{
        struct choice choice = {.kind = options->engine};
        int r = disk_open_with(path, bytes, options, start_engine, &choice, ret_disk, why);

        if (r < 0 && (r == -ENOSYS || r == -EPERM) && r == choice.uring_result)
                return say_why(why, DISK_WHY_BYTES, -EOPNOTSUPP, "no io_uring for %s: %s", path,
                        strerror(-r));
        if (r >= 0 && choice.uring_result < 0) {
                size_t len = strlen((*ret_disk)->note);

                (void)snprintf((*ret_disk)->note + len, DISK_WHY_BYTES - len,
                        "%sno io_uring (%s): threads read and write instead", len ? "; " : "",
                        strerror(-choice.uring_result));
        }
        return r;
}

/* ---- closing --------------------------------------------------------------------------------- */

/* Waits for operations. Returns true if some can be reaped. */
static bool wait_some(struct disk_file *d, uint64_t until_nsec)
{
        uint64_t now = clock_now_nsec();
        struct pollfd p = {.fd = d->event_fd, .events = POLLIN};
        uint64_t msec = now < until_nsec ? (until_nsec - now) / NSEC_PER_MSEC + 1 : 0;

        if (poll(&p, 1, (int)MIN(msec, (uint64_t)INT32_MAX)) <= 0)
                return false;
        (void)disk_reap(d);
        return true;
}

static bool is_idle(const struct disk_file *d)
{
        bool has_work = d->n_flight > 0 || !list_is_empty(&d->urgent) ||
                        !list_is_empty(&d->queue) || !list_is_empty(&d->over) ||
                        !list_is_empty(&d->finished) || !list_is_empty(&d->ready);

        if (d->is_off)
                return !has_work && d->discard == DISCARD_DONE;
        return !has_work && d->in_round == ROUND_NONE && list_is_empty(&d->next) &&
               list_is_empty(&d->dirty);
}

static void nothing(int result, void *data)
{
}

bool disk_close(struct disk_file *d)
{
        uint64_t until = clock_now_nsec() + d->deadline_msec * NSEC_PER_MSEC;

        disk_cancel_waiting(d, -ECANCELED);
        if (!d->is_off)
                (void)disk_sync(d, nothing, NULL);
        disk_wake(d);
        while (!is_idle(d) && wait_some(d, until))
                ;
        if (!is_idle(d) || !d->engine->ops->close(d->engine, d->deadline_msec))
                return false;
        free_disk(d);
        return true;
}
