/*
 * Unsent output of a peer: whole frames, with the descriptors that go with their first byte. Empty
 * most of the time: a frame is written at once and only its rest is queued. Loop thread only.
 */
#ifndef KVL_SERVER_OUTQUEUE_H
#define KVL_SERVER_OUTQUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "proto/frame.h"

/* Beyond this, the peer isn't reading: a violation. Not tuned. */
#define OUTQUEUE_MAX_BYTES (1024 * 1024)
/* Beyond this, the peer isn't read from. Not tuned. */
#define OUTQUEUE_HOLD_BYTES (256 * 1024)

struct outqueue {
        struct list_link chunks;
        size_t bytes; /* unsent, with the overhead of a frame */
        bool starved; /* the kernel takes no descriptors now, though the socket has room: there will
                         be no event, the caller flushes later */
        unsigned n_fds_unread; /* sent or queued since the peer was seen to have read everything */
};

void outqueue_init(struct outqueue *q);

/*
 * Descriptors that a peer may have been sent without taking them: two replies' worth. The kernel
 * counts descriptors in flight per user, against RLIMIT_NOFILE, and refuses all peers beyond. Not
 * tuned.
 */
#define OUTQUEUE_MAX_UNREAD_FDS (2 * FRAME_MAX_FDS)

/* Drops everything, closes its descriptors. Idempotent. */
void outqueue_clear(struct outqueue *q);

static inline bool outqueue_is_empty(const struct outqueue *q)
{
        return list_is_empty(&q->chunks);
}

/* Descriptors that the peer at the other end of `fd` may not have taken yet. */
unsigned outqueue_unread_fds(struct outqueue *q, int fd);

/*
 * Sends a frame over `fd`, or queues the rest. Takes the descriptors in any case. Returns 0;
 * -ENOBUFS: OUTQUEUE_MAX_BYTES are queued; -ENOMEM; another -errno from the socket. After a failure
 * the stream may end in half a frame: nothing more can be sent to the peer.
 */
int outqueue_send(
        struct outqueue *q, int fd, const void *frame, size_t len, int *fds, unsigned n_fds);

/* Queues a frame until its ticket (> 0, keeping.h) is passed. Takes the descriptors in any case.
 * Returns 0; -ENOBUFS: OUTQUEUE_MAX_BYTES are queued; -ENOMEM. */
int outqueue_hold(struct outqueue *q, uint64_t ticket, const void *frame, size_t len, int *fds,
        unsigned n_fds);

/* True if nothing can be sent now: the queue is empty, or its first frame waits for its ticket. */
bool outqueue_is_held(const struct outqueue *q, uint64_t passed);

/* Sends queued frames with tickets up to `passed`, as far as the socket takes them. Returns 0 or
 * -errno as above. */
int outqueue_flush(struct outqueue *q, int fd, uint64_t passed);

#endif
