/* A growing buffer of MessagePack (https://github.com/msgpack/msgpack/blob/master/spec.md), each
 * value in its shortest form. After a failed allocation nothing more is added: look at `failed` at
 * the end. Not thread-safe. */
#ifndef KVL_EVENTS_PACK_H
#define KVL_EVENTS_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pack {
        uint8_t *data; /* owned; NULL: empty */
        size_t len, size;
        bool failed; /* out of memory */
};

void pack_deinit(struct pack *p);

/* Appends bytes as they are. */
void pack_bytes(struct pack *p, const void *data, size_t len);

void pack_nil(struct pack *p);
void pack_uint(struct pack *p, uint64_t value);
void pack_double(struct pack *p, double value);
void pack_text(struct pack *p, const char *text); /* fewer than 65,536 bytes */

/* Begin an array of n values, or a map of n keys with a value each (n < 16). */
void pack_array(struct pack *p, uint32_t n);
void pack_map(struct pack *p, uint8_t n);

#endif
