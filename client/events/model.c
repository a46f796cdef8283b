#include "client/events/model.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/macros.h"
#include "base/map.h"

/* ---- blocks that routers were told ----------------------------------------------------------- */

/*
 * The blocks that routers were told, and by how many pages in each tier. Pages have blocks in
 * common if their texts differ within a page, or if one of them is partial. A router counts a block
 * once, so it is told with the first page and removed with the last one. Not thread-safe.
 */

/* A tier's part of a value. Three parts have 63 bits. */
#define PART_BITS 21
#define MARK      (UINT64_C(1) << (PART_BITS - 1))
#define PAGES_MAX (MARK - 1)
#define N_TIERS   3

/* Makes room for n_blocks blocks in all. Returns 0 or -ENOMEM. */
static int told_reserve(struct map *t, uint64_t n_blocks)
{
        return map_reserve(t, minus_u64(n_blocks, t->n_used));
}

static uint64_t n_pages(uint64_t value, unsigned tier)
{
        return value >> tier * PART_BITS & PAGES_MAX;
}

/* Counts a page more or less. Returns whether it is the first, or the last, with the block in the
 * tier. From a million pages on a block stays told until the end. */
static bool told_add(struct map *t, uint64_t hash, unsigned tier)
{
        const uint64_t *found = map_find(t, hash);
        uint64_t value = found ? *found : 0, n = n_pages(value, tier);

        if (n < PAGES_MAX) {
                int r = map_put(t, hash, value + (UINT64_C(1) << tier * PART_BITS));

                assert(r == 0); /* told_reserve() */
        }
        return n == 0;
}

static bool told_drop(struct map *t, uint64_t hash, unsigned tier)
{
        uint64_t *value = map_find(t, hash);
        uint64_t n = n_pages(*value, tier);

        if (n == PAGES_MAX)
                return false;
        *value -= UINT64_C(1) << tier * PART_BITS;
        if (*value == 0)
                map_remove(t, hash);
        return n == 1;
}

/* Whether a page has the block in the tier. */
static bool told_has(const struct map *t, uint64_t hash, unsigned tier)
{
        const uint64_t *value = map_find(t, hash);

        return value && n_pages(*value, tier) > 0;
}

/* Marks a block that was added. Returns whether it had no mark in this tier. */
static bool told_mark(struct map *t, uint64_t hash, unsigned tier)
{
        uint64_t *value = map_find(t, hash), mark = MARK << tier * PART_BITS;
        bool is_new = !(*value & mark);

        *value |= mark;
        return is_new;
}

static void told_unmark_all(struct map *t)
{
        struct map_slot slot;

        for (size_t i = 0; map_next(t, &i, &slot);)
                for (unsigned tier = 0; tier < N_TIERS; tier++)
                        *map_find(t, slot.key) &= ~(MARK << tier * PART_BITS);
}

#define NOT_TOLD KVL_TIERS /* slower than all tiers */

/* Hashes are the same in all processes. Any number would do. */
#define HASH_SEED UINT64_C(0x6b766c6561736531)

/*
 * A page is stored, or only named as the parent of others:
 *
 *   (named by a child) -> named <-> stored -> (removed)
 */
struct page {
        uint8_t key[KVL_KEY_BYTES];
        struct page *parent;       /* NULL: begins a text, or unknown */
        struct page *same_hash;    /* next in the map's slot */
        struct list_link children; /* of struct page.siblings */
        struct list_link siblings; /* in the parent's list, or the model's `tops` */
        uint32_t *token_ids;       /* owned; NULL: unknown */
        struct names *names;       /* NULL: none. Owned if the page begins its text; else borrowed
                                    * from the page that does, and valid while it is told */
        uint64_t last_hash;        /* of its last block; valid if it was ever told */
        uint32_t n_tokens;
        bool is_stored, begins_text;
        uint8_t tier, told, wanted; /* told, wanted: a tier or NOT_TOLD */
};

/* The LoRA adapter and the salt of a text. */
struct names {
        uint64_t hash;
        const char *lora_name, *cache_salt; /* NULL: none; in `memory` */
        char memory[];
};

