#include "daemon/core/reclaim/warm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/reclaim/prefetch.h"

/* Pages looked at in one iteration of the event loop: some 100 us. Not tuned. */
#define LOOKED_MAX 4096

struct warm {
        struct warm_figures figures;
        uint64_t n_below; /* of the named pages, those in lower tiers at the beginning */
        uint32_t n_keys, n_tags;
        uint64_t tags[WARM_MAX_TAGS];
        uint32_t at; /* next key, or else page, to look at */
        uint8_t keys[];
};

static bool is_cached(const struct ns *ns, uint32_t page)
{
        const struct page *p = ns_page(ns, page);

        return p && p->state == PAGE_SEALED && !ns_page_is_stale(ns, p);
}

static bool is_lower(const struct ns *ns, uint32_t page)
{
        return tier_of_page(&ns->geometry, page) != TIER_DEVICE;
}

static uint32_t page_of_key(const struct ns *ns, const struct warm *w, uint32_t i)
{
        return ns_find_page(ns, w->keys + (size_t)i * KEY_BYTES);
}

/* Does the request name this cached page? */
static bool is_named(const struct ns *ns, const struct warm *w, uint32_t page)
{
        if (w->n_tags == 0)
                return true;
        for (uint32_t i = 0; i < w->n_tags; i++)
                if (ns_extra(ns, page)->tag == w->tags[i])
                        return true;
        return false;
}

/* ---- counting -------------------------------------------------------------------------------- */

/* Counts the text that ends there, shared beginnings once. */
static void count_text(struct ns *ns, uint32_t page, uint64_t *n_there, uint64_t *n_below)
{
        for (; page != PAGE_NONE && !ns_page(ns, page)->mark; page = tree_parent(&ns->tree, page)) {
                ns_page(ns, page)->mark = 1;
                *(is_lower(ns, page) ? n_below : n_there) += 1;
        }
}

static void unmark_text(struct ns *ns, uint32_t page)
{
        for (; page != PAGE_NONE && ns_page(ns, page)->mark; page = tree_parent(&ns->tree, page))
                ns_page(ns, page)->mark = 0;
}

static void for_each_named(struct ns *ns, const struct warm *w,
        void (*fn)(struct ns *ns, uint32_t page, uint64_t *counts), uint64_t *counts)
{
        uint32_t set_pages = ns->geometry.set_pages;

        for (uint32_t i = 0; i < w->n_keys; i++)
                if (page_of_key(ns, w, i) != PAGE_NONE)
                        fn(ns, page_of_key(ns, w, i), counts);
        if (w->n_keys > 0)
                return;
        ns_for_each_set (set, ns)
                for (uint32_t i = 0; i < set_pages; i++) {
                        uint32_t page = set->index * set_pages + i;

                        if (is_cached(ns, page) && is_named(ns, w, page))
                                fn(ns, page, counts);
                }
}

static void count_one(struct ns *ns, uint32_t page, uint64_t *counts)
{
        count_text(ns, page, &counts[0], &counts[1]);
}

static void unmark_one(struct ns *ns, uint32_t page, uint64_t *counts)
{
        unmark_text(ns, page);
}

/* counts: on the device, and in lower tiers. */
static void count_named(struct ns *ns, const struct warm *w, uint64_t counts[2])
{
        counts[0] = counts[1] = 0;
        for_each_named(ns, w, count_one, counts);
        for_each_named(ns, w, unmark_one, counts);
}

/* ---- a request ------------------------------------------------------------------------------- */

