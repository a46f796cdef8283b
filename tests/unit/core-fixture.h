/* A store on a fake device, with shorthands for what tests of daemon/core do again and again. */
#ifndef KVL_TESTS_CORE_FIXTURE_H
#define KVL_TESTS_CORE_FIXTURE_H

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/core/cache/drop.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/core.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/open.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/requests/lease.h"
#include "daemon/core/requests/lookup.h"
#include "daemon/core/requests/publish.h"
#include "proto/status.h"
#include "tests/unit/at-once.h"
#include "tests/unit/fake-device.h"
#include "tests/unit/test-support.h"
#include "tests/unit/toy-layout.h"

#define SET_BYTES   1024
#define PAGE_BYTES  128
#define SET_PAGES   8 /* SET_BYTES / PAGE_BYTES */
#define PAGE_TOKENS 16

struct fixture {
        struct fake_device device;
        struct store store;
        struct tenant *a, *b;
        struct detail d;
        unsigned n_pressure, n_stale; /* callbacks */
        bool may_lack_memory;         /* allocations are made to fail: so may the checker's own */
};

static inline void count_pressure(struct ns *ns, void *data)
{
        ((struct fixture *)data)->n_pressure++;
}

static inline void count_stale(struct ns *ns, void *data)
{
        ((struct fixture *)data)->n_stale++;
}

/* Budget and limits in sets of the single-plane layout. */
static inline void fixture_start(
        struct fixture *f, unsigned budget, unsigned limit_a, unsigned limit_b)
{
        struct tenant_attrs attrs = {.weight = 1, .priority = 50, .max_clients = 8};

        *f = (struct fixture){0};
        fake_device_init(&f->device, "fake", 256);
        store_init(&f->store, &evict_lru);
        f->store.min_page_bytes = PAGE_BYTES;
        assert_int_equal(
                store_add_pool(&f->store, &f->device.device, budget * SET_BYTES, SET_BYTES, &f->d),
                0);
        attrs.limit_bytes = limit_a * SET_BYTES;
        assert_int_equal(tenant_new(&f->store, "a", &attrs, &f->a, &f->d), 0);
        attrs.limit_bytes = limit_b * SET_BYTES;
        assert_int_equal(tenant_new(&f->store, "b", &attrs, &f->b, &f->d), 0);
        f->store.owner.on_pressure = count_pressure;
        f->store.owner.on_stale = count_stale;
        f->store.owner.data = f;
}

static inline void fixture_check(struct fixture *f)
{
        uint64_t n_pages, n_sets;
        int r;

        idle_sets_drain(&f->store); /* as the server does at the end of each request */
        r = store_check(&f->store, &n_pages, &n_sets, &f->d);

        if (r != 0 && !(r == -ENOMEM && f->may_lack_memory))
                fail_msg("%s", f->d.text);
}

static inline struct member *any_member(const struct store *s)
{
        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (g, &t->groups, struct group, link)
                        if (list_first(&g->members, struct member, link))
                                return list_first(&g->members, struct member, link);
        return NULL;
}

/* Checks the store, frees the members that are left, and checks that the device has nothing left.
 */
static inline void fixture_end(struct fixture *f)
{
        struct member *m;

        fixture_check(f);
        while ((m = any_member(&f->store)))
                member_free(m);
        fixture_check(f);
        store_deinit(&f->store);
        assert_int_equal(f->device.n_extents, 0);
        assert_true(f->device.closed);
}

static inline struct ns_layout test_layout(void)
{
        return toy_layout(PAGE_BYTES);
}

static inline struct member *join(struct tenant *t)
{
        struct member *m = NULL;

        assert_int_equal(member_new(t, NULL, false, &m, NULL), 0);
        return m;
}

static inline struct attach *open_ns(struct member *m, const char *name)
{
        struct ns_layout l = test_layout();
        struct attach *a = NULL;

        assert_int_equal(attach_open(m, name, &l, "", false, &a, NULL), 0);
        return a;
}

/* A member of its own, which fixture_end() frees, opens the namespace. */
static inline struct attach *enter(struct tenant *t, const char *name)
{
        return open_ns(join(t), name);
}

/* keys[i] names i and nothing else. */
static inline void make_keys(uint8_t *keys, unsigned first, unsigned n)
{
        memset(keys, 0, n * KEY_BYTES);
        for (unsigned i = 0; i < n; i++) {
                unsigned value = first + i + 1;

                memcpy(keys + i * KEY_BYTES, &value, sizeof(value));
        }
}

/* Leases and publishes a chain of n pages from a root with keys first..; they stay pinned. */
static inline void publish_chain(struct attach *a, unsigned first, unsigned n, uint32_t *ret_pages)
{
        uint8_t keys[64 * KEY_BYTES];
        struct publish p = {.pages = ret_pages, .keys = keys, .n = n, .last_tokens = PAGE_TOKENS};
        uint32_t sealed[64], n_sealed;

        assert_true(n <= 64);
        make_keys(keys, first, n);
        assert_int_equal(lease_pages(a, n, 1, ret_pages, NULL), 0);
        assert_int_equal(publish_pages(a, &p, 1, sealed, &n_sealed, NULL), 0);
        assert_int_equal(n_sealed, n);
        assert_memory_equal(sealed, ret_pages, n * sizeof(*sealed));
}

/* Publishes a chain and releases its pages. */
static inline void cache_chain(struct attach *a, unsigned first, unsigned n)
{
        uint32_t pages[64];

        publish_chain(a, first, n, pages);
        assert_int_equal(release_pages(a, pages, n, 1, NULL), 0);
}

/* Pages found of the chain first.., pins given back at once. */
static inline uint32_t count_hits(struct attach *a, unsigned first, unsigned n)
{
        uint8_t keys[64 * KEY_BYTES];
        uint32_t pages[64], found;
        uint64_t tokens;

        make_keys(keys, first, n);
        if (lookup_pages(a, &(struct lookup_request){keys, n, 2}, pages, &found, &tokens, NULL) ==
                0)
                assert_int_equal(release_pages(a, pages, found, 2, NULL), 0);
        return found;
}

#define CORE_SCENE(fn, ...) \
        TEST_ON(fn, struct fixture, f, fixture_start, fixture_end, ##__VA_ARGS__)

#endif
