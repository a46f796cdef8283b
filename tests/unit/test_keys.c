/* Vectors computed apart from this code, by tests/tools/key-vectors.py (hashlib). */
#include "client/lib/kvlease.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <openssl/evp.h>

#include "base/macros.h"
#include "client/lib/keys/page-keys.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

static const struct kvl_layout layout = {
        .size = sizeof(layout),
        .model = "llama-3-8b",
        .version = "r1",
        .dtype = KVL_DTYPE_BF16,
        .n_layers = 32,
        .n_kv_heads = 8,
        .head_size = 128,
        .page_tokens = 16,
        .n_planes = 1,
        .plane_page_bytes = 2097152,
        .tp_rank = 1,
        .tp_size = 2,
        .layer_group = 3,
        .salt = "pepper\0x",
        .salt_bytes = 8,
};

static void assert_key(const uint8_t key[KVL_KEY_BYTES], const char *hex)
{
        char text[2 * KVL_KEY_BYTES + 1];

        for (int i = 0; i < KVL_KEY_BYTES; i++)
                snprintf(text + 2 * i, 3, "%02x", key[i]);
        assert_string_equal(text, hex);
}

TEST(test_vectors)
{
        const uint32_t tokens[] = {1, 2, 0x01020304, UINT32_MAX};
        uint8_t root[KVL_KEY_BYTES], key[KVL_KEY_BYTES];

        assert_int_equal(kvl_key_root(&layout, root), 0);
        assert_key(root, "e133b76cfda2fad67f3d48fc50fedfd8cbb6e5de572084fbd98f1996f9c7e246");
        assert_int_equal(kvl_key_chain(root, tokens, 4, key), 0);
        assert_key(key, "7a56491655115f482d60cfb31187cdaea938255672469e6517ea18cf04acd2b8");
        assert_int_equal(kvl_key_chain(key, tokens, 1, key), 0);
        assert_key(key, "a7d0f28892bc5c4ef9c7b17ec81d0a3f1636b9fa0c100bddb4b0df2db0e92249");
}

TEST(test_vector_without_the_optional)
{
        struct kvl_layout l = {
                .size = sizeof(l),
                .model = "m",
                .dtype = KVL_DTYPE_F32,
                .n_layers = 1,
                .n_kv_heads = 1,
                .head_size = 1,
                .page_tokens = 1,
                .n_planes = 1,
                .plane_page_bytes = 64,
        };
        uint8_t key[KVL_KEY_BYTES], next[KVL_KEY_BYTES];
        const uint32_t token = 7;

        assert_int_equal(kvl_key_root(&l, key), 0);
        assert_key(key, "426829500f6a7575a1f6f4a1056a972000f783da490ad1d4a529490cb5a06b2f");
        assert_int_equal(kvl_key_chain(key, &token, 1, next), 0);
        assert_key(next, "16f08b70a4e4d75f0f2dc44b66f20fee5e0f84b34137fb744eb8e7089be08625");
}

/* The first vector's layout with one more field; the other values are from before it. */
TEST(test_vector_with_format)
{
        struct kvl_layout l = layout;
        uint8_t key[KVL_KEY_BYTES];

        l.format = "vllm 1";
        l.format_bytes = 7;
        assert_int_equal(kvl_key_root(&l, key), 0);
        assert_key(key, "9cf07fcd0eed1d7598bd56153b4bffa45d81b7e9be62843e3dfda92a4a6d7bcb");
}

/* A program that was built before there was a format. */
TEST(test_shorter_struct_of_an_older_program)
{
        struct kvl_layout l = layout;
        uint8_t key[KVL_KEY_BYTES];

        l.size = offsetof(struct kvl_layout, format);
        l.format = (const void *)1; /* isn't there */
        l.format_bytes = 64;
        assert_int_equal(kvl_key_root(&l, key), 0);
        assert_key(key, "e133b76cfda2fad67f3d48fc50fedfd8cbb6e5de572084fbd98f1996f9c7e246");
}