struct model {
        uint32_t block_tokens;
        model_tell_fn tell;
        void *data;
        struct map pages; /* hash of a key -> struct page */
        struct hash_seed seed;
        struct list_link tops; /* pages without a parent */
        uint64_t *queue;       /* owned; room for all pages: struct page pointers */
        uint32_t n_queue, n_pages;
        uint64_t n_token_ids;
        struct map blocks; /* told: hash -> for each tier, a mark and the number of pages */
        uint64_t *hashes;  /* owned; room for the blocks of the largest page */
        uint32_t n_hashes;
};

/* ---- pages by key ---------------------------------------------------------------------------- */

static uint64_t slot_of(const struct model *m, const uint8_t *key)
{
        return hash_bytes(m->seed, key, KVL_KEY_BYTES) >> 1; /* never MAP_KEY_NONE */
}

static struct page *first_in(const struct model *m, uint64_t slot)
{
        const uint64_t *value = map_find(&m->pages, slot);

        return value ? (struct page *)(uintptr_t)*value : NULL;
}

static struct page *find_page(const struct model *m, const uint8_t *key)
{
        struct page *p = first_in(m, slot_of(m, key));

        while (p && memcmp(p->key, key, KVL_KEY_BYTES) != 0)
                p = p->same_hash;
        return p;
}

static struct page *name_page(struct model *m, const uint8_t *key)
{
        struct page *p = find_page(m, key);
        uint64_t slot = slot_of(m, key);

        if (p)
                return p;
        if (array_reserve((void **)&m->queue, &m->n_queue, m->n_pages + 1, UINT32_MAX,
                    sizeof(*m->queue)) < 0)
                return NULL;
        p = calloc(1, sizeof(*p));
        if (!p)
                return NULL;
        p->same_hash = first_in(m, slot);
        if (map_put(&m->pages, slot, (uintptr_t)p) < 0) {
                free(p);
                return NULL;
        }
        memcpy(p->key, key, KVL_KEY_BYTES);
        p->told = p->wanted = NOT_TOLD;
        list_init(&p->children);
        list_init(&p->siblings);
        list_append(&m->tops, &p->siblings);
        m->n_pages++;
        return p;
}

static void take_out_of_map(struct model *m, const struct page *p)
{
        uint64_t slot = slot_of(m, p->key);
        struct page *at = first_in(m, slot);

        if (at != p) {
                while (at->same_hash != p)
                        at = at->same_hash;
                at->same_hash = p->same_hash;
        } else if (p->same_hash) {
                map_put(&m->pages, slot, (uintptr_t)p->same_hash); /* replaces: can't fail */
        } else {
                map_remove(&m->pages, slot);
        }
}

static void free_texts_of(struct page *p)
{
        free(TAKE(p->token_ids));
        if (p->begins_text)
                free(p->names);
        p->names = NULL;
}

static void drop_token_ids(struct model *m, struct page *p)
{
        if (p->token_ids)
                m->n_token_ids -= p->n_tokens;
        free_texts_of(p);
}

/* Frees the page, and its parents that are only named, unless they have other children. */
static void free_if_unused(struct model *m, struct page *p)
{
        while (p && !p->is_stored && list_is_empty(&p->children)) {
                struct page *parent = p->parent;

                list_remove(&p->siblings);
                take_out_of_map(m, p);
                drop_token_ids(m, p);
                free(p);
                m->n_pages--;
                p = parent;
        }
}

/* ---- telling --------------------------------------------------------------------------------- */

static uint64_t hash_text(uint64_t before, const char *text)
{
        struct hash_seed seed = {before, HASH_SEED};

        return hash_bytes(seed, text ? text : "", text ? strlen(text) : 0);
}

/* Returns where the hashes of a text with these names begin. */
static uint64_t hash_names(const char *lora_name, const char *cache_salt)
{
        if (!lora_name && !cache_salt)
                return 0;
        return hash_text(hash_text(1, lora_name), cache_salt);
}

static uint32_t n_blocks_of(const struct model *m, const struct page *p)
{
        return p->n_tokens / m->block_tokens;
}

/* Returns the hash of the block after the one with `hash`. Neither 0, which some routers read as
 * "no parent", nor MAP_KEY_NONE. */
