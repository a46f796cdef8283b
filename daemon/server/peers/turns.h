/*
 * Whose turn it is. What the peers of tenants have for the daemon to do waits here, and is done
 * once in every turn of the loop: each tenant that has any gets the same time, however many its
 * peers are, and among these they are served in turn, requests and submissions alike. What a tenant
 * took beyond its time (one request can take long), or outside of its turns, it lacks in the next
 * ones, where others wait: so much time of them, not so many of them. Administrators aren't here:
 * what they ask is answered as it comes, before all of this.
 *
 * A tenant with limits (max_requests, max_connects) has a bucket of each. Without requests left it
 * is *paused*: nothing is read from its peers, so that they wait, and none is refused. Connections
 * beyond their limit are refused.
 *
 * A process's exit, and a restart of the daemon, are never waited for here.
 */
#ifndef KVL_SERVER_TURNS_H
#define KVL_SERVER_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "daemon/core/ground/detail.h"

struct server;
struct tenancy;
struct peer;

/* A tenant's time in a turn of the loop: tens of requests, so that the loop's own work is little
 * beside it, and a hundred tenants that all flood leave 20 turns a second. Not tuned. */
#define TURNS_SHARE_NSEC (500 * NSEC_PER_USEC)

void turns_init(struct server *s);
void turns_init_tenancy(struct tenancy *t);

/* Its options may have changed: what it took until now is forgotten. */
void turns_renew(struct tenancy *t);

/* The tenancy goes: nobody of it waits any more. */
void turns_drop(struct tenancy *t);

/* The peer of a tenant has work: peer_turn() will be called, soon. Doesn't wake the loop. Cheap to
 * repeat. */
void turns_queue(struct peer *p);

/* Somebody waits who can be served: the loop mustn't sleep. */
bool turns_are_due(const struct server *s);

/* The peer may have another request handled in this turn. Always, outside of its tenant's turn. */
bool turns_go_on(const struct peer *p);

/* When its tenant's turn ends, by clock_now_nsec(); UINT64_MAX: it isn't its tenant's turn. */
uint64_t turns_ends(const struct peer *p);

/*
 * Visits: what is done with all peers at once, outside of their tenants' turns, as what lies in
 * their rings is executed before an administrator is told figures. It is on each tenant's account:
 * who has used up most_nsec is passed over, and what it submitted has its turn.
 */
void turns_begin_visits(struct server *s, uint64_t most_nsec); /* of each tenant */
void turns_visit(struct peer *p, void (*visit)(struct peer *p));

/* Visits that are no peer's: may something be done for the tenant, and, after that, something was
 * done for it since began_nsec. */
bool turns_may_visit(const struct tenancy *t);
void turns_visited(struct tenancy *t, uint64_t began_nsec);

/* Something was done for a tenant since began_nsec outside of turns. It may be NULL. */
void turns_bill(struct tenancy *t, uint64_t began_nsec);

/* What a visit takes at most before an administrator's request is answered, of each tenant: as long
 * as figures are exact. Not tuned. */
#define TURNS_FIGURES_NSEC (3 * NSEC_PER_MSEC)

/* Time of a turn of the loop for the chores (daemon/core/ground/chore.h) of all tenants together,
 * give or take a slice; it is charged to the tenants whose they are. Not tuned. */
#define TURNS_CHORES_NSEC NSEC_PER_MSEC

/* A turn of the loop. True: there is more to do. */
bool turns_do_chores(struct server *s);

/* `n` requests of the peer, or submissions, are executed: it is heard of. */
void turns_charge(struct peer *p, uint32_t n);

/* The peer is of a tenant that is paused: nothing is to be read. */
bool turns_are_paused(const struct peer *p);

/* A connection comes in. 0, or -EMFILE with the sentence. */
int turns_connect(struct tenancy *t, struct detail *d);

#endif
