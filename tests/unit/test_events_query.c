/* Queries of routers: what is JSON and what isn't, in pieces of any size; tokens. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/parse.h"
#include "client/events/query.h"
#include "client/events/token.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/test-support.h"

#define BLOCK_TOKENS 2

struct scene {
        struct model *model;
        char key[3][2 * KVL_KEY_BYTES + 1];
};

static void ignore_event(void *data, bool is_stored, const struct batch_blocks *blocks)
{
}

/* A text of ids 1 to 8 in pages of 4: on the device, then in host memory. A third page has no ids.
 * A text of ids 5 to 8 with an adapter and a salt is on the device.
 */
static void scene_begin(struct scene *s)
{
        const uint32_t ids[] = {1, 2, 3, 4, 5, 6, 7, UINT32_MAX};
        uint8_t keys[3][KVL_KEY_BYTES] = {{1}, {2}, {3}};

        assert_int_equal(model_new(BLOCK_TOKENS, ignore_event, NULL, &s->model), 0);
        for (unsigned i = 0; i < 3; i++) {
                const struct model_stored stored = {
                        .key = keys[i],
                        .parent_key = i > 0 ? keys[i - 1] : NULL,
                        .token_ids = i < 2 ? ids + (size_t)i * 4 : NULL,
                        .n_tokens = 4,
                        .tier = i,
                };

                assert_int_equal(model_store(s->model, &stored), 0);
                format_hex(keys[i], KVL_KEY_BYTES, s->key[i]);
        }
        assert_int_equal(
                model_store(s->model, &(struct model_stored){.key = (uint8_t[KVL_KEY_BYTES]){4},
                                              .token_ids = ids + 4,
                                              .n_tokens = 4,
                                              .lora_name = "sql",
                                              .cache_salt = "a b"}),
                0);
}

static void scene_end(struct scene *s)
{
        model_free(s->model);
}

#define SCENE(fn) TEST_ON(fn, struct scene, s, scene_begin, scene_end)

static int ask_in_pieces(
        struct scene *s, const char *text, size_t piece, char ret_answer[QUERY_TEXT_MAX])
{
        struct query *q = query_new(s->model);
        size_t len = strlen(text);
        int r;

        assert_non_null(q);
        for (size_t i = 0; i < len; i += piece)
                query_read(q, text + i, MIN(piece, len - i));
        r = query_answer(q, ret_answer);
        query_free(q);
        return r;
}

static void assert_answer(struct scene *s, const char *text, int r, const char *wanted)
{
        char answer[QUERY_TEXT_MAX];

        for (size_t piece = 1; piece <= strlen(text) + 1; piece++) {
                assert_int_equal(ask_in_pieces(s, text, piece, answer), r);
                assert_string_equal(answer, wanted);
        }
}

static void assert_found(
        struct scene *s, const char *text, unsigned gpu, unsigned cpu, unsigned disk)
{
        char wanted[QUERY_TEXT_MAX];

        snprintf(wanted, sizeof(wanted),
                "{\"tokens\": %u, \"blocks\": %u, \"tiers\": {\"gpu\": %u, \"cpu\": %u, \"disk\": %u}}\n",
                disk, disk / BLOCK_TOKENS, gpu, cpu, disk);
        assert_answer(s, text, 0, wanted);
}

static void assert_refused(struct scene *s, const char *text, unsigned at, const char *why)
{
        char wanted[QUERY_TEXT_MAX];

        snprintf(wanted, sizeof(wanted), "{\"error\": \"byte %u: %s\"}\n", at, why);
        assert_answer(s, text, -EINVAL, wanted);
}

