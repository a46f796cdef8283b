#include "gpu/queue-work.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"

struct device *call_begin(struct queue *q, const char *call)
{
        pthread_mutex_lock(&q->lock);
        q->call = call;
        q->since_nsec = clock_now_nsec();
        pthread_cond_signal(&q->news);
        pthread_mutex_unlock(&q->lock);
        q->device->why[0] = '\0';
        return q->device;
}

bool call_end(struct queue *q, struct work *w, int result)
{
        bool is_wanted;

        if (result < 0 && result != -EBUSY && w->why[0] == '\0')
                memcpy(w->why, q->device->why, sizeof(w->why));
        pthread_mutex_lock(&q->lock);
        q->call = NULL;
        q->since_nsec = clock_now_nsec();
        if (result == -ENXIO && !q->broken) {
                q->broken = true;
                memcpy(q->broken_why, w->why, sizeof(q->broken_why));
        }
        is_wanted = w && w->task;
        pthread_mutex_unlock(&q->lock);
        return is_wanted;
}

void destroy_extents(struct queue *q, struct job_extent *extents, size_t n, bool last_owner)
{
        for (size_t i = 0; i < n; i++) {
                struct job_extent *e = &extents[i];

                if (!e->extent)
                        continue;
                if (q->park.drop && e->number > 0)
                        q->park.drop(q->park.data, e->number);
                call_begin(q, "extent_destroy");
                e->handle.fd = fd_close(e->handle.fd);
                q->device->ops->extent_destroy(e->extent, last_owner);
                (void)call_end(q, NULL, 0);
                e->extent = NULL;
        }
}

/* The descriptor is the submitter's; the device gets another. */
static int import_from(struct queue *q, struct work *w, unsigned member,
        struct extent_handle handle, struct extent **ret_extent)
{
        struct device *d;
        int r;

        handle.fd = fcntl(handle.fd, F_DUPFD_CLOEXEC, 0);
        d = call_begin(q, "extent_import");
        r = handle.fd < 0 ? -errno : device_import(d, member, &handle, w->bytes, ret_extent);
        return !call_end(q, w, r) && r == 0 ? -ECANCELED : r;
}

/* The handle's descriptor stays the submitter's; the work has another. */
static int import_extent(struct queue *q, struct work *w, struct job_extent *e)
{
        struct extent_handle handle = e->handle;
        int r;

        e->handle.fd = fcntl(handle.fd, F_DUPFD_CLOEXEC, 0);
        r = e->handle.fd < 0 ? -errno : import_from(q, w, e->member, handle, &e->extent);
        if (!e->extent)
                e->handle.fd = fd_close(e->handle.fd);
        return r;
}

static int create_extent(struct queue *q, struct work *w, struct job_extent *e)
{
        struct device *d = call_begin(q, "extent_create");
        int r = device_create(d, e->member, w->bytes, &e->extent);

        if (!call_end(q, w, r) && r == 0)
                return -ECANCELED;
        if (r < 0) {
                e->extent = NULL;
                return r;
        }
        call_begin(q, "extent_export");
        r = d->ops->extent_export(e->extent, &e->handle);
        if (r < 0)
                e->handle.fd = -1;
        if (!call_end(q, w, r) && r == 0)
                return -ECANCELED;
        return r;
}

/* ---- the canary ------------------------------------------------------------------------------ */

/* Writes the canary's value at both ends, each call under the deadline. */
static int write_canary(struct queue *q, struct work *w, struct extent *e, uint64_t value)
{
        const uint64_t at[] = {0, e->bytes - sizeof(value)};
        int r = 0;

        for (size_t i = 0; i < ARRAY_SIZE(at) && r == 0; i++) {
                call_begin(q, "extent_write");
                r = q->device->ops->extent_write(e, at[i], &value, sizeof(value));
                (void)call_end(q, w, r);
        }
        return r;
}

static int read_canary(struct queue *q, struct work *w, struct extent *e)
{
        const uint64_t at[] = {0, e->bytes - sizeof(w->canary)};
        int r = 0;

        for (size_t i = 0; i < ARRAY_SIZE(at) && r == 0; i++) {
                uint64_t value = 0;

                call_begin(q, "extent_read");
                r = q->device->ops->extent_read(e, at[i], &value, sizeof(value));
                (void)call_end(q, w, r);
                if (r == 0 && value != w->canary)
                        r = -ESTALE;
        }
        return r;
}

/* Destroys an extent; its contents stay for processes with a descriptor. Returns as call_end(). */
static bool let_go(struct queue *q, struct work *w, struct extent *e)
{
        call_begin(q, "extent_destroy");
        q->device->ops->extent_destroy(e, false);
        return call_end(q, w, 0);
}

static int park_canary(
        struct queue *q, struct work *w, struct extent *e, unsigned member, uint32_t number)
{
        struct extent_handle handle = {.fd = -1};
        int r;

        call_begin(q, "extent_export");
        r = q->device->ops->extent_export(e, &handle);
        (void)call_end(q, w, r);
        if (r < 0)
                return r;
        r = q->park.park(q->park.data, PARKED_CANARY, number, handle.fd, w->why);
        fd_close(handle.fd);
        if (r < 0)
                return r;
        pthread_mutex_lock(&q->lock);
        q->canaries[member] = (struct queue_canary){0};
        pthread_mutex_unlock(&q->lock);
        return 0;
}

