/* Events about a store that hosts share: once, sparsely, and the last one is true. */
#include "tests/unit/test-support.h"

#include <errno.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/exchange/exchange-news.h"
#include "daemon/core/state/event-log.h"
#include "daemon/remote/io/remote-io.h"

#define SEC    NSEC_PER_SEC
#define MINUTE (60 * SEC)

static const struct event_log_filter all;

static const struct remote_summary unknown = {.n_nodes = 2},
                                   reached = {.state = REMOTE_REACHED, .n_nodes = 2},
                                   partly = {.state = REMOTE_REACHED,
                                           .n_nodes = 3,
                                           .n_left_alone = 1,
                                           .left_alone = "10.0.0.2:6379",
                                           .last_error = -ECONNREFUSED},
                                   lost = {.state = REMOTE_UNREACHED,
                                           .n_nodes = 2,
                                           .n_left_alone = 2,
                                           .last_error = -ECONNREFUSED};

struct teller {
        struct exchange_news news;
        struct event_log event_log;
};

static void teller_start(struct teller *t)
{
        *t = (struct teller){.news.name = "x"};
        assert_int_equal(event_log_open(&t->event_log), 0);
}

static void teller_end(struct teller *t)
{
        event_log_close(&t->event_log);
}

#define SCENE(fn, ...) TEST_ON(fn, struct teller, t, teller_start, teller_end, ##__VA_ARGS__)

/* Does the daemon's work of each second. */
static void see(struct teller *t, const struct remote_summary *summary, uint64_t now_nsec)
{
        exchange_news_see(&t->news, summary, now_nsec);
        exchange_news_tell(&t->news, &t->event_log, now_nsec);
}

static void refuse(struct teller *t, const char *tenant, const char *reason, uint64_t now_nsec)
{
        exchange_news_refused(&t->news, tenant, reason, "it is bad", 1);
        exchange_news_tell(&t->news, &t->event_log, now_nsec);
}

static uint64_t n_events(const struct teller *t)
{
        return t->event_log.last;
}

static const struct log_event *last_event(const struct teller *t)
{
        const struct log_event *e = event_log_next(&t->event_log, &all, t->event_log.last - 1);

        assert_non_null(e);
        assert_int_equal(e->kind, EVENT_REMOTE);
        assert_string_equal(e->by, "remote x");
        return e;
}

static void assert_last(const struct teller *t, uint64_t n, const char *reason, uint64_t count)
{
        assert_int_equal(n_events(t), n);
        assert_string_equal(last_event(t)->reason, reason);
        assert_int_equal(last_event(t)->count, count);
}

/* ---- reached or not -------------------------------------------------------------------------- */

