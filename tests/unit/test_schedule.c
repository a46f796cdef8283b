#include <errno.h>
#include <string.h>

#include "policy/schedule.h"
#include "tests/unit/test-support.h"

#define GIB (1ULL << 30)

static uint32_t at(uint32_t hours, uint32_t minutes)
{
        return hours * 3600 + minutes * 60;
}

static void parse(const char *text, struct schedule *s)
{
        char err[256] = "";

        if (schedule_parse(text, s, err, sizeof(err)) != 0)
                fail_msg("'%s': %s", text, err);
}

TEST(test_spans)
{
        struct schedule s;

        parse("08:00-20:00 8GiB-16GiB,  20:00-22:30\t4GiB-4.5GiB ", &s);
        assert_int_equal(s.n, 2);
        assert_null(schedule_at(&s, at(8, 0) - 1));
        assert_ptr_equal(schedule_at(&s, at(8, 0)), &s.spans[0]);
        assert_ptr_equal(schedule_at(&s, at(20, 0) - 1), &s.spans[0]);
        assert_ptr_equal(schedule_at(&s, at(20, 0)), &s.spans[1]);
        assert_ptr_equal(schedule_at(&s, at(22, 30) - 1), &s.spans[1]);
        assert_null(schedule_at(&s, at(22, 30)));
        assert_int_equal(s.spans[0].min_bytes, 8 * GIB);
        assert_int_equal(s.spans[0].max_bytes, 16 * GIB);
        assert_int_equal(s.spans[1].max_bytes, 9 * GIB / 2);
}

TEST(test_over_midnight)
{
        struct schedule s;

        parse("22:00-06:30 1GiB", &s);
        assert_int_equal(s.spans[0].min_bytes, GIB);
        assert_int_equal(s.spans[0].max_bytes, GIB);
        assert_non_null(schedule_at(&s, at(22, 0)));
        assert_non_null(schedule_at(&s, at(24, 0) - 1));
        assert_non_null(schedule_at(&s, 0));
        assert_non_null(schedule_at(&s, at(6, 30) - 1));
        assert_null(schedule_at(&s, at(6, 30)));
        assert_null(schedule_at(&s, at(22, 0) - 1));
}

TEST(test_first_counts)
{
        struct schedule s;

        parse("12:00-13:00 1GiB,00:00-24:00 2GiB", &s);
        assert_ptr_equal(schedule_at(&s, at(12, 30)), &s.spans[0]);
        assert_ptr_equal(schedule_at(&s, at(13, 0)), &s.spans[1]);
}

TEST(test_short_buffer)
{
        struct schedule s;
        char err[8] = "xxxxxxx";

        assert_int_equal(schedule_parse("x", &s, err, 0), -EINVAL);
        assert_string_equal(err, "xxxxxxx");
        assert_int_equal(schedule_parse("x", &s, err, 7), -EINVAL);
        assert_string_equal(err, "span 1");
        assert_int_equal(err[7], 0);
}
