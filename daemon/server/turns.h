/*
 * Whose turn it is. What the peers of tenants have for the daemon to do waits here, and is done
 * once in every turn of the loop: each tenant that has any gets the same time, however many its
 * peers are, and among these they are served in turn. What a tenant took beyond its time (one
 * request can take long) it lacks in the next turns, where others wait. Administrators aren't here:
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
#include "base/list.h"
#include "daemon/core/detail.h"
#include "policy/bucket.h"

struct server;
struct tenancy;
struct peer;

/* A tenant's time in a turn of the loop: tens of requests, so that the loop's own work is little
 * beside it, and a hundred tenants that all flood leave 20 turns a second. Not tuned. */
#define TURNS_SHARE_NSEC (500 * NSEC_PER_USEC)

/* In struct tenancy. */
struct turns {
        struct list_link link;    /* server.turns_due or, paused, server.turns_paused */
        struct list_link waiting; /* struct peer.backlog_link: have work, the next first */
        uint64_t owes_nsec;       /* taken beyond its time */
        bool paused;
        uint64_t paused_nsec; /* since when */
        struct bucket requests, connects;
        /* Since start. */
        uint64_t n_requests; /* and submissions; also those that weren't limited */
        uint64_t n_pauses, pauses_nsec;
        uint64_t n_refused; /* connections, by max_connects */
};

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

/* `n` requests of the peer, or submissions, are executed: it is heard of. */
void turns_charge(struct peer *p, uint32_t n);

/* The peer is of a tenant that is paused: nothing is to be read. */
bool turns_are_paused(const struct peer *p);

/* A connection comes in. 0, or -EMFILE with the sentence. */
int turns_connect(struct tenancy *t, struct detail *d);

#endif
