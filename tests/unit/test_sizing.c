/* Demand as it is sampled, and what the sizer and schedules do to reservations. */
#include "base/clock.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/sizing.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/memory/wait.h"
#include "daemon/core/state/shared.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/core-fixture.h"

#define WINDOW   NSEC_PER_SEC
#define COOLDOWN (NSEC_PER_SEC / 10)
#define TICK     (NSEC_PER_SEC / 100)
#define NOON     (12 * 3600)

struct rig {
        struct fixture f;
        struct member *m;
        struct attach *ns;
        uint64_t now;
        uint32_t second;
        unsigned n_moved;
        uint64_t moved_from;
        uint32_t pages[4096];
        uint32_t n_pages;
};

static void note_moved(const struct tenant *t, uint64_t before_bytes, void *data)
{
        struct rig *rig = data;

        rig->n_moved++;
        rig->moved_from = before_bytes;
}

/* In sets. */
static void set_reserve(struct tenant *t, unsigned sets)
{
        struct tenant_attrs attrs = t->attrs;

        attrs.class = TENANT_PINNED;
        attrs.reserve_bytes = sets * SET_BYTES;
        assert_int_equal(tenant_set_attrs(t, &attrs, NULL), 0);
}

static struct sizing_attrs sizer(enum sizing_mode mode, unsigned min, unsigned max)
{
        return (struct sizing_attrs){
                .mode = mode, .min_bytes = min * SET_BYTES, .max_bytes = max * SET_BYTES};
}

static void rig_start(struct rig *rig, unsigned budget, unsigned reserve)
{
        memset(rig, 0, sizeof(*rig));
        fixture_start(&rig->f, budget, budget, budget);
        set_reserve(rig->f.a, reserve);
        rig->m = join(rig->f.a);
        rig->ns = open_ns(rig->m, "ns");
        rig->now = 1000;
        rig->second = NOON;
}

static void rig_end(struct rig *rig)
{
        member_free(rig->m);
        fixture_end(&rig->f);
}

#define SCENE(fn, ...) TEST_ON(fn, struct rig, rig, rig_start, rig_end, ##__VA_ARGS__)

static void tick(struct rig *rig)
{
        struct sizing_params p = {.window_nsec = WINDOW,
                .cooldown_nsec = COOLDOWN,
                .second_of_day = rig->second,
                .on_moved = note_moved,
                .data = rig};

        rig->now += TICK;
        sizing_work(&rig->f.store, &p, rig->now);
        fixture_check(&rig->f);
}

static void hold(struct rig *rig, uint32_t n)
{
        for (; rig->n_pages > n; rig->n_pages--)
                assert_int_equal(free_pages(rig->ns, &rig->pages[rig->n_pages - 1], 1, NULL), 0);
        for (; rig->n_pages < n; rig->n_pages++)
                assert_int_equal(
                        lease_pages(rig->ns, 1, rig->now, &rig->pages[rig->n_pages], NULL), 0);
}

static unsigned reserved(const struct tenant *t)
{
        uint64_t sum = 0;

        list_for_each (share, &t->shares, struct pool_share, tenant_link)
                sum += share->reserve_bytes;
        assert_int_equal(sum, sizing_reserved(t));
        assert_int_equal(sum % SET_BYTES, 0);
        return (unsigned)(sum / SET_BYTES);
}

static unsigned demand(const struct rig *rig)
{
        uint64_t bytes = sizing_demand(rig->f.a);

        assert_int_equal(bytes % SET_BYTES, 0);
        return (unsigned)(bytes / SET_BYTES);
}

static void queue(struct attach *a, uint32_t n)
{
        wait_arrive(a, n, UINT64_MAX);
        wait_begin(a, n, LEASE_REASON_POOL_FULL);
}

/* ---- demand --------------------------------------------------------------------------------- */

