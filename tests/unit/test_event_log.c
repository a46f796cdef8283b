/* The ring of events: what is told together, what is lost, and what a reader is shown. */
#include "tests/unit/test-support.h"

#include <stdio.h>
#include <string.h>

#include "daemon/core/state/event-log.h"
#include "tests/unit/test-random.h"

#define SEC NSEC_PER_SEC

static const struct event_log_filter all;

static void open_one(struct event_log *c)
{
        *c = (struct event_log){0};
        assert_int_equal(event_log_open(c), 0);
}

#define SCENE(fn, ...) TEST_ON(fn, struct event_log, c, open_one, event_log_close, ##__VA_ARGS__)

static void evict(struct event_log *c, uint64_t now, const char *tenant, const char *by)
{
        event_note(c, now,
                &(struct event_note){.kind = EVENT_EVICTED,
                        .tenant = tenant,
                        .ns = "n",
                        .by_tenant = by,
                        .reason = "lease",
                        .pages = 2,
                        .bytes = 8});
}

static void note(struct event_log *c, uint64_t now, enum event_kind kind, const char *tenant)
{
        event_note(c, now, &(struct event_note){.kind = kind, .tenant = tenant});
}

static size_t count(const struct event_log *c, const struct event_log_filter *f, uint64_t after)
{
        const struct log_event *e;
        size_t n = 0;

        while ((e = event_log_next(c, f, after))) {
                assert_true(e->number > after);
                after = e->number;
                n++;
        }
        return n;
}

/* Like events within the window are one event, which has no number until the window ends. */
SCENE(test_together)
{
        const struct log_event *e;

        evict(c, 10 * SEC, "a", "b");
        evict(c, 10 * SEC + 1, "a", "c");
        evict(c, 10 * SEC + 2, "a", "b");
        assert_int_equal(c->last, 0);
        assert_null(event_log_next(c, &all, 0));
        assert_true(event_log_due(c) == 11 * SEC);
        event_log_flush(c, 11 * SEC - 1, false);
        assert_int_equal(c->last, 0);
        event_log_flush(c, 11 * SEC, false);
        assert_int_equal(c->last, 2); /* the other window ends early, as it must come first */
        assert_string_equal(event_log_next(c, &all, 0)->by_tenant, "c");
        e = event_log_next(c, &all, 1);
        assert_string_equal(e->tenant, "a");
        assert_string_equal(e->by_tenant, "b");
        assert_int_equal(e->count, 2);
        assert_int_equal(e->pages, 4);
        assert_int_equal(e->bytes, 16);
        assert_true(e->first_nsec == 10 * SEC && e->last_nsec == 10 * SEC + 2);
        /* A new window of the same. */
        evict(c, 12 * SEC, "a", "b");
        event_log_flush(c, 12 * SEC, true);
        assert_int_equal(c->last, 3);
        assert_int_equal(event_log_next(c, &all, 2)->count, 1);
        assert_true(event_log_due(c) == UINT64_MAX);
}

/* The oldest go, and the numbers say how many. */
SCENE(test_overflow)
{
        assert_int_equal(event_log_lost(c, 0), 0);
        for (unsigned i = 0; i < EVENT_LOG_EVENTS; i++)
                note(c, SEC, EVENT_DAEMON, NULL);
        assert_int_equal(event_log_lost(c, 0), 0);
        assert_int_equal(count(c, &all, 0), EVENT_LOG_EVENTS);
        for (unsigned i = 0; i < 5; i++)
                note(c, SEC, EVENT_TENANT, "a");
        assert_int_equal(event_log_lost(c, 0), 5);
        assert_int_equal(event_log_lost(c, 3), 2);
        assert_int_equal(event_log_lost(c, 5), 0);
        assert_int_equal(event_log_lost(c, UINT64_MAX), 0);
        assert_int_equal(event_log_next(c, &all, 0)->number, 6);
        assert_int_equal(count(c, &all, 0), EVENT_LOG_EVENTS);
        assert_int_equal(event_log_next(c, &all, c->last - 1)->kind, EVENT_TENANT);
        assert_null(event_log_next(c, &all, c->last));
        assert_null(event_log_next(c, &all, UINT64_MAX));
}

