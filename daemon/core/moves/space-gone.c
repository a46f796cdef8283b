/* Removes pages that a disk has lost or must lose, and promises that they don't come back. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/cache/drop.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/moves/copy-batch.h"
#include "daemon/core/moves/space-impl.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"

void space_on_durable(int result, void *data)
{
        (void)result;
        (void)data;
}

/* ---- entries, and pages without one ---------------------------------------------------------- */

void space_remove_entry(struct ns *ns, uint64_t at, const uint8_t key[KEY_BYTES])
{
        struct disk_ref ref = {.at = at};

        memcpy(ref.key, key, KEY_BYTES);
        (void)disk_remove(ns->space.disk, &ref, 1, NULL, NULL); /* without callback: never fails */
}

bool space_is_at(const struct ns *ns, uint32_t page, uint64_t at)
{
        return page != PAGE_NONE && tier_of_page(&ns->geometry, page) == TIER_DISK &&
               ns_extra(ns, page)->content == at;
}

void space_forget(struct ns *ns, uint32_t page)
{
        uint64_t at = ns_extra(ns, page)->content;
        const uint8_t *key = ns_page(ns, page)->key;
        uint32_t other = ns_find_page(ns, key);

        /* The page was invalidated before it was FREE, and its place has another page with that key
         * now. */
        if (ns->space.disk && (other == page || !space_is_at(ns, other, at)))
                space_remove_entry(ns, at, key);
}

void space_discard(struct ns *ns, uint64_t at, const uint8_t key[KEY_BYTES])
{
        if (ns->space.disk)
                space_remove_entry(ns, at, key);
}

void space_drop_page(struct ns *ns, uint32_t page)
{
        const struct page *p = ns_page(ns, page);

        if (p->state == PAGE_SEALED && !ns_page_is_stale(ns, p))
                (void)ns_drop_subtree(ns, page, (struct drop_reason){.why = EVICT_PRESSURE});
}

/* ---- removing in slices ---------------------------------------------------------------------- */

static uint32_t remove_some_unknown(struct ns *ns, uint32_t budget)
{
        struct ns_space *s = &ns->space;
        const struct disk_page *p;
        uint32_t n = 0;
        uint64_t at;

        for (; n < budget; n++) {
                uint8_t key[KEY_BYTES];

                if (!disk_page_next(s->disk, &s->unknown_iter, &p, &at)) {
                        space_stop_removing(ns);
                        break;
                }
                if (space_is_at(ns, ns_find_page(ns, p->key), at))
                        continue;
                memcpy(key, p->key, KEY_BYTES); /* the disk's own is freed with its entry */
                space_remove_entry(ns, at, key);
        }
        return n;
}

static uint32_t drop_some_missing(struct ns *ns, uint32_t budget)
{
        uint32_t end =
                tier_first_page(&ns->geometry, TIER_DISK) + tier_n_pages(&ns->geometry, TIER_DISK);
        struct ns_space *s = &ns->space;
        uint32_t n = 0;

        for (; n < budget && s->missing_page < end; n++) {
                uint32_t page = s->missing_page++;
                const struct page *p = ns_page(ns, page);

                if (!p) /* nor is the rest of its set bound */
                        s->missing_page +=
                                ns->geometry.set_pages - page % ns->geometry.set_pages - 1;
                else if (p->state == PAGE_SEALED &&
                         !disk_page_at(s->disk, ns_extra(ns, page)->content, p->key))
                        space_drop_page(ns, page);
        }
        s->drops_missing = s->missing_page < end;
        return n;
}

uint32_t space_clean(struct ns *ns, uint32_t budget)
{
        uint32_t n = 0;

        if (ns->space.drops_missing)
                n = drop_some_missing(ns, budget);
        if (ns->space.removes_unknown && n < budget)
                n += remove_some_unknown(ns, budget - n);
        return n;
}

static void begin_cleaning(struct ns *ns)
{
        (void)space_clean(ns, ns->store->drop_slice_pages);
        if (space_is_cleaning(&ns->space))
                store_wake_transfers(ns->store);
}

void space_drop_missing(struct ns *ns)
{
        ns->space.drops_missing = true;
        ns->space.missing_page = tier_first_page(&ns->geometry, TIER_DISK);
        begin_cleaning(ns);
}

void space_stop_removing(struct ns *ns)
{
        ns->store->moving.n_removing -= ns->space.removes_unknown;
        ns->space.removes_unknown = false;
}

void space_remove_unknown(struct ns *ns)
{
        ns->store->moving.n_removing += !ns->space.removes_unknown;
        ns->space.removes_unknown = true;
        ns->space.unknown_iter = 0;
        begin_cleaning(ns);
}

/* ---- promises -------------------------------------------------------------------------------- */

struct promise {
        struct list_link link; /* store.promises, until no removal is under way */
        struct store *store;
        unsigned n_left; /* disks without an answer, and the caller itself */
        int result;
        space_fn done;
        void *data;
};

static void end_one(struct promise *p)
{
        if (--p->n_left > 0)
                return;
        p->done(p->result, p->data);
        free(p);
}

static void on_kept(int result, void *data)
{
        struct promise *p = data;

        if (result < 0)
                p->result = result;
        end_one(p);
}

/* Returns how many disks will answer; sets p->result if one won't. */
static unsigned ask_disks(struct promise *p)
{
        unsigned n = 0;

        batch_unwrite_gone(p->store);
        list_for_each (pool, &p->store->lower_pools, struct pool, link) {
                int r;

                if (!pool->disk || p->result < 0)
                        continue;
                p->n_left++;
                r = disk_remove_sync(pool->disk, on_kept, p);
                if (r < 0) {
                        p->n_left--;
                        p->result = r;
                } else {
                        n++;
                }
        }
        return n;
}

int space_promise(struct store *s, space_fn done, void *data)
{
        struct promise *p = calloc(1, sizeof(*p));

        if (!p)
                return -ENOMEM;
        *p = (struct promise){.store = s, .n_left = 1, .done = done, .data = data};
        if (s->moving.n_removing > 0) {
                list_append(&s->moving.promises, &p->link);
                return 0;
        }
        if (ask_disks(p) == 0) {
                int r = p->result;

                free(p);
                return r < 0 ? r : SPACE_KEPT;
        }
        end_one(p);
        return 0;
}

void space_begin_promises(struct store *s)
{
        if (s->moving.n_removing > 0)
                return;
        list_for_each_safe (p, &s->moving.promises, struct promise, link) {
                list_remove(&p->link);
                (void)ask_disks(p);
                end_one(p);
        }
}

void space_cancel_promises(struct store *s)
{
        list_for_each_safe (p, &s->moving.promises, struct promise, link) {
                list_remove(&p->link);
                p->result = -ECANCELED;
                end_one(p);
        }
}
