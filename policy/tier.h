/*
 * What moves between tiers (policy/tree.h), when, and how much at a time. PURE: figures in, figures
 * out; plain memory, zero is empty. Pages are the namespace's; bytes are what a page takes where it
 * lies.
 */
#ifndef KVL_POLICY_TIER_H
#define KVL_POLICY_TIER_H

#include <stdbool.h>
#include <stdint.h>

/* What the numbers of tiers in tree.h mean. */
enum tier_kind { TIER_DEVICE, TIER_HOST, TIER_DISK, TIER_COUNT };

/* ---- how many go down --------------------------------------------------------------------------
 *
 * Pages go down ahead of need, so that a lease finds FREE ones and waits for no copy. From fewer
 * FREE pages than the low mark on (those counted that are on their way down) until there are as
 * many as the high one.
 */

/* The low mark: a 64th of the tier, or what is wanted ahead (policy/ahead.h) where that is more,
 * but no more than a quarter: a page that is FREE hits nothing. Not tuned. The high one is twice
 * that.
 */
#define TIER_LOW_SHARE  64
#define TIER_MOST_SHARE 4

struct tier_fill {
        bool is_sinking; /* between the marks: on the way to the high one */
};

struct tier_level {
        uint32_t capacity;  /* pages of the tier; 0: nothing ever goes down */
        uint32_t n_free;    /* can be had at once */
        uint32_t n_leaving; /* on their way down */
        uint32_t n_ahead;   /* FREE pages wanted ahead */
        uint32_t n_most;    /* that may be on their way at a time */
};

/* How many pages to send down now, beyond those on their way: 0..n_most - n_leaving. */
uint32_t tier_n_down(struct tier_fill *f, const struct tier_level *l);

/* FREE pages that are for leases: as many as the low mark, or the high one on the way there. */
uint32_t tier_n_kept(const struct tier_fill *f, const struct tier_level *l);

/* ---- which -------------------------------------------------------------------------------------
 */

/*
 * Whether a page of a tier is worth a place in a full one below, of which the page that would go
 * for it has `other`: by what keeping each is worth (evict_ops.worth()) for the bytes that each
 * takes there, > 0. What is worth as much comes down: it was used later.
 */
bool tier_takes(double worth, uint64_t bytes, double other_worth, uint64_t other_bytes);

/* For the disk, which wears and is slow: not what was seen once, unless its text is long. */
struct tier_filter {
        uint32_t min_uses;    /* its publication is one; 0 and 1: everything */
        uint64_t long_tokens; /* of the text or session it belongs to; 0: none is long */
};

bool tier_admits(const struct tier_filter *filter, uint32_t uses, uint64_t text_tokens);

/* ---- whose -------------------------------------------------------------------------------------
 *
 * Start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996): of those that have something to move
 * the one with the smallest turn is next, and its next turn comes later by the bytes it moves for
 * its weight. Who had nothing to move for a while has saved nothing up.
 */
struct tier_queue {
        uint64_t turn; /* of who was last served */
};

struct tier_claim {
        uint64_t next; /* its next turn, unless that is past */
};

/* The smaller the sooner. Turns are bytes for a weight of 1000: 18 PB do not overflow. */
uint64_t tier_turn(const struct tier_queue *q, const struct tier_claim *c);

/* It moves so many bytes. weight: 1..1000, the tenant's. */
void tier_take_turn(struct tier_queue *q, struct tier_claim *c, uint64_t bytes, uint32_t weight);

/* ---- how many at a time ------------------------------------------------------------------------
 */

/*
 * Bytes of one transfer, where there are as many. Host: small copies are slow, on an H100 5 to 7
 * GB/s in pieces of 4 to 24 KiB and 51 in pieces of 64 KiB (vLLM #42212, cuMemcpyBatchAsync);
 * between 256 KiB and 2 MiB nothing is gained. Disk: not tuned.
 */
#define TIER_HOST_BYTES (UINT64_C(1) << 20)
#define TIER_DISK_BYTES (UINT64_C(4) << 20)
#define TIER_UNIT_PAGES 256u /* at most: a transfer is one step of the daemon. Not tuned */

/* Pages of page_bytes (> 0) that make one transfer to or from a tier below the device:
 * 1..TIER_UNIT_PAGES. */
uint32_t tier_unit_pages(enum tier_kind kind, uint64_t page_bytes);

#endif
