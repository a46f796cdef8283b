/* A disk's store: what its header promises, with both engines. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/tier/disk-format.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/disk-fixture.h"

static enum disk_engine_kind engine;

static void begin(struct bench *b)
{
        bench_init(b, engine);
        bench_expect(b, DISK_NEW);
}

static void end(struct bench *b)
{
        bench_check(b);
        bench_close(b);
        bench_deinit(b);
}

static void restart(struct bench *b)
{
        bench_close(b);
        bench_expect(b, 0);
}

/* What fallocate() says in this process: tests make it say something else. */
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
        assert_string_equal(s.engine, engine == DISK_ENGINE_URING ? "io_uring" : "threads");
        assert_int_equal(s.is_direct, s.note[0] == '\0');
        other = b;
        assert_int_equal(bench_open(&other), -EBUSY);
        assert_non_null(strstr(other.why, b.path));
        end(&b);
}

/* A directory where others may put files, and a file that is going to be the store's with a second
 * name, or another owner, who has it open. */
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

        bench_init(&b, engine);
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

        bench_init(&b, engine);
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

/* What is behind a page in its last block is nobody's: zeros in the file, and in what is read. */
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
        /* It goes on. */
        bench_write(&b, s, 300, 3, 5000, NULL);
        end(&b);
}

/* What a file has at a moment, opened as another one. */
static void open_copy(struct bench *b, struct bench *ret_copy)
{
        char *data;
        size_t len;

        bench_init(ret_copy, engine);
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
        /* What was the other one's is not in the file any more. */
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

/* ---- memory ---------------------------------------------------------------------------------- */

static void test_memory(void **state)
{
        struct bench b;

        bench_init(&b, engine);
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

        bench_init(&b, engine);
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
        TEST(test_new),
        TEST(test_refused),
        TEST(test_anew),
        TEST(test_no_room),
        TEST(test_lengths),
        TEST(test_tail),
        TEST(test_pieces),
        TEST(test_restart),
        TEST(test_remove),
        TEST(test_evict),
        TEST(test_raise),
        TEST(test_drop),
        TEST(test_too_many_spaces),
        TEST(test_full),
        TEST(test_zero_otherwise),
        TEST(test_bad),
        TEST(test_shortened),
        TEST(test_deleted),
        TEST(test_memory),
        TEST(test_memory_of_calls),
        TEST(test_sync),
        TEST(test_close),
};

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

/* Those that differ between file systems. */
static const struct CMUnitTest some_tests[] = {
        TEST(test_new),
        TEST(test_lengths),
        TEST(test_pieces),
        TEST(test_restart),
        TEST(test_full),
};

/* Flushes of a disk that others use take their time: memory does for most. */
int main(void)
{
        int n_failed;

        engine = DISK_ENGINE_THREADS;
        n_failed = cmocka_run_group_tests_name("threads, on disk", some_tests, NULL, NULL);
        if (!getenv("KVL_FULL"))
                disk_tests_in_memory();
        n_failed += cmocka_run_group_tests_name("threads", tests, NULL, NULL);
        engine = DISK_ENGINE_URING;
        if (has_uring())
                n_failed += cmocka_run_group_tests_name("io_uring", tests, NULL, NULL);
        return n_failed;
}
