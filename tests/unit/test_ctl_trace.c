/* The verbs on trace files, from the outside: texts and exit codes. */
#include "tests/unit/test-support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <jansson.h>

#include "base/fd.h"
#include "policy/evict.h"

/* Path given by meson. */
#ifndef KVLEASECTL
#error "KVLEASECTL is the program's path"
#endif

/* The trace of test_trace_analysis.c: 104 input tokens, of which 32 or 48 are hits. */
static const char good[] =
        "{\"timestamp\":0,\"input_length\":32,\"output_length\":16,\"hash_ids\":[1,2]}\n"
        "{\"timestamp\":1000,\"input_length\":32,\"output_length\":16,\"hash_ids\":[1,3]}\n"
        "{\"timestamp\":5000,\"input_length\":40,\"output_length\":8,\"hash_ids\":[1,2,4]}\n";

/* A tenant with the file's name, and requests without a tenant. */
static const char mixed[] =
        "{\"timestamp\":0,\"input_length\":16,\"output_length\":0,\"tenant\":\"mixed\",\"hash_ids\":[1]}\n"
        "{\"timestamp\":9,\"input_length\":16,\"output_length\":0,\"hash_ids\":[1]}\n";

static void write_file(const char *dir, const char *name, const char *text)
{
        char *path = test_path(dir, name);

        assert_int_equal(file_replace(path, text, strlen(text), 0644), 0);
        free(path);
}

/* Blocks of 512 tokens. */
static const char large[] =
        "{\"timestamp\":0,\"input_length\":1024,\"output_length\":1,\"hash_ids\":[1,2]}\n"
        "{\"timestamp\":1000,\"input_length\":1024,\"output_length\":1,\"hash_ids\":[1,3]}\n"
        "{\"timestamp\":5000,\"input_length\":1536,\"output_length\":1,\"hash_ids\":[1,2,4]}\n";

/* Turns of one conversation, half a minute apart. */
#define TURN(time, input, ids)                            \
        "{\"timestamp\":" time ",\"input_length\":" input \
        ",\"output_length\":90,\"hash_ids\":[" ids "]}\n"
static const char seconds[] = TURN("0", "16", "1") TURN("30", "32", "1,2") TURN("60", "48", "1,2,3")
        TURN("90", "64", "1,2,3,4") TURN("120", "80", "1,2,3,4,5") TURN("150", "96", "1,2,3,4,5,6");

/* 50000 tokens a second. */
static const char busy[] =
        "{\"timestamp\":0,\"input_length\":512,\"output_length\":1,\"hash_ids\":[1]}\n"
        "{\"timestamp\":2000,\"input_length\":512,\"output_length\":99999,\"hash_ids\":[2]}\n";

/* stdout and stderr of `kvleasectl trace ARGS` in a folder with good.jsonl, bad.jsonl, empty.jsonl,
 * mixed.jsonl, large.jsonl, seconds.jsonl, busy.jsonl and timeless.jsonl. */
static char *run(const char *args, int *ret_code)
{
        const char *dir = test_dir_make();
        _cleanup_free_ char *command = NULL;
        char *text = calloc(1, 1 << 16);
        int status;
        FILE *f;

        assert_non_null(text);
        write_file(dir, "good.jsonl", good);
        write_file(dir, "bad.jsonl", "{\"timestamp\":0}\n");
        write_file(dir, "empty.jsonl", "");
        write_file(dir, "mixed.jsonl", mixed);
        write_file(dir, "large.jsonl", large);
        write_file(dir, "seconds.jsonl", seconds);
        write_file(dir, "busy.jsonl", busy);
        write_file(dir, "timeless.jsonl", "{\"input_length\":32,\"hash_ids\":[1,2]}\n");
        assert_true(asprintf(&command, "cd %s && " KVLEASECTL " trace %s 2>&1", dir, args) > 0);
        f = popen(command, "re");
        assert_non_null(f);
        assert_true(fread(text, 1, (1 << 16) - 1, f) < (1 << 16) - 1);
        status = pclose(f);
        assert_true(WIFEXITED(status));
        *ret_code = WEXITSTATUS(status);
        test_dir_remove(dir);
        return text;
}

