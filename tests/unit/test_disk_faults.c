/* A disk's store on a disk that fails, is slow, or hangs (disk-sim.h), and calls that end early. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/unit/child.h"
#include "tests/unit/disk-fixture.h"
#include "tests/unit/disk-sim.h"
#include "tests/unit/test-random.h"

#define ALL_KINDS (~0u)

static void begin(struct bench *b, struct sim *sim)
{
        *sim = (struct sim){.error = -EIO};
        bench_init(b, DISK_ENGINE_THREADS);
        b->start = sim_start;
        b->start_data = sim;
        b->options.deadline_msec = 1;
        bench_expect(b, DISK_NEW);
}

static void end(struct bench *b)
{
        bench_check(b);
        bench_close(b);
        bench_deinit(b);
}

static void reap(struct bench *b)
{
        struct pollfd p = {.fd = disk_fd(b->disk), .events = POLLIN};

        while (poll(&p, 1, 0) == 1)
                disk_reap(b->disk);
        bench_check(b);
}

static enum disk_state state_of(struct bench *b)
{
        return bench_stats(b).state;
}

static void init_write(struct test_io *t, uint64_t number, uint32_t n)
{
        test_io_init(t, n, TEST_SLOT);
        test_io_write_pages(t, number, 5000);
}

static int try_write(struct bench *b, struct disk_space *s, uint64_t number)
{
        struct test_io t;
        int r;

        init_write(&t, number, 1);
        r = disk_write(s, t.io);
        if (r == 0) {
                bench_wait(b, &t.came);
                r = t.results[0].result;
        }
        test_io_deinit(&t);
        return r;
}

/* ---- errors ---------------------------------------------------------------------------------- */

TEST(test_one_error)
{
        struct disk_space *s;
        struct bench b;
        struct sim sim;
        uint64_t at;

        begin(&b, &sim);
        s = bench_space(&b, 'a', TEST_SLOT);
        bench_write(&b, s, 1, 1, 5000, &at);
        sim.fails = 1u << DISK_OP_READ;
        assert_int_equal(bench_read(&b, s, 1, at), -EIO);
        assert_int_equal(state_of(&b), DISK_FAILING);
        assert_non_null(strstr(bench_stats(&b).why, "a read failed: Input/output error"));
        assert_int_equal(bench_stats(&b).n_errors, 1);
        assert_int_equal(bench_stats(&b).n_bad, 0);
        sim.fails = 0;
        assert_int_equal(bench_read(&b, s, 1, at), 0); /* it stayed */
        assert_int_equal(state_of(&b), DISK_OK);
        assert_string_equal(bench_stats(&b).why, "");
        /* A write that fails leaves nothing. */
        reap(&b);
        sim.fails = 1u << DISK_OP_WRITE;
        sim.error = -ENOSPC;
        {
                struct test_io t;

                init_write(&t, 7, 3);
                assert_int_equal(disk_write(s, t.io), 0);
                sim.fails = 0;
                bench_wait(&b, &t.came);
                assert_int_equal(t.results[2].result, -ENOSPC);
                test_io_deinit(&t);
        }
        assert_int_equal(state_of(&b), DISK_FAILING);
        assert_int_equal(bench_info(s).n_pages, 1);
        assert_int_equal(try_write(&b, s, 7), 0);
        assert_int_equal(state_of(&b), DISK_OK);
        end(&b);
}

static void expect_discarded(struct bench *b)
{
        struct stat st;

        assert_int_equal(stat(b->path, &st), 0);
        assert_int_equal(st.st_size, 0);
}

TEST(test_many_errors)
{
        struct answer a = {0};
        struct disk_space *s;
        struct bench b;
        struct sim sim;
        uint64_t at, iter = 0;
        const struct disk_page *page;

        begin(&b, &sim);
        s = bench_space(&b, 'a', TEST_SLOT);
        bench_write(&b, s, 1, 1, 5000, &at);
        reap(&b);
        sim.fails = 1u << DISK_OP_READ;
        for (unsigned i = 1; i <= DISK_ERRORS_MAX; i++) {
                assert_int_equal(state_of(&b) == DISK_OFF, false);
                assert_int_equal(bench_read(&b, s, 1, at), -EIO);
        }
        assert_int_equal(state_of(&b), DISK_OFF);
        reap(&b);
        expect_discarded(&b);
        sim.fails = 0;
        assert_int_equal(try_write(&b, s, 2), -ENODEV);
        assert_false(disk_page_next(s, &iter, &page, &at));
        assert_int_equal(bench_remove(&b, s, 1, at), 0);
        assert_int_equal(disk_drop(s, bench_answer, &a), 0);
        assert_int_equal(bench_await(&b, &a), 0);
        end(&b);
}

