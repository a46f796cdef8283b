/*
 * The host device: extents are memory files; no GPU is needed.
 *
 * A file gets pages when they are first touched, so creating an extent is cheap. The daemon's
 * budget bounds memory, not this backend. Destroying frees the pages at once, and the kernel zeroes
 * all pages that it hands out. So a host extent never moves from one tenant to another: a fresh one
 * is made instead, which is faster than zeroing.
 *
 * Mappings are not inherited by fork: a child could otherwise read an extent after the parent
 * returned it at a safe point. They are left out of core dumps, for privacy and size.
 */
#include "gpu/device.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "base/parse.h"

/* The granularity of GPUs, so that one geometry of extent sets suits all devices; also the size of
 * a huge page on x86-64. */
#define HOST_GRANULARITY_BYTES (2ULL << 20)

/* The kernel's smallest page on any architecture. */
#define PAGE_BYTES_MIN 4096

/* Bytes that a fault maps, if they exist: fault_around_bytes of mm/memory.c, unless debugfs changed
 * it. Address and offset agree modulo this. */
#define FAULT_AROUND_BYTES 65536ULL

#define HOST_NAME "host"

/* The kernel's setting for memory files: all of its words, the current one in brackets. */
#define HUGE_PAGES "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

/* From linux/mman.h: older C libraries don't have it. */
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* From linux/mempolicy.h, which belongs to another package than the C library. */
#define POLICY_PREFERRED 1
#define NODES_MAX        1024 /* the most that kernels are built for */

/* "host-1" to "host-9999"; not tuned. */
#define HOST_DIGITS_MAX 4

struct host_device {
        struct device device;
        enum device_side side;
        bool huge_pages;    /* as it is mapped */
        bool populates;     /* what it creates */
        bool has_numa_node; /* as an owner maps it */
        unsigned numa_node;
};

struct host_extent {
        struct extent extent;
        int fd;        /* owned; -1 once it was given back */
        void *address; /* where it was mapped last */
        unsigned n_maps;
        bool gives_back; /* of a user: its descriptor, once it is mapped */
};

struct host_arena {
        struct device_arena arena;
        uint8_t *base;
        size_t reserved_bytes;        /* arena.bytes up to the granularity */
        struct arena_backing backing; /* both sizes in whole pages of the system */
        unsigned n_maps;
};

static struct host_device *host_device(struct device *d)
{
        return container_of(d, struct host_device, device);
}

static struct host_extent *host_extent(struct extent *e)
{
        return container_of(e, struct host_extent, extent);
}

static struct host_arena *host_arena(struct device_arena *a)
{
        return container_of(a, struct host_arena, arena);
}

static bool is_within(const struct extent *e, uint64_t offset, uint64_t len)
{
        return offset <= e->bytes && len <= e->bytes - offset;
}

/* The kernel's page: the unit of mappings. */
static uint64_t unit_bytes(void)
{
        return (uint64_t)sysconf(_SC_PAGESIZE);
}

static bool is_extent_size(uint64_t bytes)
{
        return bytes > 0 && bytes % unit_bytes() == 0 && bytes <= INT64_MAX;
}

/* Takes fd, also on failure. */
static int host_extent_new(struct device *d, int fd, uint64_t bytes, struct extent **ret_extent)
{
        struct host_extent *e = calloc(1, sizeof(*e));

        if (!e) {
                fd_close(fd);
                return -ENOMEM;
        }
        e->extent = (struct extent){.device = d, .bytes = bytes};
        e->fd = fd;
        *ret_extent = &e->extent;
        return 0;
}

/*
 * Imports an extent. The file's maker may have kept a descriptor. Without a seal against shrinking,
 * it could truncate the file under our mapping, and our next access would be a SIGBUS. Only memory
 * files can carry the seal.
 */
static int host_extent_import(
        struct device *d, struct extent_handle *handle, uint64_t bytes, struct extent **ret_extent)
{
        _cleanup_fd_ int fd = fd_take(&handle->fd);
        struct stat st;
        int seals, r;

        if (fd < 0 || !is_extent_size(bytes))
                return -EINVAL;
        seals = fcntl(fd, F_GET_SEALS);
        if (seals < 0 || !(seals & F_SEAL_SHRINK))
                return -EINVAL;
        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode) || st.st_size < 0 || (uint64_t)st.st_size != bytes)
                return -EINVAL;
        r = host_extent_new(d, fd_take(&fd), bytes, ret_extent);
        if (r == 0)
                host_extent(*ret_extent)->gives_back = host_device(d)->side == DEVICE_USER;
        return r;
}

