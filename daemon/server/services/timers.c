#include "daemon/server/services/timers.h"

#include <time.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/parse.h"
#include "daemon/core/cache/expire.h"
#include "daemon/core/cache/nsset.h"
#include "daemon/core/life/idle.h"
#include "daemon/core/life/sizing.h"
#include "daemon/core/reclaim/compact.h"
#include "daemon/core/reclaim/leasable.h"
#include "daemon/core/reclaim/prealloc.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/sessions/session.h"
#include "daemon/core/reclaim/prefetch.h"
#include "daemon/server/base/log.h"
#include "daemon/server/peers/followers.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/turns.h"
#include "daemon/server/services/learnt.h"
#include "daemon/server/services/recorder.h"

/* ---- occasional work ------------------------------------------------------------------------- */

/* Idle times are in whole seconds, so looks aren't more frequent. */
#define PERIODIC_MSEC 1000

/* Does due work. Returns the time of its next call, if nothing happens before; UINT64_MAX: none. */
typedef uint64_t (*periodic_fn)(struct server *s, uint64_t now_nsec);

static uint64_t expire_pages(struct server *s, uint64_t now_nsec)
{
        if (expire_begin(&s->store, now_nsec))
                loop_kick(&s->loop);
        return expire_deadline(&s->store);
}

/* Sessions looked at in one tick for each namespace: a millisecond at most. Not tuned. */
#define SESSIONS_PER_TICK 4096

static uint64_t expire_sessions(struct server *s, uint64_t now_nsec)
{
        uint64_t next_nsec = UINT64_MAX;

        store_set_now(&s->store, now_nsec);
        list_for_each (t, &s->store.tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        next_nsec =
                                MIN(next_nsec, sessions_expire(ns, now_nsec, SESSIONS_PER_TICK));
        return next_nsec;
}

/* Keys of namespace sets that stayed incomplete. */
static uint64_t drop_incomplete(struct server *s, uint64_t now_nsec)
{
        uint64_t next = nssets_deadline(&s->store);

        if (next <= now_nsec) {
                store_set_now(&s->store, now_nsec);
                loop_kick(&s->loop);
        }
        return next;
}

/* Drops namespaces that are empty and were not opened for a while. */
static uint64_t drop_idle(struct server *s, uint64_t now_nsec)
{
        uint64_t next = idle_look(&s->store, now_nsec);

        if (next <= now_nsec)
                loop_kick(&s->loop);
        return next;
}

/* Sessions that will be asked for soon. */
static uint64_t look_ahead(struct server *s, uint64_t now_nsec)
{
        return prefetch_look(&s->store, now_nsec);
}

static const periodic_fn calls[] = {expire_pages, drop_incomplete, expire_sessions, drop_idle,
        look_ahead, learnt_save_due, recorder_end_idle};

static void on_periodic(uv_timer_t *timer);

/* A test's clock may jump: then look at every tick. */
static void arm_periodic(struct server *s, uint64_t nsec)
{
        uint64_t msec = s->clock.nsec ? 0 : nsec / NSEC_PER_MSEC + 1;

        if (!uv_is_closing((uv_handle_t *)&s->services.periodic_timer))
                uv_timer_start(&s->services.periodic_timer, on_periodic,
                        MAX(msec, (uint64_t)PERIODIC_MSEC), 0);
}

static void on_periodic(uv_timer_t *timer)
{
        struct server *s = container_of(timer, struct server, services.periodic_timer);
        uint64_t now_nsec = server_now(s), next_nsec = UINT64_MAX, began = clock_now_nsec();

        for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
                next_nsec = MIN(next_nsec, calls[i](s, now_nsec));
        (void)turns_end_part(s, "periodic", NULL, began);
        if (next_nsec != UINT64_MAX)
                arm_periodic(s, minus_u64(next_nsec, now_nsec));
}

void periodic_timer_expect(struct server *s)
{
        const uv_timer_t *timer = &s->services.periodic_timer;

        if (!uv_is_active((const uv_handle_t *)timer) || uv_timer_get_due_in(timer) > PERIODIC_MSEC)
                arm_periodic(s, 0);
}

/* ---- compaction ------------------------------------------------------------------------------ */

/* Short compared to the seconds in which a cache changes; also the interval between two freed sets.
 * Not tuned. */
#define COMPACTION_MSEC 100

/* Interval of looks at the preallocated pages because of leases, even without memory to bind. Not
 * tuned. */
#define PREALLOC_NSEC (10 * NSEC_PER_MSEC)

static void on_compaction(uv_timer_t *timer)
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
        loop_start_timer(&s->services.compact_timer, on_compaction, COMPACTION_MSEC);
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
        s->store.owner.on_prealloc = on_prealloc;
}

