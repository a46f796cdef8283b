/*
 * Movement of pages between tiers (policy/tree.h): choice, time and amount. PURE: figures in,
 * figures out; plain memory, zero is empty. Pages are the namespace's; bytes are the size of a page
 * in its tier.
 */
#ifndef KVL_POLICY_TIER_H
#define KVL_POLICY_TIER_H

#include <stdbool.h>
#include <stdint.h>

/* Numbers of tiers in tree.h. */
enum tier_kind { TIER_DEVICE, TIER_HOST, TIER_DISK, TIER_COUNT };

/*
 * ---- demotion: how many ----------------------------------------------------------------------
 *
 * Pages are demoted ahead of need, so that a lease finds FREE ones and waits for no copy. It begins
 * when FREE pages, with those being demoted, are fewer than the low mark. It ends when they reach
 * the high mark.
 */

/* The low mark: a 64th of the tier, or the pages wanted ahead (policy/ahead.h) if more, at most a
 * quarter, as a FREE page gives no hits. The high mark is twice that. Not tuned. */
#define TIER_LOW_SHARE  64
#define TIER_MOST_SHARE 4

struct tier_fill {
        bool is_demoting; /* between the marks: demoting up to the high one */
};

struct tier_level {
        uint32_t capacity;  /* pages of the tier; 0: nothing is demoted */
        uint32_t n_free;    /* available at once */
        uint32_t n_leaving; /* being demoted */
        uint32_t n_ahead;   /* FREE pages wanted ahead */
        uint32_t n_most;    /* that may be demoted at a time */
};

/* Pages to demote now, beyond those being demoted: 0..n_most - n_leaving. */
uint32_t tier_n_down(struct tier_fill *f, const struct tier_level *l);

/* FREE pages to keep for leases: the low mark, or the high one on the way there. */
uint32_t tier_n_kept(const struct tier_fill *f, const struct tier_level *l);

/* ---- which -------------------------------------------------------------------------------------
 */

/*
 * True if a page is worth a place in a full lower tier, whose next victim is `other`. Compares the
 * value of keeping each (evict_ops.value()) per byte there (> 0). On a tie the page is demoted: it
 * was used later.
 */
bool tier_takes(double value, uint64_t bytes, double other_value, uint64_t other_bytes);

/* Filter for the disk, which wears and is slow: excludes pages used once, unless their text is
 * long. */
struct tier_filter {
        uint32_t min_uses;    /* the publication counts as one; 0 and 1: all pages */
        uint64_t long_tokens; /* of the text or session it belongs to; 0: none is long */
};

bool tier_admits(const struct tier_filter *filter, uint32_t uses, uint64_t text_tokens);

/*
 * ---- demotion: tenants -----------------------------------------------------------------------
 *
 * Start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996). Among tenants with pages to move, the
 * one with the smallest turn is next. Its next turn comes later by the moved bytes per weight. A
 * tenant without pages to move saves nothing up.
 */
struct tier_queue {
        uint64_t turn; /* of the tenant served last */
};

struct tier_claim {
        uint64_t next; /* its next turn, unless that has passed */
};

/* The tenant's turn: the smallest is next. Turns are bytes for a weight of 1000: 18 PB do not
 * overflow. */
uint64_t tier_turn(const struct tier_queue *q, const struct tier_claim *c);

/* Counts bytes that a tenant moves. weight: 1..1000, the tenant's. */
void tier_take_turn(struct tier_queue *q, struct tier_claim *c, uint64_t bytes, uint32_t weight);

/* ---- size of transfers ----------------------------------------------------------------------- */

/*
 * Bytes of one transfer, if there are as many. Host: small copies are slow. On an H100, pieces of 4
 * to 24 KiB give 5 to 7 GB/s, pieces of 64 KiB 51 GB/s (vLLM #42212, cuMemcpyBatchAsync). Between
 * 256 KiB and 2 MiB nothing is gained. Disk: not tuned.
 */
#define TIER_HOST_BYTES (UINT64_C(1) << 20)
#define TIER_DISK_BYTES (UINT64_C(4) << 20)
#define TIER_UNIT_PAGES 256u /* at most: a transfer is one step of the daemon. Not tuned */

/* Pages of page_bytes (> 0) in one transfer to or from a lower tier: 1..TIER_UNIT_PAGES. */
uint32_t tier_unit_pages(enum tier_kind kind, uint64_t page_bytes);

#endif
