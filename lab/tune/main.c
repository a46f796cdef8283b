/*
 * kvlease-tune: finds the pages and codecs that each layer of the trained decoder needs, by a text.
 * Shows the cost of that beside other ways to keep fewer bytes. Learns from the beginning of the
 * text, and measures what follows.
 */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/examples/decoder/trained.h"
#include "lab/tune/curves.h"
#include "lab/tune/weights.h"

#define TEXT_MAX (UINT32_C(1) << 20)

#define COPY_PART  4  /* copies are at most one in so many bytes of a document */
#define COPY_BEGIN 16 /* it stands first behind such a part of the document */

enum exit_status { DONE = 0, FAILED = 1, WRONG_USAGE = 2, NOT_WITHIN = 3 };

struct options {
        double bytes;    /* percent; NAN: max_loss decides */
        double max_loss; /* percent of perplexity; NAN: `bytes` decides */
        uint32_t page_tokens, document, learn, measure;
        uint32_t copies; /* bytes; 0: none */
        bool with_codecs, curves;
        const char *weights, *svg, *file; /* weights NULL: those that are built in */
};

static const char help[] =
        "Usage: kvlease-tune [OPTION]... FILE\n"
        "Finds which share of its pages each layer of the trained decoder keeps, and in which\n"
        "codec, by the beginning of FILE, and measures that on what follows.\n\n"
        "  --bytes=PERCENT     as little loss as there can be in so many of all bytes (default: 50)\n"
        "  --max-loss=PERCENT  as few bytes as there can be for so much more perplexity\n"
        "  --no-codecs         keep pages as they are\n"
        "  --learn=N           learn from the first N bytes (default: 2048)\n"
        "  --measure=N         measure N bytes behind them (default: 4096)\n"
        "  --document=N        each N bytes of FILE are a document of their own (default: 512)\n"
        "  --page-tokens=N     tokens in a page (default: 16)\n"
        "  --copies=N          in each document N bytes are random, and stand at its end once more\n"
        "  --weights=FILE      of the decoder, as train.py writes them (default: built in)\n"
        "  --curves            a table of all ways to keep 75, 50, 35 and 25 % of the bytes\n"
        "  --svg=FILE          with --curves: a picture, too\n"
        "  --help              this text\n\n"
        "Exit status: 0 done, 1 failed, 2 wrong command line, 3 nothing is so small, or what was\n"
        "measured lost more than --max-loss.\n";

enum option_id {
        BYTES = 1,
        MAX_LOSS,
        NO_CODECS,
        LEARN,
        MEASURE,
        DOCUMENT,
        PAGE_TOKENS,
        COPIES,
        WEIGHTS,
        CURVES,
        SVG,
        HELP
};

static const struct option long_options[] = {
        {"bytes", required_argument, NULL, BYTES},
        {"max-loss", required_argument, NULL, MAX_LOSS},
        {"no-codecs", no_argument, NULL, NO_CODECS},
        {"learn", required_argument, NULL, LEARN},
        {"measure", required_argument, NULL, MEASURE},
        {"document", required_argument, NULL, DOCUMENT},
        {"page-tokens", required_argument, NULL, PAGE_TOKENS},
        {"copies", required_argument, NULL, COPIES},
        {"weights", required_argument, NULL, WEIGHTS},
        {"curves", no_argument, NULL, CURVES},
        {"svg", required_argument, NULL, SVG},
        {"help", no_argument, NULL, HELP},
        {},
};

static bool parse_number(const char *name, double min, double max, double *ret)
{
        char *end;
        double value = strtod(optarg, &end);

        if (end != optarg && !*end && value >= min && value <= max) {
                *ret = value;
                return true;
        }
        fprintf(stderr, "kvlease-tune: --%s: \"%s\" is not a number from %g to %g\n", name, optarg,
                min, max);
        return false;
}

static bool parse_count(const char *name, uint32_t min, uint32_t max, uint32_t *ret)
{
        double value;

        if (!parse_number(name, min, max, &value))
                return false;
        *ret = (uint32_t)value;
        return true;
}

