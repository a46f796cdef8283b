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

/* The peer has introduced itself, or is being closed: ends its deadline for that. */
void peer_introduced(struct peer *p);

/* Handles `n` bytes as if received from the socket: for the fuzzer. The peer may be freed. */
void peer_feed(struct peer *p, const uint8_t *data, size_t n);

/* Formats identity.who: the peer's name, process and user are known. */
void peer_set_who(struct peer *p);

/* Notes in the event log that its member ends. `why` NULL: the peer's state tells the reason. */
void peer_note_end(struct peer *p, const char *why);
void peer_note_violation(struct peer *p, const char *rule);

/* Updates a member's right to publish from its tenancy's rules. */
void peer_update_rights(struct peer *p);

/* Name of the peer's state, for people. Static. */
const char *peer_state_name(const struct peer *p);

#endif
