/*
 * Operations that wait for a stream of a GPU: kvl_publish_on_stream() and its like. Each is
 * prepared when it is called (pages and keys copied, a publish's pages pinned), and a host function
 * is put on the stream, which the driver runs in a thread of its own.
 *
 *   WAITING -> FIRED (by the host function) -> launched: a started call like any other
 *          \-> DEAD (with the connection's lock): cancelled, or the connection is over
 *          \-> STRANDED (likewise): the stream's context is broken
 *
 * Who moves it out of WAITING owns it; so a host function that runs after all, late, does nothing
 * (and frees a DEAD one; a STRANDED one's never runs, as far as one can tell, and it stays for
 * ever).
 *
 * The host function takes no lock that anybody holds across calls of the driver, and waits for
 * nobody: the driver may hold locks of its own while it runs, which a thread with the connection's
 * lock may be waiting for. A release in shared memory it makes itself; the rest it hands in
 * (conn_hand_in()), in the order of the stream. It touches the namespace only after it has FIRED
 * and before ns.streams.n_flying goes down, for which whoever closes the namespace waits: a few
 * microseconds.
 */
#ifndef KVL_LIB_STREAM_H
#define KVL_LIB_STREAM_H

#include <stdbool.h>

struct kvl_conn;
struct kvl_ns;
struct op;

/* [L] Has a FETCH that is prepared proceed once what is on the stream is done; at once where the
 * device has no streams. 0: it is under way, or done; -EIO, -EINVAL, -ENOMEM with the sentence.
 */
int stream_start_fetch(struct op *op, void *stream);

/* [L] Asks, now and then, whether the streams that something waits for are in order; ends what
 * waits for broken ones. True: something ended. */
bool streams_look(struct kvl_conn *conn);

/* [L] Called when a context of the device is found broken: nothing is published in its namespaces
 * any more, and what waits for its streams ends with -EIO. */
void streams_break(struct kvl_conn *conn, const char *device);

/* [L] Ends what waits with `code`, but for releases in shared memory: the connection is over. */
void streams_broken(struct kvl_conn *conn, int code, const char *why);

/* [L] Ends what waits with -ECANCELED, and launches what has fired. No host function touches the
 * namespace any more. */
void streams_cancel(struct kvl_ns *ns);

#endif
