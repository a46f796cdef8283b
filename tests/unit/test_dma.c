/* Host memory below a GPU: registered with it when it is mapped, given back when the driver has let
 * go of it, and as good where the driver refuses. */
#include "daemon/core/core.h"
#include "daemon/core/life/open.h"

#include <poll.h>

#include "base/clock.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "gpu/queue.h"
#include "tests/unit/core-fixture.h"

#define BYTES         (UINT64_C(2) << 20) /* of a set: the granularity of the host's memory */
#define PATIENT_MSEC  60000
#define HASTY_MSEC    250
#define PATIENCE_MSEC 10000

struct scene {
        struct fake_device gpu;
        struct store store;
        struct pool *pool, *below;
        struct member *m;
        struct ns *ns;
        struct extent_set *set; /* below, bound, not mapped */
        struct detail d;
        char log[FAKE_LOG_BYTES];
};

static struct device *host_memory(void)
{
        const struct device_options options = {.side = DEVICE_OWNER};
        char why[DEVICE_WHY_BYTES];
        struct device *d = NULL;

        assert_int_equal(host_backend.open(NULL, &options, &d, why), 0);
        return d;
}

static void start(struct scene *w, unsigned deadline_msec)
{
        struct tenant_attrs attrs = {.weight = 1,
                .priority = 50,
                .max_clients = 8,
                .limit_bytes = UINT64_MAX,
                .host_limit_bytes = UINT64_MAX};
        struct ns_layout l = toy_layout(UINT64_C(64) << 10);
        const struct attach_options o = {.device = NULL};
        struct attach *attach;
        struct tenant *tenant;
        struct queue *queue;

        *w = (struct scene){0};
        fake_device_init(&w->gpu, "slow", 256);
        fake_device_make_slow(&w->gpu, true);
        fake_device_add_batches(&w->gpu);
        store_init(&w->store, &evict_lru);
        assert_int_equal(queue_open_device(&w->gpu.device, deadline_msec, &queue), 0);
        assert_int_equal(store_add_queue(&w->store, queue, 4 * BYTES, BYTES, &w->d), 0);
        w->pool = store_find_pool(&w->store, "slow");
        assert_int_equal(
                store_add_below(&w->store, w->pool, host_memory(), 4 * BYTES, BYTES, &w->d), 0);
        w->below = w->pool->below;
        assert_int_equal(tenant_new(&w->store, "a", &attrs, &tenant, &w->d), 0);
        w->m = join(tenant);
        if (attach_open_with(w->m, "n", &l, &o, &attach, &w->d) != 0)
                fail_msg("%s", w->d.text);
        w->ns = attach->ns;
        assert_int_equal(set_bind_in(w->ns, TIER_HOST, NULL, &w->set, &w->d), 0);
}

static void end(struct scene *w)
{
        member_free(w->m);
        assert_true(store_deinit(&w->store));
        assert_int_equal(w->gpu.registered_bytes, 0);
        assert_false(w->gpu.wrong_caller);
        fake_device_deinit(&w->gpu);
}

#define SCENE(fn, ...) TEST_ON(fn, struct scene, w, start, end, ##__VA_ARGS__)

/* Jobs of the queue, until one is over. */
static void reap(struct scene *w)
{
        uint64_t end_nsec = clock_now_nsec() + PATIENCE_MSEC * NSEC_PER_MSEC;

        while (clock_now_nsec() < end_nsec) {
                (void)poll(
                        &(struct pollfd){.fd = queue_fd(w->pool->queue), .events = POLLIN}, 1, 10);
                if (pool_reap(w->pool) > 0)
                        return;
        }
        fail_msg("no job ended");
}

static uint8_t *map(struct scene *w)
{
        uint8_t *at = set_address(w->set, w->set->index * w->ns->geometry.set_pages, 0);

        assert_non_null(at);
        return at;
}

static void expect(struct scene *w, uint64_t registered_bytes, unsigned n_unregistered)
{
        assert_int_equal(w->below->registered_bytes, registered_bytes);
        assert_int_equal(w->below->n_unregistered, n_unregistered);
}

static void expect_log(struct scene *w, const char *calls)
{
        assert_string_equal(fake_device_take_log(&w->gpu, w->log), calls);
}

SCENE(test_registered, PATIENT_MSEC)
{
        expect_log(w, "");
        map(w);
        reap(w);
        expect(w, BYTES, 0);
        assert_int_equal(w->gpu.registered_bytes, BYTES);
        map(w); /* once */
        set_unbind(w->set);
        expect(w, 0, 0);
        assert_int_equal(w->below->account.charged_bytes, 0);
        reap(w);
        assert_true(list_is_empty(&w->below->leaving));
        expect_log(w, "register unregister ");
}

/* The daemon unregisters all memory when it ends. */
SCENE(test_ends, PATIENT_MSEC)
{
        map(w);
        reap(w);
}

SCENE(test_refused, PATIENT_MSEC)
{
        uint8_t *at;

        fake_device_fail(&w->gpu, "register", 1, -ENOMEM);
        at = map(w);
        reap(w);
        expect(w, 0, 1);
        assert_string_equal(w->below->why,
                "not registered with the device above, copies are slower: register fails by order");
        memset(at, 1, BYTES); /* as good as any */
        set_unbind(w->set);
        expect(w, 0, 0);
        assert_true(list_is_empty(&w->below->leaving));
        expect_log(w, "register ");
        fake_device_fail(&w->gpu, "register", 1, 0);
}

/* A late registration may have succeeded, and is undone as if it had. */
SCENE(test_late, HASTY_MSEC)
{
        fake_device_block(&w->gpu, "register");
        map(w);
        fake_device_wait_inside(&w->gpu);
        reap(w);
        expect(w, 0, 1);
        set_unbind(w->set);
        expect(w, 0, 0);
        assert_false(list_is_empty(&w->below->leaving));
        fake_device_unblock(&w->gpu);
        while (!list_is_empty(&w->below->leaving))
                reap(w);
        expect_log(w, "register unregister ");
}
