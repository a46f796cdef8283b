#include "tests/unit/test-support.h"

#include <errno.h>
#include <string.h>

#include "proto/arena.h"
#include "tests/unit/alloc-fail.h"

TEST(test_budget)
{
        struct arena a;
        uint8_t *p;

        assert_int_equal(arena_init(&a, 1000), 0);
        assert_null(arena_alloc(&a, 1001));
        assert_null(arena_alloc(&a, SIZE_MAX));
        assert_int_equal(a.n_refused, 2);
        p = arena_alloc(&a, 1000);
        assert_non_null(p);
        memset(p, 0xff, 1000);
        assert_null(arena_alloc(&a, 1));
        arena_reset(&a);
        p = arena_alloc(&a, 999);
        assert_non_null(p);
        for (unsigned i = 0; i < 999; i++)
                assert_int_equal(p[i], 0);
        assert_null(arena_alloc(&a, 1));
        assert_int_equal(a.n_refused, 4);
        arena_deinit(&a);
}

TEST(test_blocks_are_apart_and_aligned)
{
        struct arena a;
        uint8_t *blocks[10];

        assert_int_equal(arena_init(&a, 4096), 0);
        for (unsigned i = 0; i < ARRAY_SIZE(blocks); i++) {
                blocks[i] = arena_alloc(&a, 1 + 3 * i);
                assert_non_null(blocks[i]);
                assert_int_equal((uintptr_t)blocks[i] % _Alignof(max_align_t), 0);
                memset(blocks[i], (int)i, 1 + 3 * i);
        }
        for (unsigned i = 0; i < ARRAY_SIZE(blocks); i++)
                for (unsigned j = 0; j < 1 + 3 * i; j++)
                        assert_int_equal(blocks[i][j], i);
        arena_deinit(&a);
}

TEST(test_as_protobuf_allocator)
{
        ProtobufCAllocator *allocator;
        struct arena a;
        void *p;

        assert_int_equal(arena_init(&a, 64), 0);
        allocator = &a.allocator;
        alloc_fail_at(1);
        p = allocator->alloc(allocator->allocator_data, 64);
        assert_false(alloc_fail_end());
        assert_non_null(p);
        allocator->free(allocator->allocator_data, p);
        assert_null(allocator->alloc(allocator->allocator_data, 1));
        assert_int_equal(a.used, 64);
        arena_deinit(&a);
}

TEST(test_no_memory)
{
        alloc_fail_each(n)
        {
                struct arena a;
                int r = arena_init(&a, ARENA_BUDGET_BYTES);

                assert_int_equal(r, alloc_fail_happened() ? -ENOMEM : 0);
                if (r == 0)
                        arena_deinit(&a);
        }
}
