/*
 * The reaper: a small process of the daemon's that makes calls that a stranger could block.
 *
 * Some system calls on a shared descriptor wait for other processes, uninterruptibly, for as long
 * as these like. Examples: PUNCH_HOLE waits for a memory file's lock. A write() into the file holds
 * it while its source page comes from a FUSE server or a userfaultfd that doesn't deliver it. The
 * last close() waits for a FUSE server's FLUSH, or for a TCP socket's linger. Such a wait in the
 * daemon would delay all tenants, and its exit: no signal ends it, and the process keeps its lock
 * and its sockets until then.
 *
 * So these calls are made in another process, started from /proc/self/exe. It has nothing of the
 * daemon's: no memory, no lock, no socket except its end of a pair. Each job is a thread with a
 * descriptor table of its own. The daemon schedules: an *owner* (a tenant, or the user of a
 * connection without one) has at most REAPER_OWNER_RUNNING jobs there; its others wait here, in
 * order. So an owner that blocks a job delays its own. All strangers together have
 * REAPER_STRANGERS_RUNNING, as a user can have many uids. Tenants are made by administrators, and
 * can't take each other's place.
 *
 *   job:  submitted -> waits -> runs -> done (its callback runs in reaper_dispatch())
 *                                  \-> lost: the process died; done with -ECANCELED;
 *
 * A job starts when the daemon has closed its own descriptor (wire.h, REAP_GO), so that the
 * daemon's close() is never the last one. A CLOSE that takes long is interrupted by a signal every
 * REAPER_SIGNAL_NSEC, which ends a linger.
 *
 * The process exits when its socket is closed (the daemon stopped, or was killed). Even that
 * doesn't interrupt a PUNCH that waits for a lock: it is made once the lock is released. Until then
 * a zombie with a thread remains, for which no process waits. A process that dies is started again.
 *
 * If the process can't be started, jobs are done at once, in the caller.
 *
 * Threads: all functions from one (the loop). None blocks, except reaper_stop() for a bounded time,
 * and all if there is no process.
 */
#ifndef KVL_REAP_REAPER_H
#define KVL_REAP_REAPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Jobs of one owner that run at once: two, as one may hang. Not tuned. */
#define REAPER_OWNER_RUNNING 2

/* Jobs of one owner that run at once in reaper_stop(): they continue without the daemon. Not
 * tuned. */
#define REAPER_OWNER_STOPPING 32

/* Jobs of all strangers together that run at once. Not tuned. */
#define REAPER_STRANGERS_RUNNING 64

/* Not for descriptors of file systems that act on each close() (FUSE, NFS): the daemon's own
 * close() would wait. Objects that contain such files (a socket's queue) are allowed. */

/* Interval of signals to a CLOSE: longer than an undelayed one takes. Not tuned. */
#define REAPER_SIGNAL_NSEC UINT64_C(1000000000)

/* Least interval of starts: a process that died younger, or couldn't be started, is started again
 * after that. Not tuned. */
#define REAPER_YOUNG_NSEC UINT64_C(1000000000)

/* Time for which reaper_stop() waits for jobs, and then for the process. Not tuned. */
#define REAPER_STOP_NSEC UINT64_C(1000000000)

/* Set in the number of an owner that is a user, not a tenant; the other bits are the uid. */
#define REAPER_STRANGER (UINT64_C(1) << 63)

enum reap_op {
        REAP_CLOSE = 1, /* closes it */
        REAP_PUNCH,     /* frees the memory of all its bytes, then closes it */
};

/* `result`: 0; -errno of a PUNCH; -ECANCELED: lost, the descriptor is closed. May submit. */
typedef void (*reap_done_fn)(void *data, int result);

/* Logs a sentence: the process can't be started, died, or runs again. */
typedef void (*reap_say_fn)(void *data, bool is_error, const char *sentence);

struct reaper_options {
        const char *exe;  /* NULL: /proc/self/exe. Must call reap_process() if asked. Borrowed */
        reap_say_fn say;  /* may be NULL */
        void *data;       /* of say(); borrowed */
        int socket_bytes; /* size of the socket's buffers; 0: the system's. For tests */
};

struct reaper;

/* Unfinished jobs of an owner. */
struct reaper_owner {
        uint64_t owner;
        uint32_t n_waiting, n_running;
        uint64_t bytes;        /* of its PUNCHes, both kinds */
        uint64_t running_nsec; /* CLOCK_MONOTONIC: start of its oldest running job; 0: none runs */
};

/* Returns 0, -ENOMEM, or -errno of epoll. If the process can't be started: 0, and say(). */
int reaper_start(const struct reaper_options *o, struct reaper **ret);

/*
 * Continues for at most REAPER_STOP_NSEC while jobs wait or run, then ends the process, and waits
 * as long for it. Unfinished jobs end with -ECANCELED: running ones continue without the daemon,
 * waiting ones are closed. Callbacks may submit nothing meanwhile. Nothing for NULL.
 */
void reaper_stop(struct reaper *r);

/*
 * Takes fd; other processes may have references, too. bytes: of a PUNCH, from the file's beginning;
 * else 0. `done` may be NULL. It runs in a later reaper_dispatch(); without a process, or memory,
 * in this call or a later reaper_submit(). Never fails.
 */
void reaper_submit(struct reaper *r, enum reap_op op, uint64_t owner, int fd, uint64_t bytes,
        reap_done_fn done, void *data);

/* Readable if reaper_dispatch() has something to do. Never changes. Borrowed. */
int reaper_fd(const struct reaper *r);

/* Runs callbacks of done jobs, sends the next jobs, handles the death of the process. Call it each
 * second, too: then a process or a job that failed to start is tried again. */
void reaper_dispatch(struct reaper *r);

/* Returns false if the owner has no unfinished job. */
bool reaper_find_owner(const struct reaper *r, uint64_t owner, struct reaper_owner *ret);

/* Iterates over owners, in no order: start with *iter 0; false at the end. Nothing may be submitted
 * or dispatched in between. */
bool reaper_next_owner(const struct reaper *r, size_t *iter, struct reaper_owner *ret);

/* The process's pid; 0: there is none now. For tests, and people. */
int reaper_pid(const struct reaper *r);

/* True if this process was started as a reaper. Call it first in main(). */
bool reap_is_asked(int argc, char **argv);

/* True if this program calls reap_is_asked(), and so can be started as a reaper. */
bool reaper_is_possible(void);

/* main() of the process. Returns its exit status. */
int reap_process(void);

#endif
