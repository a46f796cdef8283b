#include "daemon/core/discard.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/core/store.h"
#include "gpu/device.h"

/* Some 100 microseconds on machines of 2026. Not tuned. */
#define PIECE_BYTES ((uint64_t)512 << 10)

struct discard {
        struct list_link link;
        struct discarded what; /* of `extents` below */
        uint32_t first;        /* what lies before it has gone */
        uint64_t done_bytes;   /* of that one, from its start */
        struct extent *extents[];
};

void discards_init(struct discards *d)
{
        list_init(&d->waiting);
        d->n_extents = 0;
}

static void destroy_extent(const struct discarded *what, uint32_t i)
{
        struct extent *e = what->extents[i];

        if (what->arena)
                (void)e->device->ops->arena_unmap(what->arena, i * what->extent_bytes, e);
        e->device->ops->extent_destroy(e, true);
}

/* From `first` on, and the arena, whose extents have all gone then. */
static void destroy(const struct discarded *what, uint32_t first)
{
        const struct device_ops *ops;

        if (what->n == 0)
                return;
        ops = what->extents[what->n - 1]->device->ops;
        for (uint32_t i = first; i < what->n; i++)
                destroy_extent(what, i);
        if (what->arena)
                ops->arena_release(what->arena);
}

void discard_now(const struct discarded *what)
{
        destroy(what, 0);
}

static void destroy_oldest(struct discards *d)
{
        struct discard *oldest = list_first(&d->waiting, struct discard, link);

        d->n_extents -= oldest->what.n - oldest->first;
        destroy(&oldest->what, oldest->first);
        list_remove(&oldest->link);
        free(oldest);
}

static struct discard *discard_new(const struct discarded *what)
{
        struct discard *d = calloc(1, sizeof(*d) + what->n * sizeof(d->extents[0]));

        if (!d)
                return NULL;
        list_init(&d->link);
        d->what = *what;
        d->what.extents = d->extents;
        memcpy(d->extents, what->extents, what->n * sizeof(d->extents[0]));
        return d;
}

void discard_extents(struct store *s, const struct discarded *what)
{
        struct discards *d = &s->discards;
        struct discard *new = s->on_work && what->n > 0 ? discard_new(what) : NULL;

        if (!new) {
                discard_now(what);
                return;
        }
        while (!list_is_empty(&d->waiting) && d->n_extents + what->n > DISCARDS_MAX_EXTENTS)
                destroy_oldest(d);
        list_append(&d->waiting, &new->link);
        d->n_extents += what->n;
        s->on_work(s->callback_data);
}

/*
 * Zeroed while it is mapped: the kernel unmaps what goes piece by piece, where unmapping first
 * would take all of it at once.
 */
bool discard_work(struct store *s)
{
        struct discards *d = &s->discards;
        struct discard *oldest = list_first(&d->waiting, struct discard, link);
        struct extent *e;
        uint64_t bytes;
        int r;

        if (!oldest)
                return false;
        e = oldest->extents[oldest->first];
        bytes = MIN(PIECE_BYTES, e->bytes - oldest->done_bytes);
        r = e->device->ops->extent_zero(e, oldest->done_bytes, bytes);
        oldest->done_bytes += bytes;
        if (r < 0 || oldest->done_bytes == e->bytes) {
                if (oldest->first + 1 == oldest->what.n) {
                        destroy_oldest(d); /* which zeroes what could not be */
                } else {
                        destroy_extent(&oldest->what, oldest->first++);
                        oldest->done_bytes = 0;
                        d->n_extents--;
                }
        }
        return !list_is_empty(&d->waiting);
}

void discard_all(struct store *s)
{
        while (!list_is_empty(&s->discards.waiting))
                destroy_oldest(&s->discards);
}
