/* The reader of traces: what it makes of good lines, and of bad ones. */
#include "tests/unit/test-support.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "client/trace/line.h"
#include "client/trace/trace.h"
#include "tests/unit/alloc-fail.h"

#define LINE(time, input, ids)                                                          \
        "{\"timestamp\": " time ", \"input_length\": " input ", \"output_length\": 7, " \
        "\"hash_ids\": [" ids "]}\n"

/* Requests as "time_msec/tenant:blocks;", after the tree: the parents of blocks 0, 1, ... */
static void describe(const struct trace *t, char *buf, size_t size)
{
        const struct sim_trace *s = &t->sim;
        size_t len = 0;

        buf[0] = '\0';
        for (uint32_t i = 0; i < s->n_unique; i++)
                len += (size_t)snprintf(buf + len, size - len, "%s%" PRId32, i > 0 ? "," : "",
                        (int32_t)s->parents[i]);
        for (uint32_t i = 0; i < s->n_requests; i++) {
                const struct sim_request *r = &s->requests[i];

                len += (size_t)snprintf(buf + len, size - len, " %" PRIu64 "/%" PRIu32 ":",
                        r->time_nsec / 1000000, r->tenant);
                for (uint32_t j = 0; j < r->n_blocks; j++)
                        len += (size_t)snprintf(buf + len, size - len, "%s%" PRIu32,
                                j > 0 ? "," : "", s->blocks[r->first + j]);
        }
}

static void check_trace(const char *text, unsigned flags, const char *expected)
{
        struct trace t = {0};
        struct trace_error e;
        char got[1024];

        assert_int_equal(trace_parse(text, strlen(text), flags, 16, &t, &e), 0);
        describe(&t, got, sizeof(got));
        assert_string_equal(got, expected);
        trace_free(&t);
}

static void check_refused(const char *text, unsigned flags, uint64_t line, const char *expected)
{
        struct trace t = {0};
        struct trace_error e;

        assert_int_equal(trace_parse(text, strlen(text), flags, 0, &t, &e), -EINVAL);
        assert_string_equal(e.text, expected);
        assert_int_equal(e.line, line);
        assert_null(t.tenants);
}

TEST(test_chained)
{
        /* 46 -> 47 -> 9 and 46 -> 47 -> 50; an id alone; empty lines; no end of the last one. */
        check_trace(LINE("0", "1000", "46, 47, 9") "\n \t\r\n" LINE("5", "1000", "46, 47, 50")
                            LINE("7.5", "20", "3"),
                0, "-1,0,1,1,-1 0/0:0,1,2 5/0:0,1,3 7/0:4");
        check_trace("{\"timestamp\":0,\"input_length\":0,\"output_length\":0,\"hash_ids\":[]}", 0,
                " 0/0:");
        /* The widest ids. */
        check_trace(LINE("0", "9", "9223372036854775807,0"), 0, "-1,0 0/0:0,1");
}

TEST(test_contents)
{
        /* Equal content in two places is two blocks. */
        check_trace(LINE("0", "9", "5,5,6") LINE("1", "9", "6,5,5") LINE("2", "9", "5,5"),
                TRACE_CHAIN, "-1,0,1,-1,3,4 0/0:0,1,2 1/0:3,4,5 2/0:0,1");
        /* Chaining ids that are chained changes nothing. */
        check_trace(LINE("0", "9", "46, 47, 9") LINE("5", "9", "46, 47, 50"), TRACE_CHAIN,
                "-1,0,1,1 0/0:0,1,2 5/0:0,1,3");
        check_refused(LINE("0", "9", "1,2") LINE("1", "9", "3,4,2"), 0, 2,
                "hash_ids[2] is 2, which followed another id before: these ids name the content of a block: read them with --chain");
        check_refused(LINE("0", "9", "5,5"), 0, 1,
                "hash_ids[1] is 5, which followed another id before: these ids name the content of a block: read them with --chain");
}

