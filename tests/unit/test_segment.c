#include "tests/unit/child.h"
#include "tests/unit/test-support.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/segment.h"

#define PAGE     4096
#define N_PAGES  4
#define BYTES    ((uint64_t)N_PAGES * PAGE)
#define NOBODY   65534
#define READER   3   /* the reader's only descriptor but for 0..2 */
#define SKIPPED  254 /* this kernel hasn't got it */
#define TOO_LATE 253 /* it was refused, yet something changed */

/* ---- ways to write what one may only read --------------------------------------------------- */

/*
 * Each has READER, its path below /proc, and a shared mapping of it. Returns 0 where it wrote or
 * could have, an errno where it was refused, SKIPPED. It runs in a process of its own.
 */
struct victim {
        const char *path;
        uint8_t *map;
};

static int result(long r)
{
        return r < 0 ? errno : 0;
}

/* Has it made READER's file one that can be opened for writing? */
static int reopen(const struct victim *v)
{
        return result(open(v->path, O_RDWR));
}

static int try_write(const struct victim *v)
{
        return result(write(READER, "x", 1));
}

static int try_pwrite(const struct victim *v)
{
        return result(pwrite(READER, "x", 1, PAGE));
}

static int try_sendfile(const struct victim *v)
{
        int fd = open("/proc/self/exe", O_RDONLY);

        return result(sendfile(READER, fd, NULL, 16));
}

static int try_ftruncate(const struct victim *v)
{
        return result(ftruncate(READER, 0));
}

static int try_grow(const struct victim *v)
{
        return result(ftruncate(READER, 2 * BYTES));
}

static int try_truncate_path(const struct victim *v)
{
        return result(truncate(v->path, 0));
}

static int try_punch(const struct victim *v)
{
        return result(fallocate(READER, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE));
}

static int try_fallocate(const struct victim *v)
{
        return result(fallocate(READER, 0, 0, PAGE));
}

static int try_mmap(const struct victim *v)
{
        void *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, READER, 0);

        return p == MAP_FAILED ? errno : 0;
}

static int try_mprotect(const struct victim *v)
{
        return result(mprotect(v->map, BYTES, PROT_READ | PROT_WRITE));
}

static int try_madvise_remove(const struct victim *v)
{
        return result(madvise(v->map, PAGE, MADV_REMOVE));
}

static int try_populate_write(const struct victim *v)
{
        return result(madvise(v->map, PAGE, MADV_POPULATE_WRITE));
}

static int try_read_into(const struct victim *v)
{
        return result(read(open("/dev/zero", O_RDONLY), v->map, 16));
}

static int try_vm_writev(const struct victim *v)
{
        char data[16] = {0};
        struct iovec from = {data, sizeof(data)}, to = {v->map, sizeof(data)};

        return result(process_vm_writev(getpid(), &from, 1, &to, 1, 0));
}

/* Writes like ptrace does, which also works in mappings that the program can't write. */
static int try_proc_mem(const struct victim *v)
{
        int fd = open("/proc/self/mem", O_RDWR);

        if (fd < 0)
                return errno;
        return result(pwrite(fd, "x", 1, (off_t)(uintptr_t)v->map));
}

/* UFFDIO_COPY would fill holes. */
static int try_userfaultfd(const struct victim *v)
{
        int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
        struct uffdio_api api = {.api = UFFD_API};
        struct uffdio_register request = {
                .range = {(uintptr_t)v->map, BYTES},
                .mode = UFFDIO_REGISTER_MODE_MISSING,
        };

        if (fd < 0 || ioctl(fd, UFFDIO_API, &api) < 0)
                return SKIPPED;
        return result(ioctl(fd, UFFDIO_REGISTER, &request));
}

static int try_reopen(const struct victim *v)
{
        return reopen(v);
}

static int try_reopen_write_only(const struct victim *v)
{
        return result(open(v->path, O_WRONLY));
}

static int try_reopen_trunc(const struct victim *v)
{
        return result(open(v->path, O_RDONLY | O_TRUNC));
}

/* The kernel says yes to F_SETFL and leaves the access mode alone. */
static int try_setfl(const struct victim *v)
{
        return fcntl(READER, F_SETFL, O_RDWR) < 0 ? errno : try_write(v);
}

static int try_fchmod(const struct victim *v)
{
        return fchmod(READER, 0666) < 0 ? errno : reopen(v);
}

