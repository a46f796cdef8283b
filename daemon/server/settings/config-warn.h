/* What of a configuration is allowed, and is of no use or may end badly. */
#ifndef KVL_SERVER_CONFIG_WARN_H
#define KVL_SERVER_CONFIG_WARN_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/ground/detail.h"
#include "daemon/server/settings/config.h"

/* Reports each as a notice. Asks no device: where 'devices' is auto it goes by what is surely so.
 */
void config_warn(const struct config *c, config_report_fn report, void *data);

/* Has the machine, or this process' control group, less memory than so much of the host's, all that
 * may be leased? Then true, with the sentence. */
bool config_exceeds_host(uint64_t bytes, struct detail *d);
bool config_exceeds_cgroup(uint64_t bytes, struct detail *d);

#endif
