/*
 * Operations of a peer: a connection and the process at its other end (struct peer, with its
 * states, is in daemon/server/objects/peer.h). Loop thread only.
 */
#ifndef KVL_SERVER_PEER_H
#define KVL_SERVER_PEER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/server/objects/peer.h"

/* Frames of one peer handled in one loop turn. Not tuned. */
#define PEER_FRAMES_PER_TURN 16

/* Submissions of one peer executed in one loop turn: some 100 microseconds of publishes. Not
 * tuned. What comes before a frame of the socket isn't counted: at most the ring. */
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

/* Ends the peer now, together with all that it holds. Not from inside a handler. */
void peer_end(struct peer *p);

/* Namespaces that end with a client at once: some 30 us each, most of that the kernel's, to unmap
 * and close what is shared there. Not tuned. */
#define PEER_CLOSES_AT_ONCE 16

/* Ends a peer that is finished: at once if it has few namespaces open. Else it is LEAVING while
 * these are closed in slices (chore.h), and stays one of its tenant's clients until then. Not from
 * inside a handler. */
void peer_leave(struct peer *p);

/* Called by peer-leave.c when connection and process are no longer needed: closes both and sets the
 * state. The peer keeps all it holds. */
void peer_retire(struct peer *p, enum peer_state state);

/* Sends a frame; takes the fds. A peer that can't take it is marked, never freed. */
void peer_send(struct peer *p, const void *frame, size_t len, int *fds, unsigned n_fds);

/* The peer broke `rule` (static text). */
void peer_violation(struct peer *p, const char *rule);

/* The peer is looked at again in the next turn of the loop. */
void peer_schedule(struct peer *p);

/*
 * Executes up to `budget` submissions of its ring, in its tenant's turn as long as that lasts; what
 * is left is for the next turn. Then the peer may be muted or doomed. Nothing where it has no ring,
 * or none that counts any more. Returns how many.
 */
uint32_t peer_take_submissions(struct peer *p, uint32_t budget);

/* The daemon still executes its ring. */
bool peer_may_submit(const struct peer *p);

/* True if submissions that precede the peer's received frames have been executed, or if it has no
 * next turn. */
bool peer_has_submitted_first(struct peer *p);

/* Takes over all changes the peer made in shared memory until now. Afterwards it may be muted or
 * doomed. */
void peer_catch_up(struct peer *p);

/* One turn of a peer: executes its submissions and frames, then acts on its flags. For a tenant's
 * peers, only turns.c calls it. */
void peer_turn(struct peer *p);

/* Sends the peer's output as far as keeping.h lets it. */
void peer_flush(struct peer *p);

/* Polls for states without an event: has the peer taken the descriptors sent to it, does the kernel
 * take more output? */
void peer_look(struct peer *p);

/* The peer has introduced itself, or is being closed: the deadline for that is over. */
void peer_introduced(struct peer *p);

/* Handles `n` bytes as if they had come over the socket: for the fuzzer. The peer may be gone
 * after. */
void peer_feed(struct peer *p, const uint8_t *data, size_t n);

/* Formats identity.who: the peer's name, process and user are known. */
void peer_set_who(struct peer *p);

/* Notes in the event log that its member ends. `why` NULL: the peer's state tells the reason. */
void peer_note_end(struct peer *p, const char *why);
void peer_note_violation(struct peer *p, const char *rule);

/* A peer that is a member may publish, or only look up, as its tenancy's rules have it now. */
void peer_update_rights(struct peer *p);

/* Name of the peer's state, for people. Static. */
const char *peer_state_name(const struct peer *p);

#endif
