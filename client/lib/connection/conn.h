/*
 * A connection: frames over one socket, and calls that wait for their replies. What the frames mean
 * is up to the caller (libkvlease, and kvleasectl on the admin socket).
 *
 *   conn:  open -> broken (the peer hung up or broke the protocol; stays so) -> closed
 *          open <-> away, and perhaps broken then        where it can be resumed (resume.c)
 *   call:  (start) -> pending -> done                     reply came, or the connection broke
 *                         \---> late  -> done             nobody waits any more; see on_late
 *
 * Threads. One mutex guards everything (conn_lock()); functions marked [L] want it held. No threads
 * of its own: whoever waits does the work. Of the threads that wait on one connection, one is the
 * *reader*: it polls the socket without the lock, hands every reply to its call and wakes whose
 * call is done. The others sleep, each on a condition variable of its own. A reader that leaves
 * (its call is done, its time is up, it runs callbacks) wakes another waiter, which becomes the
 * reader: where there are waiters and no reader, one of them has been signalled, and one that
 * leaves without having become the reader signals the next. A waiter whose own request didn't fit
 * the socket yet may be the *writer* besides: it polls for room until that request is out (its
 * reply can't come before), then hands on in the same way. The socket of a connection that breaks
 * or goes away is shut down, which ends every poll; it is closed once nobody polls it.
 *
 * Errands. A thread that must never wait (a GPU driver's, in a function that it calls) hands its
 * work in (conn_hand_in()): it pushes the errand, and then takes the lock if that is free, which
 * runs what is there. Where somebody else has the lock, he runs it when he gives it back. None is
 * left lying:
 *
 *   hands in:  push; full fence; try to lock          gives back:  unlock; full fence; look
 *
 * If the try fails it read the word of a lock that somebody holds: the giver-back whose unlock came
 * after that read, in the word's order. Then the first fence is before the second, and his look
 * sees the push; or he finds the lock taken by yet another, to whom the same applies. Who sleeps
 * with the lock (conn_sleep()) looks in the same way. A lock is looked after like that once an
 * errand may come (takes_errands, set with the lock): whoever hands in holds up something that was
 * set before.
 *
 * An event loop polls without the lock, and nobody knows when. So who gives the lock back sees to
 * it that what is polled becomes ready where he leaves something to do behind: a callback that
 * waits, bytes that didn't fit the socket, a try to come. But for who runs callbacks himself: he
 * goes on with what they started.
 *
 * Callbacks (on_done, events) are queued and run without the lock, by conn_wait() and
 * conn_dispatch(). It must not be used in a child of the process that opened it; callers check.
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
        1024 /* as many as the daemon sends (daemon/core/ground/detail.h): two layouts fit */
#define CONN_TENANT_MAX  128 /* bytes; longer ones are a violation; not tuned */
#define CONN_TOKEN_BYTES 16  /* protocol */
#define CONN_NONCE_BYTES 16  /* protocol */
#define CONN_NAME_MAX    64  /* bytes of a client's name; protocol */
#define CONN_MAX_EVENTS  16  /* waiting for their handler; then nothing is read; not tuned */

/* Unsent bytes past which hints are refused: nobody waits for them. Not tuned. */
#define CONN_MAX_UNSENT_BYTES ((size_t)1 << 20)

/* Requests that nobody waits for, and that have no reply, past which the same. The next daemon is
 * told of all requests that were sent, 4096 at most (protocol): beside these there is room for
 * KVL_MAX_STARTED, and for those who wait. Not tuned. */
#define CONN_MAX_LATE 1024

/* What was unsent and is sent leaves as much memory behind; not tuned. */
#define CONN_KEEP_OUTPUT_BYTES ((size_t)4 << 20)

#define CONN_FOREVER UINT64_MAX

struct conn;
struct conn_call;

/*
 * Takes a reply apart. [L] code: its status as a library code, with `reply` borrowed during the
 * call and the frame (its fds are closed afterwards unless taken); or why the connection ended,
 * with both NULL. Ends in conn_finish(), or sends another request with the same call.
 */
typedef void (*conn_reply_fn)(struct conn *c, struct conn_call *call, int code,
        const ProtobufCMessage *reply, struct frame *frame);

/* Without the lock, after conn_finish(). Returns how many callbacks of the user it ran. Owns the
 * call. */
typedef int (*conn_done_fn)(struct conn_call *call);

struct conn_waiter;

struct conn_frame {
        size_t bytes;
        uint8_t data[];
};

