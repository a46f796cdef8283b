#include "tests/unit/fake-device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fd.h"
#include "base/macros.h"

#define PATIENCE_SEC 10

/* Small ones have bytes, which the daemon's copies move. */
#define BYTES_MAX 16384

struct fake_extent {
        struct extent extent;
        uint8_t bytes[];
};

struct fake_batch {
        struct device_batch batch;
        enum device_direction direction;
};

static struct fake_device *fake(struct device *d)
{
        return container_of(d, struct fake_device, device);
}

uint8_t *fake_bytes(struct extent *e)
{
        assert(e->bytes <= BYTES_MAX);
        return container_of(e, struct fake_extent, extent)->bytes;
}

static void note_call(struct fake_device *f, const char *call)
{
        size_t len = strlen(f->log);

        if (strcmp(call, "poll") != 0)
                snprintf(f->log + len, sizeof(f->log) - len, "%s ", call);
        if (!f->has_caller)
                return;
        if (f->caller == 0)
                f->caller = pthread_self();
        f->wrong_caller |= !pthread_equal(f->caller, pthread_self());
}

/* Every call begins here: is noted, waits, and returns with what it is to fail with; locked. */
static int enter(struct fake_device *f, const char *call)
{
        pthread_mutex_lock(&f->lock);
        note_call(f, call);
        while (f->blocked && strcmp(f->blocked, call) == 0) {
                f->inside = true;
                pthread_cond_broadcast(&f->changed);
                pthread_cond_wait(&f->changed, &f->lock);
        }
        f->inside = false;
        if (!f->failing || strcmp(f->failing, call) != 0)
                return 0;
        if (f->fail_skip > 0) {
                f->fail_skip--;
                return 0;
        }
        if (f->fail_result < 0)
                snprintf(f->device.why, sizeof(f->device.why), "%s fails by order", call);
        return f->fail_result;
}

static int leave(struct fake_device *f, int result)
{
        pthread_mutex_unlock(&f->lock);
        return result;
}

static void fake_close(struct device *d)
{
        struct fake_device *f = fake(d);

        (void)enter(f, "close");
        assert(f->n_extents == 0);
        f->closed = true;
        pthread_cond_broadcast(&f->changed);
        leave(f, 0);
}

static int fake_extent_create(struct device *d, uint64_t bytes, struct extent **ret_extent)
{
        struct fake_device *f = fake(d);
        struct extent *e;
        int r = enter(f, "create");

        assert(bytes > 0 && bytes % d->props.unit_bytes == 0);

        if (r < 0)
                return leave(f, r);
        if (f->fail_in > 0 && --f->fail_in == 0)
                return leave(f, -ENOMEM);
        e = calloc(1, sizeof(struct fake_extent) + MIN(bytes, (uint64_t)BYTES_MAX));
        if (!e)
                return leave(f, -ENOMEM);
        e->device = d;
        e->bytes = bytes;
        f->n_extents++;
        *ret_extent = e;
        return leave(f, 0);
}

static int fake_extent_export(struct extent *e, struct extent_handle *ret_handle)
{
        struct fake_device *f = fake(e->device);
        int r = enter(f, "export");

        if (r < 0)
                return leave(f, r);
        f->n_exports++;
        *ret_handle = (struct extent_handle){.fd = -1};
        if (f->hands_out_fds)
                ret_handle->fd = memfd_create_sized("fake", 4096);
        else
                memcpy(ret_handle->bytes, &f->n_exports, sizeof(f->n_exports));
        return leave(f, 0);
}

static void fake_extent_destroy(struct extent *e, bool last_owner)
{
        struct fake_device *f = fake(e->device);

        (void)enter(f, last_owner ? "destroy" : "let-go");
        assert(f->n_extents > 0);
        f->n_extents--;
        free(container_of(e, struct fake_extent, extent));
        leave(f, 0);
}

static int fake_extent_zero(struct extent *e, uint64_t offset, uint64_t len)
{
        return leave(fake(e->device), enter(fake(e->device), "zero"));
}

static int fake_extent_copy(struct extent *dst, uint64_t dst_offset, struct extent *src,
        uint64_t src_offset, uint64_t len)
{
        struct fake_device *f = fake(dst->device);
        int r = enter(f, "copy");

        assert(src->device == dst->device);
        assert(dst_offset + len <= dst->bytes && src_offset + len <= src->bytes);

        if (r == 0 && dst->bytes <= BYTES_MAX && src->bytes <= BYTES_MAX)
                memcpy(fake_bytes(dst) + dst_offset, fake_bytes(src) + src_offset, len);
        return leave(f, r);
}

static int fake_extent_read(struct extent *e, uint64_t offset, void *dst, uint64_t len)
{
        return leave(fake(e->device), enter(fake(e->device), "read"));
}

static int fake_extent_write(struct extent *e, uint64_t offset, const void *src, uint64_t len)
{
        return leave(fake(e->device), enter(fake(e->device), "write"));
}

static int fake_batch_start(struct device *d, enum device_direction direction,
        const struct device_copy *copies, size_t n, struct device_batch **ret_batch)
{
        struct fake_device *f = fake(d);
        struct fake_batch *b;
        int r = enter(f, direction == DEVICE_TO_HOST ? "start-out" : "start-in");

        if (r < 0)
                return leave(f, r);
        b = calloc(1, sizeof(*b));
        if (!b)
                return leave(f, -ENOMEM);
        b->batch.device = d;
        b->direction = direction;
        f->batch_done[direction] = false;
        *ret_batch = &b->batch;
        return leave(f, 0);
}

