/* Internal to this directory: client.c, events.c, ns.c, restart.c, share.c and wiring.c. No other
 * file includes it. [L]: with the connection's lock. */
#ifndef KVL_LIB_LIFE_IMPL_H
#define KVL_LIB_LIFE_IMPL_H

#include "client/lib/connection/conn.h"

struct kvl_conn;
struct kvl_ns;

/* ---- wiring.c: which parts are told, and in which order ----------------------------------------
 */

/* [L] Connects the parts of the library to the events of the connection's socket and of lower
 * layers. */
void client_wire(struct kvl_conn *conn);

/* [L] Ends the namespace's started calls with -ECANCELED; their callbacks are queued. */
void ns_cancel_calls(struct kvl_ns *ns);

/* [L] Waits until no callback of the namespace runs in another thread or is queued. Nothing waits
 * for a stream then. */
void ns_wait_calls(struct kvl_ns *ns);

/* [L] The namespace is being freed: all parts forget it. */
void ns_forget(struct kvl_ns *ns);

/* ---- ns.c ------------------------------------------------------------------------------------ */

/* Unmaps and frees. Its calls must be over. */
void ns_free(struct kvl_ns *ns);

/* ---- events.c -------------------------------------------------------------------------------- */

/* A conn_event_fn: reports to the user of the connection, which is `data`. */
int events_tell(struct conn *c, const struct conn_event *e, enum conn_news news, void *data);

/* ---- share.c ----------------------------------------------------------------------------------
 */

/* [L] Asks for the connection's client segment and maps it, or leaves the connection without one.
 * Returns 0, or why the connection can't be used: it is over, or the daemon didn't answer (the
 * sentence is noted). */
int share_open(struct kvl_conn *conn);

/* [L] Asks for the namespace's segments in the same way. */
int share_ns(struct kvl_ns *ns);

/* ---- restart.c: as in struct conn_side --------------------------------------------------------
 */

void restart_away(void *data);
int restart_resume(void *data);
void restart_back(void *data);

#endif
