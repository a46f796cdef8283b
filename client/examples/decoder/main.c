/*
 * decoder: an inference worker whose K and V live in kvleased's pages. For each prompt it reuses
 * cached pages, computes and publishes the rest page by page, and generates. Its digest covers
 * every bit of the logits. It must not depend on the reused pages, on the layout of pages, or on
 * the daemon.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kvlease.h>

#include "client/examples/decoder/fast-exp.h"
#include "client/examples/decoder/options.h"
#include "client/examples/decoder/pages.h"

/* --sample: factor of logits, so that a small model prefers words it knows. Not tuned. */
#define SHARPNESS 1.5f

enum exit_status { DONE = 0, FAILED = 1, WRONG_USAGE = 2, NO_ROOM = 3, NO_CONNECTION = 4 };

struct prompt {
        const char *file;
        uint32_t *tokens; /* with room for generated ones */
        uint32_t n_tokens;
        uint32_t n_whole; /* before the cut */
};

struct worker {
        const struct options *options;
        struct model *model;
        struct pages *pages;
        float logits[MODEL_VOCAB];
        uint64_t digest, random;
        uint32_t reused_tokens;
        double prefill_msec;
};

static double now_msec(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Reports what failed, and why; the exit status tells the kind of failure. */
static enum exit_status fail(const char *what, int r)
{
        fprintf(stderr, "decoder: %s: %s\n", what, r == -ENOMEM ? "out of memory" : pages_error());
        switch (r) {
        case KVL_QUOTA:
        case KVL_RESERVATION:
        case KVL_FULL:
        case KVL_DRAINING:
                return NO_ROOM;
        case -ENOTCONN:
        case -EPIPE:
        case -ECONNRESET:
        case -ETIMEDOUT:
                return NO_CONNECTION;
        default:
                return FAILED;
        }
}

/* ---- prompts --------------------------------------------------------------------------------- */

/* Appends the bytes of a file, up to n_max tokens in all; n_whole also counts the rest. */
static int read_file(const char *path, uint32_t n_max, struct prompt *prompt)
{
        FILE *file = fopen(path, "re");
        int c, r = -errno;

        if (!file) {
                fprintf(stderr, "decoder: %s: %s\n", path, strerror(-r));
                return r;
        }
        r = 0;
        while ((c = getc(file)) != EOF) {
                if (prompt->n_tokens < n_max)
                        prompt->tokens[prompt->n_tokens++] = (uint32_t)c;
                prompt->n_whole++;
        }
        if (ferror(file)) {
                fprintf(stderr, "decoder: %s: %s\n", path, strerror(errno));
                r = -EIO;
        }
        fclose(file);
        return r;
}

static int read_prompt(const struct options *o, const char *path, struct prompt *ret)
{
        struct prompt prompt = {.file = path, .n_tokens = 1, .n_whole = 1};
        int r = 0;

        prompt.tokens = malloc(((size_t)o->max_prompt + o->n_generate) * sizeof(*prompt.tokens));
        if (!prompt.tokens) {
                fprintf(stderr, "decoder: %s: out of memory\n", path);
                return -ENOMEM;
        }
        prompt.tokens[0] = MODEL_BOS;
        for (uint32_t i = 0; !r && i < o->n_prefixes; i++)
                r = read_file(o->prefixes[i], o->max_prompt, &prompt);
        if (!r)
                r = read_file(path, o->max_prompt, &prompt);
        if (r) {
                free(prompt.tokens);
                return r;
        }
        *ret = prompt;
        return 0;
}

/* ---- output ---------------------------------------------------------------------------------- */

static void print_escaped(const char *text)
{
        putchar('"');
        for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
                if (*p < 0x20 || *p == '"' || *p == '\\')
                        printf("\\u%04x", *p);
                else
                        putchar(*p);
        }
        putchar('"');
}

