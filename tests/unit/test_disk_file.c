/* The file of a disk's store, with both engines: when it is made, refused and begun anew, that its
 * bytes don't outlive whose they were, and what becomes of it where it is damaged. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/tier/disk-format.h"
#include "tests/unit/disk-engines.h"

/* fallocate() of this process; tests make it fail. */
int __real_fallocate64(int fd, int mode, off_t offset, off_t len);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t len);

static int fallocate_error;
static int fallocate_mode; /* of the calls that fail; -1: all */

int __wrap_fallocate64(int fd, int mode, off_t offset, off_t len)
{
        if (fallocate_error && (fallocate_mode < 0 || mode & fallocate_mode)) {
                errno = fallocate_error;
                return -1;
        }
        return __real_fallocate64(fd, mode, offset, len);
}

/* ---- the file -------------------------------------------------------------------------------- */

static void test_new(void **state)
{
        struct bench b, other;
        struct disk_stats s;
        struct stat st;

        begin(&b);
        assert_string_equal(b.why, "");
        assert_int_equal(stat(b.path, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0600);
        assert_int_equal(st.st_size, TEST_BYTES);
        assert_true((uint64_t)st.st_blocks * 512 >= TEST_BYTES);
        assert_int_equal(test_dir_count(b.dir), 1);
        s = bench_stats(&b);
        assert_int_equal(s.state, DISK_OK);
        assert_int_equal(s.n_chunks, 15);
        assert_int_equal(s.n_free, 15);
        assert_string_equal(
                s.engine, tested_engine() == DISK_ENGINE_URING ? "io_uring" : "threads");
        assert_int_equal(s.is_direct, s.note[0] == '\0');
        other = b;
        assert_int_equal(bench_open(&other), -EBUSY);
        assert_non_null(strstr(other.why, b.path));
        end(&b);
}

/* Refuses a directory in which other users may make files. Refuses a file that has a second name,
 * or an owner that may have it open. */
static void refuses_what_others_made(struct bench *b)
{
        char beside[256], second[256], text[16] = "";
        int fd;

        snprintf(beside, sizeof(beside), "%s.new", b->path);
        snprintf(second, sizeof(second), "%s.second", b->path);
        assert_int_equal(file_replace(second, "kept", 4, 0600), 0);
        assert_int_equal(link(second, beside), 0);
        bench_expect(b, -EPERM);
        assert_non_null(strstr(b->why, "second name"));
        fd = open(second, O_RDONLY | O_CLOEXEC);
        assert_int_equal(read(fd, text, sizeof(text)), 4);
        fd_close(fd);
        assert_int_equal(unlink(second), 0);
        if (geteuid() == 0) {
                assert_int_equal(file_replace(beside, "", 0, 0600), 0);
                assert_int_equal(chown(beside, 12345, 0), 0);
                bench_expect(b, -EPERM);
                assert_non_null(strstr(b->why, "another user's"));
        }
        assert_int_equal(chmod(b->dir, 0777), 0);
        bench_expect(b, -EPERM);
        assert_non_null(strstr(b->why, "chmod o-w"));
        assert_int_equal(chmod(b->dir, 01777), 0);
        bench_expect(b, DISK_NEW);
        bench_close(b);
        assert_int_equal(unlink(b->path), 0);
        assert_int_equal(chmod(b->dir, 0700), 0);
}

static void test_refused(void **state)
{
        struct bench b;
        char zeros[8192] = {0};

        begin(&b);
        bench_close(&b);
        b.options.device = "GPU-5678";
        bench_expect(&b, -EXDEV);
        assert_non_null(strstr(b.why, "GPU-1234"));
        b.options.device = "GPU-1234";
        assert_int_equal(file_replace(b.path, zeros, sizeof(zeros), 0600), 0);
        bench_expect(&b, -EEXIST);
        assert_int_equal(file_replace(b.path, "a letter", 8, 0600), 0);
        bench_expect(&b, -EEXIST);
        assert_non_null(strstr(b.why, "left alone"));
        if (geteuid() == 0) {
                assert_int_equal(chown(b.path, 12345, 0), 0);
                bench_expect(&b, -EPERM);
        }
        assert_int_equal(unlink(b.path), 0);
        assert_int_equal(mkfifo(b.path, 0600), 0);
        bench_expect(&b, -EINVAL);
        assert_int_equal(unlink(b.path), 0);
        assert_int_equal(symlink("/dev/null", b.path), 0);
        bench_expect(&b, -ELOOP);
        assert_int_equal(unlink(b.path), 0);
        refuses_what_others_made(&b);
        b.bytes = TEST_CHUNK;
        bench_expect(&b, -EINVAL);
        b.bytes = TEST_BYTES;
        b.options.chunk_bytes = TEST_CHUNK + 1;
        bench_expect(&b, -EINVAL);
        assert_int_equal(test_dir_count(b.dir), 0);
        bench_deinit(&b);
}

static void change(const char *path, uint64_t offset, const void *data, size_t len)
{
        _cleanup_fd_ int fd = open(path, O_RDWR | O_CLOEXEC);

        assert_true(fd >= 0);
        assert_int_equal(pwrite(fd, data, len, (off_t)offset), (ssize_t)len);
}

/* Given up with a sentence that has the word; a page that was in it is not there any more. */
static void expect_anew(struct bench *b, const char *word)
{
        bench_expect(b, DISK_NEW);
        assert_non_null(strstr(b->why, word));
        assert_non_null(strstr(b->why, b->path));
        assert_null(bench_find(b, 'a'));
        assert_int_equal(bench_stats(b).n_free, bench_stats(b).n_chunks);
        bench_write(b, bench_space(b, 'a', TEST_SLOT), 1, 1, 100, NULL);
        bench_close(b);
}

static void test_anew(void **state)
{
        const uint32_t version = DISK_VERSION + 1;
        struct bench b;

        bench_init(&b, tested_engine());
        bench_expect(&b, DISK_NEW);
        bench_write(&b, bench_space(&b, 'a', TEST_SLOT), 1, 1, 100, NULL);
        bench_close(&b);
        change(b.path, offsetof(struct disk_super, version), &version, sizeof(version));
        expect_anew(&b, "version 2");
        change(b.path, offsetof(struct disk_super, n_chunks), "x", 1);
        expect_anew(&b, "damaged");
        b.bytes *= 2;
        expect_anew(&b, "2097152");
        assert_int_equal(truncate(b.path, TEST_BYTES), 0);
        expect_anew(&b, "started anew");
        assert_int_equal(truncate(b.path, 0), 0);
        expect_anew(&b, "discarded");
        bench_expect(&b, 0);
        end(&b);
}

static void test_no_room(void **state)
{
        struct bench b;

        bench_init(&b, tested_engine());
        fallocate_error = ENOSPC;
        fallocate_mode = -1;
        bench_expect(&b, -ENOSPC);
        assert_non_null(strstr(b.why, b.path));
        assert_non_null(strstr(b.why, "1048576 bytes are wanted"));
        assert_non_null(strstr(b.why, "are free"));
        assert_int_equal(test_dir_count(b.dir), 0);
        fallocate_error = EOPNOTSUPP;
        bench_expect(&b, -EOPNOTSUPP);
        assert_non_null(strstr(b.why, "preallocate"));
        assert_int_equal(test_dir_count(b.dir), 0);
        fallocate_error = 0;
        bench_expect(&b, DISK_NEW);
        end(&b);
}

/* ---- chunks that change hands ---------------------------------------------------------------- */

static void note_gone(const struct disk_page *page, uint64_t at, void *data)
{
        uint64_t *numbers = data;

        *numbers |= UINT64_C(1) << page->depth;
}

static int write_one(struct bench *b, struct disk_space *s, uint64_t number)
{
        struct test_io t;
        int r;

        test_io_init(&t, 1, bench_info(s).slot_bytes);
        test_io_write_pages(&t, number, 5000);
        r = disk_write(s, t.io);
        if (r == 0)
                bench_wait(b, &t.came);
        test_io_deinit(&t);
        return r;
}

/* Has the file these bytes of the page anywhere? */
static bool file_has(const char *path, uint64_t number)
{
        char *data, bytes[64];
        bool found = false;
        size_t len;

        page_fill(number, bytes, sizeof(bytes));
        assert_int_equal(file_read(path, TEST_BYTES, &data, &len), 0);
        for (size_t i = 0; i + 512 <= len; i += 512)
                found = found || memcmp(data + i, bytes, sizeof(bytes)) == 0;
        free(data);
        return found;
}

static void fill_all(struct bench *b, struct disk_space *s)
{
        for (unsigned i = 0; i < 15; i++)
                bench_write(b, s, 7 * i, 7, 5000, NULL);
}

static void test_full(void **state)
{
        struct disk_space *s, *t;
        uint64_t gone = 0;
        struct bench b;
        int r;

        begin(&b);
        s = bench_space(&b, 'a', TEST_SLOT);
        t = bench_space(&b, 't', TEST_SLOT);
        assert_int_equal(disk_space_chunk_slots(s), 7);
        assert_int_equal(disk_give_chunk(s, note_gone, &gone), DISK_BUSY);
        fill_all(&b, s);
        assert_int_equal(bench_stats(&b).n_free, 0);
        assert_int_equal(write_one(&b, t, 1), DISK_FULL);
        assert_int_equal(write_one(&b, s, 1), DISK_FULL);
        assert_true(file_has(b.path, 7));
        /* The first chunk was used last; the second is given. */
        assert_int_equal(bench_read(&b, s, 0, bench_where(s, 0)), 0);
        assert_int_equal(disk_give_chunk(s, note_gone, &gone), 0);
        assert_int_equal(gone, UINT64_C(0x7f) << 7);
        assert_int_equal(bench_info(s).n_pages, 14 * 7);
        while ((r = write_one(&b, t, 500)) == DISK_BUSY) {
                struct pollfd p = {.fd = disk_fd(b.disk), .events = POLLIN};

                assert_int_equal(poll(&p, 1, 60 * 1000), 1);
                disk_reap(b.disk);
        }
        assert_int_equal(r, 0);
        bench_check(&b);
        /* Pages of the other store are not in the file any more. */
        for (unsigned i = 7; i < 14; i++)
                assert_false(file_has(b.path, i));
        assert_true(file_has(b.path, 14));
        assert_int_equal(bench_read(&b, t, 500, bench_where(t, 500)), 0);
        end(&b);
}

/* Where there is no ZERO_RANGE, as on tmpfs; and where there is nothing at all. */
static void test_zero_otherwise(void **state)
{
        static const int modes[] = {
                FALLOC_FL_ZERO_RANGE, FALLOC_FL_ZERO_RANGE | FALLOC_FL_PUNCH_HOLE};

        for (unsigned i = 0; i < ARRAY_SIZE(modes); i++) {
                struct answer a = {0};
                struct disk_space *s;
                struct bench b;

                bench_init(&b, DISK_ENGINE_THREADS);
                bench_expect(&b, DISK_NEW);
                s = bench_space(&b, 'a', TEST_SLOT);
                fill_all(&b, s);
                assert_int_equal(disk_drop(s, bench_answer, &a), 0);
                assert_int_equal(bench_await(&b, &a), 0);
                fallocate_error = EOPNOTSUPP;
                fallocate_mode = modes[i];
                s = bench_space(&b, 'b', TEST_SLOT);
                bench_write(&b, s, 1000, 1, 5000, NULL);
                fallocate_error = 0;
                assert_int_equal(
                        file_has(b.path, 99), i == 1); /* of the chunk that was freed last */
                assert_int_equal(bench_read(&b, s, 1000, bench_where(s, 1000)), 0);
                assert_int_equal(bench_info(s).n_pages, 1);
                end(&b);
        }
}

/* ---- damage ---------------------------------------------------------------------------------- */

static void test_bad(void **state)
{
        const uint64_t data_at = 4 * 4096; /* superblock, 2 blocks of spaces, 1 of chunks */
        struct disk_space *s;
        uint64_t at[6];
        struct bench b;

        begin(&b);
        s = bench_space(&b, 'a', TEST_SLOT);
        bench_write(&b, s, 0, 6, 5000, at);
        bench_close(&b);
        change(b.path, data_at + 4096 + 2 * TEST_SLOT + 4999, "?", 1);
        change(b.path, data_at + 3 * sizeof(struct disk_entry) + 70, "?", 1);
        bench_expect(&b, 0);
        s = bench_find(&b, 'a');
        bench_load(&b, s);
        assert_int_equal(bench_stats(&b).n_damaged, 1);
        assert_int_equal(bench_where(s, 3), UINT64_MAX);
        assert_int_equal(bench_read(&b, s, 2, at[2]), -EBADMSG);
        assert_int_equal(bench_read(&b, s, 2, at[2]), -ENOENT);
        assert_int_equal(bench_stats(&b).n_bad, 1);
        assert_int_equal(bench_stats(&b).n_bad_found, 1);
        assert_int_equal(bench_stats(&b).state, DISK_OK);
        assert_int_equal(bench_read(&b, s, 1, at[1]), 0);
        /* One that was written since. */
        bench_write(&b, s, 20, 1, 4096, at);
        change(b.path, data_at + 4096 + 2 * TEST_SLOT, "??", 2);
        assert_int_equal(bench_read(&b, s, 20, at[0]), -EBADMSG);
        assert_int_equal(bench_stats(&b).n_bad, 2);
        assert_int_equal(bench_stats(&b).n_bad_found, 1);
        end(&b);
}

static void test_shortened(void **state)
{
        struct answer a = {0};
        struct disk_space *s;
        struct stat st;
        struct bench b;
        uint64_t at;

        begin(&b);
        s = bench_space(&b, 'a', TEST_SLOT);
        bench_write(&b, s, 1, 1, 5000, &at);
        assert_int_equal(truncate(b.path, 8192), 0);
        assert_int_equal(bench_read(&b, s, 1, at), -ENODATA);
        assert_int_equal(bench_stats(&b).state, DISK_OFF);
        assert_non_null(strstr(bench_stats(&b).why, "shortened"));
        assert_non_null(strstr(bench_stats(&b).why, b.path));
        assert_int_equal(bench_stats(&b).n_errors, 1);
        assert_int_equal(write_one(&b, s, 2), -ENODEV);
        assert_int_equal(disk_raise(s, 9, bench_answer, &a), 0);
        assert_int_equal(bench_await(&b, &a), 0);
        assert_int_equal(disk_sync(b.disk, bench_answer, &a), -ENODEV);
        bench_close(&b);
        assert_int_equal(stat(b.path, &st), 0);
        assert_int_equal(st.st_size, 0);
        bench_expect(&b, DISK_NEW);
        end(&b);
}

static void test_deleted(void **state)
{
        struct answer a = {0}, b1 = {0};
        struct disk_space *s;
        struct bench b;
        uint64_t at;

        begin(&b);
        s = bench_space(&b, 'a', TEST_SLOT);
        bench_write(&b, s, 1, 1, 5000, &at);
        assert_int_equal(unlink(b.path), 0);
        assert_int_equal(bench_read(&b, s, 1, at), 0);
        assert_int_equal(disk_sync(b.disk, bench_answer, &a), 0);
        assert_int_equal(disk_raise(s, 9, bench_answer, &b1), 0);
        assert_int_equal(bench_await(&b, &a), -ENODEV);
        assert_int_equal(bench_await(&b, &b1), 0);
        assert_int_equal(bench_stats(&b).state, DISK_OFF);
        assert_non_null(strstr(bench_stats(&b).why, "deleted"));
        bench_close(&b);
        bench_expect(&b, DISK_NEW);
        end(&b);
}

static const struct CMUnitTest tests[] = {
        TEST_ROW(test_new),
        TEST_ROW(test_refused),
        TEST_ROW(test_anew),
        TEST_ROW(test_no_room),
        TEST_ROW(test_full),
        TEST_ROW(test_zero_otherwise),
        TEST_ROW(test_bad),
        TEST_ROW(test_shortened),
        TEST_ROW(test_deleted),
};

/* Tests whose result depends on the file system. */
static const struct CMUnitTest some_tests[] = {
        TEST_ROW(test_new),
        TEST_ROW(test_full),
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