static void check(const char *args, int code, const char *expected)
{
        int got;
        _cleanup_free_ char *text = run(args, &got);

        assert_string_equal(text, expected);
        assert_int_equal(got, code);
}

static void check_has(const char *args, int code, const char *expected)
{
        int got;
        _cleanup_free_ char *text = run(args, &got);

        if (!strstr(text, expected))
                fail_msg("%s: no '%s' in:\n%s", args, expected, text);
        assert_int_equal(got, code);
}

/* Times in seconds are told from milliseconds, and no configuration is made of a mistake. */
TEST(test_time_unit)
{
        static const char sure[] = "kvleasectl: timestamps can't be milliseconds: 5 of 5 requests "
                                   "would continue others before their answers could be there";

        check_has("replay seconds.jsonl", 0, sure);
        check_has("analyze seconds.jsonl", 0, sure);
        check_has("recommend seconds.jsonl --token-bytes 1KiB", 1, sure);
        check_has("recommend seconds.jsonl --token-bytes 1KiB --time-unit s", 0,
                "6 requests in 2.5 min");
        check_has("recommend seconds.jsonl --token-bytes 1KiB --time-unit ms", 0,
                "requests in 150 ms");
        check("replay good.jsonl --policies lru --capacities 2 --time-unit s", 0,
                "Token hit %, one cache for all, pages of 16 tokens\n"
                "  capacity          pages      lru\n"
                "  2 pages               2    30.77\n");
        check("replay good.jsonl --time-unit min", 2,
                "kvleasectl: --time-unit is 'min': ms, s, us or ns\n");
        check_has("replay timeless.jsonl", 0,
                "no line has a timestamp: requests are taken to come a second apart");
        check("recommend timeless.jsonl --block-tokens 16 --token-bytes 1KiB", 1,
                "kvleasectl: no line has a timestamp: recommendations need demand over time\n");
}

TEST(test_replay)
{
        check("replay good.jsonl --policies lru,optimum --capacities 2,100%", 0,
                "Token hit %, one cache for all, pages of 16 tokens\n"
                "  capacity          pages      lru  optimum\n"
                "  2 pages               2    30.77    46.15\n"
                "  100 %                 4    46.15    46.15\n");
        /* Two files are two tenants, which share nothing. */
        check("replay good.jsonl good.jsonl --policies lru --capacities 8 --split --jobs 1", 0,
                "Token hit %, a cache of equal size for each tenant, pages of 16 tokens\n"
                "  capacity          pages      lru\n"
                "  8 pages               8    46.15\n");
}

/* 2 pages and 2 below are all there are: what the device alone would have hit, and all. */
TEST(test_tier_below)
{
        check("replay good.jsonl --policies lru --capacities 2 --below 1", 0,
                "Token hit %, one cache for all, pages of 16 tokens\n"
                "A tier below has 1 times the pages; +below: hits in both\n"
                "  capacity          pages      lru   +below\n"
                "  2 pages               2    30.77    46.15\n");
        check_has(
                "replay good.jsonl --capacities 2 --below 1", 0, "pgi   +below      lru   +below");
        check_has("replay good.jsonl --policies lru --capacities 2 --below 1 --json", 0,
                "\"below_hit_tokens\": 16");
        check_has("replay good.jsonl --policies pgi,arc --below 1", 2,
                "arc doesn't know more than one tier");
        check_has("replay good.jsonl --below 0", 2, "--below: '0' is no number");
        check_has("analyze good.jsonl --below 2", 2, "--below isn't an option of trace analyze");
}

/* kvleased's policies with and without being told; a capacity is a part of all groups' pages. */
TEST(test_windows)
{
        check("replay good.jsonl --policies lru,fifo --capacities 50% --window-groups 2 --window-tokens 16",
                0,
                "Token hit %, one cache for all, pages of 16 tokens\n"
                "2 groups of layers with a window of 16 tokens beside one of full attention; +told: the policy is told whose window has passed\n"
                "  capacity          pages      lru lru+told     fifo\n"
                "  50 %                  6    30.77    30.77    30.77\n");
        check_has("replay good.jsonl --window-groups 2 --window-tokens 16 --capacities 2 --json", 0,
                "\"told_passed_windows\": true");
        check_has("replay good.jsonl --window-groups 2", 2,
                "--window-groups and --window-tokens go together");
        check_has("replay good.jsonl --window-groups 2 --window-tokens 16 --below 2", 2,
                "--window-groups doesn't go with --below");
        check_has("replay good.jsonl --window-groups 2 --window-tokens 16 --policies optimum", 2,
                "optimum knows no pages of windows");
        check_has("replay good.jsonl --window-groups 65 --window-tokens 16", 2,
                "--window-groups: '65' is no number of 1 to 64");
}

