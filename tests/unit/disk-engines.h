/* Tests of a disk's store that run once with each engine: on top of disk-fixture.h. */
#ifndef KVL_TESTS_DISK_ENGINES_H
#define KVL_TESTS_DISK_ENGINES_H

#include "tests/unit/disk-fixture.h"

/* The one that tests are to use. */
enum disk_engine_kind tested_engine(void);

/*
 * For main(): has run() run all tests with each engine, and before that, where $TMPDIR is, those
 * that differ between file systems (not all). Both return how many failed.
 */
int engines_run(int (*run)(const char *group, bool all));

static inline void begin(struct bench *b)
{
        bench_init(b, tested_engine());
        bench_expect(b, DISK_NEW);
}

static inline void end(struct bench *b)
{
        bench_check(b);
        bench_close(b);
        bench_deinit(b);
}

static inline void restart(struct bench *b)
{
        bench_close(b);
        bench_expect(b, 0);
}

#endif
