#include "daemon/core/memory/discard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "base/macros.h"
#include "base/thread.h"
#include "daemon/core/state/pool.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/memory/region.h"
#include "daemon/core/memory/wait.h"
#include "gpu/device.h"
#include "gpu/queue.h"

struct discard *discard_new(uint32_t n)
{
        struct discard *what = calloc(1, sizeof(*what) + n * sizeof(what->extents[0]));

        if (what)
                list_init(&what->link);
        return what;
}

/* Runs in either thread, without the lock. */
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
                what->extents[i]->device->ops->extent_destroy(what->extents[i], i >= what->n_given);
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

int discards_start(struct discards *d)
{
        int r;

        pthread_mutex_init(&d->lock, NULL);
        pthread_cond_init(&d->wake, NULL);
        list_init(&d->waiting);
        r = thread_start(&d->thread, NULL, thread_main, d);
        if (r < 0) {
                pthread_mutex_destroy(&d->lock);
                pthread_cond_destroy(&d->wake);
        }
        d->has_thread = r == 0;
        return r;
}

void discards_init(struct discards *d)
{
        list_init(&d->going);
}

void discards_set_ops(struct discards *d, const struct discard_ops *ops, void *data)
{
        d->ops = ops;
        d->ops_data = data;
}

static bool has_room(const struct discards *d, uint32_t n)
{
        return d->n_extents == 0 || (n <= DISCARDS_MAX && d->n_extents <= DISCARDS_MAX - n);
}

/* Frees it in the thread, or here. */
static void finish_discard(struct discards *d, struct discard *what)
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

/* ---- emptying files -------------------------------------------------------------------------- */

static void end_hold(struct discard *what)
{
        struct tenant *t = what->share ? what->share->tenant : NULL;

        if (what->is_held && t) {
                t->held.n_sets--;
                t->held.n_refused -= what->is_refused_held;
                t->held.bytes -= what->bytes;
        }
        what->is_held = false;
}

/* No memory of the set is left, or its state can't be determined any more. */
static void end_going(struct discard *what)
{
        struct discards *d = what->discards;
        struct store *s = what->share ? what->share->tenant->store : NULL;
        bool was_charged = what->charge.pool != NULL;

        list_remove(&what->link);
        end_hold(what);
        charge_drop(&what->charge);
        if (!what->parting) {
                finish_discard(d, what);
        } else if (!d->is_over) {
                what->parting->lets_go = what->n_given == what->parting->n;
                queue_submit(what->queue, TAKE(what->parting));
                free(what);
        } else {
                /* The process ends; the descriptor store still has the sets' descriptors. */
                job_free(TAKE(what->parting));
                free(what);
        }
        if (was_charged && s && !d->is_over)
                wait_wake(s);
}

/* Does the tenant have processes that may still have the memory? */
static bool has_clients(const struct discard *what)
{
        return what->share && what->share->tenant->n_members > 0;
}

/* discards_look() retries refused files while a client may have the memory. */
static void on_punched(void *data, int result)
{
        struct discard *what = data;

        what->is_refused |= result < 0 && result != -ECANCELED;
        if (--what->n_going > 0)
                return;
        if (!what->is_refused || what->discards->is_over || !has_clients(what))
                end_going(what);
}

/* Returns an owned descriptor of the n-th extent, or a negative number. */
static int open_extent(const struct discard *what, uint32_t n)
{
        struct extent_handle handle;
        int r;

        if (what->parting)
                return fcntl(what->parting->extents[n].handle.fd, F_DUPFD_CLOEXEC, 0);
        r = what->extents[n]->device->ops->extent_export(what->extents[n], &handle);
        return r < 0 ? r : handle.fd;
}

/* Hands the set's extents to `ops`, as far as possible: n_given. n_going is one more. */
static void punch_extents(struct discards *d, struct discard *what)
{
        uint32_t n = what->parting ? (uint32_t)what->parting->n : what->n;
        uint32_t owner = what->share ? what->share->tenant->number : 0;

        what->is_refused = false;
        what->n_going = 1; /* this function's own */
        for (what->n_given = 0; what->n_given < n; what->n_given++) {
                int fd = open_extent(what, what->n_given);

                if (fd < 0)
                        break;
                what->n_going++;
                d->ops->punch(d->ops_data, owner, fd, what->bytes / n, on_punched, what);
        }
}

/* Returns false if no extent could be handed over. */
static bool begin_going(struct discards *d, struct discard *what)
{
        what->discards = d;
        punch_extents(d, what);
        if (what->n_given == 0)
                return false;
        list_append(&d->going, &what->link);
        on_punched(what, 0);
        return true;
}

void discard_submit(struct discards *d, struct discard *what)
{
        if (d->is_over) {
                what->n_given = what->n;
                if (what->parting)
                        what->parting->lets_go = true;
        }
        if (d->ops && begin_going(d, what))
                return;
        charge_drop(&what->charge);
        if (!what->parting) {
                finish_discard(d, what);
                return;
        }
        queue_submit(what->queue, TAKE(what->parting));
        free(what);
}

static void look_at(struct discard *what, uint64_t now_nsec)
{
        struct pool_share *s = what->share;

        if (what->since_nsec == 0)
                what->since_nsec = now_nsec;
        if (!s || now_nsec - what->since_nsec < DISCARD_HELD_NSEC)
                return;
        if (!what->is_held) {
                what->is_held = true;
                what->is_refused_held = what->n_going == 0;
                s->tenant->held.n_refused += what->is_refused_held;
                s->tenant->held.n_sets++;
                s->tenant->held.bytes += what->bytes;
        }
        if (!what->charge.pool && region_has_room(s, what->bytes))
                charge_adopt(&what->charge, s, what->bytes);
}

bool discards_look(struct discards *d, uint64_t now_nsec)
{
        list_for_each_safe (what, &d->going, struct discard, link) {
                look_at(what, now_nsec);
                if (what->n_going > 0)
                        continue;
                if (!has_clients(what)) {
                        end_going(what);
                        continue;
                }
                punch_extents(d, what);
                on_punched(what, 0);
        }
        return !list_is_empty(&d->going);
}

void discards_stop(struct discards *d)
{
        if (d->ops) {
                d->is_over = true;
                d->ops->finish(d->ops_data);
                list_for_each_safe (what, &d->going, struct discard, link)
                        end_going(what); /* refused ones */
                d->ops = NULL;
                assert(list_is_empty(&d->going));
        }
        if (!d->has_thread)
                return;
        pthread_mutex_lock(&d->lock);
        d->stopping = true;
        pthread_cond_signal(&d->wake);
        pthread_mutex_unlock(&d->lock);
        pthread_join(d->thread, NULL);
        pthread_mutex_destroy(&d->lock);
        pthread_cond_destroy(&d->wake);
        d->has_thread = d->stopping = false;
}

void discard_leave_tenant(struct discard *what)
{
        end_hold(what);
        charge_leave_tenant(&what->charge);
        what->share = NULL;
}

void discards_leave_tenant(struct discards *d, const struct tenant *t)
{
        list_for_each (what, &d->going, struct discard, link)
                if (what->share && what->share->tenant == t)
                        discard_leave_tenant(what);
}

bool discard_is_charged(const struct tenant *t)
{
        return t->held.n_sets > 0;
}
