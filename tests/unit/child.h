/*
 * Processes that a test starts. They end with it at the latest: where an assertion fails before it
 * has waited for them, and where it is killed for taking too long. Whoever runs the tests would
 * wait for them otherwise, as they hold its pipes.
 */
#ifndef KVL_TESTS_CHILD_H
#define KVL_TESTS_CHILD_H

#include <signal.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <unistd.h>

/*
 * In a child: SIGKILL when the thread that forked it ends; at once where its parent isn't `parent`
 * (getppid() as seen by the child) any more. A change of credentials undoes it (prctl(2),
 * PR_SET_PDEATHSIG): to be called again after one.
 */
static inline void child_tie(pid_t parent)
{
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
                _exit(1);
}

/* fork(), and the child is tied to the caller. */
static inline pid_t child_fork(void)
{
        pid_t parent = getpid(), pid = fork();

        if (pid == 0)
                child_tie(parent);
        return pid;
}

#endif
