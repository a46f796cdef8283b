#include "daemon/core/discard.h"

#include <signal.h>
#include <stdlib.h>

#include "base/macros.h"
#include "gpu/device.h"

struct discard *discard_new(uint32_t n)
{
        struct discard *what = calloc(1, sizeof(*what) + n * sizeof(what->extents[0]));

        if (what)
                list_init(&what->link);
        return what;
}

/* In either thread, without the lock. */
static void give_back(struct discard *what)
{
        const struct device_ops *ops;

        if (what->arena) {
                ops = what->arena->device->ops;
                while (what->n_mapped > 0) {
                        what->n_mapped--;
                        (void)ops->arena_unmap(what->arena, what->n_mapped * what->extent_bytes,
                                what->extents[what->n_mapped]);
                }
                ops->arena_release(what->arena);
        }
        for (uint32_t i = 0; i < what->n; i++)
                what->extents[i]->device->ops->extent_destroy(what->extents[i], true);
        free(what);
}

static void *thread_main(void *data)
{
        struct discards *d = data;
        struct discard *what;
        uint32_t n;

        pthread_mutex_lock(&d->lock);
        for (;;) {
                while (list_is_empty(&d->waiting) && !d->stopping)
                        pthread_cond_wait(&d->wake, &d->lock);
                what = list_first(&d->waiting, struct discard, link);
                if (!what)
                        break;
                list_remove(&what->link);
                n = what->n;
                pthread_mutex_unlock(&d->lock);
                give_back(what);
                pthread_mutex_lock(&d->lock);
                d->n_extents -= n;
        }
        pthread_mutex_unlock(&d->lock);
        return NULL;
}

static void free_lock(struct discards *d)
{
        pthread_mutex_destroy(&d->lock);
        pthread_cond_destroy(&d->wake);
        *d = (struct discards){0};
}

/* Signals are the loop's. */
int discards_start(struct discards *d)
{
        sigset_t all, old;
        int r;

        pthread_mutex_init(&d->lock, NULL);
        pthread_cond_init(&d->wake, NULL);
        list_init(&d->waiting);
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        r = pthread_create(&d->thread, NULL, thread_main, d);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (r != 0)
                free_lock(d);
        d->has_thread = r == 0;
        return -r;
}

void discards_stop(struct discards *d)
{
        if (!d->has_thread)
                return;
        pthread_mutex_lock(&d->lock);
        d->stopping = true;
        pthread_cond_signal(&d->wake);
        pthread_mutex_unlock(&d->lock);
        pthread_join(d->thread, NULL);
        free_lock(d);
}

static bool has_room(const struct discards *d, uint32_t n)
{
        return d->n_extents == 0 || (n <= DISCARDS_MAX && d->n_extents <= DISCARDS_MAX - n);
}

void discard_submit(struct discards *d, struct discard *what)
{
        bool is_taken = false;

        if (d->has_thread && what->n > 0) {
                pthread_mutex_lock(&d->lock);
                is_taken = has_room(d, what->n);
                if (is_taken) {
                        d->n_extents += what->n;
                        list_append(&d->waiting, &what->link);
                }
                pthread_mutex_unlock(&d->lock);
        }
        if (is_taken)
                pthread_cond_signal(&d->wake);
        else
                give_back(what);
}