/* Policies that know hints are shown without and with each share of right ones. */
TEST(test_hints)
{
        check("replay good.jsonl --policies pgi,lru --capacities 2 --hints 0,100", 0,
                "Token hit %, one cache for all, pages of 16 tokens\n"
                "+N%: a hint at the end of each request says whether its text continues, and N % of the hints are right\n"
                "  capacity          pages      pgi   pgi+0% pgi+100%      lru\n"
                "  2 pages               2    30.77    30.77    30.77    30.77\n");
        check_has("replay good.jsonl --hints 80 --hint-times --capacities 2 --json", 0,
                "\"hints_right_percent\": 80");
        check_has(
                "replay good.jsonl --hints 80 --hint-times --capacities 2", 0, "whether and when");
        check_has("replay good.jsonl --hints 101", 2, "'101' is no share of right hints");
        check_has("replay good.jsonl --hints 1,2,3,4,5,6,7,8,9", 2, "more than 8 shares");
        check_has("replay good.jsonl --hint-times", 2, "--hint-times is of --hints LIST");
        check_has("replay good.jsonl --hints 80 --window-groups 2 --window-tokens 16", 2,
                "--hints doesn't go with");
}

/* The computation that hits save, for all policies, and twice for those that can use costs. */
TEST(test_crossover)
{
        check("replay good.jsonl --policies lru --capacities 2 --attention-crossover 1", 0,
                "Token hit %, one cache for all, pages of 16 tokens\n"
                "saved: %, the part of the computation of all input that hits save, with a crossover of 1 tokens; +cost: miss_cost = compute\n"
                "  capacity          pages      lru  saved\n"
                "  2 pages               2    30.77  14.94\n");
        check_has("replay good.jsonl --policies daemon --capacities 2 --attention-crossover 30632",
                0, "pgi  saved pgi+cost  saved      lru  saved");
        check_has("replay good.jsonl --policies pgi --capacities 2 --attention-crossover 7 --json",
                0, "\"miss_cost\": \"compute\"");
        check_has("replay good.jsonl --policies pgi --attention-crossover 0", 2,
                "--attention-crossover");
}

TEST(test_seeds)
{
        /* LRU doesn't look at ids. */
        check("replay good.jsonl --policies lru --capacities 2 --seeds 3", 0,
                "Token hit %, one cache for all, pages of 16 tokens\n"
                "The mean of 3 seeds; +-: their standard deviation\n"
                "  capacity          pages      lru     +-\n"
                "  2 pages               2    30.77   0.00\n");
        check_has("replay good.jsonl --policies lru --capacities 2 --seeds 3 --json", 0,
                "\"token_hit_ratio_stddev\": 0.0");
        /* Sums are those of all seeds. */
        check_has("replay good.jsonl --policies lru --capacities 2 --seeds 3 --json", 0,
                "\"input_tokens\": 312");
        check_has("replay good.jsonl --seeds 101", 2, "--seeds: '101' is no number of 1 to 100");
}

/* The first request fills the cache. */
TEST(test_from)
{
        check("replay good.jsonl --policies lru,optimum --capacities 2 --from 66", 0,
                "Token hit %, one cache for all, pages of 16 tokens\n"
                "The first 1 of 3 requests don't count\n"
                "  capacity          pages      lru  optimum\n"
                "  2 pages               2    44.44    66.67\n");
        check_has("replay good.jsonl --policies lru --capacities 2 --from 67 --json", 0,
                "\"input_tokens\": 40");
        /* Rounded down to none. */
        check_has("replay good.jsonl --policies lru --capacities 2 --from 33 --json", 0,
                "\"input_tokens\": 104");
        check_has("replay good.jsonl --from 100", 2, "--from: '100' is no number of 1 to 99");
        check_has("analyze good.jsonl --from 50", 2, "--from isn't an option of trace analyze");
}