static bool apply(int id, struct options *o)
{
        switch ((enum option_id)id) {
        case BYTES:
                return parse_number("bytes", 1, 100, &o->bytes);
        case MAX_LOSS:
                return parse_number("max-loss", 0, 1000, &o->max_loss);
        case NO_CODECS:
                o->with_codecs = false;
                return true;
        case LEARN:
                return parse_count("learn", 128, TEXT_MAX, &o->learn);
        case MEASURE:
                return parse_count("measure", 128, TEXT_MAX, &o->measure);
        case DOCUMENT:
                return parse_count("document", 128, TEXT_MAX, &o->document);
        case PAGE_TOKENS:
                return parse_count("page-tokens", 8, 1024, &o->page_tokens);
        case COPIES:
                return parse_count("copies", 2 * TEXT_COPY_CONTEXT, TEXT_MAX, &o->copies);
        case WEIGHTS:
                o->weights = optarg;
                return true;
        case CURVES:
                return o->curves = true;
        case SVG:
                o->svg = optarg;
                return true;
        case HELP:
                fputs(help, stdout);
                exit(DONE);
        }
        return false; /* getopt has said why */
}

static bool parse(int argc, char **argv, struct options *ret)
{
        struct options o = {.bytes = NAN,
                .max_loss = NAN,
                .page_tokens = 16,
                .document = 512,
                .learn = 2048,
                .measure = 4096,
                .with_codecs = true};
        int c;

        while ((c = getopt_long(argc, argv, "", long_options, NULL)) != -1)
                if (!apply(c, &o))
                        return false;
        if (optind != argc - 1) {
                fprintf(stderr, "kvlease-tune: one FILE is wanted; try --help\n");
                return false;
        }
        if (o.svg && !o.curves) {
                fprintf(stderr, "kvlease-tune: --svg is of --curves\n");
                return false;
        }
        if (!isnan(o.bytes) && !isnan(o.max_loss)) {
                fprintf(stderr, "kvlease-tune: --bytes or --max-loss, not both\n");
                return false;
        }
        if (o.copies > o.document / COPY_PART) {
                fprintf(stderr,
                        "kvlease-tune: --copies: %u bytes of documents of %u: a quarter at most\n",
                        o.copies, o.document);
                return false;
        }
        if (isnan(o.bytes) && isnan(o.max_loss))
                o.bytes = 50;
        o.file = argv[optind];
        *ret = o;
        return true;
}

/* ---- text ------------------------------------------------------------------------------------ */

/* *ret_n: bytes read, at most n_max. */
static bool read_file(const char *path, unsigned char *ret, uint32_t n_max, uint32_t *ret_n)
{
        FILE *file = fopen(path, "re");
        bool failed;

        if (!file) {
                fprintf(stderr, "kvlease-tune: %s: %s\n", path, strerror(errno));
                return false;
        }
        *ret_n = (uint32_t)fread(ret, 1, n_max, file);
        failed = ferror(file);
        if (failed)
                fprintf(stderr, "kvlease-tune: %s: %s\n", path, strerror(errno));
        fclose(file);
        return !failed;
}

/* Printable, and nothing that a model could know. */
static void fill_randomly(unsigned char *bytes, uint32_t n, uint64_t *state)
{
        for (uint32_t i = 0; i < n; i++) {
                /* Knuth, The Art of Computer Programming 2, 3.3.4 */
                *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
                bytes[i] = (unsigned char)('!' + (*state >> 33) % ('z' - '!' + 1));
        }
}

/* In whole documents. */
static void put_copies(const struct options *o, unsigned char *bytes, uint32_t n)
{
        uint64_t state = 26;

        for (uint32_t at = 0; o->copies > 0 && at + o->document <= n; at += o->document) {
                unsigned char *first = bytes + at + o->document / COPY_BEGIN;

                fill_randomly(first, o->copies, &state);
                memcpy(bytes + at + o->document - o->copies, first, o->copies);
        }
}

static bool use_weights(const char *path)
{
        int r = path ? weights_read(path) : 0;
        struct model_shape shape;
        const char *why;

        if (r == 0) {
                trained_shape(&shape);
                why = shape.n_layers > PLAN_LAYERS_MAX ? "more than 64 layers"
                                                       : model_shape_error(&shape);
                if (!why)
                        return true;
        } else {
                why = r == -EINVAL ? "these are no weights of the decoder, or not all of them"
                                   : strerror(-r);
        }
        fprintf(stderr, "kvlease-tune: %s: %s\n", path, why);
        return false;
}

static void say_progress(uint32_t n_done, uint32_t n_all)
{
        fprintf(stderr, "%u of %u\n", n_done, n_all);
}

