/*
 * `kvleased --keep`: a parent that keeps what the daemon leaves with a service manager elsewhere,
 * and starts it again when it dies. It has nothing else to do, takes all its memory at the start,
 * and hears nobody but its child: its own end is the end of all that it keeps.
 *
 *   child:  started -> READY -> dead -> started ...
 *
 * A child that dies by a signal or exits with an error is started again: at once after a long life,
 * else after 100 ms, 200 ms ... 10 s. Where it keeps dying young, or never was READY and says by
 * its exit status why, the parent ends, too. A child that exits with 0 ends the parent. SIGTERM and
 * SIGINT are passed on, and the parent ends with the child: all that was kept is gone. SIGHUP is
 * passed on. SIGUSR1 ends the child, and starts it again from the path it had: an upgrade.
 *
 * What the child says for a service manager is said further up to the parent's own, in its name:
 * that one sees a single process that is READY now and then, and that lives also while there is no
 * child. What a manager gave the parent (sockets) is the child's. The child dies with the parent
 * (SIGKILL): it must not serve what isn't kept any more, beside the next one.
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

/* A child that exits with this wants to be started again at once; EX_TEMPFAIL of sysexits.h. */
#define PARENT_EXIT_AGAIN 75

struct parent_options {
        uint32_t max, tries;
        uint64_t young_nsec;    /* who lived longer didn't die young */
        uint64_t watchdog_nsec; /* the child, once READY, says that it lives, or is killed
                                   (SIGKILL); 0: isn't watched here */
        char **argv;            /* the child's: as this process' own; borrowed */
};

/* This process is the child of such a parent. Forgets it, so that no child of ours takes it for
 * one. */
bool parent_is_there(void);

/* Until the end; the exit status. */
int parent_run(const struct parent_options *o);

#endif
