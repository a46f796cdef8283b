/* Inspection of PGI's policy, evict_pgi (evict.h), for tests. */
#ifndef KVL_POLICY_PGI_H
#define KVL_POLICY_PGI_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/evict.h"

struct pgi_view {
        uint32_t class;    /* of pgi-table.h */
        uint32_t turn;     /* of the last request that ended there, 0: none */
        uint32_t kids;     /* 0, 1, 2: two or more */
        uint32_t n_ghosts; /* of the instance */
        uint64_t n_events; /* uses learnt from */
        uint64_t lru_hits; /* recent hits of plain LRU */
        bool ready;        /* tables are made */
        bool behind;       /* plain LRU does better */
};

/* node is cached. */
void pgi_look(const void *policy, uint32_t node, struct pgi_view *ret);

#endif
