#include "daemon/core/index.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

int index_init(struct index *ix, uint32_t capacity)
{
        struct index fresh = {.n_slots = 2, .seed = hash_seed_random()};

        assert(capacity > 0 && capacity <= INDEX_MAX_PAGES);

        while (fresh.n_slots / 2 < capacity)
                fresh.n_slots *= 2;
        fresh.slots = calloc(fresh.n_slots, sizeof(*fresh.slots));
        if (!fresh.slots)
                return -ENOMEM;
        *ix = fresh;
        return 0;
}

void index_deinit(struct index *ix)
{
        free(ix->slots);
        *ix = (struct index){0};
}

static uint32_t tag_of(const struct index *ix, const uint8_t key[KEY_BYTES])
{
        return (uint32_t)hash_bytes(ix->seed, key, KEY_BYTES);
}

uint32_t index_find(const struct index *ix, const uint8_t key[KEY_BYTES], index_match_fn match,
        const void *pages)
{
        uint32_t tag = tag_of(ix, key), mask = ix->n_slots - 1;

        /* Ends: at most half of the slots are used. */
        for (uint32_t i = tag & mask; ix->slots[i].page_one; i = (i + 1) & mask)
                if (ix->slots[i].tag == tag && match(pages, ix->slots[i].page_one - 1, key))
                        return ix->slots[i].page_one - 1;
        return PAGE_NONE;
}

void index_insert(struct index *ix, const uint8_t key[KEY_BYTES], uint32_t page)
{
        uint32_t tag = tag_of(ix, key), mask = ix->n_slots - 1, i = tag & mask;

        assert(page != PAGE_NONE && ix->n_used < ix->n_slots / 2);

        while (ix->slots[i].page_one)
                i = (i + 1) & mask;
        ix->slots[i] = (struct index_slot){.tag = tag, .page_one = page + 1};
        ix->n_used++;
}

/* The slot with the pair, or the empty one that ends the search. */
static uint32_t slot_of(const struct index *ix, const uint8_t key[KEY_BYTES], uint32_t page)
{
        uint32_t tag = tag_of(ix, key), mask = ix->n_slots - 1, i = tag & mask;

        while (ix->slots[i].page_one &&
                (ix->slots[i].tag != tag || ix->slots[i].page_one != page + 1))
                i = (i + 1) & mask;
        return i;
}

bool index_has(const struct index *ix, const uint8_t key[KEY_BYTES], uint32_t page)
{
        return ix->slots[slot_of(ix, key, page)].page_one != 0;
}

void index_remove(struct index *ix, const uint8_t key[KEY_BYTES], uint32_t page)
{
        uint32_t mask = ix->n_slots - 1, hole = slot_of(ix, key, page);

        assert(ix->slots[hole].page_one);

        /* Moves back every follower that the hole would cut off from its home slot. */
        for (uint32_t i = (hole + 1) & mask; ix->slots[i].page_one; i = (i + 1) & mask) {
                uint32_t home = ix->slots[i].tag & mask;

                if (((i - home) & mask) < ((i - hole) & mask))
                        continue;
                ix->slots[hole] = ix->slots[i];
                hole = i;
        }
        ix->slots[hole] = (struct index_slot){0};
        ix->n_used--;
}
