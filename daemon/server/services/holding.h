/* Contents of tenants that a restart may lose. Loop thread only. */
#ifndef KVL_SERVER_HOLDING_H
#define KVL_SERVER_HOLDING_H

#include <stdint.h>

struct pool;
struct sentences;
struct server;
struct tenant;

struct holding {
        uint64_t n_pages, n_bytes; /* cached, and the memory that is bound for it */
        uint64_t n_sessions;
};

/* Counts the contents of one tenant on one device; NULL: of all tenants, or on all devices. */
struct holding holding_count(
        const struct server *s, const struct pool *pool, const struct tenant *tenant);

/* Adds the sentence that all of it is lost, with the reason; nothing if it is empty. */
void holding_lose(struct sentences *losses, const struct holding *h, const char *why);

#endif
