/*
 * The decoder reads a text under a plan, and its expectation of each byte is measured. When a page
 * is full, each layer encodes it with its codec, and gives up the pages that exceed its plan. So
 * bytes grow with the text, and are the plan's share of it from the first page to the last. Tokens
 * see their own page as computed, and full pages as the codec decodes them. They see nothing of
 * pages that were given up. Attention over the kept pages is exact, at their original positions.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lab/tune/plan.h"

struct byte_reading {
        float nats;         /* -ln(probability that the model gave the byte) */
        uint16_t likeliest; /* the byte that the model found likeliest here */
};

struct text {
        const unsigned char *bytes; /* borrowed */
        uint32_t n_bytes;           /* 1.. */
        /* Length of a document, which is read without what was before; 0: the text is one document.
         */
        uint32_t document_bytes;
        /* Results for each byte with everything kept. Borrowed; NULL: unknown. */
        const struct byte_reading *reference;
        /* Bytes that continue an exact copy: text_find_copies(). Borrowed; NULL: unknown. */
        const bool *is_copy;
};

struct reading {
        /* Mean of byte_reading.nats: the perplexity of a byte is e to that. */
        double nats;
        /*
         * Against text.reference, or if that is NULL against this reading itself. lost: mean of the
         * nats a byte more than there. lost_error: its standard error, from the differences between
         * bytes. agreed: share of bytes with the same likeliest byte.
         */
        double lost, lost_error, agreed;
        /* Number of bytes in exact copies, and the share of them that was found likeliest. */
        uint32_t n_copies;
        double copied;
        /* Bytes of full pages at the ends of all documents, and their bytes with everything kept.
         */
        uint64_t bytes, whole_bytes;
        double entropy[PLAN_LAYERS_MAX]; /* scores_entropy() of each layer */
};

/* Finds bytes that continue an exact copy: TEXT_COPY_CONTEXT bytes before them occur earlier in the
 * document, followed by the same byte. ret: n_bytes values. The time is quadratic in a document's
 * bytes. */
#define TEXT_COPY_CONTEXT 16
void text_find_copies(const struct text *text, bool *ret);

/*
 * Reads the text with the trained weights (trained.h); the plan must have their layers. ret_bytes:
 * n_bytes results, or NULL. Returns 0, -ENOMEM, or -EDOM (codec_encode() can't encode a page).
 * Blocks while the model computes, some seconds of one core for 10,000 bytes. Any thread.
 */
int reading_measure(const struct text *text, uint32_t page_tokens, const struct plan *plan,
        struct reading *ret, struct byte_reading *ret_bytes);
