/*
 * A connection and the process at its other end.
 *
 *   NEW -> (AUTH ->) ACTIVE -> WAITING    hung up while it keeps pages: until the process exits;
 *                          |      |
 *                          +------+--> LINGERING   exited, but its work (a GPU's) may still write
 *                          |      |      |         to mapped memory: death_grace later;
 *                          +------+------+--> gone   hung up and keeps none; process exited;
 *   any of the first three ---> CLOSING ----> gone   refused, or said BYE: once the reply is out.
 *
 * A peer keeps pages if it maps memory or has a pin segment. A peer that breaks the protocol ends
 * if it keeps none. Else it is *muted*: its input is drained and ignored (except descriptors:
 * inbound.h), its ring isn't looked at any more, its output is dropped. Its pins stay until hang-up
 * and exit, as the process may be reading.
 *
 * Refcounted: the server's list holds one reference, each started uv handle one, dropped in its
 * close callback. Handlers never free a peer: they set flags, which take effect at the end of
 * its turn (daemon/server/peers/peer.c).
 */
#ifndef KVL_SERVER_PEER_H
#define KVL_SERVER_PEER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <uv.h>

#include "base/list.h"
#include "daemon/core/state/group.h"
#include "daemon/server/base/inbound.h"
#include "daemon/server/base/outqueue.h"
#include "daemon/server/base/ring.h"
#include "daemon/server/peers/listener.h"
#include "daemon/server/peers/pending.h"
#include "proto/frame.h"

struct peer;
struct parked;
struct resume;
struct server;
struct tenancy;

enum peer_state {
        PEER_NEW,
        PEER_AUTH,
        PEER_ACTIVE,
        PEER_CLOSING,
        PEER_WAITING,
        PEER_LINGERING,
        PEER_LEAVING,
        PEER_GONE
};

#define PEER_NAME_MAX   64
#define PEER_NONCE_SIZE 16
#define PEER_WHO_MAX    (PEER_NAME_MAX + 24)

/* An unfinished NS_CLOSE (drops.c). */
struct closing {
        struct pending pending;
        struct attach *attach; /* borrowed; NULL: there is none */
};

/* Lists of the server that may hold a peer: of struct peers, unless noted. */
struct peer_links {
        struct list_link all, backlog, hello, unread, linger;
        struct list_link parked, due; /* struct leases.parked, struct leases.due */
};

/* Its connection, and the process at the other end. */
struct peer_conn {
        int fd, pidfd; /* owned; -1 */
        struct inbound inbound;
        uint64_t listener_id; /* struct listener.id of its socket; 0: none */
        uv_poll_t socket, process;
        bool socket_open, process_open; /* handles hold a reference */
        int socket_events;
        struct frame_parser *parser; /* owned */
        uint16_t version;            /* of the frames */
};

/* Input of the peer that is not handled yet. */
struct peer_input {
        bool readable;       /* the socket may have unreceived data */
        bool hung_up;        /* the end of its stream was seen */
        bool backed_up;      /* received frames are left for the next turn */
        bool is_overdue;     /* its HELLO is late: its next turn is the last */
        bool is_behind;      /* frames wait until its ring is executed up to ring_goal */
        uint64_t ring_goal;  /* a position in the ring */
        uint32_t n_drained;  /* after its hang-up: receives so far, */
        uint32_t drain_left; /* and submissions still to execute */
};

/* Refusal of the peer. */
struct peer_refusal {
        int code;     /* not 0: code of the answer to HELLO */
        char *detail; /* owned */
};

/* Resumption of a client after its connection ended (daemon/server/peers/resume.h). */
struct peer_resumption {
        bool adopted;           /* WAITING, with a member of the previous daemon */
        bool resuming;          /* resumes a member of another peer, until RESUMED */
        struct resume *resume;  /* owned; requested, and not proven yet; NULL */
        uint64_t repeats_until; /* highest number of requests sent before it resumed */
        uint64_t *missed;       /* owned; ids of members that left while it was away; NULL: none */
        uint32_t n_missed;
};

