/* The server in process: keys that are announced, and requests that wait for them. */
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/requests/invalidate.h"
#include "tests/unit/server-fixture.h"

#include <stdio.h>
#include <string.h>

#include "daemon/core/cache/drop.h"
#include "daemon/core/cache/nsset.h"
#include "daemon/core/requests/lease.h"
#include "daemon/core/requests/lookup.h"
#include "daemon/core/requests/publish.h"
#include "daemon/server/peers/key-waits.h"
#include "proto/status.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/at-once.h"

#define N_PAGES 4

static struct client *connect_worker(struct world *w)
{
        return connect_client(w, getpid(), NULL);
}

static struct attach *attach_of(struct world *w, const struct client *c)
{
        return list_first(&peer_of(w, c)->member->attachments, struct attach, member_link);
}

static void start(struct world *w)
{
        world_init(w, "fake");
        world_serve(w, "[tenant a]\nlimit=1MiB\n", 4);
}

#define SCENE(fn, ...) TEST_ON(fn, struct world, w, start, world_end, ##__VA_ARGS__)

static void make_key(uint8_t k[KEY_BYTES], unsigned n)
{
        memset(k, 0, KEY_BYTES);
        k[0] = (uint8_t)n;
        k[1] = 1;
}

/* ---- what clients say ------------------------------------------------------------------------ */

static void say_announce(struct client *c, uint32_t page, unsigned n)
{
        Kvlease__V1__AnnounceRequest m = KVLEASE__V1__ANNOUNCE_REQUEST__INIT;
        uint8_t k[KEY_BYTES];

        make_key(k, n);
        m.ns_id = NS_ID;
        m.pages = &page;
        m.n_pages = 1;
        m.keys.data = k;
        m.keys.len = sizeof(k);
        say(c, MSG_ANNOUNCE, &m.base);
}

static void say_wait(struct client *c, unsigned n, uint32_t timeout_msec)
{
        Kvlease__V1__WaitRequest m = KVLEASE__V1__WAIT_REQUEST__INIT;
        uint8_t k[KEY_BYTES];

        make_key(k, n);
        m.ns_id = NS_ID;
        m.key.data = k;
        m.key.len = sizeof(k);
        m.timeout_msec = timeout_msec;
        say(c, MSG_WAIT, &m.base);
}

static void say_publish(struct client *c, uint32_t page, unsigned n)
{
        Kvlease__V1__PublishRequest m = KVLEASE__V1__PUBLISH_REQUEST__INIT;
        uint8_t k[KEY_BYTES];

        make_key(k, n);
        m.ns_id = NS_ID;
        m.pages = &page;
        m.n_pages = 1;
        m.keys.data = k;
        m.keys.len = sizeof(k);
        m.last_tokens = 16;
        say(c, MSG_PUBLISH, &m.base);
}

static void say_free(struct client *c, uint32_t page)
{
        Kvlease__V1__FreeRequest m = KVLEASE__V1__FREE_REQUEST__INIT;

        m.ns_id = NS_ID;
        m.pages = &page;
        m.n_pages = 1;
        say(c, MSG_FREE, &m.base);
}

static void say_ns_close(struct client *c)
{
        Kvlease__V1__NsCloseRequest m = KVLEASE__V1__NS_CLOSE_REQUEST__INIT;

        m.ns_id = NS_ID;
        say(c, MSG_NS_CLOSE, &m.base);
}

static void say_bye(struct client *c)
{
        Kvlease__V1__ByeRequest m = KVLEASE__V1__BYE_REQUEST__INIT;

        say(c, MSG_BYE, &m.base);
}

/* A client that has pages 0..N_PAGES-1 and has announced page i for key i. */
static struct client *connect_announcer(struct world *w, pid_t pid)
{
        struct client *c = connect_client(w, pid, NULL);

        say_lease(c, N_PAGES);
        expect(w, c, "LEASE:0 ");
        for (unsigned i = 0; i < N_PAGES; i++) {
                say_announce(c, i, i);
                expect(w, c, "ANNOUNCE:0 ");
        }
        return c;
}

