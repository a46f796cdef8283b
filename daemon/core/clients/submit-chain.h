/*
 * State that submissions of a client's ring leave for later ones. It is recorded with the client
 * (client-record.h), so that a ring continues after a restart as if there had been none.
 */
#ifndef KVL_CORE_SUBMIT_CHAIN_H
#define KVL_CORE_SUBMIT_CHAIN_H

#include <stdint.h>

/* The arguments of a WITH entry. */
struct submit_with {
        uint32_t ns_id; /* 0: none */
        uint32_t session;
        uint64_t tag;
};

/* State for a PUBLISH entry with CHAIN, from the last entry before. Zero at first. */
struct submit_chain {
        uint32_t ns_id; /* 0: none */
        int status;     /* 0, or the failure that entries chained to it get, too */
        uint32_t page;
        uint64_t generation;
        struct submit_with with;
};

#endif
