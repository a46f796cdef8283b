#include "daemon/server/services/devices.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread.h"
#include "daemon/core/core.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/state/store.h"
#include "daemon/core/life/canary.h"
#include "daemon/server/peers/keeping.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/services/disk-tier.h"
#include "daemon/server/services/queues.h"
#include "daemon/server/config/config.h"
#include "daemon/server/base/log.h"
#include "gpu/device.h"
#include "gpu/queue.h"

/* Share of host memory for 'auto': a quarter, at most AUTO_MAX. Not tuned. */
#define AUTO_SHARE 4
#define AUTO_MAX   (UINT64_C(64) << 30)

/* Tenths of a GPU's memory for 'auto': the rest is for contexts, code and workspaces of its users.
 * Not tuned. */
#define AUTO_TENTHS_OF_GPU 9

static const struct device_config *config_of(const struct server *s, const char *name)
{
        static struct device_config defaults;
        const struct device_config *c = config_find_device(&s->config, name);

        options_set_defaults(SECTION_DEVICE, &defaults);
        return c ? c : &defaults;
}

/* Share of the device's memory if none is configured. */
static uint64_t share_of(const struct device_props *props, const struct device_config *c)
{
        if (c->memory_ratio != DEVICE_RATIO_AUTO)
                return props->total_bytes / 100 * c->memory_ratio;
        if (!props->is_cpu_memory)
                return props->total_bytes / 10 * AUTO_TENTHS_OF_GPU;
        return MIN(props->total_bytes / AUTO_SHARE, AUTO_MAX);
}

uint64_t devices_budget(
        const struct server *s, const struct device_props *props, const struct device_config *c)
{
        uint64_t share = share_of(props, c);

        if (c->memory_bytes != DEVICE_MEMORY_AUTO)
                return c->memory_bytes * MAX(props->n_members, 1u);
        return share - MIN(share, canary_bytes(&s->store.keep, props));
}

/* ---- search of devices ----------------------------------------------------------------------- */

/* A search of devices in a thread: it calls the driver, which may hang. Then the thread is left
 * behind. */
struct search {
        pthread_mutex_t lock;
        pthread_cond_t over;
        unsigned refs; /* the waiting thread, the searching thread */
        const struct device_backend *backend;
        bool is_over;
        int n;
        char why[DEVICE_WHY_BYTES];
        struct device_props props[CONFIG_DEVICES_MAX];
};

/* Locked; unlocks. */
static void search_unref(struct search *search)
{
        bool is_last = --search->refs == 0;

        pthread_mutex_unlock(&search->lock);
        if (!is_last)
                return;
        pthread_mutex_destroy(&search->lock);
        pthread_cond_destroy(&search->over);
        free(search);
}

static void *search_main(void *data)
{
        struct search *search = data;
        int n = search->backend->enumerate(search->props, ARRAY_SIZE(search->props), search->why);

        pthread_mutex_lock(&search->lock);
        search->n = n;
        search->is_over = true;
        pthread_cond_signal(&search->over);
        search_unref(search);
        return NULL;
}

static struct search *search_new(const struct device_backend *backend)
{
        struct search *search = calloc(1, sizeof(*search));
        pthread_condattr_t attr;

        if (!search)
                return NULL;
        pthread_mutex_init(&search->lock, NULL);
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&search->over, &attr);
        pthread_condattr_destroy(&attr);
        search->backend = backend;
        search->refs = 1;
        return search;
}

/* 0 or -errno. */
static int search_start(struct search *search)
{
        pthread_t thread;
        int r;

        search->refs++;
        r = thread_start(&thread, NULL, search_main, search);
        if (r < 0)
                search->refs--;
        else
                pthread_detach(thread);
        return r;
}

/* The default, not a device's own: the devices aren't known yet. */
static uint64_t search_timeout(const struct server *s)
{
        struct device_config defaults = {0};
        uint64_t timeout = 0;

        for (size_t i = 0; i < s->config.n_devices; i++)
                timeout = MAX(timeout, s->config.devices[i].driver_timeout_nsec);
        options_set_defaults(SECTION_DEVICE, &defaults);
        return timeout > 0 ? timeout : defaults.driver_timeout_nsec;
}

