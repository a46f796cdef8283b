/*
 * Prints a sentence on stderr if kvleased takes long to answer, so that kvleasectl doesn't seem to
 * hang. It has the socket, kvleased's pid if known, how long kvleasectl waits, and what to do.
 *
 * The caller blocks in a call that knows nothing of this, so a thread prints. Each caller has its
 * own wait, and there may be many at a time. At most one sentence is printed in 30 s.
 */
#ifndef KVL_CTL_SLOW_ANSWER_H
#define KVL_CTL_SLOW_ANSWER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

/* Answers that take longer are late. A person's patience; not tuned. */
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

/* Begins to wait for an answer at the socket `path` (borrowed until the end), until until_nsec; it
 * is late after late_nsec. fd: connected to the socket; -1: not yet. Without a thread nothing is
 * printed. */
void slow_answer_begin(
        struct slow_answer *s, const char *path, int fd, uint64_t late_nsec, uint64_t until_nsec);

/* Ends the wait. */
void slow_answer_end(struct slow_answer *s);

/* Stops printing: a screen is drawn, which shows it itself. */
void slow_answer_hush(void);

#endif