static int host_extent_export(struct extent *e, struct extent_handle *ret_handle)
{
        int fd = fcntl(host_extent(e)->fd, F_DUPFD_CLOEXEC, 0);

        if (fd < 0)
                return -errno;
        *ret_handle = (struct extent_handle){.fd = fd};
        return 0;
}

static int host_extent_zero(struct extent *e, uint64_t offset, uint64_t len)
{
        if (!is_within(e, offset, len))
                return -EINVAL;
        /* The kernel refuses an empty hole. */
        return len == 0 ? 0 : fd_punch_hole(host_extent(e)->fd, offset, len);
}

static void host_extent_destroy(struct extent *e, bool last_owner)
{
        struct host_extent *h = host_extent(e);

        /* Processes that have it mapped still read it. */
        if (h->n_maps > 0)
                return;
        /* Fails if a client with CAP_LINUX_IMMUTABLE made the file immutable. Its bytes then stay
         * with processes that have it mapped; no other process gets them. */
        if (last_owner)
                (void)host_extent_zero(e, 0, e->bytes);
        fd_close(h->fd);
        free(h);
}

static int host_extent_read(struct extent *e, uint64_t offset, void *dst, uint64_t len)
{
        int r;

        if (!is_within(e, offset, len))
                return -EINVAL;
        r = fd_read_at(host_extent(e)->fd, dst, len, offset);
        return r == -ENODATA ? -EIO : r;
}

/* A temporary mapping of a part of an extent. */
struct window {
        void *base;
        size_t bytes;
        uint8_t *at; /* where `offset` is */
};

/*
 * Maps a part of an extent for writing. write() isn't used: it would wait for the file's lock,
 * which a client with the file can hold as long as it likes. Also, O_APPEND set by a client would
 * redirect it. All pages exist when this returns 0. Else it fails, where a touch would be a SIGBUS.
 */
static int open_window(struct extent *e, uint64_t offset, uint64_t len, struct window *ret)
{
        uint64_t skip = offset % unit_bytes();
        size_t bytes = len + skip;
        void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, host_extent(e)->fd,
                (off_t)(offset - skip));
        int r;

        if (base == MAP_FAILED)
                return -errno;
        /* Linux before 5.14 doesn't know it. */
        r = madvise(base, bytes, MADV_POPULATE_WRITE) < 0 && errno != EINVAL ? -errno : 0;
        if (r < 0) {
                munmap(base, bytes);
                return r;
        }
        *ret = (struct window){.base = base, .bytes = bytes, .at = (uint8_t *)base + skip};
        return 0;
}

static int host_extent_write(struct extent *e, uint64_t offset, const void *src, uint64_t len)
{
        struct window w = {0};
        int r;

        if (!is_within(e, offset, len))
                return -EINVAL;
        if (len == 0)
                return 0;
        r = open_window(e, offset, len, &w);
        if (r < 0)
                return r;
        memcpy(w.at, src, len);
        munmap(w.base, w.bytes);
        return 0;
}

static int host_extent_copy(struct extent *dst, uint64_t dst_offset, struct extent *src,
        uint64_t src_offset, uint64_t len)
{
        struct window w = {0};
        int r;

        if (!is_within(dst, dst_offset, len) || !is_within(src, src_offset, len) ||
                (dst == src && dst_offset + len > src_offset && src_offset + len > dst_offset))
                return -EINVAL;
        if (len == 0)
                return 0;
        r = open_window(dst, dst_offset, len, &w);
        if (r < 0)
                return r;
        r = host_extent_read(src, src_offset, w.at, len);
        munmap(w.base, w.bytes);
        return r;
}

/*
 * Reserves addresses without shared memory: anywhere, or in place of the mappings at `at`,
 * atomically. prot: PROT_NONE; readable as zeros (the kernel's zero page: costs page tables and no
 * memory); or writable, too.
 */
static int reserve_addresses(void *at, size_t bytes, int prot, void **ret_at)
{
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0);
        void *p = mmap(at, bytes, prot, flags, -1, 0);
        int r;

        if (p == MAP_FAILED)
                return -errno;
        if (madvise(p, bytes, MADV_DONTFORK) < 0 ||
                (prot != PROT_NONE && madvise(p, bytes, MADV_DONTDUMP) < 0)) {
                r = -errno;
                /* Inside an arena it stays: another mapping could take a gap. */
                if (!at)
                        munmap(p, bytes);
                return r;
        }
        *ret_at = p;
        return 0;
}

