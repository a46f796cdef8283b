/* kvl_key_memo_keys(): the keys of kvl_keys(), whatever came before. */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "client/lib/kvlease.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

#define PAGE        16u
#define TEXT_TOKENS 4096u
#define TEXT_PAGES  (TEXT_TOKENS / PAGE)
#define MIB         (UINT64_C(1) << 20)

static const uint8_t root[KVL_KEY_BYTES]; /* zeros, as an unused part of the memo has */

static struct kvl_key_memo *new_memo(uint32_t page_tokens, uint64_t max_bytes)
{
        struct kvl_key_memo *memo;

        assert_int_equal(kvl_key_memo_new(page_tokens, max_bytes, &memo), 0);
        return memo;
}

/* Checks the keys against kvl_keys(), and returns how many pages were hashed. */
static uint32_t hashed(struct kvl_key_memo *memo, const uint8_t *parent, const uint32_t *tokens,
        uint32_t n_tokens, uint32_t page_tokens)
{
        uint32_t n_pages = (n_tokens + page_tokens - 1) / page_tokens, n_hashed = UINT32_MAX;
        uint8_t *own = calloc(n_pages + 1, KVL_KEY_BYTES);
        uint8_t *plain = calloc(n_pages + 1, KVL_KEY_BYTES);

        assert_int_equal(kvl_key_memo_keys(memo, parent, tokens, n_tokens, own, &n_hashed), 0);
        assert_int_equal(kvl_keys(parent, tokens, n_tokens, page_tokens, plain), 0);
        assert_memory_equal(own, plain, (n_pages + 1) * KVL_KEY_BYTES);
        free(own);
        free(plain);
        return n_hashed;
}

static void fill(uint32_t *tokens, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++)
                tokens[i] = (uint32_t)random_u64();
}

TEST(test_turns_hash_new_pages_alone)
{
        struct kvl_key_memo *memo = new_memo(PAGE, MIB);
        uint32_t text[TEXT_TOKENS];

        fill(text, TEXT_TOKENS);
        assert_int_equal(hashed(memo, root, text, 100 * PAGE, PAGE), 100);
        assert_int_equal(hashed(memo, root, text, 100 * PAGE, PAGE), 0);
        assert_int_equal(hashed(memo, root, text, 50 * PAGE, PAGE), 0);
        /* A last page that isn't full is hashed each time, and once more when it is. */
        for (int i = 0; i < 2; i++)
                assert_int_equal(hashed(memo, root, text, 107 * PAGE + 1, PAGE), i == 0 ? 8 : 1);
        assert_int_equal(hashed(memo, root, text, 108 * PAGE, PAGE), 1);
        assert_int_equal(hashed(memo, root, text, TEXT_TOKENS, PAGE), TEXT_PAGES - 108);
        assert_int_equal(hashed(memo, root, text, TEXT_TOKENS, PAGE), 0);
        kvl_key_memo_free(memo);
}

/* One token that differs, anywhere, is another page. */
TEST(test_every_token_counts)
{
        struct kvl_key_memo *memo = new_memo(PAGE, MIB);
        uint32_t text[4 * PAGE];

        fill(text, ARRAY_SIZE(text));
        hashed(memo, root, text, ARRAY_SIZE(text), PAGE);
        for (uint32_t i = 0; i < ARRAY_SIZE(text); i++) {
                text[i] ^= UINT32_C(1) << i % 32;
                assert_int_equal(hashed(memo, root, text, ARRAY_SIZE(text), PAGE), 4 - i / PAGE);
                text[i] ^= UINT32_C(1) << i % 32;
        }
        kvl_key_memo_free(memo);
}

/* Runs of one page need the most slots: few of them are lost, also when the memo was full. */
TEST(test_many_short_texts)
{
        struct kvl_key_memo *memo = new_memo(PAGE, MIB);
        uint32_t n_pages = MIB / (4 * PAGE + 104), n_known = 0, text[PAGE] = {0};

        for (text[0] = 0; text[0] < 5 * n_pages; text[0]++)
                assert_int_equal(hashed(memo, root, text, PAGE, PAGE), 1);
        for (text[0] = 4 * n_pages; text[0] < 5 * n_pages; text[0]++)
                n_known += hashed(memo, root, text, PAGE, PAGE) == 0;
        assert_in_range(n_known, n_pages * 95 / 100, n_pages);
        kvl_key_memo_free(memo);
}

