/* Actors that a test plays in a child: another user, another root, a process with a reused pid. */
#ifndef KVL_TESTS_ACTORS_H
#define KVL_TESTS_ACTORS_H

#include <grp.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "tests/unit/child.h"

#define ANOTHER_UID 41002 /* not used by another account */

/* Becomes a process that /proc shows as started by that user. */
static inline bool be_uid(uid_t uid)
{
        pid_t parent = getppid();

        if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
                return false;
        child_tie(parent);
        return prctl(PR_SET_DUMPABLE, 1) == 0;
}

static inline bool be_another(void)
{
        return be_uid(ANOTHER_UID);
}

/* Gets all capabilities, in a namespace of its own. */
static inline bool be_namespace_root(void)
{
        pid_t parent = getppid();

        if (!be_another() || unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
                return false;
        child_tie(parent);
        return true;
}

static inline bool be_root(void)
{
        return true;
}

/* fork() with this pid; -1 with errno if it isn't available. */
static inline pid_t fork_as(pid_t pid)
{
        struct clone_args args = {
                .exit_signal = SIGCHLD, .set_tid = (uintptr_t)&pid, .set_tid_size = 1};

        return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

#endif