/* No extent is parked on the member without a canary. */
static int make_canary(struct queue *q, struct work *w, unsigned member)
{
        struct queue_canary canary;
        struct extent *e = NULL;
        struct device *d;
        int r;

        pthread_mutex_lock(&q->lock);
        canary = q->canaries[member];
        pthread_mutex_unlock(&q->lock);
        if (canary.number == 0)
                return 0;
        d = call_begin(q, "extent_create");
        r = device_create(d, member, d->props.granularity_bytes, &e);
        (void)call_end(q, w, r);
        if (r < 0)
                return r;
        r = write_canary(q, w, e, canary.value);
        if (r == 0)
                r = park_canary(q, w, e, member, canary.number);
        return !let_go(q, w, e) && r == 0 ? -ECANCELED : r;
}

static int check_canary(struct queue *q, struct work *w)
{
        struct extent *e = NULL;
        int r;

        w->bytes = q->device->props.granularity_bytes;
        r = import_from(q, w, w->extents[0].member, w->extents[0].handle, &e);
        if (r == 0)
                r = read_canary(q, w, e);
        if (e)
                (void)let_go(q, w, e);
        return r;
}

/* ---- creating -------------------------------------------------------------------------------- */

static int park_extents(struct queue *q, struct work *w)
{
        const struct queue_park *park = &q->park;
        unsigned n = 0;
        int r = 0;

        for (size_t i = 0; park->park && i < w->n && r == 0; i++) {
                const struct job_extent *e = &w->extents[i];

                if (e->number == 0 || e->handle.fd < 0)
                        continue;
                r = make_canary(q, w, e->member);
                if (r == 0)
                        r = park->park(park->data, PARKED_EXTENT, e->number, e->handle.fd, w->why);
                n++;
        }
        return r == 0 && n > 0 ? park->wait(park->data, w->why) : r;
}

static int create_extents(struct queue *q, struct work *w)
{
        int r = 0;

        for (size_t i = 0; i < w->n && r == 0; i++)
                r = w->is_import ? import_extent(q, w, &w->extents[i])
                                 : create_extent(q, w, &w->extents[i]);
        if (r == 0 && !w->is_import)
                r = park_extents(q, w);
        if (r < 0)
                destroy_extents(q, w->extents, w->n, !w->is_import);
        return r;
}

static int zero_extent(struct queue *q, struct work *w)
{
        struct device *d = call_begin(q, "extent_zero");
        int r = d->ops->extent_zero(w->zero, w->copies[0].offset, w->copies[0].len);

        (void)call_end(q, w, r);
        return r;
}

static int register_host(struct queue *q, struct work *w)
{
        const struct device_copy *c = &w->copies[0];
        bool is_in = w->kind == JOB_REGISTER;
        struct device *d = q->device;
        int r;

        if (!d->ops->host_register)
                return -EOPNOTSUPP;
        call_begin(q, is_in ? "host_register" : "host_unregister");
        r = (is_in ? d->ops->host_register : d->ops->host_unregister)(d, c->host, c->len);
        (void)call_end(q, w, r);
        return r;
}

/* For devices without batches. */
static int copy_one_by_one(struct queue *q, struct work *w)
{
        bool is_out = w->kind == JOB_COPY_OUT;
        const struct device_ops *ops = q->device->ops;
        int r = 0;

        for (size_t i = 0; i < w->n && r == 0; i++) {
                const struct device_copy *c = &w->copies[i];

                call_begin(q, is_out ? "extent_read" : "extent_write");
                if (is_out)
                        r = ops->extent_read(c->extent, c->offset, c->host, c->len);
                else
                        r = ops->extent_write(c->extent, c->offset, c->host, c->len);
                if (!call_end(q, w, r) && r == 0)
                        r = -ECANCELED;
        }
        return r;
}

static int copy_within(struct queue *q, struct work *w)
{
        int r = 0;

        for (size_t i = 0; i + 1 < w->n && r == 0; i += 2) {
                const struct device_copy *to = &w->copies[i], *from = &w->copies[i + 1];
                struct device *d = call_begin(q, "extent_copy");

                r = d->ops->extent_copy(
                        to->extent, to->offset, from->extent, from->offset, to->len);
                if (!call_end(q, w, r) && r == 0)
                        r = -ECANCELED;
        }
        return r;
}

/* 0: done; -EINPROGRESS: in flight. */
static int copy_work(struct queue *q, struct work *w)
{
        enum device_direction direction =
                w->kind == JOB_COPY_OUT ? DEVICE_TO_HOST : DEVICE_FROM_HOST;
        struct device *d = q->device;
        int r;

        if (!d->ops->batch_start)
                return copy_one_by_one(q, w);
        call_begin(q, "batch_start");
        r = d->ops->batch_start(d, direction, w->copies, w->n, &w->batch);
        (void)call_end(q, w, r);
        return r < 0 ? r : -EINPROGRESS;
}

int run_work(struct queue *q, struct work *w)
{
        switch (w->kind) {
        case JOB_CREATE:
                return create_extents(q, w);
        case JOB_DESTROY:
                destroy_extents(q, w->extents, w->n, !w->lets_go);
                return 0;
        case JOB_ZERO:
                return zero_extent(q, w);
        case JOB_COPY_OUT:
        case JOB_COPY_IN:
                return copy_work(q, w);
        case JOB_COPY_WITHIN:
                return copy_within(q, w);
        case JOB_CANARY:
                return check_canary(q, w);
        case JOB_REGISTER:
        case JOB_UNREGISTER:
                return register_host(q, w);
        }
        return -EINVAL;
}
