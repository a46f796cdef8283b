/* A private daemon with one namespace of many small pages, whose memory is never written. This
 * measures the project's own work, not that on pages' bytes. */
#ifndef KVL_BENCH_FIXTURE_H
#define KVL_BENCH_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/kvlease.h"
#include "tests/bench/bench.h"
#include "tests/integration/private-daemon.h"

#define FIXTURE_PAGE_TOKENS 16
#define FIXTURE_PAGE_BYTES  4096 /* the smallest the daemon takes: 1 M pages in 4 GiB */

#define FIXTURE_EVENTS_TENANT "events" /* has events */

struct fixture {
        struct private_daemon daemon;
        char socket[PRIVATE_PATH_MAX];
        uint64_t page_bytes;
        const char *device_lines; /* more of them, for the device; NULL: none */
        bool has_events;          /* there is the tenant FIXTURE_EVENTS_TENANT, too */
        int cores[N_CORES];
};

#define FIXTURE_INIT ((struct fixture){.daemon = {.notify_fd = -1}})

/* Starts a daemon with room for n_pages of page_bytes. Pins this process to the first core, the
 * daemon to the second, if there is one. Returns 0 or -errno, with a message on stderr. */
int fixture_open(struct fixture *f, uint64_t n_pages, uint64_t page_bytes);

/* fixture_open() with a lower tier of host_pages in host memory, in extents of 8 MiB. The daemon's
 * other threads run on all cores. */
int fixture_open_tiers(
        struct fixture *f, uint64_t n_pages, uint64_t page_bytes, uint64_t host_pages);

/* fixture_open() under kvleased --keep; keeper and daemon run on all cores. */
int fixture_open_kept(struct fixture *f, uint64_t n_pages, uint64_t page_bytes);
void fixture_close(struct fixture *f);

/* A connection with the namespace open; flags of enum kvl_connect_flags. Without KVL_CONNECT_NO_SHM
 * it is an error if memory isn't shared. */
struct fixture_client {
        struct kvl_conn *conn;
        struct kvl_ns *ns;
};
int fixture_connect(const struct fixture *f, unsigned flags, struct fixture_client *ret);

/*
 * fixture_connect() to any socket, by this name; pages of so many tokens and bytes, in one plane.
 */
int fixture_connect_to(const char *socket, const char *name, unsigned flags, uint32_t page_tokens,
        uint64_t page_bytes, struct fixture_client *ret);
void fixture_disconnect(struct fixture_client *c);

/*
 * Publishes n_pages (a multiple of FIXTURE_TEXT) and releases them. Page i has the key
 * pattern_key(seed, i); pages of neighbouring keys are anywhere. Fills in keys (n_pages * 32 bytes)
 * and pages (n_pages). Returns 0 or -errno, with a message.
 */
#define FIXTURE_TEXT 1024
int fixture_fill(
        struct kvl_ns *ns, uint64_t seed, uint32_t n_pages, uint8_t *keys, uint32_t *pages);

/* fixture_fill() with given keys. */
int fixture_publish(
        struct kvl_ns *ns, uint64_t seed, uint32_t n_pages, const uint8_t *keys, uint32_t *pages);

/* Counts pages of whole texts that aren't found, with those behind them. Returns 0 or -errno, with
 * a message. */
int fixture_count_lost(
        struct kvl_ns *ns, const uint8_t *keys, uint32_t n_pages, uint64_t *ret_lost);

/*
 * Invalidates the texts with these first keys (n keys, `step` apart), whose pages may not be held.
 * A namespace that fills up evicts, and has pages without an index slot. Returns 0 or -errno, with
 * a message.
 */
int fixture_drop(struct kvl_ns *ns, const uint8_t *keys, uint32_t n, uint32_t step);

/* Writes "1k", "100k", "1M" into `buf` and returns it. */
const char *fixture_count_name(uint32_t n, char buf[16]);

#endif