static void print_json(const struct worker *w, const struct prompt *prompt)
{
        const struct pages_counts *counts = pages_counts(w->pages);
        uint32_t computed = prompt->n_tokens - w->reused_tokens;

        printf("{\"file\": ");
        print_escaped(prompt->file);
        printf(", \"tokens\": %u, \"tokens_whole\": %u, \"reused\": %u, \"computed\": %u"
               ", \"pages_reused\": %u, \"pages_published\": %u, \"pages_duplicate\": %u"
               ", \"pages_given_up\": %u, \"prefill_ms\": %.3f, \"tokens_per_s\": %.0f, \"generated\": [",
                prompt->n_tokens, prompt->n_whole, w->reused_tokens, computed, counts->reused,
                counts->published, counts->duplicates, counts->given_up, w->prefill_msec,
                computed / w->prefill_msec * 1e3);
        for (uint32_t i = 0; i < w->options->n_generate; i++)
                printf("%s%u", i ? ", " : "", prompt->tokens[prompt->n_tokens + i]);
        printf("], \"device\": \"%s\", \"logits\": \"%016" PRIx64 "\"}\n", pages_device(w->pages),
                w->digest);
}

static void print_text(const struct worker *w, const struct prompt *prompt)
{
        uint32_t computed = prompt->n_tokens - w->reused_tokens;

        printf("%s: %u tokens", prompt->file, prompt->n_tokens);
        if (prompt->n_tokens < prompt->n_whole)
                printf(" (cut from %u)", prompt->n_whole);
        printf(", %u reused, %u computed in %.1f ms (%.0f tokens/s)\n  generated \"",
                w->reused_tokens, computed, w->prefill_msec, computed / w->prefill_msec * 1e3);
        for (uint32_t i = 0; i < w->options->n_generate; i++) {
                uint32_t token = prompt->tokens[prompt->n_tokens + i];

                if (token == '\n')
                        printf("\n    ");
                else if (token < 0x20 || token > 0x7e || token == '"' || token == '\\')
                        printf("\\x%02x", token);
                else
                        putchar((int)token);
        }
        printf("\"\n  on %s, logits %016" PRIx64 "\n", pages_device(w->pages), w->digest);
}

/* ---- inference ------------------------------------------------------------------------------- */

static void digest_logits(struct worker *w)
{
        const unsigned char *bytes = (const unsigned char *)w->logits;

        for (size_t i = 0; i < sizeof(w->logits); i++)
                w->digest = (w->digest ^ bytes[i]) * 0x100000001b3; /* FNV-1a */
}

static void after_page(const struct worker *w, uint32_t page_no, uint32_t n_pages)
{
        if (w->options->verbose)
                fprintf(stderr, "page %u of %u is done\n", page_no + 1, n_pages);
        if (w->options->delay_msec > 0)
                nanosleep(&(struct timespec){.tv_sec = w->options->delay_msec / 1000,
                                  .tv_nsec = w->options->delay_msec % 1000 * 1000000L},
                        NULL);
}

/* Computes tokens [position, end) of one page, in a page of our own, and publishes it once it is
 * full. */
static int compute(struct worker *w, const uint32_t *tokens, uint32_t position, uint32_t end,
        bool publish, bool want_logits)
{
        uint32_t page_tokens = w->options->page_tokens, page_no = position / page_tokens;
        int r;

        if (page_no == pages_in_table(w->pages)) {
                r = pages_extend(w->pages);
                if (r)
                        return r;
        }
        r = model_forward(w->model, pages_kv(w->pages), tokens + position, end - position, position,
                want_logits ? w->logits : NULL);
        if (r || end % page_tokens || !publish)
                return r;
        return pages_publish(w->pages, page_no);
}

static int prefill(struct worker *w, const struct prompt *prompt)
{
        uint32_t page_tokens = w->options->page_tokens, position, end;
        uint32_t n_pages = (prompt->n_tokens + page_tokens - 1) / page_tokens;
        int r = pages_begin(w->pages, prompt->tokens, prompt->n_tokens, &w->reused_tokens);
        double began = now_msec();

        for (position = w->reused_tokens; !r && position < prompt->n_tokens; position = end) {
                end = position + page_tokens - position % page_tokens;
                if (end > prompt->n_tokens)
                        end = prompt->n_tokens;
                r = compute(w, prompt->tokens, position, end, true, end == prompt->n_tokens);
                if (!r)
                        after_page(w, position / page_tokens, n_pages);
        }
        if (r)
                return r;
        return pages_note_prefill(
                w->pages, prompt->n_tokens - w->reused_tokens, now_msec() - began);
}

static uint32_t likeliest(const float *logits)
{
        uint32_t best = 0;

        for (uint32_t i = 1; i < MODEL_VOCAB; i++)
                if (logits[i] > logits[best])
                        best = i;
        return best;
}

