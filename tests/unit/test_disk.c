/* A disk's store: what its header promises of spaces and their pages, with both engines. What it
 * promises of the file is in test_disk_file.c. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/tier/disk-format.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/disk-engines.h"

/* ---- pages ----------------------------------------------------------------------------------- */

static void test_lengths(void **state)
{
        static const uint32_t lengths[] = {1, 4095, 4096, 4097, TEST_SLOT - 1, TEST_SLOT};
        uint64_t at[ARRAY_SIZE(lengths)];
        struct disk_space *s;
        struct bench b;

        begin(&b);
        s = bench_space(&b, 'a', TEST_SLOT - 100);
        assert_int_equal(bench_info(s).slot_bytes, TEST_SLOT);
        for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++)
                bench_write(&b, s, 100 + i, 1, lengths[i], &at[i]);
        for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++)
                assert_int_equal(bench_read(&b, s, 100 + i, at[i]), 0);
        assert_int_equal(bench_info(s).used_bytes, 3 * 4096 + 3 * TEST_SLOT);
        /* Another key isn't there, nor is another place. */
        assert_int_equal(bench_read(&b, s, 7, at[0]), -ENOENT);
        assert_int_equal(bench_read(&b, s, 100, at[1]), -ENOENT);
        assert_int_equal(bench_read(&b, s, 100, UINT64_MAX), -ENOENT);
        assert_int_equal(bench_stats(&b).n_read, ARRAY_SIZE(lengths));
        assert_int_equal(bench_stats(&b).n_written, ARRAY_SIZE(lengths));
        assert_true(bench_stats(&b).read_p50_nsec > 0);
        assert_true(bench_stats(&b).write_p99_nsec >= bench_stats(&b).write_p50_nsec);
        end(&b);
}

/* The bytes after a page in its last block are zeros, in the file and in reads. */
static void test_tail(void **state)
{
        char block[4096];
        struct disk_space *s;
        struct test_io t;
        struct bench b;
        uint64_t at;
        int fd;

        begin(&b);
        s = bench_space(&b, 'a', TEST_SLOT);
        bench_write(&b, s, 1, 1, 100, &at);
        fd = open(b.path, O_RDONLY | O_CLOEXEC);
        /* The superblock, 2 blocks of spaces, 1 of chunks, 1 of the index. */
        assert_int_equal(pread(fd, block, sizeof(block), 5 * 4096), sizeof(block));
        close(fd);
        assert_true(page_is(1, block, 100));
        assert_true(disk_is_zero(block + 100, sizeof(block) - 100));
        test_io_init(&t, 1, TEST_SLOT);
        test_io_read_page(&t, 0, 1, at);
        assert_int_equal(disk_read(s, t.io), 0);
        bench_wait(&b, &t.came);
        assert_true(disk_is_zero(t.memory + 100, 4096 - 100));
        assert_int_equal(t.memory[4096] & 0xff, 0xdd); /* nothing was read there */
        test_io_deinit(&t);
        end(&b);
}

/* A page in pieces, and neighbours as one operation. */
static void test_pieces(void **state)
{
        struct iovec pieces[2][2];
        struct disk_space *s;
        struct test_io t, u;
        uint64_t before;
        struct bench b;

        begin(&b);
        s = bench_space(&b, 'a', TEST_SLOT);
        test_io_init(&t, 6, TEST_SLOT);
        test_io_write_pages(&t, 50, TEST_SLOT);
        for (unsigned i = 0; i < 2; i++) {
                pieces[i][0] = (struct iovec){t.memory + i * TEST_SLOT, 4096};
                pieces[i][1] = (struct iovec){t.memory + i * TEST_SLOT + 4096, 4096};
                t.io->pages[i].iov = pieces[i];
                t.io->pages[i].n_iov = 2;
        }
        before = bench_stats(&b).n_operations;
        assert_int_equal(disk_write(s, t.io), 0);
        assert_int_equal(bench_stats(&b).n_operations, before + 1);
        bench_wait(&b, &t.came);
        test_io_init(&u, 6, TEST_SLOT);
        for (unsigned i = 0; i < 6; i++)
                test_io_read_page(&u, i, 50 + i, t.results[i].at);
        before = bench_stats(&b).n_operations;
        assert_int_equal(disk_read(s, u.io), 0);
        assert_int_equal(bench_stats(&b).n_operations, before + 1);
        bench_wait(&b, &u.came);
        for (unsigned i = 0; i < 6; i++) {
                assert_int_equal(u.results[i].result, 0);
                assert_true(page_is(50 + i, u.memory + i * TEST_SLOT, TEST_SLOT));
        }
        test_io_deinit(&t);
        test_io_deinit(&u);
        end(&b);
}

