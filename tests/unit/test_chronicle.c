/* The ring of events: what is told together, what is lost, and what a reader is shown. */
#include "tests/unit/test-support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/state/chronicle.h"
#include "tests/unit/test-random.h"

#define SEC NSEC_PER_SEC

static const struct chronicle_filter all;

static void open_one(struct chronicle *c)
{
        *c = (struct chronicle){0};
        assert_int_equal(chronicle_open(c), 0);
}

static void evict(struct chronicle *c, uint64_t now, const char *tenant, const char *by)
{
        chronicle_note(c, now,
                &(struct chronicle_note){.kind = EVENT_EVICTED,
                        .tenant = tenant,
                        .ns = "n",
                        .by_tenant = by,
                        .reason = "lease",
                        .pages = 2,
                        .bytes = 8});
}

static void note(struct chronicle *c, uint64_t now, enum event_kind kind, const char *tenant)
{
        chronicle_note(c, now, &(struct chronicle_note){.kind = kind, .tenant = tenant});
}

static size_t count(const struct chronicle *c, const struct chronicle_filter *f, uint64_t after)
{
        const struct chronicle_event *e;
        size_t n = 0;

        while ((e = chronicle_next(c, f, after))) {
                assert_true(e->number > after);
                after = e->number;
                n++;
        }
        return n;
}

/* What is alike within the window is one event, and has no number before its end. */
TEST(test_together)
{
        const struct chronicle_event *e;
        struct chronicle c;

        open_one(&c);
        evict(&c, 10 * SEC, "a", "b");
        evict(&c, 10 * SEC + 1, "a", "c");
        evict(&c, 10 * SEC + 2, "a", "b");
        assert_int_equal(c.last, 0);
        assert_null(chronicle_next(&c, &all, 0));
        assert_true(chronicle_due(&c) == 11 * SEC);
        chronicle_settle(&c, 11 * SEC - 1, false);
        assert_int_equal(c.last, 0);
        chronicle_settle(&c, 11 * SEC, false);
        assert_int_equal(c.last, 2); /* the other window ends early, as it must come first */
        assert_string_equal(chronicle_next(&c, &all, 0)->by_tenant, "c");
        e = chronicle_next(&c, &all, 1);
        assert_string_equal(e->tenant, "a");
        assert_string_equal(e->by_tenant, "b");
        assert_int_equal(e->count, 2);
        assert_int_equal(e->pages, 4);
        assert_int_equal(e->bytes, 16);
        assert_true(e->first_nsec == 10 * SEC && e->last_nsec == 10 * SEC + 2);
        /* A new window of the same. */
        evict(&c, 12 * SEC, "a", "b");
        chronicle_settle(&c, 12 * SEC, true);
        assert_int_equal(c.last, 3);
        assert_int_equal(chronicle_next(&c, &all, 2)->count, 1);
        assert_true(chronicle_due(&c) == UINT64_MAX);
        chronicle_close(&c);
}

/* Each of these makes another event. */
TEST(test_apart)
{
        const struct chronicle_note notes[] = {
                {.kind = EVENT_EVICTED, .tenant = "a"},
                {.kind = EVENT_DEMOTED, .tenant = "a"},
                {.kind = EVENT_EVICTED, .tenant = "b"},
                {.kind = EVENT_EVICTED, .tenant = "a", .ns = "n"},
                {.kind = EVENT_EVICTED, .tenant = "a", .by = "uid 0"},
                {.kind = EVENT_EVICTED, .tenant = "a", .by_tenant = "b"},
                {.kind = EVENT_EVICTED, .tenant = "a", .reason = "limit"},
                {.kind = EVENT_EVICTED, .tenant = "a", .tier = 1},
        };
        struct chronicle c;

        open_one(&c);
        for (unsigned round = 0; round < 3; round++)
                for (size_t i = 0; i < ARRAY_SIZE(notes); i++)
                        chronicle_note(&c, SEC, &notes[i]);
        chronicle_settle(&c, SEC, true);
        assert_int_equal(c.last, ARRAY_SIZE(notes));
        for (uint64_t i = 0; i < c.last; i++)
                assert_int_equal(chronicle_next(&c, &all, i)->count, 3);
        chronicle_close(&c);
}

/* What isn't added up is there at once, and behind what led to it. */
TEST(test_alone)
{
        struct chronicle c;

        open_one(&c);
        evict(&c, SEC, "a", "b");
        note(&c, SEC, EVENT_RESIZED, "b");
        note(&c, SEC, EVENT_RESIZED, "b");
        assert_int_equal(c.last, 3);
        assert_int_equal(chronicle_next(&c, &all, 0)->kind, EVENT_EVICTED);
        assert_int_equal(chronicle_next(&c, &all, 1)->kind, EVENT_RESIZED);
        chronicle_close(&c);
}

