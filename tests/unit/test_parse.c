#include "tests/unit/test-support.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/parse.h"

#define UNTOUCHED UINT64_C(0xdeadbeef)

struct row {
        const char *text;
        int r;
        uint64_t value;
};

static void check_rows(int (*parse)(const char *, uint64_t *), const struct row *rows, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                uint64_t value = UNTOUCHED;
                int r = parse(rows[i].text, &value);

                if (r != rows[i].r || value != (r ? UNTOUCHED : rows[i].value))
                        fail_msg("'%s': %d, %llu", rows[i].text, r, (unsigned long long)value);
        }
}

TEST(test_u64)
{
        static const struct row rows[] = {
                {"0", 0, 0},
                {"007", 0, 7},
                {"18446744073709551615", 0, UINT64_MAX},
                {"18446744073709551616", -ERANGE},
                {"99999999999999999999999999", -ERANGE},
                {"99999999999999999999999999x", -EINVAL},
                {"", -EINVAL},
                {" 1", -EINVAL},
                {"1 ", -EINVAL},
                {"+1", -EINVAL},
                {"-1", -EINVAL},
                {"0x10", -EINVAL},
        };

        check_rows(parse_u64, rows, ARRAY_SIZE(rows));
}

TEST(test_bytes)
{
        static const struct row rows[] = {
                {"0", 0, 0},
                {"4096", 0, 4096},
                {"12B", 0, 12},
                {"64KiB", 0, 65536},
                {"64KB", 0, 65536},
                {"64K", 0, 65536},
                {"1.5GiB", 0, UINT64_C(1610612736)},
                {"1PiB", 0, UINT64_C(1) << 50},
                {"2T", 0, UINT64_C(2) << 40},
                {"0.1MiB", 0, 104857},
                {"1.0M", 0, 1 << 20},
                {"1PiB", 0, UINT64_C(1) << 50},
                /* A double would round these up to the next whole unit. */
                {"0.999999999999999999TiB", 0, (UINT64_C(1) << 40) - 1},
                {"16777215.999999999999999999TiB", 0, UINT64_MAX},
                {"4194303.00000000023283064365386962890GiB", -ERANGE},
                {"16777216TiB", -ERANGE},
                {"18446744073709551616", -ERANGE},
                {"99999999999999999999T", -ERANGE},
                {"1.5", -EINVAL},
                {"1.5B", -EINVAL},
                {"1.GiB", -EINVAL},
                {".5GiB", -EINVAL},
                {"1.5.5GiB", -EINVAL},
                {"1 GiB", -EINVAL},
                {"1gib", -EINVAL},
                {"1GiBx", -EINVAL},
                {"GiB", -EINVAL},
                {"-1", -EINVAL},
                {"", -EINVAL},
        };

        check_rows(parse_bytes, rows, ARRAY_SIZE(rows));
}

TEST(test_duration)
{
        static const struct row rows[] = {
                {"250ms", 0, 250 * NSEC_PER_MSEC},
                {"30s", 0, 30 * NSEC_PER_SEC},
                {"30", 0, 30 * NSEC_PER_SEC},
                {"5min", 0, 300 * NSEC_PER_SEC},
                {"2h", 0, 7200 * NSEC_PER_SEC},
                {"1d", 0, 86400 * NSEC_PER_SEC},
                {"0", 0, 0},
                {"213503d", 0, UINT64_C(213503) * 86400 * NSEC_PER_SEC},
                {"213504d", -ERANGE},
                {"99999999999999999999ms", -ERANGE},
                {"1.5h", -EINVAL},
                {"5m", -EINVAL},
                {"5 min", -EINVAL},
                {"min", -EINVAL},
                {"", -EINVAL},
        };

        check_rows(parse_duration, rows, ARRAY_SIZE(rows));
}

TEST(test_bool)
{
        static const char *const yes[] = {"yes", "true", "on", "1"};
        static const char *const no[] = {"no", "false", "off", "0"};
        static const char *const bad[] = {"", "Yes", "2", "on ", "y"};
        bool value;

        for (unsigned i = 0; i < ARRAY_SIZE(yes); i++) {
                value = false;
                assert_int_equal(parse_bool(yes[i], &value), 0);
                assert_true(value);
                assert_int_equal(parse_bool(no[i], &value), 0);
                assert_false(value);
        }
        value = true;
        for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
                assert_int_equal(parse_bool(bad[i], &value), -EINVAL);
        assert_true(value);
}

TEST(test_hex)
{
        uint8_t data[4] = {1, 2, 3, 4};
        char text[9];

        assert_int_equal(parse_hex("00fFA5", data, 4), -EINVAL);
        assert_int_equal(parse_hex("00fFA57f9", data, 4), -EINVAL);
        assert_int_equal(parse_hex("00fFA57g", data, 4), -EINVAL);
        assert_memory_equal(data, "\1\2\3\4", 4);
        assert_int_equal(parse_hex("00fFA57e", data, 4), 0);
        assert_memory_equal(data, "\0\xff\xa5\x7e", 4);
        assert_string_equal(format_hex(data, 4, text), "00ffa57e");
        assert_string_equal(format_hex(data, 0, text), "");
}

