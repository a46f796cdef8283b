#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvlease.h>

#include "client/examples/decoder/deep.h"
#include "client/examples/decoder/gpu.h"
#include "client/examples/decoder/options.h"
#include "client/examples/decoder/pages.h"
#include "client/examples/decoder/trained.h"

enum kind { NUMBER, SEED, SIZE, FLAG, FLAG_OFF, STRING, PREFIX, PLANES, HELP, VERSION };

struct row {
        const char *name;
        enum kind kind;
        size_t offset; /* in struct options */
        uint32_t min, max;
        const char *argument, *help;
};

#define AT(field) offsetof(struct options, field)

static const struct row rows[] = {
        {"socket", STRING, AT(socket), 0, 0, "PATH",
                "the tenant's socket (default: $KVLEASE_SOCKET)"},
        {"namespace", STRING, AT(ns_name), 0, 0, "NAME", "namespace (default: decoder)"},
        {"device", STRING, AT(device), 0, 0, "NAME",
                "host or a GPU's UUID (default: the daemon's)"},
        {"kernels", STRING, AT(kernels), 0, 0, "FILE",
                "of a GPU: PTX, cubin or fatbin (default: $KVLEASE_DECODER_KERNELS, or built in)"},
        {"no-daemon", FLAG_OFF, AT(use_daemon), 0, 0, NULL, "private memory: compute everything"},
        {"planes", PLANES, AT(plane_per_tensor), 0, 0, "block|layer",
                "one plane for all layers, or one for K and V of each"},
        {"page-tokens", NUMBER, AT(page_tokens), 1, 1024, "N", "tokens in a page (default: 64)"},
        {"device-pages", NUMBER, AT(device_pages), PAGES_MIN_DEVICE, 1 << 20, "N",
                "keep N pages of a prompt on the device, the others below it (default: all)"},
        {"wait-ms", NUMBER, AT(wait_msec), 1, 600000, "MS",
                "wait so long for pages that others compute, here or on other hosts"},
        {"deep-layers", NUMBER, AT(n_deep), 1, 255, "N",
                "the last N layers give pages up that get little attention (--deep-pages)"},
        {"deep-pages", NUMBER, AT(n_deep_pages), DEEP_MIN_PAGES, DEEP_MAX_PAGES, "N",
                "pages of a prompt that deep layers keep (default: 32)"},
        {"deep-bytes", SIZE, AT(deep_bytes), 1, 0, "SIZE",
                "the same in bytes of K and V of all deep layers: 1048576, 512KiB, 64MiB, 2GiB"},
        {"prompt-prefix", PREFIX, 0, 0, 0, "FILE", "text before each prompt (may be repeated)"},
        {"max-prompt", NUMBER, AT(max_prompt), 1, 1 << 20, "N",
                "cut prompts to N tokens (default: 4096; the time grows with the square)"},
        {"generate", NUMBER, AT(n_generate), 0, 1 << 16, "N", "tokens to generate (default: 8)"},
        {"sample", SEED, AT(sample), 0, 0, "N",
                "choose tokens by chance, with that seed (default: 0, the likeliest)"},
        {"publish-generated", FLAG, AT(publish_generated), 0, 0, NULL,
                "publish pages of generated tokens, too"},
        {"json", FLAG, AT(json), 0, 0, NULL, "one JSON object a line and prompt"},
        {"verbose", FLAG, AT(verbose), 0, 0, NULL, "a line on stderr for each page"},
        {"delay-ms-per-page", NUMBER, AT(delay_msec), 0, 60000, "MS", "sleep after each page"},
        {"model-seed", SEED, AT(shape.seed), 0, 0, "N",
                "random weights of that seed (default: 0, the trained ones)"},
        {"layers", NUMBER, AT(shape.n_layers), 1, 256, "N",
                "layers (default: 4; another shape than the default has random weights)"},
        {"width", NUMBER, AT(shape.width), 8, 16384, "N", "model width (default: 128)"},
        {"heads", NUMBER, AT(shape.n_heads), 1, 1024, "N", "query heads (default: 4)"},
        {"kv-heads", NUMBER, AT(shape.n_kv_heads), 1, 1024, "N", "K and V heads (default: 2)"},
        {"ffn-width", NUMBER, AT(shape.ffn_width), 8, 65536, "N", "inner width (default: 384)"},
        {"help", HELP, 0, 0, 0, NULL, "this text"},
        {"version", VERSION, 0, 0, 0, NULL,
                "version of libkvlease, and whether kernels are built in"},
};

