/* A disk's store for tests: in a directory of its own, with pages whose bytes follow from their
 * number, and calls that wait. */
#ifndef KVL_TESTS_DISK_FIXTURE_H
#define KVL_TESTS_DISK_FIXTURE_H

#include "daemon/tier/disk-engine.h"
#include "daemon/tier/disk.h"
#include "tests/unit/test-support.h"

#define TEST_CHUNK (64u << 10)
#define TEST_BYTES (1u << 20)
#define TEST_SLOT  (8u << 10)

struct bench {
        char *dir, *path; /* owned */
        struct disk_options options;
        uint64_t bytes;
        struct disk_file *disk;
        char why[DISK_WHY_BYTES];
        disk_engine_start_fn start; /* NULL: options.engine */
        void *start_data;
        int opened; /* of the last bench_open() */
};

/* Directories of tests from now on are in memory, where there is such a file system. */
void disk_tests_in_memory(void);

/* No disk yet. */
void bench_init(struct bench *b, enum disk_engine_kind engine);

/* Its disk is closed. */
void bench_deinit(struct bench *b);

/* Like disk_open(). */
int bench_open(struct bench *b);
void bench_close(struct bench *b);

/* Opens it, and expects that. */
void bench_expect(struct bench *b, int opened);

/* Reaps until *flag; fails the test after a generous while. */
void bench_wait(struct bench *b, const bool *flag);

/* A disk_fn for struct answer. */
struct answer {
        bool came;
        int result;
};
void bench_answer(int result, void *data);
int bench_await(struct bench *b, struct answer *a);

void bench_check(struct bench *b);
struct disk_stats bench_stats(struct bench *b);
struct disk_space_info bench_info(struct disk_space *s);

/* A space named by a letter; of its own owner. */
struct disk_space *bench_space(struct bench *b, char name, uint64_t slot_bytes);
struct disk_space *bench_find(struct bench *b, char name);

/* Loads it. */
void bench_load(struct bench *b, struct disk_space *s);

/* ---- pages ----------------------------------------------------------------------------------- */

void page_key(uint64_t number, uint8_t ret_key[DISK_KEY_BYTES]);
void page_fill(uint64_t number, void *bytes, uint32_t length);
bool page_is(uint64_t number, const void *bytes, uint32_t length);

/* The page with this number, its sum included. */
struct disk_page page_of(uint64_t number, uint32_t length);

/* Compares all fields. */
bool page_equals(const struct disk_page *a, const struct disk_page *b);

/* An io of pages number, number + 1 ...; buffers of `slot` bytes each in one piece. Freed with
 * free_io(), in the callback at the latest. */
struct test_io {
        struct disk_io *io; /* NULL: its callback was called */
        uint32_t n;
        uint64_t slot;
        char *memory; /* owned */
        struct iovec *iov;
        bool came;
        struct disk_io_page *results; /* owned copy */
};
void test_io_init(struct test_io *t, uint32_t n, uint64_t slot);
void test_io_deinit(struct test_io *t);
void test_io_write_pages(struct test_io *t, uint64_t number, uint32_t length);
void test_io_read_page(struct test_io *t, uint32_t i, uint64_t number, uint64_t at);

/* n pages from `number` on, all of which are written. ret_at: n, or NULL. */
void bench_write(struct bench *b, struct disk_space *s, uint64_t number, uint32_t n,
        uint32_t length, uint64_t *ret_at);

/* Reads one page. Returns the result; 0: its bytes were compared. */
int bench_read(struct bench *b, struct disk_space *s, uint64_t number, uint64_t at);

/* Where the page is; UINT64_MAX: nowhere. */
uint64_t bench_where(struct disk_space *s, uint64_t number);

/* 0, when it is durable. */
int bench_remove(struct bench *b, struct disk_space *s, uint64_t number, uint64_t at);

#endif
