/*
 * Counts how many pages leases would get (daemon/core/reclaim/leasable.h): 10 ms after something
 * was executed, and then each 10 ms until every namespace was counted. No timer runs while nothing
 * is executed. Loop thread only.
 */
#ifndef KVL_SERVER_LEASABLES_H
#define KVL_SERVER_LEASABLES_H

struct server;

/* Needs the loop. */
void leasables_init(struct server *s);

/* Something was, or may have been, executed. Idempotent and cheap. */
void leasables_expect(struct server *s);

#endif
