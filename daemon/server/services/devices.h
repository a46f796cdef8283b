/* Which devices the daemon owns and how much of each, by its configuration. */
#ifndef KVL_SERVER_DEVICES_H
#define KVL_SERVER_DEVICES_H

#include <stdint.h>

struct server;
struct device;
struct device_config;
struct device_props;
struct detail;

/* Opens them and adds their pools to the store. 0; -errno, logged: what was added stays in the
 * store. */
int devices_open(struct server *s);

/* Adds one that is open, behind a queue where it may block. Takes it in any case. 0; -errno with
 * the sentence. */
int devices_add(struct server *s, struct device *device, uint64_t budget_bytes,
        uint64_t extent_bytes, struct detail *d);

/* Memory of a device to lease, in bytes, as a section has it: what was named is all of it, of a
 * share the canary has its part. */
uint64_t devices_budget(
        const struct server *s, const struct device_props *props, const struct device_config *c);

/* Memory of the host that may be leased: of its own devices, and below others. */
uint64_t devices_host_bytes(const struct server *s);

#endif
