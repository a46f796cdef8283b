/* Budgeted bump allocator for unpacking protobuf-c messages. A peer's message decides how much is
 * allocated (a 64 KiB frame can ask for 68 times its size). Past the budget unpacking fails,
 * without taking anything from the heap. arena_reset() frees all. Not thread-safe. */
#ifndef KVL_PROTO_ARENA_H
#define KVL_PROTO_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

/* Enough for any valid message. The largest is 64 KiB of packed varints of one byte, or as many
 * unknown fields. A varint takes 4 bytes in memory (256 KiB, doubled by protobuf-c's scan). Not
 * tuned. */
#define ARENA_BUDGET_BYTES (1024 * 1024)

struct arena {
        ProtobufCAllocator allocator; /* pass &arena->allocator to *_unpack */
        uint8_t *memory;              /* owned, ARENA_BUDGET_BYTES, touched as needed */
        size_t size, used;
        uint64_t n_refused; /* allocations refused since init */
};

/* Returns 0 or -ENOMEM. The arena must not move afterwards: its allocator points at it. */
int arena_init(struct arena *a, size_t budget_bytes);
void arena_deinit(struct arena *a);
void arena_reset(struct arena *a);

/* Returns zeroed memory from the budget, valid until reset; NULL past the budget. */
void *arena_alloc(struct arena *a, size_t bytes);

/* Copies a string to such memory; NULL past the budget. */
char *arena_strdup(struct arena *a, const char *text);

#endif
