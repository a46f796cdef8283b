/* The bytes of batches, which msgspec encoded from vLLM 0.33's classes; and each form of a number,
 * text and array. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/events/batch.h"
#include "client/lib/kvlease.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/test-support.h"

static const uint64_t hash = UINT64_C(0xfedcba9876543210), seven = 7;
static const uint32_t tokens[] = {1, 2, 3, 4};

/* [1.5, [BlockStored([hash], None, [1, 2, 3, 4], 4, None, "GPU", None, group_idx=0,
 * kv_cache_spec_kind="full_attention"), BlockRemoved([7], "CPU"), AllBlocksCleared()], 0] */
static const char expected[] = "\x93\xcb\x3f\xf8\0\0\0\0\0\0\x93"
                               "\x8a\xa4type\xab"
                               "BlockStored\xac"
                               "block_hashes\x91\xcf\xfe\xdc\xba\x98\x76\x54\x32\x10"
                               "\xb1parent_block_hash\xc0\xa9token_ids\x94\x01\x02\x03\x04\xaa"
                               "block_size\x04"
                               "\xa7lora_id\xc0\xa6medium\xa3GPU\xa9lora_name\xc0\xa9group_idx\0"
                               "\xb2kv_cache_spec_kind\xae"
                               "full_attention\x83\xa4type\xac"
                               "BlockRemoved\xac"
                               "block_hashes\x91\x07\xa6medium\xa3"
                               "CPU\x81\xa4type\xb0"
                               "AllBlocksCleared\0";

static void fill(struct batch *b)
{
        const struct batch_blocks stored = {.hashes = &hash,
                .n_blocks = 1,
                .block_tokens = 4,
                .token_ids = tokens,
                .tier = KVL_TIER_DEVICE};
        const struct batch_blocks removed = {
                .hashes = &seven, .n_blocks = 1, .tier = KVL_TIER_HOST};

        b->group = 0;
        batch_stored(b, &stored);
        b->group = -1;
        batch_removed(b, &removed);
        batch_cleared(b);
}

/* [0, [BlockStored([hash, 7], None, [1, 2, 3, 4], 2, None, "GPU", "l", extra_keys=[["l", "s"],
 * ["l"]], group_idx=3, kv_cache_spec_kind="full_attention") with cache_salt "s"], 0] */
TEST(test_names)
{
        static const char wanted[] =
                "\x93\xcb\0\0\0\0\0\0\0\0\x91"
                "\x8c\xa4type\xab"
                "BlockStored\xac"
                "block_hashes\x92\xcf\xfe\xdc\xba\x98\x76\x54\x32\x10\x07"
                "\xb1parent_block_hash\xc0\xa9token_ids\x94\x01\x02\x03\x04\xaa"
                "block_size\x02"
                "\xa7lora_id\xc0\xa6medium\xa3GPU\xa9lora_name\xa1l\xaa"
                "extra_keys\x92\x92\xa1l\xa1s\x91\xa1l\xa9group_idx\x03"
                "\xb2kv_cache_spec_kind\xae"
                "full_attention\xaa"
                "cache_salt\xa1s\0";
        const uint64_t hashes[] = {hash, seven};
        struct batch_blocks blocks = {.hashes = hashes,
                .n_blocks = 2,
                .block_tokens = 2,
                .token_ids = tokens,
                .lora_name = "l",
                .cache_salt = "s"};
        uint8_t *data;
        void *memory;
        struct batch b;
        size_t len;

        batch_init(&b, 3);
        batch_stored(&b, &blocks);
        assert_int_equal(batch_end(&b, 0, &memory, &data, &len), 0);
        assert_int_equal(len, sizeof(wanted) - 1);
        assert_memory_equal(data, wanted, len);
        free(memory);

        /* Behind the first block the salt is no extra key. */
        blocks.lora_name = NULL;
        blocks.parent = &seven;
        batch_stored(&b, &blocks);
        assert_int_equal(batch_end(&b, 0, &memory, &data, &len), 0);
        assert_non_null(memmem(data, len, "extra_keys\x92\xc0\xc0", 13));
        free(memory);
        batch_deinit(&b);
}

TEST(test_no_memory)
{
        uint8_t *data;
        size_t len;

        alloc_fail_each(n)
        {
                void *memory = NULL;
                struct batch b;
                int r;

                batch_init(&b, -1);
                fill(&b);
                r = batch_end(&b, 1.5, &memory, &data, &len);
                assert_int_equal(r, alloc_fail_happened() && r != 0 ? -ENOMEM : 0);
                if (r == 0)
                        assert_memory_equal(data, expected, len);
                free(memory);
                batch_deinit(&b);
        }
}

static void assert_packed(struct pack *p, const char *bytes, size_t len)
{
        assert_false(p->failed);
        assert_int_equal(p->len, len);
        assert_memory_equal(p->data, bytes, len);
        pack_deinit(p);
}

#define assert_uint(value, bytes)                                   \
        do {                                                        \
                struct pack packed = {0};                           \
                pack_uint(&packed, (value));                        \
                assert_packed(&packed, (bytes), sizeof(bytes) - 1); \
        } while (0)

TEST(test_numbers)
{
        assert_uint(0, "\0");
        assert_uint(127, "\x7f");
        assert_uint(128, "\xcc\x80");
        assert_uint(255, "\xcc\xff");
        assert_uint(256, "\xcd\x01\0");
        assert_uint(65535, "\xcd\xff\xff");
        assert_uint(65536, "\xce\0\x01\0\0");
        assert_uint(UINT32_MAX, "\xce\xff\xff\xff\xff");
        assert_uint(UINT64_C(1) << 32, "\xcf\0\0\0\x01\0\0\0\0");
        assert_uint(UINT64_MAX, "\xcf\xff\xff\xff\xff\xff\xff\xff\xff");
}

static void assert_head(uint32_t n, const char *bytes, size_t len)
{
        struct pack p = {0};

        pack_array(&p, n);
        assert_packed(&p, bytes, len);
}

static void assert_text(size_t n, const char *head, size_t len)
{
        _cleanup_free_ char *text = calloc(1, n + 1);
        struct pack p = {0};

        memset(text, 'x', n);
        pack_text(&p, text);
        assert_int_equal(p.len, len + n);
        assert_memory_equal(p.data, head, len);
        assert_memory_equal(p.data + len, text, n);
        pack_deinit(&p);
}

TEST(test_lengths)
{
        assert_head(0, "\x90", 1);
        assert_head(15, "\x9f", 1);
        assert_head(16, "\xdc\0\x10", 3);
        assert_head(65535, "\xdc\xff\xff", 3);
        assert_head(65536, "\xdd\0\x01\0\0", 5);
        assert_text(0, "\xa0", 1);
        assert_text(31, "\xbf", 1);
        assert_text(32, "\xd9\x20", 2);
        assert_text(255, "\xd9\xff", 2);
        assert_text(256, "\xda\x01\0", 3);
        assert_text(9000, "\xda\x23\x28", 3);
}
