#include "daemon/server/peers/recalls.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/reclaim/recall.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/turns.h"
#include "daemon/server/peers/events.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/base/log.h"
#include "daemon/server/peers/followers.h"
#include "proto/msg.h"

/* The budget of a call of recall_work(), which takes some 100 microseconds with one client, 400
 * with
 * 64. Not tuned. */
#define BUDGET_PER_TURN 1024

/*
 * Interval of looks for idle sets: pins in segments end without an event. The long one is used if
 * only quarantined sets are left, for which no lease waits. Not tuned.
 */
#define POLL_SOON_MSEC  10
#define POLL_LATER_MSEC 100

static bool tell_recall(struct attach *a, const struct extent_set *set, bool idle,
        uint64_t timeout_nsec, void *data)
{
        Kvlease__V1__RecallEvent event = KVLEASE__V1__RECALL_EVENT__INIT;
        uint64_t msec = (timeout_nsec + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC;
        struct peer *p = peer_of_member(a->member);

        /* A client that has hung up or is muted isn't waited for: the deadline deals with it. A
         * resuming client hasn't reported its mappings yet, and is told anew then. */
        if (p->state != PEER_ACTIVE || p->muted || p->resumption.resuming)
                return true;
        if (p->out.bytes > OUTQUEUE_HOLD_BYTES / 2)
                return false;
        event.ns_id = a->id;
        event.set_index = set->index;
        event.idle = idle;
        event.timeout_msec = (uint32_t)MIN(msec, (uint64_t)UINT32_MAX);
        events_send(p, MSG_RECALL, &event.base);
        return true;
}

/* Kills through the daemon's own descriptor of the process, never by number. */
static bool kill_process(const struct peer *p)
{
        if (p->conn.pidfd < 0 || p->identity.pid == getpid())
                return false;
        if (pidfd_send_signal(p->conn.pidfd, SIGKILL, NULL, 0) == 0)
                return true;
        if (errno != ESRCH)
                log_warning(
                        "process %d can't be killed: %s: give kvleased CAP_KILL, or set revoke_kill to off",
                        (int)p->identity.pid, strerror(errno));
        return false;
}

static void on_late(struct attach *a, const struct extent_set *set, void *data)
{
        struct server *s = data;
        struct peer *p = peer_of_member(a->member);
        bool killed = false;
        char pid[16];

        /* A dead client's memory is freed after its grace. */
        if (p->recall.condemned || p->state == PEER_LINGERING || p->state == PEER_LEAVING)
                return;
        if (s->config.daemon.revoke_kill) {
                p->recall.condemned = true;
                killed = kill_process(p);
        }
        if (p->recall.late && !killed)
                return;
        p->recall.late = true;
        snprintf(pid, sizeof(pid), "%d", (int)p->identity.pid);
        server_note(s, &(struct event_note){.kind = EVENT_QUARANTINED,
                               .tenant = a->ns->tenant->name,
                               .ns = a->ns->name,
                               .by = p->identity.who,
                               .bytes = set->charge.bytes,
                               .reason = killed ? "killed" : "late"});
        log_message(LOG_QUARANTINED,
                LOG_FIELDS({"PEER_PID", pid}, {"TENANT", a->ns->tenant->name},
                        {"NAMESPACE", a->ns->name}),
                "process %s did not give back memory of namespace %s/%s that was recalled (set "
                "%u): it is quarantined at the tenant's expense until it does or exits%s",
                pid, a->ns->tenant->name, a->ns->name, set->index,
                killed ? "; it is killed (revoke_kill)" : "");
}

static void on_poll(uv_timer_t *timer)
{
        struct server *s = container_of(timer, struct server, recall_timer);
        uint64_t began = clock_now_nsec();

        recall_poll(&s->store);
        (void)turns_end_part(s, "recalls", NULL, began);
        loop_kick(&s->loop);
}

bool recalls_turn(struct server *s)
{
        if (s->store.recalls.visits_left == 0)
                return false;
        switch (recall_work(
                &s->store, server_now(s), s->config.daemon.revoke_timeout_nsec, BUDGET_PER_TURN)) {
        case RECALL_MORE:
                return true;
        case RECALL_SOON:
                loop_start_timer(&s->recall_timer, on_poll, POLL_SOON_MSEC);
                break;
        case RECALL_LATER:
                loop_start_timer(&s->recall_timer, on_poll, POLL_LATER_MSEC);
                break;
        case RECALL_NOTHING:
        case RECALL_WAITS:
                break;
        }
        return false;
}

static void on_work(void *data)
{
        loop_kick(&((struct server *)data)->loop);
}

void recalls_init(struct server *s)
{
        s->store.owner.on_recall = tell_recall;
        s->store.owner.on_late = on_late;
        s->store.owner.on_recall_work = on_work;
}