static uint64_t next_hash(const struct model *m, uint64_t hash, const uint32_t *token_ids)
{
        struct hash_seed seed = {hash, HASH_SEED};

        hash = hash_bytes(seed, token_ids, m->block_tokens * sizeof(*token_ids));
        return hash == 0 || hash == MAP_KEY_NONE ? 1 : hash;
}

/* Hashes the blocks of a page whose parent has been told. */
static void hash_blocks(struct model *m, struct page *p)
{
        uint64_t hash = p->parent ? p->parent->last_hash : p->names ? p->names->hash : 0;

        if (p->parent)
                p->names = p->parent->names;
        for (uint32_t i = 0; i < n_blocks_of(m, p); i++) {
                hash = next_hash(m, hash, p->token_ids + (size_t)i * m->block_tokens);
                m->hashes[i] = hash;
        }
        p->last_hash = hash;
}

/* Blocks `from` to `to` - 1 of the page whose hashes are in m->hashes. */
static struct batch_blocks blocks_of(
        const struct model *m, const struct page *p, uint32_t from, uint32_t to)
{
        const uint64_t *parent = p->parent ? &p->parent->last_hash : NULL;

        return (struct batch_blocks){
                .hashes = m->hashes + from,
                .n_blocks = to - from,
                .block_tokens = m->block_tokens,
                .parent = from > 0 ? &m->hashes[from - 1] : parent,
                .token_ids = p->token_ids + (size_t)from * m->block_tokens,
                .lora_name = p->names ? p->names->lora_name : NULL,
                .cache_salt = p->names ? p->names->cache_salt : NULL,
        };
}

static void tell_run(struct model *m, bool is_stored, unsigned tier, struct batch_blocks blocks)
{
        blocks.tier = tier;
        if (blocks.n_blocks > 0)
                m->tell(m->data, is_stored, &blocks);
}

/* Tells the blocks of the page for which is_new() returns true. Its parent has been told. */
static void tell_stored(struct model *m, struct page *p, unsigned tier,
        bool (*is_new)(struct map *t, uint64_t hash, unsigned tier))
{
        uint32_t from = 0, n = n_blocks_of(m, p);

        hash_blocks(m, p);
        for (uint32_t i = 0; i < n; i++)
                if (!is_new(&m->blocks, m->hashes[i], tier)) {
                        tell_run(m, true, tier, blocks_of(m, p, from, i));
                        from = i + 1;
                }
        tell_run(m, true, tier, blocks_of(m, p, from, n));
}

/* Takes back the blocks of the page that no other page has, the last ones first. */
static void tell_removed(struct model *m, struct page *p)
{
        uint32_t to = n_blocks_of(m, p);

        hash_blocks(m, p);
        for (uint32_t i = to; i-- > 0;)
                if (!told_drop(&m->blocks, m->hashes[i], p->told)) {
                        tell_run(m, false, p->told, blocks_of(m, p, i + 1, to));
                        to = i;
                }
        tell_run(m, false, p->told, blocks_of(m, p, 0, to));
}

static uint8_t wanted_of(const struct model *m, const struct page *p)
{
        if (!p->is_stored || !p->token_ids || n_blocks_of(m, p) == 0)
                return NOT_TOLD;
        if (p->begins_text)
                return p->tier;
        if (!p->parent || p->parent->n_tokens % m->block_tokens != 0)
                return NOT_TOLD;
        return p->tier > p->parent->wanted ? p->tier : p->parent->wanted;
}

static struct page *queued(const struct model *m, uint32_t i)
{
        return (struct page *)(uintptr_t)m->queue[i];
}

static void add_children(struct model *m, const struct page *p, uint32_t *n)
{
        list_for_each (child, &p->children, struct page, siblings)
                m->queue[(*n)++] = (uintptr_t)child;
}

/* Fills the queue with the page and the ones after it whose tier for routers changes, parents
 * first. Returns how many. */
static uint32_t queue_changed(struct model *m, struct page *p)
{
        uint32_t n_kept = 0, n = 1;

        m->queue[0] = (uintptr_t)p;
        for (uint32_t i = 0; i < n; i++) {
                struct page *at = queued(m, i);

                at->wanted = wanted_of(m, at);
                if (at->wanted == at->told)
                        continue;
                m->queue[n_kept++] = (uintptr_t)at; /* n_kept <= i */
                add_children(m, at, &n);
        }
        return n_kept;
}

