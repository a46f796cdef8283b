/*
 * Opens, resets and closes the root of the state that outlives kvleased (state/state-root.h).
 * Drops descriptors that recovery doesn't take. Loop thread only.
 */
#ifndef KVL_CORE_STATE_H
#define KVL_CORE_STATE_H

#include "daemon/core/state/state-root.h"

/* Call this before all other functions of the store, with store.keep set. Returns 0: the root is
 * new. 1: the previous root was adopted; n_restarts and boot_epoch advanced by one. -ENOMEM,
 * -EMFILE with the sentence: the stored descriptors stay for another try. *ret_lost is always set:
 * the stored state was unusable and dropped, the sentence says why, and the return is 0. */
int state_open(struct store *s, bool *ret_lost, struct detail *d);

/* Drops all stored descriptors and makes a new root, because a descriptor that the adopted root
 * needs is missing. Returns 0; -ENOMEM, -EMFILE with the sentence. */
int state_start_over(struct store *s, struct detail *d);

/* Closes this process's mapping; stored descriptors stay. Idempotent. */
void state_close(struct store *s);

/* Drops all descriptors of one kind that were left and not taken. Returns their number. Without
 * memory they stay stored until the next start. */
uint32_t state_drop_kind(const struct keep *k, enum keep_kind kind);

#endif
