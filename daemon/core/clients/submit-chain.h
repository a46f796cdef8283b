/*
 * What earlier submissions of a client's ring left for later ones. It is kept with the client
 * (client-record.h), so that a ring is executed on after a restart as if there had been none.
 */
#ifndef KVL_CORE_SUBMIT_CHAIN_H
#define KVL_CORE_SUBMIT_CHAIN_H

#include <stdint.h>

/* What a WITH said. */
struct submit_with {
        uint32_t ns_id; /* 0: nothing */
        uint32_t session;
        uint64_t tag;
};

/* What earlier entries left for a PUBLISH, the last one for one with CHAIN. Zero at first. */
struct submit_chain {
        uint32_t ns_id; /* 0: nothing */
        int status;     /* 0, or why it failed: what is chained to it fails, too */
        uint32_t page;
        uint64_t generation;
        struct submit_with with;
};

#endif
