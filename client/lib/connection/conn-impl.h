/* Shared by the files of a connection: conn.c (frames and calls), hello.c (handshake), wait.c
 * (reading, writing and sleeping), lock.c (errands) and resume.c (restarts of the daemon). They are
 * one module. struct conn is theirs, and conn.h describes how it works. */
#ifndef KVL_LIB_CONN_IMPL_H
#define KVL_LIB_CONN_IMPL_H

#include "client/lib/connection/conn.h"

struct conn_waiter {
        struct list_link link; /* conn.waiters */
        pthread_cond_t wakeup;
        struct conn_call *call;
};

static inline bool conn_is_unsent(const struct conn *c, const struct conn_call *call)
{
        return c->n_sent < call->sent_at;
}

/* ---- conn.c -----------------------------------------------------------------------------------
 */

/* [L] Sends as much as the socket takes. If the daemon has hung up, the rest stays unsent: the
 * answers it sent before are received first, and the end of the stream after them. */
void conn_flush(struct conn *c);

/* [L] Receives once and hands out complete frames. Returns false if there was nothing, or the ring
 * of events is full. */
bool conn_receive(struct conn *c);

/* [L] Hands out received frames, until the ring of events is full. */
void conn_take_frames(struct conn *c);

/* [L] Sends a request now, ahead of pending ones; it isn't resent after a restart. `list` gets the
 * call. */
int conn_start_on(struct conn *c, struct list_link *list, struct conn_call *call, uint16_t type,
        const ProtobufCMessage *m);

/* [L] Drops unsent output. Calls keep their frames, which count as not sent. */
void conn_drop_output(struct conn *c);

/* [L] Once UP: sends the frames of all pending calls. Late calls with CONN_AGAIN end. */
void conn_send_again(struct conn *c);

/* ---- hello.c ----------------------------------------------------------------------------------
 */

/* Returns why a HELLO's reply can't be right, as a sentence; NULL: it can. */
const char *conn_check_hello(const Kvlease__V1__HelloReply *m);

/* [L] Sends HELLO by `start`: conn_start(), or the function that identifies this client to a
 * restarted daemon. */
typedef int (*conn_start_fn)(
        struct conn *c, struct conn_call *call, uint16_t type, const ProtobufCMessage *m);
int conn_send_hello(struct conn *c, struct conn_call *call, const struct conn_hello *hello,
        conn_start_fn start);

/* ---- lock.c -----------------------------------------------------------------------------------
 */

/* The connection whose callbacks this thread runs; NULL: none. */
extern _Thread_local const struct conn *conn_running;

/* ---- resume.c ---------------------------------------------------------------------------------
 */

/* How a call without a reply continues after a restart of the daemon. */
enum conn_again {
        CONN_AGAIN,      /* sent again if a caller waits for it */
        CONN_AGAIN_LATE, /* sent again even if none waits: its result must not leak */
        CONN_AGAIN_GONE, /* as LATE; -EINVAL or -ENOENT then: ended before, success */
};

/* Returns the rule for a type of request (enum msg_type). */
enum conn_again conn_again(uint16_t type);

/* [L] The daemon hung up; the connection is to be resumed. */
void conn_go_away(struct conn *c, const char *why);

/* [L] If the daemon is away and a try is due: tries to connect, or gives up. Doesn't block. */
void conn_come_back(struct conn *c);

/* [L] Drops the calls that were sent while RESUMING. */
void conn_end_resuming(struct conn *c);

/* Returns the nanoseconds to wait before the next try, after n_tries (>= 1) failed ones. */
uint64_t conn_back_off(unsigned n_tries, uint64_t random);

/* [L] Makes conn_poll_fd() become ready for work that the socket doesn't show: room for output,
 * waiting callbacks, the next try. No system call if nothing changed. */
void conn_watch(struct conn *c);

#endif
