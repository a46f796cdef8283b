#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "gpu/device.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/child.h"
#include "tests/unit/fd-count.h"
#include "tests/unit/test-support.h"
#include "tests/unit/touchable.h"

#define STEP ((uint64_t)2 << 20)

static char why[DEVICE_WHY_BYTES];

static struct device *open_host(void)
{
        struct device *d = NULL;

        assert_int_equal(device_open("host", NULL, &d, why), 0);
        return d;
}

static struct extent *create(struct device *d, uint64_t bytes)
{
        struct extent *e = NULL;

        assert_int_equal(d->ops->extent_create(d, bytes, &e), 0);
        assert_int_equal(e->bytes, bytes);
        assert_ptr_equal(e->device, d);
        return e;
}

static int export(struct extent *e)
{
        struct extent_handle handle;

        assert_int_equal(e->device->ops->extent_export(e, &handle), 0);
        assert_true(handle.fd >= 0);
        assert_true(fcntl(handle.fd, F_GETFD) & FD_CLOEXEC);
        return handle.fd;
}

/* Imports the same memory, as another process would. */
static struct extent *import_again(struct extent *e)
{
        struct extent_handle handle = {.fd = export(e)};
        struct extent *imported = NULL;

        assert_int_equal(e->device->ops->extent_import(e->device, &handle, e->bytes, &imported), 0);
        assert_int_equal(handle.fd, -1);
        return imported;
}

static struct device_arena *reserve(struct device *d, uint64_t bytes, uint8_t **ret_base)
{
        struct device_arena *a = NULL;

        assert_int_equal(d->ops->arena_reserve(d, bytes, 0, &a), 0);
        *ret_base = d->ops->arena_base(a);
        return a;
}

static void map(struct device_arena *a, uint64_t offset, struct extent *e)
{
        assert_int_equal(a->device->ops->arena_map(a, offset, e, DEVICE_READ_WRITE), 0);
}

static void unmap(struct device_arena *a, uint64_t offset, struct extent *e)
{
        assert_int_equal(a->device->ops->arena_unmap(a, offset, e), 0);
}

/* "dc" don't copy on fork, "dd" don't dump. */
static bool has_vm_flag(const void *at, const char *flag)
{
        FILE *f = fopen("/proc/self/smaps", "re");
        uintptr_t start, end;
        bool inside = false, found = false;
        char line[512];

        assert_non_null(f);
        while (fgets(line, sizeof(line), f)) {
                if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &start, &end) == 2)
                        inside = (uintptr_t)at >= start && (uintptr_t)at < end;
                else if (inside && strncmp(line, "VmFlags:", 8) == 0)
                        found = strstr(line, flag);
        }
        fclose(f);
        return found;
}

static bool all_zero(const uint8_t *p, size_t len)
{
        return p[0] == 0 && memcmp(p, p + 1, len - 1) == 0;
}

TEST(test_open_and_enumerate)
{
        struct device_props props[2];
        struct device *d = NULL;

        assert_int_equal(device_open("GPU-0", NULL, &d, why), -ENODEV);
        assert_null(d);
        assert_int_equal(host_backend.open(NULL, NULL, &d, why), 0);
        assert_string_equal(d->props.name, "host");
        device_close(d);
        assert_int_equal(host_backend.open("", NULL, &d, why), 0);
        assert_int_equal(d->props.transport, TRANSPORT_MEMFD);
        assert_int_equal(d->props.granularity_bytes, STEP);
        assert_int_equal(d->props.unit_bytes, sysconf(_SC_PAGESIZE));
        assert_true(d->props.total_bytes > 64 << 20);
        assert_false(d->props.may_block);
        device_close(d);
        device_close(NULL);

        assert_int_equal(host_backend.enumerate(NULL, 0, why), 1);
        assert_int_equal(host_backend.enumerate(props, 2, why), 1);
        assert_string_equal(props[0].name, "host");
}

static int open_spanning(const char *members, struct device **ret)
{
        struct device_options o = {.side = DEVICE_OWNER};

        strcpy(o.members, members);
        return device_open("both", &o, ret, why);
}

