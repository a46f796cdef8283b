/* inject.so: libc functions that fail on demand (inject.h). Calls the replaced functions by the
 * next object's symbol, the allocator by glibc's own names: dlsym() allocates. */
/* Both names of each function with an offset are replaced. */
#undef _FILE_OFFSET_BITS

#include "tests/fault/inject.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/macros.h"

#define EXPORT      __attribute__((visibility("default")))
#define MAX_MODULES 8
#define CALLER      __builtin_return_address(0)

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static const char *const names[] = {
#define X(name, error) #name,
        INJECT_TABLE(X)
#undef X
};

/* Code ranges of the objects whose calls count. */
static struct range {
        uintptr_t first, end;
} ranges[MAX_MODULES];
static unsigned n_ranges;
static bool is_partial; /* only they count */

static struct inject *shared; /* NULL: everything passes */

static bool is_wanted(const char *path, const char *words)
{
        char copy[256], *save = NULL;

        snprintf(copy, sizeof(copy), "%s", words);
        for (char *word = strtok_r(copy, ":", &save); word; word = strtok_r(NULL, ":", &save))
                if (strstr(path, word))
                        return true;
        return false;
}

static int note_object(struct dl_phdr_info *info, size_t size, void *words)
{
        for (unsigned i = 0; i < info->dlpi_phnum && n_ranges < MAX_MODULES; i++) {
                const ElfW(Phdr) *p = &info->dlpi_phdr[i];
                uintptr_t first = info->dlpi_addr + p->p_vaddr;

                if (p->p_type == PT_LOAD && (p->p_flags & PF_X) &&
                        is_wanted(info->dlpi_name, words))
                        ranges[n_ranges++] = (struct range){first, first + p->p_memsz};
        }
        return 0;
}

static bool counts(const void *caller)
{
        uintptr_t at = (uintptr_t)caller;

        if (!is_partial)
                return true;
        for (unsigned i = 0; i < n_ranges; i++)
                if (at >= ranges[i].first && at < ranges[i].end)
                        return true;
        return false;
}

static void arm(struct inject *in, const char *list)
{
        char copy[256], *save = NULL, name[32];
        unsigned long n;
        int error;

        snprintf(copy, sizeof(copy), "%s", list);
        for (char *one = strtok_r(copy, ",", &save); one; one = strtok_r(NULL, ",", &save)) {
                if (sscanf(one, "%31[^:]:%lu:%d", name, &n, &error) != 3)
                        abort();
                for (unsigned i = 0; i < N_INJECT; i++)
                        if (strcmp(names[i], name) == 0) {
                                in->slots[i].error = error;
                                in->slots[i].fail_at = n;
                        }
        }
}

__attribute__((constructor)) static void start(void)
{
        const char *path = getenv("KVL_INJECT_FILE"), *words = getenv("KVL_INJECT_MODULES");
        int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC) : -1;
        struct inject *in;

        if (fd < 0)
                return;
        in = mmap(NULL, sizeof(*in), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        if (in == MAP_FAILED)
                abort();
        is_partial = words;
        if (words)
                dl_iterate_phdr(note_object, (void *)words);
        if (getenv("KVL_INJECT"))
                arm(in, getenv("KVL_INJECT"));
        shared = in;
}

static bool draws(struct inject_slot *s)
{
        uint64_t n = atomic_load(&s->one_in);

        /* Knuth's MMIX generator; the high bits are the good ones. */
        return n > 0 &&
               (atomic_fetch_add(&s->random, 1) * UINT64_C(6364136223846793005) >> 33) % n == 0;
}

/* Writes the failed function and its caller into the process' log. */
static void tell(enum inject_function f, uint64_t n, const void *caller)
{
        const char *object = "";
        Dl_info info;
        char line[256];
        int len;

        if (dladdr(caller, &info) && info.dli_fname) {
                object = info.dli_fname;
                caller = (const void *)((const char *)caller - (const char *)info.dli_fbase);
        }
        len = snprintf(line, sizeof(line), "inject: call %llu of %s fails: %s+%p\n",
                (unsigned long long)n, names[f], object, caller);
        syscall(SYS_write, STDERR_FILENO, line, len);
}

/* Waits as on a slow disk. */
static void hold(struct inject_slot *s, uint64_t n)
{
        const struct timespec moment = {.tv_nsec = 1000000};
        uint64_t hold_at = atomic_load(&s->hold_at);

        if (hold_at == 0 || n < hold_at)
                return;
        atomic_fetch_add(&s->n_held, 1);
        while (atomic_load(&s->hold_at) == hold_at)
                nanosleep(&moment, NULL);
}