static void assert_differs(const struct kvl_layout *l)
{
        uint8_t a[KVL_KEY_BYTES], b[KVL_KEY_BYTES];

        assert_int_equal(kvl_key_root(&layout, a), 0);
        assert_int_equal(kvl_key_root(l, b), 0);
        assert_memory_not_equal(a, b, sizeof(a));
}

TEST(test_every_field_counts)
{
        struct kvl_layout l;

#define CHANGED(field, value) \
        l = layout;           \
        l.field = value;      \
        assert_differs(&l)
        CHANGED(model, "llama-3-8");
        CHANGED(version, "r2");
        CHANGED(dtype, KVL_DTYPE_F16);
        CHANGED(n_layers, 31);
        CHANGED(n_kv_heads, 7);
        CHANGED(head_size, 64);
        CHANGED(page_tokens, 32);
        CHANGED(tp_rank, 0);
        CHANGED(tp_size, 4);
        CHANGED(layer_group, 0);
        CHANGED(salt, "pepper\0y");
        CHANGED(salt_bytes, 7);
        CHANGED(format, "vllm"; l.format_bytes = 4);
        /* The boundary between two fields belongs to neither. */
        l = layout;
        l.model = "llama-3-8br";
        l.version = "1";
        assert_differs(&l);
}

static void assert_name(const struct kvl_layout *l, const char *expected)
{
        char name[KVL_NS_NAME_BYTES];

        memset(name, 'x', sizeof(name));
        assert_int_equal(kvl_layout_name(l, name), 0);
        assert_string_equal(name, expected);
}

TEST(test_name_vectors)
{
        char model[129] = "", longest[KVL_NS_NAME_BYTES];
        struct kvl_layout l = layout;

        assert_name(&l, "llama-3-8b@88a8bad38974");
        l.version = "another";
        assert_name(&l, "llama-3-8b@88a8bad38974");
        l.format = "vllm 1";
        l.format_bytes = 7;
        assert_name(&l, "llama-3-8b@7e08021a633b");
        /* Characters that a name may not have, or not begin with. */
        l = layout;
        l.model = ".org/llama 3@8b";
        assert_name(&l, "_org_llama_3_8b@9cf08d610eef");
        memset(model, 'm', 128);
        l.model = model;
        snprintf(longest, sizeof(longest), "%.115s@474a0a8e50a5", model);
        assert_name(&l, longest);
}

TEST(test_every_field_but_version_is_in_the_name)
{
        char a[KVL_NS_NAME_BYTES], b[KVL_NS_NAME_BYTES], model[129] = "";
        struct kvl_layout l;

        assert_int_equal(kvl_layout_name(&layout, a), 0);
#define RENAMED(field, value)                        \
        l = layout;                                  \
        l.field = value;                             \
        assert_int_equal(kvl_layout_name(&l, b), 0); \
        assert_string_not_equal(a, b);               \
        assert_memory_equal(a, b, sizeof("llama-3-8b"))
        RENAMED(dtype, KVL_DTYPE_F16);
        RENAMED(n_layers, 31);
        RENAMED(n_kv_heads, 7);
        RENAMED(head_size, 64);
        RENAMED(page_tokens, 32);
        RENAMED(n_planes, 2);
        RENAMED(plane_page_bytes, 1048576);
        RENAMED(tp_rank, 0);
        RENAMED(tp_size, 4);
        RENAMED(layer_group, 0);
        RENAMED(salt, "pepper\0y");
        RENAMED(format, "vllm"; l.format_bytes = 4);
        /* The part that is cut off counts, too. */
        memset(model, 'm', 128);
        l = layout;
        l.model = model;
        assert_int_equal(kvl_layout_name(&l, a), 0);
        model[127] = 'n';
        assert_int_equal(kvl_layout_name(&l, b), 0);
        assert_string_not_equal(a, b);
        assert_int_equal(kvl_layout_name(&layout, NULL), -EINVAL);
        l.model = NULL;
        assert_int_equal(kvl_layout_name(&l, b), -EINVAL);
}