/* Extents lie on the member that is asked for; what is refused says why. */
TEST(test_span)
{
        struct device *d = NULL;
        char name[DEVICE_NAME_MAX + 1];
        struct extent *first, *second;
        uint8_t byte = 7;

        assert_int_equal(open_spanning("host-1", &d), -EINVAL);
        assert_non_null(strstr(why, "at least two others: 1 given"));
        assert_int_equal(open_spanning("host-1, host-1", &d), -EOPNOTSUPP);
        assert_non_null(strstr(why, "one device twice: host-1 and host-1"));
        assert_int_equal(open_spanning("host-1,hostess", &d), -ENODEV);
        assert_non_null(strstr(why, "hostess: "));
        assert_null(d);
        assert_int_equal(open_spanning("host-1, host-3", &d), 0);
        assert_string_equal(d->props.name, "both");
        assert_string_equal(d->props.members, "host-1,host-3");
        device_member_name(&d->props, 1, name);
        assert_string_equal(name, "host-3");
        for (unsigned plane = 0; plane < 6; plane++)
                assert_int_equal(device_member_of(&d->props, plane, 6), plane / 3);
        assert_int_equal(device_create(d, 0, STEP, &first), 0);
        assert_int_equal(device_create(d, 1, STEP, &second), 0);
        assert_string_equal(first->device->props.name, "host-1");
        assert_string_equal(second->device->props.name, "host-3");
        assert_int_equal(d->ops->extent_write(second, 5, &byte, 1), 0);
        byte = 0;
        assert_int_equal(d->ops->extent_read(second, 5, &byte, 1), 0);
        assert_int_equal(byte, 7);
        /* A member's failure is the device's. */
        assert_int_equal(d->ops->extent_copy(first, 0, second, 0, 1), -EINVAL);
        assert_non_null(strstr(d->why, "host-1: "));
        d->ops->extent_destroy(first, true);
        d->ops->extent_destroy(second, true);
        device_close(d);
}

TEST(test_not_inherited_nor_dumped)
{
        struct device *d = open_host();
        struct extent *e = create(d, STEP);
        uint8_t *base;
        struct device_arena *a = reserve(d, 3 * STEP, &base);
        int status;
        pid_t pid;

        map(a, STEP, e);
        map(a, 2 * STEP, e);
        unmap(a, 2 * STEP, e);
        assert_true(has_vm_flag(base + STEP, " dd"));
        pid = child_fork();
        assert_true(pid >= 0);
        if (pid == 0) /* reserved, mapped, reserved again: none of it is there */
                _exit(is_reserved(base) | is_reserved(base + STEP) << 1 |
                        is_reserved(base + 2 * STEP) << 2);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        unmap(a, STEP, e);
        d->ops->arena_release(a);
        d->ops->extent_destroy(e, true);
        device_close(d);
}

TEST(test_read_write_zero)
{
        struct device *d = open_host();
        struct extent *e = create(d, STEP);
        uint8_t seen[16], data[16], expected[16];

        memset(data, 0x77, sizeof(data));
        for (uint64_t at = 0; at < STEP; at += sizeof(data))
                assert_int_equal(d->ops->extent_write(e, at, data, sizeof(data)), 0);
        assert_int_equal(d->ops->extent_read(e, STEP - 16, seen, 16), 0);
        assert_memory_equal(seen, data, 16);

        /* Not at page boundaries: the neighbours stay. */
        assert_int_equal(d->ops->extent_zero(e, 4, 3 * 4096), 0);
        memset(expected, 0, sizeof(expected));
        memset(expected, 0x77, 4);
        assert_int_equal(d->ops->extent_read(e, 0, seen, 16), 0);
        assert_memory_equal(seen, expected, 16);
        assert_int_equal(d->ops->extent_read(e, 3 * 4096 + 4, seen, 16), 0);
        assert_memory_equal(seen, data, 16);
        assert_int_equal(d->ops->extent_zero(e, 0, 0), 0);
        assert_int_equal(d->ops->extent_zero(e, 0, STEP), 0);
        assert_int_equal(d->ops->extent_read(e, STEP - 16, seen, 16), 0);
        assert_true(all_zero(seen, 16));
        d->ops->extent_destroy(e, true);
        device_close(d);
}

