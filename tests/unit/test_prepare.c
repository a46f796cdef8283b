/* daemon/core on a device behind a queue: sets that take their time, fail, or never come. */
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "daemon/core/magazine.h"
#include "gpu/queue.h"
#include "tests/unit/core-fixture.h"

#define PATIENT_MSEC  60000
#define HASTY_MSEC    250
#define PATIENCE_MSEC 10000

struct slow {
        struct fixture f;
        struct pool *pool;
        char log[FAKE_LOG_BYTES];
};

static void start(struct slow *s, unsigned deadline_msec, unsigned budget, unsigned limit)
{
        struct tenant_attrs attrs = {
                .limit_bytes = limit * SET_BYTES, .weight = 1, .priority = 50, .max_clients = 8};
        struct queue *queue;

        *s = (struct slow){0};
        fake_device_init(&s->f.device, "slow", 256);
        fake_device_make_slow(&s->f.device, true);
        store_init(&s->f.store, &evict_lru);
        s->f.store.min_page_bytes = PAGE_BYTES;
        assert_int_equal(queue_open_device(&s->f.device.device, deadline_msec, &queue), 0);
        assert_int_equal(
                store_add_queue(&s->f.store, queue, budget * SET_BYTES, SET_BYTES, &s->f.d), 0);
        s->f.store.on_pressure = count_pressure;
        s->f.store.callback_data = &s->f;
        s->pool = store_find_pool(&s->f.store, "slow");
        assert_int_equal(tenant_new(&s->f.store, "a", &attrs, &s->f.a, &s->f.d), 0);
        assert_int_equal(tenant_new(&s->f.store, "b", &attrs, &s->f.b, &s->f.d), 0);
}

static void end(struct slow *s)
{
        fixture_end(&s->f);
        assert_false(s->f.device.wrong_caller);
        fake_device_deinit(&s->f.device);
}

/* Until a job is over; whoever waited is tried again by the test. */
static void reap(struct slow *s)
{
        uint64_t end_nsec = clock_now_nsec() + PATIENCE_MSEC * NSEC_PER_MSEC;

        while (clock_now_nsec() < end_nsec) {
                uint64_t until = queue_deadline_nsec(s->pool->queue), now = clock_now_nsec();
                struct pollfd p = {.fd = queue_fd(s->pool->queue), .events = POLLIN};

                until = MIN(until, end_nsec);
                poll(&p, 1, until > now ? (int)((until - now) / NSEC_PER_MSEC) + 1 : 0);
                if (pool_reap(s->pool) > 0) {
                        fixture_check(&s->f);
                        return;
                }
        }
        fail_msg("no job ended");
}

static void settle(struct slow *s)
{
        store_settle(&s->f.store, s->pool, 5);
        fixture_check(&s->f);
}

/* Nothing is under way: everything submitted was reaped. */
static void wait_quiet(struct slow *s)
{
        while (queue_deadline_nsec(s->pool->queue) != UINT64_MAX || queue_is_stuck(s->pool->queue))
                poll(&(struct pollfd){.fd = queue_fd(s->pool->queue), .events = POLLIN}, 1, 10);
        pool_reap(s->pool);
        settle(s);
}

static int lease(struct slow *s, struct attach *a, unsigned n, uint32_t *pages)
{
        int r;

        s->f.d.text[0] = '\0';
        r = lease_pages(a, n, 1, pages, &s->f.d);
        fixture_check(&s->f);
        return r;
}

static void expect_said(const struct slow *s, const char *part)
{
        if (!strstr(s->f.d.text, part))
                fail_msg("'%s' doesn't say '%s'", s->f.d.text, part);
}

