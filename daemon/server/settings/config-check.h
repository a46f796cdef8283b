/* What no single option of a configuration can tell: what goes together. */
#ifndef KVL_SERVER_CONFIG_CHECK_H
#define KVL_SERVER_CONFIG_CHECK_H

#include "daemon/server/settings/config.h"

/* Told one sentence without newline for each error, and which option or section it is of. */
typedef void (*config_check_fn)(void *data, struct origin o, const char *sentence);

/* Looks at all of it, but for what options of a section mean together of which one was refused. Of
 * files that are named it reads secrets. */
void config_check_whole(const struct config *c, config_check_fn fn, void *data);

#endif
