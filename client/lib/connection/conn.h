/*
 * A connection: frames over one socket, and calls that wait for their replies. The caller
 * interprets the frames (libkvlease, and kvleasectl on the admin socket). Constants here are not
 * tuned unless a source is given.
 *
 *   conn:  open -> broken (the peer hung up or broke the protocol; stays so) -> closed
 *          open <-> away, and perhaps broken then        if it can be resumed (resume.c)
 *   call:  (start) -> pending -> done                     reply came, or the connection broke
 *                         \---> late  -> done             its caller gave up; see on_late
 *
 * Threads. One mutex guards everything (conn_lock()); functions marked [L] want it held. The
 * connection has no threads: threads that wait do the work. One of them is the *reader*: it polls
 * the socket without the lock, hands each reply to its call and wakes that call's thread. The
 * others sleep, each on a condition variable of its own. A reader leaves when its call is done, its
 * time is up, or it runs callbacks. It then wakes another waiter, which becomes the reader.
 * Invariant: if there are waiters and no reader, one of them has been signalled; a signalled waiter
 * that leaves signals the next. A waiter whose request didn't fit the socket yet may also be the
 * *writer*: it polls for room until the request is out, then hands on in the same way. (Its reply
 * can't come earlier.) A connection that breaks or goes away shuts its socket down, which ends
 * every poll. The socket is closed once no thread polls it.
 *
 * Errands. A thread that must never block (a GPU driver's, in a host function) hands its work in
 * (conn_hand_in()): it pushes the errand, then tries the lock. If the lock is free, the thread
 * takes it and runs the errands. Otherwise the holder of the lock runs them when it unlocks. No
 * errand is lost:
 *
 *   hands in:  push; full fence; try to lock          gives back:  unlock; full fence; look
 *
 * If the try fails, it read the lock word of some holder. That holder unlocks after this read, in
 * the word's order. So the first fence precedes the second, and the holder's look sees the push. Or
 * the holder finds the lock taken by another thread, to which the same applies. A thread that
 * sleeps with the lock (conn_sleep()) looks in the same way. Unlocking looks for errands only if
 * takes_errands is set. It is set with the lock, before the first errand can come.
 *
 * An event loop polls without the lock, at unknown times. So a thread that unlocks makes the polled
 * descriptor ready if work is left: a waiting callback, bytes that didn't fit the socket, a try to
 * connect. Exception: a thread that runs callbacks goes on with what they started.
 *
 * Callbacks (on_done, events) are queued and run without the lock, by conn_wait() and
 * conn_dispatch(). A connection must not be used in a forked child; callers check that.
 */
#ifndef KVL_LIB_CONN_H
#define KVL_LIB_CONN_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/clock.h"
#include "base/list.h"
#include "proto/arena.h"
#include "proto/frame.h"
#include "proto/kvlease.pb-c.h"
#include "proto/msg.h"

#define CONN_DETAIL_BYTES \
        1024                 /* the daemon's limit (daemon/core/state/detail.h): two layouts fit */
#define CONN_TENANT_MAX  128 /* bytes; longer ones are a violation */
#define CONN_TOKEN_BYTES 16  /* protocol */
#define CONN_NONCE_BYTES 16  /* protocol */
#define CONN_NAME_MAX    64  /* bytes of a client's name; protocol */
#define CONN_MAX_EVENTS  16  /* waiting for their handler; at this limit nothing is read */

/* Unsent bytes past which hints are refused: no caller waits for them. */
#define CONN_MAX_UNSENT_BYTES ((size_t)1 << 20)

/* Requests without a reply and without a waiting caller, past which hints are refused. After a
 * restart the next daemon is told of all sent requests, 4096 at most (protocol). That leaves room
 * for KVL_MAX_STARTED, and for blocking calls. */
#define CONN_MAX_LATE 1024

/* Bytes of the output buffer that are kept once all is sent. */
#define CONN_KEEP_OUTPUT_BYTES ((size_t)4 << 20)

#define CONN_FOREVER UINT64_MAX

