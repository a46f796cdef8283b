/*
 * Operations that wait for a GPU stream: kvl_publish_on_stream() and its siblings. Each is prepared
 * when it is called: pages and keys are copied, and a publish's pages are pinned. Then a host
 * function is put on the stream. The driver runs it in a thread of its own.
 *
 *   WAITING -> FIRED (by the host function) -> launched: a started call like any other
 *          \-> DEAD (with the connection's lock): cancelled, or the connection is over
 *          \-> STRANDED (likewise): the stream's context is broken
 *
 * The thread that moves an operation out of WAITING owns it. A host function that runs late does
 * nothing, except that it frees a DEAD operation. The host function of a STRANDED one is assumed
 * never to run, so its memory is kept until the process ends.
 *
 * The host function takes no lock that is held across driver calls, and never blocks. The driver
 * may hold its own locks while it runs, and a thread with the connection's lock may be waiting for
 * these. The host function makes a release in shared memory itself, and hands all else in
 * (conn_hand_in()), in stream order. It touches the namespace only between FIRED and the decrement
 * of ns.streams.n_flying. Closing the namespace waits for that: a few microseconds.
 */
#ifndef KVL_LIB_STREAM_H
#define KVL_LIB_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/kvlease.h"

struct op_type;
struct kvl_conn;
struct kvl_ns;
struct op;

/* [L] Lets a prepared FETCH proceed once the work on the stream is done, or at once if the device
 * has no streams. Returns 0 (under way, or done); -EIO, -EINVAL or -ENOMEM with the sentence. */
int stream_start_fetch(struct op *op, void *stream);

/* [L] Checks, at intervals, whether the streams of waiting operations are in order, and ends the
 * operations of broken ones. Returns true if it ended any. */
bool streams_look(struct kvl_conn *conn);

/* [L] Called when a context of the device is found broken. Nothing is published in its namespaces
 * any more, and operations that wait for its streams end with -EIO. */
void streams_break(struct kvl_conn *conn, const char *device);

/* [L] The connection is over: ends waiting operations with `code`. Exception: releases in shared
 * memory. */
void streams_broken(struct kvl_conn *conn, int code, const char *why);

/* [L] Ends waiting operations with -ECANCELED, and launches those that have fired. No host function
 * touches the namespace afterwards. */
void streams_cancel(struct kvl_ns *ns);

/* Calls that a stream begins (release.c, publish.c). */
extern const struct op_type op_type_release, op_type_publish, op_type_free;

/* Copies the user's publish, as abi_copy(), and checks it. Returns 0; -EINVAL, -ECHILD, -EIO with
 * the sentence. */
int publish_copy(const struct kvl_ns *ns, const struct kvl_publish *publish, uint32_t max_pages,
        struct kvl_publish *ret);

#endif
