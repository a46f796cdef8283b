/*
 * A batch of vLLM's KV events, encoded as vLLM 0.33 publishes it:
 *
 *   [seconds since 1970, [event...], data-parallel rank 0]
 *
 * An event is a map. Field names and their order are vLLM's (vllm/distributed/kv_events.py). One
 * field is SGLang's, the last one: cache_salt. vLLM has the salt in extra_keys alone, where Dynamo
 * doesn't look for it. Not thread-safe.
 */
#ifndef KVL_EVENTS_BATCH_H
#define KVL_EVENTS_BATCH_H

#include <stdint.h>

#include "client/events/pack.h"

/* Blocks that follow each other, of block_tokens tokens each, in one tier. */
struct batch_blocks {
        const uint64_t *hashes;
        uint32_t n_blocks, block_tokens;
        const uint64_t *parent;    /* hash of the block before the first; NULL: it begins a text */
        const uint32_t *token_ids; /* n_blocks * block_tokens */
        unsigned tier;             /* enum kvl_tier */
        const char *lora_name, *cache_salt; /* of the text; NULL: none */
};

struct batch {
        struct pack bytes; /* room for the head, then the events */
        uint32_t n_events;
        int group; /* group_idx of all events; -1: they have none */
};

void batch_init(struct batch *b, int group);
void batch_deinit(struct batch *b);

/* Append an event. */
void batch_stored(struct batch *b, const struct batch_blocks *blocks);
void batch_removed(struct batch *b, const struct batch_blocks *blocks); /* hashes and tier alone */
void batch_cleared(struct batch *b);

/* Ends the batch, and empties it for the next one. Returns 0: *ret_memory is owned (free()), and
 * the batch is the *ret_len bytes at *ret_data in it. -ENOMEM: also if an event was lost. */
int batch_end(
        struct batch *b, double seconds, void **ret_memory, uint8_t **ret_data, size_t *ret_len);

#endif
