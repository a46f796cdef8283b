/* Common addresses of namespaces: ranges that never overlap. */
#include <stdlib.h>

#include "daemon/core/memory/address.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

#define GIB UINT64_C(1073741824)

/* No more of a store than addresses depend on. */
struct world {
        struct store store;
        struct tenant tenants[2];
        struct device_props props;
        struct pool pool;
};

static void world_init(struct world *w)
{
        *w = (struct world){.props.is_contiguous = true, .pool.props = &w->props};
        list_init(&w->store.tenants);
        for (int i = 0; i < 2; i++) {
                list_init(&w->tenants[i].namespaces);
                list_append(&w->store.tenants, &w->tenants[i].link);
        }
}

static struct ns *add(struct world *w, unsigned tenant, uint64_t bytes)
{
        struct ns *ns = calloc(1, sizeof(*ns));

        assert_non_null(ns);
        ns->device.pool = &w->pool;
        ns->geometry = (struct ns_geometry){
                .set_bytes = bytes, .tiers[TIER_DEVICE].n_sets = 1, .n_set_slots = 1};
        ns->address = address_take(&w->store, ns);
        list_append(&w->tenants[tenant].namespaces, &ns->link);
        return ns;
}

static void drop(struct ns *ns)
{
        list_remove(&ns->link);
        free(ns);
}

static void drop_all(struct world *w)
{
        for (int i = 0; i < 2; i++)
                list_for_each_safe (ns, &w->tenants[i].namespaces, struct ns, link)
                        drop(ns);
}

#define SCENE(fn, ...) TEST_ON(fn, struct world, w, world_init, drop_all, ##__VA_ARGS__)

SCENE(test_handed_out_again)
{
        struct ns *a, *b, *c;

        a = add(w, 0, 16384 * GIB);
        b = add(w, 1, 16384 * GIB);
        drop(a);
        /* A freed address is used again as late as possible. */
        c = add(w, 0, 16384 * GIB);
        assert_int_equal(c->address, ADDRESS_FIRST + 32768 * GIB);
        a = add(w, 0, 16384 * GIB);
        assert_int_equal(a->address, ADDRESS_FIRST);
        assert_int_equal(add(w, 0, 1)->address, 0);
        drop(b);
        assert_int_equal(add(w, 0, 16384 * GIB + 1)->address, 0);
        assert_int_equal(add(w, 1, 16384 * GIB)->address, ADDRESS_FIRST + 16384 * GIB);
        assert_int_equal(add(w, 1, UINT64_MAX / 2)->address, 0);
}

int main(void)
{
        random_start("test_address");
        return test_run_all(NULL, NULL);
}
