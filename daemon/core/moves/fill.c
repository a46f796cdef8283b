#include "daemon/core/moves/fill.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "daemon/core/cache/pages.h"
#include "daemon/core/memory/run.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/pool.h"
#include "daemon/core/state/store.h"

/* Returns 0 or -errno. */
static int find_planes(const struct fill *f, struct iovec *planes)
{
        const struct ns_layout *l = &f->ns->layout;

        for (uint32_t plane = 0; plane < l->n_planes; plane++) {
                planes[plane].iov_base = set_address(f->set, f->page, plane);
                planes[plane].iov_len = l->plane_page_bytes;
                if (!planes[plane].iov_base)
                        return -ENOMEM;
        }
        return 0;
}

/* Sets the bit of the fill's page in its set's bitmap, which exists. */
static void mark(const struct fill *f, bool is_filled)
{
        uint64_t *word, bit = fill_bit(f->set, f->page, &word);

        *word = is_filled ? *word | bit : *word & ~bit;
}

/* Returns 0 or -ENOMEM. */
static int make_bitmap(struct extent_set *set)
{
        struct set_moving *m = &set->moving;

        if (!m->filled)
                m->filled = calloc(run_words(set->ns->geometry.set_pages), sizeof(*m->filled));
        return m->filled ? 0 : -ENOMEM;
}

bool fill_is_possible(const struct ns *ns)
{
        return !ns->device.pool->queue && page_travel_form(&ns->codecs.of_pages) == TIER_DEVICE;
}

int fill_begin(struct ns *ns, uint32_t page, const struct fill_writer *writer, struct iovec *planes,
        struct fill **ret_fill)
{
        struct fill *f = malloc(sizeof(*f));
        int r;

        assert(fill_is_possible(ns) && ns_page(ns, page)->state == PAGE_GRANTED);

        if (!f)
                return -ENOMEM;
        *f = (struct fill){.ns = ns, .set = ns_set_of(ns, page), .page = page, .writer = *writer};
        r = make_bitmap(f->set);
        if (r == 0 && fill_has(f->set, page))
                r = -EBUSY;
        if (r == 0)
                r = find_planes(f, planes);
        if (r < 0) {
                free(f);
                return r;
        }
        f->set->moving.n_busy++;
        list_init(&f->link);
        list_append(&f->set->moving.fills, &f->link);
        mark(f, true);
        *ret_fill = f;
        return 0;
}

/* Ends the fill's use of its set. */
static void leave(struct fill *f)
{
        list_remove(&f->link);
        mark(f, false);
        f->set->moving.n_busy--;
}

int fill_end(struct fill *f)
{
        /* No other client gets the page meanwhile, but its client could publish it. */
        enum page_state state = ns_page(f->ns, f->page)->state;

        leave(f);
        if (state == PAGE_MOVING)
                ns_free_page(f->ns, f->page);
        idle_sets_add(f->set);
        free(f);
        return state == PAGE_GRANTED ? 0 : -ECANCELED;
}

static void forget_set(struct extent_set *set)
{
        list_for_each_safe (f, &set->moving.fills, struct fill, link) {
                f->writer.stop(f->writer.data);
                leave(f);
                free(f);
        }
}

void fill_forget_ns(struct ns *ns)
{
        ns_for_each_set (set, ns)
                forget_set(set);
}

uint64_t fill_count_moving(const struct ns *ns)
{
        uint64_t n = 0;

        ns_for_each_set (set, ns)
                list_for_each (f, &set->moving.fills, struct fill, link)
                        n += ns_page(ns, f->page)->state == PAGE_MOVING;
        return n;
}

bool fill_has_moving(const struct ns *ns, uint32_t page)
{
        return fill_has(ns_set_of(ns, page), page) && ns_page(ns, page)->state == PAGE_MOVING;
}
