/*
 * The model of pages against a naive router, which matches blocks by their tokens as Dynamo's does:
 * from the fastest tier to the slowest, and never back. After random changes of a tree of pages its
 * answers are those of the tree. Each block comes after its parent and leaves before it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/events/model.h"
#include "client/lib/kvlease.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/test-support.h"

#define BLOCK_TOKENS 4
#define PAGE_BLOCKS  3
#define PAGE_TOKENS  (PAGE_BLOCKS * BLOCK_TOKENS)
#define N_PAGES      40
#define N_DIFFERENT  32 /* N_PAGES - N_DIFFERENT pages repeat tokens */
#define NONE         (-1)

/* ---- a router -------------------------------------------------------------------------------- */

struct block {
        uint64_t hash, parent; /* parent 0: begins a text */
        uint32_t tokens[BLOCK_TOKENS];
        unsigned tiers; /* a bit each */
};

struct router {
        struct block blocks[(N_PAGES + 1) * PAGE_BLOCKS];
        unsigned n, n_events;
        char names[16]; /* of the last event's text */
};

static struct block *find_block(struct router *r, uint64_t hash)
{
        for (unsigned i = 0; i < r->n; i++)
                if (r->blocks[i].hash == hash)
                        return &r->blocks[i];
        return NULL;
}

static void take_stored(struct router *r, const struct batch_blocks *blocks)
{
        uint64_t parent = blocks->parent ? *blocks->parent : 0;

        for (uint32_t i = 0; i < blocks->n_blocks; i++) {
                const uint32_t *tokens = blocks->token_ids + i * BLOCK_TOKENS;
                struct block *b = find_block(r, blocks->hashes[i]);

                assert_true(parent == 0 || find_block(r, parent)->tiers);
                if (!b) {
                        assert_true(r->n < ARRAY_SIZE(r->blocks));
                        b = &r->blocks[r->n++];
                        *b = (struct block){.hash = blocks->hashes[i], .parent = parent};
                        memcpy(b->tokens, tokens, sizeof(b->tokens));
                }
                assert_true(b->parent == parent && b->hash != 0);
                assert_memory_equal(b->tokens, tokens, sizeof(b->tokens));
                assert_false(b->tiers & 1U << blocks->tier);
                b->tiers |= 1U << blocks->tier;
                parent = b->hash;
        }
}

static void take_removed(struct router *r, const struct batch_blocks *blocks)
{
        for (uint32_t i = 0; i < blocks->n_blocks; i++) {
                struct block *b = find_block(r, blocks->hashes[blocks->n_blocks - 1 - i]);

                assert_true(b && b->tiers & 1U << blocks->tier);
                b->tiers &= ~(1U << blocks->tier);
                for (unsigned j = 0; j < r->n; j++)
                        if (r->blocks[j].parent == b->hash) {
                                assert_false(!b->tiers && r->blocks[j].tiers);
                                assert_false(blocks->tier == KVL_TIER_DEVICE &&
                                             r->blocks[j].tiers & 1U << KVL_TIER_DEVICE);
                        }
        }
}

static void take_event(void *data, bool is_stored, const struct batch_blocks *blocks)
{
        struct router *r = data;

        assert_int_equal(blocks->block_tokens, BLOCK_TOKENS);
        r->n_events++;
        snprintf(r->names, sizeof(r->names), "%s/%s", blocks->lora_name ? blocks->lora_name : "",
                blocks->cache_salt ? blocks->cache_salt : "");
        if (is_stored)
                take_stored(r, blocks);
        else
                take_removed(r, blocks);
}

/* The blocks of a text that the router finds, up to each tier. */
struct answer {
        unsigned up_to[KVL_TIERS];
};

static const struct block *next_block(
        const struct router *r, uint64_t parent, const uint32_t *tokens, unsigned tier)
{
        for (unsigned i = 0; i < r->n; i++) {
                const struct block *b = &r->blocks[i];

                if (b->parent == parent && b->tiers & 1U << tier &&
                        memcmp(b->tokens, tokens, sizeof(b->tokens)) == 0)
                        return b;
        }
        return NULL;
}