/* Tells what a change of the page means for it and for the pages after it. */
static void tell_changes(struct model *m, struct page *p)
{
        uint32_t n = queue_changed(m, p);

        for (uint32_t i = 0; i < n; i++)
                if (queued(m, i)->wanted != NOT_TOLD)
                        tell_stored(m, queued(m, i), queued(m, i)->wanted, told_add);
        for (uint32_t i = n; i-- > 0;) {
                struct page *at = queued(m, i);

                if (at->told != NOT_TOLD)
                        tell_removed(m, at);
                at->told = at->wanted;
        }
}

void model_tell_all(struct model *m, model_tell_fn tell, void *data)
{
        model_tell_fn own_tell = m->tell;
        void *own_data = m->data;
        uint32_t n = 0;

        m->tell = tell;
        m->data = data;
        list_for_each (top, &m->tops, struct page, siblings)
                m->queue[n++] = (uintptr_t)top;
        for (uint32_t i = 0; i < n; i++) {
                struct page *p = queued(m, i);

                if (p->told != NOT_TOLD)
                        tell_stored(m, p, p->told, told_mark);
                add_children(m, p, &n);
        }
        told_unmark_all(&m->blocks);
        m->tell = own_tell;
        m->data = own_data;
}

/* ---- queries --------------------------------------------------------------------------------- */

uint32_t model_block_tokens(const struct model *m)
{
        return m->block_tokens;
}

void model_find_text(struct model_found *f, const char *lora_name, const char *cache_salt)
{
        f->hash = hash_names(lora_name, cache_salt);
}

static bool find_in(struct model_found *f, unsigned tier, uint32_t n_tokens)
{
        if (tier >= KVL_TIERS)
                return false;
        f->tier = tier;
        for (; tier < KVL_TIERS; tier++)
                f->n_tokens[tier] += n_tokens;
        return true;
}

bool model_find_block(const struct model *m, struct model_found *f, const uint32_t *token_ids)
{
        unsigned tier = f->tier;

        f->hash = next_hash(m, f->hash, token_ids);
        while (tier < KVL_TIERS && !told_has(&m->blocks, f->hash, tier))
                tier++;
        return find_in(f, tier, m->block_tokens);
}

bool model_find_page(const struct model *m, struct model_found *f, const uint8_t *key)
{
        const struct page *p = find_page(m, key);

        return p && p->is_stored && find_in(f, MAX(f->tier, p->tier), p->n_tokens);
}

/* ---- changes --------------------------------------------------------------------------------- */

static bool is_before(const struct page *a, const struct page *p)
{
        while (p && p != a)
                p = p->parent;
        return p != NULL;
}

/* Puts a page under its parent. Pages that name each other as parents, which no honest client
 * publishes, begin nothing and are never told. */
static int place(struct model *m, struct page *p, const uint8_t *parent_key)
{
        struct page *parent;

        if (!parent_key)
                return 0;
        parent = name_page(m, parent_key);
        if (!parent)
                return -ENOMEM;
        if (list_is_empty(&p->children) ? parent == p : is_before(p, parent))
                return 0;
        p->parent = parent;
        list_remove(&p->siblings);
        list_append(&parent->children, &p->siblings);
        return 0;
}

static struct names *new_names(const char *lora_name, const char *cache_salt)
{
        size_t n = lora_name ? strlen(lora_name) + 1 : 0,
               k = cache_salt ? strlen(cache_salt) + 1 : 0;
        struct names *names = malloc(sizeof(*names) + n + k);

        if (!names)
                return NULL;
        *names = (struct names){
                .hash = hash_names(lora_name, cache_salt),
                .lora_name = lora_name ? names->memory : NULL,
                .cache_salt = cache_salt ? names->memory + n : NULL,
        };
        if (lora_name)
                memcpy(names->memory, lora_name, n);
        if (cache_salt)
                memcpy(names->memory + n, cache_salt, k);
        return names;
}

