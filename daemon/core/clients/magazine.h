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

/* Takes back what isn't claimed in every magazine of the namespace. Returns the pages freed. */
uint32_t magazine_drain_ns(struct ns *ns);

/*
 * Before what is cached gives way: magazines of the namespace whose last refill was a second ago or
 * more are left no more than they would be filled up to now. Returns the pages freed.
 * O(attachments), and as much as is freed.
 */
uint32_t magazine_trim_idle(struct ns *ns, uint64_t now_nsec);

/* Takes back what isn't claimed and lies in sets that are recalled, in every magazine of the
 * namespace. Returns the pages freed. */
uint32_t magazine_drain_recalled(struct ns *ns);

/* Fewest pages that a magazine is filled up to. Not tuned. */
#define MAGAZINE_LEVEL_MIN 8u

/* The magazine is refilled now, by a tenant who could have `reach` pages in the namespace: the
 * level goes up where refills follow each other fast, and down with every second of a pause. */
void magazine_adapt_level(struct attach *a, uint64_t reach, uint64_t now_nsec);

/* How many pages more the magazine should have, to have `target` of what all magazines of the
 * namespace may have. */
uint32_t magazine_shortage(const struct attach *a, uint64_t target, uint64_t reach);

/* Puts n FREE pages of the namespace into it, as far as it has empty slots. Returns how many. */
uint32_t magazine_put_pages(struct attach *a, uint32_t n);

/* Shows the client the level, and that the magazine was given n_more pages, or (less than 0) that
 * they were taken back. */
void magazine_show(struct attach *a, int64_t n_more);

#endif
