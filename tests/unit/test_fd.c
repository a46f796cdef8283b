#include "tests/unit/test-support.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/child.h"
#include "tests/unit/fd-count.h"

#define STRANGER 65533 /* no user of the system's */

TEST(test_close_keeps_errno)
{
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

        assert_true(fd >= 0);
        errno = E2BIG;
        assert_int_equal(fd_close(fd), -1);
        assert_int_equal(fd_close(fd), -1);
        assert_int_equal(fd_close(-1), -1);
        assert_int_equal(errno, E2BIG);
}

TEST(test_count_and_cleanup)
{
        int before = fd_count_open(), n = 0;

        for (int fd = 0; fd < 1024; fd++)
                n += fcntl(fd, F_GETFD) >= 0;
        assert_int_equal(before, n);
        {
                _cleanup_fd_ int a = open("/dev/null", O_RDONLY | O_CLOEXEC);
                int b = dup(a), taken;

                assert_int_equal(fd_count_open(), before + 2);
                taken = fd_take(&b);
                assert_int_equal(b, -1);
                fd_close(taken);
        }
        assert_int_equal(fd_count_open(), before);
}

TEST(test_reopen_read_only)
{
        int fd = memfd_create_sized("test", 4096), reader = fd_reopen_read_only(fd);
        char *writer_map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), *map;

        assert_true(writer_map != MAP_FAILED);
        assert_true(reader >= 0);
        assert_int_equal(fcntl(reader, F_GETFD), FD_CLOEXEC);
        assert_int_equal(write(reader, "x", 1), -1);
        assert_true(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, reader, 0) == MAP_FAILED);
        map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, reader, 0);
        assert_true(map != MAP_FAILED);
        assert_int_equal(mprotect(map, 4096, PROT_READ | PROT_WRITE), -1);
        writer_map[7] = 'y';
        assert_int_equal(map[7], 'y');
        munmap(map, 4096);
        munmap(writer_map, 4096);
        fd_close(reader);
        fd_close(fd);
        assert_int_equal(fd_reopen_read_only(-1), -ENOENT);
}

/* A process with the file can take a lease of it, for which other opens wait: 45 s by default. */
TEST(test_reopen_leased)
{
        int fd = memfd_create_sized("test", 4096), reader = fd_reopen_read_only(fd);
        int before = fd_count_open();

        assert_true(signal(SIGIO, SIG_IGN) != SIG_ERR); /* the holder is asked to end the lease */
        if (fcntl(reader, F_SETLEASE, F_WRLCK) < 0)
                skip(); /* the kernel, or the user, has none */
        assert_int_equal(fd_reopen_read_only(fd), -EAGAIN);
        assert_int_equal(fd_count_open(), before);
        fd_close(reader); /* ends it */
        reader = fd_reopen_read_only(fd);
        assert_true(reader >= 0);
        fd_close(reader);
        fd_close(fd);
}

/* 0 or the errno of opening the descriptor's file anew to write, as a user that it isn't of. */
static int reopen_as_stranger(int reader, bool has_capability)
{
        pid_t pid = fork();
        int status;

        if (pid == 0) {
                struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
                struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {0};
                char path[64];
                int fd;

                sets[0].effective = sets[0].permitted = 1u << CAP_DAC_OVERRIDE;
                snprintf(path, sizeof(path), "/proc/self/fd/%d", reader);
                if (prctl(PR_SET_KEEPCAPS, 1) < 0 || setgroups(0, NULL) < 0 ||
                        setresgid(STRANGER, STRANGER, STRANGER) < 0 ||
                        setresuid(STRANGER, STRANGER, STRANGER) < 0)
                        _exit(255);
                if (has_capability && syscall(SYS_capset, &head, sets) < 0)
                        _exit(254);
                fd = open(path, O_RDWR | O_CLOEXEC);
                _exit(fd >= 0 ? 0 : errno);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status);
}

/* Which is what docs/security/THREATS.md says of memory below a device: nothing but the mode guards
 * it. */
