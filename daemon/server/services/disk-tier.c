#include "daemon/server/services/disk-tier.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/parse.h"
#include "daemon/core/core.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/moves/space.h"
#include "daemon/core/state/store.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/turns.h"
#include "daemon/server/base/log.h"
#include "daemon/tier/disk.h"

/* Size of chunks, which hold whole pages and move between namespaces: many pages in a chunk, and
 * many chunks in the file. Not tuned. */
#define CHUNKS_WANTED   256
#define CHUNK_BYTES_MIN (UINT64_C(4) << 20)
#define CHUNK_BYTES_MAX (UINT64_C(64) << 20)

/* Interval of syncs: later writes are lost if the machine loses power. Not tuned. */
#define SYNC_MSEC 5000

/* The disk that takes pages of one device. */
struct disk_tier {
        struct list_link link; /* server.services.disk_tiers */
        struct server *server; /* borrowed */
        struct pool *pool;     /* likewise; has the disk */
        uv_poll_t poll;
        uv_timer_t late, sync;
        enum disk_state state; /* as the log has it */
        uint64_t n_synced;     /* disk_stats.n_written of the last one */
        unsigned n_open;       /* handles; freed with the last */
};

static uint64_t chunk_bytes(uint64_t file_bytes)
{
        uint64_t bytes = file_bytes / CHUNKS_WANTED / CHUNK_BYTES_MIN * CHUNK_BYTES_MIN;

        return MAX(CHUNK_BYTES_MIN, MIN(bytes, CHUNK_BYTES_MAX));
}

/* ---- opening --------------------------------------------------------------------------------- */

static void say_opened(const struct pool *above, const struct device_config *c, int r,
        const struct disk_file *disk, const char *why)
{
        struct disk_stats stats;

        disk_stats(disk, &stats);
        if (r == DISK_NEW && why[0])
                log_warning("disk of device %s: %s", above->props->name, why);
        if (stats.note[0])
                log_notice("disk of device %s: %s", above->props->name, stats.note);
        log_info("disk of device %s: %s, %u namespaces have pages there (%s)", above->props->name,
                c->disk, stats.n_spaces, stats.engine);
}

static struct disk_file *open_disk(const struct pool *above, const struct device_config *c)
{
        const char *of = strrchr(above->props->name, ' '); /* "host of GPU-..." */
        const struct disk_options want = {
                .device = of ? of + 1 : above->props->name,
                .chunk_bytes = chunk_bytes(c->disk_bytes),
        };
        char why[DISK_WHY_BYTES] = "", size[FORMAT_BYTES_MAX];
        struct disk_file *disk;
        int r;

        if (access(c->disk, F_OK) != 0)
                log_notice("disk of device %s: making %s of %s, which can take a while",
                        want.device, c->disk, format_bytes(c->disk_bytes, size));
        r = disk_open(c->disk, c->disk_bytes, &want, &disk, why);
        if (r < 0) {
                log_error(
                        "disk of device %s can't be used: %s; kvleased goes on without it, and what lies there isn't found",
                        want.device, why[0] ? why : strerror(-r));
                return NULL;
        }
        say_opened(above, c, r, disk, why);
        return disk;
}

static int note_tier(struct server *s, struct pool *pool)
{
        struct disk_tier *t = calloc(1, sizeof(*t));

        if (!t)
                return -ENOMEM;
        t->server = s;
        t->pool = pool;
        list_init(&t->link);
        list_append(&s->services.disk_tiers, &t->link);
        return 0;
}

int disk_tier_add(struct server *s, struct pool *above, const struct device_config *c)
{
        struct disk_file *disk;
        struct detail d = {""};
        int r;

        if (!c->disk[0])
                return 0;
        disk = open_disk(above, c);
        r = store_add_disk(
                &s->store, above, disk, config_disk_budget(c->disk_bytes), c->extent_bytes, &d);
        if (r < 0) {
                if (disk)
                        (void)disk_close(disk);
                log_error("%s", d.text);
                return r;
        }
        r = disk ? note_tier(s, above->below) : 0;
        if (r < 0)
                log_error("no memory for the disk of device %s", above->props->name);
        return r;
}