/* A page can't be removed durably: the file is removed, or the answer says that it may come back.
 */
TEST(test_index_fails)
{
        for (unsigned can_truncate = 0; can_truncate < 2; can_truncate++) {
                struct answer raised = {0}, later = {0};
                struct disk_space *s;
                struct bench b;
                struct sim sim;
                uint64_t at;

                begin(&b, &sim);
                s = bench_space(&b, 'a', TEST_SLOT);
                bench_write(&b, s, 1, 1, 5000, &at);
                reap(&b);
                sim.fails = can_truncate ? 1u << DISK_OP_WRITE : ALL_KINDS;
                assert_int_equal(disk_raise(s, 2, bench_answer, &raised), 0);
                assert_int_equal(bench_await(&b, &raised), can_truncate ? 0 : -EIO);
                assert_int_equal(state_of(&b), DISK_OFF);
                assert_non_null(strstr(bench_stats(&b).why, "its index couldn't be written"));
                assert_int_equal(disk_raise(s, 3, bench_answer, &later), 0);
                assert_int_equal(bench_await(&b, &later), can_truncate ? 0 : -EIO);
                if (can_truncate)
                        expect_discarded(&b);
                end(&b);
        }
}

TEST(test_flush_fails)
{
        struct answer removed = {0}, synced = {0};
        struct disk_ref ref = {0};
        struct disk_space *s;
        struct bench b;
        struct sim sim;

        begin(&b, &sim);
        s = bench_space(&b, 'a', TEST_SLOT);
        bench_write(&b, s, 1, 1, 5000, &ref.at);
        page_key(1, ref.key);
        reap(&b);
        sim.fails = 1u << DISK_OP_FLUSH;
        assert_int_equal(disk_remove(s, &ref, 1, bench_answer, &removed), 0);
        assert_int_equal(disk_sync(b.disk, bench_answer, &synced), 0);
        assert_int_equal(bench_await(&b, &removed), 0);
        assert_int_equal(bench_await(&b, &synced), -ENODEV);
        expect_discarded(&b);
        end(&b);
}

TEST(test_zeroing_fails)
{
        struct answer a = {0};
        struct disk_space *s;
        struct bench b;
        struct sim sim;

        begin(&b, &sim);
        s = bench_space(&b, 'a', TEST_SLOT);
        for (unsigned i = 0; i < 15; i++)
                bench_write(&b, s, 7 * i, 7, 5000, NULL);
        assert_int_equal(disk_drop(s, bench_answer, &a), 0);
        assert_int_equal(bench_await(&b, &a), 0);
        reap(&b);
        s = bench_space(&b, 'b', TEST_SLOT);
        sim.fails = 1u << DISK_OP_ZERO;
        assert_int_equal(try_write(&b, s, 1), -EIO);
        bench_check(&b);
        assert_int_equal(bench_info(s).n_pages, 0);
        sim.fails = 0;
        reap(&b);
        assert_int_equal(bench_stats(&b).n_free, 15);
        assert_int_equal(try_write(&b, s, 1), 0);
        end(&b);
}

/* A chunk whose index can't be read is lost, and nothing else. */
TEST(test_loading_fails)
{
        struct answer a = {0};
        struct disk_space *s;
        struct bench b;
        struct sim sim;

        begin(&b, &sim);
        s = bench_space(&b, 'a', TEST_SLOT);
        bench_write(&b, s, 0, 14, 5000, NULL);
        bench_close(&b);
        bench_expect(&b, 0);
        s = bench_find(&b, 'a');
        sim.is_manual = true;
        assert_int_equal(disk_space_load(s, bench_answer, &a), 0);
        assert_int_equal(try_write(&b, s, 100), -EAGAIN);
        sim.fails = ALL_KINDS;
        assert_true(sim_step(&sim));
        sim.fails = 0;
        sim.is_manual = false;
        sim_run(&sim);
        assert_int_equal(bench_await(&b, &a), 0);
        assert_int_equal(bench_info(s).n_pages, 7);
        assert_int_equal(bench_info(s).n_chunks, 1);
        reap(&b);
        assert_int_equal(bench_stats(&b).n_free, 14);
        end(&b);
}

/* ---- slow, or never -------------------------------------------------------------------------- */

static void wait_until(uint64_t nsec)
{
        while (clock_now_nsec() < nsec)
                (void)poll(NULL, 0, 1);
}