static void test_lease_waits_for_its_set(void **state)
{
        uint32_t pages[SET_PAGES];
        struct member *m;
        struct attach *a;
        struct slow s;

        start(&s, PATIENT_MSEC, 4, 4);
        m = join(s.f.a);
        a = open_ns(m, "x");
        fake_device_block(&s.f.device, "create");
        assert_int_equal(lease(&s, a, 3, pages), -EINPROGRESS);
        assert_int_equal(a->ns->n_preparing, 1);
        assert_int_equal(s.pool->n_preparing, 1);
        assert_int_equal(a->ns->n_sets + a->ns->n_pages[PAGE_FREE], 0);
        assert_int_equal(s.pool->account.charged_bytes, SET_BYTES);
        assert_int_equal(s.f.a->account.charged_bytes, SET_BYTES);
        assert_int_equal(attach_map_set(a, 0, 0, 1, &(struct extent_handle){0}, NULL), -ENOENT);
        assert_null(ns_page(a->ns, 0));
        fake_device_unblock(&s.f.device);
        reap(&s);
        assert_int_equal(a->ns->n_preparing, 0);
        assert_int_equal(lease(&s, a, 3, pages), 0);
        settle(&s);
        assert_int_equal(a->ns->n_sets, 1);
        assert_int_equal(a->ns->n_pages[PAGE_GRANTED], 3);
        /* As ever from here on. */
        assert_int_equal(lease(&s, a, 5, pages), 0);
        assert_int_equal(s.pool->account.charged_bytes, SET_BYTES);
        member_free(m);
        assert_int_equal(s.pool->account.charged_bytes, 0);
        end(&s);
}

static void test_map_needs_no_driver(void **state)
{
        struct extent_handle first, second;
        uint32_t pages[1];
        struct member *m;
        struct attach *a;
        struct slow s;

        start(&s, PATIENT_MSEC, 4, 4);
        m = join(s.f.a);
        a = open_ns(m, "x");
        assert_int_equal(lease(&s, a, 1, pages), -EINPROGRESS);
        reap(&s);
        assert_int_equal(lease(&s, a, 1, pages), 0);
        fake_device_take_log(&s.f.device, s.log);
        assert_int_equal(attach_map_set(a, 0, 0, 1, &first, NULL), 1);
        assert_int_equal(attach_map_set(a, 0, 0, 1, &second, NULL), 1);
        assert_true(first.fd >= 0 && second.fd >= 0 && first.fd != second.fd);
        assert_int_not_equal(fcntl(first.fd, F_GETFD) & FD_CLOEXEC, 0);
        assert_string_equal(fake_device_take_log(&s.f.device, s.log), "");
        fd_close(first.fd);
        fd_close(second.fd);
        member_free(m);
        end(&s);
}

static void test_copied_handles(void **state)
{
        struct extent_handle handle;
        uint32_t pages[1];
        struct member *m;
        struct attach *a;
        struct slow s;
        unsigned n;

        start(&s, PATIENT_MSEC, 4, 4);
        s.f.device.hands_out_fds = false;
        m = join(s.f.a);
        a = open_ns(m, "x");
        assert_int_equal(lease(&s, a, 1, pages), -EINPROGRESS);
        reap(&s);
        assert_int_equal(lease(&s, a, 1, pages), 0);
        for (int i = 0; i < 2; i++) {
                assert_int_equal(attach_map_set(a, 0, 0, 1, &handle, NULL), 1);
                assert_int_equal(handle.fd, -1);
                memcpy(&n, handle.bytes, sizeof(n));
                assert_int_equal(n, 1);
        }
        member_free(m);
        end(&s);
}

static void test_device_without_memory(void **state)
{
        uint32_t pages[SET_PAGES];
        struct member *m;
        struct attach *a;
        struct slow s;

        start(&s, PATIENT_MSEC, 4, 4);
        m = join(s.f.a);
        a = open_ns(m, "x");
        fake_device_fail(&s.f.device, "create", 1, -ENOMEM);
        assert_int_equal(lease(&s, a, 1, pages), -EINPROGRESS);
        reap(&s);
        assert_int_equal(s.pool->account.charged_bytes, 0);
        assert_int_equal(lease(&s, a, 1, pages), KVL_STATUS_FULL);
        expect_said(&s, "device slow has no memory");
        expect_said(&s, "other processes");
        expect_said(&s, "create fails by order");
        settle(&s);
        assert_int_equal(s.f.store.counters.leases_refused, 1);
        assert_string_equal(s.pool->why, "create fails by order");
        /* Told once; the next one tries again. */
        fake_device_fail(&s.f.device, "create", 1, 0);
        assert_int_equal(lease(&s, a, 1, pages), -EINPROGRESS);
        reap(&s);
        assert_int_equal(lease(&s, a, 1, pages), 0);
        member_free(m);
        end(&s);
}

