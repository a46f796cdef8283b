/*
 * Tenants that ask for more than there is: whose turn it is, how many requests it has, and the
 * memory of those that don't read. The server in process; a turn of the loop is one call.
 */
#include "base/fd.h"
#include "daemon/server/peers/idle-interval.h"
#include "daemon/server/base/ring.h"
#include "tests/unit/server-fixture.h"

#include <stdio.h>

#include "daemon/server/peers/events.h"
#include "daemon/server/peers/turns.h"
#include "daemon/server/services/tenants.h"
#include "proto/status.h"

#define N_MANY 12
#define MANY   (8 * PEER_FRAMES_PER_TURN) /* requests: of several turns */

static void start(struct world *w, const char *of_daemon, const char *of_tenant)
{
        char text[512];

        snprintf(text, sizeof(text),
                "[daemon]\n%s\n[device fake]\n[tenant a]\nlimit=1MiB\n%s\n[tenant b]\nlimit=1MiB\n",
                of_daemon, of_tenant);
        world_init(w, "fake");
        world_serve(w, text, 16);
}

#define SCENE(fn, ...) TEST_ON(fn, struct world, w, start, world_end, ##__VA_ARGS__)

/* Requests that change nothing: each is answered with INVALID. */
static void ping(struct client *c, unsigned n)
{
        Kvlease__V1__FreeRequest nothing = KVLEASE__V1__FREE_REQUEST__INIT;

        nothing.ns_id = NS_ID;
        for (unsigned i = 0; i < n; i++)
                say(c, MSG_FREE, &nothing.base);
}

static uint64_t handled(struct world *w, const char *tenant)
{
        return tenancy_find(&w->server, tenant)->turns.n_requests;
}

/* Runs turns until n requests are handled, and forgets the replies, which are as many. */
static void await_handled(struct world *w, const char *tenant, uint64_t n)
{
        while (handled(w, tenant) < n) {
                world_turn(w);
                for (unsigned i = 0; i < w->n_clients; i++)
                        w->clients[i].replies[0] = '\0';
        }
}

/* ---- turns ---------------------------------------------------------------------------------- */

/* Twelve clients of one tenant get no more than one of another. */
SCENE(test_by_tenant, "", "")
{
        struct client *many[N_MANY], *one;
        uint64_t of_a, of_b;

        w->server.turns.share_nsec = 0; /* in a turn of the loop one peer of each tenant */
        for (unsigned i = 0; i < N_MANY; i++)
                many[i] = connect_client(w, getpid(), NULL);
        one = connect_client_of(w, "b", getpid(), NULL);
        of_a = handled(w, "a");
        of_b = handled(w, "b");
        for (unsigned i = 0; i < N_MANY; i++)
                ping(many[i], MANY);
        ping(one, MANY);
        while (handled(w, "b") < of_b + MANY) {
                uint64_t before = handled(w, "a");

                world_turn(w);
                assert_true(handled(w, "a") - before <= PEER_FRAMES_PER_TURN);
        }
        assert_true(handled(w, "a") - of_a <= 2 * MANY);
        assert_true(handled(w, "a") - of_a >= MANY / 2); /* nor less */
        await_handled(w, "a", of_a + N_MANY * MANY);
}

/* A tenant's debt is paid by the time that it waits, for any number of turns. */
SCENE(test_owes_time, "", "")
{
        struct client *one, *other;
        uint64_t of_a;

        one = connect_client(w, getpid(), NULL);
        other = connect_client_of(w, "b", getpid(), NULL);
        w->server.turns.share_nsec = 1; /* in a turn of the loop one peer of each tenant */
        of_a = handled(w, "a");
        ping(one, 1);
        ping(other, MANY);
        tenancy_find(&w->server, "a")->turns.owes_nsec = NSEC_PER_MSEC;
        world_turn(w);
        assert_int_equal(handled(w, "a"), of_a);
        assert_int_not_equal(tenancy_find(&w->server, "a")->turns.owes_nsec, 0);
        usleep(5000); /* as long as an administrator's request may take */
        ping(other, MANY);
        world_turn(w);
        assert_int_equal(tenancy_find(&w->server, "a")->turns.owes_nsec, 0);
        ping(other, MANY);
        world_turn(w);
        assert_int_equal(handled(w, "a"), of_a + 1);
}

