/*
 * What the daemon says of itself: one connection to its monitor socket, kept between scrapes, and
 * the answers of one scrape.
 *
 *   source:  (open) -> away <-> connected -> (close)
 *
 * It connects when it is asked, and once more in the same scrape where a daemon that was restarted
 * left the connection behind. Nothing of it changes the daemon. What arrives is checked like any
 * peer's bytes: the socket may be anybody's. One thread at a time.
 */
#ifndef KVL_EXPORTER_SOURCE_H
#define KVL_EXPORTER_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(NAME, list field of the reply, reply message, request number): lists that are fetched, each in
 * as many calls as it has pages. */
#define SOURCE_TABLE(X)                                                       \
        X(DEVICES, devices, AdminDevicesReply, MSG_ADMIN_DEVICES)             \
        X(REGIONS, regions, AdminRegionsReply, MSG_ADMIN_REGIONS)             \
        X(TENANTS, tenants, AdminTenantsReply, MSG_ADMIN_TENANTS)             \
        X(NAMESPACES, namespaces, AdminNamespacesReply, MSG_ADMIN_NAMESPACES) \
        X(EVICTIONS, evictions, AdminEvictionsReply, MSG_ADMIN_EVICTIONS)     \
        X(SETS, sets, AdminSetsReply, MSG_ADMIN_SETS)                         \
        X(EXCHANGES, exchanges, AdminExchangesReply, MSG_ADMIN_EXCHANGES)

enum source_list {
        SOURCE_STATUS,   /* one row: AdminStatusReply */
        SOURCE_RESTART,  /* one row: AdminRestartReply, of what a restart would keep */
        SOURCE_COUNTERS, /* one row: AdminCountersReply; none of a daemon that doesn't know it */
#define X(name, ...) SOURCE_##name,
        SOURCE_TABLE(X)
#undef X
                N_SOURCE_LISTS
};

struct source_rows {
        const void **rows; /* owned; what they point at is the facts' */
        size_t n, size;
};

struct source_arenas;

/* The answers of one scrape; all of it is one daemon's. */
struct facts {
        struct source_rows lists[N_SOURCE_LISTS];
        struct source_arenas *arenas; /* owned */
        unsigned n_calls;
};

void facts_deinit(struct facts *f);

struct source;

/*
 * Of the socket at `path` (borrowed). A scrape gets `timeout_nsec`. 0, *ret is returned owned; or
 * -ENOMEM. Doesn't connect.
 */
int source_new(const char *path, uint64_t timeout_nsec, struct source **ret);
void source_free(struct source *s);

/*
 * Asks for everything, or for status and counters alone. 0: *ret_facts is to be deinitialised.
 * -errno: the daemon can't be reached, doesn't answer in time or says what makes no sense;
 * source_why() says which.
 */
int source_ask(struct source *s, bool only_figures, struct facts *ret_facts);

/* A sentence on the last failure; "" after a success. Valid until the next source_ask(). */
const char *source_why(const struct source *s);

#endif
