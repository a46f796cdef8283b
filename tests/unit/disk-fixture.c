#include "tests/unit/disk-fixture.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE_MSEC (60 * 1000)

void disk_tests_in_memory(void)
{
        if (access("/dev/shm", W_OK) == 0)
                setenv("TMPDIR", "/dev/shm", 1);
}

void bench_init(struct bench *b, enum disk_engine_kind engine)
{
        *b = (struct bench){
                .dir = strdup(test_dir_make()),
                .options = {.device = "GPU-1234",
                        .engine = engine,
                        .chunk_bytes = TEST_CHUNK,
                        .max_spaces = 64},
                .bytes = TEST_BYTES,
        };
        b->path = test_path(b->dir, "disk");
}

void bench_deinit(struct bench *b)
{
        assert_null(b->disk);
        test_dir_remove(b->dir);
        free(b->dir);
        free(b->path);
}

int bench_open(struct bench *b)
{
        b->opened = b->start ? disk_open_with(b->path, b->bytes, &b->options, b->start,
                                       b->start_data, &b->disk, b->why)
                             : disk_open(b->path, b->bytes, &b->options, &b->disk, b->why);
        return b->opened;
}

void bench_expect(struct bench *b, int opened)
{
        int r = bench_open(b);

        if (r != opened)
                fail_msg("disk_open: %d (%s), not %d", r, b->why, opened);
        if (opened >= 0)
                bench_check(b);
}

void bench_close(struct bench *b)
{
        assert_true(disk_close(b->disk));
        b->disk = NULL;
}

void bench_wait(struct bench *b, const bool *flag)
{
        while (!*flag) {
                struct pollfd p = {.fd = disk_fd(b->disk), .events = POLLIN};

                if (poll(&p, 1, PATIENCE_MSEC) != 1)
                        fail_msg("the disk doesn't answer");
                disk_reap(b->disk);
        }
}

void bench_answer(int result, void *data)
{
        struct answer *a = data;

        assert_false(a->came);
        *a = (struct answer){true, result};
}

int bench_await(struct bench *b, struct answer *a)
{
        bench_wait(b, &a->came);
        return a->result;
}

void bench_check(struct bench *b)
{
        char why[DISK_WHY_BYTES];

        if (!disk_check(b->disk, why))
                fail_msg("disk_check: %s", why);
}

struct disk_stats bench_stats(struct bench *b)
{
        struct disk_stats s;

        disk_stats(b->disk, &s);
        return s;
}

struct disk_space_info bench_info(struct disk_space *s)
{
        struct disk_space_info info;

        disk_space_info(s, &info);
        return info;
}

static void name_space(char name, uint8_t ret_id[DISK_ID_BYTES])
{
        memset(ret_id, name, DISK_ID_BYTES);
}

struct disk_space *bench_space(struct bench *b, char name, uint64_t slot_bytes)
{
        uint8_t id[DISK_ID_BYTES], owner[DISK_ID_BYTES] = {(uint8_t)name};
        struct disk_space *s;

        name_space(name, id);
        assert_int_equal(disk_space_new(b->disk, id, owner, 1, slot_bytes, &s), 0);
        return s;
}

struct disk_space *bench_find(struct bench *b, char name)
{
        uint8_t id[DISK_ID_BYTES];

        name_space(name, id);
        return disk_space_find(b->disk, id);
}