/* ---- requests ------------------------------------------------------------------------------- */

/* Requests beyond the rate wait, and none is refused. */
SCENE(test_max_requests, "", "max_requests=100")
{
        struct client *c, *other;
        struct tenancy *a;
        uint64_t before;

        c = connect_client(w, getpid(), NULL);
        other = connect_client_of(w, "b", getpid(), NULL);
        a = tenancy_find(&w->server, "a");
        before = handled(w, "a");
        ping(c, 120);
        AWAIT(w, a->turns.paused);
        assert_in_range(handled(w, "a"), 95, 120);
        assert_int_equal(a->turns.n_pauses, 1);
        /* The socket isn't even read: the loop sleeps. */
        ping(c, 30);
        world_turn(w);
        world_turn(w);
        assert_false(peer_of(w, c)->conn.socket_events & UV_READABLE);
        ping(other, 1);
        AWAIT(w, other->status != UINT32_MAX);
        await_handled(w, "a", before + 150);
        assert_true(a->turns.pauses_nsec > 0);
        assert_int_equal(c->status, WIRE_INVALID);
}

/* An administrator's setting is in force at once. */
SCENE(test_max_requests_changes, "", "max_requests=1")
{
        struct tenant_config config;
        struct client *c;
        struct tenancy *a;
        struct detail d;

        a = tenancy_find(&w->server, "a");
        a->turns.requests.full_nsec = 0;
        config = a->config;
        config.max_requests = 0;
        assert_int_equal(tenancy_change(a, &config, false, &d), 0);
        c = connect_client(w, getpid(), NULL);
        config.max_requests = 1;
        assert_int_equal(tenancy_change(a, &config, false, &d), 0);
        ping(c, 50);
        AWAIT(w, a->turns.paused);
        a->turns.requests.full_nsec += 3600 * NSEC_PER_SEC;
        config.max_requests = 1000;
        assert_int_equal(tenancy_change(a, &config, false, &d), 0);
        assert_false(a->turns.paused);
        await_handled(w, "a", 50);
}

/* A client that leaves while it waits is removed. */
SCENE(test_ends_while_paused, "", "max_requests=100")
{
        struct client *c;
        struct detail d;

        c = connect_client(w, getpid(), NULL);
        ping(c, 200);
        AWAIT(w, tenancy_find(&w->server, "a")->turns.paused);
        hang_up(c);
        AWAIT(w, !peer_of(w, c));
        assert_int_equal(tenancy_remove(tenancy_find(&w->server, "a"), true, &d), 0);
        world_turn(w);
        assert_true(list_is_empty(&w->server.turns.paused));
}

SCENE(test_max_connects, "", "max_connects=2\nmax_clients=3")
{
        struct detail d = {""};
        struct tenancy *a;

        a = tenancy_find(&w->server, "a");
        for (unsigned i = 0; i < 5; i++) /* all clients, and a second's */
                assert_int_equal(turns_connect(a, &d), 0);
        assert_int_equal(turns_connect(a, &d), -EMFILE);
        assert_non_null(strstr(d.text, "more than 2 times a second"));
        assert_non_null(strstr(d.text, "kvleasectl tenants set a max_connects="));
        assert_int_equal(a->turns.n_refused, 1);
}

/* ---- memory --------------------------------------------------------------------------------- */

/* Sends without reading, until the server reads no more from it. */
static void flood(struct world *w, struct client *c)
{
        Kvlease__V1__FreeRequest nothing = KVLEASE__V1__FREE_REQUEST__INIT;
        uint8_t buf[256];
        int fd = c->fd, n;

        nothing.ns_id = NS_ID;
        n = msg_pack(buf, PROTO_VERSION_MAX, MSG_FREE, 0, 1, 0, &nothing.base);
        assert_true(n > 0);
        c->fd = -1; /* world_turn() doesn't read for it */
        for (unsigned quiet = 0; quiet < 3; quiet++)
                for (; send(fd, buf, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) == n; quiet = 0)
                        world_turn(w);
        c->fd = fd;
}

