/* Segments of shared memory from the daemon (proto/shm.h), mapped into this process. Forked
 * children don't inherit the mapping. It doesn't need the descriptor. Thread-safe. */
#ifndef KVL_LIB_SHM_H
#define KVL_LIB_SHM_H

#include <stdint.h>

#include "proto/shm.h"

struct shm_map {
        void *base; /* NULL: nothing is mapped */
        uint64_t bytes;
};

/*
 * Maps a segment of the reply's `bytes`, and checks its header: magic, version, kind, sizes, and
 * that all its parts are inside the segment. Returns 0: *ret_map is owned (shm_unmap());
 * -EOPNOTSUPP: another layout; -EINVAL: a broken header or size; -ENOMEM or another -errno of
 * mmap().
 */
int shm_map_client(int fd, uint64_t bytes, uint64_t client_id, struct shm_map *ret_map);
int shm_map_index(int fd, uint64_t bytes, uint32_t capacity_pages, struct shm_map *ret_map);
int shm_map_pins(int fd, uint64_t bytes, uint64_t client_id, uint32_t capacity_pages,
        struct shm_map *ret_map);
int shm_map_feed(int fd, uint64_t bytes, struct shm_map *ret_map);

/* Does nothing if nothing is mapped. */
void shm_unmap(struct shm_map *map);

#endif
