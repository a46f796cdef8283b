#include "daemon/server/services/leasables.h"

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/core/reclaim/leasable.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/turns.h"

/* Interval of counting, which briefly takes cache lines of pins away from clients: a part in a
 * thousand of their time. Not tuned. */
#define TICK_MSEC 10

/* Bounds of a tick: pages, some microseconds with a few clients and 200 with 64 that hold all of
 * them; and namespaces, which cost O(tenants) each. Not tuned. */
#define PAGES_PER_TICK      4096
#define NAMESPACES_PER_TICK 8

/* After so many ticks without an execution, the rest is counted fast. Otherwise a full pool would
 * keep an idle daemon awake for seconds. Not tuned. */
#define QUIET_TICKS 10

static void on_tick(uv_timer_t *timer)
{
        struct server *s = container_of(timer, struct server, services.leasables_timer);
        uint32_t budget = PAGES_PER_TICK;
        uint32_t most = MIN(s->services.n_leasables_due, (uint32_t)NAMESPACES_PER_TICK);
        uint64_t began = clock_now_nsec();

        s->services.n_leasables_due -= leasables_look(
                &s->store, most, &budget, ++s->services.n_leasables_ticks > QUIET_TICKS);
        (void)turns_end_part(s, "leasable pages", NULL, began);
        if (s->services.n_leasables_due > 0 && s->store.leasables.n > 0)
                uv_timer_start(&s->services.leasables_timer, on_tick, TICK_MSEC, 0);
}

void leasables_expect(struct server *s)
{
        uv_handle_t *timer = (uv_handle_t *)&s->services.leasables_timer;

        /* The current round may have passed changed namespaces. */
        s->services.n_leasables_due = s->store.leasables.n + 1;
        s->services.n_leasables_ticks = 0;
        if (!uv_is_active(timer) && !uv_is_closing(timer))
                uv_timer_start(&s->services.leasables_timer, on_tick, TICK_MSEC, 0);
}

void leasables_init(struct server *s)
{
        uv_timer_init(&s->loop.uv, &s->services.leasables_timer);
}