/* The timeout of a blocking call if the caller names none: longer than any request takes on a host
 * that isn't broken. */
#define CONN_TIMEOUT_MSEC 30000

struct conn;
struct conn_call;

/* Handles a reply. [L] code: its status as a library code, with `reply` and the frame borrowed
 * during the call (the frame's fds are closed afterwards unless taken). Or why the connection
 * ended, with both NULL. Ends in conn_finish(), or sends another request with the same call. */
typedef void (*conn_reply_fn)(struct conn *c, struct conn_call *call, int code,
        const ProtobufCMessage *reply, struct frame *frame);

/* Called without the lock, after conn_finish(). Owns the call. Returns the number of user callbacks
 * it ran. */
typedef int (*conn_done_fn)(struct conn_call *call);

struct conn_waiter;

struct conn_frame {
        size_t bytes;
        uint8_t data[];
};

/* Embedded in a struct of the caller; zeroed, except for the first five fields, before the first
 * start. */
struct conn_call {
        conn_reply_fn on_reply; /* NULL: only code and detail matter */
        conn_done_fn on_done;   /* NULL: a thread calls conn_wait() for it */
        /* Like on_reply, for a reply that comes after conn_wait() gave up or conn_abandon(). It
         * gets a copy of this call that keeps only cookie. If it sends another request, that reply
         * is dropped. NULL: this reply is dropped. */
        conn_reply_fn on_late;
        void *cookie;
        /* [L] Not NULL: the call isn't on the socket nor in conn.calls, and its owner finishes it.
         * Called instead of on_late if its waiter gives up. */
        void (*on_abandon)(struct conn_call *call);

        struct list_link link; /* conn.calls, then conn.finished if on_done is set */
        struct conn_waiter *waiter;
        uint64_t seq;
        uint64_t sent_at; /* conn.n_queued including it: sent once conn.n_sent reaches this */
        struct conn_frame *frame; /* owned: kept to be sent again; NULL: never resent */
        uint16_t type;            /* enum msg_type, of the last request sent with it */
        bool was_sent;            /* to the previous daemon, which may have executed it */
        bool outlived; /* survived a restart whose new daemon was told the client's state */
        bool is_done;
        int code;                       /* once done */
        char detail[CONN_DETAIL_BYTES]; /* last: not zeroed on hot paths */
};

struct conn_event {
        uint16_t type; /* MSG_NOTICE, MSG_RECALL */
        uint32_t ns_id;
        uint32_t kind; /* NOTICE, as client_id: Kvlease__V1__NoticeEvent__Kind */
        uint64_t client_id;
        char detail[CONN_DETAIL_BYTES];
        uint32_t set_index, timeout_msec; /* RECALL */
        bool is_idle;                     /* RECALL */
};

/* Work for the holder of the lock; embedded in a struct of the caller. */
struct conn_errand {
        struct conn_errand *next;
        /* [L] Owns the errand. Runs in any thread, also one that must not block: may only send,
         * finish and start calls. */
        void (*run)(struct conn *c, struct conn_errand *e);
};

enum conn_news {
        CONN_NEWS_EVENT, /* of the daemon */
        CONN_NEWS_AWAY,  /* the daemon hung up; detail: how */
        CONN_NEWS_BACK,  /* after AWAY: the daemon is back, and this connection goes on */
        CONN_NEWS_GONE,  /* the connection is over (reported once); detail: why */
};

/* Called without the lock. Returns the number of user callbacks it ran. */
typedef int (*conn_event_fn)(
        struct conn *c, const struct conn_event *event, enum conn_news news, void *data);

/* Sources of work beside the socket: the completions of a ring, the state of streams. All [L], or
 * NULL. */
struct conn_side {
        bool (*look)(void *data); /* takes completions; true: there were some */
        void (*broken)(void *data, int code, const char *why); /* the connection is over */
        void (*away)(void *data);                              /* the daemon hung up */
        int (*resume)(
                void *data); /* a new daemon: conn_tell() it this client's state. 0 or -errno */
        void (*back)(void *data); /* the new daemon knows it; pending requests were resent */
        void *data;
};

