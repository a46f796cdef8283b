#include "tests/integration/oversleep.h"

#include "base/clock.h"
#include "base/macros.h"
#include "tests/integration/private-daemon.h"

static void *sleep_often(void *data)
{
        struct oversleep *o = data;

        while (!atomic_load(&o->is_over)) {
                uint64_t until = clock_now_nsec() + NSEC_PER_MSEC, now;

                sleep_msec(1);
                now = clock_now_nsec();
                o->worst_nsec = MAX(o->worst_nsec, now > until ? now - until : 0);
        }
        return NULL;
}

int oversleep_begin(struct oversleep *o)
{
        o->worst_nsec = 0;
        atomic_init(&o->is_over, false);
        return -pthread_create(&o->thread, NULL, sleep_often, o);
}

void oversleep_end(struct oversleep *o)
{
        atomic_store(&o->is_over, true);
        pthread_join(o->thread, NULL);
}