/* Embedded in what the caller keeps; zeroed but for the first five before the first start. */
struct conn_call {
        conn_reply_fn on_reply; /* NULL: only code and detail matter */
        conn_done_fn on_done;   /* NULL: somebody conn_wait()s for it */
        /*
         * As on_reply, for a reply that comes after conn_wait() gave up or conn_abandon(): on a
         * copy of this call, of which only cookie is kept. If it sends another request, that
         * one's reply is dropped. NULL: this one is.
         */
        conn_reply_fn on_late;
        void *cookie;
        /* [L] Not NULL: nothing of it is on the socket, and it isn't among conn.calls; its owner
         * finishes it. Called instead of on_late where nobody waits for it any more. */
        void (*on_abandon)(struct conn_call *call);

        struct list_link link; /* conn.calls, then conn.finished where on_done is set */
        struct conn_waiter *waiter;
        uint64_t seq;
        uint64_t sent_at;         /* conn.n_queued with it: it is out once conn.n_sent is as much */
        struct conn_frame *frame; /* owned: to be sent again; NULL where it never is */
        uint16_t type;            /* enum msg_type, of the last request sent with it */
        bool was_sent;            /* to the daemon before a restart, which may have done it */
        bool outlived;            /* a restart, after which the daemon was told what there is */
        bool is_done;
        int code;                       /* once done */
        char detail[CONN_DETAIL_BYTES]; /* last: it isn't zeroed where that costs */
};

struct conn_event {
        uint16_t type; /* MSG_NOTICE, MSG_RECALL */
        uint32_t ns_id;
        uint32_t kind; /* NOTICE, as the next: Kvlease__V1__NoticeEvent__Kind */
        uint64_t client_id;
        char detail[CONN_DETAIL_BYTES];
        uint32_t set_index, timeout_msec; /* RECALL */
        bool is_idle;                     /* RECALL */
};

/* Work for whoever has the lock; embedded in what the caller keeps. */
struct conn_errand {
        struct conn_errand *next;
        /* [L] Owns the errand. In any thread, also one that must not block: it may send, finish and
         * start calls, no more. */
        void (*run)(struct conn *c, struct conn_errand *e);
};

enum conn_news {
        CONN_NEWS_EVENT, /* of the daemon */
        CONN_NEWS_AWAY,  /* the daemon went away; detail: how */
        CONN_NEWS_BACK,  /* after that: it is back, and this connection goes on */
        CONN_NEWS_GONE,  /* the connection is over (told once); detail: why */
};

/* Without the lock. Returns how many callbacks of the user it ran. */
typedef int (*conn_event_fn)(
        struct conn *c, const struct conn_event *event, enum conn_news news, void *data);

/* What comes beside the socket: the completions of a ring, the state of streams. All [L], or
 * NULL. */
struct conn_side {
        bool (*look)(void *data); /* takes what is there; true: something was */
        void (*broken)(void *data, int code, const char *why); /* the connection is over */
        void (*away)(void *data);                              /* the daemon went away */
        int (*resume)(
                void *data);      /* to the next one: conn_tell() what it is to know. 0 or -errno */
        void (*back)(void *data); /* it knows; what is pending was sent again */
        void *data;
};

struct conn_output {
        uint8_t *data; /* owned */
        size_t begin, end, size;
};

/* What an event loop polls. Both are owned, once there are any (conn_make_pollable()), else -1. */
struct conn_poll {
        /* To be polled instead of the socket, which is another one after a restart: an epoll of it
         * and of the timer. */
        int fd, timer_fd;
        bool is_used;          /* [L] by an event loop */
        uint64_t timer_at;     /* what the timer is set to; CONN_FOREVER: it isn't */
        bool waits_for_output; /* the epoll waits for room in the socket */
};

/* Events that wait for their handler, which has `data`. */
struct conn_events {
        struct conn_event ring[CONN_MAX_EVENTS];
        unsigned begin, n;
        bool is_stalled;   /* whole frames wait for room in `ring`; then there is no reader */
        bool is_gone_told; /* CONN_NEWS_GONE was */
        conn_event_fn tell;
        void *data;
};

enum conn_link {
        CONN_UP,
        CONN_AWAY,     /* there is no daemon: the next try is at resume.wake_at */
        CONN_RESUMING, /* one has taken the socket and is told who this is */
};

