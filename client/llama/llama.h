/* The handle. */
#ifndef KVL_LLAMA_LLAMA_H
#define KVL_LLAMA_LLAMA_H

#include "client/lib/kvlease.h"
#include "client/llama/blob.h"
#include "client/llama/error.h"
#include "client/llama/kvlease-llama.h"
#include "client/llama/symbols.h"

#define IDENTITY_BYTES 32

struct kvl_llama {
        struct llama_functions f;
        void *library;
        struct llama_context *ctx;
        struct llama_memory_i *memory;
        const struct llama_model *model;
        int32_t scratch;
        uint32_t chunk;
        struct blob_shape shape;
        uint8_t identity[IDENTITY_BYTES];
        uint8_t root[KVL_KEY_BYTES];
        char model_name[65], device[65];
        uint8_t salt[64];
        size_t salt_bytes;
        struct kvl_ns *rows, *state; /* NULL: the model has none, or the handle isn't attached */
        size_t page_bytes;           /* of the larger of a chunk's rows and a state */
        uint8_t *page, *other;       /* page_bytes each */
        uint8_t *blob;               /* of a chunk or a state */
};

/* Decodes a few tokens, and learns the shape of the model's state and the identity from them. */
int llama_probe(struct kvl_llama *l, const struct kvl_llama_options *options);

#endif