/* A process with the file can change what write() does with it, except for the device's. */
TEST(test_written_to_whatever_clients_set)
{
        struct device *d = open_host();
        struct extent *e = create(d, STEP), *from = create(d, STEP);
        int theirs = export(e); /* the same open file description */
        char at[4] = "";

        assert_int_equal(fcntl(theirs, F_SETFL, O_APPEND | O_NONBLOCK), 0);
        assert_int_equal(lseek(theirs, 100, SEEK_SET), 100);
        assert_int_equal(d->ops->extent_write(e, 4095, "abc", 3), 0);
        assert_int_equal(d->ops->extent_write(from, 7, "def", 3), 0);
        assert_int_equal(d->ops->extent_copy(e, STEP - 3, from, 7, 3), 0);
        assert_int_equal(d->ops->extent_read(e, 4095, at, 3), 0);
        assert_string_equal(at, "abc");
        assert_int_equal(d->ops->extent_read(e, STEP - 3, at, 3), 0);
        assert_string_equal(at, "def");
        assert_int_equal(fcntl(theirs, F_ADD_SEALS, F_SEAL_WRITE), -1);
        fd_close(theirs);
        d->ops->extent_destroy(e, true);
        d->ops->extent_destroy(from, true);
        d->ops->close(d);
}

TEST(test_copy)
{
        const uint64_t len = STEP - 12345, from = 1111, to = 12345; /* no multiple of anything */
        struct device *d = open_host();
        struct extent *src = create(d, STEP), *dst = create(d, STEP);
        uint8_t *base;
        struct device_arena *a = reserve(d, 2 * STEP, &base);

        map(a, 0, src);
        map(a, STEP, dst);
        for (uint64_t i = 0; i < STEP; i++)
                base[i] = (uint8_t)(i * 31 + i / 251 + 1);
        assert_int_equal(d->ops->extent_copy(dst, to, src, from, len), 0);
        assert_memory_equal(base + STEP + to, base + from, len);
        assert_true(all_zero(base + STEP, to));
        /* Inside one extent. */
        assert_int_equal(d->ops->extent_copy(src, 0, src, STEP / 2, STEP / 2), 0);
        assert_memory_equal(base, base + STEP / 2, STEP / 2);
        unmap(a, 0, src);
        unmap(a, STEP, dst);
        d->ops->arena_release(a);
        d->ops->extent_destroy(src, true);
        d->ops->extent_destroy(dst, true);
        device_close(d);
}

/* Memory that the last owner destroys is empty for processes that kept a descriptor of it. */
TEST(test_destroy_punches)
{
        struct device *d = open_host();
        struct extent *e = create(d, STEP), *imported = import_again(e);
        _cleanup_fd_ int left = export(e);
        struct stat st;
        char seen;

        assert_int_equal(d->ops->extent_write(e, STEP - 1, "x", 1), 0);
        d->ops->extent_destroy(imported, false);
        assert_int_equal(pread(left, &seen, 1, STEP - 1), 1);
        assert_int_equal(seen, 'x');
        d->ops->extent_destroy(e, true);
        assert_int_equal(pread(left, &seen, 1, STEP - 1), 1);
        assert_int_equal(seen, 0);
        assert_int_equal(fstat(left, &st), 0);
        assert_int_equal(st.st_blocks, 0);
        assert_int_equal(st.st_size, STEP);
        device_close(d);
}

/* An extent can't be truncated while clients map it. */
TEST(test_extents_are_sealed)
{
        struct device *d = open_host();
        struct extent *e = create(d, STEP);
        _cleanup_fd_ int fd = export(e);

        assert_int_equal(ftruncate(fd, 0), -1);
        assert_int_equal(ftruncate(fd, 2 * STEP), -1);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
        d->ops->extent_destroy(e, true);
        device_close(d);
}

/* ---- where its memory is taken from ---------------------------------------------------------- */

#define HUGE_PAGES "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

static struct device *open_owner(const struct device_options *options)
{
        struct device *d = NULL;

        why[0] = '\0';
        assert_int_equal(device_open("host", options, &d, why), 0);
        return d;
}

/* Mapped, written and given back. */
static void use_once(struct device *d, void (*look)(const uint8_t *at))
{
        struct extent *e = create(d, STEP);
        struct device_arena *a = NULL;
        uint8_t *at;

        assert_int_equal(d->ops->arena_reserve(d, STEP, 0, &a), 0);
        assert_int_equal(d->ops->arena_map(a, 0, e, DEVICE_READ_WRITE), 0);
        at = d->ops->arena_base(a);
        memset(at, 7, STEP);
        assert_int_equal(at[STEP - 1], 7);
        if (look)
                look(at);
        assert_int_equal(d->ops->arena_unmap(a, 0, e), 0);
        d->ops->arena_release(a);
        d->ops->extent_destroy(e, true);
}

