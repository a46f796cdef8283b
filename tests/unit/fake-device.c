#include "tests/unit/fake-device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

static struct fake_device *fake(struct device *d)
{
        return container_of(d, struct fake_device, device);
}

static void fake_close(struct device *d)
{
        assert(fake(d)->n_extents == 0);
        fake(d)->closed = true;
}

static int fake_extent_create(struct device *d, uint64_t bytes, struct extent **ret_extent)
{
        struct fake_device *f = fake(d);
        struct extent *e;

        assert(bytes > 0 && bytes % d->props.granularity_bytes == 0);

        if (f->fail_in > 0 && --f->fail_in == 0)
                return -ENOMEM;
        e = calloc(1, sizeof(*e));
        if (!e)
                return -ENOMEM;
        e->device = d;
        e->bytes = bytes;
        f->n_extents++;
        *ret_extent = e;
        return 0;
}

static int fake_extent_export(struct extent *e, struct extent_handle *ret_handle)
{
        fake(e->device)->n_exports++;
        *ret_handle = (struct extent_handle){.fd = -1};
        return 0;
}

static void fake_extent_destroy(struct extent *e, bool last_owner)
{
        assert(last_owner && fake(e->device)->n_extents > 0);
        fake(e->device)->n_extents--;
        free(e);
}

void fake_device_init(struct fake_device *f, const char *name, uint64_t granularity_bytes)
{
        static const struct device_ops ops = {
                .close = fake_close,
                .extent_create = fake_extent_create,
                .extent_export = fake_extent_export,
                .extent_destroy = fake_extent_destroy,
        };

        *f = (struct fake_device){.device.ops = &ops};
        strncpy(f->device.props.name, name, DEVICE_NAME_MAX);
        f->device.props.backend = "fake";
        f->device.props.transport = TRANSPORT_CUDAIPC;
        f->device.props.granularity_bytes = granularity_bytes;
}