static int try_chmod_path(const struct victim *v)
{
        return chmod(v->path, 0666) < 0 ? errno : reopen(v);
}

static int try_fchown(const struct victim *v)
{
        return fchown(READER, 1, 1) < 0 ? errno : reopen(v);
}

static int try_futimens(const struct victim *v)
{
        return result(futimens(READER, NULL));
}

static int try_xattr(const struct victim *v)
{
        return result(fsetxattr(READER, "trusted.x", "x", 1, 0));
}

static int try_setflags(const struct victim *v)
{
        long flags = FS_NODUMP_FL;
        int r = result(ioctl(READER, FS_IOC_SETFLAGS, &flags));

        return r == ENOTTY ? SKIPPED : r; /* tmpfs knows it since Linux 6.0 */
}

static int try_seal(const struct victim *v)
{
        return result(fcntl(READER, F_ADD_SEALS, F_SEAL_WRITE));
}

static int try_map_files(const struct victim *v)
{
        char path[80];

        snprintf(path, sizeof(path), "/proc/self/map_files/%" PRIxPTR "-%" PRIxPTR,
                (uintptr_t)v->map, (uintptr_t)v->map + (uintptr_t)BYTES);
        return result(open(path, O_RDWR));
}

static int try_link(const struct victim *v)
{
        if (linkat(AT_FDCWD, v->path, AT_FDCWD, "/dev/shm/kvl-test-link", AT_SYMLINK_FOLLOW) < 0)
                return errno;
        unlink("/dev/shm/kvl-test-link");
        return 0;
}

static int try_parent(const struct victim *v)
{
        int fd = openat(READER, "..", O_RDONLY | O_DIRECTORY);

        return fd < 0 ? errno : result(openat(fd, "new", O_CREAT | O_RDWR, 0600));
}

static int try_handle(const struct victim *v)
{
        struct {
                struct file_handle handle;
                unsigned char space[MAX_HANDLE_SZ];
        } h = {.handle.handle_bytes = MAX_HANDLE_SZ};
        int mount_id;

        if (name_to_handle_at(READER, "", &h.handle, &mount_id, AT_EMPTY_PATH) < 0)
                return errno;
        return result(open_by_handle_at(READER, &h.handle, O_RDWR));
}

static const struct mount_attr writable = {.attr_clr = MOUNT_ATTR_RDONLY};

static int try_mount_setattr(const struct victim *v)
{
        struct mount_attr attr = writable;

        if (mount_setattr(READER, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
                return errno;
        return reopen(v);
}

static int try_mount_setattr_path(const struct victim *v)
{
        struct mount_attr attr = writable;

        if (mount_setattr(AT_FDCWD, v->path, 0, &attr, sizeof(attr)) < 0)
                return errno;
        return reopen(v);
}

static int try_remount(const struct victim *v)
{
        if (mount("none", v->path, "none", MS_REMOUNT | MS_BIND, NULL) < 0)
                return errno;
        return reopen(v);
}

static int try_fspick(const struct victim *v)
{
        return result(fspick(READER, "", FSPICK_EMPTY_PATH));
}

/* A clone of its mount would be this process's, to make writable. */
static int try_open_tree(const struct victim *v)
{
        return result(open_tree(READER, "", AT_EMPTY_PATH | OPEN_TREE_CLONE));
}

static int try_bind(const struct victim *v)
{
        if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) < 0)
                return errno;
        return result(mount(v->path, "/dev/null", "none", MS_BIND, NULL));
}

static int try_move_mount(const struct victim *v)
{
        if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) < 0)
                return errno;
        return result(move_mount(READER, "", AT_FDCWD, "/dev/null", MOVE_MOUNT_F_EMPTY_PATH));
}

