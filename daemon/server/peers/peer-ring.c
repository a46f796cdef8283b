/* The peer's submissions in shared memory, in order with its frames. */
#include "daemon/core/clients/attach.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/server/peers/peer.h"

#include "daemon/server/peers/server.h"
#include "daemon/server/peers/serving.h"
#include "daemon/server/peers/events.h"
#include "daemon/server/peers/idle-interval.h"
#include "daemon/server/peers/turns.h"

bool peer_may_submit(const struct peer *p)
{
        return ring_is_open(&p->ring) && p->member && p->state == PEER_ACTIVE && !p->muted &&
               !p->doomed && !p->resumption.resuming && !peer_awaits_drop(p);
}

uint32_t peer_take_submissions(struct peer *p, uint32_t budget)
{
        struct state_serving was;
        struct ring_turn turn;
        uint64_t began;

        if (!peer_may_submit(p))
                return 0;
        began = clock_now_nsec();
        was = serving_begin(p);
        turn = ring_drain(&p->ring, p->member, budget, server_now(p->server), turns_ends(p));
        idle_sets_drain(&p->server->store);
        serving_end(p->server, was);
        if (turn.n > 0) {
                (void)turn_watch_since(&p->server->turn_watch, "ring",
                        p->tenancy ? p->tenancy->config.name : NULL, began);
                turns_charge(p, turn.n);
                idle_interval_expect(p->server);
        }
        if (turn.is_news && ring_wakes_client(&p->ring))
                events_ring(p);
        if (turn.violation)
                peer_violation(p, turn.violation);
        else if (turn.more || !ring_sleep(&p->ring))
                peer_schedule(p);
        return turn.n;
}

bool peer_has_submitted_first(struct peer *p)
{
        if (!peer_may_submit(p))
                return true;
        if (!p->input.is_behind)
                p->input.ring_goal = ring_tail(&p->ring);
        p->input.is_behind = !ring_is_at(&p->ring, p->input.ring_goal);
        if (p->input.is_behind)
                (void)peer_take_submissions(p, SHM_SUB_ENTRIES);
        p->input.is_behind = peer_may_submit(p) && !ring_is_at(&p->ring, p->input.ring_goal);
        return !p->input.is_behind || turns_ends(p) == UINT64_MAX;
}

void peer_catch_up(struct peer *p)
{
        struct state_serving was;

        peer_take_submissions(p, SHM_SUB_ENTRIES);
        if (!p->member)
                return;
        was = serving_begin(p);
        list_for_each (a, &p->member->attachments, struct attach, member_link)
                if (!attach_sync(a))
                        peer_violation(p, "magazine");
        idle_sets_drain(&p->server->store);
        serving_end(p->server, was);
}
