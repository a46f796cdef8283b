#include "daemon/core/state/pin-counts.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/array.h"
#include "base/fd.h"
#include "base/macros.h"
#include "base/segment.h"
#include "daemon/core/state/page.h"

int pin_counts_reserve(struct pin_counts *c, uint32_t capacity_pages)
{
        void *counts = c->counts;
        int r = array_reserve(&counts, &c->len, capacity_pages, capacity_pages, sizeof(*c->counts));

        c->counts = counts;
        return r;
}

uint64_t pin_counts_bytes(uint32_t capacity_pages)
{
        return capacity_pages * (uint64_t)sizeof(uint32_t);
}

int pin_counts_map(struct pin_counts *c, int fd, uint32_t capacity_pages)
{
        void *counts = memory_map(fd, pin_counts_bytes(capacity_pages));

        if (!counts)
                return -ENOMEM;
        *c = (struct pin_counts){.counts = counts, .len = capacity_pages, .is_kept = true};
        return 0;
}

int pin_counts_adopt(struct pin_counts *c, int fd, uint32_t capacity_pages,
        uint32_t (*take)(uint32_t page, uint32_t n, void *data), void *data)
{
        const struct segment file = {.fd = fd, .bytes = pin_counts_bytes(capacity_pages)};
        int r = pin_counts_map(c, fd, capacity_pages);
        uint64_t at, end = 0;

        /* Doesn't read holes: that would allocate memory. */
        while (r == 0 && (at = segment_next_part(&file, end, &end)) < file.bytes)
                for (uint32_t page = (uint32_t)(at / sizeof(*c->counts));
                        page < end / sizeof(*c->counts); page++) {
                        uint32_t n = pin_counts_get(c, page);

                        n = n > 0 ? take(page, n, data) : 0;
                        if (c->counts[page] != n)
                                c->counts[page] = n;
                        c->n_pinned += n > 0;
                }
        return r;
}

void pin_counts_deinit(struct pin_counts *c)
{
        if (c->is_kept)
                munmap(c->counts, pin_counts_bytes(c->len));
        else
                array_free(c->counts, c->len, sizeof(*c->counts));
        *c = (struct pin_counts){0};
}

uint32_t pin_counts_next(const struct pin_counts *c, uint32_t *iter, uint32_t max)
{
        for (; max > 0 && *iter < c->len; max--)
                if (c->counts[(*iter)++] > 0)
                        return *iter - 1;
        return PAGE_NONE;
}
