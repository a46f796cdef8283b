/* Commands of the worker that concern windows over texts larger than the device. One is open at a
 * time. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/integration/worker.h"

static struct kvl_window *window;

static bool is_word(char **args, unsigned n_args, unsigned i, const char *word)
{
        return i < n_args && strcmp(args[i], word) == 0;
}

/* window-open FIRST-TOKENS LAST-TOKENS CHUNK [session]: pages, and how many are in a lower tier */
static void do_open(struct worker_state *w, char **args, unsigned n_args)
{
        const struct kvl_window_options o = {
                .size = sizeof(o),
                .first_tokens = strtoull(args[0], NULL, 10),
                .last_tokens = strtoull(args[1], NULL, 10),
                .chunk_pages = (uint32_t)strtoul(args[2], NULL, 10),
                .session = is_word(args, n_args, 3, "session") ? worker_session() : NULL,
        };
        const uint32_t *pages;
        uint32_t n, n_below = 0;
        int r = kvl_window_open(w->ns, &o, &window);

        if (r) {
                worker_answer(r);
                return;
        }
        pages = kvl_window_pages(window, &n);
        for (uint32_t i = 0; i < n; ++i)
                n_below += kvl_page_tier(w->ns, pages[i]) != KVL_TIER_DEVICE;
        printf("0 %u %u\n", n, n_below);
}

/* One page more of `chain`. 0 or the library's code. */
static int talk(struct worker_state *w, unsigned chain, unsigned index, struct kvl_session *session)
{
        uint32_t page;
        int r = worker_publish_next(w, chain, index, session, &page);

        return r == 0 ? kvl_window_append(window, &page, 1, NULL) : r;
}

/* window-talk CHAIN FIRST LAST [session]: page after page, each filled with 1000 * CHAIN + its
 * index */
static void do_talk(struct worker_state *w, char **args, unsigned n_args)
{
        struct kvl_session *session = is_word(args, n_args, 3, "session") ? worker_session() : NULL;
        unsigned chain = (unsigned)atoi(args[0]), last = (unsigned)atoi(args[2]);
        int r = 0;

        for (unsigned i = (unsigned)atoi(args[1]); i <= last && r == 0; ++i)
                r = talk(w, chain, i, session);
        worker_answer(r);
}

/* window-verify CHAIN N GAP: reads all of it; after N pages, GAP are missing. 0 and the number of
 * wrong pages; or the library's code */
static void do_verify(struct worker_state *w, char **args, unsigned n_args)
{
        uint64_t seed = 1000 * strtoull(args[0], NULL, 10);
        uint32_t n_first = (uint32_t)strtoul(args[1], NULL, 10);
        uint32_t gap = (uint32_t)strtoul(args[2], NULL, 10), n_text, n, n_wrong = 0;

        (void)kvl_window_pages(window, &n_text);
        for (uint32_t i = 0; i < n_text; i += n) {
                const uint32_t *pages;
                int r = kvl_window_take(window, i, n_text - i, NULL, &pages, &n);

                if (r) {
                        worker_answer(r);
                        return;
                }
                for (uint32_t j = 0; j < n; ++j) {
                        uint32_t index = i + j + (i + j < n_first ? 0 : gap);

                        for (unsigned plane = 0; plane < w->info.n_planes; ++plane)
                                n_wrong +=
                                        !worker_page_matches(w->ns, pages[j], plane, seed + index);
                }
        }
        printf("0 %u %u\n", n_text, n_wrong);
}

/* Counts pages, from `index` of the text on, with wrong bytes in these planes. */
static uint32_t count_wrong(const struct worker_state *w, const uint32_t *pages, uint32_t n,
        uint32_t first_plane, uint32_t n_planes, uint64_t seed)
{
        uint32_t n_wrong = 0;

        for (uint32_t j = 0; j < n; ++j)
                for (uint32_t plane = first_plane; plane < first_plane + n_planes; ++plane)
                        n_wrong += !worker_page_matches(w->ns, pages[j], plane, seed + j);
        return n_wrong;
}

/* window-planes CHAIN N: reads all of it by N planes at a time, like attention. 0 and the number of
 * pages with wrong planes; or the library's code */
static void do_planes(struct worker_state *w, char **args, unsigned n_args)
{
        uint64_t seed = 1000 * strtoull(args[0], NULL, 10);
        uint32_t step = (uint32_t)strtoul(args[1], NULL, 10), n_text, n, n_wrong = 0;

        (void)kvl_window_pages(window, &n_text);
        for (uint32_t plane = 0; plane < w->info.n_planes; plane += step)
                for (uint32_t i = 0; i < n_text; i += n) {
                        uint32_t left = w->info.n_planes - plane;
                        const uint32_t *pages;
                        int r = kvl_window_take_planes(window, i, n_text - i, plane,
                                step < left ? step : left, NULL, &pages, &n);

                        if (r) {
                                worker_answer(r);
                                return;
                        }
                        n_wrong += count_wrong(
                                w, pages, n, plane, step < left ? step : left, seed + i);
                }
        printf("0 %u %u\n", n_text, n_wrong);
}

/* window-close */
static void do_close(struct worker_state *w, char **args, unsigned n_args)
{
        worker_answer(kvl_window_close(window, NULL));
        window = NULL;
}

const struct worker_command worker_window_commands[] = {
        {"window-open", do_open},
        {"window-talk", do_talk},
        {"window-verify", do_verify},
        {"window-planes", do_planes},
        {"window-close", do_close},
        {NULL, NULL},
};