SCENE(test_token_ids)
{
        assert_found(s, "{\"token_ids\": [1, 2, 3, 4, 5, 6, 7, 4294967295, 9]}", 4, 8, 8);
        assert_found(s, " {\t\"token_ids\":[1,2,3\n,4 , 5,6]\r}\n", 4, 6, 6);
        assert_found(s, "{\"token_ids\": [1, 2, 3]}", 2, 2, 2);
        assert_found(s, "{\"token_ids\": [1, 2, 0, 4, 5, 6]}", 2, 2, 2);
        assert_found(s, "{\"token_ids\": [3, 4, 1, 2]}", 0, 0, 0);
        assert_found(s, "{\"token_ids\": []}", 0, 0, 0);
}

/* Texts with equal tokens are told apart. */
SCENE(test_names)
{
        assert_found(s,
                "{\"lora_name\":\"sql\", \"cache_salt\": \"a b\", \"token_ids\": [5, 6, 7, 4294967295]}",
                4, 4, 4);
        assert_found(s,
                "{\"cache_salt\": \"a b\", \"lora_name\":\"sql\", \"token_ids\": [5, 6, 7]}", 2, 2,
                2);
        assert_found(s, "{\"lora_name\": \"sql\", \"token_ids\": [5, 6]}", 0, 0, 0);
        assert_found(s, "{\"cache_salt\": \"a b\", \"token_ids\": [5, 6]}", 0, 0, 0);
        assert_found(s, "{\"lora_name\": \"\", \"token_ids\": [1, 2]}", 2, 2, 2);
        assert_found(s, "{\"token_ids\": [5, 6]}", 0, 0, 0);
}

/* Pages without token ids count as well. */
SCENE(test_keys)
{
        char text[QUERY_TEXT_MAX];

        snprintf(text, sizeof(text), "{\"keys\": [\"%s\", \"%s\",\"%s\"]}", s->key[0], s->key[1],
                s->key[2]);
        assert_found(s, text, 4, 8, 12);
        snprintf(text, sizeof(text), "{\"keys\": [\"%s\", \"%064d\", \"%s\"]}", s->key[0], 7,
                s->key[2]);
        assert_found(s, text, 4, 4, 4);
        assert_found(s, "{\"keys\": []}", 0, 0, 0);
}

SCENE(test_garbage)
{
        static const char number[] = "a token id is a number from 0 to 4294967295";
        static const char whole[] =
                "a token id is a number from 0 to 4294967295, without zeros before it";

        assert_refused(s, "", 0, "the query ends before its }");
        assert_refused(s, "{\"token_ids\": [1, 2", 19, "the query ends before its }");
        assert_refused(s, "{\"token_ids\": [1]", 17, "the query ends before its }");
        assert_refused(s, "[1]", 1, "a query begins with {");
        assert_refused(s, "\xff\x01", 1, "a query begins with {");
        assert_refused(s, "{}", 2, "a member's name is a string");
        assert_refused(
                s, "{\"tokens\": [1]}", 9, "a member is lora_name, cache_salt, token_ids or keys");
        assert_refused(s, "{\"token_ids\" [1]}", 14, "a name is followed by a colon");
        assert_refused(s, "{\"token_ids\": 1}", 15, "a list begins with [");
        assert_refused(s, "{\"token_ids\": [-1]}", 16, number);
        assert_refused(s, "{\"token_ids\": [1,]}", 18, number);
        assert_refused(s, "{\"token_ids\": [[1]]}", 16, number);
        assert_refused(s, "{\"token_ids\": [01]}", 17, whole);
        assert_refused(s, "{\"token_ids\": [4294967296]}", 25, whole);
        assert_refused(s, "{\"token_ids\": [1.5]}", 17, "an item is followed by , or ]");
        assert_refused(s, "{\"token_ids\": [1 2]}", 18, "an item is followed by , or ]");
        assert_refused(s, "{\"token_ids\": [1], \"lora_name\": 1}", 18,
                "token_ids or keys is the last member");
        assert_refused(
                s, "{\"lora_name\": 1}", 15, "lora_name and cache_salt are strings, or left out");
        assert_refused(s, "{\"cache_salt\": \"\\u0061\"}", 17,
                "lora_name and cache_salt have no backslash: send UTF-8");
        assert_refused(
                s, "{\"lora_name\": \"a\"}", 18, "lora_name and cache_salt come before token_ids");
        assert_refused(s, "{\"token_ids\": [1]} x", 20, "there is nothing after the }");
        assert_refused(s, "{\"keys\": [1]}", 11, "a key is a string");
        assert_refused(s, "{\"keys\": [\"12\"]}", 14, "a key has 64 hexadecimal digits");
        assert_refused(s,
                "{\"keys\": [\"00000000000000000000000000000000000000000000000000000000000000000\"]}",
                77, "a key has 64 hexadecimal digits");
        assert_refused(s,
                "{\"lora_name\": \"0000000000000000000000000000000000000000000000000000000000000000000000000000000\"}",
                94, "a string is too long");
}