/* Pages that are only cached aren't needed; pages that are pinned in either way are. */
SCENE(test_demand_of_pins, 8, 0)
{
        uint32_t pages[SET_PAGES];

        publish_chain(rig->ns, 0, SET_PAGES, pages);
        assert_int_equal(demand(rig), 1);
        hold(rig, 1);
        assert_int_equal(demand(rig), 2);
        assert_int_equal(release_pages(rig->ns, pages, SET_PAGES, 1, NULL), 0);
        assert_int_equal(demand(rig), 1);
        hold(rig, 0);
        assert_int_equal(demand(rig), 0);
        assert_int_equal(attach_share(rig->ns, NULL), 0);
        pins_add(&rig->ns->share, pages[3]);
        assert_int_equal(demand(rig), 1);
        atomic_store(&rig->ns->share.counters[pages[3]], 0);
        assert_int_equal(demand(rig), 0);
}

/* Its demand can't be seen: it gets no more than it has. So it is asked for set by set. */
SCENE(test_demand_of_who_is_refused, 8, 2)
{
        struct sizing_attrs attrs = sizer(SIZING_ON, 1, 4);
        struct pool_share *share;

        share = pool_share_find(rig->f.a, rig->ns->ns->device.pool);
        assert_int_equal(sizing_set(rig->f.a, &attrs), 0);
        tick(rig);
        share->wants_until_nsec = rig->now + 3 * TICK;
        assert_int_equal(demand(rig), 3);
        tick(rig);
        assert_int_equal(reserved(rig->f.a), 3);
        tick(rig);
        assert_int_equal(reserved(rig->f.a), 4);
        tick(rig);
        tick(rig);
        assert_int_equal(reserved(rig->f.a), 4);
        assert_int_equal(demand(rig), 0);
}

enum { N_SETS = 2048, N_CLIENTS = 3 * SIZING_LOOK_PINS / (N_SETS * SET_PAGES), PARTS = 4 };

/* Samples PARTS times: least, most and sum in *ret. */
static void sample_parts(struct rig *rig, uint64_t ret[3])
{
        struct sizing_params p = {.window_nsec = WINDOW, .second_of_day = NOON};

        ret[0] = UINT64_MAX;
        ret[1] = ret[2] = 0;
        for (unsigned i = 0; i < PARTS; i++) {
                uint64_t bytes;

                rig->now += TICK;
                sizing_work(&rig->f.store, &p, rig->now);
                bytes = sizer_demand(rig->f.a->sizing.sizer);
                ret[0] = MIN(ret[0], bytes);
                ret[1] = MAX(ret[1], bytes);
                ret[2] += bytes;
        }
}

/* More pins than are looked at in one go: a part stands for all, another part each time. */
SCENE(test_many_pins, N_SETS, 0)
{
        struct sizing_attrs attrs = sizer(SIZING_DRY_RUN, 0, 4000);
        struct member *members[N_CLIENTS];
        uint64_t seen[3];

        rig->f.a->attrs.max_clients = N_CLIENTS + 1;
        assert_int_equal(sizing_set(rig->f.a, &attrs), 0);
        for (unsigned i = 0; i < N_SETS; i++)
                cache_chain(rig->ns, i * SET_PAGES, SET_PAGES);
        for (unsigned i = 0; i < N_CLIENTS; i++) {
                members[i] = join(rig->f.a);
                assert_int_equal(attach_share(open_ns(members[i], "ns"), NULL), 0);
        }
        assert_int_equal(attach_share(rig->ns, NULL), 0);
        /* One set in PARTS: one time it is all, the others nothing. */
        for (uint32_t page = 0; page < N_SETS * SET_PAGES; page++)
                if (page / SET_PAGES % PARTS == 1)
                        pins_add(&rig->ns->share, page);
        assert_int_equal(sizing_demand(rig->f.a), N_SETS / PARTS * SET_BYTES);
        sample_parts(rig, seen);
        assert_int_equal(seen[0], 0);
        assert_int_equal(seen[1], N_SETS * SET_BYTES);
        assert_int_equal(seen[2], N_SETS * SET_BYTES);
        /* Every second page of all. */
        for (uint32_t page = 0; page < N_SETS * SET_PAGES; page++)
                atomic_store(&rig->ns->share.counters[page], page % 2);
        sample_parts(rig, seen);
        assert_int_equal(seen[0], N_SETS / 2 * SET_BYTES);
        assert_int_equal(seen[1], N_SETS / 2 * SET_BYTES);
        for (unsigned i = 0; i < N_CLIENTS; i++)
                member_free(members[i]);
}

