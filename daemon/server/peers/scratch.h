/* Memory for the current request; there is one at a time. */
#ifndef KVL_SERVER_SCRATCH_H
#define KVL_SERVER_SCRATCH_H

#include <stdint.h>

#include "proto/arena.h"
#include "proto/frame.h"

/* Most pages one message can name; kvlease.proto. */
#define MAX_LEASE_PAGES   4096
#define MAX_PUBLISH_PAGES 1024
#define MAX_LOOKUP_KEYS   1536
#define MAX_SESSION_PAGES 1024
#define MAX_LEASABLE_LOOK 8192 /* pages looked at for a LEASABLE: some 100 us; not tuned */
#define MAX_HELD_PAGES    256  /* each is searched in all attachments of the group */

struct scratch {
        struct arena arena;          /* of messages */
        uint8_t out[FRAME_MAX_SIZE]; /* of its reply */
        uint32_t pages[MAX_LEASE_PAGES];
        uint32_t page_tokens[MAX_LOOKUP_KEYS]; /* of `pages`, where LOOKUP tells them */
};

#endif