static struct answer ask(const struct router *r, const uint32_t *tokens, unsigned n_blocks)
{
        struct answer a = {{0}};
        uint64_t parent = 0;
        unsigned n = 0;

        for (unsigned tier = 0; tier < KVL_TIERS; tier++) {
                const struct block *b;

                while (n < n_blocks &&
                        (b = next_block(r, parent, tokens + (size_t)n * BLOCK_TOKENS, tier))) {
                        parent = b->hash;
                        n++;
                }
                a.up_to[tier] = n;
        }
        return a;
}

/* ---- pages ----------------------------------------------------------------------------------- */

struct fact {
        int parent; /* NONE: begins a text */
        int tier;   /* NONE: isn't cached */
        bool has_ids;
        uint32_t n_tokens;
};

struct scene {
        struct fact pages[N_PAGES];
        struct router router;
        struct model *model;
        unsigned seed;
};

static uint8_t *key_of(int page, uint8_t key[KVL_KEY_BYTES])
{
        memset(key, 0, KVL_KEY_BYTES);
        key[0] = (uint8_t)page;
        return key;
}

/* The last pages have the tokens of the first ones. Of the others, pairs begin alike. All end
 * alike. */
static void tokens_of(int page, uint32_t *tokens)
{
        uint32_t number = (uint32_t)(page % N_DIFFERENT);

        for (uint32_t i = 0; i < PAGE_TOKENS; i++)
                tokens[i] = i < BLOCK_TOKENS       ? 1000 + number / 2
                            : i < 2 * BLOCK_TOKENS ? 2000 + number
                                                   : 7;
}

static void scene_begin(struct scene *s)
{
        const char *seed = getenv("KVL_TEST_SEED");

        *s = (struct scene){.seed = seed ? (unsigned)atoi(seed) : 1};
        assert_int_equal(model_new(BLOCK_TOKENS, take_event, &s->router, &s->model), 0);
        for (int i = 0; i < N_PAGES; i++)
                s->pages[i] = (struct fact){.parent = NONE, .tier = NONE};
}

static void scene_end(struct scene *s)
{
        model_free(s->model);
}

#define SCENE(fn) TEST_ON(fn, struct scene, s, scene_begin, scene_end)

static unsigned pick(struct scene *s, unsigned n)
{
        return (unsigned)rand_r(&s->seed) % n;
}

static int try_store(struct scene *s, int page, int parent, int tier, bool has_ids)
{
        struct fact *f = &s->pages[page];
        uint8_t key[KVL_KEY_BYTES], parent_key[KVL_KEY_BYTES];
        uint32_t tokens[PAGE_TOKENS];
        struct model_stored m = {
                .key = key_of(page, key),
                .parent_key = parent == NONE ? NULL : key_of(parent, parent_key),
                .token_ids = has_ids ? tokens : NULL,
                .n_tokens = f->n_tokens ? f->n_tokens : PAGE_TOKENS,
                .tier = (unsigned)tier,
        };
        int r;

        tokens_of(page, tokens);
        r = model_store(s->model, &m);
        if (r == 0)
                *f = (struct fact){parent, tier, f->has_ids || has_ids, m.n_tokens};
        return r;
}

static void store(struct scene *s, int page, int parent, int tier)
{
        assert_int_equal(try_store(s, page, parent, tier, true), 0);
}

static void move_page(struct scene *s, int page, int tier)
{
        uint8_t key[KVL_KEY_BYTES];
        const struct model_stored m = {.key = key_of(page, key), .tier = (unsigned)tier};

        /* A known page keeps all but its tier. */
        assert_int_equal(model_store(s->model, &m), 0);
        s->pages[page].tier = tier;
}

static void remove_page(struct scene *s, int page)
{
        uint8_t key[KVL_KEY_BYTES];

        model_remove(s->model, key_of(page, key));
        s->pages[page].tier = NONE;
        s->pages[page].has_ids = false;
}

/* The text that ends with a page. */
struct text {
        uint32_t tokens[N_PAGES * PAGE_TOKENS];
        unsigned n_tokens, n_before; /* n_before: in the pages before it */
        int tier;                    /* as routers see the page; NONE: they don't */
};

