/* Does work in several threads at once, for processes in which another thread handles the
 * signals. */
#ifndef KVL_BASE_SPREAD_H
#define KVL_BASE_SPREAD_H

#include <stdint.h>

/* Calls work() for each piece 0..n-1, once each, in this thread and in others; returns when all are
 * done. Pieces begin in ascending order. work() synchronises what pieces share. There are no other
 * threads if n is 1, the process may use one processor, or none can be started. */
void spread(uint32_t n, void (*work)(void *data, uint32_t piece), void *data);

#endif