void bench_load(struct bench *b, struct disk_space *s)
{
        struct answer a = {0};

        assert_int_equal(disk_space_load(s, bench_answer, &a), 0);
        assert_int_equal(bench_await(b, &a), 0);
        bench_check(b);
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* splitmix64's mixing, in the public domain */
static uint64_t mix(uint64_t z)
{
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
}

void page_key(uint64_t number, uint8_t ret_key[DISK_KEY_BYTES])
{
        for (unsigned i = 0; i < DISK_KEY_BYTES / 8; i++) {
                uint64_t word = mix(number * 0x9e3779b97f4a7c15 + i + 1);

                memcpy(ret_key + (size_t)i * 8, &word, 8);
        }
}

static uint8_t byte_of(uint64_t number, uint32_t i)
{
        return (uint8_t)(mix(number * 0xd1342543de82ef95 + i / 8 + 77) >> i % 8 * 8);
}

void page_fill(uint64_t number, void *bytes, uint32_t length)
{
        for (uint32_t i = 0; i < length; i++)
                ((uint8_t *)bytes)[i] = byte_of(number, i);
}

bool page_is(uint64_t number, const void *bytes, uint32_t length)
{
        for (uint32_t i = 0; i < length; i++)
                if (((const uint8_t *)bytes)[i] != byte_of(number, i))
                        return false;
        return true;
}

struct disk_page page_of(uint64_t number, uint32_t length)
{
        struct disk_page p = {
                .tag = mix(number),
                .end_token = 16 * number,
                .tokens = (uint32_t)number % 17 + 1,
                .depth = (uint32_t)number,
                .length = length,
                .codec = (uint16_t)(number % 3),
                .flags = (uint16_t)(number % 5),
        };
        char *bytes = malloc(length);

        page_fill(number, bytes, length);
        p.sum = disk_sum(&(struct iovec){bytes, length}, 1, length);
        free(bytes);
        page_key(number, p.key);
        if (number > 0)
                page_key(number - 1, p.parent);
        return p;
}

bool page_equals(const struct disk_page *a, const struct disk_page *b)
{
        return memcmp(a, b, sizeof(*a)) == 0; /* it has no padding: it is in the file */
}

void test_io_init(struct test_io *t, uint32_t n, uint64_t slot)
{
        *t = (struct test_io){.io = disk_io_new(n),
                .n = n,
                .slot = slot,
                .memory = disk_buffer_new(n * slot),
                .iov = calloc(n, sizeof(struct iovec)),
                .results = calloc(n, sizeof(struct disk_io_page))};
        assert_true(t->io && t->memory && t->iov && t->results);
        for (uint32_t i = 0; i < n; i++) {
                t->iov[i] = (struct iovec){t->memory + i * slot, slot};
                t->io->pages[i].iov = &t->iov[i];
                t->io->pages[i].n_iov = 1;
        }
}

void test_io_deinit(struct test_io *t)
{
        disk_io_free(t->io);
        free(t->memory);
        free(t->iov);
        free(t->results);
}

static void io_came(struct disk_io *io, void *data)
{
        struct test_io *t = data;

        memcpy(t->results, io->pages, io->n * sizeof(io->pages[0]));
        t->io = NULL;
        t->came = true;
}

void test_io_write_pages(struct test_io *t, uint64_t number, uint32_t length)
{
        t->io->done = io_came;
        t->io->data = t;
        for (uint32_t i = 0; i < t->n; i++) {
                t->io->pages[i].page = page_of(number + i, length);
                memset(t->memory + i * t->slot, 0xee, t->slot);
                page_fill(number + i, t->memory + i * t->slot, length);
        }
}

void test_io_read_page(struct test_io *t, uint32_t i, uint64_t number, uint64_t at)
{
        t->io->done = io_came;
        t->io->data = t;
        page_key(number, t->io->pages[i].page.key);
        t->io->pages[i].at = at;
        memset(t->memory + i * t->slot, 0xdd, t->slot);
}

void bench_write(struct bench *b, struct disk_space *s, uint64_t number, uint32_t n,
        uint32_t length, uint64_t *ret_at)
{
        struct test_io t;

        test_io_init(&t, n, bench_info(s).slot_bytes);
        test_io_write_pages(&t, number, length);
        assert_int_equal(disk_write(s, t.io), 0);
        bench_wait(b, &t.came);
        for (uint32_t i = 0; i < n; i++) {
                assert_int_equal(t.results[i].result, 0);
                if (ret_at)
                        ret_at[i] = t.results[i].at;
        }
        test_io_deinit(&t);
}

int bench_read(struct bench *b, struct disk_space *s, uint64_t number, uint64_t at)
{
        struct test_io t;
        int r;

        test_io_init(&t, 1, bench_info(s).slot_bytes);
        test_io_read_page(&t, 0, number, at);
        assert_int_equal(disk_read(s, t.io), 0);
        bench_wait(b, &t.came);
        r = t.results[0].result;
        if (r == 0) {
                struct disk_page expected = page_of(number, t.results[0].page.length);

                assert_true(page_equals(&t.results[0].page, &expected));
                assert_true(page_is(number, t.memory, t.results[0].page.length));
        }
        test_io_deinit(&t);
        return r;
}

uint64_t bench_where(struct disk_space *s, uint64_t number)
{
        const struct disk_page *page;
        uint8_t key[DISK_KEY_BYTES];
        uint64_t iter = 0, at;

        page_key(number, key);
        while (disk_page_next(s, &iter, &page, &at))
                if (memcmp(page->key, key, sizeof(key)) == 0)
                        return at;
        return UINT64_MAX;
}

int bench_remove(struct bench *b, struct disk_space *s, uint64_t number, uint64_t at)
{
        struct disk_ref ref = {.at = at};
        struct answer a = {0};

        page_key(number, ref.key);
        assert_int_equal(disk_remove(s, &ref, 1, bench_answer, &a), 0);
        assert_false(a.came);
        return bench_await(b, &a);
}
