/*
 * Which process this is, by how often it is the child of a fork: a connection belongs to the one
 * that made it.
 */
#ifndef KVL_LIB_PROCESS_H
#define KVL_LIB_PROCESS_H

#include <stdatomic.h>

/* How often this process is the child of a fork since the library was loaded. */
extern _Atomic unsigned process_n_forks;

/* Has forks counted from now on. 0; -ENOMEM. */
int process_watch_forks(void);

/* Refuses what belongs to another process: -ECHILD with the sentence. */
int process_refuse(void);

/* 0 where process_n_forks is what it was when something was made; else process_refuse(). */
static inline int process_check(unsigned n_forks)
{
        if (n_forks == atomic_load_explicit(&process_n_forks, memory_order_relaxed))
                return 0;
        return process_refuse();
}

#endif
