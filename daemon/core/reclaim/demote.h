/*
 * Demotes cold pages ahead of need, so that a lease finds FREE pages and waits for no copy. It does
 * so if a namespace can't get another extent set, and has fewer FREE pages than policy/tier.h
 * wants. The policy's tips are demoted, the worst first. If the lower tier is full, its worst page
 * is dropped for a page of more value; a page of less value is dropped instead of demoted.
 *
 * Tenants take turns by weight, in bytes. They have sets of lower tiers by the same fair shares as
 * those of devices (region.h). A tenant that is entitled to another set gets one from the tenant
 * that exceeds its share most, the set whose loss costs least. Loop thread only.
 */
#ifndef KVL_CORE_DEMOTE_H
#define KVL_CORE_DEMOTE_H

#include <stdbool.h>
#include <stdint.h>

struct ns;
struct store;

/* Begins due demotions, up to the limit of transfers. Call it after store.owner.on_transfer_work,
 * and again in a while if it returns true: there is more, and none could begin. */
bool demote_turn(struct store *s, uint64_t now_nsec);

/* A lease needs a FREE page of the device and can wait for a copy. Returns true if a page is being
 * demoted, or is FREE by now. */
bool demote_makes_room(struct ns *ns);

/* The purpose of a demotion. */
enum demote_for {
        DEMOTE_FOR_GUESS,    /* for a text that the policy expects to be used soon */
        DEMOTE_FOR_READER,   /* for a text that a client reads */
        DEMOTE_FOR_EXPECTED, /* for a text that a client said it will ask for */
};

/* Does what demote_makes_room() does, for the text that ends at `page`, which is in a lower tier
 * and is promoted ahead of its use. Demotes only pages of less value, or unexpected ones. A policy
 * that knows no value demotes none for a guess. */
bool demote_swaps(struct ns *ns, uint32_t page, enum demote_for why);

/* Returns the FREE pages of the device that are kept for leases, if no other set can be bound. */
uint32_t demote_n_kept(const struct ns *ns);

/* Demotes this page of the device, without asking the policy. The page is idle
 * (page_is_idle()) and not in transfer. Returns 0: it is under way; -EBUSY: the limit of
 * transfers is reached; -ENOSPC, -EDQUOT: no place in the lower tier, or its pages are of more
 * value; -ENOMEM, -EIO. */
int demote_page(struct ns *ns, uint32_t page);

#endif