struct conn_output {
        uint8_t *data; /* owned */
        size_t begin, end, size;
};

/* Descriptors for event loops. Both are owned once made (conn_make_pollable()), else -1. */
struct conn_poll {
        /* An epoll of the socket and the timer. It is polled instead of the socket, which changes
         * with a restart. */
        int fd, timer_fd;
        bool is_used;          /* [L] by an event loop */
        uint64_t timer_at;     /* what the timer is set to; CONN_FOREVER: it isn't */
        bool waits_for_output; /* the epoll waits for room in the socket */
};

/* Events that wait for their handler; `data` is the handler's. */
struct conn_events {
        struct conn_event ring[CONN_MAX_EVENTS];
        unsigned begin, n;
        bool is_stalled;   /* complete frames wait for room in `ring`; then there is no reader */
        bool is_gone_told; /* CONN_NEWS_GONE was reported */
        conn_event_fn tell;
        void *data;
};

enum conn_link {
        CONN_UP,
        CONN_AWAY,     /* no daemon; the next try is at resume.wake_at */
        CONN_RESUMING, /* connected; the new daemon is told this client's state */
};

/* State with which a connection outlives the daemon: resume.c. */
struct conn_resume {
        bool is_on;
        char *path;                   /* owned: the socket */
        char name[CONN_NAME_MAX + 1]; /* as in the first HELLO, as are the flags */
        bool metadata_only, has_safepoints;
        uint64_t client_id;
        uint8_t token[CONN_TOKEN_BYTES];
        uint8_t next_token[CONN_TOKEN_BYTES]; /* from this daemon, not yet in force */
        uint64_t patience_nsec;               /* longest absence of the daemon; CONN_FOREVER */
        uint64_t give_up_at, wake_at;         /* monotonic, while it isn't UP */
        unsigned n_tries;                     /* since it went away */
        uint64_t random;                      /* of the jitter */
        struct list_link calls;               /* sent while RESUMING; owned */
        uint64_t n_waiting_bytes;             /* of frames that wait for UP */
        size_t n_late_frames;                 /* kept by late calls */
        bool tells_away, tells_back;          /* news not yet reported */
        char why[CONN_DETAIL_BYTES];          /* the daemon is still away */
};

struct conn {
        pthread_mutex_t lock;
        pthread_mutex_t sleep_lock; /* of all conditions; held for moments, the innermost lock */
        bool takes_errands;         /* [L] */
        struct conn_errand *_Atomic errands; /* the youngest first */
        int fd;                              /* owned: the socket; -1: none */
        struct conn_poll poll;
        enum conn_link link;
        struct conn_resume resume;
        _Atomic int broken; /* 0, or -errno: why it is broken */
        uint16_t version;
        uint64_t next_seq;
        uint64_t n_queued, n_sent; /* bytes since the start; the difference is in `out` */
        struct conn_output out;
        struct frame_parser in;
        struct arena arena; /* of the frame being handled */
        struct list_link calls, finished, waiters;
        bool has_reader, has_writer;
        struct conn_side side;
        struct conn_events events;
        char detail[CONN_DETAIL_BYTES]; /* why it broke, or "" */
};

/* ---- life ------------------------------------------------------------------------------------ */

/* Returns the given path; for NULL $KVLEASE_SOCKET, or the default. */
const char *conn_socket_path(const char *given);

/* Connects. Returns 0 (*ret_conn is owned); -ENOENT, -ECONNREFUSED, -EACCES, -ENAMETOOLONG,
 * -ETIMEDOUT (the listener's queue stayed full), -ENOMEM or another -errno. The sentence (error.h)
 * names path and remedy. */
int conn_open(const char *path, uint64_t deadline_nsec, struct conn **ret_conn);

/* No thread may be inside the connection. Pending calls are forgotten (their on_done doesn't run).
 * NULL is ignored. */
