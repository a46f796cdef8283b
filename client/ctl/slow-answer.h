/*
 * A sentence on stderr where kvleased takes long to answer, so that nobody takes the silence for a
 * hang of kvleasectl: the socket, kvleased's pid where that can be told, how long kvleasectl waits,
 * and what to do.
 *
 * The caller waits in a call that knows nothing of it, so a thread does the saying. A caller has a
 * wait of its own; many at a time may be. At most one sentence comes in 30 s.
 */
#ifndef KVL_CTL_SLOW_ANSWER_H
#define KVL_CTL_SLOW_ANSWER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

/* An answer that takes longer is late. A person's patience; not tuned. */
#define SLOW_ANSWER_NSEC NSEC_PER_SEC

struct slow_answer {
        pthread_t thread;
        pthread_mutex_t lock;
        pthread_cond_t changed;
        bool is_watched, is_over;
        const char *path;
        int fd;
        uint64_t late_nsec, until_nsec, since_nsec;
};

/*
 * From now on an answer is waited for at the socket `path` (borrowed until the end), until
 * until_nsec; it is late after late_nsec. fd: connected to the socket; -1: not yet. Where there is
 * no thread to be had nothing is said.
 */
void slow_answer_begin(
        struct slow_answer *s, const char *path, int fd, uint64_t late_nsec, uint64_t until_nsec);

/* Nobody waits any more. */
void slow_answer_end(struct slow_answer *s);

/* From now on nothing is said: a screen is drawn, which says it itself. */
void slow_answer_hush(void);

#endif