/* The owner of most events loses its oldest ones. Other owners lose none while they have no more
 * than an equal part. */
TEST(test_parts)
{
        enum { QUIET = 10, NOISY = 3 * EVENT_LOG_EVENTS };
        static const char *const loud[] = {"loud", "noisy"};
        struct event_log c;
        uint64_t n_daemon, after = 0;

        open_one(&c);
        note(&c, SEC, EVENT_DAEMON, NULL);
        for (unsigned i = 0; i < QUIET; i++)
                note(&c, SEC, EVENT_TENANT, "quiet");
        for (unsigned i = 0; i < NOISY; i++)
                note(&c, SEC, EVENT_TENANT, loud[0]);
        /* Evictions of `quiet`'s pages for `noisy` count for `noisy`. */
        for (unsigned i = 0; i < NOISY; i++) {
                evict(&c, (i + 2) * SEC, "quiet", loud[1]);
                event_log_flush(&c, (i + 2) * SEC, true);
        }
        assert_int_equal(
                count(&c,
                        &(struct event_log_filter){.kinds = 1u << EVENT_TENANT, .tenant = "quiet"},
                        0),
                QUIET);
        n_daemon = count(&c, &(struct event_log_filter){.kinds = 1u << EVENT_DAEMON}, 0);
        assert_int_equal(n_daemon, 1);
        for (unsigned i = 0; i < ARRAY_SIZE(loud); i++)
                assert_true(count(&c, &(struct event_log_filter){.tenant = loud[i]}, 0) >=
                            (EVENT_LOG_EVENTS - QUIET - 1) / 2);
        /* In order, all of them, and what is lost in between is said. */
        assert_int_equal(count(&c, &all, after), EVENT_LOG_EVENTS);
        assert_int_equal(event_log_lost(&c, 0), 2 * NOISY + QUIET + 1 - EVENT_LOG_EVENTS);
        assert_int_equal(event_log_lost(&c, 1 + QUIET), event_log_lost(&c, 0));
        after = event_log_before_last(&c,
                &(struct event_log_filter){.tenant = "quiet", .kinds = 1u << EVENT_TENANT}, QUIET);
        assert_int_equal(count(&c, &all, after), EVENT_LOG_EVENTS);
        event_log_close(&c);
}

/* One owner for each place: each has one. */
SCENE(test_many_owners)
{
        char name[16];

        for (unsigned i = 0; i < 2 * EVENT_LOG_EVENTS; i++) {
                snprintf(name, sizeof(name), "t%u", i);
                note(c, SEC, EVENT_TENANT, name);
        }
        assert_int_equal(count(c, &all, 0), EVENT_LOG_EVENTS);
        assert_int_equal(event_log_next(c, &all, c->last - 1)->number, c->last);
        assert_string_equal(event_log_next(c, &all, c->last - 1)->tenant, name);
}

/* More that is open than there is room for: the oldest window ends early, nothing is lost. */
SCENE(test_many_open)
{
        char name[16];

        for (unsigned i = 0; i < 3 * EVENT_LOG_OPEN_EVENTS; i++) {
                snprintf(name, sizeof(name), "t%u", i);
                evict(c, SEC, name, "b");
        }
        assert_int_equal(c->last, 2 * EVENT_LOG_OPEN_EVENTS);
        event_log_flush(c, SEC, true);
        assert_int_equal(count(c, &all, 0), 3 * EVENT_LOG_OPEN_EVENTS);
        assert_string_equal(event_log_next(c, &all, 0)->tenant, "t0");
}

/* Events are in the order of their times, and none is left out. They come from many sources at
 * once, with times that were taken earlier. */
