/* Commands of the worker that concern pages. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "tests/integration/pattern.h"
#include "tests/integration/worker.h"

static uint32_t pages[WORKER_MAX_WORDS], found[WORKER_MAX_WORDS];
static uint8_t keys[WORKER_MAX_WORDS * KVL_KEY_BYTES];

/* lease N */
static void do_lease(struct worker_state *w, char **args, unsigned n_args)
{
        uint32_t n = (uint32_t)strtoul(args[0], NULL, 10);
        int r = kvl_lease(w->ns, 0, n, pages);

        worker_answer_pages(r, pages, r == 0 ? n : 0);
}

/* fill PAGE SEED */
static void do_fill(struct worker_state *w, char **args, unsigned n_args)
{
        uint32_t page = (uint32_t)strtoul(args[0], NULL, 10);
        uint64_t seed = strtoull(args[1], NULL, 10);

        for (unsigned plane = 0; plane < w->info.n_planes; ++plane)
                pattern_fill(
                        kvl_page_ptr(w->ns, page, plane), w->info.plane_page_bytes, seed, plane);
        worker_answer(0);
}

/* verify PAGE SEED: 0, or 1 where it holds something else */
static void do_verify(struct worker_state *w, char **args, unsigned n_args)
{
        uint32_t page = (uint32_t)strtoul(args[0], NULL, 10);
        uint64_t seed = strtoull(args[1], NULL, 10);
        bool same = true;

        for (unsigned plane = 0; plane < w->info.n_planes; ++plane) {
                const void *p = kvl_page_ptr(w->ns, page, plane);

                same &= p && pattern_matches(p, w->info.plane_page_bytes, seed, plane);
        }
        printf("%d\n", same ? 0 : 1);
}

/* zeros PAGE...: how many of them hold anything but zeros */
static void do_zeros(struct worker_state *w, char **args, unsigned n_args)
{
        uint32_t n = worker_parse_pages(args, n_args, pages);
        unsigned n_dirty = 0;

        for (uint32_t i = 0; i < n; ++i)
                for (unsigned plane = 0; plane < w->info.n_planes; ++plane) {
                        const char *p = kvl_page_ptr(w->ns, pages[i], plane);

                        n_dirty += p[0] != 0 || memcmp(p, p + 1, w->info.plane_page_bytes - 1);
                }
        printf("0 %u\n", n_dirty);
}

/* mapped PAGE: 1 where it has an address here */
static void do_mapped(struct worker_state *w, char **args, unsigned n_args)
{
        uint32_t page = (uint32_t)strtoul(args[0], NULL, 10);

        printf("0 %d\n", kvl_page_ptr(w->ns, page, 0) != NULL);
}

/* publish FIRST-KEYS PARENT|- PAGE... */
static void do_publish(struct worker_state *w, char **args, unsigned n_args)
{
        uint8_t parent[KVL_KEY_BYTES];
        struct kvl_publish p = {.size = sizeof(p), .pages = pages, .keys = keys};
        uint32_t n_done = 0;
        int r;

        p.last_tokens = w->info.page_tokens;
        p.n_pages = worker_parse_pages(args + 2, n_args - 2, pages);
        if (worker_parse_keys(args, 1, keys, WORKER_MAX_WORDS) != p.n_pages) {
                printf("%d as many keys as pages, please\n", -EINVAL);
                return;
        }
        if (worker_parse_keys(args + 1, 1, parent, 1))
                p.parent_key = parent;
        r = kvl_publish(w->ns, &p, found, &n_done);
        worker_answer_pages(r, found, n_done);
}

/* lookup KEYS... */
static void do_lookup(struct worker_state *w, char **args, unsigned n_args)
{
        uint32_t n_keys = worker_parse_keys(args, n_args, keys, WORKER_MAX_WORDS), n = 0;
        uint64_t n_tokens;
        int r = kvl_lookup(w->ns, 0, keys, n_keys, pages, &n, &n_tokens);

        worker_answer_pages(r, pages, r == 0 ? n : 0);
}

static void do_release(struct worker_state *w, char **args, unsigned n_args)
{
        worker_answer(kvl_release(w->ns, pages, worker_parse_pages(args, n_args, pages)));
}

static void do_free(struct worker_state *w, char **args, unsigned n_args)
{
        worker_answer(kvl_free(w->ns, pages, worker_parse_pages(args, n_args, pages)));
}

static void do_map(struct worker_state *w, char **args, unsigned n_args)
{
        worker_answer(kvl_map_pages(w->ns, pages, worker_parse_pages(args, n_args, pages)));
}

/* invalidate KEY|all */
static void do_invalidate(struct worker_state *w, char **args, unsigned n_args)
{
        uint64_t n_pages = 0;
        uint32_t n_keys = worker_parse_keys(args, 1, keys, 1);
        int r = kvl_invalidate(w->ns, n_keys ? keys : NULL, &n_pages);

        if (r)
                worker_answer(r);
        else
                printf("0 %llu\n", (unsigned long long)n_pages);
}

/* poke PAGE VALUE, peek PAGE: first byte of plane 0. Nothing a worker may do to a sealed page; it
 * shows that memory is shared. */
static void do_poke(struct worker_state *w, char **args, unsigned n_args)
{
        volatile char *p = kvl_page_ptr(w->ns, (uint32_t)strtoul(args[0], NULL, 10), 0);

        *p = (char)strtol(args[1], NULL, 10);
        worker_answer(0);
}

static void do_peek(struct worker_state *w, char **args, unsigned n_args)
{
        volatile const char *p = kvl_page_ptr(w->ns, (uint32_t)strtoul(args[0], NULL, 10), 0);

        printf("0 %d\n", *p);
}

const struct worker_command worker_page_commands[] = {
        {"lease", do_lease},
        {"fill", do_fill},
        {"verify", do_verify},
        {"zeros", do_zeros},
        {"mapped", do_mapped},
        {"publish", do_publish},
        {"lookup", do_lookup},
        {"release", do_release},
        {"free", do_free},
        {"map", do_map},
        {"invalidate", do_invalidate},
        {"poke", do_poke},
        {"peek", do_peek},
        {NULL, NULL},
};
