/*
 * A trace while it is read: lines come in, the prefix tree grows. A line that is refused leaves no
 * trace of itself but its number.
 */
#ifndef KVL_TRACE_BUILD_H
#define KVL_TRACE_BUILD_H

#include "base/map.h"
#include "client/trace/block-size.h"
#include "client/trace/trace.h"

struct builder {
        unsigned flags;
        uint32_t block_tokens; /* 0: found out */

        struct sim_request *requests; /* owned, and so the next three */
        uint32_t *blocks, *parents;
        char **tenants;
        uint32_t n_requests, n_parents, n_tenants;
        uint64_t n_blocks;
        size_t max_requests, max_blocks, max_parents; /* room for */

        struct map contents; /* id -> its number */
        struct map nodes;    /* place and number of content -> block (node_key()) */

        unsigned file;
        bool is_tenant;  /* the file is one: what lines say is ignored */
        uint32_t tenant; /* that one */
        uint64_t line;   /* of the file */
        uint64_t n_bad, n_late, n_fractions, last_nsec;
        bool has_times; /* of all lines, or of none */
        struct block_size block_size;
        struct trace_error first_bad;
};

void builder_init(struct builder *b, unsigned flags, uint32_t block_tokens);
void builder_deinit(struct builder *b);

/* What follows comes from file number `file`. `name` (may be NULL): of the tenant it is. 0 or
 * -ENOMEM. */
int builder_file(struct builder *b, unsigned file, const char *name);

bool builder_has_tenant(const struct builder *b, const char *name);

/* One line without its end. 0 (taken, empty or skipped), -EINVAL with *ret_error, -ENOMEM. */
int builder_line(struct builder *b, const char *text, size_t len, struct trace_error *ret_error);

/* Sorts and hands over what was read: *ret_trace, owned. 0, -EINVAL with *ret_error, -ENOMEM. */
int builder_finish(struct builder *b, struct trace *ret_trace, struct trace_error *ret_error);

#endif