static enum exit_status fail(int r)
{
        fprintf(stderr, "kvlease-tune: %s\n",
                r == -EDOM     ? "a page has a number that a codec can't encode"
                : r == -ENOENT ? "no plan takes so few bytes"
                               : strerror(-r));
        return r == -ENOENT ? NOT_WITHIN : FAILED;
}

/* ---- what is asked for ----------------------------------------------------------------------- */

static enum exit_status show_curves(
        const struct options *o, const struct search *search, const struct text *text)
{
        struct curves curves;
        FILE *file;
        int r = curves_measure(search, text, say_progress, &curves);

        if (r)
                return fail(r);
        curves_print_table(&curves, stdout);
        if (!o->svg)
                return DONE;
        file = fopen(o->svg, "we");
        if (file)
                curves_draw(&curves, file);
        if (file && fclose(file) == 0)
                return DONE;
        fprintf(stderr, "kvlease-tune: %s: %s\n", o->svg, strerror(errno));
        return FAILED;
}

static void print_layers(const struct search *s)
{
        for (uint32_t i = 0; i < s->shape.n_layers; i++)
                printf("layer %u: attention is spread over %.1f pages; half of its pages cost %+.3f %%, int4 costs %+.3f %%\n",
                        i, exp(s->exact.entropy[i]), 100 * expm1(s->share_loss[i][SEARCH_HALF]),
                        100 * expm1(s->codec_loss[i][CODEC_INT4]));
}

/* Reads the text under the plan, against everything kept. */
static int measure_plan(const struct search *s, const struct text *text, const struct plan *plan,
        struct reading *ret)
{
        const struct plan everything = plan_everything(s->shape.n_layers);
        struct byte_reading *bytes = calloc(text->n_bytes, sizeof(*bytes));
        struct text known = *text;
        int r = -ENOMEM;

        if (bytes)
                r = reading_measure(text, s->page_tokens, &everything, ret, bytes);
        known.reference = bytes;
        if (!r)
                r = reading_measure(&known, s->page_tokens, plan, ret, NULL);
        free(bytes);
        return r;
}

static enum exit_status show_plan(
        const struct options *o, const struct search *search, const struct text *text)
{
        char printed[PLAN_TEXT_MAX];
        struct reading reading;
        double expected;
        struct plan plan;
        bool found;
        int r;

        if (isnan(o->max_loss))
                found = search_by_bytes(search, o->with_codecs, o->bytes / 100, &plan, &expected);
        else
                found = search_by_loss(
                        search, o->with_codecs, log1p(o->max_loss / 100), &plan, &expected);
        if (!found)
                return fail(-ENOENT);
        r = measure_plan(search, text, &plan, &reading);
        if (r)
                return fail(r);
        print_layers(search);
        plan_print(&plan, printed);
        printf("plan %s\ntakes %.1f %% of the bytes; perplexity: at most %+.2f %% expected, %+.2f ± %.2f %% measured\n",
                printed, 100 * plan_part(&plan, &search->shape, search->page_tokens),
                100 * expm1(expected), 100 * expm1(reading.lost),
                100 * reading.lost_error * exp(reading.lost));
        return isnan(o->max_loss) || 100 * expm1(reading.lost) <= o->max_loss ? DONE : NOT_WITHIN;
}

int main(int argc, char **argv)
{
        static unsigned char bytes[2 * TEXT_MAX];
        static bool is_copy[TEXT_MAX];
        struct text learnt, measured;
        struct search search;
        struct options o;
        uint32_t n;
        int r;

        if (!parse(argc, argv, &o))
                return WRONG_USAGE;
        if (!use_weights(o.weights) || !read_file(o.file, bytes, o.learn + o.measure, &n))
                return FAILED;
        if (n <= o.learn + o.page_tokens) {
                fprintf(stderr,
                        "kvlease-tune: %s has %u bytes: too few to learn from %u and measure a page; see --learn\n",
                        o.file, n, o.learn);
                return FAILED;
        }
        learnt = (struct text){.bytes = bytes, .n_bytes = o.learn, .document_bytes = o.document};
        measured = (struct text){.bytes = bytes + o.learn,
                .n_bytes = n - o.learn,
                .document_bytes = o.document,
                .is_copy = is_copy};
        put_copies(&o, bytes, o.learn);
        put_copies(&o, bytes + o.learn, n - o.learn);
        text_find_copies(&measured, is_copy);
        r = search_learn(&learnt, o.page_tokens, say_progress, &search);
        if (r)
                return fail(r);
        return (o.curves ? show_curves : show_plan)(&o, &search, &measured);
}