#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

#define DEEP_PAGES 32 /* default; not tuned */

static const struct options defaults = {
        .page_tokens = 64,
        .max_prompt = 4096,
        .n_generate = 8,
        .use_daemon = true,
        .ns_name = "decoder",
};

static void print_help(void)
{
        printf("Usage: decoder [OPTION]... FILE...\n"
               "Runs each FILE as a prompt through a small transformer, whose K and V live in pages of\n"
               "kvleased. Equal digests mean logits equal in every bit.\n\n");
        for (size_t i = 0; i < N_ROWS; i++) {
                char left[64];

                snprintf(left, sizeof(left), "--%s%s%s", rows[i].name, rows[i].argument ? "=" : "",
                        rows[i].argument ? rows[i].argument : "");
                printf("  %-26s %s\n", left, rows[i].help);
        }
        printf("\nExit status: 0 done, 1 failed, 2 wrong command line, 3 no room (limit or device),\n"
               "4 no connection to the daemon.\n");
}

static int parse_number(const struct row *row, const char *text, uint64_t max, uint64_t *ret)
{
        unsigned long long value;
        char *end;

        errno = 0;
        value = strtoull(text, &end, 0);
        if (errno || end == text || *end || text[0] == '-' || value < row->min || value > max) {
                fprintf(stderr, "decoder: --%s: \"%s\" is not a number from %u to %llu\n",
                        row->name, text, row->min, (unsigned long long)max);
                return -EINVAL;
        }
        *ret = value;
        return 0;
}

/* Parses digits followed by nothing, KiB, MiB or GiB. */
static int parse_size(const struct row *row, const char *text, uint64_t *ret)
{
        static const struct {
                const char *name;
                unsigned shift;
        } units[] = {{"", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}};
        size_t n_digits = strspn(text, "0123456789");
        unsigned long long value;

        errno = 0;
        value = strtoull(text, NULL, 10);
        for (size_t i = 0; n_digits > 0 && !errno && i < sizeof(units) / sizeof(units[0]); i++) {
                if (strcmp(text + n_digits, units[i].name) != 0)
                        continue;
                if (value < row->min || value > UINT64_MAX >> units[i].shift)
                        break;
                *ret = value << units[i].shift;
                return 0;
        }
        fprintf(stderr,
                "decoder: --%s: \"%s\" is not a size: at least 1 byte, as 1048576, 512KiB, 64MiB or 2GiB\n",
                row->name, text);
        return -EINVAL;
}

static int parse_planes(const char *text, bool *ret)
{
        if (strcmp(text, "block") != 0 && strcmp(text, "layer") != 0) {
                fprintf(stderr, "decoder: --planes: \"%s\" is neither block nor layer\n", text);
                return -EINVAL;
        }
        *ret = text[0] == 'l';
        return 0;
}

static int apply(struct options *o, const struct row *row, const char *argument)
{
        void *field = (char *)o + row->offset;
        uint64_t number;
        int r;

        switch (row->kind) {
        case NUMBER:
                r = parse_number(row, argument, row->max, &number);
                if (!r)
                        *(uint32_t *)field = (uint32_t)number;
                return r;
        case SEED:
                return parse_number(row, argument, UINT64_MAX, field);
        case SIZE:
                return parse_size(row, argument, field);
        case FLAG:
        case FLAG_OFF:
                *(bool *)field = row->kind == FLAG;
                return 0;
        case STRING:
                *(const char **)field = argument;
                return 0;
        case PREFIX:
                o->prefixes[o->n_prefixes++] = argument;
                return 0;
        case PLANES:
                return parse_planes(argument, field);
        case HELP:
                print_help();
                return 1;
        case VERSION:
                printf("decoder (libkvlease %s, %s)\n", kvl_version(),
                        gpu_has_kernels() ? "with kernels for GPUs" : "without kernels for GPUs");
                return 1;
        }
        return -EINVAL;
}

