/* The last hour on the status page: hits and times between two samples, and gaps where the daemon
 * was restarted or away. */
#include <stdlib.h>
#include <string.h>

#include "client/exporter/history.h"
#include "tests/unit/test-support.h"

#define START (1000 * NSEC_PER_SEC)

struct scene {
        struct history history;
        uint64_t now_nsec;
        struct figures_status status;
        Kvlease__V1__AdminCountersReply counters;
        Kvlease__V1__AdminCall call, admin, *calls[2];
        uint64_t bounds[2], counts[3], admin_counts[3];
};

static void set_up(struct scene *s)
{
        *s = (struct scene){.now_nsec = START,
                .counters = KVLEASE__V1__ADMIN_COUNTERS_REPLY__INIT,
                .call = KVLEASE__V1__ADMIN_CALL__INIT,
                .admin = KVLEASE__V1__ADMIN_CALL__INIT,
                .bounds = {1000 * 1000, 5000 * 1000}};
        s->status.boot_epoch = 1;
        s->call.name = (char *)"LEASE";
        s->admin.name = (char *)"ADMIN_STATUS";
        s->call.counts = s->counts;
        s->admin.counts = s->admin_counts;
        s->call.n_counts = s->admin.n_counts = 3;
        s->calls[0] = &s->call;
        s->calls[1] = &s->admin;
        s->counters.calls = s->calls;
        s->counters.n_calls = 2;
        s->counters.bounds_nsec = s->bounds;
        s->counters.n_bounds_nsec = 2;
}

/* So much more since the sample before, a step later. */
static void step(struct scene *s, uint64_t keys, uint64_t hits, uint64_t fast, uint64_t slow)
{
        s->now_nsec += HISTORY_STEP_NSEC;
        s->status.lookup_keys += keys;
        s->status.lookup_hits += hits;
        s->counts[0] += fast;
        s->counts[1] += slow;
        s->admin_counts[2] += 1000;
        history_add(&s->history, s->now_nsec, &s->status, &s->counters);
}

TEST(test_points)
{
        struct scene *s = malloc(sizeof(*s));
        struct history_point p;

        set_up(s);
        assert_true(history_is_due(&s->history, s->now_nsec));
        assert_int_equal(history_points(&s->history), 0);
        step(s, 100, 50, 10, 10);
        assert_false(history_is_due(&s->history, s->now_nsec + HISTORY_STEP_NSEC - 1));
        assert_true(history_is_due(&s->history, s->now_nsec + HISTORY_STEP_NSEC));
        assert_int_equal(history_points(&s->history), 0);
        step(s, 10, 7, 98, 2);
        step(s, 0, 0, 0, 0);
        assert_int_equal(history_points(&s->history), 2);
        assert_true(history_point(&s->history, 0, s->now_nsec, &p));
        assert_int_equal(p.age_sec, HISTORY_STEP_NSEC / NSEC_PER_SEC);
        assert_int_equal(p.keys, 10);
        assert_int_equal(p.hits, 7);
        assert_int_equal(p.median_usec, 1000);
        assert_int_equal(p.p99_usec, 5000); /* two of a hundred */
        assert_true(history_point(&s->history, 1, s->now_nsec, &p));
        assert_int_equal(p.keys, 0);
        assert_int_equal(p.p99_usec, 0);
        /* Changes since the last sample. */
        assert_false(history_now(&s->history, s->now_nsec, &s->status, &s->counters, &p));
        s->status.lookup_keys += 5;
        s->status.lookup_hits += 4;
        s->counts[1] += 1;
        assert_true(history_now(&s->history, s->now_nsec + 1, &s->status, &s->counters, &p));
        assert_int_equal(p.age_sec, 0);
        assert_int_equal(p.keys, 5);
        assert_int_equal(p.hits, 4);
        assert_int_equal(p.p99_usec, 5000);
        free(s);
}

/* The ring has the last hour, in order. */
TEST(test_an_hour)
{
        struct scene *s = malloc(sizeof(*s));
        struct history_point p;

        set_up(s);
        for (unsigned i = 0; i < 1000; i++)
                step(s, i, 0, 0, 0);
        assert_int_equal(history_points(&s->history), HISTORY_SAMPLES - 1);
        for (unsigned i = 0; i < HISTORY_SAMPLES - 1; i++) {
                assert_true(history_point(&s->history, i, s->now_nsec, &p));
                assert_int_equal(p.keys, 1000 - (HISTORY_SAMPLES - 1) + i);
        }
        assert_true(history_point(&s->history, 0, s->now_nsec, &p));
        assert_in_range(p.age_sec, 3500, 3600);
        free(s);
}
