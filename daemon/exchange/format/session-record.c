#include "daemon/exchange/format/session-record.h"

#include <assert.h>
#include <string.h>

#define VERSION 1

struct head {
        uint32_t version;
        uint32_t n_pages;
        uint64_t n_tokens;
};

static_assert(sizeof(struct head) == SESSION_RECORD_HEAD_BYTES, "nothing between its fields");

uint8_t *session_record_begin(uint8_t *payload, uint64_t n_tokens, uint32_t n_pages)
{
        const struct head head = {.version = VERSION, .n_pages = n_pages, .n_tokens = n_tokens};

        memcpy(payload, &head, sizeof(head));
        return payload + sizeof(head);
}

bool session_record_read(const uint8_t *payload, size_t n_bytes, struct session_record *ret)
{
        struct head head;

        if (n_bytes < sizeof(head))
                return false;
        memcpy(&head, payload, sizeof(head));
        if (head.version != VERSION || head.n_pages == 0 ||
                head.n_pages > SESSION_RECORD_PAGES_MAX || head.n_tokens < head.n_pages ||
                head.n_tokens > UINT32_MAX || n_bytes != session_record_bytes(head.n_pages))
                return false;
        *ret = (struct session_record){
                .n_tokens = head.n_tokens, .n_pages = head.n_pages, .keys = payload + sizeof(head)};
        return true;
}