/* What a connection needs to outlive the daemon: resume.c. */
struct conn_resume {
        bool is_on;
        char *path;                   /* owned: the socket */
        char name[CONN_NAME_MAX + 1]; /* as in the first HELLO, like the flags */
        bool metadata_only, has_safepoints;
        uint64_t client_id;
        uint8_t token[CONN_TOKEN_BYTES];
        uint8_t next_token[CONN_TOKEN_BYTES]; /* that this daemon gave, not yet in force */
        uint64_t patience_nsec;               /* how long it may be away; CONN_FOREVER */
        uint64_t give_up_at, wake_at;         /* monotonic, while it isn't UP */
        unsigned n_tries;                     /* since it went away */
        uint64_t random;                      /* of the jitter */
        struct list_link calls;               /* sent while RESUMING; owned */
        uint64_t n_waiting_bytes;             /* of frames that wait for it to be UP */
        size_t n_late_frames;                 /* kept by calls that nobody waits for */
        bool tells_away, tells_back;          /* news that nobody was told yet */
        char why[CONN_DETAIL_BYTES];          /* it is away still */
};

struct conn {
        pthread_mutex_t lock;
        pthread_mutex_t sleep_lock; /* of all conditions; for moments only, last of all locks */
        bool takes_errands;         /* [L] */
        struct conn_errand *_Atomic errands; /* the youngest first */
        int fd;                              /* owned: the socket; -1: none */
        struct conn_poll poll;
        enum conn_link link;
        struct conn_resume resume;
        _Atomic int broken; /* 0, or -errno: why it is over */
        uint16_t version;
        uint64_t next_seq;
        uint64_t n_queued, n_sent; /* bytes since the start; all that isn't sent is in `out` */
        struct conn_output out;
        struct frame_parser in;
        struct arena arena; /* of the frame in hand */
        struct list_link calls, finished, waiters;
        bool has_reader, has_writer;
        struct conn_side side;
        struct conn_events events;
        char detail[CONN_DETAIL_BYTES]; /* why it broke, where it did */
};

/* ---- life ------------------------------------------------------------------------------------ */

/*
 * Connects. 0: *ret_conn is returned owned. -ENOENT, -ECONNREFUSED, -EACCES, -ENAMETOOLONG,
 * -ETIMEDOUT (the listener's queue stayed full), -ENOMEM, another -errno; the sentence (error.h)
 * names path and remedy.
 */
int conn_open(const char *path, uint64_t deadline_nsec, struct conn **ret_conn);

/* No thread may wait or be in it. Calls still pending are forgotten (their on_done doesn't run).
 * NULL is ignored. */
void conn_close(struct conn *c);

/* In the child of a fork: gives its copy of the descriptor back and nothing else. */
void conn_close_in_child(struct conn *c);

