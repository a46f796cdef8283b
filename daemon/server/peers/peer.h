/*
 * A connection and the process at its other end.
 *
 *   NEW -> (AUTH ->) ACTIVE -> WAITING    hung up while it keeps pages: until the process exits
 *                          |      |
 *                          +------+--> LINGERING   exited with memory mapped that its work may
 *                          |      |      |         still write to (a GPU's): death_grace later
 *                          +------+------+--> gone   hung up and keeps none; process exited
 *   any of the first three ---> CLOSING ----> gone   refused, or said BYE: as soon as the reply
 *                                                    is out
 *
 * A peer keeps pages where it maps memory or has a pin segment. One that breaks the protocol is
 * gone if it keeps none; else it is *muted*: its input is drained and ignored (where descriptors
 * are among it, left where it is: inbound.h), its ring isn't looked at any more, its output is
 * dropped, its pins stay until hang-up and exit, as the process may be reading. Refcounted: the
 * server's list holds one reference, each started uv handle one, dropped in its close callback.
 * Handlers never free a peer: they set flags, peer_settle() acts.
 */
#ifndef KVL_SERVER_PEER_H
#define KVL_SERVER_PEER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <uv.h>

#include "base/list.h"
#include "daemon/core/objects/group.h"
#include "daemon/server/peers/inbound.h"
#include "daemon/server/peers/listener.h"
#include "daemon/server/peers/outqueue.h"
#include "daemon/server/peers/ring.h"
#include "daemon/server/settings/access.h"
#include "proto/frame.h"

struct server;
struct tenancy;
struct parked;
struct resume;

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

/* Frames of one peer handled in one loop turn. Not tuned. */
#define PEER_FRAMES_PER_TURN 16

/* Submissions of one peer executed in one loop turn: some 100 microseconds of publishes. Not
 * tuned. What comes before a frame of the socket isn't counted: at most the ring. */
#define PEER_SUBMISSIONS_PER_TURN 256

/* Connections kept beyond a limit only to be told so; further ones are closed. Not tuned. */
#define PEER_MAX_REFUSED 32

struct peer {
        struct list_link link, backlog_link, hello_link, unread_link, linger_link;
        struct list_link parked_link, due_link; /* server.parked; server.due */
        struct server *server;                  /* borrowed */
        unsigned refs;
        uint64_t id;
        enum peer_state state;
        enum listener_kind kind;
        bool muted;
        bool doomed;    /* ends at the next settle */
        bool readable;  /* something came that wasn't received yet */
        bool hung_up;   /* end of its stream was seen */
        bool broken;    /* can't be written to */
        bool exited;    /* its process has; what it said before is handled in slices */
        bool held;      /* isn't read from until it takes its output */
        bool backed_up; /* frames were left for the next turn */
        bool by_number; /* pidfd was opened by number: it must answer a challenge */
        bool is_behind; /* frames are handled once its ring was executed up to ring_goal */
        bool adopted;   /* WAITING, and its member is one of the daemon before this one */
        bool resuming;  /* goes on with a member that was another's: until RESUMED */
        bool late;      /* was named for not giving recalled memory back */
        bool condemned; /* SIGKILL was tried for that */

        struct tenancy *tenancy; /* borrowed; NULL: administration, or refused */
        struct member *member;   /* owned, from hello to the end */
        int refuse_code;         /* not 0: what HELLO will be answered */
        char *refuse_detail;     /* owned */

        int fd, pidfd; /* owned; -1 */
        struct inbound inbound;
        uint64_t listener_id; /* struct listener.id it came by; 0: none */
        uv_poll_t socket, process;
        bool socket_open, process_open; /* handles hold a reference */
        int socket_events;
        struct frame_parser *parser; /* owned */
        struct parked *parked;       /* owned; a lease that waits (parked.h); NULL */
        struct list_link behind;     /* struct parked.link: owned; leases that come after it */
        size_t behind_bytes;
        struct list_link key_waits; /* of key-waits.c; owned */
        uint32_t n_key_waits;
        struct list_link fetches; /* of handle_fetch.c; owned */
        uint32_t n_fetches;
        struct list_link durables; /* of durable.c; owned by what they wait for */
        uint32_t n_durables;
        struct attach *closing; /* of drops.c: its NS_CLOSE isn't over; borrowed; NULL: none */
        struct frame_header close_request; /* that */
        struct dropping *dropping;     /* of drops.c; owned by its tenant's chores; NULL: none */
        struct purging *purging;       /* likewise */
        struct truncating *truncating; /* likewise */
        struct tenant_change *tenant_change; /* of tenant-changes.c, whose it is; NULL: none */
        struct follower *follower; /* owned: an ADMIN_EVENTS that waits (followers.h); NULL */
        struct outqueue out;
        struct ring ring;               /* open from SHM_OPEN to the end */
        uint64_t ring_goal;             /* a position in it */
        uint32_t n_drained, drain_left; /* once it has hung up: receives; submissions to execute */
        struct resume *resume;          /* owned; asked for, and not proven yet (resume.h); NULL */
        uint64_t repeats_until;         /* requests up to this number were sent before it resumed */
        uint64_t *missed; /* owned; ids of members that left while it was away; NULL: none */
        uint32_t n_missed;

