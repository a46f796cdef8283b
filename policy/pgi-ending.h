/*
 * PGI's record of how requests ended: an *ending* is a number that a client derives from the way a
 * generation stopped, such as a tool call or an answer. Learns how soon a text is used again after
 * each ending, and so makes a hint of the ending. PURE. Not thread-safe.
 *
 * Endings fall into PGI_ENDINGS bins by a hash. The rate of a bin is its number of texts used
 * again, divided by the time that its texts were waited for. Texts that weren't used yet count with
 * the time until now, so that texts never used again lower the rate.
 */
#ifndef KVL_POLICY_PGI_ENDING_H
#define KVL_POLICY_PGI_ENDING_H

#include <stdint.h>

/* An ending that few texts have may share the bin of a frequent one: 255 bins make that rare. */
#define PGI_ENDINGS UINT32_C(256) /* bin 0: unknown */

/* Texts that are waited for. A later end takes the place of an earlier one by its tag, so a text is
 * waited for during some 2,048 ends in the mean. */
#define PGI_ENDS UINT32_C(2048)

struct pgi_end {
        uint32_t tag;    /* of the text's last whole page (pgi-ghost.h); 0: free */
        uint32_t at;     /* ticks */
        uint32_t ending; /* bin */
};

/* 28 KiB. All zero: nothing is learnt. */
struct pgi_endings {
        struct pgi_end ends[PGI_ENDS];
        double waited[PGI_ENDINGS]; /* ticks, of texts that aren't waited for any more */
        uint32_t used[PGI_ENDINGS]; /* texts */
        uint8_t hint[PGI_ENDINGS];  /* PGI_HINT_NONE, _CONTINUES or _DONE */
};

/* The bin of a client's number, of which 0 is unknown. */
uint32_t pgi_ending_bin(uint32_t ending);

/* A text ended so, or was used again. */
void pgi_ended(struct pgi_endings *e, uint32_t tag, uint32_t bin, uint32_t now);
void pgi_ended_used(struct pgi_endings *e, uint32_t tag, uint32_t now);

/* Computes the hint of each bin anew. O(PGI_ENDS), some 10 us. */
void pgi_endings_learn(struct pgi_endings *e, uint32_t now);

/* Forgets the texts, and keeps what was learnt. */
void pgi_endings_forget(struct pgi_endings *e);

#endif