static void add_page(const struct scene *s, int page, struct text *t)
{
        const struct fact *f = &s->pages[page];

        if (f->tier == NONE || !f->has_ids || t->n_tokens % BLOCK_TOKENS != 0)
                t->tier = NONE;
        else if (t->tier != NONE)
                t->tier = MAX(t->tier, f->tier);
        tokens_of(page, t->tokens + t->n_tokens);
        t->n_before = t->n_tokens;
        t->n_tokens += f->n_tokens ? f->n_tokens : PAGE_TOKENS;
}

static void text_of(const struct scene *s, int page, struct text *t)
{
        int pages[N_PAGES], n = 0;

        for (int at = page; at != NONE; at = s->pages[at].parent)
                pages[n++] = at;
        t->n_tokens = 0;
        t->tier = KVL_TIER_DEVICE;
        while (n > 0)
                add_page(s, pages[--n], t);
}

/* Whether some page in the tier has the block of `text` that ends at token `end`. */
static bool is_cached(const struct text *texts, const struct text *text, unsigned end, int tier)
{
        for (int i = 0; i < N_PAGES; i++) {
                const struct text *t = &texts[i];

                if (t->tier == tier && t->n_before < end && end <= t->n_tokens &&
                        memcmp(t->tokens, text->tokens, end * sizeof(*t->tokens)) == 0)
                        return true;
        }
        return false;
}

static struct answer expect(const struct text *texts, const struct text *text)
{
        struct answer a = {{0}};
        unsigned end = BLOCK_TOKENS;

        for (int tier = 0; tier < KVL_TIERS; tier++) {
                while (end <= text->n_tokens && is_cached(texts, text, end, tier))
                        end += BLOCK_TOKENS;
                a.up_to[tier] = end / BLOCK_TOKENS - 1;
        }
        return a;
}

/* The model itself looks for blocks. */
static struct answer find(const struct model *m, const uint32_t *tokens, unsigned n_blocks)
{
        struct model_found f = {0};
        struct answer a;

        for (unsigned i = 0; i < n_blocks; i++)
                if (!model_find_block(m, &f, tokens + (size_t)i * BLOCK_TOKENS))
                        break;
        for (unsigned tier = 0; tier < KVL_TIERS; tier++)
                a.up_to[tier] = (unsigned)f.n_tokens[tier] / BLOCK_TOKENS;
        return a;
}

/* The model finds the pages up to this one by their keys. */
static void assert_found_by_key(const struct scene *s, int page)
{
        int pages[N_PAGES], n = 0, tier = KVL_TIER_DEVICE;
        struct model_found f = {0};
        uint64_t wanted[KVL_TIERS] = {0};
        uint8_t key[KVL_KEY_BYTES];

        for (int at = page; at != NONE; at = s->pages[at].parent)
                pages[n++] = at;
        while (n-- > 0) {
                const struct fact *fact = &s->pages[pages[n]];

                assert_int_equal(
                        model_find_page(s->model, &f, key_of(pages[n], key)), fact->tier != NONE);
                if (fact->tier == NONE)
                        break;
                tier = MAX(tier, fact->tier);
                for (int i = tier; i < KVL_TIERS; i++)
                        wanted[i] += fact->n_tokens;
        }
        assert_memory_equal(f.n_tokens, wanted, sizeof(wanted));
}

static void assert_answers(const struct scene *s, const struct router *r)
{
        static struct text texts[N_PAGES];

        for (int i = 0; i < N_PAGES; i++)
                text_of(s, i, &texts[i]);
        for (int i = 0; i < N_PAGES; i++) {
                struct answer is = ask(r, texts[i].tokens, texts[i].n_tokens / BLOCK_TOKENS);
                struct answer found =
                        find(s->model, texts[i].tokens, texts[i].n_tokens / BLOCK_TOKENS);
                struct answer wanted = expect(texts, &texts[i]);

                assert_memory_equal(&is, &wanted, sizeof(is));
                assert_memory_equal(&found, &wanted, sizeof(found));
                assert_found_by_key(s, i);
        }
}

