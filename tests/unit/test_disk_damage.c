/* Bits of a disk's file that aren't what they were: in pages, indexes, tables, the superblock. What
 * is hit is a miss, and counted; all else is there. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/tier/disk-format.h"
#include "tests/unit/disk-fixture.h"
#include "tests/unit/disk-sim.h"
#include "tests/unit/test-random.h"

#define N_PAGES 40 /* of 5,000 bytes, in 6 chunks of a space */
#define LENGTH  5000

static struct bench b;
static struct sim sim;
static char *whole; /* the file, undamaged */
static uint64_t at[N_PAGES];

static int setup(void **state)
{
        size_t len;
        struct disk_space *s;

        bench_init(&b, DISK_ENGINE_THREADS);
        b.start = sim_start;
        b.start_data = &sim;
        bench_expect(&b, DISK_NEW);
        s = bench_space(&b, 'a', TEST_SLOT);
        bench_write(&b, s, 0, N_PAGES, LENGTH, at);
        bench_close(&b);
        return file_read(b.path, TEST_BYTES, &whole, &len);
}

static int teardown(void **state)
{
        free(whole);
        bench_deinit(&b);
        return 0;
}

static void write_file(const char *image)
{
        _cleanup_fd_ int fd = open(b.path, O_RDWR | O_CLOEXEC);

        assert_int_equal(pwrite(fd, image, TEST_BYTES, 0), TEST_BYTES);
}

static void flip(char *image, uint64_t offset)
{
        image[offset] = (char)(image[offset] ^ (1 << random_below(8)));
}

/* How many pages can be read; each of them is what was written. */
static unsigned count_good(void)
{
        struct disk_space *s = bench_find(&b, 'a');
        unsigned n = 0;

        if (!s)
                return 0;
        bench_load(&b, s);
        for (unsigned i = 0; i < N_PAGES; i++) {
                uint64_t where = bench_where(s, i);
                int r = where == UINT64_MAX ? -ENOENT : bench_read(&b, s, i, where);

                assert_true(r == 0 || r == -ENOENT || r == -EBADMSG);
                n += r == 0;
        }
        bench_check(&b);
        return n;
}

/* The parts of the file, as docs/develop/DISK.md has them. */
static struct disk_layout layout(void)
{
        return disk_layout_of(TEST_BYTES, TEST_CHUNK, 64);
}

static uint64_t chunk_at(uint64_t number)
{
        return layout().data_at + number * TEST_CHUNK;
}

/* One bit, at the place: what is lost, and what is counted. */
static struct disk_stats damage(uint64_t offset, int opened, unsigned n_good)
{
        char *image = malloc(TEST_BYTES);
        struct disk_stats s;

        memcpy(image, whole, TEST_BYTES);
        flip(image, offset);
        write_file(image);
        free(image);
        bench_expect(&b, opened);
        if (opened < 0)
                return (struct disk_stats){0};
        assert_int_equal(count_good(), n_good);
        s = bench_stats(&b);
        bench_close(&b);
        return s;
}

TEST(test_page)
{
        for (unsigned i = 0; i < 20; i++) {
                unsigned n = random_below(N_PAGES);
                uint64_t slot = chunk_at(at[n] >> 32) + 4096 + (uint32_t)at[n] * TEST_SLOT;
                struct disk_stats s = damage(slot + random_below(LENGTH), 0, N_PAGES - 1);

                assert_int_equal(s.n_bad, 1);
                assert_int_equal(s.n_bad_found, 1);
                assert_int_equal(s.n_damaged, 0);
        }
}

TEST(test_tables)
{
        uint64_t used = at[20] >> 32;
        struct disk_stats s;

        s = damage(layout().spaces_at + random_below(128), 0, 0);
        assert_int_equal(s.n_damaged, 1);
        assert_int_equal(s.n_free, 15);
        s = damage(layout().chunks_at + used * 32 + random_below(32), 0, N_PAGES - 7);
        assert_int_equal(s.n_damaged, 1);
        /* Records that weren't used. */
        s = damage(layout().spaces_at + 5 * 128, 0, N_PAGES);
        assert_int_equal(s.n_damaged, 1);
        s = damage(layout().chunks_at + 14 * 32, 0, N_PAGES);
        assert_int_equal(s.n_damaged, 1);
}

TEST(test_super)
{
        for (unsigned i = 0; i < sizeof(struct disk_super); i++) {
                if (i < offsetof(struct disk_super, version))
                        (void)damage(i, -EEXIST, 0);
                else
                        (void)damage(i, DISK_NEW, 0);
                assert_string_not_equal(b.why, "");
        }
        /* Bytes after the superblock have no meaning. */
        (void)damage(sizeof(struct disk_super) + random_below(3000), 0, N_PAGES);
}

/* Anything anywhere. */
TEST(test_many)
{
        unsigned n = getenv("KVL_FULL") ? 5000 : 50;
        char *image = malloc(TEST_BYTES);

        for (unsigned i = 0; i < n; i++) {
                uint64_t part = random_below(4);

                memcpy(image, whole, TEST_BYTES);
                for (unsigned k = random_below(20) + 1; k > 0; k--)
                        flip(image, part == 0   ? 4096 + random_below(3 * 4096)
                                    : part == 1 ? chunk_at(random_below(6)) + random_below(1024)
                                                : 4096 + random_below(TEST_BYTES - 4096));
                write_file(image);
                bench_expect(&b, 0);
                (void)count_good();
                bench_close(&b);
        }
        free(image);
}

int main(void)
{
        random_start("test_disk_damage");
        sim_set_random(random_below);
        disk_tests_in_memory();
        return test_run_all(setup, teardown);
}
