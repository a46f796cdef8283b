#include "daemon/server/services/compact-timer.h"

#include "base/clock.h"
#include "daemon/core/reclaim/compact.h"
#include "daemon/core/reclaim/prealloc.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/turns.h"

/* Short compared to the seconds in which a cache changes; also the interval between two freed sets.
 * Not tuned. */
#define TICK_MSEC 100

/* Interval of looks at the preallocated pages because of leases, even without memory to bind. Not
 * tuned. */
#define PREALLOC_NSEC (10 * NSEC_PER_MSEC)

static void on_tick(uv_timer_t *timer)
{
        struct server *s = container_of(timer, struct server, services.compact_timer);
        uint64_t began = clock_now_nsec(), now_nsec = server_now(s);
        bool more = prealloc_work(&s->store, now_nsec);

        /* Moves begun before it was switched off are finished. */
        more |= s->config.daemon.compact ? compact_turn(&s->store, now_nsec)
                                         : compact_tidy(&s->store);
        (void)turns_end_part(s, "compaction", NULL, began);
        if (more)
                compact_timer_expect(s);
}

void compact_timer_expect(struct server *s)
{
        uv_handle_t *timer = (uv_handle_t *)&s->services.compact_timer;

        if (!uv_is_active(timer) && !uv_is_closing(timer))
                uv_timer_start(&s->services.compact_timer, on_tick, TICK_MSEC, 0);
}

void compact_timer_turn(struct server *s)
{
        uint64_t now_nsec;

        if (!s->services.prealloc_wanted)
                return;
        s->services.prealloc_wanted = false;
        now_nsec = server_now(s);
        if (now_nsec - s->services.prealloc_nsec < PREALLOC_NSEC)
                return;
        s->services.prealloc_nsec = now_nsec;
        (void)prealloc_work(&s->store, now_nsec);
}

static void on_prealloc(void *data)
{
        struct server *s = data;

        s->services.prealloc_wanted = true;
        loop_kick(&s->loop);
}

void compact_timer_init(struct server *s)
{
        uv_timer_init(&s->loop.uv, &s->services.compact_timer);
        s->store.owner.on_prealloc = on_prealloc;
}