TEST(test_lost_and_regained)
{
        struct remote_summary nameless = {.state = REMOTE_UNREACHED};
        struct teller t;

        teller_start(&t);
        see(&t, &unknown, 1 * SEC);
        see(&t, &reached, 2 * SEC); /* it always was, for all that is known */
        see(&t, &lost, 10 * SEC);
        see(&t, &lost, 12 * SEC);
        assert_int_equal(n_events(&t), 0);
        see(&t, &lost, 13 * SEC);
        assert_last(&t, 1, "unreachable", 1);
        assert_string_equal(last_event(&t)->detail, "of 2 nodes none answers: Connection refused");
        assert_string_equal(last_event(&t)->tenant, "");
        see(&t, &lost, 200 * SEC);
        see(&t, &unknown, 201 * SEC); /* a server answers, and serves nothing yet */
        assert_int_equal(n_events(&t), 1);
        see(&t, &reached, 205 * SEC);
        assert_last(&t, 2, "reachable again", 1);
        assert_string_equal(last_event(&t)->detail, "it wasn't for 195s");
        see(&t, &reached, 300 * SEC);
        assert_int_equal(n_events(&t), 2);

        see(&t, &nameless, 400 * SEC);
        see(&t, &nameless, 403 * SEC);
        assert_last(&t, 3, "unreachable", 1);
        assert_string_equal(last_event(&t)->detail,
                "none of its addresses is known: can the names be resolved?");
        teller_end(&t);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

TEST(test_node_left_alone)
{
        struct remote_summary more = partly;
        struct teller t;

        more.n_left_alone = 2;
        teller_start(&t);
        see(&t, &unknown, 1 * SEC);
        see(&t, &partly, 10 * SEC);
        see(&t, &partly, 12 * SEC);
        assert_int_equal(n_events(&t), 0);
        see(&t, &partly, 13 * SEC);
        assert_last(&t, 1, "node left alone", 1);
        assert_string_equal(last_event(&t)->detail,
                "of 3 nodes 10.0.0.2:6379 is left alone: Connection refused");
        /* Another one, a minute after that at the earliest; and then neither. */
        see(&t, &more, 30 * SEC);
        see(&t, &partly, 31 * SEC);
        assert_int_equal(n_events(&t), 1);
        see(&t, &more, 73 * SEC);
        assert_last(&t, 2, "node left alone", 1);
        assert_string_equal(last_event(&t)->detail,
                "of 3 nodes 2 are left alone, 10.0.0.2:6379 among them: Connection refused");
        see(&t, &reached, 110 * SEC);
        see(&t, &reached, 112 * SEC);
        assert_int_equal(n_events(&t), 2);
        see(&t, &reached, 113 * SEC);
        assert_last(&t, 3, "all nodes answer", 1);
        assert_string_equal(last_event(&t)->detail, "no node is left alone; for 100s 2 of 3 were");
        see(&t, &reached, 600 * SEC);
        assert_int_equal(n_events(&t), 3);
        teller_end(&t);
}

/* If all nodes of a store are lost, no more events name single nodes. */
SCENE(test_nodes_of_a_lost_store)
{
        see(t, &partly, 1 * SEC);
        see(t, &lost, 2 * SEC);
        see(t, &lost, 5 * SEC);
        assert_last(t, 1, "unreachable", 1);
        see(t, &lost, 100 * SEC);
        see(t, &partly, 200 * SEC);
        assert_last(t, 2, "reachable again", 1);
        see(t, &partly, 202 * SEC);
        assert_int_equal(n_events(t), 2);
        see(t, &partly, 203 * SEC);
        assert_last(t, 3, "node left alone", 1);
}

/* A node that comes and goes all the time fills nothing; it is told of at most once a minute. */
SCENE(test_flapping_node)
{
        uint64_t now = 1;

        for (unsigned i = 0; i < 3600; i++) /* shorter than it is told of */
                see(t, i % 3 == 0 ? &reached : &partly, now += SEC);
        assert_int_equal(n_events(t), 0);
        for (unsigned i = 0; i < 360; i++) { /* an hour */
                see(t, &partly, now += SEC);
                see(t, &partly, now += 4 * SEC);
                see(t, &reached, now += SEC);
                see(t, &reached, now += 4 * SEC);
        }
        assert_in_range(n_events(t), 60, 122);
        see(t, &reached, now += 2 * MINUTE);
        assert_string_equal(last_event(t)->reason, "all nodes answer");
}

/* An outage from one second to another. */
static void fail_between(struct teller *t, unsigned from, unsigned to)
{
        see(t, &lost, from * SEC);
        see(t, &lost, (from + 5) * SEC);
        see(t, &reached, to * SEC);
}

/* Changes within a minute are reported together, with the state at the end. */
SCENE(test_told_together)
{
        fail_between(t, 1000, 1010);
        assert_last(t, 2, "reachable again", 1);
        fail_between(t, 1020, 1030);
        assert_int_equal(n_events(t), 2);
        fail_between(t, 1060, 1070);
        assert_int_equal(n_events(t), 4);
        assert_int_equal(event_log_next(&t->event_log, &all, 2)->count, 2);
        assert_string_equal(event_log_next(&t->event_log, &all, 2)->reason, "unreachable");
        assert_last(t, 4, "reachable again", 1);
        /* The short one is told when it is over. */
        fail_between(t, 1080, 1090);
        see(t, &reached, 1129 * SEC);
        assert_int_equal(n_events(t), 4);
        see(t, &reached, 1130 * SEC);
        assert_last(t, 5, "reachable again", 1);
        fail_between(t, 2000, 2010);
        assert_int_equal(event_log_next(&t->event_log, &all, 5)->count, 1);
        assert_last(t, 7, "reachable again", 1);
}

/* ---- refused values -------------------------------------------------------------------------- */

SCENE(test_refused)
{
        refuse(t, "a", "seal-broken", 10 * SEC);
        assert_last(t, 1, "seal-broken", 1);
        assert_int_equal(last_event(t)->pages, 1);
        assert_string_equal(last_event(t)->tenant, "a");
        assert_string_equal(last_event(t)->detail, "refused, as it is bad");
        /* More of it within the minute; another reason has a minute of its own. */
        for (unsigned i = 0; i < 100; i++)
                refuse(t, "a", "seal-broken", 20 * SEC);
        assert_int_equal(n_events(t), 1);
        refuse(t, "b", "length", 21 * SEC);
        assert_last(t, 2, "length", 1);
        assert_string_equal(last_event(t)->tenant, "b");
        see(t, &reached, 69 * SEC);
        assert_int_equal(n_events(t), 2);
        /* The count is reported without another refusal. */
        see(t, &reached, 70 * SEC);
        assert_last(t, 3, "seal-broken", 100);
        assert_int_equal(last_event(t)->pages, 100);
        assert_string_equal(last_event(t)->tenant, "a");
        see(t, &reached, 1000 * SEC);
        assert_int_equal(n_events(t), 3);

        /* Refusals for several tenants name none. */
        refuse(t, "a", "length", 1001 * SEC);
        assert_last(t, 4, "length", 1);
        refuse(t, "b", "length", 1002 * SEC);
        refuse(t, "a", "length", 1003 * SEC);
        see(t, &reached, 1061 * SEC);
        assert_last(t, 5, "length", 2);
        assert_string_equal(last_event(t)->tenant, "");
        assert_string_equal(last_event(t)->detail, "refused, as it is bad; of several tenants");
}

/* All known reasons, and an unknown one. */
SCENE(test_all_reasons)
{
        for (unsigned i = ENVELOPE_SHORT; i < N_ENVELOPE_FAULTS; i++)
                refuse(t, "a", envelope_fault_name((enum envelope_fault)i), SEC);
        refuse(t, "a", "no-epoch", SEC);
        refuse(t, "a", "another", SEC);
        assert_last(t, N_ENVELOPE_FAULTS + 1, "another", 1);
        refuse(t, "a", "one too many", 2 * SEC);
        see(t, &reached, 100 * SEC);
        assert_last(t, N_ENVELOPE_FAULTS + 2, "another", 1);
}