/* A block a second, an output token a second. Two pages have no room for two requests, nor for all
 * of one: they begin at 0, 18 and 35 s, and the last ends at 44.5 s. */
TEST(test_requests_that_take_time)
{
        check("replay good.jsonl --policies lru --capacities 2 --prefill-rate 16 --time-per-output-token 1s",
                0,
                "Token hit %, one cache for all, pages of 16 tokens\n"
                "held: %, the part of the cache that requests held while they ran; wait: until a request began\n"
                "  capacity          pages      lru   held     wait\n"
                "  2 pages               2    30.77  100.0     16 s\n");
        check_has("replay good.jsonl --capacities 2 --max-running 1 --json", 0,
                "\"waited_requests\": 0");
        check_has("replay good.jsonl --max-running 1 --policies lru,optimum", 2,
                "--policies: optimum holds nothing");
        check_has("replay good.jsonl --prefill-rate 1 --below 1", 2, "--below: moves between");
        check_has("replay good.jsonl --prefill-rate 0", 2, "--prefill-rate: '0' is no number");
        check_has("replay good.jsonl --time-per-output-token 61s", 2,
                "'61s' is not a time of up to 60s, such as 30ms");
}

/* Two requests of one block of 16 tokens: all larger sizes explain them as well. */
TEST(test_block_size_that_is_not_told)
{
        check_has("replay mixed.jsonl --policies lru --capacities 2", 0,
                "kvleasectl: the lines don't show the size of a block: 16, 32, 64, 128, 256, 512, "
                "1024, 2048, 4096, 8192, 16384, 32768 or 65536 tokens fit all of them, and 16 are assumed; --block-tokens sets it\n"
                "Token hit %, one cache for all, pages of 16 tokens\n");
        check_has("replay mixed.jsonl --policies lru --capacities 2 --block-tokens 32", 0,
                "Token hit %, one cache for all, pages of 32 tokens\n");
}

TEST(test_json)
{
        int code;
        _cleanup_free_ char *text =
                run("replay good.jsonl --policies lru --capacities 2 --json", &code);
        json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        json_t *one = json_array_get(json_object_get(j, "curves"), 0);

        assert_int_equal(code, 0);
        assert_int_equal(json_integer_value(json_object_get(j, "unique_blocks")), 4);
        assert_string_equal(json_string_value(json_object_get(one, "policy")), "lru");
        assert_int_equal(json_integer_value(json_object_get(one, "hit_tokens")), 32);
        assert_int_equal(json_integer_value(json_object_get(one, "input_tokens")), 104);
        assert_int_equal(json_integer_value(json_object_get(one, "capacity_pages")), 2);
        assert_true(json_is_null(json_object_get(one, "capacity_percent")));
        json_decref(j);
}

static const char analysis[] =
        "Trace: 3 requests of 1 tenant in 5.0 s, blocks of 16 tokens\n"
        "\n"
        "Repeats, with a cache of any size\n"
        "  input tokens        46.2 %% of 104\n"
        "  blocks              42.9 %% of 7; 4 different ones\n"
        "  requests            66.7 %% start like one before\n"
        "  sessions            33.3 %% of requests continue one of 2\n"
        "\n"
        "Distributions\n"
        "                          mean        p5       p25    median       p75       p90       p99      most\n"
        "  input tokens            34.7        32        32        32        40        40        40        40\n"
        "  output tokens           13.3         8         8        16        16        16        16        16\n"
        "  turns a session          1.5         1         1         1         2         2         2         2\n"
        "  between turns          5.0 s     5.0 s     5.0 s     5.0 s     5.0 s     5.0 s     5.0 s     5.0 s\n"
        "  session lasts          5.0 s     5.0 s     5.0 s     5.0 s     5.0 s     5.0 s     5.0 s     5.0 s\n"
        "  first reuse after      3.0 s     1.0 s     1.0 s     1.0 s     5.0 s     5.0 s     5.0 s     5.0 s\n"
        "  any reuse after        3.3 s     1.0 s     1.0 s     4.0 s     5.0 s     5.0 s     5.0 s     5.0 s\n"
        "\n"
        "Token hit %%, one cache for all\n"
        "  capacity          pages      lru  optimum\n"
        "  2 pages               2    30.77    46.15\n"
        "\n"
        "Page size\n"
        "  tokens        waste %%    hit %%\n"
        "  16               0.00    46.15  <- advised\n"
        "  32              25.00    30.77\n"
        "  64              25.00     0.00\n"
        "  128             62.50     0.00\n"
        "  256             81.25     0.00\n"
        "  512             90.62     0.00\n"
        "  1024            95.31     0.00\n"
        "  16 tokens a page: the largest size that wastes at most 1 %% and loses at most 0.5 "
        "points of hits to pages of 16 tokens; 256 and more only where three of four texts have 32 pages.\n"
        "\n"
        "Reservation: pages of 16 tokens in use, each for 2.0 s after a request used it\n"
        "  tenant                      median       p99      most  hit %% with the p99 alone\n"
        "  (all)                            3         5         5  46.15 (%s)\n"
        "  The p99 is the smallest reservation that covers 99 %% of the time.\n";