static void test_restart(void **state)
{
        struct disk_space *s;
        struct disk_page expected;
        const struct disk_page *page;
        uint64_t at[20], iter = 0, where;
        unsigned n = 0;
        struct bench b;

        begin(&b);
        s = bench_space(&b, 'a', TEST_SLOT);
        bench_write(&b, s, 200, 20, 5000, at);
        bench_space(&b, 'b', 4096);
        restart(&b);
        assert_int_equal(bench_stats(&b).n_spaces, 2);
        s = bench_find(&b, 'a');
        assert_false(bench_info(s).is_loaded);
        assert_int_equal(bench_info(s).n_chunks, 3);
        assert_int_equal(bench_info(s).generation, 1);
        assert_int_equal(bench_info(s).owner[0], 'a');
        assert_int_equal(bench_where(s, 200), UINT64_MAX);
        bench_load(&b, s);
        assert_int_equal(disk_space_load(s, bench_answer, NULL), -EALREADY);
        while (disk_page_next(s, &iter, &page, &where)) {
                expected = page_of(page->depth, 5000);
                assert_true(page_equals(page, &expected));
                assert_int_equal(where, at[page->depth - 200]);
                n++;
        }
        assert_int_equal(n, 20);
        for (unsigned i = 0; i < 20; i++)
                assert_int_equal(bench_read(&b, s, 200 + i, at[i]), 0);
        /* The store works on. */
        bench_write(&b, s, 300, 3, 5000, NULL);
        end(&b);
}

/* Opens a copy of the file's current contents as another store. */
static void open_copy(struct bench *b, struct bench *ret_copy)
{
        char *data;
        size_t len;

        bench_init(ret_copy, tested_engine());
        assert_int_equal(file_read(b->path, TEST_BYTES, &data, &len), 0);
        assert_int_equal(file_replace(ret_copy->path, data, len, 0600), 0);
        free(data);
        bench_expect(ret_copy, 0);
}

static void test_remove(void **state)
{
        struct bench b, copy;
        struct disk_space *s;
        uint64_t at[8];

        begin(&b);
        s = bench_space(&b, 'a', TEST_SLOT);
        bench_write(&b, s, 0, 8, 5000, at);
        assert_int_equal(bench_remove(&b, s, 3, at[3]), 0);
        assert_int_equal(bench_stats(&b).n_removed, 1);
        assert_true(bench_stats(&b).n_flushes > 0);
        assert_int_equal(bench_read(&b, s, 3, at[3]), -ENOENT);
        open_copy(&b, &copy);
        s = bench_find(&copy, 'a');
        bench_load(&copy, s);
        assert_int_equal(bench_where(s, 3), UINT64_MAX);
        assert_int_equal(bench_info(s).n_pages, 7);
        end(&copy);
        /* Another one isn't taken out in its place; one that isn't there is passed over. */
        s = bench_find(&b, 'a');
        assert_int_equal(bench_remove(&b, s, 3, at[4]), 0);
        assert_int_equal(bench_read(&b, s, 4, at[4]), 0);
        /* Its slot is the next one's. */
        bench_write(&b, s, 9, 1, 5000, &at[3]);
        assert_int_equal(bench_read(&b, s, 9, at[3]), 0);
        assert_int_equal(bench_info(s).n_chunks, 2);
        end(&b);
}

static void test_evict(void **state)
{
        struct disk_ref refs[8] = {0};
        struct disk_space *s;
        struct bench b;
        uint64_t at[8];

        begin(&b);
        s = bench_space(&b, 'a', TEST_SLOT);
        bench_write(&b, s, 0, 8, 5000, at);
        for (unsigned i = 0; i < 8; i++) {
                refs[i].at = at[i];
                page_key(i, refs[i].key);
        }
        assert_int_equal(disk_remove(s, refs, 8, NULL, NULL), 0);
        bench_check(&b);
        assert_int_equal(bench_info(s).n_chunks, 0);
        assert_int_equal(bench_info(s).n_freeing, 2);
        while (bench_stats(&b).n_free < 15) {
                struct pollfd p = {.fd = disk_fd(b.disk), .events = POLLIN};

                assert_int_equal(poll(&p, 1, 60 * 1000), 1);
                disk_reap(b.disk);
                bench_check(&b);
        }
        assert_int_equal(bench_info(s).n_freeing, 0);
        assert_int_equal(bench_stats(&b).index_bytes, 0);
        end(&b);
}

