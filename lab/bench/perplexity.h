/*
 * Cost of a codec in a model's predictions. The trained decoder reads a text whose K and V go
 * through the codec as soon as a page is full. Tokens see earlier pages as the codec gives them
 * back, and their own page as it was computed.
 */
#ifndef KVL_TESTS_PERPLEXITY_H
#define KVL_TESTS_PERPLEXITY_H

#include <stddef.h>
#include <stdint.h>

#include "base/codec/codec.h"

struct perplexity_options {
        const unsigned char *text; /* borrowed */
        uint32_t n_bytes;          /* 1.. */
        uint32_t page_tokens;      /* 1.. */
        enum codec codec;
        uint32_t first_layer; /* layers before this one stay exact */
};

/*
 * The mean over all bytes of -ln(the model's probability), each with all earlier bytes in sight; e
 * to that is a byte's perplexity. Returns 0; -ENOMEM; -EDOM: a page can't be encoded
 * (codec_encode()). Blocks while the model computes. Any thread.
 */
int perplexity_measure(const struct perplexity_options *options, double *ret_nats);

#endif
