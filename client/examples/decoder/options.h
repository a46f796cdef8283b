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
        uint32_t device_pages;         /* of a prompt, at most; 0: all */
        uint32_t n_deep, n_deep_pages; /* layers that keep so many pages of a prompt; 0: none */
        uint64_t deep_bytes;           /* that n_deep_pages was made of; 0: it was given itself */
        uint32_t wait_msec;            /* for pages of others; 0: not */
        uint32_t delay_msec;           /* after each page, to be killed in time */
        bool plane_per_tensor, use_daemon, json, verbose, publish_generated;
        const char *socket, *ns_name, *device, *kernels; /* all strings point into argv */
        const char **prefixes;                           /* files put before each prompt */
        uint32_t n_prefixes;
        char **files;
        uint32_t n_files;
};

/*
 * Reads the command line. 0: *ret_options, prefixes owned (free()). 1: done (--help, --version).
 * Negative: wrong, and said so on stderr.
 */
int options_parse(int argc, char **argv, struct options *ret_options);
