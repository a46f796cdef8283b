/* daemon/core: leases that wait for room, in which order they are served, and how they end. */
#include "daemon/core/clients/grants.h"
#include "daemon/core/clients/magazine.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/memory/wait.h"
#include "tests/unit/core-fixture.h"

#define MSEC UINT64_C(1000000)
#define SEC  (1000 * MSEC)

struct world {
        struct fixture f;
        struct member *ma, *mb, *holder;
        struct attach *a, *b, *held; /* held: of tenant b, in a namespace of its own */
        uint64_t now;
        unsigned n_room; /* on_room */
        uint32_t pages[8 * SET_PAGES];
        struct lease_result result;
};

static void on_room(void *data)
{
        container_of((struct fixture *)data, struct world, f)->n_room++;
}

static void change(struct world *w, struct tenant *t, void (*fn)(struct tenant_attrs *))
{
        struct tenant_attrs attrs = t->attrs;

        fn(&attrs);
        assert_int_equal(tenant_set_attrs(t, &attrs, &w->f.d), 0);
}

static void queue(struct tenant_attrs *a)
{
        a->when_full = WHEN_FULL_QUEUE;
        a->max_wait_nsec = 60 * SEC;
}

static void degrade(struct tenant_attrs *a)
{
        a->when_full = WHEN_FULL_DEGRADE;
}

static void high_priority(struct tenant_attrs *a)
{
        a->priority = 90;
}

static void wait_one_second(struct tenant_attrs *a)
{
        a->max_wait_nsec = SEC;
}

/* A device of `budget` sets; pages of `held` are in a namespace of their own. */
static void start(struct world *w, unsigned budget, unsigned limit_a)
{
        *w = (struct world){0};
        fixture_start(&w->f, budget, limit_a, 64);
        w->f.store.owner.on_room = on_room;
        change(w, w->f.a, queue);
        change(w, w->f.b, queue);
        w->ma = join(w->f.a);
        w->mb = join(w->f.b);
        w->holder = join(w->f.b);
        w->a = open_ns(w->ma, "x");
        w->b = open_ns(w->mb, "y");
        w->held = open_ns(w->holder, "held");
        w->now = SEC;
}

static void end(struct world *w)
{
        member_free(w->ma);
        member_free(w->mb);
        member_free(w->holder);
        assert_true(list_is_empty(&w->f.store.waits.leases));
        fixture_end(&w->f);
}

#define SCENE(fn, ...) TEST_ON(fn, struct world, w, start, end, ##__VA_ARGS__)

static struct lease_request request(uint32_t n)
{
        return (struct lease_request){.n = n, .min = n, .max_wait_nsec = UINT64_MAX};
}

static int ask_for(struct world *w, struct attach *a, struct lease_request rq)
{
        int r;

        w->f.d.text[0] = '\0';
        r = lease_ask(a, &rq, w->now, w->pages, &w->result, &w->f.d);
        fixture_check(&w->f);
        return r;
}

static int ask(struct world *w, struct attach *a, uint32_t n)
{
        return ask_for(w, a, request(n));
}

static void hold(struct world *w, uint32_t n, uint32_t *ret_pages)
{
        assert_int_equal(lease_pages(w->held, n, w->now, ret_pages, NULL), 0);
}

static void give_back(struct world *w, const uint32_t *pages, uint32_t n)
{
        assert_int_equal(free_pages(w->held, pages, n, NULL), 0);
        fixture_check(&w->f);
}

static void expect_order(struct world *w, struct attach *first, struct attach *second)
{
        struct attach *order[4];

        store_set_now(&w->f.store, w->now);
        assert_int_equal(wait_order(&w->f.store, NULL, order, 4), 2);
        assert_ptr_equal(order[0], first);
        assert_ptr_equal(order[1], second);
        assert_int_equal(wait_order(&w->f.store, w->a->ns->device.pool, order, 1), 1);
        assert_ptr_equal(order[0], first);
}

static void expect_said(const struct world *w, const char *part)
{
        if (!strstr(w->f.d.text, part))
                fail_msg("'%s' doesn't say '%s'", w->f.d.text, part);
}

