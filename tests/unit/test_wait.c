/* daemon/core: leases that wait for room, in which order they are served, and how they end. */
#include "daemon/core/clients/grants.h"
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
