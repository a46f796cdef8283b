/*
 * Where a test kills the process, or holds it up: FAULT_POINT("name") raises SIGKILL in the test
 * build (-DKVL_FAULT_POINTS) at the pass that the environment names, and is nothing in every other
 * build.
 *
 *   KVL_FAULT_POINT  name of the point; read at every pass, so that a program can arm itself
 *   KVL_FAULT_PASS   1: the first pass after that; passes are counted per place in the source.
 *                    "yield": nobody dies, the processor is given away at every pass
 *
 * A point stands where a death leaves something half done in memory that outlives the process: the
 * segments that library and daemon share, and the daemon's own records (daemon/core/state.h).
 * Lists: tests/fault/test_ring_kill.c, tests/fault/test_daemon_kill.c.
 */
#ifndef KVL_BASE_FAULT_POINT_H
#define KVL_BASE_FAULT_POINT_H

#ifdef KVL_FAULT_POINTS

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static inline void fault_point_pass(const char *name, _Atomic unsigned long *n_passes)
{
        const char *armed = getenv("KVL_FAULT_POINT"), *pass = getenv("KVL_FAULT_PASS");

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