/* What it can't have from the device it takes from its own cache. */
static void test_failure_is_met_by_eviction(void **state)
{
        uint32_t pages[SET_PAGES];
        struct member *m;
        struct attach *a;
        struct slow s;

        start(&s, PATIENT_MSEC, 4, 4);
        m = join(s.f.a);
        a = open_ns(m, "x");
        assert_int_equal(lease(&s, a, SET_PAGES, pages), -EINPROGRESS);
        reap(&s);
        cache_chain(a, 0, SET_PAGES);
        settle(&s);
        fake_device_fail(&s.f.device, "create", 1, -ENOMEM);
        assert_int_equal(lease(&s, a, 4, pages), -EINPROGRESS);
        assert_int_equal(count_hits(a, 0, SET_PAGES), SET_PAGES);
        reap(&s);
        assert_int_equal(lease(&s, a, 4, pages), 0);
        assert_int_equal(count_hits(a, 0, SET_PAGES), 4);
        member_free(m);
        end(&s);
}

static void test_some_made_some_not(void **state)
{
        uint32_t pages[3 * SET_PAGES];
        struct member *m;
        struct attach *a;
        struct slow s;

        start(&s, PATIENT_MSEC, 4, 4);
        m = join(s.f.a);
        a = open_ns(m, "x");
        fake_device_block(&s.f.device, "create");
        fake_device_fail(&s.f.device, "create", 3, -ENOMEM);
        assert_int_equal(lease(&s, a, 3 * SET_PAGES, pages), -EINPROGRESS);
        assert_int_equal(a->ns->n_preparing, 3);
        fake_device_unblock(&s.f.device);
        while (a->ns->n_preparing > 0) {
                reap(&s);
                /* Those that were made are kept for it. */
                if (a->ns->n_preparing > 0)
                        assert_int_equal(lease(&s, a, 3 * SET_PAGES, pages), -EINPROGRESS);
                settle(&s);
        }
        assert_int_equal(a->ns->n_sets, 2);
        assert_int_equal(lease(&s, a, 3 * SET_PAGES, pages), KVL_STATUS_FULL);
        settle(&s);
        assert_int_equal(a->ns->n_sets, 0);
        assert_int_equal(s.pool->account.charged_bytes, 0);
        member_free(m);
        end(&s);
}

/* What was made of a lease that may be degraded is granted; what failed isn't tried again. */
static void test_degrade_meets_a_failure(void **state)
{
        const struct lease_request rq = {.n = 3 * SET_PAGES, .min = 1, .max_wait_nsec = UINT64_MAX};
        uint32_t pages[3 * SET_PAGES];
        struct lease_result result;
        struct tenant_attrs attrs;
        struct member *m;
        struct attach *a;
        struct slow s;
        int r;

        start(&s, PATIENT_MSEC, 4, 4);
        attrs = s.f.a->attrs;
        attrs.when_full = WHEN_FULL_DEGRADE;
        assert_int_equal(tenant_set_attrs(s.f.a, &attrs, &s.f.d), 0);
        m = join(s.f.a);
        a = open_ns(m, "x");
        fake_device_fail(&s.f.device, "create", 3, -ENOMEM);
        do {
                r = lease_ask(a, &rq, 1, pages, &result, &s.f.d);
                fixture_check(&s.f);
                if (r == -EINPROGRESS)
                        reap(&s);
        } while (r == -EINPROGRESS);
        assert_int_equal(r, 0);
        assert_int_equal(result.n, 2 * SET_PAGES);
        assert_int_equal(result.reason, LEASE_REASON_DEGRADED);
        settle(&s);
        fake_device_fail(&s.f.device, "create", 1, -ENOMEM);
        assert_int_equal(lease_ask(a, &rq, 1, pages, &result, &s.f.d), -EINPROGRESS);
        reap(&s);
        while (a->ns->n_preparing > 0)
                reap(&s);
        assert_int_equal(lease_ask(a, &rq, 1, pages, &result, &s.f.d), KVL_STATUS_FULL);
        assert_int_equal(result.reason, LEASE_REASON_DEVICE);
        assert_int_equal(a->ns->n_preparing, 0);
        member_free(m);
        end(&s);
}

