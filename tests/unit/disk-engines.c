#include "tests/unit/disk-engines.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static enum disk_engine_kind engine;

enum disk_engine_kind tested_engine(void)
{
        return engine;
}

/* False: the kernel has none for us. */
static bool has_uring(void)
{
        struct bench b;
        int r;

        bench_init(&b, DISK_ENGINE_URING);
        r = bench_open(&b);
        if (r >= 0)
                bench_close(&b);
        else
                fprintf(stderr, "not tested: %s\n", b.why);
        bench_deinit(&b);
        return r != -EOPNOTSUPP;
}

/* Flushes of a disk that others use take their time: memory does for most. */
int engines_run(int (*run)(const char *group, bool all))
{
        int n_failed;

        engine = DISK_ENGINE_THREADS;
        n_failed = run("threads, on disk", false);
        if (!getenv("KVL_FULL"))
                disk_tests_in_memory();
        n_failed += run("threads", true);
        engine = DISK_ENGINE_URING;
        if (has_uring())
                n_failed += run("io_uring", true);
        return n_failed;
}
