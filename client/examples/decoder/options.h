/* Command line of the decoder. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/examples/decoder/model.h"

struct options {
        struct model_shape shape;
        uint32_t page_tokens;
        uint32_t max_prompt; /* tokens; longer prompts are cut */
        uint32_t n_generate;
        uint64_t sample;               /* seed; 0: the likeliest token each time */
        uint32_t device_pages;         /* most of a prompt; 0: all */
        uint32_t n_deep, n_deep_pages; /* deep layers, and the pages they keep; 0: none */
        uint64_t deep_bytes;           /* source of n_deep_pages; 0: given directly */
        uint32_t wait_msec;            /* for pages of other workers; 0: no wait */
        uint32_t delay_msec;           /* after each page, for tests that kill it */
        bool plane_per_tensor, use_daemon, json, verbose, publish_generated;
        const char *socket, *ns_name, *device, *kernels; /* all strings point into argv */
        const char **prefixes;                           /* files put before each prompt */
        uint32_t n_prefixes;
        char **files;
        uint32_t n_files;
};

/* Reads the command line. Returns 0: *ret_options, prefixes owned (free()). 1: done (--help,
 * --version). Negative: wrong, reported on stderr. */
int options_parse(int argc, char **argv, struct options *ret_options);
