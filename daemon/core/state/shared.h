/*
 * The index segment, which clients of a namespace read, and pin segments, which they write. Both
 * are checked against the daemon's private records (page.h), which are authoritative. Loop thread
 * only; clients read and write at the same time, so every access to a shared field is atomic.
 *
 * The evictor's half of the protocol with readers (docs/develop/ARCHITECTURE.md, "Readers and the
 * evictor"):
 *
 *   shared_is_pinned() ... a cheap look first
 *   state = RETIRING; full fence; sum the pins of every attachment
 *   any: state as before.  none: slot cleared, FREE (the next lease increases the generation)
 *
 * A daemon that takes over the segment of a killed one (recover.h) corrects it while clients read.
 * RETIRING becomes SEALED again, as the pins weren't all counted. PENDING ends, as no client
 * computes the page any more: slot cleared, next generation, FREE, and waiting threads are woken.
 */
#ifndef KVL_CORE_SHARED_H
#define KVL_CORE_SHARED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/segment.h"
#include "daemon/core/state/page.h"
#include "daemon/core/state/ns.h"
#include "proto/shm.h"

struct ns;
struct attach;
struct page;

/* The most entries that an insertion moves. In a full namespace of random keys, both buckets of one
 * key in some million are full, and the next bucket nearly always has space: a third of all slots
 * is used. Not tuned; bounds the cost of keys that a client chose. */
#define SHARED_MAX_MOVES 16

/* Makes an index segment. Returns 0; -ENOMEM, -EMFILE, another -errno. */
int shared_init(struct shared *s, struct segment_room *room, uint32_t capacity_pages,
        struct hash_seed seed, uint64_t ns_id, uint64_t boot_epoch);

/* Adopts the segment of the previous process; takes the descriptors on success only. Makes the
 * header right; slots and lines may be anything (recover.h). Returns 0; -EINVAL: not such a
 * segment; another -errno. */
int shared_adopt(struct shared *s, int fd, int reader_fd, uint32_t capacity_pages,
        struct hash_seed seed, uint64_t ns_id, uint64_t boot_epoch);

void shared_deinit(struct shared *s);

/* Hashes a key for the functions below. */
static inline uint64_t shared_hash(const struct shared *s, const uint8_t key[KEY_BYTES])
{
        return hash_digest(s->seed, key);
}

/* Returns the page with the key of this hash, or PAGE_NONE. Only pages count that are SEALED and of
 * the current epoch by the private records. */
uint32_t shared_find(const struct ns *ns, uint64_t hash, const uint8_t key[KEY_BYTES]);

/* Returns the announced page (announce.h) with the key of this hash, or PAGE_NONE. */
uint32_t shared_find_pending(const struct ns *ns, uint64_t hash, const uint8_t key[KEY_BYTES]);

/* Writes key, tokens and epoch of the record into the page's line, before it is SEALED or PENDING.
 * For an announced page it writes only the tokens: clients read the rest already. */
void shared_describe(struct ns *ns, uint32_t page);

/* The first shows a GRANTED and described page as PENDING. The second ends that and advances its
 * generation. */
void shared_show_pending(struct ns *ns, uint32_t page);
void shared_hide_pending(struct ns *ns, uint32_t page);

/* Makes a SEALED or PENDING page findable; its key isn't yet. May move entries of other pages to
 * their other bucket. Returns false if all possible slots have findable or announced pages that
 * can't move, which happens only for chosen keys. */
bool shared_insert(struct ns *ns, uint64_t hash, uint32_t page);

/* Clears the page's slot. Returns false if it has none. */
bool shared_remove(struct ns *ns, uint32_t page);

/* Makes the page's slot name `to`, which has the same key and is SEALED. Returns false if there is
 * no slot. */
bool shared_replace(struct ns *ns, uint32_t page, uint32_t to);

/* Does the page have a slot? For the checker. */
bool shared_has(const struct ns *ns, uint32_t page);

/* For recovery of bound pages. shared_has_line() returns true if the line of a SEALED or DETACHED
 * page matches the record; any thread, while nothing changes. shared_correct_line() makes any
 * page's line match; returns true if it didn't. Readers may look at it: right fields of a SEALED
 * page stay in place. */
bool shared_has_line(const struct ns *ns, uint32_t page);
bool shared_correct_line(struct ns *ns, uint32_t page);

