/*
 * Segments of shared memory that the daemon sends (proto/shm.h), mapped into this process. Not
 * inherited by fork. Once mapped they don't need their descriptor. Thread-safe.
 */
#ifndef KVL_LIB_SHM_H
#define KVL_LIB_SHM_H

#include <stdint.h>

#include "proto/shm.h"

struct shm_map {
        void *base; /* NULL: nothing is mapped */
        uint64_t bytes;
};

/*
 * Maps what the reply said has `bytes`, and checks the header: magic, version, kind, sizes, that
 * everything it speaks of lies in the segment. 0: *ret_map is returned owned (shm_unmap()).
 * -EOPNOTSUPP: another layout; -EINVAL: a broken header or size; -ENOMEM, another -errno of mmap().
 */
int shm_map_client(int fd, uint64_t bytes, uint64_t client_id, struct shm_map *ret_map);
int shm_map_index(int fd, uint64_t bytes, uint32_t capacity_pages, struct shm_map *ret_map);
int shm_map_pins(int fd, uint64_t bytes, uint64_t client_id, uint32_t capacity_pages,
        struct shm_map *ret_map);

/* Nothing where it isn't mapped. */
void shm_unmap(struct shm_map *map);

#endif