/* The lease waits, holds nothing, and is served once there is room for all of it. */
SCENE(test_waits_for_all_of_it, 2, 8)
{
        uint32_t held[2 * SET_PAGES];

        hold(w, 2 * SET_PAGES, held);
        assert_int_equal(ask(w, w->a, 2 * SET_PAGES), -EINPROGRESS);
        assert_int_equal(w->result.n, 0);
        give_back(w, held, SET_PAGES);
        assert_int_equal(ask(w, w->a, 2 * SET_PAGES), -EINPROGRESS);
        assert_int_equal(w->a->ns->device.n_sets, 0);
        assert_int_equal(w->f.a->account.charged_bytes, 0);
        assert_int_equal(w->a->ns->waits.n_queued, 1);
        assert_int_equal(wait_lacks_bytes(w->a), 2 * SET_BYTES);
        give_back(w, held + SET_PAGES, SET_PAGES);
        w->now += 30 * MSEC;
        assert_int_equal(ask(w, w->a, 2 * SET_PAGES), 0);
        assert_int_equal(w->result.n, 2 * SET_PAGES);
        assert_int_equal(w->result.waited_nsec, 30 * MSEC);
        assert_int_equal(w->result.reason, LEASE_REASON_POOL_FULL);
        assert_int_equal(w->f.a->counters.waits, 1);
        assert_int_equal(w->f.a->counters.waited_nsec, 30 * MSEC);
        assert_int_equal(w->f.a->counters.max_wait_nsec, 30 * MSEC);
        assert_int_equal(w->f.a->counters.refusals, 0);
        assert_int_equal(w->a->ns->waits.n_queued, 0);
}

SCENE(test_order_of_priority, 1, 8)
{
        uint32_t held[SET_PAGES];

        change(w, w->f.b, high_priority);
        hold(w, SET_PAGES, held);
        assert_int_equal(ask(w, w->a, SET_PAGES), -EINPROGRESS);
        w->now += MSEC;
        assert_int_equal(ask(w, w->b, SET_PAGES), -EINPROGRESS);
        expect_order(w, w->b, w->a);
        give_back(w, held, SET_PAGES);
        /* Tried first, it leaves the memory to the lease before it. */
        assert_int_equal(ask(w, w->a, SET_PAGES), -EINPROGRESS);
        assert_int_equal(ask(w, w->b, SET_PAGES), 0);
        assert_int_equal(free_pages(w->b, w->pages, SET_PAGES, NULL), 0);
        assert_int_equal(ask(w, w->a, SET_PAGES), 0);
}

/* 40 steps of priority are 4 s. */
SCENE(test_order_by_age, 1, 8)
{
        uint32_t held[SET_PAGES];

        change(w, w->f.b, high_priority);
        hold(w, SET_PAGES, held);
        assert_int_equal(ask(w, w->a, SET_PAGES), -EINPROGRESS);
        w->now += 5 * SEC;
        assert_int_equal(ask(w, w->b, SET_PAGES), -EINPROGRESS);
        expect_order(w, w->a, w->b);
        /* Trying again doesn't make it young. */
        assert_int_equal(ask(w, w->a, SET_PAGES), -EINPROGRESS);
        expect_order(w, w->a, w->b);
}

SCENE(test_order_of_deadlines, 1, 8)
{
        struct lease_request hasty = request(SET_PAGES);
        uint32_t held[SET_PAGES];

        hold(w, SET_PAGES, held);
        hasty.max_wait_nsec = 10 * SEC;
        assert_int_equal(ask(w, w->a, SET_PAGES), -EINPROGRESS);
        assert_int_equal(wait_deadline(&w->f.store), w->now + 60 * SEC);
        assert_int_equal(ask_for(w, w->b, hasty), -EINPROGRESS);
        assert_int_equal(wait_deadline(&w->f.store), w->now + 10 * SEC);
        expect_order(w, w->b, w->a);
}

/* The tenant that holds less of the device per weight is first. */
SCENE(test_order_of_shares, 3, 8)
{
        uint32_t held[3 * SET_PAGES];

        hold(w, 3 * SET_PAGES, held); /* tenant b's */
        assert_int_equal(ask(w, w->b, SET_PAGES), -EINPROGRESS);
        assert_int_equal(ask(w, w->a, SET_PAGES), -EINPROGRESS);
        expect_order(w, w->a, w->b);
}

/* FREE pages of a namespace are for the leases that wait there, not for later ones, nor for a
 * magazine. */