/* Prompts of random conversations, in pages of all sizes, until the memo was full several times. */
TEST(test_random_conversations)
{
        enum { N_TALKS = 30, MAX_TOKENS = 20000 };
        static uint32_t talks[N_TALKS][MAX_TOKENS];

        for (int round = 0; round < 20; round++) {
                uint32_t page_tokens = 1 + random_below(round % 2 ? 16 : 1024);
                struct kvl_key_memo *memo = new_memo(page_tokens, MIB + random_below(MIB));

                fill(talks[0], N_TALKS * MAX_TOKENS);
                for (int i = 0; i < 300; i++) {
                        uint32_t *talk = talks[random_below(N_TALKS)], at;
                        uint32_t n = 1 + random_below(MAX_TOKENS);

                        switch (random_below(4)) {
                        case 0: /* another one's beginning */
                                memcpy(talk, talks[random_below(N_TALKS)], n * sizeof(*talk));
                                break;
                        case 1: /* an edit */
                                at = random_below(n);
                                fill(talk + at, MIN(MAX_TOKENS - at, 3u));
                                break;
                        default:
                                break;
                        }
                        hashed(memo, root, talk, n, page_tokens);
                }
                kvl_key_memo_free(memo);
        }
}

static struct kvl_key_memo *shared;

static void *talk(void *arg)
{
        static uint32_t prefix[20 * PAGE];
        uint32_t text[60 * PAGE];

        memcpy(text, prefix, sizeof(prefix));
        for (uint32_t i = 20 * PAGE; i < 60 * PAGE; i++)
                text[i] = i * 7919 + (uint32_t)(uintptr_t)arg;
        for (int i = 0; i < 60; i++) {
                uint8_t own[60 * KVL_KEY_BYTES], plain[60 * KVL_KEY_BYTES];
                uint32_t n = (uint32_t)(i % 60 + 1) * PAGE;

                text[n - 1] += (uint32_t)i;
                if (kvl_key_memo_keys(shared, root, text, n, own, NULL) != 0 ||
                        kvl_keys(root, text, n, PAGE, plain) != 0 ||
                        memcmp(own, plain, n / PAGE * KVL_KEY_BYTES) != 0)
                        return arg;
        }
        return NULL;
}

TEST(test_threads)
{
        pthread_t threads[4];
        void *failed;

        shared = new_memo(PAGE, MIB);
        for (uintptr_t i = 0; i < ARRAY_SIZE(threads); i++)
                assert_int_equal(pthread_create(&threads[i], NULL, talk, (void *)(i + 1)), 0);
        for (unsigned i = 0; i < ARRAY_SIZE(threads); i++) {
                assert_int_equal(pthread_join(threads[i], &failed), 0);
                assert_null(failed);
        }
        kvl_key_memo_free(shared);
}

/* A child has the right keys, and never waits for a thread of its parent. */
TEST(test_fork)
{
        struct kvl_key_memo *memo = new_memo(PAGE, MIB);
        uint32_t text[10 * PAGE];
        int status;
        pid_t pid;

        fill(text, ARRAY_SIZE(text));
        assert_int_equal(hashed(memo, root, text, ARRAY_SIZE(text), PAGE), 10);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                uint8_t own[10 * KVL_KEY_BYTES], plain[10 * KVL_KEY_BYTES];
                uint32_t n_hashed = 0;
                int r = 0;

                text[0]++;
                for (int i = 0; r == 0 && i < 2; i++)
                        r = kvl_key_memo_keys(memo, root, text, ARRAY_SIZE(text), own, &n_hashed);
                kvl_keys(root, text, ARRAY_SIZE(text), PAGE, plain);
                kvl_key_memo_free(memo);
                _exit(r != 0 || n_hashed != 10 || memcmp(own, plain, sizeof(own)) != 0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        kvl_key_memo_free(memo);
}

TEST(test_arguments)
{
        struct kvl_key_memo *memo = NULL;
        uint32_t token = 1, n = 7;
        uint8_t key[KVL_KEY_BYTES] = {0};

        assert_int_equal(kvl_key_memo_new(0, MIB, &memo), -EINVAL);
        assert_int_equal(kvl_key_memo_new(1025, MIB, &memo), -EINVAL);
        assert_int_equal(kvl_key_memo_new(16, MIB - 1, &memo), -EINVAL);
        assert_int_equal(kvl_key_memo_new(16, UINT64_MAX, &memo), -EINVAL);
        assert_int_equal(kvl_key_memo_new(16, MIB, NULL), -EINVAL);
        assert_null(memo);
        assert_int_equal(kvl_key_memo_keys(NULL, key, &token, 1, key, &n), -EINVAL);
        memo = new_memo(16, MIB);
        assert_int_equal(kvl_key_memo_keys(memo, NULL, &token, 1, key, &n), -EINVAL);
        assert_int_equal(kvl_key_memo_keys(memo, key, NULL, 1, key, &n), -EINVAL);
        assert_int_equal(kvl_key_memo_keys(memo, key, &token, 1, NULL, &n), -EINVAL);
        assert_int_equal(n, 7);
        assert_int_equal(kvl_key_memo_keys(memo, root, NULL, 0, NULL, &n), 0);
        assert_int_equal(n, 0);
        kvl_key_memo_free(memo);
        kvl_key_memo_free(NULL);
}

int main(void)
{
        random_start("key_memo");
        return test_run_all(NULL, NULL);
}
