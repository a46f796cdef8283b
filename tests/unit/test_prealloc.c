/* Preallocated pages (daemon/core/reclaim/prealloc.h): steady leases don't wait for the device,
 * without a cost to other clients. */
#include <poll.h>

#include "base/clock.h"
#include "daemon/core/core.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/reclaim/prealloc.h"
#include "gpu/queue.h"
#include "tests/unit/core-fixture.h"

#define PATIENT_MSEC  60000
#define PATIENCE_MSEC 10000
#define MAKE_MSEC     40 /* what a set takes, in the test's time */
#define TICK_MSEC     100
#define MSEC          NSEC_PER_MSEC

struct stream {
        struct fixture f;
        struct pool *pool;
        struct member *m;
        struct attach *a;
        uint64_t now_msec;
        uint64_t made_msec; /* what is being made is there then; 0: nothing is */
        bool is_waiting;
        unsigned n_waits, n_leases, n_asked;
};

static void note_asked(void *data)
{
        ((struct stream *)data)->n_asked++;
}

/* A device that makes a set when the test says so. */
static void start(struct stream *s, unsigned sets)
{
        struct tenant_attrs attrs = {
                .limit_bytes = sets * SET_BYTES, .weight = 1, .priority = 50, .max_clients = 8};
        struct queue *queue;

        *s = (struct stream){.now_msec = 1000};
        fake_device_init(&s->f.device, "slow", 256);
        fake_device_make_slow(&s->f.device, true);
        store_init(&s->f.store, &evict_lru);
        s->f.store.min_page_bytes = PAGE_BYTES;
        assert_int_equal(queue_open_device(&s->f.device.device, PATIENT_MSEC, &queue), 0);
        assert_int_equal(
                store_add_queue(&s->f.store, queue, sets * SET_BYTES, SET_BYTES, &s->f.d), 0);
        s->pool = store_find_pool(&s->f.store, "");
        assert_int_equal(tenant_new(&s->f.store, "a", &attrs, &s->f.a, &s->f.d), 0);
        assert_int_equal(tenant_new(&s->f.store, "b", &attrs, &s->f.b, &s->f.d), 0);
        s->f.store.owner.on_prealloc = note_asked;
        s->f.store.owner.data = s;
        s->m = join(s->f.a);
        s->a = open_ns(s->m, "n");
        fake_device_block(&s->f.device, "create");
}

static void end(struct stream *s)
{
        fake_device_unblock(&s->f.device);
        member_free(s->m);
        fixture_end(&s->f);
        fake_device_deinit(&s->f.device);
}

#define SCENE(fn, ...) TEST_ON(fn, struct stream, s, start, end, ##__VA_ARGS__)

static void make_all(struct stream *s)
{
        uint64_t end_nsec = clock_now_nsec() + PATIENCE_MSEC * NSEC_PER_MSEC;

        fake_device_unblock(&s->f.device);
        while (s->pool->n_preparing > 0 && clock_now_nsec() < end_nsec) {
                poll(&(struct pollfd){.fd = queue_fd(s->pool->queue), .events = POLLIN}, 1, 100);
                pool_reap(s->pool);
        }
        assert_int_equal(s->pool->n_preparing, 0);
        fake_device_block(&s->f.device, "create");
        s->a->ns->reclaim.prealloc.ahead.make_sec = MAKE_MSEC / 1e3; /* in the test's time */
}

static void lease(struct stream *s)
{
        uint32_t page;
        int r = lease_pages(s->a, 1, s->now_msec * MSEC, &page, NULL);

        assert_true(r == 0 || r == -EINPROGRESS);
        s->n_waits += r != 0 && !s->is_waiting;
        s->n_leases += r == 0;
        s->is_waiting = r != 0;
}

/* A millisecond of it: a lease, and what the server does. */
static void go_on(struct stream *s, bool leases, bool has_prealloc)
{
        s->now_msec++;
        if (s->made_msec > 0 && s->now_msec >= s->made_msec) {
                make_all(s);
                s->made_msec = 0;
                if (s->is_waiting)
                        lease(s);
                store_top_up(&s->f.store, s->pool, s->now_msec * MSEC);
        }
        if (leases && !s->is_waiting)
                lease(s);
        if (has_prealloc && (s->n_asked > 0 || s->now_msec % TICK_MSEC == 0)) {
                s->n_asked = 0;
                (void)prealloc_work(&s->f.store, s->now_msec * MSEC);
        }
        if (s->made_msec == 0 && s->pool->n_preparing > 0)
                s->made_msec = s->now_msec + MAKE_MSEC;
        if (s->now_msec % 10 == 0)
                fixture_check(&s->f);
}

