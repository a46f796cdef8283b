/*
 * What a namespace shows to its clients (the index segment), and what they show to it (pin
 * segments). The daemon's private records (page.h) stay the truth: nothing here is believed without
 * them. Loop thread only; clients read and count at the same time, so every access to a field they
 * share is atomic.
 *
 * The evictor's half of the protocol with readers (docs/ARCHITECTURE.md, "Readers and the
 * evictor"):
 *
 *   shared_is_pinned() ... a cheap look first
 *   state = RETIRING; full fence; sum the pins of every attachment
 *   any: state as before.  none: slot cleared, FREE (the next lease increases the generation)
 *
 * A daemon that takes the segment over from one that was killed (recover.h) corrects it under the
 * readers' eyes: RETIRING is SEALED again, as the pins weren't counted to the end. PENDING is
 * nobody's promise any more: slot cleared, next generation, FREE, and whoever waits is woken.
 */
#ifndef KVL_CORE_SHARED_H
#define KVL_CORE_SHARED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/segment.h"
#include "daemon/core/ground/page.h"
#include "daemon/core/objects/ns-parts.h"
#include "proto/shm.h"

struct ns;
struct attach;
struct page;

/*
 * Entries that one insertion moves at most. In a full namespace of random keys one in some million
 * finds its two buckets full, and the next bucket after them has room nearly always: a third of all
 * slots is taken. Not tuned; it bounds what keys cost that a client chose.
 */
#define SHARED_MAX_MOVES 16

/* 0; -ENOMEM, -EMFILE, another -errno. */
int shared_init(struct shared *s, struct segment_room *room, uint32_t capacity_pages,
        struct hash_seed seed, uint64_t ns_id, uint64_t boot_epoch);

/* The same as shared_init() with the descriptors of a segment made by a process before this one:
 * takes them, on success only. The header is right after; slots and lines may be anything
 * (recover.h). -EINVAL: they aren't of such a segment. */
int shared_adopt(struct shared *s, int fd, int reader_fd, uint32_t capacity_pages,
        struct hash_seed seed, uint64_t ns_id, uint64_t boot_epoch);

void shared_deinit(struct shared *s);

/* The hash of a key, for the two functions below. */
static inline uint64_t shared_hash(const struct shared *s, const uint8_t key[KEY_BYTES])
{
        return hash_digest(s->seed, key);
}

/* The page with the key of this hash, or PAGE_NONE. Only those that the private records say are
 * SEALED and of the current epoch count. */
uint32_t shared_find(const struct ns *ns, uint64_t hash, const uint8_t key[KEY_BYTES]);

/* The announced page (announce.h) with the key of this hash, or PAGE_NONE. */
uint32_t shared_find_pending(const struct ns *ns, uint64_t hash, const uint8_t key[KEY_BYTES]);

/* Writes key, tokens and epoch of the record into the page's line: before it is SEALED or PENDING.
 * Of an announced page the tokens: the rest stands there, and is read. */
void shared_describe(struct ns *ns, uint32_t page);

/* The page, GRANTED and described, is shown as PENDING; isn't any more: it has another generation
 * then. */
void shared_show_pending(struct ns *ns, uint32_t page);
void shared_hide_pending(struct ns *ns, uint32_t page);

/*
 * Lets a page that is SEALED or PENDING be found: its key isn't findable yet. May move entries of
 * other pages to the other bucket where they could be. False: all slots where the key could be have
 * findable or announced pages, and none of them can make room: only where keys were chosen so.
 */
bool shared_insert(struct ns *ns, uint64_t hash, uint32_t page);

/* Takes the page's slot away. False: it has none. */
bool shared_remove(struct ns *ns, uint32_t page);

/* The page's slot names `to` from now on, which has the same key and is SEALED. False: it has none.
 */
bool shared_replace(struct ns *ns, uint32_t page, uint32_t to);

/* Has the page a slot? For the checker. */
bool shared_has(const struct ns *ns, uint32_t page);

/*
 * For recovery, of pages that are bound. The line says what the record does: true where it didn't.
 * Readers may be looking: of a SEALED page what is right is never taken away.
 */
bool shared_correct_line(struct ns *ns, uint32_t page);