/* ---- looking after them ---------------------------------------------------------------------- */

static void reap(struct disk_tier *t)
{
        uint64_t began = clock_now_nsec();

        (void)disk_reap(t->pool->disk);
        store_wake_transfers(&t->server->store);
        (void)turns_end_part(t->server, "disk", NULL, began);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
        reap(container_of(poll, struct disk_tier, poll));
}

static void on_late(uv_timer_t *timer)
{
        reap(container_of(timer, struct disk_tier, late));
}

/* The disk's state reports the result. */
static void on_synced(int result, void *data)
{
        (void)result;
        (void)data;
}

static void on_sync(uv_timer_t *timer)
{
        struct disk_tier *t = container_of(timer, struct disk_tier, sync);
        struct disk_stats stats;

        disk_stats(t->pool->disk, &stats);
        if (disk_sync(t->pool->disk, on_synced, NULL) == 0)
                t->n_synced = stats.n_written;
}

static void say_state(struct disk_tier *t, const struct disk_stats *stats)
{
        const char *name = t->pool->props->name;

        if (stats->state == t->state)
                return;
        t->state = stats->state;
        switch (stats->state) {
        case DISK_OK:
                log_notice("%s works again", name);
                break;
        case DISK_FAILING:
                log_warning(
                        "%s is failing: %s; nothing is written to it meanwhile", name, stats->why);
                break;
        case DISK_OFF:
                log_error(
                        "%s is given up: %s; what lay there is gone, kvleased goes on without it until it is restarted",
                        name, stats->why);
        }
}

static void set_timers(struct disk_tier *t, const struct disk_stats *stats)
{
        uint64_t deadline = disk_deadline_nsec(t->pool->disk), now = clock_now_nsec();

        if (deadline == UINT64_MAX)
                uv_timer_stop(&t->late);
        else
                uv_timer_start(&t->late, on_late,
                        deadline > now ? (deadline - now) / NSEC_PER_MSEC + 1 : 1, 0);
        if (stats->n_written != t->n_synced && !uv_is_active((uv_handle_t *)&t->sync))
                uv_timer_start(&t->sync, on_sync, SYNC_MSEC, 0);
}

void disk_tiers_turn(struct server *s)
{
        list_for_each (t, &s->services.disk_tiers, struct disk_tier, link) {
                struct disk_stats stats;

                if (!t->pool->disk || t->n_open == 0 || uv_is_closing((uv_handle_t *)&t->poll))
                        continue;
                disk_stats(t->pool->disk, &stats);
                say_state(t, &stats);
                set_timers(t, &stats);
        }
}

int disk_tiers_watch(struct server *s)
{
        list_for_each (t, &s->services.disk_tiers, struct disk_tier, link) {
                int r = uv_poll_init(&s->loop.uv, &t->poll, disk_fd(t->pool->disk));

                if (r < 0) {
                        log_error("kvleased cannot listen to %s: %s", t->pool->props->name,
                                strerror(-r));
                        return r;
                }
                uv_timer_init(&s->loop.uv, &t->late);
                uv_timer_init(&s->loop.uv, &t->sync);
                t->n_open = 3;
                uv_poll_start(&t->poll, UV_READABLE, on_readable);
        }
        return 0;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *handle)
{
        struct disk_tier *t = handle->data;

        if (--t->n_open == 0)
                free(t);
}

void disk_tiers_stop(struct server *s)
{
        list_for_each_safe (t, &s->services.disk_tiers, struct disk_tier, link) {
                list_remove(&t->link);
                if (t->n_open == 0) {
                        free(t);
                        continue;
                }
                t->poll.data = t->late.data = t->sync.data = t;
                uv_close((uv_handle_t *)&t->poll, on_closed);
                uv_close((uv_handle_t *)&t->late, on_closed);
                uv_close((uv_handle_t *)&t->sync, on_closed);
        }
}