/* Node 0 is preferred: linux/mempolicy.h. */
static void look_at_policy(const uint8_t *at)
{
        const int of_address = 2, preferred = 1;
        unsigned long nodes[1024 / (8 * sizeof(long))] = {0};
        int mode = -1;

        assert_int_equal(
                syscall(SYS_get_mempolicy, &mode, nodes, sizeof(nodes) * 8, at, of_address), 0);
        assert_int_equal(mode, preferred);
        assert_int_equal(nodes[0], 1);
}

TEST(test_numa_node)
{
        struct device_options options = {.side = DEVICE_OWNER, .has_numa_node = true};
        struct device *d = open_owner(&options);

        if (why[0])
                print_message("no policy here: %s\n", why);
        use_once(d, why[0] ? NULL : look_at_policy);
        device_close(d);
        /* One that isn't there: said, and the memory is as good. */
        options.numa_node = 1000;
        d = open_owner(&options);
        assert_non_null(strstr(why, "memory can't be taken from NUMA node 1000"));
        use_once(d, NULL);
        device_close(d);
}

/* The mapping asks for huge pages ("hg": proc(5), smaps). */
static void look_at_flags(const uint8_t *at)
{
        FILE *f = fopen("/proc/self/smaps", "re");
        bool is_it = false, has_flag = false;
        char line[512];

        assert_non_null(f);
        while (fgets(line, sizeof(line), f)) {
                uintptr_t from, to;

                if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2)
                        is_it = from <= (uintptr_t)at && (uintptr_t)at < to;
                else if (is_it && strncmp(line, "VmFlags:", 8) == 0)
                        has_flag = strstr(line, " hg") != NULL;
        }
        fclose(f);
        assert_true(has_flag);
}

TEST(test_huge_pages)
{
        const struct device_options options = {.side = DEVICE_OWNER, .huge_pages = true};
        struct device *d = open_owner(&options);
        FILE *f = fopen(HUGE_PAGES, "re");
        char words[128] = "[never]";

        if (f) {
                assert_non_null(fgets(words, sizeof(words), f));
                fclose(f);
        }
        if (strstr(words, "[never]") || strstr(words, "[deny]")) {
                assert_non_null(strstr(why, "no huge pages: echo advise > " HUGE_PAGES ", or set"));
                use_once(d, NULL);
        } else {
                assert_string_equal(why, "");
                use_once(d, look_at_flags);
        }
        assert_int_equal(d->props.huge_pages, !why[0]);
        device_close(d);
}

/* Bytes of this process's huge pages of memory files. */
static uint64_t huge_bytes(void)
{
        FILE *f = fopen("/proc/self/smaps_rollup", "re");
        unsigned long kib = 0;
        char line[256];

        while (f && fgets(line, sizeof(line), f))
                if (sscanf(line, "ShmemPmdMapped: %lu kB", &kib) == 1)
                        break;
        if (f)
                fclose(f);
        return kib * UINT64_C(1024);
}

static void look_at_huge(const uint8_t *at)
{
        assert_int_equal(huge_bytes(), STEP);
}

/* An owner that populates makes huge pages itself, whatever the kernel's setting for requests. */
TEST(test_populate_huge)
{
        const struct device_options options = {
                .side = DEVICE_OWNER, .populate = true, .huge_pages = true};
        struct device *d = open_owner(&options);

        if (why[0])
                assert_null(strstr(why, "populate"));
        use_once(d, d->props.huge_pages ? look_at_huge : NULL);
        if (!d->props.huge_pages)
                print_message("no huge pages here: %s\n", why);
        device_close(d);
}

/* Users do as their owner says, and don't ask the machine. */
TEST(test_huge_pages_of_users)
{
        const struct device_options options = {.side = DEVICE_USER, .huge_pages = true};
        struct device *d = NULL;

        why[0] = '\0';
        assert_int_equal(device_open("host", &options, &d, why), 0);
        assert_string_equal(why, "");
        use_once(d, look_at_flags);
        device_close(d);
}

