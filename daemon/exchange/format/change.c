#include "daemon/exchange/format/change.h"

#include <assert.h>
#include <string.h>

#define VERSION 1

struct head {
        uint32_t version;
        uint32_t n_items;
        uint64_t next;
};

struct item {
        uint32_t kind;
        uint32_t zero;
        uint64_t tag;
        uint8_t key[EXCHANGE_KEY_BYTES];
};

static_assert(sizeof(struct head) + CHANGE_ITEMS_MAX * sizeof(struct item) == CHANGE_BYTES_MAX,
        "nothing between their fields");

static bool has_all(const struct change *c)
{
        return c->n_items == 1 && c->items[0].kind == CHANGE_ALL;
}

static bool is_same(const struct change_item *a, const struct change_item *b)
{
        return a->kind == b->kind && a->tag == b->tag &&
               memcmp(a->key, b->key, sizeof(a->key)) == 0;
}

void change_add(struct change *c, const struct change_item *item)
{
        if (has_all(c))
                return;
        for (uint32_t i = 0; i < c->n_items; i++)
                if (is_same(&c->items[i], item))
                        return;
        if (item->kind == CHANGE_ALL || c->n_items == CHANGE_ITEMS_MAX) {
                c->items[0] = (struct change_item){.kind = CHANGE_ALL};
                c->n_items = 1;
                return;
        }
        c->items[c->n_items++] = *item;
}

void change_merge(struct change *c, const struct change *other)
{
        for (uint32_t i = 0; i < other->n_items; i++)
                change_add(c, &other->items[i]);
}

size_t change_bytes(uint32_t n_items)
{
        return sizeof(struct head) + n_items * sizeof(struct item);
}

void change_write(const struct change *c, uint8_t *payload)
{
        const struct head head = {.version = VERSION, .n_items = c->n_items, .next = c->next};

        memcpy(payload, &head, sizeof(head));
        for (uint32_t i = 0; i < c->n_items; i++) {
                struct item item = {.kind = c->items[i].kind, .tag = c->items[i].tag};

                memcpy(item.key, c->items[i].key, sizeof(item.key));
                memcpy(payload + change_bytes(i), &item, sizeof(item));
        }
}

/* Parses an item; accepts only output of change_write(). */
static bool read_item(const struct item *from, struct change_item *ret)
{
        static const uint8_t zeros[EXCHANGE_KEY_BYTES];
        const bool has_key = memcmp(from->key, zeros, sizeof(zeros)) != 0;

        if (from->kind < CHANGE_ALL || from->kind > CHANGE_TAG || from->zero != 0 ||
                (from->tag != 0) != (from->kind == CHANGE_TAG) ||
                (has_key && from->kind != CHANGE_KEY))
                return false;
        *ret = (struct change_item){.kind = (enum change_kind)from->kind, .tag = from->tag};
        memcpy(ret->key, from->key, sizeof(ret->key));
        return true;
}

bool change_read(const uint8_t *payload, size_t n_bytes, struct change *ret)
{
        struct change c;
        struct head head;

        if (n_bytes < sizeof(head))
                return false;
        memcpy(&head, payload, sizeof(head));
        if (head.version != VERSION || head.next == 0 || head.n_items > CHANGE_ITEMS_MAX ||
                n_bytes != change_bytes(head.n_items))
                return false;
        c = (struct change){.next = head.next, .n_items = head.n_items};
        for (uint32_t i = 0; i < c.n_items; i++) {
                struct item item;

                memcpy(&item, payload + change_bytes(i), sizeof(item));
                if (!read_item(&item, &c.items[i]))
                        return false;
        }
        *ret = c;
        return true;
}
