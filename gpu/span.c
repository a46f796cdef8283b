/*
 * A device that spans others of one kind, its members. An extent lies on one member, which handles
 * its calls. A batch of copies runs on all members at once. Host memory is registered with the
 * first member, for all. An arena is one range of addresses with extents of all members; kernels of
 * a GPU can only access those of their own GPU.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/macros.h"
#include "base/parse.h"
#include "gpu/device.h"

#define ALL_GPUS "all"

struct span {
        struct device device;
        struct device_ops ops; /* without functions that the members lack */
        unsigned n;
        struct device *members[DEVICE_MEMBERS_MAX]; /* owned */
};

struct span_batch {
        struct device_batch batch;
        int result;                                     /* the first failure, */
        char why[DEVICE_WHY_BYTES];                     /* and its sentence */
        struct device_batch *parts[DEVICE_MEMBERS_MAX]; /* NULL: done, or nothing to do there */
};

static struct span *span_of(struct device *d)
{
        return container_of(d, struct span, device);
}

static void span_close(struct device *d)
{
        struct span *s = span_of(d);

        /* The first one has the registrations of all. */
        while (s->n > 0)
                device_close(s->members[--s->n]);
        free(s);
}

static struct device *span_member(struct device *d, unsigned index)
{
        return span_of(d)->members[MIN(index, span_of(d)->n - 1)];
}

/* ---- extents --------------------------------------------------------------------------------- */

static int span_extent_export(struct extent *e, struct extent_handle *ret_handle)
{
        return device_take_failure(e->device, e->device->ops->extent_export(e, ret_handle));
}

static void span_extent_destroy(struct extent *e, bool last_owner)
{
        e->device->ops->extent_destroy(e, last_owner);
}

static int span_extent_zero(struct extent *e, uint64_t offset, uint64_t len)
{
        return device_take_failure(e->device, e->device->ops->extent_zero(e, offset, len));
}

static int span_extent_copy(struct extent *dst, uint64_t dst_offset, struct extent *src,
        uint64_t src_offset, uint64_t len)
{
        if (src->device != dst->device) {
                snprintf(dst->device->why, sizeof(dst->device->why),
                        "pages of one plane lie on one member: not on %s too",
                        src->device->props.name);
                return device_take_failure(dst->device, -EINVAL);
        }
        return device_take_failure(
                dst->device, dst->device->ops->extent_copy(dst, dst_offset, src, src_offset, len));
}

static int span_extent_read(struct extent *e, uint64_t offset, void *dst, uint64_t len)
{
        return device_take_failure(e->device, e->device->ops->extent_read(e, offset, dst, len));
}

static int span_extent_write(struct extent *e, uint64_t offset, const void *src, uint64_t len)
{
        return device_take_failure(e->device, e->device->ops->extent_write(e, offset, src, len));
}

static void *span_extent_address(const struct extent *e)
{
        return e->device->ops->extent_address(e);
}

/* ---- batches --------------------------------------------------------------------------------- */

/* Puts the copies of the member's extents into ret_copies, which has room for n, in order. Returns
 * their number. */
static size_t copies_on(const struct device *member, const struct device_copy *copies, size_t n,
        struct device_copy *ret_copies)
{
        size_t found = 0;

        for (size_t i = 0; i < n; i++)
                if (copies[i].extent->device == member)
                        ret_copies[found++] = copies[i];
        return found;
}

static void note_failure(struct span_batch *b, const struct device *member, int r)
{
        if (r == 0 || b->result < 0)
                return;
        b->result = device_take_failure(member, r);
        memcpy(b->why, b->batch.device->why, sizeof(b->why));
}

/* If a member fails, copies on members before it continue, and the batch fails when they are
 * done. */
static int span_batch_start(struct device *d, enum device_direction direction,
        const struct device_copy *copies, size_t n, struct device_batch **ret_batch)
{
        _cleanup_free_ struct device_copy *some = calloc(n, sizeof(*some));
        struct span_batch *b = calloc(1, sizeof(*b));
        struct span *s = span_of(d);

        if (!some || !b) {
                free(b);
                return -ENOMEM;
        }
        b->batch.device = d;
        for (unsigned i = 0; i < s->n && b->result == 0; i++) {
                struct device *m = s->members[i];
                size_t n_some = copies_on(m, copies, n, some);

                if (n_some > 0)
                        note_failure(b, m,
                                m->ops->batch_start(m, direction, some, n_some, &b->parts[i]));
        }
        *ret_batch = &b->batch;
        return 0;
}

