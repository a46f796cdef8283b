#include "daemon/server/wiring.h"

#include "base/clock.h"
#include "daemon/core/core.h"
#include "daemon/core/state/store.h"
#include "daemon/server/dispatch.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/turns.h"
#include "daemon/server/services/movement.h"
#include "daemon/server/services/queues.h"
#include "daemon/server/services/remotes.h"
#include "daemon/server/services/timers.h"
#include "daemon/server/peers/checks.h"
#include "daemon/server/peers/key-waits.h"
#include "daemon/server/peers/parked.h"
#include "daemon/server/peers/recalls.h"

/* Stale pages swept in one loop turn: some 25 microseconds of work, 100 with 64 clients. Not
 * tuned. */
#define SWEEP_PAGES_PER_TURN 256

/* Gives a turn to each peer without a tenant that had work when the turn began. */
static void run_backlog(struct server *s)
{
        struct list_link turn;

        list_take_all(&s->peers.backlog, &turn);
        while (!list_is_empty(&turn))
                peer_turn(list_first(&turn, struct peer, links.backlog));
}

void wiring_turn(struct loop *l)
{
        struct server *s = container_of(l, struct server, loop);
        uint64_t then;
        bool more;

        leasables_expect(s);
        run_backlog(s);
        then = clock_now_nsec();
        more = store_work(&s->store, SWEEP_PAGES_PER_TURN);
        more |= recalls_turn(s);
        then = turns_end_part(s, "sweep", NULL, then);
        more |= queues_work(s);
        then = turns_end_part(s, "devices", NULL, then);
        more |= turns_do_tasks(s);
        then = clock_now_nsec();
        more |= parked_work(s);
        more |= key_waits_work(s);
        then = turns_end_part(s, "waits", NULL, then);
        more |= checks_turn(s);
        then = turns_end_part(s, "check", NULL, then);
        compact_timer_turn(s);
        then = turns_end_part(s, "compaction", NULL, then);
        movement_turn(s);
        then = turns_end_part(s, "copies", NULL, then);
        remotes_turn(s);
        (void)turns_end_part(s, "remotes", NULL, then);
        if (more || !list_is_empty(&s->peers.backlog) || turns_are_due(s))
                loop_kick(&s->loop);
}

/* ---- callbacks ------------------------------------------------------------------------------- */

static void on_executed(struct server *s)
{
        compact_timer_expect(s);
        periodic_timer_expect(s);
}

static const struct peers_wiring peers_wiring = {
        .on_frame = dispatch_frame,
        .on_visit = leasables_expect,
        .on_executed = on_executed,
        .on_member_end = periodic_timer_expect,
};

void wiring_init(struct server *s)
{
        s->peers.wiring = &peers_wiring;
}
