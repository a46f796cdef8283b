/* A store on a device behind a queue, which makes sets when the test says so. */
#ifndef KVL_TESTS_UNIT_SLOW_FIXTURE_H
#define KVL_TESTS_UNIT_SLOW_FIXTURE_H

#include <poll.h>

#include "base/clock.h"
#include "daemon/core/core.h"
#include "daemon/core/memory/sets.h"
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

static inline void start(struct slow *s, unsigned deadline_msec, unsigned budget, unsigned limit)
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
        s->f.store.owner.on_pressure = count_pressure;
        s->f.store.owner.data = &s->f;
        s->pool = store_find_pool(&s->f.store, "slow");
        assert_int_equal(tenant_new(&s->f.store, "a", &attrs, &s->f.a, &s->f.d), 0);
        assert_int_equal(tenant_new(&s->f.store, "b", &attrs, &s->f.b, &s->f.d), 0);
}

static inline void end(struct slow *s)
{
        fixture_end(&s->f);
        assert_false(s->f.device.wrong_caller);
        fake_device_deinit(&s->f.device);
}

/* Waits until a job is over. The test itself retries the requests that waited. */
static inline void reap(struct slow *s)
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

static inline void settle(struct slow *s)
{
        store_top_up(&s->f.store, s->pool, 5);
        fixture_check(&s->f);
}

/* Nothing is under way: everything submitted was reaped. */
static inline void wait_quiet(struct slow *s)
{
        while (queue_deadline_nsec(s->pool->queue) != UINT64_MAX || queue_is_stuck(s->pool->queue))
                poll(&(struct pollfd){.fd = queue_fd(s->pool->queue), .events = POLLIN}, 1, 10);
        pool_reap(s->pool);
        settle(s);
}

static inline int lease(struct slow *s, struct attach *a, unsigned n, uint32_t *pages)
{
        int r;

        s->f.d.text[0] = '\0';
        r = lease_pages(a, n, 1, pages, &s->f.d);
        fixture_check(&s->f);
        return r;
}

static inline void expect_said(const struct slow *s, const char *part)
{
        if (!strstr(s->f.d.text, part))
                fail_msg("'%s' doesn't say '%s'", s->f.d.text, part);
}

#define SLOW_SCENE(fn, ...) TEST_ON(fn, struct slow, s, start, end, ##__VA_ARGS__)

#endif
