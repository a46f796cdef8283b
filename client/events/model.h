/*
 * The cached pages of one namespace, and what routers have been told of them. Pure: no I/O, no
 * clock. Not thread-safe.
 *
 * A router sees blocks of block_tokens tokens in tiers. It finds a text's blocks in the fastest
 * tier, then continues in the next one, and never returns. So a page is told in the slowest tier
 * of the pages up to its own: a page on the device behind one in host memory counts as host memory.
 * With that, the blocks that a router finds are the cached ones.
 *
 * A page is told if its token ids and those of all pages before it are known, and the pages before
 * it end with whole blocks. Blocks are told after the blocks before them, and taken back before
 * these. A page that moves is told in the new tier before it is taken back in the old one.
 *
 * Blocks that several pages have are told once.
 *
 * A block's hash depends on its tokens and the ones before it, and on the text's LoRA adapter and
 * salt. It is the same after a restart, and in another namespace: routers remember the hash of a
 * block that was taken back.
 */
#ifndef KVL_EVENTS_MODEL_H
#define KVL_EVENTS_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "client/events/batch.h"
#include "client/lib/kvlease.h"

/* Tells routers: the blocks were stored in their tier, or removed from it. Borrows them. */
typedef void (*model_tell_fn)(void *data, bool is_stored, const struct batch_blocks *blocks);

struct model_stored {
        const uint8_t *key;        /* KVL_KEY_BYTES */
        const uint8_t *parent_key; /* KVL_KEY_BYTES; NULL: the page begins a text */
        const uint32_t *token_ids; /* n_tokens; NULL: unknown */
        uint32_t n_tokens;
        unsigned tier;                      /* enum kvl_tier */
        const char *lora_name, *cache_salt; /* of the text that the page begins; NULL: none */
};

struct model;

/* block_tokens: tokens of a router's block, >= 1. Returns 0: *ret is owned; -ENOMEM. */
int model_new(uint32_t block_tokens, model_tell_fn tell, void *data, struct model **ret);
void model_free(struct model *m);

/* Notes a stored page, or new facts of a known one: its tier, or token ids. A known page keeps its
 * parent and its token ids. All is borrowed. Returns 0 or -ENOMEM (nothing changed). */
int model_store(struct model *m, const struct model_stored *s);

/* Ignores a page that isn't stored. */
void model_remove(struct model *m, const uint8_t *key);

/* Forgets all pages, and tells nothing. */
void model_clear(struct model *m);

/* Tells all blocks anew to another function, each as stored. */
void model_tell_all(struct model *m, model_tell_fn tell, void *data);

/*
 * The cached tokens of a text from its beginning, as a router counts them: the fastest tier first,
 * and never back. Zeroed before the text's first block or page.
 */
struct model_found {
        uint64_t n_tokens[KVL_TIERS]; /* up to and with the tier */
        uint64_t hash;                /* of the last block */
        unsigned tier;                /* of the last block or page */
};

uint32_t model_block_tokens(const struct model *m);

/* Begins a text with these names; NULL: none. */
void model_find_text(struct model_found *f, const char *lora_name, const char *cache_salt);

/* Look for the next block of the text, which has block_tokens token ids, or for its next page. The
 * pages needn't have token ids. If it isn't cached, return false: there the text ends. */
bool model_find_block(const struct model *m, struct model_found *f, const uint32_t *token_ids);
bool model_find_page(const struct model *m, struct model_found *f, const uint8_t *key);

/* Bytes of the pages, without what malloc() needs. */
uint64_t model_bytes(const struct model *m);

#endif