/* A key with this hash is looked for soon: fetches both buckets, or its home, where most are. */
void shared_prefetch(const struct shared *s, uint64_t hash);
void shared_prefetch_home(const struct shared *s, uint64_t hash);

/* shared_find() in two steps, so that what the second looks at can be fetched between them: a page
 * that may have the key of this hash, by the slots of its home bucket alone (PAGE_NONE: none there
 * may), and whether it is that one, or which is. Nothing may change in between. */
uint32_t shared_guess(const struct shared *s, uint64_t hash);
uint32_t shared_find_guessed(
        const struct ns *ns, uint64_t hash, const uint8_t key[KEY_BYTES], uint32_t guess);

enum shared_slot {
        SHARED_SLOT_HAD,   /* the page has one */
        SHARED_SLOT_MADE,  /* it has one from now on */
        SHARED_SLOT_OTHER, /* *ret_other, findable, has the key */
        SHARED_SLOT_NONE,  /* there is no room */
};

/* The slot of a findable page with a key of this hash, or another page's that has the key. */
enum shared_slot shared_correct_slot(
        struct ns *ns, uint64_t hash, uint32_t page, uint32_t *ret_other);

/* Goes through slots; all 0 at first. */
struct shared_walk {
        uint64_t at, end; /* bytes of the segment: of the part that is gone through */
};

/* The next slot that isn't empty; NULL at the end. What was never touched stays so: an index is as
 * large as its namespace may get, and there may be very many that are empty. */
_Atomic uint64_t *shared_next_used(const struct shared *s, struct shared_walk *w);

/* Counts the slots that aren't empty: keeps the number and returns it. */
uint64_t shared_count_slots(struct ns *ns);

/* Clears all slots but those of the n_marked pages that have page.mark, which have one each at
 * least. The slots were counted. Returns how many it cleared. */
uint64_t shared_correct_rest(struct ns *ns, uint64_t n_marked);

/* The state word of a page as its record has it: FREE where that is of no matter to clients. */
void shared_show_state(struct ns *ns, uint32_t page);

/* Epochs into the header. */
void shared_show_epochs(struct ns *ns);

/*
 * The namespace isn't there any more, or its memory isn't, and clients have the index mapped: they
 * find nothing in it from now on, and are told that it is stale. Of a kept segment: its read-write
 * descriptor, borrowed; nothing where it is none. Until shared_show_epochs().
 */
void shared_end(struct shared *s);
void shared_end_kept(int fd);

/* Does any attachment's segment pin the page now? A hint: it may change at once. */
bool shared_is_pinned(const struct ns *ns, uint32_t page);

/* The same for a run of at most SHARED_RUN_PAGES pages, at a fraction of the price of each: most
 * aren't pinned. */
#define SHARED_RUN_PAGES 256u
bool shared_run_is_pinned(const struct ns *ns, uint32_t page, uint32_t n_pages);

/*
 * Retires a SEALED page that the private records don't pin: RETIRING, fence, sum. True: nobody
 * reads it or ever will; the caller takes its slot away and changes its state. False: it is SEALED
 * again.
 */
bool shared_retire(struct ns *ns, uint32_t page);

/* The same as shared_retire() for a page that leaves the index whoever reads it: true where nobody
 * does. The state stays RETIRING until the caller changes it. */
bool shared_withdraw(struct ns *ns, uint32_t page);

/* A pin segment for the pages of `shared`. 0; -ENOMEM, -EMFILE, another -errno. */
int pins_open(struct pins *p, const struct shared *shared, uint64_t client_id);

/*
 * One that an earlier daemon made, as the client has it: `fd` has the size for the pages of
 * `shared`. The client may have written anything into it meanwhile. Takes the fd, on success only.
 * 0; -ENOMEM.
 */
int pins_adopt(struct pins *p, const struct shared *shared, int fd);

/* How large a pin segment for so many pages is. */
uint64_t pins_bytes(uint32_t capacity_pages);

/* Safe to repeat, and on what was never opened (segment.fd -1). */
void pins_close(struct pins *p);

/* One more pin of this client for the page: before a DUPLICATE is completed. */
void pins_add(struct pins *p, uint32_t page);

#endif
