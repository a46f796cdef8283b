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

SCENE(test_one_behind_the_other)
{
        struct ns *a, *b, *c;

        a = add(w, 0, 1);
        b = add(w, 1, GIB + 1);
        c = add(w, 0, 5 * GIB);
        assert_int_equal(a->address, ADDRESS_FIRST);
        assert_int_equal(b->address, ADDRESS_FIRST + GIB);
        assert_int_equal(c->address, ADDRESS_FIRST + 3 * GIB);
        w->props.is_contiguous = false;
        assert_int_equal(add(w, 0, GIB)->address, 0);
}

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

static void check_all(struct world *w, const struct ns *ns)
{
        assert_true(ns->address % ADDRESS_STEP == 0 && ns->address >= ADDRESS_FIRST &&
                    ns->address + address_bytes(ns) <= ADDRESS_END);
        for (int i = 0; i < 2; i++)
                list_for_each (other, &w->tenants[i].namespaces, struct ns, link)
                        if (other != ns && other->address)
                                assert_true(other->address + address_bytes(other) <= ns->address ||
                                            ns->address + address_bytes(ns) <= other->address);
}

SCENE(test_random)
{
        unsigned n_given = 0, n_refused = 0;
        struct list_link *from;

        for (int i = 0; i < 3000; i++) {
                struct ns *ns = add(w, random_below(2), 1 + random_u64() % (2048 * GIB));

                if (ns->address) {
                        check_all(w, ns);
                        n_given++;
                        continue;
                }
                n_refused++;
                drop(ns);
                from = &w->tenants[random_below(2)].namespaces;
                ns = list_first(from, struct ns, link);
                if (ns)
                        drop(ns);
        }
        assert_true(n_given > 500 && n_refused > 500);
}

int main(void)
{
        random_start("test_address");
        return test_run_all(NULL, NULL);
}