/* Finds the devices of the backend in a thread of its own, and waits for it. Returns as
 * enumerate(), or -ETIMEDOUT if the driver hangs. */
static int find_devices(struct server *s, const struct device_backend *backend,
        struct device_props props[CONFIG_DEVICES_MAX], char why[DEVICE_WHY_BYTES])
{
        uint64_t until = clock_now_nsec() + search_timeout(s);
        const struct timespec at = {
                .tv_sec = (time_t)(until / NSEC_PER_SEC),
                .tv_nsec = (long)(until % NSEC_PER_SEC),
        };
        struct search *search = search_new(backend);
        int r = search ? search_start(search) : -ENOMEM;

        why[0] = '\0';
        if (!search)
                return r;
        pthread_mutex_lock(&search->lock);
        while (r == 0 && !search->is_over)
                r = -pthread_cond_timedwait(&search->over, &search->lock, &at);
        if (search->is_over) {
                r = search->n;
                memcpy(why, search->why, DEVICE_WHY_BYTES);
                memcpy(props, search->props, sizeof(search->props));
        } else if (r == -ETIMEDOUT) {
                s->life.left_behind = true;
                snprintf(why, DEVICE_WHY_BYTES, "its driver hangs while it looks for devices");
        }
        search_unref(search);
        return MIN(r, CONFIG_DEVICES_MAX);
}

/* Lists the names of this machine's devices, separated by commas. */
static void list_devices(struct server *s, char *buf, size_t size)
{
        struct device_props props[CONFIG_DEVICES_MAX];
        char why[DEVICE_WHY_BYTES];
        size_t len = 0;

        buf[0] = '\0';
        for (const struct device_backend *const *b = device_backends; *b; b++) {
                int n = find_devices(s, *b, props, why);

                for (int i = 0; i < n && len < size; i++)
                        len += (size_t)snprintf(
                                buf + len, size - len, "%s%s", len > 0 ? ", " : "", props[i].name);
        }
}

/* ---- opening them ---------------------------------------------------------------------------- */

static void note_pool(struct server *s, const struct device_props *props, uint64_t budget)
{
        if (props->total_bytes > 0 && budget > props->total_bytes)
                log_warning("device %s: memory is set to more than the %llu MiB it has",
                        props->name, (unsigned long long)(props->total_bytes >> 20));
        s->budget_bytes += budget;
}

static unsigned timeout_msec(const struct device_config *c)
{
        return (unsigned)(c->driver_timeout_nsec / NSEC_PER_MSEC);
}

/* Adds a device behind its queue, which it takes in any case: the pool has it, or it is closed. */
static int add_queue(struct server *s, struct queue *queue, uint64_t budget_bytes,
        uint64_t extent_bytes, struct detail *d)
{
        const struct queue_park park = keeping_park(s);
        int r;

        if (keeping_is_on(&s->keeping))
                queue_set_park(queue, &park);
        r = store_add_queue(&s->store, queue, budget_bytes, extent_bytes, d);
        if (r < 0) {
                s->life.left_behind |= !queue_close(queue);
                return r;
        }
        /* Without it nothing would ever be made. */
        r = queues_watch(s, list_entry(s->store.pools.prev, struct pool, link));
        if (r < 0)
                return detail_set(d, r,
                        "kvleased cannot listen to device %s (%s): it needs memory and a descriptor for that",
                        queue_props(queue)->name, strerror(-r));
        return 0;
}

/* Takes the device in any case. */
static int add_device(struct server *s, struct device *device, uint64_t budget_bytes,
        uint64_t extent_bytes, struct detail *d)
{
        int r = store_add_pool(&s->store, device, budget_bytes, extent_bytes, d);

        if (r < 0)
                device_close(device);
        return r;
}