TEST(test_late)
{
        struct test_io t, u;
        struct disk_space *s;
        struct bench b;
        struct sim sim;

        begin(&b, &sim);
        s = bench_space(&b, 'a', TEST_SLOT);
        reap(&b);
        assert_int_equal(disk_deadline_nsec(b.disk), UINT64_MAX);
        sim.is_manual = true;
        init_write(&t, 1, 1);
        assert_int_equal(disk_write(s, t.io), 0);
        assert_true(disk_deadline_nsec(b.disk) <= clock_now_nsec() + NSEC_PER_MSEC);
        wait_until(disk_deadline_nsec(b.disk));
        assert_int_equal(state_of(&b), DISK_OK);
        disk_reap(b.disk);
        assert_int_equal(state_of(&b), DISK_FAILING);
        assert_int_equal(disk_deadline_nsec(b.disk), UINT64_MAX);
        assert_non_null(strstr(bench_stats(&b).why, "hasn't answered for 1 ms"));
        assert_int_equal(bench_stats(&b).n_late, 1);
        init_write(&u, 2, 1);
        assert_int_equal(disk_write(s, u.io), DISK_BUSY);
        assert_int_equal(disk_read(s, u.io), DISK_BUSY);
        assert_false(t.came);
        sim.is_manual = false;
        sim_run(&sim);
        bench_wait(&b, &t.came);
        assert_int_equal(t.results[0].result, 0);
        assert_int_equal(state_of(&b), DISK_OK);
        assert_int_equal(disk_write(s, u.io), 0);
        bench_wait(&b, &u.came);
        test_io_deinit(&t);
        test_io_deinit(&u);
        end(&b);
}

/* ---- bounds ---------------------------------------------------------------------------------- */

TEST(test_bounds)
{
        struct test_io t[6];
        struct disk_space *s;
        struct bench b;
        struct sim sim;

        begin(&b, &sim);
        bench_close(&b);
        b.options.depth = 2;
        b.options.waiting_pages = 5;
        b.options.deadline_msec = 1000 * 1000;
        bench_expect(&b, 0);
        s = bench_space(&b, 'a', TEST_SLOT);
        bench_write(&b, s, 1000, 1, 5000, NULL);
        reap(&b);
        sim.is_manual = true;
        for (unsigned i = 0; i < 6; i++) {
                init_write(&t[i], 10 * i, 1);
                assert_int_equal(disk_write(s, t[i].io), i < 5 ? 0 : DISK_BUSY);
                assert_int_equal(sim.n_waiting, MIN(i + 1, 2u));
        }
        bench_check(&b);
        while (sim_step(&sim)) {
                reap(&b);
                assert_true(sim.n_waiting <= 2);
        }
        assert_true(t[4].came);
        assert_int_equal(disk_write(s, t[5].io), 0);
        sim.is_manual = false;
        sim_run(&sim);
        bench_wait(&b, &t[5].came);
        for (unsigned i = 0; i < 6; i++)
                test_io_deinit(&t[i]);
        /* More than the bound at once, where nothing waits. */
        init_write(&t[0], 100, 6);
        assert_int_equal(disk_write(s, t[0].io), 0);
        bench_wait(&b, &t[0].came);
        test_io_deinit(&t[0]);
        end(&b);
}

/* ---- what ends early ------------------------------------------------------------------------- */

TEST(test_cancel)
{
        struct test_io t[3];
        struct disk_space *s;
        struct bench b;
        struct sim sim;

        begin(&b, &sim);
        bench_close(&b);
        b.options.deadline_msec = 1000 * 1000;
        b.options.depth = 1;
        bench_expect(&b, 0);
        s = bench_space(&b, 'a', TEST_SLOT);
        bench_write(&b, s, 1000, 1, 5000, NULL);
        reap(&b);
        sim.is_manual = true;
        for (unsigned i = 0; i < 3; i++) {
                init_write(&t[i], 10 * i, 2);
                assert_int_equal(disk_write(s, t[i].io), 0);
        }
        disk_cancel(b.disk, t[1].io); /* waits */
        disk_cancel(b.disk, t[0].io); /* is under way */
        assert_false(t[1].came);
        reap(&b);
        assert_true(t[1].came && !t[0].came && !t[2].came);
        assert_int_equal(t[1].results[1].result, -ECANCELED);
        sim.is_manual = false;
        sim_run(&sim);
        bench_wait(&b, &t[0].came);
        bench_wait(&b, &t[2].came);
        assert_int_equal(t[0].results[0].result, -ECANCELED);
        assert_int_equal(t[2].results[0].result, 0);
        assert_int_equal(bench_info(s).n_pages, 3);
        assert_int_equal(bench_where(s, 0), UINT64_MAX);
        for (unsigned i = 0; i < 3; i++)
                test_io_deinit(&t[i]);
        end(&b);
}