/*
 * Reserves addresses aligned to the granularity, as huge pages need matching address and offset.
 * The kernel returns multiples of a page, so less than the granularity before the first aligned
 * address is unused, and given back.
 */
static int reserve_aligned(size_t bytes, uint8_t **ret_base)
{
        size_t slack = HOST_GRANULARITY_BYTES - PAGE_BYTES_MIN, head;
        void *p = NULL;
        int r;

        r = reserve_addresses(NULL, bytes + slack, PROT_NONE, &p);
        if (r < 0)
                return r;
        head = round_up_u64((uintptr_t)p, HOST_GRANULARITY_BYTES) - (uintptr_t)p;
        if (head > 0)
                munmap(p, head);
        if (head < slack)
                munmap((uint8_t *)p + head + bytes, slack - head);
        *ret_base = (uint8_t *)p + head;
        return 0;
}

/* There and nowhere else. */
static int reserve_at(uint64_t wanted, size_t bytes, uint8_t **ret_base)
{
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, r;
        void *at = (void *)(uintptr_t)wanted, *p;

        if (wanted % HOST_GRANULARITY_BYTES != 0)
                return -EINVAL;
        p = mmap(at, bytes, PROT_NONE, flags, -1, 0);
        if (p == MAP_FAILED)
                return errno == EEXIST ? -EBUSY : -errno;
        /* A kernel before 4.17 takes the flag for a hint. */
        r = p == at ? 0 : -EBUSY;
        if (r == 0 && madvise(p, bytes, MADV_DONTFORK) < 0)
                r = -errno;
        if (r < 0)
                munmap(p, bytes);
        else
                *ret_base = p;
        return r;
}

static int host_arena_reserve(
        struct device *d, uint64_t bytes, uint64_t wanted, struct device_arena **ret_arena)
{
        _cleanup_free_ struct host_arena *a = NULL;
        int r;

        if (bytes == 0)
                return -EINVAL;
        if (bytes > INT64_MAX - 2 * HOST_GRANULARITY_BYTES)
                return -ENOMEM;
        a = calloc(1, sizeof(*a));
        if (!a)
                return -ENOMEM;
        a->arena = (struct device_arena){.device = d, .bytes = bytes};
        a->reserved_bytes = round_up_u64(bytes, HOST_GRANULARITY_BYTES);
        r = wanted ? reserve_at(wanted, a->reserved_bytes, &a->base)
                   : reserve_aligned(a->reserved_bytes, &a->base);
        if (r < 0)
                return r;
        *ret_arena = &TAKE(a)->arena;
        return 0;
}

/* Returns the length from `offset` on, at most `bytes`, that has the same backing, and its
 * protection. */
static size_t piece_at(const struct host_arena *a, uint64_t offset, size_t bytes, int *ret_prot)
{
        const struct arena_backing *b = &a->backing;
        uint64_t end = bytes, within;

        *ret_prot = b->reads_zeros ? PROT_READ : PROT_NONE;
        if (b->null_bytes == 0)
                return bytes;
        within = offset % b->null_stride_bytes;
        if (within < b->null_bytes) {
                *ret_prot = PROT_READ | PROT_WRITE;
                end = b->null_bytes - within;
        } else {
                end = b->null_stride_bytes - within;
        }
        return MIN(bytes, end);
}

/* Replaces a range by the arena's backing. */
static int back(struct host_arena *a, uint64_t offset, size_t bytes)
{
        size_t n;
        int r = 0;

        for (; bytes > 0 && r == 0; offset += n, bytes -= n) {
                void *p;
                int prot;

                n = piece_at(a, offset, bytes, &prot);
                r = reserve_addresses(a->base + offset, n, prot, &p);
        }
        return r;
}

static int host_arena_back(struct device_arena *arena, const struct arena_backing *backing)
{
        struct host_arena *a = host_arena(arena);

        if (a->n_maps > 0 || backing->null_bytes > backing->null_stride_bytes ||
                backing->null_stride_bytes % unit_bytes() != 0)
                return -EINVAL;
        a->backing = *backing;
        a->backing.null_bytes = round_up_u64(backing->null_bytes, unit_bytes());
        /* Not the range behind it up to the granularity: no plane begins there. */
        return back(a, 0, round_up_u64(arena->bytes, unit_bytes()));
}

