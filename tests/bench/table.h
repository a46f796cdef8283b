/*
 * The baseline of a hit: a table in this process's own memory, looked up as well as we know how.
 * Layout and size are those of a namespace's index and one client's pins (proto/shm.h). It has the
 * same hash, buckets and lines, the same compare of 32 bytes, and an atomic counter per page. It
 * lacks what other processes make necessary: fences against an evictor, epochs, validation of
 * arguments, recency, a call into a library.
 */
#ifndef KVL_BENCH_TABLE_H
#define KVL_BENCH_TABLE_H

#include <stdbool.h>
#include <stdint.h>

struct table;

/* Returns 0 with *ret owned, or -ENOMEM. */
int table_new(uint32_t capacity_pages, struct table **ret);
void table_free(struct table *t);

/* Returns false if its two buckets have no room. */
bool table_insert(struct table *t, const uint8_t key[32], uint32_t page, uint16_t tokens);

/* Counts the longest run from the first key on; returns pages found. */
uint32_t table_lookup(struct table *t, const uint8_t *keys, uint32_t n_keys, uint32_t *ret_pages,
        uint64_t *ret_n_tokens);
void table_release(struct table *t, const uint32_t *pages, uint32_t n_pages);

#endif