TEST(test_reopened_to_write)
{
        int fd = memfd_create_sized("test", 4096), reader = fd_reopen_read_only(fd), again;
        char path[64];

        snprintf(path, sizeof(path), "/proc/self/fd/%d", reader);
        again = open(path, O_RDWR | O_CLOEXEC); /* the same user */
        assert_true(again >= 0);
        fd_close(again);
        if (geteuid() == 0) {
                assert_int_equal(reopen_as_stranger(reader, false), EACCES);
                assert_int_equal(reopen_as_stranger(reader, true), 0);
        }
        fd_close(reader);
        fd_close(fd);
}

/* True if the mapping at an address has this flag in VmFlags (proc(5), smaps). */
static bool has_vm_flag(const void *at, const char *flag)
{
        FILE *f = fopen("/proc/self/smaps", "re");
        unsigned long long start, end;
        bool inside = false, found = false;
        char line[512];

        assert_non_null(f);
        while (fgets(line, sizeof(line), f)) {
                if (sscanf(line, "%llx-%llx ", &start, &end) == 2)
                        inside = (uintptr_t)at >= start && (uintptr_t)at < end;
                else if (inside && strncmp(line, "VmFlags:", 8) == 0)
                        found = strstr(line, flag);
        }
        fclose(f);
        return found;
}

TEST(test_memory_map)
{
        int fd = memfd_create_sized("test", 8192), pipe_fds[2];
        char *one = memory_map(fd, 8192), *other = memory_map(fd, 4096), *own;

        assert_true(one && other);
        one[5] = 'x';
        assert_int_equal(other[5], 'x');
        own = memory_map(-1, UINT64_C(1) << 40); /* nothing is taken for it */
        assert_non_null(own);
        own[5] = 'y';
        assert_true(has_vm_flag(one, " dd") && has_vm_flag(own, " dd"));
        munmap(own, UINT64_C(1) << 40);
        munmap(other, 4096);
        munmap(one, 8192);
        fd_close(fd);
        assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
        assert_null(memory_map(pipe_fds[0], 4096));
        fd_close(pipe_fds[0]);
        fd_close(pipe_fds[1]);
}

/* Runs in a process without these descriptors. Returns 0 if all checks hold. */
static int open_standard_without(int first, int last)
{
        int n;

        for (int fd = first; fd <= last; fd++)
                close(fd);
        n = fd_count_open();
        if (fd_open_standard() < 0 || fd_count_open() != n + last - first + 1)
                return 1;
        for (int fd = 0; fd <= 2; fd++)
                if (fcntl(fd, F_GETFD) != 0) /* closed, or not inherited */
                        return 2;
        return fd_open_standard() < 0 || fd_count_open() != n + last - first + 1 ? 3 : 0;
}

TEST(test_open_standard)
{
        for (int first = 0; first <= 2; first++)
                for (int last = first; last <= 2; last++) {
                        pid_t pid = child_fork();
                        int status;

                        assert_true(pid >= 0);
                        if (pid == 0)
                                _exit(open_standard_without(first, last));
                        assert_int_equal(waitpid(pid, &status, 0), pid);
                        assert_int_equal(status, 0);
                }
}

TEST(test_memfd_errors)
{
        char name[300];

        memset(name, 'n', sizeof(name) - 1);
        name[sizeof(name) - 1] = '\0';
        assert_int_equal(memfd_create_sized("x", UINT64_MAX), -EFBIG);
        assert_int_equal(memfd_create_sized(name, 4096), -EINVAL);
        assert_int_equal(fd_punch_hole(-1, 0, 4096), -EBADF);
        assert_int_equal(fd_punch_hole(-1, UINT64_MAX, 1), -EFBIG);
}

static void check_file(const char *path, const char *expected)
{
        char *data = NULL;
        size_t len = 0;

        assert_int_equal(file_read(path, 1 << 20, &data, &len), 0);
        assert_int_equal(len, strlen(expected));
        assert_string_equal(data, expected);
        free(data);
}

