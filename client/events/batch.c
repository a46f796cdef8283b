#include "client/events/batch.h"

#include <errno.h>
#include <string.h>

#include "base/macros.h"
#include "client/lib/kvlease.h"

/* vLLM's names of the tiers, which Dynamo and llm-d compare. */
static const char *const media[KVL_TIERS] = {
        [KVL_TIER_DEVICE] = "GPU", [KVL_TIER_HOST] = "CPU", [KVL_TIER_DISK] = "STORAGE"};

/* The head: an array of 3, a double, an array of up to 2^32 - 1. */
#define HEAD_MAX (1 + 9 + 5)

void batch_init(struct batch *b, int group)
{
        *b = (struct batch){.group = group};
        pack_bytes(&b->bytes, (uint8_t[HEAD_MAX]){0}, HEAD_MAX);
}

void batch_deinit(struct batch *b)
{
        pack_deinit(&b->bytes);
}

static void begin_event(struct batch *b, const char *type, uint8_t n_fields)
{
        b->n_events++;
        pack_map(&b->bytes, 1 + n_fields);
        pack_text(&b->bytes, "type");
        pack_text(&b->bytes, type);
}

static void add_text(struct pack *p, const char *name, const char *value)
{
        pack_text(p, name);
        if (value)
                pack_text(p, value);
        else
                pack_nil(p);
}

static void add_hashes(struct pack *p, const struct batch_blocks *blocks)
{
        pack_text(p, "block_hashes");
        pack_array(p, blocks->n_blocks);
        for (uint32_t i = 0; i < blocks->n_blocks; i++)
                pack_uint(p, blocks->hashes[i]);
}

static void add_tokens(struct pack *p, const struct batch_blocks *blocks)
{
        uint32_t n = blocks->n_blocks * blocks->block_tokens;

        pack_text(p, "token_ids");
        pack_array(p, n);
        for (uint32_t i = 0; i < n; i++)
                pack_uint(p, blocks->token_ids[i]);
        pack_text(p, "block_size");
        pack_uint(p, blocks->block_tokens);
}

/* vLLM's extra keys of each block: the LoRA adapter, and of a text's first block the salt. */
static void add_extra_keys(struct pack *p, const struct batch_blocks *blocks)
{
        pack_text(p, "extra_keys");
        pack_array(p, blocks->n_blocks);
        for (uint32_t i = 0; i < blocks->n_blocks; i++) {
                bool is_salted = blocks->cache_salt && !blocks->parent && i == 0;

                if (!blocks->lora_name && !is_salted) {
                        pack_nil(p);
                        continue;
                }
                pack_array(p, (blocks->lora_name ? 1 : 0) + (is_salted ? 1 : 0));
                if (blocks->lora_name)
                        pack_text(p, blocks->lora_name);
                if (is_salted)
                        pack_text(p, blocks->cache_salt);
        }
}

static void add_group(struct batch *b)
{
        if (b->group < 0)
                return;
        pack_text(&b->bytes, "group_idx");
        pack_uint(&b->bytes, (uint64_t)b->group);
}

void batch_stored(struct batch *b, const struct batch_blocks *blocks)
{
        struct pack *p = &b->bytes;

        bool has_names = blocks->lora_name || blocks->cache_salt;

        begin_event(b, "BlockStored",
                (uint8_t)(7 + has_names + (b->group < 0 ? 0 : 2) + (blocks->cache_salt ? 1 : 0)));
        add_hashes(p, blocks);
        pack_text(p, "parent_block_hash");
        if (blocks->parent)
                pack_uint(p, *blocks->parent);
        else
                pack_nil(p);
        add_tokens(p, blocks);
        add_text(p, "lora_id", NULL); /* a number of one engine: lora_name says the same */
        add_text(p, "medium", media[blocks->tier]);
        add_text(p, "lora_name", blocks->lora_name);
        if (has_names)
                add_extra_keys(p, blocks);
        add_group(b);
        /* Only pages that are found behind all pages before them are told. */
        if (b->group >= 0)
                add_text(p, "kv_cache_spec_kind", "full_attention");
        if (blocks->cache_salt)
                add_text(p, "cache_salt", blocks->cache_salt);
}

void batch_removed(struct batch *b, const struct batch_blocks *blocks)
{
        begin_event(b, "BlockRemoved", b->group < 0 ? 2 : 3);
        add_hashes(&b->bytes, blocks);
        add_text(&b->bytes, "medium", media[blocks->tier]);
        add_group(b);
}

void batch_cleared(struct batch *b)
{
        begin_event(b, "AllBlocksCleared", 0);
}

int batch_end(
        struct batch *b, double seconds, void **ret_memory, uint8_t **ret_data, size_t *ret_len)
{
        struct pack head = {0};
        struct pack *p = &b->bytes;
        int r = -ENOMEM;

        pack_array(&head, 3);
        pack_double(&head, seconds);
        pack_array(&head, b->n_events);
        pack_uint(p, 0);
        if (!head.failed && !p->failed) {
                *ret_data = p->data + HEAD_MAX - head.len;
                *ret_len = p->len - HEAD_MAX + head.len;
                memcpy(*ret_data, head.data, head.len);
                *ret_memory = TAKE(p->data);
                r = 0;
        }
        pack_deinit(&head);
        batch_deinit(b);
        batch_init(b, b->group);
        return r;
}