/* ---- leasable pages -------------------------------------------------------------------------- */

/* Interval of counting, which briefly takes cache lines of pins away from clients: a part in a
 * thousand of their time. Not tuned. */
#define LEASABLES_MSEC 10

/* Bounds of a tick: pages, some microseconds with a few clients and 200 with 64 that hold all of
 * them; and namespaces, which cost O(tenants) each. Not tuned. */
#define PAGES_PER_TICK      4096
#define NAMESPACES_PER_TICK 8

/* After so many ticks without an execution, the rest is counted fast. Otherwise a full pool would
 * keep an idle daemon awake for seconds. Not tuned. */
#define QUIET_TICKS 10

static void on_leasables(uv_timer_t *timer)
{
        struct server *s = container_of(timer, struct server, services.leasables_timer);
        uint32_t budget = PAGES_PER_TICK;
        uint32_t most = MIN(s->services.n_leasables_due, (uint32_t)NAMESPACES_PER_TICK);
        uint64_t began = clock_now_nsec();

        s->services.n_leasables_due -= leasables_look(
                &s->store, most, &budget, ++s->services.n_leasables_ticks > QUIET_TICKS);
        (void)turns_end_part(s, "leasable pages", NULL, began);
        if (s->services.n_leasables_due > 0 && s->store.leasables.n > 0)
                uv_timer_start(&s->services.leasables_timer, on_leasables, LEASABLES_MSEC, 0);
}

void leasables_expect(struct server *s)
{
        /* The current round may have passed changed namespaces. */
        s->services.n_leasables_due = s->store.leasables.n + 1;
        s->services.n_leasables_ticks = 0;
        loop_start_timer(&s->services.leasables_timer, on_leasables, LEASABLES_MSEC);
}

/* ---- sizing ---------------------------------------------------------------------------------- */

static uint32_t second_of_day(void)
{
        time_t now = time(NULL);
        struct tm tm = {0};

        localtime_r(&now, &tm);
        return (uint32_t)(tm.tm_hour * 3600 + tm.tm_min * 60 + MIN(tm.tm_sec, 59));
}

static void on_moved(const struct tenant *t, uint64_t before_bytes, void *data)
{
        char before[FORMAT_BYTES_MAX], after[FORMAT_BYTES_MAX];

        server_note(
                data, &(struct event_note){.kind = EVENT_RESIZED,
                              .tenant = t->name,
                              .before_bytes = before_bytes,
                              .bytes = sizing_reserved(t),
                              .reason = t->sizing.attrs.mode == SIZING_OFF ? "schedule" : "sizer",
                              .detail = sizing_why(t)});
        log_event(LEVEL_INFO, LOG_FIELDS({"TENANT", t->name}),
                "reservation of tenant %s goes from %s to %s: %s", t->name,
                format_bytes(before_bytes, before), format_bytes(sizing_reserved(t), after),
                sizing_why(t));
}

static void on_sizing(uv_timer_t *timer)
{
        struct server *s = container_of(timer, struct server, services.sizing_timer);
        uint64_t began = clock_now_nsec();
        struct sizing_params params = {.window_nsec = s->config.daemon.sizer_window_nsec,
                .cooldown_nsec = s->config.daemon.sizer_cooldown_nsec,
                .second_of_day = second_of_day(),
                .on_moved = on_moved,
                .data = s};

        if (sizing_is_needed(&s->store))
                sizing_work(&s->store, &params, server_now(s));
        else
                uv_timer_stop(timer);
        (void)turns_end_part(s, "sizing", NULL, began);
}

void sizing_timer_update(struct server *s)
{
        uint64_t msec = MAX(s->config.daemon.sizer_interval_nsec / NSEC_PER_MSEC, UINT64_C(1));
        uv_timer_t *timer = &s->services.sizing_timer;

        if (!sizing_is_needed(&s->store) || uv_is_closing((uv_handle_t *)timer))
                return;
        if (!uv_is_active((uv_handle_t *)timer) || uv_timer_get_repeat(timer) != msec)
                uv_timer_start(timer, on_sizing, 0, msec);
}