/* Proof of the process's identity. */
struct peer_challenge {
        bool by_number;               /* pidfd was opened by number: it must answer a challenge */
        struct sock_creds sent_creds; /* of the bytes received last, while challenged */
        uint8_t nonce[PEER_NONCE_SIZE];
};

struct peer_identity {
        pid_t pid;
        uid_t uid;
        char name[PEER_NAME_MAX + 1]; /* printable */
        char who[PEER_WHO_MAX];       /* "process 12 (decoder)", "uid 0": for people */
};

struct peer_counts {
        size_t pending_bytes; /* at the last count (pending.h) */
        uint64_t n_requests, n_violations;
};

struct peer_times {
        uint64_t connected_nsec;
        uint64_t hello_nsec;    /* since when it must introduce itself */
        uint64_t state_nsec;    /* start of the state that peer_state_name() tells, except "not
                                   reading" */
        uint64_t heard_nsec;    /* last request */
        uint64_t pressure_nsec; /* last notice of pressure */
        uint64_t linger_until_nsec;
};

/* Overdue recalled memory of the peer (daemon/server/peers/recalls.h). */
struct peer_recall {
        bool late;      /* the log named it */
        bool condemned; /* SIGKILL was tried */
};

struct peer {
        struct peer_links links;
        struct server *server; /* borrowed */
        unsigned refs;
        uint64_t id;
        enum peer_state state;
        enum listener_kind kind;
        bool muted;
        bool doomed; /* ends at the end of its turn */
        bool broken; /* its socket can't be written to */
        bool exited; /* its process has exited; its earlier input is handled in slices */
        bool held;   /* not read from until it takes its output */

        struct tenancy *tenancy; /* borrowed; NULL: administration, or refused */
        struct member *member;   /* owned, from hello to the end */
        struct peer_identity identity;
        struct peer_refusal refusal;
        struct peer_challenge challenge;
        struct peer_resumption resumption;

        struct peer_conn conn;
        struct peer_input input;
        struct outqueue out;
        struct ring ring;      /* open from SHM_OPEN to the end */
        struct parked *parked; /* of `waits`: the lease that was run, and waits; NULL */
        struct pending_list waits[N_PENDING]; /* operations that it waits for, by kind */
        struct closing closing;               /* its NS_CLOSE that isn't over */

        struct peer_counts counts;
        struct peer_times times;
        struct peer_recall recall;
        struct task leaving; /* for LEAVING, and for an exited process before that */
};

/* The connection has ended, and the peer still holds pages. */
static inline bool peer_is_waiting(const struct peer *p)
{
        return p->state == PEER_WAITING || p->state == PEER_LINGERING || p->state == PEER_LEAVING;
}

/* The peer has no member and only asks about the daemon: an administrator or a monitor. */
static inline bool peer_is_watcher(const struct peer *p)
{
        return p->kind == LISTEN_ADMIN || p->kind == LISTEN_MONITOR;
}

/* Its next requests wait until its last one is finished (drops.h). */
static inline bool peer_awaits_drop(const struct peer *p)
{
        return p->waits[PENDING_DROP].n > 0;
}

static inline struct peer *peer_of_member(const struct member *m)
{
        return m->server_data;
}

/* Frames of one peer handled in one loop turn. Not tuned. */
#define PEER_FRAMES_PER_TURN 16

/* Submissions of one peer executed in one loop turn: some 100 microseconds of publishes.
 * Submissions that precede a frame aren't counted: at most the ring. Not tuned. */
#define PEER_SUBMISSIONS_PER_TURN 256

/*
 * A connection as accepted. refuse_code: 0, or the first HELLO is answered with this code and
 * refuse_detail.
 */
struct peer_origin {
        enum listener_kind kind;
        uint64_t listener_id; /* of struct peer */
        struct tenancy *tenancy;
        pid_t pid;
        uid_t uid;
        bool by_number; /* of struct peer */
        int refuse_code;
        const char *refuse_detail;
};