static void host_arena_release(struct device_arena *arena)
{
        struct host_arena *a = host_arena(arena);

        /* Mapped extents keep their addresses. */
        if (a->n_maps > 0)
                return;
        munmap(a->base, a->reserved_bytes);
        free(a);
}

static void *host_arena_base(const struct device_arena *arena)
{
        return host_arena((struct device_arena *)arena)->base;
}

static void *host_extent_address(const struct extent *e)
{
        return host_extent((struct extent *)e)->address;
}

static bool has_place(const struct host_arena *a, uint64_t offset, const struct extent *e)
{
        return offset % unit_bytes() == 0 && offset <= a->arena.bytes &&
               e->bytes <= a->arena.bytes - offset;
}

/* ---- making extents -------------------------------------------------------------------------- */

/* Maps a file where huge pages can be mapped. Returns 0 or -errno. */
static int map_aligned(int fd, uint64_t bytes, uint8_t **ret_at)
{
        uint8_t *at = NULL;
        int r = reserve_aligned(bytes, &at);

        if (r < 0)
                return r;
        if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
                r = -errno;
                munmap(at, bytes);
                return r;
        }
        *ret_at = at;
        return 0;
}

/* Makes huge pages of aligned memory of a file. MADV_COLLAPSE, since Linux 6.1, needs a page that
 * is there, and no other setting than that HUGE_PAGES isn't "deny". Returns 0 or -errno: the first
 * failure is the last, as the kernel may have searched long for memory in one piece. */
static int make_huge(uint8_t *at, uint64_t bytes)
{
        for (uint64_t i = 0; i + HOST_GRANULARITY_BYTES <= bytes; i += HOST_GRANULARITY_BYTES)
                if (madvise(at + i, 1, MADV_POPULATE_WRITE) < 0 ||
                        madvise(at + i, HOST_GRANULARITY_BYTES, MADV_COLLAPSE) < 0)
                        return -errno;
        return 0;
}

/* Lets the kernel allocate the memory now, zeroed, and charge it to this process's control
 * group. */
static int populate_file(const struct host_device *d, int fd, uint64_t bytes)
{
        uint8_t *base = NULL;
        int r = map_aligned(fd, bytes, &base);

        if (r < 0)
                return r;
        if (d->huge_pages)
                (void)make_huge(base, bytes); /* small ones do, too */
        if (madvise(base, bytes, MADV_POPULATE_WRITE) < 0)
                r = -errno;
        munmap(base, bytes);
        /* Linux before 5.14 doesn't know it. */
        return r == -EINVAL ? (fallocate(fd, 0, 0, (off_t)bytes) < 0 ? -errno : 0) : r;
}

static int host_extent_create(struct device *d, uint64_t bytes, struct extent **ret_extent)
{
        _cleanup_fd_ int fd = -1;
        int r;

        if (!is_extent_size(bytes))
                return -EINVAL;
        fd = memfd_create_sized("kvlease-extent", bytes);
        if (fd < 0)
                return fd_take(&fd);
        r = host_device(d)->populates ? populate_file(host_device(d), fd, bytes) : 0;
        return r < 0 ? r : host_extent_new(d, fd_take(&fd), bytes, ret_extent);
}

/* ---- placement and page sizes ---------------------------------------------------------------- */

static int prefer_node(void *at, size_t bytes, unsigned node)
{
        unsigned long nodes[NODES_MAX / (8 * sizeof(long))] = {0};

        if (node >= NODES_MAX)
                return -EINVAL;
        nodes[node / (8 * sizeof(long))] = 1ul << node % (8 * sizeof(long));
        /* The kernel takes one off the number of bits. */
        return syscall(SYS_mbind, at, bytes, POLICY_PREFERRED, nodes, NODES_MAX + 1, 0) < 0 ? -errno
                                                                                            : 0;
}

/* Sets the policy of a file's memory that isn't touched yet; the file keeps it. For a user, failing
 * huge pages are ignored: the kernel may not support them. */
static int place_memory(const struct host_device *d, void *at, size_t bytes)
{
        int r = d->has_numa_node ? prefer_node(at, bytes, d->numa_node) : 0;

        if (r == 0 && d->huge_pages && madvise(at, bytes, MADV_HUGEPAGE) < 0 &&
                d->side == DEVICE_OWNER)
                r = -errno;
        return r;
}

