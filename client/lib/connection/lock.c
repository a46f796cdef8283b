/* The lock of a connection: errands, sleeping, waking pollers (conn.h). */
#include <stdatomic.h>

#include "client/lib/connection/conn-impl.h"

_Thread_local const struct conn *conn_running;

/* [L] Called before unlocking. */
static void wake_poller(struct conn *c)
{
        if (c->poll.is_used && conn_running != c)
                conn_watch(c);
}

void conn_lock(struct conn *c)
{
        pthread_mutex_lock(&c->lock);
}

bool conn_try_lock(struct conn *c)
{
        return pthread_mutex_trylock(&c->lock) == 0;
}

void conn_run_errands(struct conn *c)
{
        struct conn_errand *e = atomic_exchange_explicit(&c->errands, NULL, memory_order_acquire);
        struct conn_errand *oldest = NULL, *next;

        for (; e; e = next) {
                next = e->next;
                e->next = oldest;
                oldest = e;
        }
        for (e = oldest; e; e = next) {
                next = e->next;
                e->run(c, e);
        }
}

/* Called after unlocking: see conn.h. */
static bool has_errands(struct conn *c)
{
        atomic_thread_fence(memory_order_seq_cst);
        return atomic_load_explicit(&c->errands, memory_order_relaxed);
}

void conn_unlock(struct conn *c)
{
        bool takes_errands = c->takes_errands;

        if (!takes_errands) {
                wake_poller(c);
                pthread_mutex_unlock(&c->lock);
                return;
        }
        do {
                conn_run_errands(c);
                wake_poller(c);
                pthread_mutex_unlock(&c->lock);
        } while (has_errands(c) && conn_try_lock(c));
}

void conn_hand_in(struct conn *c, struct conn_errand *e)
{
        struct conn_errand *first = atomic_load_explicit(&c->errands, memory_order_relaxed);

        do
                e->next = first;
        while (!atomic_compare_exchange_weak_explicit(
                &c->errands, &first, e, memory_order_release, memory_order_relaxed));
        atomic_thread_fence(memory_order_seq_cst);
        if (conn_try_lock(c))
                conn_unlock(c);
}

int conn_sleep(struct conn *c, pthread_cond_t *wakeup, uint64_t deadline_nsec)
{
        struct timespec until = conn_timespec(deadline_nsec);
        bool takes_errands = c->takes_errands, has = false;
        int r = 0;

        wake_poller(c);
        /* Wakers hold both locks, so none can wake before the wait has begun. */
        pthread_mutex_lock(&c->sleep_lock);
        pthread_mutex_unlock(&c->lock);
        if (takes_errands)
                has = has_errands(c);
        if (!has && deadline_nsec == CONN_FOREVER)
                r = pthread_cond_wait(wakeup, &c->sleep_lock);
        else if (!has)
                r = pthread_cond_timedwait(wakeup, &c->sleep_lock, &until);
        pthread_mutex_unlock(&c->sleep_lock);
        conn_lock(c);
        if (has)
                conn_run_errands(c);
        return -r;
}

void conn_wake(struct conn *c, pthread_cond_t *wakeup)
{
        pthread_mutex_lock(&c->sleep_lock);
        pthread_cond_broadcast(wakeup);
        pthread_mutex_unlock(&c->sleep_lock);
}
