/*
 * Budgeted bump allocator for unpacking protobuf-c messages. What a peer sends decides how much is
 * allocated (a 64 KiB frame can ask for 68 times its size); past the budget unpacking fails and
 * nothing was taken from the heap. Freed as a whole by arena_reset(). Not thread-safe.
 */
#ifndef KVL_PROTO_ARENA_H
#define KVL_PROTO_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

/*
 * Enough for any valid message: the largest is 64 KiB of packed varints of one byte, 4 bytes each
 * in memory (256 KiB, doubled by protobuf-c's scan), or as many unknown fields. Not tuned.
 */
#define ARENA_BUDGET_BYTES (1024 * 1024)

struct arena {
        ProtobufCAllocator allocator; /* pass &arena->allocator to *_unpack */
        uint8_t *memory;              /* owned, ARENA_BUDGET_BYTES, touched as needed */
        size_t size, used;
        uint64_t n_refused; /* allocations refused since init */
};

/* 0 or -ENOMEM. The arena must not move afterwards: its allocator points at it. */
int arena_init(struct arena *a, size_t budget_bytes);
void arena_deinit(struct arena *a);
void arena_reset(struct arena *a);

/* Zeroed memory from the same budget, valid until reset; NULL past it. */
void *arena_alloc(struct arena *a, size_t bytes);

/* A copy of the text in such memory; NULL past the budget. */
char *arena_strdup(struct arena *a, const char *text);

#endif
