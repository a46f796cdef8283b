/*
 * Reads one feed segment (proto/shm.h): a copy of all findable pages, then the changes to it.
 * kvleased never waits for a reader; one that was overtaken copies again. One thread at a time.
 *
 *   (open) -> feed_reader_copy() -> feed_reader_next()... -> feed_reader_copy()...
 */
#ifndef KVL_LIB_FEED_READER_H
#define KVL_LIB_FEED_READER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/segment.h"
#include "client/lib/shared/shm.h"
#include "proto/shm.h"

struct feed_change {
        enum shm_feed_kind kind;
        uint32_t page, from;
        uint8_t from_tier;                /* MOVED */
        const struct shm_feed_line *line; /* borrowed until the next call; not of CLEARED */
};

struct feed_reader {
        struct segment file; /* for its touched parts; not mapped */
        struct shm_map map;
        const struct shm_feed *header; /* in it */
        uint32_t capacity_pages, page_tokens, n_slots, line_bytes;
        uint64_t lines_offset, slots_offset;
        uint64_t at;                /* the next change */
        struct shm_feed_slot *slot; /* owned: a copy of one */
        /* The pages of the last feed_reader_copy(), parents first. Owned, in `memory`. */
        struct shm_feed_line **pages;
        uint32_t n_pages;
        uint8_t *memory; /* mapped, for capacity_pages lines; NULL: there is no copy */
};

/* Maps the segment; takes the descriptor in any case. Returns 0; -EOPNOTSUPP: another layout;
 * -EINVAL: no such segment; -ENOMEM or another -errno. */
int feed_reader_open(struct feed_reader *r, int fd, uint64_t bytes);

/* Idempotent; accepts all zeros. */
void feed_reader_close(struct feed_reader *r);

/* Copies all pages that can be found. Returns 0: `pages` and n_pages are set; -EAGAIN: was
 * overtaken meanwhile, try again; -ENOMEM. */
int feed_reader_copy(struct feed_reader *r);

/* Frees the pages of the last copy. */
void feed_reader_drop_copy(struct feed_reader *r);

/* Reads the next change. Returns 1; 0: there is none yet; -EAGAIN: it was overtaken, and must copy
 * again. */
int feed_reader_next(struct feed_reader *r, struct feed_change *ret);

/* Has the namespace ended? Changes may be left. */
bool feed_reader_has_ended(const struct feed_reader *r);

/* Are these the segments of one file? */
bool feed_reader_is_of(const struct feed_reader *r, int fd);

/* Returns the token ids of a copied line; NULL: unknown. */
const uint32_t *feed_line_ids(const struct shm_feed_line *line);

#endif