/* Returns 0, or the errno with which the call fails. */
static int error_of(enum inject_function f, const void *caller)
{
        struct inject_slot *s;
        int saved = errno;
        uint64_t n;

        if (!shared || !counts(caller))
                return 0;
        s = &shared->slots[f];
        n = atomic_fetch_add(&s->n_calls, 1) + 1;
        hold(s, n);
        if (n != atomic_load(&s->fail_at) && !draws(s))
                return 0;
        atomic_fetch_add(&s->n_failed, 1);
        tell(f, n, caller);
        errno = saved;
        return atomic_load(&s->error);
}

static bool fails(enum inject_function f, const void *caller)
{
        int error = error_of(f, caller);

        if (error)
                errno = error;
        return error;
}

/* The function of that name behind this object. */
#define NEXT(name)                                                          \
        ({                                                                  \
                static __typeof__(name) *_Atomic next;                      \
                                                                            \
                if (!next)                                                  \
                        next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name); \
                next;                                                       \
        })

/* ---- memory --------------------------------------------------------------------------------- */

EXPORT void *malloc(size_t size)
{
        return fails(INJECT_malloc, CALLER) ? NULL : __libc_malloc(size);
}

EXPORT void *calloc(size_t n, size_t size)
{
        return fails(INJECT_calloc, CALLER) ? NULL : __libc_calloc(n, size);
}

EXPORT void *realloc(void *p, size_t size)
{
        return fails(INJECT_realloc, CALLER) ? NULL : __libc_realloc(p, size);
}

EXPORT int posix_memalign(void **ret, size_t alignment, size_t size)
{
        int error = error_of(INJECT_posix_memalign, CALLER);
        void *p = error ? NULL : __libc_memalign(alignment, size);

        if (p)
                *ret = p;
        return p ? 0 : error ? error : ENOMEM;
}

#define STAND_BEFORE(f, type, failed, fn, params, args)                      \
        EXPORT type fn params                                                \
        {                                                                    \
                return fails(INJECT_##f, CALLER) ? (failed) : NEXT(fn) args; \
        }

STAND_BEFORE(mmap, void *, MAP_FAILED, mmap,
        (void *at, size_t bytes, int prot, int flags, int fd, off_t offset),
        (at, bytes, prot, flags, fd, offset))
STAND_BEFORE(mmap, void *, MAP_FAILED, mmap64,
        (void *at, size_t bytes, int prot, int flags, int fd, off64_t offset),
        (at, bytes, prot, flags, fd, offset))

/* ---- the rest: `fn` counts as `f` ----------------------------------------------------------- */

STAND_BEFORE(memfd_create, int, -1, memfd_create, (const char *name, unsigned flags), (name, flags))
STAND_BEFORE(ftruncate, int, -1, ftruncate, (int fd, off_t bytes), (fd, bytes))
STAND_BEFORE(
        fallocate, int, -1, fallocate, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n))
STAND_BEFORE(open, int, -1, mkostemp, (char *path, int flags), (path, flags))
STAND_BEFORE(
        socket, int, -1, socket, (int domain, int type, int protocol), (domain, type, protocol))
STAND_BEFORE(bind, int, -1, bind, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n))
STAND_BEFORE(listen, int, -1, listen, (int fd, int n), (fd, n))
STAND_BEFORE(accept4, int, -1, accept4, (int fd, struct sockaddr *a, socklen_t *n, int flags),
        (fd, a, n, flags))
STAND_BEFORE(getsockopt, int, -1, getsockopt,
        (int fd, int level, int name, void *value, socklen_t *n), (fd, level, name, value, n))
STAND_BEFORE(
        send, ssize_t, -1, send, (int fd, const void *p, size_t n, int flags), (fd, p, n, flags))
STAND_BEFORE(
        send, ssize_t, -1, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags))
