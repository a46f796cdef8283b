#include "client/events/query.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"

#define WORD_MAX ((size_t)78) /* kvl_publish.lora_name; a key has fewer hex digits */

/* The next byte, apart from blanks. */
enum state {
        AT_OBJECT, /* { */
        AT_NAME,   /* the quote before the name */
        IN_NAME,
        AT_COLON,
        AT_TEXT, /* the quote before a name of the text */
        IN_TEXT,
        AFTER_TEXT, /* , */
        AT_LIST,    /* [ */
        AT_FIRST,   /* an item, or ] */
        AT_ITEM,
        IN_NUMBER,
        IN_KEY,
        AFTER_ITEM, /* , or ] */
        AT_CLOSE,   /* } */
        AT_END,
};

struct query {
        const struct model *model; /* borrowed */
        struct model_found found;
        enum state state;
        const char *error; /* static; NULL: none yet */
        uint64_t n_read;   /* bytes up to and with the last one, or the wrong one */
        bool has_keys;     /* instead of token ids */
        bool is_over;      /* the text isn't cached from here on */
        size_t n_word;
        char word[WORD_MAX + 1];
        char lora_name[WORD_MAX + 1], cache_salt[WORD_MAX + 1]; /* "": none */
        char *text; /* the one of these that is read; NULL: neither */
        uint64_t token_id;
        uint32_t n_token_ids, token_ids[]; /* of a block */
};

static bool fail(struct query *q, const char *error)
{
        q->error = error;
        return false;
}

/* ---- items ----------------------------------------------------------------------------------- */

static void take_token_id(struct query *q)
{
        if (q->is_over)
                return;
        q->token_ids[q->n_token_ids++] = (uint32_t)q->token_id;
        if (q->n_token_ids < model_block_tokens(q->model))
                return;
        q->n_token_ids = 0;
        q->is_over = !model_find_block(q->model, &q->found, q->token_ids);
}

static bool take_key(struct query *q)
{
        uint8_t key[KVL_KEY_BYTES];

        q->word[q->n_word] = '\0';
        if (parse_hex(q->word, key, sizeof(key)) < 0)
                return fail(q, "a key has 64 hexadecimal digits");
        q->is_over = q->is_over || !model_find_page(q->model, &q->found, key);
        q->state = AFTER_ITEM;
        return true;
}

static bool take_name(struct query *q)
{
        q->word[q->n_word] = '\0';
        q->has_keys = strcmp(q->word, "keys") == 0;
        q->text = NULL;
        if (strcmp(q->word, "lora_name") == 0)
                q->text = q->lora_name;
        else if (strcmp(q->word, "cache_salt") == 0)
                q->text = q->cache_salt;
        else if (!q->has_keys && strcmp(q->word, "token_ids") != 0)
                return fail(q, "a member is lora_name, cache_salt, token_ids or keys");
        q->state = AT_COLON;
        return true;
}

