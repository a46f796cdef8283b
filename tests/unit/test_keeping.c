/* The server and its stored descriptors: it reports nothing that isn't stored yet. */
#include "daemon/server/peers/keeping.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>

#include "base/fd.h"
#include "daemon/core/state/keep.h"
#include "daemon/server/peers/keeper.h"
#include "gpu/queue.h"
#include "tests/unit/fake-notify.h"
#include "tests/unit/server-fixture.h"

static struct fake_notify notify;

static void begin(struct world *w)
{
        fake_notify_start(&notify);
        world_init(w, "host");
        world_serve(w, "[tenant a]\nlimit = 1MiB\n", 16);
        assert_int_equal(keeping_start(&w->server, 100), 0);
}

/* With keeping the store is left as it is; here it must go. */
static void end(struct world *w)
{
        fake_notify_set_deaf(&notify, false);
        w->server.store.keep = (struct keep){0};
        keeping_stop(&w->server);
        keeping_free(&w->server);
        world_end(w);
        fake_notify_stop(&notify);
}

#define SCENE(fn, ...) TEST_ON(fn, struct world, w, begin, end, ##__VA_ARGS__)

static void add(struct world *w, uint32_t number)
{
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        struct detail d = {""};

        if (keep_add(&w->server.store.keep, KEEP_RING, number, fd, &d) < 0)
                fail_msg("%s", d.text);
        fd_close(fd);
}

/* Some turns that may bring a reply, and must not. */
static void turn_in_vain(struct world *w, const struct client *c)
{
        for (unsigned i = 0; i < 20; i++)
                world_turn(w);
        assert_int_equal(c->status, UINT32_MAX);
}

static void say_status(struct client *c)
{
        Kvlease__V1__AdminListRequest m = KVLEASE__V1__ADMIN_LIST_REQUEST__INIT;

        say(c, MSG_ADMIN_STATUS, &m.base);
}

/* Waits until a barrier is held back. Earlier descriptors are on their way; later ones wait for the
 * next barrier. */
static void await_held(void)
{
        bool is_there = false;

        while (!is_there) {
                pthread_mutex_lock(&notify.lock);
                is_there = notify.n_held == 1;
                pthread_mutex_unlock(&notify.lock);
        }
}

/* A client waits for the reply to a lease, behind a barrier that doesn't pass. */
static struct client *begin_held(struct world *w)
{
        struct client *c;

        begin(w);
        c = connect_client(w, getpid(), NULL);
        fake_notify_set_deaf(&notify, true);
        add(w, 1);
        await_held();
        say_lease(c, 1);
        turn_in_vain(w, c);
        return c;
}

static void release_barrier(void)
{
        await_held();
        pthread_mutex_lock(&notify.lock);
        fd_close(notify.barriers[--notify.n_held]);
        pthread_mutex_unlock(&notify.lock);
}

SCENE(test_replies_wait)
{
        struct client *c, *admin;

        c = connect_client(w, getpid(), NULL);
        admin = connect_admin(w);
        fake_notify_set_deaf(&notify, true);
        add(w, 1);
        await_held();
        assert_true(keeping_ticket(&w->server) > 0);
        say_lease(c, 1);
        turn_in_vain(w, c);
        say_status(admin); /* is told of nothing that could be undone */
        expect(w, admin, "ADMIN_STATUS:0 ");
        fake_notify_set_deaf(&notify, false);
        expect(w, c, "LEASE:0 ");
        assert_int_equal(keeping_ticket(&w->server), 0);
}

static atomic_bool was_released;

static void *release_later(void *data)
{
        await_held();
        poll(NULL, 0, 50); /* a caller that doesn't wait has returned by then */
        atomic_store(&was_released, true);
        release_barrier();
        return NULL;
}

SCENE(test_settles)
{
        pthread_t thread;

        fake_notify_set_deaf(&notify, true);
        add(w, 1);
        assert_int_equal(pthread_create(&thread, NULL, release_later, NULL), 0);
        keeping_wait(&w->server);
        assert_true(atomic_load(&was_released));
        assert_int_equal(keeping_ticket(&w->server), 0);
        pthread_join(thread, NULL);
        keeping_wait(&w->server); /* nothing to wait for */
}

/* A service manager that never answers doesn't stop the daemon for good. */
TEST(test_late_manager)
{
        struct client *c;
        struct world w;

        c = begin_held(&w);
        assert_true(uv_is_active((uv_handle_t *)&w.server.keeping.patience));
        assert_int_equal(w.server.store.state->is_unsure, 0);
        w.server.keeping.patience.timer_cb(&w.server.keeping.patience); /* its time has come */
        expect(&w, c, "LEASE:0 ");
        assert_true(w.server.keeping.was_late);
        assert_int_equal(w.server.store.state->is_unsure, 1);
        fake_notify_set_deaf(&notify, false);
        AWAIT(&w, !w.server.keeping.was_late);
        assert_int_equal(w.server.store.state->is_unsure, 0);
        add(&w, 2);
        AWAIT(&w, !uv_is_active((uv_handle_t *)&w.server.keeping.patience));
        assert_int_equal(keeping_ticket(&w.server), 0);
        end(&w);
}

SCENE(test_park)
{
        char why[DEVICE_WHY_BYTES] = "";
        struct queue_park park;
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

        park = keeping_park(&w->server);
        assert_int_equal(park.park(park.data, PARKED_EXTENT, 5, fd, why), 0);
        assert_int_equal(park.park(park.data, PARKED_CANARY, 5, fd, why), 0);
        assert_int_equal(park.wait(park.data, why), 0);
        fd_close(fd);
        fd = fake_notify_get(&notify, "g5");
        assert_true(fd >= 0);
        fd_close(fd);
        keeper_drop(w->server.keeping.keeper, KEEP_CANARY, 5);
        fd = fake_notify_get(&notify, "e5");
        assert_true(fd >= 0);
        assert_int_equal(keeping_ticket(&w->server), 0); /* no ticket of the loop */
        for (uint32_t i = 6; i < 105; i++)
                assert_int_equal(park.park(park.data, PARKED_EXTENT, i, fd, why), 0);
        assert_int_equal(park.park(park.data, PARKED_EXTENT, 105, fd, why), -EMFILE);
        assert_non_null(strstr(why, "raise FileDescriptorStoreMax"));
        assert_int_equal(keeping_count(&w->server), 100);
        for (uint32_t i = 5; i < 106; i++)
                park.drop(park.data, i);
        assert_int_equal(keeping_count(&w->server), 0);
        fd_close(fd);
}

int main(void)
{
        return test_run_all(world_warm_up, NULL);
}