/* The wait for a device ends with the request's own, not with the tenant's max_wait, and isn't one
 * for room. */
static void test_request_ends_the_wait(void **state)
{
        struct lease_request rq = {.n = 1, .min = 1, .max_wait_nsec = 1000};
        uint32_t pages[SET_PAGES];
        struct lease_result result;
        struct member *m;
        struct attach *a;
        struct slow s;

        start(&s, PATIENT_MSEC, 4, 4);
        m = join(s.f.a);
        a = open_ns(m, "x");
        fake_device_block(&s.f.device, "create");
        assert_int_equal(lease_ask(a, &rq, 1, pages, &result, &s.f.d), -EINPROGRESS);
        assert_int_equal(wait_deadline(&s.f.store), 1001);
        assert_false(wait_any_for_room(&s.f.store));
        assert_int_equal(lease_ask(a, &rq, 1000, pages, &result, &s.f.d), -EINPROGRESS);
        assert_int_equal(lease_ask(a, &rq, 1001, pages, &result, &s.f.d), KVL_STATUS_TIMEOUT);
        expect_said(&s, "device slow is still making memory");
        fixture_check(&s.f);
        rq.max_wait_nsec = 0; /* not for room: there is room */
        assert_int_equal(lease_ask(a, &rq, 2000, pages, &result, &s.f.d), -EINPROGRESS);
        assert_int_equal(wait_deadline(&s.f.store), UINT64_MAX);
        fake_device_unblock(&s.f.device);
        reap(&s);
        assert_int_equal(lease_ask(a, &rq, 3000, pages, &result, &s.f.d), 0);
        assert_int_equal(result.waited_nsec, 1000);
        assert_int_equal(result.reason, LEASE_REASON_DEVICE);
        assert_int_equal(s.f.a->counters.waits, 0);
        settle(&s);
        member_free(m);
        end(&s);
}

static void test_two_leases_wait(void **state)
{
        uint32_t pages[SET_PAGES];
        struct attach *a, *b;
        struct member *m, *n;
        struct slow s;

        start(&s, PATIENT_MSEC, 4, 4);
        m = join(s.f.a);
        n = join(s.f.a);
        a = open_ns(m, "x");
        b = open_ns(n, "x");
        fake_device_block(&s.f.device, "create");
        assert_int_equal(lease(&s, a, SET_PAGES, pages), -EINPROGRESS);
        assert_int_equal(lease(&s, b, SET_PAGES, pages), -EINPROGRESS);
        assert_int_equal(a->ns->n_preparing, 2); /* one for each */
        fake_device_fail(&s.f.device, "create", 2, -ENOMEM);
        fake_device_unblock(&s.f.device);
        while (a->ns->n_preparing > 0)
                reap(&s);
        /* The one that is first has it; who comes after learns why there is no other. */
        assert_int_equal(lease(&s, a, SET_PAGES, pages), 0);
        assert_int_equal(lease(&s, b, SET_PAGES, pages), KVL_STATUS_FULL);
        settle(&s);
        member_free(n);
        member_free(m);
        end(&s);
}

/* Within a budget of one set: the second starts over, and is refused by the budget. */
static void test_second_lease_finds_its_set_taken(void **state)
{
        uint32_t pages[SET_PAGES];
        struct attach *a, *b;
        struct member *m, *n;
        struct slow s;

        start(&s, PATIENT_MSEC, 1, 4);
        m = join(s.f.a);
        n = join(s.f.a);
        a = open_ns(m, "x");
        b = open_ns(n, "x");
        fake_device_block(&s.f.device, "create");
        assert_int_equal(lease(&s, a, SET_PAGES, pages), -EINPROGRESS);
        assert_int_equal(lease(&s, b, SET_PAGES, pages), -EINPROGRESS);
        assert_int_equal(a->ns->n_preparing, 1);
        fake_device_unblock(&s.f.device);
        reap(&s);
        assert_int_equal(lease(&s, a, SET_PAGES, pages), 0);
        assert_int_equal(lease(&s, b, 1, pages), KVL_STATUS_FULL);
        settle(&s);
        member_free(m);
        member_free(n);
        end(&s);
}