STAND_BEFORE(recvmsg, ssize_t, -1, recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags))
STAND_BEFORE(dup, int, -1, dup, (int fd), (fd))
STAND_BEFORE(pipe2, int, -1, pipe2, (int fds[2], int flags), (fds, flags))
STAND_BEFORE(eventfd, int, -1, eventfd, (unsigned n, int flags), (n, flags))
STAND_BEFORE(epoll_create1, int, -1, epoll_create1, (int flags), (flags))
STAND_BEFORE(timerfd_create, int, -1, timerfd_create, (clockid_t clock, int flags), (clock, flags))
STAND_BEFORE(mkdir, int, -1, mkdir, (const char *path, mode_t mode), (path, mode))
STAND_BEFORE(chmod, int, -1, chmod, (const char *path, mode_t mode), (path, mode))
STAND_BEFORE(chmod, int, -1, fchmod, (int fd, mode_t mode), (fd, mode))
STAND_BEFORE(
        pwrite, ssize_t, -1, pwrite, (int fd, const void *p, size_t n, off_t at), (fd, p, n, at))
STAND_BEFORE(pwrite, ssize_t, -1, pwrite64, (int fd, const void *p, size_t n, off64_t at),
        (fd, p, n, at))
STAND_BEFORE(fsync, int, -1, fsync, (int fd), (fd))
STAND_BEFORE(rename, int, -1, rename, (const char *from, const char *to), (from, to))
STAND_BEFORE(unlink, int, -1, unlink, (const char *path), (path))

/* Only files count, to imitate a full disk: not a process' own pipes and eventfds. */
EXPORT ssize_t write(int fd, const void *p, size_t n)
{
        struct stat st;

        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && fails(INJECT_write, CALLER))
                return -1;
        return NEXT(write)(fd, p, n);
}

/* Removing a descriptor from a set needs no resource. */
EXPORT int epoll_ctl(int fd, int op, int of, struct epoll_event *event)
{
        if (op != EPOLL_CTL_DEL && fails(INJECT_epoll_ctl, CALLER))
                return -1;
        return NEXT(epoll_ctl)(fd, op, of, event);
}

EXPORT int pthread_create(
        pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *), void *data)
{
        int error = error_of(INJECT_pthread_create, CALLER);

        return error ? error : NEXT(pthread_create)(ret, attr, fn, data);
}

/* The mode is the last argument of open(), if a file is made. */
#define MODE_OF(flags)                                                     \
        ({                                                                 \
                va_list args;                                              \
                mode_t made = 0;                                           \
                                                                           \
                va_start(args, flags);                                     \
                if (((flags)&O_CREAT) || ((flags)&O_TMPFILE) == O_TMPFILE) \
                        made = va_arg(args, mode_t);                       \
                va_end(args);                                              \
                made;                                                      \
        })

#define STAND_BEFORE_OPEN(fn)                                                         \
        EXPORT int fn(const char *path, int flags, ...)                               \
        {                                                                             \
                mode_t mode = MODE_OF(flags);                                         \
                                                                                      \
                return fails(INJECT_open, CALLER) ? -1 : NEXT(fn)(path, flags, mode); \
        }
#define STAND_BEFORE_OPENAT(fn)                                                            \
        EXPORT int fn(int dir, const char *path, int flags, ...)                           \
        {                                                                                  \
                mode_t mode = MODE_OF(flags);                                              \
                                                                                           \
                return fails(INJECT_open, CALLER) ? -1 : NEXT(fn)(dir, path, flags, mode); \
        }
STAND_BEFORE_OPEN(open)
STAND_BEFORE_OPEN(open64)
STAND_BEFORE_OPENAT(openat)
STAND_BEFORE_OPENAT(openat64)

static int control(int fd, int command, void *arg, const void *caller)
{
        if ((command == F_DUPFD || command == F_DUPFD_CLOEXEC) && fails(INJECT_dup, caller))
                return -1;
        if (command == F_ADD_SEALS && fails(INJECT_seal, caller))
                return -1;
        return NEXT(fcntl)(fd, command, arg);
}

#define STAND_BEFORE_FCNTL(fn)                            \
        EXPORT int fn(int fd, int command, ...)           \
        {                                                 \
                va_list args;                             \
                void *arg;                                \
                                                          \
                va_start(args, command);                  \
                arg = va_arg(args, void *);               \
                va_end(args);                             \
                return control(fd, command, arg, CALLER); \
        }
STAND_BEFORE_FCNTL(fcntl)
STAND_BEFORE_FCNTL(fcntl64)

EXPORT long syscall(long number, ...)
{
        va_list args;
        long a[6];

        va_start(args, number);
        for (unsigned i = 0; i < ARRAY_SIZE(a); i++)
                a[i] = va_arg(args, long);
        va_end(args);
        if (number == SYS_pidfd_open && fails(INJECT_pidfd_open, CALLER))
                return -1;
        return NEXT(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
