#include "daemon/server/devices.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/core/detail.h"
#include "daemon/core/store.h"
#include "daemon/server/log.h"
#include "daemon/server/server.h"
#include "gpu/device.h"

/* What 'auto' takes of the host's memory: a quarter, at most that much. Not tuned. */
#define AUTO_SHARE 4
#define AUTO_MAX   (UINT64_C(64) << 30)

static uint64_t budget_of(const struct device_props *props, const struct device_config *c)
{
        if (c->memory_bytes != DEVICE_MEMORY_AUTO)
                return c->memory_bytes;
        return MIN(props->total_bytes / AUTO_SHARE, AUTO_MAX);
}

/* Takes the device. */
static int add_pool(struct server *s, struct device *device)
{
        const struct device_config *c = config_find_device(&s->config, device->props.name);
        struct device_config defaults = {0};
        struct detail d = {""};
        uint64_t budget;
        int r;

        options_set_defaults(SECTION_DEVICE, &defaults);
        if (!c)
                c = &defaults;
        budget = budget_of(&device->props, c);
        r = store_add_pool(&s->store, device, budget, c->extent_bytes, &d);
        if (r < 0) {
                log_error("device %s: %s", device->props.name, d.text);
                device_close(device);
                return r;
        }
        if (budget > device->props.total_bytes)
                log_warning("device %s: memory is set to more than the %llu MiB it has",
                        device->props.name, (unsigned long long)(device->props.total_bytes >> 20));
        s->budget_bytes += budget;
        return 0;
}

/* The names of what is on this machine, separated by commas. */
static void list_devices(char *buf, size_t size)
{
        struct device_props props[CONFIG_DEVICES_MAX];
        size_t len = 0;

        buf[0] = '\0';
        for (const struct device_backend *const *b = device_backends; *b; b++) {
                int n = (*b)->enumerate(props, ARRAY_SIZE(props));

                for (int i = 0; i < MIN(n, CONFIG_DEVICES_MAX) && len < size; i++)
                        len += (size_t)snprintf(
                                buf + len, size - len, "%s%s", len > 0 ? ", " : "", props[i].name);
        }
}

static int open_named(struct server *s, const char *name)
{
        struct device *device = NULL;
        char there[512];
        int r = device_open(name, &device);

        if (r == 0)
                return add_pool(s, device);
        list_devices(there, sizeof(there));
        log_error("cannot open device '%s': %s; devices of this machine are %s: correct 'devices' "
                  "in [daemon]",
                name, strerror(-r), there);
        return r;
}

/* All devices of the first backend that has any. */
static int open_auto(struct server *s)
{
        struct device_props props[CONFIG_DEVICES_MAX];
        int r = 0, n = 0;

        for (const struct device_backend *const *b = device_backends; *b && n <= 0; b++)
                n = (*b)->enumerate(props, ARRAY_SIZE(props));
        if (n <= 0) {
                log_error("no device found: %s", n < 0 ? strerror(-n) : "there is none");
                return n < 0 ? n : -ENODEV;
        }
        for (int i = 0; i < MIN(n, CONFIG_DEVICES_MAX) && r == 0; i++)
                r = open_named(s, props[i].name);
        return r;
}

static void warn_unused(const struct server *s)
{
        for (size_t i = 0; i < s->config.n_devices; i++) {
                const char *name = s->config.devices[i].name;
                bool is_used = false;

                list_for_each (pool, &s->store.pools, struct pool, link)
                        if (strcmp(pool->device->props.name, name) == 0)
                                is_used = true;
                if (!is_used)
                        log_warning("[device %s] describes no device in use: 'devices' in [daemon] "
                                    "does not name it",
                                name);
        }
}

int devices_open(struct server *s)
{
        char names[CONFIG_DEVICES_TEXT + 1], *save = NULL;
        int r = 0;

        if (strcmp(s->config.daemon.devices, "auto") == 0) {
                r = open_auto(s);
        } else {
                strcpy(names, s->config.daemon.devices);
                for (char *n = strtok_r(names, ", ", &save); n && r == 0;
                        n = strtok_r(NULL, ", ", &save))
                        r = open_named(s, n);
                if (r == 0 && list_is_empty(&s->store.pools)) {
                        log_error("'devices' in [daemon] names no device: use auto, host or UUIDs "
                                  "of GPUs");
                        r = -ENODEV;
                }
        }
        if (r == 0)
                warn_unused(s);
        return r;
}
