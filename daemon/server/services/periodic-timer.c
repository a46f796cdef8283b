#include "daemon/server/services/periodic-timer.h"

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/core/cache/expire.h"
#include "daemon/core/cache/nsset.h"
#include "daemon/core/life/idle.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/sessions/session.h"
#include "daemon/core/reclaim/prefetch.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/turns.h"
#include "daemon/server/services/learnt.h"
#include "daemon/server/services/recorder.h"

/* Idle times are in whole seconds, so looks aren't more frequent. */
#define TICK_MSEC 1000

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

static void on_tick(uv_timer_t *timer);

/* A test's clock may jump: then look at every tick. */
static void arm_timer(struct server *s, uint64_t nsec)
{
        uint64_t msec = s->clock.nsec ? 0 : nsec / NSEC_PER_MSEC + 1;

        if (!uv_is_closing((uv_handle_t *)&s->services.periodic_timer))
                uv_timer_start(
                        &s->services.periodic_timer, on_tick, MAX(msec, (uint64_t)TICK_MSEC), 0);
}

static void on_tick(uv_timer_t *timer)
{
        struct server *s = container_of(timer, struct server, services.periodic_timer);
        uint64_t now_nsec = server_now(s), next_nsec = UINT64_MAX, began = clock_now_nsec();

        for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
                next_nsec = MIN(next_nsec, calls[i](s, now_nsec));
        (void)turns_end_part(s, "periodic", NULL, began);
        if (next_nsec != UINT64_MAX)
                arm_timer(s, minus_u64(next_nsec, now_nsec));
}

void periodic_timer_expect(struct server *s)
{
        const uv_timer_t *timer = &s->services.periodic_timer;

        if (!uv_is_active((const uv_handle_t *)timer) || uv_timer_get_due_in(timer) > TICK_MSEC)
                arm_timer(s, 0);
}

void periodic_timer_init(struct server *s)
{
        uv_timer_init(&s->loop.uv, &s->services.periodic_timer);
}
