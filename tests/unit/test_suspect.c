/* The tenants that were served when daemons died, and the next daemon's conclusions. */
#include "daemon/core/core.h"
#include "daemon/core/state/suspect.h"

#include <string.h>

#include "daemon/core/state/detail.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/state.h"
#include "tests/unit/test-support.h"

#define NOW (UINT64_C(1000000) * NSEC_PER_SEC)
#define A   suspect_mark("a")
#define B   suspect_mark("b")

static void open_store(struct store *s)
{
        bool is_lost;

        store_init(s, &evict_lru);
        assert_int_equal(state_open(s, &is_lost, NULL), 0);
}

#define SCENE(fn, ...) TEST_ON(fn, struct store, s, open_store, store_deinit, ##__VA_ARGS__)

/* A daemon dies over this client, and the next one counts. */
static bool die(struct store *s, uint64_t tenant, uint64_t client, uint64_t now)
{
        struct detail d;

        (void)suspect_serve(s, tenant, client);
        suspect_note_crash(s->state);
        return suspects_count(s, now, &d);
}

static bool is_client(const struct store *s, uint64_t tenant, uint64_t client)
{
        bool unread;
        bool is = suspect_is_client(s, tenant, client, &unread);

        assert_false(unread);
        return is;
}

SCENE(test_two_deaths)
{
        assert_true(die(s, A, 1, NOW));
        assert_false(is_client(s, A, 1));
        assert_true(die(s, A, 2, NOW));
        assert_false(is_client(s, A, 1) || is_client(s, A, 2));
        assert_true(die(s, A, 1, NOW));
        assert_true(is_client(s, A, 1));
        assert_false(is_client(s, A, 2) || is_client(s, B, 1));
        assert_false(suspect_is_tenant(s, A, NOW));
        suspects_forget(s);
        assert_false(is_client(s, A, 1));
}

/* No tenant was served, or the daemon was killed from outside; earlier service doesn't count. */
TEST(test_nobody)
{
        struct state_serving was, inner;
        struct store s;
        struct detail d;

        open_store(&s);
        (void)suspect_serve(&s, A, 1);
        assert_false(suspects_count(&s, NOW, &d)); /* SIGKILL */
        assert_int_equal(s.state->serving.tenant, 0);
        was = suspect_serve(&s, A, 1);
        inner = suspect_serve(&s, B, 7); /* on its behalf */
        suspect_serve_end(&s, inner);
        assert_int_equal(s.state->serving.client, 1);
        suspect_serve_end(&s, was);
        suspect_note_crash(s.state);
        assert_false(suspects_count(&s, NOW, &d));
        assert_int_equal(s.state->crashed, 0);
        store_deinit(&s);
}

/* State of a client killed a daemon: after one time it isn't read again. */
TEST(test_taking_over)
{
        struct store s;
        struct detail d;
        bool unread;

        open_store(&s);
        (void)suspect_take_over(&s, A, 3);
        suspect_note_crash(s.state);
        assert_true(suspects_count(&s, NOW, &d));
        assert_true(suspect_is_client(&s, A, 3, &unread));
        assert_true(unread);
        assert_false(suspect_is_client(&s, A, 4, &unread));
        assert_false(unread);
        store_deinit(&s);
}

/* Another client each time: its tenant, which is forgotten after an hour. */
SCENE(test_tenant)
{
        for (uint64_t i = 0; i < SUSPECT_TENANT_DEATHS; i++) {
                assert_false(suspect_is_tenant(s, A, NOW));
                assert_true(die(s, A, i % 2 == 0 ? 0 : i, NOW));
        }
        assert_true(suspect_is_tenant(s, A, NOW));
        assert_true(is_client(s, A, 99));
        assert_false(suspect_is_tenant(s, B, NOW) || is_client(s, B, 99));
        assert_false(suspect_is_tenant(s, A, NOW + SUSPECT_FORGET_NSEC));
        assert_true(die(s, B, 1, NOW + SUSPECT_FORGET_NSEC));
        assert_false(is_client(s, A, 99));
}

/* More than there are rows for: the oldest goes. */
SCENE(test_full)
{
        for (uint64_t i = 1; i <= 2 * STATE_SUSPECTS; i++)
                assert_true(die(s, suspect_mark("x") + 2 * i, i, NOW + i));
        assert_true(die(s, A, 1, NOW + 100));
        assert_true(die(s, A, 1, NOW + 100));
        assert_true(is_client(s, A, 1));
}