TEST(test_fields)
{
        static const char text[] =
                "{\"timestamp\": 27482, \"input_length\": 1030, \"output_length\": 52, "
                "\"hash_ids\": [1, 2, 3], \"hint\": \"done\", \"ending\": 4294967295, \"model\": {\"x\": [1]}}\n"
                "{\"hint\": \"continues\", \"timestamp\": 27483.25, \"input_length\": 0, \"output_length\": 4294967295, \"hash_ids\": [1]}\n";
        struct trace t;
        struct trace_error e;

        assert_int_equal(trace_parse(text, strlen(text), 0, 0, &t, &e), 0);
        assert_int_equal(t.sim.n_requests, 2);
        assert_int_equal(t.sim.n_blocks, 4);
        assert_int_equal(t.sim.n_unique, 3);
        assert_int_equal(t.sim.n_tenants, 1);
        assert_string_equal(t.tenants[0], "");
        /* 1030 tokens in 3 blocks: 344 at least. */
        assert_int_equal(t.sim.block_tokens, 512);
        assert_int_equal(t.sim.requests[0].time_nsec, UINT64_C(27482000000));
        assert_int_equal(t.sim.requests[0].input_tokens, 1030);
        assert_int_equal(t.sim.requests[0].output_tokens, 52);
        assert_int_equal(t.sim.requests[0].hint, EVICT_HINT_DONE);
        assert_int_equal(t.sim.requests[0].ending, UINT32_MAX);
        assert_int_equal(t.sim.requests[1].time_nsec, UINT64_C(27483250000));
        assert_int_equal(t.sim.requests[1].output_tokens, UINT32_MAX);
        assert_int_equal(t.sim.requests[1].hint, EVICT_HINT_CONTINUES);
        assert_int_equal(t.sim.requests[1].ending, 0);
        trace_free(&t);
        assert_int_equal(trace_parse(text, strlen(text), 0, 16, &t, &e), 0);
        assert_int_equal(t.sim.block_tokens, 16);
        trace_free(&t);
}

#define TENANT_LINE(name, time, ids)                                                \
        "{\"tenant\": \"" name "\", \"timestamp\": " time ", \"input_length\": 9, " \
        "\"output_length\": 7, \"hash_ids\": [" ids "]}\n"

TEST(test_many_tenants)
{
        char *text = NULL;
        size_t len = 0;
        FILE *f = open_memstream(&text, &len);

        assert_non_null(f);
        for (unsigned i = 0; i <= TRACE_TENANTS_MAX; i++)
                fprintf(f, TENANT_LINE("t%u", "0", "1"), i);
        fclose(f);
        check_refused(text, 0, TRACE_TENANTS_MAX + 1, "one more than 256 tenants");
        free(text);
}