struct conn_hello {
        const char *client_name;    /* cut to CONN_NAME_MAX bytes */
        const uint8_t *group_token; /* CONN_TOKEN_BYTES, or NULL */
        bool group_create;          /* the group is made where there is none */
        bool metadata_only;
        bool has_safepoints; /* the engine promises to call kvl_safepoint() */
        /* To go on as a client of the daemon before: its token, CONN_TOKEN_BYTES, or NULL; its id;
         * numbers of the requests it has no replies to. */
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

/*
 * Says hello, agrees on a version, and answers the daemon's challenge where there is one. 0; a
 * status of the daemon (KVL_STATUS_VERSION, KVL_STATUS_DRAINING, -EMFILE, -EACCES, -ENOENT);
 * -EPROTO; -ETIMEDOUT; -ENOMEM. The sentence is noted (error.h). After a failure: conn_close().
 */
int conn_hello(struct conn *c, const struct conn_hello *hello, uint64_t deadline_nsec,
        struct conn_welcome *ret_welcome);

/*
 * [L] From now on there is something to poll that becomes ready whenever conn_dispatch() has
 * something to do, whoever made it so (conn_poll_fd()). 0; -EMFILE or another -errno with the
 * sentence, and all is as before.
 */
int conn_make_pollable(struct conn *c);

/*
 * [L] Of one that is pollable.
 * From now on a hang-up isn't the end: the connection is away until a daemon takes it up again
 * (resume.c), and broken once it has been so for patience_msec (< 0: never): -ENOTCONN. -ESTALE:
 * the daemon that came has no more of what the one before it knew. path and hello as at the start,
 * copied. 0; -ENOMEM with the sentence, and all is as before.
 */
int conn_outlive(struct conn *c, const char *path, const struct conn_hello *hello,
        const struct conn_welcome *welcome, int patience_msec);

/* A monotonic time `timeout_msec` from now; < 0: CONN_FOREVER. */
uint64_t conn_deadline(int timeout_msec);

/* What is left until a monotonic time that isn't CONN_FOREVER, in milliseconds, rounded up; 0: it
 * is over. */
uint32_t conn_msec_until(uint64_t deadline_nsec);

/* ---- requests -------------------------------------------------------------------------------- */

/*
 * Sends one request and waits; notes the sentence of a failure. 0: *ret_reply is the reply,
 * borrowed from `a` (the caller's, reset here). Otherwise the status as a library code (*ret_reply
 * is set where the daemon answered, else untouched), -ETIMEDOUT, or why the connection is over.
 */
int conn_request(struct conn *c, uint16_t type, const ProtobufCMessage *request, struct arena *a,
        uint64_t deadline_nsec, const ProtobufCMessage **ret_reply);

void conn_lock(struct conn *c);
bool conn_try_lock(struct conn *c);

/* Runs errands, before and after, where there may be any. */
void conn_unlock(struct conn *c);

/* Without the lock, from any thread: doesn't wait. takes_errands was set with the lock before. */
void conn_hand_in(struct conn *c, struct conn_errand *e);

/* [L] Those that are there, in the order in which they were handed in. */
void conn_run_errands(struct conn *c);

/*
 * [L] Waits for conn_wake() of `wakeup` (of CLOCK_MONOTONIC, where there is a deadline) without the
 * lock. May return at any time: look again. 0 or -ETIMEDOUT.
 */
int conn_sleep(struct conn *c, pthread_cond_t *wakeup, uint64_t deadline_nsec);

/* [L] All who sleep on it. */
void conn_wake(struct conn *c, pthread_cond_t *wakeup);

/*
 * [L] Sends a request for `call`, or queues what the socket doesn't take, or until the daemon is
 * back. 0: the call is pending. -ENOTCONN, -ENOMEM, -EMSGSIZE: it is not.
 */
int conn_start(struct conn *c, struct conn_call *call, uint16_t type, const ProtobufCMessage *m);

/* [L] Sends a request whose reply nobody waits for. As conn_start(). Where the daemon may be
 * restarted, it arrives once, but for a DOORBELL, and hints that were on their way. */
int conn_notify(struct conn *c, uint16_t type, const ProtobufCMessage *m);

/* [L] The call ends with conn_finish(), and not by a frame: on_abandon is as in struct conn_call.
 */
void conn_start_beside(
        struct conn *c, struct conn_call *call, void (*on_abandon)(struct conn_call *call));

/* [L] The call is done. on_done is queued, or the waiter woken. Nothing where it was done before.
 */
void conn_finish(struct conn *c, struct conn_call *call, int code);

/* [L] From on_reply: the reply makes no sense. Finishes the call with -EPROTO and breaks the
 * connection. */
void conn_finish_violated(struct conn *c, struct conn_call *call, const char *what);

/*
 * [L] Waits until the call is done, doing the connection's work meanwhile; drops the lock in
 * between, and callbacks run. Returns its code; -ETIMEDOUT: it was abandoned.
 */
int conn_wait(struct conn *c, struct conn_call *call, uint64_t deadline_nsec);

/* [L] The caller's call is its own again; a late reply goes to on_late. Nothing where it is done.
 */
void conn_abandon(struct conn *c, struct conn_call *call);

/* [L] Late calls with this cookie lose their on_late: what the cookie points to goes away. */
void conn_forget_cookie(struct conn *c, const void *cookie);

/* Sends, receives and runs callbacks as far as it goes without blocking. Callbacks run, or -errno
 * once broken. */
int conn_dispatch(struct conn *c);

/* [L] Callbacks wait to be run, without anything in the socket that says so. */
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

/* [L] What becomes ready (to be read) when conn_dispatch() has something to do; -1 once broken.
 * Until it is pollable, the socket: then only for what comes from there. */
int conn_poll_fd(const struct conn *c);

/* [L] conn_poll_fd() is polled from now on. */
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

/* [L] The connection is over: every pending call ends with `code`. `why` is a sentence. */
void conn_break(struct conn *c, int code, const char *why);

/* [L] Called by conn_side.resume: tells the daemon that came back what it is to know. 0; -ENOMEM,
 * -EMSGSIZE. */
int conn_tell(struct conn *c, uint16_t type, const ProtobufCMessage *m);

#endif