TEST(test_analyze)
{
        _cleanup_free_ char *expected = NULL;

        /* Equally good policies: the daemon's default. */
        assert_true(asprintf(&expected, analysis, evict_policies[0]->name) > 0);
        check("analyze good.jsonl --policies lru,optimum --capacities 2 --hold 2s", 0, expected);
}
TEST(test_recommend)
{
        /* 5 pages of 16 tokens of 1 MiB; 5 were most in use, 4 are all there are. */
        check_has("recommend good.jsonl --token-bytes 1MiB --hold 2s", 0,
                "\n[tenant good]\n# 99 % of the time at most 5 pages of 16 tokens were in use "
                "(each for 2.0 s after a\n# request used it), half of the time 3.\nclass = pinned\n"
                "reserve = 80MiB\n# Token hit with that much alone: ");
        check_has(
                "recommend good.jsonl --token-bytes 1MiB --hold 2s", 0, " lru 46.15 %.\nevict = ");
        check_has("recommend good.jsonl --token-bytes 1MiB --hold 2s", 0,
                "\n# The trace has 4 different pages of this tenant, and at most 5 were in use at once: more\n# would stay empty.\nlimit = 80MiB\n");
        /* A section is there once, or kvleased refuses the file. */
        check_has("recommend mixed.jsonl --token-bytes 1MiB", 0, "\n[tenant mixed]\n");
        check_has("recommend mixed.jsonl --token-bytes 1MiB", 0, "\n[tenant mixed-2]\n");
        check_has("analyze mixed.jsonl", 0, "\n  (unnamed) ");
        check("recommend good.jsonl", 2,
                "kvleasectl: --token-bytes is missing: the bytes of K/V that one token takes, "
                "which a trace doesn't say (page bytes / page tokens of 'kvleasectl namespaces')\n");
        check("recommend good.jsonl --token-bytes 0", 2,
                "kvleasectl: --token-bytes: '0' is not a size of 1 byte to 1 GiB, such as 128KiB\n");
}

#define HOSTS \
        "hosts large.jsonl --block-tokens 512 --size 8MiB --token-bytes 1KiB --prefill-rate 1000 "

