/*
 * Checksums of pages: XXH3 with 64 bits and no seed. They don't stop attackers, which can make two
 * pages with one sum. Computed by the widest vectors of the CPU, with the same result everywhere. A
 * stored sum never changes its algorithm or byte order without another number beside it.
 *
 *   struct sum:  sum_begin() -> (sum_add() | sum_copy()) ... -> sum_end(), any number of times
 *
 * Thread-safe, with one thread for each struct sum. Nothing is allocated.
 */
#ifndef KVL_BASE_SUM_H
#define KVL_BASE_SUM_H

#include <stddef.h>
#include <stdint.h>

/* A sum under way, of bytes that come in pieces of any size. It must not be copied, as its address
 * is part of it. It holds up to 256 of the bytes. */
struct sum {
        uint8_t room[640]; /* XXH3_state_t of libxxhash 0.8, and padding to align it to 64 */
};

/* Returns the sum of n contiguous bytes. NULL and 0 give the empty sum. */
uint64_t sum_of(const void *bytes, size_t n);

void sum_begin(struct sum *s);

/* Adds the next n bytes. */
void sum_add(struct sum *s, const void *bytes, size_t n);

/*
 * Adds the next n bytes and copies them. Each byte is read once, so the sum matches the copy even
 * if `from` changes meanwhile. `to` doesn't overlap `from`; any alignment works, 64 bytes of `to`
 * is best. The stores bypass the caches (on x86-64), so this is for data that isn't read soon.
 * Other threads see them like other stores made before the return. From 256 KiB on about as fast as
 * memcpy(), which reads what it overwrites (sum-kernel.c).
 */
void sum_copy(struct sum *s, void *to, const void *from, size_t n);

/* Returns the sum of all bytes added. More may be added afterwards. */
uint64_t sum_end(const struct sum *s);

#endif
