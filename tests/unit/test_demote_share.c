/* Whose memory below the device is, where it is less than all would use
 * (daemon/core/reclaim/demote.h): fair shares between tenants, and what a tenant's other namespaces
 * and sparse sets hold. */
#include "daemon/core/life/tenant-life.h"
#include "tests/unit/tier-fixture.h"

#define HOST_SETS 4

/* A namespace of its own for each of some tenants, which has at most a set of the device. */
struct user {
        struct tenant *t;
        struct member *m;
        struct attach *a;
        unsigned next_key;
};

static void start(struct tiers *w)
{
        struct tenant_attrs attrs;

        tiers_start(w, &evict_lru, 4, HOST_SETS, 1, CODEC_NONE);
        attrs = w->a->attrs;
        attrs.limit_bytes = 2 * TIER_SET_BYTES;
        assert_int_equal(tenant_set_attrs(w->a, &attrs, &w->d), 0);
}

#define SCENE(fn, ...) TEST_ON(fn, struct tiers, w, start, tiers_end, ##__VA_ARGS__)

static struct user add_user(struct tiers *w, struct tenant *t, const char *ns, unsigned first_key)
{
        struct user u = {.t = t, .m = join(t), .next_key = first_key};
        struct ns_layout l = w->ns->layout;

        assert_int_equal(attach_open(u.m, ns, &l, "", false, &u.a, &w->d), 0);
        return u;
}

static struct tenant *add_tenant(struct tiers *w, const char *name)
{
        struct tenant *t = NULL;

        assert_int_equal(tenant_new(&w->store, name, &w->a->attrs, &t, &w->d), 0);
        return t;
}

/* Texts of a page, so that what is cold goes down as far as there is room. */
static void use(struct tiers *w, struct user *u, unsigned n)
{
        w->attach = u->a;
        w->ns = u->a->ns;
        for (unsigned i = 0; i < n; i++) {
                w->now_nsec += 1000;
                assert_true(tier_cache(w, u->next_key++, 1));
                tiers_settle(w);
        }
}

static uint32_t sets_below(const struct user *u)
{
        return u->a->ns->tiers[TIER_HOST].n_sets;
}

/* Checks the bytes of all pages that are still cached. Returns how many are in lower tiers. */
static unsigned count_below(struct tiers *w, const struct user *u, unsigned first_key)
{
        unsigned n = 0;

        w->attach = u->a;
        w->ns = u->a->ns;
        for (unsigned key = first_key; key < u->next_key; key++) {
                if (tier_find(w, key) == PAGE_NONE)
                        continue;
                assert_true(tier_is_filled(w, tier_find(w, key), key));
                n += tier_of(w, key) == TIER_HOST;
        }
        return n;
}

static void invalidate(struct user *u, unsigned key)
{
        uint8_t bytes[KEY_BYTES];
        uint64_t n;

        make_keys(bytes, key, 1);
        assert_int_equal(invalidate_key(u->a, bytes, &n, NULL), 0);
        assert_int_equal(n, 1);
}

/* Sets of which little is left are no loss to anybody: their own namespace fills them first, and
 * for others they go first. */
SCENE(test_sparse)
{
        struct user a, b;
        unsigned n_kept = 0;

        a = add_user(w, w->a, "mine", 0);
        b = add_user(w, add_tenant(w, "b"), "theirs", 10000);
        use(w, &a, (1 + HOST_SETS) * TIER_SET_PAGES - 8); /* all of it stays */
        assert_int_equal(sets_below(&a), HOST_SETS);
        /* One page is left of the first two of its sets, which have its first texts. */
        for (unsigned key = 0; key < 2 * TIER_SET_PAGES; key++)
                if (key % TIER_SET_PAGES != 7)
                        invalidate(&a, key);
        assert_int_equal(sets_below(&a), HOST_SETS);
        use(w, &b, 4 * TIER_SET_PAGES);
        assert_int_equal(sets_below(&b), 2);
        for (unsigned key = 2 * TIER_SET_PAGES; key < a.next_key; key++)
                n_kept += ns_find_page(a.a->ns, (uint8_t[KEY_BYTES]){(uint8_t)(key + 1),
                                                        (uint8_t)((key + 1) >> 8)}) != PAGE_NONE;
        assert_int_equal(n_kept, a.next_key - 2 * TIER_SET_PAGES);
        /* Its own holes are filled before another set is bound. */
        for (unsigned key = 2 * TIER_SET_PAGES; key < 3 * TIER_SET_PAGES; key++)
                invalidate(&a, key);
        use(w, &a, TIER_SET_PAGES);
        assert_true(sets_below(&a) <= 2);
        member_free(a.m);
        member_free(b.m);
}

/* One namespace of a tenant doesn't keep the others from what lies below, whether the tenant's
 * limit is in the way or the tier's end. */
static void namespaces(uint64_t host_limit_bytes)
{
        struct user a, b;
        struct tenant_attrs attrs;
        struct tiers w;

        start(&w);
        attrs = w.a->attrs;
        attrs.host_limit_bytes = host_limit_bytes;
        attrs.limit_bytes = UINT64_MAX;
        assert_int_equal(tenant_set_attrs(w.a, &attrs, &w.d), 0);
        a = add_user(&w, w.a, "first", 0);
        b = add_user(&w, w.a, "second", 10000);
        use(&w, &a, (4 + HOST_SETS + 1) * TIER_SET_PAGES);
        assert_int_equal(
                sets_below(&a), MIN((uint64_t)HOST_SETS, host_limit_bytes / TIER_SET_BYTES));
        use(&w, &b, 8 * TIER_SET_PAGES);
        assert_true(sets_below(&b) > 0);
        assert_true(count_below(&w, &b, 10000) > 0);
        (void)count_below(&w, &a, 0);
        member_free(a.m);
        member_free(b.m);
        tiers_end(&w);
}

TEST(test_namespaces)
{
        namespaces(UINT64_MAX);
        namespaces(2 * TIER_SET_BYTES);
}