static int span_batch_poll(struct device_batch *batch)
{
        struct span_batch *b = container_of(batch, struct span_batch, batch);
        struct span *s = span_of(batch->device);
        bool is_busy = false;
        int r;

        for (unsigned i = 0; i < s->n; i++) {
                if (!b->parts[i])
                        continue;
                r = s->members[i]->ops->batch_poll(b->parts[i]);
                is_busy |= r == -EBUSY;
                if (r == -EBUSY)
                        continue;
                b->parts[i] = NULL;
                note_failure(b, s->members[i], r);
        }
        if (is_busy)
                return -EBUSY;
        r = b->result;
        if (r < 0)
                memcpy(s->device.why, b->why, sizeof(b->why));
        free(b);
        return r;
}

static int span_host_register(struct device *d, void *at, uint64_t bytes)
{
        struct device *first = span_of(d)->members[0];

        return device_take_failure(first, first->ops->host_register(first, at, bytes));
}

static int span_host_unregister(struct device *d, void *at, uint64_t bytes)
{
        struct device *first = span_of(d)->members[0];

        return device_take_failure(first, first->ops->host_unregister(first, at, bytes));
}

/* ---- arenas: of the first member, for all ---------------------------------------------------- */

static int span_arena_reserve(
        struct device *d, uint64_t bytes, uint64_t wanted, struct device_arena **ret_arena)
{
        struct device *first = span_of(d)->members[0];

        return device_take_failure(
                first, first->ops->arena_reserve(first, bytes, wanted, ret_arena));
}

static int span_arena_back(struct device_arena *a, const struct arena_backing *backing)
{
        return device_take_failure(a->device, a->device->ops->arena_back(a, backing));
}

static void span_arena_release(struct device_arena *a)
{
        a->device->ops->arena_release(a);
}

static void *span_arena_base(const struct device_arena *a)
{
        return a->device->ops->arena_base(a);
}

static int span_arena_map(
        struct device_arena *a, uint64_t offset, struct extent *e, enum device_access access)
{
        return device_take_failure(e->device, e->device->ops->arena_map(a, offset, e, access));
}

static int span_arena_unmap(struct device_arena *a, uint64_t offset, struct extent *e)
{
        return device_take_failure(e->device, e->device->ops->arena_unmap(a, offset, e));
}

static void span_arena_populate(const struct device_arena *a, uint64_t offset, uint64_t bytes)
{
        a->device->ops->arena_populate(a, offset, bytes);
}

/* Waits on each member, as each device has a default stream. For another stream the later calls
 * take no time. */
static int span_stream_wait(struct device *d, void *stream)
{
        struct span *s = span_of(d);
        int first = 0;

        for (unsigned i = 0; i < s->n; i++) {
                int r = s->members[i]->ops->stream_wait(s->members[i], stream);

                first = first == 0 ? r : first;
        }
        return first;
}

/* No stream functions: a stream is of one GPU, and doesn't order memory of the others. */
static const struct device_ops span_ops = {
        .close = span_close,
        .member = span_member,
        .extent_export = span_extent_export,
        .extent_destroy = span_extent_destroy,
        .extent_zero = span_extent_zero,
        .extent_copy = span_extent_copy,
        .extent_read = span_extent_read,
        .extent_write = span_extent_write,
        .extent_address = span_extent_address,
        .batch_start = span_batch_start,
        .batch_poll = span_batch_poll,
        .host_register = span_host_register,
        .host_unregister = span_host_unregister,
        .arena_reserve = span_arena_reserve,
        .arena_back = span_arena_back,
        .arena_release = span_arena_release,
        .arena_base = span_arena_base,
        .arena_map = span_arena_map,
        .arena_unmap = span_arena_unmap,
        .arena_populate = span_arena_populate,
        .stream_wait = span_stream_wait,
};

static struct device_ops ops_of(const struct device_ops *member)
{
        struct device_ops ops = span_ops;