/* The trace of test_host_runs.c: of two hosts the second loads block 1; or one has all blocks. */
TEST(test_hosts)
{
        _cleanup_free_ char *text = NULL;
        int code;

        check(HOSTS "--hosts 2 --group 2 --store uses=1", 0,
                "3 requests for 2 hosts, blocks of 512 tokens (512 KiB); a cache of 16 blocks (8 MiB, pgi) on each host\n"
                "Store: 256 GiB for each host, lru, values expire after 1d, exports of what is found or long, 64 MiB/s of each host at most\n"
                "Input tokens in %: found on the host, loaded, computed; lost: of those in the store, that were faster to compute\n"
                "   hosts affinity       local  remote  computed   lost      load/s     write/s   asked/s  nodes memory bandwidth  keys\n"
                "       2 round-robin    28.57   14.29     57.14   0.00  102.39 KiB  409.59 KiB         1      1      1         1     1\n"
                "       2 prefix         42.86    0.00     57.14   0.00         0 B  409.59 KiB         1      1      1         1     1\n");
        check(HOSTS
                "--hosts 2,4 --group 2 --policies lru --affinity session --store size=0 --jobs 1",
                0,
                "3 requests for 2 hosts, blocks of 512 tokens (512 KiB); a cache of 16 blocks (8 MiB, lru) on each host\n"
                "No store\n"
                "Input tokens in %: found on the host, loaded, computed; lost: of those in the store, that were faster to compute\n"
                "   hosts affinity       local  computed\n"
                "       2 session        28.57     71.43\n"
                "       4 session        28.57     71.43\n");
        check_has(HOSTS "--hosts 2 --group 2 --store uses=1 --json", 0, "\"remote_tokens\": 512");
        /* A load that is too much for one host is fine for a trace of many. */
        check_has("replay busy.jsonl", 0, "answered with 50000 tokens a second");
        text = run(
                "hosts busy.jsonl --size 8MiB --token-bytes 1KiB --prefill-rate 1000 --hosts 2 --group 2",
                &code);
        assert_int_equal(code, 0);
        assert_null(strstr(text, "tokens a second"));
        check_has(HOSTS "--hosts 15", 2, "15 hosts: a copy of the trace is for 10");
        check_has(HOSTS "--group 0", 2, "--group: '0' is no number of 1 to 10000");
        check_has(HOSTS "--affinity some", 2, "there is no affinity 'some'");
        check_has(HOSTS "--store colour=red", 2, "a store has no 'colour': it has size=, ");
        check_has(
                HOSTS "--store page=100", 2, "pages of 100 tokens: blocks of this trace have 512");
        check_has(HOSTS "--policies optimum", 2, "--policies: 'optimum' is not one of");
        check_has(HOSTS "--policies arc --below 2", 2,
                "--below: arc doesn't know more than one tier");
        check_has("hosts good.jsonl --token-bytes 1KiB --prefill-rate 1", 2, "--size is missing");
        check_has("hosts good.jsonl --size 1KiB --token-bytes 1KiB --prefill-rate 1", 2,
                "1 KiB on each host are no blocks of 16 tokens of this trace: one takes 16 KiB");
        check_has("hosts good.jsonl --size 1MiB --prefill-rate 1", 2, "--token-bytes is missing");
        check_has("hosts good.jsonl --size 1MiB --token-bytes 1", 2, "--prefill-rate is missing");
        check_has("hosts good.jsonl --size 0 --token-bytes 1", 2, "--size: '0' is not a size");
}

TEST(test_refuses)
{
        check("replay nowhere.jsonl", 1,
                "kvleasectl: cannot read nowhere.jsonl: No such file or directory\n");
        check("replay good.jsonl bad.jsonl", 1,
                "kvleasectl: bad.jsonl: line 1: input_length is missing (--skip-bad skips such lines)\n");
        check("replay good.jsonl bad.jsonl --skip-bad --policies lru --capacities 2", 0,
                "kvleasectl: 1 line skipped, the first: bad.jsonl: line 1: input_length is missing\n"
                "Token hit %, one cache for all, pages of 16 tokens\n"
                "  capacity          pages      lru\n"
                "  2 pages               2    30.77\n");
        check("replay bad.jsonl --skip-bad", 1,
                "kvleasectl: bad.jsonl: line 1: input_length is missing (no line can be read)\n");
        check("replay empty.jsonl", 1, "kvleasectl: cannot read empty.jsonl: no request in it\n");
        check("replay good.jsonl --jobs 0", 2,
                "kvleasectl: --jobs: '0' is no number of 1 to 1024\n");
        check("replay good.jsonl --block-tokens 1e3", 2,
                "kvleasectl: --block-tokens: '1e3' is no number of 1 to 65536\n");
        check("analyze good.jsonl --hold soon", 2,
                "kvleasectl: --hold: 'soon' is not a time such as 250ms or 30s\n");
        check_has(
                "replay good.jsonl --policies mru", 2, "there is no policy 'mru': there are all, ");
        check_has("replay good.jsonl --capacities 0", 2, "'0' is no capacity");
        check_has("analyze good.jsonl --html nowhere/x.html --policies lru --capacities 1", 1,
                "kvleasectl: cannot write nowhere/x.html: No such file or directory\n");
        check_has("analyze good.jsonl --html /dev/full --policies lru --capacities 1", 1,
                "kvleasectl: cannot write /dev/full: No space left on device\n");
}
