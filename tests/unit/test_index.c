#include <errno.h>
#include <string.h>

#include "daemon/core/index.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

#define N_PAGES 1000

static uint8_t keys[N_PAGES][KEY_BYTES];

static bool match(const void *pages, uint32_t page, const uint8_t key[KEY_BYTES])
{
        assert_ptr_equal(pages, keys);
        return memcmp(keys[page], key, KEY_BYTES) == 0;
}

static uint32_t find(const struct index *ix, uint32_t page)
{
        return index_find(ix, keys[page], match, keys);
}

static void start(struct index *ix, uint32_t capacity)
{
        for (uint32_t i = 0; i < N_PAGES; i++)
                for (int k = 0; k < KEY_BYTES; k++)
                        keys[i][k] = (uint8_t)random_u64();
        assert_int_equal(index_init(ix, capacity), 0);
}

static void test_insert_find_remove(void **state)
{
        bool present[N_PAGES] = {0};
        struct index ix;
        uint32_t n = 0;

        start(&ix, N_PAGES);
        assert_int_equal(ix.n_slots, 2048);
        for (int step = 0; step < 100000; step++) {
                uint32_t page = random_below(N_PAGES);

                assert_int_equal(find(&ix, page), present[page] ? page : PAGE_NONE);
                assert_int_equal(index_has(&ix, keys[page], page), present[page]);
                if (present[page])
                        index_remove(&ix, keys[page], page);
                else
                        index_insert(&ix, keys[page], page);
                present[page] = !present[page];
                n += present[page] ? 1 : -1;
                assert_int_equal(ix.n_used, n);
        }
        for (uint32_t page = 0; page < N_PAGES; page++)
                assert_int_equal(find(&ix, page), present[page] ? page : PAGE_NONE);
        index_deinit(&ix);
}

/* Half of a small table, so that runs wrap around its end: removing must not cut any of them. */
static void test_full_and_wrapping(void **state)
{
        for (int round = 0; round < 500; round++) {
                struct index ix;

                start(&ix, 8);
                assert_int_equal(ix.n_slots, 16);
                for (uint32_t page = 0; page < 8; page++)
                        index_insert(&ix, keys[page], page);
                for (uint32_t page = 0; page < 8; page++) {
                        index_remove(&ix, keys[page], page);
                        for (uint32_t rest = 0; rest < 8; rest++)
                                assert_int_equal(find(&ix, rest), rest > page ? rest : PAGE_NONE);
                }
                index_deinit(&ix);
        }
}

static void test_has_tells_pages_apart(void **state)
{
        struct index ix;

        start(&ix, 4);
        index_insert(&ix, keys[1], 1);
        assert_true(index_has(&ix, keys[1], 1));
        assert_false(index_has(&ix, keys[1], 2));
        assert_false(index_has(&ix, keys[2], 1));
        index_deinit(&ix);
}

static void test_no_memory(void **state)
{
        struct index ix = {0};

        alloc_fail_at(1);
        assert_int_equal(index_init(&ix, 10), -ENOMEM);
        assert_true(alloc_fail_end());
        assert_null(ix.slots);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_insert_find_remove),
                TEST(test_full_and_wrapping),
                TEST(test_has_tells_pages_apart),
                TEST(test_no_memory),
        };

        random_start("test_index");
        return RUN_TESTS(tests);
}