/* Runs leases of a page each ten milliseconds. Returns how many waited after the rate was known. */
static unsigned run(bool has_prealloc)
{
        struct stream s;
        unsigned n;

        start(&s, 256);
        for (unsigned i = 0; i < 12000; i++) {
                if (i == 4000)
                        s.n_waits = s.n_leases = 0;
                go_on(&s, i % 10 == 0, has_prealloc);
        }
        assert_true(s.n_leases > 400);
        n = s.n_waits;
        end(&s);
        return n;
}

TEST(test_steady_leases_wait_less)
{
        unsigned without = run(false), with = run(true);

        print_message("%u leases waited without, %u with\n", without, with);
        assert_true(without > 20);
        assert_true(with * 4 < without);
}

/* Without leases the preallocated pages are given back, at the latest when the last client leaves.
 */
SCENE(test_goes_back, 256)
{
        uint32_t used;

        for (unsigned i = 0; i < 8000; i++)
                go_on(s, i % 10 == 0, true);
        assert_true(s->a->ns->reclaim.prealloc.n_to_keep >= 4);
        assert_true(prealloc_figure(&s->f.store) > 0);
        used = s->a->ns->device.n_sets - (uint32_t)(ns_n_room(s->a->ns) / SET_PAGES);
        for (unsigned i = 0; i < 60000 && s->a->ns->reclaim.prealloc.is_leased; i++)
                go_on(s, false, true);
        assert_false(s->a->ns->reclaim.prealloc.is_leased);
        go_on(s, false, true);
        assert_int_equal(prealloc_figure(&s->f.store), 0);
        assert_int_equal(s->pool->n_preparing, 0);
        assert_int_equal(s->a->ns->device.n_sets, used);
}

SCENE(test_ends_with_the_last_client, 256)
{
        for (unsigned i = 0; i < 2000; i++)
                go_on(s, i % 10 == 0, true);
        if (s->pool->n_preparing > 0)
                make_all(s);
        store_top_up(&s->f.store, s->pool, s->now_msec * MSEC);
        assert_true(s->f.a->account.charged_bytes > 0);
        member_free(s->m);
        fixture_check(&s->f);
        assert_int_equal(s->f.a->account.charged_bytes, 0);
        s->m = join(s->f.a);
}

/* The last set is for leases: neither preallocation nor a magazine has it made. */
SCENE(test_leaves_the_last, 2)
{
        struct member *other;
        uint32_t pages[SET_PAGES];

        assert_int_equal(lease_pages(s->a, SET_PAGES, MSEC, pages, NULL), -EINPROGRESS);
        make_all(s);
        assert_int_equal(lease_pages(s->a, SET_PAGES, MSEC, pages, NULL), 0);
        store_top_up(&s->f.store, s->pool, MSEC);
        s->a->ns->reclaim.prealloc.ahead.pages_per_sec = 1e6;
        s->a->ns->reclaim.prealloc.ahead.last_nsec = s->now_msec * MSEC;
        s->a->ns->reclaim.prealloc.is_leased = true;
        for (unsigned i = 0; i < 300; i++)
                go_on(s, false, true);
        assert_int_equal(s->f.a->account.charged_bytes, SET_BYTES);
        (void)lease_make_ready(s->a, 2 * SET_PAGES, 0, s->now_msec * MSEC);
        idle_sets_add_all(s->a->ns);
        idle_sets_drain(&s->f.store);
        assert_int_equal(s->f.a->account.charged_bytes, SET_BYTES);
        other = join(s->f.b);
        assert_int_equal(
                lease_pages(open_ns(other, "n"), 1, s->now_msec * MSEC, pages, NULL), -EINPROGRESS);
        make_all(s);
        store_top_up(&s->f.store, s->pool, s->now_msec * MSEC);
}
