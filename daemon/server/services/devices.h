/* The devices that the daemon owns, and its share of each, from the configuration. */
#ifndef KVL_SERVER_DEVICES_H
#define KVL_SERVER_DEVICES_H

#include <stdint.h>

struct server;
struct device;
struct device_config;
struct device_props;
struct detail;

/* Opens the devices and adds their pools to the store. Returns 0, or -errno, logged; pools added
 * before stay in the store. */
int devices_open(struct server *s);

/* Adds an open device, behind a queue if it may block. Takes it in any case. Returns 0, or -errno
 * with the sentence. */
int devices_add(struct server *s, struct device *device, uint64_t budget_bytes,
        uint64_t extent_bytes, struct detail *d);

/* Leasable memory of a device in bytes: the configured `memory` in full, or a share of the device
 * less the canary's part. */
uint64_t devices_budget(
        const struct server *s, const struct device_props *props, const struct device_config *c);

/* Leasable host memory in bytes: of host devices, and of host tiers below other devices. */
uint64_t devices_host_bytes(const struct server *s);

#endif