static void test_raise(void **state)
{
        struct bench b, copy;
        struct answer a = {0};
        struct disk_space *s;
        uint64_t at[8];

        begin(&b);
        s = bench_space(&b, 'a', TEST_SLOT);
        bench_write(&b, s, 0, 8, 5000, at);
        assert_int_equal(disk_raise(s, 1, bench_answer, &a), -EINVAL);
        assert_int_equal(disk_raise(s, 5, bench_answer, &a), 0);
        assert_int_equal(bench_info(s).n_pages, 0);
        assert_int_equal(bench_read(&b, s, 0, at[0]), -ENOENT);
        bench_check(&b);
        assert_int_equal(bench_await(&b, &a), 0);
        bench_write(&b, s, 20, 3, 5000, at);
        open_copy(&b, &copy);
        s = bench_find(&copy, 'a');
        assert_int_equal(bench_info(s).generation, 5);
        bench_load(&copy, s);
        assert_int_equal(bench_where(s, 0), UINT64_MAX);
        end(&copy);
        restart(&b);
        s = bench_find(&b, 'a');
        /* While it is loaded: what is found is of no interest. */
        a.came = false;
        assert_int_equal(disk_space_load(s, bench_answer, &a), 0);
        {
                struct answer raised = {0};

                assert_int_equal(disk_raise(s, 6, bench_answer, &raised), 0);
                assert_int_equal(bench_await(&b, &a), -ECANCELED);
                assert_int_equal(bench_await(&b, &raised), 0);
        }
        assert_int_equal(bench_info(s).n_pages, 0);
        bench_write(&b, s, 20, 3, 5000, at);
        end(&b);
}

static void test_drop(void **state)
{
        struct answer a = {0};
        struct disk_space *s;
        struct bench b;

        begin(&b);
        bench_space(&b, 'b', 4096);
        s = bench_space(&b, 'a', TEST_SLOT);
        assert_int_equal(disk_space_new(b.disk, (const uint8_t[32]){0}, (const uint8_t[32]){0}, 0,
                                 TEST_CHUNK, &s),
                -EINVAL);
        bench_write(&b, s, 0, 8, 5000, NULL);
        assert_int_equal(disk_drop(s, bench_answer, &a), 0);
        assert_null(bench_find(&b, 'a'));
        bench_check(&b);
        s = bench_space(&b, 'a', TEST_SLOT);
        assert_int_equal(bench_await(&b, &a), 0);
        bench_write(&b, s, 30, 1, 5000, NULL);
        restart(&b);
        s = bench_find(&b, 'a');
        bench_load(&b, s);
        assert_int_equal(bench_info(s).n_pages, 1);
        assert_int_not_equal(bench_where(s, 30), UINT64_MAX);
        assert_ptr_equal(disk_space_next(b.disk, NULL), bench_find(&b, 'b'));
        assert_ptr_equal(disk_space_next(b.disk, bench_find(&b, 'b')), s);
        assert_null(disk_space_next(b.disk, s));
        end(&b);
}