TEST(test_refuses)
{
        static const struct {
                const char *line, *why;
        } bad[] = {
                {"[1, 2]", "no JSON object"},
                {"7", "no JSON object: '[' or '{' expected near '7' (column 1)"},
                {"{\"timestamp\": 1", "no JSON object: '}' expected near end of file (column 15)"},
                {"{} x", "no JSON object: end of file expected near 'x' (column 4)"},
                {"{\"a\": 1, \"a\": 2}",
                        "no JSON object: duplicate object key near '\"a\"' (column 12)"},
                {"{\"a\": 99999999999999999999}",
                        "no JSON object: too big integer near '99999999999999999999' (column 26)"},
                {"{}", "input_length is missing"},
                {"{\"timestamp\": \"1\"}",
                        "timestamp is not a number: for dates see docs/measure/TRACES.md, \"Other traces\""},
                {LINE("-1", "1", ""),
                        "timestamp is not between 0 and 6300000000000 milliseconds: --time-unit names another unit"},
                {LINE("1e300", "1", ""),
                        "timestamp is not between 0 and 6300000000000 milliseconds: --time-unit names another unit"},
                {"{\"input_length\":1,\"hash_ids\":[5]}",
                        "timestamp is missing, and lines before this one have one"},
                {"{\"conversations\":[]}",
                        "it has text instead of hash_ids: docs/measure/TRACES.md, \"Other traces\", makes a trace of it"},
                {"{\"prompt\":\"\"}", "input_length is missing"},
                {LINE("1", "1.5", ""), "input_length is not a whole number"},
                {LINE("1", "-1", ""), "input_length is not between 0 and 4294967295"},
                {LINE("1", "4294967296", ""), "input_length is not between 0 and 4294967295"},
                {"{\"timestamp\":1,\"input_length\":1,\"output_length\":null}",
                        "output_length is not a whole number"},
                {"{\"timestamp\":1,\"input_length\":1,\"output_length\":1}", "hash_ids is missing"},
                {"{\"timestamp\":1,\"input_length\":1,\"output_length\":1,\"hash_ids\":{}}",
                        "hash_ids is not an array"},
                {LINE("1", "1", "1,2,-3"),
                        "hash_ids[2] is not a whole number of 0 to 9223372036854775807"},
                {LINE("1", "1", "1,[2]"),
                        "hash_ids[1] is not a whole number of 0 to 9223372036854775807"},
                {LINE("1", "1", "1],\"hint\":[2"), "hint is none of unknown, continues, done"},
                {LINE("1", "1", "1],\"hint\":\"returns\",\"x\":[2"),
                        "hint is none of unknown, continues, done"},
                {LINE("1", "1", "1],\"ending\":-1,\"x\":[2"),
                        "ending is not a whole number of 0 to 4294967295"},
                {LINE("1", "1", "1],\"ending\":4294967296,\"x\":[2"),
                        "ending is not a whole number of 0 to 4294967295"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                _cleanup_free_ char *text = NULL;

                assert_true(asprintf(&text, "%s%s\n%s", LINE("0", "1", "77"), bad[i].line,
                                    LINE("1", "1", "78")) > 0);
                check_refused(text, 0, 2, bad[i].why);
                /* Skipped, it leaves nothing behind. */
                check_trace(text, TRACE_SKIP_BAD, "-1,-1 0/0:0 1/0:1");
        }
        check_refused("", 0, 0, "no request in it");
        check_refused("\n\n", 0, 0, "no request in it");
        check_refused("\nx\ny\n", TRACE_SKIP_BAD, 2,
                "no JSON object: '[' or '{' expected near 'x' (column 1)");
        check_refused(LINE("1", "65537", "1"), 0, 0,
                "its blocks have 65537 tokens or more, and no more than 65536 are found out: give the right number by --block-tokens");
}

#define TIMELESS(ids) "{\"input_length\":16,\"hash_ids\":[" ids "]}\n"

/* Neither times nor lengths of output need be there. */
TEST(test_left_out)
{
        struct trace t;
        struct trace_error e;
        static const char text[] = TIMELESS("1") "\n" TIMELESS("2") TIMELESS("1");

        check_trace(text, 0, "-1,-1 0/0:0 1000/0:1 2000/0:0");
        assert_int_equal(trace_parse(text, strlen(text), 0, 16, &t, &e), 0);
        assert_false(t.has_times);
        assert_int_equal(t.sim.requests[0].output_tokens, 0);
        trace_free(&t);
        /* Skipped, one line without would cost all that have one. */
        for (unsigned flags = 0; flags <= TRACE_SKIP_BAD; flags += TRACE_SKIP_BAD)
                check_refused(TIMELESS("1") LINE("1", "1", "78"), flags, 0,
                        "line 2 has a timestamp, and lines read before have none: leave those out, or all timestamps");
}

#define MARK "\xef\xbb\xbf"

/* Files that are no JSON lines are named, also where bad lines are skipped. */
TEST(test_other_files)
{
        static const char *const damaged[] = {
                "1, 2, 3", "p\": 1, \"hash_ids\": [4, 5, 6]}", "[4, 5, 6]}", "1, 2, 3\n\n"};
        static char tar[300];
        static const struct {
                const char *text, *why;
        } others[] = {
                {"\x28\xb5\x2f\xfd\x04", "zstd -dc FILE"},
                {"\xfd\x37zXZ", "xz -dc FILE"},
                {"PK\x03\x04", "zip archive"},
                {"\xff\xfe{", "UTF-16"},
                {"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"},
                {"<!DOCTYPE html>", "HTML"},
                {"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,374,44\n",
                        "Azure LLM inference trace"},
                {MARK "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,",
                        "BurstGPT"},
                {"a,b,c\n1,2,3\n", "docs/measure/TRACES.md says which fields"},
                {"a\tb\tc\n1\t2\t3\n", "it is a CSV"},
                {"\n [{\"id\":\"x\",\"conversations\":[]}]", "ShareGPT"},
                {"[\n{\"timestamp\":1}]", "jq -c '.[]' FILE"},
                {"[{\"conversation_id\":1,\"hash_ids\":[1]}]", "jq -c '.[]' FILE"},
                {tar, "tar -xOf FILE"},
        };

        snprintf(tar, sizeof(tar), "%-257sustar", "trace.jsonl");
        for (size_t i = 0; i < ARRAY_SIZE(others); i++)
                for (unsigned flags = 0; flags <= TRACE_SKIP_BAD; flags += TRACE_SKIP_BAD) {
                        struct trace t;
                        struct trace_error e;

                        assert_int_equal(trace_parse(others[i].text, strlen(others[i].text), flags,
                                                 16, &t, &e),
                                -EINVAL);
                        assert_int_equal(e.line, 0);
                        if (!strstr(e.text, others[i].why))
                                fail_msg("no '%s' in: %s", others[i].why, e.text);
                }
        check_trace(MARK LINE("1", "1", "7"), 0, "-1 1/0:0");
        /* The rest of a trace's first line is none of these. */
        for (size_t i = 0; i < ARRAY_SIZE(damaged); i++) {
                _cleanup_free_ char *text = NULL;

                assert_true(asprintf(&text, "%s\n" LINE("1", "1", "7"), damaged[i]) > 0);
                check_trace(text, TRACE_SKIP_BAD, "-1 1/0:0");
        }
        check_trace(
                "1, \"hash_ids\": [4, 5]}\nx\n" LINE("1", "1", "7"), TRACE_SKIP_BAD, "-1 1/0:0");
}

/* Checks the verdict on the times of a session's turns, which come `step` apart and have `output`
 * tokens. */
static void check_doubt(
        double first, double step, unsigned output, enum trace_doubt expected, const char *words)
{
        char text[4096] = "", ids[128] = "", why[160];
        struct trace t;
        struct trace_error e;
        enum trace_doubt doubt;
        size_t len = 0;

        for (unsigned i = 0; i < 10; i++) {
                snprintf(ids + strlen(ids), sizeof(ids) - strlen(ids), "%s%u", i > 0 ? "," : "", i);
                len += (size_t)snprintf(text + len, sizeof(text) - len,
                        "{\"timestamp\":%.10g,\"input_length\":%u,\"output_length\":%u,\"hash_ids\":[%s]}\n",
                        first + step * i, 16 * (i + 1), output, ids);
        }
        assert_int_equal(trace_parse(text, len, 0, 16, &t, &e), 0);
        assert_int_equal(trace_doubt_times(&t, true, &doubt, why, sizeof(why)), 0);
        assert_int_equal(doubt, expected);
        if (!strstr(why, words))
                fail_msg("no '%s' in: %s", words, why);
        trace_free(&t);
}

TEST(test_doubtful_times)
{
        check_doubt(0, 5000, 100, TRACE_DOUBT_NONE, "");
        check_doubt(1700000000000, 5000, 100, TRACE_DOUBT_NONE, "");
        check_doubt(1700000000, 5000, 100, TRACE_DOUBT_SURE, "1700000000, is one of seconds");
        check_doubt(0, 40, 100, TRACE_DOUBT_SURE, "9 of 9 requests would continue others");
        check_doubt(0, 40, 10, TRACE_DOUBT_NONE, ""); /* too short to say something */
        check_doubt(0.5, 5000.25, 100, TRACE_DOUBT_MAYBE, "8 of 10 have fractions");
        check_doubt(0, 100, 5000, TRACE_DOUBT_SURE, "continue others");
}

/* The size that is found out, and all that fit, as bits. */
static void check_size(const char *text, uint32_t tokens, uint32_t fits)
{
        struct trace t;
        struct trace_error e;

        assert_int_equal(trace_parse(text, strlen(text), 0, 0, &t, &e), 0);
        assert_int_equal(t.sim.block_tokens, tokens);
        assert_int_equal(t.block_sizes, fits);
        trace_free(&t);
}

TEST(test_block_sizes)
{
        /* The last block may be partial: 17 to 32 tokens, of which one is a power of two. The
         * other way there would be 12 to 16 tokens in each of two full blocks. */
        check_size(LINE("0", "33", "1,2"), 32, 32 | 16);
        /* 3 * 32 < 100 <= 4 * 32, and no power of two is in 100 / 5 .. 100 / 4. */
        check_size(LINE("0", "100", "1,2,3,4"), 32, 32);
        check_size(LINE("0", "33", "1,2") LINE("1", "100", "3,4,5,6"), 32, 32);
        /* Full blocks of 16 alone have an id: a text of 39 tokens has two, and read as if the last
         * were partial it would be of 32. A long one tells. */
        check_size(LINE("0", "39", "1,2"), 32, 32 | 16);
        check_size(LINE("0", "39", "1,2") LINE("1", "71", "1,2,3,4"), 16, 16);
        /* Blocks that are all full are told, but for a single one. */
        check_size(LINE("0", "32", "1,2"), 16, 16);
        check_size(LINE("0", "16", "1"), 16, 0x1fff0);
        /* Lines without blocks, and without tokens, say nothing. */
        check_size(LINE("0", "32", "1,2") LINE("1", "5000", "") LINE("2", "0", "7"), 16, 16);
}

TEST(test_refuses_block_sizes)
{
        /* The other way there would be 69 to 85. */
        check_refused(LINE("0", "340", "1,2,3,4"), 0, 0,
                "its blocks have 85 to 113 tokens, and none of these is a power of two: give the right number by --block-tokens");
        check_refused(LINE("0", "1000", "1,2") LINE("1", "100", "3,4"), 0, 0,
                "its lines contradict each other: in one a block has 500 tokens or more, in "
                "another one 99 or fewer; give the right number by --block-tokens");
}

TEST(test_skips)
{
        /* The blocks of a path that turns out to be wrong are taken back. */
        static const char text[] =
                LINE("0", "1", "1,2") "x\n" LINE("1", "1", "3,4,2") LINE("2", "1", "4,3");
        struct trace t;
        struct trace_error e;

        check_trace(text, TRACE_SKIP_BAD, "-1,0,-1,2 0/0:0,1 2/0:2,3");
        assert_int_equal(trace_parse(text, strlen(text), TRACE_SKIP_BAD, 16, &t, &e), 0);
        assert_int_equal(t.n_bad, 2);
        assert_int_equal(t.first_bad.line, 2);
        assert_string_equal(
                t.first_bad.text, "no JSON object: '[' or '{' expected near 'x' (column 1)");
        trace_free(&t);
}

/* A tenant that only a line named that was left out is none. */
TEST(test_skips_tenants)
{
        static const char text[] =
                "{\"timestamp\":0,\"input_length\":2,\"output_length\":0,\"tenant\":\"bad\",\"hash_ids\":[7,7]}\n"
                "{\"timestamp\":0,\"input_length\":2,\"output_length\":0,\"tenant\":\"good\",\"hash_ids\":[7,8]}\n";
        struct trace t;
        struct trace_error e;

        assert_int_equal(trace_parse(text, strlen(text), TRACE_SKIP_BAD, 0, &t, &e), 0);
        assert_int_equal(t.n_bad, 1);
        assert_int_equal(t.sim.n_tenants, 1);
        assert_string_equal(t.tenants[0], "good");
        assert_int_equal(t.sim.requests[0].tenant, 0);
        trace_free(&t);
}

/* `n` bytes of one line, in which all but its start is filler. */
static char *long_line(size_t n)
{
        char *text = malloc(n + 1);
        int start = snprintf(text, n + 1,
                "{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"hash_ids\":[8]");

        memset(text + start, ' ', n - (size_t)start - 1);
        strcpy(text + n - 1, "}");
        return text;
}

TEST(test_long_lines)
{
        _cleanup_free_ char *fits = long_line(TRACE_LINE_MAX),
                            *over = long_line(TRACE_LINE_MAX + 1);
        _cleanup_free_ char *text = NULL;

        check_trace(fits, 0, "-1 0/0:0");
        check_refused(over, 0, 1, "longer than 2097152 bytes");
        assert_true(asprintf(&text, "%s\n%s", over, LINE("3", "1", "9")) > 0);
        check_trace(text, TRACE_SKIP_BAD, "-1 3/0:0");
}

/* ---- files ----------------------------------------------------------------------------------- */

struct folder {
        const char *path;
        char *plain, *packed; /* owned */
};

static void folder_make(struct folder *f)
{
        f->path = test_dir_make();
        f->plain = test_path(f->path, "chat.jsonl");
        f->packed = test_path(f->path, "r&d.jsonl.gz");
}

static void folder_remove(struct folder *f)
{
        test_dir_remove(f->path);
        free(f->plain);
        free(f->packed);
}

#define SCENE(fn, ...) TEST_ON(fn, struct folder, f, folder_make, folder_remove, ##__VA_ARGS__)

static void write_file(const char *path, const char *text, bool compressed)
{
        gzFile f = gzopen(path, compressed ? "wb" : "wbT");

        assert_non_null(f);
        assert_int_equal(gzwrite(f, text, (unsigned)strlen(text)), (int)strlen(text));
        assert_int_equal(gzclose(f), Z_OK);
}

static void check_files(const char *const *paths, unsigned n, const char *expected)
{
        struct trace t = {0};
        struct trace_error e;
        char got[1024];

        assert_int_equal(trace_read(&(struct trace_source){paths, n, 0, 16}, &t, &e), 0);
        describe(&t, got, sizeof(got));
        assert_string_equal(got, expected);
        trace_free(&t);
}

SCENE(test_files)
{
        struct trace t;
        struct trace_error e;

        write_file(f->plain, LINE("0", "1", "1,2") LINE("20", "1", "1"), false);
        write_file(f->packed, TENANT_LINE("x", "10", "1,2") TENANT_LINE("y", "0", "1,2"), true);
        check_files((const char *[]){f->plain}, 1, "-1,0 0/0:0,1 20/0:0");
        check_files((const char *[]){f->packed}, 1, "-1,0,-1,2 0/1:2,3 10/0:0,1");
        /* Merged by time; each file is a tenant. */
        check_files((const char *[]){f->plain, f->packed}, 2,
                "-1,0,-1,2 0/0:0,1 0/1:2,3 10/1:2,3 20/0:0");
        assert_int_equal(
                trace_read(&(struct trace_source){(const char *[]){f->plain, f->packed, f->plain},
                                   3, 0, 16},
                        &t, &e),
                0);
        assert_string_equal(t.tenants[0], "chat");
        assert_string_equal(t.tenants[1], "r_d");
        assert_string_equal(t.tenants[2], "chat-2");
        assert_int_equal(t.n_late, 1);
        trace_free(&t);
}

static void check_file_refused(
        const char *const *paths, unsigned n, int r, uint64_t line, const char *expected)
{
        struct trace t = {0};
        struct trace_error e;

        assert_int_equal(trace_read(&(struct trace_source){paths, n}, &t, &e), r);
        assert_string_equal(e.text, expected);
        assert_int_equal(e.line, line);
        assert_int_equal(e.file, n > 0 ? n - 1 : 0);
        assert_null(t.tenants);
}

SCENE(test_bad_files)
{
        struct stat st;

        write_file(f->plain, LINE("0", "1", "1,2"), false);
        check_file_refused(
                (const char *[]){f->plain, f->packed}, 2, -ENOENT, 0, "No such file or directory");
        check_file_refused(&f->path, 1, -EISDIR, 0, "Is a directory");
        check_file_refused(NULL, 0, -EINVAL, 0, "0 files; 1 to 256 are read");

        write_file(f->packed, LINE("0", "1", "1,2") LINE("0", "1", "1,-2"), true);
        check_file_refused((const char *[]){f->plain, f->packed}, 2, -EINVAL, 2,
                "hash_ids[1] is not a whole number of 0 to 9223372036854775807");

        write_file(f->packed, LINE("0", "1", "1,2"), true);
        assert_int_equal(stat(f->packed, &st), 0);
        assert_int_equal(truncate(f->packed, st.st_size - 12), 0);
        check_file_refused((const char *[]){f->packed}, 1, -EINVAL, 0,
                "the compressed data is damaged or ends early, after line 0");
        write_file(f->packed, "", false);
        check_file_refused((const char *[]){f->packed}, 1, -EINVAL, 0, "no request in it");
}

struct progress {
        unsigned calls;
        uint64_t done, total;
        bool stop;
};

static bool note_progress(uint64_t done_bytes, uint64_t total_bytes, void *data)
{
        struct progress *p = data;

        assert_true(done_bytes >= p->done && done_bytes <= total_bytes);
        p->calls++;
        p->done = done_bytes;
        p->total = total_bytes;
        return !p->stop;
}

TEST(test_progress)
{
        _cleanup_free_ char *line = long_line(1 << 20);
        struct progress p = {0};
        struct folder f;
        struct trace t;
        struct trace_error e;

        folder_make(&f);
        write_file(f.plain, line, false);
        write_file(f.packed, line, false);
        assert_int_equal(trace_read(&(struct trace_source){(const char *[]){f.plain, f.packed}, 2,
                                            0, 0, note_progress, &p},
                                 &t, &e),
                0);
        trace_free(&t);
        assert_int_equal(p.calls, 8);
        assert_int_equal(p.done, 2 << 20);
        assert_int_equal(p.total, 2 << 20);
        p = (struct progress){.stop = true};
        assert_int_equal(trace_read(&(struct trace_source){(const char *[]){f.plain}, 1, 0, 0,
                                            note_progress, &p},
                                 &t, &e),
                -ECANCELED);
        assert_int_equal(p.calls, 1);
        folder_remove(&f);
}

TEST(test_no_memory)
{
        static const char text[] = TENANT_LINE("chat", "0", "1,2") TENANT_LINE("rag", "1", "1,2")
                LINE("3", "1", "8,9,10") "x";

        alloc_fail_each(n)
        {
                struct trace t = {0};
                struct trace_error e;
                int r = trace_parse(text, strlen(text), TRACE_SKIP_BAD, 16, &t, &e);

                assert_int_equal(r, alloc_fail_happened() ? -ENOMEM : 0);
                assert_int_equal(t.sim.n_requests, r == 0 ? 3 : 0);
                trace_free(&t);
        }
}
