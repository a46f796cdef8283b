/*
 * The file that inject.so (inject.c), loaded by LD_PRELOAD, and the test that drives it both map.
 * inject.so counts calls of some libc functions in one process, and makes some fail or wait.
 *
 * Environment of the process:
 *   KVL_INJECT_FILE=PATH       a `struct inject` of inject_open(); unset: nothing is counted
 *   KVL_INJECT_MODULES=A:B     only calls out of objects whose path contains one of these words;
 *                              unset: all calls of the process
 *   KVL_INJECT=NAME:N:ERRNO,.. inject_arm() before the first call; ERRNO is a number
 */
#ifndef KVL_TESTS_INJECT_H
#define KVL_TESTS_INJECT_H

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>

/*
 * X(name, errno). `open` includes openat() and mkostemp(), `send` sendmsg(), `dup` fcntl(F_DUPFD*),
 * `seal` fcntl(F_ADD_SEALS). The errno is the kernel's for a lack of memory, descriptors or disk.
 */
#define INJECT_TABLE(X)           \
        X(malloc, ENOMEM)         \
        X(calloc, ENOMEM)         \
        X(realloc, ENOMEM)        \
        X(posix_memalign, ENOMEM) \
        X(mmap, ENOMEM)           \
        X(memfd_create, EMFILE)   \
        X(ftruncate, ENOMEM)      \
        X(fallocate, ENOSPC)      \
        X(open, EMFILE)           \
        X(socket, EMFILE)         \
        X(bind, EADDRNOTAVAIL)    \
        X(listen, ENOBUFS)        \
        X(accept4, ENFILE)        \
        X(getsockopt, ENOBUFS)    \
        X(send, ENOBUFS)          \
        X(recvmsg, ENOMEM)        \
        X(dup, EMFILE)            \
        X(seal, EPERM)            \
        X(pipe2, EMFILE)          \
        X(eventfd, EMFILE)        \
        X(epoll_create1, EMFILE)  \
        X(epoll_ctl, ENOSPC)      \
        X(timerfd_create, EMFILE) \
        X(pidfd_open, EMFILE)     \
        X(pthread_create, EAGAIN) \
        X(mkdir, ENOSPC)          \
        X(chmod, EPERM)           \
        X(write, ENOSPC)          \
        X(pwrite, ENOSPC)         \
        X(fsync, EIO)             \
        X(rename, ENOSPC)         \
        X(unlink, EROFS)

enum inject_function {
#define X(name, error) INJECT_##name,
        INJECT_TABLE(X)
#undef X
                N_INJECT
};

struct inject_slot {
        _Atomic uint64_t n_calls;
        _Atomic uint64_t fail_at; /* the call of this number fails, once; 0: none */
        _Atomic uint64_t one_in;  /* each call fails with probability 1 / one_in; 0: none */
        _Atomic uint64_t random;  /* state of that; seeded by the code that sets one_in */
        _Atomic uint64_t n_failed;
        _Atomic int32_t error;
        _Atomic uint64_t
                hold_at;         /* calls from this number on wait as long as it is that; 0: none */
        _Atomic uint64_t n_held; /* calls that have waited */
};

struct inject {
        struct inject_slot slots[N_INJECT];
};

#endif
