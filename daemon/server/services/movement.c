#include "daemon/server/services/movement.h"

#include <string.h>
#include <unistd.h>

#include "daemon/core/moves/transfer.h"
#include "daemon/core/reclaim/prefetch.h"
#include "daemon/core/reclaim/demote.h"
#include "daemon/core/reclaim/fetch.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/turns.h"
#include "daemon/server/peers/idle-interval.h"
#include "daemon/server/services/disk-tier.h"
#include "daemon/server/base/log.h"
#include "daemon/tier/mover.h"

/* Delay before moves that could not begin are tried again. Not tuned. */
#define AGAIN_MSEC 20

/* Longest delay of a stream's next pages. Not tuned. */
#define RINGS_MSEC 5

/* Processors for each copying thread: one thread saturates the memory of a small machine, where
 * engines need the rest. Not tuned. */
#define CPUS_PER_THREAD 8
#define MAX_THREADS     4

static void on_work_wanted(void *data)
{
        struct server *s = data;

        s->services.movement.is_due = true;
        loop_kick(&s->loop);
}

/* Looks at the rings of clients that stream, as their touches don't wake the daemon. */
static void on_rings(uv_timer_t *timer)
{
        struct server *s = container_of(timer, struct server, services.movement.rings);

        peers_look_at_rings(s);
        if (prefetch_is_streaming(&s->store, server_now(s)))
                uv_timer_start(timer, on_rings, RINGS_MSEC, 0);
}

static void expect_rings(struct server *s)
{
        if (prefetch_is_streaming(&s->store, server_now(s)))
                loop_start_timer(&s->services.movement.rings, on_rings, RINGS_MSEC);
}

static void on_again(uv_timer_t *timer)
{
        struct server *s = container_of(timer, struct server, services.movement.timer);

        on_work_wanted(s);
}

void movement_turn(struct server *s)
{
        bool more;

        if (!s->services.movement.is_due || !s->store.moving.mover)
                return;
        s->services.movement.is_due = false;
        more = transfer_work(&s->store);
        more |= demote_turn(&s->store, server_now(s));
        more |= prefetch_work(&s->store, server_now(s));
        disk_tiers_turn(s);
        expect_rings(s);
        if (more)
                loop_start_timer(&s->services.movement.timer, on_again, AGAIN_MSEC);
}

static void on_moved(uv_poll_t *poll, int status, int events)
{
        struct server *s = container_of(poll, struct server, services.movement.poll);
        uint64_t began = clock_now_nsec();

        (void)mover_reap(s->store.moving.mover);
        (void)turns_end_part(s, "copies", NULL, began);
        on_work_wanted(s);
}

void movement_init(struct server *s)
{
        list_init(&s->services.disk_tiers);
}

static unsigned n_threads(void)
{
        long cpus = sysconf(_SC_NPROCESSORS_ONLN);

        return cpus > CPUS_PER_THREAD ? (unsigned)MIN(cpus / CPUS_PER_THREAD, MAX_THREADS) : 1;
}

/* Pages go between tiers, or to other hosts. */
static bool is_wanted(const struct server *s)
{
        if (s->config.n_remotes > 0)
                return true;
        list_for_each (pool, &s->store.pools, struct pool, link)
                if (pool->below)
                        return true;
        return false;
}

int movement_start(struct server *s)
{
        const struct mover_options mover = {.n_threads = n_threads()};
        int r;

        if (!is_wanted(s))
                return 0;
        r = mover_open(&mover, &s->store.moving.mover);
        if (r == 0) {
                r = uv_poll_init(
                        &s->loop.uv, &s->services.movement.poll, mover_fd(s->store.moving.mover));
                s->services.movement.is_watched = r == 0;
        }
        if (r < 0) {
                log_error("no threads to move pages between tiers: %s", strerror(-r));
                return r;
        }
        r = disk_tiers_watch(s);
        if (r < 0)
                return r;
        uv_poll_start(&s->services.movement.poll, UV_READABLE, on_moved);
        s->store.owner.on_transfer_work = on_work_wanted;
        on_work_wanted(s);
        return 0;
}

void movement_stop(struct server *s)
{
        s->store.owner.on_transfer_work = NULL;
        disk_tiers_stop(s);
        if (s->services.movement.is_watched)
                uv_close((uv_handle_t *)&s->services.movement.poll, NULL);
}
