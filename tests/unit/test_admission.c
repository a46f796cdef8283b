#include "policy/admission.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

#define MSEC UINT64_C(1000000)
#define NOW  (1000 * UINT64_C(1000000000))
#define NONE UINT64_MAX

static void check_order(const struct admission_request *a, const struct admission_request *b)
{
        assert_true(admission_compare(a, b, NOW) < 0);
        assert_true(admission_compare(b, a, NOW) > 0);
}

/* Each criterion beats all that come after it. */
TEST(test_criteria)
{
        const struct admission_request base = {50, 10, NOW, NOW + 9, 100, 7};
        struct admission_request first = base, second = base;

        first = (struct admission_request){51, 1, NOW, NONE, 999, 9};
        check_order(&first, &base);
        first = (struct admission_request){50, 1, NOW, NOW + 8, 999, 9};
        check_order(&first, &base);
        first = (struct admission_request){50, 11, NOW, NOW + 9, 100, 9};
        check_order(&first, &base);
        first = (struct admission_request){50, 20, NOW, NOW + 9, 199, 9};
        check_order(&first, &base);
        second = (struct admission_request){50, 20, NOW, NOW + 9, 200, 8};
        check_order(&base, &second);
        assert_int_equal(admission_compare(&base, &base, NOW), 0);
}

/* Each whole ADMISSION_AGE_NSEC adds a step of priority, whether the request arrived before now or
 * not. */
TEST(test_aging)
{
        struct admission_request fresh = {100, 1, NOW, NOW + 1, 0, 2};
        struct admission_request old = {0, 1, NOW - 101 * ADMISSION_AGE_NSEC, NONE, 5 * MSEC, 1};

        check_order(&old, &fresh);
        old.arrived_nsec++;
        check_order(&fresh, &old);
        old.arrived_nsec = 0;
        check_order(&old, &fresh);
        old.arrived_nsec = NOW + 1;
        check_order(&fresh, &old);
}

/* ---- a queue ----------------------------------------------------------------------------------*/

#define QUEUE_MAX  4096
#define TICK_NSEC  (10 * MSEC)
#define TICK_STEPS (ADMISSION_AGE_NSEC / TICK_NSEC)

struct queue {
        struct admission_request waiting[QUEUE_MAX];
        uint32_t n;
        uint64_t last_number;
};

static void queue_add(struct queue *q, struct admission_request r)
{
        assert_true(q->n < QUEUE_MAX);
        r.number = ++q->last_number;
        q->waiting[q->n++] = r;
}

static struct admission_request queue_serve(struct queue *q, uint64_t now_nsec)
{
        struct admission_request first;
        uint32_t found = 0;

        assert_true(q->n > 0);
        for (uint32_t i = 1; i < q->n; i++)
                if (admission_compare(&q->waiting[i], &q->waiting[found], now_nsec) < 0)
                        found = i;
        first = q->waiting[found];
        q->waiting[found] = q->waiting[--q->n];
        return first;
}

/* The most urgent requests there are, as many as can be served and one more each tenth tick. */
static void add_urgent(struct queue *q, uint64_t tick, uint64_t now_nsec)
{
        struct admission_request r = {.priority = 100,
                .weight = 1000,
                .arrived_nsec = now_nsec,
                .deadline_nsec = now_nsec};

        for (unsigned i = 0; i < 1 + (tick % 10 == 0); i++)
                queue_add(q, r);
}

/*
 * One is served each tick, and as many of priority 100 come. Before the one with priority 0 go
 * those that wait already, and those that come in the 101 steps after it: at most 1.1 a tick.
 */
TEST(test_nobody_starves)
{
        static struct queue q;
        uint64_t now_nsec = NOW, served_at = 0, came_at = 500;
        uint64_t bound = 0, number = 0;

        for (uint64_t tick = 0; served_at == 0; tick++, now_nsec += TICK_NSEC) {
                assert_true(bound == 0 || tick <= bound);
                if (tick == came_at) {
                        bound = came_at + q.n + 1 + 101 * TICK_STEPS * 11 / 10 + 1;
                        queue_add(&q, (struct admission_request){.weight = 1,
                                              .arrived_nsec = now_nsec,
                                              .deadline_nsec = NONE,
                                              .served_bytes = UINT64_MAX});
                        number = q.last_number;
                }
                add_urgent(&q, tick, now_nsec);
                if (queue_serve(&q, now_nsec).number == number && number > 0)
                        served_at = tick;
        }
        /* And priorities count: it isn't served before its 100 steps are over. */
        assert_true(served_at >= came_at + 100 * TICK_STEPS);
}