static void test_waiter_leaves(void **state)
{
        uint32_t pages[SET_PAGES];
        struct member *m;
        struct attach *a;
        struct ns *ns;
        struct slow s;

        start(&s, PATIENT_MSEC, 4, 4);
        m = join(s.f.a);
        a = open_ns(m, "x");
        ns = a->ns;
        fake_device_block(&s.f.device, "create");
        assert_int_equal(lease(&s, a, 1, pages), -EINPROGRESS);
        member_free(m);
        fixture_check(&s.f);
        fake_device_unblock(&s.f.device);
        reap(&s);
        settle(&s);
        assert_int_equal(ns->n_sets, 0);
        assert_int_equal(s.pool->account.charged_bytes, 0);
        /* A failure that nobody waits for isn't kept. */
        m = join(s.f.a);
        a = open_ns(m, "x");
        fake_device_fail(&s.f.device, "create", 1, -ENOMEM);
        fake_device_block(&s.f.device, "create");
        assert_int_equal(lease(&s, a, 1, pages), -EINPROGRESS);
        lease_call_off(a);
        fake_device_unblock(&s.f.device);
        wait_quiet(&s);
        fake_device_fail(&s.f.device, "create", 1, 0);
        assert_int_equal(lease(&s, a, 1, pages), -EINPROGRESS);
        reap(&s);
        assert_int_equal(lease(&s, a, 1, pages), 0);
        member_free(m);
        end(&s);
}

static void test_purge_while_preparing(void **state)
{
        uint64_t n_pages, n_kept;
        uint32_t pages[SET_PAGES];
        struct member *m;
        struct attach *a;
        struct slow s;

        start(&s, PATIENT_MSEC, 1, 4);
        m = join(s.f.a);
        a = open_ns(m, "x");
        fake_device_block(&s.f.device, "create");
        assert_int_equal(lease(&s, a, 1, pages), -EINPROGRESS);
        member_free(m);
        assert_int_equal(store_purge(&s.f.store, s.f.a, NULL, true, &n_pages, &n_kept), 0);
        fixture_check(&s.f);
        assert_int_equal(s.f.a->account.charged_bytes, 0);
        /* The device makes it all the same: until it is gone nobody else gets the budget. */
        assert_int_equal(s.pool->account.charged_bytes, SET_BYTES);
        assert_int_equal(s.pool->n_preparing, 1);
        m = join(s.f.b);
        a = open_ns(m, "y");
        assert_int_equal(lease(&s, a, 1, pages), KVL_STATUS_FULL);
        fake_device_unblock(&s.f.device);
        reap(&s);
        assert_int_equal(s.pool->account.charged_bytes, 0);
        assert_int_equal(s.pool->n_preparing, 0);
        assert_int_equal(lease(&s, a, 1, pages), -EINPROGRESS);
        while (a->ns->n_preparing > 0)
                reap(&s);
        assert_string_equal(
                fake_device_take_log(&s.f.device, s.log), "create export destroy create export ");
        member_free(m);
        end(&s);
}

/* What a purged namespace was being made takes nothing from another tenant's reservation. */
static void test_purge_leaves_reservations_alone(void **state)
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
        assert_int_equal(b->ns->n_preparing, 2);
        fake_device_unblock(&s.f.device);
        while (b->ns->n_preparing > 0)
                reap(&s);
        member_free(m);
        /* And the purged one's is there again. */
        m = join(s.f.a);
        b = open_ns(m, "x");
        assert_int_equal(lease(&s, b, 2 * SET_PAGES, pages), -EINPROGRESS);
        while (b->ns->n_preparing > 0)
                reap(&s);
        member_free(m);
        end(&s);
}

