/*
 * Points at which a test kills or delays the process. FAULT_POINT("name") raises SIGKILL in the
 * test build (-DKVL_FAULT_POINTS) at the pass that the test names. In other builds it does nothing.
 *
 *   KVL_FAULT_POINT  name of the point; read at every pass, so that a program can arm itself
 *   KVL_FAULT_PASS   1: the first pass after that; passes are counted per place in the source.
 *                    "yield": kills nothing, but yields the processor at every pass
 *   KVL_FAULT_FILE   instead: a file with a struct fault_table, which aims at any number of points
 *                    and arms or disarms a running process. A kill disarms it first: the process
 *                    started next goes on
 *
 * A point is placed where a death leaves something half done in memory that outlives the process:
 * segments that library and daemon share, and the daemon's own records
 * (daemon/core/state/state-root.h). Tests of the library's points: tests/fault/test_ring_kill.c,
 * test_resume_kill.c; of the daemon's: test_daemon_kill.c, and unit tests.
 * tests/tools/fault-points.py takes the names from the sources: each new point must be killed at,
 * or be listed by a test as an exception.
 */
#ifndef KVL_BASE_FAULT_POINT_H
#define KVL_BASE_FAULT_POINT_H

#include <stdatomic.h>
#include <stdint.h>

#define FAULT_NAME_BYTES 60

#define FAULT_MAX_AIMS 160 /* more than there are points; not tuned */

struct fault_aim {
        _Atomic uint32_t n_passes; /* left until it is hit; 0: was hit, or has no aim */
        char name[FAULT_NAME_BYTES];
};

/* Passes count while the table is armed. The first that hits its aim disarms it, and kills: once
 * for each arming. Names are written first, n_aims last (release). */
struct fault_table {
        _Atomic uint32_t is_armed, n_aims;
        _Atomic int32_t signal; /* kills; 0: SIGKILL. SIGABRT: like a fault of its own */
        struct fault_aim aims[FAULT_MAX_AIMS];
};

#ifdef KVL_FAULT_POINTS

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Returns NULL if there is no file, or it can't be mapped. Tries once for each source file. */
static inline struct fault_table *fault_table_get(void)
{
        static struct fault_table *_Atomic table;
        static _Atomic int tried;
        const char *path;
        void *at;
        int fd;

        if (atomic_load(&table) || atomic_exchange(&tried, 1))
                return atomic_load(&table);
        path = getenv("KVL_FAULT_FILE");
        fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
        if (fd < 0)
                return NULL;
        at = mmap(NULL, sizeof(struct fault_table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        if (at != MAP_FAILED)
                atomic_store(&table, at);
        return atomic_load(&table);
}

/* Whether this pass must kill. */
static inline int fault_table_hit(struct fault_table *table, const char *name)
{
        struct fault_aim *aim = table->aims, *end;
        uint32_t n;

        if (!atomic_load(&table->is_armed))
                return 0;
        for (end = aim + atomic_load(&table->n_aims); aim < end; aim++)
                if (strcmp(aim->name, name) == 0)
                        break;
        n = aim < end ? atomic_load(&aim->n_passes) : 0;
        while (n > 0 && !atomic_compare_exchange_weak(&aim->n_passes, &n, n - 1))
                ;
        if (n != 1)
                return 0;
        if (atomic_exchange(&table->is_armed, 0))
                return 1;
        atomic_store(&aim->n_passes, 1); /* another thread's pass kills */
        return 0;
}

static inline void fault_point_pass(const char *name, _Atomic unsigned long *n_passes)
{
        const char *armed = getenv("KVL_FAULT_POINT"), *pass = getenv("KVL_FAULT_PASS");
        struct fault_table *table = fault_table_get();

        if (table && fault_table_hit(table, name))
                raise(atomic_load(&table->signal) ? atomic_load(&table->signal) : SIGKILL);
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
