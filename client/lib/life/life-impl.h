/* What the files of this room tell each other: client.c, events.c, ns.c, restart.c, share.c and
 * wiring.c. Nobody else includes it. [L]: with the connection's lock. */
#ifndef KVL_LIB_LIFE_IMPL_H
#define KVL_LIB_LIFE_IMPL_H

#include "client/lib/connection/conn.h"

struct kvl_conn;
struct kvl_ns;

/* ---- wiring.c: which parts are told, and in which order ----------------------------------------
 */

/* [L] The connection's socket, and what lies below, tell its parts from now on. */
void client_wire(struct kvl_conn *conn);

/* [L] Ends started calls of the namespace with -ECANCELED; their callbacks are queued. */
void ns_cancel_calls(struct kvl_ns *ns);

/* [L] Waits until no callback of the namespace runs in another thread, and none is left to be run;
 * then nothing waits for a stream. */
void ns_wait_calls(struct kvl_ns *ns);

/* [L] The namespace goes away: nothing knows it any more. */
void ns_forget(struct kvl_ns *ns);

/* ---- ns.c ------------------------------------------------------------------------------------ */

/* Unmaps and frees. Its calls are over. */
void ns_free(struct kvl_ns *ns);

/* ---- events.c -------------------------------------------------------------------------------- */

/* A conn_event_fn: tells the user of the connection, which is `data`. */
int events_tell(struct conn *c, const struct conn_event *e, enum conn_news news, void *data);

/* ---- share.c ----------------------------------------------------------------------------------
 */

/* [L] Asks for the connection's client segment and maps it, or leaves it without. 0, or why the
 * connection can't be used: it is over, or nothing answered (the sentence is noted). */
int share_open(struct kvl_conn *conn);

/* [L] Asks for the namespace's segments in the same way. */
int share_ns(struct kvl_ns *ns);

/* ---- restart.c: as in struct conn_side --------------------------------------------------------
 */

void restart_away(void *data);
int restart_resume(void *data);
void restart_back(void *data);

#endif
