/* Slots of keys, CLUSTER SLOTS in all its forms, and redirections. */
#include "tests/unit/test-support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/remote/protocol/slots.h"

/* The specification's own value (0x31c3), and what CLUSTER KEYSLOT of Redis 7.0.15 says. */
TEST(test_keys)
{
        static const struct {
                const char *key;
                unsigned slot;
        } rows[] = {
                {"123456789", 12739},
                {"", 0},
                {"foo", 12182},
                {"{foo}", 12182},
                {"{foo}bar", 12182},
                {"bar{foo}{bar}", 12182},
                {"{user1000}.following", 3443},
                {"{user1000}.followers", 3443},
                {"foo{}{bar}", 8363},    /* an empty tag is none */
                {"foo{{bar}}zap", 4015}, /* the tag is "{bar" */
                {"{", 4092},
                {"}{", 12793},
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
                assert_int_equal(slot_of_key(rows[i].key, strlen(rows[i].key)), rows[i].slot);
}

/* Bit by bit, as the specification has it: CRC-16/XMODEM. */
static unsigned slot_by_bits(const uint8_t *key, size_t len)
{
        uint16_t crc = 0;

        for (size_t i = 0; i < len; i++) {
                crc ^= (uint16_t)(key[i] << 8);
                for (unsigned bit = 0; bit < 8; bit++)
                        crc = (uint16_t)(crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1);
        }
        return crc % N_SLOTS;
}

/* Keys of one byte have an entry of the table each; of two bytes each entry again, with the top
 * bits that a single byte's slot doesn't show, in the place of the next one. */
TEST(test_every_entry)
{
        uint8_t key[2];

        for (unsigned i = 0; i < 65536; i++) {
                key[0] = (uint8_t)(i >> 8);
                key[1] = (uint8_t)i;
                assert_int_equal(slot_of_key(key, 1), slot_by_bits(key, 1));
                assert_int_equal(slot_of_key(key, 2), slot_by_bits(key, 2));
        }
}

static struct slot_table table;

/* Reads a reply, in pieces of `step` bytes of bulk strings. */
static int table_read(const char *data, size_t step)
{
        size_t left = strlen(data), used;
        struct slot_reader reader;
        struct resp_parser p;
        struct resp_token t;
        int r = 0;

        slot_reader_init(&reader, &table);
        resp_init(&p, 1000);
        do {
                if (p.payload_left > 0) {
                        used = MIN((size_t)p.payload_left, step);
                        assert_true(used <= left);
                        r = slot_reader_text(&reader, data, used);
                        resp_took(&p, used);
                        t.kind = RESP_BULK;
                } else {
                        assert_int_equal(resp_next(&p, data, left, &used, &t), 0);
                        assert_int_not_equal(t.kind, RESP_MORE);
                        r = slot_reader_token(&reader, &t);
                }
                data += used;
                left -= used;
        } while (r == 0 && t.kind != RESP_END);
        if (r == 0)
                assert_int_equal(left, 0);
        return r;
}

#define ID   "$40\r\n0123456789012345678901234567890123456789\r\n"
#define A    "*4\r\n$9\r\n127.0.0.1\r\n:7000\r\n" ID "*0\r\n"
#define B    "*3\r\n$3\r\n::1\r\n:7001\r\n" ID
#define SELF "*4\r\n$-1\r\n:7002\r\n" ID "*0\r\n"
#define NAMED                                                                           \
        "*4\r\n$5\r\nnode1\r\n:7003\r\n" ID "*4\r\n$2\r\nxx\r\n$1\r\ny\r\n$2\r\nip\r\n" \
        "$8\r\n10.0.0.1\r\n"
#define LOST "*4\r\n$5\r\nnode1\r\n:7003\r\n" ID "*0\r\n"

TEST(test_tables)
{
        for (size_t step = 1; step < 50; step += 7) {
                assert_int_equal(table_read("*0\r\n", step), 0);
                assert_int_equal(table.n_served, 0);

                /* With a replica, which doesn't count; two ranges of one master. */
                assert_int_equal(table_read("*3\r\n*4\r\n:0\r\n:99\r\n" A B
                                            "*3\r\n:200\r\n:16383\r\n" B "*3\r\n:100\r\n:100\r\n" A,
                                         step),
                        0);
                assert_int_equal(table.n_owners, 2);
                assert_int_equal(table.n_served, 101 + 16184);
                assert_string_equal(table.owners[0].host, "127.0.0.1");
                assert_int_equal(table.owners[0].port, 7000);
                assert_string_equal(table.owners[1].host, "::1");
                assert_int_equal(table.owner_of[0], 0);
                assert_int_equal(table.owner_of[100], 0);
                assert_int_equal(table.owner_of[101], SLOT_NOBODY);
                assert_int_equal(table.owner_of[16383], 1);

                assert_int_equal(table_read("*3\r\n*3\r\n:0\r\n:0\r\n" SELF
                                            "*3\r\n:1\r\n:1\r\n" NAMED "*3\r\n:2\r\n:2\r\n" LOST,
                                         step),
                        0);
                assert_int_equal(table.n_owners, 2);
                assert_string_equal(table.owners[0].host, "");
                assert_int_equal(table.owners[0].port, 7002);
                assert_string_equal(table.owners[1].host, "10.0.0.1");
                assert_int_equal(table.owner_of[2], SLOT_NOBODY);
        }
}

TEST(test_bad_tables)
{
        static const char *const bad[] = {
                "+OK\r\n",
                ":1\r\n",
                "*1\r\n:1\r\n",
                "*1\r\n*0\r\n",
                "*1\r\n*1\r\n:0\r\n",
                "*1\r\n*2\r\n:0\r\n:1\r\n",
                "*1\r\n*3\r\n$1\r\n0\r\n:1\r\n" A,
                "*1\r\n*3\r\n:0\r\n$1\r\n1\r\n" A,
                "*1\r\n*3\r\n:0\r\n:1\r\n:2\r\n",
                "*1\r\n*3\r\n:-1\r\n:1\r\n" A,
                "*1\r\n*3\r\n:2\r\n:1\r\n" A,
                "*1\r\n*3\r\n:0\r\n:16384\r\n" A,
                "*1\r\n*3\r\n:0\r\n:9223372036854775807\r\n" A,
                "*2\r\n*3\r\n:0\r\n:9\r\n" A "*3\r\n:9\r\n:10\r\n" B, /* two have slot 9 */
                "*1\r\n*3\r\n:0\r\n:1\r\n*0\r\n",
                "*1\r\n*3\r\n:0\r\n:1\r\n*1\r\n$9\r\n127.0.0.1\r\n",
                "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$9\r\n127.0.0.1\r\n:0\r\n",
                "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$9\r\n127.0.0.1\r\n:65536\r\n",
                "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$9\r\n127.0.0.1\r\n$4\r\n7000\r\n",
                "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n:1\r\n:7000\r\n",
                "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$64\r\n"
                "0123456789012345678901234567890123456789012345678901234567890123\r\n:7000\r\n",
        };

        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                if (table_read(bad[i], 5) != -EPROTO)
                        fail_msg("accepted: %s", bad[i]);
}

/* More masters than there may be. */
TEST(test_many_owners)
{
        char *data = NULL;
        size_t size;
        FILE *f = open_memstream(&data, &size);

        assert_non_null(f);
        fprintf(f, "*%u\r\n", SLOT_OWNERS_MAX + 1);
        for (unsigned i = 0; i <= SLOT_OWNERS_MAX; i++)
                fprintf(f, "*3\r\n:%u\r\n:%u\r\n*2\r\n$9\r\n127.0.0.1\r\n:%u\r\n", i, i, i + 1);
        fclose(f);
        assert_int_equal(table_read(data, 9), -EPROTO);
        free(data);
}

/* Slot by slot, in the names of n masters. */
static char *make_ranges(unsigned n)
{
        char *data = NULL, host[32];
        size_t size;
        FILE *f = open_memstream(&data, &size);

        assert_non_null(f);
        fprintf(f, "*%u\r\n", N_SLOTS);
        for (unsigned s = 0; s < N_SLOTS; s++) {
                unsigned of = s * 201 % n;
                int len = snprintf(host, sizeof(host), "127.127.%u.%u", of / 7, of % 7);

                fprintf(f, "*3\r\n:%u\r\n:%u\r\n*2\r\n$%d\r\n%s\r\n:7000\r\n", s, s, len, host);
        }
        fclose(f);
        return data;
}

/* The most ranges and masters, each with its owner. */
TEST(test_many_ranges)
{
        char *data = make_ranges(SLOT_OWNERS_MAX), host[32];

        assert_int_equal(table_read(data, 100), 0);
        free(data);
        assert_int_equal(table.n_owners, SLOT_OWNERS_MAX);
        assert_int_equal(table.n_served, N_SLOTS);
        for (unsigned s = 0; s < N_SLOTS; s++) {
                unsigned of = s * 201 % SLOT_OWNERS_MAX;

                snprintf(host, sizeof(host), "127.127.%u.%u", of / 7, of % 7);
                assert_string_equal(table.owners[table.owner_of[s]].host, host);
        }
}