TEST(test_refusals)
{
        uint8_t key[KVL_KEY_BYTES] = {0};
        uint32_t token = 1;
        struct kvl_layout l;

        assert_int_equal(kvl_key_root(NULL, key), -EINVAL);
        assert_int_equal(kvl_key_root(&layout, NULL), -EINVAL);
#define REFUSED(field, value, sentence)                   \
        l = layout;                                       \
        l.field = value;                                  \
        assert_int_equal(kvl_key_root(&l, key), -EINVAL); \
        assert_non_null(strstr(kvl_last_error(), sentence))
        REFUSED(size, 0, "size");
        REFUSED(model, NULL, "model");
        REFUSED(model, "", "model");
        REFUSED(dtype, 0, "dtype");
        REFUSED(page_tokens, 1025, "page_tokens is 1025, must be 1 to 1024");
        REFUSED(n_planes, 0, "n_planes");
        REFUSED(plane_page_bytes, 65, "multiple of 64");
        REFUSED(tp_rank, 2, "tp_rank is 2, must be 0 to 1");
        REFUSED(salt_bytes, 65, "salt_bytes");
        REFUSED(salt, NULL, "salt");
        REFUSED(format_bytes, 65, "format_bytes is 65, must be 0 to 64");
        REFUSED(format_bytes, 1, "no format");
        assert_int_equal(kvl_key_chain(NULL, &token, 1, key), -EINVAL);
        assert_int_equal(kvl_key_chain(key, NULL, 1, key), -EINVAL);
        assert_int_equal(kvl_key_chain(key, &token, 0, key), -EINVAL);
        assert_int_equal(kvl_key_chain(key, &token, 1025, key), -EINVAL);
        assert_int_equal(kvl_keys(NULL, &token, 1, 1, key), -EINVAL);
        assert_int_equal(kvl_keys(key, NULL, 1, 1, key), -EINVAL);
        assert_int_equal(kvl_keys(key, &token, 1, 1, NULL), -EINVAL);
        assert_int_equal(kvl_keys(key, &token, 1, 0, key), -EINVAL);
        assert_int_equal(kvl_keys(key, &token, 1, 1025, key), -EINVAL);
}

TEST(test_a_full_page)
{
        uint32_t tokens[1024] = {7};
        uint8_t parent[KVL_KEY_BYTES] = {0}, key[KVL_KEY_BYTES];

        assert_int_equal(kvl_key_chain(parent, tokens, 1024, key), 0);
        assert_key(key, "a187cd3e8a9bcfbce876ce219fdca7cc0905f35749ad51b6ec600fa6337d6a4c");
}

TEST(test_no_tokens)
{
        uint8_t parent[KVL_KEY_BYTES] = {0};

        assert_int_equal(kvl_keys(parent, NULL, 0, 16, NULL), 0);
}

#define TEXT_TOKENS 4096u

/* A text whose tokens have bytes that differ. */
static void fill_text(uint32_t *tokens)
{
        for (uint32_t i = 0; i < TEXT_TOKENS; i++)
                tokens[i] = (uint32_t)random_u64();
}

static void sha256_of(const void *const texts[], const size_t lengths[], int n, uint8_t *ret)
{
        EVP_MD_CTX *c = EVP_MD_CTX_new();

        assert_int_equal(EVP_DigestInit_ex(c, EVP_sha256(), NULL), 1);
        for (int i = 0; i < n; i++)
                assert_int_equal(EVP_DigestUpdate(c, texts[i], lengths[i]), 1);
        assert_int_equal(EVP_DigestFinal_ex(c, ret, NULL), 1);
        EVP_MD_CTX_free(c);
}

/* The key of one page as docs/reference/PROTOCOL.md has it. */
static void plain_key(const uint8_t *parent, const uint32_t *tokens, uint32_t n, uint8_t *ret)
{
        uint32_t n_last = MIN(n, CHAIN_TOKENS);
        uint8_t page[KVL_KEY_BYTES];

        sha256_of((const void *[]){tokens, PAGE_DOMAIN},
                (size_t[]){4 * (n - n_last), strlen(PAGE_DOMAIN)}, 2, page);
        sha256_of((const void *[]){parent, page, tokens + n - n_last, CHAIN_DOMAIN},
                (size_t[]){KVL_KEY_BYTES, KVL_KEY_BYTES, 4 * n_last, strlen(CHAIN_DOMAIN)}, 4, ret);
}

