/* daemon/core on a device behind a queue: sets that can't be made, or never come. */
#include "daemon/core/clients/grants.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/tenant-life.h"
#include "tests/unit/slow-fixture.h"

SLOW_SCENE(test_device_without_memory, PATIENT_MSEC, 4, 4)
{
        uint32_t pages[SET_PAGES];
        struct attach *a = enter(s->f.a, "x");

        fake_device_fail(&s->f.device, "create", 1, -ENOMEM);
        assert_int_equal(lease(s, a, 1, pages), -EINPROGRESS);
        reap(s);
        assert_int_equal(s->pool->account.charged_bytes, 0);
        assert_int_equal(lease(s, a, 1, pages), KVL_STATUS_FULL);
        expect_said(s, "device slow has no memory");
        expect_said(s, "other processes");
        expect_said(s, "create fails by order");
        settle(s);
        assert_int_equal(s->f.store.counters.leases_refused, 1);
        assert_string_equal(s->pool->why, "create fails by order");
        /* Told once; the next one tries again. */
        fake_device_fail(&s->f.device, "create", 1, 0);
        assert_int_equal(lease(s, a, 1, pages), -EINPROGRESS);
        reap(s);
        assert_int_equal(lease(s, a, 1, pages), 0);
}

/* Pages that the device can't provide come from the namespace's own cache. */
SLOW_SCENE(test_failure_is_met_by_eviction, PATIENT_MSEC, 4, 4)
{
        uint32_t pages[SET_PAGES];
        struct attach *a = enter(s->f.a, "x");

        assert_int_equal(lease(s, a, SET_PAGES, pages), -EINPROGRESS);
        reap(s);
        cache_chain(a, 0, SET_PAGES);
        settle(s);
        fake_device_fail(&s->f.device, "create", 1, -ENOMEM);
        assert_int_equal(lease(s, a, 4, pages), -EINPROGRESS);
        assert_int_equal(count_hits(a, 0, SET_PAGES), SET_PAGES);
        reap(s);
        assert_int_equal(lease(s, a, 4, pages), 0);
        assert_int_equal(count_hits(a, 0, SET_PAGES), 4);
}

SLOW_SCENE(test_some_made_some_not, PATIENT_MSEC, 4, 4)
{
        uint32_t pages[3 * SET_PAGES];
        struct attach *a = enter(s->f.a, "x");

        fake_device_block(&s->f.device, "create");
        fake_device_fail(&s->f.device, "create", 3, -ENOMEM);
        assert_int_equal(lease(s, a, 3 * SET_PAGES, pages), -EINPROGRESS);
        assert_int_equal(a->ns->device.n_preparing, 3);
        fake_device_unblock(&s->f.device);
        while (a->ns->device.n_preparing > 0) {
                reap(s);
                /* The sets that were made are kept for it. */
                if (a->ns->device.n_preparing > 0)
                        assert_int_equal(lease(s, a, 3 * SET_PAGES, pages), -EINPROGRESS);
                settle(s);
        }
        assert_int_equal(a->ns->device.n_sets, 2);
        assert_int_equal(lease(s, a, 3 * SET_PAGES, pages), KVL_STATUS_FULL);
        settle(s);
        assert_int_equal(a->ns->device.n_sets, 0);
        assert_int_equal(s->pool->account.charged_bytes, 0);
}

/* A lease that may be degraded gets the sets that were made; the failed one isn't tried again. */
SLOW_SCENE(test_degrade_meets_a_failure, PATIENT_MSEC, 4, 4)
{
        const struct lease_request rq = {.n = 3 * SET_PAGES, .min = 1, .max_wait_nsec = UINT64_MAX};
        uint32_t pages[3 * SET_PAGES];
        struct lease_result result;
        struct tenant_attrs attrs;
        struct attach *a;
        int r;

        attrs = s->f.a->attrs;
        attrs.when_full = WHEN_FULL_DEGRADE;
        assert_int_equal(tenant_set_attrs(s->f.a, &attrs, &s->f.d), 0);
        a = enter(s->f.a, "x");
        fake_device_fail(&s->f.device, "create", 3, -ENOMEM);
        do {
                r = lease_ask(a, &rq, 1, pages, &result, &s->f.d);
                fixture_check(&s->f);
                if (r == -EINPROGRESS)
                        reap(s);
        } while (r == -EINPROGRESS);
        assert_int_equal(r, 0);
        assert_int_equal(result.n, 2 * SET_PAGES);
        assert_int_equal(result.reason, LEASE_REASON_DEGRADED);
        settle(s);
        fake_device_fail(&s->f.device, "create", 1, -ENOMEM);
        assert_int_equal(lease_ask(a, &rq, 1, pages, &result, &s->f.d), -EINPROGRESS);
        reap(s);
        while (a->ns->device.n_preparing > 0)
                reap(s);
        assert_int_equal(lease_ask(a, &rq, 1, pages, &result, &s->f.d), KVL_STATUS_FULL);
        assert_int_equal(result.reason, LEASE_REASON_DEVICE);
        assert_int_equal(a->ns->device.n_preparing, 0);
}

SLOW_SCENE(test_driver_hangs_and_recovers, HASTY_MSEC, 4, 4)
{
        uint32_t pages[SET_PAGES], other[SET_PAGES];
        struct attach *a = enter(s->f.a, "x");
        struct attach *b;

        b = open_ns(a->member, "y");
        assert_int_equal(lease(s, b, 2, other), -EINPROGRESS);
        reap(s);
        assert_int_equal(lease(s, b, 2, other), 0);
        fake_device_block(&s->f.device, "create");
        assert_int_equal(lease(s, a, 1, pages), -EINPROGRESS);
        reap(s);
        assert_true(queue_is_stuck(s->pool->queue));
        assert_int_equal(lease(s, a, 1, pages), -EIO);
        expect_said(s, "device slow hangs: the driver hasn't answered extent_create for 250 ms");
        settle(s);
        /* At once now, and nothing is asked of it. */
        assert_int_equal(lease(s, a, 1, pages), -EIO);
        expect_said(s, "device slow hangs");
        /* Bound sets stay usable. */
        assert_int_equal(lease(s, b, 6, pages), 0);
        assert_int_equal(free_pages(b, other, 2, NULL), 0);
        assert_int_equal(free_pages(b, pages, 6, NULL), 0);
        fixture_check(&s->f);
        assert_int_equal(s->pool->account.charged_bytes, 0);
        fake_device_unblock(&s->f.device);
        wait_quiet(s);
        assert_int_equal(fake_device_count(&s->f.device), 0);
        assert_int_equal(lease(s, a, 1, pages), -EINPROGRESS);
        /* The last destruction may be reported only now. */
        while (a->ns->device.n_preparing > 0)
                reap(s);
        assert_int_equal(lease(s, a, 1, pages), 0);
}

SLOW_SCENE(test_broken_device, PATIENT_MSEC, 4, 4)
{
        uint32_t pages[SET_PAGES];
        struct attach *a = enter(s->f.a, "x");

        fake_device_fail(&s->f.device, "export", 1, -ENXIO);
        assert_int_equal(lease(s, a, 1, pages), -EINPROGRESS);
        reap(s);
        assert_int_equal(lease(s, a, 1, pages), -EIO);
        expect_said(s, "device slow is broken: export fails by order");
        settle(s);
        assert_int_equal(lease(s, a, 1, pages), -EIO);
        expect_said(s, "is broken");
        assert_int_equal(s->f.store.counters.leases_refused, 2);
        assert_int_equal(s->f.n_pressure, 0); /* clients can't help */
}