static void test_too_many_spaces(void **state)
{
        struct disk_space *s;
        struct bench b;

        begin(&b);
        for (unsigned i = 0; i < 64; i++)
                bench_space(&b, (char)(1 + i), 4096);
        assert_int_equal(disk_space_new(b.disk, (const uint8_t[32]){200}, (const uint8_t[32]){0}, 0,
                                 4096, &s),
                -ENOSPC);
        assert_int_equal(
                disk_space_new(b.disk, (const uint8_t[32]){0}, (const uint8_t[32]){0}, 0, 0, &s),
                -EINVAL);
        end(&b);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void test_memory(void **state)
{
        struct bench b;

        bench_init(&b, tested_engine());
        alloc_fail_each(n)
        {
                int r = bench_open(&b);

                if (alloc_fail_happened())
                        assert_true(r == -ENOMEM);
                else
                        assert_true(r == DISK_NEW || r == 0);
                if (r >= 0)
                        bench_close(&b);
        }
        bench_deinit(&b);
}

static void test_memory_of_calls(void **state)
{
        struct test_io t = {0}, u = {0};
        struct disk_space *s;
        struct answer a;
        struct bench b;
        uint64_t at[12];

        begin(&b);
        s = bench_space(&b, 'a', TEST_SLOT);
        bench_write(&b, s, 100, 12, 5000, at);
        alloc_fail_each(n)
        {
                int r;

                test_io_deinit(&t);
                alloc_fail_end();
                test_io_init(&t, 12, TEST_SLOT);
                test_io_write_pages(&t, 0, 5000);
                alloc_fail_at(n);
                r = disk_write(s, t.io);
                assert_int_equal(r, alloc_fail_happened() ? -ENOMEM : 0);
        }
        bench_wait(&b, &t.came);
        bench_check(&b);
        test_io_init(&u, 12, TEST_SLOT);
        alloc_fail_at(1);
        for (unsigned i = 0; i < 12; i++)
                test_io_read_page(&u, i, 100 + i, at[i]);
        assert_int_equal(disk_read(s, u.io), -ENOMEM);
        alloc_fail_end();
        assert_int_equal(disk_read(s, u.io), 0);
        bench_wait(&b, &u.came);
        assert_int_equal(u.results[11].result, 0);
        alloc_fail_at(1);
        assert_int_equal(disk_raise(s, 2, bench_answer, &a), -ENOMEM);
        alloc_fail_at(1);
        assert_int_equal(disk_drop(s, bench_answer, &a), -ENOMEM);
        alloc_fail_at(1);
        assert_int_equal(disk_sync(b.disk, bench_answer, &a), -ENOMEM);
        alloc_fail_end();
        bench_check(&b);
        test_io_deinit(&t);
        test_io_deinit(&u);
        restart(&b);
        s = bench_find(&b, 'a');
        for (unsigned n = 1; n <= 4; n++) {
                alloc_fail_at(n);
                assert_int_equal(disk_space_load(s, bench_answer, &a), -ENOMEM);
                assert_true(alloc_fail_end());
                bench_check(&b);
        }
        bench_load(&b, s);
        assert_int_equal(bench_info(s).n_pages, 24);
        end(&b);
}

/* ---- bounds ---------------------------------------------------------------------------------- */

static void test_sync(void **state)
{
        struct answer a = {0};
        struct bench b, copy;
        struct disk_space *s;

        begin(&b);
        s = bench_space(&b, 'a', TEST_SLOT);
        bench_write(&b, s, 0, 5, TEST_SLOT, NULL);
        assert_int_equal(disk_sync(b.disk, bench_answer, &a), 0);
        assert_int_equal(bench_await(&b, &a), 0);
        open_copy(&b, &copy);
        s = bench_find(&copy, 'a');
        bench_load(&copy, s);
        assert_int_equal(bench_info(s).n_pages, 5);
        assert_int_equal(bench_read(&copy, s, 4, bench_where(s, 4)), 0);
        end(&copy);
        end(&b);
}

/* Closing ends what hasn't begun, and what was written is there. */
static void test_close(void **state)
{
        struct test_io t[6];
        struct disk_space *s;
        unsigned n = 0;
        struct bench b;

        bench_init(&b, tested_engine());
        b.options.depth = 1;
        bench_expect(&b, DISK_NEW);
        s = bench_space(&b, 'a', TEST_SLOT);
        for (unsigned i = 0; i < 6; i++) {
                test_io_init(&t[i], 1, TEST_SLOT);
                test_io_write_pages(&t[i], i, 5000);
                assert_int_equal(disk_write(s, t[i].io), 0);
        }
        bench_close(&b);
        for (unsigned i = 0; i < 6; i++) {
                assert_true(t[i].came);
                assert_true(t[i].results[0].result == 0 || t[i].results[0].result == -ECANCELED);
                n += t[i].results[0].result == 0;
                test_io_deinit(&t[i]);
        }
        bench_expect(&b, 0);
        s = bench_find(&b, 'a');
        bench_load(&b, s);
        assert_int_equal(bench_info(s).n_pages, n);
        end(&b);
}

static const struct CMUnitTest tests[] = {
        TEST_ROW(test_lengths),
        TEST_ROW(test_tail),
        TEST_ROW(test_pieces),
        TEST_ROW(test_restart),
        TEST_ROW(test_remove),
        TEST_ROW(test_evict),
        TEST_ROW(test_raise),
        TEST_ROW(test_drop),
        TEST_ROW(test_too_many_spaces),
        TEST_ROW(test_memory),
        TEST_ROW(test_memory_of_calls),
        TEST_ROW(test_sync),
        TEST_ROW(test_close),
};

/* Tests whose result depends on the file system. */
static const struct CMUnitTest some_tests[] = {
        TEST_ROW(test_lengths),
        TEST_ROW(test_pieces),
        TEST_ROW(test_restart),
};

static int run(const char *group, bool all)
{
        return all ? cmocka_run_group_tests_name(group, tests, NULL, NULL)
                   : cmocka_run_group_tests_name(group, some_tests, NULL, NULL);
}

int main(void)
{
        return engines_run(run);
}