/* Everything goes while sets are being made, with and without a namespace. */
static void test_end_while_preparing(void **state)
{
        uint64_t n_pages, n_kept;
        uint32_t pages[SET_PAGES];
        struct member *m;
        struct slow s;

        start(&s, PATIENT_MSEC, 4, 4);
        fake_device_block(&s.f.device, "create");
        m = join(s.f.a);
        assert_int_equal(lease(&s, open_ns(m, "x"), 1, pages), -EINPROGRESS);
        assert_int_equal(lease(&s, open_ns(m, "y"), 1, pages), -EINPROGRESS);
        member_free(m);
        assert_int_equal(
                store_purge(&s.f.store, s.f.a, ns_find(s.f.a, "x"), true, &n_pages, &n_kept), 0);
        fake_device_unblock(&s.f.device);
        end(&s);
}

static void test_magazine_is_topped_up(void **state)
{
        struct member *m;
        struct attach *a;
        struct slow s;

        start(&s, PATIENT_MSEC, 16, 16);
        m = join(s.f.a);
        a = open_ns(m, "x");
        assert_int_equal(attach_share(a, NULL), 0);
        fake_device_block(&s.f.device, "create");
        assert_true(magazine_refill(a, 4, 1));
        fixture_check(&s.f);
        assert_int_equal(a->magazine->n_pages, 0);
        assert_int_equal(a->ns->n_preparing, 1);
        /* Asked again, nothing more is started. */
        assert_true(magazine_refill(a, 4, 2000000000));
        assert_int_equal(a->ns->n_preparing, 1);
        fake_device_unblock(&s.f.device);
        reap(&s);
        settle(&s);
        assert_true(a->magazine->n_pages >= 4);
        assert_int_equal(a->ns->n_sets, 1);
        magazine_drain(a);
        assert_int_equal(a->ns->n_sets, 0);
        /* One that fails isn't started again by itself. */
        fake_device_fail(&s.f.device, "create", 1, -ENOMEM);
        assert_true(magazine_refill(a, 4, 4000000000));
        wait_quiet(&s);
        assert_int_equal(a->ns->n_preparing + a->ns->n_sets, 0);
        member_free(m);
        end(&s);
}

static void test_magazine_leaves_what_a_lease_waits_for(void **state)
{
        uint32_t pages[2 * SET_PAGES];
        struct member *m, *n;
        struct attach *a, *b;
        struct slow s;

        start(&s, PATIENT_MSEC, 16, 16);
        m = join(s.f.a);
        n = join(s.f.a);
        a = open_ns(m, "x");
        b = open_ns(n, "x");
        assert_int_equal(attach_share(b, NULL), 0);
        assert_int_equal(lease(&s, a, 2 * SET_PAGES, pages), -EINPROGRESS);
        while (a->ns->n_preparing > 0)
                reap(&s);
        assert_true(magazine_refill(b, 4, 1));
        assert_int_equal(b->magazine->n_pages, 0);
        assert_int_equal(lease(&s, a, 2 * SET_PAGES, pages), 0);
        while (a->ns->n_preparing > 0)
                reap(&s);
        settle(&s);
        assert_true(b->magazine->n_pages >= 4);
        member_free(m);
        member_free(n);
        end(&s);
}

static void test_driver_hangs_and_recovers(void **state)
{
        uint32_t pages[SET_PAGES], other[SET_PAGES];
        struct attach *a, *b;
        struct member *m;
        struct slow s;

        start(&s, HASTY_MSEC, 4, 4);
        m = join(s.f.a);
        a = open_ns(m, "x");
        b = open_ns(m, "y");
        assert_int_equal(lease(&s, b, 2, other), -EINPROGRESS);
        reap(&s);
        assert_int_equal(lease(&s, b, 2, other), 0);
        fake_device_block(&s.f.device, "create");
        assert_int_equal(lease(&s, a, 1, pages), -EINPROGRESS);
        reap(&s);
        assert_true(queue_is_stuck(s.pool->queue));
        assert_int_equal(lease(&s, a, 1, pages), -EIO);
        expect_said(&s, "device slow hangs: the driver hasn't answered extent_create for 250 ms");
        settle(&s);
        /* At once now, and nothing is asked of it. */
        assert_int_equal(lease(&s, a, 1, pages), -EIO);
        expect_said(&s, "device slow hangs");
        /* What is bound is there as ever. */
        assert_int_equal(lease(&s, b, 6, pages), 0);
        assert_int_equal(free_pages(b, other, 2, NULL), 0);
        assert_int_equal(free_pages(b, pages, 6, NULL), 0);
        fixture_check(&s.f);
        assert_int_equal(s.pool->account.charged_bytes, 0);
        fake_device_unblock(&s.f.device);
        wait_quiet(&s);
        assert_int_equal(fake_device_count(&s.f.device), 0);
        assert_int_equal(lease(&s, a, 1, pages), -EINPROGRESS);
        /* What was destroyed last may be told only now. */
        while (a->ns->n_preparing > 0)
                reap(&s);
        assert_int_equal(lease(&s, a, 1, pages), 0);
        member_free(m);
        end(&s);
}

