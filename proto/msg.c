#include "proto/msg.h"

#include <assert.h>
#include <errno.h>

#include "base/macros.h"
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

        assert(fd_count <= FRAME_MAX_FDS);
        if (len > FRAME_MAX_PAYLOAD)
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
        assert(len <= FRAME_MAX_PAYLOAD);
        return protobuf_c_message_unpack(d, &a->allocator, len, payload);
}
