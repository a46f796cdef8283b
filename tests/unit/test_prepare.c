/* daemon/core on a device behind a queue: sets that take time to make, and leases that wait for
 * them. */
#include <fcntl.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/core.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/memory/wait.h"
#include "daemon/core/requests/refill.h"
#include "tests/unit/slow-fixture.h"

SLOW_SCENE(test_map_needs_no_driver, PATIENT_MSEC, 4, 4)
{
        struct extent_handle first, second;
        uint32_t pages[1];
        struct attach *a = enter(s->f.a, "x");

        assert_int_equal(lease(s, a, 1, pages), -EINPROGRESS);
        reap(s);
        assert_int_equal(lease(s, a, 1, pages), 0);
        fake_device_take_log(&s->f.device, s->log);
        assert_int_equal(attach_map_set(a, 0, 0, 1, &first, NULL), 1);
        assert_int_equal(attach_map_set(a, 0, 0, 1, &second, NULL), 1);
        assert_true(first.fd >= 0 && second.fd >= 0 && first.fd != second.fd);
        assert_int_not_equal(fcntl(first.fd, F_GETFD) & FD_CLOEXEC, 0);
        assert_string_equal(fake_device_take_log(&s->f.device, s->log), "");
        fd_close(first.fd);
        fd_close(second.fd);
}

SLOW_SCENE(test_copied_handles, PATIENT_MSEC, 4, 4)
{
        struct extent_handle handle;
        uint32_t pages[1];
        struct attach *a;
        unsigned n;

        s->f.device.hands_out_fds = false;
        a = enter(s->f.a, "x");
        assert_int_equal(lease(s, a, 1, pages), -EINPROGRESS);
        reap(s);
        assert_int_equal(lease(s, a, 1, pages), 0);
        for (int i = 0; i < 2; i++) {
                assert_int_equal(attach_map_set(a, 0, 0, 1, &handle, NULL), 1);
                assert_int_equal(handle.fd, -1);
                memcpy(&n, handle.bytes, sizeof(n));
                assert_int_equal(n, 1);
        }
}

/* The wait for a device ends with the request's own, not with the tenant's max_wait, and isn't one
 * for room. */
SLOW_SCENE(test_request_ends_the_wait, PATIENT_MSEC, 4, 4)
{
        struct lease_request rq = {.n = 1, .min = 1, .max_wait_nsec = 1000};
        uint32_t pages[SET_PAGES];
        struct lease_result result;
        struct attach *a = enter(s->f.a, "x");

        fake_device_block(&s->f.device, "create");
        assert_int_equal(lease_ask(a, &rq, 1, pages, &result, &s->f.d), -EINPROGRESS);
        assert_int_equal(wait_deadline(&s->f.store), 1001);
        assert_false(wait_any_for_room(&s->f.store));
        assert_int_equal(lease_ask(a, &rq, 1000, pages, &result, &s->f.d), -EINPROGRESS);
        assert_int_equal(lease_ask(a, &rq, 1001, pages, &result, &s->f.d), KVL_STATUS_TIMEOUT);
        expect_said(s, "device slow is still making memory");
        fixture_check(&s->f);
        rq.max_wait_nsec = 0; /* not for room: there is room */
        assert_int_equal(lease_ask(a, &rq, 2000, pages, &result, &s->f.d), -EINPROGRESS);
        assert_int_equal(wait_deadline(&s->f.store), UINT64_MAX);
        fake_device_unblock(&s->f.device);
        reap(s);
        assert_int_equal(lease_ask(a, &rq, 3000, pages, &result, &s->f.d), 0);
        assert_int_equal(result.waited_nsec, 1000);
        assert_int_equal(result.reason, LEASE_REASON_DEVICE);
        assert_int_equal(s->f.a->counters.waits, 0);
        settle(s);
}

/* There are pages enough, but not one behind the other: a set is made for these. */
SLOW_SCENE(test_run_waits_for_its_set, PATIENT_MSEC, 4, 4)
{
        struct lease_request rq = {.n = SET_PAGES, .min = SET_PAGES, .how = LEASE_RUN};
        uint32_t pages[2 * SET_PAGES], some[SET_PAGES];
        struct lease_result result;
        struct attach *a = enter(s->f.a, "x");

        assert_int_equal(lease(s, a, 2 * SET_PAGES, pages), -EINPROGRESS);
        while (a->ns->device.n_preparing > 0)
                reap(s);
        assert_int_equal(lease(s, a, 2 * SET_PAGES, pages), 0);
        for (uint32_t i = 0; i < SET_PAGES; i++)
                some[i] = 2 * i;
        assert_int_equal(free_pages(a, some, SET_PAGES, NULL), 0);
        fake_device_block(&s->f.device, "create");
        assert_int_equal(lease_ask(a, &rq, 1, pages, &result, &s->f.d), -EINPROGRESS);
        assert_int_equal(a->ns->device.n_preparing, 1);
        /* A set that isn't ready yet is no reason to refuse, nor to make another one. */
        assert_int_equal(lease_ask(a, &rq, 2, pages, &result, &s->f.d), -EINPROGRESS);
        assert_int_equal(a->ns->device.n_preparing, 1);
        fake_device_unblock(&s->f.device);
        reap(s);
        assert_int_equal(lease_ask(a, &rq, 3, pages, &result, &s->f.d), 0);
        assert_int_equal(pages[0], 2 * SET_PAGES);
        assert_int_equal(pages[SET_PAGES - 1], 3 * SET_PAGES - 1);
        settle(s);
}

