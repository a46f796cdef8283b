/*
 * Transfers go on: what is over has its consequences, and what waited for it begins. Loop thread
 * only.
 */
#ifndef KVL_CORE_TRANSFER_WORK_H
#define KVL_CORE_TRANSFER_WORK_H

#include <stdbool.h>

struct store;

/* Ends what is over, and starts what can be. True while something is under way. */
bool transfer_work(struct store *s);

#endif
