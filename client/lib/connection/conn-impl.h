/*
 * What the files of a connection share: conn.c (frames and calls), hello.c (the first words),
 * wait.c (who reads, writes and sleeps), lock.c (errands) and resume.c (a daemon that comes back).
 * They are one module: struct conn is theirs, and conn.h says how it works.
 */
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

/*
 * [L] Sends what the socket takes. Where the daemon has hung up, the rest stays unsent: what it
 * answered before is received first, and the end behind it.
 */
void conn_flush(struct conn *c);

/* [L] Receives once and hands out the frames that are whole. False where there was nothing, or the
 * ring of events is full. */
bool conn_receive(struct conn *c);

/* [L] Hands out frames that were received, until the ring of events is full. */
void conn_take_frames(struct conn *c);

/* [L] Sends a request now, whatever is pending; it isn't sent again. `list` gets the call. */
int conn_start_on(struct conn *c, struct list_link *list, struct conn_call *call, uint16_t type,
        const ProtobufCMessage *m);

/* [L] What is unsent never is, but for calls, which keep their frames: nothing of them is out. */
void conn_drop_output(struct conn *c);

/* [L] Once UP: sends the frames of all pending calls (late ones of CONN_AGAIN end). */
void conn_send_again(struct conn *c);

/* ---- hello.c ----------------------------------------------------------------------------------
 */

/* Why a HELLO's reply can't be right, a sentence; NULL: it can. */
const char *conn_check_hello(const Kvlease__V1__HelloReply *m);

/* [L] Sends HELLO by `start`: conn_start(), or what tells a daemon that came back who this is. */
typedef int (*conn_start_fn)(
        struct conn *c, struct conn_call *call, uint16_t type, const ProtobufCMessage *m);
int conn_send_hello(struct conn *c, struct conn_call *call, const struct conn_hello *hello,
        conn_start_fn start);

/* ---- lock.c -----------------------------------------------------------------------------------
 */

/* Whose callbacks this thread runs; NULL: none's. */
extern _Thread_local const struct conn *conn_running;

/* ---- resume.c ---------------------------------------------------------------------------------
 */

/* What becomes of a call without a reply when the daemon was restarted. */
enum conn_again {
        CONN_AGAIN,      /* sent again where somebody waits for it */
        CONN_AGAIN_LATE, /* also where nobody does: what it brings or ends must not leak */
        CONN_AGAIN_GONE, /* likewise; where nothing is left to end, it was done before, or not named
                            when the client went on */
};

/* What becomes of calls of a type of request (enum msg_type). */
enum conn_again conn_again(uint16_t type);

/* [L] The daemon hung up; the connection is to be resumed. */
void conn_go_away(struct conn *c, const char *why);

/* [L] Where it is away and it is time: tries to connect, or gives up. Doesn't block. */
void conn_come_back(struct conn *c);

/* [L] What it was told while RESUMING isn't waited for any more. */
void conn_end_resuming(struct conn *c);

/* How long to wait before the next try, after n_tries (>= 1) in vain. */
uint64_t conn_back_off(unsigned n_tries, uint64_t random);

/* [L] Sees to it that conn_poll_fd() becomes ready, for what the daemon doesn't say: room in the
 * socket, callbacks that wait, the next try. No system call where nothing changed. */
void conn_watch(struct conn *c);

#endif
