#include "daemon/server/services/stop.h"

#include <stdio.h>

#include "base/clock.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/state/suspect.h"
#include "daemon/server/base/log.h"
#include "daemon/server/base/notify.h"
#include "daemon/server/peers/events.h"
#include "daemon/server/peers/followers.h"
#include "daemon/server/peers/listener.h"
#include "daemon/server/peers/parked.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/server.h"

static void on_stop_timeout(uv_timer_t *timer)
{
        uv_stop(timer->loop);
}

void stop_close_listeners(struct server *s)
{
        s->life.serving = false;
        listener_leave(s->sockets.admin_listener);
        listener_leave(s->sockets.monitor_listener);
        listener_leave(s->sockets.default_listener);
        s->sockets.admin_listener = s->sockets.monitor_listener = s->sockets.default_listener =
                NULL;
        list_for_each (t, &s->tenancies.list, struct tenancy, link) {
                listener_leave(t->listener);
                t->listener = NULL;
        }
}

void server_stop(struct server *s)
{
        if (s->life.stopping)
                return;
        s->life.stopping = true;
        suspects_forget(&s->store);
        log_message(LOG_STOPPING, NULL, "stopping");
        server_note(s, &(struct event_note){.kind = EVENT_DAEMON,
                               .reason = s->life.restarting ? "restarting" : "stopping"});
        notify_now("STOPPING=1");
        stop_close_listeners(s);
        if (!keeping_is_on(&s->keeping)) /* otherwise clients ask the next daemon again */
                parked_refuse(s);
        events_to_all(s, KVLEASE__V1__NOTICE_EVENT__KIND__SHUTDOWN, "kvleased stops");
        followers_end(s);
        uv_timer_start(&s->life.stop_timer, on_stop_timeout,
                s->config.daemon.stop_timeout_nsec / NSEC_PER_MSEC, 0);
        idle_sets_drain(&s->store);
        peers_note_drained(s);
}

void server_restart(struct server *s)
{
        s->life.restarting = true;
        server_stop(s);
}

/* ---- status line for the service manager ----------------------------------------------------- */

const char *status_format(const struct server *s, char line[STATUS_BYTES])
{
        unsigned n = 0;

        list_for_each (t, &s->tenancies.list, struct tenancy, link)
                n++;
        snprintf(line, STATUS_BYTES, "STATUS=%u tenant%s%s", n, n == 1 ? "" : "s",
                s->store.draining ? ", draining" : "");
        return line;
}

void status_notify(struct server *s)
{
        char line[STATUS_BYTES];

        notify_now(status_format(s, line));
}