/* Draws a token, the same one every time: xorshift64*. Never the token that begins a sequence. */
static uint32_t sample(struct worker *w)
{
        float max = w->logits[likeliest(w->logits)], weights[MODEL_BOS], sum = 0, at;

        w->random ^= w->random >> 12;
        w->random ^= w->random << 25;
        w->random ^= w->random >> 27;
        for (uint32_t i = 0; i < MODEL_BOS; i++) {
                weights[i] = fast_exp(SHARPNESS * (w->logits[i] - max));
                sum += weights[i];
        }
        at = sum * (float)(w->random * 0x2545f4914f6cdd1d >> 40) * (1.0f / 16777216.0f);
        for (uint32_t i = 0; i < MODEL_BOS; i++) {
                at -= weights[i];
                if (at < 0)
                        return i;
        }
        return likeliest(w->logits);
}

static int generate(struct worker *w, const struct prompt *prompt)
{
        for (uint32_t i = 0; i < w->options->n_generate; i++) {
                uint32_t position = prompt->n_tokens + i;
                int r;

                prompt->tokens[position] = w->options->sample ? sample(w) : likeliest(w->logits);
                r = compute(w, prompt->tokens, position, position + 1,
                        w->options->publish_generated, true);
                if (r)
                        return r;
                digest_logits(w);
        }
        return 0;
}

static enum exit_status run_prompt(struct worker *w, const struct prompt *prompt)
{
        double start = now_msec();
        int r = prefill(w, prompt);

        if (r)
                return fail(prompt->file, r);
        w->prefill_msec = now_msec() - start;
        w->digest = 0xcbf29ce484222325;
        w->random = w->options->sample;
        digest_logits(w);
        r = generate(w, prompt);
        if (r)
                return fail(prompt->file, r);
        r = pages_end(w->pages);
        if (r)
                return fail(prompt->file, r);
        (w->options->json ? print_json : print_text)(w, prompt);
        fflush(stdout);
        return DONE;
}

/* ---- worker ---------------------------------------------------------------------------------- */

static enum exit_status worker_init(struct worker *w, const struct options *o, uint32_t max_tokens)
{
        const struct pages_options pages = {
                .shape = o->shape,
                .use_daemon = o->use_daemon,
                .plane_per_tensor = o->plane_per_tensor,
                .socket = o->socket,
                .ns_name = o->ns_name,
                .device = o->device,
                .kernels = o->kernels,
                .page_tokens = o->page_tokens,
                .device_pages = o->device_pages,
                .wait_msec = o->wait_msec,
                .n_deep = o->n_deep,
                .n_deep_pages = o->n_deep_pages,
                .max_pages = (max_tokens + o->page_tokens - 1) / o->page_tokens,
        };
        enum exit_status status;
        int r;

        *w = (struct worker){.options = o};
        w->model = model_new(&o->shape, o->page_tokens);
        if (!w->model)
                return fail("weights", -ENOMEM);
        r = pages_open(&pages, &w->pages);
        if (!r)
                return DONE;
        status = fail("opening the cache", r);
        return r == -ENOENT || r == -ECONNREFUSED || r == -EACCES ? NO_CONNECTION : status;
}

static void worker_deinit(struct worker *w)
{
        pages_close(w->pages);
        model_free(w->model);
}

static enum exit_status run(const struct options *o, struct prompt *prompts)
{
        uint32_t max_tokens = 0;
        enum exit_status status;
        struct worker w;

        for (uint32_t i = 0; i < o->n_files; i++) {
                if (read_prompt(o, o->files[i], &prompts[i]) < 0)
                        return FAILED;
                if (prompts[i].n_tokens > max_tokens)
                        max_tokens = prompts[i].n_tokens;
        }
        status = worker_init(&w, o, max_tokens + o->n_generate);
        for (uint32_t i = 0; status == DONE && i < o->n_files; i++)
                status = run_prompt(&w, &prompts[i]);
        worker_deinit(&w);
        return status;
}

int main(int argc, char **argv)
{
        enum exit_status status = FAILED;
        struct prompt *prompts;
        struct options o;
        int r = options_parse(argc, argv, &o);

        if (r)
                return r > 0 ? DONE : WRONG_USAGE;
        prompts = calloc(o.n_files, sizeof(*prompts));
        if (prompts)
                status = run(&o, prompts);
        for (uint32_t i = 0; prompts && i < o.n_files; i++)
                free(prompts[i].tokens);
        free(prompts);
        free(o.prefixes);
        return status;
}
