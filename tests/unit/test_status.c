#include "tests/unit/test-support.h"

#include <limits.h>
#include <string.h>

#include "proto/status.h"

TEST(test_there_and_back)
{
#define X(name, wire, code, text)                       \
        assert_int_equal(status_from_wire(wire), code); \
        assert_int_equal(status_to_wire(code), wire);   \
        assert_string_equal(status_text(code), text);
        STATUS_TABLE(X)
#undef X
}

/* Values of the first release: clients in containers are older or newer than the daemon. */
TEST(test_wire_values_stay)
{
        assert_int_equal(status_from_wire(0), 0);
        assert_int_equal(status_from_wire(3), KVL_STATUS_QUOTA);
        assert_int_equal(status_from_wire(9), KVL_STATUS_VERSION);
        assert_int_equal(status_from_wire(32), -EINVAL);
        assert_int_equal(status_from_wire(44), -EUCLEAN);
        assert_int_equal(status_to_wire(-EAGAIN), 47); /* not an I/O error */
}

TEST(test_unknown)
{
        assert_int_equal(status_from_wire(31), -EPROTO);
        assert_int_equal(status_from_wire(UINT32_MAX), -EPROTO);
        assert_int_equal(status_to_wire(-EXDEV), WIRE_IO);
        assert_int_equal(status_to_wire(1000), WIRE_IO);
        assert_string_equal(status_text(-EXDEV), strerror(EXDEV));
        assert_string_equal(status_text(1000), "unknown outcome");
        assert_non_null(status_text(INT_MIN));
}