SCENE(test_nobody_overtakes, 1, 8)
{
        uint32_t held[2], other[SET_PAGES];
        struct attach *late = enter(w->f.a, "x");

        assert_int_equal(ask(w, w->a, SET_PAGES), 0);
        memcpy(other, w->pages, sizeof(other));
        assert_int_equal(free_pages(w->a, other, 2, NULL), 0);
        assert_int_equal(ask(w, w->a, 4), -EINPROGRESS);
        assert_int_equal(ns_n_room(w->a->ns), 2);
        assert_int_equal(lease_make_ready(late, 1, 0, w->now), 0);
        assert_int_equal(ask(w, late, 1), -EINPROGRESS);
        expect_order(w, w->a, late);
        change(w, w->f.a, degrade);
        assert_int_equal(ask(w, late, 1), KVL_STATUS_FULL);
        expect_said(w, "come first");
        change(w, w->f.a, queue);
        assert_int_equal(free_pages(w->a, other + 2, 2, NULL), 0);
        assert_int_equal(ask(w, late, 1), -EINPROGRESS);
        assert_int_equal(ask(w, w->a, 4), 0);
        memcpy(held, w->pages, sizeof(held));
        assert_int_equal(free_pages(w->a, held, 1, NULL), 0);
        assert_int_equal(ask(w, late, 1), 0);
}

SCENE(test_deadline, 1, 8)
{
        uint32_t held[SET_PAGES];
        struct lease_request hasty = request(1);

        change(w, w->f.a, wait_one_second);
        hold(w, SET_PAGES, held);
        assert_int_equal(ask(w, w->a, 1), -EINPROGRESS);
        w->now += SEC - 1;
        assert_int_equal(ask(w, w->a, 1), -EINPROGRESS);
        w->now += 1;
        assert_int_equal(ask(w, w->a, 1), KVL_STATUS_TIMEOUT);
        assert_int_equal(w->result.reason, LEASE_REASON_DEADLINE);
        assert_int_equal(w->result.waited_nsec, SEC);
        expect_said(w, "waited 1000 ms, as long as tenant a allows");
        expect_said(w, "tenants set a max_wait=");
        expect_said(w, "is full");
        assert_int_equal(w->f.a->counters.refusals, 1);
        assert_int_equal(w->f.a->counters.by_reason[LEASE_REASON_DEADLINE], 1);
        assert_int_equal(w->f.store.counters.leases_refused, 1);
        assert_int_equal(w->f.a->counters.waits, 1);
        hasty.max_wait_nsec = 20 * MSEC;
        assert_int_equal(ask_for(w, w->a, hasty), -EINPROGRESS);
        w->now += 20 * MSEC;
        /* Pages that become free at the last moment are its own. */
        give_back(w, held, SET_PAGES);
        assert_int_equal(ask_for(w, w->a, hasty), 0);
}

SCENE(test_request_says_how_long, 1, 8)
{
        uint32_t held[SET_PAGES];
        struct lease_request hasty = request(1);

        hold(w, SET_PAGES, held);
        hasty.max_wait_nsec = 20 * MSEC;
        assert_int_equal(ask_for(w, w->a, hasty), -EINPROGRESS);
        w->now += 20 * MSEC;
        assert_int_equal(ask_for(w, w->a, hasty), KVL_STATUS_TIMEOUT);
        expect_said(w, "as long as the request allows");
        hasty.max_wait_nsec = 0;
        assert_int_equal(ask_for(w, w->a, hasty), KVL_STATUS_FULL);
        assert_int_equal(w->result.reason, LEASE_REASON_POOL_FULL);
        assert_int_equal(w->result.waited_nsec, 0);
        assert_int_equal(w->f.a->counters.by_reason[LEASE_REASON_POOL_FULL], 1);
        /* Pages that it holds would be in the way of others. */
        hasty = request(1);
        hasty.holds_some = true;
        assert_int_equal(ask_for(w, w->a, hasty), -EBUSY);
        assert_int_equal(w->f.a->counters.refusals, 2);
        assert_true(list_is_empty(&w->f.store.waits.leases));
}

static void reject(struct tenant_attrs *a)
{
        a->when_full = WHEN_FULL_REJECT;
}

SCENE(test_reject, 1, 8)
{
        uint32_t held[SET_PAGES];

        hold(w, SET_PAGES, held);
        assert_int_equal(ask(w, w->a, 1), -EINPROGRESS);
        change(w, w->f.a, reject); /* at once, also for waiting leases */
        assert_int_equal(ask(w, w->a, 1), KVL_STATUS_FULL);
        assert_int_equal(ask(w, w->a, 1), KVL_STATUS_FULL);
        assert_int_equal(w->f.a->counters.by_reason[LEASE_REASON_POOL_FULL], 2);
        assert_int_equal(w->f.a->counters.waits, 1);
}

