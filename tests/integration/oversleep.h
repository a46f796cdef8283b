/* How late this machine wakes a sleeping thread: no deadline can be more exact. Nothing here
 * asserts. */
#ifndef KVL_TEST_OVERSLEEP_H
#define KVL_TEST_OVERSLEEP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct oversleep {
        pthread_t thread;
        _Atomic bool is_over;
        uint64_t worst_nsec; /* after oversleep_end() */
};

/* Starts a thread that sleeps again and again. Returns 0 or -errno. */
int oversleep_begin(struct oversleep *o);
void oversleep_end(struct oversleep *o);

#endif
