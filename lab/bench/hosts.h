/*
 * Two hosts and the store between them: two private kvleased, and a redis-server that both know, on
 * this machine. Texts computed `there` are written to the store, and loaded `here`. Shared by the
 * parts of the benchmark `remote-hosts`.
 */
#ifndef KVL_BENCH_HOSTS_H
#define KVL_BENCH_HOSTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "client/lib/kvlease.h"
#include "tests/bench/bench.h"
#include "tests/bench/fixture.h"
#include "tests/integration/private-daemon.h"
#include "tests/integration/redis-cluster.h"

#define HOSTS_PAGE_TOKENS 32
#define HOSTS_TOKEN_BYTES (32u << 10)
#define HOSTS_PAGE_BYTES  ((uint64_t)HOSTS_PAGE_TOKENS * HOSTS_TOKEN_BYTES)
#define HOSTS_LONG_PAGES  1024 /* pages of the longest text: 32 k tokens */
#define HOSTS_ROOM_PAGES  128  /* that `here` has beside it */

/* Connections of a kvleased; its default. */
#define HOSTS_CONNECTIONS 2

/* A text, named by the first chain that its keys are made from, and its number of pages. */
struct hosts_text {
        unsigned chain;
        uint32_t n_pages;
};

struct hosts {
        struct redis_cluster redis;
        struct private_daemon here, there;
        struct fixture_client maker;  /* there */
        struct fixture_client asker;  /* here, as all below */
        struct fixture_client socket; /* without shared memory */
        int cores[N_CORES];
        bool has_net;        /* a network of its own, which can be cut off */
        uint64_t n_exported; /* pages that were computed for others */
        uint32_t pages[HOSTS_LONG_PAGES + HOSTS_ROOM_PAGES];
        uint8_t keys[HOSTS_LONG_PAGES * KVL_KEY_BYTES];
};

/*
 * Zeroed before. there_pages: computed there in all. codec: their host_codec, also used in the
 * store. Returns 0 or -errno, with a message; -ENODEV: there is no redis-server. Call hosts_close()
 * in any case.
 */
int hosts_open(struct hosts *h, uint32_t there_pages, const char *codec);
void hosts_close(struct hosts *h);

/* fixture_connect() to one of the hosts. */
int hosts_connect(
        const struct private_daemon *d, const char *name, unsigned flags, struct fixture_client *c);

/* Pins `here`'s client to the first core and all others to the second; or lets all run anywhere. */
void hosts_part(const struct hosts *h);
void hosts_spread(struct hosts *h);

/* Into h->keys. */
const uint8_t *hosts_keys(struct hosts *h, struct hosts_text t);

/* Computes the texts there, finds them there, and waits until the store has them. Returns 0 or
 * -errno, with a message. */
int hosts_share(struct hosts *h, const struct hosts_text *texts, unsigned n);

/* Removes all pages from the device `here` that no client holds. Returns 0 or -errno, with a
 * message. */
int hosts_empty(struct hosts *h, struct kvl_ns *ns);

/* hosts_empty() until the text is gone: its pages may have been released a moment ago. */
int hosts_remove(struct hosts *h, struct hosts_text t);

/* Requests a text with this deadline and releases the pages found. *ret: the time, and the pages;
 * loaded ones have the right bytes. Returns 0 or -errno, with a message. */
struct hosts_answer {
        uint64_t nsec;
        uint32_t n_pages;
};
int hosts_ask(struct hosts *h, struct hosts_text t, int timeout_msec, struct hosts_answer *ret);

/* Sets how many tokens a second engines here compute. */
int hosts_say_prefill(struct hosts *h, double tokens_per_sec);

/* A figure of one host's exchange, from `kvleasectl exchanges`; -errno if there is none. */
int64_t hosts_figure(const struct private_daemon *d, const char *name);

/* ---- the store's state ----------------------------------------------------------------------- */

/* Saves the store's contents for store_start(). Returns 0 or -errno, with a message. */
int hosts_save(struct hosts *h);

enum hosts_state {
        HOSTS_WELL,
        HOSTS_STOPPED,
        HOSTS_SLOW, /* runs for two milliseconds of forty */
        HOSTS_KILLED,
        HOSTS_CUT_OFF, /* runs, and its packets vanish, as do those for it */
        N_HOSTS_STATES
};
extern const char *const hosts_state_names[N_HOSTS_STATES];

/* Can the store be in this state here? A cut needs the right to make a network namespace, and the
 * program tc (Debian: iproute2). */
bool hosts_can(const struct hosts *h, enum hosts_state state);

/* Changes from WELL to another state, or back. Back at WELL the saved contents are there again.
 * Returns 0 or -errno, with a message. */
int hosts_enter(struct hosts *h, enum hosts_state state);
int hosts_leave(struct hosts *h, enum hosts_state state);

/* Waits until a text, removed here before, is loaded again by engines for which loading always
 * pays. Returns 0 or -errno, with a message. */
int hosts_await_well(struct hosts *h);

/* The text that hosts_await_well() loads; hosts_open() shares it. */
#define HOSTS_TRIAL ((struct hosts_text){1, 8})

#endif
