/*
 * The configuration with which the next daemon starts: it reads the files anew, and applies options
 * that need a restart. Loop thread only.
 */
#ifndef KVL_SERVER_NEXT_CONFIG_H
#define KVL_SERVER_NEXT_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

struct arena;
struct pool;
struct tenant;
struct config;
struct device_config;
struct remote_config;
struct sentences;
struct server;

/* The settings of a device: its section, or defaults in `buf`. Borrowed. */
const struct device_config *next_config_device(
        const struct config *c, const char *name, struct device_config *buf);

/* The settings of [remote NAME], likewise. */
const struct remote_config *next_config_remote(
        const struct config *c, const char *name, struct remote_config *buf);

/* Gets one sentence without newline. */
typedef void (*next_config_say)(void *data, const char *sentence);

/* Reports each option whose value differs in `next` and needs a restart, and each new [remote
 * NAME]. */
void next_config_pending(
        const struct server *s, const struct config *next, next_config_say say, void *data);

/* Reads the files, which blocks, and adds cached data that the next daemon wouldn't take over: all
 * of it if it would refuse its configuration and not start. */
void next_config_losses(struct server *s, struct sentences *losses);

struct holding {
        uint64_t n_pages, n_bytes; /* cached, and the memory that is bound for it */
        uint64_t n_sessions;
};

/* Counts the contents of one tenant on one device; NULL: of all tenants, or on all devices. */
struct holding holding_count(
        const struct server *s, const struct pool *pool, const struct tenant *tenant);

/* Adds the sentence that all of it is lost, with the reason; nothing if it is empty. */
void holding_lose(struct sentences *losses, const struct holding *h, const char *why);

/* ---- sentences of an answer ------------------------------------------------------------------ */

#define SENTENCES_MAX  256 /* not tuned */
#define SENTENCE_BYTES 512 /* with the NUL; longer ones are cut. Not tuned */

struct sentences {
        struct arena *arena;
        size_t bytes_left; /* of an answer's frame */
        char **texts;      /* of the arena; n of SENTENCES_MAX */
        size_t n, n_more;  /* n_more didn't fit */
};

/* Starts with room for max_bytes of an answer. Returns 0 or -ENOMEM. */
int sentences_init(struct sentences *s, struct arena *arena, size_t max_bytes);

/* One, without newline. */
KVL_PRINTF(2, 3) void sentences_add(struct sentences *s, const char *format, ...);

#endif
