/*
 * What a restart would lose: sentences for whoever asked (ADMIN_RESTART), which the arena of one
 * request owns. Loop thread only.
 */
#ifndef KVL_SERVER_LOSSES_H
#define KVL_SERVER_LOSSES_H

#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

struct arena;
struct pool;
struct server;
struct tenant;

#define LOSSES_MAX 64 /* sentences; of more only the number is told. Not tuned */

struct losses {
        struct arena *arena;
        char **texts; /* of the arena; n of LOSSES_MAX */
        size_t n, n_more;
};

/* 0 or -ENOMEM. */
int losses_init(struct losses *l, struct arena *arena);

/* One sentence, without newline; cut after 255 bytes. */
KVL_PRINTF(2, 3) void losses_add(struct losses *l, const char *format, ...);

struct holding {
        uint64_t n_pages, n_bytes; /* cached, and the memory that is bound for it */
        uint64_t n_sessions;
};

/* Of one device and one tenant; NULL: of all. */
struct holding holding_count(
        const struct server *s, const struct pool *pool, const struct tenant *tenant);

/* All of that, for a reason; nothing where nothing is held. */
void losses_add_holding(struct losses *l, const struct holding *h, const char *why);

#endif