/* `control`: works on the owner's descriptor, which shows that the attempt itself is sound. */
static const struct attempt {
        const char *name;
        int (*fn)(const struct victim *v);
        bool control;
} attempts[] = {
        {"write", try_write, true},
        {"pwrite", try_pwrite, true},
        {"sendfile", try_sendfile, true},
        {"ftruncate to 0", try_ftruncate, true},
        {"ftruncate to more", try_grow, true},
        {"truncate by path", try_truncate_path, true},
        {"punch a hole", try_punch, true},
        {"fallocate", try_fallocate, true},
        {"mmap PROT_WRITE", try_mmap, true},
        {"mprotect", try_mprotect, true},
        {"MADV_REMOVE", try_madvise_remove, true},
        {"MADV_POPULATE_WRITE", try_populate_write, true},
        {"read() into the mapping", try_read_into, true},
        {"process_vm_writev", try_vm_writev, true},
        {"/proc/self/mem", try_proc_mem, true},
        {"userfaultfd", try_userfaultfd, true},
        {"reopen O_RDWR", try_reopen, true},
        {"reopen O_WRONLY", try_reopen_write_only, true},
        {"reopen O_RDONLY|O_TRUNC", try_reopen_trunc, true},
        {"F_SETFL", try_setfl, true},
        {"fchmod", try_fchmod, true},
        {"chmod by path", try_chmod_path, true},
        {"fchown", try_fchown, true},
        {"futimens", try_futimens, true},
        {"fsetxattr", try_xattr, true},
        {"FS_IOC_SETFLAGS", try_setflags, true},
        {"F_ADD_SEALS", try_seal, false},
        {"map_files", try_map_files, true},
        {"linkat", try_link, false},
        {"openat ..", try_parent, false},
        {"open_by_handle_at", try_handle, true},
        {"mount_setattr", try_mount_setattr, false},
        {"mount_setattr by path", try_mount_setattr_path, false},
        {"remount", try_remount, false},
        {"fspick", try_fspick, false},
        {"open_tree", try_open_tree, false},
        {"bind mount", try_bind, false},
        {"move_mount", try_move_mount, false},
};

/* ---- running them --------------------------------------------------------------------------- */

/* A process without privileges that /proc shows to itself, as one that was started that way. */
static void become(uid_t uid)
{
        if (uid == geteuid())
                return;
        if (setgroups(0, NULL) < 0 || setgid(uid) < 0 || setuid(uid) < 0 ||
                prctl(PR_SET_DUMPABLE, 1) < 0)
                abort();
}