static void test_broken_device(void **state)
{
        uint32_t pages[SET_PAGES];
        struct member *m;
        struct attach *a;
        struct slow s;

        start(&s, PATIENT_MSEC, 4, 4);
        m = join(s.f.a);
        a = open_ns(m, "x");
        fake_device_fail(&s.f.device, "export", 1, -ENXIO);
        assert_int_equal(lease(&s, a, 1, pages), -EINPROGRESS);
        reap(&s);
        assert_int_equal(lease(&s, a, 1, pages), -EIO);
        expect_said(&s, "device slow is broken: export fails by order");
        settle(&s);
        assert_int_equal(lease(&s, a, 1, pages), -EIO);
        expect_said(&s, "is broken");
        assert_int_equal(s.f.store.counters.leases_refused, 2);
        assert_int_equal(s.f.n_pressure, 0); /* clients can't help */
        member_free(m);
        end(&s);
}

static void test_drain_ends_the_wait(void **state)
{
        uint32_t pages[SET_PAGES];
        struct member *m;
        struct attach *a;
        struct slow s;

        start(&s, PATIENT_MSEC, 4, 4);
        m = join(s.f.a);
        a = open_ns(m, "x");
        assert_int_equal(lease(&s, a, 1, pages), -EINPROGRESS);
        reap(&s);
        s.f.store.draining = true;
        assert_int_equal(lease(&s, a, 1, pages), KVL_STATUS_DRAINING);
        settle(&s);
        assert_int_equal(a->ns->n_sets + a->ns->n_waiting, 0);
        member_free(m);
        end(&s);
}

/* A set that was made for a lease that waits for more isn't taken for somebody else. */
static void test_others_leave_it_alone(void **state)
{
        uint32_t pages[2 * SET_PAGES], other[SET_PAGES];
        struct attach *a, *b;
        struct member *m, *n;
        struct slow s;

        start(&s, PATIENT_MSEC, 2, 4);
        m = join(s.f.a);
        n = join(s.f.b);
        a = open_ns(m, "x");
        b = open_ns(n, "y");
        fake_device_block(&s.f.device, "create");
        assert_int_equal(lease(&s, a, 2 * SET_PAGES, pages), -EINPROGRESS);
        fake_device_wait_inside(&s.f.device);
        fake_device_block(&s.f.device, "export"); /* of the first */
        fake_device_wait_inside(&s.f.device);
        fake_device_block(&s.f.device, "create"); /* of the second */
        fake_device_wait_inside(&s.f.device);
        reap(&s);
        settle(&s);
        assert_int_equal(a->ns->n_sets, 1);
        assert_int_equal(a->ns->n_preparing, 1);
        assert_int_equal(lease(&s, b, 1, other), KVL_STATUS_FULL);
        assert_int_equal(a->ns->n_sets, 1);
        fake_device_unblock(&s.f.device);
        reap(&s);
        assert_int_equal(lease(&s, a, 2 * SET_PAGES, pages), 0);
        settle(&s);
        member_free(m);
        member_free(n);
        end(&s);
}

