/*
 * Format of a disk store's file (docs/develop/DISK.md gives the reasons). Numbers are in the
 * machine's byte order, little-endian: elsewhere the magic doesn't match.
 *
 *   superblock | spaces' table | chunks' table | chunk 0 | chunk 1 ...
 *   chunk: index, in blocks | slots;
 *
 * Records don't cross a sector of 512 bytes: after a torn write one is either the old or the new
 * one. Each ends with a sum of its bytes, seeded with its file, chunk or row. So an older record,
 * or one from another place, doesn't check. A record of zeros is unused.
 */
#ifndef KVL_TIER_DISK_FORMAT_H
#define KVL_TIER_DISK_FORMAT_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/tier/disk.h"

#define DISK_MAGIC   UINT64_C(0x316b7369646c766b) /* "kvldisk1" */
#define DISK_VERSION 1

/* Constant until the file is emptied. */
struct disk_super {
        uint64_t magic;
        uint32_t version, n_chunks, max_spaces, unused;
        uint64_t bytes, chunk_bytes;
        uint64_t nonce; /* random: of the tables */
        char device[DISK_NAME_MAX + 1];
        uint64_t sum;
};

struct disk_space_record {
        uint8_t id[DISK_ID_BYTES], owner[DISK_ID_BYTES];
        uint64_t instance; /* random: of its chunks; another one with each generation */
        uint64_t generation;
        uint32_t slot_bytes, unused;
        uint64_t unused_too[4];
        uint64_t sum; /* seed: nonce of the file + its row */
};

struct disk_chunk_record {
        uint64_t nonce;    /* random: of its entries */
        uint64_t instance; /* of the space that it is in use by */
        uint64_t unused;
        uint64_t sum; /* seed: nonce of the file + its row */
};

struct disk_entry {
        struct disk_page page; /* sum: of the slot's bytes */
        uint64_t generation;
        uint64_t unused;
        uint64_t sum; /* seed: nonce of the chunk + the slot's number */
};

#define DISK_SECTOR 512

static_assert(sizeof(struct disk_super) <= DISK_SECTOR, "one sector");
static_assert(sizeof(struct disk_space_record) == 128, "the format");
static_assert(sizeof(struct disk_chunk_record) == 32, "the format");
static_assert(sizeof(struct disk_entry) == 128, "the format");

#define DISK_BLOCK_SPACES  (DISK_ALIGN / sizeof(struct disk_space_record))
#define DISK_BLOCK_CHUNKS  (DISK_ALIGN / sizeof(struct disk_chunk_record))
#define DISK_BLOCK_ENTRIES (DISK_ALIGN / sizeof(struct disk_entry))

/* Where the parts are, bytes. */
struct disk_layout {
        uint64_t spaces_at, chunks_at, data_at;
        uint32_t n_chunks, n_space_blocks, n_chunk_blocks;
};

/* The layout of a file of `bytes`, with as many chunks as fit; 0 chunks if none fits. */
struct disk_layout disk_layout_of(uint64_t bytes, uint64_t chunk_bytes, uint32_t max_spaces);

/* Slots of a chunk, and blocks of its index. 0: not even one. */
uint32_t disk_chunk_slots(uint64_t chunk_bytes, uint64_t slot_bytes);
uint32_t disk_index_blocks(uint32_t n_slots);

/* Sets the sum at the end of a record, or compares it. */
#define DISK_SEAL(record, seed)     disk_seal((record), sizeof(*(record)), (seed))
#define DISK_IS_WHOLE(record, seed) disk_is_whole((record), sizeof(*(record)), (seed))
void disk_seal(void *record, size_t bytes, uint64_t seed);
bool disk_is_whole(const void *record, size_t bytes, uint64_t seed);

bool disk_is_zero(const void *record, size_t bytes);

#endif