static size_t pending_sum(struct world *w)
{
        size_t sum = 0;

        list_for_each (p, &w->server.peers.list, struct peer, links.all)
                sum += p->out.bytes;
        return sum;
}

SCENE(test_max_pending, "max_pending=1MiB", "")
{
        struct client *floods[N_MANY], *other;
        int fds[N_MANY];

        other = connect_client_of(w, "b", getpid(), NULL);
        for (unsigned i = 0; i < N_MANY; i++)
                floods[i] = connect_client(w, getpid(), NULL);
        for (unsigned i = 0; i < N_MANY; i++) {
                flood(w, floods[i]);
                fds[i] = floods[i]->fd;
                floods[i]->fd = -1;
                assert_string_equal(peer_state_name(peer_of(w, floods[i])), "not reading");
        }
        assert_int_equal(pending_sum(w), w->server.peers.pending_bytes);
        assert_int_equal(
                tenancy_find(&w->server, "a")->pending_bytes, w->server.peers.pending_bytes);
        /* Half of three quarters, and what was added last. */
        assert_in_range(w->server.peers.pending_bytes, 256 * KIB, 400 * KIB);
        assert_int_equal(w->server.peers.n_overflows, 0);
        ping(other, 1);
        AWAIT(w, other->status != UINT32_MAX);
        for (unsigned i = 0; i < N_MANY; i++)
                floods[i]->fd = fds[i];
        AWAIT(w, w->server.peers.pending_bytes ==
                         0); /* they read: nothing is left, and no client was dropped */
        assert_int_equal(w->server.peers.n_violations, 0);
}

/* Unrequested output: the peer with the most of it is dropped, and no other. */
SCENE(test_overflow, "max_pending=1MiB", "")
{
        struct client *c, *more, *other;
        int fds[3];

        more = connect_client(w, getpid(), NULL);
        c = connect_client(w, getpid(), NULL); /* later in all lists */
        other = connect_client_of(w, "b", getpid(), NULL);
        flood(w, c);
        flood(w, more);
        fds[0] = c->fd, fds[1] = more->fd, fds[2] = other->fd;
        c->fd = more->fd = other->fd = -1;
        while (w->server.peers.n_overflows == 0) {
                for (unsigned i = 0; i < 3; i++)
                        events_ring(peer_of(w, more));
                events_ring(peer_of(w, c));
                events_ring(peer_of(w, other));
        }
        assert_true(w->server.peers.pending_bytes < 1024 * KIB);
        assert_true(peer_of(w, more)->doomed);
        assert_false(peer_of(w, c)->doomed);
        assert_false(peer_of(w, other)->doomed);
        assert_int_equal(w->server.peers.n_violations, 1);
        world_turn(w);
        assert_null(peer_of(w, more));
        c->fd = fds[0], more->fd = fds[1], other->fd = fds[2];
        AWAIT(w, w->server.peers.pending_bytes == 0);
}

/* A look at empty rings must not count as work. Otherwise a full pool would be counted anew
 * forever. */
SERVER_SCENE(test_empty_rings, "fake")
{
        struct client *c;
        struct peer *p;
        int fd;

        world_serve(w, "[daemon]\n[tenant a]\n", 4);
        c = connect_client(w, getpid(), NULL);
        p = peer_of(w, c);
        assert_int_equal(ring_open(&p->ring, p->member->id, 1, &fd), 0);
        w->server.services.n_leasables_due = 0;
        peers_look_at_rings(&w->server);
        assert_int_equal(w->server.services.n_leasables_due, 0);
        fd_close(fd);
}

int main(void)
{
        return test_run_all(world_warm_up, NULL);
}