static bool take_text(struct query *q)
{
        memcpy(q->text, q->word, q->n_word);
        q->text[q->n_word] = '\0';
        model_find_text(&q->found, q->lora_name[0] ? q->lora_name : NULL,
                q->cache_salt[0] ? q->cache_salt : NULL);
        q->state = AFTER_TEXT;
        return true;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static bool begin_item(struct query *q, char c)
{
        q->n_word = 0;
        if (q->has_keys) {
                q->state = IN_KEY;
                return c == '"' || fail(q, "a key is a string");
        }
        q->state = IN_NUMBER;
        if (!isdigit((unsigned char)c))
                return fail(q, "a token id is a number from 0 to 4294967295");
        q->token_id = (uint64_t)(c - '0');
        q->n_word = 1;
        return true;
}

/* Returns whether the byte is of the number, or wrong. */
static bool add_digit(struct query *q, char c)
{
        if (!isdigit((unsigned char)c)) {
                take_token_id(q);
                q->state = AFTER_ITEM;
                return false;
        }
        q->token_id = q->token_id * 10 + (uint64_t)(c - '0');
        if (q->token_id > UINT32_MAX || q->token_id < 10)
                fail(q, "a token id is a number from 0 to 4294967295, without zeros before it");
        return true;
}

static bool add_letter(struct query *q, char c)
{
        if (c == '"' && q->state == IN_TEXT)
                return take_text(q);
        if (c == '"')
                return q->state == IN_NAME ? take_name(q) : take_key(q);
        if (c == '\\' && q->state == IN_TEXT)
                return fail(q, "lora_name and cache_salt have no backslash: send UTF-8");
        if (q->n_word == WORD_MAX)
                return fail(q, "a string is too long");
        q->word[q->n_word++] = c;
        return true;
}

static bool end_item(struct query *q, char c)
{
        q->state = c == ',' ? AT_ITEM : AT_CLOSE;
        return c == ',' || c == ']' || fail(q, "an item is followed by , or ]");
}

static bool expect_byte(struct query *q, char c, char wanted, enum state next, const char *error)
{
        q->n_word = 0;
        q->state = next;
        return c == wanted || fail(q, error);
}

/* Takes a byte outside of words. */
static bool take_byte(struct query *q, char c)
{
        switch (q->state) {
        case AT_OBJECT:
                return expect_byte(q, c, '{', AT_NAME, "a query begins with {");
        case AT_NAME:
                return expect_byte(q, c, '"', IN_NAME, "a member's name is a string");
        case AT_COLON:
                return expect_byte(
                        q, c, ':', q->text ? AT_TEXT : AT_LIST, "a name is followed by a colon");
        case AT_TEXT:
                return expect_byte(
                        q, c, '"', IN_TEXT, "lora_name and cache_salt are strings, or left out");
        case AFTER_TEXT:
                return expect_byte(
                        q, c, ',', AT_NAME, "lora_name and cache_salt come before token_ids");
        case AT_LIST:
                return expect_byte(q, c, '[', AT_FIRST, "a list begins with [");
        case AT_FIRST:
                return c == ']' ? end_item(q, c) : begin_item(q, c);
        case AT_ITEM:
                return begin_item(q, c);
        case AFTER_ITEM:
                return end_item(q, c);
        case AT_CLOSE:
                return expect_byte(q, c, '}', AT_END, "token_ids or keys is the last member");
        default:
                return fail(q, "there is nothing after the }");
        }
}

static bool is_blank(char c)
{
        return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

void query_read(struct query *q, const char *bytes, size_t len)
{
        for (size_t i = 0; i < len && !q->error; i++) {
                q->n_read++;
                if (q->state == IN_NAME || q->state == IN_KEY || q->state == IN_TEXT)
                        add_letter(q, bytes[i]);
                else if (!(q->state == IN_NUMBER && add_digit(q, bytes[i])) && !is_blank(bytes[i]))
                        take_byte(q, bytes[i]);
        }
}

/* ---- answers --------------------------------------------------------------------------------- */

int query_answer(struct query *q, char ret_text[QUERY_TEXT_MAX])
{
        const uint64_t *n = q->found.n_tokens;
        uint64_t total = n[KVL_TIERS - 1];

        if (!q->error && q->state != AT_END)
                fail(q, "the query ends before its }");
        if (q->error) {
                snprintf(ret_text, QUERY_TEXT_MAX, "{\"error\": \"byte %" PRIu64 ": %s\"}\n",
                        q->n_read, q->error);
                return -EINVAL;
        }
        snprintf(ret_text, QUERY_TEXT_MAX,
                "{\"tokens\": %" PRIu64 ", \"blocks\": %" PRIu64 ", \"tiers\": {\"gpu\": %" PRIu64
                ", \"cpu\": %" PRIu64 ", \"disk\": %" PRIu64 "}}\n",
                total, total / model_block_tokens(q->model), n[KVL_TIER_DEVICE], n[KVL_TIER_HOST],
                n[KVL_TIER_DISK]);
        return 0;
}

struct query *query_new(const struct model *m)
{
        struct query *q = calloc(1, sizeof(*q) + model_block_tokens(m) * sizeof(q->token_ids[0]));

        if (q)
                q->model = m;
        return q;
}

void query_free(struct query *q)
{
        free(q);
}
