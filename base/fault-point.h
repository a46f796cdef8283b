/*
 * Where a test kills the process, or holds it up: FAULT_POINT("name") raises SIGKILL in the test
 * build (-DKVL_FAULT_POINTS) at the pass that the test names, and is nothing in every other build.
 *
 *   KVL_FAULT_POINT  name of the point; read at every pass, so that a program can arm itself
 *   KVL_FAULT_PASS   1: the first pass after that; passes are counted per place in the source.
 *                    "yield": nobody dies, the processor is given away at every pass
 *   KVL_FAULT_FILE   instead of these: a file with a struct fault_arm, by which a test arms and
 *                    disarms a process that runs already. Who dies has disarmed it: what is started
 *                    in its place goes on
 *
 * A point stands where a death leaves something half done in memory that outlives the process: the
 * segments that library and daemon share, and the daemon's own records (daemon/core/state.h).
 * Lists: tests/fault/test_ring_kill.c, tests/fault/test_daemon_kill.c.
 */
#ifndef KVL_BASE_FAULT_POINT_H
#define KVL_BASE_FAULT_POINT_H

#include <stdatomic.h>
#include <stdint.h>

#define FAULT_NAME_BYTES 60

/* Written by the test: the name, then passes (release). */
struct fault_arm {
        _Atomic uint32_t n_passes; /* left until it dies; 0: disarmed */
        char name[FAULT_NAME_BYTES];
};

#ifdef KVL_FAULT_POINTS

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* NULL: no file, or it can't be mapped. Once for each source file. */
static inline struct fault_arm *fault_arm_get(void)
{
        static struct fault_arm *_Atomic arm;
        static _Atomic int tried;
        const char *path;
        void *at;
        int fd;

        if (atomic_load(&arm) || atomic_exchange(&tried, 1))
                return atomic_load(&arm);
        path = getenv("KVL_FAULT_FILE");
        fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
        if (fd < 0)
                return NULL;
        at = mmap(NULL, sizeof(struct fault_arm), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        if (at != MAP_FAILED)
                atomic_store(&arm, at);
        return atomic_load(&arm);
}

static inline void fault_point_pass(const char *name, _Atomic unsigned long *n_passes)
{
        const char *armed = getenv("KVL_FAULT_POINT"), *pass = getenv("KVL_FAULT_PASS");
        struct fault_arm *arm = fault_arm_get();

        if (arm && atomic_load_explicit(&arm->n_passes, memory_order_acquire) > 0 &&
                strcmp(arm->name, name) == 0 && atomic_fetch_sub(&arm->n_passes, 1) == 1)
                raise(SIGKILL);
        if (!armed || !pass || strcmp(armed, name) != 0)
                return;
        if (strcmp(pass, "yield") == 0)
                sched_yield();
        else if (++*n_passes == strtoul(pass, NULL, 10))
                raise(SIGKILL);
}

#define FAULT_POINT(name)                                        \
        do {                                                     \
                static _Atomic unsigned long fault_point_passes; \
                fault_point_pass(name, &fault_point_passes);     \
        } while (0)

#else
#define FAULT_POINT(name) ((void)0)
#endif

#endif
