/* Names and keys of values that hosts exchange, against vectors that
 * tests/tools/exchange-vectors.py made without this code (hmac, hashlib). Different values have
 * different names. */
#include "tests/unit/test-support.h"

#include <errno.h>

#include "daemon/remote/protocol/slots.h"
#include "tests/unit/exchange-fixture.h"

#define ID      "7306a8a885429cd0bc4dd8f91423472a91e243523aa3ce618be1b230b7248ad9"
#define PAGE    "78b56d0cd34613e121fab120829dcae064e39e53be556481cb4cbac84b9ac5cb"
#define OPEN    "d66e84c4caf484552fbb511f8c4bb434a78f74c8536c6efff3e4b237cdbb358e"
#define MEMBER  3268271898
#define EPOCH   "7a16470fffd6ec75dede774d3dda4f8d90baa696892c6187d35e954f477ab06d"
#define CHANGE  "efad83d1cc9466fede627dcc96918547ea2e07ecabd374002c4f0cb3721a80be"
#define SESSION "bed2746abe864a2f2f9b3fbaf6802bf37e70ea824cbb2048ffc67898a5886318"
#define SEAL    "34730d74ef4506bd87d23b5e09a48f7d5b388dd8eca8b4757aa978a0ed8e31fc"
#define SECRET  "caceca86d6d9dd78f714117d0e598e50460155932ab4522b1e68b48cdc7a8868"

static const uint8_t page[EXCHANGE_KEY_BYTES] = {0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11,
        0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11,
        0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11};

static void is_hex(const uint8_t bytes[32], const char *hex)
{
        char text[65];

        assert_string_equal(format_hex(bytes, 32, text), hex);
}

TEST(test_places)
{
        struct exchange_tenant t = fixture_tenant();
        uint8_t id[EXCHANGE_ID_BYTES], place[EXCHANGE_PLACE_BYTES];
        char name[EXCHANGE_NAME_MAX];

        assert_int_equal(exchange_identify(&t, &fixture_model, id), 0);
        is_hex(id, ID);
        assert_int_equal(exchange_page_place(&t, id, FIXTURE_EPOCH, page, place), 0);
        is_hex(place, PAGE);
        assert_int_equal(
                exchange_page_name(&t, place, 0, name), sizeof("kvl:1:acme:{" PAGE "}:0") - 1);
        assert_string_equal(name, "kvl:1:acme:{" PAGE "}:0");
        assert_int_equal(exchange_page_rename(name, 17), sizeof("kvl:1:acme:{" PAGE "}:17") - 1);
        assert_string_equal(name, "kvl:1:acme:{" PAGE "}:17");
        assert_int_equal(exchange_page_rename(name, 3), sizeof("kvl:1:acme:{" PAGE "}:3") - 1);
        assert_string_equal(name, "kvl:1:acme:{" PAGE "}:3");
        assert_int_equal(exchange_epoch_name(&t, id, name), 0);
        assert_string_equal(name, "kvl:1:acme:{" EPOCH "}:epoch");
        assert_int_equal(exchange_change_name(&t, id, FIXTURE_EPOCH, place, name), 0);
        is_hex(place, CHANGE);
        assert_string_equal(name, "kvl:1:acme:{" CHANGE "}:change");
        assert_int_equal(exchange_session_name(&t, id, "chat-1", 6, name), 0);
        assert_string_equal(name, "kvl:1:acme:{" SESSION "}:session");

        t.secret_len = 0;
        assert_int_equal(exchange_page_place(&t, id, FIXTURE_EPOCH, page, place), 0);
        is_hex(place, OPEN);
}

TEST(test_members)
{
        struct exchange_tenant t = fixture_tenant(), others = fixture_tenant();
        uint8_t id[EXCHANGE_ID_BYTES];
        uint32_t numbers[4];
        unsigned n = 0;

        others.secret[0] ^= 1;
        assert_int_equal(exchange_identify(&t, &fixture_model, id), 0);
        assert_int_equal(exchange_member_number(&t, id, 1, &numbers[n++]), 0);
        assert_int_equal(numbers[0], MEMBER);
        assert_int_equal(exchange_member_number(&t, id, 2, &numbers[n++]), 0);
        assert_int_equal(exchange_member_number(&others, id, 1, &numbers[n++]), 0);
        id[0] ^= 1;
        assert_int_equal(exchange_member_number(&t, id, 1, &numbers[n++]), 0);
        for (unsigned i = 0; i < n; i++)
                for (unsigned j = 0; j < i; j++)
                        assert_int_not_equal(numbers[i], numbers[j]);
}

/* For any part of a page; the page's key alone gives the slot. */
TEST(test_parts_lie_in_one_slot)
{
        static const uint32_t parts[] = {0, 1, 17, MEMBER, UINT32_MAX};
        uint8_t id[EXCHANGE_ID_BYTES] = {0}, key[EXCHANGE_KEY_BYTES] = {0};
        struct exchange_tenant t = fixture_tenant();
        uint8_t place[EXCHANGE_PLACE_BYTES];
        char name[EXCHANGE_NAME_MAX];
        unsigned slots[2];

        for (unsigned i = 0; i < ARRAY_SIZE(slots); i++) {
                key[0] = (uint8_t)i;
                assert_int_equal(exchange_page_place(&t, id, 1, key, place), 0);
                slots[i] = slot_of_key(name, exchange_page_name(&t, place, parts[0], name));
                for (unsigned k = 1; k < ARRAY_SIZE(parts); k++) {
                        size_t len = exchange_page_name(&t, place, parts[k], name);

                        assert_int_equal(slot_of_key(name, len), slots[i]);
                }
        }
        assert_int_not_equal(slots[0], slots[1]);
}

