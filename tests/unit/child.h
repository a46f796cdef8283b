/*
 * Processes that a test starts. They end with the test at the latest, also if an assertion fails or
 * the test is killed for its time. Otherwise they would hold the pipes of the test runner, which
 * would wait for them.
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
