/* Warnings: settings that are allowed, but useless or dangerous. */
#ifndef KVL_SERVER_CONFIG_WARN_H
#define KVL_SERVER_CONFIG_WARN_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/state/detail.h"
#include "daemon/server/config/config.h"

/* Reports each warning as a notice. Asks no device: if 'devices' is auto, only certain facts are
 * used. */
void config_warn(const struct config *c, config_report_fn report, void *data);

/* Compares `bytes` of host memory, all that may be leased, with the memory of the machine, or of
 * this process's control group. Returns true, with the sentence, if that has less. */
bool config_exceeds_host(uint64_t bytes, struct detail *d);
bool config_exceeds_cgroup(uint64_t bytes, struct detail *d);

#endif