/* The oldest go, and the numbers say how many. */
TEST(test_overflow)
{
        struct chronicle c;

        open_one(&c);
        assert_int_equal(chronicle_lost(&c, 0), 0);
        for (unsigned i = 0; i < CHRONICLE_EVENTS; i++)
                note(&c, SEC, EVENT_DAEMON, NULL);
        assert_int_equal(chronicle_lost(&c, 0), 0);
        assert_int_equal(count(&c, &all, 0), CHRONICLE_EVENTS);
        for (unsigned i = 0; i < 5; i++)
                note(&c, SEC, EVENT_TENANT, "a");
        assert_int_equal(chronicle_lost(&c, 0), 5);
        assert_int_equal(chronicle_lost(&c, 3), 2);
        assert_int_equal(chronicle_lost(&c, 5), 0);
        assert_int_equal(chronicle_lost(&c, UINT64_MAX), 0);
        assert_int_equal(chronicle_next(&c, &all, 0)->number, 6);
        assert_int_equal(count(&c, &all, 0), CHRONICLE_EVENTS);
        assert_int_equal(chronicle_next(&c, &all, c.last - 1)->kind, EVENT_TENANT);
        assert_null(chronicle_next(&c, &all, c.last));
        assert_null(chronicle_next(&c, &all, UINT64_MAX));
        chronicle_close(&c);
}

/* Whoever makes most loses its own oldest, and nobody else loses any, as far as each has no more
 * than an equal part. */
TEST(test_parts)
{
        enum { QUIET = 10, NOISY = 3 * CHRONICLE_EVENTS };
        static const char *const loud[] = {"loud", "noisy"};
        struct chronicle c;
        uint64_t n_daemon, after = 0;

        open_one(&c);
        note(&c, SEC, EVENT_DAEMON, NULL);
        for (unsigned i = 0; i < QUIET; i++)
                note(&c, SEC, EVENT_TENANT, "quiet");
        for (unsigned i = 0; i < NOISY; i++)
                note(&c, SEC, EVENT_TENANT, loud[0]);
        /* Of somebody's pages, and at their expense: who took them is who makes many. */
        for (unsigned i = 0; i < NOISY; i++) {
                evict(&c, (i + 2) * SEC, "quiet", loud[1]);
                chronicle_settle(&c, (i + 2) * SEC, true);
        }
        assert_int_equal(
                count(&c,
                        &(struct chronicle_filter){.kinds = 1u << EVENT_TENANT, .tenant = "quiet"},
                        0),
                QUIET);
        n_daemon = count(&c, &(struct chronicle_filter){.kinds = 1u << EVENT_DAEMON}, 0);
        assert_int_equal(n_daemon, 1);
        for (unsigned i = 0; i < ARRAY_SIZE(loud); i++)
                assert_true(count(&c, &(struct chronicle_filter){.tenant = loud[i]}, 0) >=
                            (CHRONICLE_EVENTS - QUIET - 1) / 2);
        /* In order, all of them, and what is lost in between is said. */
        assert_int_equal(count(&c, &all, after), CHRONICLE_EVENTS);
        assert_int_equal(chronicle_lost(&c, 0), 2 * NOISY + QUIET + 1 - CHRONICLE_EVENTS);
        assert_int_equal(chronicle_lost(&c, 1 + QUIET), chronicle_lost(&c, 0));
        after = chronicle_before_last(&c,
                &(struct chronicle_filter){.tenant = "quiet", .kinds = 1u << EVENT_TENANT}, QUIET);
        assert_int_equal(count(&c, &all, after), CHRONICLE_EVENTS);
        chronicle_close(&c);
}

/* As many as there are places: each has one. */
TEST(test_many_owners)
{
        struct chronicle c;
        char name[16];

        open_one(&c);
        for (unsigned i = 0; i < 2 * CHRONICLE_EVENTS; i++) {
                snprintf(name, sizeof(name), "t%u", i);
                note(&c, SEC, EVENT_TENANT, name);
        }
        assert_int_equal(count(&c, &all, 0), CHRONICLE_EVENTS);
        assert_int_equal(chronicle_next(&c, &all, c.last - 1)->number, c.last);
        assert_string_equal(chronicle_next(&c, &all, c.last - 1)->tenant, name);
        chronicle_close(&c);
}

/* More that is open than there is room for: the oldest window ends early, nothing is lost. */
TEST(test_many_open)
{
        struct chronicle c;
        char name[16];

        open_one(&c);
        for (unsigned i = 0; i < 3 * CHRONICLE_OPEN_EVENTS; i++) {
                snprintf(name, sizeof(name), "t%u", i);
                evict(&c, SEC, name, "b");
        }
        assert_int_equal(c.last, 2 * CHRONICLE_OPEN_EVENTS);
        chronicle_settle(&c, SEC, true);
        assert_int_equal(count(&c, &all, 0), 3 * CHRONICLE_OPEN_EVENTS);
        assert_string_equal(chronicle_next(&c, &all, 0)->tenant, "t0");
        chronicle_close(&c);
}

/* Events are in the order of their times, and nothing that is noted is left out, whatever is noted
 * when: of many sources at once, and with times that were taken earlier. */
