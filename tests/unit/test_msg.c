#include "tests/unit/test-support.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/server/peers/answer.h"
#include "proto/kvlease.pb-c.h"
#include "proto/msg.h"
#include "tests/unit/alloc-fail.h"

TEST(test_table)
{
        const struct msg_info *row;
        unsigned n = 0, previous = 0;

        for (; (row = msg_at(n)); n++) {
                bool is_event = row->type >= 128;

                assert_true(row->type > previous);
                previous = row->type;
                assert_ptr_equal(msg_find(row->type), row);
                assert_non_null(row->reply);
                assert_in_range(row->reply->sizeof_message, 1, REPLY_STRUCT_MAX);
                assert_int_equal(row->request == NULL, is_event);
                assert_true(row->sockets & (MSG_ON_TENANT | MSG_ON_ADMIN));
                /* tests/integration/test_monitor.c has a table of those on the monitor socket. */
                assert_int_equal(!strncmp(row->name, "ADMIN_", 6),
                        row->sockets == MSG_ON_ADMIN || row->sockets == MSG_READS);
                assert_in_range(row->max_reply_fds, 0, FRAME_MAX_FDS);
        }
        assert_int_equal(n, 71);
        assert_null(msg_find(0));
        assert_null(msg_find(8));
        assert_null(msg_find(65)); /* devices, of older programs */
        assert_true(msg_is_retired(65));
        assert_false(msg_is_retired(109));
        assert_null(msg_find(UINT16_MAX));
}

TEST(test_table_rows)
{
        const struct msg_info *row = msg_find(MSG_RELEASE);

        assert_string_equal(row->name, "RELEASE");
        assert_ptr_equal(row->request, &kvlease__v1__release_request__descriptor);
        assert_ptr_equal(row->reply, &kvlease__v1__simple_reply__descriptor);
        assert_true(row->may_skip_reply);
        assert_false(msg_find(MSG_LEASE)->may_skip_reply);
        assert_int_equal(msg_find(MSG_MAP)->max_reply_fds, FRAME_MAX_FDS);
        assert_ptr_equal(msg_find(MSG_NOTICE)->reply, &kvlease__v1__notice_event__descriptor);
}

/* Every reply begins with status and detail, so that they can be filled in without knowing it. */
TEST(test_replies_begin_alike)
{
        for (unsigned i = 0; msg_at(i); i++) {
                const ProtobufCMessageDescriptor *d = msg_at(i)->reply;

                if (!msg_at(i)->request)
                        continue;
                assert_string_equal(d->fields[0].name, "status");
                assert_int_equal(d->fields[0].id, 1);
                assert_int_equal(d->fields[0].type, PROTOBUF_C_TYPE_UINT32);
                assert_string_equal(d->fields[1].name, "detail");
                assert_int_equal(d->fields[1].id, 2);
                assert_int_equal(d->fields[1].type, PROTOBUF_C_TYPE_STRING);
        }
}

static bool contains_itself(const ProtobufCMessageDescriptor *d, unsigned depth)
{
        if (depth > 8)
                return true;
        for (unsigned i = 0; i < d->n_fields; i++)
                if (d->fields[i].type == PROTOBUF_C_TYPE_MESSAGE &&
                        contains_itself(d->fields[i].descriptor, depth + 1))
                        return true;
        return false;
}

/* protobuf-c 1.4.1 unpacks recursively without a limit. */
TEST(test_no_message_contains_itself)
{
        for (unsigned i = 0; msg_at(i); i++) {
                assert_false(contains_itself(msg_at(i)->reply, 0));
                if (msg_at(i)->request)
                        assert_false(contains_itself(msg_at(i)->request, 0));
        }
}

TEST(test_largest)
{
        static uint8_t buf[FRAME_MAX_SIZE], keys[FRAME_MAX_SIZE];
        Kvlease__V1__LookupRequest m = KVLEASE__V1__LOOKUP_REQUEST__INIT;

        /* A tag and three bytes of length precede the keys. */
        m.keys.data = keys;
        m.keys.len = FRAME_MAX_PAYLOAD - 4;
        assert_int_equal(msg_pack(buf, 1, MSG_LOOKUP, 0, 1, 0, &m.base), FRAME_MAX_SIZE);
        m.keys.len++;
        assert_int_equal(msg_pack(buf, 1, MSG_LOOKUP, 0, 1, 0, &m.base), -EMSGSIZE);
        m.keys.len = 0;
        assert_int_equal(msg_pack(buf, 1, MSG_LOOKUP, 0, 1, FRAME_MAX_FDS + 1, &m.base), -EMSGSIZE);
}

