/*
 * ADMIN_TENANT_SET and ADMIN_TENANT_REMOVE. What they change is kept in a file first (tenantdb.h),
 * by another thread, however long the disk takes; then it is put in force, and only then is it
 * answered. The file comes first for all of them: to put a limit in force may evict, and a tenant
 * that is there has clients in a moment, so neither can be taken back without a loss where the
 * write fails. What turns out not to fit once it is written is written back, and refused.
 *
 * They are carried out one after the other, in the order they came: what each is checked against is
 * what the one before it made. A connection has one at a time; nothing that it sent after it is
 * handled until it is answered (as with drops.h). One whose client has hung up is carried out all
 * the same. While the daemon stops they are gone on with as long as stop_timeout lets it wait; one
 * whose write ends after that is found by the next daemon, and was not answered.
 */
#ifndef KVL_SERVER_TENANT_CHANGES_H
#define KVL_SERVER_TENANT_CHANGES_H

#include <stdbool.h>

struct request;
struct server;

/* That wait at a time, of all administrators. Not tuned. */
#define TENANT_CHANGES_MAX 64

void tenant_changes_init(struct server *s);

/* The request is one of the two. Returns what the handler returns: 0, deferred; or why it is
 * refused at once, with the sentence. */
int tenant_changes_ask(struct request *rq);

/* Is any under way? */
bool tenant_changes_are_left(const struct server *s);

#endif
