/* SIGKILL at each fault point of a disk's store (base/fault-point.h), with both engines: what was
 * promised before is so after. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "disk-fault-points.h"
#include "tests/unit/child.h"
#include "tests/unit/disk-fixture.h"

#define N_PASSES 4

/* Answers that the killed process had got: shared with the process that checks. */
struct told {
        bool synced, removed, raised, dropped, is_over;
};

static struct told *told;

static void expect_0(int r)
{
        if (r != 0)
                abort();
}

/* Pages 0..9 of `a` are synced, and 3 is removed. The generation of `b`'s pages ends. `c` is
 * dropped, and another space gets its chunks. */
static void live(struct bench *b)
{
        struct disk_space *s, *t, *u;
        struct answer a = {0};
        uint64_t at[10];

        bench_open(b);
        s = bench_space(b, 'a', TEST_SLOT);
        t = bench_space(b, 'b', 4096);
        u = bench_space(b, 'c', TEST_SLOT);
        bench_write(b, s, 0, 10, 5000, at);
        bench_write(b, t, 100, 10, 4000, NULL);
        bench_write(b, u, 200, 60, 5000, NULL);
        expect_0(disk_sync(b->disk, bench_answer, &a));
        expect_0(bench_await(b, &a));
        told->synced = true;
        expect_0(bench_remove(b, s, 3, at[3]));
        told->removed = true;
        a.came = false;
        expect_0(disk_raise(t, 2, bench_answer, &a));
        expect_0(bench_await(b, &a));
        told->raised = true;
        bench_write(b, t, 300, 2, 4000, NULL);
        a.came = false;
        expect_0(disk_drop(u, bench_answer, &a));
        expect_0(bench_await(b, &a));
        told->dropped = true;
        bench_write(b, s, 400, 70, 5000, NULL); /* in what `c` had */
        if (!disk_close(b->disk))
                abort();
        /* The end of a disk that was deleted. */
        bench_open(b);
        expect_0(unlink(b->path));
        a.came = false;
        expect_0(disk_raise(bench_find(b, 'a'), 9, bench_answer, &a));
        told->is_over = true;
        expect_0(bench_await(b, &a));
        _exit(disk_close(b->disk) ? 0 : 1);
}

static unsigned count(struct bench *b, char name, uint64_t first, unsigned n)
{
        struct disk_space *s = bench_find(b, name);
        unsigned found = 0;

        for (unsigned i = 0; s && i < n; i++) {
                uint64_t at = bench_where(s, first + i);

                if (at == UINT64_MAX)
                        continue;
                assert_int_equal(bench_read(b, s, first + i, at), 0);
                found++;
        }
        return found;
}

static void look(struct bench *b)
{
        int r = bench_open(b);

        if (r != 0 && r != DISK_NEW)
                fail_msg("disk_open: %d (%s)", r, b->why);
        bench_check(b);
        for (struct disk_space *s = NULL; (s = disk_space_next(b->disk, s));)
                if (!bench_info(s).is_loaded)
                        bench_load(b, s);
        if (told->is_over) {
                bench_close(b);
                return;
        }
        assert_int_equal(bench_stats(b).n_damaged, 0);
        if (told->synced)
                assert_true(count(b, 'a', 0, 10) >= 9);
        if (told->removed)
                assert_int_equal(count(b, 'a', 3, 1), 0);
        if (told->raised)
                assert_int_equal(count(b, 'b', 100, 10), 0);
        if (told->dropped)
                assert_null(bench_find(b, 'c'));
        (void)count(b, 'a', 400, 70);
        (void)count(b, 'b', 300, 2);
        (void)count(b, 'c', 200, 60);
        /* The store works on. */
        bench_write(b, bench_space(b, 'z', TEST_SLOT), 900, 1, 5000, NULL);
        bench_close(b);
}

/* True: it was killed there. */
static bool kill_at(const char *point, unsigned pass, enum disk_engine_kind engine)
{
        char text[16];
        struct bench b;
        int status;
        pid_t pid;

        memset(told, 0, sizeof(*told));
        bench_init(&b, engine);
        pid = child_fork();
        if (pid == 0) {
                (void)snprintf(text, sizeof(text), "%u", pass);
                setenv("KVL_FAULT_POINT", point, 1);
                setenv("KVL_FAULT_PASS", text, 1);
                live(&b);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
        look(&b);
        bench_deinit(&b);
        return status != 0;
}

TEST(test_kill)
{
#define NAME(name) name,
        static const char *const points[] = {FAULT_POINTS(NAME)};

        for (unsigned i = 0; i < ARRAY_SIZE(points); i++)
                for (unsigned pass = 1; pass <= N_PASSES; pass++) {
                        enum disk_engine_kind engine =
                                (i + pass) % 2 ? DISK_ENGINE_THREADS : DISK_ENGINE_AUTO;

                        if (!kill_at(points[i], pass, engine) && pass == 1)
                                fail_msg("%s isn't come by", points[i]);
                }
}

int main(void)
{
        told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        disk_tests_in_memory();
        return test_run_all(NULL, NULL);
}