static bool is_trained_shape(struct model_shape shape)
{
        shape.seed = MODEL_TRAINED;
        return !model_shape_error(&shape);
}

/* Computes the pages of deep_bytes. A page has K and V of each deep layer, unencoded: kept pages
 * are on the device, which has no codec. */
static int count_deep_pages(struct options *o)
{
        uint64_t page_bytes = 2 * o->n_deep * pages_tensor_bytes(&o->shape, o->page_tokens);
        uint64_t n = o->deep_bytes / page_bytes;

        if (n < DEEP_MIN_PAGES || n > DEEP_MAX_PAGES) {
                fprintf(stderr,
                        "decoder: --deep-bytes: %" PRIu64 " bytes are %" PRIu64 " pages of %" PRIu64
                        " bytes in %u deep layers, which keep %u to %u: give %" PRIu64
                        " to %" PRIu64 " bytes\n",
                        o->deep_bytes, n, page_bytes, o->n_deep, DEEP_MIN_PAGES, DEEP_MAX_PAGES,
                        DEEP_MIN_PAGES * page_bytes, DEEP_MAX_PAGES * page_bytes);
                return -EINVAL;
        }
        o->n_deep_pages = (uint32_t)n;
        return 0;
}

static int check_deep(struct options *o)
{
        if (o->n_deep >= o->shape.n_layers) {
                fprintf(stderr, "decoder: --deep-layers: one layer of %u must keep everything\n",
                        o->shape.n_layers);
                return -EINVAL;
        }
        if (o->n_deep > 0 && o->device_pages > 0) {
                fprintf(stderr,
                        "decoder: --deep-layers keeps pages on the device: not with --device-pages\n");
                return -EINVAL;
        }
        if (o->deep_bytes > 0 && o->n_deep_pages > 0) {
                fprintf(stderr,
                        "decoder: --deep-bytes and --deep-pages both say how much deep layers keep: give one of them\n");
                return -EINVAL;
        }
        if (o->deep_bytes > 0 && o->n_deep == 0) {
                fprintf(stderr,
                        "decoder: --deep-bytes: no layer is deep: give --deep-layers, too\n");
                return -EINVAL;
        }
        if (o->deep_bytes > 0)
                return count_deep_pages(o);
        if (o->n_deep_pages == 0)
                o->n_deep_pages = DEEP_PAGES;
        return 0;
}

static int check(struct options *o)
{
        const char *wrong;

        if (o->shape.seed == MODEL_TRAINED && !is_trained_shape(o->shape))
                o->shape.seed = 1;
        wrong = model_shape_error(&o->shape);
        if (wrong) {
                fprintf(stderr, "decoder: %s\n", wrong);
                return -EINVAL;
        }
        if (o->device_pages > 0 && !o->use_daemon) {
                fprintf(stderr, "decoder: --device-pages: private memory has nothing below it\n");
                return -EINVAL;
        }
        if (o->device_pages > 0 && o->wait_msec > 0) {
                fprintf(stderr,
                        "decoder: --wait-ms waits for pages on the device: not with --device-pages\n");
                return -EINVAL;
        }
        if (check_deep(o))
                return -EINVAL;
        if (o->n_files == 0) {
                fprintf(stderr, "decoder: no FILE given; try --help\n");
                return -EINVAL;
        }
        return 0;
}

int options_parse(int argc, char **argv, struct options *ret_options)
{
        struct option long_options[N_ROWS + 1] = {};
        struct options o = defaults;
        int index, c, r = 0;

        for (size_t i = 0; i < N_ROWS; i++)
                long_options[i] =
                        (struct option){.name = rows[i].name, .has_arg = rows[i].argument != NULL};
        trained_shape(&o.shape);
        o.prefixes = calloc((size_t)argc + 1, sizeof(*o.prefixes));
        if (!o.prefixes)
                return -ENOMEM;
        while (!r && (c = getopt_long(argc, argv, "", long_options, &index)) != -1)
                r = c == 0 ? apply(&o, &rows[index], optarg) : -EINVAL; /* getopt has said why */
        o.files = argv + optind;
        o.n_files = (uint32_t)(argc - optind);
        if (!r)
                r = check(&o);
        if (r) {
                free(o.prefixes);
                return r;
        }
        *ret_options = o;
        return 0;
}