TEST(test_replace)
{
        const char *dir = test_dir_make();
        char *path = test_path(dir, "file");
        mode_t mask = umask(0077);
        struct stat st;

        assert_int_equal(file_replace(path, "first", 5, 0644), 0);
        check_file(path, "first");
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0644);
        assert_int_equal(file_replace(path, "", 0, 0600), 0);
        check_file(path, "");
        assert_int_equal(test_dir_count(dir), 1);
        assert_int_equal(file_replace(dir, "x", 1, 0600), -EISDIR);
        assert_int_equal(file_replace("/nonexistent/dir/x", "x", 1, 0600), -ENOENT);
        umask(mask);
        test_dir_remove(dir);
        free(path);
}

/* The file size limit stands in for a full disk: it fails write() half-way. */
TEST(test_replace_half_written)
{
        static char big[200000];
        const char *dir = test_dir_make();
        char *path = test_path(dir, "file");
        struct rlimit saved, small;

        assert_int_equal(file_replace(path, "old", 3, 0644), 0);
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &saved), 0);
        signal(SIGXFSZ, SIG_IGN);
        small = (struct rlimit){100000, saved.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        assert_int_equal(file_replace(path, big, sizeof(big), 0644), -EFBIG);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &saved), 0);
        signal(SIGXFSZ, SIG_DFL);
        check_file(path, "old");
        assert_int_equal(test_dir_count(dir), 1);
        test_dir_remove(dir);
        free(path);
}

TEST(test_read_limits)
{
        static char content[9001];
        const char *dir = test_dir_make();
        char *path = test_path(dir, "file"), *data = NULL;
        size_t len = 77;

        memset(content, 'c', sizeof(content) - 1);
        assert_int_equal(file_replace(path, content, 9000, 0600), 0);
        assert_int_equal(file_read(path, 8999, &data, &len), -EFBIG);
        assert_int_equal(file_read(path, 0, &data, &len), -EFBIG);
        assert_int_equal(file_read("/nonexistent", 10, &data, &len), -ENOENT);
        assert_int_equal(file_read(dir, 10, &data, &len), -EISDIR);
        assert_null(data);
        assert_int_equal(len, 77);
        assert_int_equal(file_read(path, 9000, &data, &len), 0);
        assert_int_equal(len, 9000);
        assert_string_equal(data, content);
        free(data);
        test_dir_remove(dir);
        free(path);
}

/* Neither is opened where that would wait, nor read where it would have no end. */
TEST(test_read_regular)
{
        const char *dir = test_dir_make();
        char *path = test_path(dir, "file"), *data = NULL;
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        size_t len = 77;

        assert_int_equal(mkfifo(path, 0600), 0);
        assert_int_equal(file_read_regular(path, 10, &data, &len), -EBADFD);
        assert_int_equal(unlink(path), 0);
        snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
        assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        assert_int_equal(file_read_regular(path, 10, &data, &len), -EBADFD);
        assert_int_equal(file_read_regular("/dev/zero", 10, &data, &len), -EBADFD);
        assert_int_equal(file_read_regular(dir, 10, &data, &len), -EISDIR);
        assert_int_equal(file_read_regular("/nonexistent", 10, &data, &len), -ENOENT);
        assert_null(data);
        assert_int_equal(len, 77);
        assert_string_equal(file_read_error(-EBADFD), "it is no regular file");
        assert_string_equal(file_read_error(-EISDIR), "Is a directory");
        test_dir_remove(dir);
        free(path);
}

/* Files of /proc say they are empty. */
TEST(test_read_unknown_size)
{
        char *data = NULL;
        size_t len = 0;

        assert_int_equal(file_read("/proc/self/smaps", 1 << 24, &data, &len), 0);
        assert_true(len > 8192);
        assert_int_equal(strlen(data), len);
        free(data);
}

TEST(test_read_without_memory)
{
        alloc_fail_each(n)
        {
                char *data = NULL;
                size_t len = 0;
                int r = file_read("/proc/self/smaps", 1 << 24, &data, &len);

                assert_int_equal(r, alloc_fail_happened() ? -ENOMEM : 0);
                assert_int_equal(data == NULL, alloc_fail_happened());
                free(data);
        }
}