/* A set without a waiting lease doesn't stop the eviction of its namespace's idle sets. */
SLOW_SCENE(test_idle_set_beside_one_in_making, PATIENT_MSEC, 3, 4)
{
        uint32_t pages[2 * SET_PAGES];
        struct attach *a, *b;
        struct member *m;

        m = join(s->f.a);
        a = open_ns(m, "x");
        b = enter(s->f.a, "y");
        assert_int_equal(lease(s, a, SET_PAGES, pages), -EINPROGRESS);
        reap(s);
        assert_int_equal(lease(s, a, SET_PAGES, pages), 0);
        settle(s);
        fake_device_block(&s->f.device, "create");
        assert_int_equal(lease(s, a, 1, pages), -EINPROGRESS);
        assert_int_equal(free_pages(a, pages, SET_PAGES, NULL), 0);
        assert_int_equal(lease(s, b, 2 * SET_PAGES, pages), KVL_STATUS_FULL); /* a waits for both */
        member_free(m);
        assert_int_equal(lease(s, b, 2 * SET_PAGES, pages), -EINPROGRESS);
        fake_device_unblock(&s->f.device);
        while (b->ns->device.n_preparing > 0)
                reap(s);
        assert_int_equal(lease(s, b, 2 * SET_PAGES, pages), 0);
        settle(s);
}

/* Sets in making for a purged namespace take nothing from another tenant's reservation. */
TEST(test_purge_leaves_reservations_alone)
{
        uint64_t n_pages, n_kept;
        uint32_t pages[2 * SET_PAGES];
        struct tenant_attrs attrs;
        struct member *m;
        struct attach *b;
        struct slow s;

        start(&s, PATIENT_MSEC, 4, 4);
        attrs = s.f.a->attrs;
        attrs.class = TENANT_PINNED;
        attrs.reserve_bytes = 2 * SET_BYTES;
        assert_int_equal(tenant_set_attrs(s.f.a, &attrs, &s.f.d), 0);
        assert_int_equal(tenant_set_attrs(s.f.b, &attrs, &s.f.d), 0);
        m = join(s.f.a);
        fake_device_block(&s.f.device, "create");
        assert_int_equal(lease(&s, open_ns(m, "x"), 2 * SET_PAGES, pages), -EINPROGRESS);
        member_free(m);
        assert_int_equal(store_purge(&s.f.store, s.f.a, NULL, true, &n_pages, &n_kept), 0);
        fixture_check(&s.f);
        m = join(s.f.b);
        b = open_ns(m, "y");
        assert_int_equal(lease(&s, b, 2 * SET_PAGES, pages), -EINPROGRESS);
        assert_int_equal(b->ns->device.n_preparing, 2);
        fake_device_unblock(&s.f.device);
        while (b->ns->device.n_preparing > 0)
                reap(&s);
        member_free(m);
        /* And the purged one's is there again. */
        m = join(s.f.a);
        b = open_ns(m, "x");
        assert_int_equal(lease(&s, b, 2 * SET_PAGES, pages), -EINPROGRESS);
        while (b->ns->device.n_preparing > 0)
                reap(&s);
        member_free(m);
        end(&s);
}

SLOW_SCENE(test_magazine_is_topped_up, PATIENT_MSEC, 16, 16)
{
        struct attach *a = enter(s->f.a, "x");

        assert_int_equal(attach_share(a, NULL), 0);
        fake_device_block(&s->f.device, "create");
        assert_true(magazine_refill(a, 4, 1));
        fixture_check(&s->f);
        assert_int_equal(a->magazine->n_pages, 0);
        assert_int_equal(a->ns->device.n_preparing, 1);
        /* Asked again, nothing more is started. */
        assert_true(magazine_refill(a, 4, 2000000000));
        assert_int_equal(a->ns->device.n_preparing, 1);
        fake_device_unblock(&s->f.device);
        reap(s);
        settle(s);
        assert_true(a->magazine->n_pages >= 4);
        assert_int_equal(a->ns->device.n_sets, 1);
        magazine_drain(a);
        idle_sets_drain(&s->f.store);
        assert_int_equal(a->ns->device.n_sets, 0);
        /* One that fails isn't started again by itself. */
        fake_device_fail(&s->f.device, "create", 1, -ENOMEM);
        assert_true(magazine_refill(a, 4, 4000000000));
        wait_quiet(s);
        assert_int_equal(a->ns->device.n_preparing + a->ns->device.n_sets, 0);
}

