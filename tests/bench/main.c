#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/words.h"
#include "kvlease-version.h"
#include "tests/bench/bench.h"
#include "tests/integration/private-daemon.h"

#define EXIT_SKIPPED 77 /* meson */

static const struct bench *const benches[] = {
        &bench_hit,
        &bench_alloc,
        &bench_publish,
        &bench_rings,
        &bench_restart,
        &bench_throughput,
        &bench_data,
        &bench_rpc,
        &bench_qos,
        &bench_footprint,
        &bench_gpu,
#ifdef KVL_LAB
        &bench_disk,
        &bench_fills,
        &bench_interference,
        &bench_keys,
        &bench_long,
        &bench_neighbours,
        &bench_observe,
        &bench_peers,
        &bench_policy,
        &bench_remote,
        &bench_remote_hosts,
        &bench_replay,
        &bench_tiers,
#endif
};

struct options {
        int list, json, check, quick, help, version;
        unsigned rounds;
        const char *bench, *argument;
};

static void usage(FILE *to)
{
        fputs("Usage: kvlease-bench [OPTION...] BENCHMARK [ARGUMENT]\n"
              "Measures against a private kvleased ($KVLEASED, else the one built with it).\n\n"
              "  --list      list benchmarks and their arguments\n"
              "  --rounds N  repeat N times, and print medians over the rounds\n"
              "  --json      print one JSON object instead of a table\n"
              "  --check     exit with 2 if a bound is missed\n"
              "  --quick     use small numbers, to see that the benchmark works\n"
              "  --help      show this help\n"
              "  --version   show the version\n\n"
              "Exit status: 0 measured, 1 not, 2 a bound is missed (--check),\n"
              "77 there is no such device here.\n",
                to);
}

static int fail_usage(const char *what, const char *word)
{
        fprintf(stderr, "kvlease-bench: %s: %s (kvlease-bench --help lists the options)\n", word,
                what);
        return -1;
}

static bool parse_rounds(const char *word, unsigned *ret_rounds)
{
        char *end;
        unsigned long n = word ? strtoul(word, &end, 10) : 0;

        if (n < 1 || n > 100000 || *end)
                return false;
        *ret_rounds = (unsigned)n;
        return true;
}

/* Takes words of the command line that are no options: BENCHMARK [ARGUMENT]. */
static int parse_words(int n, char **words, struct options *ret)
{
        if (n > 2)
                return fail_usage("not expected here", words[2]);
        ret->bench = words[0];
        ret->argument = n > 1 ? words[1] : NULL;
        return 0;
}

static int parse(int argc, char **argv, struct options *ret)
{
        const struct option longs[] = {{"list", no_argument, &ret->list, 1},
                {"json", no_argument, &ret->json, 1}, {"check", no_argument, &ret->check, 1},
                {"quick", no_argument, &ret->quick, 1}, {"help", no_argument, &ret->help, 1},
                {"version", no_argument, &ret->version, 1},
                {"rounds", required_argument, NULL, 'r'}, {0}};
        char fault[WORDS_FAULT_MAX];
        int c;

        opterr = 0;
        while ((c = getopt_long(argc, argv, ":", longs, NULL)) != -1)
                if (c == '?') {
                        fprintf(stderr, "kvlease-bench: %s\n",
                                option_fault("kvlease-bench", argv[optind - 1], longs, fault));
                        return -1;
                } else if (c != 0 && !parse_rounds(c == 'r' ? optarg : NULL, &ret->rounds)) {
                        return fail_usage("needs a number from 1 to 100000", "--rounds");
                }
        return parse_words(argc - optind, argv + optind, ret);
}

static const struct bench *find(const char *name)
{
        for (unsigned i = 0; i < ARRAY_SIZE(benches); ++i)
                if (strcmp(benches[i]->name, name) == 0)
                        return benches[i];
        return NULL;
}

static int run_bench(const struct bench *b, const struct options *o)
{
        struct bench_run run = {.rounds = o->rounds ? o->rounds : b->rounds,
                .argument = o->argument,
                .quick = o->quick};
        bool reached = true;
        int r;

        if (b->uses_cpu && private_on_gpu()) {
                fprintf(stderr,
                        "kvlease-bench: %s reads and writes pages with the CPU, which can't reach memory of a GPU: unset KVL_DEVICE (%s)\n",
                        b->name, private_transport());
                return 1;
        }
        if (o->quick && !o->rounds)
                run.rounds = 2;
        r = b->fn(&run);
        if (r < 0)
                return r == -ENODEV ? EXIT_SKIPPED : 1;
        if (!o->json)
                bench_print_table(b, &run);
        else if (bench_print_json(b, &run) < 0)
                return 1;
        for (unsigned i = 0; i < run.n_results; ++i)
                reached &= bench_reached(&run.results[i]);
        return o->check && !reached ? 2 : 0;
}

int main(int argc, char **argv)
{
        struct options o = {0};
        const struct bench *b;

        /* `meson test` sets it: calloc() then touches all it gives. */
        unsetenv("MALLOC_PERTURB_");
        if (parse(argc, argv, &o) < 0)
                return 1;
        if (o.help) {
                usage(stdout);
                return 0;
        }
        if (o.version) {
                puts("kvlease-bench " KVLEASE_VERSION);
                return 0;
        }
        if (o.list) {
                for (unsigned i = 0; i < ARRAY_SIZE(benches); ++i)
                        printf("%-12s %-8s %s\n", benches[i]->name,
                                benches[i]->argument ? benches[i]->argument : "", benches[i]->help);
                return 0;
        }
        if (!o.bench) {
                usage(stderr);
                return 1;
        }
        b = find(o.bench);
        if (!b) {
                fail_usage(
                        "no such benchmark in this build; --list shows them, and -Dlab=true builds more",
                        o.bench);
                return 1;
        }
        if (o.argument && !b->argument) {
                fail_usage("takes no argument; --list shows which do", o.bench);
                return 1;
        }
        return run_bench(b, &o);
}
