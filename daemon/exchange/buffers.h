/*
 * A pool of buffers for values that are loaded or written one after the other. The daemon's
 * allocator gives blocks of a MiB back to the kernel at once (daemon/server/main.c). Faulting in
 * new pages for each value took more than half of the loading time.
 *
 * Buffers of one size are kept: the size used last. At most BUFFERS_KEPT_BYTES are kept, and only
 * until none was used for BUFFERS_KEPT_NSEC. Loop thread only; time is a parameter.
 */
#ifndef KVL_EXCHANGE_BUFFERS_H
#define KVL_EXCHANGE_BUFFERS_H

#include <stdint.h>

/* The bytes that one request has under way (exchange-impl.h: IMPORT_WINDOW_BYTES). Not tuned. */
#define BUFFERS_KEPT_BYTES (UINT64_C(16) << 20)
#define BUFFERS_KEPT_NSEC  UINT64_C(1000000000)

struct buffer;

/* Zeroed: holds no buffers. */
struct buffers {
        struct buffer *first; /* owned */
        uint64_t bytes;       /* of each buffer */
        uint32_t n;
        uint64_t used_nsec; /* when a buffer was given back last */
};

/* Returns a buffer of so many bytes with undefined contents; NULL: no memory. bytes > 0. */
uint8_t *buffers_take(struct buffers *b, uint64_t bytes);

/* Gives back a buffer of buffers_take(); NULL is ignored. */
void buffers_give_back(struct buffers *b, uint8_t *buffer, uint64_t bytes, uint64_t now_nsec);

/* Frees buffers that weren't used for BUFFERS_KEPT_NSEC. Returns the time of the next call, or
 * UINT64_MAX. */
uint64_t buffers_work(struct buffers *b, uint64_t now_nsec);

/* Frees all kept buffers. */
void buffers_free(struct buffers *b);

#endif