SCENE(test_order)
{
        uint64_t now = 100 * SEC, last_nsec = 0, after = 0, counted = 0;
        const struct log_event *e;
        char name[16];

        random_start("test_chronicle");
        for (unsigned i = 0; i < 20000; i++) {
                uint64_t step = random_below(i / 5000 % 2 ? SEC / 200 : SEC / 10);

                now += step;
                snprintf(name, sizeof(name), "t%u", random_below(EVENT_LOG_OPEN_EVENTS + 9));
                if (random_below(50) == 0)
                        note(c, now, EVENT_RESIZED, name);
                else
                        evict(c, now - step / 2, name, random_below(2) ? "b" : "c");
                if (random_below(20) == 0)
                        event_log_flush(c, now, random_below(10) == 0);
                while ((e = event_log_next(c, &all, after))) {
                        assert_true(e->last_nsec >= last_nsec);
                        assert_true(e->last_nsec - e->first_nsec < EVENT_LOG_WINDOW_NSEC);
                        last_nsec = e->last_nsec;
                        after = e->number;
                        counted += e->count;
                }
        }
        event_log_flush(c, now, true);
        while ((e = event_log_next(c, &all, after))) {
                assert_true(e->last_nsec >= last_nsec);
                last_nsec = e->last_nsec;
                after = e->number;
                counted += e->count;
        }
        assert_int_equal(counted, 20000);
}

SCENE(test_filter)
{
        evict(c, 1 * SEC, "a", "b");
        evict(c, 3 * SEC, "c", "c");
        note(c, 5 * SEC, EVENT_RESIZED, "b");
        note(c, 7 * SEC, EVENT_DAEMON, NULL);
        assert_int_equal(c->last, 4);
        assert_int_equal(count(c, &(struct event_log_filter){.tenant = "a"}, 0), 1);
        assert_int_equal(count(c, &(struct event_log_filter){.tenant = "b"}, 0), 2);
        assert_int_equal(count(c, &(struct event_log_filter){.tenant = "x"}, 0), 0);
        assert_int_equal(count(c, &(struct event_log_filter){.ns = "n"}, 0), 2);
        assert_int_equal(count(c, &(struct event_log_filter){.kinds = 1u << EVENT_DAEMON}, 0), 1);
        assert_int_equal(count(c, &(struct event_log_filter){.since_nsec = 3 * SEC}, 0), 3);
        assert_int_equal(count(c, &all, event_log_before_last(c, &all, 3)), 3);
        assert_int_equal(count(c, &all, event_log_before_last(c, &all, 99)), 4);
        assert_int_equal(event_log_before_last(c, &(struct event_log_filter){.ns = "n"}, 1), 1);
}

/* Texts that are too long are cut between characters, and still told together. */
TEST(test_long_texts)
{
        const struct log_event *e;
        struct event_log c;
        char text[400];

        memset(text, 'x', sizeof(text));
        text[sizeof(text) - 1] = '\0';
        memcpy(text + EVENT_LOG_REASON_MAX - 1, "\xc3\xa4", 2); /* the cut is in the middle */
        open_one(&c);
        for (unsigned i = 0; i < 2; i++)
                event_note(&c, SEC,
                        &(struct event_note){
                                .kind = EVENT_REFUSED, .reason = text, .detail = text});
        event_log_flush(&c, SEC, true);
        assert_int_equal(c.last, 1);
        e = event_log_next(&c, &all, 0);
        assert_int_equal(e->count, 2);
        assert_int_equal(strlen(e->reason), EVENT_LOG_REASON_MAX - 1);
        assert_int_equal(strlen(e->detail), EVENT_LOG_DETAIL_MAX);
        event_log_close(&c);
}

TEST(test_names)
{
        for (enum event_kind kind = 0; kind < EVENT_KINDS; kind++)
                assert_int_equal(event_log_find_kind(event_log_kind_name(kind)), kind);
        assert_int_equal(event_log_find_kind("eaten"), EVENT_KINDS);
}
