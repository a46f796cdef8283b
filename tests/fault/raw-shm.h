/*
 * A raw client (raw.h) that shares memory with the daemon and writes anything there. One thread.
 * Not for the test's own process: a client that broke the rules is muted until it exits
 * (raw_fork()).
 */
#ifndef KVL_TEST_RAW_SHM_H
#define KVL_TEST_RAW_SHM_H

#include "proto/shm.h"
#include "tests/fault/raw.h"

struct raw_shm {
        struct raw raw;
        uint32_t ns_id, capacity_pages, set_pages;
        int client_fd, index_fd, pins_fd; /* owned */
        size_t index_bytes, pins_bytes;
        struct shm_client *client;     /* mapped */
        struct shm_submission *subs;   /* in it */
        struct shm_completion *comps;  /* in it */
        const struct shm_index *index; /* mapped read-only */
        struct shm_pins *pins;         /* mapped */
        _Atomic uint32_t *magazine;    /* in it */
        _Atomic uint32_t *counters;    /* in it */
};

/* Connects to tenant "a" in a group of its own. Opens `ns` ("good" has the workers' layout of one
 * plane) and shares it, all by the rules. Ends with the process. */
void raw_share(struct raw_shm *s, struct harness *h, const char *ns);

/* raw_share() at another tenant's socket. */
void raw_share_at(struct raw_shm *s, const char *path, const char *ns);

/* Stores one entry and the tail behind it; doesn't ring. The ring must have room. */
void raw_submit(struct raw_shm *s, const struct shm_submission *entry);

/* Sends a DOORBELL frame, whether the daemon sleeps or not. False: the daemon hung up. */
bool raw_ring(struct raw_shm *s);

/* raw_submit() and raw_ring(); returns the completion, which must arrive within 10 s. */
struct shm_completion raw_complete(struct raw_shm *s, const struct shm_submission *entry);

/* Generation of a page, as its line shows it. */
static inline uint64_t raw_generation(const struct raw_shm *s, uint32_t page)
{
        const uint8_t *base = (const uint8_t *)s->index;
        const struct shm_line *lines =
                (const struct shm_line *)(const void *)(base + s->index->lines_offset);

        return atomic_load(&lines[page].state) >> 8;
}

/* Takes a page out of the magazine; asks for a refill if it is empty. */
uint32_t raw_claim(struct raw_shm *s);

/* Sends a request that changes nothing: earlier submissions are done when it is answered. False: no
 * answer within `timeout_msec`. */
bool raw_ping(struct raw_shm *s, int timeout_msec);

/*
 * A process that plays the hostile client: it runs `fn`, then sleeps. Returns when fn has returned.
 * An assert in fn ends the process, and raw_join() reports it. It dies with the test, unless fn
 * changes its credentials and doesn't call child_tie() after that (tests/unit/child.h).
 */
struct raw_child {
        pid_t pid;
        int fd; /* owned */
};
struct raw_child raw_fork(struct harness *h, void (*fn)(struct harness *h, void *data), void *data);

/* raw_fork(), but doesn't wait for fn. */
struct raw_child raw_fork_start(
        struct harness *h, void (*fn)(struct harness *h, void *data), void *data);

/* Kills the process; fn must have returned. */
void raw_join(struct raw_child *c);

#endif
