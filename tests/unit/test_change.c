/* Changes: what was written is read, and nothing else is; and when all of a namespace is meant. */
#include "tests/unit/test-support.h"

#include <string.h>

#include "daemon/exchange/format/change.h"

static struct change_item of_key(unsigned i)
{
        struct change_item item = {.kind = CHANGE_KEY};

        memset(item.key, (int)(1 + i), sizeof(item.key));
        return item;
}

static struct change_item of_tag(uint64_t tag)
{
        return (struct change_item){.kind = CHANGE_TAG, .tag = tag};
}

static const struct change_item all = {.kind = CHANGE_ALL};

static void assert_all(const struct change *c)
{
        assert_int_equal(c->n_items, 1);
        assert_int_equal(c->items[0].kind, CHANGE_ALL);
}

static void add(struct change *c, struct change_item item)
{
        change_add(c, &item);
}

TEST_BARE(test_adding)
{
        struct change c = {0}, other = {0};

        for (unsigned i = 0; i < CHANGE_ITEMS_MAX - 1; i++) {
                add(&c, of_key(i));
                add(&c, of_key(i)); /* which is there */
        }
        add(&c, of_tag(7));
        add(&c, of_tag(7));
        assert_int_equal(c.n_items, CHANGE_ITEMS_MAX);
        add(&other, of_key(3));
        change_merge(&c, &other);
        assert_int_equal(c.n_items, CHANGE_ITEMS_MAX);
        add(&c, of_tag(8));
        assert_all(&c);
        add(&c, of_key(0));
        change_merge(&c, &other);
        assert_all(&c);
        change_merge(&other, &c);
        assert_all(&other);
}

TEST_BARE(test_read)
{
        uint8_t payload[CHANGE_BYTES_MAX];
        struct change c = {.next = 77}, r;

        change_write(&c, payload);
        assert_true(change_read(payload, change_bytes(0), &r));
        assert_int_equal(r.next, 77);
        assert_int_equal(r.n_items, 0);
        for (unsigned i = 0; i < CHANGE_ITEMS_MAX - 2; i++)
                add(&c, of_key(i));
        add(&c, of_tag(UINT64_MAX));
        add(&c, of_tag(1));
        change_write(&c, payload);
        assert_true(change_read(payload, change_bytes(c.n_items), &r));
        assert_memory_equal(&r, &c, sizeof(c));
        assert_int_equal(change_bytes(c.n_items), sizeof(payload));
        add(&c, all);
        change_write(&c, payload);
        assert_true(change_read(payload, change_bytes(1), &r));
        assert_all(&r);
}

/* Any other bytes of any length are refused. A change that can be read is the same after it is
 * written again: so only output of change_write() is read. */
TEST_BARE(test_refused)
{
        uint8_t payload[CHANGE_BYTES_MAX + 48] = {0}, again[CHANGE_BYTES_MAX];
        struct change c = {.next = 77}, r = {.next = 5};
        size_t n;

        add(&c, of_key(0));
        add(&c, of_tag(9));
        change_write(&c, payload);
        n = change_bytes(c.n_items);
        for (size_t i = 0; i <= sizeof(payload); i++)
                if (i != n)
                        assert_false(change_read(payload, i, &r));
        for (size_t i = 0; i < n; i++)
                for (unsigned bit = 0; bit < 8; bit++) {
                        payload[i] ^= (uint8_t)(1u << bit);
                        if (change_read(payload, n, &r)) {
                                change_write(&r, again);
                                assert_memory_equal(again, payload, n);
                        }
                        payload[i] ^= (uint8_t)(1u << bit);
                }
        c.next = 0;
        change_write(&c, payload);
        r.next = 5;
        assert_false(change_read(payload, n, &r));
        c = (struct change){.next = 1, .n_items = 1};
        c.items[0] = (struct change_item){.kind = CHANGE_TAG};
        change_write(&c, payload);
        assert_false(change_read(payload, change_bytes(1), &r));
        c.items[0] = (struct change_item){.kind = CHANGE_ALL, .tag = 1};
        change_write(&c, payload);
        assert_false(change_read(payload, change_bytes(1), &r));
        c.items[0] = of_key(1);
        c.items[0].kind = CHANGE_ALL;
        change_write(&c, payload);
        assert_false(change_read(payload, change_bytes(1), &r));
        payload[4] = CHANGE_ITEMS_MAX + 1;
        assert_false(change_read(payload, change_bytes(CHANGE_ITEMS_MAX + 1), &r));
        assert_int_equal(r.next, 5);
}