static int run_in_child(const struct attempt *a, int fd, int prot, uid_t uid)
{
        char path[32];
        struct victim v = {.path = path};
        int status;
        pid_t pid = child_fork();

        assert_true(pid >= 0);
        if (pid == 0) {
                if (fd != READER)
                        dup2(fd, READER);
                close_range(READER + 1, ~0U, 0);
                become(uid);
                snprintf(path, sizeof(path), "/proc/self/fd/%d", READER);
                v.map = mmap(NULL, BYTES, prot, MAP_SHARED, READER, 0);
                if (v.map == MAP_FAILED)
                        abort();
                _exit(a->fn(&v));
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

static bool bytes_are(const uint8_t *p, uint8_t expected, uint64_t n)
{
        for (uint64_t i = 0; i < n; i++)
                if (p[i] != expected)
                        return false;
        return true;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
        return a->st_mode == b->st_mode && a->st_uid == b->st_uid && a->st_gid == b->st_gid &&
               a->st_size == b->st_size && a->st_nlink == b->st_nlink &&
               a->st_blocks == b->st_blocks &&
               memcmp(&a->st_mtim, &b->st_mtim, sizeof(a->st_mtim)) == 0 &&
               memcmp(&a->st_ctim, &b->st_ctim, sizeof(a->st_ctim)) == 0;
}

static void check_readers(const struct segment *s, uid_t uid)
{
        unsigned n_failed = 0;

        memset(s->base, 0x5a, BYTES);
        for (size_t i = 0; i < ARRAY_SIZE(attempts); i++) {
                struct stat before, after;
                int r;

                assert_int_equal(fstat(s->fd, &before), 0);
                r = run_in_child(&attempts[i], s->reader_fd, PROT_READ, uid);
                assert_int_equal(fstat(s->fd, &after), 0);
                if (!bytes_are(s->base, 0x5a, BYTES) || !same_file(&before, &after))
                        r = TOO_LATE;
                if (r == 0 || r == TOO_LATE) {
                        print_error("uid %u: %s: %s\n", uid, attempts[i].name,
                                r == 0 ? "worked" : "changed the file");
                        n_failed++;
                } else if (r == SKIPPED) {
                        print_message("%s: not in this kernel\n", attempts[i].name);
                }
        }
        assert_int_equal(n_failed, 0);
}

/* ---- room and privileges -------------------------------------------------------------------- */

/* Is there the privilege to mount? A test of what needs it says so and stops. */
static bool room_mounts(struct segment_room *room)
{
        segment_room_open(room);
        if (room->guard == SEGMENT_READ_ONLY_MOUNT)
                return true;
        print_message("skipped: no mount here (%s)\n", strerror(-room->why));
        segment_room_close(room);
        return false;
}

/* Takes a capability out of, or back into, what this thread may do. */
static void set_capability(unsigned cap, bool on)
{
        struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct data[2];

        assert_int_equal(syscall(SYS_capget, &header, data), 0);
        if (on)
                data[CAP_TO_INDEX(cap)].effective |= CAP_TO_MASK(cap);
        else
                data[CAP_TO_INDEX(cap)].effective &= ~CAP_TO_MASK(cap);
        assert_int_equal(syscall(SYS_capset, &header, data), 0);
}

static void open_memfd_room(struct segment_room *room)
{
        bool privileged = geteuid() == 0;

        if (privileged)
                set_capability(CAP_SYS_ADMIN, false);
        segment_room_open(room);
        if (privileged)
                set_capability(CAP_SYS_ADMIN, true);
        assert_int_equal(room->guard, SEGMENT_MEMFD);
        assert_int_equal(room->why, -EPERM);
        assert_int_equal(room->write_fd, -1);
        assert_int_equal(room->read_fd, -1);
}

static unsigned room_entries(const struct segment_room *room)
{
        char path[32];

        snprintf(path, sizeof(path), "/proc/self/fd/%d", room->write_fd);
        return test_dir_count(path);
}

/* Pages 1 and 3 of four are written to. */
TEST(test_parts)
{
        struct segment_room room;
        struct segment s;
        uint64_t end = 0;

        segment_room_open(&room);
        assert_int_equal(segment_new(&room, "parts", BYTES, &s), 0);
        assert_int_equal(segment_next_part(&s, 0, &end), BYTES); /* nothing was */
        ((uint8_t *)s.base)[PAGE + 1] = 1;
        ((uint8_t *)s.base)[3 * PAGE] = 1;
        assert_int_equal(segment_next_part(&s, 0, &end), PAGE);
        assert_int_equal(end, 2 * PAGE);
        assert_int_equal(segment_next_part(&s, PAGE + 8, &end), PAGE + 8); /* in its middle */
        assert_int_equal(end, 2 * PAGE);
        assert_int_equal(segment_next_part(&s, end, &end), 3 * PAGE);
        assert_int_equal(end, BYTES);
        assert_int_equal(segment_next_part(&s, BYTES, &end), BYTES);
        segment_free(&s);
        segment_room_close(&room);
}

TEST(test_names)
{
        assert_string_equal(segment_guard_name(SEGMENT_READ_ONLY_MOUNT), "read-only mount");
        assert_string_equal(segment_guard_name(SEGMENT_MEMFD), "memfd");
}

/* With too few descriptors left there is no mount, and no segment, and nothing left behind. */
TEST(test_few_fds)
{
        struct segment_room room, spare;
        struct segment s;
        struct rlimit saved, low;
        int n;
        bool mounts;

        segment_room_open(&room);
        mounts = room.guard == SEGMENT_READ_ONLY_MOUNT;
        n = dup(0); /* the lowest that is free */
        assert_true(n >= 0);
        close(n);
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &saved), 0);
        for (rlim_t extra = 0; extra < 2; extra++) {
                low = (struct rlimit){(rlim_t)n + extra, saved.rlim_max};
                assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
                segment_room_open(&spare);
                assert_int_equal(segment_new(&room, "few", BYTES, &s), -EMFILE);
                assert_int_equal(setrlimit(RLIMIT_NOFILE, &saved), 0);
                assert_int_equal(spare.guard, SEGMENT_MEMFD);
                assert_int_equal(spare.why, mounts ? -EMFILE : room.why);
                segment_room_close(&spare);
                if (mounts)
                        assert_int_equal(room_entries(&room), 0);
        }
        assert_int_equal(room.n_made, 0);
        segment_room_close(&room);
}

/* ---- segment, of either kind ---------------------------------------------------------------- */

