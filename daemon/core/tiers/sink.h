/*
 * What is cold goes down a tier ahead of need, so that a lease finds FREE pages and waits for no
 * copy: where a namespace can't be given another extent set, and fewer FREE pages are left than
 * policy/tier.h wants. Which pages: the policy's tips, worst first. Where the tier below is full
 * its worst page goes for one that is worth more; what is worth less is dropped instead of moved.
 *
 * Tenants take turns by weight, in bytes. Sets below are theirs by the same fair shares as those of
 * devices (region.h): who deserves another one gets it of who is furthest over, the one with which
 * least is lost. Loop thread only.
 */
#ifndef KVL_CORE_SINK_H
#define KVL_CORE_SINK_H

#include <stdbool.h>
#include <stdint.h>

struct ns;
struct store;

/*
 * Begins what is due, as much as may be on its way at a time. To be called when
 * store.owner.on_transfer_work says so, and again in a while where it returns true: there is more
 * to do, and nothing could be begun.
 */
bool sink_turn(struct store *s, uint64_t now_nsec);

/* Somebody waits for a FREE page of the device and can wait for a copy: true where one is on its
 * way down, or is FREE by now. */
bool sink_makes_room(struct ns *ns);

/* For whom a page goes down. */
enum sink_for {
        SINK_FOR_GUESS,    /* for a text of which the policy thinks that it is used soon */
        SINK_FOR_READER,   /* for one that somebody reads */
        SINK_FOR_EXPECTED, /* for one that a client said it will ask for */
};

/* The same as sink_makes_room() for a text that ends at `page`, lies below and is to come up ahead
 * of its use: what goes down for it is worth less, or not expected. A policy that knows no worth
 * lets nothing go for a guess. */
bool sink_swaps(struct ns *ns, uint32_t page, enum sink_for why);

/* FREE pages of the device that are for leases, where no other set can be bound. */
uint32_t sink_n_kept(const struct ns *ns);

/*
 * Sends this page of the device down, whatever the policy says: it is idle (places_is_idle()) and
 * isn't on its way. 0: it is on its way; -EBUSY: as many are as may be; -ENOSPC, -EDQUOT: there is
 * no place below, or what is there is worth more; -ENOMEM, -EIO.
 */
int sink_page(struct ns *ns, uint32_t page);

#endif
