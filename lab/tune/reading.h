/*
 * The decoder reads a text under a plan, and it is counted what it expected of each byte. As soon
 * as a page is full, each layer puts it through its codec, and gives up the pages that the plan
 * doesn't keep of as many: so bytes grow with the text, and are the plan's part of it from the
 * first page to the last. Tokens see their own page as it was computed, full pages as the codec
 * gives them back, and of those that were given up nothing: attention over what is kept is exact,
 * at the positions where it stood.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lab/tune/plan.h"

struct byte_reading {
        float nats;         /* -ln(what the model gave the byte that came) */
        uint16_t likeliest; /* what it found likeliest in its place */
};

struct text {
        const unsigned char *bytes; /* borrowed */
        uint32_t n_bytes;           /* 1.. */
        /* Each so many bytes are a document, read without what was before. 0: all of it is one. */
        uint32_t document_bytes;
        /* What the model made of each byte when it kept everything. NULL: that isn't known.
         * Borrowed. */
        const struct byte_reading *reference;
        /* Which bytes go on with an exact copy: text_find_copies(). NULL: that isn't known.
         * Borrowed.
         */
        const bool *is_copy;
};

struct reading {
        /* The mean over all bytes of -ln(what the model gave it): the perplexity of a byte is e to
         * that. */
        double nats;
        /*
         * Against text.reference, which where it is NULL is this reading itself: nats a byte more
         * than there, in the mean; the standard error of that, from how much it differs from byte
         * to byte; and how often the likeliest byte is still the same.
         */
        double lost, lost_error, agreed;
        /* Of the bytes of exact copies, how many there are, and which part of them was found
         * likeliest. */
        uint32_t n_copies;
        double copied;
        /* Of full pages, when a document ends, of all documents; and what they take as they are. */
        uint64_t bytes, whole_bytes;
        double entropy[PLAN_LAYERS_MAX]; /* scores_entropy() of each layer */
};

/* ret: room for n_bytes. True of a byte where the TEXT_COPY_CONTEXT bytes before it stand somewhere
 * before that in its document, followed by the same byte. Takes the square of a document's bytes.
 */
#define TEXT_COPY_CONTEXT 16
void text_find_copies(const struct text *text, bool *ret);

/*
 * Reads it with the trained weights (trained.h), whose layers the plan has. ret_bytes: NULL, or
 * room for text->n_bytes: what the model made of each. 0; -ENOMEM; -EDOM:
 * a page can't be encoded (codec_encode()). Blocks for as long as the model computes, some seconds
 * of one core for 10,000 bytes. Any thread.
 */
int reading_measure(const struct text *text, uint32_t page_tokens, const struct plan *plan,
        struct reading *ret, struct byte_reading *ret_bytes);