/* Random bytes, and a query with a wrong byte: an answer or a sentence, always. */
SCENE(test_random_bytes)
{
        static const char letters[] = "{}[]\",: \n0123456789-.etoken_idskeys\\\0\xff";
        char text[64], answer[QUERY_TEXT_MAX];
        unsigned seed = 1;

        for (int i = 0; i < 20000; i++) {
                struct query *q = query_new(s->model);

                snprintf(text, sizeof(text), "{\"token_ids\": [1, 2, 3, 4, 5, 6]}");
                for (size_t n = i % 2 ? 1 : sizeof(text); n-- > 0;)
                        text[(unsigned)rand_r(&seed) % sizeof(text)] =
                                letters[(unsigned)rand_r(&seed) % sizeof(letters)];
                query_read(q, text, (unsigned)rand_r(&seed) % sizeof(text));
                if (query_answer(q, answer) < 0)
                        assert_memory_equal(answer, "{\"error\": \"byte ", 16);
                query_free(q);
        }
}

SCENE(test_no_memory)
{
        alloc_fail_at(1);
        assert_null(query_new(s->model));
        assert_true(alloc_fail_end());
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* The token of such a file; or none, and the sentence has `part`. */
static void read_file(const char *path, const char *text, mode_t mode, const char *part)
{
        char why[SECRET_WHY_BYTES] = "";
        struct secret token;

        assert_int_equal(file_replace(path, text, strlen(text), 0600), 0);
        assert_int_equal(chmod(path, mode), 0);
        if (token_read(path, &token, why) == 0) {
                assert_null(part);
                assert_int_equal(strncmp(token.bytes, text, token.len), 0);
        } else {
                assert_int_equal(token.len, 0);
                assert_non_null(part);
                assert_non_null(strstr(why, part));
        }
}

TEST(test_token_file)
{
        char path[] = "/tmp/kvl-token-XXXXXX", text[SECRET_BYTES_MAX + 1];

        fd_close(mkstemp(path));
        read_file(path, "0123456789abcdef\n", 0440, NULL);
        read_file(path, "0123456789abcdef", 0604, "chmod 600");
        read_file(path, "0123456789abcde\n", 0600, "has 15 bytes, at least 16");
        read_file(path, "0123456789 abcdef", 0600, "a blank");
        read_file(path, "0123456789abcde\xc3\xa4", 0600, "isn't ASCII");
        memset(text, 'x', SECRET_BYTES_MAX);
        text[SECRET_BYTES_MAX] = '\0';
        read_file(path, text, 0600, NULL);
        unlink(path);
}

TEST(test_token_allows)
{
        assert_true(token_allows("secret", "Bearer secret"));
        assert_true(token_allows("secret", "bearer secret"));
        assert_false(token_allows("secret", NULL));
        assert_false(token_allows("secret", ""));
        assert_false(token_allows("secret", "secret"));
        assert_false(token_allows("secret", "Bearer "));
        assert_false(token_allows("secret", "Bearer secre"));
        assert_false(token_allows("secret", "Bearer secrets"));
        assert_false(token_allows("secret", "Bearer secreT"));
}
