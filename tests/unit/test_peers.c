/*
 * The server in process, on a device without memory: what becomes of a client's pages when its
 * process dies, and recalls from the administrator's request to the kill. Processes are children
 * that do nothing; their connections are held here.
 */
#include "daemon/core/clients/attach.h"
#include "tests/unit/at-once.h"
#include "tests/unit/server-fixture.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "daemon/core/requests/lease.h"
#include "daemon/core/requests/lookup.h"
#include "daemon/core/requests/publish.h"
#include "proto/status.h"

#define GRACE (150 * NSEC_PER_MSEC)

static void start_on(
        struct world *w, bool writes_linger, bool may_block, const char *daemon_options)
{
        char text[512];

        snprintf(text, sizeof(text),
                "[daemon]\n%s\n[device fake]\ndeath_grace=150ms\n[tenant a]\nlimit=1MiB\n",
                daemon_options);
        world_init(w, "fake");
        w->device.device.props.writes_linger = writes_linger;
        if (may_block)
                fake_device_make_slow(&w->device, true);
        world_serve(w, text, 16);
}

static void start(struct world *w, bool writes_linger, const char *daemon_options)
{
        start_on(w, writes_linger, false, daemon_options);
}

/* Connects a client with a process of its own. */
static struct client *connect_child(struct world *w, const struct client *mate)
{
        pid_t pid = start_process();
        struct client *c = connect_client(w, pid, mate);

        c->pid = pid;
        return c;
}

static struct attach *attach_of(struct world *w, const struct client *c)
{
        return list_first(&peer_of(w, c)->member->attachments, struct attach, member_link);
}

static void lease(struct world *w, struct client *c, uint32_t n)
{
        say_lease(c, n);
        AWAIT(w, c->status != UINT32_MAX);
        assert_int_equal(c->status, 0);
}

static uint32_t say_unmapped(struct world *w, struct client *c, uint32_t set)
{
        Kvlease__V1__UnmappedRequest request = KVLEASE__V1__UNMAPPED_REQUEST__INIT;

        request.ns_id = NS_ID;
        request.set_index = set;
        return ask(w, c, MSG_UNMAPPED, &request.base);
}

static uint32_t recall(struct world *w, struct client *admin, const char *tenant, uint32_t msec)
{
        Kvlease__V1__AdminRecallRequest request = KVLEASE__V1__ADMIN_RECALL_REQUEST__INIT;

        request.tenant = (char *)tenant;
        request.timeout_msec = msec;
        return ask(w, admin, MSG_ADMIN_RECALL, &request.base);
}

static uint64_t count_waiting(struct world *w, struct client *admin)
{
        Kvlease__V1__AdminListRequest request = KVLEASE__V1__ADMIN_LIST_REQUEST__INIT;

        assert_int_equal(ask(w, admin, MSG_ADMIN_STATUS, &request.base), 0);
        return admin->waiting;
}

static void kill_client(struct client *c)
{
        kill_process(c->pid);
        c->pid = 0;
}

static void end(struct world *w)
{
        world_end(w);
        for (unsigned i = 0; i < w->n_clients; i++)
                if (w->clients[i].pid)
                        kill_client(&w->clients[i]);
}

#define SCENE(fn, ...) TEST_ON(fn, struct world, w, start, end, ##__VA_ARGS__)

/* ---- death ---------------------------------------------------------------------------------- */

/* A client that has memory of the device mapped, and holds two pages. */
static struct client *connect_worker(struct world *w, const struct client *mate)
{
        struct client *c = connect_child(w, mate);

        lease(w, c, 2);
        map_set(w, c, 0);
        return c;
}

/* Nothing of it is reused before the grace is over, and all of it is then. */
static void expect_grace(struct world *w, struct client *c, struct client *mate)
{
        struct peer *p = peer_of(w, c);
        struct extent_set *set = attach_of(w, c)->ns->sets.at[0];
        uint64_t died = clock_now_nsec();

        kill_client(c);
        AWAIT(w, p->state == PEER_LINGERING);
        assert_string_equal(peer_state_name(p), "dead, grace");
        assert_true(p->member->lingers);
        assert_true(p->times.linger_until_nsec >= died + GRACE);
        assert_int_equal(p->conn.socket_open, 0);
        assert_int_equal(set->n_mapped, 1);
        assert_int_equal(set->ns->device.n_pages[PAGE_GRANTED], 2);
        assert_int_equal(mate->n_left, 0);
        world_check(w);
        AWAIT(w, peer_of(w, c) == NULL);
        assert_true(clock_now_nsec() >= died + GRACE);
        AWAIT(w, mate->n_left == 1);
        world_check(w);
}

SCENE(test_grace, true, "")
{
        struct client *mate, *c, *admin;

        admin = connect_admin(w);
        mate = connect_child(w, NULL);
        c = connect_worker(w, mate);
        assert_int_equal(count_waiting(w, admin), 0);
        expect_grace(w, c, mate);
        assert_int_equal(w->server.store.n_members, 1);
}

/* Shown like those that wait for the exit. */
TEST(test_grace_is_shown)
{
        struct world w;
        struct client *c, *admin;

        start(&w, true, "");
        admin = connect_admin(&w);
        c = connect_worker(&w, NULL);
        kill_client(c);
        AWAIT(&w, peer_of(&w, c)->state == PEER_LINGERING);
        peer_of(&w, c)->times.linger_until_nsec = UINT64_MAX; /* time enough */
        assert_int_equal(count_waiting(&w, admin), 1);
        end(&w);
}