void conn_close(struct conn *c);

/* In a forked child: closes its copies of the descriptors, and does nothing else. */
void conn_close_in_child(struct conn *c);

struct conn_hello {
        const char *client_name;    /* cut to CONN_NAME_MAX bytes */
        const uint8_t *group_token; /* CONN_TOKEN_BYTES, or NULL */
        bool group_create;          /* the group is made if it doesn't exist */
        bool metadata_only;
        bool has_safepoints; /* the engine promises to call kvl_safepoint() */
        /* To resume as a client of the previous daemon: its token (CONN_TOKEN_BYTES, or NULL), its
         * id, and the numbers of its unanswered requests. */
        const uint8_t *resume_token;
        uint64_t resume_client;
        uint64_t *pending;
        size_t n_pending;
};

struct conn_welcome {
        char tenant[CONN_TENANT_MAX + 1]; /* "" on the admin socket */
        char daemon_version[32];
        uint64_t client_id, boot_epoch;
        uint8_t group_token[CONN_TOKEN_BYTES];
        bool can_resume;
        uint8_t resume_token[CONN_TOKEN_BYTES];
};

/* Sends HELLO, agrees on a version, and answers the daemon's challenge if one comes. Returns 0; a
 * status of the daemon (KVL_STATUS_VERSION, KVL_STATUS_DRAINING, -EMFILE, -EACCES, -ENOENT);
 * -EPROTO; -ETIMEDOUT; -ENOMEM. The sentence is noted (error.h). After a failure: conn_close(). */
int conn_hello(struct conn *c, const struct conn_hello *hello, uint64_t deadline_nsec,
        struct conn_welcome *ret_welcome);

/* Ends the client before conn_close(), on a tenant's socket. Runs no more event handlers. */
void conn_say_bye(struct conn *c);

/* [L] Makes a descriptor (conn_poll_fd()) that becomes ready whenever conn_dispatch() has work,
 * from any source. Returns 0; -EMFILE or another -errno with the sentence (nothing changed). */
int conn_make_pollable(struct conn *c);

/*
 * [L] Lets a pollable connection outlive its daemon. From now on a hang-up leaves it away until a
 * daemon takes it up again (resume.c). After patience_msec (< 0: never) it is broken with
 * -ENOTCONN. -ESTALE: the new daemon has lost the state of the previous one. path and hello are as
 * at the start, and copied. Returns 0; -ENOMEM with the sentence (nothing changed).
 */
int conn_outlive(struct conn *c, const char *path, const struct conn_hello *hello,
        const struct conn_welcome *welcome, int patience_msec);

/* A monotonic time `timeout_msec` from now; < 0: CONN_FOREVER. */
uint64_t conn_deadline(int timeout_msec);

/* Milliseconds, rounded up, until a monotonic time that isn't CONN_FOREVER; 0: it has passed. */
uint32_t conn_msec_until(uint64_t deadline_nsec);

/* ---- requests -------------------------------------------------------------------------------- */

/*
 * Sends one request and waits; notes the sentence of a failure. Returns 0: *ret_reply is the reply,
 * borrowed from `a` (the caller's, reset here). Otherwise returns the status as a library code
 * (*ret_reply is set if the daemon answered, else untouched), -ETIMEDOUT, or why the connection is
 * over.
 */
int conn_request(struct conn *c, uint16_t type, const ProtobufCMessage *request, struct arena *a,
        uint64_t deadline_nsec, const ProtobufCMessage **ret_reply);

void conn_lock(struct conn *c);
bool conn_try_lock(struct conn *c);

/* Runs errands before and after, if any can have come. */
void conn_unlock(struct conn *c);

/* Called without the lock, from any thread. Never blocks. takes_errands must have been set with the
 * lock before. */
void conn_hand_in(struct conn *c, struct conn_errand *e);

/* [L] Runs queued errands, in the order in which they were handed in. */
void conn_run_errands(struct conn *c);

