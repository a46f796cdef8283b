#include "daemon/core/requests/lookup.h"

#include <errno.h>

#include "base/macros.h"
#include "daemon/core/catalog/lines.h"
#include "daemon/core/catalog/pages.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/client-record.h"
#include "daemon/core/clients/found.h"
#include "daemon/core/ground/detail.h"
#include "daemon/core/objects/store.h"
#include "daemon/core/records/shared.h"
#include "proto/status.h"

/* Keys, and pages to be released, whose memory is fetched ahead: as many as hide its latency behind
 * each other. Not tuned. */
#define AHEAD 8

/* Whether each of them may be pinned as often as there are keys: a run may name one that often. */
static int check_run(const struct attach *a, const uint32_t *pages, uint32_t n_pages,
        uint32_t n_keys, struct detail *d)
{
        int r = 0;

        /* No page has more pins of the client than all have. */
        if (a->member->n_pins + n_keys <= PAGE_MAX_CLIENT_PINS)
                return 0;
        for (uint32_t i = 0; i < n_pages && r == 0; i++)
                r = attach_check_page_pins(a, pages[i], n_keys, d);
        return r;
}

/* Returns the tokens in them. */
static uint64_t pin_run(struct attach *a, const uint32_t *pages, uint32_t n, uint64_t request)
{
        struct ns *ns = a->ns;
        uint64_t tokens = 0;

        for (uint32_t i = n; i-- > 0;) {
                ns_pin_page(ns, pages[i]);
                attach_note_pin(a, pages[i]);
                tokens += ns_page(ns, pages[i])->tokens;
        }
        found_note(a, pages[n - 1], request);
        return tokens;
}

/*
 * Returns how many of the keys are cached, from the first on; ret_pages has room for all. Three
 * steps for each, so that what one reads was fetched AHEAD keys ago by the one before it.
 */
static uint32_t find_run(
        const struct attach *a, const uint8_t *keys, uint32_t n_keys, uint32_t *ret_pages)
{
        const struct ns *ns = a->ns;
        uint64_t hashes[4 * AHEAD]; /* ring */

        for (uint32_t i = 0; i < n_keys + 2 * AHEAD; i++) {
                uint32_t guess = i - AHEAD, find = i - 2 * AHEAD; /* wrap around at first */
                uint64_t *hash = &hashes[i % ARRAY_SIZE(hashes)];

                if (i < n_keys) {
                        *hash = shared_hash(&ns->shared, keys + (size_t)i * KEY_BYTES);
                        shared_prefetch_home(&ns->shared, *hash);
                }
                if (guess < n_keys) {
                        hash = &hashes[guess % ARRAY_SIZE(hashes)];
                        ret_pages[guess] = shared_guess(&ns->shared, *hash);
                        lines_prefetch_used(ns, ret_pages[guess]);
                        pin_counts_prefetch(&a->pins, ret_pages[guess]);
                }
                if (find >= n_keys)
                        continue;
                hash = &hashes[find % ARRAY_SIZE(hashes)];
                ret_pages[find] = shared_find_guessed(
                        ns, *hash, keys + (size_t)find * KEY_BYTES, ret_pages[find]);
                if (ret_pages[find] == PAGE_NONE)
                        return find;
        }
        return n_keys;
}

int lookup_pages(struct attach *a, const uint8_t *keys, uint32_t n, uint64_t request,
        uint64_t now_nsec, uint32_t *ret_pages, uint32_t *ret_n, uint64_t *ret_tokens,
        struct detail *d)
{
        struct ns *ns = a->ns;
        uint32_t found;
        int r;

        store_set_now(ns_store(ns), now_nsec);
        *ret_n = 0;
        r = attach_check_version(a, d);
        if (r != 0)
                return r;
        found = find_run(a, keys, n, ret_pages);
        r = check_run(a, ret_pages, found, n, d);
        if (r == 0 && found > 0)
                r = attach_reserve_pins(a, found, d);
        if (r != 0)
                return r;
        count_lookups(ns, 1, n, found);
        if (found == 0)
                return KVL_STATUS_MISS;
        *ret_tokens = pin_run(a, ret_pages, found, request);
        *ret_n = found;
        return 0;
}

/* Counts one pin each down; all back up again where one isn't there. */
static int uncount_pins(struct attach *a, const uint32_t *pages, uint32_t n, struct detail *d)
{
        struct pin_counts *c = &a->pins;
        uint32_t i = 0;

        for (; i < n && pin_counts_get(c, pages[i]) > 0; i++)
                pin_counts_drop(c, pages[i], 1);
        if (i == n)
                return 0;
        for (uint32_t k = 0; k < i; k++)
                pin_counts_add(c, pages[k], 1);
        return detail_set(d, -EINVAL, "page %u isn't pinned by this client%s", pages[i],
                pin_counts_get(c, pages[i]) > 0 ? " that often" : "");
}

/* Of pins that were counted down. */
static void release_block(struct attach *a, const uint32_t *pages, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++)
                __builtin_prefetch(ns_note(a->ns, pages[i]), 1);
        for (uint32_t i = 0; i < n; i++)
                lines_prefetch_used(a->ns, pages[i]);
        for (uint32_t i = n; i-- > 0;) {
                attach_show_pins(a, pages[i], pin_counts_get(&a->pins, pages[i]));
                a->member->n_pins--;
                ns_unpin_page(a->ns, pages[i], 1);
        }
}

int release_pages(
        struct attach *a, const uint32_t *pages, uint32_t n, uint64_t now_nsec, struct detail *d)
{
        int r;

        store_set_now(ns_store(a->ns), now_nsec);
        r = uncount_pins(a, pages, n, d);
        if (r < 0)
                return r;
        for (uint32_t left = n, block; left > 0; left -= block) {
                block = MIN(left, 2u * AHEAD);
                release_block(a, pages + left - block, block);
        }
        return 0;
}
