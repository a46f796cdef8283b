/* Pages that go down to the tier below a device, on real memory: whose that memory is where it is
 * less than all would use (daemon/core/reclaim/demote.h), and a set that is recalled (recall.h). */
#include <unistd.h>

#include "daemon/core/clients/attach.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/memory/wait.h"
#include "daemon/core/reclaim/recall.h"
#include "tests/unit/tier-fixture.h"

/* ---- fair shares, and what a tenant's other namespaces and sparse sets hold ---- */

#define HOST_SETS 4

/* A namespace of its own for each of some tenants, which has at most a set of the device. */
struct user {
        struct tenant *t;
        struct member *m;
        struct attach *a;
        unsigned next_key;
};

static void start_shared(struct tiers *w)
{
        struct tenant_attrs attrs;

        tiers_start(w, &evict_lru, 4, HOST_SETS, 1, CODEC_NONE);
        attrs = w->a->attrs;
        attrs.limit_bytes = 2 * TIER_SET_BYTES;
        assert_int_equal(tenant_set_attrs(w->a, &attrs, &w->d), 0);
}

#define SHARE_SCENE(fn, ...) TEST_ON(fn, struct tiers, w, start_shared, tiers_end, ##__VA_ARGS__)

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

/* Publishes n texts of one page each. Colder pages are demoted, as far as there is room. */
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

/* Checks the bytes of texts of a page that are still cached, and sets their number. Returns how
 * many are in lower tiers. */
static unsigned count_below(struct tiers *w, unsigned first_key, unsigned end, unsigned *ret_cached)
{
        unsigned n = 0;

        *ret_cached = 0;
        for (unsigned key = first_key; key < end; key++) {
                uint32_t page = tier_find(w, key);

                if (page == PAGE_NONE)
                        continue;
                assert_true(tier_is_filled(w, page, key));
                n += tier_of(w, key) == TIER_HOST;
                (*ret_cached)++;
        }
        return n;
}

/* Like count_below(), of all its texts. */
static unsigned count_of_user(struct tiers *w, const struct user *u, unsigned first_key)
{
        unsigned n_cached;

        w->attach = u->a;
        w->ns = u->a->ns;
        return count_below(w, first_key, u->next_key, &n_cached);
}

static void invalidate(struct user *u, unsigned key)
{
        uint8_t bytes[KEY_BYTES];
        uint64_t n;

        make_keys(bytes, key, 1);
        assert_int_equal(invalidate_key(u->a, bytes, &n, NULL), 0);
        assert_int_equal(n, 1);
}

/* A set with few used pages: its own namespace fills it first, and other namespaces take it back
 * first. */
SHARE_SCENE(test_sparse)
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

        start_shared(&w);
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
        assert_true(count_of_user(&w, &b, 10000) > 0);
        (void)count_of_user(&w, &a, 0);
        member_free(a.m);
        member_free(b.m);
        tiers_end(&w);
}

TEST(test_namespaces)
{
        namespaces(UINT64_MAX);
        namespaces(2 * TIER_SET_BYTES);
}

/* ---- recalled sets ---- */

#define N_KEYS  64 /* texts of one page: two sets */
#define TIMEOUT NSEC_PER_SEC

/* Two sets of the device, full of unread pages, and n_host sets below. */
static void start_full(struct tiers *w, unsigned n_host)
{
        tiers_start(w, &evict_pgi, 2, n_host, 1, CODEC_NONE);
        for (unsigned key = 0; key < N_KEYS; key++)
                assert_true(tier_cache(w, key, 1));
        assert_int_equal(w->store.moving.n_transfers, 0);
}

#define FULL_SCENE(fn, ...) TEST_ON(fn, struct tiers, w, start_full, tiers_end, ##__VA_ARGS__)

static void recall(struct tiers *w, enum recall_kind kind, uint64_t bytes)
{
        const struct recall_request rq = {.tenant = w->a, .bytes = bytes, .kind = kind};

        assert_true(recall_ask(&rq) > 0);
        tiers_check(w);
}

/* Runs one round of recalls. */
static void turn(struct tiers *w)
{
        struct pollfd fd = {.fd = mover_fd(w->store.moving.mover), .events = POLLIN};

        recall_poll(&w->store);
        while (recall_work(&w->store, w->now_nsec, TIMEOUT, 100) == RECALL_MORE)
                ;
        tiers_check(w);
        (void)transfer_start(&w->store);
        if (w->store.moving.n_transfers > 0)
                (void)poll(&fd, 1, 100);
        (void)mover_reap(w->store.moving.mover);
        (void)transfer_work(&w->store);
        tiers_check(w);
}

/* Until all that can move has. */
static void go_on(struct tiers *w)
{
        for (unsigned i = 0; i < 2 * N_KEYS / 32 + 2; i++)
                turn(w);
}

/* Checks the bytes of cached pages, their number, and how many of them are in the lower tier. */
static void expect(struct tiers *w, unsigned n_cached, unsigned n_below)
{
        unsigned cached;

        assert_int_equal(count_below(w, 0, N_KEYS, &cached), n_below);
        assert_int_equal(cached, n_cached);
        assert_int_equal(w->store.counters.evictions, N_KEYS - n_cached);
}

/* A page that is worth no more than those in the lower tier is dropped. */
FULL_SCENE(test_no_room, 1)
{
        struct tenant_attrs attrs;

        recall(w, RECALL_SOFT, UINT64_MAX);
        go_on(w);
        assert_int_equal(w->ns->device.n_sets, 0);
        expect(w, N_KEYS / 2, N_KEYS / 2);
        tiers_end(w);

        start_full(w, 4);
        attrs = w->a->attrs;
        attrs.host_limit_bytes = 0;
        assert_int_equal(tenant_set_attrs(w->a, &attrs, &w->d), 0);
        recall(w, RECALL_SOFT, 1);
        go_on(w);
        assert_int_equal(w->ns->device.n_sets, 1);
        expect(w, N_KEYS / 2, 0);
}

FULL_SCENE(test_late, 4)
{
        recall(w, RECALL_SOFT, UINT64_MAX);
        w->now_nsec += RECALL_DEMOTE_NSEC;
        go_on(w);
        assert_int_equal(w->ns->device.n_sets, 0);
        expect(w, 0, 0);
}

static unsigned n_told;

static bool note_recall(struct attach *a, const struct extent_set *set, bool idle,
        uint64_t timeout_nsec, void *data)
{
        n_told += idle;
        return true;
}

/* A client that maps the set is asked to unmap it once all of it is in the lower tier. */
FULL_SCENE(test_mapped, 4)
{
        struct extent_handle handle = {.fd = -1};

        w->store.owner.on_recall = note_recall;
        assert_int_equal(attach_map_set(w->attach, 0, 0, 1, &handle, &w->d), 1);
        assert_true(handle.fd >= 0);
        close(handle.fd);
        n_told = 0;
        recall(w, RECALL_SOFT, UINT64_MAX);
        turn(w);
        assert_int_equal(n_told, 0);
        go_on(w);
        assert_int_equal(n_told, 1);
        assert_int_equal(w->ns->device.n_sets, 1);
        expect(w, N_KEYS, N_KEYS);
        assert_int_equal(attach_unmapped(w->attach, 0, &w->d), 0);
        idle_sets_drain(&w->store);
        assert_int_equal(w->ns->device.n_sets, 0);
}