TEST(test_unpack_refuses)
{
        const ProtobufCMessageDescriptor *d = &kvlease__v1__lease_request__descriptor;
        struct arena a;

        assert_int_equal(arena_init(&a, ARENA_BUDGET_BYTES), 0);
        assert_non_null(msg_unpack(d, &a, (const uint8_t *)"", 0));
        assert_null(msg_unpack(d, &a, (const uint8_t *)"\xff", 1));
        assert_null(msg_unpack(d, &a, (const uint8_t *)"", FRAME_MAX_PAYLOAD + 1));
        assert_null(msg_unpack(d, &a, (const uint8_t *)"\x0a\x7f", 2));
        arena_deinit(&a);
}

/* 64 KiB of unknown fields ask for more than any valid message: the budget ends it. */
TEST(test_unpack_bomb)
{
        static uint8_t payload[FRAME_MAX_PAYLOAD];
        struct arena a;

        for (unsigned i = 0; i < sizeof(payload); i++)
                payload[i] = i % 2 ? 1 : 15 << 3;
        assert_int_equal(arena_init(&a, 64 * 1024), 0);
        assert_null(
                msg_unpack(&kvlease__v1__lease_request__descriptor, &a, payload, sizeof(payload)));
        assert_true(a.n_refused > 0);
        arena_reset(&a);
        assert_non_null(
                msg_unpack(&kvlease__v1__lease_request__descriptor, &a, (const uint8_t *)"", 0));
        arena_deinit(&a);
}

/* The largest valid messages that a server has to read fit the budget. */
TEST(test_budget_is_enough)
{
        static uint8_t payload[FRAME_MAX_PAYLOAD];
        const size_t len = sizeof(payload) - 4;
        Kvlease__V1__ReleaseRequest *got;
        struct arena a;

        /* One packed field full of one-byte varints: 4 bytes of memory for each of payload. */
        payload[0] = 2 << 3 | 2;
        payload[1] = 0x80 | (len & 0x7f);
        payload[2] = 0x80 | (len >> 7 & 0x7f);
        payload[3] = (uint8_t)(len >> 14);
        assert_int_equal(arena_init(&a, ARENA_BUDGET_BYTES), 0);
        got = (Kvlease__V1__ReleaseRequest *)msg_unpack(
                &kvlease__v1__release_request__descriptor, &a, payload, sizeof(payload));
        assert_non_null(got);
        assert_int_equal(got->n_pages, len);
        arena_deinit(&a);
}

#define N_EVENTS 40

static size_t pack_events(uint8_t *payload)
{
        Kvlease__V1__AdminEventsReply m = KVLEASE__V1__ADMIN_EVENTS_REPLY__INIT;
        Kvlease__V1__AdminEvent events[N_EVENTS], *list[N_EVENTS];

        for (unsigned i = 0; i < ARRAY_SIZE(events); i++) {
                list[i] = &events[i];
                kvlease__v1__admin_event__init(list[i]);
                events[i].tenant = (char *)"name";
                events[i].detail = (char *)"a sentence";
        }
        m.events = list;
        m.n_events = ARRAY_SIZE(list);
        return kvlease__v1__admin_events_reply__pack(&m, payload);
}

/* Every budget from nothing to enough: each of protobuf-c's allocations fails once. */
TEST(test_unpack_with_any_budget)
{
        static uint8_t payload[FRAME_MAX_SIZE];
        size_t len = pack_events(payload), budget;
        ProtobufCMessage *m = NULL;

        for (budget = 16; !m; budget += 16) {
                struct arena a;

                assert_int_equal(arena_init(&a, budget), 0);
                alloc_fail_at(1);
                m = msg_unpack(&kvlease__v1__admin_events_reply__descriptor, &a, payload, len);
                assert_false(alloc_fail_end());
                assert_int_equal(m == NULL, a.n_refused > 0);
                arena_deinit(&a);
        }
        assert_in_range(budget, N_EVENTS * sizeof(Kvlease__V1__AdminEvent), 64 * 1024);
}

/* A field of wire type 2 with these bytes; its length. */
static size_t put_field(uint8_t *to, uint32_t id, const void *data, size_t len)
{
        assert_true(id < 2048 && len < 128);
        to[0] = (uint8_t)(0x80 | (id << 3 & 0x78) | 2);
        to[1] = (uint8_t)(id >> 4);
        to[2] = (uint8_t)len;
        memcpy(to + 3, data, len);
        return len + 3;
}

