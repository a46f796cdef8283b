#include "daemon/core/clients/announce.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/fault-point.h"
#include "daemon/core/cache/announced.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/shared.h"
#include "proto/status.h"

/* ---- announce -------------------------------------------------------------------------------- */

static int check_page(const struct attach *a, uint32_t page, struct detail *d)
{
        const struct ns *ns = a->ns;
        int r = grants_check_page(a, page, d);

        if (r < 0)
                return r;
        if (ns_page(ns, page)->epoch != (uint32_t)ns->epoch)
                return detail_set(d, KVL_STATUS_STALE,
                        "page %u was granted before namespace %s was invalidated; free it", page,
                        ns->name);
        if (ns_page(ns, page)->announced)
                return detail_set(d, -EINVAL, "page %u is announced already", page);
        return 0;
}

/* Is the key cached, or announced? 0: neither. */
static int check_key(const struct ns *ns, uint64_t hash, const uint8_t *key, uint32_t *ret_page,
        struct detail *d)
{
        uint32_t page = shared_find(ns, hash, key);

        if (page != PAGE_NONE) {
                *ret_page = page;
                return detail_set(d, KVL_STATUS_DUPLICATE, "the key is cached: look it up");
        }
        page = announce_find(ns, hash, key);
        if (page == PAGE_NONE)
                return 0;
        *ret_page = page;
        ns->store->counters.announces_pending++;
        return detail_set(d, KVL_STATUS_PENDING, "client %llu is computing the key: wait for it",
                (unsigned long long)ns_extra(ns, page)->announcer);
}

static int announce_page(
        struct attach *a, uint32_t page, uint64_t hash, const uint8_t *key, struct detail *d)
{
        struct ns *ns = a->ns;
        struct page *p = ns_page(ns, page);

        if (ns_set_of(ns, page)->recall.state != RECALL_NONE)
                return detail_set(d, -ENOSPC,
                        "page %u is in memory that is taken back: no lookup will find it; go on without announcing it",
                        page);
        FAULT_POINT("announce-before-key");
        memcpy(p->key, key, KEY_BYTES);
        FAULT_POINT("announce-after-key");
        shared_describe(ns, page);
        shared_show_pending(ns, page);
        if (!shared_insert(ns, hash, page)) {
                shared_hide_pending(ns, page);
                return detail_set(d, -ENOSPC,
                        "the index of namespace %s has no slot left where this key could be; go on without announcing it",
                        ns->name);
        }
        announce_enter(ns, page, a->member->id);
        a->has_announced = true;
        ns->store->counters.announced++;
        return 0;
}

int announce_pages(struct attach *a, const uint32_t *pages, const uint8_t *keys, uint32_t n,
        uint32_t *ret_n, uint32_t *ret_page, struct detail *d)
{
        struct ns *ns = a->ns;
        int r;

        *ret_n = 0;
        (void)announce_withdraw_some(a, UINT64_MAX); /* or these would be withdrawn, too */
        r = attach_check_version(a, d);
        for (uint32_t i = 0; i < n && r == 0; i++) {
                const uint8_t *key = keys + (size_t)i * KEY_BYTES;
                uint64_t hash = shared_hash(&ns->shared, key);

                r = check_page(a, pages[i], d);
                if (r == 0)
                        r = check_key(ns, hash, key, ret_page, d);
                if (r == 0)
                        r = announce_page(a, pages[i], hash, key, d);
                *ret_n += r == 0;
        }
        return r;
}

int announce_state_in(const struct ns *ns, const uint8_t key[KEY_BYTES])
{
        uint64_t hash = shared_hash(&ns->shared, key);

        if (shared_find(ns, hash, key) != PAGE_NONE)
                return 0;
        return announce_find(ns, hash, key) != PAGE_NONE ? KVL_STATUS_PENDING : KVL_STATUS_MISS;
}

int announce_state(const struct attach *a, const uint8_t key[KEY_BYTES], struct detail *d)
{
        int r = attach_check_version(a, d);

        return r == 0 ? announce_state_in(a->ns, key) : r;
}
