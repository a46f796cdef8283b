#include "daemon/server/services/sizing-timer.h"

#include <time.h>

#include "base/clock.h"
#include "base/parse.h"
#include "daemon/core/life/sizing.h"
#include "daemon/core/state/tenant.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/turns.h"
#include "daemon/server/base/log.h"
#include "daemon/server/peers/followers.h"

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

void sizing_timer_init(struct server *s)
{
        uv_timer_init(&s->loop.uv, &s->services.sizing_timer);
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
