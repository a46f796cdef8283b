/* A trace while it is read: each line extends the prefix tree. A refused line is only counted. */
#ifndef KVL_TRACE_BUILD_H
#define KVL_TRACE_BUILD_H

#include <stddef.h>
#include <stdint.h>

#include "base/map.h"
#include "client/trace/trace.h"

/* Tokens of a block, both ends included; least > most: no size fits all lines. */
struct block_range {
        uint64_t least, most;
};

struct block_size {
        struct block_range partial; /* (n - 1) * size < tokens <= n * size */
        struct block_range full;    /* n * size <= tokens < (n + 1) * size */
};

struct builder {
        unsigned flags;
        uint32_t block_tokens; /* 0: determined */

        struct sim_request *requests; /* owned, as the next three */
        uint32_t *blocks, *parents;
        char **tenants;
        uint32_t n_requests, n_parents, n_tenants;
        uint64_t n_blocks;
        size_t max_requests, max_blocks, max_parents; /* room for */

        struct map contents; /* id -> its number */
        struct map nodes;    /* place and number of content -> block (node_key()) */

        unsigned file;
        bool is_tenant;  /* the file is a tenant: its lines' tenants are ignored */
        uint32_t tenant; /* the file's tenant */
        uint64_t line;   /* of the file */
        uint64_t n_bad, n_late, n_fractions, last_nsec;
        bool has_times; /* true for all lines, or for none */
        struct block_size block_size;
        struct trace_error first_bad;
};

void builder_init(struct builder *b, unsigned flags, uint32_t block_tokens);
void builder_deinit(struct builder *b);

/* Begins file number `file`. `name` (may be NULL): the tenant of the file. Returns 0 or -ENOMEM. */
int builder_file(struct builder *b, unsigned file, const char *name);

bool builder_has_tenant(const struct builder *b, const char *name);

/* Adds one line without its end. Returns 0 (taken, empty or skipped), -EINVAL with *ret_error,
 * -ENOMEM. */
int builder_line(struct builder *b, const char *text, size_t len, struct trace_error *ret_error);

/* Sorts the requests and makes *ret_trace, owned. Returns 0, -EINVAL with *ret_error, -ENOMEM. */
int builder_finish(struct builder *b, struct trace *ret_trace, struct trace_error *ret_error);

#endif