        uint16_t version; /* of the frames */
        pid_t pid;
        uid_t uid;
        struct sock_creds sent_creds; /* of the bytes received last, while challenged */
        uint8_t nonce[PEER_NONCE_SIZE];
        char name[PEER_NAME_MAX + 1]; /* printable */
        char who[PEER_WHO_MAX];       /* "process 12 (decoder)", "uid 0": for people */

        size_t pending_bytes; /* as counted last (pending.h) */
        uint64_t n_requests, n_violations;
        uint64_t connected_nsec;
        uint64_t state_nsec;    /* when it came to be what peer_state_name() says, but for "not
                                   reading" */
        uint64_t heard_nsec;    /* when it asked for something last */
        uint64_t pressure_nsec; /* when it was told of pressure last */
        uint64_t linger_until_nsec;
        struct chore leaving; /* while it is LEAVING, and before that once it has exited */
};

/*
 * What accept() learnt. refuse_code: 0, or what the first HELLO is answered with refuse_detail.
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

/* Takes both fds in any case; pidfd may be -1. 0 with a borrowed peer, -ENOMEM, -errno of the loop.
 */
int peer_new(struct server *s, const struct peer_origin *origin, int fd, int pidfd,
        struct peer **ret_peer);

/*
 * A client of the daemon before this one, WAITING: takes the pidfd in any case; the member stays
 * the caller's. -1: its process is gone. 0 with a borrowed peer, -ENOMEM, -errno of the loop.
 */
int peer_adopt(
        struct server *s, const struct peer_origin *origin, int pidfd, struct peer **ret_peer);

/* Its process is gone: it leaves, or lingers before it does. Not from inside a handler of its own.
 */
void peer_exited(struct peer *p);

/* Has it hung up, seen by now or not? Then it is WAITING, or gone, after. Not from inside a handler
 * of its own. */
bool peer_has_hung_up(struct peer *p);

/* Ends it now, whatever it holds. Not from inside a handler. */
void peer_end(struct peer *p);

/* Namespaces that end with a client at once: some 30 us each, most of that the kernel's, to unmap
 * and close what is shared there. Not tuned. */
#define PEER_CLOSES_AT_ONCE 16

/* It is over with it, and ends: at once where it has few namespaces open, else it is LEAVING, and
 * these are closed in slices (chore.h). Until then it is one of its tenant's clients. Not from
 * inside a handler. */
void peer_leave(struct peer *p);

/* Of peer-leave.c: its connection and its process are of no interest any more, and what it holds is
 * as before. */
void peer_retire(struct peer *p, enum peer_state state);

/* Sends a frame; takes the fds. A peer that can't take it is marked, never freed. */
void peer_send(struct peer *p, const void *frame, size_t len, int *fds, unsigned n_fds);

/* The peer broke `rule` (static text). */
void peer_violation(struct peer *p, const char *rule);

/* Looks at it again in the next loop turn. */
void peer_schedule(struct peer *p);

/*
 * Executes up to `budget` submissions of its ring, in its tenant's turn as long as that lasts; what
 * is left is for the next turn. Then the peer may be muted or doomed. Nothing where it has no ring,
 * or none that counts any more. Returns how many.
 */
uint32_t peer_take_submissions(struct peer *p, uint32_t budget);

/* Its ring is read. */
bool peer_may_submit(const struct peer *p);

/* What it submitted before the frames that it has sent comes before them: true where it has, or
 * where there is no next turn for it. */
bool peer_has_submitted_first(struct peer *p);

/* All that it did in shared memory until now is in the daemon's records. It may be muted or doomed
 * after. */
void peer_catch_up(struct peer *p);

/* One turn of a peer: what it submitted and sent, then what its flags ask for. Of a tenant's peers
 * only turns.c calls it. */
void peer_turn(struct peer *p);

/* What it is told may go out, as far as keeping.h lets it. */
void peer_flush(struct peer *p);

/* What no event tells: has it taken the descriptors it was sent, does the kernel take more? */
void peer_look(struct peer *p);

/* It has introduced itself, or is being closed: the deadline for that is over. */
void peer_introduced(struct peer *p);

/* Handles `n` bytes as if they had come over the socket: for the fuzzer. The peer may be gone
 * after. */
void peer_feed(struct peer *p, const uint8_t *data, size_t n);

/* Its name, process and user are known: peer.who. */
void peer_set_who(struct peer *p);

/* Its member ends: that is noted. NULL: why is seen at the peer. */
void peer_note_end(struct peer *p, const char *why);
void peer_note_violation(struct peer *p, const char *rule);

/* The next state and name for people. */
const char *peer_state_name(const struct peer *p);

/* Its connection is gone and what it holds isn't. */
static inline bool peer_is_waiting(const struct peer *p)
{
        return p->state == PEER_WAITING || p->state == PEER_LINGERING || p->state == PEER_LEAVING;
}

/* It asks about the daemon and has no member: an administrator, or who only monitors. */
static inline bool peer_is_watcher(const struct peer *p)
{
        return p->kind == LISTEN_ADMIN || p->kind == LISTEN_MONITOR;
}

/* Nothing is handled before what it asked for last is over (drops.h). */
static inline bool peer_awaits_drop(const struct peer *p)
{
        return p->dropping || p->purging || p->truncating || p->closing;
}

static inline struct peer *peer_of_member(const struct member *m)
{
        return m->server_data;
}

#endif