/* Tries the placement. Returns 0 or -errno. */
static int try_place(const struct host_device *d)
{
        _cleanup_fd_ int fd = memfd_create_sized("kvlease-try", HOST_GRANULARITY_BYTES);
        void *at;
        int r;

        if (fd < 0)
                return fd;
        at = mmap(NULL, HOST_GRANULARITY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at == MAP_FAILED)
                return -errno;
        r = place_memory(d, at, HOST_GRANULARITY_BYTES);
        munmap(at, HOST_GRANULARITY_BYTES);
        return r;
}

/* Can this process make a huge page? Returns 0 or -errno. */
static int try_make_huge(void)
{
        _cleanup_fd_ int fd = memfd_create_sized("kvlease-try", HOST_GRANULARITY_BYTES);
        uint8_t *at = NULL;
        int r = fd < 0 ? fd : map_aligned(fd, HOST_GRANULARITY_BYTES, &at);

        if (r < 0)
                return r;
        r = make_huge(at, HOST_GRANULARITY_BYTES);
        munmap(at, HOST_GRANULARITY_BYTES);
        return r;
}

/* Returns -errno if clients get none on request: the kernel lacks them, or an administrator
 * disabled them. */
static int find_huge_pages(void)
{
        _cleanup_fd_ int fd = open(HUGE_PAGES, O_RDONLY | O_CLOEXEC);
        char words[128] = "";

        if (fd < 0 || read(fd, words, sizeof(words) - 1) < 0)
                return -errno;
        return strstr(words, "[never]") || strstr(words, "[deny]") ? -EOPNOTSUPP : 0;
}

static void find_place(
        struct host_device *d, const struct device_options *options, char why[DEVICE_WHY_BYTES])
{
        size_t len = 0;
        int r;

        if (options->has_numa_node) {
                d->has_numa_node = true;
                d->numa_node = options->numa_node;
                r = try_place(d);
                d->has_numa_node = r == 0;
                if (r < 0)
                        len = (size_t)snprintf(why, DEVICE_WHY_BYTES,
                                "memory can't be taken from NUMA node %u (%s), and comes from where the kernel takes it%s",
                                options->numa_node, strerror(-r), options->huge_pages ? "; " : "");
        }
        if (options->huge_pages) {
                r = find_huge_pages();
                if (r < 0 && options->populate)
                        r = try_make_huge();
                d->huge_pages = r == 0;
                if (r == 0)
                        r = try_place(d);
                d->huge_pages = r == 0;
                if (r < 0 && len < DEVICE_WHY_BYTES)
                        snprintf(why + len, DEVICE_WHY_BYTES - len,
                                "this machine gives memory files no huge pages: echo advise > %s%s",
                                HUGE_PAGES,
                                options->populate ? "" : ", or set populate = on (Linux 6.1)");
        }
}

static int host_arena_map(
        struct device_arena *arena, uint64_t offset, struct extent *e, enum device_access access)
{
        struct host_arena *a = host_arena(arena);
        uint8_t *at = a->base + offset;
        int prot = access == DEVICE_READ_WRITE ? PROT_READ | PROT_WRITE : PROT_READ;
        void *p;
        int r = 0;

        if (!has_place(a, offset, e))
                return -EINVAL;
        p = mmap(at, e->bytes, prot, MAP_SHARED | MAP_FIXED, host_extent(e)->fd, 0);
        if (p == MAP_FAILED || madvise(p, e->bytes, MADV_DONTFORK) < 0 ||
                madvise(p, e->bytes, MADV_DONTDUMP) < 0)
                r = -errno;
        else
                r = place_memory(host_device(arena->device), p, e->bytes);
        if (r < 0) {
                /*
                 * Older kernels unmap before they fail. If this fails, too, the arena has a gap,
                 * but the first error is returned.
                 */
                (void)back(a, offset, e->bytes);
                return r;
        }
        host_extent(e)->n_maps++;
        host_extent(e)->address = at;
        a->n_maps++;
        /* The mapping keeps the memory: a client with many extents needs no descriptor for each. */
        if (host_extent(e)->gives_back)
                host_extent(e)->fd = fd_close(host_extent(e)->fd);
        return 0;
}

static int host_arena_unmap(struct device_arena *arena, uint64_t offset, struct extent *e)
{
        struct host_arena *a = host_arena(arena);
        int r;

        if (a->n_maps == 0 || host_extent(e)->n_maps == 0 || !has_place(a, offset, e))
                return -EINVAL;
        r = back(a, offset, e->bytes);
        if (r < 0)
                return r;
        host_extent(e)->n_maps--;
        a->n_maps--;
        return 0;
}