SCENE(test_degrade, 2, 8)
{
        struct lease_request some = request(3 * SET_PAGES);
        uint32_t held[SET_PAGES];

        change(w, w->f.a, degrade);
        hold(w, SET_PAGES, held);
        assert_int_equal(ask(w, w->a, 2 * SET_PAGES), KVL_STATUS_FULL); /* all or nothing */
        assert_int_equal(w->f.a->account.charged_bytes, 0);
        some.min = SET_PAGES + 1;
        assert_int_equal(ask_for(w, w->a, some), KVL_STATUS_FULL);
        assert_int_equal(w->f.a->account.charged_bytes, 0);
        assert_int_equal(w->f.a->counters.degraded, 0);
        some.min = 1;
        assert_int_equal(ask_for(w, w->a, some), 0);
        assert_int_equal(w->result.n, SET_PAGES);
        assert_int_equal(w->result.reason, LEASE_REASON_DEGRADED);
        assert_int_equal(w->f.a->counters.degraded, 1);
        assert_int_equal(w->f.a->counters.refusals, 2);
        assert_int_equal(ask_for(w, w->a, some), KVL_STATUS_FULL);
        assert_int_equal(w->result.n, 0);
}

/* Its own cache gives way first: what is idle counts as what there is. */
SCENE(test_degrade_evicts, 2, 8)
{
        struct lease_request some = request(2 * SET_PAGES);
        uint32_t held[SET_PAGES], pinned[2];

        change(w, w->f.a, degrade);
        hold(w, SET_PAGES, held);
        cache_chain(w->a, 0, SET_PAGES - 2);
        publish_chain(w->a, 100, 2, pinned);
        some.min = 2;
        assert_int_equal(ask_for(w, w->a, some), 0);
        assert_in_range(w->result.n, (SET_PAGES - 2) / 2, SET_PAGES - 2);
}

/* A lease that can never be served doesn't wait. */
SCENE(test_impossible, 4, 2)
{
        assert_int_equal(ask(w, w->a, 2 * SET_PAGES + 1), KVL_STATUS_QUOTA);
        assert_int_equal(w->result.reason, LEASE_REASON_QUOTA);
        assert_int_equal(ask(w, w->b, 4 * SET_PAGES + 1), KVL_STATUS_FULL);
        assert_int_equal(w->f.a->counters.by_reason[LEASE_REASON_QUOTA], 1);
        assert_int_equal(ask(w, w->a, 2 * SET_PAGES), 0);
}

SCENE(test_quota_blocks_nobody_else, 4, 1)
{
        uint32_t mine[SET_PAGES];
        struct attach *second;

        change(w, w->f.a, high_priority);
        second = enter(w->f.a, "second");
        assert_int_equal(ask(w, w->a, SET_PAGES), 0);
        memcpy(mine, w->pages, sizeof(mine));
        assert_int_equal(ask(w, w->a, SET_PAGES), -EINPROGRESS);
        assert_int_equal(w->a->wait.reason, LEASE_REASON_QUOTA);
        assert_int_equal(ask(w, w->b, SET_PAGES), 0);
        assert_int_equal(w->result.waited_nsec, 0);
        assert_int_equal(w->result.reason, LEASE_REASON_NONE);
        /* But its own tenant's come after it. */
        w->now += MSEC;
        assert_int_equal(ask(w, second, 1), -EINPROGRESS);
        assert_false(wait_is_next(second));
        assert_true(wait_is_next(w->a));
        assert_true(wait_is_next(w->b));
        assert_int_equal(free_pages(w->a, mine, SET_PAGES, NULL), 0);
        assert_int_equal(ask(w, second, 1), -EINPROGRESS);
        assert_int_equal(ask(w, w->a, SET_PAGES), 0);
        member_free(second->member);
}

