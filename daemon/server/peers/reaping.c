#include "daemon/server/peers/reaping.h"

#include <errno.h>

#include "base/fd.h"
#include "base/macros.h"
#include "base/parse.h"
#include "daemon/core/memory/discard.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/state/tenant.h"
#include "daemon/reap/reaper.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/turns.h"
#include "daemon/server/base/log.h"

/* Half of the delay to detect. */
#define TICK_MSEC (DISCARD_HELD_NSEC / NSEC_PER_MSEC / 2)

static void on_tick(uv_timer_t *timer);

static void expect(struct server *s)
{
        uv_handle_t *timer = (uv_handle_t *)&s->reaping.timer;

        if (!uv_is_active(timer) && !uv_is_closing(timer))
                uv_timer_start(&s->reaping.timer, on_tick, TICK_MSEC, TICK_MSEC);
}

/* ---- delays by clients ----------------------------------------------------------------------- */

/* Not late: an owner that only has much to close. */
static bool is_late(const struct server *s, const struct tenant *t, uint64_t now_nsec)
{
        struct reaper_owner o;

        if (t->held.n_refused > 0)
                return true;
        return t->held.n_sets > 0 && reaper_find_owner(s->reaping.reaper, t->number, &o) &&
               o.running_nsec > 0 && now_nsec - o.running_nsec >= REAPING_SAY_NSEC;
}

static void say_held(const struct tenant *t)
{
        char bytes[FORMAT_BYTES_MAX];

        log_event(LEVEL_WARNING, LOG_FIELDS({"TENANT", t->name}),
                "tenant %s holds up memory that it let go of: %s in %u extent sets stay charged to "
                "it; one of its processes %s: stop its processes to get the memory back",
                t->name, format_bytes(t->held.bytes, bytes), t->held.n_sets,
                t->held.n_refused > 0 ? "has made such memory immutable (FS_IOC_SETFLAGS)"
                                      : "writes to such memory without end, or holds it otherwise");
}

static void look_at_tenant(struct server *s, struct tenancy *t, uint64_t now_nsec)
{
        if (!t->said_held && is_late(s, t->tenant, now_nsec)) {
                t->said_held = true;
                say_held(t->tenant);
        } else if (t->said_held && t->tenant->held.n_sets == 0) {
                t->said_held = false;
                log_event(LEVEL_NOTICE, LOG_FIELDS({"TENANT", t->tenant->name}),
                        "tenant %s holds up no memory any more", t->tenant->name);
        }
}

static void look_at_owners(struct server *s)
{
        uint64_t now_nsec = clock_now_nsec();
        bool is_going = discards_look(&s->store.memory.discards, now_nsec);
        struct reaper_owner o;
        size_t iter = 0;

        list_for_each (t, &s->tenancies.list, struct tenancy, link)
                look_at_tenant(s, t, now_nsec);
        if (!is_going && !reaper_next_owner(s->reaping.reaper, &iter, &o))
                uv_timer_stop(&s->reaping.timer);
}

/* ---- in the loop ----------------------------------------------------------------------------- */

static void on_tick(uv_timer_t *timer)
{
        struct server *s = container_of(timer, struct server, reaping.timer);
        uint64_t began = clock_now_nsec();

        reaper_dispatch(s->reaping.reaper);
        look_at_owners(s);
        (void)turns_end_part(s, "reaper", NULL, began);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
        struct server *s = container_of(poll, struct server, reaping.poll);

        reaper_dispatch(s->reaping.reaper);
        idle_sets_drain(&s->store);
}

/* ---- for the store --------------------------------------------------------------------------- */

static void punch(void *data, uint32_t owner, int fd, uint64_t bytes,
        void (*done)(void *done_data, int result), void *done_data)
{
        struct server *s = data;

        expect(s);
        reaper_submit(s->reaping.reaper, REAP_PUNCH, owner, fd, bytes, done, done_data);
}

static void stop_reaper(void *data)
{
        struct server *s = data;

        reaper_stop(TAKE(s->reaping.reaper));
}

static const struct discard_ops ops = {.punch = punch, .finish = stop_reaper};

int reaping_start(struct server *s)
{
        const struct reaper_options o = {.say = log_report};
        struct reaping *r = &s->reaping;
        int result;

        if (!reaper_is_possible())
                return 0;
        result = reaper_start(&o, &r->reaper);
        if (result < 0)
                return result;
        result = uv_poll_init(&s->loop.uv, &r->poll, reaper_fd(r->reaper));
        if (result < 0) {
                reaper_stop(TAKE(r->reaper));
                return result;
        }
        uv_poll_start(&r->poll, UV_READABLE, on_readable);
        discards_set_ops(&s->store.memory.discards, &ops, s);
        return 0;
}

void reaping_leave_loop(struct server *s)
{
        if (s->reaping.reaper)
                uv_close((uv_handle_t *)&s->reaping.poll, NULL);
}

void reaping_close(struct server *s, uint64_t owner, int fd, reap_done_fn done, void *data)
{
        if (!s->reaping.reaper) {
                fd_close(fd);
                if (done)
                        done(data, 0);
                return;
        }
        expect(s);
        reaper_submit(s->reaping.reaper, REAP_CLOSE, owner, fd, 0, done, data);
}
