/*
 * kvleased is killed at every point where it stores to what outlives it, and at random moments,
 * under eight workers that look at every byte they read: each acknowledged page is there
 * afterwards, with its bytes; no worker notices more than a pause of what it publishes; `check` is
 * clean. (Short run: a third of the points once, 20 moments; full: each at three passes, 500
 * moments.)
 */
#include <string.h>

#include "base/macros.h"
#include "fault-points.h"
#include "tests/fault/restart-scene.h"
#include "tests/integration/pattern.h"

#define SHORT_STEP 3     /* every so many points are tried in the short run, others each time */
#define STIR_MSEC  12000 /* until a point is passed; not tuned */

static const struct private_options options = {
        .tenants = scene_tenants,
        .device_lines = "memory = 320MiB\nextent = 2MiB\n",
        .is_kept = true,
        .has_faults = true,
};

#define X(name) name,
static const char *const points[] = {FAULT_POINTS(X)};
#undef X

/* Passed once in the life of what is kept, or by work that takes long to bring about: unit tests
 * kill there (test_recover.c, test_client_recover.c, test_session_log.c). */
static const char *const elsewhere[] = {"state-", "client-rows-", "attach-rows-", "move-",
        "client-mute-", "index-after-epochs", "page-before-reparent", "page-after-reparent",
        "session-log-", "slot-before-replace", "slot-after-replace", "tag-"};

/* Dead at the point, and back. False: it isn't passed within STIR_MSEC. */
static bool die_at(struct scene *s, const char *point, unsigned pass)
{
        struct private_daemon *d = &s->h->daemon;
        uint64_t start = now_nsec();
        bool was_killed = false;

        print_message("%s\n", point);
        private_daemon_arm(d, point, pass);
        while (!private_daemon_has_died(d)) {
                uint64_t msec = (now_nsec() - start) / 1000000;

                if (msec > STIR_MSEC)
                        return false;
                /* Some are passed by the daemon that comes after. */
                if (msec > STIR_MSEC / 4 && !was_killed) {
                        was_killed = true;
                        scene_kill_daemon(s);
                        scene_recover(s);
                        continue;
                }
                scene_stir(s);
        }
        if (!was_killed)
                scene_recover(s);
        return true;
}

static bool is_elsewhere(const char *point)
{
        for (size_t i = 0; i < ARRAY_SIZE(elsewhere); ++i)
                if (strncmp(point, elsewhere[i], strlen(elsewhere[i])) == 0)
                        return true;
        return false;
}

static void test_points(void **state)
{
        unsigned n_passes = private_full() ? 3 : 1, n = 0, n_missed = 0;
        struct scene s;

        scene_begin(&s, *state);
        for (unsigned pass = 1; pass <= n_passes; ++pass)
                for (size_t i = private_full() ? 0 : s.random % SHORT_STEP; i < ARRAY_SIZE(points);
                        i += private_full() ? 1 : SHORT_STEP) {
                        if (is_elsewhere(points[i]))
                                continue;
                        if (die_at(&s, points[i], pass)) {
                                n++;
                                continue;
                        }
                        n_missed++;
                        print_error("fault point %s wasn't passed %u times\n", points[i], pass);
                }
        print_message("killed at %u points\n", n);
        scene_end(&s);
        if (private_full()) /* a busy machine stirs less */
                assert_int_equal(n_missed, 0);
        assert_true(n >= 60 * n_passes || (!private_full() && n >= 45 / SHORT_STEP));
}

static void test_moments(void **state)
{
        unsigned n = private_full() ? 500 : 20;
        struct scene s;

        scene_begin(&s, *state);
        for (unsigned i = 0; i < n; ++i) {
                unsigned msec = (unsigned)(pattern_next(&s.random) % 50);

                if (i % 2 == 0)
                        scene_stir(&s);
                sleep_msec(msec);
                scene_kill_daemon(&s);
                scene_recover(&s);
        }
        scene_end(&s);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                harness_test(test_points, (void *)&options),
                harness_test(test_moments, (void *)&options),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
