/*
 * Buffers of values that are loaded or written one after the other, kept for the next ones. The
 * daemon gives blocks of a MiB back to the kernel at once (daemon/server/main.c), and to have all
 * their pages made anew for each value took more than half of the time that loading took.
 *
 * Those of one size are kept at a time, that of the last one, up to BUFFERS_KEPT_BYTES, and until
 * none was used for BUFFERS_KEPT_NSEC. Loop thread only; time is a parameter.
 */
#ifndef KVL_CORE_BUFFERS_H
#define KVL_CORE_BUFFERS_H

#include <stdint.h>

/* As much as one request has under way (exchange/exchange-impl.h: IMPORT_WINDOW_BYTES). Not tuned.
 */
#define BUFFERS_KEPT_BYTES (UINT64_C(16) << 20)
#define BUFFERS_KEPT_NSEC  UINT64_C(1000000000)

struct buffer;

/* Zeroed: none. */
struct buffers {
        struct buffer *first; /* owned */
        uint64_t bytes;       /* of each */
        uint32_t n;
        uint64_t used_nsec; /* when one was given back last */
};

/* Of so many bytes, with anything in them; NULL: no memory. bytes > 0. */
uint8_t *buffers_take(struct buffers *b, uint64_t bytes);

/* What buffers_take() gave; NULL: nothing. */
void buffers_give_back(struct buffers *b, uint8_t *buffer, uint64_t bytes, uint64_t now_nsec);

/* Frees those that weren't used for long. When it is to be called again, or UINT64_MAX. */
uint64_t buffers_work(struct buffers *b, uint64_t now_nsec);

/* Frees all that are kept. */
void buffers_free(struct buffers *b);

#endif