/* Two graces at once: one timer for both. */
TEST(test_two_graces)
{
        struct world w;
        struct client *c, *d;
        uint64_t until;

        start(&w, true, "");
        c = connect_worker(&w, NULL);
        d = connect_worker(&w, NULL);
        kill_client(c);
        AWAIT(&w, peer_of(&w, c)->state == PEER_LINGERING);
        kill_client(d);
        AWAIT(&w, peer_of(&w, d)->state == PEER_LINGERING);
        until = peer_of(&w, d)->times.linger_until_nsec += 100 * NSEC_PER_MSEC;
        AWAIT(&w, peer_of(&w, c) == NULL);
        AWAIT(&w, peer_of(&w, d) == NULL);
        assert_true(clock_now_nsec() >= until);
        AWAIT(&w, w.device.n_extents == 0);
        end(&w);
}

/* ---- recall --------------------------------------------------------------------------------- */

static void free_all(struct world *w, struct client *c)
{
        Kvlease__V1__FreeRequest request = KVLEASE__V1__FREE_REQUEST__INIT;
        struct attach *a = attach_of(w, c);
        uint32_t pages[64];

        request.ns_id = NS_ID;
        for (uint32_t page = a->grants->head; page != PAGE_NONE; page = ns_page(a->ns, page)->next)
                pages[request.n_pages++] = page;
        request.pages = pages;
        assert_int_equal(ask(w, c, MSG_FREE, &request.base), 0);
}

SCENE(test_recall, true, "revoke_timeout=1min")
{
        struct client *c, *admin;

        admin = connect_admin(w);
        c = connect_worker(w, NULL);
        assert_int_equal(say_unmapped(w, c, 0), WIRE_BUSY);
        assert_int_equal(say_unmapped(w, c, 77), WIRE_NOT_FOUND);
        assert_int_equal(recall(w, admin, "nobody", 0), WIRE_NOT_FOUND);
        assert_int_equal(recall(w, admin, "", 0), WIRE_NOT_FOUND);
        assert_int_equal(recall(w, admin, "a", 3600 * 1000 + 1), WIRE_INVALID);
        assert_int_equal(recall(w, admin, "a", 0), 0);
        assert_int_equal(admin->count, 1);
        AWAIT(w, c->n_recalls == 1);
        assert_int_equal(c->recall_idle, 0);
        assert_int_equal(c->recall_msec, 60000);
        assert_int_equal(say_unmapped(w, c, 0), WIRE_BUSY);
        uv_timer_stop(&w->server.recall_timer); /* a free is noticed without it */
        free_all(w, c);
        AWAIT(w, c->n_recalls == 2);
        assert_int_equal(c->recall_idle, 1);
        assert_int_equal(c->recall_set, 0);
        world_check(w);
        assert_int_equal(say_unmapped(w, c, 0), 0);
        AWAIT(w, w->device.n_extents == 0);
        assert_int_equal(say_unmapped(w, c, 0), WIRE_NOT_FOUND);
        assert_int_equal(recall(w, admin, "a", 0), 0);
        assert_int_equal(admin->count, 0);
        /* Nothing to watch: the timer stops. */
        AWAIT(w, !uv_is_active((uv_handle_t *)&w->server.recall_timer));
}

SCENE(test_quarantine, true, "")
{
        struct pollfd p = {.events = POLLIN};
        struct client *c, *admin;

        admin = connect_admin(w);
        c = connect_worker(w, NULL);
        assert_int_equal(recall(w, admin, "a", 20), 0);
        AWAIT(w, w->server.store.recalls.n_quarantined == 1);
        assert_int_equal(peer_of(w, c)->member->n_quarantined_sets, 1);
        assert_true(peer_of(w, c)->recall.late);
        assert_int_equal(w->device.n_extents, 1);
        p.fd = peer_of(w, c)->conn.pidfd;
        assert_int_equal(poll(&p, 1, 50), 0); /* it lives */
        free_all(w, c);
        AWAIT(w, c->recall_idle);
        /* The client may take years: nothing runs until it says so. */
        AWAIT(w, uv_backend_timeout(&w->server.loop.uv) == -1);
        world_check(w);
        assert_int_equal(say_unmapped(w, c, 0), 0);
        AWAIT(w, w->device.n_extents == 0);
}

/* The client is killed through the daemon's pidfd, and its memory is freed after the grace. A
 * client that holds nothing lives. */
SCENE(test_kill, true, "revoke_kill=on\nrevoke_timeout=20ms")
{
        struct client *c, *other, *admin;
        int status = 0;

        admin = connect_admin(w);
        c = connect_worker(w, NULL);
        other = connect_child(w, NULL);
        map_set(w, other, 0);
        assert_int_equal(recall(w, admin, "a", 0), 0);
        AWAIT(w, waitpid(c->pid, &status, WNOHANG) == c->pid);
        c->pid = 0;
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        AWAIT(w, other->recall_idle);
        assert_int_equal(say_unmapped(w, other, 0), 0);
        AWAIT(w, w->device.n_extents == 0);
        assert_int_equal(waitpid(other->pid, NULL, WNOHANG), 0);
        assert_int_equal(w->server.store.recalls.n, 0);
}

int main(void)
{
        return test_run_all(world_warm_up, NULL);
}