static void check_shares(struct segment_room *room)
{
        struct segment s;
        struct stat st;
        const uint8_t *reader;
        unsigned char resident[N_PAGES];
        uint8_t *p;

        assert_int_equal(segment_new(room, "test", BYTES, &s), 0);
        assert_int_equal(s.bytes, BYTES);
        assert_int_equal(room->n_made, 1);
        reader = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, s.reader_fd, 0);
        assert_ptr_not_equal(reader, MAP_FAILED);
        p = s.base;
        assert_true(bytes_are(p, 0, BYTES));
        assert_true(bytes_are(reader, 0, BYTES));
        memset(p, 0x5a, BYTES);
        assert_true(bytes_are(reader, 0x5a, BYTES));

        assert_int_equal(fstat(s.reader_fd, &st), 0);
        assert_int_equal(st.st_size, BYTES);
        assert_int_equal(st.st_mode & 07777, 0600);
        assert_int_equal(st.st_nlink, 0);
        assert_int_equal(st.st_blocks, N_PAGES * PAGE / 512);
        assert_true(bytes_are(reader + 2 * PAGE, 0x5a, PAGE));
        assert_int_equal(fcntl(s.fd, F_GETFD), FD_CLOEXEC);
        assert_int_equal(fcntl(s.reader_fd, F_GETFD), FD_CLOEXEC);
        assert_int_equal(fcntl(s.reader_fd, F_GETFL) & O_ACCMODE, O_RDONLY);

        segment_free(&s);
        assert_int_equal(s.fd, -1);
        assert_int_equal(mincore(p, BYTES, resident), -1);     /* not mapped any more */
        assert_true(bytes_are(reader + 2 * PAGE, 0x5a, PAGE)); /* readers keep it */
        segment_free(&s);
        munmap((void *)reader, BYTES);
}

static void check_sparse(struct segment_room *room)
{
        struct segment s;
        struct stat st;
        uint8_t *p;

        assert_int_equal(segment_new(room, "sparse", UINT64_C(1) << 30, &s), 0);
        assert_int_equal(fstat(s.fd, &st), 0);
        assert_int_equal(st.st_size, 1 << 30);
        assert_int_equal(st.st_blocks, 0);
        p = s.base;
        p[(1 << 30) - 1] = 1;
        assert_int_equal(fstat(s.fd, &st), 0);
        assert_true(st.st_blocks > 0 && st.st_blocks <= 4096); /* a huge page at most */
        segment_free(&s);
}

/* A child of the owner doesn't have its mapping. */
static void check_fork(struct segment_room *room)
{
        struct segment s;
        int status;
        pid_t pid;

        assert_int_equal(segment_new(room, "fork", BYTES, &s), 0);
        pid = child_fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                unsigned char resident[N_PAGES];

                _exit(mincore(s.base, BYTES, resident) < 0 ? errno : 0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), ENOMEM);
        segment_free(&s);
}

static void check_errors(struct segment_room *room)
{
        struct segment s = {.fd = -1, .bytes = 77};

        assert_int_equal(segment_new(room, "big", UINT64_MAX, &s), -EFBIG);
        assert_true(segment_new(room, "big", UINT64_C(1) << 50, &s) < 0); /* mmap: ENOMEM */
        assert_int_equal(s.bytes, 77);
        assert_int_equal(room->n_made, 0);
        segment_free(&s);
        if (room->guard == SEGMENT_READ_ONLY_MOUNT)
                assert_int_equal(room_entries(room), 0);
}

static void (*const checks[])(struct segment_room *room) = {
        check_shares, check_sparse, check_fork, check_errors};

TEST(test_mount)
{
        for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
                struct segment_room room;

                if (!room_mounts(&room))
                        return;
                checks[i](&room);
                assert_int_equal(room_entries(&room), 0);
                segment_room_close(&room);
        }
}

TEST(test_memfd)
{
        for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
                struct segment_room room;

                open_memfd_room(&room);
                checks[i](&room);
                segment_room_close(&room);
        }
}

/* ---- writers --------------------------------------------------------------------------------- */

TEST(test_mount_readers)
{
        struct segment_room room;
        struct segment s;

        if (!room_mounts(&room))
                return;
        assert_int_equal(segment_new(&room, "test", BYTES, &s), 0);
        check_readers(&s, geteuid());
        check_readers(&s, NOBODY);
        segment_free(&s);
        segment_room_close(&room);
}

/* A memfd keeps other uids out, and its own not. */
TEST(test_memfd_readers)
{
        static const struct attempt reopening = {"reopen", try_reopen, true};
        struct segment_room room;
        struct segment s;

        open_memfd_room(&room);
        assert_int_equal(segment_new(&room, "test", BYTES, &s), 0);
        assert_int_equal(run_in_child(&reopening, s.reader_fd, PROT_READ, geteuid()), 0);
        if (geteuid() == 0)
                check_readers(&s, NOBODY);
        else
                print_message("skipped: readers of another uid need root to make\n");
        segment_free(&s);
        segment_room_close(&room);
}
