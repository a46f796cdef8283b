/* Identifies processes by a number of forks: a connection belongs to the process that made it. */
#ifndef KVL_LIB_PROCESS_H
#define KVL_LIB_PROCESS_H

#include <stdatomic.h>

/* Number of forks between the first process that called process_watch_forks() and this one. */
extern _Atomic unsigned process_n_forks;

/* Counts forks from now on. Returns 0; -ENOMEM. */
int process_watch_forks(void);

/* Refuses an object of another process: -ECHILD with the sentence. */
int process_refuse(void);

/* Returns 0 if process_n_forks is the same as when the object was made; else process_refuse(). */
static inline int process_check(unsigned n_forks)
{
        if (n_forks == atomic_load_explicit(&process_n_forks, memory_order_relaxed))
                return 0;
        return process_refuse();
}

#endif