/* ---- the sizer ------------------------------------------------------------------------------ */

SCENE(test_follows_demand, 20, 2)
{
        struct sizing_attrs attrs = sizer(SIZING_ON, 1, 12);

        assert_false(sizing_is_needed(&rig->f.store));
        assert_int_equal(sizing_set(rig->f.a, &attrs), 0);
        assert_true(sizing_is_needed(&rig->f.store));
        hold(rig, 8 * SET_PAGES);
        tick(rig);
        assert_int_equal(reserved(rig->f.a), 8);
        assert_int_equal(rig->n_moved, 1);
        assert_int_equal(rig->moved_from, 2 * SET_BYTES);
        assert_int_equal(rig->f.a->sizing.n_changes, 1);
        assert_int_equal(rig->f.a->sizing.last.why, SIZER_GROW);
        assert_int_equal(rig->f.a->sizing.last.target_bytes, 8 * SET_BYTES);
        assert_string_equal(sizing_why(rig->f.a), sizer_why_text(SIZER_GROW));
        /* The reason of what was done stays, with its time, while nothing else is. */
        for (unsigned i = 0; i < 5; i++)
                tick(rig);
        assert_int_equal(rig->f.a->sizing.last.why, SIZER_GROW);
        assert_int_equal(rig->now - rig->f.a->sizing.decided_nsec, 5 * TICK);
        hold(rig, 16 * SET_PAGES);
        tick(rig);
        assert_int_equal(reserved(rig->f.a), 12);
        tick(rig);
        assert_int_equal(rig->f.a->sizing.last.why, SIZER_AT_MAX);
        hold(rig, 0);
        for (unsigned i = 0; i < 3 * WINDOW / TICK; i++)
                tick(rig);
        assert_int_equal(reserved(rig->f.a), 1);
        assert_int_equal(rig->f.a->sizing.last.why, SIZER_SHRINK);
        assert_int_equal(sizing_set(rig->f.a, &(struct sizing_attrs){0}), 0);
        assert_int_equal(reserved(rig->f.a), 2); /* as configured */
        assert_false(sizing_is_needed(&rig->f.store));
}

/* The reservation grows as far as there is room, and the text names the tenant with the rest. */
SCENE(test_refused_growth, 20, 2)
{
        struct sizing_attrs attrs = sizer(SIZING_ON, 1, 18);

        set_reserve(rig->f.b, 10);
        assert_int_equal(sizing_set(rig->f.a, &attrs), 0);
        queue(rig->ns, 15 * SET_PAGES); /* what it holds would have to fit */
        tick(rig);
        assert_int_equal(reserved(rig->f.a), 10);
        assert_int_equal(reserved(rig->f.b), 10);
        assert_int_equal(rig->f.a->sizing.last.why, SIZER_REFUSED);
        assert_int_equal(rig->f.a->sizing.last.target_bytes, 15 * SET_BYTES);
        assert_non_null(strstr(sizing_why(rig->f.a), "b"));
        assert_int_equal(rig->f.a->sizing.n_changes, 1);
        tick(rig);
        assert_int_equal(rig->f.a->sizing.n_changes, 1);
        assert_int_equal(rig->f.a->sizing.last.why, SIZER_REFUSED);
        /* Less is wanted: it fits now. */
        assert_true(wait_end(rig->ns));
        queue(rig->ns, 10 * SET_PAGES);
        for (unsigned i = 0; i < 2 * WINDOW / TICK; i++)
                tick(rig);
        assert_int_equal(rig->f.a->sizing.last.why, SIZER_HOLD);
        assert_true(wait_end(rig->ns));
        queue(rig->ns, 15 * SET_PAGES);
        for (unsigned i = 0; i < 5; i++)
                tick(rig);
        assert_int_equal(rig->f.a->sizing.last.why, SIZER_REFUSED);
        assert_int_equal(reserved(rig->f.a), 10);
        /* Tried again, as long as it is wanted. */
        set_reserve(rig->f.b, 4);
        tick(rig);
        assert_int_equal(reserved(rig->f.a), 15);
        assert_int_equal(rig->f.a->sizing.last.why, SIZER_GROW);
        assert_string_equal(sizing_why(rig->f.a), sizer_why_text(SIZER_GROW));
        assert_true(wait_end(rig->ns));
}

