/*
 * The daemon's figures: one connection to its monitor socket, kept between scrapes, and the answers
 * of one scrape.
 *
 *   source:  (open) -> away <-> connected -> (close)
 *
 * It connects when it is asked, and once more in the same scrape if a restarted daemon left the
 * connection behind. It changes nothing in the daemon. Answers are checked like any peer's bytes:
 * any process may own the socket. Not thread-safe.
 */
#ifndef KVL_EXPORTER_SOURCE_H
#define KVL_EXPORTER_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(NAME, list of proto/figures.def): the lists, each fetched in as many calls as it has pages. */
#define SOURCE_TABLE(X)          \
        X(DEVICES, device)       \
        X(REGIONS, region)       \
        X(TENANTS, tenant)       \
        X(NAMESPACES, namespace) \
        X(EVICTIONS, eviction)   \
        X(SETS, set)             \
        X(EXCHANGES, exchange)

enum source_list {
        SOURCE_STATUS,   /* one row */
        SOURCE_RESTART,  /* one row: AdminRestartReply, of what a restart would keep */
        SOURCE_COUNTERS, /* one row: AdminCountersReply; none if the daemon doesn't know it */
#define X(name, ...) SOURCE_##name,
        SOURCE_TABLE(X)
#undef X
                N_SOURCE_LISTS
};

struct source_rows {
        const void **rows; /* owned; what each points to is the facts' */
        size_t n, size;
};

struct source_arenas;

/* The answers of one scrape, all from one daemon. */
struct facts {
        struct source_rows lists[N_SOURCE_LISTS];
        struct source_arenas *arenas; /* owned */
        unsigned n_calls;
};

void facts_deinit(struct facts *f);

struct source;

/* Makes a source for the socket at `path` (borrowed). A scrape gets `timeout_nsec`. Returns 0 (*ret
 * is owned), or -ENOMEM. Doesn't connect. */
int source_new(const char *path, uint64_t timeout_nsec, struct source **ret);
void source_free(struct source *s);

/* Asks for everything, or for status and counters only. Returns 0: *ret_facts is to be
 * deinitialised. -errno: the daemon can't be reached, doesn't answer in time or makes no sense;
 * source_why() says which. */
int source_ask(struct source *s, bool only_figures, struct facts *ret_facts);

/* Returns a sentence on the last failure; "" after a success. Valid until the next source_ask(). */
const char *source_why(const struct source *s);

#endif