/* Makes a peer. Takes both fds in any case; pidfd may be -1. Returns 0 with a borrowed peer,
 * -ENOMEM, -errno of the loop. */
int peer_new(struct server *s, const struct peer_origin *origin, int fd, int pidfd,
        struct peer **ret_peer);

/*
 * Makes a WAITING peer for a client of the previous daemon. Takes the pidfd in any case (-1: its
 * process has exited); the member stays the caller's. Returns 0 with a borrowed peer, -ENOMEM,
 * -errno of the loop.
 */
int peer_adopt(
        struct server *s, const struct peer_origin *origin, int pidfd, struct peer **ret_peer);

/* The process has exited: the peer leaves, or lingers first. Not from inside its own handler. */
void peer_exited(struct peer *p);

/* Returns whether the peer has hung up, noticed before or not. If so it is WAITING or gone
 * afterwards. Not from inside its own handler. */
bool peer_has_hung_up(struct peer *p);

/* Ends the peer now, together with all that it holds. Not from inside a handler. */
void peer_end(struct peer *p);

/* Namespaces that are closed at once when a client ends: some 30 us each, most of it the kernel's
 * for unmapping and closing shared memory. Not tuned. */
#define PEER_CLOSES_AT_ONCE 16

/* Ends a peer that is finished: at once if it has few namespaces open. Else it is LEAVING while
 * these are closed in slices (task.h), and stays one of its tenant's clients until then. Not from
 * inside a handler. */
void peer_leave(struct peer *p);

/* Called by peer-end.c when connection and process are no longer needed: closes both and sets the
 * state. The peer keeps all it holds. */
void peer_retire(struct peer *p, enum peer_state state);

/* Sends a frame; takes the fds. A peer that can't take it is marked, never freed. */
void peer_send(struct peer *p, const void *frame, size_t len, int *fds, unsigned n_fds);

/* The peer broke `rule` (static text). */
void peer_violation(struct peer *p, const char *rule);

/* Ends the peer once its output is sent. */
void peer_close(struct peer *p);

/* Schedules the peer for the next turn of the loop. */
void peer_schedule(struct peer *p);

/*
 * Executes up to `budget` submissions of the peer's ring, within its tenant's turn; the rest is for
 * the next turn. Afterwards the peer may be muted or doomed. Nothing without a ring in use. Returns
 * their number.
 */
uint32_t peer_take_submissions(struct peer *p, uint32_t budget);

/* The daemon still executes its ring. */
bool peer_may_submit(const struct peer *p);

/* Takes over all changes the peer made in shared memory until now. Afterwards it may be muted or
 * doomed. */
void peer_catch_up(struct peer *p);

/* One turn of a peer: executes its submissions and frames, then acts on its flags. For a tenant's
 * peers, only turns.c calls it. */
void peer_turn(struct peer *p);

/* The peer has introduced itself, or is being closed: ends its deadline for that. */
void peer_introduced(struct peer *p);

/* Handles `n` bytes as if received from the socket: for the fuzzer. The peer may be freed. */
void peer_feed(struct peer *p, const uint8_t *data, size_t n);

/* Formats identity.who: the peer's name, process and user are known. */
void peer_set_who(struct peer *p);

/* Notes in the event log that its member ends. `why` NULL: the peer's state tells the reason. */
void peer_note_end(struct peer *p, const char *why);

/* Updates a member's right to publish from its tenancy's rules. */
void peer_update_rights(struct peer *p);

/* Name of the peer's state, for people. Static. */
const char *peer_state_name(const struct peer *p);

/* ---- time-outs ------------------------------------------------------------------------------- */

/* Watches the time of peers that must introduce themselves: there is one, or the option has
 * changed. */
void peers_watch_hellos(struct server *s);

/* Polls the peer, which waits for a state without an event. Idempotent and cheap. */
void peer_look_later(struct peer *p);

/* Sends the held output of all peers that may go out (keeping.h). */
void peers_flush(struct server *s);

/* The peer's output is sent: if the daemon stops, it may have been the last. */
void peers_note_drained(struct server *s);

#endif
