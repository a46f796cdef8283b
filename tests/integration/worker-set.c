/* Commands of the worker that concern namespace sets: it has several namespaces of one open. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/integration/pattern.h"
#include "tests/integration/worker.h"

#define MAX_SPACES 8
#define MAX_KEYS   512

static struct kvl_ns *spaces[MAX_SPACES];
static uint32_t n_spaces, n_keys_of, n_found; /* of the last set-lookup */
static uint32_t pages[MAX_SPACES * MAX_KEYS];
static uint8_t keys[MAX_KEYS * KVL_KEY_BYTES];

/* set-open NAME PLANES SET SIZE RANK: one more; commands on pages are about the last */
static void do_open(struct worker_state *w, char **args, unsigned n_args)
{
        struct kvl_layout layout = worker_layout((unsigned)strtoul(args[1], NULL, 10));
        struct kvl_ns_options o = {.size = sizeof(o), .set = args[2]};
        int r;

        o.set_size = layout.tp_size = (uint32_t)strtoul(args[3], NULL, 10);
        layout.tp_rank = (uint32_t)strtoul(args[4], NULL, 10);
        r = kvl_ns_open_with(w->conn, args[0], &layout, &o, &w->ns);
        if (r == 0) {
                w->info = (struct kvl_ns_info){.size = sizeof(w->info)};
                kvl_ns_info(w->ns, &w->info);
                spaces[n_spaces++ % MAX_SPACES] = w->ns;
        }
        worker_answer(r);
}

/* set-lookup KEYS: pages of the run, tokens; they stay pinned in all */
static void do_lookup(struct worker_state *w, char **args, unsigned n_args)
{
        uint64_t n_tokens = 0;
        int r;

        n_keys_of = worker_parse_keys(args, n_args, keys, MAX_KEYS);
        n_found = 0;
        r = kvl_lookup_set(spaces, n_spaces, 0, keys, n_keys_of, pages, &n_found, &n_tokens);
        if (r)
                worker_answer(r);
        else
                printf("0 %u %" PRIu64 "\n", n_found, n_tokens);
}

/* set-release: releases set-lookup's pins */
static void do_release(struct worker_state *w, char **args, unsigned n_args)
{
        int r = 0;

        for (uint32_t i = 0; i < n_spaces && n_found > 0 && r == 0; ++i)
                r = kvl_release(spaces[i], pages + (size_t)i * n_keys_of, n_found);
        n_found = 0;
        worker_answer(r);
}

/* set-counts CHAIN N: for each of the text's first N keys, in how many namespaces it is cached,
 * with or without its parents */
static void do_counts(struct worker_state *w, char **args, unsigned n_args)
{
        uint64_t chain = strtoull(args[0], NULL, 10), n_tokens;
        uint32_t n = (uint32_t)strtoul(args[1], NULL, 10), page, n_pages;
        int r = 0;

        printf("0");
        for (uint32_t k = 0; k < n && r >= 0; ++k) {
                unsigned n_in = 0;

                pattern_key(chain, k, keys);
                for (uint32_t i = 0; i < n_spaces && r >= 0; ++i) {
                        r = kvl_lookup(spaces[i], 0, keys, 1, &page, &n_pages, &n_tokens);
                        n_in += r == 0;
                        if (r == 0)
                                r = kvl_release(spaces[i], &page, 1);
                }
                printf(" %u", n_in);
        }
        printf("\n");
}

const struct worker_command worker_set_commands[] = {
        {"set-open", do_open},
        {"set-lookup", do_lookup},
        {"set-release", do_release},
        {"set-counts", do_counts},
        {NULL, NULL},
};