/* Until the server has `n` unanswered WAITs of the client. */
static void await_waits(struct world *w, const struct client *c, uint32_t n)
{
        AWAIT(w, peer_of(w, c)->waits[PENDING_KEY].n == n);
        world_check(w);
}

/* An announcer, of the process `pid`, and a worker. */
static struct client *start_two(struct world *w, pid_t pid, struct client **ret_worker)
{
        struct client *c;

        start(w);
        c = connect_announcer(w, pid);
        *ret_worker = connect_worker(w);
        return c;
}

/* The worker waits for key 0. */
static struct client *start_waiting(struct world *w, pid_t pid, struct client **ret_worker)
{
        struct client *c = start_two(w, pid, ret_worker);

        say_wait(*ret_worker, 0, 60000);
        await_waits(w, *ret_worker, 1);
        return c;
}

/* ---- waits ----------------------------------------------------------------------------------- */

TEST(test_deadline)
{
        struct client *other;
        uint64_t began;
        struct world w;

        (void)start_two(&w, getpid(), &other);
        began = clock_now_nsec();
        say_wait(other, 0, 30);
        expect(&w, other, "WAIT:10 ");
        assert_true(clock_now_nsec() - began >= 29 * NSEC_PER_MSEC);
        await_waits(&w, other, 0);
        world_end(&w);
}

TEST(test_invalidated)
{
        Kvlease__V1__InvalidateRequest m = KVLEASE__V1__INVALIDATE_REQUEST__INIT;
        struct client *c, *other;
        struct world w;

        c = start_two(&w, getpid(), &other);
        for (unsigned i = 0; i < N_PAGES; i++)
                say_wait(other, i, 60000);
        await_waits(&w, other, N_PAGES);
        m.ns_id = NS_ID;
        assert_int_equal(ask(&w, c, MSG_INVALIDATE, &m.base), 0);
        expect(&w, other, "WAIT:1 WAIT:1 WAIT:1 WAIT:1 ");
        world_end(&w);
}

TEST(test_closed)
{
        struct client *other, *third;
        struct world w;

        (void)start_waiting(&w, getpid(), &other);
        third = connect_worker(&w);
        say_wait(third, 0, 60000);
        await_waits(&w, third, 1);
        say_ns_close(other);
        expect(&w, other, "WAIT:34 NS_CLOSE:0 ");
        say_bye(third);
        expect(&w, third, "WAIT:34 BYE:0 ");
        world_end(&w);
}

/* Waits end with their peer, whether it hangs up or breaks the protocol. */
TEST(test_waiter_goes)
{
        struct client *c, *other, *muted;
        struct world w;

        c = start_two(&w, getpid(), &other);
        muted = connect_worker(&w);
        assert_int_equal(attach_share(attach_of(&w, muted), NULL), 0);
        say_wait(other, 0, 60000);
        say_wait(muted, 0, 60000);
        await_waits(&w, other, 1);
        await_waits(&w, muted, 1);
        peer_violation(peer_of(&w, muted), "test");
        await_waits(&w, muted, 0);
        hang_up(other);
        AWAIT(&w, !peer_of(&w, other));
        say_publish(c, 0, 0);
        expect(&w, c, "PUBLISH:0 ");
        world_end(&w);
}

TEST(test_only_so_many)
{
        struct client *c, *other;
        unsigned n = 0;
        struct world w;

        c = start_two(&w, getpid(), &other);
        for (unsigned i = 0; i < KEY_WAITS_MAX; i++)
                say_wait(other, 0, 60000);
        await_waits(&w, other, KEY_WAITS_MAX);
        say_wait(other, 0, 60000);
        expect(&w, other, "WAIT:36 ");
        assert_non_null(strstr(other->detail, "256"));
        say_publish(c, 0, 0);
        expect(&w, c, "PUBLISH:0 ");
        /* So many aren't answered in one turn. */
        while (peer_of(&w, other)->waits[PENDING_KEY].n > 0) {
                world_turn(&w);
                other->replies[0] = '\0';
                assert_true(n++ < 1000);
        }
        assert_true(n >= KEY_WAITS_MAX / KEY_WAITS_PER_TURN);
        world_end(&w);
}