/* The sizer continues from an administrator's reservation. */
SCENE(test_by_hand, 20, 2)
{
        struct sizing_attrs attrs = sizer(SIZING_ON, 1, 18);

        assert_int_equal(sizing_set(rig->f.a, &attrs), 0);
        hold(rig, 4 * SET_PAGES);
        tick(rig);
        assert_int_equal(reserved(rig->f.a), 4);
        set_reserve(rig->f.a, 10);
        tick(rig);
        assert_int_equal(reserved(rig->f.a), 10);
        for (unsigned i = 0; i < 2 * WINDOW / TICK; i++)
                tick(rig);
        assert_int_equal(reserved(rig->f.a), 4);
        set_reserve(rig->f.a, 2); /* as before; so that the next is a change */
        tick(rig);
        set_reserve(rig->f.a, 10);
        for (unsigned i = 0; i < COOLDOWN / TICK; i++) {
                tick(rig);
                assert_int_equal(reserved(rig->f.a), 10);
        }
        tick(rig);
        assert_int_equal(reserved(rig->f.a), 7);
        set_reserve(rig->f.a, 11);
        assert_int_equal(sizing_set(rig->f.a, &attrs), 0); /* other options are set */
        tick(rig);
        assert_int_equal(reserved(rig->f.a), 11);
        for (unsigned i = 0; i < 3 * WINDOW / TICK; i++)
                tick(rig);
        assert_int_equal(reserved(rig->f.a), 4);
        /* A dry run takes back earlier changes. */
        attrs.mode = SIZING_DRY_RUN;
        assert_int_equal(sizing_set(rig->f.a, &attrs), 0);
        assert_int_equal(reserved(rig->f.a), 11);
}

/* ---- schedules ------------------------------------------------------------------------------ */

static struct sizing_attrs scheduled(enum sizing_mode mode, const char *text)
{
        struct sizing_attrs attrs = sizer(mode, 2, 5);
        char err[256] = "";

        if (schedule_parse(text, &attrs.schedule, err, sizeof(err)) < 0)
                fail_msg("%s", err);
        return attrs;
}

SCENE(test_schedule_that_doesnt_fit, 20, 3)
{
        struct sizing_attrs attrs = scheduled(SIZING_OFF, "00:00-24:00 15KiB");

        set_reserve(rig->f.b, 10);
        assert_int_equal(sizing_set(rig->f.a, &attrs), 0);
        tick(rig);
        assert_int_equal(reserved(rig->f.a), 10);
        assert_int_equal(rig->f.a->sizing.last.why, SIZER_REFUSED);
        set_reserve(rig->f.b, 1);
        tick(rig);
        assert_int_equal(reserved(rig->f.a), 15);
        assert_int_equal(rig->f.a->sizing.last.why, SIZER_NEW_LIMITS);
}
