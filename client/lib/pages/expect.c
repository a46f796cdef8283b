/* Hints about future lookups. In shared memory the last cached page of the sequence is found here
 * and submitted. Otherwise the keys go over the socket, and the daemon looks. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "client/lib/calls/op.h"
#include "client/lib/connection/error.h"
#include "client/lib/objects/args.h"
#include "client/lib/calls/flight.h"

/* A binary search for the last cached page: if a page is cached, so are those before it. Returns
 * KVL_PAGE_NONE if not even the first is cached. Pins nothing: a hint. */
static uint32_t peek_deepest(const struct fast *f, const uint8_t *keys, uint32_t n_keys)
{
        uint32_t n_found = 0, deepest = KVL_PAGE_NONE;

        while (n_found < n_keys) {
                uint32_t half = n_found + (n_keys - n_found + 1) / 2, page;

                if (fast_peek(f, keys + (size_t)(half - 1) * KVL_KEY_BYTES, 1, &page) == 0) {
                        n_keys = half - 1;
                        continue;
                }
                deepest = page;
                n_found = half;
        }
        return deepest;
}

static int expect_shared(struct kvl_ns *ns, const uint8_t *keys, uint32_t n_keys, uint32_t ttl_msec)
{
        uint32_t page;

        if (fast_is_stale(&ns->fast))
                return KVL_STALE;
        page = peek_deepest(&ns->fast, keys, n_keys);
        if (page == KVL_PAGE_NONE)
                return 0;
        return flight_expect(ns, page, fast_generation(&ns->fast, page), ttl_msec);
}

static int send_expect(struct kvl_ns *ns, const uint8_t *keys, uint32_t n_keys, uint32_t ttl_msec)
{
        Kvlease__V1__ExpectRequest m = KVLEASE__V1__EXPECT_REQUEST__INIT;
        struct conn *c = conn_of(ns);
        int r;

        m.ns_id = ns->id;
        m.keys.data = (uint8_t *)keys;
        m.keys.len = (size_t)n_keys * KVL_KEY_BYTES;
        m.ttl_msec = ttl_msec;
        conn_lock(c);
        r = conn_is_congested(c) ? -EAGAIN : conn_notify(c, MSG_EXPECT, &m.base);
        conn_unlock(c);
        return r;
}

/* If the keys don't fit a message, sends every second, third, ... key, counted from the last. If a
 * key is cached, so are those before it. */
static int send_some(struct kvl_ns *ns, const uint8_t *keys, uint32_t n_keys, uint32_t ttl_msec)
{
        uint32_t step = (n_keys - 1) / KVL_MAX_LOOKUP_KEYS + 1, n = n_keys / step;
        _cleanup_free_ uint8_t *some = NULL;

        if (step == 1)
                return send_expect(ns, keys, n_keys, ttl_msec);
        some = malloc((size_t)n * KVL_KEY_BYTES);
        if (!some)
                return -ENOMEM;
        for (uint32_t i = 0; i < n; i++)
                memcpy(some + (size_t)i * KVL_KEY_BYTES,
                        keys + (size_t)(n_keys - 1 - (n - 1 - i) * step) * KVL_KEY_BYTES,
                        KVL_KEY_BYTES);
        return send_expect(ns, some, n, ttl_msec);
}

int kvl_expect(struct kvl_ns *ns, const uint8_t *keys, uint32_t n_keys, uint32_t ttl_msec)
{
        int r = args_check_keys(ns, keys, n_keys, UINT32_MAX);

        if (r < 0)
                return r;
        if (ttl_msec > KVL_MAX_EXPECT_MSEC)
                return error_set(-EINVAL,
                        "a request that comes in %u ms is none that is expected: %u are allowed",
                        ttl_msec, KVL_MAX_EXPECT_MSEC);
        r = fast_is_open(&ns->fast) ? expect_shared(ns, keys, n_keys, ttl_msec) : -EOPNOTSUPP;
        if (r == -EOPNOTSUPP)
                r = send_some(ns, keys, n_keys, ttl_msec);
        return error_note(r, "");
}
