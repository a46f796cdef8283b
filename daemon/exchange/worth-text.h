/* Decisions of policy/worth.h in words, for `kvleasectl explain`. Any thread. */
#ifndef KVL_EXCHANGE_WORTH_TEXT_H
#define KVL_EXCHANGE_WORTH_TEXT_H

#include <stdint.h>

#include "policy/worth.h"

/* "96 pages, 41 ms to load against 120 ms to compute: loaded"
 * "96 pages, 41 ms to load against 30 ms to compute: not loaded"
 * "3 pages, 48 tokens, fewer than 256: not loaded"
 * Terminated; returns buf. */
#define WORTH_TEXT_MAX 160
char *worth_text(
        const struct worth_answer *a, uint64_t n_pages, uint64_t tokens, char buf[WORTH_TEXT_MAX]);

#endif
