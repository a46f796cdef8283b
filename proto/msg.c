#include "proto/msg.h"

#include <errno.h>
#include <string.h>

#include "base/macros.h"
#include "base/parse.h"
#include "proto/kvlease.pb-c.h"

#define DESCRIPTOR(name) &kvlease__v1__##name##__descriptor

enum msg_row {
#define X(name, ...) ROW_##name,
        MSG_TABLE(X) MSG_EVENT_TABLE(X)
#undef X
};

static const struct msg_info rows[] = {
#define X(name, number, request, reply, sockets, may_skip, fds) \
        {number, #name, DESCRIPTOR(request), DESCRIPTOR(reply), sockets, may_skip, fds},
        MSG_TABLE(X)
#undef X
#define X(name, number, event) \
        {number, #name, NULL, DESCRIPTOR(event), MSG_ON_TENANT | MSG_ON_ADMIN, false, 0},
                MSG_EVENT_TABLE(X)
#undef X
};

const struct msg_info *msg_find(uint16_t type)
{
        /* A switch, so that the compiler finds a jump table (and a number given twice). */
        switch (type) {
#define X(name, number, ...) \
        case number:         \
                return &rows[ROW_##name];
                MSG_TABLE(X)
                MSG_EVENT_TABLE(X)
#undef X
        default:
                return NULL;
        }
}

const struct msg_info *msg_at(unsigned i)
{
        return i < ARRAY_SIZE(rows) ? &rows[i] : NULL;
}

int msg_pack(uint8_t *buf, uint16_t version, uint16_t type, uint16_t flags, uint64_t seq,
        unsigned fd_count, const ProtobufCMessage *m)
{
        size_t len = protobuf_c_message_get_packed_size(m);

        if (len > FRAME_MAX_PAYLOAD || fd_count > FRAME_MAX_FDS)
                return -EMSGSIZE;
        frame_encode_header(
                &(struct frame_header){
                        .magic = FRAME_MAGIC,
                        .version = version,
                        .type = type,
                        .length = (uint32_t)len,
                        .fd_count = (uint16_t)fd_count,
                        .flags = flags,
                        .seq = seq,
                },
                buf);
        protobuf_c_message_pack(m, buf + FRAME_HEADER_SIZE);
        return (int)(FRAME_HEADER_SIZE + len);
}

ProtobufCMessage *msg_unpack(
        const ProtobufCMessageDescriptor *d, struct arena *a, const uint8_t *payload, size_t len)
{
        if (len > FRAME_MAX_PAYLOAD)
                return NULL;
        return protobuf_c_message_unpack(d, &a->allocator, len, payload);
}

/* ---- texts ----------------------------------------------------------------------------------- */

enum wire_type { WIRE_TYPE_VARINT, WIRE_TYPE_64BIT, WIRE_TYPE_LENGTH, WIRE_TYPE_32BIT = 5 };

/* Longest forms, in bytes, of a number, and of a tag or length. */
#define VARINT_MAX 10
#define SHORT_MAX  5

struct scan {
        const uint8_t *at, *end;
        bool may_be_raw;
        const char *field; /* the field with the error */
};

/* Returns false if it doesn't end. */
static bool read_varint(struct scan *s, unsigned max, uint64_t *ret)
{
        *ret = 0;
        for (unsigned i = 0; i < max && s->at < s->end; i++) {
                uint8_t byte = *s->at++;

                *ret |= (uint64_t)(byte & 0x7f) << (7 * i);
                if (!(byte & 0x80))
                        return true;
        }
        return false;
}

static bool skip(struct scan *s, uint64_t n)
{
        if (n > (uint64_t)(s->end - s->at))
                return false;
        s->at += n;
        return true;
}

static const char *check_text(const struct scan *s, const char *text, size_t len)
{
        if (memchr(text, '\0', len))
                return "a NUL byte";
        for (size_t n; !s->may_be_raw && len > 0; text += n, len -= n) {
                n = utf8_char_len(text, len);
                if (n == 0)
                        return "bytes that aren't UTF-8";
                if (utf8_is_control(text, n))
                        return "a control character";
        }
        return NULL;
}

static const char *check_message(struct scan *s, const ProtobufCMessageDescriptor *d);

/* Checks a field of `len` bytes, which are there. */
static const char *check_field(
        struct scan *s, const ProtobufCFieldDescriptor *field, const uint8_t *data, size_t len)
{
        struct scan inner = {.at = data, .end = data + len, .may_be_raw = s->may_be_raw};
        const char *wrong = NULL;

        if (field && field->type == PROTOBUF_C_TYPE_STRING) {
                wrong = check_text(s, (const char *)data, len);
                s->field = field->name;
        } else if (field && field->type == PROTOBUF_C_TYPE_MESSAGE) {
                wrong = check_message(&inner, field->descriptor);
                s->field = inner.field;
        }
        return wrong;
}

/* Checks a message. No message contains itself, so the recursion is as deep as the table nests
 * messages. */
static const char *check_message(struct scan *s, const ProtobufCMessageDescriptor *d)
{
        static const char cut[] = "a field that is cut off";
        const char *wrong = NULL;

        s->field = d->short_name;
        while (s->at < s->end && !wrong) {
                const uint8_t *data;
                uint64_t tag, n;
                bool whole = read_varint(s, SHORT_MAX, &tag);

                switch (whole ? tag & 7 : UINT64_MAX) {
                case WIRE_TYPE_VARINT:
                        whole = read_varint(s, VARINT_MAX, &n);
                        break;
                case WIRE_TYPE_64BIT:
                        whole = skip(s, sizeof(uint64_t));
                        break;
                case WIRE_TYPE_32BIT:
                        whole = skip(s, sizeof(uint32_t));
                        break;
                case WIRE_TYPE_LENGTH:
                        whole = read_varint(s, SHORT_MAX, &n);
                        data = s->at;
                        whole = whole && skip(s, n);
                        if (whole)
                                wrong = check_field(s,
                                        protobuf_c_message_descriptor_get_field(
                                                d, (unsigned)(tag >> 3)),
                                        data, n);
                        break;
                default:
                        whole = false;
                }
                if (!whole)
                        return cut;
        }
        return wrong;
}

const char *msg_bad_text(const ProtobufCMessageDescriptor *d, const uint8_t *payload, size_t len,
        bool may_be_raw, const char **ret_field)
{
        struct scan s = {.at = payload, .end = payload + len, .may_be_raw = may_be_raw};
        const char *wrong = check_message(&s, d);

        if (wrong)
                *ret_field = s.field;
        return wrong;
}
