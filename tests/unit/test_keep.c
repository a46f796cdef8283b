#include "daemon/core/state/keep.h"

#include <string.h>

#include "tests/unit/test-support.h"

TEST_BARE(test_names)
{
        static const struct {
                enum keep_kind kind;
                uint32_t number;
                const char *name;
        } names[] = {
                {KEEP_STATE, 0, "s0"},
                {KEEP_EXTENT, 61, "ez"},
                {KEEP_EXTENT, 62, "e10"},
                {KEEP_PINS, KEEP_MAX_NUMBER, "azzzzz"},
        };
        char buf[KEEP_NAME_BYTES];
        enum keep_kind kind;
        uint32_t number;

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
                assert_string_equal(keep_name(buf, names[i].kind, names[i].number), names[i].name);
                assert_true(keep_parse(names[i].name, &kind, &number));
                assert_int_equal(kind, names[i].kind);
                assert_int_equal(number, names[i].number);
        }
}

/* A service manager may give back names of another version, or of another program. */
TEST_BARE(test_no_names)
{
        static const char *const names[] = {"", "e", "x1", "e01", "e-1", "e1:", "e123456"};
        enum keep_kind kind;
        uint32_t number;

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                assert_false(keep_parse(names[i], &kind, &number));
}
