/* Decisions of policy/load-cost.h in words, for `kvleasectl explain`. Any thread. */
#ifndef KVL_EXCHANGE_LOAD_COST_TEXT_H
#define KVL_EXCHANGE_LOAD_COST_TEXT_H

#include <stdint.h>

#include "policy/load-cost.h"

/* "96 pages, 41 ms to load against 120 ms to compute: loaded"
 * "96 pages, 41 ms to load against 30 ms to compute: not loaded"
 * "3 pages, 48 tokens, fewer than 256: not loaded"
 * Terminated; returns buf. */
#define LOAD_COST_TEXT_MAX 160
char *load_cost_text(const struct load_cost_answer *a, uint64_t n_pages, uint64_t tokens,
        char buf[LOAD_COST_TEXT_MAX]);

#endif
