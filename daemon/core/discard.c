#include "daemon/core/discard.h"

#include <assert.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/core/store.h"
#include "gpu/device.h"

/* Below 100 microseconds on machines of 2026. Not tuned. */
#define PIECE_BYTES ((uint64_t)512 << 10)

static void destroy(struct extent *e)
{
        e->device->ops->extent_destroy(e, true);
}

static void destroy_oldest(struct discards *d)
{
        destroy(d->extents[0]);
        memmove(d->extents, d->extents + 1, --d->n * sizeof(d->extents[0]));
        d->done_bytes = 0;
}

void discard_extent(struct store *s, struct extent *e)
{
        struct discards *d = &s->discards;

        if (!s->on_work) {
                destroy(e);
                return;
        }
        if (d->n == DISCARDS_MAX)
                destroy_oldest(d);
        d->extents[d->n++] = e;
        s->on_work(s->callback_data);
}

bool discard_work(struct store *s)
{
        struct discards *d = &s->discards;
        struct extent *e;
        uint64_t bytes;
        int r;

        if (d->n == 0)
                return false;
        e = d->extents[0];
        bytes = MIN(PIECE_BYTES, e->bytes - d->done_bytes);
        r = e->device->ops->extent_zero(e, d->done_bytes, bytes);
        d->done_bytes += bytes;
        if (r < 0 || d->done_bytes == e->bytes)
                destroy_oldest(d); /* which zeroes what could not be */
        return d->n > 0;
}

void discard_all(struct store *s)
{
        while (s->discards.n > 0)
                destroy_oldest(&s->discards);
}
