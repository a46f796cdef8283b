/*
 * The reaper: a small process of the daemon's, for what a stranger could hold up.
 *
 * Some calls on a descriptor that others have, too, wait for them, in the kernel, for as long as
 * they like, and can't be interrupted: a write() into a memory file whose source is a page that a
 * FUSE server or a userfaultfd doesn't deliver holds the file's lock, and who gives the file's
 * memory back (PUNCH_HOLE) waits for that lock; the last close() of a file of a FUSE server waits
 * for the server's FLUSH, that of a TCP socket for its linger. A thread of the daemon that waits so
 * would hold up what it has to do for others, and the daemon's exit: no signal ends it, and the
 * process keeps its lock and its sockets until it does.
 *
 * So these calls are made in another process, which is started from /proc/self/exe, and has
 * nothing of the daemon's: no memory, no lock, no socket but its end of a pair. Each job is a
 * thread of it, with a descriptor table of its own. The daemon schedules: an *owner* (a tenant, or
 * the user of somebody who isn't one) has REAPER_OWNER_RUNNING jobs there at most, its others wait
 * here, in order. So who holds a job up delays its own. All strangers together have
 * REAPER_STRANGERS_RUNNING: a user can have many uids. Tenants, which an administrator makes, can't
 * take each other's place.
 *
 *   job:  submitted -> waits -> runs -> done (its callback runs in reaper_dispatch())
 *                                 \-> lost: the process died. It went with what it had; done with
 *                                     -ECANCELED
 *
 * A job is begun when the daemon has closed its own descriptor of it (wire.h, REAP_GO): a close()
 * of the daemon's is never the last one.
 *
 * A CLOSE that takes long is interrupted by a signal every REAPER_SIGNAL_NSEC, which ends a linger.
 *
 * The process exits when its socket does (the daemon stopped, or was killed). A PUNCH that waits
 * for a file's lock then isn't interrupted by that either: it is made once the lock is let go, and
 * until then a remainder of the process (a zombie with a thread) stays. Nobody waits for it. A
 * process that dies is started again.
 *
 * Where there can be no process the jobs are done at once, in the caller: as if there were no
 * reaper.
 *
 * Threads: all functions from one (the loop); none blocks, but for reaper_stop(), for a bounded
 * time, and where there is no process.
 */
#ifndef KVL_REAP_REAPER_H
#define KVL_REAP_REAPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How many jobs of one owner run at once: where one hangs there is another. Not tuned. */
#define REAPER_OWNER_RUNNING 2

/* How many jobs of one owner run at once in reaper_stop(): what has begun then goes on without the
 * daemon. Not tuned. */
#define REAPER_OWNER_STOPPING 32

/* How many jobs of all strangers together run at once. Not tuned. */
#define REAPER_STRANGERS_RUNNING 64

/* Not for files whose file system wants to hear of each close() of a descriptor (FUSE, NFS): that
 * of the daemon's own would wait already. What such a file is inside of (a socket's queue) may be.
 */

/* Between two signals to a CLOSE: longer than one takes that nobody holds up. Not tuned. */
#define REAPER_SIGNAL_NSEC UINT64_C(1000000000)

/* A process that died younger than this, or couldn't be started, isn't started again before it
 * would have been as old. Not tuned. */
#define REAPER_YOUNG_NSEC UINT64_C(1000000000)

/* How long reaper_stop() waits for jobs, and then for the process. Not tuned. */
#define REAPER_STOP_NSEC UINT64_C(1000000000)

/* Set in the number of an owner who is no tenant but a user; the other bits are the uid. */
#define REAPER_STRANGER (UINT64_C(1) << 63)

enum reap_op {
        REAP_CLOSE = 1, /* closes it */
        REAP_PUNCH,     /* gives the memory of all its bytes back, then closes it */
};

/* `result`: 0; -errno of a PUNCH; -ECANCELED: it is lost, the descriptor is closed. May submit. */
typedef void (*reap_done_fn)(void *data, int result);

/* A sentence for the log, of the daemon's own: the process starts no more, died, is back. */
typedef void (*reap_say_fn)(void *data, bool is_error, const char *sentence);

struct reaper_options {
        const char *exe; /* NULL: /proc/self/exe. Runs reap_process() where it is asked to. Borrowed
                          */
        reap_say_fn say; /* may be NULL */
        void *data;      /* its; borrowed */
        int socket_bytes; /* most that is on its way in either direction; 0: the system's. For tests
                           */
};

struct reaper;

/* What of an owner's isn't done. */
struct reaper_owner {
        uint64_t owner;
        uint32_t n_waiting, n_running;
        uint64_t bytes;        /* of its PUNCHes, both kinds */
        uint64_t running_nsec; /* CLOCK_MONOTONIC: its oldest job runs since then; 0: none runs */
};

/* 0; -ENOMEM, -errno of epoll. Where the process can't be started: 0, and said. */
int reaper_start(const struct reaper_options *o, struct reaper **ret);

/*
 * Goes on for REAPER_STOP_NSEC at most while anything waits or runs, then ends the process, and
 * waits as long for it. What isn't done by then is done with -ECANCELED: what runs goes on without
 * us, what waits is closed as it is. Callbacks submit nothing meanwhile. NULL: nothing.
 */
void reaper_stop(struct reaper *r);

/*
 * Takes fd, whose other references may be anybody's. bytes: of a PUNCH, from the file's beginning;
 * else 0. `done` may be NULL. It runs in a later reaper_dispatch(); where there is no process, or
 * no memory, in this call or a later reaper_submit(). Never fails.
 */
void reaper_submit(struct reaper *r, enum reap_op op, uint64_t owner, int fd, uint64_t bytes,
        reap_done_fn done, void *data);

/* Readable where reaper_dispatch() has something to do. The same for good. Borrowed. */
int reaper_fd(const struct reaper *r);

/* Callbacks of what is done, the next jobs, a process that died. To be called each second as well:
 * a process that couldn't be started, or a job that couldn't be sent, is tried again. */
void reaper_dispatch(struct reaper *r);

/* False: nothing of it is here. */
bool reaper_find_owner(const struct reaper *r, uint64_t owner, struct reaper_owner *ret);

/* In no order: start with *iter 0; false at the end. Nothing may be submitted or dispatched
 * between. */
bool reaper_next_owner(const struct reaper *r, size_t *iter, struct reaper_owner *ret);

/* 0: there is none at the moment. For tests, and people. */
int reaper_pid(const struct reaper *r);

/* Is this process to be a reaper? Before anything else of main(). */
bool reap_is_asked(int argc, char **argv);

/* This program asks that: it can be started as one. */
bool reaper_is_possible(void);

/* Its main(): the exit status. */
int reap_process(void);

#endif