/* What is made under a limit that was lowered meanwhile isn't kept beyond it. */
static void test_limit_lowered_while_preparing(void **state)
{
        uint32_t pages[3 * SET_PAGES];
        struct extent_handle handle;
        struct tenant_attrs attrs;
        struct member *m;
        struct attach *a;
        struct slow s;
        int r;

        start(&s, PATIENT_MSEC, 8, 4);
        m = join(s.f.a);
        a = open_ns(m, "x");
        assert_int_equal(lease(&s, a, SET_PAGES, pages), -EINPROGRESS);
        reap(&s);
        assert_int_equal(lease(&s, a, SET_PAGES, pages), 0);
        settle(&s);
        assert_int_equal(attach_map_set(a, 0, 0, 1, &handle, NULL), 1);
        fd_close(handle.fd);
        fake_device_block(&s.f.device, "create");
        assert_int_equal(lease(&s, a, 3 * SET_PAGES, pages), -EINPROGRESS);
        assert_int_equal(s.f.a->account.charged_bytes, 4 * SET_BYTES);
        attrs = s.f.a->attrs;
        attrs.limit_bytes = 2 * SET_BYTES;
        assert_int_equal(tenant_set_attrs(s.f.a, &attrs, &s.f.d), 0);
        fixture_check(&s.f);
        /* What is used fits the limit. */
        assert_int_equal(s.f.a->n_recalled, 0);
        fake_device_unblock(&s.f.device);
        do {
                reap(&s);
                r = lease(&s, a, 3 * SET_PAGES, pages);
                settle(&s);
        } while (r == -EINPROGRESS);
        assert_int_equal(r, KVL_STATUS_QUOTA);
        wait_quiet(&s);
        assert_int_equal(s.f.a->account.charged_bytes, SET_BYTES);
        member_free(m);
        end(&s);
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

static void test_checker_sees_what_is_wrong(void **state)
{
        struct extent_set *set;
        uint32_t pages[SET_PAGES];
        struct member *m;
        struct attach *a;
        struct slow s;

        start(&s, PATIENT_MSEC, 4, 4);
        m = join(s.f.a);
        a = open_ns(m, "x");
        fake_device_block(&s.f.device, "create");
        assert_int_equal(lease(&s, a, 1, pages), -EINPROGRESS);
        set = list_first(&a->ns->sets_preparing, struct extent_set, link);
        BREAK(&s, a->ns->n_preparing, 2, "number of sets being made");
        BREAK(&s, a->ns->n_preparing_pages, 1, "pages being made");
        BREAK(&s, a->ns->slots_preparing[0], 0, "no slot");
        BREAK(&s, a->ns->slots_preparing[2], 1, "sets being made");
        BREAK(&s, set->charge.bytes, 1, "no charge");
        BREAK(&s, s.pool->n_preparing, 0, "sets being made on device");
        BREAK(&s, a->wait.n_wanted, 0, "number of waiting leases");
        BREAK(&s, a->ns->n_wanted, 7, "pages that leases wait for");
        BREAK(&s, s.pool->account.charged_bytes, 0, "charge of device");
        lease_call_off(a);
        BREAK(&s, a->ns->failure.code, -EIO, "keeps a failure");
        fake_device_unblock(&s.f.device);
        wait_quiet(&s);
        member_free(m);
        end(&s);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_lease_waits_for_its_set),
                TEST(test_map_needs_no_driver),
                TEST(test_copied_handles),
                TEST(test_device_without_memory),
                TEST(test_failure_is_met_by_eviction),
                TEST(test_some_made_some_not),
                TEST(test_degrade_meets_a_failure),
                TEST(test_request_ends_the_wait),
                TEST(test_two_leases_wait),
                TEST(test_second_lease_finds_its_set_taken),
                TEST(test_waiter_leaves),
                TEST(test_purge_while_preparing),
                TEST(test_purge_leaves_reservations_alone),
                TEST(test_end_while_preparing),
                TEST(test_magazine_is_topped_up),
                TEST(test_magazine_leaves_what_a_lease_waits_for),
                TEST(test_driver_hangs_and_recovers),
                TEST(test_broken_device),
                TEST(test_drain_ends_the_wait),
                TEST(test_others_leave_it_alone),
                TEST(test_limit_lowered_while_preparing),
                TEST(test_checker_sees_what_is_wrong),
        };

        return RUN_TESTS(tests);
}