/* [L] Waits without the lock for conn_wake() of `wakeup` (of CLOCK_MONOTONIC if there is a
 * deadline). May return at any time: look again. Returns 0 or -ETIMEDOUT. */
int conn_sleep(struct conn *c, pthread_cond_t *wakeup, uint64_t deadline_nsec);

/* [L] Wakes all threads that sleep on it. */
void conn_wake(struct conn *c, pthread_cond_t *wakeup);

/* [L] Sends a request for `call`. Queues what the socket doesn't take; queues all while the daemon
 * is away. Returns 0: the call is pending; -ENOTCONN, -ENOMEM, -EMSGSIZE: it is not. */
int conn_start(struct conn *c, struct conn_call *call, uint16_t type, const ProtobufCMessage *m);

/* [L] Sends a request without waiting for a reply. Returns as conn_start(). Across a restart of the
 * daemon it arrives once. Exceptions: DOORBELL, and hints that were on their way. */
int conn_notify(struct conn *c, uint16_t type, const ProtobufCMessage *m);

/* [L] The call will end with conn_finish(), not a frame. on_abandon is as in struct conn_call. */
void conn_start_beside(
        struct conn *c, struct conn_call *call, void (*on_abandon)(struct conn_call *call));

/* [L] The call is done. Queues on_done, or wakes the waiter. Idempotent. */
void conn_finish(struct conn *c, struct conn_call *call, int code);

/* [L] From on_reply, if the reply makes no sense. Finishes the call with -EPROTO and breaks the
 * connection. */
void conn_finish_violated(struct conn *c, struct conn_call *call, const char *what);

/* [L] Waits until the call is done, and does the connection's work meanwhile. Drops the lock in
 * between; callbacks run. Returns the call's code, or -ETIMEDOUT: the call was abandoned. */
int conn_wait(struct conn *c, struct conn_call *call, uint64_t deadline_nsec);

/* [L] Gives the call back to its caller; a late reply goes to on_late. Nothing if it is done. */
void conn_abandon(struct conn *c, struct conn_call *call);

/* [L] Clears on_late of late calls with this cookie, which is about to become invalid. */
void conn_forget_cookie(struct conn *c, const void *cookie);

/* Sends, receives and runs callbacks as far as it can without blocking. Returns the number of
 * callbacks, or -errno once broken. */
int conn_dispatch(struct conn *c);

/* [L] Callbacks wait to be run, and the socket doesn't show it. */
static inline bool conn_has_finished(const struct conn *c)
{
        return !list_is_empty(&c->finished);
}

/* [L] Bytes wait for room in the socket. */
static inline bool conn_has_unsent(const struct conn *c)
{
        return c->n_sent < c->n_queued;
}

/* [L] The daemon doesn't read, doesn't answer, or is away: hints are refused. */
static inline bool conn_is_congested(const struct conn *c)
{
        return c->n_queued - c->n_sent + c->resume.n_waiting_bytes > CONN_MAX_UNSENT_BYTES ||
               c->resume.n_late_frames >= CONN_MAX_LATE;
}

/* [L] Returns a descriptor that is readable when conn_dispatch() has work; -1 once broken. Before
 * conn_make_pollable() it is the socket, which is ready only for input. */
int conn_poll_fd(const struct conn *c);

/* [L] Notes that an event loop polls conn_poll_fd() from now on. */
static inline void conn_note_polled(struct conn *c)
{
        c->poll.is_used = true;
}

static inline struct timespec conn_timespec(uint64_t nsec)
{
        return (struct timespec){
                .tv_sec = (time_t)(nsec / NSEC_PER_SEC),
                .tv_nsec = (long)(nsec % NSEC_PER_SEC),
        };
}

/* [L] Ends the connection: every pending call ends with `code`. `why` is a sentence. */
void conn_break(struct conn *c, int code, const char *why);

/* [L] Called by conn_side.resume: tells the new daemon a part of this client's state. Returns 0;
 * -ENOMEM, -EMSGSIZE. */
int conn_tell(struct conn *c, uint16_t type, const ProtobufCMessage *m);

#endif