/* A client that dies ends its wait, and others are notified. */
SCENE(test_called_off, 1, 8)
{
        uint32_t held[SET_PAGES];

        change(w, w->f.b, high_priority);
        hold(w, SET_PAGES, held);
        assert_int_equal(ask(w, w->b, SET_PAGES), -EINPROGRESS);
        assert_int_equal(ask(w, w->a, SET_PAGES), -EINPROGRESS);
        give_back(w, held, SET_PAGES);
        assert_int_equal(ask(w, w->a, SET_PAGES), -EINPROGRESS);
        w->n_room = 0;
        member_free(w->mb);
        assert_int_equal(w->n_room, 1);
        assert_int_equal(w->f.b->counters.waits, 1);
        assert_int_equal(ask(w, w->a, SET_PAGES), 0);
        w->mb = join(w->f.b);
}

SCENE(test_draining, 1, 8)
{
        uint32_t held[SET_PAGES];

        hold(w, SET_PAGES, held);
        assert_int_equal(ask(w, w->a, 1), -EINPROGRESS);
        w->f.store.draining = true;
        w->now += MSEC;
        assert_int_equal(ask(w, w->a, 1), KVL_STATUS_DRAINING);
        assert_int_equal(w->result.reason, LEASE_REASON_DRAINING);
        assert_int_equal(w->result.waited_nsec, MSEC);
        w->f.store.draining = false;
}

SCENE(test_min_is_checked, 1, 8)
{
        struct lease_request rq = request(4);

        rq.min = 5;
        assert_int_equal(ask_for(w, w->a, rq), -EINVAL);
        rq.min = 0;
        assert_int_equal(ask_for(w, w->a, rq), -EINVAL);
        assert_int_equal(w->f.a->counters.refusals, 0);
}

static void reserve_one_set(struct tenant_attrs *a)
{
        a->class = TENANT_PINNED;
        a->reserve_bytes = SET_BYTES;
        a->when_full = WHEN_FULL_REJECT;
}

/* A tenant whose fair share has room for a set precedes one whose hasn't, in any order. */
SCENE(test_fair_share_comes_first, 4, 8)
{
        uint32_t mine[3 * SET_PAGES], held[SET_PAGES];

        change(w, w->f.a, high_priority);
        assert_int_equal(ask(w, w->a, 3 * SET_PAGES), 0);
        memcpy(mine, w->pages, sizeof(mine));
        hold(w, SET_PAGES, held);
        assert_int_equal(ask(w, w->a, SET_PAGES), -EINPROGRESS); /* it has more than half */
        w->now += MSEC;
        assert_int_equal(ask(w, w->b, SET_PAGES), -EINPROGRESS);
        expect_order(w, w->a, w->b);
        assert_int_equal(ask(w, w->a, SET_PAGES), -EINPROGRESS);
        assert_false(w->a->wait.deserves);
        assert_true(w->b->wait.deserves);
        assert_false(wait_is_next(w->a) && !wait_is_next(w->b));
        assert_true(wait_is_next(w->b));
}

/* And among those for whom it is, the order counts. */
SCENE(test_order_among_the_fair, 4, 8)
{
        struct tenant_attrs attrs = {
                .limit_bytes = 64 * SET_BYTES, .weight = 1, .priority = 50, .max_clients = 8};
        uint32_t held[4 * SET_PAGES];
        struct attach *hog;
        struct tenant *c;

        change(w, w->f.b, high_priority);
        assert_int_equal(tenant_new(&w->f.store, "c", &attrs, &c, &w->f.d), 0);
        hog = enter(c, "z");
        assert_int_equal(lease_pages(hog, 4 * SET_PAGES, w->now, held, NULL), 0);
        assert_int_equal(ask(w, w->a, SET_PAGES), -EINPROGRESS);
        assert_int_equal(ask(w, w->b, SET_PAGES), -EINPROGRESS);
        assert_int_equal(ask(w, w->a, SET_PAGES), -EINPROGRESS);
        assert_true(w->a->wait.deserves && w->b->wait.deserves);
        assert_false(wait_is_next(w->a));
        assert_true(wait_is_next(w->b));
        assert_int_equal(free_pages(hog, held, SET_PAGES, NULL), 0);
        assert_int_equal(ask(w, w->a, SET_PAGES), -EINPROGRESS);
        assert_int_equal(ask(w, w->b, SET_PAGES), 0);
}

