/*
 * Pages granted ahead: an attachment's magazine, in its pin segment. The client claims a slot by
 * exchanging it for 0, the daemon fills empty ones and can take back what nobody claimed, without
 * the client's help. What was put where is remembered here; the segment only tells whether it is
 * still there. Pages in a magazine are GRANTED to the group and charged like any; page.ready
 * says so until the daemon has seen that they were claimed. Loop thread only.
 */
#ifndef KVL_CORE_MAGAZINE_H
#define KVL_CORE_MAGAZINE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/shm.h"

struct attach;
struct grants;
struct ns;

struct magazine {
        uint32_t pages[SHM_MAGAZINE_SLOTS]; /* page + 1 as put there; 0: empty, or seen to be
                                               claimed */
        uint32_t n_pages;
        uint32_t level;       /* filled up to; grows while the client empties it fast */
        uint64_t refill_nsec; /* when it was filled last */
        uint64_t n_put;       /* as in the segment: put less taken back */
        bool tampered;        /* the client stored into a slot: told once */
        bool is_short;        /* sets are being made for what it lacked at the last refill */
};

/*
 * Fills it up to the level, or by `wanted` pages where that is more, as far as FREE pages, limit
 * and budget go. Idle cached pages of the namespace give way for the level alone, once that has
 * grown; other namespaces never. Nothing where it was filled at this very time already.
 * The level doubles where the last refill was a moment ago and halves for each second since then.
 * Clears refill_asked. Returns what magazine_settle() does.
 */
bool magazine_refill(struct attach *a, uint32_t wanted, uint64_t now_nsec);

/* Notes what was claimed since the last time. Returns false where the client wrote rubbish into a
 * slot (once; the page counts as claimed). */
bool magazine_settle(struct attach *a);

/*
 * Of recovery, with `share` adopted: what lies in its slots is ready again, as far as it was put
 * there, which the notes of the pages say; other slots are emptied. A page that was on its way into
 * a slot, or out of one, counts as claimed.
 */
void magazine_adopt(struct attach *a);

/* Was `page`, which lies in a magazine of the group, claimed meanwhile? */
bool magazine_is_claimed(struct grants *g, uint32_t page);

/* Takes back what isn't claimed and frees it. Returns the pages freed. */
uint32_t magazine_drain(struct attach *a);

/* Every magazine of the namespace. */
uint32_t magazine_drain_ns(struct ns *ns);

/*
 * Before what is cached gives way: magazines of the namespace whose last refill was a second ago or
 * more are left no more than they would be filled up to now. Returns the pages freed.
 * O(attachments), and as much as is freed.
 */
uint32_t magazine_trim_idle(struct ns *ns, uint64_t now_nsec);

/* Sets that it was short of were made: fills it as far as the refill that was short would have. */
void magazine_top_up(struct attach *a, uint64_t now_nsec);

/* The same for pages of sets that are recalled. */
uint32_t magazine_drain_recalled(struct ns *ns);

#endif