/* Prefetch the buckets of this hash for a later lookup. The first fetches both, the second only the
 * home bucket, where most keys are. */
void shared_prefetch(const struct shared *s, uint64_t hash);
void shared_prefetch_home(const struct shared *s, uint64_t hash);

/* shared_find() in two steps, so that the guessed page can be prefetched between them. The first
 * returns a page of the home bucket that may have the key, or PAGE_NONE. The second returns the
 * result of shared_find(). The index must not change in between. */
uint32_t shared_guess(const struct shared *s, uint64_t hash);
uint32_t shared_find_guessed(
        const struct ns *ns, uint64_t hash, const uint8_t key[KEY_BYTES], uint32_t guess);

enum shared_slot {
        SHARED_SLOT_HAD,   /* the page has a slot */
        SHARED_SLOT_MADE,  /* the page got a slot */
        SHARED_SLOT_OTHER, /* *ret_other, findable, has the key */
        SHARED_SLOT_NONE,  /* no slot is free */
};

/* Has the findable page a slot, and no other findable page its key? Any thread, while nothing
 * changes. */
bool shared_has_slot(const struct ns *ns, uint64_t hash, uint32_t page);

/* Finds or makes the slot of a findable page, unless another page has the key. */
enum shared_slot shared_correct_slot(
        struct ns *ns, uint64_t hash, uint32_t page, uint32_t *ret_other);

/* A walk over slots; starts all 0. */
struct shared_walk {
        uint64_t at, end; /* byte range in the segment that is being walked */
};

/* Returns the next slot that isn't empty; NULL at the end. Skips memory that was never written: an
 * index is as large as its namespace may get. */
_Atomic uint64_t *shared_next_used(const struct shared *s, struct shared_walk *w);

/* Counts the slots that aren't empty, stores the number and returns it. */
uint64_t shared_count_slots(struct ns *ns);

/* Clears all slots, except one each of the n_marked pages with page.mark. The slots were counted
 * before. Returns how many it cleared. */
uint64_t shared_correct_rest(struct ns *ns, uint64_t n_marked);

/* Shows the state of the page's record; FREE if clients don't see the state. */
void shared_show_state(struct ns *ns, uint32_t page);

/* Writes the epochs into the header. */
void shared_show_epochs(struct ns *ns);

/* Ends an index that clients still map, because the namespace or its memory is gone. Lookups find
 * nothing and report it as stale, until shared_show_epochs(). The second takes the read-write
 * descriptor of a stored segment, borrowed; ignores others. */
void shared_end(struct shared *s);
void shared_end_kept(int fd);

/* Does any attachment's segment pin the page now? A hint: it may change at once. */
bool shared_is_pinned(const struct ns *ns, uint32_t page);

/* shared_is_pinned() for a run of at most SHARED_RUN_PAGES pages, at a fraction of the cost of
 * each: most aren't pinned. */
#define SHARED_RUN_PAGES 256u
bool shared_run_is_pinned(const struct ns *ns, uint32_t page, uint32_t n_pages);

/* Retires a SEALED page without pins in the records: RETIRING, fence, sum. Returns true if no
 * client reads the page or ever will; the caller clears its slot and changes its state. False: it
 * is SEALED again. */
bool shared_retire(struct ns *ns, uint32_t page);

/* Retires a page that leaves the index even if it is read. Returns true if no client reads it. The
 * state stays RETIRING until the caller changes it. */
bool shared_withdraw(struct ns *ns, uint32_t page);

/* Makes a pin segment for the pages of `shared`. Returns 0; -ENOMEM, -EMFILE, another -errno. */
int pins_open(struct pins *p, const struct shared *shared, uint64_t client_id);

/* Adopts the pin segment of an earlier daemon; the client maps it and may have written anything.
 * `fd` has the right size; it is taken on success only. Returns 0 or -ENOMEM. */
int pins_adopt(struct pins *p, const struct shared *shared, int fd);

/* Returns the size of a pin segment for so many pages. */
uint64_t pins_bytes(uint32_t capacity_pages);

/* Idempotent; accepts a segment that was never opened (segment.fd -1). */
void pins_close(struct pins *p);

/* Adds a pin of this client for the page, before a DUPLICATE is completed. */
void pins_add(struct pins *p, uint32_t page);

#endif