        if (!member->batch_start) {
                ops.batch_start = NULL;
                ops.batch_poll = NULL;
        }
        if (!member->host_register) {
                ops.host_register = NULL;
                ops.host_unregister = NULL;
        }
        if (!member->arena_back)
                ops.arena_back = NULL;
        if (!member->arena_populate)
                ops.arena_populate = NULL;
        if (!member->stream_wait)
                ops.stream_wait = NULL;
        return ops;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* The reason why the two can't be members of one device; NULL: they can. */
static const char *difference(const struct device_props *a, const struct device_props *b)
{
        if (strcmp(a->backend, b->backend) != 0)
                return "GPUs and the host's memory";
        if (a->transport != b->transport)
                return "devices whose memory is handed over in different ways";
        if (a->granularity_bytes != b->granularity_bytes || a->unit_bytes != b->unit_bytes)
                return "devices with units of different sizes";
        return NULL;
}

static int add_member(struct span *s, struct device *m, char why[DEVICE_WHY_BYTES])
{
        const char *unlike = s->n > 0 ? difference(&s->members[0]->props, &m->props) : NULL;

        for (unsigned i = 0; i < s->n; i++)
                if (strcasecmp(s->members[i]->props.name, m->props.name) == 0)
                        unlike = "one device twice";
        if (unlike) {
                snprintf(why, DEVICE_WHY_BYTES, "no device spans %s: %s and %s", unlike,
                        s->members[0]->props.name, m->props.name);
                device_close(m);
                return -EOPNOTSUPP;
        }
        if (s->n > 0 && m->ops->host_follow)
                m->ops->host_follow(m, s->members[0]);
        m->span = &s->device;
        s->members[s->n++] = m;
        return 0;
}

static int open_member(struct span *s, const char *name, const struct device_options *options,
        char why[DEVICE_WHY_BYTES])
{
        struct device_options alone = *options;
        char text[DEVICE_WHY_BYTES] = "";
        struct device *m;
        int r;

        alone.members[0] = '\0';
        r = device_open(name, &alone, &m, text);
        if (text[0] || r < 0)
                snprintf(why, DEVICE_WHY_BYTES, "%s: %.180s", name, text[0] ? text : strerror(-r));
        return r < 0 ? r : add_member(s, m, why);
}

/* Lists all GPUs that the process may use, as text. */
static int list_gpus(char ret_text[DEVICE_MEMBERS_TEXT + 1], char why[DEVICE_WHY_BYTES])
{
        _cleanup_free_ struct device_props *props = calloc(DEVICE_MEMBERS_MAX, sizeof(*props));
        size_t len = 0;
        int n;

        if (!props)
                return -ENOMEM;
        n = cuda_backend.enumerate(props, DEVICE_MEMBERS_MAX, why);
        ret_text[0] = '\0';
        for (int i = 0; i < MIN(n, DEVICE_MEMBERS_MAX); i++)
                len += (size_t)snprintf(ret_text + len, DEVICE_MEMBERS_TEXT + 1 - len, "%s%s",
                        i > 0 ? "," : "", props[i].name);
        return n > 0 ? 0 : n < 0 ? n : -ENODEV;
}

static int open_members(
        struct span *s, const struct device_options *options, char why[DEVICE_WHY_BYTES])
{
        char names[DEVICE_MEMBERS_TEXT + 1], *save = NULL;
        int r = 0;

        strcpy(names, options->members);
        if (strcmp(names, ALL_GPUS) == 0)
                r = list_gpus(names, why);
        for (char *n = r == 0 ? strtok_r(names, ", ", &save) : NULL; n && r == 0;
                n = strtok_r(NULL, ", ", &save)) {
                if (s->n == DEVICE_MEMBERS_MAX)
                        return say_why(why, DEVICE_WHY_BYTES, -EINVAL,
                                "a device spans at most %d others", DEVICE_MEMBERS_MAX);
                r = open_member(s, n, options, why);
        }
        if (r == 0 && s->n < 2)
                return say_why(why, DEVICE_WHY_BYTES, -EINVAL,
                        "a device spans at least two others: %u given; without 'members' a single one is named by itself",
                        s->n);
        return r;
}

/* Members contribute equally: each as much as the smallest has. */
static void set_props(struct span *s, const char *name)
{
        struct device_props *p = &s->device.props;
        size_t len = 0;

        *p = s->members[0]->props;
        for (unsigned i = 0; i < s->n; i++) {
                const struct device_props *m = &s->members[i]->props;

                p->total_bytes = MIN(p->total_bytes, m->total_bytes);
                p->may_block |= m->may_block;
                if (p->numa_node != m->numa_node)
                        p->numa_node = -1;
                len += (size_t)snprintf(p->members + len, sizeof(p->members) - len, "%s%s",
                        i > 0 ? "," : "", m->name);
        }
        /* Devices of the host share its memory. */
        if (!p->is_cpu_memory)
                p->total_bytes *= s->n;
        p->n_members = s->n;
        snprintf(p->name, sizeof(p->name), "%s", name);
}

int span_open(const char *name, const struct device_options *options, struct device **ret_device,
        char why[DEVICE_WHY_BYTES])
{
        struct span *s = calloc(1, sizeof(*s));
        int r;

        if (!s)
                return -ENOMEM;
        r = open_members(s, options, why);
        if (r < 0) {
                span_close(&s->device);
                return r;
        }
        s->ops = ops_of(s->members[0]->ops);
        s->device.ops = &s->ops;
        set_props(s, name);
        *ret_device = &s->device;
        return 0;
}