/* The operation is canceled while its chunk is zeroed. */
TEST(test_cancel_zeroing)
{
        struct disk_space *s;
        struct test_io t, u;
        struct bench b;
        struct sim sim;

        begin(&b, &sim);
        bench_close(&b);
        b.options.deadline_msec = 1000 * 1000;
        sim.is_manual = true;
        bench_expect(&b, 0);
        s = bench_space(&b, 'a', TEST_SLOT);
        init_write(&t, 1, 1);
        assert_int_equal(disk_write(s, t.io), 0);
        init_write(&u, 2, 1);
        assert_int_equal(disk_write(s, u.io), 0);
        assert_int_equal(sim.n_waiting, 1);
        disk_cancel(b.disk, t.io);
        reap(&b);
        assert_true(t.came && !u.came);
        assert_int_equal(t.results[0].result, -ECANCELED);
        disk_cancel(b.disk, u.io);
        reap(&b);
        assert_true(u.came);
        sim.is_manual = false;
        sim_run(&sim);
        reap(&b);
        assert_int_equal(bench_info(s).n_chunks, 0);
        test_io_deinit(&t);
        test_io_deinit(&u);
        end(&b);
}

/* A page is removed while it is read: by remove, by raise, or as its chunk is freed. */
TEST(test_gone_meanwhile)
{
        for (unsigned how = 0; how < 4; how++) {
                struct answer a = {0};
                struct disk_ref ref;
                struct disk_space *s;
                struct test_io t, u;
                struct bench b;
                struct sim sim;

                begin(&b, &sim);
                bench_close(&b);
                b.options.deadline_msec = 1000 * 1000;
                bench_expect(&b, 0);
                s = bench_space(&b, 'a', TEST_SLOT);
                bench_write(&b, s, 1, 1, 5000, &ref.at);
                reap(&b);
                sim.is_manual = true;
                page_key(1, ref.key);
                test_io_init(&t, 1, TEST_SLOT);
                test_io_read_page(&t, 0, 1, ref.at);
                assert_int_equal(disk_read(s, t.io), 0);
                init_write(&u, 50, 1);
                assert_int_equal(disk_write(s, u.io), 0);
                if (how == 0)
                        assert_int_equal(disk_remove(s, &ref, 1, bench_answer, &a), 0);
                else if (how == 1)
                        assert_int_equal(disk_raise(s, 9, bench_answer, &a), 0);
                else if (how == 2)
                        assert_int_equal(disk_drop(s, bench_answer, &a), 0);
                else
                        disk_cancel(b.disk, t.io);
                bench_check(&b);
                sim.is_manual = false;
                sim_run(&sim);
                bench_wait(&b, &t.came);
                bench_wait(&b, &u.came);
                if (how < 3)
                        assert_int_equal(bench_await(&b, &a), 0);
                assert_int_equal(t.results[0].result, how < 3 ? -ENOENT : -ECANCELED);
                assert_int_equal(u.results[0].result, how == 1 || how == 2 ? -ENOENT : 0);
                test_io_deinit(&t);
                test_io_deinit(&u);
                end(&b);
        }
}

/* A slot isn't written to while its former page is read. */
TEST(test_slot_in_use)
{
        struct disk_ref ref;
        struct disk_space *s;
        struct test_io t;
        struct bench b;
        struct sim sim;
        uint64_t at;

        begin(&b, &sim);
        bench_close(&b);
        b.options.deadline_msec = 1000 * 1000;
        bench_expect(&b, 0);
        s = bench_space(&b, 'a', TEST_SLOT);
        bench_write(&b, s, 1, 1, 5000, &ref.at);
        reap(&b);
        sim.is_manual = true;
        page_key(1, ref.key);
        test_io_init(&t, 1, TEST_SLOT);
        test_io_read_page(&t, 0, 1, ref.at);
        assert_int_equal(disk_read(s, t.io), 0);
        assert_int_equal(disk_remove(s, &ref, 1, NULL, NULL), 0);
        sim.is_manual = false;
        bench_write(&b, s, 2, 1, 5000, &at);
        assert_int_not_equal(at, ref.at);
        sim_run(&sim);
        bench_wait(&b, &t.came);
        assert_int_equal(t.results[0].result, -ENOENT);
        bench_write(&b, s, 3, 1, 5000, &at);
        assert_int_equal(at, ref.at);
        test_io_deinit(&t);
        end(&b);
}

int main(void)
{
        random_start("test_disk_faults");
        sim_set_random(random_below);
        disk_tests_in_memory();
        return test_run_all(NULL, NULL);
}