/* The end of an announcement only looks at waits for its key. Clients can read the seed of the
 * hashes, so they may collide. */
TEST(test_waits_of_one_key)
{
        struct client *c, *other;
        struct world w;

        c = start_two(&w, getpid(), &other);
        for (unsigned i = 0; i < KEY_WAITS_MAX - 1; i++)
                say_wait(other, 0, 60000);
        say_wait(other, 1, 60000);
        await_waits(&w, other, KEY_WAITS_MAX);
        assert_int_equal(w.server.key_waits.groups.n_used, 2);
        say_free(c, 2); /* no client waits for it */
        say_free(c, 1);
        expect(&w, c, "FREE:0 FREE:0 ");
        expect(&w, other, "WAIT:1 ");
        assert_int_equal(peer_of(&w, other)->waits[PENDING_KEY].n, KEY_WAITS_MAX - 1);
        assert_int_equal(w.server.key_waits.groups.n_used, 1);
        assert_true(list_is_empty(&w.server.key_waits.due));
        say_bye(other);
        AWAIT(&w, !peer_of(&w, other));
        assert_int_equal(w.server.key_waits.groups.n_used, 0);
        world_end(&w);
}

SCENE(test_bad_requests)
{
        Kvlease__V1__AnnounceRequest a = KVLEASE__V1__ANNOUNCE_REQUEST__INIT;
        Kvlease__V1__WaitRequest m = KVLEASE__V1__WAIT_REQUEST__INIT;
        uint8_t keys[2 * KEY_BYTES] = {1};
        uint32_t pages[2] = {0, 1};
        struct client *c;

        c = connect_worker(w);
        say_lease(c, 2);
        expect(w, c, "LEASE:0 ");
        a.ns_id = m.ns_id = 77;
        assert_int_equal(ask(w, c, MSG_ANNOUNCE, &a.base), WIRE_NOT_FOUND);
        assert_int_equal(ask(w, c, MSG_WAIT, &m.base), WIRE_NOT_FOUND);
        a.ns_id = m.ns_id = NS_ID;
        assert_int_equal(ask(w, c, MSG_ANNOUNCE, &a.base), WIRE_INVALID);
        a.pages = pages;
        a.n_pages = 2;
        a.keys.data = keys;
        a.keys.len = 2 * KEY_BYTES - 1;
        assert_int_equal(ask(w, c, MSG_ANNOUNCE, &a.base), WIRE_INVALID);
        assert_non_null(strstr(c->detail, "need 64 bytes"));
        a.n_pages = 1;
        a.keys.len = KEY_BYTES;
        assert_int_equal(ask(w, c, MSG_ANNOUNCE, &a.base), 0);
        m.key.data = keys;
        m.key.len = KEY_BYTES;
        assert_int_equal(ask(w, c, MSG_WAIT, &m.base), WIRE_INVALID);
        assert_non_null(strstr(c->detail, "1 to 600000"));
        m.timeout_msec = 600001;
        assert_int_equal(ask(w, c, MSG_WAIT, &m.base), WIRE_INVALID);
        m.timeout_msec = 1;
        m.key.len = 31;
        assert_int_equal(ask(w, c, MSG_WAIT, &m.base), WIRE_INVALID);
}

TEST(test_readers_do_not_announce)
{
        struct client *c, *other;
        struct world w;

        c = start_waiting(&w, getpid(), &other);
        member_set_read_only(peer_of(&w, c)->member, true);
        expect(&w, other, "WAIT:1 ");
        say_announce(c, 0, 7);
        expect(&w, c, "ANNOUNCE:33 ");
        world_end(&w);
}

/* ---- namespace sets ------------------------------------------------------------------------- */

static uint32_t open_in_set(
        struct world *w, struct client *c, const char *name, const char *set, uint32_t size)
{
        Kvlease__V1__NsOpenRequest open = KVLEASE__V1__NS_OPEN_REQUEST__INIT;
        Kvlease__V1__NsLayout layout = KVLEASE__V1__NS_LAYOUT__INIT;