/* Sets that exceed a limit that was lowered while they were made aren't kept. */
SLOW_SCENE(test_limit_lowered_while_preparing, PATIENT_MSEC, 8, 4)
{
        uint32_t pages[3 * SET_PAGES];
        struct extent_handle handle;
        struct tenant_attrs attrs;
        struct attach *a = enter(s->f.a, "x");
        int r;

        assert_int_equal(lease(s, a, SET_PAGES, pages), -EINPROGRESS);
        reap(s);
        assert_int_equal(lease(s, a, SET_PAGES, pages), 0);
        settle(s);
        assert_int_equal(attach_map_set(a, 0, 0, 1, &handle, NULL), 1);
        fd_close(handle.fd);
        fake_device_block(&s->f.device, "create");
        assert_int_equal(lease(s, a, 3 * SET_PAGES, pages), -EINPROGRESS);
        assert_int_equal(s->f.a->account.charged_bytes, 4 * SET_BYTES);
        attrs = s->f.a->attrs;
        attrs.limit_bytes = 2 * SET_BYTES;
        assert_int_equal(tenant_set_attrs(s->f.a, &attrs, &s->f.d), 0);
        fixture_check(&s->f);
        /* The pages in use fit the limit. */
        assert_int_equal(s->f.a->n_recalled, 0);
        fake_device_unblock(&s->f.device);
        do {
                reap(s);
                r = lease(s, a, 3 * SET_PAGES, pages);
                settle(s);
        } while (r == -EINPROGRESS);
        assert_int_equal(r, KVL_STATUS_QUOTA);
        wait_quiet(s);
        assert_int_equal(s->f.a->account.charged_bytes, SET_BYTES);
}

#define BREAK(slow, lvalue, value, said)                                                           \
        do {                                                                                       \
                __typeof__(lvalue) was = (lvalue);                                                 \
                uint64_t n_pages, n_sets;                                                          \
                (lvalue) = (value);                                                                \
                assert_int_equal(                                                                  \
                        store_check(&(slow)->f.store, &n_pages, &n_sets, &(slow)->f.d), -EUCLEAN); \
                expect_said((slow), (said));                                                       \
                (lvalue) = was;                                                                    \
                fixture_check(&(slow)->f);                                                         \
        } while (0)

SLOW_SCENE(test_checker_sees_what_is_wrong, PATIENT_MSEC, 4, 4)
{
        struct extent_set *set;
        uint32_t pages[SET_PAGES];
        struct attach *a = enter(s->f.a, "x");

        fake_device_block(&s->f.device, "create");
        assert_int_equal(lease(s, a, 1, pages), -EINPROGRESS);
        set = list_first(&a->ns->device.sets_preparing, struct extent_set, link);
        BREAK(s, a->ns->device.n_preparing, 2, "number of sets being made");
        BREAK(s, a->ns->device.n_preparing_pages, 1, "pages being made");
        BREAK(s, a->ns->sets.preparing[0], 0, "no slot");
        BREAK(s, a->ns->sets.preparing[2], 1, "sets being made");
        BREAK(s, set->charge.bytes, 1, "no charge");
        BREAK(s, s->pool->n_preparing, 0, "sets being made on device");
        BREAK(s, a->wait.n_wanted, 0, "number of waiting leases");
        BREAK(s, a->ns->waits.n_wanted, 7, "pages that leases wait for");
        BREAK(s, s->pool->account.charged_bytes, 0, "charge of device");
        lease_call_off(a);
        BREAK(s, a->ns->waits.failure.code, -EIO, "keeps a failure");
        fake_device_unblock(&s->f.device);
        wait_quiet(s);
}

/* The first of a namespace's two leases waits for its set, the second for room. The set is the
 * first one's, even if the second is tried before it. */
SLOW_SCENE(test_made_for_who_waited, PATIENT_MSEC, 1, 4)
{
        uint32_t pages[SET_PAGES];
        struct tenant_attrs attrs;
        struct member *holder;
        struct attach *a, *b, *c;

        attrs = s->f.a->attrs;
        attrs.when_full = WHEN_FULL_QUEUE;
        attrs.max_wait_nsec = 60 * NSEC_PER_SEC;
        assert_int_equal(tenant_set_attrs(s->f.a, &attrs, &s->f.d), 0);
        a = enter(s->f.a, "x");
        b = enter(s->f.a, "x");
        holder = join(s->f.b);
        c = open_ns(holder, "y");
        assert_int_equal(lease(s, c, SET_PAGES, pages), -EINPROGRESS);
        reap(s);
        assert_int_equal(lease(s, c, SET_PAGES, pages), 0);
        settle(s);
        assert_int_equal(lease(s, a, SET_PAGES, pages), -EINPROGRESS);
        assert_int_equal(lease(s, b, SET_PAGES, pages), -EINPROGRESS);
        assert_int_equal(a->ns->waits.n_queued, 2);
        member_free(holder);
        assert_int_equal(lease(s, a, SET_PAGES, pages), -EINPROGRESS);
        assert_int_equal(a->ns->waits.n, 1);
        wait_quiet(s);
        assert_int_equal(lease(s, b, SET_PAGES, pages), -EINPROGRESS);
        assert_int_equal(lease(s, a, SET_PAGES, pages), 0);
        settle(s);
}

/* daemon/core on a device behind a queue: sets that can't be made, or never come. */

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
