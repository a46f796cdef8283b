/*
 * The root of what outlives kvleased (ground/state-root.h) is opened, started over and closed.
 * Everything that is left and that nobody takes is dropped. Loop thread only.
 */
#ifndef KVL_CORE_STATE_H
#define KVL_CORE_STATE_H

#include "daemon/core/ground/state-root.h"

/*
 * Before anything else of the store is used, with store.keep set. 0: nothing was kept, the root is
 * fresh; 1: it was adopted, n_restarts and boot_epoch are one more; *ret_lost (always set): what
 * was kept is of no use and was dropped, the sentence says why, the return is that of a fresh
 * start. -ENOMEM, -EMFILE with the sentence: what was kept stays for another try.
 */
int state_open(struct store *s, bool *ret_lost, struct detail *d);

/* The root was adopted, and is of no use without something else that is gone: all that was kept is
 * dropped, and the root is fresh. 0; -ENOMEM, -EMFILE with the sentence. */
int state_start_over(struct store *s, struct detail *d);

/* Closes the process' own mapping; what is kept stays. Safe to repeat. */
void state_close(struct store *s);

/* All of one kind that were left and not taken. Returns how many there were. Without memory they
 * stay kept until the next start. */
uint32_t state_drop_kind(const struct keep *k, enum keep_kind kind);

#endif