TEST(test_bad_text)
{
        static const struct {
                const char *text, *wrong;
                size_t len;
                bool is_raw_fine;
        } cases[] = {
                {"", NULL, 0, true},
                {"decoder", NULL, 7, true},
                {"na\xc3\xafve \xe2\x82\xac", NULL, 10, true},
                {"cut\0off", "a NUL byte", 7, false},
                {"end\0", "a NUL byte", 4, false},
                {"two\nlines", "a control character", 9, true},
                {"\x1b[31m", "a control character", 5, true},
                {"\x7f", "a control character", 1, true},
                {"\xc2\x9b", "a control character", 2, true}, /* CSI */
                {"\xc2\xa0", NULL, 2, true},
                {"\xff", "bytes that aren't UTF-8", 1, true},
                {"\xe2\x82", "bytes that aren't UTF-8", 2, true},
        };
        const ProtobufCMessageDescriptor *d = &kvlease__v1__hello_request__descriptor;

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                uint8_t payload[128];
                const char *field = NULL, *wrong;
                size_t len = put_field(payload, 3, cases[i].text, cases[i].len);

                wrong = msg_bad_text(d, payload, len, false, &field);
                if (cases[i].wrong) {
                        assert_string_equal(wrong, cases[i].wrong);
                        assert_string_equal(field, "client_name");
                } else {
                        assert_null(wrong);
                }
                wrong = msg_bad_text(d, payload, len, true, &field);
                assert_int_equal(wrong == NULL, cases[i].is_raw_fine);
                /* Fields of bytes may have any, and unknown fields belong to no message. */
                len = put_field(payload, 5, cases[i].text, cases[i].len);
                len += put_field(payload + len, 1000, cases[i].text, cases[i].len);
                assert_null(msg_bad_text(d, payload, len, false, &field));
        }
}

/* Where a message is in another one. */
struct nesting {
        const struct nesting *outer;
        uint32_t field;
};

/* Every text of the message, by itself and behind others, in messages of messages; their number. */
static unsigned expect_refused(const ProtobufCMessageDescriptor *d,
        const ProtobufCMessageDescriptor *top, const struct nesting *in)
{
        unsigned n = 0;

        for (unsigned i = 0; i < d->n_fields; i++) {
                const ProtobufCFieldDescriptor *f = &d->fields[i];
                const struct nesting deeper = {in, f->id};
                uint8_t payload[128], inner[128];
                const char *field;
                size_t len;

                if (f->type == PROTOBUF_C_TYPE_MESSAGE)
                        n += expect_refused(f->descriptor, top, &deeper);
                if (f->type != PROTOBUF_C_TYPE_STRING)
                        continue;
                len = put_field(payload, f->id, "right", 5);
                len += put_field(payload + len, f->id, "a\0b", 3);
                for (const struct nesting *k = in; k; k = k->outer) {
                        memcpy(inner, payload, len);
                        len = put_field(payload, k->field, inner, len);
                }
                assert_string_equal(msg_bad_text(top, payload, len, false, &field), "a NUL byte");
                assert_string_equal(field, f->name);
                n++;
        }
        return n;
}

TEST(test_bad_text_of_every_request)
{
        unsigned n = 0;

        for (unsigned i = 0; msg_at(i); i++)
                if (msg_at(i)->request)
                        n += expect_refused(msg_at(i)->request, msg_at(i)->request, NULL);
        assert_true(n > 20);
}

/* Cut anywhere, and with any byte changed: it ends, within the bytes (a sanitizer looks). */
TEST(test_bad_text_of_damaged_bytes)
{
        const ProtobufCMessageDescriptor *d = &kvlease__v1__ns_open_request__descriptor;
        Kvlease__V1__NsOpenRequest m = KVLEASE__V1__NS_OPEN_REQUEST__INIT;
        Kvlease__V1__NsLayout layout = KVLEASE__V1__NS_LAYOUT__INIT;
        uint8_t payload[256];
        const char *field;
        size_t len;

        m.name = (char *)"name";
        m.layout = &layout;
        layout.model = (char *)"model";
        layout.page_tokens = 1 << 20;
        len = kvlease__v1__ns_open_request__pack(&m, payload);
        assert_null(msg_bad_text(d, payload, len, false, &field));
        for (size_t i = 0; i < len; i++) {
                uint8_t *copy = malloc(len);

                assert_non_null(copy);
                memcpy(copy, payload, len);
                for (unsigned byte = 0; byte < 256; byte++) {
                        copy[i] = (uint8_t)byte;
                        (void)msg_bad_text(d, copy, len, false, &field);
                }
                copy = realloc(copy, MAX(i, (size_t)1));
                assert_non_null(copy);
                memcpy(copy, payload, i);
                (void)msg_bad_text(d, copy, i, false, &field);
                free(copy);
        }
        assert_string_equal(msg_bad_text(d, payload, 1, false, &field), "a field that is cut off");
}