/* A call that breaks a rule of device.h ends no process, and changes nothing. */
TEST(test_broken_rules)
{
        struct device *d = open_host();
        const struct device_ops *ops = d->ops;
        struct extent *e = create(d, STEP), *none = NULL;
        struct device_arena *no_arena = NULL;
        uint8_t *base, byte;
        struct device_arena *a = reserve(d, 2 * STEP, &base);

        assert_int_equal(ops->extent_create(d, 0, &none), -EINVAL);
        assert_int_equal(ops->extent_create(d, STEP + 1, &none), -EINVAL);
        assert_int_equal(ops->extent_create(d, UINT64_MAX - 4095, &none), -EINVAL);
        assert_int_equal(ops->extent_zero(e, STEP, 1), -EINVAL);
        assert_int_equal(ops->extent_zero(e, UINT64_MAX, 2), -EINVAL);
        assert_int_equal(ops->extent_read(e, STEP, &byte, 1), -EINVAL);
        assert_int_equal(ops->extent_write(e, STEP + 1, &byte, 0), -EINVAL);
        assert_int_equal(ops->extent_copy(e, 0, e, 1, STEP), -EINVAL);
        assert_int_equal(ops->extent_copy(e, 0, e, 100, 101), -EINVAL);
        assert_int_equal(ops->arena_reserve(d, 0, 0, &no_arena), -EINVAL);
        assert_int_equal(ops->arena_unmap(a, 0, e), -EINVAL);
        assert_int_equal(ops->arena_map(a, 64, e, DEVICE_READ_WRITE), -EINVAL);
        assert_int_equal(ops->arena_map(a, 2 * STEP - 4096, e, DEVICE_READ_WRITE), -EINVAL);
        assert_int_equal(ops->arena_map(a, UINT64_MAX - 4095, e, DEVICE_READ_WRITE), -EINVAL);
        ops->arena_populate(a, 2 * STEP, 1);
        assert_false(none || no_arena || is_readable(base));
        /* A mapped extent stays, and so does its arena. */
        map(a, STEP, e);
        base[STEP] = 7;
        ops->extent_destroy(e, true);
        ops->arena_release(a);
        assert_int_equal(base[STEP], 7);
        unmap(a, STEP, e);
        ops->extent_destroy(e, true);
        ops->arena_release(a);
        assert_false(is_reserved(base));
        device_close(d);
}

static void refuse(struct device *d, int fd, uint64_t bytes)
{
        struct extent_handle handle = {.fd = fd};
        struct extent *e = NULL;

        assert_int_equal(d->ops->extent_import(d, &handle, bytes, &e), -EINVAL);
        assert_null(e);
        if (fd >= 0) /* taken, also on failure */
                assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static int memfd_of(uint64_t bytes, int seals)
{
        int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
        return fd;
}

TEST(test_import_refuses)
{
        struct device *d = open_host();
        struct extent *e = NULL;
        struct extent_handle good = {.fd = memfd_of(STEP, F_SEAL_SHRINK)};
        FILE *file = tmpfile();

        /* A good import, to show that the others are refused for their reasons. */
        assert_int_equal(d->ops->extent_import(d, &good, STEP, &e), 0);
        d->ops->extent_destroy(e, false);

        refuse(d, -1, STEP);
        refuse(d, memfd_of(STEP, F_SEAL_SHRINK), 2 * STEP);
        refuse(d, memfd_of(2 * STEP, F_SEAL_SHRINK), STEP);
        refuse(d, memfd_of(STEP + 512, F_SEAL_SHRINK), STEP + 512);
        refuse(d, memfd_of(0, F_SEAL_SHRINK), 0);
        refuse(d, memfd_of(STEP, F_SEAL_SHRINK), UINT64_MAX);
        refuse(d, memfd_of(STEP, 0), STEP);
        refuse(d, memfd_of(STEP, F_SEAL_GROW | F_SEAL_SEAL), STEP);
        refuse(d, open("/dev/zero", O_RDWR | O_CLOEXEC), STEP);
        assert_non_null(file);
        assert_int_equal(ftruncate(fileno(file), STEP), 0);
        refuse(d, fcntl(fileno(file), F_DUPFD_CLOEXEC, 0), STEP);
        fclose(file);
        device_close(d);
}
