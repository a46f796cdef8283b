/* Checks of a configuration that span several options. */
#ifndef KVL_SERVER_CONFIG_CHECK_H
#define KVL_SERVER_CONFIG_CHECK_H

#include "daemon/server/config/config.h"

/* Gets one sentence without newline for each error, and its option or section. */
typedef void (*config_check_fn)(void *data, struct origin o, const char *sentence);

/* Checks the whole configuration. Checks that need a refused option are left out. Reads the files
 * of secrets. */
void config_check_whole(const struct config *c, config_check_fn fn, void *data);

#endif
