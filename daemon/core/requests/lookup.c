#include "daemon/core/requests/lookup.h"

#include <errno.h>

#include "base/macros.h"
#include "daemon/core/cache/lines.h"
#include "daemon/core/clients/request.h"
#include "daemon/core/clients/pin.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/shared.h"
#include "proto/status.h"

/* Keys whose memory is prefetched: enough to hide the latency. Not tuned. */
#define AHEAD 8

/* Can each page be pinned as often as there are keys? A run may name one that often. */
static int check_run(const struct attach *a, const uint32_t *pages, uint32_t n_pages,
        uint32_t n_keys, struct detail *d)
{
        int r = 0;

        /* No page has more of the client's pins than the client has in all. */
        if (a->member->n_pins + n_keys <= PAGE_MAX_CLIENT_PINS)
                return 0;
        for (uint32_t i = 0; i < n_pages && r == 0; i++)
                r = pin_check_page(a, pages[i], n_keys, d);
        return r;
}

/* Pins the run; returns its tokens. */
static uint64_t pin_run(struct attach *a, const uint32_t *pages, uint32_t n, uint64_t request)
{
        struct ns *ns = a->ns;
        uint64_t tokens = 0;

        for (uint32_t i = n; i-- > 0;) {
                pin_add(a, pages[i]);
                tokens += ns_page(ns, pages[i])->tokens;
        }
        (void)found_note(a, pages[n - 1], request);
        return tokens;
}

/* Returns how many leading keys are cached; ret_pages has space for all. Three steps for each key,
 * AHEAD keys apart, so that each step's reads were prefetched by the step before. */
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

int lookup_pages(struct attach *a, const struct lookup_request *rq, uint32_t *ret_pages,
        uint32_t *ret_n, uint64_t *ret_tokens, struct detail *d)
{
        struct ns *ns = a->ns;
        uint32_t found;
        int r;

        store_set_now(ns->store, rq->now_nsec);
        *ret_n = 0;
        r = attach_check_version(a, d);
        if (r != 0)
                return r;
        found = find_run(a, rq->keys, rq->n, ret_pages);
        r = check_run(a, ret_pages, found, rq->n, d);
        if (r == 0 && found > 0)
                r = pin_reserve(a, found, d);
        if (r != 0)
                return r;
        count_lookups(ns, 1, rq->n, found);
        if (found == 0)
                return KVL_STATUS_MISS;
        *ret_tokens = pin_run(a, ret_pages, found, rq->request);
        *ret_n = found;
        return 0;
}

int release_pages(
        struct attach *a, const uint32_t *pages, uint32_t n, uint64_t now_nsec, struct detail *d)
{
        store_set_now(a->ns->store, now_nsec);
        return pin_release(a, pages, n, d);
}
