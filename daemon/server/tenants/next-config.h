/*
 * The configuration that the daemon that comes next starts with: the files are read anew then, and
 * options that no reload puts in force are. Loop thread only.
 */
#ifndef KVL_SERVER_NEXT_CONFIG_H
#define KVL_SERVER_NEXT_CONFIG_H

struct config;
struct device_config;
struct remote_config;
struct sentences;
struct server;

/* What a configuration says of a device: defaults where it has no section. Borrowed from it, or
 * `buf`. */
const struct device_config *next_config_device(
        const struct config *c, const char *name, struct device_config *buf);

/* The same of [remote NAME]. */
const struct remote_config *next_config_remote(
        const struct config *c, const char *name, struct remote_config *buf);

/* Told one sentence without newline. */
typedef void (*next_config_say)(void *data, const char *sentence);

/* Each option whose value differs in `next` and takes a restart; each [remote NAME] that is new. */
void next_config_pending(
        const struct server *s, const struct config *next, next_config_say say, void *data);

/* Reads the files, which blocks, and adds what is held now and wouldn't be taken over: all of it
 * where the next daemon would refuse its configuration and not start. */
void next_config_losses(struct server *s, struct sentences *losses);

#endif