int devices_add(struct server *s, struct device *device, uint64_t budget_bytes,
        uint64_t extent_bytes, struct detail *d)
{
        const struct device_config *c = config_of(s, device->props.name);
        struct queue *queue;
        int r;

        if (!device->props.may_block && !keeping_is_on(&s->keeping))
                return add_device(s, device, budget_bytes, extent_bytes, d);
        r = queue_open_device(device, timeout_msec(c), &queue);
        if (r < 0) {
                detail_set(d, r, "no thread for device %s", device->props.name);
                device_close(device);
                return r;
        }
        return add_queue(s, queue, budget_bytes, extent_bytes, d);
}

/* Online nodes: "0", or "0-1", "0,2" ... if there are several. */
#define NUMA_NODES "/sys/devices/system/node/online"

static bool has_numa_nodes(void)
{
        FILE *file = fopen(NUMA_NODES, "re");
        char text[64] = "";
        bool has_line = file && fgets(text, sizeof(text), file);

        if (file)
                fclose(file);
        return has_line && strpbrk(text, "-,");
}

/* Adds a host tier for the device's cold pages. Its memory is extents, as a host device's. */
static int add_host_memory(struct server *s, struct pool *above, const struct device_config *c)
{
        const int node = above->props->is_cpu_memory ? -1 : above->props->numa_node;
        const struct device_options want = {.side = DEVICE_OWNER,
                .huge_pages = c->host_huge_pages,
                .has_numa_node = node >= 0 && has_numa_nodes(),
                .numa_node = (unsigned)MAX(node, 0)};
        struct device *device = NULL;
        char why[DEVICE_WHY_BYTES] = "";
        struct detail d = {""};
        int r;

        if (c->host_memory_bytes == 0)
                return 0;
        r = host_backend.open(NULL, &want, &device, why);
        if (r < 0) {
                log_error("cannot use host_memory of [device %s]: %s", above->props->name,
                        why[0] ? why : strerror(-r));
                return r;
        }
        if (why[0])
                log_warning("host_memory of [device %s]: %s", above->props->name, why);
        r = store_add_below(&s->store, above, device, c->host_memory_bytes, c->extent_bytes, &d);
        if (r < 0) {
                device_close(device);
                log_error("%s", d.text);
        }
        return r;
}

static int add_below(struct server *s, struct pool *pool, const struct device_config *c)
{
        int r = add_host_memory(s, pool, c);

        return r < 0 ? r : disk_tier_add(s, pool->below ? pool->below : pool, c);
}

/* Takes either, in any case. */
static int add_opened(struct server *s, struct device *device, struct queue *queue)
{
        const struct device_props props = queue ? *queue_props(queue) : device->props;
        const struct device_config *c = config_of(s, props.name);
        uint64_t budget = devices_budget(s, &props, c);
        struct detail d = {""};
        int r;

        if (queue)
                r = add_queue(s, queue, budget, c->extent_bytes, &d);
        else
                r = add_device(s, device, budget, c->extent_bytes, &d);
        if (r < 0) {
                log_error("%s", d.text);
                return r;
        }
        note_pool(s, &props, budget);
        return add_below(s, list_entry(s->store.pools.prev, struct pool, link), c);
}

static enum device_transport transport_of(const struct device_config *c)
{
        switch (c->transport) {
        case TRANSPORT_CHOICE_VMM:
                return TRANSPORT_VMM;
        case TRANSPORT_CHOICE_CUDAIPC:
                return TRANSPORT_CUDAIPC;
        default:
                return 0;
        }
}

static void refuse_device(struct server *s, const char *name, int r, const char *why)
{
        char there[512];

        if (r != -ENODEV) {
                s->life.left_behind |= r == -ETIMEDOUT;
                log_error("cannot open device '%s': %s", name, why[0] ? why : strerror(-r));
                return;
        }
        list_devices(s, there, sizeof(there));
        log_error(
                "cannot open device '%s': %s; devices of this machine are %s: correct 'devices' in [daemon]",
                name, why[0] ? why : strerror(-r), there);
}

/* Opens a device. One that may block is opened on its queue's thread; so is a stored one, which
 * waits for the service manager. */