/*
 * Fills page tables by madvise(). A read fault maps existing memory in the 64 KiB around it (in a
 * shared mapping of memory files writable, too); a write fault maps one page. madvise() fails where
 * a touch would be a SIGBUS, which then occurs only when the caller touches the memory.
 */
static void host_arena_populate(const struct device_arena *arena, uint64_t offset, uint64_t bytes)
{
        const struct host_arena *a = host_arena((struct device_arena *)arena);
        uint64_t page = unit_bytes(), at = offset - offset % page, end = offset + bytes;

        if (offset > arena->bytes || bytes > arena->bytes - offset)
                return;
        /* EINVAL before Linux 5.14: as without. */
        while (at < end && madvise(a->base + at, page, MADV_POPULATE_READ) == 0)
                at += MAX(FAULT_AROUND_BYTES - at % FAULT_AROUND_BYTES, page);
}

static void host_close(struct device *d)
{
        free(host_device(d));
}

static const struct device_ops host_ops = {
        .close = host_close,
        .extent_create = host_extent_create,
        .extent_import = host_extent_import,
        .extent_export = host_extent_export,
        .extent_destroy = host_extent_destroy,
        .extent_zero = host_extent_zero,
        .extent_copy = host_extent_copy,
        .extent_read = host_extent_read,
        .extent_write = host_extent_write,
        .arena_reserve = host_arena_reserve,
        .arena_back = host_arena_back,
        .arena_release = host_arena_release,
        .arena_base = host_arena_base,
        .extent_address = host_extent_address,
        .arena_map = host_arena_map,
        .arena_unmap = host_arena_unmap,
        .arena_populate = host_arena_populate,
};

/* Further names share the machine's memory; each is a separate device. */
bool host_is_name(const char *name)
{
        size_t len = strlen(HOST_NAME), digits;

        if (strncmp(name, HOST_NAME, len) != 0)
                return false;
        if (!name[len])
                return true;
        /* One name for each: no leading zeros. */
        if (name[len] != '-' || name[len + 1] == '0')
                return false;
        digits = strspn(name + len + 1, "0123456789");
        return digits > 0 && digits <= HOST_DIGITS_MAX && !name[len + 1 + digits];
}

static int host_props(const char *name, struct device_props *ret_props)
{
        struct sysinfo info;

        if (sysinfo(&info) < 0)
                return -errno;
        *ret_props = (struct device_props){
                .backend = "host",
                .transport = TRANSPORT_MEMFD,
                .unit_bytes = unit_bytes(),
                .granularity_bytes = HOST_GRANULARITY_BYTES,
                .total_bytes = (uint64_t)info.totalram * info.mem_unit,
                .survives_restart = true,
                .is_cpu_memory = true,
                .is_contiguous = true,
                .numa_node = -1,
        };
        strcpy(ret_props->name, name);
        return 0;
}

static int host_open(const char *name, const struct device_options *options,
        struct device **ret_device, char why[DEVICE_WHY_BYTES])
{
        _cleanup_free_ struct host_device *d = NULL;
        int r;

        if (!name || !*name)
                name = HOST_NAME;
        if (!host_is_name(name))
                return -ENODEV;
        if (options && options->transport != 0 && options->transport != TRANSPORT_MEMFD)
                return say_why(why, DEVICE_WHY_BYTES, -EOPNOTSUPP,
                        "the host's memory is handed over as memory files and in no other way");
        d = calloc(1, sizeof(*d));
        if (!d)
                return -ENOMEM;
        d->device.ops = &host_ops;
        d->side = options ? options->side : DEVICE_USER;
        r = host_props(name, &d->device.props);
        if (r < 0)
                return r;
        if (d->side == DEVICE_OWNER)
                find_place(d, options, why);
        else
                d->huge_pages = options && options->huge_pages;
        d->populates = d->side == DEVICE_OWNER && options->populate;
        d->device.props.may_block = d->populates;
        d->device.props.huge_pages = d->huge_pages;
        *ret_device = &TAKE(d)->device;
        return 0;
}

static int host_enumerate(struct device_props *props, unsigned max, char why[DEVICE_WHY_BYTES])
{
        int r = max > 0 ? host_props(HOST_NAME, &props[0]) : 0;

        return r < 0 ? r : 1;
}

const struct device_backend host_backend = {
        .name = "host",
        .open = host_open,
        .enumerate = host_enumerate,
};
