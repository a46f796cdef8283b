/*
 * Checksums of pages: XXH3 with 64 bits and no seed, of what no enemy chose (who means harm can
 * make two pages of one sum). Taken by the widest vectors that the CPU has; the same everywhere,
 * and as kept: a sum is never of another algorithm, or byte order, without another number beside
 * it.
 *
 *   struct sum:  sum_begin() -> (sum_add() | sum_copy()) ... -> sum_end(), any number of times
 *
 * Any thread, one a struct sum; nothing is allocated.
 */
#ifndef KVL_BASE_SUM_H
#define KVL_BASE_SUM_H

#include <stddef.h>
#include <stdint.h>

/* A sum that is under way, of bytes that come in pieces; how they are cut doesn't matter. It must
 * not be copied, as its address is part of it. It holds up to 256 of the bytes. */
struct sum {
        uint8_t room[640]; /* XXH3_state_t of libxxhash 0.8, and what aligns it to 64 */
};

/* The sum of n bytes that lie together. NULL and 0 give the sum of nothing. */
uint64_t sum_of(const void *bytes, size_t n);

void sum_begin(struct sum *s);

/* The next n bytes. */
void sum_add(struct sum *s, const void *bytes, size_t n);

/*
 * The next n bytes, and copies them: what is summed is what is written, each byte read once,
 * whoever changes `from` meanwhile. `to` doesn't overlap `from`; no alignment is needed, 64 bytes
 * of `to` is best. The stores go past the caches (on x86-64), so this is for what isn't read soon;
 * other threads see them as any others that come before it returns. From 256 KiB on about as fast
 * as memcpy(), which reads what it overwrites (sum-kernel.c).
 */
void sum_copy(struct sum *s, void *to, const void *from, size_t n);

/* The sum of all bytes that were added. More may be added after. */
uint64_t sum_end(const struct sum *s);

#endif
