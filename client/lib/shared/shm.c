#include "client/lib/shared/shm.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>

static int check_header(const struct shm_map *map, enum shm_kind kind)
{
        const struct shm_header *h = map->base;

        if (h->magic != SHM_MAGIC || h->version != SHM_LAYOUT_VERSION)
                return -EOPNOTSUPP;
        return h->kind == (uint32_t)kind && h->bytes == map->bytes ? 0 : -EINVAL;
}

/* Whether n items of `size` bytes fit at `offset`, aligned to a cache line. */
static bool is_inside(const struct shm_map *map, uint64_t offset, uint64_t n, uint64_t size)
{
        return offset % 64 == 0 && offset >= SHM_HEADER_BYTES && offset <= map->bytes &&
               n <= (map->bytes - offset) / size;
}

static int map_segment(
        int fd, uint64_t bytes, int protection, enum shm_kind kind, struct shm_map *ret_map)
{
        struct shm_map map = {.bytes = bytes};
        struct stat st;
        int r;

        if (fstat(fd, &st) < 0)
                return -errno;
        if (bytes < SHM_HEADER_BYTES || (uint64_t)st.st_size != bytes)
                return -EINVAL;
        map.base = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
        if (map.base == MAP_FAILED)
                return -errno;
        r = madvise(map.base, bytes, MADV_DONTFORK) < 0 ? -errno : check_header(&map, kind);
        if (r < 0) {
                munmap(map.base, bytes);
                return r;
        }
        *ret_map = map;
        return 0;
}

void shm_unmap(struct shm_map *map)
{
        if (map->base)
                munmap(map->base, map->bytes);
        map->base = NULL;
}

static int map_if_right(struct shm_map *map, bool is_right, struct shm_map *ret_map)
{
        if (!is_right) {
                shm_unmap(map);
                return -EINVAL;
        }
        *ret_map = *map;
        return 0;
}

int shm_map_client(int fd, uint64_t bytes, uint64_t client_id, struct shm_map *ret_map)
{
        const struct shm_client *h;
        struct shm_map map;
        int r = map_segment(fd, bytes, PROT_READ | PROT_WRITE, SHM_CLIENT, &map);

        if (r < 0)
                return r;
        h = map.base;
        return map_if_right(&map,
                h->header.owner == client_id && h->sub_entries == SHM_SUB_ENTRIES &&
                        h->comp_entries == SHM_COMP_ENTRIES &&
                        is_inside(&map, h->sub_offset, SHM_SUB_ENTRIES,
                                sizeof(struct shm_submission)) &&
                        is_inside(&map, h->comp_offset, SHM_COMP_ENTRIES,
                                sizeof(struct shm_completion)),
                ret_map);
}

int shm_map_index(int fd, uint64_t bytes, uint32_t capacity_pages, struct shm_map *ret_map)
{
        const struct shm_index *h;
        struct shm_map map;
        int r = map_segment(fd, bytes, PROT_READ, SHM_INDEX, &map);

        if (r < 0)
                return r;
        h = map.base;
        return map_if_right(&map,
                h->capacity_pages == capacity_pages && h->n_buckets > 0 &&
                        is_inside(
                                &map, h->buckets_offset, h->n_buckets, sizeof(struct shm_bucket)) &&
                        is_inside(&map, h->lines_offset, capacity_pages, sizeof(struct shm_line)),
                ret_map);
}

int shm_map_pins(int fd, uint64_t bytes, uint64_t client_id, uint32_t capacity_pages,
        struct shm_map *ret_map)
{
        const struct shm_pins *h;
        struct shm_map map;
        int r = map_segment(fd, bytes, PROT_READ | PROT_WRITE, SHM_PINS, &map);

        if (r < 0)
                return r;
        h = map.base;
        return map_if_right(&map,
                h->header.owner == client_id && h->capacity_pages == capacity_pages &&
                        h->magazine_slots == SHM_MAGAZINE_SLOTS &&
                        is_inside(&map, h->magazine_offset, SHM_MAGAZINE_SLOTS, sizeof(uint32_t)) &&
                        is_inside(&map, h->counters_offset, capacity_pages, sizeof(uint32_t)),
                ret_map);
}

int shm_map_feed(int fd, uint64_t bytes, struct shm_map *ret_map)
{
        const struct shm_feed *h;
        struct shm_map map;
        int r = map_segment(fd, bytes, PROT_READ, SHM_FEED, &map);

        if (r < 0)
                return r;
        h = map.base;
        return map_if_right(&map,
                h->n_slots > 0 && h->line_bytes % 64 == 0 &&
                        h->line_bytes >= sizeof(struct shm_feed_line) &&
                        h->page_tokens <=
                                (h->line_bytes - sizeof(struct shm_feed_line)) / sizeof(uint32_t) &&
                        is_inside(&map, h->lines_offset, h->capacity_pages, h->line_bytes) &&
                        is_inside(&map, h->slots_offset, h->n_slots,
                                shm_feed_slot_bytes(h->line_bytes)),
                ret_map);
}
