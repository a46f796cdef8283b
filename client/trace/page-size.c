/*
 * Page sizes: the memory and the hits that they cost.
 *
 * A sequence of input and output has pages of its own at its end; half of the last one is empty on
 * average. A hit covers whole pages (or all of an input that occurred as a whole). If pages are
 * smaller than the trace's blocks, a block that differs may have the same start. That is assumed
 * for sessions only, in which the next request begins with the whole previous input.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/macros.h"
#include "client/trace/analysis.h"

/* Not tuned; stated with the advice. The largest page within these two bounds is advised: the
 * memory it wastes, and the hits it loses compared to the smallest page. Larger pages are fewer to
 * look up and to move. */
#define WASTE_MAX    0.01
#define HIT_LOSS_MAX 0.005

/* Pages of 256 tokens and more require that three in four sequences have this many of them. */
#define LARGE_TOKENS    256
#define LARGE_PAGES_MIN 32

double page_size_waste(const struct page_size *p)
{
        return p->page_tokens > 0 ? (double)p->wasted_tokens / (double)p->page_tokens : 0;
}

double page_size_hit_ratio(const struct page_size *p, const struct repeats *r)
{
        return r->input_tokens > 0 ? (double)p->hit_tokens / (double)r->input_tokens : 0;
}

static void add_request(const struct sim_trace *t, const struct sim_request *r, uint64_t block_hit,
        uint64_t text_hit, struct page_size *p)
{
        uint64_t text = (uint64_t)r->input_tokens + r->output_tokens;
        uint64_t pages = round_up_u64(text, p->tokens);
        uint64_t hit = p->tokens < t->block_tokens ? text_hit : block_hit;

        p->page_tokens += pages;
        p->wasted_tokens += pages - text;
        p->hit_tokens += hit == r->input_tokens ? hit : hit / p->tokens * p->tokens;
}

static void measure_hits(const struct sim_trace *t, const uint32_t *continued, bool *seen,
        uint64_t *texts, struct page_sizes *ret)
{
        for (uint32_t i = 0; i < t->n_requests; i++) {
                const struct sim_request *r = &t->requests[i];
                uint32_t known = known_blocks(t, r, seen);
                uint64_t block_hit =
                        MIN((uint64_t)known * t->block_tokens, (uint64_t)r->input_tokens);
                uint64_t text_hit = block_hit;

                if (continued[i] != UINT32_MAX)
                        text_hit = MAX(block_hit,
                                MIN((uint64_t)r->input_tokens,
                                        (uint64_t)t->requests[continued[i]].input_tokens));
                for (uint32_t j = known; j < r->n_blocks; j++)
                        seen[t->blocks[r->first + j]] = true;
                for (unsigned s = 0; s < PAGE_SIZES; s++)
                        add_request(t, r, block_hit, text_hit, &ret->sizes[s]);
                texts[i] = (uint64_t)r->input_tokens + r->output_tokens;
        }
}

static bool is_good(const struct page_sizes *all, const struct page_size *p, uint64_t input_tokens)
{
        uint64_t lost = all->sizes[0].hit_tokens - MIN(p->hit_tokens, all->sizes[0].hit_tokens);

        if (p->tokens >= LARGE_TOKENS && all->long_tokens < (uint64_t)p->tokens * LARGE_PAGES_MIN)
                return false;
        return page_size_waste(p) <= WASTE_MAX &&
               (double)lost <= HIT_LOSS_MAX * (double)input_tokens;
}

static void advise(const struct sim_trace *t, struct page_sizes *ret)
{
        uint64_t input_tokens = 0;

        for (uint32_t i = 0; i < t->n_requests; i++)
                input_tokens += t->requests[i].input_tokens;
        ret->advised = 0;
        for (unsigned s = 1; s < PAGE_SIZES; s++)
                if (is_good(ret, &ret->sizes[s], input_tokens))
                        ret->advised = s;
}

int analyze_page_sizes(const struct sim_trace *t, struct page_sizes *ret)
{
        _cleanup_free_ uint32_t *continued = find_sessions(t);
        _cleanup_free_ bool *seen = calloc(MAX(t->n_unique, 1u), sizeof(*seen));
        _cleanup_free_ uint64_t *texts = calloc(MAX(t->n_requests, 1u), sizeof(*texts));
        struct dist lengths;

        if (!continued || !seen || !texts)
                return -ENOMEM;
        *ret = (struct page_sizes){0};
        for (unsigned s = 0; s < PAGE_SIZES; s++)
                ret->sizes[s] = (struct page_size){
                        .tokens = 16u << s, .estimated = 16u << s < t->block_tokens};
        measure_hits(t, continued, seen, texts, ret);
        dist_of(texts, t->n_requests, &lengths);
        ret->long_tokens = dist_quantile(texts, t->n_requests, 0.25);
        advise(t, ret);
        return 0;
}