/* Checks kvl_keys(), or a way. Each page's key follows from the one before. */
static void assert_keys(const struct page_keys_way *way, const uint8_t *parent,
        const uint32_t *tokens, uint32_t n_tokens, uint32_t page_tokens)
{
        uint32_t n_pages = (n_tokens + page_tokens - 1) / page_tokens;
        uint8_t *keys = calloc(n_pages + 1, KVL_KEY_BYTES), one[KVL_KEY_BYTES];
        static const uint8_t untouched[KVL_KEY_BYTES];

        assert_non_null(keys);
        if (way)
                page_keys(way, parent, tokens, n_tokens, page_tokens, keys);
        else
                assert_int_equal(kvl_keys(parent, tokens, n_tokens, page_tokens, keys), 0);
        for (uint32_t i = 0, at = 0; i < n_pages; i++, at += page_tokens) {
                plain_key(i > 0 ? keys + (i - 1) * KVL_KEY_BYTES : parent, tokens + at,
                        MIN(n_tokens - at, page_tokens), one);
                assert_memory_equal(keys + i * KVL_KEY_BYTES, one, KVL_KEY_BYTES);
        }
        assert_memory_equal(keys + n_pages * KVL_KEY_BYTES, untouched, KVL_KEY_BYTES);
        free(keys);
}

/* All lengths that matter to blocks of 64 bytes, then random ones: few pages, and enough for all
 * lanes several times. */
static void assert_all_lengths(const struct page_keys_way *way)
{
        static uint32_t text[TEXT_TOKENS];
        uint8_t parent[KVL_KEY_BYTES];

        fill_text(text);
        memcpy(parent, text, sizeof(parent));
        for (uint32_t page_tokens = 1; page_tokens <= 80; page_tokens++)
                for (uint32_t n = 1; n <= 3 * page_tokens + 1; n++)
                        assert_keys(way, parent, text, n, page_tokens);
        for (int i = 0; i < 200; i++)
                assert_keys(
                        way, parent, text, 1 + random_below(TEXT_TOKENS), 1 + random_below(1024));
        for (int i = 0; i < 200; i++)
                assert_keys(
                        way, parent, text, 1 + random_below(TEXT_TOKENS), 1 + random_below(128));
        assert_keys(way, parent, text, TEXT_TOKENS, 1);
        assert_keys(way, parent, text, TEXT_TOKENS, 1024);
}

TEST(test_a_whole_text)
{
        assert_all_lengths(NULL);
}

/* Each implementation that this processor can run. */
TEST(test_all_ways)
{
        const struct page_keys_way *way;
        unsigned n = 0;

        for (; (way = page_keys_way_at(n)); n++) {
                print_message("%s\n", way->name);
                assert_all_lengths(way);
        }
        assert_true(n >= 1 && page_keys_way_at(n - 1)->pair == &sha256_plain);
}

/* A long text chooses once, one of the ways; short texts before it don't. */
TEST(test_the_fastest_way)
{
        const struct page_keys_way *way = page_keys_fastest(PAGE_KEYS_LONG);
        unsigned i = 0;

        while (page_keys_way_at(i) != way)
                assert_non_null(page_keys_way_at(i++));
        for (i = 0; i < 100; i++)
                assert_ptr_equal(page_keys_fastest(i % 2 ? 1 : PAGE_KEYS_LONG), way);
}

TEST(test_longer_struct_of_a_newer_program)
{
        struct {
                struct kvl_layout l;
                uint64_t newer;
        } longer = {layout, 0};
        uint8_t a[KVL_KEY_BYTES], b[KVL_KEY_BYTES];

        longer.l.size = sizeof(longer);
        assert_int_equal(kvl_key_root(&layout, a), 0);
        assert_int_equal(kvl_key_root(&longer.l, b), 0);
        assert_memory_equal(a, b, sizeof(a));
        longer.newer = 1;
        assert_int_equal(kvl_key_root(&longer.l, b), -EINVAL);
        assert_non_null(strstr(kvl_last_error(), "upgrade libkvlease"));
}

int main(void)
{
        random_start("keys");
        return test_run_all(NULL, NULL);
}
