/*
 * `kvleased --keep`: a parent process with the descriptor store that a service manager provides
 * elsewhere; it restarts the daemon when it dies. It does nothing else, allocates all its memory at
 * the start, and accepts messages only from its child. When it ends, all stored descriptors are
 * lost.
 *
 *   child:  started -> READY -> dead -> started ...
 *
 * A child that dies by a signal or exits with an error is started again: at once after a long life,
 * else after 100 ms, 200 ms ... 10 s. The parent ends, too, if the child keeps dying young, or was
 * never READY and gives the reason by its exit status. It also ends if the child exits with 0.
 * SIGTERM and SIGINT are passed on, and the parent ends with the child, which loses all stored
 * descriptors. SIGHUP is passed on. SIGUSR1 ends the child, and starts it again from its path: an
 * upgrade.
 *
 * The child's messages for a service manager are forwarded to the parent's own, in the parent's
 * name. That manager sees a single process, which becomes READY repeatedly, and is alive also
 * without a child. Sockets that a manager passed to the parent are the child's. The child dies with
 * the parent (SIGKILL): it must not serve without its store, beside the next daemon.
 *
 * Libc only; one thread.
 */
#ifndef KVL_KEEP_PARENT_H
#define KVL_KEEP_PARENT_H

#include <stdbool.h>
#include <stdint.h>

/* Descriptors; each is one of this process' open files. Not tuned. */
#define PARENT_DEFAULT_MAX 16384
/* Young deaths in a row: two minutes of them, with the pauses between. Not tuned. */
#define PARENT_DEFAULT_TRIES      20
#define PARENT_DEFAULT_YOUNG_NSEC UINT64_C(10000000000) /* not tuned */

/* Exit status of a child that asks for an immediate restart; EX_TEMPFAIL of sysexits.h. */
#define PARENT_EXIT_AGAIN 75

struct parent_options {
        uint32_t max, tries;
        uint64_t young_nsec;    /* a child that lived longer didn't die young */
        uint64_t watchdog_nsec; /* a READY child that sends no watchdog message for so long is
                                   killed (SIGKILL); 0: not watched here */
        char **argv;            /* the child's: as this process' own; borrowed */
};

/* True if this process is the child of such a parent. Clears that, so that no child of ours
 * inherits it. */
bool parent_is_there(void);

/* Runs until the end. Returns the exit status. */
int parent_run(const struct parent_options *o);

#endif