/* Reserved memory that other tenants still hold is waited for with any when_full. */
SCENE(test_owed, 2, 8)
{
        struct lease_request rq = request(SET_PAGES);
        uint32_t held[2 * SET_PAGES];

        hold(w, 2 * SET_PAGES, held);
        change(w, w->f.a, reserve_one_set);
        rq.take_back_nsec = 5 * SEC;
        assert_int_equal(ask_for(w, w->a, rq), -EINPROGRESS);
        assert_int_equal(wait_deadline(&w->f.store), w->now + 5 * SEC);
        w->now += 5 * SEC;
        assert_int_equal(ask_for(w, w->a, rq), KVL_STATUS_TIMEOUT);
        expect_said(w, "as long as others may take to give back what is reserved");
        rq.max_wait_nsec = 0;
        assert_int_equal(ask_for(w, w->a, rq), KVL_STATUS_FULL);
        /* Beyond the reservation it is refused as ever. */
        rq = request(SET_PAGES + 1);
        rq.take_back_nsec = 5 * SEC;
        assert_int_equal(ask_for(w, w->a, rq), KVL_STATUS_FULL);
        rq = request(SET_PAGES);
        rq.take_back_nsec = 5 * SEC;
        assert_int_equal(ask_for(w, w->a, rq), -EINPROGRESS);
        give_back(w, held, SET_PAGES);
        /* Pages that are given back go to no other tenant. */
        assert_int_equal(ask(w, w->b, 1), -EINPROGRESS);
        assert_int_equal(ask_for(w, w->a, rq), 0);
}

static void reserve_two_and_degrade(struct tenant_attrs *a)
{
        a->class = TENANT_PINNED;
        a->reserve_bytes = 2 * SET_BYTES;
        a->when_full = WHEN_FULL_DEGRADE;
}

/* A lease waits for reserved memory first; then fewer pages are better than none. */
SCENE(test_owed_and_degraded, 3, 8)
{
        struct lease_request rq = request(2 * SET_PAGES);
        uint32_t held[2 * SET_PAGES];

        hold(w, 2 * SET_PAGES, held);
        change(w, w->f.a, reserve_two_and_degrade);
        rq.take_back_nsec = 5 * SEC;
        rq.min = SET_PAGES;
        assert_int_equal(ask_for(w, w->a, rq), -EINPROGRESS);
        w->now += 5 * SEC - 1;
        assert_int_equal(ask_for(w, w->a, rq), -EINPROGRESS);
        w->now++;
        assert_int_equal(ask_for(w, w->a, rq), 0);
        assert_int_equal(w->result.n, SET_PAGES);
        assert_int_equal(w->result.reason, LEASE_REASON_DEGRADED);
        assert_int_equal(w->result.waited_nsec, 5 * SEC);
        /* Less than is of use. */
        rq.n = rq.min = SET_PAGES;
        assert_int_equal(ask_for(w, w->a, rq), -EINPROGRESS);
        w->now += 5 * SEC;
        assert_int_equal(ask_for(w, w->a, rq), KVL_STATUS_TIMEOUT);
}

/* Tries those that wait in their order. The one that got the set, or NULL. */
static struct attach *serve(struct world *w)
{
        struct attach *order[3], *served = NULL;
        uint32_t n;

        store_set_now(&w->f.store, w->now);
        n = wait_order(&w->f.store, NULL, order, 3);
        for (uint32_t i = 0; i < n; i++) {
                int r = ask(w, order[i], SET_PAGES);

                assert_true(r == (served ? -EINPROGRESS : 0));
                if (r == 0)
                        served = order[i];
        }
        return served;
}

/* One set, and always a new lease of a higher priority for it. */
SCENE(test_nobody_starves, 1, 8)
{
        struct attach *owner;
        uint32_t held[SET_PAGES];
        unsigned n_others = 0;

        change(w, w->f.b, high_priority);
        hold(w, SET_PAGES, held);
        owner = w->held;
        assert_int_equal(ask(w, w->a, SET_PAGES), -EINPROGRESS);
        for (; owner != w->a; n_others++) {
                struct attach *next = owner == w->b ? w->held : w->b;

                w->now += 10 * MSEC;
                assert_int_equal(ask(w, next, SET_PAGES), -EINPROGRESS);
                assert_int_equal(free_pages(owner, held, SET_PAGES, NULL), 0);
                owner = serve(w);
                assert_non_null(owner);
                for (uint32_t i = 0; i < SET_PAGES; i++)
                        held[i] = i; /* the namespace's only set */
                assert_true(n_others < 1000);
        }
        /* 40 steps of 100 ms, in which one was served every 10 ms. */
        assert_in_range(n_others, 380, 420);
}
