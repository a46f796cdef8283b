#include "daemon/tier/disk-format.h"

#include <string.h>

#define XXH_INLINE_ALL /* a state on the stack is its header's alone */
#include <xxhash.h>

#include "base/macros.h"
#include "base/sum.h"

static uint64_t blocks_of(uint64_t n, uint64_t in_a_block)
{
        return (n + in_a_block - 1) / in_a_block;
}

struct disk_layout disk_layout_of(uint64_t bytes, uint64_t chunk_bytes, uint32_t max_spaces)
{
        struct disk_layout l = {.spaces_at = DISK_ALIGN};
        uint64_t n;

        l.n_space_blocks = (uint32_t)blocks_of(max_spaces, DISK_BLOCK_SPACES);
        l.chunks_at = l.spaces_at + (uint64_t)l.n_space_blocks * DISK_ALIGN;
        if (bytes <= l.chunks_at)
                return l;
        n = MIN((bytes - l.chunks_at) / chunk_bytes, (uint64_t)DISK_CHUNKS_MAX);
        while (n > 0 &&
                l.chunks_at + blocks_of(n, DISK_BLOCK_CHUNKS) * DISK_ALIGN + n * chunk_bytes >
                        bytes)
                n--;
        l.n_chunks = (uint32_t)n;
        l.n_chunk_blocks = (uint32_t)blocks_of(n, DISK_BLOCK_CHUNKS);
        l.data_at = l.chunks_at + (uint64_t)l.n_chunk_blocks * DISK_ALIGN;
        return l;
}

uint32_t disk_index_blocks(uint32_t n_slots)
{
        return (uint32_t)blocks_of(n_slots, DISK_BLOCK_ENTRIES);
}

uint32_t disk_chunk_slots(uint64_t chunk_bytes, uint64_t slot_bytes)
{
        uint64_t n = slot_bytes > 0 ? chunk_bytes / slot_bytes : 0;

        while (n > 0 && disk_index_blocks((uint32_t)n) * (uint64_t)DISK_ALIGN + n * slot_bytes >
                                chunk_bytes)
                n--;
        return (uint32_t)n;
}

static uint64_t record_sum(const void *record, size_t bytes, uint64_t seed)
{
        return XXH3_64bits_withSeed(record, bytes - sizeof(uint64_t), seed);
}

static void *sum_at(const void *record, size_t bytes)
{
        return (char *)(uintptr_t)record + bytes - sizeof(uint64_t);
}

void disk_seal(void *record, size_t bytes, uint64_t seed)
{
        uint64_t sum = record_sum(record, bytes, seed);

        memcpy(sum_at(record, bytes), &sum, sizeof(sum));
}

bool disk_is_whole(const void *record, size_t bytes, uint64_t seed)
{
        uint64_t sum = record_sum(record, bytes, seed);

        return memcmp(sum_at(record, bytes), &sum, sizeof(sum)) == 0;
}

bool disk_is_zero(const void *record, size_t bytes)
{
        const uint8_t *at = record;

        return at[0] == 0 && memcmp(at, at + 1, bytes - 1) == 0;
}

uint64_t disk_sum(const struct iovec *iov, unsigned n_iov, uint64_t length)
{
        struct sum sum;

        sum_begin(&sum);
        for (unsigned i = 0; i < n_iov && length > 0; i++) {
                size_t len = MIN(iov[i].iov_len, (size_t)length);

                sum_add(&sum, iov[i].iov_base, len);
                length -= len;
        }
        return sum_end(&sum);
}
