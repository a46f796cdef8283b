/*
 * The configuration with which the next daemon starts: it reads the files anew, and applies options
 * that need a restart. Loop thread only.
 */
#ifndef KVL_SERVER_NEXT_CONFIG_H
#define KVL_SERVER_NEXT_CONFIG_H

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

#endif