TEST(test_order)
{
        uint64_t now = 100 * SEC, last_nsec = 0, after = 0, counted = 0;
        const struct chronicle_event *e;
        struct chronicle c;
        char name[16];

        open_one(&c);
        random_start("test_chronicle");
        for (unsigned i = 0; i < 20000; i++) {
                uint64_t step = random_below(i / 5000 % 2 ? SEC / 200 : SEC / 10);

                now += step;
                snprintf(name, sizeof(name), "t%u", random_below(CHRONICLE_OPEN_EVENTS + 9));
                if (random_below(50) == 0)
                        note(&c, now, EVENT_RESIZED, name);
                else
                        evict(&c, now - step / 2, name, random_below(2) ? "b" : "c");
                if (random_below(20) == 0)
                        chronicle_settle(&c, now, random_below(10) == 0);
                while ((e = chronicle_next(&c, &all, after))) {
                        assert_true(e->last_nsec >= last_nsec);
                        assert_true(e->last_nsec - e->first_nsec < CHRONICLE_WINDOW_NSEC);
                        last_nsec = e->last_nsec;
                        after = e->number;
                        counted += e->count;
                }
        }
        chronicle_settle(&c, now, true);
        while ((e = chronicle_next(&c, &all, after))) {
                assert_true(e->last_nsec >= last_nsec);
                last_nsec = e->last_nsec;
                after = e->number;
                counted += e->count;
        }
        assert_int_equal(counted, 20000);
        chronicle_close(&c);
}

TEST(test_filter)
{
        struct chronicle c;

        open_one(&c);
        evict(&c, 1 * SEC, "a", "b");
        evict(&c, 3 * SEC, "c", "c");
        note(&c, 5 * SEC, EVENT_RESIZED, "b");
        note(&c, 7 * SEC, EVENT_DAEMON, NULL);
        assert_int_equal(c.last, 4);
        assert_int_equal(count(&c, &(struct chronicle_filter){.tenant = "a"}, 0), 1);
        assert_int_equal(count(&c, &(struct chronicle_filter){.tenant = "b"}, 0), 2);
        assert_int_equal(count(&c, &(struct chronicle_filter){.tenant = "x"}, 0), 0);
        assert_int_equal(count(&c, &(struct chronicle_filter){.ns = "n"}, 0), 2);
        assert_int_equal(count(&c, &(struct chronicle_filter){.kinds = 1u << EVENT_DAEMON}, 0), 1);
        assert_int_equal(count(&c, &(struct chronicle_filter){.since_nsec = 3 * SEC}, 0), 3);
        assert_int_equal(count(&c, &all, chronicle_before_last(&c, &all, 3)), 3);
        assert_int_equal(count(&c, &all, chronicle_before_last(&c, &all, 99)), 4);
        assert_int_equal(chronicle_before_last(&c, &(struct chronicle_filter){.ns = "n"}, 1), 1);
        chronicle_close(&c);
}

/* Who doesn't say who did it means whose request is being handled. */
TEST(test_by)
{
        struct chronicle c;

        open_one(&c);
        c.by = "uid 0";
        note(&c, SEC, EVENT_DAEMON, NULL);
        chronicle_note(&c, SEC, &(struct chronicle_note){.kind = EVENT_TENANT, .by = "somebody"});
        c.by = NULL;
        note(&c, SEC, EVENT_DAEMON, NULL);
        assert_string_equal(chronicle_next(&c, &all, 0)->by, "uid 0");
        assert_string_equal(chronicle_next(&c, &all, 1)->by, "somebody");
        assert_string_equal(chronicle_next(&c, &all, 2)->by, "");
        chronicle_close(&c);
}

/* Texts that are too long are cut between characters, and still told together. */
TEST(test_long_texts)
{
        const struct chronicle_event *e;
        struct chronicle c;
        char text[400];

        memset(text, 'x', sizeof(text));
        text[sizeof(text) - 1] = '\0';
        memcpy(text + CHRONICLE_REASON_MAX - 1, "\xc3\xa4", 2); /* the cut is in the middle */
        open_one(&c);
        for (unsigned i = 0; i < 2; i++)
                chronicle_note(&c, SEC,
                        &(struct chronicle_note){
                                .kind = EVENT_REFUSED, .reason = text, .detail = text});
        chronicle_settle(&c, SEC, true);
        assert_int_equal(c.last, 1);
        e = chronicle_next(&c, &all, 0);
        assert_int_equal(e->count, 2);
        assert_int_equal(strlen(e->reason), CHRONICLE_REASON_MAX - 1);
        assert_int_equal(strlen(e->detail), CHRONICLE_DETAIL_MAX);
        chronicle_close(&c);
}

/* One that was never opened, or is closed, takes no notes. */
TEST(test_off)
{
        struct chronicle c = {0};

        evict(&c, SEC, "a", "b");
        chronicle_settle(&c, SEC, true);
        assert_int_equal(c.last, 0);
        assert_null(chronicle_next(&c, &all, 0));
        chronicle_close(&c);
}

TEST(test_names)
{
        for (enum event_kind kind = 0; kind < EVENT_KINDS; kind++)
                assert_int_equal(chronicle_find_kind(chronicle_kind_name(kind)), kind);
        assert_int_equal(chronicle_find_kind("eaten"), EVENT_KINDS);
}