static int take_token_ids(struct model *m, struct page *p, const struct model_stored *s)
{
        uint32_t n = s->n_tokens;
        size_t bytes = n * sizeof(*s->token_ids);
        struct names *names = NULL;
        uint32_t *copy;

        if (array_reserve((void **)&m->hashes, &m->n_hashes, MAX(n, 1U), UINT32_MAX,
                    sizeof(*m->hashes)) < 0)
                return -ENOMEM;
        /* All pages together don't have more blocks. */
        if (told_reserve(&m->blocks, (m->n_token_ids + n) / m->block_tokens) < 0)
                return -ENOMEM;
        if (p->begins_text && (s->lora_name || s->cache_salt)) {
                names = new_names(s->lora_name, s->cache_salt);
                if (!names)
                        return -ENOMEM;
        }
        copy = malloc(MAX(bytes, (size_t)1));
        if (!copy) {
                free(names);
                return -ENOMEM;
        }
        memcpy(copy, s->token_ids, bytes);
        p->token_ids = copy;
        p->names = names;
        m->n_token_ids += n;
        return 0;
}

static int store_new(struct model *m, struct page *p, const struct model_stored *s)
{
        int r;

        p->begins_text = !s->parent_key;
        r = s->token_ids ? take_token_ids(m, p, s) : 0;
        p->n_tokens = s->n_tokens;
        if (r == 0)
                r = place(m, p, s->parent_key);
        if (r < 0)
                drop_token_ids(m, p);
        else
                p->is_stored = true;
        return r;
}

int model_store(struct model *m, const struct model_stored *s)
{
        struct page *p = name_page(m, s->key);
        int r = 0;

        if (!p)
                return -ENOMEM;
        if (!p->is_stored)
                r = store_new(m, p, s);
        else if (s->token_ids && !p->token_ids && s->n_tokens == p->n_tokens)
                r = take_token_ids(m, p, s);
        if (r < 0) {
                free_if_unused(m, p);
                return r;
        }
        p->tier = (uint8_t)s->tier;
        tell_changes(m, p);
        return 0;
}

void model_remove(struct model *m, const uint8_t *key)
{
        struct page *p = find_page(m, key);

        if (!p || !p->is_stored)
                return;
        p->is_stored = false;
        tell_changes(m, p);
        drop_token_ids(m, p);
        if (p->parent) {
                struct page *parent = TAKE(p->parent);

                list_remove(&p->siblings);
                list_append(&m->tops, &p->siblings);
                free_if_unused(m, parent);
        }
        free_if_unused(m, p);
}

void model_clear(struct model *m)
{
        uint32_t n = 0;

        list_for_each (top, &m->tops, struct page, siblings)
                m->queue[n++] = (uintptr_t)top;
        for (uint32_t i = 0; i < n; i++)
                add_children(m, queued(m, i), &n);
        for (uint32_t i = 0; i < n; i++) {
                free_texts_of(queued(m, i));
                free(queued(m, i));
        }
        map_deinit(&m->pages);
        map_init(&m->pages);
        map_deinit(&m->blocks);
        map_init(&m->blocks);
        list_init(&m->tops);
        m->n_pages = 0;
        m->n_token_ids = 0;
}

uint64_t model_bytes(const struct model *m)
{
        return m->n_pages * (sizeof(struct page) + sizeof(struct map_slot) + sizeof(*m->queue)) +
               m->n_token_ids * sizeof(uint32_t) + m->blocks.n_used * sizeof(struct map_slot);
}

int model_new(uint32_t block_tokens, model_tell_fn tell, void *data, struct model **ret)
{
        struct model *m = calloc(1, sizeof(*m));

        if (!m)
                return -ENOMEM;
        m->block_tokens = block_tokens;
        m->tell = tell;
        m->data = data;
        m->seed = hash_seed_random();
        map_init(&m->pages);
        map_init(&m->blocks);
        list_init(&m->tops);
        *ret = m;
        return 0;
}

void model_free(struct model *m)
{
        if (!m)
                return;
        model_clear(m);
        map_deinit(&m->pages);
        map_deinit(&m->blocks);
        array_free(m->queue, m->n_queue, sizeof(*m->queue));
        array_free(m->hashes, m->n_hashes, sizeof(*m->hashes));
        free(m);
}