TEST(test_format_duration)
{
        static const struct {
                uint64_t nsec;
                const char *text;
        } rows[] = {
                {0, "0s"},
                {1, "0ms"},
                {100 * NSEC_PER_MSEC, "100ms"},
                {1500 * NSEC_PER_MSEC, "1500ms"},
                {30 * NSEC_PER_SEC, "30s"},
                {90 * NSEC_PER_SEC, "90s"},
                {300 * NSEC_PER_SEC, "5min"},
                {3600 * NSEC_PER_SEC, "1h"},
                {36 * 3600 * NSEC_PER_SEC, "36h"},
                {365 * 86400 * NSEC_PER_SEC, "365d"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                char buf[FORMAT_DURATION_MAX];

                assert_string_equal(format_duration(rows[i].nsec, buf), rows[i].text);
        }
}

TEST(test_format_opaque)
{
        char buf[FORMAT_OPAQUE_BYTES(4)];

        assert_string_equal(format_opaque("a ~.", 4, buf), "a ~.");
        assert_string_equal(format_opaque("", 0, buf), "");
        assert_string_equal(format_opaque("ab\x7f\xff", 4, buf), "0x61627fff");
        assert_string_equal(format_opaque("a\0b", 3, buf), "0x610062");
        assert_string_equal(format_opaque("\x1f", 1, buf), "0x1f");
}

TEST(test_names)
{
        static const char *const bad[] = {
                "", ".", "..", ".a", "-a", "a/b", "a b", "a\n", "\xc3\xa4"};
        char longest[NS_NAME_MAX + 2] = "";

        assert_true(name_is_valid("a", 64));
        assert_true(name_is_valid("Llama-3_8b.v1", 64));
        assert_true(name_is_valid("12345678", 8));
        assert_false(name_is_valid("123456789", 8));
        for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
                assert_false(name_is_valid(bad[i], 64) || ns_name_is_valid(bad[i]));
        assert_false(name_is_valid("a@b", 64) || name_is_valid("@", 64));
        assert_true(ns_name_is_valid("a@b") && ns_name_is_valid("Llama-3_8b.v1"));
        assert_false(ns_name_is_valid("@b"));
        memset(longest, 'x', NS_NAME_MAX);
        assert_true(ns_name_is_valid(longest));
        longest[NS_NAME_MAX] = '@';
        assert_false(ns_name_is_valid(longest));
}

TEST(test_utf8)
{
        static const struct {
                const char *text;
                size_t n, len;
        } cases[] = {
                {"a", 1, 1}, {"\0", 1, 1}, {"\x7f", 1, 1}, {"\x80", 1, 0}, /* continues nothing */
                {"\xc1\xbf", 2, 0},                     /* longer than it must be */
                {"\xc2\x80", 2, 2}, {"\xc2\x80", 1, 0}, /* cut */
                {"\xdf\xbf", 2, 2}, {"\xdf\xc0", 2, 0}, {"\xe0\x9f\xbf", 3, 0},
                {"\xe0\xa0\x80", 3, 3}, {"\xed\x9f\xbf", 3, 3},
                {"\xed\xa0\x80", 3, 0}, /* half of a pair of UTF-16 */
                {"\xef\xbf\xbd", 2, 0}, {"\xf0\x8f\xbf\xbf", 4, 0}, {"\xf0\x90\x80\x80", 4, 4},
                {"\xf4\x8f\xbf\xbf", 4, 4}, {"\xf4\x90\x80\x80", 4, 0}, /* beyond Unicode */
                {"\xf5\x80\x80\x80", 4, 0}, {"\xe2\x82", 4, 0},         /* a NUL ends it */
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
                assert_int_equal(utf8_char_len(cases[i].text, cases[i].n), cases[i].len);
}

TEST(test_plain_text)
{
        static const char *const plain[] = {"", "a b", "/data/\xe6\xa8\xa1\xe5\x9e\x8b", "\xc2\xa0",
                "\xe2\x82\xac", "\xe2\x80\xa7", "\xe2\x81\xa5", "\xf0\x9f\x98\x80"};
        static const char *const others[] = {"\n", "a\x7f", "\xc2\x9b", "\xff", "x\xe6\xa8",
                "\xe2\x80\xa8",
                "\xe2\x80\xae"
                "lru",
                "\xe2\x81\xa6", "\xe2\x80\x8f"};

        for (size_t i = 0; i < ARRAY_SIZE(plain); i++)
                assert_true(text_is_plain(plain[i]));
        for (size_t i = 0; i < ARRAY_SIZE(others); i++)
                assert_false(text_is_plain(others[i]));
}