int warm_begin(struct ns *ns, const struct warm_request *rq, struct detail *d)
{
        struct prefetching *p = prefetch_get(ns);
        uint64_t counts[2];
        struct warm *w;

        if (p && p->warm && p->warm->figures.is_running)
                return detail_set(d, -EBUSY,
                        "namespace %s is being warmed already; wait for that, or call it off with: kvleasectl warm %s %s --off",
                        ns->name, ns->tenant->name, ns->name);
        w = p ? calloc(1, sizeof(*w) + (size_t)rq->n_keys * KEY_BYTES) : NULL;
        if (!w)
                return detail_set(d, -ENOMEM, "no memory to warm namespace %s", ns->name);
        w->n_keys = rq->n_keys;
        w->n_tags = rq->n_tags;
        memcpy(w->tags, rq->tags, sizeof(w->tags));
        if (rq->n_keys > 0)
                memcpy(w->keys, rq->keys, (size_t)rq->n_keys * KEY_BYTES);
        else
                w->at = tier_first_page(&ns->geometry, TIER_DEVICE + 1);
        for (uint32_t i = 0; i < w->n_keys; i++)
                w->figures.n_missing += page_of_key(ns, w, i) == PAGE_NONE;
        count_named(ns, w, counts);
        w->figures.n_there = counts[0];
        w->n_below = counts[1];
        w->figures.is_running = counts[1] > 0;
        warm_free(ns);
        p->warm = w;
        store_wake_transfers(ns->store);
        return 0;
}

static void end_warming(struct ns *ns, struct warm *w)
{
        uint64_t counts[2];

        count_named(ns, w, counts);
        w->figures.n_left = counts[1];
        w->figures.is_running = false;
}

void warm_stop(struct ns *ns)
{
        struct warm *w = ns->prefetching ? ns->prefetching->warm : NULL;

        if (w && w->figures.is_running)
                end_warming(ns, w);
}

void warm_free(struct ns *ns)
{
        free(ns->prefetching->warm);
        ns->prefetching->warm = NULL;
}

void warm_note_came(struct ns *ns)
{
        if (ns->prefetching->warm)
                ns->prefetching->warm->figures.n_came++;
}

void warm_figures(const struct ns *ns, struct warm_figures *ret)
{
        const struct warm *w = ns->prefetching ? ns->prefetching->warm : NULL;

        *ret = (struct warm_figures){0};
        if (!w)
                return;
        *ret = w->figures;
        if (ret->is_running)
                ret->n_left = w->n_below - MIN(w->n_below, ret->n_came);
}

/* ---- work ------------------------------------------------------------------------------------ */

/* Returns the next named page in a lower tier, from w->at on. PAGE_NONE: none was found; w->at says
 * whether that is the end. */
static uint32_t next_of_keys(const struct ns *ns, struct warm *w)
{
        for (; w->at < w->n_keys; w->at++) {
                uint32_t page = page_of_key(ns, w, w->at);

                if (page != PAGE_NONE && is_lower(ns, page))
                        return page;
        }
        return PAGE_NONE;
}

static uint32_t next_of_pages(const struct ns *ns, struct warm *w, uint32_t *n_looked)
{
        uint32_t set_pages = ns->geometry.set_pages;

        for (; w->at < ns->geometry.capacity_pages && *n_looked < LOOKED_MAX; ++*n_looked) {
                if (!ns_page(ns, w->at)) { /* nor the rest of a set that isn't bound */
                        w->at += set_pages - w->at % set_pages;
                        continue;
                }
                if (is_cached(ns, w->at) && is_named(ns, w, w->at))
                        return w->at;
                w->at++;
        }
        return PAGE_NONE;
}

static bool is_at_end(const struct ns *ns, const struct warm *w)
{
        return w->at >= (w->n_keys > 0 ? w->n_keys : ns->geometry.capacity_pages);
}

bool warm_work(struct ns *ns)
{
        struct prefetching *p = ns->prefetching;
        struct warm *w = p->warm;
        uint32_t n_looked = 0, page;
        enum bring b = BRING_DONE;

        if (!w || !w->figures.is_running)
                return false;
        while (b != BRING_MORE && b != BRING_FULL && !is_at_end(ns, w) && n_looked < LOOKED_MAX) {
                page = w->n_keys > 0 ? next_of_keys(ns, w) : next_of_pages(ns, w, &n_looked);
                if (page == PAGE_NONE)
                        break;
                b = prefetch_bring(ns, PREFETCH_WARM, page, PAGE_NONE);
                w->at += b != BRING_MORE && b != BRING_FULL;
                n_looked++;
        }
        w->figures.is_full = b == BRING_FULL;
        if (p->n_coming[PREFETCH_WARM] == 0 && (b == BRING_FULL || is_at_end(ns, w)))
                end_warming(ns, w);
        return w->figures.is_running;
}