static void assert_right(struct scene *s)
{
        struct router joined = {0};

        assert_answers(s, &s->router);
        model_tell_all(s->model, take_event, &joined);
        assert_answers(s, &joined);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static int store_named(struct scene *s, int page, int parent, const char *lora, const char *salt)
{
        uint8_t key[KVL_KEY_BYTES], parent_key[KVL_KEY_BYTES];
        uint32_t tokens[PAGE_TOKENS];
        struct model_stored m = {
                .key = key_of(page, key),
                .parent_key = parent == NONE ? NULL : key_of(parent, parent_key),
                .token_ids = tokens,
                .n_tokens = PAGE_TOKENS,
                .lora_name = lora,
                .cache_salt = salt,
        };

        tokens_of(0, tokens);
        return model_store(s->model, &m);
}

/* Texts with equal tokens have blocks of their own, which name the adapter and the salt. */
SCENE(test_names)
{
        static const char *const names[][2] = {{NULL, NULL}, {"a", NULL}, {NULL, "a"}, {"a", "b"}};
        static const char *const wanted[] = {"/", "a/", "/a", "a/b"};
        uint8_t key[KVL_KEY_BYTES];

        for (int i = 0; i < 4; i++) {
                assert_int_equal(store_named(s, 2 * i, NONE, names[i][0], names[i][1]), 0);
                assert_string_equal(s->router.names, wanted[i]);
                assert_int_equal(s->router.n, (2 * i + 1) * PAGE_BLOCKS);
                memset(s->router.names, 0, sizeof(s->router.names));
                /* Names of a page that begins no text don't count. */
                assert_int_equal(store_named(s, 2 * i + 1, 2 * i, "c", "d"), 0);
                assert_string_equal(s->router.names, wanted[i]);
                assert_int_equal(s->router.n, (2 * i + 2) * PAGE_BLOCKS);
        }
        model_remove(s->model, key_of(6, key));
        assert_int_equal(store_named(s, 6, NONE, "e", NULL), 0);
        assert_string_equal(s->router.names, "e/");
        assert_int_equal(s->router.n, 10 * PAGE_BLOCKS);
}

SCENE(test_no_memory)
{
        alloc_fail_each(n)
        {
                bool is_stored = try_store(s, 0, NONE, KVL_TIER_DEVICE, true) == 0 &&
                                 try_store(s, 1, 0, KVL_TIER_HOST, true) == 0 &&
                                 try_store(s, 3, 2, KVL_TIER_HOST, true) == 0;

                assert_true(is_stored || alloc_fail_happened());
                s->pages[3].parent = 2;
                assert_answers(s, &s->router);
                for (int i = 0; i < 4; i++)
                        remove_page(s, i);
                assert_int_equal(model_bytes(s->model), 0);
        }
}

static void change(struct scene *s)
{
        int page = (int)pick(s, N_PAGES);
        struct fact *f = &s->pages[page];
        int parent = f->parent;

        if (f->tier == NONE) {
                /* A page keeps its parent: its key depends on it. */
                if (!f->n_tokens) {
                        parent = page > 0 && pick(s, 3) ? (int)pick(s, (unsigned)page) : NONE;
                        f->n_tokens = pick(s, 8) ? PAGE_TOKENS : 1 + pick(s, PAGE_TOKENS);
                }
                assert_int_equal(try_store(s, page, parent, (int)pick(s, 3), pick(s, 8) > 0), 0);
        } else if (pick(s, 3) == 0) {
                remove_page(s, page);
        } else if (!f->has_ids) {
                store(s, page, parent, f->tier);
        } else {
                move_page(s, page, (int)pick(s, KVL_TIERS));
        }
}

SCENE(test_random)
{
        printf("KVL_TEST_SEED=%u\n", s->seed);
        for (unsigned i = 0; i < 20000; i++) {
                change(s);
                if (i % 8 == 0)
                        assert_right(s);
                if (pick(s, 2000) == 0) {
                        model_clear(s->model);
                        for (int page = 0; page < N_PAGES; page++)
                                s->pages[page] = (struct fact){.parent = NONE, .tier = NONE};
                        s->router = (struct router){0};
                }
        }
        for (int page = 0; page < N_PAGES; page++)
                remove_page(s, page);
        assert_int_equal(model_bytes(s->model), 0);
        assert_right(s);
}
