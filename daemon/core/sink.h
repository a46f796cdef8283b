/*
 * What is cold goes down a tier ahead of need, so that a lease finds FREE pages and waits for no
 * copy: where a namespace can't be given another extent set, and fewer FREE pages are left than
 * policy/tier.h wants. Which pages: the policy's tips, worst first. Where the tier below is full
 * its worst page goes for one that is worth more; what is worth less is dropped instead of moved.
 *
 * Tenants take turns by weight, in bytes. Loop thread only.
 */
#ifndef KVL_CORE_SINK_H
#define KVL_CORE_SINK_H

#include <stdbool.h>
#include <stdint.h>

struct ns;
struct store;

/*
 * Begins what is due, as far as TRANSFERS_MAX allows. To be called when store.on_transfer_work says
 * so, and again in a while where it returns true: there is more to do, and nothing could be begun.
 */
bool sink_turn(struct store *s, uint64_t now_nsec);

/* Somebody waits for a FREE page of the device and can wait for a copy: true where one is on its
 * way down, or is FREE by now. */
bool sink_makes_room(struct ns *ns);

/* A page of the device was granted. */
void sink_note_taken(struct ns *ns);

/* `n` pages were asked for at once: as many are to be FREE for the next who asks. */
void sink_note_lease(struct ns *ns, uint32_t n);

#endif
