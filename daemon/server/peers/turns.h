/*
 * Scheduling among tenants. Work for the peers of tenants waits here, and is done once in every
 * turn of the loop. Each tenant with work gets the same time, for any number of peers, which are
 * served in rotation. Requests and submissions count alike.
 *
 * A tenant that uses more than its time, or time outside of its turns, gets that much less in later
 * turns while other tenants wait. Administrators aren't scheduled here: their requests are answered
 * first, as they arrive.
 *
 * A tenant with limits (max_requests, max_connects) has a token bucket for each. Without requests
 * left it is *paused*: its peers aren't read from, so they wait, and no request is refused.
 * Connections beyond their limit are refused.
 *
 * The exit of a process, and a restart of the daemon, never wait for a turn.
 */
#ifndef KVL_SERVER_TURNS_H
#define KVL_SERVER_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "daemon/core/state/detail.h"

struct server;
struct tenancy;
struct peer;

/* A tenant's time in a turn of the loop: tens of requests. The loop's own work is small compared to
 * it, and with a hundred flooding tenants 20 turns a second are left. Not tuned. */
#define TURNS_SHARE_NSEC (500 * NSEC_PER_USEC)

void turns_init(struct server *s);
void turns_init_tenancy(struct tenancy *t);

/* Starts anew after a change of the tenant's options: past use is forgotten. */
void turns_renew(struct tenancy *t);

/* Removes a tenancy that ends: none of its peers waits any more. */
void turns_drop(struct tenancy *t);

/* The peer of a tenant has work: peer_turn() will be called soon. Doesn't wake the loop. Idempotent
 * and cheap. */
void turns_queue(struct peer *p);

/* True if a waiting tenant can be served: the loop mustn't sleep. */
bool turns_are_due(const struct server *s);

/* True if another request of the peer may be handled in this turn. Always true outside of its
 * tenant's turn. */
bool turns_go_on(const struct peer *p);

/* Time when its tenant's turn ends, by clock_now_nsec(); UINT64_MAX: its tenant has no turn now. */
uint64_t turns_ends(const struct peer *p);

/*
 * Visits: work for all peers at once, outside of their tenants' turns. Example: rings are executed
 * before an administrator gets figures. Each tenant's time is charged to it. A tenant that has used
 * up most_nsec is skipped; its submissions wait for its turn.
 */
void turns_begin_visits(struct server *s, uint64_t most_nsec); /* of each tenant */
void turns_visit(struct peer *p, void (*visit)(struct peer *p));

/* Visits for a tenant without a peer: may work be done for it; then: work was done since
 * began_nsec. */
bool turns_may_visit(const struct tenancy *t);
void turns_visited(struct tenancy *t, uint64_t began_nsec);

/* Charges the tenant for work since began_nsec outside of turns. t may be NULL. */
void turns_bill(struct tenancy *t, uint64_t began_nsec);

/* Bound of a visit before an administrator's request is answered, per tenant. Figures are exact up
 * to this time. Not tuned. */
#define TURNS_FIGURES_NSEC (3 * NSEC_PER_MSEC)

/* Time per turn of the loop for the tasks (daemon/core/state/task.h) of all tenants together,
 * give or take a slice. It is charged to the tasks' tenants. Not tuned. */
#define TURNS_TASKS_NSEC NSEC_PER_MSEC

/* Does tasks in a turn of the loop. Returns true if there is more to do. */
bool turns_do_tasks(struct server *s);

/* Ends a part of this iteration outside of requests: drains the idle sets
 * (daemon/core/memory/idle-sets.h) and reports the part to turn-watch.h. `what` is static; tenant
 * NULL: none. Returns the time now, where the next part begins. */
uint64_t turns_end_part(
        struct server *s, const char *what, const char *tenant, uint64_t began_nsec);

/* Charges `n` executed requests or submissions to the peer. */
void turns_charge(struct peer *p, uint32_t n);

/* The peer's tenant is paused: it isn't read from. */
bool turns_are_paused(const struct peer *p);

/* Counts a new connection. Returns 0, or -EMFILE with the sentence. */
int turns_connect(struct tenancy *t, struct detail *d);

#endif
