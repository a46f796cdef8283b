/* A client of fuzz_sequence.c. It remembers its replies, so that its next requests make sense.
 * Replies that no client could parse abort. */
#ifndef KVL_FUZZ_SEQUENCE_CLIENT_H
#define KVL_FUZZ_SEQUENCE_CLIENT_H

#include "daemon/core/state/group.h"
#include "proto/frame.h"

#define N_SPACES 2
#define N_KNOWN  32 /* pages that a client remembers, the last ones */

struct segment_map {
        void *at;
        size_t bytes;
};

struct space {
        uint32_t ns_id; /* 0: isn't open */
        uint32_t known[N_KNOWN], n_known;
        uint32_t sessions[4];
        struct segment_map pins;
        uint32_t capacity;
};

struct client {
        uint64_t peer_id;
        int fd; /* the client's end; -1: hung up */
        struct frame_parser parser;
        uint64_t seq, id;
        uint8_t token[CLIENT_TOKEN_BYTES], group[GROUP_TOKEN_BYTES];
        uint32_t status;
        struct segment_map ring;
        uint64_t ring_tail;
        struct space spaces[N_SPACES];
        struct space *asked; /* namespace whose reply is awaited */
};

/* Remembers the last pages of a reply. s NULL: none. */
void client_know(struct space *s, const uint32_t *pages, size_t n);

/* Reads all pending replies. */
void client_read(struct client *c);

void client_close(struct client *c);

/* Makes it a new client: nothing is open. */
void client_forget(struct client *c);

#endif
