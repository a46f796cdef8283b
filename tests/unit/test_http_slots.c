/* Whose connection to the exporter goes when places run out. */
#include "tests/unit/test-support.h"

#include "client/http/slots.h"

TEST(test_oldest_goes)
{
        const uint64_t later = 100 + SLOTS_ASK_NSEC + 100;
        struct slot *first[SLOTS_KEPT], *last;
        struct slots s;

        slots_init(&s);
        for (unsigned i = 0; i < SLOTS_KEPT; i++) {
                first[i] = slots_enter(&s, (int)i, 100 + i);
                assert_null(slots_send_away(&s, later));
        }
        slot_ask(first[0], 150);
        slot_ask(first[1], 150);
        slot_answer(first[1], 155);
        slot_answered(first[1]);
        last = slots_enter(&s, 99, later);
        assert_null(slots_send_away(&s, 102 + SLOTS_ASK_NSEC)); /* it may still ask */
        assert_ptr_equal(slots_send_away(&s, later), first[2]);
        assert_null(slots_send_away(&s, later)); /* once for each that comes */
        slots_leave(&s, first[2]);
        assert_null(slots_send_away(&s, later));
        /* With any number of connections, the newest one isn't closed next. */
        for (unsigned i = 0; i < SLOTS_KEPT - 1; i++) {
                struct slot *gone;

                assert_non_null(slots_enter(&s, 100 + (int)i, later + 1 + i));
                gone = slots_send_away(&s, later + 1 + i);
                assert_non_null(gone);
                assert_ptr_not_equal(gone, last);
                slots_leave(&s, gone);
        }
}

/* Requests that come before the answers of those before them are taken renew nothing. */
TEST(test_pipelining)
{
        struct slot *pipelining;
        struct slots s;

        slots_init(&s);
        pipelining = slots_enter(&s, 1, 100);
        for (unsigned i = 0; i < SLOTS_KEPT; i++)
                slot_ask(slots_enter(&s, 2 + (int)i, 100), 200);
        for (unsigned i = 0; i < 3; i++) {
                slot_ask(pipelining, 101 + 100 * i);
                slot_answer(pipelining, 101 + 100 * i);
                slot_answered(pipelining);
                slot_note_unread(pipelining, 1000, 101 + 100 * i);
        }
        assert_ptr_equal(slots_send_away(&s, 102 + SLOTS_ASK_NSEC), pipelining);
}

/* Fills all places but for SLOTS_FREE with answers that are written, and one more that came. */
static void fill(struct slots *s, uint64_t now)
{
        slots_init(s);
        for (unsigned i = 0; i <= SLOTS_ALL - SLOTS_FREE; i++) {
                struct slot *slot = slots_enter(s, (int)i, now);

                slot_ask(slot, now);
                slot_answer(slot, now);
                slot_note_unread(slot, 1000, now);
        }
}

/* Only a connection that reads nothing is closed. */
TEST(test_stalled)
{
        const uint64_t later = 1000 + SLOTS_STALL_NSEC + 1;
        struct slots s;

        fill(&s, 1000);
        assert_null(slots_cut_off(&s, later - 1));
        for (unsigned i = 0; i < s.n_used; i++)
                if (i != 7)
                        slot_note_unread(&s.all[i], 999, 1001);
        assert_ptr_equal(slots_cut_off(&s, later), &s.all[7]);
        assert_null(slots_cut_off(&s, 2 * later));
        assert_int_equal(slots_shortage(&s), 1);
        slots_leave(&s, &s.all[7]);
        assert_int_equal(slots_shortage(&s), 0);
        assert_null(slots_cut_off(&s, 2 * later));
}

/* A connection that reads a byte now and then gets no more time than others. */
TEST(test_slow)
{
        const uint64_t late = 1000 + SLOTS_ANSWER_NSEC + 1;
        struct slots s;

        fill(&s, 1000);
        for (unsigned i = 0; i < s.n_used; i++) {
                slot_note_unread(&s.all[i], 999, late);
                s.all[i].since_nsec = i == 7 ? 1000 : late;
        }
        assert_ptr_equal(slots_cut_off(&s, late), &s.all[7]);
}

/* Places run out while answers are made; soon after they are, others have places. */
TEST(test_all_asked)
{
        const uint64_t later = 2000 + SLOTS_STALL_NSEC + 1;
        struct slots s;

        slots_init(&s);
        for (unsigned i = 0; i < SLOTS_ALL; i++)
                slot_ask(slots_enter(&s, (int)i, 1000), 1000);
        assert_null(slots_enter(&s, 999, 1000));
        assert_null(slots_cut_off(&s, later));
        assert_int_equal(slots_shortage(&s), SLOTS_FREE);
        for (unsigned i = 0; i < SLOTS_ALL; i++)
                slot_answer(&s.all[i], 2000);
        for (unsigned i = 0; i < SLOTS_FREE; i++)
                assert_non_null(slots_cut_off(&s, later));
        assert_null(slots_cut_off(&s, later));
}

static uint64_t unread_of(int fd)
{
        return (uint64_t)fd; /* descriptor 0 takes all */
}

TEST(test_streams)
{
        struct slots s;

        slots_init(&s);
        for (int i = 0; i < 2; i++)
                slots_enter(&s, i, 1000)->is_stream = true;
        assert_null(slots_stalled_stream(&s, unread_of)); /* it may be under way */
        assert_ptr_equal(slots_stalled_stream(&s, unread_of), &s.all[1]);
        assert_null(slots_stalled_stream(&s, unread_of));
}