static int fake_batch_poll(struct device_batch *batch)
{
        struct fake_batch *b = container_of(batch, struct fake_batch, batch);
        struct fake_device *f = fake(batch->device);
        int r = enter(f, "poll");

        if (r == 0 && !f->batch_done[b->direction])
                return leave(f, -EBUSY);
        free(b);
        return leave(f, r);
}

/* How many bytes are registered, and whether they are given back whole. */
static int fake_host_register(struct device *d, void *at, uint64_t bytes)
{
        struct fake_device *f = fake(d);
        int r = enter(f, "register");

        if (r == 0)
                f->registered_bytes += bytes;
        return leave(f, r);
}

static int fake_host_unregister(struct device *d, void *at, uint64_t bytes)
{
        struct fake_device *f = fake(d);
        int r = enter(f, "unregister");

        if (r == 0 && f->registered_bytes >= bytes)
                f->registered_bytes -= bytes;
        return leave(f, r);
}

static const struct device_ops fake_ops = {
        .close = fake_close,
        .extent_create = fake_extent_create,
        .extent_export = fake_extent_export,
        .extent_destroy = fake_extent_destroy,
        .extent_zero = fake_extent_zero,
        .extent_copy = fake_extent_copy,
        .extent_read = fake_extent_read,
        .extent_write = fake_extent_write,
};

static struct device_ops batch_ops;

void fake_device_init(struct fake_device *f, const char *name, uint64_t granularity_bytes)
{
        *f = (struct fake_device){.device.ops = &fake_ops};
        strncpy(f->device.props.name, name, DEVICE_NAME_MAX);
        f->device.props.backend = "fake";
        f->device.props.transport = TRANSPORT_CUDAIPC;
        f->device.props.unit_bytes = f->device.props.granularity_bytes = granularity_bytes;
        pthread_mutex_init(&f->lock, NULL);
        pthread_cond_init(&f->changed, NULL);
}

void fake_device_deinit(struct fake_device *f)
{
        pthread_mutex_destroy(&f->lock);
        pthread_cond_destroy(&f->changed);
}

void fake_device_make_slow(struct fake_device *f, bool by_fd)
{
        f->device.props.may_block = true;
        f->device.props.transport = by_fd ? TRANSPORT_VMM : TRANSPORT_CUDAIPC;
        f->hands_out_fds = by_fd;
        f->has_caller = true;
}

void fake_device_add_batches(struct fake_device *f)
{
        batch_ops = fake_ops;
        batch_ops.batch_start = fake_batch_start;
        batch_ops.batch_poll = fake_batch_poll;
        batch_ops.host_register = fake_host_register;
        batch_ops.host_unregister = fake_host_unregister;
        f->device.ops = &batch_ops;
}

void fake_device_end_batch(struct fake_device *f, enum device_direction direction)
{
        pthread_mutex_lock(&f->lock);
        f->batch_done[direction] = true;
        pthread_mutex_unlock(&f->lock);
}

static void wait_for(struct fake_device *f, const bool *flag, const char *what)
{
        struct timespec until;
        int r = 0;

        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += PATIENCE_SEC;
        pthread_mutex_lock(&f->lock);
        while (!*flag && r == 0)
                r = pthread_cond_timedwait(&f->changed, &f->lock, &until);
        pthread_mutex_unlock(&f->lock);
        if (r != 0) {
                fprintf(stderr, "fake device: nobody is %s\n", what);
                abort();
        }
}

void fake_device_block(struct fake_device *f, const char *call)
{
        pthread_mutex_lock(&f->lock);
        f->blocked = call;
        f->inside = false;
        pthread_cond_broadcast(&f->changed);
        pthread_mutex_unlock(&f->lock);
}

void fake_device_wait_inside(struct fake_device *f)
{
        wait_for(f, &f->inside, "in the blocked call");
}

void fake_device_unblock(struct fake_device *f)
{
        pthread_mutex_lock(&f->lock);
        f->blocked = NULL;
        pthread_cond_broadcast(&f->changed);
        pthread_mutex_unlock(&f->lock);
}

void fake_device_fail(struct fake_device *f, const char *call, unsigned n, int result)
{
        pthread_mutex_lock(&f->lock);
        f->failing = call;
        f->fail_skip = n - 1;
        f->fail_result = result;
        pthread_mutex_unlock(&f->lock);
}

unsigned fake_device_count(struct fake_device *f)
{
        unsigned n;

        pthread_mutex_lock(&f->lock);
        n = f->n_extents;
        pthread_mutex_unlock(&f->lock);
        return n;
}

void fake_device_wait_closed(struct fake_device *f)
{
        wait_for(f, &f->closed, "closing the device");
}

const char *fake_device_take_log(struct fake_device *f, char buf[FAKE_LOG_BYTES])
{
        pthread_mutex_lock(&f->lock);
        memcpy(buf, f->log, FAKE_LOG_BYTES);
        f->log[0] = '\0';
        pthread_mutex_unlock(&f->lock);
        return buf;
}
