/*
 * Continues transfers: handles the results of those that have ended, and begins those that waited.
 * Loop thread only.
 */
#ifndef KVL_CORE_TRANSFER_WORK_H
#define KVL_CORE_TRANSFER_WORK_H

#include <stdbool.h>

struct store;

/* Ends finished transfers, and starts those that can start. Returns true while one is under way. */
bool transfer_work(struct store *s);

#endif
