/* The server in process: leases that wait for room, and when they are tried again. */
#include "daemon/core/clients/attach.h"
#include "tests/unit/at-once.h"
#include "tests/unit/server-fixture.h"

#include <stdio.h>
#include <string.h>

#include "daemon/core/requests/publish.h"
#include "daemon/server/peers/parked.h"

static struct client *connect_worker(struct world *w)
{
        return connect_client(w, getpid(), NULL);
}

static bool is_parked(struct world *w, const struct client *c)
{
        const struct peer *p = peer_of(w, c);

        return p && p->parked;
}

static struct attach *attach_of(struct world *w, const struct client *c)
{
        return list_first(&peer_of(w, c)->member->attachments, struct attach, member_link);
}

/* A set's pages, published and pinned in the client's segment alone. */
static void seal_all_shared(struct attach *a)
{
        uint32_t pages[SET_PAGES], sealed;

        assert_int_equal(lease_pages(a, SET_PAGES, 1, pages, NULL), 0);
        for (unsigned i = 0; i < SET_PAGES; i++) {
                uint8_t key[KEY_BYTES] = {(uint8_t)(i + 1)};
                const struct publish_one one = {
                        .page = pages[i], .key = key, .parent = PAGE_NONE, .tokens = 16};

                a->share.counters[pages[i]]++;
                assert_int_equal(publish_shared(a, &one, 1, &sealed, NULL), 0);
        }
}

/* A device of one set, at once there; leases wait for it. */
static void start_queueing(struct world *w, const char *max_wait)
{
        char text[256];

        snprintf(text, sizeof(text), "[tenant a]\nlimit=1MiB\nwhen_full=queue\nmax_wait=%s\n",
                max_wait);
        world_init(w, "fake");
        world_serve(w, text, 1);
}

#define SCENE(fn, ...) TEST_ON(fn, struct world, w, start_queueing, world_end, ##__VA_ARGS__)

/* A pin that ends in a segment, while leases of another client end at their deadline all the time:
 * they are no round of tries. */
SCENE(test_deadlines_of_others, "60s")
{
        Kvlease__V1__LeaseRequest request = KVLEASE__V1__LEASE_REQUEST__INIT;
        struct client *c, *other, *hasty;
        struct attach *a;
        uint64_t began;

        c = connect_worker(w);
        other = connect_worker(w);
        hasty = connect_worker(w);
        a = attach_of(w, other);
        assert_int_equal(attach_share(a, NULL), 0);
        seal_all_shared(a);
        say_lease(c, 1);
        AWAIT(w, is_parked(w, c));
        request.ns_id = NS_ID;
        request.n_pages = SET_PAGES;
        request.max_wait_msec = 1;
        began = clock_now_nsec();
        for (unsigned i = 0; i < 20; i++) {
                say(hasty, MSG_LEASE, &request.base);
                expect(w, hasty, "LEASE:10 ");
        }
        a->share.counters[7]--;
        began = clock_now_nsec();
        while (is_parked(w, c)) {
                say(hasty, MSG_LEASE, &request.base);
                expect(w, hasty, "LEASE:10 ");
                assert_true(clock_now_nsec() - began < PATIENCE);
        }
        expect(w, c, "LEASE:0 ");
        for (unsigned i = 0; i < SET_PAGES; i++)
                a->share.counters[i] = 0;
}

/* Sets that a device made are for the leases that wait for it. Leases that wait for room don't stop
 * the reaping, and have their round. */
SCENE(test_device_is_not_for_room, "60s")
{
        struct client *c, *other;

        c = connect_worker(w);
        other = connect_worker(w);
        say_lease(c, SET_PAGES);
        expect(w, c, "LEASE:0 ");
        say_lease(other, 1);
        AWAIT(w, is_parked(w, other));
        AWAIT(w, !w->server.leases.in_round && !w->server.leases.room_came);
        parked_make_due(&w->server, list_first(&w->server.store.pools, struct pool, link));
        assert_true(list_is_empty(&w->server.leases.due));
        assert_true(w->server.leases.room_came);
        AWAIT(w, !w->server.leases.in_round && !w->server.leases.room_came);
}

/* More of them than one turn tries. */
TEST(test_many_for_room)
{
        enum { N = CLIENTS_MAX - 1 };
        struct client *clients[N], *c;
        struct world w;

        start_queueing(&w, "60s");
        c = connect_worker(&w);
        say_lease(c, SET_PAGES);
        expect(&w, c, "LEASE:0 ");
        for (unsigned i = 0; i < N; i++) {
                clients[i] = connect_worker(&w);
                say_lease(clients[i], SET_PAGES);
                AWAIT(&w, is_parked(&w, clients[i]));
        }
        hang_up(c);
        for (unsigned i = 0; i < N; i++) {
                expect(&w, clients[i], "LEASE:0 ");
                hang_up(clients[i]);
        }
        world_end(&w);
}

int main(void)
{
        return test_run_all(world_warm_up, NULL);
}