TEST(test_seal_keys)
{
        struct exchange_tenant t = fixture_tenant();
        uint8_t id[EXCHANGE_ID_BYTES], key[32];
        struct seal_key seal;

        assert_int_equal(exchange_identify(&t, &fixture_model, id), 0);
        assert_int_equal(exchange_seal_key(&t, FIXTURE_EPOCH, &seal), 0);
        is_hex(seal.bytes, SEAL);
        assert_int_equal(exchange_page_key(&seal, id, 1, page, key), 0);
        is_hex(key, SECRET);
        t.secret_len = 0;
        assert_int_equal(exchange_seal_key(&t, FIXTURE_EPOCH, &seal), -EINVAL);
}

/* The longest names that there are fit. */
TEST(test_longest)
{
        struct exchange_tenant t = fixture_tenant();
        const uint8_t place[EXCHANGE_PLACE_BYTES] = {0xff};
        char name[EXCHANGE_NAME_MAX], session[EXCHANGE_SESSION_MAX + 1] = "";
        uint8_t id[EXCHANGE_ID_BYTES] = {0};

        memset(t.name, 't', TENANT_NAME_MAX);
        assert_int_equal(exchange_page_name(&t, place, UINT32_MAX, name), EXCHANGE_NAME_MAX - 1);
        assert_int_equal(strlen(name), EXCHANGE_NAME_MAX - 1);
        assert_string_equal(name + strlen(name) - 12, "}:4294967295");
        assert_int_equal(exchange_session_name(&t, id, session, EXCHANGE_SESSION_MAX, name), 0);
        assert_int_equal(
                exchange_session_name(&t, id, session, EXCHANGE_SESSION_MAX + 1, name), -EINVAL);
        assert_int_equal(exchange_session_name(&t, id, session, 0, name), -EINVAL);
}

TEST(test_texts_too_long)
{
        static char text[EXCHANGE_TEXTS_MAX + 1];
        struct exchange_tenant t = fixture_tenant();
        struct exchange_model m = {.model = text};
        uint8_t id[EXCHANGE_ID_BYTES];

        memset(text, 'm', EXCHANGE_TEXTS_MAX);
        memset(t.name, 't', TENANT_NAME_MAX);
        assert_int_equal(exchange_identify(&t, &m, id), 0);
        m.salt = "s";
        m.salt_len = 1;
        assert_int_equal(exchange_identify(&t, &m, id), -ENAMETOOLONG);
        m = (struct exchange_model){.model = text, .format = "f", .format_len = 1};
        assert_int_equal(exchange_identify(&t, &m, id), -ENAMETOOLONG);
        m = (struct exchange_model){.model = text, .scope = "f"};
        assert_int_equal(exchange_identify(&t, &m, id), -ENAMETOOLONG);
        m = (struct exchange_model){.salt = text, .salt_len = SIZE_MAX};
        assert_int_equal(exchange_identify(&t, &m, id), -ENAMETOOLONG);
}

/* Models that differ in one field have different identities, also if text moves from one field to
 * the next. */
TEST(test_identities_differ)
{
        struct exchange_tenant t = fixture_tenant(), others = fixture_tenant();
        struct exchange_model models[16];
        uint8_t ids[ARRAY_SIZE(models) + 1][EXCHANGE_ID_BYTES];
        unsigned n = 0;

        for (unsigned i = 0; i < ARRAY_SIZE(models); i++)
                models[i] = fixture_model;
        n++; /* as it is */
        models[n++].scope = "llama";
        models[n++].model = "llama-3-70b";
        models[n++].version = NULL;
        models[n++].dtype++;
        models[n++].n_layers++;
        models[n++].n_kv_heads++;
        models[n++].head_size++;
        models[n++].page_tokens++;
        models[n++].n_planes++;
        models[n++].plane_page_bytes++;
        models[n++].tp_size++;
        models[n++].layer_group++;
        models[n++].codecs = "none";
        models[n++].salt_len--;
        models[n].model = "llama-3-8b2";
        models[n++].version = "024-07";
        assert_int_equal(n, ARRAY_SIZE(models));
        for (unsigned i = 0; i < n; i++)
                assert_int_equal(exchange_identify(&t, &models[i], ids[i]), 0);
        strcpy(others.name, "acme2");
        assert_int_equal(exchange_identify(&others, &fixture_model, ids[n++]), 0);
        for (unsigned i = 0; i < n; i++)
                for (unsigned j = 0; j < i; j++)
                        assert_memory_not_equal(ids[i], ids[j], EXCHANGE_ID_BYTES);
}

TEST(test_places_differ)
{
        struct exchange_tenant t = fixture_tenant(), others = fixture_tenant();
        uint8_t id[EXCHANGE_ID_BYTES] = {0}, key[EXCHANGE_KEY_BYTES] = {0};
        uint8_t places[5][EXCHANGE_PLACE_BYTES];
        unsigned n = 0;

        others.secret[0] ^= 1;
        assert_int_equal(exchange_page_place(&t, id, 1, key, places[n++]), 0);
        assert_int_equal(exchange_page_place(&others, id, 1, key, places[n++]), 0);
        assert_int_equal(exchange_page_place(&t, id, 2, key, places[n++]), 0);
        key[31] = 1;
        assert_int_equal(exchange_page_place(&t, id, 1, key, places[n++]), 0);
        key[31] = 0;
        id[31] = 1;
        assert_int_equal(exchange_page_place(&t, id, 1, key, places[n++]), 0);
        for (unsigned i = 0; i < n; i++)
                for (unsigned j = 0; j < i; j++)
                        assert_memory_not_equal(places[i], places[j], EXCHANGE_PLACE_BYTES);
}
