#include "daemon/exchange/buffers.h"

#include <stdlib.h>

#include "base/macros.h"

/* Lies in the first bytes of a kept buffer. */
struct buffer {
        struct buffer *next;
};

void buffers_free(struct buffers *b)
{
        while (b->first) {
                struct buffer *next = b->first->next;

                free(b->first);
                b->first = next;
        }
        b->n = 0;
}

uint8_t *buffers_take(struct buffers *b, uint64_t bytes)
{
        struct buffer *first = b->first;

        if (!first || b->bytes != bytes)
                return malloc(MAX(bytes, sizeof(*first)));
        b->first = first->next;
        b->n--;
        return (uint8_t *)first;
}

void buffers_give_back(struct buffers *b, uint8_t *buffer, uint64_t bytes, uint64_t now_nsec)
{
        struct buffer *first = (struct buffer *)buffer;

        if (!buffer)
                return;
        if (b->bytes != bytes)
                buffers_free(b);
        b->bytes = bytes;
        b->used_nsec = now_nsec;
        if (bytes > BUFFERS_KEPT_BYTES || b->n >= BUFFERS_KEPT_BYTES / bytes) {
                free(buffer);
                return;
        }
        first->next = b->first;
        b->first = first;
        b->n++;
}

uint64_t buffers_work(struct buffers *b, uint64_t now_nsec)
{
        if (b->n > 0 && now_nsec - b->used_nsec >= BUFFERS_KEPT_NSEC)
                buffers_free(b);
        return b->n > 0 ? b->used_nsec + BUFFERS_KEPT_NSEC : UINT64_MAX;
}