        layout.model = (char *)"m";
        layout.dtype = layout.n_layers = layout.n_kv_heads = layout.head_size = layout.tp_size = 1;
        layout.page_tokens = 16;
        layout.n_planes = 1;
        layout.plane_page_bytes = SET_BYTES / SET_PAGES;
        open.name = (char *)name;
        open.layout = &layout;
        open.set = (char *)set;
        open.set_size = size;
        open.expire_sec = 7;
        return ask(w, c, MSG_NS_OPEN, &open.base);
}

static void cache_key(struct attach *a, unsigned n)
{
        uint32_t page, got, n_done;
        uint8_t k[KEY_BYTES];
        struct publish p = {.pages = &page, .keys = k, .n = 1, .last_tokens = 16};

        make_key(k, n);
        assert_int_equal(lease_pages(a, 1, clock_now_nsec(), &page, NULL), 0);
        assert_int_equal(publish_pages(a, &p, clock_now_nsec(), &got, &n_done, NULL), 0);
        assert_int_equal(release_pages(a, &got, 1, clock_now_nsec(), NULL), 0);
}

/* "a/name 1/2 3 4 5, ": namespaces of how many; keys complete, incomplete, dropped. Static. */
static const char *list_sets(
        struct world *w, struct client *admin, const char *tenant, uint64_t after)
{
        Kvlease__V1__AdminListRequest m = KVLEASE__V1__ADMIN_LIST_REQUEST__INIT;
        const struct figures_set *sets;
        static char text[256];
        size_t len = 0, n;

        m.tenant = (char *)tenant;
        m.after = after;
        assert_int_equal(ask(w, admin, MSG_ADMIN_SETS, &m.base), 0);
        sets = rows_of(w, admin, &figures_table_set, &n);
        text[0] = '\0';
        for (const struct figures_set *set = sets; set < sets + n; set++) {
                len += (size_t)snprintf(text + len, sizeof(text) - len, "%s/%s %u/%u %u %u %u, ",
                        set->tenant, set->name, (unsigned)set->n_namespaces, (unsigned)set->size,
                        (unsigned)set->keys_complete, (unsigned)set->keys_incomplete,
                        (unsigned)set->dropped);
                assert_true(len < sizeof(text));
        }
        return text;
}

SCENE(test_sets)
{
        Kvlease__V1__AdminListRequest m = KVLEASE__V1__ADMIN_LIST_REQUEST__INIT;
        struct attach *a, *b;
        struct client *c, *admin;
        uint8_t k[KEY_BYTES];
        uint64_t n;

        c = connect_worker(w);
        admin = connect_admin(w);
        assert_string_equal(list_sets(w, admin, "", 0), "");
        assert_int_equal(open_in_set(w, c, "r0", "tp", 2), 0);
        assert_int_equal(open_in_set(w, c, "r1", "tp", 3), WIRE_INVALID);
        assert_int_equal(open_in_set(w, c, "r1", "tp", 2), 0);
        assert_int_equal(open_in_set(w, c, "x", "other", 2), 0);
        a = attach_find(peer_of(w, c)->member, 2);
        b = attach_find(peer_of(w, c)->member, 3);
        assert_int_equal(a->ns->catalog.expiry.after_nsec, 7 * NSEC_PER_SEC);
        for (unsigned i = 0; i < 3; i++)
                cache_key(a, i);
        for (unsigned i = 0; i < 2; i++)
                cache_key(b, i);
        assert_string_equal(list_sets(w, admin, "a", 0), "a/tp 2/2 2 1 0, a/other 1/2 0 0 0, ");
        make_key(k, 0);
        assert_int_equal(invalidate_key(b, k, &n, NULL), 0);
        AWAIT(w, a->ns->device.n_pages[PAGE_SEALED] == 2); /* nothing but the drop kicks the loop */
        assert_string_equal(list_sets(w, admin, "a", 0), "a/tp 2/2 1 1 0, a/other 1/2 0 0 0, ");
        m.tenant = (char *)"nobody";
        assert_int_equal(ask(w, admin, MSG_ADMIN_SETS, &m.base), WIRE_NOT_FOUND);
        assert_string_equal(list_sets(w, admin, "", a->ns->catalog.set->id), "a/other 1/2 0 0 0, ");
}

int main(void)
{
        return test_run_all(world_warm_up, NULL);
}
