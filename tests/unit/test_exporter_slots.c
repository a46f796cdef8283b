/* Whose connection to the exporter goes when places run out. */
#include "tests/unit/test-support.h"

#include "client/exporter/slots.h"

static void test_oldest_goes(void **state)
{
        struct slot *first[SLOTS_KEPT], *last;
        struct slots s;

        slots_init(&s);
        for (unsigned i = 0; i < SLOTS_KEPT; i++) {
                first[i] = slots_enter(&s, (int)i, 100 + i);
                assert_null(slots_send_away(&s, 200));
        }
        slot_ask(first[0], 150); /* waits for its answer */
        slot_ask(first[1], 150);
        slot_answered(first[1], 160); /* waits to ask again: later than others began to wait */
        last = slots_enter(&s, 99, 170);
        assert_ptr_equal(slots_send_away(&s, 170), first[2]);
        assert_null(slots_send_away(&s, 170)); /* once for each that comes */
        slots_leave(&s, first[2]);
        assert_null(slots_send_away(&s, 170));
        /* However many come, who came last isn't the next to go. */
        for (unsigned i = 0; i < SLOTS_KEPT - 3; i++) {
                struct slot *gone;

                assert_non_null(slots_enter(&s, 100 + (int)i, 200 + i));
                gone = slots_send_away(&s, 200 + i);
                assert_non_null(gone);
                assert_ptr_not_equal(gone, last);
                assert_ptr_not_equal(gone, first[0]);
                slots_leave(&s, gone);
        }
}

/* Who is being answered stays, but not for ever. */
static void test_all_busy(void **state)
{
        const uint64_t began = 1000;
        struct slots s;

        slots_init(&s);
        for (unsigned i = 0; i < SLOTS_ALL; i++)
                slot_ask(slots_enter(&s, (int)i, began), began + i);
        assert_null(slots_enter(&s, 999, began));
        assert_null(slots_send_away(&s, began + SLOTS_ANSWER_NSEC));
        assert_ptr_equal(slots_send_away(&s, began + SLOTS_ANSWER_NSEC + 1), &s.all[0]);
        assert_null(slots_send_away(&s, began + SLOTS_ANSWER_NSEC + 1));
}

int main(void)
{
        const struct CMUnitTest tests[] = {TEST(test_oldest_goes), TEST(test_all_busy)};

        return RUN_TESTS(tests);
}