static int open_named(struct server *s, const char *name)
{
        const struct device_config *c = config_of(s, name);
        struct device_options want = {.side = DEVICE_OWNER,
                .transport = transport_of(c),
                .huge_pages = c->huge_pages,
                .populate = c->populate};
        struct device *device = NULL;
        struct queue *queue = NULL;
        char why[DEVICE_WHY_BYTES] = "";
        int r;

        strcpy(want.members, c->members);
        if (host_is_name(name) && !keeping_is_on(&s->keeping) && !c->populate)
                r = device_open(name, &want, &device, why);
        else
                r = queue_open(name, &want, timeout_msec(c), &queue, why);
        if (r < 0) {
                refuse_device(s, name, r, why);
                return r;
        }
        if (why[0])
                log_warning("device %s: %s", name, why);
        return add_opened(s, device, queue);
}

/* Explains why 'auto' skips a backend. */
static void explain_none(const struct device_backend *backend, int n, const char *why)
{
        if (n == 0)
                log_info("no device of backend %s: %s", backend->name, why[0] ? why : "none found");
        else
                log_notice("no device of backend %s can be used: %s", backend->name,
                        why[0] ? why : strerror(-n));
}

/* Opens all devices of the first backend that has any. */
static int open_auto(struct server *s)
{
        struct device_props props[CONFIG_DEVICES_MAX];
        char why[DEVICE_WHY_BYTES];
        int r = 0, n = 0;

        for (const struct device_backend *const *b = device_backends; *b && n <= 0; b++) {
                n = find_devices(s, *b, props, why);
                if (n == -ETIMEDOUT) {
                        log_error(
                                "cannot look for devices: backend %s: %s; name those to use in 'devices' in [daemon], or mend the driver",
                                (*b)->name, why);
                        return n;
                }
                if (n <= 0)
                        explain_none(*b, n, why);
        }
        if (n <= 0) {
                log_error("no device found: %s", n < 0 ? strerror(-n) : "there is none");
                return n < 0 ? n : -ENODEV;
        }
        for (int i = 0; i < n && r == 0; i++)
                r = open_named(s, props[i].name);
        return r;
}

static void warn_unused(const struct server *s)
{
        for (size_t i = 0; i < s->config.n_devices; i++) {
                const char *name = s->config.devices[i].name;
                bool is_used = false;

                list_for_each (pool, &s->store.pools, struct pool, link)
                        if (strcmp(pool->props->name, name) == 0)
                                is_used = true;
                if (!is_used)
                        log_warning(
                                "[device %s] describes no device in use: 'devices' in [daemon] does not name it",
                                name);
        }
}

uint64_t devices_host_bytes(const struct server *s)
{
        uint64_t sum = 0;

        store_for_each_pool (pool, &s->store)
                sum += pool->props->is_cpu_memory ? pool->account.limit_bytes : 0;
        return sum;
}

/* Warns: host devices and lower tiers share the host's memory. */
static void warn_shared_memory(const struct server *s)
{
        uint64_t sum = devices_host_bytes(s), total = 0;
        struct detail d;
        unsigned n = 0;
        bool is_below;

        store_for_each_pool (pool, &s->store)
                if (pool->props->is_cpu_memory) {
                        total = pool->props->total_bytes;
                        n++;
                }
        is_below = !list_is_empty(&s->store.lower_pools);
        if ((n > 1 || is_below) && sum > total)
                log_warning(
                        "the host's %u devices may lease %llu MiB together, more than the %llu MiB it has: give them less 'memory'%s",
                        n, (unsigned long long)(sum >> 20), (unsigned long long)(total >> 20),
                        is_below ? ", or less 'host_memory'" : "");
        if (config_exceeds_cgroup(sum, &d))
                log_warning("%s", d.text);
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
                        log_error(
                                "'devices' in [daemon] names no device: use auto, host or UUIDs of GPUs");
                        r = -ENODEV;
                }
        }
        if (r == 0) {
                warn_unused(s);
                warn_shared_memory(s);
        }
        return r;
}
